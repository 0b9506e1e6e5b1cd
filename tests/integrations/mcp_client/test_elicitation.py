"""Servers that ask the user for input, answered by approvers and hooks."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.cli.terminal import exec_terminal
from tests.integrations.mcp_client.connect import ToolCaller, talk, text
from toolspan.integrations.mcp_client.elicitation import FireHook
from toolspan.runtime.hooks.events import HookEffects, ReplacedOutput, SessionHookEvent
from toolspan.runtime.permissions.decide import Approver, PermissionRequest
from toolspan.types.decision import Allow, Ask, Deny

pytestmark = pytest.mark.anyio

_SERVER = Path(__file__).parent / "asking_server.py"
_ANY: dict[str, object] = {"type": "object"}
FORM: dict[str, Any] = {
    "message": "Where to?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "title": "City", "minLength": 2},
            "nights": {"type": "integer", "minimum": 1, "maximum": 9},
            "room": {"type": "string", "enum": ["s", "d"], "enumNames": ["Single", "Double"]},
            "extras": {"type": "array", "items": {"type": "string", "enum": ["Breakfast", "Bed, extra"]}},
            "quiet": {"type": "boolean", "default": True},
            "note": {"type": "string"},
        },
        "required": ["city", "nights", "room"],
    },
}


class Person:
    """An approver that answers questions, and records the requests."""

    def __init__(self, *answers: Mapping[str, str] | None) -> None:
        self.requests: list[PermissionRequest] = []
        self._answers = list(answers)

    def __call__(self, request: PermissionRequest, ask: Ask) -> Allow | Deny:
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer is None:
            return Deny(None, "user_reject", stop=True)
        by_text = {one["question"]: answer[one["header"]] for one in self.questions if one["header"] in answer}
        return Allow(None, "user_temporary", {**request.input, "answers": by_text})

    @property
    def questions(self) -> list[dict[str, Any]]:
        """The last questions."""
        questions = self.requests[-1].input["questions"]
        assert isinstance(questions, list)
        return questions


@asynccontextmanager
async def asked(
    folder: Path, approver: Approver | None, fire_hook: FireHook | None = None, **env: str
) -> AsyncIterator[ToolCaller]:
    schemas = folder / "schemas.json"
    schemas.write_text(json.dumps({"ask": _ANY, "open_first": _ANY}))
    command = {"command": sys.executable, "args": [str(_SERVER), str(schemas)]}
    async with talk(folder, servers={"mcpServers": {"travel": command}}, env=env) as conversation:
        conversation.servers.let_servers_ask(approver, fire_hook)
        yield conversation


async def answers(conversation: ToolCaller, form: object, times: int = 1) -> list[dict[str, Any]]:
    done = await conversation.call("mcp__travel__ask", form=form, times=times)
    result: list[dict[str, Any]] = json.loads(text(done))
    return result


async def test_form_becomes_questions_and_answers_get_their_types(tmp_path: Path) -> None:
    filled = {"city": "Rome", "nights": "3", "room": "Double", "extras": "Breakfast, Bed, extra", "quiet": ""}
    person = Person(filled)
    async with asked(tmp_path, person) as conversation:
        (answer,) = await answers(conversation, FORM)

    content = {"city": "Rome", "nights": 3, "room": "d", "extras": ["Breakfast", "Bed, extra"], "quiet": True}
    assert answer == {"action": "accept", "content": content}
    assert person.questions[0]["question"] == "The MCP server travel asks: Where to? city: City"
    assert [one["label"] for one in person.questions[2]["options"]] == ["Single", "Double"]
    assert person.requests[0].input["elicitation"]["server"] == "travel"  # type: ignore[index]


async def test_invalid_answer_is_asked_again_with_the_reason(tmp_path: Path) -> None:
    wrong = {"city": "Rome", "nights": "many", "room": "Double"}
    person = Person(wrong, {**wrong, "nights": "12"}, {**wrong, "nights": "2"})
    async with asked(tmp_path, person) as conversation:
        (answer,) = await answers(conversation, FORM)

    assert answer["content"] == {"city": "Rome", "nights": 2, "room": "d", "quiet": True}
    reasons = [str(request.input["questions"]) for request in person.requests]
    assert "nights: must be a whole number" in reasons[1]
    assert "nights: at most 9" in reasons[2]


@pytest.mark.parametrize(
    ("approver", "action"),
    [
        (None, "cancel"),
        (Person(None), "decline"),
        (lambda request, ask: Deny("nobody is there"), "cancel"),
        (lambda request, ask: Allow(None), "cancel"),
        (lambda request, ask: 1 / 0, "cancel"),
    ],
)
async def test_request_without_an_answer_is_not_accepted(
    approver: Approver | None, action: str, tmp_path: Path
) -> None:
    async with asked(tmp_path, approver) as conversation:
        (answer,) = await answers(conversation, FORM)
    assert answer == {"action": action}


async def test_address_is_opened_by_the_user_and_names_its_host(tmp_path: Path) -> None:
    form = {"mode": "url", "message": "Pay", "url": "https://pay.example.com/x?y=1", "elicitationId": "e1"}
    person = Person({"url": "I have opened it"})
    async with asked(tmp_path, person) as conversation:
        (answer,) = await answers(conversation, form)
        retried = await conversation.call("mcp__travel__open_first", **form)

    assert answer == {"action": "accept"}
    question = person.questions[0]["question"]
    assert "address of pay.example.com in your browser, if you trust it: https://pay.example.com/x?y=1" in question
    assert len(person.requests) == 2
    assert '"url"' in text(retried)


@pytest.mark.parametrize(
    "form",
    [
        {"message": "m", "requestedSchema": {"type": "object", "properties": {f"f{n}": {} for n in range(5_000)}}},
        {"message": "m", "requestedSchema": {"type": "object", "properties": {"a": {"type": "object"}}}},
        {"message": "m", "requestedSchema": {"type": "object", "properties": {"a": {"enum": list(range(999))}}}},
        {"message": "m", "requestedSchema": {"type": "object", "properties": {"a": 5}}},
        {"mode": "url", "message": "m", "url": "javascript:alert(1)", "elicitationId": "e"},
        {"mode": "url", "message": "m", "url": "http://example.com/", "elicitationId": "e"},
        {"mode": "url", "message": "m", "url": "https://example.com/" + "x" * 9_999, "elicitationId": "e"},
    ],
)
async def test_unusable_request_is_not_shown(form: dict[str, object], tmp_path: Path) -> None:
    person = Person({})
    async with asked(tmp_path, person) as conversation:
        (answer,) = await answers(conversation, form)
    assert answer.get("action", "cancel") == "cancel"
    assert person.requests == []


async def test_text_of_a_server_is_escaped_shortened_and_marked(tmp_path: Path) -> None:
    message = "Hi\n\x1b[2J\u202eevil" + "x" * 99_999
    properties = {"password": {"type": "string", "title": "Your\u200bpassword"}}
    form = {"message": message, "requestedSchema": {"type": "object", "properties": properties}}
    person = Person({})
    async with asked(tmp_path, person) as conversation:
        await answers(conversation, form)

    question = person.questions[0]["question"]
    assert question.isprintable()
    assert question.startswith("The MCP server travel asks: Hi")
    assert "CAUTION: this looks like a request for a secret" in question
    assert len(question) < 2_000


async def test_server_that_asks_too_often_gets_no_more_answers(tmp_path: Path) -> None:
    refusing, patient = Person(None), Person({"city": "Rome", "nights": "2", "room": "Single"})
    async with asked(tmp_path, refusing) as conversation:
        actions = [answer["action"] for answer in await answers(conversation, FORM, times=500)]
    assert len(refusing.requests) == 3
    assert actions == ["decline"] * 3 + ["cancel"] * 497

    async with asked(tmp_path, patient) as conversation:
        await answers(conversation, FORM, times=200)
    assert len(patient.requests) == 50


async def test_time_of_the_user_does_not_count_for_the_call(tmp_path: Path) -> None:
    async def slow(request: PermissionRequest, ask: Ask) -> Allow | Deny:
        await anyio.sleep(0.4)
        return Deny(None, "user_reject")

    async with asked(tmp_path, slow, MCP_TOOL_TIMEOUT="200") as conversation:
        assert await answers(conversation, FORM) == [{"action": "decline"}]


async def test_hooks_answer_and_change_the_answer_of_the_user(tmp_path: Path) -> None:
    events: list[SessionHookEvent] = []
    outputs: dict[str, object] = {}

    async def fire(event: SessionHookEvent) -> HookEffects:
        events.append(event)
        output = outputs.get(event.point)
        if output == "block":
            return HookEffects(feedback=("no",))
        return HookEffects(output=None if output is None else ReplacedOutput(None, output))

    person = Person({"city": "Rome", "nights": "2", "room": "Single"})
    async with asked(tmp_path, person, fire) as conversation:
        (plain,) = await answers(conversation, FORM)
        outputs["ElicitationResult"] = "block"
        (blocked,) = await answers(conversation, FORM)
        outputs |= {"Elicitation": {"action": "accept", "content": {"city": "Oslo"}}, "ElicitationResult": None}
        (replaced,) = await answers(conversation, FORM)

    assert plain["content"]["city"] == "Rome"
    assert blocked == {"action": "decline"}
    assert replaced == {"action": "accept", "content": {"city": "Oslo"}}
    assert len(person.requests) == 2
    assert [event.point for event in events[:2]] == ["Elicitation", "ElicitationResult"]
    assert events[0].fields["mcp_server_name"] == "travel"
    assert events[1].fields["action"] == "accept"


@pytest.mark.usefixtures("fork_server")
def test_person_at_a_terminal_answers_a_server(tmp_path: Path) -> None:
    (tmp_path / "schemas.json").write_text(json.dumps({"ask": _ANY}))
    command = {"command": sys.executable, "args": [str(_SERVER), str(tmp_path / "schemas.json")]}
    config = tmp_path / "servers.json"
    config.write_text(json.dumps({"mcpServers": {"travel": command}}))
    options = ("--mcp-config", str(config), "--allowed-tools", "mcp__travel__ask")
    with exec_terminal(tmp_path, *options) as terminal:
        terminal.send_calls(("a", "mcp__travel__ask", {"form": FORM}))
        asked_text = terminal.wait_for("City")
        for answer in ("Rome", "4", "2", "", "", ""):
            terminal.wait_for("): ")
            terminal.write(f"{answer}\n")
        content = terminal.wait_for_result("a")["content"]
        terminal.finish()

    assert "The MCP server travel asks: Where to?" in " ".join(asked_text.split())
    assert isinstance(content, list)
    assert json.loads(content[0]["text"])[0]["content"] == {"city": "Rome", "nights": 4, "room": "d", "quiet": True}
