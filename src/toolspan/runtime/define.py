"""A tool from a function: `@tool`.

    @tool(concurrent=True)
    def changelog(version: str, ctx: ToolContext) -> str:
        '''Return the changelog section of one version.'''

The schema comes from the signature, the description from the docstring; a parameter annotated with
`ToolContext` is filled in by the runner. A sync function runs in a worker thread. What cannot work
raises `BadTool` here, when the function is defined, not when a model calls it.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, ParamSpec, TypedDict, TypeVar, Unpack, overload

import anyio.to_thread
import msgspec

from toolspan.errors import BadTool
from toolspan.runtime.context import ToolContext
from toolspan.runtime.schema.derive import DerivedSchema, derive_schema
from toolspan.runtime.tool import (
    GRACE,
    OUTPUT_LIMIT,
    Interrupt,
    Output,
    Refusal,
    RunFunction,
    Tool,
    ToolFailure,
    ValidateFunction,
)
from toolspan.types.events import Content

_CONTENT_BLOCK_TYPES = frozenset({
    "audio", "document", "image", "resource", "resource_link", "search_result", "text",
    "tool_reference",
})  # fmt: skip


def normalize_return_value(name: str, value: object, *, structured: bool = False) -> Output | ToolFailure:
    """Make an output of what the function of tool `name` returned.

    Raises:
        BadTool: the value cannot be given to a model.
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
            return _json_output(name, value, structured=structured)


def _json_output(name: str, value: object, *, structured: bool) -> Output:
    try:
        plain = msgspec.to_builtins(value, enc_hook=_encode_other, str_keys=True)
        blocks = _as_content_blocks(plain)
        content: Content = msgspec.json.encode(plain).decode() if blocks is None else blocks
    except (TypeError, ValueError, NotImplementedError, RecursionError) as error:
        raise BadTool(f"{name} returned what JSON cannot show: {error}") from error
    return Output(content, structured=plain, structured_output=plain if structured else None)


def _as_content_blocks(plain: object) -> list[dict[str, object]] | None:
    """A list of content blocks, if it is one."""
    if isinstance(plain, list) and plain and all(_is_block(block) for block in plain):
        return plain
    return None


def _is_block(value: object) -> bool:
    return isinstance(value, dict) and value.get("type") in _CONTENT_BLOCK_TYPES and len(value) > 1


def _encode_other(value: object) -> object:
    """What msgspec does not know: pydantic models, paths, and mappings of other kinds."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise NotImplementedError(f"a {type(value).__name__}")


P = ParamSpec("P")
R = TypeVar("R")

Arguments = Mapping[str, object]
"""The parsed input: the function's keyword arguments, without the context."""
Objection = Refusal | str | None
ValidateInput = Callable[[Arguments, ToolContext], Objection | Awaitable[Objection]]
"""Looks at an input that fits the schema; a text or a refusal keeps the call from running.
It must change nothing, and not block: it runs before anybody consented to the call."""

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


class ToolOptions(TypedDict, total=False):
    """What `@tool` can be told; see `Tool` for what each means to the runner."""

    name: str
    """Default: the function's name."""
    description: str
    """Default: the first paragraph of the docstring."""
    aliases: tuple[str, ...]
    concurrent: bool | Callable[[Arguments], bool]
    validate_input: ValidateInput
    output_limit: int | None
    timeout: float
    grace: float
    read_only: bool
    idempotent: bool
    interrupt: Interrupt
    paths: Callable[[Arguments], frozenset[str]]
    structured_output: bool
    """Emit what the function returns as an answer in a shape the host asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTool(Tool, Generic[P, R]):
    """A tool made of a function, which can still be called as before."""

    function: Callable[P, R]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself: no check, no thread, no runner."""
        return self.function(*args, **kwargs)


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None, /, **options: Unpack[ToolOptions]
) -> FunctionTool[P, R] | Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """Make a tool of a function; use it as `@tool` or as `@tool(...)`.

    Raises:
        BadTool: the function cannot be offered to a model.
    """
    # Annotations that are still text may name what is local where the function is defined.
    names = sys._getframe(1).f_locals
    if function is not None:
        return _define_tool(function, options, names)
    return lambda decorated: _define_tool(decorated, options, names)


