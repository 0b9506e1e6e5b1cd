"""Final answers that follow a schema: a pydantic model, a dataclass, any other type or a JSON Schema.

The model gives its answer by calling a tool whose input has the schema. An answer that does not match is refused with
the errors, and a turn that ends without an answer continues with a request for it. Start at `FinalAnswer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from toolspan.errors import ToolError, ToolspanError
from toolspan.runtime.context import ToolContext
from toolspan.runtime.hooks.events import HookEffects, HookPoint, HookRunner, SessionHookEvent
from toolspan.runtime.schema.issues import Valid
from toolspan.runtime.tool import Output, Tool

ANSWER_TOOL = "StructuredOutput"
"""The name of the tool, as in the client."""
_MAX_REFUSED = 5
_DESCRIPTION = (
    "Give the final answer in the required format. Call this tool once, at the end, with the complete answer; text"
    " outside the call is not part of the answer. If the answer does not match the schema, the result lists the errors"
    " and the call must be repeated."
)
_REQUEST = f"The answer is missing. Call {ANSWER_TOOL} with the complete answer."
_ACCEPTED = "The answer was accepted."
_WRAPPER_KEY = "answer"
"""The key of an answer that is not an object, because the input of a tool must be one."""


class InvalidAnswerError(Exception):
    """An answer that does not match its schema. The message lists the errors."""


class UnusableSchemaError(Exception):
    """A schema with which no answer can be checked."""


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """The schema of an answer, and the function that checks and converts one."""

    schema: Mapping[str, object]
    convert: Callable[[object], object]
    """A function that returns the value for the host, or raises `InvalidAnswerError` or `UnusableSchemaError`."""

    @property
    def is_object(self) -> bool:
        """True if each answer is an object, which can be the input of a tool as it is."""
        return self.schema.get("type") == "object"

    @classmethod
    def of(cls, output: object) -> AnswerFormat:
        """Return the format for a type or a JSON Schema.

        Raises:
            ToolspanError: the schema is invalid, or the type has no schema.
        """
        if isinstance(output, Mapping):
            return _schema_format(output)
        return _type_format(output)


def _schema_format(schema: Mapping[str, object]) -> AnswerFormat:
    from jsonschema import SchemaError  # type: ignore[import-untyped]
    from jsonschema.validators import validator_for  # type: ignore[import-untyped]
    from referencing.exceptions import Unresolvable

    plain = dict(schema)
    validator_class = validator_for(plain)
    try:
        validator_class.check_schema(plain)
    except SchemaError as error:
        place = "/".join(map(str, error.absolute_path)) or "the top"
        raise ToolspanError(
            f"the schema of the answer is not a valid JSON Schema: at {place}: {error.message}"
        ) from error
    except RecursionError as error:
        raise ToolspanError("the schema of the answer is nested too deeply") from error
    validator = validator_class(plain)

    def convert(value: object) -> object:
        try:
            errors = sorted(validator.iter_errors(value), key=lambda error: list(map(str, error.absolute_path)))
        except Unresolvable as error:
            raise UnusableSchemaError(f"its reference {error.ref!r} leads nowhere") from error
        except RecursionError as error:
            raise InvalidAnswerError("it, or its schema, is nested too deeply") from error
        if errors:
            raise InvalidAnswerError(_join_errors((error.absolute_path, error.message) for error in errors))
        return value

    return AnswerFormat(plain, convert)


def _type_format(output: object) -> AnswerFormat:
    from pydantic import TypeAdapter, ValidationError
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

    try:
        adapter: TypeAdapter[object] = TypeAdapter(output)  # type: ignore[arg-type]  # checked here
        schema = adapter.json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ToolspanError(f"{output!r} cannot be the type of an answer: {reason}") from error

    def convert(value: object) -> object:
        try:
            return adapter.validate_json(msgspec.json.encode(value))
        except ValidationError as error:
            raise InvalidAnswerError(_join_errors((each["loc"], each["msg"]) for each in error.errors())) from error

    return AnswerFormat(schema, convert)


def _join_errors(errors: object) -> str:
    lines = [f"{'/'.join(map(str, place)) or 'the answer'}: {message}" for place, message in errors]  # type: ignore[attr-defined]
    return "; ".join(lines[:20])


@dataclass(slots=True)
class FinalAnswer:
    """The answer that a turn has to give."""

    format: AnswerFormat
    value: object = None
    is_given: bool = False
    refused: int = 0
    """The number of answers that did not match, and of replies that should have had one."""
    last_error: str = "the model gave no answer"
    tool: Tool = field(init=False)

    def __post_init__(self) -> None:
        self.tool = Tool(
            name=ANSWER_TOOL,
            description=_DESCRIPTION,
            input_schema=self._tool_schema(),
            parse=lambda arguments: Valid(arguments, arguments),
            run=self._run,
            read_only=True,
            output_limit=None,
        )

    @property
    def has_failed(self) -> bool:
        """True if the model has had enough attempts."""
        return not self.is_given and self.refused >= _MAX_REFUSED

    def _tool_schema(self) -> Mapping[str, object]:
        schema = dict(self.format.schema)
        if self.format.is_object:
            return schema
        # References in the schema begin at the top.
        definitions: dict[str, object] = {name: schema.pop(name) for name in ("$defs", "definitions") if name in schema}
        return {"type": "object", "properties": {_WRAPPER_KEY: schema}, "required": [_WRAPPER_KEY], **definitions}

    async def _run(self, value: Mapping[str, object], _context: ToolContext) -> Output:
        answer = dict(value) if self.format.is_object else value.get(_WRAPPER_KEY)
        try:
            self.value = self.format.convert(answer)
        except InvalidAnswerError as error:
            self.refused += 1
            self.last_error = f"the answer does not match its schema: {error}"
            raise ToolError(f"Output does not match required schema: {error}", kind="schema_output") from error
        except UnusableSchemaError as error:
            self.refused = _MAX_REFUSED  # no other answer would do
            self.last_error = f"no answer can be checked with its schema: {error}"
            raise ToolError(f"The schema of the answer cannot be used: {error}", kind="schema_output") from error
        self.is_given = True
        return Output(_ACCEPTED, structured=answer, structured_output=answer)


class AnswerHooks(HookRunner):
    """Makes the model continue if it ends its turn without the answer that is required."""

    is_empty = False
    answer: FinalAnswer | None = None

    def has_handler(self, point: HookPoint) -> bool:
        """Return whether there is a handler at this point."""
        return point == "Stop" and self.answer is not None

    async def run_session_event(self, session_event: SessionHookEvent) -> HookEffects:
        """Ask for the answer at the end of a turn."""
        answer = self.answer
        if session_event.point != "Stop" or answer is None or answer.is_given:
            return HookEffects()
        answer.refused += 1
        return (
            HookEffects() if answer.has_failed else HookEffects(feedback=(_REQUEST,), feedback_sources=(ANSWER_TOOL,))
        )
