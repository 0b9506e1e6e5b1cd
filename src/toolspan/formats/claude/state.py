"""Infer the final state of a call from its result and from the records around it.

Pure functions on `ResultFacts` and `InferenceContext`. The patterns match messages that clients
write. Start at `infer_state`, then `refine_inference`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from toolspan.formats.pairing import StateInference
from toolspan.types.error_kinds import ErrorKind, find_timeout_text, kind_of
from toolspan.types.span import Evidence
from toolspan.types.state import State
from toolspan.types.tool_kinds import tool_kind


class ResultFacts(Struct, frozen=True, kw_only=True, gc=False):
    """The facts about one result that determine its state."""

    tool: str
    text: str
    """The text sent to the model, without tags; may be truncated after a few thousand characters."""
    is_error: bool | None
    exit_code: int | None = None
    wrapped: bool = False
    """True if the text was inside error tags."""
    denial_kind: str | None = None
    denial_source: str | None = None
    """The recorded source of the denial: `config`, `hook`, `user_reject`, …"""
    structured: bool = False
    """True if the structured result is an object or a list, as it is for successes."""
    version: tuple[int, ...] = ()
    """The client's version; empty if unknown."""
    interrupted: bool = False
    timed_out: bool = False
    background: bool = False


class InferenceContext(Struct, frozen=True, kw_only=True, gc=False):
    """Facts from the records around a result."""

    interrupt_follows: bool = False
    started: bool = False
    """True if progress or hooks show that the call has started."""
    hook_blocked: str | None = None
    """The reason given by a PreToolUse hook that blocked this call."""
    was_hooked: bool = False
    """True if a PreToolUse hook produced output for this call."""
    denied_by_host: bool = False
    """True if the last record of the stream lists the call as denied."""
    is_refusal_text: bool = False
    """True if another command was denied with the same message."""


class _ResultMarker(NamedTuple):
    """A pattern for the beginning of a message that only the client writes, and its meaning."""

    rule: str
    regex: str
    state: State
    kind: ErrorKind
    hint: str = ""
    """A literal part of the message, for patterns that begin with arbitrary text."""


def _make_markers(
    *rows: tuple[str, str, State, ErrorKind] | tuple[str, str, State, ErrorKind, str],
) -> tuple[_ResultMarker, ...]:
    return tuple(_ResultMarker(*row) for row in rows)


_REJECTION_TEXT = "The user doesn't want to proceed with this tool use"

