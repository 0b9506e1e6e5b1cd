"""Features inside the agent with the real clients: history, kept sessions, limits, known errors, status line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lab.oracle.installed_client import InstalledClient, is_on_screen, wait_until
from lab.oracle.mcp_scenarios import expect

Scenario = Callable[[InstalledClient], Iterator[str]]
_HISTORY = "mcp__toolspan-history__"


def history_plugin(client: InstalledClient) -> Iterator[str]:
    """The plug-in's tools are listed and callable, and tell how an earlier session fixed an error."""
    client.scenario.settings = {"permissions": {"allow": ["Bash", "Write", "mcp__toolspan-history"]}}
    skill = client.home / ".claude/skills/toolspan-history/SKILL.md"
    install = client.run_command("toolspan plugin install --client claude --yes")
    yield from expect(f"install ({install.output[-200:]})", install.code, 0)
    listed = client.run_command("claude mcp list").output
    yield from expect(
        f"`claude mcp list` ({listed[-200:]})", "toolspan-history" in listed and "Connected" in listed, True
    )

    client.scenario.turn({"tool": "Bash", "input": {"command": "cat lantern.conf", "description": "read"}}, key="first")
    path = str(client.cwd / "lantern.conf")
    client.scenario.turn({"tool": "Write", "input": {"file_path": path, "content": "oil = 1\n"}}, key="first")
    client.scenario.turn({"tool": "Bash", "input": {"command": "cat lantern.conf", "description": "read"}}, key="first")
    client.scenario.turn("It was missing.", key="first")
    yield from expect("the first session", client.scenario.go("Read it [[s:first]]"), 0)

    wait = {"tool": "Bash", "input": {"command": "sleep 8", "description": "wait for the server"}}
    client.scenario.turn(wait, key="second")
    question = {"text": "cat: lantern.conf: No such file or directory"}
    client.scenario.turn({"tool": f"{_HISTORY}find_errors", "input": question}, key="second")
    client.scenario.turn({"tool": f"{_HISTORY}file_history", "input": {"path": "lantern.conf"}}, key="second")
    client.scenario.turn("Seen before.", key="second")
    yield from expect("the second session", client.scenario.go("Ask [[s:second]]"), 0)
    results = "\n".join(client.results_of("second"))
    yield from expect(f"the fix is named ({results[-600:]})", '"fixed_by"' in results and "oil = 1" in results, True)
    request = json.dumps(client.requests("second")[0])
    yield from expect("the skill is offered", "toolspan-history" in request, True)

    uninstall = client.run_command("toolspan plugin uninstall --client claude --yes")
    yield from expect(f"uninstall ({uninstall.output[-200:]})", uninstall.code, 0)
    config = (client.home / ".claude.json").read_text(encoding="utf-8")
    yield from expect("the server is gone", "toolspan" in json.loads(config).get("mcpServers", {}), False)
    yield from expect("the skill is gone", skill.exists(), False)


def keep_restore(client: InstalledClient) -> Iterator[str]:
    """The client resumes a session that was deleted and restored, in its folder and in another one."""
    client.write_file("proj/lantern.conf", "oil = 7\n")
    path = str(client.cwd / "lantern.conf")
    client.scenario.turn({"tool": "Read", "input": {"file_path": path}}, key="first")
    client.scenario.turn("Seven.", key="first")
    yield from expect("the first session", client.scenario.go("How much oil? [[s:first]]"), 0)
    session = json.loads(client.run_command("toolspan sessions --json").out.splitlines()[-1])["id"]
    kept = client.run_command("toolspan keep")
    yield from expect(f"keep ({kept.output[-200:]})", kept.code, 0)
    shutil.rmtree(client.home / ".claude/projects")

    restored = client.run_command(f"toolspan keep restore {session[:8]}")
    yield from expect(f"restore ({restored.output[-200:]})", restored.code, 0)
    client.scenario.turn("Still seven.", key="again")
    yield from expect("resume", client.scenario.go("And now? [[s:again]]", args=["--resume", session]), 0)
    history = json.dumps(client.requests("again")[0])
    yield from expect("the history is sent", "How much oil?" in history and "oil = 7" in history, True)

    other = client.home / "moved"
    other.mkdir()
    client.run_command("toolspan keep")
    moved = client.run_command(f"toolspan keep restore {session[:8]} --folder {other}")
    yield from expect(f"restore elsewhere ({moved.output[-200:]})", moved.code, 0)
    client.scenario.cwd = str(other)
    client.scenario.turn("Seven, here.", key="moved")
    yield from expect("resume there", client.scenario.go("And here? [[s:moved]]", args=["--resume", session]), 0)
    history = json.dumps(client.requests("moved")[0])
    yield from expect("the history is sent there", "Still seven." in history, True)
    yield from expect("paths are those of the new folder", f"{other}/lantern.conf" in history, True)
    yield from expect("old paths are gone", path in history, False)


