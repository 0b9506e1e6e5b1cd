"""Archives for tests of tables, and datasets as bytes to compare."""

from __future__ import annotations

from pathlib import Path

from tests.reading.test_lineage import OTHER_PROGRAM, Archive
from toolspan.tables import Dataset
from toolspan.testing import RolloutBuilder, TranscriptBuilder, claude_results, codex_builder

QUESTIONS = ("errors", "stats", "usage", "time", "sessions", "hooks", "agents", "risky")


def write_archive(folder: Path, *, sessions: int = 1) -> Path:
    """Write sessions with forks, resumes and subagents, an unreadable file and a file of another program."""
    folder.mkdir(parents=True, exist_ok=True)
    archive = Archive(folder)
    for _ in range(sessions):
        for kind in ("fork", "resume", "restamp", "lost_main", "twin"):
            archive.add(kind, "2.1.325", ["succeeded", "failed", "open"], 1)
    write_edits(folder, "00000000-2222-4000-8000-000000000000")
    rollout = RolloutBuilder().prompt("go")
    rollout.output(rollout.call("exec_command", {"cmd": "make"}), codex_builder.command_output("boom", code=2))
    rollout.tokens(100, 7, cached=60)
    rollout.write(folder)
    (folder / "broken.jsonl.zst").write_bytes(b"not Zstandard")
    (folder / "other.jsonl").write_bytes(OTHER_PROGRAM)
    return folder


def write_edits(folder: Path, name: str, *, key: str = "") -> Path:
    """Write a session that edits a file, waits for permission and calls an MCP server."""
    builder = TranscriptBuilder(session_id=name).prompt(f"Fix it {key}".strip())
    call = builder.call("Edit", {"file_path": "/w/a.py", "old_string": "a", "new_string": "b"}, id=f"{name}-edit")
    builder.usage(input_tokens=10, output_tokens=5)
    builder.result(call, claude_results.edited("/w/a.py", "a\n", "a", "b"), after_ms=4_000)
    call = builder.call("mcp__shop__find", {"word": key or "x"}, id=f"{name}-mcp")
    builder.hook(call, "PreToolUse", command="check.sh")
    builder.result(call, claude_results.failed("MCP error -32000: Connection closed"), after_ms=500)
    call = builder.call("Bash", {"command": f"curl -H 'Authorization: Bearer {key}'"}, id=f"{name}-bash")
    builder.result(call, claude_results.rejected(), after_ms=60_000)
    return builder.write(folder / f"{name}.jsonl")


def table_bytes(out: Path) -> dict[str, bytes]:
    """The Parquet files of a dataset by their names."""
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*.parquet"))}


def listed_bytes(out: Path) -> dict[str, bytes]:
    """The Parquet files that the manifest of a dataset lists."""
    return {item.path: (out / item.path).read_bytes() for item in Dataset(out).manifest.partitions}
