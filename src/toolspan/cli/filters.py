"""The filter options of the commands that read transcripts, and the calls and files that they accept."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from fnmatch import fnmatchcase
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from toolspan.cli.dates import parse_time, parse_until, resolve_until
from toolspan.cli.output import combine_options, utc_option
from toolspan.formats.claude.paths import project_name
from toolspan.formats.registry import FORMAT_NAMES
from toolspan.types.error_kinds import ERROR_KINDS
from toolspan.types.span import is_within
from toolspan.types.state import STATES

if TYPE_CHECKING:
    from toolspan.reading.rows import CallRow
    from toolspan.types.session import SessionInfo

R = TypeVar("R")


class CallFilter(NamedTuple):
    """The filter options of a command. None and empty values accept everything."""

    tool: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    error: tuple[str, ...] = ()
    project: str | None = None
    dialect: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    session: str | None = None
    agent: str | None = None

    @property
    def selects_calls(self) -> bool:
        """True if the filter depends on individual calls and not only on files."""
        return self.without_file_filters() != CallFilter()

    def without_file_filters(self) -> CallFilter:
        """Return the filter for calls in files that `accepts_file` has already accepted."""
        return self._replace(project=None, session=None, dialect=None)

    def accepts_call(self, row: CallRow, cwd: str | None = None) -> bool:
        """Return whether the filter accepts a call. `cwd` is its session's working folder."""
        return (
            (not self.tool or self.accepts_tool(row.tool))
            and (not self.state or row.state in self.state)
            and (not self.error or (row.error_kind or "") in self.error)
            and self.dialect in (None, row.dialect)
            and (self.project is None or in_project(self.project, row.file, cwd))
            and (self.session is None or (row.session or "").startswith(self.session))
            and (self.agent is None or (row.agent or "").startswith(self.agent))
            and self.accepts_time(row.requested or row.finished)
        )

    def accepts_tool(self, tool: str | None) -> bool:
        """Return whether a tool matches one of the names or globs, regardless of case."""
        name = (tool or "").casefold()
        return any(fnmatchcase(name, pattern.casefold()) for pattern in self.tool)

    def accepts_file(self, file: str, info: SessionInfo) -> bool:
        """Return whether the filter accepts a file's session, regardless of its calls."""
        if self.dialect not in (None, info.dialect):
            return False
        if self.project is not None and not in_project(self.project, file, info.cwd):
            return False
        prefix = self.session
        return prefix is None or any(session_id.startswith(prefix) for session_id in info.session_ids)

    def accepts_time(self, timestamp: str | None) -> bool:
        """Return whether a timestamp is in the selected period."""
        return is_within(timestamp, self.since, self.until)


def in_project(name: str, file: str, cwd: str | None = None) -> bool:
    """Return whether a transcript belongs to a project, based on its path or working folder."""
    return name in file or project_name(name) in file or (cwd is not None and name in cwd)


class NameChoice(click.Choice):  # type: ignore[type-arg]
    """A choice that suggests the most similar name for an unknown one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the chosen name."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            from difflib import get_close_matches

            name = str(value).casefold().replace(" ", "_").replace("-", "_")
            if near := get_close_matches(name, [str(choice) for choice in self.choices], n=2, cutoff=0.6):
                self.fail(f"{value!r} is unknown; did you mean {' or '.join(near)}?", param, ctx)
            raise


_FILTER_OPTIONS = (
    click.option("--tool", multiple=True, help="Only calls of this tool; globs such as 'mcp__*' (repeatable)."),
    click.option("--state", multiple=True, type=NameChoice(STATES), metavar="STATE",
                 help="Only calls in this state (repeatable)."),
    click.option("--error", multiple=True, type=NameChoice(ERROR_KINDS), metavar="KIND",
                 help="Only calls with this error kind (repeatable)."),
    click.option("--project", help="Only sessions whose file or working folder contains this text."),
    click.option("--dialect", type=click.Choice(FORMAT_NAMES),
                 help="Only transcripts of this client."),
    click.option("--since", callback=parse_time, metavar="TIME",
                 help="Only from this time on: 7d, 24h, today, monday, 2026-11, 2026-11-01."),
    click.option("--until", callback=parse_until, metavar="TIME",
                 help="Only before this time; if --since names the same day or month, to its end."),
    click.option("--session", help="Only the session whose id begins with this."),
    click.option("--agent", help="Only the subagent whose id begins with this."),
    utc_option,
)  # fmt: skip


def filter_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the filter options to a command, which receives them as `call_filter`."""

    @wraps(command)
    def with_filter(*args: Any, **values: Any) -> R:
        fields = {name: values.pop(name) for name in CallFilter._fields}
        fields["until"] = resolve_until(fields["since"], fields["until"])
        return command(*args, call_filter=CallFilter(**fields), **values)

    return combine_options(*_FILTER_OPTIONS)(with_filter)
