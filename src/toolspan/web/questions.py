"""The questions of the API: each is one call of the archive, and its answer is rows of JSON.

`api.py` checks the parameters of a request, and `worker.py` calls `answer_question` in another process. Nothing here
depends on the command line.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from toolspan.archive import doctor
from toolspan.archive.archive import Archive
from toolspan.archive.calls import public_row
from toolspan.archive.engine import FileEngine, FileMapper
from toolspan.archive.filters import FILTER_NAMES, Filter, choose_name
from toolspan.archive.reporter import Reporter
from toolspan.archive.session import RecordedCall, RecordedSession, find_copies, resolve_names
from toolspan.errors import NotFound, ToolspanError
from toolspan.export.json import encode_json
from toolspan.reading.rows import encode_json_line

_LISTS = frozenset({"tool", "kind", "program", "state", "error", "chain", "risk"})
_NUMBERS = frozenset({"limit", "length"})
FLAGS = frozenset({"live", "runs", "mcp", "context", "regex", "ignore_case", "case_sensitive", "every", "thinking",
                   "commands", "dry_run", "force", "redact", "skeleton"})  # fmt: skip
"""Parameters that are true if they are present."""
_OBJECTS = frozenset({"overview", "digest", "stats", "time", "session", "timeline", "call", "call_records", "why",
                      "compare", "file_contents", "file_difference", "restore", "repair"})  # fmt: skip
"""Questions whose answer is one object."""
_MIN_COMPRESSED_BYTES = 1024
_COMPRESSION_LEVEL = 1


class Question(msgspec.Struct, frozen=True):
    """A question about some transcripts."""

    name: str
    params: tuple[tuple[str, str], ...] = ()
    names: tuple[str, ...] = ()
    """The transcripts to read: paths that the server serves, and ids that were checked."""
    fields: tuple[str, ...] = ()
    """The fields of each row to return; all if empty."""
    zone: str | None = None
    """The time zone of days, by its IANA name; None for that of the server."""

    def get(self, name: str) -> str | None:
        """Return a parameter."""
        return next((value for key, value in self.params if key == name), None)


class Answer(msgspec.Struct, frozen=True):
    """The answer to a question, or the reason why there is none."""

    body: bytes = b"[]"
    """A JSON array of the rows, separated by a comma and a newline, or one object. Long ones are compressed."""
    is_compressed: bool = False
    warnings: tuple[str, ...] = ()
    error: str | None = None
    status: int = 200
    """HTTP status: 400 for a wrong parameter, 404 for a name that does not exist."""
    cpu_seconds: float = 0.0
    """The CPU time of the worker."""
    is_unread: bool = False
    """True if there is no answer yet, because many files must be read first, which all workers do together."""

    @property
    def json(self) -> bytes:
        """The body, not compressed."""
        return gzip.decompress(self.body) if self.is_compressed else self.body

    @property
    def rows(self) -> list[bytes]:
        """The rows as JSON. No string in them contains a newline, because JSON escapes it."""
        body = self.json
        return body[1:-1].split(b",\n") if len(body) > 2 else []

    def compress(self) -> Answer:
        """Return the same answer, compressed if it is long: the server keeps and sends it as it is."""
        if self.is_compressed or len(self.body) < _MIN_COMPRESSED_BYTES:
            return self
        body = gzip.compress(self.body, _COMPRESSION_LEVEL, mtime=0)
        return msgspec.structs.replace(self, body=body, is_compressed=True)


class Share(msgspec.Struct, frozen=True):
    """A part of the files that a question needs and that are not cached. The others are read by other workers."""

    number: int
    count: int
    """The number of parts; with 1, the question is answered whatever must be read."""


class WorkerRequest(msgspec.Struct, frozen=True):
    """A question for a worker process."""

    question: Question
    growing: tuple[str, ...] = ()
    """The large files that are growing, which the worker keeps in memory."""
    version: str | None = None
    """If set, the question is the timeline of a session, and the answer has the changes since this version."""
    share: Share | None = None
    """The part of the unread files to read. If it is None and there are many unread files, nothing is read."""
    seconds: float | None = None
    """The CPU time after which the worker ends without an answer, where the system can limit it."""
    adds_facts: bool = False
    """True to add the facts that other questions need to the cache, instead of answering."""


class _Call(msgspec.Struct, frozen=True):
    """A question on its way: the archive, the parameters of its method, and where warnings go."""

    names: tuple[str, ...]
    params: Mapping[str, Any]
    reporter: Reporter
    mapper: FileMapper

    @property
    def archive(self) -> Archive:
        return self.open_archive(self.names)

    def open_archive(self, names: Sequence[str]) -> Archive:
        """Return the archive of some of the transcripts."""
        return Archive.from_engine(FileEngine(names, reporter=self.reporter, mapper=self.mapper))

    def options(self, *names: str) -> dict[str, Any]:
        """Return the parameters with these names, and the filter."""
        words = {name: value for name, value in self.params.items() if name in FILTER_NAMES}
        own = {name: self.params[name] for name in names if name in self.params}
        return {"call_filter": Filter.parse(**words), **own}


def answer_question(question: Question, mapper: FileMapper) -> Answer:
    """Return the answer to a question. Errors that a user can correct become the answer's error."""
    return collect_answer(question, lambda reporter: _ask(question, reporter, mapper))


