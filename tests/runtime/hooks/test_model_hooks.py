"""Handlers that ask the model of the conversation, or an agent with tools."""

from __future__ import annotations

import json
from pathlib import Path

from tests.requirement import requirement
from tests.runtime.hooks.hook_sessions import run_agent
from toolspan.testing import say, use


def run(folder: Path, kind: str, script: object) -> tuple[list[dict[str, object]], str]:
    (folder / "work").mkdir()
    (folder / "work" / "rules.txt").write_text("no touching\n", encoding="utf-8")
    handler = {"type": kind, "prompt": "May this be? $ARGUMENTS", "continueOnBlock": True}
    block = {"PreToolUse": [{"matcher": "Bash", "hooks": [handler]}]}
    (folder / "s.json").write_text(json.dumps({"hooks": block}), encoding="utf-8")
    payload = ("--setting-sources", "", "--output-format", "stream-json")
    done = run_agent(folder, script, "--settings", "../s.json", *payload)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    results = [
        block
        for row in rows
        if row["type"] == "user"
        for block in row["message"]["content"]
        if block["type"] == "tool_result"
    ]
    return results, str(rows[-1]["result"])


@requirement("hooks.asked-model")
def test_prompt_hook_uses_the_model_of_the_run(tmp_path: Path) -> None:
    no = say('{"ok": false, "reason": "not today"}')
    yes = say('Of course: {"ok": true}')
    script = [
        [use("Bash", command="touch a")], no, [use("Bash", command="echo b")], yes, say("Done."),
    ]  # fmt: skip
    (first, second), last = run(tmp_path, "prompt", script)

    assert first["content"] == "PreToolUse:Bash hook error: not today"
    assert (second["content"], last) == ("b", "Done.")
    assert not (tmp_path / "work" / "a").exists()


@requirement("hooks.asked-model")
def test_agent_hook_can_read_files_but_not_change_them(tmp_path: Path) -> None:
    script = [
        [use("Bash", command="touch a")],
        [use("Read", file_path="rules.txt"), use("Write", file_path="b", content="x")],
        say('{"ok": false, "reason": "the rules forbid it"}'),
        say("Done."),
    ]
    (result,), last = run(tmp_path, "agent", script)

    assert (result["content"], last) == ("PreToolUse:Bash hook error: the rules forbid it", "Done.")
    assert sorted(item.name for item in (tmp_path / "work").iterdir()) == ["rules.txt"]
