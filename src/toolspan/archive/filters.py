"""The filter that every question accepts, for Python, the command line and the web API alike.

Start at `Filter.parse`, which turns words such as `since="7d"` into a `Filter`. `parse_since` and `parse_until` turn
the ends of a period into points in time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from msgspec import Struct

from toolspan.archive.clock import now
from toolspan.errors import InvalidFilter
from toolspan.formats.registry import FORMAT_NAMES, format_of_path
from toolspan.types.error_kinds import ERROR_KINDS
from toolspan.types.span import is_within
from toolspan.types.state import STATES
from toolspan.types.tool_kinds import ToolKind

if TYPE_CHECKING:
    from toolspan.reading.rows import CallRow
    from toolspan.types.session import SessionInfo

N = TypeVar("N", bound=str)
TOOL_KINDS: tuple[str, ...] = get_args(ToolKind)


class Filter(Struct, frozen=True, kw_only=True):
    """The calls and sessions that a question is about. Empty values accept everything."""

    tool: tuple[str, ...] = ()
    """Names of tools or globs such as `mcp__*`, regardless of case."""
    kind: tuple[str, ...] = ()
    """Kinds of tools: `shell`, `read`, `edit`, `mcp`, …"""
    program: tuple[str, ...] = ()
    """Names of programs that a command line runs, or globs."""
    state: tuple[str, ...] = ()
    error: tuple[str, ...] = ()
    """Error kinds."""
    project: str | None = None
    """Text in the path or working folder of a session."""
    client: str | None = None
    model: str | None = None
    """Text in the name of a model that the session used."""
    client_version: str | None = None
    """The beginning of a client version that wrote the session."""
    since: datetime | None = None
    until: datetime | None = None
    """The end of the period, which is not part of it."""
    session: str | None = None
    """The beginning of a session id."""
    agent: str | None = None
    """The beginning of a subagent's id."""
    about: str | None = None
    """Words in the title, the prompts or the folder of a session."""
    calls: Mapping[str, frozenset[str]] | None = None
    """The ids of the calls that run `program`, from the whole command lines, each with the files; see
    `resolve_filter`.
    """
    files: Mapping[str, int] | None = None
    """Files of the sessions that match `about`, with their relevance; see `resolve_filter`."""

    @classmethod
    def parse(cls, **words: Any) -> Filter:
        """Return the filter for these words, as users write them. None and empty values are left out.

        `tool`, `kind`, `program`, `state` and `error` take one name or several. `since` and `until` take times such
        as `7d`, `monday`, `2026-11` or a `datetime`; `until` includes the day, week or month that it names.

        Raises:
            InvalidFilter: a word is unknown, or has a value that it does not accept.
        """
        fields: dict[str, Any] = {}
        for name, value in words.items():
            if name not in FILTER_NAMES:
                raise InvalidFilter(f"no filter {name!r}; the filters are {', '.join(FILTER_NAMES)}")
            if value is None or (not isinstance(value, datetime) and not value):
                continue
            fields[name] = _parse_value(name, value)
        check_period(fields.get("since"), fields.get("until"))
        return cls(**fields)

    @property
    def selects_calls(self) -> bool:
        """True if the filter depends on individual calls and not only on files."""
        return self.without_file_filters() != Filter()

    def replace(self, **changes: Any) -> Filter:
        """Return the filter with some values changed."""
        from msgspec.structs import replace

        return replace(self, **changes)

    def without_file_filters(self) -> Filter:
        """Return the filter for calls in files that `accepts_file` has already accepted."""
        return self.replace(
            project=None, session=None, client=None, model=None, client_version=None, about=None, files=None
        )

    def accepts_call(self, row: CallRow, info: SessionInfo | None = None) -> bool:
        """Return whether the filter accepts a call. `info` is about the file that contains it."""
        return (
            (not self.tool or self.accepts_tool(row.tool))
            and (not self.kind or row.kind in self.kind)
            and (not self.program or self._accepts_program(row))
            and (not self.state or row.state in self.state)
            and (not self.error or (row.error_kind or "") in self.error)
            and self.client in (None, row.client)
            and (self.project is None or in_project(self.project, row.file, info.cwd if info else None))
            and (self.session is None or (row.session or "").startswith(self.session))
            and (self.agent is None or (row.agent or "").startswith(self.agent))
            and self.accepts_time(row.requested or row.finished)
            and (info is None or self._accepts_info(row.file, info))
        )

    def accepts_tool(self, tool: str | None) -> bool:
        """Return whether a tool matches one of the names or globs, regardless of case."""
        name = (tool or "").casefold()
        return any(fnmatchcase(name, pattern.casefold()) for pattern in self.tool)

    def accepts_file(self, file: str, info: SessionInfo) -> bool:
        """Return whether the filter accepts a file's session, regardless of its calls."""
        if self.client not in (None, info.client):
            return False
        if self.project is not None and not in_project(self.project, file, info.cwd):
            return False
        if self.session is not None and not any(name.startswith(self.session) for name in info.session_ids):
            return False
        return self._accepts_info(file, info)

    def _accepts_program(self, row: CallRow) -> bool:
        if self.calls is not None:
            return row.file in self.calls.get(row.id, ())
        from toolspan.shell.exit_status import programs_run  # perf: rarely needed

        return row.kind == "shell" and self.accepts_programs(programs_run(row.target or ""))

    def accepts_programs(self, programs: Iterable[str]) -> bool:
        """Return whether one of these programs matches one of the names or globs."""
        return any(fnmatchcase(name, pattern) for name in programs for pattern in self.program)

    def _accepts_info(self, file: str, info: SessionInfo) -> bool:
        if self.model is not None and not any(self.model.casefold() in model.casefold() for model in info.models):
            return False
        if self.client_version is not None and not any(
            version == self.client_version or version.startswith(f"{self.client_version}.") for version in info.versions
        ):
            return False
        if self.about is None or self.files is not None:
            return self.files is None or file in self.files
        text = " ".join(filter(None, (info.title, info.first_prompt, info.cwd))).casefold()
        return all(word in text for word in self.about.casefold().split())

    def accepts_time(self, timestamp: str | None) -> bool:
        """Return whether a timestamp is in the selected period."""
        return is_within(timestamp, self.since, self.until)


