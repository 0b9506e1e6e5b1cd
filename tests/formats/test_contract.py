"""Run the contract of `toolspan.testing.format_contract` on every registered format."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.formats import atif_trajectories, gemini_chats, line_samples, opencode_database
from toolspan.analysis.search.query import TRANSCRIPT_GLOBS
from toolspan.errors import UnknownFormat
from toolspan.formats.registry import FORMAT_NAMES, all_formats, get_format
from toolspan.testing import TranscriptBuilder
from toolspan.testing.codex_builder import RolloutBuilder
from toolspan.testing.format_contract import FormatContract


def write_file(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return path


class TestClaude(FormatContract):
    name = "claude"
    file_name = "00000000-0000-4000-8000-000000000001.jsonl"

    def sample(self) -> bytes:
        builder = TranscriptBuilder().prompt("go").text("I look.")
        builder.result(builder.call("Bash", {"command": "ls"}), "x")
        builder.result(builder.call("Read", {"file_path": "/x"}), "File does not exist.", is_error=True)
        builder.call("Bash", {"command": "sleep 9"})
        return builder.data()

    def write(self, home: Path, data: bytes) -> Path:
        return write_file(home / "projects" / "-home-dev" / self.file_name, data)


class TestCodex(FormatContract):
    name = "codex"
    file_name = "rollout-2026-03-02T10-20-30-00000000-0000-7000-8000-000000000001.jsonl"

    def sample(self) -> bytes:
        rollout = RolloutBuilder().prompt("go").text("I look.")
        rollout.output(rollout.call("shell", {"command": ["ls"]}), "Exit code: 0\nWall time: 0.1 seconds\nOutput:\nx")
        rollout.output(rollout.call("shell", {"command": ["false"]}), "Exit code: 1\nWall time: 0.1 seconds\nOutput:\n")
        return rollout.data()

    def write(self, home: Path, data: bytes) -> Path:
        return write_file(home / "sessions" / self.file_name, data)


class TestGemini(FormatContract):
    name = "gemini"
    file_name = "session-2026-03-02T10-20-1a2b3c4d.json"

    def sample(self) -> bytes:
        return gemini_chats.document()

    def write(self, home: Path, data: bytes) -> Path:
        return gemini_chats.write_chat(home, data)


class TestOpenCode(FormatContract):
    name = "opencode"
    file_name = f"{opencode_database.SESSION}.json"

    def sample(self) -> bytes:
        return opencode_database.document()

    def write(self, home: Path, data: bytes) -> Path:
        return opencode_database.write_database(home, data)


class TestCopilot(FormatContract):
    name = "copilot"
    file_name = "events.jsonl"

    def sample(self) -> bytes:
        return line_samples.copilot()

    def write(self, home: Path, data: bytes) -> Path:
        return write_file(home / "session-state" / line_samples.SESSION / self.file_name, data)


class TestPi(FormatContract):
    name = "pi"
    file_name = f"2026-11-18T12-09-17-273Z_{line_samples.SESSION}.jsonl"

    def sample(self) -> bytes:
        return line_samples.pi()

    def write(self, home: Path, data: bytes) -> Path:
        return write_file(home / "sessions" / "--w--" / self.file_name, data)


class TestQwen(FormatContract):
    name = "qwen"
    file_name = f"chats/{line_samples.SESSION}.jsonl"

    def sample(self) -> bytes:
        return line_samples.qwen()

    def write(self, home: Path, data: bytes) -> Path:
        return write_file(home / "projects" / "-w" / self.file_name, data)


class TestKimi(FormatContract):
    name = "kimi"
    file_name = f"session_{line_samples.SESSION}/agents/main/wire.jsonl"

    def sample(self) -> bytes:
        return line_samples.kimi()

    def write(self, home: Path, data: bytes) -> Path:
        return write_file(home / "sessions" / "wd_w_0123456789ab" / self.file_name, data)


class TestOlderKimi(TestKimi):
    file_name = f"{line_samples.SESSION}/wire.jsonl"

    def sample(self) -> bytes:
        return line_samples.older_kimi()


class TestCursor(FormatContract):
    name = "cursor"
    file_name = f"agent-transcripts/{line_samples.SESSION}/{line_samples.SESSION}.jsonl"

    def sample(self) -> bytes:
        return line_samples.cursor()

    def write(self, home: Path, data: bytes) -> Path:
        return write_file(home / "projects" / "w" / self.file_name, data)


class TestAtif(FormatContract):
    name = "atif"
    file_name = "trial.trajectory.json"

    def sample(self) -> bytes:
        return atif_trajectories.document()

    def write(self, home: Path, data: bytes) -> Path:
        return write_file(home / "job" / "trial" / "agent" / "trajectory.json", data)


def test_every_format_has_a_contract() -> None:
    assert {contract.name for contract in FormatContract.__subclasses__()} >= set(FORMAT_NAMES)


def test_ripgrep_searches_the_files_of_every_format() -> None:
    for transcript_format in all_formats():
        for glob in transcript_format.file_globs:
            assert glob in TRANSCRIPT_GLOBS or (glob.endswith(".jsonl") and "*.jsonl" in TRANSCRIPT_GLOBS)


def test_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownFormat, match="known formats: claude, codex, gemini"):
        get_format("aider")
