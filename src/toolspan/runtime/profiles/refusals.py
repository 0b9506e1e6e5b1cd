"""What is said when a call is not run, or not to its end: what differs between client versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

_REJECTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was"
    " a file edit, the new_string was NOT written to the file)."
)
_STOP = " STOP what you are doing and wait for the user to tell you how to proceed."


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """The texts of one client version; `{name}` and the like are filled in."""

    unknown_tool: str = "Error: No such tool available: {name}"
    disabled_tool: str = ""
    """Added for a tool that exists and is not on offer."""
    other_case: str = ""
    """Added when only the letters' case is wrong."""
    issues_head: str = "InputValidationError: {name} failed due to the following {noun}:"
    rejected: str = _REJECTED + _STOP
    rejected_with_message: str = _REJECTED + " To tell you how to proceed, the user said:\n{words}"
    rejected_record: str = "User rejected tool use"
    cancelled: str = "The user doesn't want to take this action right now." + _STOP
    interrupted: str = _REJECTED + _STOP
    """For a call that was running."""
    interrupted_keeps_output: bool = False
    """The text of an interrupted command is its exit code and what it had printed."""
    interrupt_note: str = "[Request interrupted by user for tool use]"
    denied: str = "Permission to use {name} has been denied."
    not_granted: str = "Claude requested permissions to use {name}, but you haven't granted it yet."
    not_granted_write: str = "Claude requested permissions to write to {path}, but you haven't granted it yet."
    not_granted_read: str = "Claude requested permissions to read from {path}, but you haven't granted it yet."
    denied_file: str = "File is in a directory that is denied by your permission settings."
    star_rules: bool = True
    """Rules for commands may hold stars in other places than `:*` at the end."""
    asks_about: frozenset[str] = frozenset()
    """Programs that read and are asked about all the same."""
    free_redirects: bool = False
    """Output may go to files in the session's folders without a question."""
    reach: str = "{what} in '{path}' was blocked."
    """A command line names a file outside the session's folders, or changes one inside."""
    reach_inside: str | None = "{what} in '{path}' was blocked."
    """The same for one inside; None: the commands are named instead."""
    redirect: str = "Output redirection to '{path}' was blocked."
    redirect_inside: str = "Output redirection to '{path}' was blocked."
    leaving_names_parts: bool = False
    """Of a line that leaves the session's folders, the commands are named, not the folder."""
    plan_shell: str = ""
    """For a command in plan mode that changes something; empty: as any that is not granted."""
    plan_mode: str = ""
    """For a write in plan mode; empty: as any other that is not granted."""
    dont_ask: str = "Permission to use {name} has been denied because Claude Code is running in don't ask mode."
    hook_denied: str = "PreToolUse:{name} hook error: {reason}"
    hook_denied_silently: str = "PreToolUse:{name} hook error: Blocked by hook"
    no_output: str = "({name} completed with no output)"
    records_decision: bool = False
    """The result's record tells who allowed or refused the call."""


_V2_0_65 = Refusals(
    star_rules=False,
    asks_about=frozenset({"cat"}),
    free_redirects=True,
    reach_inside=None,
    dont_ask="Permission to use {name} has been auto-denied in dontAsk mode.",
    hook_denied="{reason}",
    hook_denied_silently="Hook PreToolUse:{name} denied this tool",
    no_output="",
    interrupted="[Request interrupted by user for tool use]",
    interrupted_keeps_output=True,
)
_V2_1_80 = replace(
    _V2_0_65,
    star_rules=True,
    asks_about=frozenset(),
    free_redirects=False,
    reach_inside=Refusals().reach_inside,
    dont_ask=Refusals().dont_ask,
    no_output="({name} completed with no output)",
)
_V2_1_197 = replace(
    _V2_1_80,
    plan_mode="Cannot write to {path} while in plan mode.",
    disabled_tool=". {name} exists but is not enabled in this context.",
    interrupted=_REJECTED + _STOP,
    interrupted_keeps_output=False,
    cancelled=_REJECTED + _STOP,
)
_V2_1_325 = replace(
    _V2_1_197,
    other_case=". Tool names are case-sensitive: call {other} instead.",
    reach_inside="{what} in '{path}' needs approval.",
    redirect_inside="Output redirection to '{path}' needs approval.",
    leaving_names_parts=True,
    plan_shell="Auto mode is unavailable",
    hook_denied="PreToolUse:{name} hook error: {reason}",
    hook_denied_silently="PreToolUse:{name} hook error: Blocked by hook",
    records_decision=True,
)

REFUSALS: Mapping[str, Refusals] = {
    "seed": replace(_V2_0_65, asks_about=frozenset(), unknown_tool="No such tool available"),
    "2.0.65": _V2_0_65,
    "2.1.80": _V2_1_80,
    "2.1.197": _V2_1_197,
    "2.1.325": _V2_1_325,
}
