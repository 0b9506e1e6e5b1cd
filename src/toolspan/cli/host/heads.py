"""Hooks that skills bring along.

In: the head of a skill's file. Out: handlers for the session that launches it. Those of a project
that is not trusted are left out, which is told.
"""

from dataclasses import dataclass
from pathlib import Path

from toolspan.cli.host.settings import HostSettings, MakeHeadHooks
from toolspan.cli.output import complain
from toolspan.hooks.points import Firing
from toolspan.settings.head import hooks_in


@dataclass(frozen=True, slots=True)
class SkillHooks:
    """Makes handlers of the hooks of skills."""

    settings: HostSettings
    make: MakeHeadHooks

    def __call__(self, head: str, path: Path) -> Firing | None:
        """The handlers in a head, if there are any that count.

        Raises:
            ToolspanError: they cannot be used.
        """
        block = hooks_in(head)
        if block is None:
            return None
        if self.settings.counts(path):
            return self.make("skill", block, path)
        complain(f"{path}: the folder is not trusted; its hooks are left out")
        return None
