"""The filter options of the commands that read transcripts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import wraps
from typing import Any, TypeVar

import click

from toolspan.archive.filters import FILTER_NAMES, TOOL_KINDS, Filter, choose_name, parse_since, parse_until
from toolspan.cli.output import combine_options, utc_option
from toolspan.errors import InvalidFilter
from toolspan.formats.registry import FORMAT_NAMES
from toolspan.types.error_kinds import ERROR_KINDS
from toolspan.types.state import STATES

R = TypeVar("R")


class TimeType(click.ParamType[datetime]):
    """The type of `--since` and `--until`."""

    name = "time"

    def __init__(self, parse: Callable[[str], datetime]) -> None:
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Return the point in time."""
        try:
            return value if isinstance(value, datetime) else self._parse(str(value))
        except InvalidFilter as error:
            self.fail(str(error), param, ctx)


SINCE_TYPE = TimeType(parse_since)
UNTIL_TYPE = TimeType(parse_until)


class NameChoice(click.Choice):  # type: ignore[type-arg]
    """A choice that suggests the most similar name for an unknown one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the chosen name."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            try:
                choose_name(str(value), [str(choice) for choice in self.choices])
            except InvalidFilter as problem:
                if "did you mean" in str(problem):
                    self.fail(str(problem), param, ctx)
            raise error from None


_FILTERS: dict[str, Callable[..., Any]] = {
    "tool": click.option("--tool", multiple=True, help="Only calls of this tool; globs such as 'mcp__*' (repeatable)."),
    "kind": click.option("--kind", multiple=True, type=NameChoice(TOOL_KINDS), metavar="KIND",
                 help=f"Only calls of tools of this kind (repeatable): {', '.join(TOOL_KINDS)}."),
    "program": click.option("--program", multiple=True, metavar="NAME",
                 help="Only command lines that run this program, such as git; globs (repeatable)."),
    "state": click.option("--state", multiple=True, type=NameChoice(STATES), metavar="STATE",
                 help="Only calls in this state (repeatable)."),
    "error": click.option("--error", multiple=True, type=NameChoice(ERROR_KINDS), metavar="KIND",
                 help="Only calls with this error kind (repeatable)."),
    "project": click.option("--project", help="Only sessions whose file or working folder contains this text."),
    "client": click.option("--client", type=click.Choice(FORMAT_NAMES),
                 help="Only sessions of this client."),
    "model": click.option("--model", help="Only sessions with a model whose name contains this text."),
    "client-version": click.option("--client-version", metavar="VERSION",
                 help="Only sessions of this client version, such as 2.1."),
    "since": click.option("--since", type=SINCE_TYPE, metavar="TIME",
                 help="Only from this time on: 7d, 24h, today, monday, 2026-11, 2026-11-01."),
    "until": click.option("--until", type=UNTIL_TYPE, metavar="TIME",
                 help="Only up to this time; a day, week or month is included."),
    "session": click.option("--session", help="Only the session whose id begins with this."),
    "agent": click.option("--agent", help="Only the subagent whose id begins with this."),
    "about": click.option("--about", help="Only sessions whose title, prompts or folder contain these words."),
}  # fmt: skip
_CALL_FILTERS = ("tool", "kind", "program", "state", "error", "agent")


def filter_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the filter options to a command, which receives them as `call_filter`."""
    return _add_options(command, _FILTERS.values())


def session_filter_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the filter options that select sessions, and not calls, to a command."""
    return _add_options(command, [option for name, option in _FILTERS.items() if name not in _CALL_FILTERS])


def _add_options(command: Callable[..., R], options: Iterable[Callable[..., Any]]) -> Callable[..., R]:

    @wraps(command)
    def with_filter(*args: Any, **values: Any) -> R:
        fields = {name: values.pop(name) for name in FILTER_NAMES if name in values}
        return command(*args, call_filter=Filter.parse(**fields), **values)

    decorated: Callable[..., R] = combine_options(*options, utc_option)(with_filter)
    return decorated