FILTER_NAMES = tuple(name for name in Filter.__struct_fields__ if name not in ("calls", "files"))
"""The names of the filters that a user can set."""


def in_project(name: str, file: str, cwd: str | None = None) -> bool:
    """Return whether a transcript belongs to a project, based on its path or working folder."""
    if name in file or (cwd is not None and name in cwd):
        return True
    folder = format_of_path(file).project_folder(name)
    return folder is not None and folder in file


_CHOICES: dict[str, Sequence[str]] = {"kind": TOOL_KINDS, "state": STATES, "error": ERROR_KINDS, "client": FORMAT_NAMES}
_LISTS = ("tool", "kind", "program", "state", "error")


def _parse_value(name: str, value: Any) -> Any:
    if name in ("since", "until"):
        if isinstance(value, datetime):
            return value.astimezone()  # a time without a zone is local
        return (parse_since if name == "since" else parse_until)(str(value))
    values = (value,) if isinstance(value, str) else tuple(value)
    if name in _CHOICES:
        values = tuple(choose_name(text, _CHOICES[name]) for text in values)
    return values if name in _LISTS else values[0]


def choose_name(text: str, names: Iterable[N]) -> N:
    """Return the name that a user wrote.

    Raises:
        InvalidFilter: it is not one of the names. The message suggests the most similar ones.
    """
    known = {str(name): name for name in names}
    if text in known:
        return known[text]
    from difflib import get_close_matches  # perf: rarely needed

    simple = text.casefold().replace(" ", "_").replace("-", "_")
    near = get_close_matches(simple, list(known), n=2, cutoff=0.6)
    raise InvalidFilter(
        f"{text!r} is unknown; " + (f"did you mean {' or '.join(near)}?" if near else f"use one of {', '.join(known)}")
    )


# Dates and ages: `7d`, `yesterday`, `monday`, `last week`, `2026-03`, `2026-03-31`

