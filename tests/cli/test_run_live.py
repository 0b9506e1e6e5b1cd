"""`toolspan run` at a real terminal: typing, streaming, approving, interrupting."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import toolspan
from tests.cli.terminal import MENU, Terminal, open_terminal
from tests.fork_server import TOOLSPAN
from tests.requirement import requirement
from toolspan.session.models.scripted import ScriptAnswer
from toolspan.session.resume import load_history
from toolspan.testing import ModelServer, ScriptedModel, check_history, say, use

pytestmark = pytest.mark.usefixtures("fork_server")

CTRL_C, CTRL_D = "\x03", "\x04"
READY = "\n> "
WAITS = use("Bash", command="echo > ready; sleep 600")


@contextmanager
def run_terminal(folder: Path, script: Sequence[object], *options: str) -> Iterator[Terminal]:
    """Start `toolspan run` in `folder/project`."""
    (folder / "script.json").write_text(json.dumps(script), encoding="utf-8")
    arguments = [*TOOLSPAN, "run", "--setting-sources", ""]
    arguments += ["--model", f"scripted:{folder / 'script.json'}"]
    arguments += ["--transcript", str(folder / "t.jsonl"), *options]
    with open_terminal(folder, arguments, home=folder) as terminal:
        terminal.wait_for(READY)
        yield terminal


def transcript(folder: Path) -> Path:
    path = folder / "t.jsonl"
    assert check_history(load_history(path)) == []
    return path


def test_user_chats_approves_a_call_and_leaves(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/a.txt").write_text("one\n", encoding="utf-8")
    read = use("Read", file_path="a.txt")
    edit = use("Edit", file_path="a.txt", old_string="one", new_string="two")
    script = [[say("I \x1b[31mlook."), read], [edit], say("It is two."), say("You are welcome.")]
    with run_terminal(tmp_path, script) as terminal:
        terminal.write("Make it two.\n")
        question = terminal.answer("o")
        result = terminal.wait_for(READY)
        terminal.write("Thank \\\nyou.\n")
        terminal.wait_for("You are welcome.")
        terminal.wait_for(READY)
        terminal.write("/exit\n")
        assert terminal.child.wait() == 0

    assert "I <U+001B>[31mlook." in question
    assert "Read" in question
    assert "+two" in question
    assert "Edit" in result
    assert "It is two." in result
    assert (tmp_path / "project/a.txt").read_text(encoding="utf-8") == "two\n"
    messages = toolspan.read(transcript(tmp_path)).messages()
    assert [m.text for m in messages if m.voice == "prompt"] == ["Make it two.", "Thank \nyou."]


def test_output_does_not_overwrite_the_question_of_a_subagent(tmp_path: Path) -> None:
    work = use("Agent", description="Work", prompt="Touch it.", run_in_background=False)
    script = [[work], [use("Bash", command="touch a.txt")], [say("Done.")], [say("It is done.")]]
    with run_terminal(tmp_path, script) as terminal:
        terminal.write("Go.\n")
        drawn = terminal.wait_for("needs permission")
        assert "\x1b[2K" in drawn  # the line of the call above is taken away first
        terminal.wait_for(MENU)
        terminal.write("o\n")
        terminal.wait_for("It is done.")
        terminal.wait_for("tokens")

    assert (tmp_path / "project" / "a.txt").exists()
    assert [span.state for span in toolspan.read(transcript(tmp_path)).spans] == ["succeeded"]


def test_background_agent_may_ask_while_the_user_can_type(tmp_path: Path) -> None:
    pytest.importorskip("anthropic")

    def reply(messages: Sequence[object]) -> ScriptAnswer:
        if "Touch it." in str(messages[0]):
            return use("Bash", command="touch a.txt") if len(messages) == 1 else say("Touched.")
        if len(messages) == 1:
            return use("Agent", description="Work", prompt="Touch it.", run_in_background=True)
        return say("Sent off." if len(messages) == 3 else "I know.")

    with ModelServer(ScriptedModel([], then=reply)) as server:
        named = ("--model", "anthropic:x", "--base-url", server.url)
        with run_terminal(tmp_path, [], *named) as terminal:
            terminal.write("Go.\n")
            terminal.wait_for(MENU)
            terminal.write("o\n")
            terminal.wait_for("↳")  # it has run
            terminal.write("And?\n")
            terminal.wait_for("I know.")

    assert (tmp_path / "project" / "a.txt").exists()


def test_ctrl_c_ends_the_turn_and_the_conversation_continues(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    os.mkfifo(tmp_path / "project/ready")
    bypass = ("--permission-mode", "bypassPermissions")
    with run_terminal(tmp_path, [WAITS, say("Sorry.")], *bypass) as terminal:
        terminal.write("Wait.\n")
        (tmp_path / "project/ready").read_text(encoding="utf-8")
        terminal.write(CTRL_C)
        terminal.wait_for("interrupted by the user")
        terminal.wait_for(READY)
        terminal.write("Why?\n")
        terminal.wait_for("Sorry.")
        terminal.wait_for(READY)
        terminal.write(CTRL_D)
        assert terminal.child.wait() == 0

    spans = toolspan.read(transcript(tmp_path)).spans
    assert [span.state for span in spans] == ["interrupted"]


def test_second_ctrl_c_exits(tmp_path: Path) -> None:
    with run_terminal(tmp_path, []) as terminal:
        terminal.write(CTRL_C)
        terminal.wait_for("Press Ctrl-C again to quit.")
        terminal.write(CTRL_C)
        assert terminal.child.wait() == 130


@requirement("hooks.async-rewake")
def test_async_hook_wakes_the_model_while_the_user_can_type(tmp_path: Path) -> None:
    waits = "until [ -e ../go ]; do sleep 0.02; done; echo the build broke >&2; exit 2"
    waker = {"hooks": [{"type": "command", "command": waits, "asyncRewake": True}]}
    settings = tmp_path / "settings.json"
    end = {"hooks": [{"type": "command", "command": "cat > ../ended"}]}
    hooks = {"PostToolUse": [waker], "SessionEnd": [{"matcher": "prompt_input_exit", **end}]}
    settings.write_text(json.dumps({"hooks": hooks}), encoding="utf-8")
    script = [[use("Bash", command="true")], say("Done."), say("I mend it."), say("Welcome.")]
    options = ("--settings", str(settings), "--permission-mode", "bypassPermissions")
    with run_terminal(tmp_path, script, *options) as terminal:
        terminal.write("Go.\n")
        terminal.wait_for("Done.")
        terminal.wait_for(READY)
        (tmp_path / "go").touch()
        terminal.wait_for("I mend it.")
        terminal.wait_for(READY)
        terminal.write("Thanks.\n")
        terminal.wait_for("Welcome.")
        terminal.wait_for(READY)
        terminal.write("/exit\n")
        assert terminal.child.wait() == 0

    assert json.loads((tmp_path / "ended").read_bytes())["reason"] == "prompt_input_exit"
    (news,) = [m for m in toolspan.read(transcript(tmp_path)).messages() if "broke" in m.text]
    assert 'command "PostToolUse:Bash": the build broke' in news.text
