"""One job per file, on all cores.

In: paths, and a function of one path that is defined at the top of a module. Out: what it gives, in
the order of the paths. What travels between processes is values, never objects with files behind.
Read `spread` first.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import msgspec

from toolspan.read.pool import processes

T = TypeVar("T")

_ALONE = 12 << 20
"""Below so many bytes a pool costs more than it gives."""
_BATCHES = 8
"""Batches per worker, so that none waits long for another."""

Advance = Callable[[int], None]
"""Is told how many bytes were done."""
UNPACKABLE = (UnicodeEncodeError, OverflowError)
"""Half a surrogate pair, a file's name that is no text, a giant number: such values travel as they
are, which takes longer."""


class Job(Generic[T]):
    """A function of one path, and the type of what it gives."""

    def __init__(self, function: Callable[[str], T], gives: type[T]) -> None:
        self.function = function
        self.gives = gives

    @property
    def name(self) -> str:
        """By which its answers are told apart from those of other jobs."""
        return f"{self.function.__module__}.{self.function.__qualname__}"


class Given(NamedTuple, Generic[T]):
    """What a job gave for one file."""

    value: T
    packed: bytes | None
    """The same as it came from another process; None when it did not, or could not be packed."""


def spread(paths: Sequence[Path], job: Job[T], *, advance: Advance = lambda _: None) -> Iterator[T]:
    """What the job gives for each path, in order; `advance` is told the bytes done."""
    return (one.value for one in given(paths, job, advance=advance))


def given(
    paths: Sequence[Path], job: Job[T], *, advance: Advance = lambda _: None
) -> Iterator[Given[T]]:
    """The same for those who keep what is given, as it came."""
    sizes = [_size(path) for path in paths]
    if not _few(sizes):
        yield from _pooled(paths, sizes, job, advance)
        return
    for path, size in zip(paths, sizes, strict=True):
        yield Given(job.function(str(path)), None)
        advance(size)


def packed(value: object) -> bytes | None:
    """A value as MessagePack; None when it cannot be."""
    try:
        return msgspec.msgpack.encode(value)
    except UNPACKABLE:
        return None


def _few(sizes: Sequence[int]) -> bool:
    return (os.cpu_count() or 1) < 2 or len(sizes) < 2 or sum(sizes) < _ALONE


def _pooled(
    paths: Sequence[Path], sizes: Sequence[int], job: Job[T], advance: Advance
) -> Iterator[Given[T]]:
    unpack = msgspec.msgpack.Decoder(job.gives).decode
    workers = min(os.cpu_count() or 1, len(paths))
    with processes(workers) as pool:
        batches = list(_batched(sizes, workers * _BATCHES))
        waiting = [
            pool.submit(_done, job.function, [str(paths[n]) for n in batch]) for batch in batches
        ]
        for answer, batch in zip(waiting, batches, strict=True):
            for told, n in zip(answer.result(), batch, strict=True):
                yield Given(unpack(told), told) if isinstance(told, bytes) else Given(told, None)
                advance(sizes[n])


def _done(function: Callable[[str], T], paths: list[str]) -> list[bytes | T]:
    found = map(function, paths)
    return [value if (data := packed(value)) is None else data for value in found]


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
        return os.stat(path).st_size  # noqa: PTH116 - quicker, and asked of every file
    except OSError:
        return 0
