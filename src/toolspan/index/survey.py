"""The facts of many files, those that are known from before not read again.

In: paths and a cache. Out: what `read.survey` gives for them, file by file the same. A file is
known as long as its stamp (device, inode, size, times) and the code that reads are the same; one
that changed a moment ago, or while it was read, is not remembered. Facts hold no bodies, but they
do hold the beginnings of error texts, and what calls were about.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache as remembered
from pathlib import Path

import msgspec

from toolspan.index.cache import Cache, Key, Row
from toolspan.read.survey import FileFacts, Wanted
from toolspan.read.survey import survey as survey_files

_SECOND = 1_000_000_000
_SETTLED = 2 * _SECOND
"""A file that changed less long ago may change again without its times showing it."""
_FORMAT = 1
_CODE = ("read", "wire", "model", "profile")
"""The packages that what is kept depends on."""

Clock = Callable[[], int]
"""Nanoseconds since 1970."""


def survey(
    paths: Sequence[Path],
    cache: Cache,
    *,
    wanted: Wanted = "all",
    advance: Callable[[int], None] = lambda _: None,
    now: Clock = time.time_ns,
) -> Iterator[FileFacts]:
    """The facts of files, in their order; `advance` is told the bytes done."""
    form = f"{wanted} {code_digest()}"
    keys = [Key(os.path.abspath(path), str(path), form) for path in paths]  # noqa: PTH100
    stamps = [stamp(path) for path in paths]
    marked = [(key, mark) for key, mark in zip(keys, stamps, strict=True) if mark is not None]
    known = _decoded(cache.load(marked))
    missing = [path for path, key in zip(paths, keys, strict=True) if key not in known]
    started = now()
    read = survey_files(missing, wanted=wanted, advance=advance)
    rows: list[Row] = []
    for path, key, mark in zip(paths, keys, stamps, strict=True):
        facts = known.get(key)
        if facts is None:
            facts = next(read)
            if mark is not None and facts.problem is None and _settled(path, mark, started):
                rows.append(Row(key, mark, msgspec.msgpack.encode(facts)))
        yield facts
    if rows:
        cache.store(rows, started // _SECOND)


def _decoded(values: dict[Key, bytes]) -> dict[Key, FileFacts]:
    found = {}
    decoder = msgspec.msgpack.Decoder(FileFacts)
    for key, value in values.items():
        try:
            found[key] = decoder.decode(value)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    return found


def stamp(path: Path) -> str | None:
    """The state a file is in; None when it cannot be told."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    times = f"{found.st_mtime_ns} {found.st_ctime_ns}"
    return f"{found.st_dev} {found.st_ino} {found.st_size} {times}"


def _settled(path: Path, mark: str, started: int) -> bool:
    """It did not change while it was read, nor just before."""
    modified, changed = map(int, mark.split()[-2:])
    before = started - _SETTLED
    if changed > before or before < modified < started + _SETTLED:
        return False
    return stamp(path) == mark


@remembered
def code_digest() -> str:
    """What the code that reads looks like, so that a changed reader reads anew."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256(f"{_FORMAT}".encode())
    for package in _CODE:
        for item in sorted(os.scandir(root / package), key=lambda item: item.name):
            if item.name.endswith(".py"):
                found = item.stat()
                text = f"{package}/{item.name} {found.st_size} {found.st_mtime_ns}\n"
                digest.update(text.encode())
    return digest.hexdigest()[:16]
