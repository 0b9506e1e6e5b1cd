"""Final answers that follow a schema."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import BaseModel, Field

from toolspan import Permissions, Session, ToolspanError, tool
from toolspan.session import Agent, TurnResult
from toolspan.session.models.scripted import ScriptStep
from toolspan.session.resume import load_history
from toolspan.testing import ScriptedModel, check_history, say, use

pytestmark = pytest.mark.anyio


class City(BaseModel):
    name: str
    people: int = Field(gt=0)


def repr_of_type(output: object) -> str:
    return type(output).__name__


@dataclass
class River:
    name: str
    length: float


PRICE = {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]}


@tool()
def look() -> str:
    """Look around."""
    return "a city"


async def prompt(folder: Path, script: list[ScriptStep], output: object) -> tuple[TurnResult, Path, ScriptedModel]:
    session = Session(cwd=folder, tools=[look], permissions=Permissions.allow_all(), transcript=folder / "s.jsonl")
    model = ScriptedModel(script, then=say("I am done."))
    async with session:
        ended = await Agent(session, model).prompt("Which city?", output=output)
        check_history(session.messages)
        assert [each.name for each in session.runner.runner_context.tools] == ["look"]
    return ended, folder / "s.jsonl", model


@pytest.mark.parametrize(
    ("output", "given", "value"),
    [
        (City, {"name": "Bern", "people": 9}, City(name="Bern", people=9)),
        (River, {"name": "Aare", "length": 288}, River("Aare", 288.0)),
        (PRICE, {"price": 3.5}, {"price": 3.5}),
        (list[int], {"answer": [1, 2]}, [1, 2]),
        ({"enum": ["yes", "no"]}, {"answer": "no"}, "no"),
        ({"$ref": "#/definitions/a", "definitions": {"a": {"enum": [7]}}}, {"answer": 7}, 7),
    ],
)
async def test_answer_has_the_type_that_was_asked_for(
    tmp_path: Path, output: object, given: dict[str, object], value: object
) -> None:
    ended, path, model = await prompt(tmp_path, [use("look"), use("StructuredOutput", **given)], output)

    assert ended.reason == "completed"
    assert ended.output == value
    assert type(ended.output) is type(value)
    assert len(model.requests) == 2
    check_history(load_history(path))


async def test_answer_that_does_not_match_is_refused_with_the_errors_and_repeated(tmp_path: Path) -> None:
    script: list[ScriptStep] = [
        use("StructuredOutput", name="Bern", people=-1),
        use("StructuredOutput", name="Bern", people=140_000),
    ]
    ended, _, model = await prompt(tmp_path, script, City)

    assert ended.output == City(name="Bern", people=140_000)
    refusal = json.dumps(model.requests[1]["messages"])
    assert "Output does not match required schema: people: Input should be greater than 0" in refusal


async def test_turn_that_ends_without_an_answer_continues_with_a_request_for_it(tmp_path: Path) -> None:
    script: list[ScriptStep] = [say("Bern."), use("StructuredOutput", name="Bern", people=1)]
    ended, path, _ = await prompt(tmp_path, script, City)

    assert ended.output == City(name="Bern", people=1)
    check_history(load_history(path))


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ([], "the model gave no answer"),
        ([use("StructuredOutput", name="Bern", people=0)] * 9, "does not match its schema: people"),
    ],
)
async def test_model_that_never_gives_an_answer_ends_the_turn(
    tmp_path: Path, script: list[ScriptStep], error: str
) -> None:
    ended, path, model = await prompt(tmp_path, script, City)

    assert ended.reason == "max_structured_output_retries"
    assert ended.error is not None
    assert error in ended.error
    assert ended.output is None
    assert len(model.requests) == 5
    check_history(load_history(path))


DEEP: dict[str, object] = {}
for _ in range(2_000):
    DEEP = {"properties": {"a": DEEP}}


@pytest.mark.parametrize("output", [{"type": "town"}, {"properties": 3}, object(), DEEP], ids=repr_of_type)
async def test_invalid_format_is_refused_before_the_model_is_asked(tmp_path: Path, output: object) -> None:
    session = Session(cwd=tmp_path, tools=[look], transcript=None)
    model = ScriptedModel([])
    async with session:
        with pytest.raises(ToolspanError, match=r"schema|type of an answer"):
            await Agent(session, model).prompt("Which city?", output=output)
    assert model.requests == []


@pytest.mark.parametrize(
    ("schema", "error", "requests"),
    [
        ({"$ref": "http://127.0.0.1:9/x.json"}, "'http://127.0.0.1:9/x.json' leads nowhere", 1),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "nested too deeply", 5),
    ],
)
async def test_schema_with_which_nothing_can_be_checked_ends_the_turn(
    tmp_path: Path, schema: dict[str, object], error: str, requests: int
) -> None:
    ended, path, model = await prompt(tmp_path, [use("StructuredOutput", answer=7)] * 9, schema)

    assert (ended.reason, len(model.requests)) == ("max_structured_output_retries", requests)
    assert error in str(ended.error)
    check_history(load_history(path))
