"""Bash: what differs between client versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

_STARTED_TEXT = "Command running in background with ID: {id}. Output is being written to: {path}"
_READ_FILE_HINT = ". Read that file for what it has printed so far."


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellValues:
    """Texts and policies of the shell tool of one client version."""

    merges_streams: bool = True
    """stdout and stderr in one stream, as they were printed."""
    closes_stdin: bool = False
    """Commands are given ` < /dev/null`; seen when the shell quotes a line it cannot parse."""
    overflow: Literal["file", "lines"] = "file"
    """An output over the limit is kept in a file, or cut with the number of lost lines."""
    exit_line: bool = False
    """A success ends with a line that tells the exit code."""
    expects_output: bool = True
    """The record says whether the command was expected to print something."""
    notice_on_new_line: bool = True
    """A notice in the recorded stderr begins with a line end."""
    killed_at_timeout: frozenset[str] = frozenset()
    """A command is ended, not moved to the background, when it begins with one of these."""
    tenths: bool = False
    """Durations have a digit behind the point."""
    started_text: str = _STARTED_TEXT
    """For a command in the background."""
    moved_text: str = ""
    """For one that was moved there by its timeout, when the words are others."""
    moved_keeps_output: bool = False
    """What it had printed by then goes back, too, and the timeout is recorded."""
    records_auto_move: bool = False
    """The record of a moved command says that nobody moved it for the model's sake."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What commands find in their environment."""
    exports_session_id: bool = False
    """They find the session's id there, too."""


_V2_0_65 = ShellValues(
    merges_streams=False,
    closes_stdin=True,
    overflow="lines",
    expects_output=False,
    notice_on_new_line=False,
    tenths=True,
    environment={"CLAUDECODE": "1", "CLAUDE_CODE_ENTRYPOINT": "sdk-cli", "GIT_EDITOR": "true"},
)
_V2_1_80 = replace(
    _V2_0_65,
    merges_streams=True,
    overflow="file",
    expects_output=True,
    notice_on_new_line=True,
    tenths=False,
    records_auto_move=True,
)
_V2_1_197 = replace(
    _V2_1_80,
    closes_stdin=False,
    killed_at_timeout=frozenset({"sleep"}),
    started_text=_STARTED_TEXT + _READ_FILE_HINT,
    records_auto_move=False,
    environment={**_V2_1_80.environment, "CLAUDE_CODE_CHILD_SESSION": "1", "AI_AGENT": "claude-code_2-1-197_agent"},
    exports_session_id=True,
)
_V2_1_325 = replace(
    _V2_1_197,
    moved_text=(
        "Command did not complete within its {seconds}s timeout and was moved to the background"
        " (ID: {id}). Output is being written to: {path}" + _READ_FILE_HINT
    ),
    moved_keeps_output=True,
    environment={**_V2_1_197.environment, "AI_AGENT": "claude-code_2-1-325_agent"},
)

SHELLS: Mapping[str, ShellValues] = {
    "seed": replace(_V2_0_65, exit_line=True),
    "2.0.65": _V2_0_65,
    "2.1.80": _V2_1_80,
    "2.1.197": _V2_1_197,
    "2.1.325": _V2_1_325,
}
