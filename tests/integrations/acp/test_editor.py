"""`toolspan acp`, used by the protocol's own client library over standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError
from acp.client.connection import ClientSideConnection
from acp.helpers import embedded_text_resource, image_block, resource_block, resource_link_block, text_block
from acp.schema import (
    AllowedOutcome,
    AudioContentBlock,
    DeniedOutcome,
    EnvVariable,
    McpServerStdio,
    PermissionOption,
    RequestPermissionResponse,
    ToolCallUpdate,
)
from acp.stdio import spawn_agent_process

from toolspan import history
from toolspan.testing import say, use

pytestmark = pytest.mark.anyio
PROMPT_SERVER = Path(__file__).parents[1] / "mcp_client" / "prompt_server.py"
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
Answer = Callable[[ToolCallUpdate, Sequence[PermissionOption]], str | None]


class Editor:
    """An editor that keeps what it is sent, and answers questions with `answer`."""

    def __init__(self, answer: Answer) -> None:
        self.updates: list[dict[str, Any]] = []
        self.questions: list[tuple[ToolCallUpdate, list[PermissionOption]]] = []
        self.started = asyncio.Event()
        """Set when a call has started."""
        self.asked = asyncio.Event()
        """Set when a question has been asked."""
        self._answer = answer

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update.model_dump(mode="json", by_alias=True, exclude_none=True))
        if self.updates[-1].get("status") == "in_progress":
            self.started.set()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        self.questions.append((tool_call, options))
        self.asked.set()
        chosen = self._answer(tool_call, options)
        if chosen == "later":
            await asyncio.Event().wait()
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [update for update in self.updates if update["sessionUpdate"] == kind]

    @property
    def text(self) -> str:
        return "".join(update["content"]["text"] for update in self.of("agent_message_chunk"))

    def statuses(self) -> list[str]:
        return [update["status"] for update in self.updates if "status" in update]


class Computer:
    """A home folder with a project, in which editors start agents."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.project.mkdir()
        self.folder = folder
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ANTHROPIC", "OPENAI", "CLAUDE", "XDG"))}
        self.env = {**inherited, "HOME": str(folder / "home"), "TOOLSPAN_NO_CACHE": "1"}

    @asynccontextmanager
    async def editor(
        self, steps: Sequence[object], *options: str, answer: Answer = lambda _call, _options: "once"
    ) -> AsyncIterator[tuple[Editor, ClientSideConnection, asyncio.subprocess.Process]]:
        """Start an agent that follows a script, and connect an editor to it."""
        script = self.folder / "script.json"
        script.write_text(json.dumps(steps), encoding="utf-8")
        editor = Editor(answer)
        command = (sys.executable, "-m", "toolspan", "acp", "--model", f"scripted:{script}", "--no-sandbox", *options)
        limit = {"limit": 1 << 24}
        async with spawn_agent_process(editor, *command, env=self.env, transport_kwargs=limit) as (connection, process):  # type: ignore[arg-type] # an editor without files and terminals
            await connection.initialize(protocol_version=1)
            yield editor, connection, process

    async def begin(self, connection: ClientSideConnection, **options: Any) -> str:
        return (await connection.new_session(cwd=str(self.project), **options)).session_id

    def transcript(self) -> Path:
        (path,) = (self.folder / "home" / ".claude" / "projects").glob("*/*.jsonl")
        return path


@pytest.fixture
def computer(tmp_path: Path) -> Computer:
    return Computer(tmp_path)


