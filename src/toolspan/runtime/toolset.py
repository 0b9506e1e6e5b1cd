"""A collection of tools: found by name or alias, joined, filtered, prefixed.

Toolsets are values: each operation gives a new one. Names are unique, aliases give way: a tool's
own name wins over another tool's alias.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from toolspan.errors import BadTool
from toolspan.runtime.tool import Tool


class Toolset:
    """Tools in the order they were given."""

    __slots__ = ("_by_name", "_tools")

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        """Collect tools.

        Raises:
            BadTool: two of them have the same name, or the same alias.
        """
        self._tools = tuple(tools)
        for tool in self._tools:
            if not isinstance(tool, Tool):
                raise BadTool(f"{tool!r} is no tool; put @tool on a function to make it one")
        self._by_name = _index_by_name(self._tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name if isinstance(name, str) else name in self._tools

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Toolset) and self._tools == other._tools

    def __hash__(self) -> int:
        return hash(self.names)

    def __repr__(self) -> str:
        return f"Toolset({', '.join(self.names)})"

    def __add__(self, other: Iterable[Tool]) -> Toolset:
        return self.combined(other)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools, without aliases."""
        return tuple(tool.name for tool in self._tools)

    def find(self, name: str) -> Tool | None:
        """The tool with this name, else the one with this alias."""
        return self._by_name.get(name)

    def find_other_case(self, name: str) -> str | None:
        """The name of a tool that differs from this one only in the case of letters."""
        lowered = name.lower()
        return next((tool_name for tool_name in self.names if tool_name != name and tool_name.lower() == lowered), None)

    def combined(self, other: Iterable[Tool]) -> Toolset:
        """These tools and the others after them.

        Raises:
            BadTool: both have a tool of the same name.
        """
        return Toolset((*self._tools, *other))

    def filtered(self, keep: Callable[[Tool], bool]) -> Toolset:
        """The tools for which `keep` says yes."""
        return Toolset(tool for tool in self._tools if keep(tool))

    def prefixed(self, prefix: str) -> Toolset:
        """The same tools under names and aliases that begin with `prefix`."""
        return Toolset(
            replace(tool, name=prefix + tool.name, aliases=tuple(prefix + alias for alias in tool.aliases))
            for tool in self._tools
        )

    def schemas(self) -> list[dict[str, object]]:
        """The tools that are enabled, as a Messages API request offers them."""
        return [tool.schema() for tool in self._tools if tool.enabled]


def _index_by_name(tools: tuple[Tool, ...]) -> dict[str, Tool]:
    named: dict[str, Tool] = {}
    for tool in tools:
        if tool.name in named:
            raise BadTool(f"Two tools are called {tool.name!r}")
        named[tool.name] = tool
    aliased: dict[str, Tool] = {}
    for tool in tools:
        for alias in tool.aliases:
            if aliased.setdefault(alias, tool) is not tool:
                raise BadTool(f"{aliased[alias].name!r} and {tool.name!r} have the same alias {alias!r}")
    return {**aliased, **named}
