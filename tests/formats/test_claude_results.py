"""The shapes of structured results, each through the door that chooses it."""

from __future__ import annotations

import json

import msgspec
import pytest
from msgspec.structs import replace

from toolspan.formats.claude.narrow import narrow_result, result_drift
from toolspan.formats.claude.results import (
    BackgroundTask,
    BashOutputResult,
    BashResult,
    BlockSource,
    ContentBlock,
    Dimensions,
    EditResult,
    GlobResult,
    GrepResult,
    ImageFile,
    KillShellResult,
    LsEntries,
    McpObject,
    McpResult,
    MultiEditResult,
    NotebookEditResult,
    ReadImage,
    ReadNotebook,
    ReadParts,
    ReadPdf,
    ReadText,
    ReadUnchanged,
    TaskOutputResult,
    TaskStopResult,
    TextFile,
    ToolResult,
    UnchangedFile,
    WriteResult,
)
from toolspan.formats.claude.work_results import (
    AgentResult,
    BatchResult,
    EnterWorktreeResult,
    McpResource,
    McpResourceList,
    MessageResult,
    PlanResult,
    QuestionResult,
    SearchHits,
    SearchLink,
    SkillResult,
    StatusChange,
    TaskCreateResult,
    TaskGetResult,
    TaskItem,
    TaskListResult,
    TaskUpdateResult,
    TodoReadResult,
    TodoResult,
    ToolSearchResult,
    WebFetchResult,
    WebSearchResult,
)
from toolspan.types.hunk import Hunk
from toolspan.types.inputs import TextEdit, TodoItem, UserQuestion

