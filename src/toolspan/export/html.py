"""`show --html` and `--format html`: the session view of the UI with its data, as one page that works offline.

Start at `render_page`. The page contains the modules and style sheets of `web/static`, and the answers that the server
would give. Texts are embedded as JSON without `<`. A content security policy forbids other scripts and all requests.
Long texts are truncated to limit the size of the page.
"""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources
from itertools import accumulate
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from toolspan.analysis.timing import CallPhases, from_epoch_ms
from toolspan.archive.words import page_words
from toolspan.export.json import encode_json, escape_control_chars, format_json, one_line
from toolspan.export.records import CallRecord, EventRecord
from toolspan.export.session_export import SessionExport
from toolspan.export.timeline_tables import FileRequests, TimelineTables
from toolspan.formats.registry import get_format
from toolspan.reading.rows import CallRow
from toolspan.reading.timeline import AgentTimeline, TimelineMessage
from toolspan.reading.transcript import Transcript
from toolspan.redaction.redactor import Redactor, format_counts
from toolspan.types.error_kinds import ADVICE
from toolspan.types.session import RequestUsage
from toolspan.types.span import Span

MAX_PAGE_CHARS = 12_000_000
MAX_BODY_CHARS = 40_000
MAX_ROWS = 30_000
_MAX_LINE_CHARS = 240
_STYLES = ("app.css", "views/call.css", "views/session.css")

Json = dict[str, Any]


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
    tables = _ExportedTables(session)
    texts = tables.texts.truncated_texts()
    data = {"id": session.header.id, "timeline": tables.page_data(texts), "notices": tables.notices()}
    for n in tables.message_texts:
        texts[n] = ""  # they are in the timeline
    bodies = {"texts": texts, "calls": tables.bodies, "advice": tables.advice}
    script = bundle_modules("exported.js")
    style = "\n".join(_read_static(name) for name in _STYLES)
    icon = base64.b64encode(_read_static("icon.svg").encode()).decode()
    loader = PackageLoader("toolspan.export")
    template = Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template("page.html")
    return template.render(
        title=one_line(session.header.title or session.header.id, 120),
        # Only the page's own script and style, and no requests
        policy="default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"script-src '{_csp_hash(script)}'; style-src '{_csp_hash(style)}'; "
        "require-trusted-types-for 'script'; trusted-types dompurify",
        icon=f"data:image/svg+xml;base64,{icon}",
        style=Markup(style),
        script=Markup(script),
        words=_embed_json(page_words()),
        data=_embed_json(data),
        bodies=_embed_json(bodies),
    )


def _csp_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _embed_json(value: Json) -> Markup:
    """Return JSON that cannot close the HTML element around it."""
    return Markup(encode_json(value).decode().replace("<", "\\u003c"))


# --- The script


_IMPORT = re.compile(r'^(import|export)\s+(\w+)?\s*,?\s*(?:\{([^}]*)\})?\s*from\s+"([^"]+)";$', re.MULTILINE)
_LAZY_IMPORT = re.compile(r'\bimport\("([^"]+)"\)')
_EXPORT = re.compile(r"^export (default )?((?:async )?function|class|const) (\w+)", re.MULTILINE)
_EXPORT_UNNAMED = re.compile(r"\bexport default function(?=\()")
_EXPORT_LIST = re.compile(r"\bexport\s*\{([^{}]*)\};?(?=\s*(?://[^\n]*\s*)?$)")


def _read_static(name: str) -> str:
    return (resources.files("toolspan") / "web" / "static" / name).read_text(encoding="utf-8")


@cache
def bundle_modules(entry: str) -> str:
    """Return an ES module of `web/static` and all its imports as one script.

    Each module becomes a function that returns its exports. This understands the forms of `import` and `export` that
    these modules use: at the start of a line, or at the end of a vendored file.
    """
    functions: dict[str, str] = {}
    _add_module(entry, functions)
    script = "const modules = {};\n" + "".join(functions.values())
    # To JavaScript, this is the same in strings, templates and regular expressions. To HTML, it ends no element.
    return re.sub(r"<(?=/?script|!--)", r"\\x3c", script, flags=re.IGNORECASE)


