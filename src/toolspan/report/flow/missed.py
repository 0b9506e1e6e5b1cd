"""Calls that were asked for one by one and could have been asked for together.

In: spans in the order the model asked. Out: `Missed` runs: calls that only read or search, that
succeeded, one message after the other in the same turn, where nothing shows that a later one needed
an earlier one's result: none of its words stand in it. Careful on purpose: what might be a
dependency counts as one. Reads results again, of candidates only. Read `missed` first.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.model.span import Span
from toolspan.report.flow.agents import by_agent
from toolspan.report.flow.sequences import canonical, looks
from toolspan.report.flow.target import names_in
from toolspan.report.time.phases import stamp

_LONGEST = 12
"""Messages in one run: more are not compared with each other."""
_MOST_CALLS = 20
"""Calls in one message: more are not compared either."""
_WORDS = re.compile(r"\w{3,}")
"""Shorter words tell nothing."""
_MOST_TEXT = 1 << 20


class Missed(Struct, frozen=True, kw_only=True):
    """Messages with calls that did not need each other."""

    calls: tuple[str, ...]
    tools: tuple[str, ...]
    targets: tuple[str | None, ...]
    messages: int
    """How many messages it took; one would have done."""
    took_ms: int
    """From the first request to the last result."""
    saved_ms: int
    """At most: what it took less its longest call. The model would still have had to write all."""
    requested: str | None


def missed(spans: Iterable[Span]) -> list[Missed]:
    """The runs of calls that could have been one batch, agent by agent."""
    return [found for thread in by_agent(spans) for found in _in_thread(thread)]


def _in_thread(thread: Sequence[Span]) -> Iterator[Missed]:
    run = _Run()
    for _, group in groupby(thread, key=lambda span: span.call.message_id or span.id):
        message = list(group)
        if run.messages and not run.takes(message):
            yield from _told(run.messages)
            run = _Run()
        if _eligible(message):
            run.messages.append(message)
    yield from _told(run.messages)


def _eligible(message: Sequence[Span]) -> bool:
    """Its calls are few, look and change nothing, and their times are known."""
    return len(message) <= _MOST_CALLS and all(
        looks(span) and span.state == "succeeded" and span.duration is not None and span.call.target
        for span in message
    )


class _Run:
    """Messages that did not need each other so far, and the results that were looked at."""

    def __init__(self) -> None:
        self.messages: list[list[Span]] = []
        self._texts: dict[str, str | None] = {}

    def takes(self, message: Sequence[Span]) -> bool:
        """Whether a message goes on with the run without needing it."""
        if len(self.messages) >= _LONGEST or not _eligible(message):
            return False
        first, last = self.messages[0][0], self.messages[-1][-1]
        turn = message[0].call.prompt_id
        if turn is None or turn != first.call.prompt_id:
            return False  # a person may have spoken between
        if _early(last, message[0]):
            return False
        earlier = [span for group in self.messages for span in group]
        return not any(self._needs(later, before) for later in message for before in earlier)

    def _needs(self, later: Span, before: Span) -> bool:
        """Whether a call may come from an earlier one: its target, or words of it in the result."""
        target, known = later.call.target or "", before.call.target or ""
        if target in known or known in target or names_in(target) & names_in(known):
            return True
        if before.id not in self._texts:
            self._texts[before.id] = _text(before)
        text = self._texts[before.id]
        return text is None or any(word in text for word in _telling(target, known))


def _early(last: Span, following: Span) -> bool:
    """Times that make no sense: asked for before the one before had its result."""
    answered, asked = stamp(last.finished), stamp(following.requested)
    return answered is None or asked is None or asked < answered


def _telling(target: str, known: str) -> set[str]:
    """The words of a target's last part that an earlier call's target did not have."""
    name = target.replace("\\", "/").rpartition("/")[2] or target
    words = {word.lower() for word in _WORDS.findall(name.partition(".")[0] or name)}
    return words - {word.lower() for word in _WORDS.findall(known)} or {name.lower()}


def _text(span: Span) -> str | None:
    """What a call gave back; None when that cannot be told."""
    try:
        text = span.result.text if span.result else ""
    except SourceError:
        return None
    return text.lower() if len(text) <= _MOST_TEXT else None


def _told(run: Sequence[Sequence[Span]]) -> Iterator[Missed]:
    if len(run) < 2:
        return
    spans = [span for message in run for span in message]
    start, end = stamp(spans[0].requested), stamp(spans[-1].finished)
    took = [span.duration for span in spans if span.duration is not None]
    if start is None or end is None or end <= start:
        return
    longest = round(max(took).total_seconds() * 1000)
    yield Missed(
        calls=tuple(span.id for span in spans),
        tools=tuple(canonical(span.tool) for span in spans),
        targets=tuple(span.call.target for span in spans),
        messages=len(run),
        took_ms=end - start,
        saved_ms=max(end - start - longest, 0),
        requested=spans[0].call.requested_at,
    )
