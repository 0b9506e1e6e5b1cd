"""Files of the copy as they were when a call was asked for, as far as records tell.

In: what transcripts tell of files. Out: changed files in the copy, and notes of what was done. What
is not known whole stays as it is on disk now. Never follows a link out of the copy.
"""

from pathlib import Path

from toolspan.disk.text import decode
from toolspan.errors import NotFound
from toolspan.replay.ground import Ground
from toolspan.report.files.archive import FileArchive
from toolspan.report.files.content import Recovered
from toolspan.report.files.effect import Absent, Content

_KNOWN = ("exact", "derived", "doubtful")


class Before:
    """Puts files of one copy into the state of then."""

    def __init__(self, archive: FileArchive, ground: Ground) -> None:
        self._archive = archive
        self._ground = ground

    def begin(self, path: str) -> tuple[bool, str | None]:
        """The file as it was before the first call: is it known, and what was done, in words."""
        found = self._archive.life(path).at(0, "before")
        place = self._ground.place(path)
        if place is None or not self._ground.holds(place):
            return False, None
        if found.confidence not in _KNOWN or found.content is None:
            return False, None
        return True, self._put(path, place, found)

    def call(self, path: str, call: str) -> str | None:
        """The file as a call met it, if that is certain; what was done, in words."""
        try:
            found = self._archive.content(path, call, "before")
        except NotFound:
            return None
        place = self._ground.place(path)
        if found.confidence != "exact" or place is None or not self._ground.holds(place):
            return None
        return self._put(path, place, found)

    def _put(self, path: str, place: Path, found: Recovered) -> str | None:
        if found.content is None or same(read(place), found.content):
            return None
        doubt = ", which is doubtful" if found.confidence == "doubtful" else ""
        because = f"{found.reasons[0]}{doubt}" if found.reasons else found.confidence
        try:
            if isinstance(found.content, Absent):
                place.unlink()
                return f"{path}: taken away ({because})"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(found.content.encode("utf-8", "surrogatepass"))
        except OSError as error:
            return f"{path}: cannot be put as it was: {error.strerror}"
        return f"{path}: put as it was ({because})"


def read(place: Path) -> Content | None:
    """What a file holds, as text; None when it is no plain file."""
    try:
        if place.is_file():
            return decode(place.read_bytes()).plain
        return None if place.exists() else Absent()
    except OSError:
        return None


def same(one: Content | None, other: Content) -> bool:
    """Whether two contents are equal but for line ends."""
    if isinstance(one, str) and isinstance(other, str):
        return _plain(one) == _plain(other)
    return one == other


def _plain(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n")