def _add_module(name: str, functions: dict[str, str]) -> None:
    if name in functions:
        return
    folder = posixpath.dirname(name)
    exports: dict[str, str] = {}
    dependencies: list[str] = []

    def find(path: str) -> str:
        dependencies.append(posixpath.normpath(posixpath.join(folder, path)))
        return f'modules["{dependencies[-1]}"]'

    def replace_import(match: re.Match[str]) -> str:
        keyword, default, names, path = match.groups()
        pairs = [("default", default)] if default else []
        pairs += _parse_names(names)
        if keyword == "export":
            exports.update({local: local for _, local in pairs})
        return f"const {{ {', '.join(f'{name}: {local}' for name, local in pairs)} }} = {find(path)};"

    def replace_export(match: re.Match[str]) -> str:
        default, keyword, name = match.groups()
        exports["default" if default else name] = name
        return f"{keyword} {name}"

    def replace_list(match: re.Match[str]) -> str:
        exports.update({public: local for local, public in _parse_names(match[1])})
        return ""

    def replace_unnamed(_: re.Match[str]) -> str:
        exports["default"] = "unnamed"
        return "const unnamed = function"

    source = _IMPORT.sub(replace_import, _read_static(name))
    source = _EXPORT_LIST.sub(replace_list, _EXPORT.sub(replace_export, source))
    source = _EXPORT_UNNAMED.sub(replace_unnamed, source)
    source = _LAZY_IMPORT.sub(lambda match: f"Promise.resolve({find(match[1])})", source)
    for dependency in dependencies:
        _add_module(dependency, functions)
    returned = ", ".join(f"{public}: {local}" for public, local in exports.items())
    functions[name] = f'modules["{name}"] = (() => {{\n{source}\nreturn {{ {returned} }};\n}})();\n'


def _parse_names(names: str | None) -> list[tuple[str, str]]:
    """Return the names in `a, b as c` as pairs."""
    words = [item.split() for item in (names or "").split(",") if item.strip()]
    return [(item[0], item[-1]) for item in words]


# --- The data


