"""The command line as a whole: help, exit codes, what all commands share."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.cli import command
from tests.cli.terminal import run_at_terminal
from tests.fork_server import TOOLSPAN, run_toolspan
from toolspan.cli.app import COMMANDS, app
from toolspan.reading import sample
from toolspan.testing import TranscriptBuilder, claude_results

pytestmark = pytest.mark.usefixtures("fork_server")

READING = ("calls", "errors", "stats", "sessions", "doctor")


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_toolspan(*arguments)


def session_with_a_call() -> TranscriptBuilder:
    builder = TranscriptBuilder().prompt("go")
    return builder.result(builder.call("Bash", {"command": "ls"}), claude_results.ran("a"))


def test_help_lists_every_command() -> None:
    output = CliRunner().invoke(app, ["--help"]).stdout

    for name, text in COMMANDS.items():
        assert name in output
        assert text in output


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_and_json(name: str) -> None:
    command = app.get_command(click.Context(app), name)

    assert isinstance(command, click.Command)
    assert command.name == name
    assert "--json" in CliRunner().invoke(app, [name, "--help"]).stdout


def test_help_loads_no_command() -> None:
    code = (
        "import sys; from toolspan.cli.app import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name == 'rich' or name == 'toolspan.cli.calls'])"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.endswith("[]\n")


def test_version_is_that_of_the_package() -> None:
    assert version("toolspan") in CliRunner().invoke(app, ["--version"]).stdout


@pytest.mark.parametrize("name", READING)
def test_success_exits_with_0_and_prints_nothing_to_stderr(name: str, tmp_path: Path) -> None:
    result = run(name, session_with_a_call().write(tmp_path / "s.jsonl"))

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout


@pytest.mark.parametrize("name", [*READING, "flows", "time"])
def test_missing_file_exits_with_2_and_prints_one_line(name: str, tmp_path: Path) -> None:
    result = run(name, tmp_path / "gone.jsonl")

    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"toolspan: {tmp_path}/gone.jsonl: no such file or folder\n"


def test_only_doctor_exits_with_1_for_a_damaged_file(tmp_path: Path) -> None:
    path = session_with_a_call().raw(b"{torn").raw(b'{"type":"mode"}').write(tmp_path / "s.jsonl")

    assert {name: run(name, path).returncode for name in READING} == {
        "calls": 0,
        "errors": 0,
        "stats": 0,
        "sessions": 0,
        "doctor": 1,
    }


@pytest.mark.parametrize("arguments", [["nonsense"], ["calls", "--nonsense"], ["calls", "--state", "x"]])
def test_invalid_arguments_exit_with_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)

    assert result.exit_code == 2
    assert "Traceback" not in result.stderr


def test_piped_output_has_no_colours(tmp_path: Path) -> None:
    path = session_with_a_call().write(tmp_path / "s.jsonl")

    assert all("\x1b" not in run(name, path).stdout for name in READING)


@pytest.mark.parametrize("name", ["sessions", "calls", "errors", "files", "flows", "stats"])
def test_explicit_limit_applies_to_json_too(name: str) -> None:
    archive = sample.archive()

    def rows(*arguments: str) -> list[dict[str, Any]]:
        output = command.rows(command.run(name, archive, "--json", *arguments))
        if name == "stats":
            return [dict(tool) for tool in output[0]["tools"]]
        return [row for row in output if row.get("type", "chain") == "chain"]

    every = rows()
    few = rows("--limit", "2")

    assert rows("--limit", "0") == every
    assert len(every) > len(few) == 2
    assert few in (every[:2], every[-2:])


HOSTILE = "[/x]\x1b[2J\x1b]0;owned\x07\x9b\u202e"


@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize(
    "name", [*READING, "time", "flows", "files", "show", "search x", "watch --since-start --idle-exit 0"]
)
def test_hostile_text_is_printed_without_control_characters_or_markup(
    name: str, form: list[str], tmp_path: Path
) -> None:
    builder = TranscriptBuilder(session_id=HOSTILE, cwd=f"/{HOSTILE}").prompt(f"x {HOSTILE}").title(HOSTILE)
    call = builder.call(HOSTILE, {"command": f"x {HOSTILE}"}, id=f"toolu{HOSTILE}", after_ms=2_000)
    builder.result(call, claude_results.failed(HOSTILE), after_ms=10)
    path = f"/w/{HOSTILE}.py"
    builder.result(
        builder.call("Write", {"file_path": path, "content": HOSTILE}), claude_results.written(path, HOSTILE)
    )
    builder.raw(json.dumps({"type": HOSTILE, HOSTILE: 1}).encode())
    (tmp_path / "s.jsonl").write_bytes(builder.data())

    result = command.run(*name.split(), tmp_path / "s.jsonl", *form, code=None)

    assert result.exit_code in (0, 1)
    assert "[/x]" in result.stdout or name in ("doctor", "stats", "flows")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", result.stdout)


def test_warnings_contain_no_control_characters(tmp_path: Path) -> None:
    hostile = HOSTILE.replace("/", "")  # for file names
    builder = TranscriptBuilder().prompt("go")
    for n in range(2):
        builder.result(builder.call("Bash", {"command": "ls"}, id=f"toolu_{n}{hostile}"), claude_results.ran("a"))
    path = builder.write(tmp_path / "a.jsonl")
    (tmp_path / f"b{hostile}.jsonl.zst").write_bytes(b"no archive")
    (tmp_path / f"c{hostile}.txt").write_bytes(b"no transcript")

    output = [
        command.run("show", "toolu_", path, code=2),
        command.run("calls", tmp_path / f"c{hostile}.txt", code=2),
        *(command.run(name, tmp_path, code=None) for name in ("calls", "errors", "doctor")),
        command.run("search", "ls", f"{tmp_path}/"),
    ]

    for result in output:
        assert result.stderr.startswith("toolspan: ")
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", result.stderr)


def test_symbols_differ_without_unicode() -> None:
    result = CliRunner(charset="ascii").invoke(app, ["show", "91b7f3d2", str(sample.archive())])

    assert result.stdout.isascii()
    assert re.search(r" v \d+ succeeded  x \d+ failed", result.stdout)


def at_terminal(*arguments: str | Path) -> tuple[int, str]:
    return run_at_terminal([*TOOLSPAN, *map(str, arguments)], TOOLSPAN_PAGER="sed 's/^/paged: /'")


def test_pager_starts_with_the_first_output(tmp_path: Path) -> None:
    code, text = at_terminal("calls", sample.archive(), "--limit", "1")
    assert (code, text.count("paged: ")) == (0, text.count("\r\n"))
    assert "97 calls" in text

    code, text = at_terminal("calls", tmp_path / "nothing.jsonl")
    assert (code, text.count("paged: ")) == (2, 0)
    assert "no such file" in text


@pytest.mark.parametrize(
    ("word", "known"), [("cost", "usage"), ("ls", "sessions"), ("grep", "search"), ("open", "show")]
)
def test_a_word_of_another_program_suggests_the_command(word: str, known: str) -> None:
    assert f"Did you mean {known}" in command.run(word, code=2).output


def test_a_pipe_is_as_wide_as_the_terminal(tmp_path: Path) -> None:
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 90, 0, 0))
    arguments = [sys.executable, "-m", "toolspan", "--demo", "calls"]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    piped = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=terminal, env=environment, check=True)
    with (tmp_path / "calls.txt").open("wb") as file:
        subprocess.run(arguments, stdout=file, stderr=terminal, env=environment, check=True)
    os.close(terminal)
    os.close(main)

    assert max(map(len, piped.stdout.decode().splitlines())) == 90
    assert max(map(len, (tmp_path / "calls.txt").read_text(encoding="utf-8").splitlines())) == 160


def test_narrow_lists_keep_the_ids_of_calls() -> None:
    for arguments in (("calls", "--state", "denied"), ("show", "c2a9e6b4")):
        assert "LqInaXPh" in command.run("--demo", *arguments, env={"COLUMNS": "80"}).output


def test_show_prints_the_whole_command_of_a_call(tmp_path: Path) -> None:
    line = " ".join(f"word{n}" for n in range(100))
    builder = TranscriptBuilder().prompt("run it")
    call = builder.call("Bash", {"command": line})
    path = builder.result(call, claude_results.ran("ok")).write(tmp_path / "a.jsonl")

    assert f"command    {line}\n" in command.run("show", call, path, env={"COLUMNS": "80"}).output
