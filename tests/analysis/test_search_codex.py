"""Searching Codex's rollouts, alone and beside Claude Code's transcripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard
from click.testing import CliRunner

from tests.requirement import requirement
from toolspan.cli.app import app
from toolspan.testing import TranscriptBuilder, codex_builder
from toolspan.testing.codex_builder import RolloutAge, RolloutBuilder


def search_rows(*words: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(app, ["search", *words, "--json"])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def home(user: Path) -> Path:
    """A home folder with a session of Claude Code."""
    builder = TranscriptBuilder(session_id="s").prompt("a lantern, please")
    builder.write(user / ".claude" / "projects" / "-home-dev" / "s.jsonl")
    return user


def make_rollout(age: RolloutAge = "enveloped") -> RolloutBuilder:
    builder = RolloutBuilder(age=age, cwd="/home/dev").prompt('light the "lantern"', after_ms=60_000)
    call = builder.call("exec_command", {"cmd": 'echo "lantern\noil" > naïve'}, after_ms=1_000)
    return builder.output(call, codex_builder.command_output("no such lantern", code=2), after_ms=1_000)


@requirement("search.finds")
@pytest.mark.parametrize("age", ["bare", "enveloped", "paginated"])
def test_rollouts_of_every_age_are_searched_beside_transcripts(home: Path, age: RolloutAge) -> None:
    make_rollout(age).write(home / ".codex")

    matches = search_rows("lantern")

    assert sorted(row["voice"] or row["tool"] for row in matches) == [
        "exec_command", "prompt", "prompt",
    ]  # fmt: skip
    call = next(row for row in matches if row["kind"] == "call")
    assert (call["state"], call["error"]) == ("failed", "command_failed")
    assert call["sides"] == ["input", "result"]
    assert [row["voice"] for row in search_rows("lantern", "--dialect", "claude")] == ["prompt"]
    assert len(search_rows("lantern", "--dialect", "codex")) == 2


@requirement("search.spellings")
@pytest.mark.parametrize("word", ['"lantern', "lantern\noil", "naïve", '" > n'])
def test_what_is_escaped_twice_is_found(home: Path, word: str) -> None:
    make_rollout().write(home / ".codex")

    assert [row["tool"] for row in search_rows(word, "--in", "input")] == ["exec_command"]


@requirement("search.finds")
def test_a_compressed_rollout_is_searched_once(home: Path) -> None:
    path = make_rollout().write(home / ".codex")
    packed = zstandard.ZstdCompressor().compress(path.read_bytes())
    path.with_name(path.name + ".zst").write_bytes(packed)
    both = search_rows("lantern", "--dialect", "codex")
    path.unlink()
    item = search_rows("lantern", "--dialect", "codex")

    assert [row["copies"] for row in both] == [0, 0]
    assert [row["snippet"] for row in item] == [row["snippet"] for row in both]
