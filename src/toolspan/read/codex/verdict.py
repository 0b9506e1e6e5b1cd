"""How a Codex call ended, judged from its output and from the event that tells of its end.

In: `Said`, the output taken apart, and `Ended`, the event. Out: a `Verdict`, in the same words as
for Claude's calls. The client writes no error flag: exit codes come first, then texts that only the
client writes; what stands under the client's header are the tool's own words, and never a marker.
Pure functions. Read `judge` first, then `weigh`.
"""

import re
from typing import NamedTuple

from msgspec import Struct

from toolspan.model.kind import ErrorKind, kind_of
from toolspan.model.span import Evidence
from toolspan.model.state import State
from toolspan.model.toolkind import tool_kind
from toolspan.read.verdict import Verdict
from toolspan.wire.codex_output import Said


class Ended(Struct, frozen=True, kw_only=True, gc=False):
    """What an event tells about the end of a call."""

    what: str
    """The event's name."""
    ok: bool | None = None
    declined: bool = False
    timed_out: bool = False
    exit_code: int | None = None
    duration_ms: float | None = None
    text: str | None = None
    """What went wrong, where the event says so."""


class _Marker(NamedTuple):
    rule: str
    regex: re.Pattern[str]
    state: State
    kind: ErrorKind | None
    """None: the words tell."""


def _markers(*rows: tuple[str, str, State, ErrorKind | None]) -> tuple[_Marker, ...]:
    return tuple(_Marker(rule, re.compile(regex), state, kind) for rule, regex, state, kind in rows)


_MARKERS = _markers(
    ("hook refused", r"(?:Command|Tool call) blocked by PreToolUse hook", "blocked_by_hook",
     "hook_blocked"),
    ("aborted by user", r"aborted by user\b", "interrupted", "interrupted"),
    ("user rejected", r"(?:exec command |patch )?rejected by user\b", "denied", "user_denied"),
    ("approval settings", r"(?:exec command|patch) rejected: [^\n]*rejected by user approval"
     r" settings", "denied", "user_denied"),
    ("patch refused", r"patch rejected\b", "failed", "patch_invalid"),
    ("approval policy", r"approval policy is \w+; reject command", "denied", "rule_denied"),
    ("command policy", r"exec_command failed: CreateProcess \{ message: \"Rejected\(\\?\"`(?s:.*)"
     r"` rejected: ", "denied", "rule_denied"),
    ("arguments refused", r"failed to parse (?:function )?arguments", "failed", "invalid_input"),
    ("no such tool", r"unsupported (?:custom tool )?call: ", "failed", "unknown_tool"),
    ("timeout text", r"tool call error: (?s:.){0,400}?timed out awaiting", "timed_out",
     "mcp_timeout"),
    ("connection lost", r"tool call error: (?s:.){0,400}?Transport closed", "failed",
     "mcp_no_response"),
    ("error text", r"(?:tool call error|err): ", "failed", None),
    ("error text", r"(?:execution error|failed in sandbox|sandbox denied"
     r"|Command denied by sandbox)\b", "failed", None),
    ("error text", r"(?:exec_command|write_stdin|apply_patch(?: verification)?|shell|spawn_agent"
     r"|wait_agent|wait|send_input|close_agent|resume_agent) failed\b", "failed", None),
    ("error text", r"unable to (?:locate|process|read) image|image path `", "failed", None),
    ("not offered", r"[\w.]+ is (?:unavailable|not available) in \w+ mode", "failed", None),
    ("error text", r"(?:Invalid patch|Failed to find (?:expected lines|context)"
     r"|No files were modified)", "failed", None),
)  # fmt: skip

_TIMEOUT = re.compile(
    r"(?:Total output lines: \d+\n\s*)?command timed out(?: after \d+ milliseconds|\b)"
)
_SANDBOX_TIMEOUT = re.compile(r"\Afailed in sandbox\b[^\n]*(?:\n[^\n]*)?command timed out")
_WITHHELD = "PostToolUse hook blocked the tool result"
SUCCEEDED = Verdict(state="succeeded", evidence=(Evidence("exit code", "0"),))
RETURNED = Verdict(state="succeeded", evidence=(Evidence("output present"),))
_RUNS_ON = Verdict(state="succeeded", evidence=(Evidence("still running"),))
_WITHHELD_RESULT = Verdict(state="succeeded", evidence=(Evidence("result withheld by hook"),))
_MADE_UP = Verdict(
    state="never_answered", evidence=(Evidence("synthetic result", "aborted"),), synthetic=True
)


