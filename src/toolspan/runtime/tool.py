"""Tools: `Tool` itself, `@tool`, which makes a tool from a function, and `Toolset`, a collection of tools.

Tools are values; the state of a session is in the `ToolContext`.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, ParamSpec, TypedDict, TypeVar, Unpack, overload

import anyio.to_thread
import msgspec
from msgspec import Struct

from toolspan.errors import BadTool
from toolspan.runtime.context import CallContext, ToolContext, Workspace
from toolspan.runtime.schema.derive import derive_schema
from toolspan.runtime.schema.issues import Parse
from toolspan.types.error_kinds import ErrorKind
from toolspan.types.events import Content
from toolspan.types.tool_kinds import ToolKind, tool_kind

OUTPUT_LIMIT = 50_000
GRACE = 2.0
"""The seconds that user code has to stop after being cancelled before it is abandoned."""
PROCESS_GRACE = 8.0
"""The same for code that may have to terminate processes, which takes up to seven seconds."""
Input = Mapping[str, object]
"""The decoded input of a call."""


class Output(Struct, frozen=True):
    """The result of a tool that succeeded."""

    content: Content = ""
    """The text or blocks for the model. Empty text is replaced with a placeholder sentence."""
    structured: object | None = None
    """The result for programs: any JSON value."""
    flag: bool | None = None
    """False to record `is_error: false`; None to omit it."""
    modify: Callable[[CallContext], CallContext] | None = None
    """A function that returns the context for later calls."""
    companions: tuple[Content, ...] = ()
    """Further messages for the model."""
    structured_output: object | None = None
    """An answer that follows the host's schema, emitted separately."""
    background_task: str | None = None
    """The id of the task that continues after the call, if any."""
    agent: str | None = None
    """The id of the subagent that the call started, if any."""
    exit_code: int | None = None
    persisted: Path | None = None
    """The file with the full output, if the content is only its beginning."""
    beside: Mapping[str, object] | None = None
    """Additional keys for the recorded result."""


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """The result of a tool that failed, returned instead of raised."""

    text: str
    kind: ErrorKind | None = None
    timed_out: bool = False
    exit_code: int | None = None
    structured: object | None = None
    """The structured result; None to record the error message, as clients do."""
    modify: Callable[[CallContext], CallContext] | None = None
    beside: Mapping[str, object] = field(default_factory=dict)
    """Additional keys for the recorded result."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal by a tool's own check, returned by `validate`."""

    text: str
    kind: ErrorKind | None = None
    structured: str | None = None
    """The structured record; None to record `Error: ` and the message."""
    wrapped: bool = True
    """True to wrap the message in error tags. Some clients omit them for some refusals."""


RunFunction = Callable[[Any, ToolContext], Awaitable[Output | ToolFailure]]
ValidateFunction = Callable[[Any, ToolContext], Awaitable[Refusal | None]]
Interrupt = Literal["cancel", "block"]


@dataclass(frozen=True, slots=True)
class ToolSubject:
    """The input field that a call acts on. Permission rules match it, and replay maps it."""

    kind: Literal["command", "file", "host", "agent", "skill", "text"]
    field: str
    pattern: str | None = None
    """The field with a pattern for file names, which may begin with a folder."""


