"""Prompts, refusals and hooks: what a person asked for and refused, and what hooks did."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import pytest

from tests.cli.command import rows, run
from toolspan import Archive
from toolspan.errors import InvalidFilter
from toolspan.testing import RolloutBuilder, TranscriptBuilder
from toolspan.testing.claude_results import REJECTED, STOP, Body, failed, rejected

NOTE = "\n\nNote: The user's next message may contain a correction or preference. Watch for it."


class Session(TranscriptBuilder):
    """A session in which calls have short ids."""

    def ask(self, name: str, tool: str, arguments: Mapping[str, object]) -> Self:
        """Add a call."""
        self.call(tool, arguments, id=name)
        return self


def write(builder: TranscriptBuilder, folder: Path) -> Path:
    return builder.write(folder / f"{builder.session_id}.jsonl")


# Prompts


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    session = Session(cwd="/home/dev/shop")
    session.prompt("Fix the login form").ask("a", "Bash", {"command": "make"}).result("a", failed("Exit code 2"))
    session.ask("b", "Bash", {"command": "make"}).result("b", Body(content="ok")).text("Done.")
    session.wait(60_000).prompt("<command-name>/model</command-name>").wait(1_000)
    session.prompt("<command-name>/review</command-name>\n<command-args>the form</command-args>").text("Looks fine.")
    session.ask("c", "Agent", {"description": "look", "prompt": "Look at the form", "subagent_type": "general"})
    session.agent("c").prompt("Look at the form").text("I see a form.")
    write(session.result("c", Body(content="A form.")), tmp_path)
    copy = session.fork("00000000-0000-4000-8000-0000000000ff")
    copy.prompt("Try the other way").text("Done again.")
    write(copy, tmp_path)
    return tmp_path


def test_prompts_are_listed_once_in_order_with_the_calls_that_followed(asked: Path) -> None:
    prompts = Archive(asked).prompts()

    assert [prompt.text for prompt in prompts] == ["Fix the login form", "/review the form", "Try the other way"]
    assert [prompt.calls for prompt in prompts] == [2, 1, 0]
    assert [prompt.unsuccessful for prompt in prompts] == [1, 0, 0]
    assert [prompt.is_command for prompt in prompts] == [False, True, False]
    assert {prompt.project for prompt in prompts} == {"/home/dev/shop"}


def test_prompts_are_selected_by_the_calls_that_followed_and_by_time(asked: Path) -> None:
    archive = Archive(asked)
    second = archive.prompts()[1]

    assert [prompt.text for prompt in archive.prompts(state="failed")] == ["Fix the login form"]
    assert [prompt.text for prompt in archive.prompts(tool="agent")] == ["/review the form"]
    assert [prompt.text for prompt in archive.prompts(until=second.at)] == ["Fix the login form"]
    assert archive.prompts(sort="calls", limit=1)[0].text == "Fix the login form"
    assert archive.prompts(limit=1).total == 3


def test_a_very_long_prompt_is_cut_and_its_length_is_kept(tmp_path: Path) -> None:
    session = Session()
    write(session.prompt("word " * 5_000).text("ok"), tmp_path)

    (prompt,) = Archive(tmp_path).prompts()

    assert len(prompt.text) == 10_000
    assert prompt.characters == 24_999
    assert "24,999 characters in all" in run("prompts", tmp_path, "--full").output


def test_the_command_shows_prompts_below_their_session(asked: Path) -> None:
    output = run("prompts", asked).output

    assert "/home/dev/shop" in output
    assert "2 calls · 1 ✗" in output
    assert output.index("Fix the login form") < output.index("/review the form") < output.index("Try the other way")


def test_a_search_finds_words_in_prompts_answers_or_thinking_only(tmp_path: Path) -> None:
    session = Session().prompt("Where is the lamp?").thinking("A lamp may be in the hall.").text("The lamp is here.")
    session.ask("a", "Bash", {"command": "grep lamp"}).result("a", Body(content="lamp.txt"))
    session.ask("b", "Agent", {"description": "look", "prompt": "Find the lamp", "subagent_type": "general"})
    session.agent("b").prompt("Find the lamp").text("No lamp.")
    write(session, tmp_path)
    archive = Archive(tmp_path)

    def voices(place: str) -> set[str | None]:
        return {match.voice for match in archive.search("lamp", within=place)}

    assert [match.snippet.before for match in archive.search("lamp", within="prompts")] == ["Where is the "]
    assert voices("prompts") == {"prompt"}
    assert voices("answers") == {"text"}
    assert voices("thinking") == {"thinking"}
    assert {match.kind for match in archive.search("lamp", within="inputs")} == {"call"}
    assert len(archive.search("lamp", within="result")) == len(archive.search("lamp", within="results")) == 1
    assert rows(run("search", "lamp", f"{tmp_path}/", "--in", "answer", "--json"))
    with pytest.raises(InvalidFilter, match="did you mean prompts"):
        archive.search("lamp", within="promts")


# Denials


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (REJECTED + STOP, None),
        (REJECTED + STOP + NOTE, None),
        (f"{REJECTED} To tell you how to proceed, the user said:\nuse yarn", "use yarn"),
        (f"{REJECTED} To tell you how to proceed, the user said:\nuse yarn\n\nnot npm{NOTE}", "use yarn\n\nnot npm"),
        (f"{REJECTED} The user provided the following reason for the rejection:  ask me first", "ask me first"),
    ],
)
def test_a_denial_shows_the_words_of_the_user_and_not_those_of_the_client(
    tmp_path: Path, text: str, reason: str | None
) -> None:
    session = Session().prompt("Install it").ask("a", "Bash", {"command": "npm install"})
    session.result("a", Body(content=text, structured="User rejected tool use", is_error=True))
    path = write(session.wait(9_000).prompt("I meant yarn").text("Sorry."), tmp_path)
    archive = Archive(tmp_path)

    (denial,) = archive.denials()

    assert (denial.by, denial.reason, denial.target) == ("user", reason, "npm install")
    assert denial.next_prompt == (None if reason else "I meant yarn")
    assert archive.calls()[0].message == reason
    assert archive.errors()[0].reasons == ((reason,) if reason else ())
    commands: list[list[str | Path]] = [
        ["denials", path], ["show", path], ["show", "a", path], ["errors", path], ["why", "a", path],
    ]  # fmt: skip
    for command in commands:
        output = run(*command).output
        assert "doesn't want to proceed" not in output.split("── result")[0], command
        assert reason is None or reason.split("\n")[0] in output


def test_a_long_reason_is_shown_whole_on_request(tmp_path: Path) -> None:
    reason = "\n".join(f"reason number {n}" for n in range(60))
    session = Session().prompt("Go").ask("a", "Bash", {"command": "make"}).result("a", rejected(reason))
    write(session, tmp_path)

    assert Archive(tmp_path).denials()[0].reason == reason
    assert "reason number 59" not in run("denials", tmp_path).output
    assert "54 more lines (--full)" in run("denials", tmp_path).output
    assert "reason number 59" in run("denials", tmp_path, "--full").output


def test_refusals_of_rules_and_hooks_are_counted_and_listed_on_request(tmp_path: Path) -> None:
    session = Session().prompt("Go")
    session.ask("a", "Bash", {"command": "make"}).result("a", rejected("no"))
    session.ask("b", "Bash", {"command": "rm x"})
    session.result("b", failed("Permission to use Bash with command rm x has been denied."))
    session.ask("c", "Bash", {"command": "curl x"}).result("c", failed("This command requires approval"))
    session.ask("d", "Bash", {"command": "ls"}).result("d", Body(content="ok"))
    write(session, tmp_path)
    archive = Archive(tmp_path)

    assert [denial.call for denial in archive.denials()] == ["a"]
    assert [(denial.call, denial.by) for denial in archive.denials(every=True)] == [
        ("a", "user"), ("b", "rule"), ("c", "nobody"),
    ]  # fmt: skip
    assert archive.denials().refusers == {"user": 1, "rule": 1, "nobody": 1}
    output = run("denials", tmp_path).output
    assert "You refused 1 of 4 calls (25.0%)" in output
    assert "1 by a rule or mode, 1 with no one to ask (--all)" in output


def test_the_headline_of_errors_names_the_state_and_compares_with_all_calls(tmp_path: Path) -> None:
    session = Session().prompt("Go")
    session.ask("a", "Bash", {"command": "make"}).result("a", rejected())
    for name in "bcd":
        session.ask(name, "Bash", {"command": "ls"}).result(name, Body(content="ok"))
    write(session, tmp_path)

    assert "1 of 4 calls were denied (25%)" in run("errors", tmp_path, "--state", "denied").output
    assert "1 of 4 calls were unsuccessful (denied by the user) (25%)" in (
        run("errors", tmp_path, "--error", "user_denied").output
    )
    assert Archive(tmp_path).errors(state="denied").calls == 4


def test_denials_with_different_reasons_are_one_group_of_errors(tmp_path: Path) -> None:
    session = Session().prompt("Go")
    for name, reason in (("a", "first"), ("b", None), ("c", "last")):
        session.ask(name, "Bash", {"command": "make"}).wait(1_000).result(name, rejected(reason))
    write(session, tmp_path)

    (group,) = Archive(tmp_path).errors()

    assert (group.count, group.reasons, group.message) == (3, ("last", "first"), "last")


def test_a_refusal_of_codex_without_words_has_no_reason(tmp_path: Path) -> None:
    session = RolloutBuilder().prompt("Go")
    call = session.call("shell", {"command": ["ls"]})
    path = session.output(call, "exec command rejected by user").write(tmp_path)

    (denial,) = Archive(path).denials()

    assert (denial.client, denial.by, denial.reason) == ("codex", "user", None)


# Hooks


@pytest.fixture
def hooked(tmp_path: Path) -> Path:
    session = Session(cwd="/home/dev/shop").prompt("Go")
    for n, name in enumerate("abc"):
        session.ask(name, "Bash", {"command": "make"}).hook(name, "PreToolUse", command="guard.sh", took_ms=10 + n)
        session.result(name, Body(content="ok")).hook(name, "PostToolUse", command="format.sh", took_ms=2_000 * (n + 1))
    session.ask("d", "Edit", {"file_path": "/x", "old_string": "a", "new_string": "b"})
    session.hook("d", "PreToolUse", command="guard.sh", outcome="blocked", text="not that file")
    session.result("d", failed("PreToolUse:Edit hook error: [guard.sh]: not that file"))
    write(session, tmp_path)
    return tmp_path


def test_hooks_are_summed_slow_ones_first(hooked: Path) -> None:
    slow, guard = Archive(hooked).hooks()

    assert (slow.command, slow.point, slow.runs, slow.median_ms, slow.longest_ms) == (
        "format.sh", "PostToolUse", 3, 4_000, 6_000,
    )  # fmt: skip
    assert slow.slowest is not None
    assert slow.slowest.call == "c"
    assert (guard.command, guard.runs, guard.blocked, guard.timed) == ("guard.sh", 4, 1, 3)
    assert guard.names == ("PreToolUse:Bash", "PreToolUse:Edit")
    assert guard.objection is not None
    assert "not that file" in guard.objection


def test_hooks_are_selected_by_event_tool_and_time(hooked: Path) -> None:
    archive = Archive(hooked)

    assert [row.command for row in archive.hooks(point="pretooluse")] == ["guard.sh"]
    assert [row.runs for row in archive.hooks(tool="Edit")] == [1]
    assert len(archive.hooks(until="2020-01-01")) == 0
    with pytest.raises(InvalidFilter, match="hooks ran at PostToolUse, PreToolUse"):
        archive.hooks(point="Stop")
    with pytest.raises(InvalidFilter, match="belong to calls"):
        archive.hooks(state="failed")


def test_the_command_shows_totals_or_single_runs(hooked: Path) -> None:
    totals = run("hooks", hooked).output
    runs = rows(run("hooks", hooked, "--runs", "--sort", "duration", "--json"))

    assert totals.index("format.sh") < totals.index("guard.sh")
    assert "not that file" in totals
    assert [row["duration_ms"] for row in runs[:3]] == [6_000, 4_000, 2_000]
    assert "blocked" in run("hooks", hooked, "--runs", "--event", "PreToolUse").output


def attachment(**fields: object) -> bytes:
    record = {"type": "attachment", "uuid": "u", "timestamp": "2026-05-01T10:00:00.000Z", "sessionId": "s"}
    return json.dumps(record | {"attachment": fields}).encode()


def test_one_run_is_made_of_its_start_its_end_its_effects_and_the_summary_of_stop_hooks(tmp_path: Path) -> None:
    session = Session().prompt("Go").text("Done.")
    start = {"hookName": "SessionStart:resume", "hookEvent": "SessionStart", "toolUseID": "1"}
    session.raw(attachment(type="hook_success", command="hello", durationMs=1500, exitCode=0, content="", **start))
    session.raw(attachment(type="hook_additional_context", content=["be kind"], **start))
    stop = {"hookName": "Stop", "hookEvent": "Stop", "toolUseID": "2"}
    session.raw(attachment(type="hook_success", command="bye", durationMs=30, exitCode=0, content="", **stop))
    infos = [{"command": "bye", "durationMs": 30}, {"command": "notify", "durationMs": 9}, {"command": "callback"}]
    summary = {"type": "system", "subtype": "stop_hook_summary", "hookCount": 3, "hookInfos": infos, "hookErrors": []}
    more = {"uuid": "v", "toolUseID": "2", "timestamp": "2026-05-01T10:00:01.000Z", "preventedContinuation": False}
    session.raw(json.dumps(summary | more).encode())
    write(session, tmp_path)

    totals = {row.command: row for row in Archive(tmp_path).hooks()}

    assert {name: (row.runs, row.median_ms) for name, row in totals.items()} == {
        "hello": (1, 1500), "bye": (1, 30), "notify": (1, 9), "callback": (1, None),
    }  # fmt: skip
    assert totals["hello"].effects == {"context": 1}
    assert totals["hello"].names == ("SessionStart:resume",)


def test_a_session_does_not_list_hooks_that_started(tmp_path: Path) -> None:
    session = Session(version="2.1.80").prompt("Go").ask("a", "Read", {"file_path": "/x"})
    session.progress("a", "hook_progress", hookEvent="PostToolUse", hookName="PostToolUse:Read", command="callback")
    path = write(session.result("a", Body(content="ok")), tmp_path)

    assert "started" not in run("show", path).output
    assert [row.outcome for row in Archive(path).hook_runs()] == ["started"]
