"""Truncated files, forks and rare records."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import toolspan
from toolspan.errors import SourceError
from toolspan.formats import zstd
from toolspan.formats.source import BytesSource
from toolspan.reading.transcript import read_content
from toolspan.testing import TranscriptBuilder, claude_results, codex_builder
from toolspan.testing.codex_builder import RolloutBuilder


def cut(path: Path, data: bytes, kept: int) -> Path:
    first, second = data[:kept], data[kept:]
    packed = zstd.compress(second)
    path.write_bytes(zstd.compress(first) + packed[: len(packed) // 2])
    return path


def test_truncated_compressed_file_is_read_to_the_cut(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    builder.result(builder.call("Bash", {"command": "ls"}), claude_results.ran("x")).text("done")
    data = builder.data()
    path = cut(tmp_path / "s.jsonl.zst", data, data.rindex(b'{"parentUuid"'))

    transcript = toolspan.read(path)

    assert [span.state for span in transcript.spans] == ["succeeded"]
    assert [finding.code for finding in transcript.findings] == ["unreadable_rest"]
    assert [message.text for message in read_content(transcript).messages] == ["go"]
    assert "unreadable_rest" in [finding.code for finding in toolspan.check(path).findings]


def test_unreadable_compressed_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl.zst"
    path.write_bytes(zstd.compress(b"{}\n" * 100)[:10])

    with pytest.raises(SourceError, match="broken Zstandard data"):
        toolspan.read(path)


@pytest.mark.parametrize("suffix", [".zst", ".gz"])
def test_a_file_that_expands_enormously_is_not_read_further(tmp_path: Path, suffix: str) -> None:
    builder = TranscriptBuilder().prompt("go")
    builder.result(builder.call("Bash", {"command": "ls"}), claude_results.ran("x"))
    bomb = tmp_path / f"bomb.jsonl{suffix}"
    bomb.write_bytes(compress(suffix, builder.data() + b"\n" * (1 << 27)))
    builder.write(tmp_path / "s.jsonl")

    transcript = toolspan.read(bomb)

    assert [span.state for span in transcript.spans] == ["succeeded"]
    [finding] = transcript.findings
    assert finding.code == "unreadable_rest"
    assert "not read further, because it expands to more than 250 times its size" in finding.explanation
    assert len(toolspan.history(tmp_path).files) == 2


@pytest.mark.parametrize("suffix", [".zst", ".gz"])
def test_a_transcript_that_repeats_itself_is_read_completely(tmp_path: Path, suffix: str) -> None:
    builder = TranscriptBuilder().prompt("go")
    text = "\n".join(f"{number} {'all tests passed ' * 20}" for number in range(60_000))
    builder.result(builder.call("Bash", {"command": "ls"}), claude_results.ran(text))
    path = tmp_path / f"s.jsonl{suffix}"
    path.write_bytes(compress(suffix, builder.data()))

    assert len(builder.data()) > 60 * path.stat().st_size
    assert toolspan.read(path).findings == []


def compress(suffix: str, data: bytes) -> bytes:
    return zstd.compress(data) if suffix == ".zst" else gzip.compress(data, 6)


def test_body_of_a_removed_file_is_an_error(tmp_path: Path) -> None:
    path = TranscriptBuilder().prompt("go").write(tmp_path / "s.jsonl")
    transcript = toolspan.read(path)
    path.unlink()

    with pytest.raises(SourceError, match="No such file"):
        list(transcript.messages())


def test_record_that_names_another_session_marks_a_fork() -> None:
    copied = {"sessionId": "origin", "messageUuid": "u0"}
    line = {"type": "user", "uuid": "u1", "sessionId": "s1", "forkedFrom": copied}
    data = json.dumps({**line, "message": {"role": "user", "content": "go"}}).encode() + b"\n"

    assert toolspan.read(BytesSource(data)).info.forked_from == "origin"


@pytest.mark.parametrize("form", ["event", "item", "words"])
def test_parent_call_of_a_subagent_is_found_by_event_item_or_output(form: str) -> None:
    rollout = RolloutBuilder(age="paginated" if form == "item" else "enveloped").prompt("go")
    call = rollout.call("spawn_agent", {"message": "look"})
    text = json.dumps({"agent_id": "0199-agent"}) if form == "words" else "started"
    rollout.output(call, text)
    if form == "event":
        rollout.event("collab_agent_spawn_end", call_id=call, new_thread_id="0199-agent")
    elif form == "item":
        rollout.completed(
            "CollabAgentToolCall", call, tool="spawnAgent", receiver_thread_ids=["0199-agent"], status="completed"
        )

    transcript = toolspan.read(BytesSource(rollout.data(), "rollout-x.jsonl"))

    assert transcript.agent_starters == {"0199-agent": call}
    assert [span.agent for span in transcript.spans] == ["0199-agent"]


@pytest.mark.parametrize(
    ("text", "state", "kind"),
    [
        ("Script failed\nWall time 0.1 seconds\nOutput:\nReferenceError", "failed", "unknown"),
        ("Script completed\nWall time 0.1 seconds\nOutput:\nfine", "succeeded", None),
    ],
)
def test_script_header_decides_how_the_script_ended(text: str, state: str, kind: str | None) -> None:
    rollout = RolloutBuilder()
    rollout.output(rollout.call("exec", "await tools.run()"), text, custom=True)
    (span,) = toolspan.read(BytesSource(rollout.data(), "rollout-x.jsonl")).spans

    assert (span.state, span.error_kind) == (state, kind)


@pytest.mark.parametrize(
    ("status", "state", "kind"), [("declined", "denied", "user_denied"), ("completed", "never_answered", None)]
)
def test_call_without_output_may_have_been_declined(status: str, state: str, kind: str | None) -> None:
    rollout = RolloutBuilder(age="paginated").prompt("go")
    call = rollout.call("exec_command", {"cmd": "make"})
    rollout.completed("CommandExecution", call, status=status)
    (span,) = toolspan.read(BytesSource(rollout.data(), "rollout-x.jsonl")).spans

    assert (span.state, span.error_kind) == (state, kind)


def test_turn_without_an_id_belongs_to_the_previous_one() -> None:
    rollout = RolloutBuilder().prompt("go")
    first = rollout.call("exec_command", {"cmd": "a"})
    rollout.line("turn_context", {"cwd": "/p", "model": "m"})
    second = rollout.call("exec_command", {"cmd": "b"})
    rollout.output(first, codex_builder.command_output()).output(second, codex_builder.command_output())

    spans = toolspan.read(BytesSource(rollout.data(), "rollout-x.jsonl")).spans

    assert len({span.call.prompt_id for span in spans}) == 1
    assert spans[0].call.prompt_id is not None


def test_result_before_its_call_is_inferred_when_the_call_is_read() -> None:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Bash", {"command": "make"})
    builder.result(call, claude_results.exited(2, "no rule"))
    prompt, request, answered = builder.lines()

    (span,) = toolspan.read(BytesSource(b"\n".join([prompt, answered, request, b""]))).spans

    assert (span.tool, span.state, span.error_kind) == ("Bash", "failed", "command_failed")


@pytest.mark.parametrize("content", [None, "words", [], [{"type": "text"}]])
def test_assistant_record_without_call_blocks_has_no_calls(content: object) -> None:
    line = {"type": "assistant", "uuid": "u1", "message": {"role": "assistant", "content": content}}
    transcript = toolspan.read(BytesSource(json.dumps(line).encode() + b"\n"))

    assert transcript.spans == []