class _ExportedTables(TimelineTables):
    """The tables of a session from the records of its export, which are redacted, and the bodies of its calls."""

    def __init__(self, session: SessionExport) -> None:
        super().__init__(session.header.cwd)
        self._session = session
        self.texts = TextBudget(MAX_PAGE_CHARS, MAX_BODY_CHARS)
        self.message_texts: list[int] = []
        """The indexes of the texts of messages."""
        self.bodies: list[Json] = []
        """For each call, what the answer of `/api/call/ID` has besides its row. Long texts are indexes of `texts`."""
        self.advice: dict[str, Json] = {}
        self._batch_names: dict[str, str] = {}
        self._row_count = 0
        requests = [
            FileRequests(
                transcript.file,
                {
                    name: RequestUsage(at=usage.at, model=None, tokens=usage.tokens)
                    for name, usage in transcript.requests.items()
                },
                get_format(transcript.info.client).input_includes_cache,
            )
            for transcript in session.transcripts
        ]
        self.update(session.timeline, session.hook_timings, requests)

    def page_data(self, texts: list[str]) -> Json:
        """Return the answer of `/api/session/ID/timeline`."""
        header, data = self._session.header, self.whole()
        messages: Json = data["messages"]
        messages["text"] = [texts[n] for n in messages["text"]]
        session = {
            "client": header.client,
            "title": one_line(header.title or header.id, 300),
            "cwd": one_line(header.cwd or "", 300) or None,
            "git_branch": one_line(header.git_branch or "", 120) or None,
            "versions": [one_line(version, 40) for version in header.versions],
            "models": [one_line(model, 80) for model in header.models],
            "started_at": None if header.start is None else from_epoch_ms(header.start),
            "ended_at": None if header.end is None else from_epoch_ms(header.end),
            "tokens": header.tokens,
            "calls": self.states,
            "agents": self.agent_count,
            "concurrency": self.concurrency,
            "findings": header.findings,
        }
        return {"version": "", "session": session, **data}

    def notices(self) -> list[str]:
        """Return sentences about data that the page does not have."""
        notice, omitted = self._session.redaction_notice, max(self._row_count - MAX_ROWS, 0)
        counts = format_counts(self._session.redaction_counts)
        return [
            *([f"{notice} Replaced: {counts}."] if notice else []),
            *([f"{omitted:,} further rows did not fit on this page."] if omitted else []),
        ]

    def _has_room(self) -> bool:
        self._row_count += 1
        return self._row_count <= MAX_ROWS

    def _agent_row(self, agent: AgentTimeline, starter: str | None) -> Json:
        if agent is self._session.timeline:
            return {"id": None, "role": None}
        record = self._session.agent_record(agent, starter)
        return {"id": one_line(record.agent or "", 60), "role": one_line(record.role or "", 60) or None}

    def _call_row(self, span: Span, agent: AgentTimeline, starter: str | None, phases: CallPhases) -> CallRow | None:
        record = self._session.call_record(span, agent, starter, phases)
        if record is None or not self._has_room():
            return None
        if span.call.message_id is not None and record.batch is not None:
            self._batch_names[span.call.message_id] = record.batch
        if record.error_kind is not None:
            self.advice[record.error_kind] = ADVICE[record.error_kind]._asdict()
        self.bodies.append(self._body(record))
        return record

    def _input_line(self, row: CallRow, span: Span) -> str:  # noqa: ARG002
        value = row.input if isinstance(row, CallRecord) else None
        if isinstance(value, dict):
            fields = list(value.items())[:6]
            return ", ".join(
                f"{key}: {(item if isinstance(item, str) else format_json(item, 1))[:_MAX_LINE_CHARS]}"
                for key, item in fields
            )
        return value if isinstance(value, str) else ""

    def _message_text(self, item: TimelineMessage, agent: AgentTimeline) -> tuple[object, int] | None:
        record = self._session.message_record(item, agent)
        if record is None or not self._has_room():
            return None
        self.message_texts.append(self._store(record.text))
        return self.message_texts[-1], 0

    def _file_name(self, agent: AgentTimeline) -> str | None:  # noqa: ARG002
        return None

    def _request_name(self, batch: str) -> str:
        return self._batch_names.setdefault(batch, f"request-{len(self._batch_names)}")

    def _body(self, record: CallRecord) -> Json:
        fields: object = None if record.input is None else self._field(record.input)
        if isinstance(record.input, dict):
            fields = {one_line(str(name), 60): self._field(item) for name, item in record.input.items()}
        return {
            "input": fields,
            "result": None if record.result is None else self._store(record.result),
            "diffs": [self._store(diff.text) for diff in record.diffs if diff.text],
            "events": [_event_row(event) for event in record.events],
            "evidence": [[one_line(rule, 200), one_line(text or "", 300) or None] for rule, text in record.evidence],
            "problem": one_line(record.problem or "", 300) or None,
        }

    def _field(self, value: object) -> int | list[int]:
        """Return the index of a text, or a list with the index of a value as JSON."""
        return self._store(value) if isinstance(value, str) else [self._store(format_json(_clean(value), 0))]

    def _store(self, text: str) -> int:
        return self.texts.add_text(escape_control_chars(text[: 2 * MAX_BODY_CHARS]), len(text))


def _event_row(event: EventRecord) -> Json:
    if event.type != "hook":
        return {"type": event.type, "text": one_line(event.summary, 600)}
    return {
        "type": "hook",
        "name": one_line(" ".join(filter(None, (event.name, event.who))), 200),
        "outcome": event.outcome,
        "duration_ms": event.duration_ms,
        "exit_code": event.exit_code,
        "text": one_line(event.text or "", 600) or None,
    }


def _clean(value: object, depth: int = 0) -> object:
    """Return a JSON value without control characters."""
    match value:
        case str():
            return escape_control_chars(value)
        case dict() | list() if depth > 32:
            return "[nested too deeply]"
        case dict():
            return {escape_control_chars(str(key)): _clean(item, depth + 1) for key, item in value.items()}
        case list():
            return [_clean(item, depth + 1) for item in value]
        case _:
            return value


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
