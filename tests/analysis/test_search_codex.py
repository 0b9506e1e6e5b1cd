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


def rows(*words: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(app, ["search", *words, "--json"])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def home(user: Path) -> Path:
    """The home of somebody who uses both clients, with a session of one."""
    story = TranscriptBuilder(session_id="s").prompt("a lantern, please")
    story.write(user / ".claude" / "projects" / "-home-dev" / "s.jsonl")
    return user


def told(age: RolloutAge = "enveloped") -> RolloutBuilder:
    story = RolloutBuilder(age=age, cwd="/home/dev").prompt('light the "lantern"', after_ms=60_000)
    call = story.call("exec_command", {"cmd": 'echo "lantern\noil" > naïve'}, after_ms=1_000)
    return story.output(call, codex_builder.command_output("no such lantern", code=2), after_ms=1_000)


@requirement("search.finds")
@pytest.mark.parametrize("age", ["bare", "enveloped", "paginated"])
def test_rollouts_of_every_age_are_searched_beside_transcripts(home: Path, age: RolloutAge) -> None:
    told(age).write(home / ".codex")

    found = rows("lantern")

    assert sorted(row["voice"] or row["tool"] for row in found) == [
        "exec_command", "prompt", "prompt",
    ]  # fmt: skip
    call = next(row for row in found if row["kind"] == "call")
    assert (call["state"], call["error"]) == ("failed", "command_failed")
    assert call["sides"] == ["input", "result"]
    assert [row["voice"] for row in rows("lantern", "--dialect", "claude")] == ["prompt"]
    assert len(rows("lantern", "--dialect", "codex")) == 2


@requirement("search.spellings")
@pytest.mark.parametrize("word", ['"lantern', "lantern\noil", "naïve", '" > n'])
def test_what_is_escaped_twice_is_found(home: Path, word: str) -> None:
    told().write(home / ".codex")

    assert [row["tool"] for row in rows(word, "--in", "input")] == ["exec_command"]


@requirement("search.finds")
def test_a_compressed_rollout_is_searched_once(home: Path) -> None:
    path = told().write(home / ".codex")
    packed = zstandard.ZstdCompressor().compress(path.read_bytes())
    path.with_name(path.name + ".zst").write_bytes(packed)
    both = rows("lantern", "--dialect", "codex")
    path.unlink()
    one = rows("lantern", "--dialect", "codex")

    assert [row["copies"] for row in both] == [0, 0]
    assert [row["snippet"] for row in one] == [row["snippet"] for row in both]
