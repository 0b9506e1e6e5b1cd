"""Read every sample of the documents.

`samples/` has them one by one, named by document and statement, and as whole sessions in the order
of the documents. Comments are removed and elisions filled with as little as possible; `…` and `...`
inside strings are the documents' own. Fragments are wrapped here into the lines they were cut from.
`vectors-003.json` has inputs and outputs of the code in document 003, computed with that code.
Inputs and outputs of hooks are in `test_000.py`, because transcripts do not contain them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolspan.diffs import added_removed, problems
from toolspan.formats import json_repair
from toolspan.formats.blocks import Handling, SeedType, edit, extract, multi_edit, parse_result, tool_use
from toolspan.formats.claude.narrow import input_drift, narrow_input, narrow_result, result_drift
from toolspan.formats.source import BytesSource
from toolspan.reading.rows import make_call_row
from toolspan.reading.transcript import Transcript, read
from toolspan.types.error_kinds import ErrorKind
from toolspan.types.hunk import Hunk
from toolspan.types.inputs import (
    AgentInput,
    BashInput,
    EditInput,
    LsInput,
    MultiEditInput,
    ReadInput,
    TextEdit,
    TodoItem,
    TodoWriteInput,
    ToolInput,
    UnknownInput,
    WriteInput,
)
from toolspan.types.results import (
    BackgroundTask,
    BashResult,
    Dimensions,
    EditResult,
    ErrorText,
    GlobResult,
    GrepResult,
    ImageFile,
    ReadImage,
    ReadText,
    StructuredResult,
    TaskOutputResult,
    TextFile,
    WriteResult,
)
from toolspan.types.session import Tokens
from toolspan.types.span import Hook, Result, Span
from toolspan.types.state import State
from toolspan.types.work_results import (
    AgentResult,
    TodoReadResult,
    TodoResult,
    WebFetchResult,
    WebSearchResult,
)

SAMPLES = Path(__file__).parent / "samples"
SESSION = "f2c0fab9-66f2-49ae-8b20-b2566f10de6a"
Object = dict[str, Any]


def sample(name: str) -> Any:
    return json_repair.decode_document((SAMPLES / name).read_bytes())


def session(name: str) -> Transcript:
    return read(BytesSource((SAMPLES / name).read_bytes(), name))


def transcript(*lines: Object) -> Transcript:
    return read(BytesSource(b"".join(json_repair.encode_document(line) + b"\n" for line in lines)))


def assistant_record(*blocks: object) -> Object:
    return {"type": "assistant", "message": {"role": "assistant", "content": list(blocks)}}


def user_record(*blocks: object, **fields: object) -> Object:
    return {"type": "user", "message": {"role": "user", "content": list(blocks)}, **fields}


def span_of(request: Object, result: Object, **fields: object) -> Span:
    (span,) = transcript(
        assistant_record({**request, "id": "toolu_1"}), user_record({**result, "tool_use_id": "toolu_1"}, **fields)
    ).spans
    return span


def facts(span: Span) -> tuple[str, str, State, ErrorKind | None]:
    return span.id, span.tool, span.state, span.error_kind


def result_of(span: Span) -> Result:
    assert span.result is not None
    return span.result


def batch(span: Span) -> str | None:
    return make_call_row(span, "").batch


def test_s0_04_is_one_unanswered_call() -> None:
    (span,) = transcript(sample("S0-04.json")).spans

    assert facts(span) == ("toolu_01ReadFile123", "Read", "never_answered", None)
    assert span.input == ReadInput(file_path="/src/auth/login.ts", limit=200)
    assert (span.requested, span.result, span.call.message_id) == (None, None, "msg-001")


def test_s0_30_is_a_hook_of_the_call_and_not_its_result() -> None:
    (span,) = transcript(sample("S0-04.json"), sample("S0-30.json")).spans
    (hook,) = span.events

    assert isinstance(hook, Hook)
    assert (hook.point, hook.name, hook.outcome) == ("PreToolUse", "security_check", "started")
    assert span.state == "never_answered"


def test_s0_38_is_a_success_with_numbered_lines() -> None:
    (span,) = transcript(sample("S0-04.json"), sample("S0-38.json")).spans

    assert facts(span) == ("toolu_01ReadFile123", "Read", "succeeded", None)
    assert result_of(span).text.splitlines()[2] == "..."
    assert result_of(span).structured == ReadText(
        file=TextFile(
            content="export async function login(email: string, password: string) {\n"
            "  const user = await db.users.findByEmail(email);",
            start_line=1,
            num_lines=2,
        )
    )


def test_s0_46_is_a_failure_because_the_file_is_not_found() -> None:
    block = sample("S0-46.json")
    (span,) = transcript(sample("S0-04.json"), user_record(block)).spans
    (parsed,) = parse_result(block)

    assert facts(span) == ("toolu_01ReadFile123", "Read", "failed", "not_found")
    assert span.message == "Error: File not found: /src/auth/login.ts"
    assert (parsed.call_id, parsed.error_kind) == ("toolu_01ReadFile123", "not_found")


def test_s0_48_is_one_call_beside_thinking_and_text() -> None:
    (span,) = transcript(sample("S0-48.json")).spans

    assert facts(span) == ("toolu_01ReadMiddleware", "Read", "never_answered", None)
    assert span.input == ReadInput(file_path="/src/auth/middleware.ts")


def test_s0_53_is_three_calls_of_one_batch() -> None:
    spans = transcript(sample("S0-53.json")).spans

    assert [facts(span)[:3] for span in spans] == [
        ("toolu_01A", "Grep", "never_answered"),
        ("toolu_01B", "Grep", "never_answered"),
        ("toolu_01C", "Glob", "never_answered"),
    ]
    assert len({batch(span) for span in spans} - {None}) == 1  # though the message has no id


def test_s0_55_is_three_successes_paired_by_id() -> None:
    spans = transcript(sample("S0-53.json"), sample("S0-55.json")).spans

    assert [(span.id, span.state, result_of(span).text) for span in spans] == [
        ("toolu_01A", "succeeded", "Found 15 TODOs"),
        ("toolu_01B", "succeeded", "Found 3 FIXMEs"),
        ("toolu_01C", "succeeded", "tests/auth.test.ts\ntests/api.test.ts"),
    ]


def test_s0_55_alone_is_three_orphan_results() -> None:
    spans = transcript(sample("S0-55.json")).spans

    assert [facts(span) for span in spans] == [
        (each, "", "orphan_result", None) for each in ("toolu_01A", "toolu_01B", "toolu_01C")
    ]


def test_s0_79_is_a_call_that_cannot_be_paired() -> None:
    request, unasked = transcript(assistant_record(sample("S0-79.json")), user_record(sample("S0-81.json"))).spans
    (call,) = extract(sample("S0-79.json"))

    assert (request.tool, request.state) == ("Bash", "never_answered")
    assert request.input == BashInput(
        command="npm test -- --coverage", timeout=120_000, description="Run tests with coverage"
    )
    assert (unasked.state, unasked.error_kind) == ("orphan_result", None)
    assert (call.id, call.tool, call.params["timeout"]) == (None, "Bash", 120_000)


def test_s0_81_has_the_exit_code_in_its_last_line() -> None:
    span = span_of(sample("S0-79.json"), sample("S0-81.json"))
    (parsed,) = parse_result(sample("S0-81.json"))

    assert (span.state, result_of(span).exit_code) == ("succeeded", 0)
    assert result_of(span).structured == BashResult(stdout="PASS src/auth.test.ts\n...\nCoverage: 85%\n", exit_code=0)
    assert (parsed.call_id, parsed.is_error, parsed.exit_code) == (None, False, 0)


def test_s0_81_has_the_exit_code_without_an_id() -> None:
    (span,) = transcript(user_record(sample("S0-81.json"))).spans

    assert (result_of(span).exit_code, result_of(span).text) == (0, sample("S0-81.json")["content"])


def test_s0_83_is_a_task_for_a_subagent_of_a_type() -> None:
    (span,) = transcript(assistant_record(sample("S0-83.json"))).spans

    assert (span.tool, span.call.kind) == ("Task", "agent")
    assert span.input == AgentInput(
        description="Research auth patterns",
        prompt="Explore authentication implementations...",
        subagent_type="Explore",
    )


def test_s0_84_names_the_subagent_in_its_last_line() -> None:
    span = span_of(sample("S0-83.json"), sample("S0-84.json"))
    structured = result_of(span).structured

    assert span.state == "succeeded"
    assert isinstance(structured, AgentResult)
    assert structured.agent_id == "agent-abc123"
    assert span.agent == "abc123"  # as in agent-abc123.jsonl, the name of its transcript


def test_session_000_is_five_calls_in_three_batches() -> None:
    recorded = session("session-000.jsonl")

    assert [facts(span) for span in recorded.spans] == [
        ("toolu_01ReadFile123", "Read", "succeeded", None),
        ("toolu_01ReadMiddleware", "Read", "never_answered", None),
        ("toolu_01A", "Grep", "succeeded", None),
        ("toolu_01B", "Grep", "succeeded", None),
        ("toolu_01C", "Glob", "succeeded", None),
    ]
    assert [len(span.events) for span in recorded.spans] == [1, 0, 0, 0, 0]
    assert {span.branch for span in recorded.spans} == {"active"}
    assert [list(map(batch, recorded.spans)).index(batch(span)) for span in recorded.spans] == [0, 1, 2, 2, 2]
    assert (recorded.counts.lines, recorded.counts.malformed, recorded.findings) == (6, 0, [])


def test_s0_61_is_one_call_with_its_input_parsed_from_its_arguments() -> None:
    (span,) = transcript(sample("S0-61.json")).spans

    assert facts(span) == ("call_abc123", "Read", "never_answered", None)
    assert span.call.client == "codex"
    assert span.input == ReadInput(file_path="/src/auth/login.ts")


def test_s0_64_is_its_success() -> None:
    (span,) = transcript(sample("S0-61.json"), sample("S0-64.json")).spans

    assert facts(span) == ("call_abc123", "Read", "succeeded", None)
    assert result_of(span).text == "File contents..."


def test_session_000_codex_is_one_success() -> None:
    recorded = session("session-000-codex.jsonl")

    assert [facts(span) for span in recorded.spans] == [("call_abc123", "Read", "succeeded", None)]
    assert (recorded.client, recorded.counts.lines, recorded.findings) == ("codex", 2, [])


def test_s2_01_is_one_call() -> None:
    (span,) = transcript(sample("S2-01.json")).spans

    assert facts(span) == ("toolu_123", "Bash", "never_answered", None)
    assert (span.input, span.call.target) == (BashInput(command="ls"), "ls")


def test_s2_03_is_its_success() -> None:
    (span,) = transcript(sample("S2-01.json"), sample("S2-03.json")).spans

    assert facts(span) == ("toolu_123", "Bash", "succeeded", None)
    assert (result_of(span).text, result_of(span).is_error) == ("…", False)


def test_s2_06_has_no_message_and_is_skipped() -> None:
    recorded = transcript(sample("S2-06.json"))

    assert (recorded.spans, recorded.findings) == ([], [])
    assert [entry.is_known for entry, _ in recorded.entries()] == [False]


def test_session_002_is_one_success_and_one_unknown_record() -> None:
    recorded = session("session-002.jsonl")

    assert [facts(span) for span in recorded.spans] == [("toolu_123", "Bash", "succeeded", None)]
    assert [entry.is_known for entry, _ in recorded.entries()] == [True, True, False]


CREATED = Hunk(old_start=0, old_lines=0, new_start=1, new_lines=1, lines=("+…",))
UPDATED = Hunk(old_start=10, old_lines=3, new_start=10, new_lines=4, lines=(" ", "-old", "+new", " "))
EDITED = Hunk(old_start=1, old_lines=1, new_start=1, new_lines=1, lines=("-old", "+new"))

STRUCTURED: list[tuple[str, str, StructuredResult]] = [
    ("S2-17", "Bash", BashResult(stdout="…", stderr="…", interrupted=False, is_image=False)),
    ("S2-20", "Bash", ErrorText(text="Error: Exit code 1\n...")),
    ("S2-22", "Read", ReadText(
        file=TextFile(
            file_path="path/to/file", content="…", start_line=1, num_lines=200, total_lines=900
        )
    )),
    ("S2-23", "Read", ReadImage(
        file=ImageFile(
            type="image/png", base64="<base64>", original_size=123_456,
            dimensions=Dimensions(width=800, height=600),
        )
    )),
    ("S2-25", "Write", WriteResult(
        type="create", file_path="path/to/file", content="…", structured_patch=(CREATED,)
    )),
    ("S2-26", "Write", WriteResult(
        type="update", file_path="path/to/file", content="…", original_file="…",
        structured_patch=(UPDATED,),
    )),
    ("S2-29", "Edit", EditResult(
        file_path="path/to/file", old_string="…", new_string="…", replace_all=False,
        user_modified=False, original_file="…", structured_patch=(EDITED,),
    )),
    ("S2-32", "TodoWrite", TodoResult(
        old_todos=(), new_todos=(TodoItem(content="…", status="pending", active_form="…"),)
    )),
    ("S2-33", "TodoRead", TodoReadResult(
        todos=tuple(
            TodoItem(content="…", status=status, active_form="…")
            for status in ("pending", "in_progress", "completed")
        )
    )),
    ("S2-35", "Task", AgentResult(
        status="async_launched", prompt="…", agent_id="…", is_async=True, description="…",
        output_file="…",
    )),
    ("S2-40", "TaskOutput", TaskOutputResult(
        retrieval_status="success",
        task=BackgroundTask(
            task_id="…", task_type="local_bash", status="completed", description="…",
            output="…", prompt="…", result="…", exit_code=0,
        ),
    )),
    ("S2-41", "Glob", GlobResult(
        filenames=("…", "…"), num_files=12, duration_ms=4.2, truncated=False
    )),
    ("S2-43", "Grep", GrepResult(
        mode="content", num_files=3, filenames=("…",), num_lines=120, content="…",
        applied_limit=200,
    )),
    ("S2-45", "WebSearch", WebSearchResult(query="…", results=(), duration_seconds=1.23)),
    ("S2-46", "WebFetch", WebFetchResult(
        url="…", code=200, code_text="OK", bytes=12_345, duration_ms=350, result="…"
    )),
]  # fmt: skip


def structured_span(tool: str, structured: object) -> Span:
    request: Object = {"type": "tool_use", "name": tool, "input": {}}
    return span_of(request, {"type": "tool_result", "content": "…"}, toolUseResult=structured)


@pytest.mark.parametrize(("name", "tool", "expected"), STRUCTURED)
def test_structured_result_is_narrowed_to_its_tool(name: str, tool: str, expected: StructuredResult) -> None:
    data = (SAMPLES / f"{name}.json").read_bytes()
    span = structured_span(tool, sample(f"{name}.json"))

    assert narrow_result(tool, data) == expected == result_of(span).structured
    assert result_drift(tool, data) == ()
    assert (span.state, span.error_kind) == ("succeeded", None)


def test_s2_20_is_a_failure_with_exit_code_one() -> None:
    text = sample("S2-20.json")
    span = span_of(
        {"type": "tool_use", "name": "Bash", "input": {"command": "false"}},
        {"type": "tool_result", "content": text.removeprefix("Error: "), "is_error": True},
        toolUseResult=text,
    )
    structured = result_of(span).structured

    assert (span.state, span.error_kind) == ("failed", "command_failed")
    assert result_of(span).exit_code == 1
    assert isinstance(structured, ErrorText)
    assert structured.exit_code == 1


def test_s2_35_is_a_background_task() -> None:
    launched = sample("S2-35.json")
    span = span_of(sample("S0-83.json"), {"type": "tool_result", "content": "…"}, toolUseResult=launched)
    structured = result_of(span).structured

    assert (span.state, span.background, span.agent) == ("succeeded", True, "…")
    assert isinstance(structured, AgentResult)
    assert structured.is_launched


@pytest.mark.parametrize(
    ("name", "tool", "milliseconds"), [("S2-41", "Glob", 4.2), ("S2-45", "WebSearch", 1230), ("S2-46", "WebFetch", 350)]
)
def test_duration_reported_by_the_tool_is_kept(name: str, tool: str, milliseconds: float) -> None:
    span = structured_span(tool, sample(f"{name}.json"))

    assert result_of(span).reported_ms == milliseconds


def hunks_of(tool: str, structured: Object) -> tuple[Hunk, ...]:
    narrowed = narrow_result(tool, json_repair.encode_document(structured))
    assert isinstance(narrowed, EditResult | WriteResult)
    return narrowed.structured_patch


def test_hunks_with_wrong_counts_are_reported_and_counted() -> None:
    alone = {"filePath": "f", "oldString": "", "newString": "",
             "structuredPatch": [sample("S2-51.json")]}  # fmt: skip
    created = hunks_of("Write", sample("S2-25.json"))
    updated = hunks_of("Write", sample("S2-26.json"))
    edited = hunks_of("Edit", sample("S2-29.json"))
    lone = hunks_of("Edit", alone)

    assert [added_removed(hunks) for hunks in (created, updated, edited, lone)] == [(1, 0), (1, 1), (1, 1), (1, 1)]
    assert (problems(created), problems(edited)) == ((), ())
    assert problems(updated) == ("Hunk 1 promises 4 new lines, but has 3.",)
    assert problems(lone) == ("Hunk 1 promises 10 old lines, but has 2.", "Hunk 1 promises 12 new lines, but has 2.")


def test_s3_02_is_one_call_with_tokens_and_session() -> None:
    recorded = transcript(sample("S3-02.json"))
    (span,) = recorded.spans

    assert facts(span) == ("toolu_013LHPsoMnbQ1KZdhLWDZDJV", "TodoWrite", "never_answered", None)
    assert span.input == TodoWriteInput(todos=(TodoItem(id="1", content="Create basic HTTP server", status="pending"),))
    assert (recorded.session_id, span.call.session_id) == (SESSION, SESSION)
    assert batch(span) == "msg_01HUTBuxg8F2NmTFZC2NUTZW"
    assert recorded.tokens == Tokens(
        input_tokens=3, cache_creation_input_tokens=18_958, cache_read_input_tokens=0, output_tokens=109
    )


def test_s3_07_is_its_success() -> None:
    (span,) = transcript(sample("S3-02.json"), sample("S3-07.json")).spans

    assert facts(span) == ("toolu_013LHPsoMnbQ1KZdhLWDZDJV", "TodoWrite", "succeeded", None)


def test_s3_09_is_an_orphan_error_of_the_kind_read_required() -> None:
    (span,) = transcript(sample("S3-09.json")).spans
    (parsed,) = parse_result(sample("S3-09.json"))

    assert (span.id, span.state) == ("toolu_01DDR48QUDmxRWrGSdSifpGA", "orphan_result")
    assert (span.error_kind, parsed.error_kind) == ("read_required", "read_required")
    assert span.call.session_id == SESSION


def test_session_003_is_one_success_and_one_orphan_result() -> None:
    recorded = session("session-003.jsonl")

    assert [facts(span)[:3] for span in recorded.spans] == [
        ("toolu_013LHPsoMnbQ1KZdhLWDZDJV", "TodoWrite", "succeeded"),
        ("toolu_01DDR48QUDmxRWrGSdSifpGA", "", "orphan_result"),
    ]
    assert recorded.spans[1].error_kind == "read_required"
    assert recorded.session_id == SESSION


GO_FILE = "/private/tmp/CustomClaude/main.go"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("S3-12", TodoWriteInput(
            todos=tuple(
                TodoItem(id=number, content="Task description", status=status)
                for number, status in (
                    ("1", "pending"), ("2", "in_progress"), ("3", "completed")
                )
            )
        )),
        ("S3-16", ReadInput(file_path=GO_FILE, limit=2_000, offset=0)),
        ("S3-21", EditInput(
            file_path=GO_FILE,
            old_string='import (\n\t"fmt"\n\t"net/http"\n)',
            new_string='import (\n\t"flag"\n\t"fmt"\n\t"net/http"\n)',
            replace_all=False,
        )),
        ("S3-25", MultiEditInput(
            file_path=GO_FILE,
            edits=(
                TextEdit(
                    old_string="first replacement", new_string="new content", replace_all=False
                ),
                TextEdit(
                    old_string="second replacement", new_string="other content", replace_all=True
                ),
            ),
        )),
        ("S3-27", WriteInput(file_path=GO_FILE, content="complete file content here")),
        ("S3-29", LsInput(path="/private/tmp/CustomClaude", ignore=("*.tmp", "node_modules"))),
    ],
)  # fmt: skip
def test_request_is_accepted_and_narrowed_to_its_tool(name: str, expected: ToolInput) -> None:
    request = sample(f"{name}.json")
    data = json_repair.encode_document(request["input"])
    (span,) = transcript(assistant_record(tool_use(request["name"], request["input"]))).spans

    assert narrow_input(request["name"], data) == expected
    assert input_drift(request["name"], data) == ()
    assert span.input == expected


@pytest.mark.parametrize(
    ("name", "tool", "state", "kind", "seed_type", "handling"),
    [
        ("S3-33", "Write", "failed", "read_required", "READ_REQUIRED", "read_first"),
        ("S3-36", "MultiEdit", "timed_out", "permission_timeout", "TIMEOUT",
         "retry_with_fallback"),
        ("S3-40", "Edit", "failed", "mcp_no_response", "MCP_NO_RESPONSE", "fail"),
        ("S3-41", "Edit", "failed", "network", "NETWORK_ERROR", "fail"),
        ("S3-42", "Edit", "failed", "no_match", "VALIDATION_ERROR", "fail"),
    ],
)  # fmt: skip
def test_error_has_the_same_kind_alone_and_in_a_transcript(
    name: str, tool: str, state: State, kind: ErrorKind, seed_type: SeedType, handling: Handling
) -> None:
    fragment = sample(f"{name}.json")
    span = span_of({"type": "tool_use", "name": tool, "input": {}}, {"type": "tool_result", **fragment})
    (parsed,) = parse_result(fragment)

    assert (span.state, span.error_kind) == (state, kind)
    assert (parsed.error_kind, parsed.seed_type, parsed.retry) == (kind, seed_type, handling)


def test_s3_52_is_three_calls_in_order_with_unvalidated_inputs() -> None:
    lines = (SAMPLES / "S3-52.jsonl").read_bytes().splitlines()
    spans = transcript(*(assistant_record(json_repair.decode_document(line)) for line in lines)).spans

    assert [(span.tool, span.state) for span in spans] == [
        ("Read", "never_answered"),
        ("Edit", "never_answered"),
        ("TodoWrite", "never_answered"),
    ]
    assert [span.input for span in spans] == [
        ReadInput(file_path="..."),
        EditInput(old_string="...", new_string="..."),
        TodoWriteInput(todos=(TodoItem(status="completed"),)),
    ]


def test_s3_54_is_three_calls_of_one_message() -> None:
    message = sample("S3-54.json")
    spans = transcript({"type": "assistant", "message": {"id": "msg_1", **message}}).spans
    expected = [("toolu_1", "Read"), ("toolu_2", "LS"), ("toolu_3", "Grep")]

    assert [(span.id, span.tool) for span in spans] == expected
    assert [(call.id, call.tool) for call in extract(message)] == expected
    assert [call.params for call in extract(message)] == [{}, {}, {}]
    assert {batch(span) for span in spans} == {"msg_1"}


def test_s3_90_names_fourteen_tools_with_an_input_type_each() -> None:
    tools = sample("S3-90.json")["tools"]
    recorded = transcript({"type": "system", "subtype": "init", "tools": tools})

    assert len(set(tools)) == 14
    assert [tool for tool in tools if isinstance(narrow_input(tool, b"{}"), UnknownInput)] == []
    assert (recorded.spans, recorded.findings) == ([], [])


@pytest.mark.parametrize("vector", sample("vectors-003.json")["results"])
def test_result_is_parsed_as_in_the_document(vector: Object) -> None:
    expected = {**vector, **vector.get("meant", {})}
    (parsed,) = parse_result({key: vector[key] for key in ("content", "is_error")})

    assert parsed.is_error == vector["is_error"]
    assert parsed.text == vector["extractContent"]
    assert parsed.retry.upper() == expected["handleToolResult"]
    # A success has no error type, though the code gives one to "connect timeout is 5".
    assert parsed.seed_type == (expected["detectErrorType"] if vector["is_error"] else None)


@pytest.mark.parametrize("vector", sample("vectors-003.json")["builder"])
def test_request_is_built_as_in_the_document(vector: Object) -> None:
    arguments = vector["args"]
    match vector["call"]:
        case "buildToolUse":
            block = tool_use(*arguments)
        case "buildEdit":
            block = edit(*arguments[:3], replace_all=any(arguments[3:]))
        case _:
            block = multi_edit(*arguments)

    assert {**block, "id": "toolu_<unique>"} == vector["block"]


@pytest.mark.parametrize("vector", sample("vectors-003.json")["extract"])
def test_calls_are_extracted_as_in_the_document(vector: Object) -> None:
    calls = [{"id": call.id, "tool": call.tool, "params": call.params} for call in extract(vector["message"])]

    assert calls == vector["calls"]


def test_every_sample_has_a_test() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))

    assert [path.name for path in SAMPLES.iterdir() if path.stem not in sources] == []
