"""How a call ended, judged from its result alone and then from what stands around it.

In: the facts of one result (`Answer`), later the circumstances (`Around`). Out: a `Verdict` with
state, error kind and the evidence for them. Pure functions; the texts are those the clients write.
Read `judge` first, then `reconsider`.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from toolspan.model.kind import ErrorKind, kind_of, timeout_words
from toolspan.model.span import Evidence
from toolspan.model.state import State
from toolspan.model.toolkind import tool_kind


class Answer(Struct, frozen=True, kw_only=True, gc=False):
    """What one result says."""

    tool: str
    text: str
    """What the model read, tags removed; may be cut after the first few thousand characters."""
    is_error: bool | None
    exit_code: int | None = None
    wrapped: bool = False
    """The text came in error tags."""
    denial: str | None = None
    """The denial kind the client recorded."""
    denier: str | None = None
    """Who refused, as the client recorded it: `config`, `hook`, `user_reject`, …"""
    structured: bool = False
    """The structured companion is an object or a list, as successes have it."""
    version: tuple[int, ...] = ()
    """The client's version; empty when it is not known."""
    interrupted: bool = False
    timed_out: bool = False
    background: bool = False


class Verdict(Struct, frozen=True, kw_only=True, gc=False):
    """A state with its reasons."""

    state: State
    kind: ErrorKind | None = None
    evidence: tuple[Evidence, ...] = ()
    ambiguous: bool = False
    synthetic: bool = False
    truncated: bool = False
    unran: bool = False
    """A command without the exit code that every run of it would have left."""
    rejection: bool = False
    """The text is the user-rejection text, which an interrupt writes too."""


class Around(Struct, frozen=True, kw_only=True, gc=False):
    """What stands around a result."""

    interrupt_follows: bool = False
    started: bool = False
    """Progress or hooks show that the call began."""
    hook_blocked: str | None = None
    """A blocking PreToolUse hook named this call, and what it said."""
    hooked: bool = False
    """A PreToolUse hook had something to say about this call."""
    denied_by_host: bool = False
    """The final record of the run lists the call as denied."""
    refusal_words: bool = False
    """The same words refused a command that never ran."""


class _Marker(NamedTuple):
    """A beginning that only the client writes, and what it means."""

    rule: str
    regex: str
    state: State
    kind: ErrorKind
    hint: str = ""
    """Words that every such text has, where it does not begin with words of its own."""


def _markers(
    *rows: tuple[str, str, State, ErrorKind] | tuple[str, str, State, ErrorKind, str],
) -> tuple[_Marker, ...]:
    return tuple(_Marker(*row) for row in rows)


_REJECTION = "The user doesn't want to proceed with this tool use"

