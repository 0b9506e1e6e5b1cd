"""Tools defined by functions."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field, HttpUrl

from toolspan.errors import BadTool
from toolspan.runtime.context import ToolContext
from toolspan.runtime.profiles import profile
from toolspan.runtime.runner import Runner
from toolspan.runtime.schema.issues import Invalid, Valid, explain_issues
from toolspan.runtime.tool import FunctionTool, Output, Refusal, Tool, tool
from toolspan.types.events import Finished

pytestmark = pytest.mark.anyio

LIMIT = 5


async def finish(tool_under_test: Tool, **fields: object) -> Finished:
    """Run one call of a tool."""
    block = {"type": "tool_use", "id": "toolu_1", "name": tool_under_test.name, "input": fields}
    (finished,) = await Runner([tool_under_test]).finish([block])
    return finished


def complaint(tool_under_test: Tool, **fields: object) -> list[str]:
    result = tool_under_test.parse(fields)
    assert isinstance(result, Invalid)
    return explain_issues(tool_under_test.name, result, style=profile().issues).text.splitlines()[1:]


# Schemas for the model


def test_schema_comes_from_the_signature_and_descriptions_from_the_docstring() -> None:
    @tool
    def find(pattern: str, limit: int = 10, mode: Literal["name", "text"] = "name") -> str:
        """Find files
        by name or text.

        This is for people.

        Args:
            pattern: What to look for,
                as a glob.
            limit (int): How many at most.

        Returns:
            The paths.
        """
        return f"{pattern} {limit} {mode}"

    assert find.schema() == {
        "name": "find",
        "description": "Find files by name or text.",
        "input_schema": {
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "What to look for, as a glob."},
                "limit": {"type": "integer", "description": "How many at most.", "default": 10},
                "mode": {"type": "string", "enum": ["name", "text"], "default": "name"},
            },
            "required": ["pattern"],
            "additionalProperties": False,
        },
    }


def test_annotations_may_describe_and_constrain() -> None:
    class Colour(Enum):
        RED = "red"
        BLUE = "blue"

    class Point(BaseModel):
        x: int
        title: str = "here"

    @tool
    def draw(
        at: list[Point],
        size: Annotated[int, Field(ge=1, description="In pixels.")],
        colour: Colour = Colour.RED,
        schema: str | None = None,
        model_name: str = "",
    ) -> str:
        """Draw.

        Args:
            size: Hidden by the annotation.
        """
        return f"{at} {size} {colour} {schema} {model_name}"

    shape: Any = draw.input_schema
    assert shape["properties"]["size"] == {"type": "integer", "minimum": 1, "description": "In pixels."}
    assert shape["properties"]["colour"]["default"] == "red"
    assert shape["$defs"]["Point"]["properties"]["title"] == {"type": "string", "default": "here"}
    assert shape["required"] == ["at", "size"]
    match draw.parse({"at": [{"x": "3"}], "size": 2}):
        case Valid(value):
            assert value == {"at": [Point(x=3)], "size": 2, "colour": Colour.RED, "schema": None, "model_name": ""}
        case Invalid(issues):
            pytest.fail(str(issues))


def test_options_override_the_function() -> None:
    @tool(
        name="db-query",
        description="Ask the database.",
        aliases=("query",),
        concurrent=lambda fields: str(fields["sql"]).startswith("select"),
        output_limit=None,
        timeout=3,
        read_only=True,
        idempotent=True,
        interrupt="block",
        paths=lambda fields: frozenset({str(fields["sql"])}),
    )
    async def query(sql: str) -> str:
        return sql

    assert (query.name, query.aliases, query.description) == ("db-query", ("query",), "Ask the database.")
    assert (query.read_only, query.idempotent, query.interrupt) == (True, True, "block")
    assert (query.timeout, query.output_limit) == (3, None)
    assert query.may_overlap({"sql": "select 1"})
    assert not query.may_overlap({"sql": "drop"})
    assert not query.may_overlap({})
    assert query.paths is not None
    assert query.paths({"sql": "a"}) == frozenset({"a"})


async def test_decorated_function_can_still_be_called() -> None:
    @tool
    def double(number: int) -> int:
        return number * 2

    @tool(concurrent=True)
    async def triple(number: int) -> int:
        return number * 3

    twice: int = double(4)
    thrice: int = await triple(number=4)
    assert (twice, thrice) == (8, 12)
    assert isinstance(double, FunctionTool)


# Invalid tools


class NoSchema:
    """A type without a JSON schema."""


def no_annotation(a) -> str:  # type: ignore[no-untyped-def]
    return str(a)


def positional(a: str, /) -> str:
    return a


def any_number(*a: str) -> str:
    return str(a)


def any_keyword(**a: str) -> str:
    return str(a)


def no_schema(a: NoSchema) -> str:
    return str(a)


def unknown_name(a: Nowhere) -> str:  # type: ignore[name-defined]  # noqa: F821
    return str(a)


def two_contexts(a: ToolContext, b: ToolContext) -> str:
    return f"{a}{b}"


def field_as_default(a: int = Field(ge=1)) -> str:
    return str(a)


def gives_bytes() -> bytes:
    return b""


async def yields() -> AsyncIterator[str]:
    yield ""


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (no_annotation, "the parameter a has no annotation"),
        (positional, "the parameter a is positional-only"),
        (any_number, "takes any number of arguments"),
        (any_keyword, "takes any keyword"),
        (no_schema, "has no JSON Schema: .*NoSchema"),
        (unknown_name, "cannot be read: name 'Nowhere' is not defined"),
        (two_contexts, "more than one parameter of type ToolContext"),
        (field_as_default, r"Annotated\[\.\.\., Field"),
        (gives_bytes, "returns bytes"),
        (yields, "yields"),
        (lambda: "", "Invalid tool name '<lambda>'"),
        (NoSchema, "NoSchema is not a function"),
    ],
)
def test_invalid_definition_is_refused_at_once(function: Any, message: str) -> None:
    with pytest.raises(BadTool, match=message):
        tool(function)


def test_sync_function_cannot_have_a_timeout() -> None:
    with pytest.raises(BadTool, match="cannot be interrupted"):

        @tool(timeout=1)
        def wait() -> str:
            return ""

    with pytest.raises(BadTool, match="must not be negative"):

        @tool(grace=-1)
        async def hasty() -> str:
            return ""

    with pytest.raises(BadTool, match="must be positive"):

        @tool(timeout=0)
        async def never() -> str:
            return ""


def test_names_must_fit_the_api() -> None:
    for name in ("", "a b", "ä", "a.b", "x" * 129):
        with pytest.raises(BadTool, match="Invalid tool name"):
            tool(name=name)(positional)
    with pytest.raises(BadTool, match="Invalid tool name 'no good'"):
        tool(aliases=("no good",))(positional)


# Messages about invalid input


class Step(BaseModel):
    name: str
    minutes: int = 1


def even(number: int) -> int:
    if number % 2:
        raise ValueError("must be even")
    return number


def fragile(number: int) -> int:
    return {}[number]  # type: ignore[index]


@tool
def plan(
    title: str,
    steps: list[Step],
    *,
    count: Annotated[int, Field(ge=1)] = 1,
    mode: Literal["short", "long"] = "short",
    tags: set[str] | None = None,
    link: HttpUrl | None = None,
    either: int | list[str] = 0,
    pairs: Annotated[int, AfterValidator(even)] = 0,
) -> str:
    """Plan."""
    return f"{title}{steps}{count}{mode}{tags}{link}{either}{pairs}"


@pytest.mark.parametrize(
    ("tool_input", "lines"),
    [
        (
            {"steps": [{}], "x": 1},
            [
                "The required parameter `title` is missing",
                "The required parameter `steps[0].name` is missing",
                "An unexpected parameter `x` was provided",
            ],
        ),
        (
            {"title": 5, "steps": "all"},
            [
                "The parameter `title` type is expected as `string` but provided as `number`",
                "The parameter `steps` type is expected as `array` but provided as `string`",
            ],
        ),
        (
            {"title": "a", "steps": [], "count": "many"},
            ["The parameter `count` type is expected as `number` but provided as `string`"],
        ),
        (
            {"title": "a", "steps": [], "count": 1.5},
            ["The parameter `count` type is expected as `int` but provided as `number`"],
        ),
        (
            {"title": "a", "steps": [{"name": "b", "minutes": []}], "tags": 1},
            [
                "The parameter `steps[0].minutes` type is expected as `number` but provided as `array`",
                "The parameter `tags` type is expected as `array` but provided as `number`",
            ],
        ),
        (
            {"title": "a", "steps": [], "either": {}},
            ["The parameter `either` type is expected as `number | array` but provided as `object`"],
        ),
        (
            {"steps": [], "mode": "tall", "count": 0, "link": "x", "pairs": 3},
            [
                "The required parameter `title` is missing",
                "The parameter `count` is invalid: Too small: expected number to be >=1",
                'The parameter `mode` is invalid: Invalid option: expected one of "short"|"long"',
                "The parameter `link` is invalid: Invalid URL",
                "The parameter `pairs` is invalid: must be even",
            ],
        ),
    ],
)
def test_validation_errors_read_like_those_of_built_in_tools(tool_input: dict[str, object], lines: list[str]) -> None:
    assert complaint(plan, **tool_input) == lines


def test_numbers_and_booleans_may_come_as_strings() -> None:
    @tool
    def count(number: int, share: float, loud: bool) -> str:
        return f"{number}{share}{loud}"

    result = count.parse({"number": "3", "share": "0.5", "loud": "true"})

    assert isinstance(result, Valid)
    assert result.value == {"number": 3, "share": 0.5, "loud": True}


def test_broken_validator_ends_only_its_call() -> None:
    @tool
    def take(number: Annotated[int, AfterValidator(fragile)]) -> str:
        return str(number)

    result = take.parse({"number": 1})

    assert isinstance(result, Invalid)
    assert result.issues[0].message == "KeyError: 1"


@given(
    st.dictionaries(
        st.sampled_from(["title", "steps", "count", "mode", "tags", "link", "either", "x"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "minutes", "int"]), inner)
            ),
            max_leaves=5,
        ),
    )
)
def test_any_input_is_accepted_or_explained(anything: dict[str, object]) -> None:
    result = plan.parse(anything)

    if isinstance(result, Invalid):
        assert explain_issues("plan", result, style=profile().issues).text
        assert explain_issues("plan", result, style=profile("2.0.65").issues).record


# Arguments of the function


async def test_context_is_injected_by_annotation_under_any_name(tmp_path: Path) -> None:
    @tool
    def where(here: ToolContext, suffix: str) -> str:
        return f"{here.cwd}{suffix}"

    @tool
    async def maybe(suffix: str, surroundings: ToolContext | None = None) -> str:
        return f"{surroundings and surroundings.cwd}{suffix}"

    shape: Any = where.input_schema
    assert list(shape["properties"]) == ["suffix"]
    for item in (where, maybe):
        block = {"type": "tool_use", "id": "a", "name": item.name, "input": {"suffix": "!"}}
        (result,) = await Runner([item], cwd=tmp_path).run([block])
        assert result.text == f"{tmp_path}!"


async def test_annotations_may_be_strings_with_local_names() -> None:
    namespace: dict[str, object] = {}
    source = """
