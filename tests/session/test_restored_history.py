"""Histories restored from transcripts of any quality are valid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.requirement import requirement
from toolspan.errors import NotFound
from toolspan.formats.evidence import LOST_BEGINNING_MESSAGE, UNANSWERED_MESSAGE
from toolspan.session.resume import fork_transcript, load_history
from toolspan.testing import check_history
from toolspan.types.ids import SessionId

Line = dict[str, object]


def call(name: str) -> Line:
    return {"type": "tool_use", "id": name, "name": "Bash", "input": {"command": name}}


def result(name: str) -> Line:
    return {"type": "tool_result", "tool_use_id": name, "content": f"of {name}"}


def text(words: str) -> Line:
    return {"type": "text", "text": words}


class Lines:
    """Lines that hang on each other."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def user(self, *blocks: Line, on: int | None = None, **more: object) -> Lines:
        return self._add("user", {"role": "user", "content": list(blocks)}, on, more)

    def model(self, name: str, block: Line, on: int | None = None) -> Lines:
        message: Line = {"id": name, "role": "assistant", "model": "m", "content": [block]}
        return self._add("assistant", message, on, {})

    def _add(self, kind: str, message: Line, on: int | None, more: Line) -> Lines:
        number = len(self.lines)
        above = number - 1 if on is None else on
        self.lines.append(
            {
                "parentUuid": f"u{above}" if above >= 0 else None,
                "type": kind,
                "uuid": f"u{number}",
                "sessionId": "s",
                "message": message,
                **more,
            }
        )
        return self

    def written(self, folder: Path) -> Path:
        path = folder / "s.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in self.lines), encoding="utf-8")
        return path


def roles_and_blocks(path: Path) -> list[tuple[object, list[object]]]:
    messages = load_history(path)
    assert not messages or check_history(messages) == []
    output = []
    for message in messages:
        content = message["content"]
        assert isinstance(content, list)
        phrase = [b.get("text") or b.get("id") or b.get("content") for b in content]
        output.append((message["role"], phrase))
    return output


@requirement("resume.tree")
def test_overlapping_calls_and_interleaved_results_are_joined(tmp_path: Path) -> None:
    lines = Lines().user(text("go")).model("m1", call("a")).user(result("a"))
    lines.model("m1", call("b")).user(result("b"), on=3).model("m2", text("done"))

    assert roles_and_blocks(lines.written(tmp_path)) == [
        ("user", ["go"]),
        ("assistant", ["a", "b"]),
        ("user", ["of a", "of b"]),
        ("assistant", ["done"]),
    ]


@requirement("resume.unanswered")
def test_open_call_is_answered(tmp_path: Path) -> None:
    lines = Lines().user(text("go")).model("m1", call("a")).model("m1", call("b"))
    lines.user(result("b"))

    assert roles_and_blocks(lines.written(tmp_path))[-1] == ("user", ["of b", UNANSWERED_MESSAGE])


@requirement("resume.branches")
def test_abandoned_and_subagent_records_are_left_out(tmp_path: Path) -> None:
    lines = Lines().user(text("first try")).model("m1", text("hm"))
    lines.user(text("second try"), on=-1).model("m2", text("better"))
    lines.user(text("aside"), isSidechain=True, on=-1)
    lines.model("m3", text("API Error: 529"), on=3)
    lines.lines[-1]["isApiErrorMessage"] = True

    assert roles_and_blocks(lines.written(tmp_path)) == [("user", ["second try"]), ("assistant", ["better"])]


def test_repeated_and_unpaired_records_are_tolerated(tmp_path: Path) -> None:
    lines = Lines().model("m0", call("lost")).user(result("lost"), text("go"))
    lines.model("m1", call("a")).user(result("a")).user(result("never asked for"))
    lines.model("m2", call("a")).model("m3", text("  ")).user(text("and?"))
    path = lines.written(tmp_path)
    with path.open("ab") as file:
        file.write(b'{"torn')

    assert roles_and_blocks(path) == [
        ("user", [LOST_BEGINNING_MESSAGE]),
        ("assistant", ["lost"]),
        ("user", ["of lost", "go"]),
        ("assistant", ["a"]),
        ("user", ["of a", "and?"]),
    ]


@requirement("resume.fork")
def test_copy_has_the_same_records_under_another_id(tmp_path: Path) -> None:
    path = Lines().user(text("go")).model("m1", text("done")).written(tmp_path)
    before = path.read_bytes()
    copy = fork_transcript(path, SessionId("other"), tmp_path, config=tmp_path / "config")

    assert roles_and_blocks(copy) == roles_and_blocks(path)
    assert path.read_bytes() == before
    sessions = {json.loads(line)["sessionId"] for line in copy.read_bytes().splitlines()}
    assert sessions == {"other"}


def test_conversation_can_be_forked_at_any_record(tmp_path: Path) -> None:
    lines = Lines().user(text("go")).model("m1", call("a")).model("m1", call("b"))
    lines.user(result("b")).user(result("a"), on=1).model("m2", text("done")).user(text("more"))
    path = lines.written(tmp_path)
    whole = roles_and_blocks(path)
    copy = fork_transcript(path, SessionId("other"), tmp_path, config=tmp_path / "config", until="u1")

    assert (
        roles_and_blocks(copy) == whole[:3] == [("user", ["go"]), ("assistant", ["a", "b"]), ("user", ["of b", "of a"])]
    )
    assert load_history(path, until="u1") == load_history(copy)
    assert load_history(path, until="u0") == load_history(path)[:1]


@pytest.mark.parametrize(("word", "output"), [("x", "no records"), ("u", "2 records")])
def test_unknown_or_ambiguous_record_id_is_refused(word: str, output: str, tmp_path: Path) -> None:
    path = Lines().user(text("go")).model("m1", text("done")).written(tmp_path)

    with pytest.raises(NotFound, match=output):
        load_history(path, until=word)