_MARKERS = _markers(
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
    ("user rejected", _REJECTION, "denied", "user_denied"),
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
    ("not granted", r"Claude requested permissions to (?s:.{0,1000})haven't granted it yet",
     "denied", "not_granted"),
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


def _one_of(numbers: Iterable[int]) -> re.Pattern[str]:
    """Several in one: the first that fits names its group."""
    return re.compile("|".join(f"(?P<m{n}>{_MARKERS[n].regex})" for n in numbers))


_HINTS = tuple(marker.hint for marker in _MARKERS if marker.hint)
_ANY_MARKER = _one_of(range(len(_MARKERS)))
_FIXED_MARKER = _one_of(n for n, marker in enumerate(_MARKERS) if not marker.hint)
"""Those that begin with words of their own: it is much quicker to see that none of them fits."""
_ABORTED = "<error>Command was aborted before completion</error>"

_MISSING = "[Tool result missing due to internal error]"
_SPILLED = re.compile(
    r"\AError: result \([\d,]+ characters.*?\) exceeds maximum allowed", re.DOTALL
)
_TOKENS_SPILLED = re.compile(r"\A(?:Error: )?result \(.{1,60}\) exceeds maximum allowed tokens")

_DENIERS: dict[str, tuple[State, ErrorKind]] = {
    "user": ("denied", "user_denied"),
    "hook": ("blocked_by_hook", "hook_blocked"),
}
_DENIALS: dict[str, tuple[State, ErrorKind]] = {
    "user-rejected": ("denied", "user_denied"),
    "permission-rule": ("denied", "rule_denied"),
    "automode-blocked": ("denied", "classifier_denied"),
    "automode-unavailable": ("denied", "classifier_denied"),
    "interrupted": ("interrupted", "interrupted"),
    "cancelled": ("cancelled", "cancelled"),
}


@lru_cache(maxsize=512)
def judge(answer: Answer) -> Verdict:
    """What the result alone says; the same refusal is often repeated word for word."""
    if answer.text.startswith(_MISSING):
        return Verdict(
            state="never_answered",
            kind="internal",
            evidence=(Evidence("synthetic result", _MISSING),),
            synthetic=True,
        )
    if answer.denial is not None:
        return _judge_denial(answer, answer.denial)
    if answer.is_error:
        return _judge_error(answer)
    return _judge_unflagged(answer)


def _judge_denial(answer: Answer, denial: str) -> Verdict:
    """The client recorded how it was refused; the text may say more exactly by whom."""
    rule = Evidence("denial kind", denial)
    said = _marked(answer.text)
    state, kind = _DENIALS.get(denial.replace("_", "-"), ("denied", "rule_denied"))
    if state == "denied" and said and said.state in ("denied", "blocked_by_hook"):
        state, kind = said.state, said.kind or kind
    elif denial == "permission-rule":
        state, kind = _DENIERS.get((answer.denier or "").partition("_")[0], (state, kind))
    evidence = (rule, *said.evidence) if said else (rule,)
    if answer.denier:
        evidence = (*evidence, Evidence("refused by", answer.denier))
    return Verdict(
        state=state,
        kind=kind,
        evidence=evidence,
        ambiguous=_unnamed(denial, said) and answer.denier is None,
        rejection=state == "denied" and said is not None and said.rejection,
    )


def _unnamed(denial: str, said: Verdict | None) -> bool:
    """A plain hook refusal leaves only its reason: no telling it from a rule's."""
    return denial == "permission-rule" and said is None


def _judge_error(answer: Answer) -> Verdict:
    flag = Evidence("is_error")
    marked = _marked(answer.text) or _timed_out(answer)
    if marked:
        return marked
    if answer.interrupted:
        return Verdict(
            state="interrupted", kind="interrupted", evidence=(flag, Evidence("interrupted flag"))
        )
    kind = _kind(answer)
    unran = kind == "unknown" and _never_ran(answer)
    if unran and len(answer.text.split()) > 1:  # one word may be what is left of an error
        return Verdict(
            state="denied",
            kind="rule_denied",
            evidence=(flag, Evidence("a command without exit code", answer.text[:80])),
            ambiguous=True,
            unran=True,
        )
    return Verdict(state="failed", kind=kind, evidence=(flag,), unran=unran)


def _kind(answer: Answer) -> ErrorKind:
    kind = kind_of(answer.tool, answer.text)
    if kind == "unknown" and (answer.exit_code or _is_old_shell(answer)):
        return "command_failed"
    if kind == "unknown" and (2, 0) <= answer.version < (2, 1):
        # search.missing-path: 2.0 does not add the note by which later texts are known
        return "not_found" if answer.text.startswith("Path does not exist") else kind
    return kind


def _is_old_shell(answer: Answer) -> bool:
    """Clients before the exit code line gave a failed command's bare output."""
    shell = tool_kind(answer.tool) == "shell" and not answer.wrapped
    return shell and () < answer.version < _EXIT_LINE


_EXIT_LINE = (2, 0, 53)
"""From here on the text of every failed command begins with its exit code."""


def _never_ran(answer: Answer) -> bool:
    """A refusal whose only trace is its reason: the command has no exit code, so it never ran."""
    bare = answer.version >= _EXIT_LINE and not answer.wrapped
    return bare and tool_kind(answer.tool) == "shell"


def _judge_unflagged(answer: Answer) -> Verdict:
    """No error flag: believe it, unless the client's own words say otherwise."""
    fine = Evidence("no error flag")
    if answer.interrupted:
        return Verdict(
            state="interrupted", kind="interrupted", evidence=(Evidence("interrupted flag"),)
        )
    if answer.timed_out and not answer.background:
        return Verdict(
            state="timed_out", kind="command_timeout", evidence=(Evidence("timed out flag"),)
        )
    if _SPILLED.match(answer.text) or _TOKENS_SPILLED.match(answer.text):
        return Verdict(
            state="succeeded", evidence=(fine, Evidence("output spilled")), truncated=True
        )
    if _says_error(answer):
        marked = _marked(answer.text)
        return marked or Verdict(
            state="failed",
            kind=kind_of(answer.tool, answer.text),
            evidence=(Evidence("error text without flag", answer.text[:80]),),
        )
    if answer.text.startswith("[Request interrupted by user"):
        return Verdict(
            state="interrupted",
            kind="interrupted",
            evidence=(Evidence("interrupt text", answer.text[:80]),),
        )
    return Verdict(state="succeeded", evidence=(fine,))


def _says_error(answer: Answer) -> bool:
    """Old clients left the flag out; the tags, or the prefix, then speak for it."""
    worded = answer.wrapped or answer.text.startswith("Error:")
    return worded and answer.is_error is None and not answer.structured


def _marked(text: str) -> Verdict | None:
    """What a beginning that only the client writes says."""
    anywhere = any(hint in text for hint in _HINTS)
    found = (_ANY_MARKER if anywhere else _FIXED_MARKER).match(text)
    if found and found.lastgroup:
        marker = _MARKERS[int(found.lastgroup[1:])]
        return Verdict(
            state=marker.state,
            kind=marker.kind,
            evidence=(Evidence(marker.rule, found[0][:120]),),
            rejection=marker.rule == "user rejected",
        )
    if _ABORTED in text:
        return Verdict(
            state="interrupted", kind="interrupted", evidence=(Evidence("aborted by user"),)
        )
    return None


def _timed_out(answer: Answer) -> Verdict | None:
    """Timeouts, each only where its tool can have one."""
    found = timeout_words(answer.tool, answer.text)
    if found is None:
        return None
    shell = tool_kind(answer.tool) == "shell"
    return Verdict(
        state="timed_out",
        kind="command_timeout" if shell else "mcp_timeout",
        evidence=(Evidence("timeout text", found[:120]),),
    )


_VAGUE: tuple[ErrorKind, ...] = ("unknown", "mcp_error")
"""Kinds of texts that could be anybody's."""


def reconsider(verdict: Verdict, around: Around) -> Verdict:
    """The same verdict in the light of what stands around the result."""
    if around.hook_blocked is not None and verdict.state in ("denied", "failed"):
        return _with(
            verdict, "blocked_by_hook", "hook_blocked", "blocking hook", around.hook_blocked
        )
    if verdict.rejection and around.interrupt_follows:
        return _interrupted_or_denied(verdict, started=around.started)
    if _unexplained(verdict) and around.hooked:
        return _with(verdict, "blocked_by_hook", "hook_blocked", "a hook spoke of the call", None)
    if verdict.state == "failed" and around.denied_by_host:
        return _with(verdict, "denied", "not_granted", "listed as denied by the host", None)
    if verdict.state == "failed" and verdict.kind in _VAGUE and around.refusal_words:
        return _with(verdict, "denied", "rule_denied", "same words as a refusal", None)
    return verdict


def _unexplained(verdict: Verdict) -> bool:
    """Refused, or failed, in words that no client writes by itself."""
    return verdict.unran or (verdict.state == "denied" and verdict.ambiguous)


def _interrupted_or_denied(verdict: Verdict, *, started: bool) -> Verdict:
    follows = Evidence("interrupt marker follows")
    if started:
        return Verdict(
            state="interrupted",
            kind="interrupted",
            evidence=(*verdict.evidence, follows, Evidence("start evidence")),
        )
    return Verdict(
        state="denied",
        kind="user_denied",
        evidence=(*verdict.evidence, follows),
        ambiguous=True,
        rejection=True,
    )


def _with(verdict: Verdict, state: State, kind: ErrorKind, rule: str, text: str | None) -> Verdict:
    return Verdict(
        state=state,
        kind=kind,
        evidence=(*verdict.evidence, Evidence(rule, text)),
        ambiguous=verdict.ambiguous and state == "denied",
    )
