"""Denied files, links, and the messages about them, per client version."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Literal

import pytest

from toolspan.runtime.context import Workspace
from toolspan.runtime.hooks import Hooks
from toolspan.runtime.permissions.modes import Mode, mode_policy
from toolspan.runtime.permissions.rules import Rules
from toolspan.runtime.process import ProcessSupervisor
from toolspan.runtime.profiles import profile
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import ToolSubject, tool
from toolspan.tools import coding_tools
from toolspan.types.decision import Deny

pytestmark = pytest.mark.anyio
_DENIED = "<tool_use_error>File is in a directory that is denied by your permission settings.</tool_use_error>"
_TOOLS = ("Read", "Edit", "Write", "Glob", "Grep", "NotebookEdit")


class _Client:
    def __init__(self, runner: Runner) -> None:
        self._runner, self._ids = runner, count()

    async def text(self, tool: str, **fields: object) -> str:
        """Return the text for the model."""
        block = {"type": "tool_use", "id": f"toolu_{next(self._ids)}", "name": tool, "input": fields}
        return str((await self._runner.finish([block]))[0].content)


@asynccontextmanager
async def _client(
    folder: Path,
    rules: Rules | None = None,
    *,
    version: str = "2.1.327",
    mode: Mode = "default",
    hooks: Hooks | None = None,
) -> AsyncIterator[_Client]:
    values = profile(version)
    workspace = Workspace(
        project=folder / "proj",
        supervisor=ProcessSupervisor(),
        folder=folder / "session",
        environment={"PATH": os.environ["PATH"], "HOME": str(folder)},
    )
    (folder / "proj").mkdir(exist_ok=True)
    runner = Runner(
        coding_tools(values, only=_TOOLS),
        cwd=folder / "proj",
        profile=values,
        workspace=workspace,
        policies=[rules or Rules()],
        fallback=mode_policy(mode),
        hooks=hooks,
    )
    async with runner:
        yield _Client(runner)


def _fill(folder: Path, *names: str) -> Path:
    project = folder / "proj"
    for name in names:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("a\n")
    return project


async def test_denied_file_is_not_described(tmp_path: Path) -> None:
    _fill(tmp_path, "locked/x")
    rules = Rules(allow=["Edit", "Write", "Read"], deny=["Edit(locked/**)"])
    async with _client(tmp_path, rules) as client:
        absent = await client.text("Edit", file_path="locked/none", old_string="a", new_string="b")
        unmatched = await client.text("Edit", file_path="locked/x", old_string="zz", new_string="b")
        unchanged = await client.text("Edit", file_path="locked/x", old_string="a", new_string="a")

    assert absent == unmatched == _DENIED
    assert "No changes to make" in unchanged


@pytest.mark.parametrize("rule", ["Read(secret.txt)", "Read"])
async def test_unreadable_file_may_not_be_changed(tmp_path: Path, rule: str) -> None:
    project = _fill(tmp_path, "secret.txt")
    async with _client(tmp_path, Rules(allow=["Edit", "Write"], deny=[rule])) as client:
        edited = await client.text("Edit", file_path=f"{project}/secret.txt", old_string="a", new_string="b")
        written = await client.text("Write", file_path="secret.txt", content="b")

    assert "File is covered by a Read deny rule in your permission settings and cannot be edited." in edited
    assert "cannot be written." in written
    assert (project / "secret.txt").read_text() == "a\n"


@pytest.mark.parametrize("version", ["2.1.327", "2.0.65"])
async def test_searches_leave_out_denied_files(tmp_path: Path, version: str) -> None:
    _fill(tmp_path, "secret/x.txt", "open/x.txt")
    rules = Rules(allow=["Grep", "Glob", "Read"], deny=["Read(secret/**)"])
    async with _client(tmp_path, rules, version=version) as client:
        names = await client.text("Grep", pattern="a")
        lines = await client.text("Grep", pattern="a", output_mode="content")
        counts = await client.text("Grep", pattern="a", output_mode="count")
        result = await client.text("Glob", pattern="**/x.txt")
        inside = await client.text("Grep", pattern="a", path="secret")

    assert "secret" not in names + lines + counts + result
    assert all("open/x.txt" in text for text in (names, lines, counts, result))
    displayed = "secret" if version == "2.0.65" else tmp_path / "proj/secret"
    assert inside == f"Permission to read {displayed} has been denied."


async def test_newest_client_refuses_to_write_to_links(tmp_path: Path) -> None:
    project = _fill(tmp_path, "a.txt")
    (project / "link").symlink_to("a.txt")
    (project / "loop").symlink_to("loop")
    async with _client(tmp_path, mode="bypassPermissions") as client:
        read = await client.text("Read", file_path="link")
        written = await client.text("Write", file_path="link", content="b")
        edited = await client.text("Edit", file_path="link", old_string="a", new_string="b")
        loop = await client.text("Read", file_path="loop")

    assert "a" in read
    advice = f"Write to the link's target path instead: {project}/a.txt."
    assert written == edited == f"Refusing to write {project}/link: it is a symbolic link. {advice}"
    assert loop.startswith(f"Refusing to read {project}/loop: where it leads on disk could not be determined")
    assert (project / "a.txt").read_text() == "a\n"


async def test_questions_name_the_path_as_the_version_does(tmp_path: Path) -> None:
    project = _fill(tmp_path, "src/a.txt")
    async with _client(tmp_path) as client:
        new = await client.text("Write", file_path="src/../new", content="b")
        odd = await client.text("Write", file_path="new.", content="b")
    async with _client(tmp_path, version="2.0.65") as client:
        old = await client.text("Write", file_path="src/../new", content="b")
        dotted = await client.text("Write", file_path=f"{project}/new/.", content="b")

    assert new == f"Claude requested permissions to write to {project}/new, but you haven't granted it yet."
    assert old == "Claude requested permissions to write to src/../new, but you haven't granted it yet."
    assert "new., which contains a suspicious Windows path pattern that requires manual approval." in odd
    assert "/new/., which contains a suspicious Windows path pattern" in dotted


async def test_question_about_a_link_that_leads_outside_states_its_target(tmp_path: Path) -> None:
    project = _fill(tmp_path, "a.txt")
    (tmp_path / "outside").write_text("o\n")
    (project / "link").symlink_to(tmp_path / "outside")
    async with _client(tmp_path) as client:
        request = await client.text("Read", file_path="link")

    assert request.endswith(
        f" {project}/link resolves through a symlink to {tmp_path}/outside, which is outside the allowed working"
        " directories."
    )


async def test_reason_is_shown_alone_if_the_hook_saw_another_spelling_of_the_path(tmp_path: Path) -> None:
    project = _fill(tmp_path, "a.txt")
    hooks = Hooks()
    hooks.pre_tool_use()(lambda _event: Deny("no way"))
    async with _client(tmp_path, hooks=hooks) as client:
        respelled = await client.text("Read", file_path="./a.txt")
        exact = await client.text("Read", file_path=f"{project}/a.txt")

    assert respelled == "no way"
    assert exact == "PreToolUse:Read hook error: no way"


@pytest.mark.parametrize(("rule", "decision"), [("Edit(/secret/**)", "denied"), ("Edit(/other/**)", "succeeded")])
async def test_path_rules_bind_a_tool_by_its_declared_kind_and_not_by_its_name(
    tmp_path: Path, rule: str, decision: str
) -> None:
    @tool(kind="edit", subject=ToolSubject("file", "file_path"))
    def rewrite(file_path: str) -> str:
        return file_path

    runner = Runner([rewrite], cwd=tmp_path, policies=[Rules(deny=[rule])])
    block = {"type": "tool_use", "id": "toolu_0", "name": "rewrite", "input": {"file_path": "secret/key"}}

    assert (await runner.finish([block]))[0].span.state == decision


@pytest.mark.parametrize(("kind", "decision"), [("shell", "denied"), ("other", "succeeded")])
async def test_a_command_rule_reads_the_command_line_of_a_tool_that_declares_to_be_a_shell(
    tmp_path: Path, kind: Literal["shell", "other"], decision: str
) -> None:
    @tool(kind=kind, subject=ToolSubject("command", "command"))
    def execute(command: str) -> str:
        return command

    runner = Runner([execute], cwd=tmp_path, policies=[Rules(deny=["execute(rm:*)"])])
    block = {"type": "tool_use", "id": "toolu_0", "name": "execute", "input": {"command": "cd . && rm -r x"}}

    assert (await runner.finish([block]))[0].span.state == decision
