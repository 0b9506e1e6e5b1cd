"""Sessions: the live conversation and its transcript."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import anyio
import pytest

import toolspan
from tests.requirement import requirement
from tests.runtime.waiting_tools import Held, interrupting
from toolspan import Hooks, Permissions, Rules, Session, tool
from toolspan.errors import BadCall, ToolspanError, UnknownFormat
from toolspan.runtime.hooks.events import PreToolDecision
from toolspan.runtime.profiles import profile
from toolspan.runtime.runner import Runner
from toolspan.runtime.sinks import Sink
from toolspan.runtime.tool import Tool
from toolspan.testing import ModelServer, ScriptedModel, check_history, say, use
from toolspan.tools import coding_tools
from toolspan.types.events import Faulted, LiveEvent
from toolspan.types.span import Call

pytestmark = pytest.mark.anyio


@tool(concurrent=True)
async def echo(text: str) -> str:
    """Give the text back."""
    return text


def session_in(folder: Path, tools: list[Tool], transcript: Path | None, hooks: Hooks | None = None) -> Session:
    return Session(permissions=Permissions.allow_all(), cwd=folder, tools=tools, transcript=transcript, hooks=hooks)


def calls(*names: str, text: str = "hi") -> dict[str, object]:
    blocks = [{"type": "tool_use", "id": n, "name": "echo", "input": {"text": text}} for n in names]
    return {"role": "assistant", "content": blocks}


async def agent(session: Session, model: ScriptedModel) -> None:
    while True:
        reply = await model.create(messages=session.messages, tools=session.schemas())
        if not await session.run(reply):
            return


async def test_scripted_model_drives_real_tools_and_the_transcript_shows_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n", encoding="utf-8")
    model = ScriptedModel(
        [
            [say("I look."), use("Read", file_path="a.txt"), use("Bash", command="ls")],
            [use("Edit", file_path="a.txt", old_string="one", new_string="two")],
            [say("Done.")],
        ]
    )
    path = tmp_path / "t.jsonl"
    async with Session(permissions=Permissions.allow_all(), cwd=tmp_path, transcript=path) as session:
        session.say("Make it two.")
        await agent(session, model)

    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "two\n"
    assert model.remaining_steps == 0
    assert check_history(session.messages) == []
    assert [(s.tool, s.state) for s in toolspan.read(path).spans] == [
        ("Read", "succeeded"),
        ("Bash", "succeeded"),
        ("Edit", "succeeded"),
    ]


async def test_official_sdk_drives_a_session_over_http(tmp_path: Path) -> None:
    anthropic = pytest.importorskip("anthropic")

    script = ScriptedModel([[use("echo", text="over the wire")], [say("Done.")]])
    async with (
        ModelServer(script) as server,
        session_in(tmp_path, [echo], tmp_path / "t.jsonl") as session,
    ):
        client = anthropic.AsyncAnthropic(api_key="none", base_url=server.url, max_retries=0)
        session.say("go")
        while True:
            reply = await client.messages.create(
                model="m",
                max_tokens=100,
                messages=session.messages,
                tools=session.schemas(),
            )
            if not await session.run(reply):
                break
        await client.close()

    assert [span.state for span in session.spans] == ["succeeded"]
    assert check_history(session.messages) == []


async def test_results_of_a_reply_are_one_message_in_call_order(tmp_path: Path) -> None:
    async with session_in(tmp_path, [echo], None) as session:
        session.say("go")
        assert await session.run(calls("a", "b", "c"))

    content = session.messages[-1]["content"]
    assert isinstance(content, list)
    assert [block["tool_use_id"] for block in content] == ["a", "b", "c"]


async def test_interrupted_turn_leaves_a_valid_history(tmp_path: Path) -> None:
    hang = Held("hang")
    blocks: list[dict[str, object]] = [{"type": "tool_use", "id": n, "name": "hang", "input": {}} for n in ("a", "b")]
    path = tmp_path / "t.jsonl"
    async with session_in(tmp_path, [hang.tool], path) as session:
        session.say("go")
        async with interrupting(session, hang.inside):
            assert not await session.run({"role": "assistant", "content": blocks})

    assert session.stopped == "interrupted by the user"
    assert [span.state for span in session.spans] == ["cancelled", "interrupted"]
    session.say("go on")
    assert check_history(session.messages) == []
    assert [span.state for span in toolspan.read(path).spans] == ["interrupted", "cancelled"]


async def test_cancelled_host_still_gets_every_result(tmp_path: Path) -> None:
    hang = Held("hang")
    path = tmp_path / "t.jsonl"
    block = {"type": "tool_use", "id": "a", "name": "hang", "input": {}}
    async with session_in(tmp_path, [hang.tool], path) as session:
        session.say("go")
        async with anyio.create_task_group() as group:
            group.start_soon(session.run, {"role": "assistant", "content": [block]})
            await hang.inside.wait()
            group.cancel_scope.cancel()

    assert check_history([*session.messages, {"role": "assistant", "content": "ok"}]) == []
    assert [span.state for span in toolspan.read(path).spans] == ["interrupted"]


async def test_truncated_call_is_answered_and_not_run(tmp_path: Path) -> None:
    ran: list[str] = []

    @tool
    async def note(text: str) -> str:
        """Remember."""
        ran.append(text)
        return text

    blocks = [{"type": "tool_use", "id": n, "name": "note", "input": {"text": n}} for n in ("a", "b")]
    reply = {"role": "assistant", "content": blocks, "stop_reason": "max_tokens"}
    async with session_in(tmp_path, [note], None) as session:
        session.say("go")
        assert await session.run(reply)

    assert ran == ["a"]
    assert [span.error_kind for span in session.spans] == [None, "invalid_input"]
    assert check_history(session.messages) == []


async def test_repeated_call_id_is_not_run_again(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    async with session_in(tmp_path, [echo], path) as session:
        session.say("go")
        await session.run(calls("a", "a", "b"))
        await session.run(calls("b", "c"))

    assert [span.id for span in session.spans] == ["a", "b", "c"]
    assert check_history(session.messages) == []
    assert [span.id for span in toolspan.read(path).spans] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "reply",
    [
        "hi",
        {"role": "user", "content": "no"},
        {"role": "assistant", "content": 7},
        {"role": "assistant", "content": ["words"]},
        {"role": "assistant", "content": [{"type": "tool_use", "name": "echo", "input": {}}]},
    ],
    ids=json.dumps,
)
async def test_reply_that_cannot_be_answered_is_refused_and_changes_nothing(tmp_path: Path, reply: Any) -> None:
    path = tmp_path / "t.jsonl"
    async with session_in(tmp_path, [echo], path) as session:
        session.say("go")
        with pytest.raises(BadCall):
            await session.run(reply)
        assert len(session.messages) == 1
        assert await session.run(calls("a"))

    assert [span.id for span in toolspan.read(path).spans] == ["a"]


async def test_hook_that_stops_the_turn_lets_the_call_finish_and_cancels_the_rest(tmp_path: Path) -> None:
    hooks = Hooks()

    @hooks.pre_tool_use("slow")
    def enough(call: Call) -> PreToolDecision | None:
        return PreToolDecision(stop="enough for today") if call.id == "a" else None

    @tool
    async def slow() -> str:
        """Run alone."""
        return "done"

    blocks: list[dict[str, object]] = [{"type": "tool_use", "id": n, "name": "slow", "input": {}} for n in ("a", "b")]
    async with session_in(tmp_path, [slow], None, hooks=hooks) as session:
        session.say("go")
        assert not await session.run({"role": "assistant", "content": blocks})

    assert session.stopped == "enough for today"
    assert [span.state for span in session.spans] == ["succeeded", "cancelled"]
    session.say("go on")
    assert check_history(session.messages) == []


@requirement("session.hook-context")
async def test_hook_context_follows_the_results(tmp_path: Path) -> None:
    hooks = Hooks()

    @hooks.pre_tool_use("echo")
    def hint(call: Call) -> PreToolDecision:
        return PreToolDecision(contexts=("mind the gap",))

    async with session_in(tmp_path, [echo], None, hooks=hooks) as session:
        session.say("go")
        await session.run(calls("a"))

    content = session.messages[-1]["content"]
    assert isinstance(content, list)
    assert [block["type"] for block in content] == ["tool_result", "text"]
    assert content[1]["text"] == "PreToolUse:echo hook additional context: mind the gap"


async def test_unwritable_transcript_is_reported_and_stops_nothing(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder", encoding="utf-8")
    async with session_in(tmp_path, [echo], blocked / "t.jsonl") as session:
        session.say("go")
        assert await session.run(calls("a"))

    assert [span.state for span in session.spans] == ["succeeded"]
    assert session.failures


async def test_session_on_an_existing_file_continues_after_its_last_record(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    for number in ("one", "two"):
        async with session_in(tmp_path, [echo], path) as session:
            session.say("go")
            await session.run(calls(number))

    transcript = toolspan.read(path)
    assert [(span.id, span.branch) for span in transcript.spans] == [("one", "active"), ("two", "active")]
    assert check_history(session.messages) == []
    assert [message["role"] for message in session.messages] == ["user", "assistant", "user"] * 2
    assert transcript.info.session_ids == (session.session_id,)


@pytest.mark.parametrize("content", [b"milk\n", b"%PDF-1.7\n\xff\xfe\n", b'{"a":1}\n', b'{"type":"event_msg"}\n'])
def test_file_that_is_not_a_transcript_is_left_unchanged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.md"
    path.write_bytes(content)

    with pytest.raises(UnknownFormat):
        Session(permissions=Permissions.allow_all(), cwd=tmp_path, transcript=path)
    assert path.read_bytes() == content


async def test_transcript_with_a_torn_first_line_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"parentUuid":null,"isSide')
    async with session_in(tmp_path, [echo], path) as session:
        session.say("go")
        await session.run(calls("a"))

    assert [span.state for span in toolspan.read(path).spans] == ["succeeded"]


@pytest.mark.parametrize("name", ["../../x", "a/b", "..", ".", "a\\b", "a\0"])
def test_session_id_that_is_not_a_plain_name_is_refused(tmp_path: Path, name: str) -> None:
    for transcript in ("home", None):
        with pytest.raises(ToolspanError, match="as a file name"):
            Session(permissions=Permissions.allow_all(), cwd=tmp_path, transcript=transcript, session_id=name)


async def test_hook_cannot_modify_recorded_arguments(tmp_path: Path) -> None:
    hooks = Hooks()

    @hooks.pre_tool_use("echo")
    def meddle(call: Call) -> None:
        call.arguments["text"] = "changed"  # type: ignore[index]

    async with session_in(tmp_path, [echo], None, hooks=hooks) as session:
        session.say("go")
        await session.run(calls("a"))

    content = session.messages[1]["content"]
    assert isinstance(content, list)
    assert content[0]["input"] == {"text": "hi"}


@requirement("session.deferred-schemas")
async def test_deferred_tools_are_marked_on_request(tmp_path: Path) -> None:
    session = Session(permissions=Permissions.allow_all(), cwd=tmp_path, transcript=None)

    assert all("defer_loading" not in schema for schema in session.schemas())
    marked = {s["name"] for s in session.schemas(defer=True) if s.get("defer_loading")}
    assert "WebFetch" in marked
    assert "Read" not in marked


async def test_reply_waits_for_the_results_of_the_previous_one() -> None:
    begun, finish = anyio.Event(), anyio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await finish.wait()
        return "waited"

    block = {"type": "tool_use", "id": "toolu_w", "name": "wait", "input": {}}
    session = Session(permissions=Permissions.allow_all(), tools=[wait], transcript=None)
    async with session, anyio.create_task_group() as tasks:
        session.say("go")
        tasks.start_soon(session.run, {"role": "assistant", "content": [block]})
        await begun.wait()
        with pytest.raises(ToolspanError, match="unanswered tool calls"):
            await session.run({"role": "assistant", "content": "Meanwhile."})
        finish.set()

    assert [message["role"] for message in session.messages] == ["user", "assistant", "user"]
    assert check_history(session.messages) == []


async def test_session_without_permissions_runs_only_read_only_calls(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("inside\n", encoding="utf-8")
    read = {"type": "tool_use", "id": "r", "name": "Read", "input": {"file_path": str(tmp_path / "a.txt")}}
    touch = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "touch made"}}

    async with Session(cwd=tmp_path, transcript=None) as session:
        session.say("go")
        await session.run({"role": "assistant", "content": [read, touch], "stop_reason": "tool_use"})

    assert [(span.tool, span.state) for span in session.spans] == [("Read", "succeeded"), ("Bash", "denied")]
    assert not (tmp_path / "made").exists()


@tool
def peek() -> list[dict[str, object]]:
    """Look."""
    return [{"type": "text", "text": "a flower"}]


def blocks_of(session: Session) -> list[list[Any]]:
    return [content for message in session.messages if isinstance(content := message["content"], list)]


async def test_changing_messages_does_not_change_the_history(tmp_path: Path) -> None:
    text: list[dict[str, object]] = [{"type": "text", "text": "go"}]
    block = {"type": "tool_use", "id": "a", "name": "peek", "input": {}}
    async with Session(permissions=Permissions.allow_all(), cwd=tmp_path, tools=[peek], transcript=None) as session:
        session.say(text)
        await session.run({"role": "assistant", "content": [block]})
        before = session.messages
        for blocks in blocks_of(session):
            blocks[-1]["cache_control"] = {"type": "ephemeral"}
            blocks.append({"type": "text", "text": "more"})
        blocks_of(session)[-1][0]["content"][0]["text"] = "a weed"
        text[0]["text"] = "stop"

        assert session.messages == before
        assert before[0]["content"] == [{"type": "text", "text": "go"}]


async def test_history_passed_by_the_caller_is_not_modified(tmp_path: Path) -> None:
    block: dict[str, object] = {"type": "text", "text": "before"}
    history = [{"role": "user", "content": [block]}, {"role": "assistant", "content": [block]}]
    async with Session(permissions=Permissions.allow_all(), cwd=tmp_path, history=history, transcript=None) as session:
        block["text"] = "after"

        assert [item[0]["text"] for item in blocks_of(session)] == ["before", "before"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("  ", "must not be empty"),
        ([], "must not be empty"),
        (None, "must not be empty"),
        (5, "not int"),
        ({"type": "text", "text": "a"}, "not dict"),
        (["a"], "each with its type"),
        ([{"type": "text", "text": 5}], "must be a string"),
        ([{"type": "text", "text": ""}], "empty"),
        ([{"type": "tool_result", "tool_use_id": "a"}], "must not contain a tool_result"),
    ],
)
async def test_invalid_prompt_is_refused(tmp_path: Path, content: Any, why: str) -> None:
    async with Session(permissions=Permissions.allow_all(), cwd=tmp_path, transcript=None) as session:
        with pytest.raises(ValueError, match=why):
            session.say(content)
        with pytest.raises(ValueError, match=why):
            await session.submit(content)

        assert session.messages == []


CALL = {"id": "call_1", "type": "function", "function": {"name": "echo", "arguments": '{"text": "hi"}'}}
MESSAGE: dict[str, object] = {"role": "assistant", "content": "I echo.", "tool_calls": [CALL]}
CHOICE = {"index": 0, "finish_reason": "tool_calls", "message": MESSAGE}
REPLIES: list[dict[str, object]] = [
    {"id": "chatcmpl-1", "object": "chat.completion", "choices": [CHOICE]},
    MESSAGE,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "assistant", "content": "", "function_call": CALL["function"]},
    {"object": "response", "output": [{"type": "function_call", "call_id": "c", "name": "echo", "arguments": "{}"}]},
]


class SdkReply:
    """An SDK object, which is a pydantic model."""

    def __init__(self, fields: dict[str, object]) -> None:
        self.fields = fields

    def model_dump(self, *, mode: str, exclude_none: bool) -> dict[str, object]:
        return self.fields


@pytest.mark.parametrize("reply", REPLIES)
async def test_openai_reply_is_refused_and_the_adapter_named(reply: dict[str, object], tmp_path: Path) -> None:
    session = Session(permissions=Permissions.allow_all(), cwd=tmp_path, tools=[echo], transcript=None)
    async with session:
        session.say("Go.")
        for fields in (reply, SdkReply(reply)):
            with pytest.raises(TypeError, match=r"OpenAI.*make_model"):
                await session.run(fields)
        with pytest.raises(TypeError, match=r"OpenAI.*make_model"):
            await Runner([echo]).run(reply)
        assert len(session.messages) == 1
        assert await session.run(  # the session still works
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "echo", "input": {"text": "hi"}}]}
        )


def breaks(event: LiveEvent) -> None:
    raise ValueError(f"cannot take {type(event).__name__}")


async def breaks_later(event: LiveEvent) -> None:
    raise ValueError(f"cannot take {type(event).__name__}")


@pytest.mark.parametrize("way", ["direct", "thread", "task"])
async def test_raising_sink_is_reported_once(way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    choices: dict[str, list[Sink]] = {"direct": [], "thread": [breaks], "task": [breaks_later]}
    sinks = choices[way]
    session = Session(
        permissions=Permissions.allow_all(),
        cwd=tmp_path,
        tools=[echo],
        transcript=None,
        direct=[breaks] if way == "direct" else [],
        sinks=sinks,
    )
    with caplog.at_level(logging.WARNING, logger="toolspan"):
        async with session:
            session.say("Go.")
            for name in "abcd":
                call = {"type": "tool_use", "id": name, "name": "echo", "input": {"text": "hi"}}
                assert await session.run({"role": "assistant", "content": [call]})

    (failure,) = session.failures
    assert isinstance(failure, Faulted)
    assert failure.where == ("breaks_later" if way == "task" else "breaks")
    assert failure.reason.startswith("ValueError: cannot take ")
    (record,) = caplog.records
    assert failure.where in record.getMessage()


CALL = {"type": "tool_use", "id": "call_0", "name": "echo", "input": {"text": "hi"}}


async def test_reply_that_repeats_an_id_stops_the_turn_with_the_reason(tmp_path: Path) -> None:
    permissions = Permissions.allow_all()
    async with Session(permissions=permissions, cwd=tmp_path, tools=[echo], transcript=None) as session:
        session.say("Go.")
        assert await session.run({"role": "assistant", "content": [CALL]})
        assert not await session.run({"role": "assistant", "content": [CALL]})
        assert session.stopped == "no call was run: the id call_0 was used before in this conversation"

    assert len(session.spans) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"permissions": Rules(allow=["Bash"])}, r"permissions must be .*, not Rules; pass Permissions\(Rules"),
        ({"hooks": [print]}, "hooks must be Hooks or another HookRunner, not list"),
        ({"fsync": "maybe"}, "fsync must be one of never, results, always, not 'maybe'"),
        ({"cwd": "/nonexistent/folder"}, "/nonexistent/folder: no such folder"),
    ],
)
def test_wrong_argument_of_a_session_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError, ToolspanError), match=message):
        Session(transcript=None, **options)


def test_wrong_argument_of_permissions_is_named() -> None:
    with pytest.raises(TypeError, match=r"rules must be Rules, .* not list"):
        Permissions(["Bash"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"mode must be one of default, .*, not 'yolo'"):
        Permissions(mode="yolo")  # type: ignore[arg-type]


def test_rule_about_an_unknown_tool_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    permissions = Permissions(Rules(deny=["bash(rm:*)"], allow=["echo"]))
    with caplog.at_level(logging.WARNING, logger="toolspan"):
        Session(cwd=tmp_path, transcript=None, permissions=permissions, tools=[echo])

    assert [record.getMessage() for record in caplog.records] == [
        "the rule bash(rm:*): there is no tool 'bash'; did you mean Bash?"
    ]


async def test_closed_session_runs_nothing(tmp_path: Path) -> None:
    async with Session(permissions=Permissions.allow_all(), cwd=tmp_path, tools=[echo], transcript=None) as session:
        session.say("Go.")
    with pytest.raises(ToolspanError, match="this session is closed"):
        await session.run({"role": "assistant", "content": [CALL]})

    assert session.spans == []


async def test_transcript_that_cannot_be_written_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="toolspan"):
        async with Session(
            permissions=Permissions.allow_all(), cwd=tmp_path, tools=[echo], transcript="/proc/nope/x.jsonl"
        ) as session:
            session.say("Go.")
            await session.run({"role": "assistant", "content": [CALL]})

    assert [span.state for span in session.spans] == ["succeeded"]
    (record,) = caplog.records
    assert record.getMessage().startswith("the transcript is incomplete, so that the session cannot be resumed: ")


async def test_sessions_with_scripted_models_are_not_copies_of_each_other(tmp_path: Path) -> None:
    for name in "ab":
        model = ScriptedModel([use("echo", text=name)])
        async with Session(
            permissions=Permissions.allow_all(), cwd=tmp_path, tools=[echo], transcript=tmp_path / f"{name}.jsonl"
        ) as session:
            session.say("Go.")
            await session.run(await model.create(messages=session.messages))

    assert sorted(str(span.call.arguments["text"]) for span in toolspan.history(tmp_path).spans) == ["a", "b"]


async def test_output_files_of_an_unrecorded_session_are_removed_at_its_end(tmp_path: Path) -> None:
    tools = coding_tools(profile("2.1.327"), only=["Bash"])
    async with Session(cwd=tmp_path, tools=tools, permissions=Permissions.allow_all(), transcript=None) as session:
        session.say("go")
        block = {"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": "seq 100000"}}
        await session.run({"role": "assistant", "content": [block]})
        result = session.spans[0].result
        folder = session.runner.runner_context.workspace.folder
        assert result is not None
        assert str(folder) in result.text
        assert folder.exists()

    assert not folder.exists()
