"""TodoWrite and TodoRead: the list before and after, and the keys of an item."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.tools.client import SESSION, client, refusal

pytestmark = pytest.mark.anyio

DONE = "Todos have been modified successfully."


def todo(content: str, status: str = "pending", **more: object) -> dict[str, object]:
    return {"content": content, "status": status, "activeForm": f"Doing {content}", **more}


@requirement("todo-tool.lists")
async def test_the_record_has_the_list_before_and_after(tmp_path: Path) -> None:
    first, second = [todo("a", "in_progress"), todo("b")], [todo("a", "completed"), todo("b")]
    async with client(tmp_path, version="2.0.65") as session:
        result = await session.call("TodoWrite", todos=[{**item, "extra": 1} for item in first])
        two = await session.call("TodoWrite", todos=second)

    assert str(result.content).startswith(DONE)
    assert result.structured == {"oldTodos": [], "newTodos": first}
    assert two.structured == {"oldTodos": first, "newTodos": second}


@requirement("todo-tool.lists")
async def test_a_completed_list_is_empty_the_next_time(tmp_path: Path) -> None:
    async with client(tmp_path, version="2.0.65") as session:
        result = await session.record("TodoWrite", todos=[todo("a", "completed")])
        after = await session.record("TodoWrite", todos=[todo("b")])

    assert result["newTodos"] == [todo("a", "completed")]
    assert after["oldTodos"] == []


@requirement("todo-tool.checked")
async def test_an_item_without_its_parts_is_refused(tmp_path: Path) -> None:
    async with client(tmp_path, "TodoWrite") as session:
        missing = await session.text("TodoWrite", todos=[{"content": "x", "status": "pending"}])
        odd = await session.text("TodoWrite", todos=[todo("x", "odd")])
        empty = await session.text("TodoWrite", todos=[todo("")])
        nothing = await session.text("TodoWrite", todos=[])

    head = "InputValidationError: TodoWrite failed due to the following issue:\n"
    assert missing == refusal(f"{head}The required parameter `todos[0].activeForm` is missing")
    assert "Invalid option" in odd
    assert "too_small" in empty
    assert nothing.startswith(DONE)


async def test_the_oldest_form_has_ids_and_can_be_read_back(tmp_path: Path) -> None:
    todos = [{"id": "1", "content": "a", "status": "pending"}]
    async with client(tmp_path, version="seed") as session:
        before = await session.text("TodoRead")
        await session.call("TodoWrite", todos=todos)
        after = await session.call("TodoRead")

    assert before == "The todo list is empty."
    assert after.structured == {"todos": todos}
    assert json.loads(str(after.content)) == todos


@requirement("todo-tool.stored")
async def test_the_oldest_client_keeps_a_copy_in_its_home(tmp_path: Path) -> None:
    async with client(tmp_path, version="2.0.65", home=tmp_path / "home") as session:
        await session.call("TodoWrite", todos=[todo("a")])
        await session.call("TodoWrite", todos=[todo("b")])

    path = tmp_path / "home" / ".claude" / "todos" / f"{SESSION}-agent-{SESSION}.json"
    assert json.loads(path.read_bytes()) == [todo("b")]


async def test_newer_clients_offer_it_only_by_name(tmp_path: Path) -> None:
    async with client(tmp_path) as session:
        text = await session.text("TodoWrite", todos=[])
    async with client(tmp_path, "TodoWrite", "Read") as session:
        by_name = await session.text("TodoWrite", todos=[])

    assert text.startswith("<tool_use_error>Error: No such tool available: TodoWrite")
    assert by_name.startswith("Todos have been modified successfully")
