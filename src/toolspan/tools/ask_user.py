"""AskUserQuestion: the model asks the person.

In: questions with options, and the answers, which the model does not give: the approver that is
asked for consent puts them in, with `Allow(input={..., "answers": {question: label}})`. Out: the
answers as a sentence, and questions and answers as the record.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolspan.runtime.context import ToolContext
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, Tool

_DESCRIPTION = """\
Ask the person who works with you one to four questions, each with two to four options to choose
from; they can also answer in their own words. For decisions that are theirs, not for what can be
found out."""

_OPTION_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "label": {"type": "string", "description": "The option in a few words"},
        "description": {"type": "string", "description": "What choosing it means"},
        "preview": {"type": "string", "description": "What it would look like"},
    },
    "required": ["label", "description"],
    "additionalProperties": False,
}
_QUESTION_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "question": {"type": "string", "description": "The whole question"},
        "header": {"type": "string", "description": "One or two words to find it by"},
        "options": {"type": "array", "items": _OPTION_SCHEMA, "minItems": 2, "maxItems": 4},
        "multiSelect": {"type": "boolean", "default": False, "description": "Several options may be chosen"},
    },
    "required": ["question", "header", "options"],
    "additionalProperties": False,
}
_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "questions": {"type": "array", "items": _QUESTION_SCHEMA, "minItems": 1, "maxItems": 4},
        "answers": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "Filled in by whoever is asked",
        },
        "annotations": {"type": "object", "description": "Notes of whoever is asked"},
        "metadata": {"type": "object", "description": "For the program around the session"},
    },
    "required": ["questions"],
    "additionalProperties": False,
}


def ask_tool(profile: Profile) -> Tool:
    """AskUserQuestion as a client version has it."""
    return Tool(
        name="AskUserQuestion",
        description=_DESCRIPTION,
        input_schema=_SCHEMA,
        parse=compile_checker(_SCHEMA, coerce=profile.availability.coerces),
        run=_ask_user,
        concurrent=True,
        read_only=True,
        approval_prompt=profile.plan.answer_question,
    )


async def _ask_user(value: Mapping[str, object], ctx: ToolContext) -> Output:
    values = ctx.profile.plan
    raw_answers = value.get("answers")
    answers = dict(raw_answers) if isinstance(raw_answers, Mapping) else {}
    record: dict[str, object] = {"questions": value["questions"], "answers": answers}
    if value.get("annotations"):
        record["annotations"] = value["annotations"]
    if not answers and values.unanswered:
        return Output(values.unanswered, record)
    answer_text = ", ".join(f'"{question}"="{answer}"' for question, answer in answers.items())
    return Output(values.answered.format(answers=answer_text), record)
