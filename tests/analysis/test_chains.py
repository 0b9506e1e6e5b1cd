"""Recovery chains: the calls that follow a failure."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

import toolspan
from tests.strategies import Recorded, claude_transcripts
from toolspan.analysis.flows import FLOWS
from toolspan.analysis.recovery import RecoveryChain, find_chains
from toolspan.formats.source import BytesSource
from toolspan.reading.facts import single_job
from toolspan.testing import TranscriptBuilder, claude_results
from toolspan.testing.claude_results import Body

UNREAD = claude_results.refused("File has not been read yet. Read it first before writing to it.")
STALE = claude_results.refused("File has been modified since read, either by the user or by a linter.")
NO_MATCH = claude_results.refused("String to replace not found in file.")
TOO_LARGE = claude_results.failed("File content (26,000 tokens) exceeds maximum allowed tokens (25000).")
SLOW = claude_results.refused(
    "Error calling tool (MultiEdit): MCP error -32603: failed to evaluate permission: request timed out after 2m0s"
)
PATH: dict[str, object] = {"file_path": "/w/a.py"}
EDIT: dict[str, object] = {**PATH, "old_string": "a", "new_string": "b"}
EDITED = claude_results.edited("/w/a.py", "a", "a", "b")
SEEN = claude_results.read("/w/a.py", "a")

Step = tuple[str, dict[str, object], Body]


def make_session(*steps: Step, prompt_after: int = 0) -> TranscriptBuilder:
    """Build one call per message; a prompt follows after `prompt_after` calls."""
    builder = TranscriptBuilder().prompt("go")
    for n, (tool, given_, body) in enumerate(steps, 1):
        builder.result(builder.call(tool, given_, after_ms=1_000), body, after_ms=500)
        if n == prompt_after:
            builder.prompt("go on", after_ms=1_000)
    return builder


def find_session_chains(builder: TranscriptBuilder, tmp_path: Path) -> list[RecoveryChain]:
    return single_job(FLOWS).run(builder.write(tmp_path / "s.jsonl")).chains


def bash(command: str) -> dict[str, object]:
    return {"command": command}


NAMED: dict[str, list[Step]] = {
    "read_before_write": [("Edit", EDIT, UNREAD), ("Read", PATH, SEEN), ("Edit", EDIT, EDITED)],
    "reread_after_stale": [("Edit", EDIT, STALE), ("Read", PATH, SEEN), ("Edit", EDIT, EDITED)],
    "degradation": [
        ("MultiEdit", {**PATH, "edits": []}, SLOW),
        ("Edit", EDIT, SLOW),
        ("Write", {**PATH, "content": "b"}, claude_results.written("/w/a.py", "b", before="a")),
    ],
    "retry_same": [
        ("Bash", bash("git push"), claude_results.exited(1)),
        ("Bash", {**bash("git push"), "description": "again"}, claude_results.ran("ok")),
    ],
    "retry_modified": [("Edit", EDIT, NO_MATCH), ("Read", PATH, SEEN), ("Edit", {**EDIT, "old_string": "A"}, EDITED)],
    "tool_switch": [("Edit", EDIT, NO_MATCH), ("Bash", bash("sed -i s/a/b/ a.py"), claude_results.ran())],
    "paginate": [("Read", PATH, TOO_LARGE), ("Read", {**PATH, "offset": 1, "limit": 50}, SEEN)],
    "repair_command": [
        ("Bash", bash("cd /w && make test"), claude_results.exited(2)),
        ("Edit", EDIT, EDITED),
        ("Bash", bash("make test"), claude_results.ran("ok")),
    ],
}


@pytest.mark.parametrize("name", NAMED)
def test_each_way_to_recover_has_a_name(name: str, tmp_path: Path) -> None:
    (chain,) = find_session_chains(make_session(*NAMED[name]), tmp_path)

    assert (chain.name, chain.outcome) == (name, "recovered")
    assert [link.tool for link in chain.links] == [step[0] for step in NAMED[name][1:]]


def test_a_chain_has_attempts_time_and_tokens(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    builder.result(builder.call("Edit", EDIT), UNREAD, after_ms=100)
    builder.result(builder.call("Read", PATH, after_ms=2_000), SEEN)
    read = builder.call("Edit", EDIT, after_ms=3_000)
    builder.usage(output_tokens=70)
    builder.result(read, EDITED, after_ms=400)
    path = builder.write(tmp_path / "s.jsonl")

    (chain,) = find_chains((spans := toolspan.read(path)).spans, tokens=spans.message_tokens)

    assert (chain.attempts, chain.wall_ms) == (2, 5_500)
    assert [link.role for link in chain.links] == ["support", "attempt"]
    assert chain.tokens is not None
    assert chain.tokens.output_tokens >= 70


def test_a_failure_without_a_retry_is_abandoned_and_has_no_name(tmp_path: Path) -> None:
    steps: list[Step] = [("Edit", EDIT, NO_MATCH), ("Bash", bash("ls"), claude_results.ran())]

    (chain,) = find_session_chains(make_session(*steps), tmp_path)

    assert (chain.name, chain.outcome, chain.links) == (None, "abandoned", ())


def test_a_chain_that_ends_in_a_refusal_is_blocked(tmp_path: Path) -> None:
    refused: Step = ("Bash", bash("git push"), claude_results.denied_by_rule("git push"))

    (chain,) = find_session_chains(make_session(refused, refused), tmp_path)

    assert (chain.name, chain.outcome, chain.attempts) == ("retry_same", "blocked", 2)


def test_a_retry_in_another_turn_counts_if_it_is_near(tmp_path: Path) -> None:
    push: Step = ("Bash", bash("git push"), claude_results.exited(1))
    other: Step = ("Bash", bash("ls"), claude_results.ran())
    retry: Step = ("Bash", bash("git push"), claude_results.ran())

    near = find_session_chains(make_session(push, *[other] * 8, retry, prompt_after=1), tmp_path)
    far = find_session_chains(make_session(push, *[other] * 12, retry, prompt_after=1), tmp_path)
    same_turn = find_session_chains(make_session(push, *[other] * 12, retry), tmp_path)

    assert [chain.outcome for chain in near + far + same_turn] == ["recovered", "abandoned", "recovered"]


def test_calls_of_the_same_message_do_not_retry_each_other(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    first, second = builder.call("Edit", EDIT), builder.call("Edit", {**EDIT, "new_string": "c"})
    builder.result(first, UNREAD).result(second, UNREAD)
    builder.result(builder.call("Read", PATH), SEEN)
    builder.result(builder.call("Edit", EDIT), EDITED)

    (chain,) = find_session_chains(builder, tmp_path)

    assert (chain.start.id, chain.siblings) == (first, (second,))
    assert (chain.name, chain.outcome) == ("read_before_write", "recovered")


def test_another_tool_that_does_what_was_refused_is_flagged(tmp_path: Path) -> None:
    write: Step = ("Write", {**PATH, "content": "b"}, claude_results.rejected())
    shell: Step = ("Bash", bash("echo b > /w/a.py"), claude_results.ran())

    (chain,) = find_session_chains(make_session(write, shell), tmp_path)

    assert (chain.name, chain.outcome, chain.evasion) == ("tool_switch", "recovered", True)


def test_it_is_not_an_evasion_after_a_prompt_or_without_a_refusal(tmp_path: Path) -> None:
    write: Step = ("Write", {**PATH, "content": "b"}, claude_results.rejected())
    shell: Step = ("Bash", bash("echo b > /w/a.py"), claude_results.ran())
    missed: Step = ("Edit", EDIT, NO_MATCH)

    prompted = find_session_chains(make_session(write, shell, prompt_after=1), tmp_path)
    failed = find_session_chains(make_session(missed, shell), tmp_path)

    assert [chain.evasion for chain in prompted + failed] == [False, False]


@given(builder=claude_transcripts())
def test_every_failed_call_is_in_exactly_one_chain(builder: Recorded) -> None:
    spans = toolspan.read(BytesSource(builder.data)).spans

    wrong = [span.id for span in spans if span.state not in ("succeeded", "orphan_result")]

    assert sorted(name for chain in find_chains(spans) for name, _ in chain.failures) == sorted(wrong)


def test_calls_beside_a_failed_retry_are_further_attempts(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    builder.result(builder.call("Edit", EDIT), NO_MATCH)
    first, second = builder.call("Edit", EDIT), builder.call("Edit", {**EDIT, "old_string": "A"})
    builder.result(first, NO_MATCH).result(second, EDITED)

    (chain,) = find_session_chains(builder, tmp_path)

    assert (chain.outcome, chain.attempts, chain.siblings) == ("recovered", 3, ())
    assert [link.id for link in chain.links] == [first, second]
