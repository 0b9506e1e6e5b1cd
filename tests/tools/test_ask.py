"""AskUserQuestion: the approver answers the questions, and the model reads the answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.tools.files import kind, record
from tests.tools.toolbox import Toolbox
from toolspan.runtime.permissions import mode_policy
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.profiles import profile
from toolspan.tools import ask_tool, coding_tools
from toolspan.types.decision import Allow, Ask, Deny

pytestmark = pytest.mark.anyio

OPTIONS = [{"label": "A", "description": "a"}, {"label": "B", "description": "b"}]
WHICH = {"question": "Which?", "header": "Pick", "multiSelect": False, "options": OPTIONS}


def answer_b(question: PermissionRequest, ask: Ask) -> Allow:
    assert ask.reason == "Answer questions?"
    return Allow(None, "user_temporary", {**question.input, "answers": {"Which?": "B"}})


def allow_all(_question: PermissionRequest, _ask: Ask) -> Allow:
    return Allow(None, "user_temporary")


def deny_all(_question: PermissionRequest, _ask: Ask) -> Deny:
    return Deny(None, "user")


@requirement("ask-tool.answers")
@pytest.mark.parametrize(
    ("version", "output"),
    [
        (
            "2.1.327",
            'Your questions have been answered: "Which?"="B". You can now continue with these answers in mind.',
        ),
        (
            "2.0.65",
            'User has answered your questions: "Which?"="B". You can now continue with the user\'s answers in mind.',
        ),
    ],
)
async def test_the_answers_of_the_user_are_returned(tmp_path: Path, version: str, output: str) -> None:
    tools = [ask_tool(profile(version))]
    toolbox = Toolbox(tmp_path, tools, version=version, approver=answer_b)

    result = await toolbox.call("AskUserQuestion", questions=[WHICH])

    assert result.content == output
    assert record(result) == {"questions": [WHICH], "answers": {"Which?": "B"}}


@requirement("ask-tool.answers")
async def test_a_user_can_approve_without_an_answer(tmp_path: Path) -> None:
    for version, output in (
        ("2.1.327", "The user did not answer the questions."),
        ("2.0.65", "User has answered your questions: . You can now continue with the user's answers in mind."),
    ):
        toolbox = Toolbox(tmp_path, [ask_tool(profile(version))], version=version, approver=allow_all)

        result = await toolbox.call("AskUserQuestion", questions=[WHICH])

        assert result.content == output
        assert record(result)["answers"] == {}


@requirement("ask-tool.without-a-user")
async def test_without_a_user_the_question_is_refused_or_the_tool_is_missing(tmp_path: Path) -> None:
    for mode in ("default", "bypassPermissions"):
        toolbox = Toolbox(tmp_path, [ask_tool(profile())], fallback=mode_policy(mode))
        result = await toolbox.call("AskUserQuestion", questions=[WHICH])

        assert result.content == "Answer questions?"
        assert kind(result) == "not_granted"
    result = await Toolbox(tmp_path, coding_tools()).call("AskUserQuestion", questions=[WHICH])

    assert "exists but is not enabled in this context" in str(result.content)
    assert "AskUserQuestion" in {tool.name for tool in coding_tools(person=True)}


@requirement("ask-tool.without-a-user")
async def test_a_user_can_refuse_to_answer(tmp_path: Path) -> None:
    toolbox = Toolbox(tmp_path, [ask_tool(profile())], approver=deny_all)

    result = await toolbox.call("AskUserQuestion", questions=[WHICH])

    assert kind(result) == "user_denied"


async def test_questions_without_a_choice_are_refused(tmp_path: Path) -> None:
    toolbox = Toolbox(tmp_path, [ask_tool(profile())], approver=allow_all)

    for questions in ([], [{**WHICH, "options": OPTIONS[:1]}], [{"question": "?"}]):
        assert kind(await toolbox.call("AskUserQuestion", questions=questions)) == "invalid_input"
