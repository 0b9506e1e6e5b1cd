"""`show --html`: a session as one page that needs nothing but itself.

In: transcripts, or a `Story`. Out: HTML with its style, its program and its data inside. Texts are
data (JSON, in which no `<` stands), which the program puts on the page as text and never as markup;
a content security policy lets nothing else run and nothing be fetched. Long texts are cut so that
the page stays small. Read `render` first, then `templates/page.js`.
"""

import base64
import hashlib
import json
from collections import Counter
from functools import cache
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from toolspan.export.encode import encoded
from toolspan.export.lanes import Lanes
from toolspan.export.record import (
    AgentRecord,
    CallRecord,
    EventRecord,
    MessageRecord,
    SessionRecord,
)
from toolspan.export.room import Room
from toolspan.export.story import Row, Story
from toolspan.export.veil import Veil
from toolspan.export.visible import one_line, visible
from toolspan.model.kind import ADVICE
from toolspan.model.state import MEANING
from toolspan.read.transcript import Transcript
from toolspan.wire.paths import shortened

ROOM = 12_000_000
"""Characters of bodies on one page."""
LONGEST = 40_000
"""Characters of one body."""
MOST_ROWS = 30_000
_LINE = 240
_MOST_LANES = 12

Json = dict[str, object]


def page(transcript: Transcript, *subagents: Transcript, veil: Veil | None = None) -> str:
    """The page of a session: its transcript, and those of its subagents.

    Raises:
        SourceError: a file can no longer be read.
    """
    return render(Story([transcript, *subagents], veil=veil))


def render(story: Story) -> str:
    """The page of a story."""
    sheet = _Sheet(story.head)
    for row in story.rows():
        sheet.add(row)
    style, program = _asset("page.css"), _asset("page.js")
    return _template().render(
        title=one_line(story.head.title or story.head.id, 120),
        policy=_policy(style, program),
        style=style,
        program=program,
        facts=_data(sheet.facts()),
        bodies=_data({"texts": sheet.room.texts()}),
    )


