"""Sessions of both clients with a given text in every place that holds texts, and their exports."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toolspan.export.session_export import EXPORT_FORMATS, SessionExport, load_writer
from toolspan.formats.source import BytesSource
from toolspan.reading.transcript import Transcript, read
from toolspan.redaction.redactor import Redactor
from toolspan.testing import TranscriptBuilder, claude_results, codex_builder
from toolspan.testing.codex_builder import RolloutBuilder

CWD = "/home/dev/project"
HALF = "\ue000"
"""Stands for half of a letter, which clients write as `\\ud800` and no builder does."""


def claude(text: str, *, file: str = "session.jsonl") -> list[Transcript]:
    """A Claude Code session with a subagent."""
    builder = TranscriptBuilder(git_branch=text).title(text).prompt(text)
    builder.thinking(text).text(text)
    ran = builder.call("Bash", {"command": text, "description": text})
    builder.hook(ran, "PreToolUse", command=text, text=text)
    builder.result(ran, claude_results.ran(text), after_ms=1500)
    path = f"{CWD}/{text}.py"
    edited = builder.call("Edit", {"file_path": path, "old_string": "a", "new_string": text})
    builder.result(edited, claude_results.edited(path, "a\n", "a", text), after_ms=40)
    served = builder.call(f"mcp__{text[:20]}__ask", {text: {text: [text, 7, True, None]}})
    builder.result(served, claude_results.failed(text), after_ms=90)
    refused = builder.call("Bash", {"command": f"rm {text}"})
    builder.result(refused, claude_results.rejected(text), after_ms=4_000)
    task = builder.call("Task", {"prompt": text, "description": text, "subagent_type": text})
    child = builder.agent(task, kind=text).prompt(text)
    inner = child.call("Grep", {"pattern": text})
    child.result(inner, claude_results.found_lines([text]), after_ms=20).text(text)
    builder.until(child)
    rows = claude_results.reported(child.agent_id, text, prompt=text, calls=1, took_ms=20)
    builder.result(task, rows, after_ms=5)
    left = builder.call("Read", {"file_path": path}, id=f"toolu_{text}")
    assert left
    return [transcript(builder.data(), file), transcript(child.data(), f"agent-{child.agent_id}.jsonl")]


def codex(text: str) -> list[Transcript]:
    """A Codex session."""
    builder = RolloutBuilder().prompt(text).injected(text).text(text).thinking(text)
    ran = builder.call("exec_command", {"cmd": text, "workdir": f"{CWD}/{text}"})
    builder.output(ran, codex_builder.command_output(text, code=3), after_ms=800)
    patch = f"*** Begin Patch\n*** Add File: {text}.py\n+{text}\n*** End Patch"
    patched = builder.call("apply_patch", patch)
    builder.output(patched, codex_builder.patched_output(f"A {text}.py"), custom=True, after_ms=90)
    builder.call("no_such_tool", {text: text})
    return [transcript(builder.data(), "rollout-x.jsonl")]


def transcript(data: bytes, file: str = "session.jsonl") -> Transcript:
    """Lines, read."""
    return read(BytesSource(data.replace(HALF.encode(), rb"\ud800"), file))


BOTH: tuple[Callable[[str], list[Transcript]], ...] = (claude, codex)


def exported(transcripts: Sequence[Transcript], veil: Callable[[], Redactor | None] = lambda: None) -> dict[str, str]:
    """Return a session in each format, and as a page."""
    return {
        form: b"".join(load_writer(form)([SessionExport(transcripts, redactor=veil())])).decode()
        for form in EXPORT_FORMATS
    }