_MARKERS = _make_markers(
    ("hook refused", r"(?:Error: )?PreToolUse:\S+ (?:hook error|\[)", "blocked_by_hook",
     "hook_blocked"),
    ("hook refused", r"Hook PreToolUse:\S+ denied this tool", "blocked_by_hook", "hook_blocked"),
    ("hook refused", r".{0,200}blocked by PreToolUse hook", "blocked_by_hook", "hook_blocked",
     "blocked by PreToolUse hook"),
    ("hook stopped", r"Execution stopped by PreToolUse hook", "blocked_by_hook", "hook_blocked"),
    ("sibling failed", r"Sibling tool call errored|Cancelled: parallel tool call",
     "cancelled", "sibling_error"),
    ("reply streamed anew", r"(?:Error: )?Streaming fallback", "cancelled", "stream_discarded"),
    ("cancelled before start",
     r"The user doesn't want to take this action right now|Tool use was cancelled",
     "cancelled", "cancelled"),
    ("interrupt text", r"(?:Error: )?(?:Exit code \d+\n)?\[Request interrupted by user",
     "interrupted", "interrupted"),
    ("session ended", r"\[Tool call interrupted: ", "interrupted", "interrupted"),
    ("interrupt text", r"Interrupted by user|This operation was aborted|Request was aborted",
     "interrupted", "interrupted"),
    ("user rejected", _REJECTION_TEXT, "denied", "user_denied"),
    ("rule", r"Permission to use \S+ (?:with command (?s:.*))?has been denied",
     "denied", "rule_denied"),
    ("rule", r"(?:File|Path) is in a directory that is denied by your permission settings"
     r"|File is covered by a Read deny rule", "denied", "rule_denied"),
    ("plan mode", r"Cannot write to .{0,600} while in plan mode", "denied", "rule_denied"),
    ("classifier", r"Permission for this action (?:has been denied\."
     r"|was denied by the Claude Code auto mode classifier)", "denied", "classifier_denied"),
    ("classifier", r".{0,300}cannot determine the safety of", "denied", "classifier_denied",
     "cannot determine the safety of"),
    ("classifier", r"Auto mode could not evaluate this action", "denied", "classifier_denied"),
    ("not granted", r"Claude requested permissions to (?s:.{0,1000})"
     r"(?:haven't granted it yet|which is a sensitive file)", "denied", "not_granted"),
    ("not granted",
     r"(?:This command|This Bash command|Commands that)(?s:.{0,400}?)"
     r"requires? (?:explicit )?approval",
     "denied", "not_granted"),
    ("not granted", r"Output redirection to .{0,400}needs approval", "denied", "not_granted"),
    ("not granted", r"[^\n]{0,400} was blocked\.", "denied", "not_granted", " was blocked."),
    ("permission question timed out",
     r"(?:Error calling tool \S+ )?.{0,80}failed to evaluate permission: request timed out",
     "timed_out", "permission_timeout", "failed to evaluate permission: request timed out"),
)  # fmt: skip


def _compile_alternatives(numbers: Iterable[int]) -> re.Pattern[str]:
    """Join patterns into one, in which the name of the matching group identifies the pattern."""
    return re.compile("|".join(f"(?P<m{n}>{_MARKERS[n].regex})" for n in numbers))


_HINTS = tuple(marker.hint for marker in _MARKERS if marker.hint)
_ANY_MARKER = _compile_alternatives(range(len(_MARKERS)))
_FIXED_MARKER = _compile_alternatives(n for n, marker in enumerate(_MARKERS) if not marker.hint)
"""The patterns with a fixed beginning, which fail much faster than the others."""
_ABORTED_TAG = "<error>Command was aborted before completion</error>"

_MISSING_RESULT = "[Tool result missing due to internal error]"
_SPILLED_OUTPUT = re.compile(r"\AError: result \([\d,]+ characters.*?\) exceeds maximum allowed", re.DOTALL)
_SPILLED_BY_TOKENS = re.compile(r"\A(?:Error: )?result \(.{1,60}\) exceeds maximum allowed tokens")

_STATES_BY_DENIER: dict[str, tuple[State, ErrorKind]] = {
    "user": ("denied", "user_denied"),
    "hook": ("blocked_by_hook", "hook_blocked"),
}
_STATES_BY_DENIAL: dict[str, tuple[State, ErrorKind]] = {
    "user-rejected": ("denied", "user_denied"),
    "permission-rule": ("denied", "rule_denied"),
    "automode-blocked": ("denied", "classifier_denied"),
    "automode-unavailable": ("denied", "classifier_denied"),
    "interrupted": ("interrupted", "interrupted"),
    "cancelled": ("cancelled", "cancelled"),
}


@lru_cache(maxsize=512)
def infer_state(facts: ResultFacts) -> StateInference:
    """Infer the state from the result alone. Cached, because refusal messages often repeat."""
    if facts.text.startswith(_MISSING_RESULT):
        return StateInference(
            state="never_answered",
            kind="internal",
            evidence=(Evidence("synthetic result", _MISSING_RESULT),),
            synthetic=True,
        )
    if facts.denial_kind is not None:
        return _infer_from_denial(facts, facts.denial_kind)
    if facts.is_error:
        return _infer_from_error(facts)
    return _infer_without_flag(facts)


