"""The same calls recorded by Claude Code and by Codex are read alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

import toolspan
from toolspan.analysis.errors import group_errors
from toolspan.formats.source import BytesSource
from toolspan.reading.history import CallTable
from toolspan.reading.transcript import Transcript
from toolspan.testing import TranscriptBuilder, claude_results, codex_builder
from toolspan.testing.codex_builder import RolloutAge, RolloutBuilder


@dataclass(frozen=True)
class RecordedCall:
    """One call and what became of it."""

    fate: str
    words: str
    code: int


Output = str | list[dict[str, object]]
LOST = "tool call error: tool call failed\n\nCaused by:\n    Transport closed"
FATES: dict[str, tuple[Callable[[RecordedCall], claude_results.Body], Callable[[RecordedCall], Output]] | None] = {
    "open": None,
    "ran": (lambda told: claude_results.ran(told.words), lambda told: codex_builder.command_output(told.words)),
    "exited": (
        lambda told: claude_results.exited(told.code, f"says: {told.words}"),
        lambda told: codex_builder.command_output(f"says: {told.words}", code=told.code),
    ),
    "missing": (
        lambda _: claude_results.exited(127, "thing: command not found"),
        lambda _: codex_builder.headed_output("thing: command not found", code=127),
    ),
    "timed_out": (lambda _: claude_results.timed_out("2m 0.0s"), lambda _: codex_builder.timed_out_output(120_000)),
    "rejected": (lambda _: claude_results.rejected(), lambda _: codex_builder.rejected_output()),
    "blocked": (
        lambda _: claude_results.blocked_by_hook("Bash", "guard.sh", "no"),
        lambda _: codex_builder.blocked_output("no", "thing"),
    ),
    "unknown": (
        lambda _: claude_results.refused("Error: No such tool available: Bash"),
        lambda _: codex_builder.unknown_tool_output("exec_command"),
    ),
    "refused": (
        lambda _: claude_results.refused("InputValidationError: command is missing"),
        lambda _: codex_builder.bad_arguments_output(),
    ),
    "served": (lambda told: claude_results.mcp_text(told.words), lambda told: codex_builder.mcp_output(told.words)),
    "lost": (lambda _: claude_results.failed("MCP error -32000: Connection closed"), lambda _: LOST),
    "unfit": (
        lambda _: claude_results.refused("String to replace not found in file.\nString: x"),
        lambda _: codex_builder.patch_mismatch_output("/a.txt", "x"),
    ),
}

WORDS = st.text(st.characters(categories=["L", "N", "P"], include_characters=" \n"), max_size=60)
CALLS = st.builds(RecordedCall, st.sampled_from(sorted(FATES)), WORDS, st.integers(1, 100))
BATCHES = st.lists(st.lists(CALLS, min_size=1, max_size=4), max_size=5)


TOOLS: dict[str, tuple[str, str]] = {
    "served": ("mcp__eyes__look", "mcp__eyes__look"),
    "lost": ("mcp__eyes__look", "mcp__eyes__look"),
    "unfit": ("Edit", "apply_patch"),
}
SHELLS = ("Bash", "exec_command")


def claude(batches: list[list[RecordedCall]]) -> Transcript:
    builder = TranscriptBuilder().prompt("Do it")
    for batch in batches:
        calls = [(builder.call(TOOLS.get(call.fate, SHELLS)[0], {}), call) for call in batch]
        for call_id, call in calls:
            if (fate := FATES[call.fate]) is not None:
                builder.result(call_id, fate[0](call), after_ms=10)
        builder.text("Next").prompt("And now")
    return toolspan.read(BytesSource(builder.data()))


def codex(batches: list[list[RecordedCall]], age: RolloutAge) -> Transcript:
    rollout = RolloutBuilder(age=age).prompt("Do it")
    for batch in batches:
        calls = [(rollout.call(TOOLS.get(call.fate, SHELLS)[1], "{}"), call) for call in batch]
        for call_id, call in calls:
            if (fate := FATES[call.fate]) is not None:
                rollout.output(call_id, fate[1](call), after_ms=10)
        rollout.text("Next").prompt("And now")
    return toolspan.read(BytesSource(rollout.data()))


@given(BATCHES, st.sampled_from(["bare", "enveloped", "paginated"]))
def test_same_conversation_in_both_formats_has_the_same_states_and_kinds(
    batches: list[list[RecordedCall]], age: RolloutAge
) -> None:
    first, second = claude(batches), codex(batches, age)
    facts = [[(span.state, span.error_kind, span.call.kind) for span in item.spans] for item in (first, second)]
    assert facts[0] == facts[1]
    sizes = [
        [sum(1 for s in item.spans if s.call.message_id == name) for name in _batches(item)] for item in (first, second)
    ]
    assert sizes[0] == sizes[1] == [len(batch) for batch in batches]
    assert len(CallTable.from_transcripts([first, second]).calls) == 2 * sum(map(len, batches))


def _batches(transcript: Transcript) -> list[str | None]:
    return list(dict.fromkeys(span.call.message_id for span in transcript.spans))


def test_errors_of_both_clients_are_grouped_by_kind() -> None:
    output = [[RecordedCall("exited", "x", 2), RecordedCall("rejected", "", 1)]]
    ledger = CallTable.from_transcripts([claude(output), codex(output, "enveloped")])
    kinds = {group.kind: group.states for group in group_errors(ledger.calls)}
    assert set(kinds) == {"command_failed", "user_denied"}