@dataclass(frozen=True, slots=True)
class ToolHints:
    """The title of a tool and its worst possible effect, as announced by an MCP server."""

    title: str
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    """True if the tool may access other machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A named function with a schema and the properties that the runner needs."""

    name: str
    description: str
    input_schema: Mapping[str, object]
    parse: Parse
    run: RunFunction
    concurrent: bool | Callable[[Any], bool] = False
    """True if calls may overlap with other such calls, or a function that decides this for a parsed input.

    If the function raises, the call does not overlap.
    """
    validate: ValidateFunction | None = None
    aliases: tuple[str, ...] = ()
    read_only: bool = False
    """True if the tool changes nothing. This is a hint for permissions."""
    only_reads: Callable[[Any, Workspace], bool] | None = None
    """A function that returns whether a call changes nothing, for tools with both kinds of calls."""
    output_limit: int | None = OUTPUT_LIMIT
    """The maximum number of characters for the model. Longer output is written to a file. None means no limit."""
    timeout: float | None = None
    """The seconds after which the tool is cancelled."""
    grace: float = PROCESS_GRACE
    """The seconds that the tool has to stop after being cancelled before its call ends without it."""
    interrupt: Interrupt = "cancel"
    paths: Callable[[Any], frozenset[str]] | None = None
    """A function that returns the files that a call accesses, for runners that order calls by path."""
    records_intent: bool = False
    """True if the tool writes to the intent log itself, once it knows which change it will make."""
    idempotent: bool = False
    """True if repeating a call does no harm, so that it may be retried."""
    approval_prompt: str | None = None
    """A question to ask before each call, regardless of rules and modes."""
    render_result: Callable[[Any], Content] | None = None
    """A function that returns the content for a structured result, used when a hook replaces the result."""
    kind: ToolKind = "other"
    """What calls do. Permissions, error kinds and sibling policies depend on it, and not on the name."""
    subject: ToolSubject | None = None
    """The subject. If None, rules can match only the tool as a whole, and a replay has no paths to map."""
    reports_denied_files: bool = False
    """True if the tool itself refuses a file that rules deny, like any other file that it cannot use. Otherwise the
    permission check refuses the call.
    """
    only_in_mode: str | None = None
    """The permission mode outside of which calls are refused; None for all modes."""
    sandboxed: bool = False
    """True if the tool runs its command in the session's sandbox, if there is one."""
    needs_user: bool = False
    """True if a call is a conversation with the user, so that subagents do not get the tool."""
    finds_deferred: bool = False
    """True if the tool finds tools whose schemas the model has not received."""
    slow_after: float | None = None
    """The seconds after which a call is reported as slow; None means never."""
    hints: ToolHints | None = None
    """The hints; None to derive them from `read_only` and `idempotent`."""
    output_schema: Mapping[str, object] | None = None
    """The schema of the keys that the structured result always has. It may have more."""
    replayable: bool = False
    """True if a recorded call can run again in a copy of the project without network, model or user."""
    enabled: bool = True
    extra: Mapping[str, object] = field(default_factory=dict)

    def may_overlap(self, value: object) -> bool:
        """Return whether a call with this input may overlap with others."""
        if isinstance(self.concurrent, bool):
            return self.concurrent
        try:
            return bool(self.concurrent(value))
        except Exception:  # noqa: BLE001 - user code; any fault means no
            return False

    def schema(self) -> dict[str, object]:
        """Return the tool's definition for a Messages API request."""
        return {"name": self.name, "description": self.description, "input_schema": dict(self.input_schema)}


# Tools from functions

P = ParamSpec("P")
R = TypeVar("R")

Arguments = Mapping[str, object]
"""The parsed input: the keyword arguments of the function, without the context."""
Objection = Refusal | str | None
ValidateInput = Callable[[Arguments, ToolContext], Objection | Awaitable[Objection]]
"""A function that checks a valid input. If it returns a message or a refusal, the call does not run.
It runs before the call is authorized, so it must not change anything, and it must not block.
"""

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


class ToolOptions(TypedDict, total=False):
    """The options of `@tool`; see `Tool` for their meaning."""

    name: str
    """The name; defaults to the function's name."""
    description: str
    """The description; defaults to the first paragraph of the docstring."""
    aliases: tuple[str, ...]
    concurrent: bool | Callable[[Arguments], bool]
    validate_input: ValidateInput
    output_limit: int | None
    timeout: float
    grace: float
    read_only: bool
    idempotent: bool
    kind: ToolKind
    """The kind; defaults to that of the built-in tool with the same name, so that its rules apply, or to `other`."""
    subject: ToolSubject
    interrupt: Interrupt
    paths: Callable[[Arguments], frozenset[str]]
    structured_output: bool
    """True to emit the return value as an answer that follows the host's schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTool(Tool, Generic[P, R]):
    """A tool made from a function. It can still be called directly."""

    function: Callable[P, R]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function directly, without the runner."""
        return self.function(*args, **kwargs)


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None, /, **options: Unpack[ToolOptions]
) -> FunctionTool[P, R] | Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """Make a tool from a function, as `@tool` or `@tool(...)`.

        @tool(concurrent=True)
        def changelog(version: str, ctx: ToolContext) -> str:
            '''Return the changelog section of one version.'''

    The schema comes from the signature, and the description from the docstring. The runner supplies a parameter
    annotated with `ToolContext`. A sync function runs in a worker thread.

    Raises:
        BadTool: the function cannot be offered to a model.
    """
    # Annotations that are strings may refer to local names of the code that defines the function.
    frame = inspect.currentframe()
    names = frame.f_back.f_locals if frame is not None and frame.f_back is not None else {}
    if function is not None:
        return _define_tool(function, options, names)
    return lambda decorated: _define_tool(decorated, options, names)


