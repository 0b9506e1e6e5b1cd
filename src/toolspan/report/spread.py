"""One job per file, on all cores.

In: paths, and a function of one path that is defined at the top of a module. Out: what it gives, in
the order of the paths. What travels between processes is values, never objects with files behind.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from toolspan.read.pool import processes
from toolspan.read.survey import UNPACKABLE

T = TypeVar("T")

_ALONE = 12 << 20
"""Below so many bytes a pool costs more than it gives."""
_BATCHES = 8
"""Batches per worker, so that none waits long for another."""


class Job(Generic[T]):
    """A function of one path, and the type of what it gives."""

    def __init__(self, function: Callable[[str], T], gives: type[T]) -> None:
        self.function = function
        self.gives = gives


def spread(
    paths: Sequence[Path], job: Job[T], *, advance: Callable[[int], None] = lambda _: None
) -> Iterator[T]:
    """What the job gives for each path, in order; `advance` is told the bytes done."""
    sizes = [_size(path) for path in paths]
    workers = min(os.cpu_count() or 1, len(paths))
    if workers < 2 or sum(sizes) < _ALONE:
        for path, size in zip(paths, sizes, strict=True):
            yield job.function(str(path))
            advance(size)
        return
    decode = msgspec.msgpack.Decoder(list[job.gives]).decode  # type: ignore[name-defined]
    with processes(workers) as pool:
        batches = list(_batched(sizes, workers * _BATCHES))
        waiting = [
            pool.submit(_done, job.function, [str(paths[n]) for n in batch]) for batch in batches
        ]
        for answer, batch in zip(waiting, batches, strict=True):
            given = answer.result()
            told: list[T] = decode(given) if isinstance(given, bytes) else given
            for found, n in zip(told, batch, strict=True):
                yield found
                advance(sizes[n])


def _done(function: Callable[[str], T], paths: list[str]) -> bytes | list[T]:
    found = [function(path) for path in paths]
    try:
        return msgspec.msgpack.encode(found)
    except UNPACKABLE:
        return found


def _batched(sizes: Sequence[int], count: int) -> Iterator[range]:
    """Neighbouring files in about equal shares of bytes."""
    share = sum(sizes) / count
    start, held = 0, 0
    for n, size in enumerate(sizes):
        held += size
        if held >= share or n == len(sizes) - 1:
            yield range(start, n + 1)
            start, held = n + 1, 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
