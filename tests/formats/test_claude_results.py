"""Shapes of structured results."""

from __future__ import annotations

import json

import msgspec
import pytest

from tests.formats import holds
from toolspan.formats.claude import results
from toolspan.formats.claude import work_results as work
from toolspan.formats.claude.narrow import narrow_result, result_drift

HUNK = {"oldStart": 4, "oldLines": 2, "newStart": 4, "newLines": 2, "lines": [" a", "-b", "+c"]}


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("tool", "given", "kind"),
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
def test_result_gets_the_type_of_its_tool(tool: str, given: object, kind: type[results.ToolResult]) -> None:
    narrowed = narrow_result(tool, _json(given))

    assert type(narrowed) is kind
    assert holds(narrowed, given)
    assert result_drift(tool, _json(given)) == ()


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
