"""Requests, results, errors and recoveries in document 003."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import pytest
from tests.integrations.mcp_client.test_approver import SERVER
from tests.runtime.edit_tools import editor

from lab.seeds.conversation import LATEST, Object, Played, call, play, text
from lab.seeds.test_samples import assistant_record, result_of, sample, span_of, transcript, user_record
from toolspan import ADVICE, Permissions, Session, ToolError, coding_tools
from toolspan.formats import blocks
from toolspan.integrations.mcp_client import McpServers
from toolspan.integrations.mcp_client.servers import prompt_tool_approver
from toolspan.runtime.batch import Recovery
from toolspan.runtime.permissions.modes import mode_policy
from toolspan.runtime.profiles import profile
from toolspan.runtime.tool import Tool
from toolspan.tools.recovery import Degrade, ReadFirst
from toolspan.types.error_kinds import ErrorKind
from toolspan.types.events import BatchFinished
from toolspan.types.results import ReadText

pytestmark = pytest.mark.anyio


def reads(path: Path) -> Sequence[Object]:
    return [call("Read", "toolu_0", file_path=str(path))]


# The messages


async def test_recorded_reply_has_id_type_stop_reason_and_usage(prices: Path, tmp_path: Path) -> None:
    played = await play(tmp_path, [call("Read", file_path=str(prices))])

    (line,) = (line for line in played.lines if line["type"] == "assistant")
    message = line["message"]
    assert (message["id"][:4], message["type"], message["stop_reason"]) == ("msg_", "message", "tool_use")
    assert message["usage"].keys() >= {
        "input_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
        "output_tokens",
    }


async def test_session_continues_only_if_the_model_waits_for_results(prices: Path, tmp_path: Path) -> None:
    read = call("Read", file_path=str(prices))
    async with Session(permissions=Permissions.allow_all(), cwd=tmp_path, profile="seed", transcript=None) as session:
        session.say("Go on.")
        waits = await session.run({"role": "assistant", "content": [read]})
        done = await session.run({"role": "assistant", "content": [text("Done.")]})

    assert (waits, done) == (True, False)


async def test_flag_and_tags_mark_an_error(prices: Path, tmp_path: Path) -> None:
    edit = {"file_path": str(prices), "old_string": "tea,3", "new_string": "tea,5"}
    played = await play(tmp_path, [call("Edit", "toolu_1", **edit)], reads(prices), [call("Edit", "toolu_2", **edit)])

    refused, _, done = played.results
    assert refused["is_error"] is True
    assert refused["content"] == (
        "<tool_use_error>File has not been read yet. Read it first before writing to it.</tool_use_error>"
    )
    assert not done.get("is_error")
    assert [parsed.is_error for parsed in blocks.parse_result([refused, done])] == [True, False]


def test_success_may_have_the_flag_or_not() -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}
    for flag in ({}, {"is_error": False}):
        (span,) = transcript(assistant_record(call("Read")), user_record({**result, **flag})).spans
        assert span.state == "succeeded"


# Tools


async def test_todos_with_ids_are_accepted_and_answered_with_one_sentence(tmp_path: Path) -> None:
    request = sample("S3-12.json")
    played = await play(tmp_path, [call("TodoWrite", **request["input"])])

    assert played.span().state == "succeeded"
    assert played.results[0]["content"] == (
        "Todos have been modified successfully. Ensure that you continue to use the todo list to"
        " track your progress. Please proceed with the current tasks if applicable"
    )


async def test_only_an_invalid_todo_list_is_refused(tmp_path: Path) -> None:
    item = {"id": "1", "content": "Bake"}
    played = await play(
        tmp_path,
        *(
            [call("TodoWrite", status, todos=[{**item, "status": status}])]
            for status in ("pending", "in_progress", "completed", "someday")
        ),
    )

    assert [played.span(entry).state for entry in ("pending", "in_progress", "completed")] == ["succeeded"] * 3
    assert played.span("someday").error_kind == "invalid_input"


async def test_limit_and_offset_select_lines(prices: Path, tmp_path: Path) -> None:
    played = await play(
        tmp_path,
        [call("Read", "toolu_1", file_path=str(prices), limit=1)],
        [call("Read", "toolu_2", file_path=str(prices), offset=2, limit=1)],
        [call("Read", "toolu_3", file_path=str(prices), offset=0, limit=1)],
    )

    assert [result["content"] for result in played.results] == ["     1→tea,3", "     2→cake,4", "     1→tea,3"]


def test_note_below_the_lines_of_a_file_is_not_one_of_them() -> None:
    span = span_of(
        {"type": "tool_use", "name": "Read", "input": {"file_path": "a.go"}},
        {"type": "tool_result", "content": "     1→package main\n     2→\n\n<system-reminder>Mind</system-reminder>"},
    )
    seen = result_of(span).structured

    assert isinstance(seen, ReadText)
    assert (seen.file.content, seen.file.num_lines) == ("package main\n", 2)


async def test_missing_text_is_reported_as_in_the_document(prices: Path, tmp_path: Path) -> None:
    edit = call("Edit", file_path=str(prices), old_string="rum", new_string="x")
    played = await play(tmp_path, reads(prices), [edit])

    assert played.results[1]["content"] == ("<tool_use_error>old_string not found in file</tool_use_error>")
    assert (played.span().error_kind, played.read_span().error_kind) == ("no_match", "no_match")


# Recoveries


EDITS: list[Object] = [
    {"old_string": "tea,3", "new_string": "tea,5"},
    {"old_string": "tea,5\ncake,4", "new_string": "tea,5\ncake,6"},
]
WANTED = "tea,5\ncake,6\nsoup,6\n"


def stubborn(name: str, answer: str) -> Tool:
    async def refuse(_path: Path) -> str:
        if answer == "timeout":
            await anyio.sleep_forever()
        raise ToolError("the disk says no")

    return editor(name, refuse, 0.001 if answer == "timeout" else 60.0)


def seed_tools(answers: Mapping[str, str]) -> list[Tool]:
    own = [stubborn(name, answer) for name, answer in answers.items()]
    return [*own, *(coding_tool for coding_tool in coding_tools(profile("seed")) if coding_tool.name not in answers)]


async def recovered(
    folder: Path, path: Path, *recoveries: Recovery, answers: Mapping[str, str] | None = None, edit: bool = False
) -> Played:
    tools = seed_tools(answers or {})
    fields: Object = {"file_path": str(path)}
    request = call("Edit", **fields, **EDITS[0]) if edit else call("MultiEdit", **fields, edits=EDITS)
    return await play(folder, [request], tools=tools, recoveries=recoveries)


def steps(played: Played) -> list[str]:
    return [span.tool for span in played.session.spans]


RECOVERIES: list[tuple[str, dict[str, str], list[str], str]] = [
    # the tools' answers, the calls made, the content of the file
    ("editWithFallback", {}, ["Read", "MultiEdit"], WANTED),
    ("editWithFallback", {"MultiEdit": "timeout"}, ["Read", "MultiEdit", "Edit", "Edit"], WANTED),
    (
        "editWithFallback",
        {"MultiEdit": "timeout", "Edit": "timeout"},
        ["Read", "MultiEdit", "Edit", "Read", "Write"],
        WANTED,
    ),
    (
        "editWithFallback",
        {"MultiEdit": "timeout", "Edit": "error"},
        ["Read", "MultiEdit", "Edit", "Read", "Write"],
        WANTED,
    ),
    ("editWithFallback", {"MultiEdit": "error"}, ["Read", "MultiEdit"], "as it was"),
]


@pytest.mark.parametrize(("function", "answers", "calls", "after"), RECOVERIES)
async def test_edit_falls_back_to_simpler_tools_and_loses_no_change(
    function: str, answers: Mapping[str, str], calls: list[str], after: str, prices: Path, tmp_path: Path
) -> None:
    assert function in {vector["function"] for vector in sample("vectors-003.json")["recovery"]}
    before = prices.read_text(encoding="utf-8")
    played = await recovered(tmp_path, prices, ReadFirst(), Degrade(), answers=answers)

    assert steps(played) == calls
    result = prices.read_text(encoding="utf-8")
    assert result == (before if after == "as it was" else after)
    if answers.get("MultiEdit") == "error":
        assert result_of(played.span()).text == "the disk says no"


async def test_existing_file_is_read_before_it_is_edited(prices: Path, tmp_path: Path) -> None:
    there = await recovered(tmp_path, prices, ReadFirst(), edit=True)
    (tmp_path / "b").mkdir()
    missing = await recovered(tmp_path / "b", tmp_path / "no.csv", ReadFirst(), edit=True)

    assert (steps(there), there.span().state) == (["Read", "Edit"], "succeeded")
    assert (steps(missing), missing.span().state) == (["Edit"], "failed")


async def test_known_file_is_not_read_again(prices: Path, tmp_path: Path) -> None:
    played = await play(
        tmp_path, reads(prices), [call("Edit", file_path=str(prices), **EDITS[0])], recoveries=[ReadFirst()]
    )

    assert steps(played) == ["Read", "Edit"]


@pytest.mark.parametrize(("manner", "kind"), [("silent", "permission_timeout"), ("die", "mcp_no_response")])
async def test_unanswered_permission_question_is_not_worked_around(
    manner: str, kind: ErrorKind, prices: Path, tmp_path: Path
) -> None:
    seed = profile("seed")
    entry = {"command": sys.executable, "args": [str(SERVER), manner]}
    before = prices.read_text(encoding="utf-8")
    async with McpServers(
        {"mcpServers": {"p": entry}}, profile=seed, cwd=tmp_path
    ) as servers:  # fmt: skip
        played = await play(
            tmp_path,
            reads(prices),
            [call("MultiEdit", file_path=str(prices), edits=EDITS)],
            approver=prompt_tool_approver(servers, "mcp__p__ask", seed, timeout=0.5),
            fallback=mode_policy("default"),
            recoveries=[Degrade()],
        )

    assert (steps(played), played.span().error_kind) == (["Read", "MultiEdit"], kind)
    assert prices.read_text(encoding="utf-8") == before
    assert ADVICE["permission_timeout"].retry == "fallback"


# Chains and sequences


async def test_file_read_in_one_message_can_be_edited_in_the_next(prices: Path, tmp_path: Path) -> None:
    todo = call("TodoWrite", "toolu_3", todos=[{"id": "1", "content": "x", "status": "completed"}])
    edit = call("Edit", "toolu_2", file_path=str(prices), **EDITS[0])
    played = await play(tmp_path, [call("Read", file_path=str(prices))], [edit], [todo])

    assert [(span.tool, span.state) for span in played.transcript.spans] == [
        ("Read", "succeeded"),
        ("Edit", "succeeded"),
        ("TodoWrite", "succeeded"),
    ]


async def test_lookups_of_one_message_run_as_one_batch(prices: Path, tmp_path: Path) -> None:
    inputs = {"Read": {"file_path": str(prices)}, "LS": {"path": str(tmp_path)}, "Grep": {"pattern": "tea"}}
    request = [call(block["name"], block["id"], **inputs[block["name"]]) for block in sample("S3-54.json")["content"]]
    played = await play(tmp_path, request)
    tools = {coding_tool.name: coding_tool for coding_tool in coding_tools(profile("seed"))}

    assert [event.call_ids for event in played.events_of(BatchFinished)] == [("toolu_1", "toolu_2", "toolu_3")]
    assert all(tools[name].may_overlap(fields) for name, fields in inputs.items())
    assert [span.state for span in played.transcript.spans] == ["succeeded"] * 3


# The parser, the builder and the lookup


def test_every_tag_around_an_error_is_removed() -> None:
    content = "<tool_use_error>one</tool_use_error> and <tool_use_error>two</tool_use_error>"
    (parsed,) = blocks.parse_result({"type": "tool_result", "tool_use_id": "a", "content": content, "is_error": True})

    assert parsed.text == "one and two"


ASKING = "Error calling tool (Edit): MCP error -32603: failed to evaluate permission: "
LOOKUP: list[tuple[str, ErrorKind, str]] = [
    ("File has not been read yet. Read it first before writing to it.", "read_required", "read"),
    (f"{ASKING}request timed out after 2m0s", "permission_timeout", "simpler tool or Write"),
    (f"{ASKING}no response received", "mcp_no_response", "retry, or fall back"),
    ("Error calling tool (Edit): fetch failed", "network", "check connectivity, retry"),
    ("old_string not found in file", "no_match", "verify the content with a Read, or use Write"),
]


@pytest.mark.parametrize(("text", "kind", "solution"), LOOKUP)
def test_error_has_a_cause_and_a_solution(text: str, kind: ErrorKind, solution: str) -> None:
    span = span_of(
        {"type": "tool_use", "name": "Edit", "input": {"file_path": "f"}},
        {"type": "tool_result", "content": f"<tool_use_error>{text}</tool_use_error>", "is_error": True},
    )

    assert span.error_kind == kind
    assert span.advice is not None
    assert span.advice.cause
    assert solution.lower() in span.advice.solution.lower()


def test_seed_profile_has_the_fourteen_tools_of_the_list() -> None:
    names = [coding_tool.name for coding_tool in coding_tools(profile("seed"), person=True)]
    listed = sample("S3-90.json")["tools"]

    assert [name for name in names if name in listed] == listed


async def test_newest_client_does_not_have_these_tools(tmp_path: Path) -> None:
    played = await play(tmp_path, [call("LS", "toolu_1", path="."), call("MultiEdit", "toolu_2")], version=LATEST)

    assert [span.error_kind for span in played.session.spans] == ["unknown_tool", "unknown_tool"]
