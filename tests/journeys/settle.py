"""Normalise terminal output, so that a page is the same for every run.

Paths, days, times, counts and random ids of a run are replaced with those of the page. Ids that a
journey chose itself stay; a random one becomes the next of `IDS`.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from tests.journeys.screen import COLUMNS
from tests.journeys.world import World

IDS = ("5c1f0a7e-3d52-4b88-9e06-a4f2d7c81b39", "f7a9d316-08be-4d27-8c41-6e5b20c3d9a8")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CLOCK = re.compile(r"\b\d\d:\d\d:\d\d\b")
_SPAN = r"\d[\d.]* (?:ms|s)\b"
_COUNT = re.compile(r"\b\d[\d,]*(?= (?:tokens|tools)\b)")


class Settled:
    """Makes texts of one run stable."""

    def __init__(self, place: World, known: Collection[str] = ()) -> None:
        self._place = place
        self._ids = {name: name for name in known}
        self._new = iter(IDS)

    def __call__(self, text: str) -> str:
        """A text as the page has it."""
        text = _UUID.sub(self._id, self._place.settled(text))
        for name, shown in self._ids.items():
            text = re.sub(rf"\b{name[:8]}\b", shown[:8], text)
        return "\n".join(map(_timeless, text.split("\n")))

    def _id(self, found: re.Match[str]) -> str:
        if found[0] not in self._ids:
            self._ids[found[0]] = next(self._new)
        return self._ids[found[0]]


def _timeless(line: str) -> str:
    if line.startswith("tokens "):
        return re.sub(r"\d[\d,]*", "…", line)
    if _CLOCK.match(line) and "❯" not in line:  # present only if a new second began
        line = _CLOCK.sub(" " * 8, line, count=1)
    line = _COUNT.sub("…", _CLOCK.sub("10:00:00", line))
    edge = re.search(rf" *{_SPAN}((?:  \w{{8}})?)$", line)  # a duration, and the id of a call
    if len(line) == COLUMNS and edge is not None:
        return f"{line[: edge.start()]}{'…' + edge[1]:>{COLUMNS - edge.start()}}"
    return re.sub(_SPAN, "…", line)