def guard_stops(client: InstalledClient) -> Iterator[str]:
    """The client stops at a limit, continues when it is lifted, and its settings come back byte for byte."""
    before = '{ "cleanupPeriodDays":30,\n\n    "env" : {"A": "b"}}'
    settings = client.write_file(".claude/settings.json", before)
    client.scenario.settings = {"permissions": {"allow": ["Bash"]}}
    limit = client.run_command("toolspan guard set session.calls=3")
    yield from expect(f"set ({limit.output[-200:]})", limit.code, 0)
    install = client.run_command("toolspan hook install --guard --keep --yes")
    yield from expect(f"install ({install.output[-200:]})", install.code, 0)
    installed = settings.read_text(encoding="utf-8")

    for number in range(6):
        command = {"command": f"touch made{number}", "description": "touch"}
        client.scenario.turn({"tool": "Bash", "input": command}, key="first")
    client.scenario.turn("Done.", key="first")
    client.scenario.go("Touch [[s:first]]")
    made = sorted(path.name for path in client.cwd.glob("made*"))
    yield from expect("the calls before the limit", made in (["made0", "made1"], ["made0", "made1", "made2"]), True)
    stream = json.dumps(client.stream())
    yield from expect("the reason is told", "toolspan stopped this session" in stream, True)
    yield from expect("the settings after the session", settings.read_text(encoding="utf-8"), installed)
    kept = client.home / ".local/share/toolspan/kept/kept.sqlite"
    wait_until(kept.exists, description="the ended session to be kept")

    session = json.loads(client.run_command("toolspan sessions --json").out.splitlines()[-1])["id"]
    client.run_command(f"toolspan guard lift {session[:8]}")
    client.scenario.turn({"tool": "Bash", "input": {"command": "touch lifted", "description": "touch"}}, key="again")
    client.scenario.turn("Done.", key="again")
    client.scenario.go("Go on [[s:again]]", args=["--resume", session])
    yield from expect("it continues when lifted", (client.cwd / "lifted").exists(), True)

    uninstall = client.run_command("toolspan hook uninstall --yes")
    yield from expect("uninstall", (uninstall.code, settings.read_text(encoding="utf-8")), (0, before))


def known_error(client: InstalledClient) -> Iterator[str]:
    """The model is told how an earlier session recovered the same failure, and `blame` names the prompt."""
    before = '{"cleanupPeriodDays":30 }'
    settings = client.write_file(".claude/settings.json", before)
    client.scenario.settings = {"permissions": {"allow": ["Bash", "Write"]}}
    install = client.run_command("toolspan hook install --known-errors --yes")
    yield from expect(f"install ({install.output[-200:]})", install.code, 0)
    cat = {"tool": "Bash", "input": {"command": "cat lantern.conf", "description": "read"}}
    write = {"tool": "Write", "input": {"file_path": str(client.cwd / "lantern.conf"), "content": "oil = 1\n"}}
    for block in (cat, write, cat, "It was missing."):
        client.scenario.turn(block, key="first")
    yield from expect("the first session", client.scenario.go("Light the lantern [[s:first]]"), 0)
    line = client.run_command("toolspan blame lantern.conf:1").out
    yield from expect(f"blame ({line})", "Light the lantern" in line and "1 of 1 lines" in line, True)

    (client.cwd / "lantern.conf").unlink()
    for block in (cat, "Seen before."):
        client.scenario.turn(block, key="second")
    yield from expect("the second session", client.scenario.go("Again [[s:second]]"), 0)
    told = json.dumps(client.requests("second")[-1])
    yield from expect("the model is told", "toolspan: this failure was seen" in told and "Write" in told, True)
    uninstall = client.run_command("toolspan hook uninstall --yes")
    yield from expect("uninstall", (uninstall.code, settings.read_text(encoding="utf-8")), (0, before))


_EDITS = (
    "echo first >> a.txt", "echo new > new.txt", "printf nonl > nonl.txt", "sed -i s/two/2/ a.txt",
    "printf more >> c.txt",
    "rm sub/d.txt", ": > empty.txt", "for i in 0 1 2 3 4 5 6; do echo y >> m$i; done", "printf '\\0' > binary",
    "echo i >> ignored/i.txt", "seq 1 400 > s400", "seq 1 401 > s401", "chmod +x a.txt", "ls", "touch a.txt; exit 3",
    "cd sub && echo s > s.txt", "echo s2 > s2.txt", "cd ..", "git -c user.name=a -c user.email=a@b commit -qam x",
)  # fmt: skip


