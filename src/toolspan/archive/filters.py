"""The filter that every question accepts, for Python, the command line and the web API alike.

Start at `Filter.parse`, which turns words such as `since="7d"` into a `Filter`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, get_args

from msgspec import Struct

from toolspan.archive.dates import check_period, parse_since, parse_until
from toolspan.errors import InvalidFilter
from toolspan.formats.claude.paths import project_name
from toolspan.formats.registry import FORMAT_NAMES
from toolspan.types.error_kinds import ERROR_KINDS
from toolspan.types.span import is_within
from toolspan.types.state import STATES
from toolspan.types.tool_kinds import ToolKind

if TYPE_CHECKING:
    from toolspan.reading.rows import CallRow
    from toolspan.types.session import SessionInfo

TOOL_KINDS: tuple[str, ...] = get_args(ToolKind)


class Filter(Struct, frozen=True, kw_only=True):
    """The calls and sessions that a question is about. Empty values accept everything."""

    tool: tuple[str, ...] = ()
    """Names of tools or globs such as `mcp__*`, regardless of case."""
    kind: tuple[str, ...] = ()
    """Kinds of tools: `shell`, `read`, `edit`, `mcp`, …"""
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
    """Words in the title, the first prompt or the folder of a session."""

    @classmethod
    def parse(cls, **words: Any) -> Filter:
        """Return the filter for these words, as users write them. None and empty values are left out.

        `tool`, `kind`, `state` and `error` take one name or several. `since` and `until` take times such as `7d`,
        `monday`, `2026-11` or a `datetime`; `until` includes the day, week or month that it names.

        Raises:
            InvalidFilter: a word is unknown, or has a value that it does not accept.
        """
        fields: dict[str, Any] = {}
        for name, value in words.items():
            if name not in cls.__struct_fields__:
                raise InvalidFilter(f"no filter {name!r}; the filters are {', '.join(cls.__struct_fields__)}")
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
        return self.replace(project=None, session=None, client=None, model=None, client_version=None, about=None)

    def accepts_call(self, row: CallRow, info: SessionInfo | None = None) -> bool:
        """Return whether the filter accepts a call. `info` is about the file that contains it."""
        return (
            (not self.tool or self.accepts_tool(row.tool))
            and (not self.kind or row.kind in self.kind)
            and (not self.state or row.state in self.state)
            and (not self.error or (row.error_kind or "") in self.error)
            and self.client in (None, row.dialect)
            and (self.project is None or in_project(self.project, row.file, info.cwd if info else None))
            and (self.session is None or (row.session or "").startswith(self.session))
            and (self.agent is None or (row.agent or "").startswith(self.agent))
            and self.accepts_time(row.requested or row.finished)
            and (info is None or self._accepts_info(info))
        )

    def accepts_tool(self, tool: str | None) -> bool:
        """Return whether a tool matches one of the names or globs, regardless of case."""
        name = (tool or "").casefold()
        return any(fnmatchcase(name, pattern.casefold()) for pattern in self.tool)

    def accepts_file(self, file: str, info: SessionInfo) -> bool:
        """Return whether the filter accepts a file's session, regardless of its calls."""
        if self.client not in (None, info.dialect):
            return False
        if self.project is not None and not in_project(self.project, file, info.cwd):
            return False
        if self.session is not None and not any(name.startswith(self.session) for name in info.session_ids):
            return False
        return self._accepts_info(info)

    def _accepts_info(self, info: SessionInfo) -> bool:
        if self.model is not None and not any(self.model.casefold() in model.casefold() for model in info.models):
            return False
        if self.client_version is not None and not any(
            version == self.client_version or version.startswith(f"{self.client_version}.") for version in info.versions
        ):
            return False
        if self.about is None:
            return True
        text = " ".join(filter(None, (info.title, info.first_prompt, info.cwd))).casefold()
        return all(word in text for word in self.about.casefold().split())

    def accepts_time(self, timestamp: str | None) -> bool:
        """Return whether a timestamp is in the selected period."""
        return is_within(timestamp, self.since, self.until)


def in_project(name: str, file: str, cwd: str | None = None) -> bool:
    """Return whether a transcript belongs to a project, based on its path or working folder."""
    return name in file or project_name(name) in file or (cwd is not None and name in cwd)


_CHOICES: dict[str, Sequence[str]] = {"kind": TOOL_KINDS, "state": STATES, "error": ERROR_KINDS, "client": FORMAT_NAMES}
_LISTS = ("tool", "kind", "state", "error")


def _parse_value(name: str, value: Any) -> Any:
    if name in ("since", "until"):
        if isinstance(value, datetime):
            return value.astimezone()  # a time without a zone is local
        return (parse_since if name == "since" else parse_until)(str(value))
    values = (value,) if isinstance(value, str) else tuple(value)
    if name in _CHOICES:
        values = tuple(choose_name(text, _CHOICES[name]) for text in values)
    return values if name in _LISTS else values[0]


def choose_name(text: str, names: Iterable[str]) -> str:
    """Return the name that a user wrote.

    Raises:
        InvalidFilter: it is not one of the names. The message suggests the most similar ones.
    """
    known = [str(name) for name in names]
    if text in known:
        return text
    from difflib import get_close_matches  # perf: rarely needed

    simple = text.casefold().replace(" ", "_").replace("-", "_")
    near = get_close_matches(simple, known, n=2, cutoff=0.6)
    raise InvalidFilter(
        f"{text!r} is unknown; " + (f"did you mean {' or '.join(near)}?" if near else f"use one of {', '.join(known)}")
    )