def collect_answer(question: Question, ask: Callable[[Reporter], Iterable[bytes]]) -> Answer:
    """Call `ask` and return its rows and warnings, or its error."""
    warnings: list[str] = []
    reporter = Reporter(warn=lambda message: warnings.append(str(message)))
    error, status = None, 200
    rows: list[bytes] = []
    try:
        rows = [*ask(reporter)]
    except NotFound as problem:
        error, status = str(problem), 404
    except ToolspanError as problem:
        error, status = str(problem), 400
    if question.fields:
        rows = [_select_fields(row, question.fields) for row in rows]
    body = b",\n".join(rows)
    body = (body or b"null") if question.name in _OBJECTS else b"[" + body + b"]"
    return Answer(body, warnings=tuple(warnings), error=error, status=status)


def _ask(question: Question, reporter: Reporter, mapper: FileMapper) -> Iterable[bytes]:
    params: dict[str, Any] = {}
    for name, value in question.params:
        if name in _LISTS:
            params[name] = (*params.get(name, ()), value)
        elif name in _NUMBERS:
            params[name] = _parse_number(name, value)
        else:
            params[name] = True if name in FLAGS else value
    rows = _QUESTIONS[question.name](_Call(question.names, params, reporter, mapper))
    return [row if isinstance(row, bytes) else encode_json_line(row) for row in rows]


