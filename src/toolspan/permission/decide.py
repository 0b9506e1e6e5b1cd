"""From the opinions of policies to one decision.

A policy is a function from a question (call, input, folder) to a decision or None, "no opinion".
Deny wins over ask, ask over allow; when nobody has an opinion the fallback decides.
"""

import inspect
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from toolspan.model.decision import Allow, Ask, Decision, Deny
from toolspan.model.span import Call
from toolspan.permission.ground import Ground, Links


@dataclass(frozen=True, slots=True)
class Question:
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
    own: Path | None = None
    """The session's own folder, with outputs too large for the conversation."""
    links: Links = field(default_factory=Links, compare=False, repr=False)
    """Where paths lead to: all who judge the call, and then the call itself, go by one answer."""

    @property
    def tool(self) -> str:
        """The tool's own name."""
        return self.known_as or self.call.tool

    def ground(self) -> Ground:
        """Where it may go."""
        cwd = _text(self.cwd)
        project = cwd if self.project is self.cwd else _text(self.project)
        return Ground(
            cwd,
            (project, *map(_text, self.folders)) if self.folders else (project,),
            _home,
            None if self.own is None else str(self.own),
            self.links,
        )


def _home() -> str:
    return os.environ.get("HOME") or str(Path.home())


def _text(folder: Path) -> str:
    text = str(folder)
    return text if "/.." not in text else os.path.normpath(text)


Policy = Callable[[Question], Decision | Awaitable[Decision | None] | None]
"""An opinion on a call. One that raises counts as a refusal: consent fails closed."""

Approver = Callable[[Question, Ask], Allow | Deny | Awaitable[Allow | Deny]]
"""Who answers when somebody has to be asked: a person, or a program in their place. A `ToolError`
says that the question could not be asked: the call fails with it."""

_RANK: dict[type, int] = {Allow: 1, Ask: 2, Deny: 3}


async def decide(policies: Iterable[Policy], question: Question) -> Decision | None:
    """The strongest opinion; None when nobody has one."""
    found: Decision | None = None
    for policy in policies:
        opinion = await _opinion(policy, question)
        if opinion is not None and (found is None or _RANK[type(opinion)] > _RANK[type(found)]):
            found = opinion
        if isinstance(found, Deny):
            break
    return found


async def _opinion(policy: Policy, question: Question) -> Decision | None:
    try:
        opinion = policy(question)
        if inspect.isawaitable(opinion):
            opinion = await opinion
        if not isinstance(opinion, Allow | Ask | Deny | None):
            raise TypeError(f"a policy gives a decision or None, not {type(opinion).__name__}")
    except Exception as error:  # noqa: BLE001 - user code decides on consent: a fault means no
        name = getattr(policy, "__qualname__", type(policy).__qualname__)
        return Deny(f"The policy {name} failed: {type(error).__name__}: {error}", "policy")
    return opinion
