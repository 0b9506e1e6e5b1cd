"""`toolspan mcp`: a real server process, called by the official client."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Literal

import anyio
import pytest
from mcp_types import ElicitRequestFormParams, ElicitResult
from PIL import Image

import toolspan
from tests.integrations.mcp_server.client import ERAS, Person, client, recorded, text, until
from toolspan.integrations.mcp_server.service import ApprovalForm
from toolspan.types.decision import Deny
from toolspan.types.span import Permission

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fork_server")]

FREE = ("--permission-mode", "bypassPermissions")


@pytest.mark.parametrize("era", ERAS)
async def test_tools_are_listed_with_schemas_and_hints(folder: Path, era: str) -> None:
    async with client(folder, era=era) as result:
        tools = {tool.name: tool for tool in (await result.list_tools()).tools}

    assert {"Bash", "Read", "Write", "Edit", "Glob", "Grep"} <= set(tools)
    read, write, bash = (tools[name].annotations for name in ("Read", "Write", "Bash"))
    assert read is not None and write is not None and bash is not None
    assert (read.read_only_hint, read.open_world_hint, read.title) == (True, False, "Read a file")
    assert (write.read_only_hint, write.destructive_hint, write.idempotent_hint) == (False, True, True)
    assert (bash.destructive_hint, bash.open_world_hint) == (True, True)
    assert tools["Read"].input_schema["required"] == ["file_path"]
    assert tools["Read"].output_schema is None


async def test_only_the_named_tools_are_served(folder: Path) -> None:
    async with client(folder, "--tools", "Read,Grep") as result:
        assert [tool.name for tool in (await result.list_tools()).tools] == ["Grep", "Read"]
        gone = await result.call_tool("Bash", {"command": "echo hi"})
    assert gone.is_error
    assert "No such tool available: Bash" in text(gone)


@pytest.mark.parametrize("era", ERAS)
async def test_results_and_errors_have_the_texts_of_other_hosts(folder: Path, era: str) -> None:
    (folder / "a.txt").write_text("hello\n", encoding="utf-8")
    async with client(folder, *FREE, era=era) as result:
        read = await result.call_tool("Read", {"file_path": "a.txt"})
        failed = await result.call_tool("Bash", {"command": "echo out; exit 3"})
        wrong = await result.call_tool("Bash", {"cmd": "x"})
        unread = await result.call_tool("Write", {"file_path": str(folder / "b"), "content": "b\n"})

    assert (text(read), read.is_error) == ("1\thello\n2\t", False)
    assert (text(failed), failed.is_error) == ("Exit code 3\nout", True)
    assert wrong.is_error and "InputValidationError" in text(wrong)
    assert unread.is_error is False
    assert (folder / "b").read_text(encoding="utf-8") == "b\n"


async def test_server_process_records_one_session(folder: Path) -> None:
    async with client(folder, *FREE) as result:
        first = await result.call_tool("Bash", {"command": "echo one"})
        await result.call_tool("Nothing", {})
    spans = recorded(folder).spans
    assert [(span.tool, span.state) for span in spans] == [("Bash", "succeeded"), ("Nothing", "failed")]
    assert first.meta is not None
    assert first.meta["toolspan/callId"] == spans[0].id


async def test_server_process_records_into_a_store(folder: Path) -> None:
    url = f"sqlite://{folder.parent}/store.db"
    async with client(folder, *FREE, "--store", url) as result:
        await result.call_tool("Bash", {"command": "echo one"})
    (row,) = toolspan.Archive(url).calls()
    assert (row.tool, row.state) == ("Bash", "succeeded")


async def test_image_is_image_content(folder: Path) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(picture, "PNG")
    (folder / "a.png").write_bytes(picture.getvalue())
    async with client(folder) as actual:
        result = await actual.call_tool("Read", {"file_path": str(folder / "a.png")})
    (image,) = [item for item in result.content if item.type == "image"]
    assert image.mime_type == "image/png"
    assert base64.b64decode(image.data).startswith(b"\x89PNG")


@pytest.mark.parametrize("era", ERAS)
async def test_structured_values_fit_the_declared_schema(folder: Path, era: str) -> None:
    calls: list[tuple[str, dict[str, object]]] = [
        ("Write", {"file_path": str(folder / "a.txt"), "content": "one\ntwo\n"}),
        ("Read", {"file_path": str(folder / "a.txt")}),
        ("Edit", {"file_path": str(folder / "a.txt"), "old_string": "one", "new_string": "1"}),
        ("Write", {"file_path": str(folder / "a.txt"), "content": "new\n"}),
        ("Glob", {"pattern": "*.txt"}),
        ("Grep", {"pattern": "new"}),
        ("Grep", {"pattern": "new", "output_mode": "content"}),
        ("Grep", {"pattern": "new", "output_mode": "count"}),
        ("Bash", {"command": "echo hi"}),
        ("Bash", {"command": "sleep 60", "run_in_background": True}),
    ]
    async with client(folder, *FREE, "--structured", era=era) as actual:
        promised = {item.name for item in (await actual.list_tools()).tools if item.output_schema}
        for tool, fields in calls:
            result = await actual.call_tool(tool, fields)  # the client holds it against the schema
            assert not result.is_error, text(result)
            assert tool in promised
            assert isinstance(result.structured_content, dict)


async def test_exclusive_calls_wait_and_others_overlap(folder: Path) -> None:
    (folder / "f").write_text("x\n", encoding="utf-8")
    lock = "mkdir busy && touch seen && sleep 0.2 && rmdir busy"  # fails if another is inside
    results = []
    async with client(folder, *FREE) as actual:

        async def call(command: str) -> None:
            results.append(await actual.call_tool("Bash", {"command": command}))

        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(call, lock)
    assert [result.is_error for result in results] == [False] * 4
    assert {span.state for span in recorded(folder).spans} == {"succeeded"}


async def test_failing_call_does_not_affect_the_others(folder: Path) -> None:
    results = {}
    async with client(folder, *FREE) as result:

        async def call(name: str, command: str) -> None:
            results[name] = await result.call_tool("Bash", {"command": command})

        async with anyio.create_task_group() as group:
            group.start_soon(call, "bad", "exit 1")
            group.start_soon(call, "good", "echo fine")
    assert (results["bad"].is_error, text(results["good"])) == (True, "fine")


@pytest.mark.parametrize("era", ERAS)
async def test_cancelled_request_ends_the_process_and_is_recorded(folder: Path, era: str) -> None:
    async with client(folder, *FREE, era=era) as result:
        async with anyio.create_task_group() as group:
            command = "echo $$ > pid; exec sleep 1000"
            group.start_soon(result.call_tool, "Bash", {"command": command})
            await until(lambda: (folder / "pid").exists() and (folder / "pid").read_text() != "")
            group.cancel_scope.cancel()
        pid = int((folder / "pid").read_text(encoding="utf-8"))
        await until(lambda: not Path(f"/proc/{pid}").exists())
        after = await result.call_tool("Bash", {"command": "echo still here"})
    assert text(after) == "still here"
    assert [span.state for span in recorded(folder).spans] == ["interrupted", "succeeded"]


async def test_cancelled_request_in_the_queue_is_recorded(folder: Path) -> None:
    async with client(folder, *FREE) as result, anyio.create_task_group() as first:
        first.start_soon(result.call_tool, "Bash", {"command": "touch up; until [ -e go ]; do :; done"})
        await until((folder / "up").exists)
        async with anyio.create_task_group() as second:
            second.start_soon(result.call_tool, "Bash", {"command": "touch never"})
            await until(lambda: len(recorded(folder).spans) == 2)
            second.cancel_scope.cancel()
        await until(lambda: recorded(folder).spans[1].state == "cancelled")
        (folder / "go").touch()
    assert not (folder / "never").exists()
    assert sorted(span.state for span in recorded(folder).spans) == ["cancelled", "succeeded"]


@pytest.mark.parametrize("era", ERAS)
async def test_long_command_sends_its_last_line_as_progress(folder: Path, era: str) -> None:
    news: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        assert total is None
        news.append((progress, message))
        (folder / "go").touch()

    command = "echo step one; until [ -e go ]; do sleep 0.05; done; echo done"
    async with client(folder, *FREE, era=era) as actual:
        result = await actual.call_tool("Bash", {"command": command}, progress_callback=hear)
    assert text(result) == "step one\ndone"
    assert news[0][0] > 0
    assert news[0][1] == "step one"


@pytest.mark.parametrize("era", ERAS)
async def test_user_of_the_client_is_asked(folder: Path, era: str) -> None:
    person = Person(answer="once")
    async with client(folder, era=era, person=person) as actual:
        result = await actual.call_tool("Bash", {"command": "touch made"})
        await actual.call_tool("Bash", {"command": "touch more"})
    assert result.is_error is False
    assert (folder / "made").exists()
    assert len(person.asked) == 2
    assert person.asked[0].startswith("Bash: touch made\nwhy: ")
    events = [event for span in recorded(folder).spans for event in span.events]
    decided = [event.source for event in events if isinstance(event, Permission)]
    assert decided == ["user_temporary", "user_temporary"]


async def test_question_begins_with_the_request_however_long_it_is(folder: Path) -> None:
    hidden = "make " + "x" * 500 + "\nmake \u202ehidden"
    person = Person(answer="deny")
    async with client(folder, person=person) as result:
        await result.call_tool("Bash", {"command": hidden})
        await result.call_tool("Bash", {"command": "make one\nmake two"})
        await result.call_tool("Write", {"file_path": str(folder / "b"), "content": "text"})
    long, two, write = person.asked
    assert long.startswith("Bash (518 characters, below): make xxx")
    assert max(map(len, long.splitlines()[:3])) <= 76  # clients cut lines at their width
    assert "  | make \\u202ehidden" in long
    assert two.startswith("Bash: make one ⏎ make two\nwhy: ")
    assert write.replace("\n", "").startswith(f"Write: {folder}")
    assert "  | text" in write


@pytest.mark.parametrize("era", ERAS)
async def test_approval_for_the_session_is_requested_once(folder: Path, era: str) -> None:
    person = Person(answer="session")
    async with client(folder, era=era, person=person) as result:
        await result.call_tool("Bash", {"command": "npm run build"})
        await result.call_tool("Bash", {"command": "npm run test"})
    assert len(person.asked) == 1
    assert "session: Bash(npm run:*)" in person.asked[0]


@pytest.mark.parametrize("era", ERAS)
async def test_denial_is_a_result_with_the_users_message(folder: Path, era: str) -> None:
    person = Person(answer="deny", comment="use make")
    async with client(folder, era=era, person=person) as actual:
        result = await actual.call_tool("Bash", {"command": "touch made"})
    assert result.is_error
    assert "The user doesn't want to proceed with this tool use." in text(result)
    assert "use make" in text(result)
    assert not (folder / "made").exists()


@pytest.mark.parametrize("era", ERAS)
async def test_declined_form_is_a_denial(folder: Path, era: str) -> None:
    async with client(folder, era=era, person=Person()) as actual:
        result = await actual.call_tool("Bash", {"command": "touch made"})
    assert result.is_error
    assert not (folder / "made").exists()


@pytest.mark.parametrize(
    ("action", "seconds", "nobody"), [("decline", 0.01, True), ("decline", 3.0, False), ("cancel", 3.0, True)]
)
def test_immediate_decline_is_not_attributed_to_the_user(
    action: Literal["decline", "cancel"], seconds: float, nobody: bool
) -> None:
    request = ElicitRequestFormParams(message="May it?", requested_schema={"type": "object"})
    consent = ApprovalForm(request, (), Deny("It needs approval", "config")).parse_answer(
        ElicitResult(action=action), seconds
    )
    assert consent.unanswered is nobody
    assert isinstance(consent.decision, Deny)
    assert consent.decision.source == ("config" if nobody else "user_reject")


@pytest.mark.parametrize("era", ERAS)
async def test_client_without_elicitation_gets_a_denial_with_advice(folder: Path, era: str) -> None:
    async with client(folder, era=era) as result:
        denied = await result.call_tool("Bash", {"command": "touch made"})
        ruled = await result.call_tool("Bash", {"command": "ls"})
    assert denied.is_error
    (whole,) = denied.content  # some clients show their model just the first block of an error
    assert whole.type == "text"
    assert "needs approval.\n(toolspan: there is no user to ask." in whole.text
    assert ruled.is_error is False


@pytest.mark.parametrize("era", ERAS)
async def test_unanswered_question_is_a_denial(folder: Path, era: str) -> None:
    person = Person()
    person.without_answer = "cancel"
    async with client(folder, era=era, person=person) as result:
        denied = await result.call_tool("Bash", {"command": "touch made"})
    assert denied.is_error
    assert "needs approval.\n(toolspan: there is no user to ask." in text(denied)
