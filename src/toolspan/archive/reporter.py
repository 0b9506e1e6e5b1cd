"""Where warnings and progress go while an archive reads files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

Advance = Callable[[int], None]
"""A function that advances a progress bar by a number of bytes."""


@contextmanager
def _no_progress(_total: int, _label: str) -> Iterator[Advance]:
    yield lambda _: None


def _no_warning(_message: object) -> None:
    pass


class Reporter(NamedTuple):
    """The receiver of warnings and of progress. By default, both are dropped."""

    warn: Callable[[object], None] = _no_warning
    """Called with a sentence about a file that was skipped or a filter that matches nothing."""
    progress: Callable[[int, str], AbstractContextManager[Advance]] = _no_progress
    """Called with a number of bytes and a label. It returns a context in which a function advances the progress."""


SILENT = Reporter()