def find_processes(marker: str) -> list[int]:
    """Return the processes whose environment contains a marker."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                if marker.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


async def test_text_calls_and_changes_reach_the_editor_as_they_happen(computer: Computer) -> None:
    (computer.project / "a.txt").write_text("one\n", encoding="utf-8")
    file = str(computer.project / "a.txt")
    steps = [
        [say("I look."), use("Read", file_path=file)],
        [use("Edit", file_path=file, old_string="one", new_string="two")],
        [use("Bash", command="cat a.txt")],
        say("It is two now."),
    ]
    async with computer.editor(steps, "--permission-mode", "acceptEdits") as (editor, connection, _):
        session = await computer.begin(connection)
        ended = await connection.prompt(session_id=session, prompt=[text_block("Make it two.")])

    assert ended.stop_reason == "end_turn"
    assert editor.text == "I look.It is two now."
    read, edit, bash = editor.of("tool_call")
    assert (read["kind"], read["locations"], read["status"]) == ("read", [{"path": file}], "pending")
    assert (edit["kind"], edit["content"]) == (
        "edit", [{"type": "diff", "path": file, "oldText": "one", "newText": "two"}],
    )  # fmt: skip
    assert (bash["kind"], bash["title"]) == ("execute", "`cat a.txt`")
    last = editor.of("tool_call_update")[-1]
    assert (last["status"], last["content"][0]["content"]["text"]) == ("completed", "two")
    assert editor.statuses() == ["pending", "in_progress", "completed"] * 3


async def test_permission_is_asked_once_always_or_denied(computer: Computer) -> None:
    answers = iter(["once", "session", "deny"])
    steps = [use("Bash", command=command) for command in ("touch a", "make check", "make check", "rm a")]
    async with computer.editor([*steps, say("Done.")], answer=lambda *_: next(answers)) as (editor, connection, _):
        session = await computer.begin(connection)
        await connection.prompt(session_id=session, prompt=[text_block("Go.")])

    assert [call.title for call, _ in editor.questions] == ["`touch a`", "`make check`", "`rm a`"]
    assert [option.kind for option in editor.questions[1][1]] == [
        "allow_once", "allow_always", "allow_always", "allow_always", "reject_once",
    ]  # fmt: skip
    assert (computer.project / "a").exists()


async def test_question_about_a_change_shows_the_whole_change(computer: Computer) -> None:
    (computer.project / "a.txt").write_text("first\nold\n", encoding="utf-8")
    file = str(computer.project / "a.txt")
    steps = [use("Read", file_path=file), use("Edit", file_path=file, old_string="old", new_string="new"), say("Done.")]
    async with computer.editor(steps, answer=lambda *_: None) as (editor, connection, _):
        session = await computer.begin(connection)
        ended = await connection.prompt(session_id=session, prompt=[text_block("Go.")])

    ((call, _),) = editor.questions
    assert call.content is not None
    shown = call.content[0].model_dump(by_alias=True, exclude_none=True)
    assert shown == {"type": "diff", "path": file, "oldText": "first\nold\n", "newText": "first\nnew\n"}
    assert ended.stop_reason == "end_turn"
    assert (computer.project / "a.txt").read_text(encoding="utf-8") == "first\nold\n"


async def test_tasks_are_the_plan(computer: Computer) -> None:
    steps = [
        [
            use("TaskCreate", subject="Look", description="Look around"),
            use("TaskCreate", subject="Fix", description="Fix it"),
        ],
        use("TaskUpdate", taskId="1", status="in_progress"),
        say("Done."),
    ]
    async with computer.editor(steps) as (editor, connection, _):
        session = await computer.begin(connection)
        await connection.prompt(session_id=session, prompt=[text_block("Plan.")])

    last = editor.of("plan")[-1]["entries"]
    assert [(entry["content"], entry["status"]) for entry in last] == [("Look", "in_progress"), ("Fix", "pending")]


async def test_loaded_session_is_shown_and_continued(computer: Computer) -> None:
    steps = [[say("I look."), use("Bash", command="pwd")], say("Here.")]
    async with computer.editor(steps) as (_, connection, _process):
        session = await computer.begin(connection)
        await connection.prompt(session_id=session, prompt=[text_block("Where?")])
    async with computer.editor([say("Still here.")]) as (editor, connection, _process):
        await connection.load_session(cwd=str(computer.project), session_id=session)
        shown = [update["sessionUpdate"] for update in editor.updates]
        call = editor.of("tool_call")[0]
        ended = await connection.prompt(session_id=session, prompt=[text_block("And now?")])

    assert shown == ["user_message_chunk", "agent_message_chunk", "tool_call", "agent_message_chunk"]
    assert (call["status"], call["content"][0]["content"]["text"]) == ("completed", str(computer.project))
    assert ended.stop_reason == "end_turn"
    assert editor.text == "I look.Here.Still here."


async def test_cancelled_turn_ends_its_command_and_another_prompt_can_follow(computer: Computer) -> None:
    steps = [use("Bash", command="ACP_CANCELLED=1 sleep 600"), say("Again.")]
    async with computer.editor(steps, "--permission-mode", "bypassPermissions") as (editor, connection, _):
        session = await computer.begin(connection)
        turn = asyncio.create_task(connection.prompt(session_id=session, prompt=[text_block("Wait.")]))
        await editor.started.wait()
        await connection.cancel(session_id=session)
        cancelled = await turn
        left = find_processes("ACP_CANCELLED=1")
        again = await connection.prompt(session_id=session, prompt=[text_block("And?")])

    assert (cancelled.stop_reason, left) == ("cancelled", [])
    assert editor.statuses()[:3] == ["pending", "in_progress", "failed"]
    assert (again.stop_reason, editor.text) == ("end_turn", "Again.")


async def test_editor_that_disconnects_in_a_call_leaves_a_session_that_can_be_resumed(computer: Computer) -> None:
    steps = [use("Bash", command="ACP_DISCONNECTED=1 sleep 600")]
    async with computer.editor(steps, "--permission-mode", "bypassPermissions") as (editor, connection, process):
        session = await computer.begin(connection)
        turn = asyncio.create_task(connection.prompt(session_id=session, prompt=[text_block("Wait.")]))
        await editor.started.wait()
        assert process.stdin is not None
        process.stdin.close()
        code = await process.wait()
        turn.cancel()

    assert (code, find_processes("ACP_DISCONNECTED=1")) == (0, [])
    (span,) = history(computer.transcript()).spans
    assert span.state in ("cancelled", "interrupted")
    async with computer.editor([say("I am back.")]) as (editor, connection, _):
        await connection.load_session(cwd=str(computer.project), session_id=session)
        await connection.prompt(session_id=session, prompt=[text_block("Hello?")])
    assert editor.text == "I am back."


async def test_question_that_is_open_when_the_editor_disconnects_is_denied(computer: Computer) -> None:
    steps = [use("Bash", command="touch made")]
    async with computer.editor(steps, answer=lambda *_: "later") as (editor, connection, process):
        session = await computer.begin(connection)
        turn = asyncio.create_task(connection.prompt(session_id=session, prompt=[text_block("Go.")]))
        await editor.asked.wait()
        assert process.stdin is not None
        process.stdin.close()
        code = await process.wait()
        turn.cancel()

    assert code == 0
    (span,) = history(computer.transcript()).spans
    assert span.result is not None
    assert not (computer.project / "made").exists()


async def test_modes_are_shown_and_changed(computer: Computer) -> None:
    steps = [use("Bash", command="touch a"), use("Bash", command="touch b"), say("Done.")]
    async with computer.editor(steps) as (editor, connection, _):
        opened = await connection.new_session(cwd=str(computer.project))
        assert opened.modes is not None
        await connection.set_session_mode(mode_id="acceptEdits", session_id=opened.session_id)
        await connection.prompt(session_id=opened.session_id, prompt=[text_block("Go.")])
        with pytest.raises(RequestError, match="not a mode"):
            await connection.set_session_mode(mode_id="bypassPermissions", session_id=opened.session_id)

    assert [mode.id for mode in opened.modes.available_modes] == ["default", "acceptEdits", "plan"]
    assert editor.questions == []


async def test_servers_of_the_editor_are_connected(computer: Computer) -> None:
    server = McpServerStdio(
        name="prompt",
        command=sys.executable,
        args=[str(PROMPT_SERVER), "allow"],
        env=[EnvVariable(name="A", value="1")],
    )
    steps = [use("mcp__prompt__ask", input={}), say("Done.")]
    async with computer.editor(steps) as (editor, connection, _):
        session = await computer.begin(connection, mcp_servers=[server])
        await connection.prompt(session_id=session, prompt=[text_block("Ask.")])

    assert editor.statuses() == ["pending", "in_progress", "completed"]
    assert [call.kind for call, _ in editor.questions] == ["other"]


async def test_model_asks_a_question_with_options(computer: Computer) -> None:
    question = {
        "question": "Which colour?",
        "header": "Colour",
        "options": [{"label": "Red", "description": "Warm"}, {"label": "Blue", "description": "Cold"}],
        "multiSelect": False,
    }
    steps = [use("AskUserQuestion", questions=[question]), say("Thanks.")]
    async with computer.editor(steps, answer=lambda *_: "1") as (editor, connection, _):
        session = await computer.begin(connection)
        await connection.prompt(session_id=session, prompt=[text_block("Ask me.")])

    ((call, options),) = editor.questions
    assert (call.title, [option.name for option in options]) == ("Which colour?", ["Red", "Blue", "Do not answer"])
    assert "Blue" in editor.of("tool_call_update")[-1]["content"][0]["content"]["text"]


async def test_files_and_pictures_are_part_of_a_prompt(computer: Computer) -> None:
    prompt: list[Any] = [
        text_block("Compare"),
        resource_link_block("a.py", f"file://{computer.project}/a.py"),
        resource_block(embedded_text_resource(f"file://{computer.project}/b.py", "b = 1")),
        image_block(PICTURE, "image/png"),
    ]
    async with computer.editor([say("The same.")]) as (_, connection, _process):
        session = await computer.begin(connection)
        await connection.prompt(session_id=session, prompt=prompt)
        with pytest.raises(RequestError, match="audio"):
            audio = AudioContentBlock(type="audio", data="", mime_type="audio/wav")
            await connection.prompt(session_id=session, prompt=[audio])

    rows = [json.loads(line) for line in computer.transcript().read_text(encoding="utf-8").splitlines()]
    content = next(row["message"]["content"] for row in rows if row["type"] == "user")
    assert [block["type"] for block in content] == ["text", "text", "text", "image"]
    assert content[1]["text"] == f"@{computer.project}/a.py"
    assert "b = 1" in content[2]["text"]


async def test_requests_that_cannot_work_are_errors_and_end_nothing(computer: Computer) -> None:
    steps = [use("Bash", command="sleep 600"), say("Still here.")]
    async with computer.editor(steps, "--permission-mode", "bypassPermissions") as (editor, connection, process):
        with pytest.raises(RequestError, match="no session"):
            await connection.prompt(session_id="gone", prompt=[text_block("Hello?")])
        with pytest.raises(RequestError, match="no session begins"):
            await connection.load_session(cwd=str(computer.project), session_id="ffffffff-0000")
        with pytest.raises(RequestError, match="no such folder"):
            await connection.new_session(cwd=str(computer.project / "missing"))
        session = await computer.begin(connection)
        assert process.stdin is not None
        process.stdin.write(b'{"jsonrpc":"2.0","id":99,"method":"session/unknown"}\n[]\n')
        first = asyncio.create_task(connection.prompt(session_id=session, prompt=[text_block("Wait.")]))
        await editor.started.wait()
        with pytest.raises(RequestError, match="still running"):
            await connection.prompt(session_id=session, prompt=[text_block("Me too.")])
        await connection.cancel(session_id=session)
        await first
        await connection.prompt(session_id=session, prompt=[text_block("Hello?")])

    assert editor.text == "Still here."


async def test_failure_of_the_model_is_an_error_of_the_prompt(computer: Computer) -> None:
    async with computer.editor([]) as (_, connection, _process):
        session = await computer.begin(connection)
        with pytest.raises(RequestError, match="script"):
            await connection.prompt(session_id=session, prompt=[text_block("Hello?")])


async def test_limit_of_replies_is_the_reason_why_a_prompt_ends(computer: Computer) -> None:
    steps = [use("Bash", command="pwd"), say("Done.")]
    async with computer.editor(steps, "--max-turns", "1") as (_, connection, _process):
        session = await computer.begin(connection)
        ended = await connection.prompt(session_id=session, prompt=[text_block("Go.")])

    assert ended.stop_reason == "max_turn_requests"
