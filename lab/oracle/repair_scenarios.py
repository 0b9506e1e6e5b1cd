"""A session of the real client is damaged, repaired, and resumed by the client.

The commands that toolspan prints are typed into a terminal as printed. Each scenario first checks
that the client suffers from the damage: it does not find the conversation, or drops a part of it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from lab.oracle.compare import HistoryItem, find_losses, read_transcript, with_content
from lab.oracle.installed_client import InstalledClient, is_on_screen, submit, wait_until
from lab.oracle.mcp_scenarios import Scenario, expect
from toolspan.formats.registry import parse_file_name
from toolspan.testing import check_history

_OUTPUT = "pumped 12 l"


def repair_joined_lines(client: InstalledClient) -> Iterator[str]:
    """Every line break is lost: the client finds no conversation, or loses a part. The repair restores all of it."""
    path, history = _record_session(client)
    path.write_bytes(path.read_bytes().replace(b"\n", b" "))
    losses = _resume_damaged(client, path, history)
    yield from expect("the client loses nothing", losses == [], False)
    yield from _repair_and_resume(client, path, history)


def repair_torn_line(client: InstalledClient) -> Iterator[str]:
    """A line is torn: the client drops it, or more. After the repair it sends the rest."""
    path, history = _record_session(client)
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if b'"tool_result"' in line and _OUTPUT.encode() in line)
    lines[at] = lines[at][: len(lines[at]) // 2] + b"\n"
    path.write_bytes(b"".join(lines))
    losses = _resume_damaged(client, path, history)
    yield from expect("the client loses nothing", losses == [], False)
    intact = [item for item in history if not (item[0] == "result" and _OUTPUT in str(item))]
    yield from _repair_and_resume(client, path, intact)


def _record_session(client: InstalledClient) -> tuple[Path, list[HistoryItem]]:
    """Run a session of the client; return its transcript and history."""
    client.write_file("proj/beds.csv", "bed,crop\nnorth,beans\n")
    client.add_reply("I look.", {"tool": "Read", "input": {"file_path": str(client.cwd / "beds.csv")}})
    pump = f"echo {_OUTPUT}"
    client.add_reply("North first.", {"tool": "Bash", "input": {"command": pump, "description": "pump"}})
    client.add_reply("Now the south.", {"tool": "Bash", "input": {"command": "pwd", "description": "go"}})
    client.add_reply("All is watered.")
    client.scenario.go()
    projects = client.home / ".claude/projects"
    (path,) = (path for path in projects.glob("*/*.jsonl") if parse_file_name(path).role == "session")
    return path, [item for item in read_transcript(path) if "<system-reminder>" not in str(item)]


def _resume_damaged(client: InstalledClient, path: Path, history: list[HistoryItem]) -> list[str] | None:
    """Return the parts of the history that the client loses; None if it does not resume the session."""
    projects, backup = client.home / ".claude/projects", client.home / "backup"
    shutil.copytree(projects, backup)
    client.scenario.scripts = {"damaged": [["So far."]]}
    client.scenario.go(prompt="go on [[s:damaged]]", args=["--resume", path.stem])
    shutil.rmtree(projects)
    backup.rename(projects)
    requests = client.requests("damaged")
    return find_losses(history, requests[0]) if requests else None


def _repair_and_resume(client: InstalledClient, path: Path, history: list[HistoryItem]) -> Iterator[str]:
    damaged = path.read_bytes()
    client.scenario.scripts = {"resumed": [["Nothing is forgotten."]]}
    with client.terminal() as screen:
        repair = _find_command(r"toolspan repair \S+", screen.run("toolspan doctor"))
        resume = _find_command(r"cd \S+ && claude --resume \S+", screen.run(repair))
        yield from expect("the damaged file is unchanged", path.read_bytes() == damaged, True)
        screen.start(resume)
        wait_until(lambda: is_on_screen(screen, "All is watered."), description="the conversation")
        submit(screen, "go on [[s:resumed]]", until=lambda: is_on_screen(screen, "Nothing is forgotten."))
        submit(screen, "/exit", until=lambda: screen.lines()[-1] == "$")
    messages, *_ = client.requests("resumed")  # on a busy machine, the prompt may be submitted twice
    for problem in check_history(with_content(messages)):
        yield f"invalid history: {problem}"
    yield from find_losses(history, messages)
    doctor = client.run_command("toolspan doctor")
    yield from expect(f"`toolspan doctor` after the repair: {doctor.out}", doctor.code, 0)


def _find_command(pattern: str, output: str) -> str:
    match = re.search(pattern, output)
    if match is None:
        raise LookupError(f"no match for {pattern!r} in:\n{output}")
    return match[0]


SCENARIOS: tuple[Scenario, ...] = (repair_joined_lines, repair_torn_line)
