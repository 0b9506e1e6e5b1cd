"""Where recorded paths lie in the copy, and the other way round.

In: paths and texts as a transcript has them, of any quality and any system. Out: paths in the copy,
None for what lies outside the folder that was copied; texts in which the copy bears the recorded
name. Looks at no disk, except for `holds`.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from toolspan.report.files.place import whole, within


@dataclass(frozen=True, slots=True)
class Ground:
    """A recorded folder and its copy."""

    recorded: str
    """As the transcript spells it."""
    copy: Path
    """Without links in it."""

    def place(self, name: str) -> Path | None:
        """Where a recorded path lies in the copy; None outside, and for what is no path."""
        path = whole(name, self.recorded)
        if "\0" in path or not within(path, self.recorded):
            return None
        rest = path[len(self.recorded.rstrip("/\\")) :].lstrip("/\\")
        return self.copy / (rest.replace("\\", "/") if ":" in self.recorded[:2] else rest)

    def recorded_path(self, name: str) -> str:
        """A recorded path in full, as the archive of files knows it."""
        return whole(name, self.recorded)

    def into_copy(self, text: str) -> str:
        """A command with the recorded folder's name replaced by the copy's."""
        name = self.recorded.rstrip("/")
        if not name:  # the root is the beginning of every path
            return text
        return self._boundary(name).sub(lambda _: str(self.copy), text)

    def as_recorded(self, text: str) -> str:
        """A text with the copy's name replaced by the recorded folder's."""
        return text.replace(str(self.copy), self.recorded.rstrip("/\\"))

    def holds(self, path: str | Path) -> bool:
        """Whether a path leads into the copy, links followed."""
        try:
            real = os.path.realpath(path)
        except (OSError, ValueError):
            return False
        return within(real, str(self.copy))

    @staticmethod
    def _boundary(folder: str) -> re.Pattern[str]:
        return re.compile(rf"(?<![\w.~/-]){re.escape(folder)}(?![\w.-])")