def _define_tool(function: Callable[P, R], options: ToolOptions, names: Mapping[str, object]) -> FunctionTool[P, R]:
    name = options.get("name", str(getattr(function, "__name__", "")))
    _check_options(name, options)
    _check_function(name, function, options)
    derived = derive_schema(function, context=ToolContext, names=names)
    return FunctionTool(
        name=name,
        description=options.get("description", derived.description),
        input_schema=derived.input_schema,
        parse=derived.parse,
        run=_make_run(name, function, derived.context, structured=options.get("structured_output", False)),
        concurrent=options.get("concurrent", False),
        validate=_make_validate(options.get("validate_input")),
        aliases=tuple(options.get("aliases", ())),
        read_only=options.get("read_only", False),
        output_limit=options.get("output_limit", OUTPUT_LIMIT),
        timeout=options.get("timeout"),
        grace=options.get("grace", GRACE),
        interrupt=options.get("interrupt", "cancel"),
        paths=options.get("paths"),
        idempotent=options.get("idempotent", False),
        kind=options.get("kind") or tool_kind(name),
        subject=options.get("subject"),
        function=function,
    )


def _check_options(name: str, options: ToolOptions) -> None:
    for option in options.keys() - ToolOptions.__annotations__.keys():
        raise BadTool(f"{name}: @tool has no option {option!r}")
    if isinstance(options.get("aliases"), str):
        raise BadTool(f"{name}: aliases must be a tuple of names, such as ({options['aliases']!r},)")
    for seconds in (options.get("timeout", 1.0), options.get("grace", GRACE)):
        if not isinstance(seconds, int | float):
            raise BadTool(f"{name}: timeout and grace must be numbers of seconds, not {seconds!r}")
    if not options.get("grace", GRACE) >= 0:
        raise BadTool(f"{name} has a grace of {options['grace']} seconds; it must not be negative")
    if options.get("interrupt", "cancel") not in ("cancel", "block"):
        raise BadTool(f"{name}: interrupt must be `cancel` or `block`, not {options['interrupt']!r}")
    for tool_name in (name, *options.get("aliases", ())):
        if not _TOOL_NAME.fullmatch(tool_name):
            raise BadTool(f"Invalid tool name {tool_name!r}; use 1 to 128 characters from a-z, A-Z, 0-9, _ and -")


