"""`toolspan run` at a real terminal: typing, streaming, approving, interrupting."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import toolspan
from tests.cli.person import MENU, PATIENCE, Person, seated
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
def talking(folder: Path, script: Sequence[object], *options: str) -> Iterator[Person]:
    """Start `toolspan run` in `folder/project`."""
    (folder / "script.json").write_text(json.dumps(script), encoding="utf-8")
    arguments = [*TOOLSPAN, "run", "--setting-sources", ""]
    arguments += ["--model", f"scripted:{folder / 'script.json'}"]
    arguments += ["--transcript", str(folder / "t.jsonl"), *options]
    with seated(folder, arguments, home=folder) as somebody:
        somebody.sees(READY)
        yield somebody


def transcript(folder: Path) -> Path:
    path = folder / "t.jsonl"
    assert check_history(load_history(path)) == []
    return path


@requirement("run.conversation")
def test_user_chats_approves_a_call_and_leaves(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/a.txt").write_text("one\n", encoding="utf-8")
    read = use("Read", file_path="a.txt")
    edit = use("Edit", file_path="a.txt", old_string="one", new_string="two")
    script = [[say("I \x1b[31mlook."), read], [edit], say("It is two."), say("You are welcome.")]
    with talking(tmp_path, script) as somebody:
        somebody.types("Make it two.\n")
        shown = somebody.answers("o")
        done = somebody.sees(READY)
        somebody.types("Thank \\\nyou.\n")
        somebody.sees("You are welcome.")
        somebody.sees(READY)
        somebody.types("/exit\n")
        assert somebody.child.wait(PATIENCE) == 0

    assert "I <U+001B>[31mlook." in shown
    assert "Read" in shown
    assert "+two" in shown
    assert "Edit" in done
    assert "It is two." in done
    assert (tmp_path / "project/a.txt").read_text(encoding="utf-8") == "two\n"
    messages = toolspan.read(transcript(tmp_path)).messages()
    assert [m.text for m in messages if m.voice == "prompt"] == ["Make it two.", "Thank \nyou."]


@requirement("run.conversation")
def test_output_does_not_overwrite_the_question_of_a_subagent(tmp_path: Path) -> None:
    work = use("Agent", description="Work", prompt="Touch it.", run_in_background=False)
    script = [[work], [use("Bash", command="touch a.txt")], [say("Done.")], [say("It is done.")]]
    with talking(tmp_path, script) as somebody:
        somebody.types("Go.\n")
        drawn = somebody.sees("needs permission")
        assert "\x1b[2K" in drawn  # the line of the call above is taken away first
        somebody.sees(MENU)
        somebody.types("o\n")
        somebody.sees("It is done.")
        somebody.sees("tokens")

    assert (tmp_path / "project" / "a.txt").exists()
    assert [span.state for span in toolspan.read(transcript(tmp_path)).spans] == ["succeeded"]


@requirement("run.conversation")
def test_background_agent_may_ask_while_the_user_can_type(tmp_path: Path) -> None:
    def reply(messages: Sequence[object]) -> ScriptAnswer:
        if "Touch it." in str(messages[0]):
            return use("Bash", command="touch a.txt") if len(messages) == 1 else say("Touched.")
        if len(messages) == 1:
            return use("Agent", description="Work", prompt="Touch it.", run_in_background=True)
        return say("Sent off." if len(messages) == 3 else "I know.")

    with ModelServer(ScriptedModel([], then=reply)) as server:
        named = ("--model", "anthropic:x", "--base-url", server.url)
        with talking(tmp_path, [], *named) as somebody:
            somebody.types("Go.\n")
            somebody.sees(MENU)
            somebody.types("o\n")
            somebody.sees("↳")  # it has run
            somebody.types("And?\n")
            somebody.sees("I know.")

    assert (tmp_path / "project" / "a.txt").exists()


@requirement("run.conversation-interrupt")
def test_ctrl_c_ends_the_turn_and_the_conversation_continues(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    os.mkfifo(tmp_path / "project/ready")
    bypass = ("--permission-mode", "bypassPermissions")
    with talking(tmp_path, [WAITS, say("Sorry.")], *bypass) as somebody:
        somebody.types("Wait.\n")
        (tmp_path / "project/ready").read_text(encoding="utf-8")
        somebody.types(CTRL_C)
        somebody.sees("interrupted by the user")
        somebody.sees(READY)
        somebody.types("Why?\n")
        somebody.sees("Sorry.")
        somebody.sees(READY)
        somebody.types(CTRL_D)
        assert somebody.child.wait(PATIENCE) == 0

    spans = toolspan.read(transcript(tmp_path)).spans
    assert [span.state for span in spans] == ["interrupted"]


@requirement("run.conversation-interrupt")
def test_second_ctrl_c_exits(tmp_path: Path) -> None:
    with talking(tmp_path, []) as somebody:
        somebody.types(CTRL_C)
        somebody.sees("Press Ctrl-C again to quit.")
        somebody.types(CTRL_C)
        assert somebody.child.wait(PATIENCE) == 130


@requirement("hooks.rewake")
def test_async_hook_wakes_the_model_while_the_user_can_type(tmp_path: Path) -> None:
    waits = "until [ -e ../go ]; do sleep 0.02; done; echo the build broke >&2; exit 2"
    waker = {"hooks": [{"type": "command", "command": waits, "asyncRewake": True}]}
    settings = tmp_path / "settings.json"
    end = {"hooks": [{"type": "command", "command": "cat > ../ended"}]}
    hooks = {"PostToolUse": [waker], "SessionEnd": [{"matcher": "prompt_input_exit", **end}]}
    settings.write_text(json.dumps({"hooks": hooks}), encoding="utf-8")
    script = [[use("Bash", command="true")], say("Done."), say("I mend it."), say("Welcome.")]
    options = ("--settings", str(settings), "--permission-mode", "bypassPermissions")
    with talking(tmp_path, script, *options) as somebody:
        somebody.types("Go.\n")
        somebody.sees("Done.")
        somebody.sees(READY)
        (tmp_path / "go").touch()
        somebody.sees("I mend it.")
        somebody.sees(READY)
        somebody.types("Thanks.\n")
        somebody.sees("Welcome.")
        somebody.sees(READY)
        somebody.types("/exit\n")
        assert somebody.child.wait(PATIENCE) == 0

    assert json.loads((tmp_path / "ended").read_bytes())["reason"] == "prompt_input_exit"
    (news,) = [m for m in toolspan.read(transcript(tmp_path)).messages() if "broke" in m.text]
    assert 'command "PostToolUse:Bash": the build broke' in news.text
