"""One job per file, on all cores.

In: paths, and a function of one path that is defined at the top of a module. Out: what it gives, in
the order of the paths. What travels between processes is values, never objects with files behind.
Read `spread` first.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar, cast

import msgspec

from toolspan.read.pool import shared

T = TypeVar("T")

_ALONE = 12 << 20
"""Below so many bytes a pool costs more than it gives."""

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
    found = _alone(paths, job) if sum(sizes) < _ALONE else _pooled(paths, sizes, job)
    for one, size in zip(found, sizes, strict=True):
        yield one
        advance(size)


def packed(value: object) -> bytes | None:
    """A value as MessagePack; None when it cannot be."""
    try:
        return msgspec.msgpack.encode(value)
    except UNPACKABLE:
        return None


def _alone(paths: Sequence[Path], job: Job[T]) -> Iterator[Given[T]]:
    return (Given(job.function(str(path)), None) for path in paths)


def _pooled(paths: Sequence[Path], sizes: Sequence[int], job: Job[T]) -> Iterator[Given[T]]:
    unpack = msgspec.msgpack.Decoder(job.gives).decode

    def work(n: int) -> object:
        value = job.function(str(paths[n]))
        return value if (data := packed(value)) is None else data

    for told in shared(sizes, work):
        if isinstance(told, bytes):
            yield Given(unpack(told), told)
        else:
            yield Given(cast("T", told), None)


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - quicker, and asked of every file
    except OSError:
        return 0
