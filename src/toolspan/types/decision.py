"""Permission decisions: allow, deny or ask, each with its basis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

DecisionBasis = Literal[
    "rule", "parts", "mode", "hook", "outside", "protected", "critical", "not_understood", "plan",
    "classifier", "sandbox",
]  # fmt: skip
"""The basis of a decision: a rule, rules for the parts of a command line, the mode, a hook, or the sandbox in which a
command runs. For a question, the reason for asking: a path outside the session's folders, a protected file, a
destructive removal, a command line that was not understood, a plan, or a missing classifier.
"""


class AccessedPath(Struct, frozen=True):
    """A file or folder that a command line accesses."""

    program: str | None
    """The program that accesses it; None for a redirect by the shell itself."""
    path: str
    inside: bool
    """True if the path is in one of the session's folders."""


class RequestedFile(Struct, frozen=True, omit_defaults=True):
    """A file that a call names."""

    path: str
    """The absolute path, with links resolved."""
    link: str | None = None
    """The path as the call names it, if it leads to the file through a link."""
    is_outside: bool = False
    """True if the file is outside the folders of the session."""
    is_new: bool = False
    """True if a call that writes would create the file."""

    @property
    def notes(self) -> list[str]:
        """Facts about the file that the user must know."""
        notes = ["outside the project"] if self.is_outside else []
        notes += ["new file"] if self.is_new else []
        return notes if self.link is None else [*notes, f"through the link {self.link}"]


class MissingPermissions(Struct, frozen=True, kw_only=True):
    """The parts of a command line that need approval."""

    parts: tuple[str, ...]
    """The commands that no rule allows."""
    of: int
    """The total number of commands in the line, of which `parts` need approval."""
    reach: AccessedPath | None = None
    """The first path that is not allowed."""
    leaves: bool = False
    """True if the line changes to a folder outside the session's folders."""
    not_understood: str | None = None
    """The first part of the line that is not understood, such as "A variable"."""


class Allow(Struct, frozen=True, tag="allow"):
    """A decision that the call may run; `input`, if set, replaces its input."""

    reason: str | None = None
    source: str = "config"
    """`config`, `hook`, or a user's answer: `user_temporary` (once), `user_session`, `user_permanent`, …"""
    input: Mapping[str, object] | None = None
    rule: str | None = None
    """The rule that decided, as written."""
    origin: str | None = None
    """The source of the rule: `projectSettings`, `cliArg`, …"""
    basis: DecisionBasis | None = None


class Deny(Struct, frozen=True, tag="deny"):
    """A decision that the call may not run.

    The model reads the reason; None selects the client's standard message. The other fields are
    those of `Allow`.
    """

    reason: str | None = None
    source: str = "config"
    stop: bool = False
    """True if the user refused without a reason, which cancels the rest of the batch."""
    rule: str | None = None
    origin: str | None = None
    basis: DecisionBasis | None = None


class Ask(Struct, frozen=True, tag="ask"):
    """A decision to ask the approver; without an approver the call is denied.

    The other fields are those of `Allow`.
    """

    reason: str | None = None
    source: str = "config"
    rule: str | None = None
    origin: str | None = None
    basis: DecisionBasis | None = None
    needs: MissingPermissions | None = None
    """The parts of a command line that are not allowed yet."""


Decision = Allow | Deny | Ask
