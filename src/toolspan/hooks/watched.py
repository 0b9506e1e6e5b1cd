"""Files that handlers want to hear of when they change.

In: names that matchers hold, and paths that handlers name. Out: what became of them since the last
look; a look costs one question to the disk for each. Nothing is watched between two looks.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

Change = Literal["add", "change", "unlink"]
_Sign = tuple[int, int, int] | None
"""When a file was changed, how long it is, which it is; None: it is not there."""


class Watched:
    """The files of a session that are looked at."""

    def __init__(self, names: Iterable[str], folder: Path) -> None:
        self._own = frozenset(folder / name for name in names)
        self._signs: dict[Path, _Sign] = {path: _sign(path) for path in self._own}

    def follow(self, paths: Iterable[str]) -> None:
        """Look at these, too, in place of those that were named before."""
        wanted = self._own | {Path(path) for path in paths if Path(path).is_absolute()}
        self._signs = {
            path: self._signs[path] if path in self._signs else _sign(path) for path in wanted
        }

    def changes(self) -> list[tuple[Path, Change]]:
        """What is not as it was at the last look."""
        found: list[tuple[Path, Change]] = []
        for path, before in sorted(self._signs.items()):
            now = _sign(path)
            if now == before:
                continue
            self._signs[path] = now
            found.append((path, "unlink" if now is None else "change" if before else "add"))
        return found


def _sign(path: Path) -> _Sign:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