def _infer_from_denial(facts: ResultFacts, denial: str) -> StateInference:
    """Infer the state from the recorded denial kind, with the text to identify the source more precisely."""
    rule = Evidence("denial kind", denial)
    text_inference = _infer_from_marker(facts.text)
    state, kind = _STATES_BY_DENIAL.get(denial.replace("_", "-"), ("denied", "rule_denied"))
    if state == "denied" and text_inference and text_inference.state in ("denied", "blocked_by_hook"):
        state, kind = text_inference.state, text_inference.kind or kind
    elif denial == "permission-rule":
        state, kind = _STATES_BY_DENIER.get((facts.denial_source or "").partition("_")[0], (state, kind))
    evidence = (rule, *text_inference.evidence) if text_inference else (rule,)
    if facts.denial_source:
        evidence = (*evidence, Evidence("refused by", facts.denial_source))
    return StateInference(
        state=state,
        kind=kind,
        evidence=evidence,
        ambiguous=_is_unattributed(denial, text_inference) and facts.denial_source is None,
        rejection=state == "denied" and text_inference is not None and text_inference.rejection,
    )


def _is_unattributed(denial: str, text_inference: StateInference | None) -> bool:
    """Return whether a denial may come from either a hook or a rule, because only the reason is recorded."""
    return denial == "permission-rule" and text_inference is None


def _infer_from_error(facts: ResultFacts) -> StateInference:
    flag = Evidence("is_error")
    text_inference = _infer_from_marker(facts.text) or _infer_timeout(facts)
    if text_inference:
        return text_inference
    if facts.interrupted:
        return StateInference(state="interrupted", kind="interrupted", evidence=(flag, Evidence("interrupted flag")))
    kind = _error_kind(facts)
    never_ran = kind == "unknown" and _has_no_exit_code(facts)
    if never_ran and len(facts.text.split()) > 1:  # a single word may be the rest of an error
        return StateInference(
            state="denied",
            kind="rule_denied",
            evidence=(flag, Evidence("a command without exit code", facts.text[:80])),
            ambiguous=True,
            never_ran=True,
        )
    return StateInference(state="failed", kind=kind, evidence=(flag,), never_ran=never_ran)


def _error_kind(facts: ResultFacts) -> ErrorKind:
    kind = kind_of(facts.tool, facts.text)
    if kind == "unknown" and (facts.exit_code or _is_old_shell(facts)):
        return "command_failed"
    return kind


def _is_old_shell(facts: ResultFacts) -> bool:
    """Return whether this client version omits the exit code from a failed command's text."""
    shell = tool_kind(facts.tool) == "shell" and not facts.wrapped
    return shell and () < facts.version < _EXIT_LINE_VERSION


_EXIT_LINE_VERSION = (2, 0, 53)
"""The first version in which the text of every failed command begins with its exit code."""


def _has_no_exit_code(facts: ResultFacts) -> bool:
    """Return whether a command without an exit code never ran, because its version always writes one."""
    bare = facts.version >= _EXIT_LINE_VERSION and not facts.wrapped
    return bare and facts.tool in ("Bash", "PowerShell")


def _infer_without_flag(facts: ResultFacts) -> StateInference:
    """Infer the state of a result without an error flag: a success, unless a client message contradicts it."""
    fine = Evidence("no error flag")
    if facts.interrupted:
        return StateInference(state="interrupted", kind="interrupted", evidence=(Evidence("interrupted flag"),))
    if facts.timed_out and not facts.background:
        return StateInference(state="timed_out", kind="command_timeout", evidence=(Evidence("timed out flag"),))
    if _SPILLED_OUTPUT.match(facts.text) or _SPILLED_BY_TOKENS.match(facts.text):
        return StateInference(state="succeeded", evidence=(fine, Evidence("output spilled")), truncated=True)
    if _has_error_text(facts):
        text_inference = _infer_from_marker(facts.text)
        return text_inference or StateInference(
            state="failed",
            kind=kind_of(facts.tool, facts.text),
            evidence=(Evidence("error text without flag", facts.text[:80]),),
        )
    if facts.text.startswith("[Request interrupted by user"):
        return StateInference(
            state="interrupted", kind="interrupted", evidence=(Evidence("interrupt text", facts.text[:80]),)
        )
    return StateInference(state="succeeded", evidence=(fine,))