HUNK = {"oldStart": 4, "oldLines": 2, "newStart": 4, "newLines": 2, "lines": [" a", "-b", "+c"]}
TYPED_HUNK = Hunk(old_start=4, old_lines=2, new_start=4, new_lines=2, lines=(" a", "-b", "+c"))
WRITTEN = WriteResult(type="create", file_path="/w/n", content="c")


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("tool", "given_result", "expected"),
    [
        (
            "Bash",
            {"stdout": "3 passed", "stderr": "", "interrupted": False, "isImage": False},
            BashResult(stdout="3 passed"),
        ),
        (
            "Bash",
            {
                "stdout": "",
                "stderr": "",
                "interrupted": False,
                "isImage": False,
                "returnCodeInterpretation": "Nothing matched",
                "backgroundTaskId": "b7",
            },
            BashResult(stdout="", return_code_interpretation="Nothing matched", background_task_id="b7"),
        ),
        (
            "Read",
            {
                "type": "text",
                "file": {"filePath": "/w/a", "content": "x\ny", "startLine": 3, "numLines": 2, "totalLines": 40},
            },
            ReadText(file=TextFile(file_path="/w/a", content="x\ny", start_line=3, num_lines=2, total_lines=40)),
        ),
        (
            "Read",
            {
                "type": "image",
                "file": {
                    "type": "image/gif",
                    "base64": "R0lG",
                    "originalSize": 31,
                    "dimensions": {"width": 8, "height": 6},
                },
            },
            ReadImage(
                file=ImageFile(
                    type="image/gif", base64="R0lG", original_size=31, dimensions=Dimensions(width=8, height=6)
                )
            ),
        ),
        (
            "Read",
            {"type": "file_unchanged", "file": {"filePath": "/w/a"}},
            ReadUnchanged(file=UnchangedFile(file_path="/w/a")),
        ),
        (
            "Write",
            {"type": "create", "filePath": "/w/n", "content": "c", "originalFile": None, "structuredPatch": []},
            WRITTEN,
        ),
        (
            "Write",
            {"type": "update", "filePath": "/w/n", "content": "c", "originalFile": "b", "structuredPatch": [HUNK]},
            replace(WRITTEN, type="update", original_file="b", structured_patch=(TYPED_HUNK,)),
        ),
        (
            "Edit",
            {
                "filePath": "/w/n",
                "oldString": "b",
                "newString": "c",
                "originalFile": "a\nb",
                "structuredPatch": [HUNK],
                "userModified": False,
                "replaceAll": False,
            },
            EditResult(
                file_path="/w/n",
                old_string="b",
                new_string="c",
                original_file="a\nb",
                structured_patch=(TYPED_HUNK,),
                user_modified=False,
                replace_all=False,
            ),
        ),
        (
            "MultiEdit",
            {
                "filePath": "/w/n",
                "edits": [{"old_string": "b", "new_string": "c"}],
                "originalFileContents": "b",
                "structuredPatch": [],
            },
            MultiEditResult(
                file_path="/w/n", edits=(TextEdit(old_string="b", new_string="c"),), original_file_contents="b"
            ),
        ),
        (
            "NotebookEdit",
            {"new_source": "1", "cell_number": 0, "edit_mode": "replace", "error": ""},
            NotebookEditResult(new_source="1", cell_number=0, edit_mode="replace", error=""),
        ),
        (
            "Glob",
            {"filenames": ["a.c", "b.c"], "numFiles": 9, "durationMs": 3.5, "truncated": True},
            GlobResult(filenames=("a.c", "b.c"), num_files=9, duration_ms=3.5, truncated=True),
        ),
        (
            "Grep",
            {"mode": "content", "numFiles": 0, "filenames": [], "content": "a:1:x", "numLines": 1, "appliedLimit": 50},
            GrepResult(mode="content", num_files=0, filenames=(), content="a:1:x", num_lines=1, applied_limit=50),
        ),
        ("Grep", {"numFiles": 1, "filenames": ["a"]}, GrepResult(num_files=1, filenames=("a",))),
        (
            "TodoWrite",
            {"oldTodos": [], "newTodos": [{"content": "a", "status": "pending"}]},
            TodoResult(old_todos=(), new_todos=(TodoItem(content="a", status="pending"),)),
        ),
        (
            "Agent",
            {
                "status": "completed",
                "agentId": "a9",
                "content": [{"type": "text", "text": "done"}],
                "totalDurationMs": 12,
            },
            AgentResult(
                status="completed",
                agent_id="a9",
                content=(ContentBlock(type="text", text="done"),),
                total_duration_ms=12,
            ),
        ),
        (
            "Task",
            {"content": [{"type": "text", "text": "half"}], "wasInterrupted": True},
            AgentResult(content=(ContentBlock(type="text", text="half"),), was_interrupted=True),
        ),
        (
            "Agent",
            {"status": "remote_launched", "taskId": "t1", "sessionUrl": "https://x.test/s"},
            AgentResult(status="remote_launched", task_id="t1", session_url="https://x.test/s"),
        ),
        (
            "TaskOutput",
            {
                "retrieval_status": "success",
                "task": {"task_id": "b7", "status": "completed", "output": "ok", "exitCode": 0},
            },
            TaskOutputResult(
                retrieval_status="success",
                task=BackgroundTask(task_id="b7", status="completed", output="ok", exit_code=0),
            ),
        ),
        (
            "BashOutput",
            {"shellId": "b7", "status": "running", "stdout": "tick", "exitCode": None},
            BashOutputResult(shell_id="b7", status="running", stdout="tick"),
        ),
        ("BashOutput", {"retrieval_status": "timeout", "task": None}, TaskOutputResult(retrieval_status="timeout")),
        ("KillShell", {"message": "gone", "shell_id": "b7"}, KillShellResult(message="gone", shell_id="b7")),
        (
            "KillShell",
            {"message": "gone", "task_id": "b7", "task_type": "local_bash"},
            TaskStopResult(message="gone", task_id="b7", task_type="local_bash"),
        ),
        ("TaskCreate", {"task": {"id": "1", "subject": "s"}}, TaskCreateResult(task=TaskItem(id="1", subject="s"))),
        ("TaskGet", {"task": None}, TaskGetResult(task=None)),
        (
            "TaskList",
            {"tasks": [{"id": "1", "subject": "s", "status": "pending", "blockedBy": ["2"]}]},
            TaskListResult(tasks=(TaskItem(id="1", subject="s", status="pending", blocked_by=("2",)),)),
        ),
        (
            "TaskUpdate",
            {
                "success": True,
                "taskId": "1",
                "updatedFields": ["status"],
                "statusChange": {"from": "pending", "to": "completed"},
            },
            TaskUpdateResult(
                success=True,
                task_id="1",
                updated_fields=("status",),
                status_change=StatusChange(before="pending", after="completed"),
            ),
        ),
        (
            "WebFetch",
            {"url": "https://x.test", "code": 200, "codeText": "OK", "bytes": 9, "durationMs": 4},
            WebFetchResult(url="https://x.test", code=200, code_text="OK", bytes=9, duration_ms=4),
        ),
        (
            "WebSearch",
            {
                "query": "tea",
                "results": [
                    {"tool_use_id": "s1", "content": [{"title": "T", "url": "https://x.test"}]},
                    "Tea is a drink.",
                ],
                "durationSeconds": 0.5,
            },
            WebSearchResult(
                query="tea",
                results=(
                    SearchHits(tool_use_id="s1", content=(SearchLink(title="T", url="https://x.test"),)),
                    "Tea is a drink.",
                ),
                duration_seconds=0.5,
            ),
        ),
        (
            "AskUserQuestion",
            {"questions": [{"question": "Red?"}], "answers": {"Red?": ["Yes", "No"]}},
            QuestionResult(questions=(UserQuestion(question="Red?"),), answers={"Red?": ("Yes", "No")}),
        ),
        ("ExitPlanMode", {"plan": None, "isAgent": False}, PlanResult(plan=None, is_agent=False)),
        ("EnterPlanMode", {"message": "planning"}, MessageResult(message="planning")),
        ("Skill", {"success": True, "commandName": "lint"}, SkillResult(success=True, command_name="lint")),
        (
            "ToolSearch",
            {"matches": ["WebFetch"], "query": "web", "total_deferred_tools": 8},
            ToolSearchResult(matches=("WebFetch",), query="web", total_deferred_tools=8),
        ),
        (
            "EnterWorktree",
            {"worktreePath": "/w/t", "message": "moved"},
            EnterWorktreeResult(worktree_path="/w/t", message="moved"),
        ),
        (
            "TodoRead",
            [{"content": "a", "status": "pending", "id": "1", "priority": "high"}],
            TodoReadResult(todos=(TodoItem(content="a", status="pending", id="1", priority="high"),)),
        ),
        (
            "ListMcpResourcesTool",
            [{"uri": "mem://a", "name": "a", "server": "mem"}],
            McpResourceList(resources=(McpResource(uri="mem://a", name="a", server="mem"),)),
        ),
        ("LS", ["a", "b"], LsEntries(entries=("a", "b"))),
        (
            "mcp__shop__find",
            [{"type": "text", "text": "tea"}, {"type": "image", "source": {"type": "base64", "data": "eA=="}}],
            McpResult(
                blocks=(
                    ContentBlock(type="text", text="tea"),
                    ContentBlock(type="image", source=BlockSource(type="base64", data="eA==")),
                )
            ),
        ),
        ("mcp__shop__find", {"price": 3}, McpObject(data={"price": 3})),
    ],
)
def test_a_result_gets_the_type_of_its_tool(tool: str, given_result: object, expected: ToolResult) -> None:
    assert narrow_result(tool, _json(given_result)) == expected
    assert result_drift(tool, _json(given_result)) == ()


