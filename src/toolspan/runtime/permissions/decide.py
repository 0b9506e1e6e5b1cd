"""From the opinions of policies to one decision.

A policy is a function from a question (call, input, folder) to a decision or None, "no opinion".
Deny wins over ask, ask over allow; when nobody has an opinion the fallback decides.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from toolspan.runtime.permissions.paths import LinkResolver, PathScope
from toolspan.types.decision import Allow, Ask, Decision, Deny
from toolspan.types.span import Call


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """A call that wants to run."""

    call: Call
    input: Mapping[str, object]
    cwd: Path
    """Where it would run."""
    project: Path
    """Where the session began."""
    read_only: bool = False
    """The tool says that this call changes nothing."""
    mode: str | None = None
    """The permission mode a tool has put the session in, if one has."""
    known_as: str | None = None
    """The tool's own name, when the model used another one for it."""
    folders: tuple[Path, ...] = ()
    """Folders beside the project in which the session works."""
    session_folder: Path | None = None
    """The session's own folder, with outputs too large for the conversation."""
    links: LinkResolver = field(default_factory=LinkResolver, compare=False, repr=False)
    """Where paths lead to: all who judge the call, and then the call itself, go by one answer."""

    @property
    def tool(self) -> str:
        """The tool's own name."""
        return self.known_as or self.call.tool

    def path_scope(self) -> PathScope:
        """Where it may go."""
        cwd = _normalize_path(self.cwd)
        project = cwd if self.project is self.cwd else _normalize_path(self.project)
        return PathScope(
            cwd,
            (project, *map(_normalize_path, self.folders)) if self.folders else (project,),
            _home_folder,
            None if self.session_folder is None else str(self.session_folder),
            self.links,
        )


def _home_folder() -> str:
    return os.environ.get("HOME") or str(Path.home())


def _normalize_path(folder: Path) -> str:
    text = str(folder)
    return text if "/.." not in text else os.path.normpath(text)


Policy = Callable[[PermissionRequest], Decision | Awaitable[Decision | None] | None]
"""An opinion on a call. One that raises counts as a refusal: consent fails closed."""

Approver = Callable[[PermissionRequest, Ask], Allow | Deny | Awaitable[Allow | Deny]]
"""Who answers when somebody has to be asked: a person, or a program in their place. A `ToolError`
says that the question could not be asked: the call fails with it."""

_DECISION_RANK: dict[type, int] = {Allow: 1, Ask: 2, Deny: 3}


async def decide(policies: Iterable[Policy], request: PermissionRequest) -> Decision | None:
    """The strongest opinion; None when nobody has one."""
    strongest: Decision | None = None
    for policy in policies:
        opinion = await _ask_policy(policy, request)
        if opinion is not None and (
            strongest is None or _DECISION_RANK[type(opinion)] > _DECISION_RANK[type(strongest)]
        ):
            strongest = opinion
        if isinstance(strongest, Deny):
            break
    return strongest


async def _ask_policy(policy: Policy, request: PermissionRequest) -> Decision | None:
    try:
        opinion = policy(request)
        if inspect.isawaitable(opinion):
            opinion = await opinion
        if not isinstance(opinion, Allow | Ask | Deny | None):
            raise TypeError(f"a policy gives a decision or None, not {type(opinion).__name__}")
    except Exception as error:  # noqa: BLE001 - user code decides on consent: a fault means no
        name = getattr(policy, "__qualname__", type(policy).__qualname__)
        return Deny(f"The policy {name} failed: {type(error).__name__}: {error}", "policy")
    return opinion
