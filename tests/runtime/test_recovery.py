"""Recoveries: failed calls followed by visible further calls, never around a denial."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import anyio
import pytest

import toolspan
from tests.runtime.edit_tools import editor
from toolspan import Deny, Hooks, Permissions, Session, ToolContext, ToolError, tool
from toolspan.runtime.batch import Recovery
from toolspan.runtime.profiles import profile
from toolspan.runtime.tool import Tool
from toolspan.testing import check_history
from toolspan.tools.recovery import Degrade, ReadAndRetry, ReadFirst, Retry, apply_edits
from toolspan.types.events import LiveEvent, RecoveryApplied, Requested
from toolspan.types.span import Call

pytestmark = pytest.mark.anyio

READ_FIRST = "2.0.65"
"""A client that requires a read before an edit."""


class RecoveryLog:
    """A sink that collects recovery events."""

    def __init__(self) -> None:
        self.steps: dict[str, str | None] = {}
        self.recovered: list[tuple[str, str, bool]] = []

    def __call__(self, event: LiveEvent) -> None:
        if isinstance(event, Requested):
            self.steps[event.call.id] = event.recovers
        elif isinstance(event, RecoveryApplied):
            self.recovered.append((event.call_id, event.policy, event.succeeded))


async def run(
    folder: Path,
    name: str,
    tool_input: Mapping[str, object],
    *recoveries: Recovery,
    tools: list[Tool] | None = None,
    hooks: Hooks | None = None,
) -> tuple[Session, RecoveryLog]:
    log = RecoveryLog()
    session = Session(
        permissions=Permissions.allow_all(),
        cwd=folder,
        tools=tools,
        profile=READ_FIRST,
        recoveries=recoveries,
        direct=[log],
        hooks=hooks,
        transcript=folder / "t.jsonl",
    )
    block = {"type": "tool_use", "id": "a", "name": name, "input": tool_input}
    async with session:
        session.say("go")
        await session.run({"role": "assistant", "content": [block]})
    assert check_history(session.messages) == []
    return session, log


def edit_of_new_file(folder: Path, old: str = "one") -> dict[str, object]:
    path = folder / "a.txt"
    path.write_text("one\n", encoding="utf-8")
    return {"file_path": str(path), "old_string": old, "new_string": "two"}


def states(session: Session) -> list[tuple[str, str, str]]:
    return [(span.id, span.tool, span.state) for span in session.spans]


async def test_unread_file_is_read_before_an_edit(tmp_path: Path) -> None:
    edit = edit_of_new_file(tmp_path)
    session, output = await run(tmp_path, "Edit", edit, ReadFirst())

    assert states(session) == [("a_r1", "Read", "succeeded"), ("a", "Edit", "succeeded")]
    assert output.steps == {"a": None, "a_r1": "a"}


async def test_edit_that_required_a_read_is_retried_after_it(tmp_path: Path) -> None:
    edit = edit_of_new_file(tmp_path)
    session, output = await run(tmp_path, "Edit", edit, ReadAndRetry())

    assert states(session) == [("a", "Edit", "failed"), ("a_r1", "Read", "succeeded"), ("a_r2", "Edit", "succeeded")]
    assert output.recovered == [("a", "read and retry", True)]
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "two\n"


async def test_every_step_is_in_the_conversation_and_the_transcript(tmp_path: Path) -> None:
    edit = edit_of_new_file(tmp_path)
    session, _ = await run(tmp_path, "Edit", edit, ReadAndRetry())

    request, answered = (message["content"] for message in session.messages[1:])
    assert isinstance(request, list)
    assert isinstance(answered, list)
    assert [block["id"] for block in request] == ["a", "a_r1", "a_r2"]
    assert [block["tool_use_id"] for block in answered] == ["a", "a_r1", "a_r2"]
    read = toolspan.read(tmp_path / "t.jsonl").spans
    assert sorted((span.id, span.state) for span in read) == [
        ("a", "failed"),
        ("a_r1", "succeeded"),
        ("a_r2", "succeeded"),
    ]


async def test_step_denied_by_a_hook_ends_the_recovery(tmp_path: Path) -> None:
    hooks = Hooks()

    @hooks.pre_tool_use("Read")
    def never(call: Call) -> Deny:
        return Deny("not this file")

    edit = edit_of_new_file(tmp_path)
    session, output = await run(tmp_path, "Edit", edit, ReadAndRetry(), hooks=hooks)

    assert [span.state for span in session.spans] == ["failed", "blocked_by_hook"]
    assert output.recovered == [("a", "read and retry", False)]
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "one\n"


async def test_denied_call_is_never_recovered(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n", encoding="utf-8")
    hooks = Hooks()

    @hooks.pre_tool_use("Write")
    def never(call: Call) -> Deny:
        return Deny("fetch failed: has not been read yet: request timed out")

    write = {"file_path": str(tmp_path / "b.txt"), "content": "x"}
    every = (ReadFirst(), ReadAndRetry(), Degrade(), Retry())
    session, output = await run(tmp_path, "Write", write, *every, hooks=hooks)

    assert [span.state for span in session.spans] == ["blocked_by_hook"]
    assert output.recovered == []


def silent(name: str, harm: Callable[[Path], None] | None = None) -> Tool:
    async def hang(path: Path) -> str:
        if harm is not None:
            harm(path)
        await anyio.sleep_forever()
        return ""

    return editor(name, hang)


EDITS = [
    {"old_string": "one", "new_string": "two"},
    {"old_string": "two three", "new_string": "2 3", "replace_all": False},
]


def with_tools(*own: Tool) -> list[Tool]:
    names = {item.name for item in own}
    return [*own, *(t for t in toolspan.coding_tools(profile(READ_FIRST)) if t.name not in names)]


async def test_silent_multiedit_becomes_edits_that_are_all_applied(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one three\n", encoding="utf-8")
    fields = {"file_path": str(tmp_path / "a.txt"), "edits": EDITS}
    tools = with_tools(silent("MultiEdit"))
    session, output = await run(tmp_path, "MultiEdit", fields, ReadFirst(), Degrade(), tools=tools)

    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "2 3\n"
    assert [span.tool for span in session.spans] == ["Read", "MultiEdit", "Edit", "Edit"]
    assert output.recovered == [("a", "degrade", True)]


async def test_file_is_written_with_all_edits_if_edits_are_silent_too(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one three\n", encoding="utf-8")
    fields = {"file_path": str(tmp_path / "a.txt"), "edits": EDITS}
    tools = with_tools(silent("MultiEdit"), silent("Edit"))
    session, output = await run(tmp_path, "MultiEdit", fields, Degrade(), tools=tools)

    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "2 3\n"
    assert [span.tool for span in session.spans] == ["MultiEdit", "Edit", "Read", "Write"]
    assert output.recovered == [("a", "degrade", True)]


async def test_edit_that_may_have_happened_is_not_repeated_another_way(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one three\n", encoding="utf-8")

    def harm(path: Path) -> None:
        path.write_text("two three\n", encoding="utf-8")

    fields = {"file_path": str(tmp_path / "a.txt"), "edits": EDITS}
    tools = with_tools(silent("MultiEdit", harm))
    session, output = await run(tmp_path, "MultiEdit", fields, Degrade(), tools=tools)

    assert [span.tool for span in session.spans] == ["MultiEdit"]
    assert output.recovered == []
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "two three\n"


def flaky(failures: int, *, idempotent: bool) -> tuple[Tool, list[str]]:
    tries: list[str] = []

    @tool(idempotent=idempotent)
    async def ask(question: str, ctx: ToolContext) -> str:
        """Ask a remote service."""
        tries.append(ctx.call.id)
        if len(tries) <= failures:
            raise ToolError("fetch failed")
        return "42"

    return ask, tries


async def no_pause(seconds: float) -> None:
    """Return at once."""


@pytest.mark.parametrize(("failures", "attempts"), [(0, 1), (2, 3), (9, 4)])
async def test_transient_failure_is_retried_a_few_times(tmp_path: Path, failures: int, attempts: int) -> None:
    ask, tries = flaky(failures, idempotent=True)
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    retry = Retry(pause=1.0, sleep=sleep, chance=lambda: 1.0)
    session, _ = await run(tmp_path, "ask", {"question": "?"}, retry, tools=[ask])

    assert len(tries) == len(session.spans) == attempts
    assert pauses == [1.0, 2.0, 4.0][: attempts - 1]


async def test_call_with_side_effects_is_not_retried(tmp_path: Path) -> None:
    ask, tries = flaky(1, idempotent=False)
    await run(tmp_path, "ask", {"question": "?"}, Retry(sleep=no_pause), tools=[ask])

    assert len(tries) == 1


async def test_crashing_recovery_does_not_lose_the_result_of_its_call(tmp_path: Path) -> None:
    class Broken:
        async def before_call(self, call: Call, desk: object, run: object) -> None:
            raise RuntimeError("before")

        async def on_failure(self, failed: object, desk: object, run: object) -> None:
            raise RuntimeError("after")

    ask, _ = flaky(1, idempotent=True)
    session, _ = await run(tmp_path, "ask", {"question": "?"}, Broken(), tools=[ask])

    assert [span.state for span in session.spans] == ["failed"]


@pytest.mark.parametrize("text", [b"nothing of it\n", b"one \xff three\n"])
async def test_edits_that_do_not_fit_leave_the_file_unchanged_and_are_reported(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(text)
    fields = {"file_path": str(tmp_path / "a.txt"), "edits": EDITS}
    tools = with_tools(silent("MultiEdit"), silent("Edit"))
    session, output = await run(tmp_path, "MultiEdit", fields, Degrade(), tools=tools)

    assert [span.tool for span in session.spans] == ["MultiEdit", "Edit"]
    assert output.recovered == [("a", "degrade", False)]
    assert (tmp_path / "a.txt").read_bytes() == text


async def test_write_over_an_unread_file_is_retried_after_a_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n", encoding="utf-8")
    write = {"file_path": str(tmp_path / "a.txt"), "content": "two\n"}
    session, output = await run(tmp_path, "Write", write, ReadAndRetry())

    assert [span.tool for span in session.spans] == ["Write", "Read", "Write"]
    assert output.recovered == [("a", "read and retry", True)]
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "two\n"


async def test_edit_that_does_not_fit_the_read_text_is_not_retried(tmp_path: Path) -> None:
    edit = edit_of_new_file(tmp_path, "nine")
    session, output = await run(tmp_path, "Edit", edit, ReadAndRetry())

    assert [span.tool for span in session.spans] == ["Edit", "Read"]
    assert output.recovered == [("a", "read and retry", False)]


def test_edits_apply_in_order_or_not_at_all() -> None:
    assert apply_edits("a b", [{"old_string": "a", "new_string": "b"}]) == "b b"
    assert apply_edits("a a", [{"old_string": "a", "new_string": "b"}]) is None
    edits = [{"old_string": "a", "new_string": "b", "replace_all": True}]
    assert apply_edits("a a", edits) == "b b"
    assert apply_edits("x", [{"old_string": "", "new_string": "b"}]) is None
