"""What is searched: texts of calls and messages, and where they stand.

The nouns that `scan.py` and `rollout.py` share.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from msgspec import Raw

from toolspan.model.message import Voice
from toolspan.model.span import Span
from toolspan.report.search.words import Sieve
from toolspan.wire import document

Side = Literal["input", "result", "message"]
SIDES: tuple[Side, ...] = ("input", "result", "message")


class Where(NamedTuple):
    """What a line tells about all that stands in it."""

    at: str | None
    session: str | None
    agent: str | None
    cwd: str | None
    offset: int
    length: int


class Text(NamedTuple):
    """A text of a call or a message."""

    side: Side
    text: str
    where: Where
    call: str | None = None
    voice: Voice | None = None
    span: Span | None = None


class Look(NamedTuple):
    """What is looked at."""

    sides: frozenset[Side]
    sieves: Sequence[Sieve]

    def may_hold(self, body: Raw) -> bool:
        """Whether a part of a line may hold a word: most parts of most lines hold none."""
        data = bytes(body)
        return any(sieve.finder(data, len(data))(0) >= 0 for sieve in self.sieves)


def strings(body: bytes | Raw) -> Iterator[str]:
    """Every string in a JSON document, keys left out."""
    data = bytes(body)
    try:
        waiting = [document.decode(data)] if data else []
    except ValueError:
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting.extend(reversed(value.values()))
        elif isinstance(value, list):
            waiting.extend(reversed(value))