def recorded_edits(client: InstalledClient) -> Iterator[str]:
    """`toolspan exec` records the same changes of commands as the client, in the mode in which both do."""
    prepare = (
        "mkdir -p sub ignored; printf 'one\\ntwo\\nthree\\n' > a.txt; printf x > c.txt; echo d > sub/d.txt;"
        " for i in 0 1 2 3 4 5 6; do echo $i > m$i; done; echo ignored/ > .gitignore; echo .claude/ >> .gitignore;"
        " git init -q .; git add -A; git -c user.name=a -c user.email=a@b commit -qm first"
    )
    yield from expect("the repository", client.run_command(prepare).code, 0)
    yield from expect("its copy", client.run_command("cp -a . ../copy").code, 0)
    calls = [{"command": command, "description": "edit"} for command in _EDITS]
    for call in calls:
        client.scenario.turn({"tool": "Bash", "input": call}, key="first")
    client.scenario.turn("Done.", key="first")
    yield from expect("the session", client.scenario.go("Edit [[s:first]]", permission_mode="bypassPermissions"), 0)
    (recorded,) = (client.home / ".claude/projects").glob("*/*.jsonl")
    blocks = [{"type": "tool_use", "id": f"toolu_{n}", "name": "Bash", "input": call} for n, call in enumerate(calls)]
    messages = "".join(f"{json.dumps({'role': 'assistant', 'content': [block]})}\n" for block in blocks)
    options = "--cwd ../copy --permission-mode bypassPermissions --no-sandbox --transcript ../ours.jsonl"
    done = client.run_command(f"toolspan exec {options}", stdin=messages)
    yield from expect(f"exec ({done.err[-200:]})", done.code, 0)
    expected = _recorded_edits(recorded, client.cwd)
    ours = _recorded_edits(client.home / "ours.jsonl", client.home / "copy")
    yield from expect("the number of results", (len(expected), len(ours)), (len(_EDITS), len(_EDITS)))
    yield from expect("the number of commands with changes", sum(edit is not None for edit in expected), 13)
    for command, theirs, own in zip(_EDITS, expected, ours, strict=True):
        yield from expect(f"changes of {command!r}", own, theirs)


def _recorded_edits(transcript: Path, folder: Path) -> list[Any]:
    results = [json.loads(line).get("toolUseResult") for line in transcript.read_bytes().splitlines()]
    edits = [
        result.get("bashEditDiff") if isinstance(result, dict) else None for result in results if result is not None
    ]
    return json.loads(json.dumps(edits).replace(f"{folder}/", ""))  # type: ignore[no-any-return]


def status_line(client: InstalledClient) -> Iterator[str]:
    """The client shows our line."""
    line = {"type": "command", "command": "toolspan statusline"}
    client.write_file(".claude/settings.json", json.dumps({"statusLine": line}))
    client.scenario.turn("Done.", key="first")
    with client.terminal() as screen:
        screen.press("claude")
        screen.press("Enter")
        wait_until(lambda: is_on_screen(screen, "today $0.00"), description="the status line")
        yield from expect("no error is shown", is_on_screen(screen, "toolspan:"), False)


def codex_guard(client: InstalledClient) -> Iterator[str]:
    """Codex denies calls at a limit, tells the model why, and its file with hooks comes back byte for byte."""
    before = '{ "hooks": {"Stop": [ ]}}'
    hooks = client.write_file(".codex/hooks.json", before)
    client.run_command("toolspan guard set session.calls=3")
    install = client.run_command("toolspan hook install --client codex --guard --yes")
    yield from expect(f"install ({install.output[-200:]})", install.code, 0)
    client.scenario.model = "gpt-5.5"
    for number in range(6):
        client.scenario.turn({"tool": "exec_command", "input": {"cmd": f"touch made{number}"}}, key="first")
    client.scenario.turn("Done.", key="first")
    trusting = ("-s", "danger-full-access", "--dangerously-bypass-hook-trust")
    client.scenario.codex("Touch [[s:first]]", args=trusting)
    made = sorted(path.name for path in client.cwd.glob("made*"))
    yield from expect("the calls before the limit", made in (["made0", "made1"], ["made0", "made1", "made2"]), True)
    told = json.dumps(client.requests("first")[-1])
    yield from expect("the model is told", "toolspan stopped this session" in told, True)
    session = client.scenario.thread_id()
    client.run_command(f"toolspan guard lift {session}")
    client.scenario.turn({"tool": "exec_command", "input": {"cmd": "touch lifted"}}, key="again")
    client.scenario.turn("Done.", key="again")
    client.scenario.codex("Go on [[s:again]]", args=trusting, resume=session)
    yield from expect("it continues when lifted", (client.cwd / "lifted").exists(), True)
    uninstall = client.run_command("toolspan hook uninstall --client codex --yes")
    yield from expect("uninstall", (uninstall.code, hooks.read_text(encoding="utf-8")), (0, before))


SCENARIOS: tuple[Scenario, ...] = (history_plugin, keep_restore, guard_stops, known_error, recorded_edits, status_line)
CODEX_SCENARIOS: tuple[Scenario, ...] = (codex_guard,)
