"""A session as it went: turns, words, calls side by side, subagents under the calls they serve.

In: one `Script` per file of a session, the session's own first. Out: a `Strand`, which is a tree:
its calls hold the strands of the subagents they started. Order is that of the request in the file,
never that of timestamps alone; nothing is dropped, what a rewind or a compaction left behind is
marked. Pure: no files, no clock. Read `timeline` first, then `_Loom.weave`.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import accumulate
from typing import NamedTuple

from msgspec import Struct, to_builtins

from toolspan.model.message import Message
from toolspan.model.span import Branch, Span, moment
from toolspan.read.facts import facts_of
from toolspan.read.messages import Script
from toolspan.read.tree import Branches

_DEEPEST = 16
"""Subagents of subagents beyond this depth are listed beside the conversation."""
_OPENINGS = ("<command-name>", "<command-message>", "<bash-input>")
_EARLY = datetime.fromisoformat("0001-01-02T00:00:00+00:00")


class Said(Struct, frozen=True, kw_only=True, tag="message"):
    """Somebody's words in a timeline."""

    message: Message
    branch: Branch = "active"

    @property
    def began(self) -> datetime | None:
        """When it was said."""
        return moment(self.message.at)

    ended = began


class Placed(Struct, frozen=True, kw_only=True):
    """A call in its lane, with the subagents it started."""

    span: Span
    lane: int = 0
    """Calls of one group that overlap in time have different lanes."""
    agents: tuple["Strand", ...] = ()


class Group(Struct, frozen=True, kw_only=True):
    """Calls of one batch whose times, from request to result, overlap; often just one call."""

    calls: tuple[Placed, ...]
    concurrency: int
    """How many were under way at the same moment, at most."""

    @property
    def lanes(self) -> int:
        """How many lanes its calls need."""
        return 1 + max(placed.lane for placed in self.calls)


class Batch(Struct, frozen=True, kw_only=True, tag="batch"):
    """The calls of one assistant message."""

    message_id: str | None
    groups: tuple[Group, ...]
    branch: Branch = "active"

    @property
    def calls(self) -> list[Placed]:
        """All its calls, in the order the model asked."""
        return [placed for group in self.groups for placed in group.calls]

    @property
    def serial(self) -> bool:
        """Asked for together, but each finished before the next one began."""
        return len(self.groups) > 1 and len(self.groups) == len(self.calls)

    @property
    def began(self) -> datetime | None:
        """When the first call was asked for."""
        return min((time for call in self.calls if (time := call.span.requested)), default=None)

    @property
    def ended(self) -> datetime | None:
        """When the last result was recorded."""
        times = [(call.span.requested, call.span.finished) for call in self.calls]
        return max((time for pair in times for time in pair if time), default=None)


class Turn(Struct, frozen=True, kw_only=True):
    """A prompt and all that came of it; the first may have no prompt."""

    items: tuple["Item", ...]

    @property
    def prompt(self) -> Message | None:
        """The words that began it."""
        first = self.items[0] if self.items else None
        return first.message if isinstance(first, Said) and opens(first.message) else None

    @property
    def began(self) -> datetime | None:
        """When its first item began."""
        return next((time for item in self.items if (time := item.began)), None)

    @property
    def ended(self) -> datetime | None:
        """When its last item ended."""
        return max((time for item in self.items if (time := item.ended)), default=None)

    @property
    def calls(self) -> list[Placed]:
        """Its calls, without those of subagents."""
        return [placed for item in self.items if isinstance(item, Batch) for placed in item.calls]


