"""May this call run? The three answers, and what they rest on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

DecisionBasis = Literal[
    "rule", "parts", "mode", "hook", "outside", "protected", "critical", "unclear", "plan",
    "classifier",
]  # fmt: skip
"""What a decision rests on: a rule, rules for the parts of a command line, the mode, a hook; or
what had to be asked about: a place outside the session's folders, a protected file, a removal that
could cost everything, a command line that is not understood, a plan, a judge that is not there."""


class AccessedPath(Struct, frozen=True):
    """A file or folder that a command line reaches."""

    program: str | None
    """What reaches it; None: the shell itself, for a redirect."""
    path: str
    inside: bool
    """It is in one of the session's folders."""


class MissingPermissions(Struct, frozen=True, kw_only=True):
    """What a command line needs somebody's consent for."""

    parts: tuple[str, ...]
    """The commands in it that nobody has allowed."""
    of: int
    """How many commands there are."""
    reach: AccessedPath | None = None
    """The first place that stands in the way."""
    leaves: bool = False
    """It goes to a folder that is not the session's."""


class Allow(Struct, frozen=True, tag="allow"):
    """It may; with `input`, it runs with that instead of what was asked."""

    reason: str | None = None
    """Why, in words."""
    source: str = "config"
    """Who said so: `config`, `hook`, or a person: `user_temporary` for this once, `user_session`
    as long as the session lasts, `user_permanent` for good; …"""
    input: Mapping[str, object] | None = None
    """What it runs with instead; None: as asked."""
    rule: str | None = None
    """The rule that decided, as it was written."""
    origin: str | None = None
    """Where that rule comes from: `projectSettings`, `cliArg`, …"""
    basis: DecisionBasis | None = None
    """What it rests on."""


class Deny(Struct, frozen=True, tag="deny"):
    """It may not; the reason goes to the model, None takes the client's own words.

    The other fields are those of `Allow`.
    """

    reason: str | None = None
    source: str = "config"
    stop: bool = False
    """A person refused without a word: the rest of the batch is not wanted either."""
    rule: str | None = None
    origin: str | None = None
    basis: DecisionBasis | None = None


class Ask(Struct, frozen=True, tag="ask"):
    """Somebody has to be asked; without anybody there the answer is no.

    The other fields are those of `Allow`.
    """

    reason: str | None = None
    source: str = "config"
    rule: str | None = None
    origin: str | None = None
    basis: DecisionBasis | None = None
    needs: MissingPermissions | None = None
    """Of a command line: what is not allowed yet; its words are the client's own."""


Decision = Allow | Deny | Ask
