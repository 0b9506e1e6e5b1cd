"""AskUserQuestion: ask the user questions with options.

The model sends only the questions. The approver that decides about the call adds the answers, with
`Allow(input={..., "answers": {question: label}})`.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolspan.runtime.context import ToolContext
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, Tool
from toolspan.tools.schemas import TEXT, flag, object_schema, text

_DESCRIPTION = """\
Ask the person who works with you one to four questions, each with two to four options to choose
from; they can also answer in their own words. For decisions that are theirs, not for what can be
found out."""

_OPTION_SCHEMA = object_schema(
    {
        "label": text("The option in a few words"),
        "description": text("What choosing it means"),
        "preview": text("What it would look like"),
    },
    required=["label", "description"],
)
_QUESTION_SCHEMA = object_schema(
    {
        "question": text("The whole question"),
        "header": text("One or two words to find it by"),
        "options": {"type": "array", "items": _OPTION_SCHEMA, "minItems": 2, "maxItems": 4},
        "multiSelect": flag("Several options may be chosen", default=False),
    },
    required=["question", "header", "options"],
)
_SCHEMA = object_schema(
    {
        "questions": {"type": "array", "items": _QUESTION_SCHEMA, "minItems": 1, "maxItems": 4},
        "answers": {
            "type": "object",
            "additionalProperties": TEXT,
            "description": "Filled in by whoever is asked",
        },
        "annotations": {"type": "object", "description": "Notes of whoever is asked"},
        "metadata": {"type": "object", "description": "For the program around the session"},
    },
    required=["questions"],
)


def ask_tool(profile: Profile) -> Tool:
    """Return the AskUserQuestion tool of a client version."""
    return Tool(
        name="AskUserQuestion",
        description=_DESCRIPTION,
        input_schema=_SCHEMA,
        parse=compile_checker(_SCHEMA, coerce=profile.availability.coerces),
        run=_ask_user,
        concurrent=True,
        read_only=True,
        approval_prompt=profile.plan.answer_question,
        kind="question",
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
