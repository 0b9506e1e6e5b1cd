"""Check that the real clients resume recorded sessions and work with toolspan installed.

    python -m lab.oracle [--version 2.1.327] [--version codex-0.166.0] [--only NAME]

Records sessions, lets Claude Code resume them against a scripted model on loopback, and compares
the history it sends with the record. Other scenarios (`run_installed.py`) install toolspan beside
the client: its MCP server, its hooks, the repair of a session. Needs the harness in $SHARED/oracle
(default ../shared), clients that it installed into $ORACLE_SCRATCH (default
/var/tmp/toolspan-oracle), and root, for namespaces. Exit code: 0 all agree, 1 differences, 2
something is not installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import click
from tests.reading.repair.defects import CWD, DEFECTS, record_two_turns
from tests.session.recording.emitted import MODEL, SESSION

from lab.oracle import resume_client, run_installed
from lab.oracle.compare import HistoryItem, differences, find_losses, read_messages, read_transcript
from lab.oracle.installed_client import find_hidden
from lab.oracle.recording_scenarios import SCENARIOS, nearest_profile, record, subagents_for
from toolspan import Permissions, Sandbox, Session
from toolspan.formats.registry import parse_file_name
from toolspan.reading.diagnostics import repair
from toolspan.runtime.profiles import profile
from toolspan.session import Agent
from toolspan.session.models.scripted import ScriptedModel, say, use
from toolspan.session.recording import Recorder, transcript_path
from toolspan.session.resume import load_history

HARNESS = Path(os.environ.get("SHARED", "../shared")).resolve() / "oracle"
SCRATCH = Path(os.environ.get("ORACLE_SCRATCH", "/var/tmp/toolspan-oracle")).resolve()
VERSIONS = ("2.1.327", "codex-0.166.0")
NAMESPACE = ("unshare", "-n", "-m", "--propagation", "private")
_CODEX = "codex-"
HARMLESS = frozenset({
    "orphan_at_the_end", "duplicate_result", "duplicate_uuid", "missing_parent", "parent_cycle",
    "byte_order_mark", "not_an_object", "foreign_session", "foreign_session_whole",
})  # fmt: skip
"""Defects by which clients from 2.1.197 on lose nothing; `toolspan doctor` relies on it."""
TOLERANT_VERSIONS = ("2.1.327",)
ANSWERS_OPEN_CALLS = ("2.1.327",)
"""Clients that add results for open calls; others leave the calls out of their requests."""


@click.command()
@click.option(
    "--version",
    "versions",
    multiple=True,
    default=VERSIONS,
    show_default=True,
    help="A client's version; codex-VERSION for Codex.",
)
@click.option("--only", help="Run the scenarios whose names begin with this.")
@click.option("--defects", is_flag=True, help="Show what the client loses by each defect.")
def main(versions: tuple[str, ...], only: str | None, *, defects: bool) -> None:
    """Check that the real clients resume recorded and repaired sessions."""
    failed = False
    for version in versions:
        if not version.startswith(_CODEX) and version != (nearest := nearest_profile(version)):
            click.echo(f"there is no profile {version}; recording with the nearest one, {nearest}", err=True)
        _require(version)
        for name, check in _checks(version, defects=defects):
            if name.startswith(only or ""):
                problems = check()
                failed = failed or bool(problems)
                click.echo(f"{version} {name}: {'ok' if not problems else 'FAILED'}")
                for problem in problems:
                    click.echo(f"  {problem}")
    sys.exit(1 if failed else 0)


def _checks(version: str, *, defects: bool) -> Iterator[tuple[str, Callable[[], list[str]]]]:
    if version.startswith(_CODEX):
        yield from ((name, partial(check_installed, name, version)) for name in run_installed.CODEX_SCENARIOS)
        return
    if defects:
        yield from ((defect.__name__, partial(check_defect, defect, version)) for defect in DEFECTS)
        return
    yield from ((scenario.__name__, partial(check_resume, scenario, version)) for scenario in SCENARIOS)
    yield "subagents", partial(check_resume, subagents_for(version), version)
    for defect in DEFECTS:
        yield f"repaired_{defect.__name__}", partial(check_repaired, defect, version)
    yield "alternating", partial(check_alternating, version)
    if profile(nearest_profile(version)).tasks.notifies:
        yield "denied_in_background", partial(check_denied_in_background, version)
    yield from ((name, partial(check_installed, name, version)) for name in run_installed.SCENARIOS)


def check_resume(scenario: Callable[[Recorder], None], version: str) -> list[str]:
    """Record a scenario and compare it with the history that the client sends."""
    folder = _empty_folder(f"resume-{scenario.__name__}", version)
    transcript = record(scenario, folder, version)
    messages = resume(folder, SESSION, version)
    if isinstance(messages, str):
        return [messages]
    return differences(transcript, messages, repaired=nearest_profile(version) not in ANSWERS_OPEN_CALLS)


def check_defect(defect: Callable[[list[bytes]], bytes], version: str) -> list[str]:
    """Print what the client loses by a defect, and compare it with `HARMLESS`."""
    folder = _empty_folder(f"defect-{defect.__name__}", version)
    transcript = record(record_two_turns, folder, version)
    history = read_transcript(transcript)
    transcript.write_bytes(defect(transcript.read_bytes().splitlines()))
    messages = resume(folder, SESSION, version)
    losses = [messages] if isinstance(messages, str) else find_losses(history, messages)
    click.echo(f"{version} {defect.__name__}: {'' if losses else 'nothing is lost'}")
    for loss in losses:
        click.echo(f"    {loss}")
    harmless = defect.__name__ in HARMLESS
    is_tolerant = nearest_profile(version) in TOLERANT_VERSIONS
    return ["`toolspan doctor` says otherwise"] if is_tolerant and harmless == bool(losses) else []


def check_repaired(defect: Callable[[list[bytes]], bytes], version: str) -> list[str]:
    """Damage and repair a session, and compare the copy with the history that the client sends."""
    folder = _empty_folder(f"repaired-{defect.__name__}", version)
    transcript = record(record_two_turns, folder, version)
    transcript.write_bytes(defect(transcript.read_bytes().splitlines()))
    repaired = repair(transcript)
    if repaired.path is None or repaired.session_id is None:
        return []
    transcript.unlink()
    messages = resume(folder, repaired.session_id, version)
    if isinstance(messages, str):
        return [messages]
    return differences(repaired.path, messages, repaired=False)


def check_alternating(version: str) -> list[str]:
    """The client starts a session and is killed in a call; toolspan resumes it, then the client."""
    folder = _empty_folder("in-turn", version)
    folder.mkdir(parents=True)
    failure = run_client(folder, "-", version)
    if failure:
        return [failure]
    shutil.copytree(_captures(folder, version) / "transcripts", folder / "projects")
    paths = (folder / "projects").glob("*/*.jsonl")
    (transcript,) = (path for path in paths if parse_file_name(path).role == "session")
    anyio.run(_resume_with_toolspan, transcript, load_history(transcript), version)
    messages = resume(folder, transcript.stem, version)
    if isinstance(messages, str):
        return [messages]
    sent = read_messages(messages)
    history = read_messages(load_history(transcript))
    return [f"not sent: {item!r}"[:300] for item in history if item not in sent and not _is_reminder(item)]


def check_denied_in_background(version: str) -> list[str]:
    """Resume a session in which the sandbox denied a path to a background command."""
    folder = _empty_folder("denied-in-background", version)
    transcript = transcript_path(SESSION, CWD, folder)
    project = folder / "project"
    project.mkdir(parents=True)
    anyio.run(_run_denied_command, transcript, project, version)
    if "The sandbox denied writing" not in transcript.read_text(encoding="utf-8"):
        return ["the denial was not recorded"]
    messages = resume(folder, SESSION, version)
    return [messages] if isinstance(messages, str) else differences(transcript, messages, repaired=False)


async def _run_denied_command(transcript: Path, project: Path, version: str) -> None:
    commands = ("touch /etc/refused; touch ended", "until [ -e ended ]; do sleep 0.05; done", "true")
    steps = [[use("Bash", command=command, run_in_background=command == commands[0])] for command in commands]
    async with Session(
        permissions=Permissions.allow_all(),
        sandbox=Sandbox(),
        cwd=project,
        profile=nearest_profile(version),
        transcript=transcript,
        session_id=SESSION,
    ) as session:
        await Agent(session, ScriptedModel([*steps, [say("The file was refused.")]])).prompt("Create the file")


def check_installed(scenario: str, version: str) -> list[str]:
    """Run a scenario in which toolspan is installed beside the client."""
    is_codex = version.startswith(_CODEX)
    variable = "ORACLE_CODEX_VERSION" if is_codex else "ORACLE_CLAUDE_VERSION"
    program = [sys.executable, "-m", run_installed.__name__, str(HARNESS)]
    run = subprocess.run(
        [*NAMESPACE, *program, "codex" if is_codex else "claude", scenario],
        env={**os.environ, "ORACLE_SCRATCH": str(SCRATCH), variable: version.removeprefix(_CODEX)},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        return [f"the scenario exited with {run.returncode}: {run.stderr.strip()[-400:]}"]
    problems: list[str] = json.loads(run.stdout.strip().rpartition("\n")[2])
    return problems


def _is_reminder(item: HistoryItem) -> bool:
    """Return whether the client generates this text anew for each request."""
    _, content = item
    return isinstance(content, str) and content.startswith("<system-reminder>")


async def _resume_with_toolspan(transcript: Path, history: list[dict[str, Any]], version: str) -> None:
    model = ScriptedModel([say("We are here.")])
    async with Session(
        permissions=Permissions.allow_all(),
        cwd=transcript.parent,  # the project's folder exists only in the client's namespace
        profile=nearest_profile(version),
        transcript=transcript,
        session_id=transcript.stem,
        history=history,
    ) as session:
        await Agent(session, model).prompt("Where were we?")


def _empty_folder(name: str, version: str) -> Path:
    folder = SCRATCH / "recorded" / version / name
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def resume(folder: Path, session_id: str, version: str) -> list[dict[str, Any]] | str:
    """Return the messages that the client sends when it resumes a session, or an error message."""
    failure = run_client(folder, session_id, version)
    if failure:
        return failure
    for line in (_captures(folder, version) / "requests.jsonl").read_text(encoding="utf-8").splitlines():
        request = json.loads(line)
        if request.get("route") == "resumed" and "body" in request:
            messages: list[dict[str, Any]] = request["body"]["messages"]
            return messages
    return "the client did not send a request"


def _captures(folder: Path, version: str) -> Path:
    return SCRATCH / "captures" / f"claude-{version}" / folder.name


def run_client(folder: Path, session_id: str, version: str) -> str:
    """Run the client in its own namespaces; return an error message, or an empty string."""
    program = Path(shutil.copy(resume_client.__file__, folder))
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable
    arguments = [str(HARNESS), str(folder / "projects"), session_id, folder.name, MODEL]
    run = subprocess.run(
        [*NAMESPACE, python, str(program), *arguments],
        env={**os.environ, "ORACLE_SCRATCH": str(SCRATCH), "ORACLE_CLAUDE_VERSION": version},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        return f"the client exited with {run.returncode}: {run.stderr.strip()[-400:]}"
    return ""


def _require(version: str) -> None:
    is_codex, number = version.startswith(_CODEX), version.removeprefix(_CODEX)
    client = SCRATCH / "clients" / f"{'cx' if is_codex else 'cc'}-{number}"
    versions = f"CLAUDE_VERSIONS={'' if is_codex else number} CODEX_VERSIONS={number if is_codex else ''}"
    install = f"ORACLE_SCRATCH={SCRATCH} {versions} sh install.sh"
    hidden = find_hidden(HARNESS, SCRATCH)
    requirements = {
        f"the harness is not in {HARNESS}; name another folder with SHARED=...": HARNESS.is_dir(),
        f"its namespaces hide {hidden}; move it out of /home and /tmp": hidden is None,
        f"version {version} is not in {client}; in {HARNESS}: {install}": client.is_dir(),
        "namespaces need root and unshare": os.geteuid() == 0 and bool(shutil.which("unshare")),
    }
    for reason, fulfilled in requirements.items():
        if not fulfilled:
            click.echo(f"Cannot run the real client: {reason}", err=True)
            sys.exit(2)


if __name__ == "__main__":
    main()