def _policy(style: str, program: str) -> str:
    """Nothing is fetched, and nothing runs but what we wrote."""
    return (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"script-src '{_hash(program)}'; style-src '{_hash(style)}'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _data(value: Json) -> str:
    """JSON that cannot end the element it stands in."""
    text = encoded(value).decode()
    return text.replace("<", "\\u003c")


@cache
def _asset(name: str) -> str:
    folder = resources.files("toolspan.export") / "templates"
    return (folder / name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    loader = PackageLoader("toolspan.export")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    return made.get_template("page.html")


class _Sheet:
    """Gathers what the page is to show."""

    def __init__(self, head: SessionRecord) -> None:
        self._head = head
        self.room = Room(ROOM, LONGEST)
        self._rows: list[Json] = []
        self._left_out = 0
        self._agents: dict[str | None, int] = {None: 0}
        self._told: list[Json] = [{"name": "main", "role": "main conversation"}]
        self._lanes: list[Lanes] = [Lanes()]
        self._batches: dict[str, int] = {}
        self._together: Counter[int] = Counter()

    def add(self, row: Row) -> None:
        """The next record; beyond the most that a page takes they are only counted."""
        if len(self._rows) >= MOST_ROWS:
            self._left_out += 1
            return
        match row.record:
            case MessageRecord():
                told = self._message(row.record)
            case AgentRecord():
                told = self._agent(row.record)
            case CallRecord():
                told = self._call(row.record)
        self._rows.append({**told, "depth": row.depth})

    def facts(self) -> Json:
        """What the page knows before any body is asked for."""
        head = self._head
        for agent, lanes in zip(self._told, self._lanes, strict=True):
            agent["lanes"] = min(lanes.count, _MOST_LANES)
        for row in self._rows:
            batch = row.get("batch")
            if isinstance(batch, int) and self._together[batch] > 1:
                row["together"] = self._together[batch]
        return {
            "session": _session(head),
            "slices": [[one.start, one.end, one.part] for one in head.slices],
            "agents": self._told,
            "rows": self._rows,
            "leftOut": self._left_out,
            "meaning": MEANING,
        }

    def _number(self, agent: str | None) -> int:
        known = self._agents.get(agent)
        if known is not None:
            return known
        name = one_line(agent or "subagent", 60)
        self._told.append({"name": name, "role": "subagent"})
        self._lanes.append(Lanes())
        self._agents[agent] = len(self._told) - 1
        return self._agents[agent]

    def _message(self, record: MessageRecord) -> Json:
        return {
            "k": "message",
            "agent": self._number(record.agent),
            "voice": record.voice,
            "opens": record.opens,
            "at": record.start,
            "branch": record.branch,
            "line": one_line(record.text, _LINE),
            "chars": record.chars,
            "body": self._keep(record.text),
        }

    def _agent(self, record: AgentRecord) -> Json:
        number = self._number(record.agent)
        if record.role:
            self._told[number]["role"] = one_line(record.role, 60)
        return {
            "k": "agent",
            "agent": number,
            "at": record.start,
            "end": record.end,
            "calls": record.calls,
            "linked": record.linked,
        }

    def _call(self, record: CallRecord) -> Json:
        agent = self._number(record.agent)
        told: Json = {
            "k": "call",
            "agent": agent,
            "id": visible(record.id),
            "batch": self._batch(record.batch),
            "tool": one_line(record.tool or "orphan result", 80),
            "kind": record.kind,
            "state": record.state,
            "branch": record.branch,
            "at": record.start if record.start is not None else record.end,
            "end": record.end,
            "took": record.duration_ms,
            "lane": self._lane(record, agent),
            "line": one_line(self._about(record), _LINE),
            "phases": [[p.start, p.end, p.phase] for p in record.phases if p.phase != "run"],
            "wait": record.wait_certainty,
            "flags": [
                name
                for name in ("background", "deferred", "synthetic", "ambiguous", "truncated")
                if getattr(record, name)
            ],
            "exit": record.exit_code,
            "lines": _lines(record),
        }
        return {**told, **self._trouble(record), **self._bodies(record)}

    def _about(self, record: CallRecord) -> str:
        """What a call is about; paths below the session's folder without it."""
        text = record.target or _glimpse(record.input)
        return shortened(text, self._head.cwd)

    def _batch(self, name: str | None) -> int | None:
        if name is None:
            return None
        number = self._batches.setdefault(name, len(self._batches))
        self._together[number] += 1
        return number

    def _lane(self, record: CallRecord, agent: int) -> int | None:
        start = record.start if record.start is not None else record.end
        if start is None:
            return None
        end = record.end if record.end is not None else start
        return min(self._lanes[agent].place(start, end), _MOST_LANES - 1)

    def _trouble(self, record: CallRecord) -> Json:
        if record.error_kind is None and not record.message:
            return {}
        advice = ADVICE[record.error_kind] if record.error_kind else None
        return {
            "error": record.error_kind,
            "message": one_line(record.message or "", 400),
            "advice": [advice.cause, advice.solution] if advice else None,
        }

    def _bodies(self, record: CallRecord) -> Json:
        """Numbers of texts, by what they are."""
        return {
            "input": [[one_line(name, 60), self._keep(text)] for name, text in _fields(record)],
            "result": None if record.result is None else self._keep(record.result),
            "diffs": [
                {
                    "path": one_line(diff.path, 300),
                    "kind": diff.kind,
                    "added": diff.added,
                    "removed": diff.removed,
                    "body": self._keep(diff.text),
                }
                for diff in record.diffs
            ],
            "events": [_event(event) for event in record.events],
            "evidence": [
                one_line(" · ".join(filter(None, (one.rule, one.text))), 300)
                for one in record.evidence
            ],
            "problem": one_line(record.problem or "", 300) or None,
            "place": one_line(f"{record.file}:{record.line or ''}", 300) if record.file else None,
        }

    def _keep(self, text: str) -> int:
        return self.room.take(visible(text[: 2 * LONGEST]), len(text))


def _session(head: SessionRecord) -> Json:
    return {
        "id": visible(head.id),
        "title": one_line(head.title or head.id, 300),
        "cwd": one_line(head.cwd or "", 300),
        "branch": one_line(head.git_branch or "", 120),
        "client": one_line(" ".join((head.dialect, *head.versions)), 120),
        "models": one_line(", ".join(head.models), 200),
        "start": head.start,
        "end": head.end,
        "tokens": head.tokens,
        "findings": head.findings,
    }


def _lines(record: CallRecord) -> list[int] | None:
    """Lines added and removed; None where nothing was changed or not all is known."""
    added = [diff.added for diff in record.diffs if diff.added is not None]
    removed = [diff.removed for diff in record.diffs if diff.removed is not None]
    return [sum(added), sum(removed)] if added and removed else None


def _glimpse(given: object) -> str:
    """An input in a line, for tools whose target nobody knows."""
    if not isinstance(given, dict):
        return given if isinstance(given, str) else ""
    return ", ".join(f"{key}: {_text(value)[:_LINE]}" for key, value in list(given.items())[:6])


def _fields(record: CallRecord) -> list[tuple[str, str]]:
    """An input as names and texts."""
    given = record.input
    if given is None:
        return []
    if not isinstance(given, dict):
        return [("", _text(given))]
    return [(str(key), _text(value)) for key, value in given.items()]


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, indent=1, ensure_ascii=False, default=str)
    except RecursionError:
        return "[nested too deeply]"


def _event(event: EventRecord) -> list[str]:
    took = None if event.duration_ms is None else f"{event.duration_ms:,.0f} ms"
    times = None if event.count is None else f"×{event.count:,}"
    parts = (event.name, event.who, event.outcome, times, took, event.text)
    return [event.type, one_line(" · ".join(part for part in parts if part), 600)]