def _parse_number(name: str, text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise ToolspanError(f"{name}: {text[:20]!r} is not a number")
    return int(text)


def _select_fields(row: bytes, fields: Sequence[str]) -> bytes:
    values = msgspec.json.decode(row, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({name: values[name] for name in fields if name in values})


_Rows = Iterable[msgspec.Struct | dict[str, object] | bytes]


def _overview(call: _Call) -> _Rows:
    from datetime import datetime

    recent = call.archive.overview(call.params.get("since"))
    overview = msgspec.to_builtins(recent.overview, builtin_types=(datetime,))
    return [{**overview, "live": recent.live_statuses}]


def _sessions(call: _Call) -> _Rows:
    if call.params.get("live"):
        return call.archive.live(**call.options())[: call.params.get("limit") or None]
    return call.archive.sessions(**call.options("sort", "limit"))


def _errors(call: _Call) -> _Rows:
    options = call.options("by", "sort", "limit")
    if "recovered" in call.params:
        options["recovered"] = choose_name(call.params["recovered"], ("yes", "no")) == "yes"
    return call.archive.error_totals(**options) if "by" in options else call.archive.errors(**options)


def _hooks(call: _Call) -> _Rows:
    options = call.options("point", "sort", "limit")
    return call.archive.hook_runs(**options) if call.params.get("runs") else call.archive.hooks(**options)


def _stats(call: _Call) -> _Rows:
    stats = call.archive.stats(**call.options("by", "sort", "limit"))
    return [{"servers": stats.servers}] if call.params.get("mcp") else [stats]


def _flows(call: _Call) -> _Rows:
    report = call.archive.flows(**call.options("chain", "length", "every"))
    return report.to_rows(call.params.get("limit") or 0, only_chains="chain" in call.params)


def _usage(call: _Call) -> _Rows:
    if call.params.get("context"):
        return call.archive.context(**call.options("limit")).to_rows()
    return call.archive.usage(**call.options("by", "sort", "limit"))


def _search(call: _Call) -> _Rows:
    options = call.options("regex", "limit")
    if call.params.get("ignore_case") or call.params.get("case_sensitive"):
        options["ignore_case"] = bool(call.params.get("ignore_case"))
    words = str(call.params.get("q", "")).split()
    return call.archive.search(*words, within=call.params.get("in", "all"), **options)


def _session(call: _Call) -> _Rows:
    files = resolve_names(call.names, session=call.params.get("session"), reporter=call.reporter)
    if not isinstance(files, list):
        raise NotFound(f"{files.span.id} is a call, not a session")
    thinking = bool(call.params.get("thinking"))
    recorded = RecordedSession(files, call.reporter)
    return [recorded.to_dict(lambda message: thinking or message.voice != "thinking")]


def _find_call(call: _Call) -> _Rows:
    detail = resolve_names(call.names, session=call.params.get("session"), reporter=call.reporter)
    if isinstance(detail, list):
        raise NotFound(f"{call.names[0]} is a session, not a call")
    return [RecordedCall(detail).to_dict()]


def _doctor(call: _Call) -> _Rows:
    return [checked.to_dict() for checked in call.archive.doctor() if checked.report is not None]


def _repair(call: _Call) -> _Rows:
    return [doctor.repair_session(Path(call.names[0]), dry_run=bool(call.params.get("dry_run")))]


def _restore(call: _Call) -> _Rows:
    from toolspan.integrations import restore

    name, *names = call.names
    before, after = call.params.get("before"), call.params.get("after")
    file = restore.find_recorded_file(call.open_archive(names), name, before=before, after=after)
    dry_run, force = bool(call.params.get("dry_run")), bool(call.params.get("force"))
    plan = restore.prepare_restore(name, file, is_confirmed=not dry_run, force=force, dry_run=dry_run)
    done = plan.action != "nothing" and not dry_run
    backup = restore.carry_out(plan, backup=True) if done else None
    return [restore.describe_restore(plan, file, done=done, backup=backup)]


def _files(call: _Call) -> _Rows:
    folder = call.params.get("path")
    return call.archive.files(**call.options("sort", "limit"), folder=folder)


def _file_contents(call: _Call) -> _Rows:
    return [call.archive.file_contents(call.params["path"])]


def _file_difference(call: _Call) -> _Rows:
    return [call.archive.file_difference(call.params["path"], call.params["from"], call.params["to"])]


def _file_blame(call: _Call) -> _Rows:
    return call.archive.blame_recorded(call.params["path"], call.params["at"])


def _compare(call: _Call) -> _Rows:
    a, b, *folders = call.names
    return [call.open_archive(folders).compare(a, b, **call.options())]


def _redaction(call: _Call) -> _Rows:
    from toolspan.export.export import choose_redactor, export_sessions
    from toolspan.redaction.redact import SecretRedactor

    redactor = choose_redactor(redact=True, skeleton=False, keep_report=True)
    for _ in export_sessions(call.names, redactor=redactor, reporter=call.reporter):
        pass
    return redactor.replacements if isinstance(redactor, SecretRedactor) else ()


def _export(call: _Call) -> _Rows:
    """Write an export to the file in `output`, and report the number of replacements as a warning."""
    from toolspan.export.export import choose_redactor, export_sessions
    from toolspan.redaction.redactor import format_counts

    redact, skeleton = bool(call.params.get("redact")), bool(call.params.get("skeleton"))
    redactor = choose_redactor(redact=redact, skeleton=skeleton)
    form = call.params["format"]
    pieces = export_sessions(call.names, form=form, redactor=redactor, reporter=call.reporter)
    with Path(call.params["output"]).open("wb") as stream:
        stream.writelines(pieces)
    if redact and not skeleton:
        call.reporter.warn(f"redacted: {sum(redactor.counts.values()):,} values ({format_counts(redactor.counts)})")
    return ()


def _call_records(call: _Call) -> _Rows:
    from toolspan.web.call_records import read_call_records

    return [encode_json(read_call_records(call.names, call.params.get("session"), call.reporter))]


def _timeline(call: _Call) -> _Rows:
    from toolspan.web.timeline import read_timeline

    return read_timeline(call.names, call.params, call.reporter)


_QUESTIONS: dict[str, Callable[[_Call], _Rows]] = {
    "overview": _overview,
    "sessions": _sessions,
    "agents": lambda call: call.archive.agents(**call.options("sort", "limit")),
    "calls": lambda call: map(public_row, call.archive.calls(**call.options("group", "commands", "sort", "limit"))),
    "errors": _errors,
    "prompts": lambda call: call.archive.prompts(**call.options("sort", "limit")),
    "denials": lambda call: call.archive.denials(**call.options("every", "sort", "limit")),
    "hooks": _hooks,
    "risky": lambda call: call.archive.risky(**call.options("risk", "sort", "limit")),
    "digest": lambda call: [call.archive.digest(**call.options())],
    "disk": lambda call: call.archive.disk(**call.options("by", "sort", "limit")),
    "stats": _stats,
    "time": lambda call: [call.archive.time(**call.options("limit"))],
    "flows": _flows,
    "usage": _usage,
    "doctor": _doctor,
    "search": _search,
    "session": _session,
    "timeline": _timeline,
    "copies": lambda call: find_copies(call.archive.engine, call.params["session"]),
    "call": _find_call,
    "call_records": _call_records,
    "why": lambda call: [call.open_archive(call.names[1:]).why(call.names[0])],
    "compare": _compare,
    "files": _files,
    "file_contents": _file_contents,
    "file_difference": _file_difference,
    "file_blame": _file_blame,
    "restore": _restore,
    "repair": _repair,
    "redaction": _redaction,
    "export": _export,
}
