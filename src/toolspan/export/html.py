"""`show --html` and `--format html`: a session as one self-contained page.

Start at `render_page`, then `templates/page.js`. Text is embedded as JSON without `<`, and the script inserts it as
text, never as markup. A content security policy forbids all other scripts and all requests. Long text is truncated to
limit the page size.
"""

from __future__ import annotations

import base64
import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import resources
from itertools import accumulate

from jinja2 import Environment, PackageLoader, StrictUndefined

from toolspan.export.json import encode_json, escape_control_chars, format_json, one_line
from toolspan.export.records import AgentRecord, CallRecord, MessageRecord, SessionRecord
from toolspan.export.session_export import ExportRow, LaneAllocator, SessionExport
from toolspan.formats.registry import relative_to_folder
from toolspan.reading.transcript import Transcript
from toolspan.redaction.redactor import Redactor, format_counts
from toolspan.types.error_kinds import ADVICE
from toolspan.types.state import STATE_MEANINGS

MAX_PAGE_CHARS = 12_000_000
MAX_BODY_CHARS = 40_000
MAX_ROWS = 30_000
_MAX_LINE_CHARS = 240
_MAX_LANES = 12
_CALL_FLAGS = ("background", "deferred", "synthetic", "ambiguous", "truncated")

Json = dict[str, object]


def render_transcripts(transcript: Transcript, *subagents: Transcript, redactor: Redactor | None = None) -> str:
    """Return an HTML page for a session, given its transcript and those of its subagents.

    Raises:
        SourceError: a file can no longer be read.
    """
    return render_page(SessionExport([transcript, *subagents], redactor=redactor))


def write(sessions: Iterable[SessionExport]) -> Iterator[bytes]:
    """Yield the page of each session."""
    for session in sessions:
        yield render_page(session).encode("utf-8", "replace")


