"""Bash: commands, their results, and the state that survives them."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from tests.requirement import requirement
from tests.runtime.process.commands import eventually
from tests.tools.terminal import SESSION, Terminal, lives, record, terminal
from toolspan import Permissions, Rules, Session
from toolspan.runtime.profiles import VERSIONS
from toolspan.types.events import Progressed

pytestmark = pytest.mark.anyio

CLIENTS = [version for version in VERSIONS if version != "seed"]
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40_000)).decode()


@requirement("bash.output")
async def test_both_streams_come_back_in_the_order_they_were_printed(tmp_path: Path) -> None:
    async with terminal(tmp_path) as shell:
        ran = await shell.run("echo a; echo b >&2; echo c")

    assert ran.content == "a\nb\nc"
    assert ran.span.result is not None
    assert ran.span.result.is_error is False
    assert record(ran) == {
        "stdout": "a\nb\nc",
        "stderr": "",
        "interrupted": False,
        "isImage": False,
        "noOutputExpected": False,
    }


@requirement("bash.output")
async def test_an_old_client_shows_stderr_first_when_a_command_fails(tmp_path: Path) -> None:
    async with terminal(tmp_path, "2.0.65") as shell:
        ran = await shell.run("echo a; echo b >&2")
        failed = await shell.run("echo a; echo b >&2; exit 2")

    assert ran.content == "a\nb"
    assert record(ran) == {"stdout": "a\nb", "stderr": "", "interrupted": False, "isImage": False}
    assert failed.content == "Exit code 2\nb\n\na"


@requirement("bash.output")
async def test_blank_lines_around_an_output_are_cut_and_control_characters_kept(tmp_path: Path) -> None:
    async with terminal(tmp_path) as shell:
        assert await shell.text(r"printf '\n \n  a\n\nb  \n\n'") == "  a\n\nb"
        assert await shell.text(r"printf 'a\033[0m\001\n'") == "a\x1b[0m\x01"
        assert await shell.text(r"printf 'a\034\n'") == "a\x1c"


@pytest.mark.parametrize("command", ["echo a\r\n", "echo '\x1b[8m'", "echo '\x85'", "echo '\x7f'"])
@requirement("bash.output")
async def test_newer_clients_reject_commands_with_characters_that_a_terminal_hides(
    command: str, tmp_path: Path
) -> None:
    message = "command contains control characters that would be hidden in the approval dialog"
    async with terminal(tmp_path) as shell:
        assert message in await shell.text(command)
    async with terminal(tmp_path, "2.0.65") as shell:
        assert message not in await shell.text(command)


@requirement("bash.output")
async def test_a_command_without_output_is_reported_as_such(tmp_path: Path) -> None:
    async with terminal(tmp_path) as shell:
        assert await shell.text("true") == "(Bash completed with no output)"
        assert await shell.text("") == "(Bash completed with no output)"
        assert record(await shell.run("mkdir a"))["noOutputExpected"] is True
    async with terminal(tmp_path, "2.0.65") as shell:
        assert await shell.text("true") == ""


async def test_the_seed_ends_a_success_with_its_exit_code(tmp_path: Path) -> None:
    async with terminal(tmp_path, "seed") as shell:
        assert await shell.text("echo hi") == "hi\n\n[Exit code: 0]"
        assert await shell.text("true") == "[Exit code: 0]"


@pytest.mark.parametrize("version", VERSIONS)
async def test_invalid_utf8_is_replaced(tmp_path: Path, version: str) -> None:
    async with terminal(tmp_path, version) as shell:
        ran = await shell.run(r"printf 'a\377\000\355\240\200b'; printf '\360\237' >&2")
        failed = await shell.run(r"printf '\377\000'; exit 1")

    assert str(ran.content).startswith("a\ufffd\x00\ufffd\ufffd\ufffdb")
    assert str(failed.content).startswith("Exit code 1\n\ufffd\x00")
    json.dumps([ran.content, ran.structured, failed.structured]).encode("utf-8")


@requirement("bash.failure")
@pytest.mark.parametrize("version", CLIENTS)
async def test_a_failure_begins_with_its_exit_code(tmp_path: Path, version: str) -> None:
    async with terminal(tmp_path, version) as shell:
        failed = await shell.run("echo no; exit 3")

    assert failed.content == "Exit code 3\nno"
    assert failed.structured == "Error: Exit code 3\nno"
    assert failed.span.state == "failed"
    assert failed.span.result is not None
    assert failed.span.result.is_error is True
    assert failed.span.result.exit_code == 3


@requirement("bash.failure")
async def test_a_shell_that_kills_itself_has_failed(tmp_path: Path) -> None:
    async with terminal(tmp_path) as shell:
        assert await shell.text("echo a; kill -9 $$") == "Exit code 1\na"
        assert await shell.text("echo still here") == "still here"


@requirement("bash.failure")
@pytest.mark.parametrize(("version", "added"), [("2.1.327", ""), ("2.0.65", " < /dev/null")])
async def test_the_shells_own_errors_have_the_lines_of_the_command(tmp_path: Path, version: str, added: str) -> None:
    async with terminal(tmp_path, version, SHELL="/bin/bash") as shell:
        missing = await shell.run("true\nnosuchprogram")
        broken = await shell.text("if then")

    assert missing.content == "Exit code 127\n/bin/bash: line 2: nosuchprogram: command not found"
    assert missing.span.error_kind == "command_not_found"
    assert broken == (
        "Exit code 2\n/bin/bash: eval: line 1: syntax error near unexpected token `then'\n"
        f"/bin/bash: eval: line 1: `if then{added}'"
    )


@requirement("bash.exit-codes")
async def test_an_exit_code_with_a_meaning_is_not_a_failure(tmp_path: Path) -> None:
    async with terminal(tmp_path) as shell:
        none = await shell.run("echo a > a; echo b > b; grep x a")
        differ = await shell.run("diff a b")
        unreadable = await shell.run("grep x nofile")

    assert none.content == "(Bash completed with no output)"
    assert record(none)["returnCodeInterpretation"] == "No matches found"
    assert record(differ)["returnCodeInterpretation"] == "Files differ"
    assert str(unreadable.content).startswith("Exit code 2\n")


@requirement("bash.new-shell")
async def test_every_command_has_a_shell_of_its_own(tmp_path: Path) -> None:
    async with terminal(tmp_path, SHELL="/bin/bash") as shell:
        await shell.run("x=1; export y=2; f() { echo f; }; set -e; umask 0")
        assert await shell.text('echo "$x$y$#$-$0"; type f 2>&1') == (
            "Exit code 1\n0hBc/bin/bash\n/bin/bash: line 1: type: f: not found"
        )


@requirement("bash.new-shell")
async def test_nothing_can_be_typed_into_a_command(tmp_path: Path) -> None:
    async with terminal(tmp_path) as shell:
        assert await shell.text("cat; read x || echo end") == "end"


@requirement("bash.new-shell")
async def test_a_command_that_begins_with_a_dash_is_a_command(tmp_path: Path) -> None:
    async with terminal(tmp_path, SHELL="/bin/bash") as shell:
        assert await shell.text("-x") == "Exit code 127\n/bin/bash: line 1: -x: command not found"


@requirement("bash.environment")
async def test_a_command_can_see_that_an_agent_runs_it(tmp_path: Path) -> None:
    ask = "echo $CLAUDECODE $CLAUDE_CODE_SESSION_ID $AI_AGENT $MINE $PWD"
    async with terminal(tmp_path, MINE="kept") as shell:
        assert await shell.text(ask) == (f"1 {SESSION} claude-code_2-1-327_agent kept {tmp_path}/project")
    async with terminal(tmp_path, "2.0.65") as shell:
        assert await shell.text(ask) == f"1 {tmp_path}/project"


@requirement("bash.folder-survives")
@pytest.mark.parametrize(
    ("folder", "command"),
    [
        ("project/sub", "cd sub"),
        ("project/sub", "cd sub && pwd"),
        ("project/sub", "cd sub; exec 3>&1; true"),
        ("project/sub", "trap 'echo bye' EXIT; cd sub"),
        ("project/sub", "pushd sub"),
        ("project/sub", "pwd() { echo /; }; cd sub"),
        ("project", "cd sub; exit 0"),
        ("project", "cd sub; exit 3"),
        ("project", "cd sub; false"),
        ("project", "cd sub\nif then"),
        ("project", "cd sub; set -u; : $nothing"),
    ],
)
async def test_the_next_command_starts_in_the_folder_where_a_successful_one_ended(
    tmp_path: Path, folder: str, command: str
) -> None:
    async with terminal(tmp_path) as shell:
        (shell.workspace.project / "sub").mkdir()
        await shell.run(command)

        assert await shell.text("pwd") == f"{tmp_path}/{folder}"


@requirement("bash.folder-survives")
async def test_a_command_that_removes_its_own_folder_fails(tmp_path: Path) -> None:
    async with terminal(tmp_path) as shell:
        (shell.workspace.project / "sub").mkdir()
        output = await shell.text("cd sub; rmdir ../sub; echo gone")

    assert output.startswith("Exit code 1\ngone\npwd: error retrieving current directory: ")


@requirement("bash.folder-survives")
@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("cd sub; exec echo replaced", "replaced"),
        ("cd sub; kill -9 $$", "Exit code 1"),
        ("(cd sub)", "(Bash completed with no output)"),
        ("trap 'echo bye' EXIT; cd sub; exit 4", "Exit code 4\nbye"),
    ],
)
async def test_recording_the_final_folder_changes_neither_exit_code_nor_output(
    tmp_path: Path, command: str, output: str
) -> None:
    async with terminal(tmp_path) as shell:
        (shell.workspace.project / "sub").mkdir()

        assert await shell.text(command) == output
        assert await shell.text("pwd") == f"{tmp_path}/project"


@requirement("bash.folder-reset")
async def test_a_shell_that_leaves_the_project_is_brought_back(tmp_path: Path) -> None:
    async with terminal(tmp_path) as shell:
        (shell.workspace.project / "sub").mkdir()
        await shell.run("cd sub")
        result = await shell.run("cd /; echo out")

        assert await shell.text("pwd") == f"{tmp_path}/project"
    notice = f"Shell cwd was reset to {tmp_path}/project"
    assert result.content == f"out\n{notice}"
    assert record(result)["stderr"] == f"\n{notice}"
    async with terminal(tmp_path, "2.0.65") as shell:
        assert record(await shell.run("cd /"))["stderr"] == notice


@requirement("bash.folder-reset")
async def test_the_shell_stays_in_a_folder_that_was_added_to_the_session(tmp_path: Path) -> None:
    project, added = tmp_path / "project", tmp_path / "added"
    project.mkdir()
    added.mkdir()
    permissions = Permissions(Rules(allow=["Bash"]), folders=(added,))
    async with Session(cwd=project, transcript=None, permissions=permissions) as session:
        for number, command in enumerate((f"cd {added}", "pwd", f"cd {tmp_path}", "pwd")):
            call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"command": command}}
            await session.run({"role": "assistant", "content": [call]})

        outputs = [span.result.text if span.result else None for span in session.spans]
    assert outputs[1] == str(added)
    assert outputs[2] == f"Shell cwd was reset to {project}"
    assert outputs[3] == str(project)


@requirement("bash.folder-reset")
async def test_a_project_known_by_a_link_keeps_that_name(tmp_path: Path) -> None:
    (tmp_path / "real" / "sub").mkdir(parents=True)
    (tmp_path / "project").symlink_to("real")
    async with terminal(tmp_path) as shell:
        assert await shell.text("cd sub") == "(Bash completed with no output)"
        assert await shell.text("pwd") == f"{tmp_path}/project/sub"


async def test_a_deleted_current_folder_is_reported_and_left(tmp_path: Path) -> None:
    async with terminal(tmp_path) as shell:
        await shell.run("mkdir sub; cd sub")
        await shell.run("rmdir ../sub")
        result = await shell.run("echo never")

        assert result.content == (
            f"The command was not run: the current folder {tmp_path}/project/sub no longer exists."
            f" The next command starts in {tmp_path}/project."
        )
        assert await shell.text("pwd") == f"{tmp_path}/project"


@pytest.mark.parametrize("command", ["echo \ud800", ": " + "a" * 3_000_000])
async def test_a_command_that_cannot_be_started_is_reported(tmp_path: Path, command: str) -> None:
    async with terminal(tmp_path) as shell:
        failed = await shell.run(command)

    assert str(failed.content).startswith("The command was not run. Cannot start ")
    assert failed.span.state == "failed"


@requirement("bash.overflow")
@pytest.mark.parametrize("lines", [20_000, 3_000_000])
async def test_an_output_over_the_limit_is_kept_in_a_file(tmp_path: Path, lines: int) -> None:
    async with terminal(tmp_path) as shell:
        ran = await shell.run(f"seq 1 {lines}")

    structured = record(ran)
    path = Path(str(structured["persistedOutputPath"]))
    output = "".join(f"{number}\n" for number in range(1, lines + 1))
    assert path.parent == tmp_path / "session" / "tool-results"
    assert path.read_text(encoding="utf-8") == output
    assert structured["persistedOutputSize"] == len(output)
    assert structured["stdout"] == output[:30_000]
    assert str(ran.content).startswith("<persisted-output>\nOutput too large (")
    assert f"Full output saved to: {path}\n\nPreview (first 2KB):\n1\n2\n" in str(ran.content)
    assert str(ran.content).endswith("\n527\n...\n</persisted-output>")
    assert list(tmp_path.rglob("*.output")) == []


@requirement("bash.overflow")
async def test_an_old_client_cuts_an_output_and_counts_the_lines(tmp_path: Path) -> None:
    async with terminal(tmp_path, "2.0.65") as shell:
        ran = await shell.run("seq 1 20000")
        huge = await shell.text("seq 1 3000000")

    assert str(ran.content).endswith("\n62\n\n... [13779 lines truncated] ...")
    assert record(ran)["stdout"] == ran.content
    assert huge.endswith("\n62\n\n... [2993779 lines truncated] ...")
    assert list(tmp_path.rglob("*.output")) == []


@requirement("bash.overflow")
@pytest.mark.parametrize(("version", "omitted"), [("2.1.327", 20_012), ("2.0.65", 98_905)])
async def test_a_long_failure_loses_its_middle(tmp_path: Path, version: str, omitted: int) -> None:
    async with terminal(tmp_path, version) as shell:
        failed = await shell.text("seq 1 20000; exit 1")

    assert f"\n\n... [{omitted} characters truncated] ...\n\n" in failed
    assert len(failed) < 10_100


@requirement("bash.overflow")
async def test_the_limit_can_be_set(tmp_path: Path) -> None:
    async with terminal(tmp_path, BASH_MAX_OUTPUT_LENGTH="10") as shell:
        assert (await shell.text("seq 100")).startswith("<persisted-output>")
    async with terminal(tmp_path, BASH_MAX_OUTPUT_LENGTH="many") as shell:
        assert len(await shell.text("printf '%020000d'")) == 20_000


@requirement("bash.image")
async def test_printed_image_data_is_an_image_result(tmp_path: Path) -> None:
    uri = f"data:image/png;base64,{PNG}"
    async with terminal(tmp_path) as shell:
        (shell.workspace.project / "picture").write_text(uri, encoding="utf-8")
        result = await shell.run("cat picture")
        text = await shell.run("echo 'data:image/png;base64,not really'")

    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    assert result.content == [{"type": "image", "source": source}]
    assert record(result)["isImage"] is True
    assert record(result)["stdout"] == uri
    assert result.span.result is not None
    assert result.span.result.is_error is None
    assert text.content == "data:image/png;base64,not really"
    assert record(text)["isImage"] is False


@asynccontextmanager
async def gated(folder: Path, version: str = "2.1.327") -> AsyncIterator[tuple[Terminal, Path]]:
    """Return a terminal with a FIFO in its folder, at which a command can wait."""
    async with terminal(folder, version) as shell:
        gate = shell.workspace.project / "gate"
        os.mkfifo(gate)
        yield shell, gate


@requirement("bash.timeout-moves")
@pytest.mark.parametrize("version", CLIENTS)
async def test_a_command_that_exceeds_its_timeout_continues_in_the_background(tmp_path: Path, version: str) -> None:
    async with gated(tmp_path, version) as (shell, gate):
        moved = await shell.run("echo before; cat gate; echo after >&2; exit 4", timeout=1000)
        task = shell.task(moved)
        assert task.child.exit is None
        await anyio.to_thread.run_sync(gate.write_text, "through\n")
        await task.wait()

        assert task.status == "failed"
        mark = "[stderr] " if version == "2.0.65" else ""
        end = "\n[exited with code 4]\n" if version == "2.1.327" else ""
        assert task.path.read_text(encoding="utf-8") == f"before\nthrough\n{mark}after\n{end}"
        assert task.path == tmp_path / "session" / "tasks" / f"{task.id}.output"
    assert f"Output is being written to: {task.path}" in str(moved.content)
    assert record(moved)["backgroundTaskId"] == task.id
    assert moved.span.result is not None
    assert moved.span.result.is_error is False
    if version == "2.1.327":
        assert str(moved.content).startswith(
            f"before\nCommand did not complete within its 1s timeout and was moved to the background (ID: {task.id})."
        )
        assert record(moved)["timedOutAfterMs"] == 1000
        assert record(moved)["stdout"] == "before"
    else:
        assert str(moved.content).startswith(f"Command running in background with ID: {task.id}.")
        assert record(moved)["stdout"] == ""


@requirement("bash.timeout-kills")
async def test_a_command_that_only_sleeps_is_killed_at_its_timeout(tmp_path: Path) -> None:
    async with terminal(tmp_path) as shell:
        ended = await shell.run("sleep 60", timeout=200)

    assert ended.content == "Exit code 143\nCommand timed out after 0s"
    assert ended.span.state == "timed_out"
    assert ended.span.error_kind == "command_timeout"


@requirement("bash.timeout-kills")
async def test_without_a_background_every_command_is_ended_by_its_timeout(tmp_path: Path) -> None:
    async with terminal(tmp_path, "2.0.65", CLAUDE_CODE_DISABLE_BACKGROUND_TASKS="1") as shell:
        ended = await shell.text("echo before; sleep 60", timeout=1000)
        stayed = await shell.text("echo here", run_in_background=True)

    assert ended == "Exit code 143\nCommand timed out after 1.0s\nbefore"
    assert stayed == "here"


@pytest.mark.parametrize(
    ("tool_input", "environment"),
    [
        ({}, {"BASH_DEFAULT_TIMEOUT_MS": "200"}),
        ({"timeout": 0}, {"BASH_DEFAULT_TIMEOUT_MS": "200"}),
        ({"timeout": 99_999_999}, {"BASH_DEFAULT_TIMEOUT_MS": "100", "BASH_MAX_TIMEOUT_MS": "200"}),
    ],
)
async def test_timeouts_have_a_default_and_a_maximum(
    tmp_path: Path, tool_input: dict[str, object], environment: dict[str, str]
) -> None:
    async with terminal(tmp_path, **environment) as shell:
        ended = await shell.text("sleep 60", **tool_input)

    assert ended == "Exit code 143\nCommand timed out after 0s"


@requirement("bash.background")
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_command_can_be_started_in_the_background(tmp_path: Path, version: str) -> None:
    async with gated(tmp_path, version) as (shell, gate):
        started = await shell.run("cat gate; echo b >&2", run_in_background=True, description="d")
        task = shell.task(started)
        assert task.path.read_bytes() == b""
        assert await shell.text("echo meanwhile") in ("meanwhile", "meanwhile\n\n[Exit code: 0]")
        await anyio.to_thread.run_sync(gate.write_text, "a\n")
        await task.wait()

        assert task.status == "completed"
        mark = "[stderr] " if version == "2.0.65" else ""
        end = "\n[exited with code 0]\n" if version == "2.1.327" else ""
        assert task.path.read_text(encoding="utf-8") == f"a\n{mark}b\n{end}"
    assert str(started.content).startswith(
        f"Command running in background with ID: {task.id}. Output is being written to: {task.path}"
    )
    assert record(started)["backgroundTaskId"] == task.id
    assert (task.command, task.description) == ("cat gate; echo b >&2", "d")


def file_contains(path: Path, text: str) -> bool:
    return text in path.read_text(encoding="utf-8")


@requirement("bash.background-exit")
async def test_the_output_file_of_a_background_command_ends_with_its_exit(tmp_path: Path) -> None:
    async with gated(tmp_path) as (shell, _):
        silent = shell.task(await shell.run("exit 3", run_in_background=True))
        unfinished = shell.task(await shell.run("printf half; (cat gate &); exit 0", run_in_background=True))
        endless = shell.task(await shell.run("echo begun; cat gate", run_in_background=True))
        for path in (silent.path, unfinished.path):  # nothing waits for the commands, as when the model reads the files
            await eventually(partial(file_contains, path, "exited"))
        await eventually(lambda: endless.output.total > 0)
        await endless.stop()

        assert silent.path.read_text(encoding="utf-8") == "\n[exited with code 3]\n"
        assert unfinished.path.read_text(encoding="utf-8") == "half\n[exited with code 0]\n"
        assert endless.path.read_text(encoding="utf-8") == "begun\n\n[killed]\n"
        assert endless.output.text == "begun\n"


@requirement("bash.background")
async def test_a_negative_timeout_starts_a_command_in_the_background(tmp_path: Path) -> None:
    async with gated(tmp_path) as (shell, _):
        started = await shell.run("cat gate", timeout=-5)

        assert shell.task(started).child.exit is None
    assert shell.task(started).child.exit is not None


@requirement("bash.interrupt")
@pytest.mark.parametrize("version", CLIENTS)
async def test_interrupting_a_command_terminates_everything_it_started(tmp_path: Path, version: str) -> None:
    async with terminal(tmp_path, version) as shell:
        async with shell.runner.batch() as batch:
            batch.add(shell.block("sleep 60 & echo $! $$; wait; echo never"))
            await shell.printed.wait()
            shell.runner.cancel()
            (cut,) = await batch.drain()
        progress = next(event for event in shell.events if isinstance(event, Progressed))
        pids = [int(word) for word in str(progress.data["tail"]).split()]

        assert len(pids) == 2
        assert [pid for pid in pids if lives(pid)] == []
    assert cut.span.state == "interrupted"
    if version == "2.0.65":
        assert str(cut.content).startswith("Exit code 137\n")
        assert str(pids[0]) in str(cut.content)


async def test_a_running_command_reports_progress(tmp_path: Path) -> None:
    async with terminal(tmp_path) as shell:
        await shell.run("echo one")

    (progress,) = [event for event in shell.events if isinstance(event, Progressed)]
    assert progress.kind == "shell"
    assert progress.data == {"lines": 1, "bytes": 4, "tail": "one\n"}


@requirement("bash.concurrency")
async def test_commands_that_only_read_run_at_the_same_time(tmp_path: Path) -> None:
    async with terminal(tmp_path) as shell:
        gates = [shell.workspace.project / name for name in ("a", "b")]
        for gate in gates:
            os.mkfifo(gate)
        async with shell.runner.batch() as batch:
            for gate in gates:
                batch.add(shell.block(f"cat {gate.name}"))
            for gate in reversed(gates):  # each blocks until its command reads
                await anyio.to_thread.run_sync(gate.write_text, gate.name)
            result = await batch.drain()

    assert [result.content for result in result] == ["a", "b"]


@requirement("bash.concurrency")
async def test_other_commands_run_one_after_the_other(tmp_path: Path) -> None:
    async with terminal(tmp_path) as shell:
        result = await shell.runner.finish([shell.block(f"mkdir lock && echo {name}; rmdir lock") for name in "abc"])

        assert not shell.tool.may_overlap({"command": "ls", "run_in_background": True})
    assert [result.content for result in result] == ["a", "b", "c"]


@requirement("bash.input")
async def test_an_input_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    async with terminal(tmp_path) as shell:
        (refused,) = await shell.runner.finish(
            [{"type": "tool_use", "id": "toolu_x", "name": "Bash", "input": {"cmd": "ls"}}]
        )

        assert await shell.text("echo number", timeout="2000") == "number"
    assert str(refused.content).startswith("<tool_use_error>InputValidationError: Bash failed")
    async with terminal(tmp_path, "2.0.65") as shell:
        assert "is expected as `number`" in await shell.text("echo number", timeout="2000")


@requirement("bash.timeout-shows-end")
@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("seq 1 3000", "".join(f"{number}\n" for number in range(2602, 3001)).rstrip()),
        ("printf 'x%.0s' {1..5000}", "x" * 2_000),
        ("printf '\\U1f600%.0s' {1..600}", "\U0001f600" * 500),
    ],
)
async def test_the_end_of_a_long_output_is_shown_when_a_command_is_moved(
    tmp_path: Path, printed: str, shown: str
) -> None:
    async with gated(tmp_path, "2.1.327") as (shell, gate):
        moved = await shell.run(f"export LC_ALL=C.UTF-8; {printed}; cat gate", timeout=1000)
        task = shell.task(moved)
        await anyio.to_thread.run_sync(gate.write_text, "through\n")
        await task.wait()

    notice, _, rest = str(record(moved)["stdout"]).partition("\n")
    assert notice == f"[\u2026 earlier output omitted; full output: {task.path}]"
    assert rest == shown
    assert str(moved.content).startswith(f"{notice}\n{shown}\nCommand did not complete")


@requirement("bash.background-keeps-folder")
async def test_a_background_command_leaves_the_folder_of_the_session(tmp_path: Path) -> None:
    async with gated(tmp_path, "2.1.327") as (shell, gate):
        (tmp_path / "project" / "sub").mkdir(parents=True, exist_ok=True)
        started = await shell.run("cd sub && cat ../gate", run_in_background=True)
        folder = await shell.run("pwd")
        await anyio.to_thread.run_sync(gate.write_text, "through\n")
        await shell.task(started).wait()
        later = await shell.run("pwd")

    assert folder.content == later.content
    hint = f"Session cwd remains {folder.content};"
    assert str(record(started)["backgroundCwdHint"]).startswith(hint)
    assert str(started.content).rpartition("\n")[2].startswith(hint)


@requirement("bash.limit-in-bytes")
async def test_the_limit_of_an_output_is_in_bytes(tmp_path: Path) -> None:
    async with gated(tmp_path, "2.1.327") as (shell, _):
        long = await shell.run("export LC_ALL=C.UTF-8; printf '\\U1f600%.0s' {1..7501}")
        short = await shell.run("export LC_ALL=C.UTF-8; printf '\\U1f600%.0s' {1..7500}")

    assert str(long.content).startswith("<persisted-output>\nOutput too large (29.3KB).")
    assert record(long)["stdout"] == short.content == "\U0001f600" * 7_500