def _check_function(name: str, function: Callable[..., object], options: ToolOptions) -> None:
    if not inspect.isroutine(function):
        raise BadTool(f"{name} is not a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadTool(f"{name} is a generator; a tool must return its result")
    timeout = options.get("timeout")
    if timeout is not None and timeout <= 0:
        raise BadTool(f"{name} has a timeout of {timeout} seconds; it must be positive")
    if timeout is not None and not inspect.iscoroutinefunction(function):
        raise BadTool(f"{name} is a sync function, which cannot be interrupted, so it cannot have a timeout")
    returned = getattr(function, "__annotations__", {}).get("return")
    if returned in (bytes, bytearray, memoryview, "bytes", "bytearray", "memoryview"):
        raise BadTool(f"{name} returns bytes; return text, or a list of content blocks")


def _make_run(name: str, function: Callable[..., Any], slot: str | None, *, structured: bool) -> RunFunction:
    """Return a function that calls `function` with the parsed input, and the context in the parameter `slot`."""
    is_async = inspect.iscoroutinefunction(function)

    async def run(value: Arguments, ctx: ToolContext) -> Output | ToolFailure:
        if slot is not None:
            value = {**value, slot: ctx}
        if is_async:
            returned = await function(**value)
        else:  # a thread cannot be interrupted; if the call is cancelled, its return value is discarded
            returned = await anyio.to_thread.run_sync(partial(function, **value), abandon_on_cancel=True)
            returned = await returned if isinstance(returned, Awaitable) else returned
        return normalize_return_value(name, returned, structured=structured)

    return run


def _make_validate(validate_input: ValidateInput | None) -> ValidateFunction | None:
    if validate_input is None:
        return None

    async def validate(value: Arguments, ctx: ToolContext) -> Refusal | None:
        result = validate_input(value, ctx)
        objection = await result if isinstance(result, Awaitable) else result
        return Refusal(objection) if isinstance(objection, str) else objection

    return validate


_CONTENT_BLOCK_TYPES = frozenset({
    "audio", "document", "image", "resource", "resource_link", "search_result", "text",
    "tool_reference",
})  # fmt: skip


def normalize_return_value(name: str, value: object, *, structured: bool = False) -> Output | ToolFailure:
    """Convert the return value of a tool's function to an output.

    Raises:
        BadTool: the value cannot be converted to content for a model.
    """
    match value:
        case str():
            return Output(value, structured_output=value if structured else None)
        case None:
            return Output()
        case Output() | ToolFailure():
            return value
        case bytes() | bytearray() | memoryview():
            raise BadTool(f"{name} returned bytes; return text, or a list of content blocks")
        case _:
            pass
    try:
        plain = msgspec.to_builtins(value, enc_hook=_encode_other, str_keys=True)
        is_content = (
            isinstance(plain, list)
            and plain
            and all(
                isinstance(block, dict) and block.get("type") in _CONTENT_BLOCK_TYPES and len(block) > 1
                for block in plain
            )
        )
        content: Content = plain if is_content else msgspec.json.encode(plain).decode()
    except (TypeError, ValueError, NotImplementedError, RecursionError) as error:
        raise BadTool(f"{name} returned a value that JSON cannot represent: {error}") from error
    return Output(content, structured=plain, structured_output=plain if structured else None)


def _encode_other(value: object) -> object:
    """Convert values that msgspec cannot encode: pydantic models, paths, and mappings that are not dicts."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise NotImplementedError(f"a {type(value).__name__}")


# Collections of tools


class Toolset:
    """An ordered collection of tools with unique names. A name takes precedence over another tool's alias."""

    __slots__ = ("_by_name", "_tools")

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        """Create a toolset.

        Raises:
            BadTool: two tools have the same name, or the same alias.
        """
        self._tools = tuple(tools)
        named: dict[str, Tool] = {}
        aliased: dict[str, Tool] = {}
        for tool in self._tools:
            if not isinstance(tool, Tool):
                raise BadTool(f"{tool!r} is not a tool; put @tool on a function to make it one")
            if tool.name in named:
                raise BadTool(f"Two tools are called {tool.name!r}")
            named[tool.name] = tool
            for alias in tool.aliases:
                if aliased.setdefault(alias, tool) is not tool:
                    raise BadTool(f"{aliased[alias].name!r} and {tool.name!r} have the same alias {alias!r}")
        self._by_name = {**aliased, **named}

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
        """Return the tool with this name, or else the tool with this alias, or None."""
        return self._by_name.get(name)

    def find_enabled(self, name: str) -> Tool | None:
        """Return the tool with this name or alias, unless it is disabled."""
        tool = self._by_name.get(name)
        return tool if tool is not None and tool.enabled else None

    def find_other_case(self, name: str) -> str | None:
        """Return the name of a tool that differs from `name` only in case, or None."""
        lowered = name.lower()
        return next((tool_name for tool_name in self.names if tool_name != name and tool_name.lower() == lowered), None)

    def combined(self, other: Iterable[Tool]) -> Toolset:
        """Return these tools followed by the others.

        Raises:
            BadTool: both have a tool with the same name.
        """
        return Toolset((*self._tools, *other))

    def filtered(self, keep: Callable[[Tool], bool]) -> Toolset:
        """Return the tools for which `keep` is true."""
        return Toolset(tool for tool in self._tools if keep(tool))

    def prefixed(self, prefix: str) -> Toolset:
        """Return the same tools with `prefix` added to their names and aliases."""
        return Toolset(
            replace(tool, name=prefix + tool.name, aliases=tuple(prefix + alias for alias in tool.aliases))
            for tool in self._tools
        )

    def schemas(self) -> list[dict[str, object]]:
        """Return the schemas of the enabled tools for a Messages API request."""
        return [tool.schema() for tool in self._tools if tool.enabled]
