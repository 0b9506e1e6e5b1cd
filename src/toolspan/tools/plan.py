"""EnterPlanMode and ExitPlanMode: plan before changing anything, then submit the plan for approval.

The tools set the context's `permission_mode`, which later calls see. The plan is stored in one file per session under
the client's folder. The user approves it before the ExitPlanMode call runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import anyio

from toolspan.errors import ToolError
from toolspan.runtime.context import CallContext, ToolContext
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, Tool
from toolspan.tools.schemas import TEXT, flag, object_schema, text

_PERMISSION_MODE_KEY = "permission_mode"
MAX_PLAN_CHARS = 1 << 20
_ENTER_SCHEMA = object_schema({})
_EXIT_SCHEMA = object_schema(
    {
        "plan": text("The plan, in Markdown"),
        "planFilePath": text("Where the plan is written down"),
        "allowedPrompts": {
            "type": "array",
            "items": {"type": "object"},
            "description": "What the plan needs to be allowed",
        },
    }
)
_ENTERED_MESSAGE = """\
Entered plan mode. Look around and think; change nothing yet but the plan file {path}. Show the plan
with ExitPlanMode when it is complete."""
_APPROVED_MESSAGE = """\
User has approved your plan. You can now start coding.

The plan is in {path}.

## Approved plan
{plan}"""
_EXIT_APPROVED_MESSAGE = "User has approved exiting plan mode. You can now proceed."


def enter_plan_tool(profile: Profile) -> Tool:
    """Return the EnterPlanMode tool for a client version."""
    return Tool(
        name="EnterPlanMode",
        description="Begin to plan: until ExitPlanMode, nothing but the plan file is changed.",
        input_schema=_ENTER_SCHEMA,
        parse=compile_checker(_ENTER_SCHEMA, coerce=profile.availability.coerces),
        run=_enter_plan_mode,
        read_only=True,
        approval_prompt=profile.plan.enter_question,
        kind="plan",
    )


def exit_plan_tool(profile: Profile) -> Tool:
    """Return the ExitPlanMode tool for a client version."""
    return Tool(
        name="ExitPlanMode",
        description="Show the plan to the person, and leave plan mode when they agree with it.",
        input_schema=_EXIT_SCHEMA,
        parse=compile_checker(_EXIT_SCHEMA, coerce=profile.availability.coerces),
        run=_exit_plan_mode,
        read_only=True,
        approval_prompt=profile.plan.exit_question,
        kind="plan",
    )


async def _enter_plan_mode(_value: Mapping[str, object], ctx: ToolContext) -> Output:
    message = _ENTERED_MESSAGE.format(path=_plan_file(ctx))
    return Output(message, {"message": message}, modify=_set_permission_mode("plan"))


async def _exit_plan_mode(value: Mapping[str, object], ctx: ToolContext) -> Output:
    values = ctx.profile.plan
    path = _plan_file(ctx)
    saved_plan = None
    with suppress(OSError):
        async with await anyio.open_file(path, encoding="utf-8", errors="replace") as file:
            saved_plan = await file.read(MAX_PLAN_CHARS)
    input_plan = value.get("plan")
    plan = input_plan if isinstance(input_plan, str) and values.source == "input" else saved_plan
    if plan is None and values.source == "needed_file":
        raise ToolError(
            f"No plan file found at {path}. Please write your plan to this file before calling ExitPlanMode.",
            kind="not_found",
        )
    record: dict[str, object] = {"plan": plan, "isAgent": ctx.agent_id is not None, "filePath": str(path)}
    if values.records_edited and plan != saved_plan:
        record["planWasEdited"] = True
    message = _EXIT_APPROVED_MESSAGE if plan is None else _APPROVED_MESSAGE.format(path=path, plan=plan)
    return Output(message, record, modify=_set_permission_mode("default"))


def _plan_file(ctx: ToolContext) -> Path:
    """Return the path of the session's plan file, whose name contains a hash of the session id."""
    name = hashlib.blake2b(str(ctx.session_id).encode(), digest_size=8).hexdigest()
    return ctx.workspace.config / "plans" / f"plan-{name}.md"


def _set_permission_mode(mode: str) -> Callable[[CallContext], CallContext]:
    return lambda context: replace(context, values={**context.values, _PERMISSION_MODE_KEY: mode})


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
    """Return the AskUserQuestion tool for a client version."""
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
