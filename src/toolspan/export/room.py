"""How much of long texts a page has room for.

In: texts, one by one. Out: the same, the longest cut until all fit together: short texts are never
cut for the sake of long ones. Memory stays within twice the room. Read `Room.take` first.
"""

from bisect import bisect_left
from itertools import accumulate

from msgspec import Struct


class Cut(Struct, frozen=True):
    """A text, or its beginning."""

    text: str
    chars: int
    """How long the whole was."""

    def shown(self) -> str:
        """The text with a note of what is missing."""
        missing = self.chars - len(self.text)
        return f"{self.text}\n… {missing:,} more characters" if missing > 0 else self.text


class Room:
    """Texts that share a page."""

    def __init__(self, total: int, longest: int) -> None:
        self._total = total
        self._longest = longest
        self._held: list[Cut] = []
        self._sum = 0

    def take(self, text: str, chars: int) -> int:
        """Keep a text, or the beginning of one that has so many characters; gives its number."""
        kept = Cut(text[: self._longest], chars if chars > self._longest else len(text))
        self._held.append(kept)
        self._sum += len(kept.text)
        if self._sum > 2 * self._total:
            self._tighten()
        return len(self._held) - 1

    def texts(self) -> list[str]:
        """All texts, cut so that they fit."""
        self._tighten()
        return [one.shown() for one in self._held]

    def _tighten(self) -> None:
        if self._sum <= self._total:
            return
        self._longest = _fitting([len(one.text) for one in self._held], self._total)
        self._held = [
            one if len(one.text) <= self._longest else Cut(one.text[: self._longest], one.chars)
            for one in self._held
        ]
        self._sum = sum(len(one.text) for one in self._held)


def _fitting(lengths: list[int], total: int) -> int:
    """The largest length to which texts can be cut so that together they are not over the total."""
    ordered = sorted(lengths)
    sums = [0, *accumulate(ordered)]

    def over(length: int) -> bool:
        shorter = bisect_left(ordered, length)
        return sums[shorter] + (len(ordered) - shorter) * length > total

    low, high = 0, ordered[-1] if ordered else 0
    while low < high:
        middle = (low + high + 1) // 2
        if over(middle):
            high = middle - 1
        else:
            low = middle
    return low