class Strand(Struct, frozen=True, kw_only=True, tag="agent"):
    """One agent's part of a session: the main conversation, or a subagent's."""

    agent_id: str | None
    role: str | None
    """What sort of agent it is, when that is known."""
    file: str
    turns: tuple[Turn, ...]
    linked: bool = True
    """False when nobody knows which call started it: it then stands where its time puts it."""

    @property
    def began(self) -> datetime | None:
        """When its first turn began."""
        return next((time for turn in self.turns if (time := turn.began)), None)

    @property
    def ended(self) -> datetime | None:
        """When its last turn ended."""
        return max((time for turn in self.turns if (time := turn.ended)), default=None)

    @property
    def batches(self) -> list[Batch]:
        """Its own batches, without those of subagents."""
        items = (item for turn in self.turns for item in turn.items)
        return [item for item in items if isinstance(item, Batch)]

    @property
    def calls(self) -> list[Placed]:
        """Its own calls, without those of subagents."""
        return [placed for batch in self.batches for placed in batch.calls]

    def strands(self) -> Iterator["Strand"]:
        """This strand and every subagent's below it."""
        yield self
        items = (item for turn in self.turns for item in turn.items)
        for item in items:
            below = [item] if isinstance(item, Strand) else []
            if isinstance(item, Batch):
                below = [agent for placed in item.calls for agent in placed.agents]
            for strand in below:
                yield from strand.strands()


Item = Said | Batch | Strand


def opens(message: Message) -> bool:
    """Whether these words begin a turn."""
    if message.voice == "command":
        return message.text.lstrip().startswith(_OPENINGS)
    return message.voice == "prompt"


def timeline(scripts: Sequence[Script]) -> Strand:
    """The whole session as one strand; the first script is the main conversation."""
    return _Loom(scripts).weave()


class _Thread(Struct, kw_only=True):
    """One agent's spans and words, before they are put in order."""

    script: Script
    agent_id: str | None
    aside: bool = False
    """Its lines stand in another agent's file."""
    spans: list[Span] = []
    messages: list[Message] = []
    starter: str | None = None
    woven: bool = False

    @property
    def began(self) -> datetime:
        times = (message.at for message in self.messages[:1])
        asked = (span.call.requested_at for span in self.spans[:1])
        return min((time for at in (*times, *asked) if (time := moment(at))), default=_EARLY)

    @property
    def errand(self) -> str | None:
        """What it was given to do: the first prompt it heard."""
        for message in self.messages[:4]:
            if message.voice == "prompt":
                return message.text.strip()
        return None


