"""Normalise terminal output, so that a page is the same for every run.

Paths, days, times, counts and random ids of a run are replaced with those of the page. Ids that a
journey chose itself stay; a random one becomes the next of `IDS`.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from tests.journeys.home import Home
from tests.journeys.screen import COLUMNS

IDS = ("5c1f0a7e-3d52-4b88-9e06-a4f2d7c81b39", "f7a9d316-08be-4d27-8c41-6e5b20c3d9a8")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CLOCK = re.compile(r"\b\d\d:\d\d:\d\d\b")
_SPAN = r"\d[\d.]* (?:ms|s)\b"
_COUNT = re.compile(r"\b\d[\d,]*(?= (?:tokens|tools)\b)")


class Normalizer:
    """Replaces what differs between runs."""

    def __init__(self, home: Home, fixed_ids: Collection[str] = ()) -> None:
        self._home = home
        self._ids = {name: name for name in fixed_ids}
        self._new = iter(IDS)

    def __call__(self, text: str) -> str:
        """Return a text as the page shows it."""
        text = _UUID.sub(self._id, self._home.normalize(text))
        for name, fixed in self._ids.items():
            text = re.sub(rf"\b{name[:8]}\b", fixed[:8], text)
        return "\n".join(map(_without_times, text.split("\n")))

    def _id(self, match: re.Match[str]) -> str:
        if match[0] not in self._ids:
            self._ids[match[0]] = next(self._new)
        return self._ids[match[0]]


def _without_times(line: str) -> str:
    if line.startswith("tokens "):
        return re.sub(r"\d[\d,]*", "…", line)
    if _CLOCK.match(line) and "❯" not in line:  # present only if a new second began
        line = _CLOCK.sub(" " * 8, line, count=1)
    line = _COUNT.sub("…", _CLOCK.sub("10:00:00", line))
    edge = re.search(rf" *{_SPAN}((?:  \w{{8}})?)$", line)  # a duration, and the id of a call
    if len(line) == COLUMNS and edge is not None:
        return f"{line[: edge.start()]}{'…' + edge[1]:>{COLUMNS - edge.start()}}"
    return re.sub(_SPAN, "…", line)