from __future__ import annotations
from typing import TYPE_CHECKING
from pydantic import BaseModel
from toolspan.runtime.tool import tool
if TYPE_CHECKING:
    from collections.abc import Sized
    from toolspan.runtime.context import ToolContext

def make():
    class Local(BaseModel):
        x: int

    @tool(concurrent=True)
    async def later(at: Local, ctx: ToolContext) -> Sized:
        return f"{at.x} {ctx.call.tool}"

    return later
later = make()
"""
    exec(compile(source, "later.py", "exec"), namespace)
    later = namespace["later"]
    assert isinstance(later, Tool)

    assert (await finish(later, at={"x": "4"})).content == "4 later"


# Return values


class Struct(msgspec.Struct):
    a: int


@dataclasses.dataclass
class Data:
    a: int


class Row(TypedDict):
    a: int


class Model(BaseModel):
    a: int


BLOCKS = [{"type": "text", "text": "hello"}]


@pytest.mark.parametrize(
    ("value", "content", "structured"),
    [
        ("text", "text", None),
        (Output("text", structured={"a": 1}), "text", {"a": 1}),
        (None, "(give completed with no output)", None),
        (3, "3", 3),
        (True, "true", True),
        (Struct(1), '{"a":1}', {"a": 1}),
        (Data(1), '{"a":1}', {"a": 1}),
        (Model(a=1), '{"a":1}', {"a": 1}),
        (Row(a=1), '{"a":1}', {"a": 1}),
        ([Model(a=1), Path("b")], '[{"a":1},"b"]', [{"a": 1}, "b"]),
        ({"é": [1, 2.5, None]}, '{"é":[1,2.5,null]}', {"é": [1, 2.5, None]}),
        ([], "[]", []),
        (BLOCKS, BLOCKS, BLOCKS),
        ([{"type": "text"}], '[{"type":"text"}]', [{"type": "text"}]),
    ],
)
async def test_return_value_becomes_text_and_value(value: object, content: object, structured: object) -> None:
    @tool
    async def give() -> object:
        return value

    finished = await finish(give)

    assert (finished.content, finished.structured) == (content, structured)
    assert finished.span.state == "succeeded"


@pytest.mark.parametrize("value", [b"raw", bytearray(b"raw"), object(), {"a": object()}])
async def test_value_without_json_form_fails_the_call(value: object) -> None:
    @tool
    def give() -> object:
        return value

    finished = await finish(give)

    assert finished.span.state == "failed"
    assert str(finished.content).startswith("give returned ")


async def test_value_can_be_emitted_as_structured_output() -> None:
    @tool(structured_output=True)
    async def answer(number: int) -> Model:
        return Model(a=number)

    finished = await finish(answer, number=7)

    assert finished.structured_output == {"a": 7}


@pytest.mark.parametrize("structured", [True, False])
async def test_text_is_structured_output_only_on_request(structured: bool) -> None:
    @tool(structured_output=structured)
    async def answer() -> str:
        return "seven"

    finished = await finish(answer)

    assert (finished.content, finished.structured_output) == ("seven", "seven" if structured else None)


# How it runs


async def test_awaitable_returned_by_a_sync_function_is_awaited() -> None:
    async def inner() -> str:
        return "waited"

    @tool
    def outer() -> object:
        return inner()

    assert (await finish(outer)).content == "waited"


@pytest.mark.parametrize("objection", ["Not today", Refusal("Not today")])
async def test_tool_may_refuse_an_input_before_the_approver_is_asked(objection: str | Refusal) -> None:
    def sync_check(tool_input: Mapping[str, object], ctx: ToolContext) -> str | Refusal | None:
        return objection if tool_input["day"] == "sunday" and ctx.call.tool == "work" else None

    async def async_check(tool_input: Mapping[str, object], ctx: ToolContext) -> str | Refusal | None:
        return sync_check(tool_input, ctx)

    for check in (sync_check, async_check):

        @tool(validate_input=check)
        async def work(day: str = "sunday") -> str:
            return f"worked on {day}"

        refused = await finish(work)
        allowed = await finish(work, day="monday")
        assert refused.content == "<tool_use_error>Not today</tool_use_error>"
        assert allowed.content == "worked on monday"
