"""Change files in a folder and record each change as a client would."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.diffs.diffs import format_patch
from toolspan.analysis.file_history.content import ABSENT, Absent, CallSide, FileContent
from toolspan.diffs.codex_patch import AddFile, DeleteFile, FileSection, UpdateFile, apply_update
from toolspan.diffs.make import make_hunks
from toolspan.diffs.unified import unified
from toolspan.reading.transcript import Transcript, read
from toolspan.testing import Body, TranscriptBuilder, claude_results
from toolspan.types.hunk import Hunk


@dataclass
class RecordedFolder:
    """Files in a folder, and their contents before and after each call."""

    folder: Path
    before: dict[tuple[str, str], FileContent] = field(default_factory=dict, kw_only=True)
    after: dict[tuple[str, str], FileContent] = field(default_factory=dict, kw_only=True)

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def content(self, name: str) -> FileContent:
        """Return the content on disk."""
        path = self.folder / name
        return path.read_bytes().decode() if path.exists() else ABSENT

    def contents_around_calls(self) -> Iterator[tuple[CallSide, tuple[str, str], FileContent]]:
        """Yield the contents on disk before and after each call."""
        yield from (("before", key, content) for key, content in self.before.items())
        yield from (("after", key, content) for key, content in self.after.items())


@dataclass
class ClaudeFolder(RecordedFolder):
    """A folder in which Claude Code works.

    `originals=False` leaves out the content before a change, as newer clients do for large files;
    `companions=False` leaves out the structured results.
    """

    originals: bool = True
    companions: bool = True
    builder: TranscriptBuilder = field(init=False)

    def __post_init__(self) -> None:
        self.builder = TranscriptBuilder(cwd=str(self.folder)).prompt("Work")

    def write(self, name: str, content: str) -> str:
        old = self.content(name)
        before = None if isinstance(old, Absent) else old
        body = claude_results.written(self.path(name), content, before=before)
        tool_input: dict[str, object] = {"file_path": self.path(name), "content": content}
        return self._change("Write", name, tool_input, body, content)

    def edit(self, name: str, old: str, new: str, *, every: bool = False) -> str:
        text = self.content(name)
        assert isinstance(text, str)
        body = claude_results.edited(self.path(name), text, old, new, every=every)
        tool_input: dict[str, object] = {
            "file_path": self.path(name),
            "old_string": old,
            "new_string": new,
            "replace_all": every,
        }
        return self._change("Edit", name, tool_input, body, text.replace(old, new, -1 if every else 1))

    def read(self, name: str, *, offset: int = 1, limit: int = 0) -> str:
        text = self.content(name)
        if isinstance(text, Absent):
            body = claude_results.refused("File does not exist.")
        else:
            body = claude_results.read(self.path(name), text, offset=offset, limit=limit)
        return self._record("Read", {"file_path": self.path(name)}, body, name)

    def shell(self, command: str, changes: dict[str, str | None] | None = None, output: str = "") -> str:
        """Record a command and apply `changes` to the files; None deletes one."""
        call = self.builder.call("Bash", {"command": command})
        for name, content in (changes or {}).items():
            self.before[name, call] = self.content(name)
            self._write(name, content)
            self.after[name, call] = self.content(name)
        self.builder.result(call, claude_results.ran(output), after_ms=1_000)
        return call

    def transcript(self) -> Transcript:
        return read(self.builder.write(self.folder.parent / f"{self.folder.name}-transcript.jsonl"))

    def _write(self, name: str, content: str | None) -> None:
        if content is None:
            (self.folder / name).unlink(missing_ok=True)
        else:
            (self.folder / name).write_bytes(content.encode())

    def _change(self, tool: str, name: str, tool_input: dict[str, object], body: Body, content: str) -> str:
        old = self.content(name)
        call = self._record(tool, tool_input, self._recorded_body(body, old, content), name)
        self._write(name, content)
        self.before[name, call], self.after[name, call] = old, content
        return call

    def _recorded_body(self, body: Body, old: FileContent, new: str) -> Body:
        structured = body.structured
        if not self.companions or not isinstance(structured, dict):
            return Body(content=body.content)
        if not isinstance(old, Absent):
            structured["structuredPatch"] = [_json(hunk) for hunk in make_hunks(old, new)]
            if not self.originals:
                structured["originalFile"] = None
        return body

    def _record(self, tool: str, tool_input: dict[str, object], body: Body, name: str) -> str:
        call = self.builder.call(tool, tool_input)
        self.before[name, call] = self.after[name, call] = self.content(name)
        self.builder.result(call, body, after_ms=1_000)
        return call


def _json(hunk: Hunk) -> dict[str, object]:
    return {
        "oldStart": hunk.old_start,
        "oldLines": hunk.old_lines,
        "newStart": hunk.new_start,
        "newLines": hunk.new_lines,
        "lines": list(hunk.lines),
    }


@dataclass
class CodexFolder(RecordedFolder):
    """A folder in which Codex works; `events=False` leaves out the client's events."""

    events: bool = True
    lines: list[str] = field(default_factory=list)
    calls: int = 0

    def __post_init__(self) -> None:
        meta: dict[str, object] = {"id": "0199-thread", "cwd": str(self.folder), "originator": "codex_cli_rs"}
        self._line("session_meta", meta)

    def patch(self, *sections: FileSection, heredoc: bool = False) -> str:
        """Apply a patch to the files and record it."""
        call = self._next_id()
        changes: dict[str, object] = {}
        for section in sections:
            changes[self.path(section.path)] = self._apply(section, call)
        text = format_patch(sections)
        if heredoc:
            command = ["bash", "-lc", f"apply_patch <<'EOF'\n{text}EOF"]
            self._function(call, "shell", {"command": command})
        else:
            self._item(type="custom_tool_call", call_id=call, name="apply_patch", input=text)
        if self.events and not heredoc:
            output = {"success": True, "stdout": "", "stderr": "", "status": "completed"}
            event = {"type": "patch_apply_end", "call_id": call, "changes": changes, **output}
            self._line("event_msg", event)
        names = [section.path for section in sections]
        self._result(call, "Success. Updated the following files:\n" + "\n".join(names), heredoc)
        return call

    def run(self, command: str) -> str:
        """Record a command that prints nothing."""
        call = self._next_id()
        self._function(call, "shell", {"command": ["bash", "-lc", command]})
        self._result(call, "", heredoc=True)
        return call

    def cat(self, name: str) -> str:
        """Record a command that prints a file."""
        call = self._next_id()
        content = self.content(name)
        assert isinstance(content, str)
        self._function(call, "shell", {"command": ["bash", "-lc", f"cat {name}"]})
        self._result(call, content, heredoc=True)
        self.before[name, call] = self.after[name, call] = content
        return call

    def transcript(self) -> Transcript:
        path = self.folder.parent / "rollout-2026-01-01T00-00-00-0199.jsonl"
        path.write_text("".join(f"{line}\n" for line in self.lines), encoding="utf-8")
        return read(path)

    def _apply(self, section: FileSection, call: str) -> dict[str, object]:
        old = self.content(section.path)
        self.before[section.path, call] = old
        output = self._change_file(section, old, call)
        self.after[section.path, call] = self.content(section.path)
        return output

    def _change_file(self, section: FileSection, old: FileContent, call: str) -> dict[str, object]:
        file = self.folder / section.path
        match section:
            case AddFile():
                file.write_bytes(section.content.encode())
                return {"type": "add", "content": section.content}
            case DeleteFile():
                file.unlink()
                return {"type": "delete", "content": old}
            case UpdateFile():
                assert isinstance(old, str)
                new = apply_update(section, old)
                diff = unified(make_hunks(old, new), section.path).partition("@@")
                output: dict[str, object] = {"type": "update", "unified_diff": diff[1] + diff[2]}
                target = section.move_to
                if target is not None:
                    file.unlink()
                    self.before[target, call] = self.content(target)
                    output["move_path"] = self.path(target)
                (self.folder / (target or section.path)).write_bytes(new.encode())
                if target is not None:
                    self.after[target, call] = new
                return output

    def _next_id(self) -> str:
        self.calls += 1
        return f"call_{self.calls:04}"

    def _function(self, call: str, name: str, arguments: dict[str, object]) -> None:
        self._item(type="function_call", call_id=call, name=name, arguments=json.dumps(arguments))

    def _result(self, call: str, output: str, heredoc: bool) -> None:
        kind = "function_call_output" if heredoc else "custom_tool_call_output"
        body = {"output": output, "metadata": {"exit_code": 0, "duration_seconds": 0.1}}
        self._item(type=kind, call_id=call, output=json.dumps(body))

    def _item(self, **item: object) -> None:
        self._line("response_item", item)

    def _line(self, kind: str, payload: dict[str, object]) -> None:
        at = f"2026-01-01T00:{len(self.lines) // 60:02}:{len(self.lines) % 60:02}.000Z"
        self.lines.append(json.dumps({"timestamp": at, "type": kind, "payload": payload}))
