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
        "plan": text("The plan in Markdown."),
        "planFilePath": text("The path of the file that contains the plan."),
        "allowedPrompts": {
            "type": "array",
            "items": {"type": "object"},
            "description": "The permissions that the plan needs. They are recorded, not granted.",
        },
    }
)
_ENTERED_MESSAGE = """\
Entered plan mode. Explore the project and make a plan, and change nothing except the plan file {path}.
When the plan is complete, call ExitPlanMode to show it to the user."""
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
        description=(
            "Enter plan mode, in which you explore and plan and may change only the plan file. Use it"
            " before larger changes, so that the user can agree with the approach. ExitPlanMode ends it."
        ),
        input_schema=_ENTER_SCHEMA,
        parse=compile_checker(_ENTER_SCHEMA, coerce=profile.availability.coerces),
        run=_enter_plan_mode,
        read_only=True,
        approval_prompt="Enter plan mode?" if profile.tasks.asks_to_plan else None,
        needs_user=True,
        kind="plan",
    )


def exit_plan_tool(profile: Profile) -> Tool:
    """Return the ExitPlanMode tool for a client version."""
    return Tool(
        name="ExitPlanMode",
        description=(
            "Show the plan to the user, and leave plan mode if they approve it."
            " Use it only in plan mode, and only if you have planned a change, not to answer a question. "
            + (
                "The plan is in `plan`."
                if profile.tasks.plan_source == "input"
                else "Write the plan to the plan file first: `plan` is ignored."
            )
        ),
        input_schema=_EXIT_SCHEMA,
        parse=compile_checker(_EXIT_SCHEMA, coerce=profile.availability.coerces),
        run=_exit_plan_mode,
        read_only=True,
        approval_prompt="Exit plan mode?",
        only_in_mode="plan",
        needs_user=True,
        kind="plan",
    )


async def _enter_plan_mode(_value: Mapping[str, object], ctx: ToolContext) -> Output:
    message = _ENTERED_MESSAGE.format(path=_plan_file(ctx))
    return Output(message, {"message": message}, modify=_set_permission_mode("plan"))


async def _exit_plan_mode(value: Mapping[str, object], ctx: ToolContext) -> Output:
    source = ctx.profile.tasks.plan_source
    path = _plan_file(ctx)
    saved_plan = None
    with suppress(OSError):
        async with await anyio.open_file(path, encoding="utf-8", errors="replace") as file:
            saved_plan = await file.read(MAX_PLAN_CHARS)
    input_plan = value.get("plan")
    plan = input_plan if isinstance(input_plan, str) and source == "input" else saved_plan
    if plan is None and source == "needed_file":
        raise ToolError(
            f"No plan file found at {path}. Please write your plan to this file before calling ExitPlanMode.",
            kind="not_found",
        )
    record: dict[str, object] = {"plan": plan, "isAgent": ctx.agent_id is not None, "filePath": str(path)}
    message = _EXIT_APPROVED_MESSAGE if plan is None else _APPROVED_MESSAGE.format(path=path, plan=plan)
    return Output(message, record, modify=_set_permission_mode("default"))


def _plan_file(ctx: ToolContext) -> Path:
    """Return the path of the session's plan file, whose name contains a hash of the session id."""
    name = hashlib.blake2b(str(ctx.session_id).encode(), digest_size=8).hexdigest()
    return ctx.workspace.config / "plans" / f"plan-{name}.md"


def _set_permission_mode(mode: str) -> Callable[[CallContext], CallContext]:
    return lambda context: replace(context, values={**context.values, _PERMISSION_MODE_KEY: mode})


_DESCRIPTION = """\
Ask the user one to four questions, each with two to four options, and return the answers. The user can also answer in
their own words.
Use it for decisions that only the user can make, not for facts that you can find out yourself."""

_OPTION_SCHEMA = object_schema(
    {
        "label": text("The name of the option, in a few words."),
        "description": text("What it means to choose this option."),
        "preview": text("An example or a sketch of the result, in Markdown."),
    },
    required=["label", "description"],
)
_QUESTION_SCHEMA = object_schema(
    {
        "question": text("The question, as a complete sentence."),
        "header": text("A label for the question, in one or two words."),
        "options": {
            "type": "array",
            "items": _OPTION_SCHEMA,
            "minItems": 2,
            "maxItems": 4,
            "description": "The options from which the user chooses.",
        },
        "multiSelect": flag("Let the user choose several options.", default=False),
    },
    required=["question", "header", "options"],
)
_SCHEMA = object_schema(
    {
        "questions": {
            "type": "array",
            "items": _QUESTION_SCHEMA,
            "minItems": 1,
            "maxItems": 4,
            "description": "The questions.",
        },
        "answers": {
            "type": "object",
            "additionalProperties": TEXT,
            "description": "The answers by question. The user fills them in; do not set them.",
        },
        "annotations": {"type": "object", "description": "Notes by the user. Do not set them."},
        "metadata": {"type": "object", "description": "Values for the program that runs the session. Do not set them."},
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
        approval_prompt="Answer questions?",
        needs_user=True,
        kind="question",
    )


async def _ask_user(value: Mapping[str, object], ctx: ToolContext) -> Output:
    messages = ctx.profile.messages
    raw_answers = value.get("answers")
    answers = dict(raw_answers) if isinstance(raw_answers, Mapping) else {}
    record: dict[str, object] = {"questions": value["questions"], "answers": answers}
    if value.get("annotations"):
        record["annotations"] = value["annotations"]
    if not answers:
        return Output(messages.unanswered, record)
    answer_text = ", ".join(f'"{question}"="{answer}"' for question, answer in answers.items())
    return Output(messages.answered.format(answers=answer_text), record)