def render_page(session: SessionExport) -> str:
    """Return an HTML page for a session."""
    builder = _PageBuilder(session.header)
    for row in session.rows():
        builder.add_row(row)
    templates = resources.files("toolspan.export") / "templates"
    style, program = ((templates / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    loader = PackageLoader("toolspan.export")
    template = Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template("page.html")
    return template.render(
        notice=session.redaction_notice,
        replaced=format_counts(session.redaction_counts),
        title=one_line(session.header.title or session.header.id, 120),
        # Only the page's own script and style, and no requests
        policy="default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"script-src '{_csp_hash(program)}'; style-src '{_csp_hash(style)}'; "
        "require-trusted-types-for 'script'; trusted-types 'none'",
        style=style,
        program=program,
        facts=_embed_json(builder.page_data()),
        bodies=_embed_json({"texts": builder.text_budget.truncated_texts()}),
    )


def _csp_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _embed_json(value: Json) -> str:
    """Return JSON that cannot close the HTML element around it."""
    return encode_json(value).decode().replace("<", "\\u003c")


class _PageBuilder:
    def __init__(self, header: SessionRecord) -> None:
        self._header = header
        self.text_budget = TextBudget(MAX_PAGE_CHARS, MAX_BODY_CHARS)
        self._rows: list[Json] = []
        self._omitted_rows = 0
        self._agent_numbers: dict[str | None, int] = {None: 0}
        self._agent_entries: list[Json] = [{"name": "main", "role": "main conversation"}]
        self._lanes: list[LaneAllocator] = [LaneAllocator()]
        self._batch_numbers: dict[str, int] = {}
        self._batch_sizes: Counter[int] = Counter()

    def add_row(self, row: ExportRow) -> None:
        if len(self._rows) >= MAX_ROWS:
            self._omitted_rows += 1
            return
        match row.record:
            case MessageRecord() as message:
                entry: Json = {
                    "k": "message",
                    "agent": self._agent_number(message.agent),
                    "voice": message.voice,
                    "opens": message.opens,
                    "at": message.start,
                    "branch": message.branch,
                    "line": one_line(message.text, _MAX_LINE_CHARS),
                    "chars": message.chars,
                    "body": self._store_text(message.text),
                }
            case AgentRecord() as agent:
                number = self._agent_number(agent.agent)
                if agent.role:
                    self._agent_entries[number]["role"] = one_line(agent.role, 60)
                entry = {
                    "k": "agent",
                    "agent": number,
                    "at": agent.start,
                    "end": agent.end,
                    "calls": agent.calls,
                    "linked": agent.linked,
                }
            case CallRecord() as call:
                entry = {**self._call_entry(call), **self._body_fields(call)}
        self._rows.append({**entry, "depth": row.depth})

    def page_data(self) -> Json:
        header = self._header
        for agent, lanes in zip(self._agent_entries, self._lanes, strict=True):
            agent["lanes"] = min(lanes.count, _MAX_LANES)
        for row in self._rows:
            batch = row.get("batch")
            if isinstance(batch, int) and self._batch_sizes[batch] > 1:
                row["together"] = self._batch_sizes[batch]
        return {
            "session": {
                "id": escape_control_chars(header.id),
                "title": one_line(header.title or header.id, 300),
                "cwd": one_line(header.cwd or "", 300),
                "branch": one_line(header.git_branch or "", 120),
                "client": one_line(" ".join((header.dialect, *header.versions)), 120),
                "models": one_line(", ".join(header.models), 200),
                "start": header.start,
                "end": header.end,
                "tokens": header.tokens,
                "findings": header.findings,
            },
            "slices": [[time_slice.start, time_slice.end, time_slice.part] for time_slice in header.slices],
            "agents": self._agent_entries,
            "rows": self._rows,
            "leftOut": self._omitted_rows,
            "meaning": STATE_MEANINGS,
        }

    def _agent_number(self, agent: str | None) -> int:
        number = self._agent_numbers.get(agent)
        if number is not None:
            return number
        name = one_line(agent or "subagent", 60)
        self._agent_entries.append({"name": name, "role": "subagent"})
        self._lanes.append(LaneAllocator())
        self._agent_numbers[agent] = len(self._agent_entries) - 1
        return self._agent_numbers[agent]

    def _call_entry(self, record: CallRecord) -> Json:
        agent = self._agent_number(record.agent)
        batch = lane = None
        if record.batch is not None:
            batch = self._batch_numbers.setdefault(record.batch, len(self._batch_numbers))
            self._batch_sizes[batch] += 1
        start = record.start if record.start is not None else record.end
        if start is not None:
            end = record.end if record.end is not None else start
            lane = min(self._lanes[agent].assign_lane(start, end), _MAX_LANES - 1)
        target = record.target or (record.input if isinstance(record.input, str) else "")
        if not target and isinstance(record.input, dict):
            fields = list(record.input.items())[:6]
            target = ", ".join(f"{key}: {_format_value(value)[:_MAX_LINE_CHARS]}" for key, value in fields)
        added = [diff.added for diff in record.diffs if diff.added is not None]
        removed = [diff.removed for diff in record.diffs if diff.removed is not None]
        entry: Json = {
            "k": "call",
            "agent": agent,
            "id": escape_control_chars(record.id),
            "batch": batch,
            "tool": one_line(record.tool or "orphan result", 80),
            "kind": record.kind,
            "state": record.state,
            "branch": record.branch,
            "at": start,
            "end": record.end,
            "took": record.duration_ms,
            "lane": lane,
            "line": one_line(relative_to_folder(target, self._header.cwd), _MAX_LINE_CHARS),
            "phases": [[p.start, p.end, p.phase] for p in record.phases if p.phase != "run"],
            "wait": record.wait_certainty,
            "flags": [name for name in _CALL_FLAGS if getattr(record, name)],
            "exit": record.exit_code,
            "lines": [sum(added), sum(removed)] if added and removed else None,
        }
        if record.error_kind is not None or record.message:
            advice = ADVICE[record.error_kind] if record.error_kind else None
            entry["error"] = record.error_kind
            entry["message"] = one_line(record.message or "", 400)
            entry["advice"] = [advice.cause, advice.solution] if advice else None
        return entry

    def _body_fields(self, record: CallRecord) -> Json:
        """Return the bodies of a call as indexes of stored strings."""
        tool_input = {} if record.input is None else record.input
        fields = tool_input.items() if isinstance(tool_input, dict) else [("", tool_input)]
        return {
            "input": [[one_line(str(name), 60), self._store_text(_format_value(value))] for name, value in fields],
            "result": None if record.result is None else self._store_text(record.result),
            "diffs": [
                {
                    "path": one_line(diff.path, 300),
                    "kind": diff.kind,
                    "added": diff.added,
                    "removed": diff.removed,
                    "body": self._store_text(diff.text),
                }
                for diff in record.diffs
            ],
            "events": [[event.type, one_line(event.summary, 600)] for event in record.events],
            "evidence": [
                one_line(" · ".join(filter(None, (evidence.rule, evidence.text))), 300) for evidence in record.evidence
            ],
            "problem": one_line(record.problem or "", 300) or None,
            "place": one_line(f"{record.file}:{record.line or ''}", 300) if record.file else None,
        }

    def _store_text(self, text: str) -> int:
        return self.text_budget.add_text(escape_control_chars(text[: 2 * MAX_BODY_CHARS]), len(text))


def _format_value(value: object) -> str:
    return value if isinstance(value, str) else format_json(value, 1)


class TextBudget:
    """Strings that share a size limit."""

    def __init__(self, total: int, longest: int) -> None:
        self._max_total = total
        self._max_length = longest
        self._texts: list[str] = []
        self._original_chars: list[int] = []
        self._total_chars = 0

    def add_text(self, text: str, chars: int) -> int:
        """Store a string whose original length is `chars`, and return its index."""
        self._texts.append(text[: self._max_length])
        self._original_chars.append(chars if chars > self._max_length else len(text))
        self._total_chars += len(self._texts[-1])
        if self._total_chars > 2 * self._max_total:
            self._shrink_to_fit()
        return len(self._texts) - 1

    def truncated_texts(self) -> list[str]:
        """Return all strings, truncated to meet the limit, with a note about omitted parts."""
        self._shrink_to_fit()
        return [
            f"{text}\n… {chars - len(text):,} more characters" if chars > len(text) else text
            for text, chars in zip(self._texts, self._original_chars, strict=True)
        ]

    def _shrink_to_fit(self) -> None:
        if self._total_chars > self._max_total:
            self._max_length = _max_fitting_length(list(map(len, self._texts)), self._max_total)
            self._texts = [text[: self._max_length] for text in self._texts]
            self._total_chars = sum(map(len, self._texts))


def _max_fitting_length(lengths: list[int], total: int) -> int:
    """Return the largest length to which strings can be truncated so that their sum does not exceed `total`."""
    ordered = sorted(lengths)
    sums = [0, *accumulate(ordered)]

    def exceeds_total(length: int) -> bool:
        shorter = bisect_left(ordered, length)
        return sums[shorter] + (len(ordered) - shorter) * length > total

    longest = ordered[-1] if ordered else 0
    return bisect_left(range(longest + 1), 1, key=exceeds_total) - 1