@pytest.mark.parametrize(
    ("kind", "file", "expected"),
    [
        ("notebook", {"filePath": "/w/n.ipynb", "cells": [{"cellType": "code"}]}, ReadNotebook),
        ("pdf", {"filePath": "/w/n.pdf", "base64": "JVBE", "originalSize": 3}, ReadPdf),
        ("parts", {"filePath": "/w/n.pdf", "count": 2, "outputDir": "/t"}, ReadParts),
    ],
)
def test_the_type_of_a_read_chooses_its_struct(kind: str, file: object, expected: type[ToolResult]) -> None:
    assert type(narrow_result("Read", _json({"type": kind, "file": file}))) is expected


def test_a_batch_keeps_its_inner_entries_as_they_are() -> None:
    entry = {"type": "user", "toolUseResult": "Error: no"}
    narrowed = narrow_result("Batch", _json({"orderedToolResults": [{"key": "k", "message": entry}]}))
    assert isinstance(narrowed, BatchResult)
    assert msgspec.json.decode(narrowed.ordered_tool_results[0].message) == entry


def test_an_agent_that_was_sent_off_is_launched() -> None:
    assert AgentResult(status="async_launched").is_launched
    assert AgentResult(is_async=True).is_launched
    assert not AgentResult(status="completed").is_launched
