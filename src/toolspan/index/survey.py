"""What is known of files from before is not found out again.

In: paths, a cache, and a job to do on each file. Out: what the job gives for them, file by file the
same as without a cache. A file is known as long as its stamp (device, inode, size, times) and the
code are the same; one that changed a moment ago, or while it was read, is not remembered. The job
may depend on the file alone. Facts hold no bodies, but they do hold the beginnings of error texts,
and what calls were about. Read `recall` first.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache as remembered
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from toolspan.index.cache import Cache, Key, Row
from toolspan.read.spread import Advance, Job, given, packed
from toolspan.read.survey import FACTS, FileFacts
from toolspan.wire.paths import hooks_name

_SECOND = 1_000_000_000
_SETTLED = 2 * _SECOND
"""A file that changed less long ago may change again without its times showing it."""
_FORMAT = 1
_NO_CODE = frozenset({"__pycache__", "archive", "testing"})

Clock = Callable[[], int]
"""Nanoseconds since 1970."""


class Told(Protocol):
    """What a job gives for one file."""

    @property
    def problem(self) -> str | None:
        """Why the file could not be read; such an answer is not remembered."""
        ...


T = TypeVar("T", bound=Told)


def recall(
    paths: Sequence[Path],
    job: Job[T],
    cache: Cache,
    *,
    advance: Advance = lambda _: None,
    now: Clock = time.time_ns,
) -> Iterator[T]:
    """What the job gives for each path, in order; done only for files that are not known."""
    keys = [Key(os.path.abspath(path), str(path), job.name) for path in paths]  # noqa: PTH100
    stamps = [stamp(path) for path in paths]
    marked = [(key, mark) for key, mark in zip(keys, stamps, strict=True) if mark is not None]
    known = _decoded(cache.load(marked), job.gives)
    missing = [path for path, key in zip(paths, keys, strict=True) if key not in known]
    started = now()
    done = given(missing, job, advance=advance)
    rows: list[Row] = []
    for path, key, mark in zip(paths, keys, stamps, strict=True):
        told = known.get(key)
        if told is None:
            told, data = next(done)
            if mark and not told.problem and _settled(path, mark, started):
                data = data or packed(told)
                rows += [Row(key, mark, data)] if data else []
        yield told
    if rows:
        cache.store(rows, started // _SECOND)


def survey(
    paths: Sequence[Path],
    cache: Cache,
    *,
    advance: Advance = lambda _: None,
    now: Clock = time.time_ns,
) -> Iterator[FileFacts]:
    """What `read.survey` gives."""
    return recall(paths, FACTS, cache, advance=advance, now=now)


def _decoded(values: dict[Key, bytes], gives: type[T]) -> dict[Key, T]:
    found = {}
    decoder = msgspec.msgpack.Decoder(gives)
    for key, value in values.items():
        try:
            found[key] = decoder.decode(value)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    return found


def stamp(path: Path) -> str | None:
    """The state a file, what hooks noted of it and the code are in; None if it cannot be told."""
    name = str(path)
    try:
        os.path.abspath(name).encode()  # noqa: PTH100 - a name that is no text cannot be kept
        found = os.stat(name)  # noqa: PTH116 - quicker, and asked of every file
    except (OSError, ValueError):
        return None
    times = f"{_noted(name)} {found.st_mtime_ns} {found.st_ctime_ns}"
    return f"{code_digest()} {found.st_dev} {found.st_ino} {found.st_size} {times}"


def _noted(path: str) -> int:
    """How much hooks have noted of a session; that only grows."""
    try:
        return os.stat(hooks_name(path)).st_size  # noqa: PTH116 - as above
    except (OSError, ValueError):
        return 0


def _settled(path: Path, mark: str, started: int) -> bool:
    """It did not change while it was read, nor just before."""
    modified, changed = map(int, mark.split()[-2:])
    before = started - _SETTLED
    if changed > before or before < modified < started + _SETTLED:
        return False
    return stamp(path) == mark


@remembered
def code_digest() -> str:
    """What toolspan's own code looks like, so that a changed one finds out anew."""
    digest = hashlib.sha256(f"{_FORMAT}".encode())
    waiting = [str(Path(__file__).parent.parent)]
    while waiting:
        for item in sorted(os.scandir(waiting.pop()), key=lambda item: item.name):
            if item.is_dir(follow_symlinks=False):
                waiting += [item.path] if item.name not in _NO_CODE else []
            elif item.name.endswith(".py"):
                found = item.stat()
                text = f"{item.path} {found.st_size} {found.st_mtime_ns}\n"
                digest.update(text.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:16]