class _Loom:
    """Finds the threads in the scripts, ties each to its call, and puts them in order."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        self._threads = _threads(scripts)
        self._tie()
        self._agents: dict[str, list[_Thread]] = {}
        for thread in self._threads[1:]:
            if thread.starter is not None:
                self._agents.setdefault(thread.starter, []).append(thread)

    def weave(self) -> Strand:
        """The tree. What hangs on no call of it goes beside the main conversation, by its time."""
        main = self._threads[0]
        main.woven = True
        items = self._items(main, 0)
        return Strand(
            agent_id=main.agent_id,
            role=main.script.role,
            file=main.script.file,
            turns=tuple(_turns(_insert(items, list(self._loose())))),
        )

    def _loose(self) -> Iterator[Strand]:
        for thread in sorted(self._threads[1:], key=lambda thread: thread.began):
            if not thread.woven:
                yield self._strand(thread, 1, linked=False)

    def _tie(self) -> None:
        """Which call started which thread, by the strongest link there is."""
        spans = [span for thread in self._threads for span in thread.spans]
        known = {span.id for span in spans}
        by_agent = {span.agent: span.id for span in reversed(spans) if span.agent}
        loose: list[_Thread] = []
        for thread in self._threads[1:]:
            name = thread.agent_id or ""
            told = None if thread.aside else thread.script.starter
            candidates = (told, name, by_agent.get(name))
            thread.starter = next((name for name in candidates if name in known), None)
            if thread.starter is None:
                loose.append(thread)
        self._tie_by_errand(loose)

    def _tie_by_errand(self, loose: Sequence[_Thread]) -> None:
        """Threads whose first words are what a call, not yet tied, gave to do."""
        taken = {thread.starter for thread in self._threads}
        given: dict[str, list[str]] = {}
        for thread in self._threads:
            for name, errand in thread.script.errands.items():
                if name not in taken:
                    taken.add(name)
                    given.setdefault(errand.strip(), []).append(name)
        for thread in sorted(loose, key=lambda thread: thread.began):
            waiting = given.get(thread.errand or "")
            if waiting:
                thread.starter = waiting.pop(0)

    def _strand(self, thread: _Thread, depth: int, *, linked: bool = True) -> Strand:
        thread.woven = True
        return Strand(
            agent_id=thread.agent_id,
            role=None if thread.aside else thread.script.role,
            file=thread.script.file,
            turns=tuple(_turns(self._items(thread, depth))),
            linked=linked,
        )

    def _items(self, thread: _Thread, depth: int) -> list[Item]:
        batches: dict[str, list[Span]] = {}
        found: list[tuple[int, int, Message | list[Span]]] = [
            (message.place.offset, 0, message) for message in thread.messages
        ]
        for span in thread.spans:
            name = span.call.message_id or span.id
            batch = batches.setdefault(name, [])
            if not batch:
                found.append((_offset(span), 1, batch))
            batch.append(span)
        found.sort(key=lambda row: row[:2])
        return list(self._marked((row[2] for row in found), thread.script.branches, depth))

    def _marked(
        self, rows: Iterable[Message | list[Span]], branches: Branches, depth: int
    ) -> Iterator[Item]:
        last: Branch = "active"
        for row in rows:
            if isinstance(row, list):
                last = _branch(row)
                yield self._batch(row, last, depth)
            else:
                own = branches.of(row.place.line)
                if own != "abandoned" or row.voice in ("prompt", "text", "thinking"):
                    last = own  # the client's own lines hang anywhere: they go with the line before
                yield Said(message=row, branch=last)

    def _batch(self, spans: Sequence[Span], branch: Branch, depth: int) -> Batch:
        groups = [self._group(group, depth) for group in _overlapping(spans)]
        return Batch(message_id=spans[0].call.message_id, groups=tuple(groups), branch=branch)

    def _group(self, spans: Sequence[Span], depth: int) -> Group:
        lanes = _lanes(spans)
        calls = [
            Placed(span=span, lane=lanes[n], agents=self._started(span, depth))
            for n, span in enumerate(spans)
        ]
        return Group(calls=tuple(calls), concurrency=_concurrency(spans))

    def _started(self, span: Span, depth: int) -> tuple[Strand, ...]:
        if depth >= _DEEPEST:
            return ()
        threads = [thread for thread in self._agents.get(span.id, ()) if not thread.woven]
        threads.sort(key=lambda thread: thread.began)
        return tuple(self._strand(thread, depth + 1) for thread in threads)


def _threads(scripts: Sequence[Script]) -> list[_Thread]:
    """The main conversation, then every subagent, in the order of files and first lines."""
    found: list[_Thread] = []
    for script in scripts:
        main = _Thread(script=script, agent_id=script.agent_id)
        known = {"": main}
        for message in script.messages:
            _thread(known, script, message.place.line).messages.append(message)
        for span in script.spans:
            _thread(known, script, _line(span)).spans.append(span)
        found += [
            thread
            for thread in known.values()
            if thread.spans or thread.messages or (thread is main and not found)
        ]
    return found


def _thread(known: dict[str, _Thread], script: Script, line: int) -> _Thread:
    key = script.asides.get(line, "")
    if key not in known:
        known[key] = _Thread(script=script, agent_id=key, aside=True)
    return known[key]


def _line(span: Span) -> int:
    place = span.call.place or (span.result.place if span.result else None)
    return place.line if place else 0


def _offset(span: Span) -> int:
    place = span.call.place or (span.result.place if span.result else None)
    return place.offset if place else 0


def _branch(spans: Sequence[Span]) -> Branch:
    """A message is on one branch as a whole: results of parallel calls hang apart in the tree."""
    branches = {span.branch for span in spans}
    if "active" in branches:
        return "active"
    return "compacted" if "compacted" in branches else "abandoned"


class _Interval(NamedTuple):
    start: datetime
    end: datetime


def _intervals(spans: Sequence[Span]) -> list[tuple[_Interval, int]]:
    """When each span was under way, earliest first; without a result, as long as any other."""
    times = [(span.requested, span.finished) for span in spans]
    horizon = max((time for pair in times for time in pair if time), default=None)
    found = []
    for n, (start, end) in enumerate(times):
        if start is not None:
            found.append((_Interval(start, max(start, end or horizon or start)), n))
    return sorted(found, key=lambda timed: (timed[0].start, timed[1]))


def _overlapping(spans: Sequence[Span]) -> list[list[Span]]:
    """The spans in groups whose intervals hang together, in the order of their requests."""
    groups: list[list[int]] = []
    end: datetime | None = None
    timed = _intervals(spans)
    for interval, n in timed:
        if end is not None and interval.start < end:
            groups[-1].append(n)
            end = max(end, interval.end)
        else:
            groups.append([n])
            end = interval.end
    known = {n for _, n in timed}
    groups += [[n] for n in range(len(spans)) if n not in known]
    return [[spans[n] for n in sorted(group)] for group in sorted(groups, key=min)]


def _lanes(spans: Sequence[Span]) -> list[int]:
    """A lane for each span of a group: the first one that is free when it begins."""
    lanes = [0] * len(spans)
    free: list[datetime] = []
    for interval, n in _intervals(spans):
        lane = next((k for k, time in enumerate(free) if time <= interval.start), len(free))
        free[lane : lane + 1] = [interval.end]
        lanes[n] = lane
    return lanes


def _concurrency(spans: Sequence[Span]) -> int:
    """The largest number of spans under way at once, as far as results show it."""
    changes: list[tuple[datetime, int]] = []
    for span in spans:
        if span.requested and span.finished and span.finished > span.requested:
            changes += [(span.requested, 1), (span.finished, -1)]
    return max(accumulate((change for _, change in sorted(changes)), initial=0)) or 1


def _turns(items: Iterable[Item]) -> Iterator[Turn]:
    held: list[Item] = []
    for item in items:
        if held and isinstance(item, Said) and opens(item.message):
            yield Turn(items=tuple(held))
            held = []
        held.append(item)
    if held:
        yield Turn(items=tuple(held))


def _insert(items: Sequence[Item], strands: Sequence[Strand]) -> list[Item]:
    """Strands that hang on no call, each before the first item that began after it."""
    times = list(accumulate((item.began or _EARLY for item in items), max))
    found = list(items)
    for n, strand in enumerate(strands):
        at = bisect_right(times, strand.began or _EARLY)
        found.insert(at + n, strand)
    return found


Wanted = Callable[[Message], bool]
"""Whether somebody's words are to be told."""