def judge(tool: str, said: Said) -> Verdict:
    """What the output alone says."""
    if said.text == "aborted" and not said.headed:
        return _MADE_UP
    timed_out = _timed_out(said)
    if timed_out is not None:
        return timed_out
    if said.exit_code is not None:
        return SUCCEEDED if said.exit_code == 0 else _failed_command(said)
    if said.running is not None:
        return _RUNS_ON
    if said.script == "failed" or said.flag is False:
        rule = "script failed" if said.script else "success flag"
        return Verdict(state="failed", kind=kind_of(tool, said.text), evidence=(Evidence(rule),))
    return RETURNED if said.headed else _worded(tool, said.text)


def _timed_out(said: Said) -> Verdict | None:
    if said.exit_code == 0:
        return None
    found = _TIMEOUT.match(said.text) or _SANDBOX_TIMEOUT.match(said.text)
    if found is None:
        return None
    return Verdict(
        state="timed_out",
        kind="command_timeout",
        evidence=(Evidence("timeout text", found[0][:120]),),
    )


def _failed_command(said: Said) -> Verdict:
    """A command that ended with an error is a failed command, whatever it complains about."""
    kind = kind_of("shell", f"Exit code {said.exit_code}\n{said.text}")
    return Verdict(
        state="failed", kind=kind, evidence=(Evidence("exit code", str(said.exit_code)),)
    )


def _worded(tool: str, text: str) -> Verdict:
    """Texts that the client writes in place of an output."""
    if text.startswith(_WITHHELD):
        return _WITHHELD_RESULT
    for marker in _MARKERS:
        found = marker.regex.match(text)
        if found:
            return Verdict(
                state=marker.state,
                kind=marker.kind or kind_of(tool, text),
                evidence=(Evidence(marker.rule, found[0][:120]),),
            )
    if text.startswith("error: ") and tool_kind(tool) in ("shell", "edit"):
        return Verdict(  # a patch that did not fit, from the days when shells applied them
            state="failed",
            kind=kind_of("apply_patch", text),
            evidence=(Evidence("error text", text[:120]),),
        )
    return RETURNED


def weigh(tool: str, verdict: Verdict, ended: Ended, text: str) -> Verdict:
    """The verdict in the light of an event, which knows more than the output's words."""
    told = Evidence(ended.what, ended.text[:120] if ended.text else None)
    if ended.declined and verdict.state in ("succeeded", "failed"):
        return Verdict(state="denied", kind="user_denied", evidence=(told, *verdict.evidence))
    if ended.ok is True and verdict.state == "failed":
        return Verdict(state="succeeded", evidence=(told,))
    if ended.ok is False and verdict.state == "succeeded":
        return _failed(tool, verdict, ended, text or ended.text or "")
    return verdict


def _failed(tool: str, verdict: Verdict, ended: Ended, words: str) -> Verdict:
    """An event says it failed, which the output did not; the words tell how."""
    told = Evidence(ended.what, ended.text[:120] if ended.text else None)
    marked = _worded(tool, words)
    if marked.state != "succeeded":
        return Verdict(state=marked.state, kind=marked.kind, evidence=(told, *marked.evidence))
    kind = kind_of(tool, words)
    if ended.exit_code and tool_kind(tool) == "shell":
        kind = kind_of(tool, f"Exit code {ended.exit_code}\n{words}")
    return Verdict(state="failed", kind=kind, evidence=(told, *verdict.evidence))


def unanswered(ended: Ended | None, aborted: str | None) -> Verdict:
    """How a call ended that has no output."""
    nothing = Evidence("no output")
    if ended is not None and ended.declined:
        return Verdict(
            state="denied", kind="user_denied", evidence=(nothing, Evidence(ended.what, "declined"))
        )
    if ended is not None and ended.timed_out:
        return Verdict(
            state="timed_out", kind="permission_timeout", evidence=(nothing, Evidence(ended.what))
        )
    if aborted is None:
        return Verdict(state="never_answered", evidence=(nothing,))
    state: State = "cancelled" if aborted == "replaced" else "interrupted"
    kind: ErrorKind = "cancelled" if aborted == "replaced" else "interrupted"
    return Verdict(state=state, kind=kind, evidence=(nothing, Evidence("turn aborted", aborted)))
