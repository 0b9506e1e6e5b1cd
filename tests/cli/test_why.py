"""`toolspan why`: the source of a decision, and its reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.requirement import requirement
from tests.runtime.hooks.hook_sessions import at, command, decides, says
from toolspan import read
from toolspan.cli.app import app
from toolspan.formats.side_files import hook_log_path
from toolspan.reading.history import short_id
from toolspan.runtime.hooks.load import load_hooks
from toolspan.runtime.permissions import Permissions, Rules
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.profiles import profile
from toolspan.runtime.settings import SettingsLayer, merge_settings
from toolspan.runtime.settings.load import parse_settings
from toolspan.session import Session
from toolspan.testing import TranscriptBuilder, claude_results
from toolspan.tools import coding_tools
from toolspan.types.decision import Allow, Ask, Deny

pytestmark = pytest.mark.anyio


def why(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(app, ["why", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result


def why_json(*arguments: str | Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(why(*arguments, "--json").stdout)
    return result


async def record_session(folder: Path, *commands: str) -> Path:
    """Record a session with rules and an approver; return its transcript."""
    chosen = profile("2.1.327")
    rules = Rules(allow=["Bash(touch:*)"], deny=["Bash(curl:*)"], origin="projectSettings")
    permissions = Permissions(rules, refusals=chosen.refusals)

    def approver(question: PermissionRequest, ask: Ask) -> Allow | Deny:
        if "yes" in str(question.input["command"]):
            return Allow(None, "user_temporary")
        return Deny("rather not", "user_reject")

    path = folder / "t.jsonl"
    session = Session(
        cwd=folder,
        tools=coding_tools(chosen),
        profile=chosen,
        permissions=replace(permissions, approver=approver),
        transcript=str(path),
    )
    blocks = [
        {"type": "tool_use", "id": f"toolu_{n}", "name": "Bash", "input": {"command": command}}
        for n, command in enumerate(commands)
    ]
    async with session:
        await session.run({"role": "assistant", "content": blocks})
    return path


async def test_decision_is_shown_with_its_source_and_rules(tmp_path: Path) -> None:
    path = await record_session(tmp_path, "curl x", "touch x", "./yes", "./no")

    output = [why_json(f"toolu_{n}", path) for n in range(4)]

    assert [
        (decision["allowed"], decision["source"], decision["reason"], decision["origin"], decision["code"])
        for decision in output
    ] == [
        (False, "config", "subcommandResults", "projectSettings", "rule:projectSettings"),
        (True, "config", "subcommandResults", None, None),
        (True, "user_temporary", None, None, "bashMiss:no-rule-match"),
        (False, "user_reject", None, None, "bashMiss:no-rule-match"),
    ]
    assert output[0]["said"] == "Permission to use Bash with command curl x has been denied."
    assert output[2]["scope"] == "once"


async def test_text_output_explains_the_decision(tmp_path: Path) -> None:
    path = await record_session(tmp_path, "curl x")

    output = why("toolu_0", path).stdout

    assert "not allowed; denied" in output
    assert "the project's settings" in output


def test_evidence_without_text_is_its_rule(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="s").prompt("go")
    call = builder.call("Bash", {"command": "rm x"})
    path = builder.result(call, claude_results.rejected()).interrupt().write(tmp_path / "s.jsonl")

    evidence = why_json(str(call), path)["evidence"]

    assert "interrupt marker follows" in evidence
    assert "user rejected" in evidence


def test_decision_of_older_clients_is_inferred_from_the_result(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="s", version="2.1.197").prompt("go")
    denied = builder.call("Bash", {"command": "rm x"})
    builder.result(denied, claude_results.refused("Permission to use Bash with command rm x has been denied."))
    allowed = builder.call("Bash", {"command": "ls"})
    builder.result(allowed, claude_results.ran("x"))
    path = builder.write(tmp_path / "s.jsonl")

    output = why_json(str(denied), path)

    assert (output["source"], output["state"]) == (None, "denied")
    assert output["allowed"] is False
    assert output["evidence"]
    assert "not allowed; denied by a rule\n  evidence" in why(str(denied), path).stdout
    assert "no decision is recorded; the call ran, so it was allowed" in why(str(allowed), path).stdout


def test_unknown_call_is_reported(tmp_path: Path) -> None:
    path = TranscriptBuilder(session_id="s").prompt("go").write(tmp_path / "s.jsonl")

    result = CliRunner().invoke(app, ["why", "toolu_zzz", str(path)])

    assert result.exit_code == 2
    assert "no call begins with 'toolu_zzz'" in result.output


def session_without_rules(folder: Path, path: Path, **more: Any) -> Session:
    """Return a recorded session without rules."""
    chosen = profile("2.1.327")
    permissions = Permissions(Rules(), refusals=chosen.refusals)
    return Session(
        cwd=folder,
        tools=coding_tools(chosen),
        profile=chosen,
        permissions=permissions,
        transcript=str(path),
        **more,
    )


@requirement("why.hooks")
async def test_answers_of_hooks_are_shown_with_their_commands(tmp_path: Path) -> None:
    denies = says(
        {
            "hookSpecificOutput": {
                "hookEventName": "PermissionRequest",
                "decision": {"behavior": "deny", "message": "ask me later"},
            }
        }
    )
    objects = says({"decision": "block", "reason": "that is secret"})
    block = {
        **at("PreToolUse", decides("allow"), command("echo seen >&2"), matcher="Bash"),
        **at("PostToolUse", objects, matcher="Bash"),
        **at("PermissionRequest", denies, matcher="Write"),
    }
    layer = SettingsLayer("user", tmp_path / "s.json", parse_settings({"hooks": block}, "s.json"), {})
    path = tmp_path / "t.jsonl"
    hooks = load_hooks(merge_settings([layer], trusted=True), profile("2.1.327")).hooks
    session = session_without_rules(tmp_path, path, hooks=hooks)
    tool_input = {"file_path": "n.txt", "content": "x"}
    blocks = [
        {"type": "tool_use", "id": "toolu_0", "name": "Bash", "input": {"command": "true"}},
        {"type": "tool_use", "id": "toolu_1", "name": "Write", "input": tool_input},
    ]
    async with session:
        await session.run({"role": "assistant", "content": blocks})
    states = [span.state for span in session.spans]

    assert states == ["succeeded", "blocked_by_hook"]
    first, second = (why_json(f"toolu_{n}", path) for n in range(2))
    assert (first["source"], first["allowed"]) == ("hook", True)
    assert [line.split(", by ")[0] for line in first["hooks"]] == [
        "PreToolUse:Bash: success",
        "PreToolUse:Bash: success (seen)",
        "PostToolUse:Bash: blocked (that is secret)",
    ]
    assert first["hooks"][1].endswith(", by echo seen >&2")
    assert (second["state"], second["source"], second["code"]) == (
        "blocked_by_hook", "hook", "hook:PermissionRequest",
    )  # fmt: skip
    assert "the answer of a PermissionRequest hook" in why("toolu_1", path).stdout


@requirement("why.command-lines")
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("make it", "bashMiss:no-rule-match"),
        ("ls; make it", "bashMiss:no-rule-match"),
        ("cd / && make it", "bashMiss:cd-compound-read"),
        ("cd / && touch y", "bashMiss:cd-compound-write"),
        ("touch y", "unknown"),
        ("cat /etc/hostname", "unknown"),
    ],
)
async def test_reason_for_asking_is_recorded_in_the_words_of_the_client(tmp_path: Path, line: str, code: str) -> None:
    path = tmp_path / "t.jsonl"
    session = session_without_rules(tmp_path, path)
    tool_input = {"command": line}
    block = {"type": "tool_use", "id": "toolu_0", "name": "Bash", "input": tool_input}
    async with session:
        await session.run({"role": "assistant", "content": [block]})

    assert why_json("toolu_0", path)["code"] == code


def test_wait_logged_by_hooks_is_shown_with_its_call(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="s").prompt("Go")
    call = builder.call("Bash", {"command": "make"})
    builder.result(call, claude_results.ran("made"), after_ms=5_000)
    path = builder.write(tmp_path / "s.jsonl")
    (span,) = read(path).spans
    assert span.requested is not None
    began = span.requested.timestamp()
    rows = [
        {"at": began, "event": "PreToolUse", "call": call, "tool": "Bash", "input": "1-1"},
        {"at": began + 1, "event": "PermissionRequest", "tool": "Bash", "input": "1-1"},
        {"at": began + 5, "event": "PostToolUse", "call": call, "tool": "Bash", "duration_ms": 1000},
    ]
    notes = hook_log_path(path)
    notes.parent.mkdir(parents=True)
    notes.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    assert why_json(call, path)["asked_ms"] == 3_000
    assert "waited   3.0 s" in why(short_id(call), path).stdout
    output = CliRunner().invoke(app, ["show", call, str(path)]).stdout
    assert "3.0 s of it waiting for permission" in output


def test_unreadable_transcript_does_not_hide_calls_in_other_transcripts(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.zst").write_bytes(b"no archive, toolu_z")
    builder = TranscriptBuilder().prompt("go")
    builder.result(builder.call("Bash", {"command": "ls"}, id="toolu_z"), claude_results.ran("a"))
    builder.write(tmp_path / "b.jsonl")

    assert why_json("toolu_z", tmp_path)["allowed"] is True