def _has_error_text(facts: ResultFacts) -> bool:
    """Return whether tags or a prefix mark an error that an old client did not flag."""
    worded = facts.wrapped or facts.text.startswith("Error:")
    return worded and facts.is_error is None and not facts.structured


def _infer_from_marker(text: str) -> StateInference | None:
    """Infer the state from the beginning of a message that only the client writes."""
    anywhere = any(hint in text for hint in _HINTS)
    marker_match = (_ANY_MARKER if anywhere else _FIXED_MARKER).match(text)
    if marker_match and marker_match.lastgroup:
        marker = _MARKERS[int(marker_match.lastgroup[1:])]
        return StateInference(
            state=marker.state,
            kind=marker.kind,
            evidence=(Evidence(marker.rule, marker_match[0][:120]),),
            rejection=marker.rule == "user rejected",
        )
    if _ABORTED_TAG in text:
        return StateInference(state="interrupted", kind="interrupted", evidence=(Evidence("aborted by user"),))
    return None


def _infer_timeout(facts: ResultFacts) -> StateInference | None:
    """Infer a timeout if the tool can produce such a message."""
    timeout_text = find_timeout_text(facts.tool, facts.text)
    if timeout_text is None:
        return None
    shell = tool_kind(facts.tool) == "shell"
    return StateInference(
        state="timed_out",
        kind="command_timeout" if shell else "mcp_timeout",
        evidence=(Evidence("timeout text", timeout_text[:120]),),
    )


_VAGUE_KINDS: tuple[ErrorKind, ...] = ("unknown", "mcp_error")
"""Error kinds that do not identify the origin of the error."""


def refine_inference(inference: StateInference, context: InferenceContext) -> StateInference:
    """Refine an inference with the records around the result."""
    if context.hook_blocked is not None and inference.state in ("denied", "failed"):
        return _replace_state(inference, "blocked_by_hook", "hook_blocked", "blocking hook", context.hook_blocked)
    if inference.rejection and context.interrupt_follows:
        return _infer_interrupted_or_denied(inference, started=context.started)
    if _is_unexplained(inference) and context.was_hooked:
        return _replace_state(inference, "blocked_by_hook", "hook_blocked", "a hook spoke of the call", None)
    if inference.state == "failed" and context.denied_by_host:
        return _replace_state(inference, "denied", "not_granted", "listed as denied by the host", None)
    if inference.state == "failed" and inference.kind in _VAGUE_KINDS and context.is_refusal_text:
        return _replace_state(inference, "denied", "rule_denied", "same words as a refusal", None)
    return inference


def _is_unexplained(inference: StateInference) -> bool:
    """Return whether a call was denied or never ran, and the message does not come from the client."""
    return inference.never_ran or (inference.state == "denied" and inference.ambiguous)


def _infer_interrupted_or_denied(inference: StateInference, *, started: bool) -> StateInference:
    follows = Evidence("interrupt marker follows")
    if started:
        return StateInference(
            state="interrupted", kind="interrupted", evidence=(*inference.evidence, follows, Evidence("start evidence"))
        )
    return StateInference(
        state="denied", kind="user_denied", evidence=(*inference.evidence, follows), ambiguous=True, rejection=True
    )


def _replace_state(
    inference: StateInference, state: State, kind: ErrorKind, rule: str, text: str | None
) -> StateInference:
    return StateInference(
        state=state,
        kind=kind,
        evidence=(*inference.evidence, Evidence(rule, text)),
        ambiguous=inference.ambiguous and state == "denied",
    )