def turn_facts(strand: Strand, wanted: Wanted) -> list[dict[str, object]]:
    """The turns of a strand as nested rows, for JSON; `toolspan show --json` prints these."""
    return [
        {
            "prompt": turn.prompt.text if turn.prompt else None,
            "began": turn.began,
            "ended": turn.ended,
            "items": [
                _item_facts(item, strand.file, wanted)
                for item in turn.items
                if not isinstance(item, Said) or wanted(item.message)
            ],
        }
        for turn in strand.turns
    ]


def _item_facts(item: Item, file: str, wanted: Wanted) -> dict[str, object]:
    match item:
        case Said():
            return {"type": "message", **to_builtins(item.message), "branch": item.branch}
        case Strand():
            return {"type": "agent", **_agent_facts(item, wanted)}
        case Batch():
            facts = {"id": item.message_id, "branch": item.branch, "serial": item.serial}
            groups = [
                {
                    "concurrency": group.concurrency,
                    "calls": [_call_facts(placed, file, wanted) for placed in group.calls],
                }
                for group in item.groups
            ]
            return {"type": "batch", **facts, "groups": groups}


def _call_facts(placed: Placed, file: str, wanted: Wanted) -> dict[str, object]:
    return {
        "lane": placed.lane,
        **to_builtins(facts_of(placed.span, file)),
        "events": placed.span.events,
        "agents": [_agent_facts(agent, wanted) for agent in placed.agents],
    }


def _agent_facts(strand: Strand, wanted: Wanted) -> dict[str, object]:
    facts = {"agent": strand.agent_id, "role": strand.role, "linked": strand.linked}
    return {**facts, "file": strand.file, "turns": turn_facts(strand, wanted)}
