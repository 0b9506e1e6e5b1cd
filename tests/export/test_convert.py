"""Sessions of one client as sessions of another, read again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given

from tests.export.test_formats import ANYTHING, FEW
from toolspan.errors import ToolspanError
from toolspan.export import convert_session, summarize_session
from toolspan.reading.transcript import Transcript, read
from toolspan.testing import TranscriptBuilder, claude_results, codex_builder
from toolspan.testing.codex_builder import RolloutBuilder

CLIENTS = ("claude", "codex", "pi")
CWD = "/home/dev/project"


def claude(folder: Path, text: str = "Fix the test.") -> Path:
    """Write a session with calls that succeeded, failed and were never answered, and a tool of a server."""
    builder = TranscriptBuilder().prompt(text).thinking("Hm.").text("I look.")
    builder.result(
        builder.call("Bash", {"command": "make test"}), claude_results.failed("Exit code 2\n2 failed"), after_ms=9
    )
    path = f"{CWD}/a.py"
    edit = builder.call("Edit", {"file_path": path, "old_string": "a", "new_string": "b"})
    builder.result(edit, claude_results.edited(path, "a\n", "a", "b"), after_ms=9)
    builder.result(builder.call("Read", {"file_path": path}), claude_results.ran("b"), after_ms=9)
    builder.result(builder.call("mcp__wiki__ask", {"question": text}), claude_results.ran("42"), after_ms=9)
    builder.text("Nearly done.").prompt("And now?")
    builder.call("Bash", {"command": "sleep 60"})
    return builder.write(folder / "session.jsonl")


def codex(folder: Path, text: str = "Fix the test.") -> Path:
    builder = RolloutBuilder().prompt(text).text("I look.")
    ran = builder.call("exec_command", {"cmd": "make test"})
    builder.output(ran, codex_builder.command_output("ok", code=0), after_ms=8)
    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n-a\n+b\n*** End Patch"
    patched = builder.call("apply_patch", patch)
    builder.output(patched, codex_builder.patched_output("M a.py"), custom=True, after_ms=9)
    path = folder / "rollout-2026-03-02T10-20-30-00000000-0000-7000-8000-000000000001.jsonl"
    path.write_bytes(builder.text("Done.").data())
    return path


def texts(transcript: Transcript, voice: str) -> list[str]:
    return [message.text for message in transcript.messages() if message.voice == voice]


@pytest.mark.parametrize("make", [claude, codex])
@pytest.mark.parametrize("to", CLIENTS)
def test_converted_session_has_the_prompts_replies_and_calls(
    make: Callable[[Path], Path], to: str, tmp_path: Path
) -> None:
    source = make(tmp_path)
    before = source.read_bytes()

    written = convert_session([str(source)], to, home=tmp_path / "home", cwd="/elsewhere")
    transcript = read(Path(written.path))

    assert source.read_bytes() == before
    assert (transcript.client, transcript.session_id, transcript.info.cwd) == (to, written.session, "/elsewhere")
    assert texts(transcript, "prompt")[0] == "Fix the test."
    assert "I look." in texts(transcript, "text")[0]
    assert len(transcript.spans) == written.calls > 0
    assert all(span.result is not None for span in transcript.spans)
    assert not transcript.findings
    assert transcript.tokens.output_tokens == 0
    assert written.resume_command is not None
    assert written.session in written.resume_command or written.path in written.resume_command


def test_calls_become_those_of_the_other_client_or_text(tmp_path: Path) -> None:
    source = claude(tmp_path)
    written = {to: convert_session([str(source)], to, home=tmp_path / to) for to in CLIENTS}
    spans = {to: read(Path(written[to].path)).spans for to in CLIENTS}

    assert [span.tool for span in spans["claude"]] == ["Bash", "Edit", "Read", "Bash"]
    assert [span.tool for span in spans["codex"]] == ["exec_command", "apply_patch", "exec_command"]
    assert [span.tool for span in spans["pi"]] == ["bash", "edit", "read", "bash"]
    assert spans["codex"][0].call.arguments == {"cmd": "make test"}
    assert "*** Update File" in str(spans["codex"][1].call.raw_input)
    for to in CLIENTS:
        assert spans[to][0].state == "failed"
        assert spans[to][1].state == "succeeded"
        last = spans[to][-1].result
        assert last is not None
        assert "No result was recorded." in last.text
        text = "\n".join(texts(read(Path(written[to].path)), "text"))
        assert "mcp__wiki__ask" in text
        assert "42" in text


def test_patch_of_codex_becomes_an_edit(tmp_path: Path) -> None:
    written = convert_session([str(codex(tmp_path))], "claude", home=tmp_path / "home")
    ran, edited = read(Path(written.path)).spans

    assert (ran.tool, ran.call.arguments["command"]) == ("Bash", "make test")
    assert edited.tool == "Edit"
    assert (edited.call.arguments["old_string"], edited.call.arguments["new_string"]) == ("a\n", "b\n")


def test_only_what_follows_the_last_compaction_is_converted(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("old words").text("old answer")
    source = builder.compact("The summary.").prompt("new words").text("new answer").write(tmp_path / "session.jsonl")

    written = convert_session([str(source)], "codex", home=tmp_path / "home")
    data = Path(written.path).read_text()

    assert "old words" not in data
    assert "The summary." in data
    assert "new answer" in data


@FEW
@given(ANYTHING)
def test_summary_is_bounded(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        source = claude(Path(folder), text * 3_000)
        assert len(summarize_session([str(source)])) <= 8_001


def test_summary_names_goal_prompts_files_open_failures_and_the_last_state(tmp_path: Path) -> None:
    summary = summarize_session([str(claude(tmp_path))])

    assert "## Goal\n\nFix the test." in summary
    assert "- And now?" in summary
    assert f"- {CWD}/a.py (edited)" in summary
    assert "- Bash make test (failed)" in summary
    assert "Without a result: Bash sleep 60" in summary


def test_brief_session_begins_with_the_summary(tmp_path: Path) -> None:
    written = convert_session([str(claude(tmp_path))], "claude", home=tmp_path / "home", brief=True)
    (prompt,) = texts(read(Path(written.path)), "prompt")

    assert prompt.startswith("# Summary of a session of Claude Code")


def test_client_whose_sessions_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolspanError, match="choose one of claude, codex, pi"):
        convert_session([str(claude(tmp_path))], "cursor", home=tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_two_conversions_are_two_sessions(tmp_path: Path) -> None:
    source = claude(tmp_path)
    first, second = (convert_session([str(source)], "pi", home=tmp_path / "home") for _ in range(2))

    assert first.session != second.session
    assert json.loads(Path(first.path).read_text().splitlines()[0])["id"] == first.session