def _define_tool(function: Callable[P, R], options: ToolOptions, names: Mapping[str, object]) -> FunctionTool[P, R]:
    name = options.get("name", str(getattr(function, "__name__", "")))
    _check_definition(name, function, options)
    derived = derive_schema(function, context=ToolContext, names=names)
    return FunctionTool(
        name=name,
        description=options.get("description", derived.description),
        input_schema=derived.input_schema,
        parse=derived.parse,
        run=_make_run(name, function, derived, structured=options.get("structured_output", False)),
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
        function=function,
    )


def _check_options(name: str, options: ToolOptions) -> None:
    for option in options.keys() - ToolOptions.__annotations__.keys():
        raise BadTool(f"{name}: @tool has no option {option!r}")
    if isinstance(options.get("aliases"), str):
        raise BadTool(f"{name}: aliases are several names: ({options['aliases']!r},)")
    for seconds in (options.get("timeout", 1.0), options.get("grace", GRACE)):
        if not isinstance(seconds, int | float):
            raise BadTool(f"{name}: timeout and grace are numbers of seconds, not {seconds!r}")
    if not options.get("grace", GRACE) >= 0:
        raise BadTool(f"{name} has a grace of {options['grace']} seconds; it must not be negative")
    if options.get("interrupt", "cancel") not in ("cancel", "block"):
        raise BadTool(f"{name}: interrupt is `cancel` or `block`, not {options['interrupt']!r}")


def _check_definition(name: str, function: Callable[..., object], options: ToolOptions) -> None:
    _check_options(name, options)
    for tool_name in (name, *options.get("aliases", ())):
        if not _TOOL_NAME.fullmatch(tool_name):
            raise BadTool(f"A tool cannot be called {tool_name!r}: 1 to 128 of a-z, A-Z, 0-9, _ and -")
    if not inspect.isroutine(function):
        raise BadTool(f"{name} is no function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadTool(f"{name} yields; a tool returns its result")
    timeout = options.get("timeout")
    if timeout is not None and timeout <= 0:
        raise BadTool(f"{name} has a timeout of {timeout} seconds; it must be positive")
    if timeout is not None and not inspect.iscoroutinefunction(function):
        raise BadTool(f"{name} is a sync function and cannot be interrupted: no timeout is kept")
    _check_return_type(name, function)


def _check_return_type(name: str, function: Callable[..., object]) -> None:
    returned = getattr(function, "__annotations__", {}).get("return")
    if returned in (bytes, bytearray, memoryview, "bytes", "bytearray", "memoryview"):
        raise BadTool(f"{name} returns bytes; return text, or a list of content blocks")


def _make_run(name: str, function: Callable[..., object], derived: DerivedSchema, *, structured: bool) -> RunFunction:
    """How a call is run, chosen once so that nothing is asked at each call."""
    normalize = partial(normalize_return_value, name, structured=structured)
    if inspect.iscoroutinefunction(function):
        return _make_async_run(function, derived.context, normalize)
    return _make_thread_run(function, derived.context, normalize)


Normalize = Callable[[object], Output | ToolFailure]


def _make_async_run(function: Callable[..., Awaitable[object]], slot: str | None, normalize: Normalize) -> RunFunction:
    async def run(value: Arguments, ctx: ToolContext) -> Output | ToolFailure:
        return normalize(await function(**(value if slot is None else {**value, slot: ctx})))

    return run


def _make_thread_run(function: Callable[..., object], slot: str | None, normalize: Normalize) -> RunFunction:
    async def run(value: Arguments, ctx: ToolContext) -> Output | ToolFailure:
        if slot is not None:
            value = {**value, slot: ctx}
        # Nobody can interrupt the thread: when the call is cancelled, what it returns is lost.
        work = partial(function, **value)
        returned = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        return normalize(await returned if isinstance(returned, Awaitable) else returned)

    return run


def _make_validate(validate_input: ValidateInput | None) -> ValidateFunction | None:
    if validate_input is None:
        return None

    async def validate(value: Arguments, ctx: ToolContext) -> Refusal | None:
        result = validate_input(value, ctx)
        objection = await result if isinstance(result, Awaitable) else result
        return Refusal(objection) if isinstance(objection, str) else objection

    return validate