_AGE_PATTERN = re.compile(r"(\d+)\s*([smhdw])")
_AGE_UNITS = {"s": "seconds", "h": "hours", "d": "days", "w": "weeks"}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTH_PATTERN = re.compile(r"(\d{4})-(\d{2})")
_DAY_PATTERN = re.compile(r"\d{4}-\d{2}-\d{2}")


def parse_since(text: str) -> datetime:
    """Return the point in time at which a period begins. Days, weeks and months begin at local midnight.

    Raises:
        InvalidFilter: the text is not a time.
    """
    name = " ".join(text.casefold().split())
    try:
        time = _parse_age(name) or _parse_named_day(name) or _parse_date(text.strip())
    except OverflowError as error:
        raise InvalidFilter(f"{text!r} is too long ago") from error
    if time is None:
        raise InvalidFilter(
            f"{text!r} is not a time; use an age (7d, 24h), a day (today, yesterday, monday, 2026-03-31), "
            "a month (2026-03), 'last week' or a timestamp"
        )
    return time


def parse_until(text: str) -> datetime:
    """Return the point in time before which a period ends. A day, week or month is included.

    Raises:
        InvalidFilter: the text is not a time.
    """
    start = parse_since(text)
    return _end_of_named_period(start, " ".join(text.casefold().split())) or start


def parse_named_period(text: str) -> tuple[datetime, datetime] | None:
    """Return the beginning and the end of a named day, week or month, or None for any other text."""
    try:
        start = parse_since(text)
    except InvalidFilter:
        return None
    end = _end_of_named_period(start, " ".join(text.casefold().split()))
    return None if end is None else (start, end)


def check_period(since: datetime | None, until: datetime | None) -> None:
    """Check that a period is not empty.

    Raises:
        InvalidFilter: it ends before it begins.
    """
    if since is not None and until is not None and until <= since:
        start, stop = (f"{time.astimezone():%Y-%m-%d %H:%M}" for time in (since, until))
        raise InvalidFilter(f"the period is empty: its end ({stop}) is not later than its beginning ({start})")


def _end_of_named_period(start: datetime, name: str) -> datetime | None:
    day = start.astimezone()
    if _MONTH_PATTERN.fullmatch(name) or name.endswith(" month"):
        return _local_midnight((day.replace(day=1) + timedelta(days=32)).replace(day=1))
    if name.endswith(" week"):
        return _local_midnight(day + timedelta(days=7))
    if name in ("today", "yesterday", *_WEEKDAYS) or _DAY_PATTERN.fullmatch(name):
        return _local_midnight(day + timedelta(days=1))
    return None


def _parse_age(name: str) -> datetime | None:
    age = _AGE_PATTERN.fullmatch(name)
    if age is None:
        return None
    if age[2] == "m":
        number = int(age[1])
        raise InvalidFilter(
            f"{name!r} could be minutes or months; write {number * 60}s for minutes or {number * 30}d for months"
        )
    return now() - timedelta(**{_AGE_UNITS[age[2]]: int(age[1])})


def _parse_named_day(name: str) -> datetime | None:
    """Return the local midnight at which a named day, week or month begins, or None for any other name.

    The name of a weekday refers to the most recent one, which may be today.
    """
    today = now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
    monday = today.weekday()
    days_ago = {
        "today": 0, "yesterday": 1, "this week": monday, "last week": monday + 7,
        **{day: (monday - number) % 7 for number, day in enumerate(_WEEKDAYS)},
    }  # fmt: skip
    if name in days_ago:
        return _local_midnight(today - timedelta(days=days_ago[name]))
    if name in ("this month", "last month"):
        first = today.replace(day=1)
        return _local_midnight(first if name == "this month" else (first - timedelta(days=1)).replace(day=1))
    return None


def _parse_date(text: str) -> datetime | None:
    if month := _MONTH_PATTERN.fullmatch(text):
        text = f"{month[1]}-{month[2]}-01"
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC)  # a time without a zone is local
    except ValueError:
        return None


def _local_midnight(time: datetime) -> datetime:
    """Return the midnight of a day in the zone's offset on that day."""
    return time.replace(tzinfo=None).astimezone()
