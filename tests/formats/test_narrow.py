"""Narrowing: typed views of inputs and results, whatever the bytes are."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats import holds
from toolspan.formats.claude.narrow import input_drift, narrow_input, narrow_result, narrow_text_result, result_drift
from toolspan.types import inputs, results
from toolspan.types import work_results as work
from toolspan.types.inputs import BashInput, ToolInput, UnknownInput
from toolspan.types.work_results import AgentResult

TOOLS = [
    *("Agent", "AgentOutputTool", "Artifact", "AskUserQuestion", "Bash", "BashOutput", "Batch"),
    *("CronCreate", "CronDelete", "CronList", "Edit", "EnterPlanMode", "EnterWorktree"),
    *("ExitPlanMode", "ExitWorktree", "Glob", "Grep", "KillBash", "KillShell", "LS", "LSP"),
    *("ListAgents", "ListMcpResourcesTool", "Monitor", "MultiEdit", "NotebookEdit"),
    *("NotebookRead", "PowerShell", "PushNotification", "Read", "ReadMcpResourceTool"),
    *("RefreshMcpTools", "RemoteTrigger", "ReportFindings", "ScheduleWakeup", "SendMessage"),
    *("Skill", "SlashCommand", "StructuredOutput", "Task", "TaskCreate", "TaskGet", "TaskList"),
    *("TaskOutput", "TaskStop", "TaskUpdate", "TodoRead", "TodoWrite", "ToolSearch", "WebFetch"),
    *("WebSearch", "Workflow", "Write", "mcp__shop__find", "mcp__", "no such tool", ""),
]


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("tool", "value", "kind"),
    [
        ("Bash", {"command": "make"}, inputs.BashInput),
        ("Bash", {"command": "make", "timeout": 9000, "dangerouslyDisableSandbox": True}, inputs.BashInput),
        ("Read", {"file_path": "/w/a.py", "limit": 5}, inputs.ReadInput),
        ("MultiEdit", {"file_path": "/w/a.py", "edits": [{"old_string": "x", "new_string": "y"}]},
         inputs.MultiEditInput),
        ("Write", {"file_path": "/w/n", "content": ""}, inputs.WriteInput),
        ("NotebookEdit", {"notebook_path": "/w/n.ipynb", "cell_number": 3, "new_source": "1"},
         inputs.NotebookEditInput),
        ("Grep", {"pattern": "todo", "-A": 2, "-i": True, "output_mode": "content"}, inputs.GrepInput),
        ("LS", {"path": "/w", "ignore": ["*.o"]}, inputs.LsInput),
        ("LSP", {"operation": "hover", "filePath": "/w/a.py", "line": 1, "character": 2}, inputs.LspInput),
        ("TodoWrite", {"todos": [{"content": "a", "status": "pending", "id": "7", "priority": "low"}]},
         inputs.TodoWriteInput),
        ("TodoWrite", {"todos": [{"content": "a", "status": "completed", "activeForm": "Doing a"}]},
         inputs.TodoWriteInput),
        ("TodoRead", {}, inputs.TodoReadInput),
        ("TaskUpdate", {"taskId": "4", "status": "deleted", "addBlockedBy": ["2"]}, inputs.TaskUpdateInput),
        ("AskUserQuestion", {"questions": [{"question": "Red?", "options": [{"label": "Yes"}], "multiSelect": True}]},
         inputs.AskUserQuestionInput),
        ("Skill", {"command": "lint"}, inputs.SkillInput),
        ("Skill", {"skill": "lint", "args": "-v"}, inputs.SkillInput),
        ("SendMessage", {"to": "scout", "prompt": "stop"}, inputs.SendMessageInput),
        ("ScheduleWakeup", {"delaySeconds": 90}, inputs.ScheduleWakeupInput),
        ("BashOutput", {"bash_id": "b1"}, inputs.BashOutputInput),
        ("Task", {"prompt": "look", "resume": "a1"}, inputs.AgentInput),
        ("KillBash", {"shell_id": "b1"}, inputs.KillShellInput),
        ("exit_plan_mode", {"plan": "1. go"}, inputs.ExitPlanModeInput),
    ],
)  # fmt: skip
def test_input_gets_the_type_of_its_tool_under_old_and_new_names(
    tool: str, value: object, kind: type[ToolInput]
) -> None:
    narrowed = narrow_input(tool, _json(value))

    assert type(narrowed) is kind
    assert holds(narrowed, value)
    assert input_drift(tool, _json(value)) == ()


def test_numbers_and_booleans_may_be_strings() -> None:
    data = b'{"command": "make", "timeout": "9000", "run_in_background": "true"}'
    assert narrow_input("Bash", data) == BashInput(command="make", timeout=9000, run_in_background=True)


def test_missing_key_is_empty_or_none() -> None:
    assert narrow_input("Edit", b"{}") == inputs.EditInput(
        file_path="", old_string=None, new_string=None, replace_all=False
    )


@pytest.mark.parametrize("tool", ["Read", "LS", "Grep", "Edit", "TodoWrite"])
def test_elided_input_is_not_validated(tool: str) -> None:
    assert not isinstance(narrow_input(tool, b"{}"), UnknownInput)


def test_input_of_another_shape_keeps_its_bytes() -> None:
    data = b'{"command": ["ls", "-l"]}'
    narrowed = narrow_input("Bash", data)
    assert isinstance(narrowed, UnknownInput)
    assert narrowed.data is data
    assert narrowed.json() == {"command": ["ls", "-l"]}
    assert input_drift("Bash", data) == ("BashInput: Expected `str`, got `array` - at `$.command`",)


def test_input_of_an_unknown_tool_keeps_its_bytes() -> None:
    assert narrow_input("bash", b'{"command":"ls"}') == UnknownInput(data=b'{"command":"ls"}')
    assert input_drift("bash", b"{}") == ("no type for this tool's input",)


def test_mcp_input_names_server_and_tool() -> None:
    narrowed = narrow_input("mcp__shop_eu__find__all", b'{"q": "tea", "n": 2}')
    assert narrowed == inputs.McpInput(server="shop_eu", tool="find__all", arguments={"q": "tea", "n": 2})
    assert input_drift("mcp__shop_eu__find__all", b'{"q": "tea"}') == ()


@pytest.mark.parametrize("tool", ["Read", "mcp__shop__find", "made up"])
def test_input_that_is_not_json_is_unparsed_for_every_tool(tool: str) -> None:
    data = b'{"__unparsedToolInput": {"raw": "{\\"a\\": ", "len": 6}}'
    assert narrow_input(tool, data) == inputs.UnparsedInput(raw='{"a": ', len=6)
    assert input_drift(tool, data) == ()


def test_structured_output_is_the_data_of_the_host() -> None:
    assert narrow_input("StructuredOutput", b'{"score": 3}') == inputs.StructuredOutputInput(data={"score": 3})


def test_calls_inside_a_batch_can_be_narrowed() -> None:
    data = _json({"invocations": [{"tool_name": "Read", "input": {"file_path": "/w/a"}}]})
    batch = narrow_input("Batch", data)
    assert isinstance(batch, inputs.BatchInput)
    inner = batch.invocations[0]
    assert narrow_input(inner.tool_name, bytes(inner.input)) == inputs.ReadInput(file_path="/w/a")


@pytest.mark.parametrize("data", [None, b"null", b" null "])
def test_missing_result_is_none(data: bytes | None) -> None:
    assert narrow_result("Bash", data) is None
    assert result_drift("Bash", data) == ()


def test_string_result_is_an_error_with_its_exit_code() -> None:
    narrowed = narrow_result("Bash", b'"Error: Exit code 2\\nno rule"')
    assert narrowed == results.ErrorText(text="Error: Exit code 2\nno rule")
    assert isinstance(narrowed, results.ErrorText)
    assert (narrowed.message, narrowed.exit_code) == ("Exit code 2\nno rule", 2)
    assert results.ErrorText(text="User rejected tool use").exit_code is None


@pytest.mark.parametrize("tool", ["LS", "mcp__shop__find", "unheard of"])
def test_string_is_text_for_tools_that_report_text(tool: str) -> None:
    assert narrow_result(tool, b'"- /w/\\n  - a"') == results.TextResult(text="- /w/\n  - a")
    assert narrow_result(tool, b'"Error: away"') == results.ErrorText(text="Error: away")


@pytest.mark.parametrize(
    ("tool", "data"),
    [
        ("Bash", b'{"out": "x"}'),
        ("Bash", b'{"stdout": 3}'),
        ("Bash", b"true"),
        ("Bash", b'"torn'),
        ("Read", b'{"type": "film", "file": {}}'),
        ("Agent", b"{}"),
        ("Agent", b'{"colour": "red"}'),
        ("TodoRead", b"[3]"),
        ("Edit", b'[{"type": "text", "text": "x"}]'),
        ("unheard of", b"{}"),
    ],
)
def test_result_of_another_shape_keeps_its_bytes(tool: str, data: bytes) -> None:
    assert narrow_result(tool, data) == results.UnknownResult(data=data)
    assert len(result_drift(tool, data)) == 1


def test_unknown_result_gives_its_json_or_its_text() -> None:
    assert results.UnknownResult(data=b'{"a": [1]}').json() == {"a": [1]}
    assert results.UnknownResult(data=b'{"a": ').json() == '{"a": '


def test_text_cut_inside_a_surrogate_pair_is_narrowed() -> None:
    narrowed = narrow_result("Bash", b'{"stdout": "smile \\ud83d"}')
    assert narrowed == results.BashResult(stdout="smile \ud83d")
    assert narrow_input("Bash", b'{"command": "echo \\ude00"}') == BashInput(command="echo \ude00")


def test_drift_names_unknown_keys_by_their_path() -> None:
    data = _json(
        {
            "status": "completed",
            "mood": "good",
            "content": [{"type": "text", "text": "x"}, {"type": "text", "shade": 1}],
            "usage": {"input_tokens": 1, "cache_creation": {"ephemeral_9d_input_tokens": 2}},
        }
    )
    assert result_drift("Agent", data) == ("mood", "content[].shade", "usage.cache_creation.ephemeral_9d_input_tokens")


def test_drift_covers_lists_maps_and_unions() -> None:
    search = {"query": "q", "results": ["text", {"content": [{"title": "t", "rank": 1}]}]}
    assert result_drift("WebSearch", _json(search)) == ("results[].content[].rank",)
    request = {"questions": [], "annotations": {"Red?": {"notes": "n", "ink": "blue"}}}
    assert result_drift("AskUserQuestion", _json(request)) == ("annotations.*.ink",)
    assert result_drift("TodoRead", _json([{"content": "a", "due": 1}])) == ("todos[].due",)
    assert input_drift("Bash", b'{"command": "ls", "tab": 1}') == ("tab",)


def test_drift_of_a_tagged_result_refers_to_its_shape() -> None:
    assert result_drift("Read", b'{"type": "pdf", "file": {"filePath": 3}}') == (
        "ReadPdf: Expected `str`, got `int` - at `$.file.filePath`",
    )


REMINDER = "\n\n<system-reminder>\nBe careful.\n</system-reminder>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3\tx\n4\t\ty\n5\t", results.TextFile(content="x\n\ty\n", start_line=3, num_lines=3)),
        ("     1→x\n     2→y" + REMINDER, results.TextFile(content="x\ny", start_line=1, num_lines=2)),
        ("1\tx\n...", results.TextFile(content="x", start_line=1, num_lines=1)),
        ("1\tx\n7\ty", results.TextFile(content="x", start_line=1, num_lines=1)),
        ("    -1→x\n     0→y", results.TextFile(content="x\ny", start_line=-1, num_lines=2)),
        (REMINDER.strip() + "\n1\tx", results.TextFile(content="x", start_line=1, num_lines=1)),
        (
            "1\t<system-reminder>\n2\t</system-reminder>",
            results.TextFile(content="<system-reminder>\n</system-reminder>", start_line=1, num_lines=2),
        ),
        (
            "<system-reminder>Warning: the file exists but is shorter than the provided offset "
            "(90). The file has 4 lines.</system-reminder>",
            results.TextFile(start_line=90, num_lines=0, total_lines=4),
        ),
        (
            "<system-reminder>Warning: the file exists but the contents are empty.</system-reminder>",
            results.TextFile(num_lines=0),
        ),
    ],
)
def test_numbered_lines_become_a_read_text(text: str, expected: results.TextFile) -> None:
    assert narrow_text_result("Read", text) == results.ReadText(file=expected)


@pytest.mark.parametrize(
    ("tool", "text", "expected"),
    [
        ("Read", "File unchanged since last read.", results.ReadUnchanged(file=results.UnchangedFile())),
        ("Read", "[image]", None),
        ("Bash", "ok\nfine" + REMINDER, results.BashResult(stdout="ok\nfine")),
        ("Bash", "(Bash completed with no output)", results.BashResult(stdout="")),
        ("Bash", "Exit code 3\nbad", results.ErrorText(text="Exit code 3\nbad")),
        ("Bash", "2 passed\n[Exit code: 0]", results.BashResult(stdout="2 passed", exit_code=0)),
        (
            "Bash",
            "tick\nCommand running in background with ID: b7. Output is being written to: /t/b7",
            results.BashResult(stdout="tick", background_task_id="b7"),
        ),
        (
            "Bash",
            "tick\nCommand did not complete within its 1s timeout and was moved to the background"
            " (ID: b7). Output is being written to: /t/b7.",
            results.BashResult(stdout="tick", background_task_id="b7"),
        ),
        ("Bash", "ok\nShell cwd was reset to /w", results.BashResult(stdout="ok", stderr="Shell cwd was reset to /w")),
        (
            "Bash",
            "part\n<error>Command was aborted before completion</error>",
            results.BashResult(stdout="part", interrupted=True),
        ),
        (
            "Bash",
            "<persisted-output>\nOutput too large (40KB). Full output saved to: /t/o.txt\n\n"
            "Preview (first 2KB):\n1\n2\n...\n</persisted-output>",
            results.BashResult(stdout="1\n2", persisted_output_path="/t/o.txt"),
        ),
        ("Glob", "a.c\nb.c", results.GlobResult(filenames=("a.c", "b.c"), num_files=2)),
        ("Glob", "No files found", results.GlobResult(filenames=(), num_files=0)),
        (
            "Glob",
            "a.c\n(Results are truncated. Consider something narrower.)",
            results.GlobResult(filenames=("a.c",), num_files=1, truncated=True),
        ),
        (
            "Grep",
            "Found 2 files limit: 2, offset: 4\na.c\nb.c",
            results.GrepResult(
                mode="files_with_matches", filenames=("a.c", "b.c"), num_files=2, applied_limit=2, applied_offset=4
            ),
        ),
        ("Grep", "No files found", results.GrepResult(mode="files_with_matches", filenames=(), num_files=0)),
        (
            "Grep",
            "a.c:2\n\nFound 2 total occurrences across 1 file.",
            results.GrepResult(mode="count", filenames=(), content="a.c:2", num_matches=2, num_files=1),
        ),
        (
            "Grep",
            "a.c:1:x\na.c:9:x\n\n[Showing results with pagination = limit: 2]",
            results.GrepResult(mode="content", filenames=(), content="a.c:1:x\na.c:9:x", num_lines=2, applied_limit=2),
        ),
        ("Grep", "No matches found", results.GrepResult(mode="content", filenames=(), content="", num_lines=0)),
        (
            "TaskOutput",
            "<retrieval_status>success</retrieval_status>\n\n<task_id>b7</task_id>\n\n"
            "<task_type>local_bash</task_type>\n\n<status>failed</status>\n\n"
            "<exit_code>4</exit_code>\n\n<output>\na\n<status>odd</status>\n</output>",
            results.TaskOutputResult(
                retrieval_status="success",
                task=results.BackgroundTask(
                    task_id="b7",
                    task_type="local_bash",
                    status="failed",
                    exit_code=4,
                    output="a\n<status>odd</status>\n",
                ),
            ),
        ),
        ("TaskOutput", "nothing", None),
        (
            "BashOutput",
            "<status>running</status>\n\n<stdout>\ntick\n<exit_code>9</exit_code>\n</stdout>\n\n"
            "<stderr>\noh\n</stderr>\n\n<timestamp>2031-01-02T03:04:05.000Z</timestamp>",
            results.BashOutputResult(
                status="running",
                stdout="tick\n<exit_code>9</exit_code>",
                stderr="oh",
                timestamp="2031-01-02T03:04:05.000Z",
            ),
        ),
        ("KillBash", '{"message":"gone","shell_id":"b7"}', results.KillShellResult(message="gone", shell_id="b7")),
        (
            "TaskStop",
            '{"message":"gone","task_id":"b7","task_type":"local_bash"}',
            results.TaskStopResult(message="gone", task_id="b7", task_type="local_bash"),
        ),
        ("KillShell", "gone", None),
        (
            "Agent",
            "The answer.\nagentId: a9 (more)\n<usage>total_tokens: 50\ntool_uses: 2\nduration_ms: 700</usage>",
            AgentResult(
                agent_id="a9",
                content=(results.ContentBlock(type="text", text="The answer."),),
                total_tokens=50,
                total_tool_use_count=2,
                total_duration_ms=700,
            ),
        ),
        (
            "Task",
            "Async agent launched successfully.\nagentId: a9 (x)\noutput_file: /t/a9.output",
            AgentResult(status="async_launched", agent_id="a9", output_file="/t/a9.output"),
        ),
        ("Agent", "", None),
        ("TodoWrite", "Todos have been modified successfully.", None),
        (
            "Edit",
            "<tool_use_error>File does not exist.</tool_use_error>",
            results.ErrorText(text="File does not exist."),
        ),
    ],
)
def test_text_result_gives_its_details(tool: str, text: str, expected: results.ToolResult | None) -> None:
    assert narrow_text_result(tool, text) == expected


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)
_KNOWN_KEYS = st.sampled_from([
    "command", "file_path", "todos", "stdout", "type", "file", "content", "filenames", "task", "status", "questions",
    "edits", "structuredPatch", "__unparsedToolInput", "usage",
])  # fmt: skip
_LIKELY = st.dictionaries(_KNOWN_KEYS, _JSON)


def _narrow_everything(tool: str, data: bytes) -> None:
    assert isinstance(narrow_input(tool, data), ToolInput)
    assert isinstance(narrow_result(tool, data), results.ToolResult | None)
    assert all(isinstance(note, str) for note in (*result_drift(tool, data), *input_drift(tool, data)))


@given(tool=st.sampled_from(TOOLS), data=st.binary())
def test_no_bytes_make_narrowing_raise(tool: str, data: bytes) -> None:
    _narrow_everything(tool, data)


@given(tool=st.sampled_from(TOOLS), value=_JSON | _LIKELY)
def test_no_json_makes_narrowing_raise(tool: str, value: object) -> None:
    _narrow_everything(tool, _json(value))


@given(tool=st.sampled_from(TOOLS), text=st.text())
def test_no_text_makes_narrowing_raise(tool: str, text: str) -> None:
    assert isinstance(narrow_text_result(tool, text), results.ToolResult | None)


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"a":' * 100_000, b'{"stdout":' + b"9" * 9999])
@pytest.mark.parametrize("tool", ["Bash", "Workflow", "mcp__shop__find"])
def test_absurd_json_does_not_make_narrowing_raise(tool: str, data: bytes) -> None:
    _narrow_everything(tool, data)


@given(value=_JSON)
def test_unknown_input_gives_its_original_json(value: object) -> None:
    narrowed = narrow_input("unheard of", _json(value))
    assert isinstance(narrowed, UnknownInput)
    assert narrowed.json() == value


HUNK = {"oldStart": 4, "oldLines": 2, "newStart": 4, "newLines": 2, "lines": [" a", "-b", "+c"]}


@pytest.mark.parametrize(
    ("tool", "value", "kind"),
    [
        ("Bash", {"stdout": "3 passed", "stderr": "", "interrupted": False, "isImage": False}, results.BashResult),
        ("Bash", {"stdout": "", "stderr": "", "interrupted": False, "isImage": False, "returnCodeInterpretation":
         "Nothing matched", "backgroundTaskId": "b7"}, results.BashResult),
        ("Read", {"type": "text", "file": {"filePath": "/w/a", "content": "x\ny", "startLine": 3, "numLines": 2,
         "totalLines": 40}}, results.ReadText),
        ("Read", {"type": "image", "file": {"type": "image/gif", "base64": "R0lG", "originalSize": 31, "dimensions":
         {"width": 8, "height": 6}}}, results.ReadImage),
        ("Read", {"type": "file_unchanged", "file": {"filePath": "/w/a"}}, results.ReadUnchanged),
        ("Write", {"type": "create", "filePath": "/w/n", "content": "c", "originalFile": None, "structuredPatch": []},
         results.WriteResult),
        ("Write", {"type": "update", "filePath": "/w/n", "content": "c", "originalFile": "b", "structuredPatch":
         [HUNK]}, results.WriteResult),
        ("Edit", {"filePath": "/w/n", "oldString": "b", "newString": "c", "originalFile": "a\nb", "structuredPatch":
         [HUNK], "userModified": False, "replaceAll": False}, results.EditResult),
        ("MultiEdit", {"filePath": "/w/n", "edits": [{"old_string": "b", "new_string": "c"}], "originalFileContents":
         "b", "structuredPatch": []}, results.MultiEditResult),
        ("NotebookEdit", {"new_source": "1", "cell_number": 0, "edit_mode": "replace", "error": ""},
         results.NotebookEditResult),
        ("Glob", {"filenames": ["a.c", "b.c"], "numFiles": 9, "durationMs": 3.5, "truncated": True},
         results.GlobResult),
        ("Grep", {"mode": "content", "numFiles": 0, "filenames": [], "content": "a:1:x", "numLines": 1,
         "appliedLimit": 50}, results.GrepResult),
        ("Grep", {"numFiles": 1, "filenames": ["a"]}, results.GrepResult),
        ("TodoWrite", {"oldTodos": [], "newTodos": [{"content": "a", "status": "pending"}]}, work.TodoResult),
        ("Agent", {"status": "completed", "agentId": "a9", "content": [{"type": "text", "text": "done"}],
         "totalDurationMs": 12}, work.AgentResult),
        ("Task", {"content": [{"type": "text", "text": "half"}], "wasInterrupted": True}, work.AgentResult),
        ("Agent", {"status": "remote_launched", "taskId": "t1", "sessionUrl": "https://x.test/s"}, work.AgentResult),
        ("TaskOutput", {"retrieval_status": "success", "task": {"task_id": "b7", "status": "completed", "output":
         "ok", "exitCode": 0}}, results.TaskOutputResult),
        ("BashOutput", {"shellId": "b7", "status": "running", "stdout": "tick", "exitCode": None},
         results.BashOutputResult),
        ("BashOutput", {"retrieval_status": "timeout", "task": None}, results.TaskOutputResult),
        ("KillShell", {"message": "gone", "shell_id": "b7"}, results.KillShellResult),
        ("KillShell", {"message": "gone", "task_id": "b7", "task_type": "local_bash"}, results.TaskStopResult),
        ("TaskCreate", {"task": {"id": "1", "subject": "s"}}, work.TaskCreateResult),
        ("TaskGet", {"task": None}, work.TaskGetResult),
        ("TaskList", {"tasks": [{"id": "1", "subject": "s", "status": "pending", "blockedBy": ["2"]}]},
         work.TaskListResult),
        ("TaskUpdate", {"success": True, "taskId": "1", "updatedFields": ["status"], "statusChange": {"from":
         "pending", "to": "completed"}}, work.TaskUpdateResult),
        ("WebFetch", {"url": "https://x.test", "code": 200, "codeText": "OK", "bytes": 9, "durationMs": 4},
         work.WebFetchResult),
        ("WebSearch", {"query": "tea", "results": [{"tool_use_id": "s1", "content": [{"title": "T", "url":
         "https://x.test"}]}, "Tea is a drink."], "durationSeconds": 0.5}, work.WebSearchResult),
        ("AskUserQuestion", {"questions": [{"question": "Red?"}], "answers": {"Red?": ["Yes", "No"]}},
         work.QuestionResult),
        ("ExitPlanMode", {"plan": None, "isAgent": False}, work.PlanResult),
        ("EnterPlanMode", {"message": "planning"}, work.MessageResult),
        ("Skill", {"success": True, "commandName": "lint"}, work.SkillResult),
        ("ToolSearch", {"matches": ["WebFetch"], "query": "web", "total_deferred_tools": 8}, work.ToolSearchResult),
        ("EnterWorktree", {"worktreePath": "/w/t", "message": "moved"}, work.EnterWorktreeResult),
        ("TodoRead", [{"content": "a", "status": "pending", "id": "1", "priority": "high"}], work.TodoReadResult),
        ("ListMcpResourcesTool", [{"uri": "mem://a", "name": "a", "server": "mem"}], work.McpResourceList),
        ("LS", ["a", "b"], results.LsEntries),
        ("mcp__shop__find", [{"type": "text", "text": "tea"}, {"type": "image", "source": {"type": "base64", "data":
         "eA=="}}], results.McpResult),
        ("mcp__shop__find", {"price": 3}, results.McpObject),
    ],
)  # fmt: skip
def test_result_gets_the_type_of_its_tool(tool: str, value: object, kind: type[results.ToolResult]) -> None:
    narrowed = narrow_result(tool, _json(value))

    assert type(narrowed) is kind
    assert holds(narrowed, value)
    assert result_drift(tool, _json(value)) == ()


@pytest.mark.parametrize(
    ("kind", "file", "expected"),
    [
        ("notebook", {"filePath": "/w/n.ipynb", "cells": [{"cellType": "code"}]}, results.ReadNotebook),
        ("pdf", {"filePath": "/w/n.pdf", "base64": "JVBE", "originalSize": 3}, results.ReadPdf),
        ("parts", {"filePath": "/w/n.pdf", "count": 2, "outputDir": "/t"}, results.ReadParts),
    ],
)
def test_type_field_of_a_read_selects_its_struct(kind: str, file: object, expected: type[results.ToolResult]) -> None:
    assert type(narrow_result("Read", _json({"type": kind, "file": file}))) is expected


def test_batch_keeps_its_inner_records_unchanged() -> None:
    entry = {"type": "user", "toolUseResult": "Error: no"}
    narrowed = narrow_result("Batch", _json({"orderedToolResults": [{"key": "k", "message": entry}]}))
    assert isinstance(narrowed, work.BatchResult)
    assert msgspec.json.decode(narrowed.ordered_tool_results[0].message) == entry


def test_background_agent_is_launched() -> None:
    assert work.AgentResult(status="async_launched").is_launched
    assert work.AgentResult(is_async=True).is_launched
    assert not work.AgentResult(status="completed").is_launched
