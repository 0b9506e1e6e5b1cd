"""The types of policies and approvers, and `decide`, which combines the decisions of several policies.

A policy is a function that takes a `PermissionRequest` and returns a decision, or None if it has no opinion. The
policies themselves are `Rules.__call__` and `mode_policy`; `authorize_call` applies them to a call.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from toolspan.runtime.permissions.paths import LinkResolver, OwnRepository, PathScope
from toolspan.types.decision import Allow, Ask, Decision, Deny
from toolspan.types.span import Call
from toolspan.types.tool_kinds import ToolKind, tool_kind

if TYPE_CHECKING:
    from toolspan.runtime.tool import Tool


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """A call that needs a permission decision."""

    call: Call
    input: Mapping[str, object]
    cwd: Path
    project: Path
    """The folder in which the session started."""
    read_only: bool = False
    """True if the tool declares that this call changes nothing."""
    mode: str | None = None
    """The permission mode set for the session by a tool, if any."""
    known_as: str | None = None
    """The name of the tool, if the model called it by an alias."""
    folders: tuple[Path, ...] = ()
    """Folders besides the project in which the session may work."""
    searched_folder: str | None = None
    """The folder at the start of an absolute search pattern."""
    session_folder: Path | None = None
    """The session's own folder, which contains output too large for the conversation."""
    leaves_sandbox: bool = False
    """True if the session has a sandbox and the command would run outside it."""
    search_path: str | None = None
    """The `PATH` of commands; None for that of this process."""
    repository: OwnRepository | None = None
    """The repository that existed when the session started; None to accept the present one."""
    links: LinkResolver = field(default_factory=LinkResolver, compare=False, repr=False)
    """The resolved links, shared by all policies and by the call itself."""
    definition: Tool | None = field(default=None, compare=False, repr=False)
    """The tool that would run; None for a call of another client."""
    _scope: PathScope | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def tool(self) -> str:
        """The name of the tool, even if the model used an alias."""
        return self.known_as or self.call.tool

    @property
    def kind(self) -> ToolKind:
        """The kind of the tool, as the tool declares it."""
        return tool_kind(self.tool) if self.definition is None else self.definition.kind

    @property
    def command(self) -> str | None:
        """The command line in a call to a shell tool; None for other tools."""
        command = self.input.get("command")
        return command if isinstance(command, str) and self.kind == "shell" else None

    @property
    def skill_field(self) -> str | None:
        """The input field with the name of a skill, if the tool declares one."""
        subject = None if self.definition is None else self.definition.subject
        return subject.field if subject is not None and subject.kind == "skill" else None

    def path_scope(self) -> PathScope:
        """Return the folders that the call may access."""
        if self._scope is None:
            cwd = _normalize_path(self.cwd)
            project = cwd if self.project is self.cwd else _normalize_path(self.project)
            scope = PathScope(
                cwd,
                (project, *map(_normalize_path, self.folders)) if self.folders else (project,),
                _home_folder,
                None if self.session_folder is None else str(self.session_folder),
                self.links,
                os.environ.get("PATH", "") if self.search_path is None else self.search_path,
                self.repository,
            )
            object.__setattr__(self, "_scope", scope)
            return scope
        return self._scope


def _home_folder() -> str:
    return os.environ.get("HOME") or str(Path.home())


def _normalize_path(folder: Path) -> str:
    text = str(folder)
    return text if "/.." not in text else os.path.normpath(text)


Policy = Callable[[PermissionRequest], Decision | Awaitable[Decision | None] | None]
"""A function that returns its decision on a call, or None if it has no opinion. If it raises, the call is denied."""

Approver = Callable[[PermissionRequest, Ask], Allow | Deny | Awaitable[Allow | Deny]]
"""A function that asks the user and returns the answer. If that is not possible, it raises `ToolError`, and the call
fails with its message.
"""

_DECISION_RANK: dict[type, int] = {type(None): 0, Allow: 1, Ask: 2, Deny: 3}


async def decide(policies: Iterable[Policy], request: PermissionRequest) -> Decision | None:
    """Return the strongest decision of several policies, or None if no policy has an opinion.

    Deny takes precedence over ask, and ask over allow. A policy that raises denies. This function only combines
    opinions: `Rules.__call__` and `mode_policy` form them, and `authorize_call` adds hooks and the approver.
    """
    strongest: Decision | None = None
    for policy in policies:
        opinion = await _ask_policy(policy, request)
        if opinion is not None and _DECISION_RANK[type(opinion)] > _DECISION_RANK[type(strongest)]:
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
    except Exception as error:  # noqa: BLE001 - user code may raise anything; the call is then denied
        name = getattr(policy, "__qualname__", type(policy).__qualname__)
        return Deny(f"The policy {name} failed: {type(error).__name__}: {error}", "policy")
    return opinion
