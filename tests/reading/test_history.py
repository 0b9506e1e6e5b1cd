"""`toolspan.history`: many files as one, each call once."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import toolspan
from tests.requirement import requirement
from toolspan.errors import Ambiguous, NotFound, SourceError
from toolspan.formats import zstd
from toolspan.reading.history import match_prefix
from toolspan.testing import TranscriptBuilder, claude_results


def start_call(session_id: str, *names: str) -> TranscriptBuilder:
    builder = TranscriptBuilder(session_id=session_id).prompt("go")
    for name in names:
        builder.result(builder.call("Bash", {"command": name}, id=name), claude_results.ran("x"))
    return builder


def write(root: Path, *stories: TranscriptBuilder) -> None:
    for builder in stories:
        builder.write(root / f"{builder.session_id}.jsonl")


def states(root: Path) -> dict[str, str]:
    spans = list(toolspan.history(root).spans)
    result = {str(span.id): str(span.state) for span in spans}
    assert len(result) == len(spans)  # each id once
    return result


def test_copies_in_nested_forks_are_one_call(tmp_path: Path) -> None:
    builder = start_call("a", "one")
    child = builder.fork("b")
    child.result(child.call("Bash", {"command": "x"}, id="two"), claude_results.ran("x"))
    grandchild = child.fork("c")
    grandchild.result(grandchild.call("Bash", {"command": "x"}, id="three"), claude_results.ran("x"))
    write(tmp_path, builder, child, grandchild)

    assert states(tmp_path) == {"one": "succeeded", "two": "succeeded", "three": "succeeded"}
    assert sum(len(each.spans) for each in toolspan.transcripts(tmp_path)) == 6


def test_call_is_attributed_to_the_file_of_its_session(tmp_path: Path) -> None:
    builder = start_call("m", "one")
    write(tmp_path, builder)
    for name in ("a", "z"):
        (tmp_path / f"{name}.jsonl").write_bytes(builder.data() + start_call(name).data())

    (span,) = toolspan.history(tmp_path).spans

    assert span.call.session_id == "m"
    assert span.call.place is not None
    assert Path(span.call.place.file).name == "m.jsonl"


@pytest.mark.parametrize("copy", ["a", "z"])
def test_earliest_copy_is_used_if_copies_have_new_times(copy: str, tmp_path: Path) -> None:
    builder = start_call("m", "one")
    write(tmp_path, builder)
    times = re.compile(rb'"timestamp":"[^"]*"')
    data = times.sub(b'"timestamp":"2027-01-01T00:00:00.000Z"', builder.data())
    (tmp_path / f"{copy}.jsonl").write_bytes(data.replace(b'"sessionId":"m"', f'"sessionId":"{copy}"'.encode()))

    (span,) = toolspan.history(tmp_path).spans

    assert span.call.session_id == "m"
    assert (span.call.requested_at or "").startswith("2026")


@requirement("history.success-beats-interruption")
@pytest.mark.parametrize("fork", ["a", "z"])
def test_success_in_the_origin_overrides_the_copy(fork: str, tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="m").prompt("go")
    call = builder.call("Bash", {"command": "make"}, id="one")
    twin = builder.fork(fork).resume()
    builder.result(call, claude_results.ran("done"))
    write(tmp_path, builder, twin)

    assert states(tmp_path) == {"one": "succeeded"}
    assert [span.state for span in toolspan.read(tmp_path / f"{fork}.jsonl").spans] == ["interrupted"]


@requirement("history.success-beats-interruption")
def test_orphan_result_joins_its_call_in_another_file_of_the_session(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="m").prompt("go")
    call = builder.call("Bash", {"command": "make"}, id="one")
    late = TranscriptBuilder(session_id="m").result(call, claude_results.ran("done"))
    write(tmp_path, builder)
    (tmp_path / "later").mkdir()
    late.write(tmp_path / "later" / "m.jsonl")

    assert len(list(toolspan.history(tmp_path).spans)) == 1


@requirement("history.success-beats-interruption")
@pytest.mark.parametrize("shared", [True, False])
def test_files_with_the_same_first_record_are_one_conversation(shared: bool, tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="a").prompt("go")
    copied = builder.data().replace(b'"a"', b'"b"') if shared else b""
    call = builder.call("Bash", {"command": "make"}, id="one")
    late = TranscriptBuilder(session_id="b").result(call, claude_results.ran("done"))
    write(tmp_path, builder)
    (tmp_path / "b.jsonl").write_bytes(copied + late.data())

    spans = list(toolspan.history(tmp_path).spans)

    assert [span.id for span in spans] == (["one"] if shared else ["one", "one"])


def test_equal_ids_in_unrelated_files_are_two_calls(tmp_path: Path) -> None:
    write(tmp_path, start_call("a", "call_1"), start_call("b", "call_1"))

    assert [span.id for span in toolspan.history(tmp_path).spans] == ["call_1", "call_1"]


@requirement("reading.subagents-name-their-call")
@pytest.mark.parametrize("version", ["2.1.325", "2.1.80", "2.0.65", "1.0.60"])
def test_spans_of_subagents_name_the_call_that_started_them(version: str, tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="m", version=version).prompt("go")
    starter = builder.call("Task", {"prompt": "p"}, id="starter")
    agent = builder.agent(starter).prompt("p")
    agent.result(agent.call("Read", {"file_path": "/a"}, id="inner"), claude_results.read("/a", "a"))
    report = claude_results.reported(agent.agent_id, "r", prompt="p", calls=1, took_ms=1, version=version)
    write(tmp_path, builder.result(starter, report))

    result = {span.id: span.call.parent_call for span in toolspan.history(tmp_path).spans}

    assert result == {"starter": None, "inner": "starter"}


def test_bodies_of_joined_spans_can_be_read(tmp_path: Path) -> None:
    builder = start_call("a", "one")
    write(tmp_path, builder, builder.fork("b"))

    (span,) = toolspan.history(tmp_path).spans

    assert span.input == toolspan.BashInput(command="one")
    assert span.result is not None
    assert span.result.text == "x"


def test_tokens_of_copied_messages_count_once(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="a").prompt("go").text("x").usage(output_tokens=7)
    write(tmp_path, builder, builder.fork("b"), builder.fork("c"))

    history = toolspan.history(tmp_path)

    assert history.tokens.output_tokens == 7


def test_compressed_session_joins_like_a_plain_one(tmp_path: Path) -> None:
    builder = start_call("a", "one")
    twin = builder.fork("b")
    twin.result(twin.call("Bash", {"command": "x"}, id="two"), claude_results.ran("x"))
    write(tmp_path, twin)
    packed = zstd.compress(builder.data())
    (tmp_path / "a.jsonl.zst").write_bytes(packed)

    assert states(tmp_path) == {"one": "succeeded", "two": "succeeded"}


def test_one_file_is_a_history(tmp_path: Path) -> None:
    path = start_call("a", "one").write(tmp_path / "a.jsonl")

    assert [span.id for span in toolspan.history(path).spans] == ["one"]


def test_default_history_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    with pytest.raises(SourceError, match="no such folder"):
        toolspan.history()
    (tmp_path / "projects").mkdir()
    write(tmp_path / "projects", start_call("a", "one"))

    assert [span.id for span in toolspan.history().spans] == ["one"]


def test_prefix_selects_sessions() -> None:
    names = ["aa", "aab", "b"]

    assert match_prefix("aa", names, "thing") == "aa"
    assert match_prefix("b", names, "thing") == "b"
    with pytest.raises(NotFound, match="no thing begins with 'c'"):
        match_prefix("c", names, "thing")
    with pytest.raises(Ambiguous, match="2 things begin with 'a': aa, aab"):
        match_prefix("a", names, "thing")


def test_files_without_calls_are_not_sessions_but_lone_subagents_are(tmp_path: Path) -> None:
    builder = start_call("a", "one")
    agent = builder.agent(builder.call("Agent", {"prompt": "look"})).prompt("look")
    write(tmp_path, builder)
    (tmp_path / "a.jsonl").unlink()  # only the subagent's file is left
    (tmp_path / "notes.jsonl").write_text('{"milk":1}\n')

    (session,) = toolspan.history(tmp_path).call_table.sessions

    assert (session.id, session.agents) == ("a", [])
    assert session.file.info.agent_id == agent.agent_id


def test_messages_without_an_id_count_separately(tmp_path: Path) -> None:
    usage = {"input_tokens": 3, "output_tokens": 5}
    reply = {"type": "assistant", "uuid": "u", "message": {"model": "m", "usage": usage}}
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(f"{json.dumps(reply)}\n" * 2)

    ledger = toolspan.history(tmp_path).call_table

    assert (ledger.tokens.input_tokens, ledger.tokens.output_tokens) == (12, 20)


def test_impossible_token_counts_are_ignored(tmp_path: Path) -> None:
    usage = {"input_tokens": 3, "output_tokens": 1 << 60}
    reply = {"type": "assistant", "message": {"id": "m1", "model": "m", "usage": usage}}
    made_up = {"type": "assistant", "message": {"model": "<synthetic>", "usage": usage}}
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(reply)}\n{json.dumps(made_up)}\n")

    tokens = toolspan.history(tmp_path).call_table.tokens

    assert (tokens.input_tokens, tokens.output_tokens) == (3, 0)


def test_call_ids_can_be_abbreviated_to_a_unique_part() -> None:
    names = ["toolu_01abc", "toolu_bdrk_01xyz", "call_abd"]

    assert [match_prefix(short, names, "call") for short in ("abc", "xyz", "abd")] == names
