"""The handlers that skills bring along, when they are launched.

In: the head of a skill's file, and who makes handlers of it. Out: handlers, given to the session
once for each file, where they stay until it ends.
"""

from collections.abc import Callable
from pathlib import Path

from toolspan.hooks.points import Firing

MakeSkillHooks = Callable[[str, Path], Firing | None]
"""Makes handlers of a file's head: its lines, and where it lies.

Raises:
    ToolspanError: there are some, and they cannot be used.
"""


class Skills:
    """What the skills of a session have brought along."""

    def __init__(self, take: Callable[[Firing], None]) -> None:
        self.make: MakeSkillHooks | None = None
        """None: skills bring nothing along here."""
        self._take = take
        self._known: set[Path] = set()

    def launch(self, head: str, path: Path) -> None:
        """Take the handlers of a skill on.

        Raises:
            ToolspanError: they cannot be used.
        """
        if self.make is None or path in self._known:
            return
        hooks = self.make(head, path)
        self._known.add(path)
        if hooks is not None:
            self._take(hooks)
