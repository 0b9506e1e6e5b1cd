"""The `hooks` block of a settings file, as values.

In: decoded JSON. Out: groups of handlers by point. A handler that cannot be understood is an error
that names its place: a guard that is left out in silence guards nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct, field

from toolspan.errors import ToolspanError

_T = TypeVar("_T")

OnFailure = Literal["continue", "block"]


class SettingsError(ToolspanError):
    """A value in a settings file is not what it has to be; the message names file and key."""


class _BaseSpec(Struct, frozen=True, kw_only=True, rename="camel", tag_field="type"):
    if_: str | None = field(default=None, name="if")
    """A permission rule; the handler is run only for calls it speaks of."""
    timeout: float | None = None
    """Seconds."""
    status_message: str | None = None
    once: bool = False
    on_failure: OnFailure = "continue"
    """What a handler that cannot be run, or does not end in time, does to what it guards."""


class CommandSpec(_BaseSpec, frozen=True, kw_only=True, tag="command"):
    """A command line, or a program with its arguments."""

    command: str
    args: tuple[str, ...] | None = None
    """With them, even none, no shell is between."""
    async_: bool = field(default=False, name="async")
    async_rewake: bool = False
    shell: str | None = None


class HttpSpec(_BaseSpec, frozen=True, kw_only=True, tag="http"):
    """An address that the input is posted to."""

    url: str
    headers: dict[str, str] = {}
    allowed_env_vars: tuple[str, ...] = ()


class McpSpec(_BaseSpec, frozen=True, kw_only=True, tag="mcp_tool"):
    """A tool of a connected MCP server."""

    server: str
    tool: str
    input: dict[str, object] = {}


class PromptSpec(_BaseSpec, frozen=True, kw_only=True, tag="prompt"):
    """A question to a model."""

    prompt: str
    model: str | None = None
    continue_on_block: bool = False


class AgentSpec(_BaseSpec, frozen=True, kw_only=True, tag="agent"):
    """A question to a model that has tools."""

    prompt: str
    model: str | None = None


HandlerSpec = CommandSpec | HttpSpec | McpSpec | PromptSpec | AgentSpec


class HandlerGroup(Struct, frozen=True):
    """Handlers that share a matcher."""

    hooks: tuple[HandlerSpec, ...]
    matcher: str = ""


def parse_hooks(block: object, where: str) -> dict[str, tuple[HandlerGroup, ...]]:
    """The groups of each point; `where` is the file, for messages.

    Raises:
        BadSetting: something in it is no handler.
    """
    if not isinstance(block, Mapping):
        raise SettingsError(f"{where}: `hooks` is an object of lists, not {json_type_name(block)}")
    return {str(point): _parse_groups(point, groups, where) for point, groups in block.items()}


def _parse_groups(point: object, groups: object, where: str) -> tuple[HandlerGroup, ...]:
    key = f"hooks.{point}"
    if not isinstance(groups, list):
        raise SettingsError(f"{where}: `{key}` is a list of groups, not {json_type_name(groups)}")
    return tuple(convert_value(group, HandlerGroup, where, f"{key}[{n}]") for n, group in enumerate(groups))


def convert_value(value: object, kind: type[_T], where: str, key: str) -> _T:
    """A decoded value as this type.

    Raises:
        BadSetting: it is none; the message names the file and the key.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        raise SettingsError(f"{where}: `{key}{path.rstrip('`')}`: {message}") from error


def object_at(mapping: Mapping[str, object], key: str, where: object) -> dict[str, object]:
    """The object at a key, for somebody to change; an empty one where there is none.

    Raises:
        BadSetting: there is something else.
    """
    block = mapping.get(key, {})
    if not isinstance(block, Mapping):
        raise SettingsError(f"{where}: `{key}` is an object, not {json_type_name(block)}")
    return dict(block)


def json_type_name(value: object) -> str:
    """What a JSON value is called."""
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a boolean"}
    if value is None:
        return "null"
    return kinds.get(type(value), "a number")
