"""Asks the real clients: do they resume what we record, and take what we give them?

    python -m tests.oracle [--version 2.1.325] [--version codex-0.166.0] [--only NAME]

Records sessions, lets Claude Code go on with them against a scripted model on loopback, and
compares the history it sends with what was recorded. Stories in a house (`indoors.py`) have
toolspan installed beside the client: its MCP server, its hooks, a session mended and resumed. Needs
the harness in $SHARED/oracle (default ../shared), clients installed by it into $ORACLE_SCRATCH
(default /var/tmp/toolspan-oracle), and root, for namespaces. Exit code: 0 agreed, 1 not, 2
something is missing.
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

from tests.oracle import indoors, inside
from tests.oracle.agents import agents_of
from tests.oracle.compare import Said, differences, recorded, sent
from tests.oracle.defects import DEFECTS, HARMLESS, STURDY, base, lost
from tests.oracle.stories import CWD, STORIES, record
from tests.session.recording.emitted import MODEL, SESSION
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
VERSIONS = ("2.1.325", "codex-0.166.0")
NAMESPACE = ("unshare", "-n", "-m", "--propagation", "private")
_CODEX = "codex-"
REPAIRS = ("2.1.325",)
"""Clients that answer open calls themselves; others leave them out of what they send."""


@click.command()
@click.option(
    "--version",
    "versions",
    multiple=True,
    default=VERSIONS,
    show_default=True,
    help="A client's version; codex-VERSION for Codex.",
)
@click.option("--only", help="Stories whose names begin so.")
@click.option("--defects", is_flag=True, help="What does the client lose by each defect?")
def main(versions: tuple[str, ...], only: str | None, *, defects: bool) -> None:
    """Ask the real client whether it resumes what we record, and what we repaired."""
    failed = False
    for version in versions:
        _require(version)
        for name, question in _questions(version, defects=defects):
            if name.startswith(only or ""):
                problems = question()
                failed = failed or bool(problems)
                click.echo(f"{version} {name}: {'ok' if not problems else 'FAILED'}")
                for problem in problems:
                    click.echo(f"  {problem}")
    sys.exit(1 if failed else 0)


def _questions(version: str, *, defects: bool) -> Iterator[tuple[str, Callable[[], list[str]]]]:
    if version.startswith(_CODEX):
        yield from ((one, partial(ask_indoors, one, version)) for one in indoors.SERVED)
        return
    if defects:
        yield from ((one.__name__, partial(ask_of_defect, one, version)) for one in DEFECTS)
        return
    yield from ((one.__name__, partial(ask, one, version)) for one in STORIES)
    yield "agents", partial(ask, agents_of(version), version)
    for defect in DEFECTS:
        yield f"repaired_{defect.__name__}", partial(ask_of_repaired, defect, version)
    yield "in_turn", partial(ask_both_in_turn, version)
    if profile(version).tasks.notifies:
        yield "refused_in_background", partial(ask_of_background_refusal, version)
    yield from ((one, partial(ask_indoors, one, version)) for one in indoors.STORIES)


def ask(story: Callable[[Recorder], None], version: str) -> list[str]:
    """What the client makes of one story."""
    place = _place(f"resume-{story.__name__}", version)
    transcript = record(story, place, version)
    messages = resumed(place, SESSION, version)
    if isinstance(messages, str):
        return [messages]
    return differences(transcript, messages, repaired=version not in REPAIRS)


def ask_of_defect(defect: Callable[[list[bytes]], bytes], version: str) -> list[str]:
    """What the client loses by a defect."""
    place = _place(f"defect-{defect.__name__}", version)
    transcript = record(base, place, version)
    whole = recorded(transcript)
    transcript.write_bytes(defect(transcript.read_bytes().splitlines()))
    messages = resumed(place, SESSION, version)
    losses = [messages] if isinstance(messages, str) else lost(whole, messages)
    click.echo(f"{version} {defect.__name__}: {'' if losses else 'nothing is lost'}")
    for loss in losses:
        click.echo(f"    {loss}")
    harmless = defect.__name__ in HARMLESS
    return ["the doctor says otherwise"] if version in STURDY and harmless == bool(losses) else []


def ask_of_repaired(defect: Callable[[list[bytes]], bytes], version: str) -> list[str]:
    """What the client loses of a session that had a defect and was repaired."""
    place = _place(f"repaired-{defect.__name__}", version)
    transcript = record(base, place, version)
    transcript.write_bytes(defect(transcript.read_bytes().splitlines()))
    done = repair(transcript)
    if done.path is None or done.session_id is None:
        return []
    transcript.unlink()
    messages = resumed(place, done.session_id, version)
    if isinstance(messages, str):
        return [messages]
    return differences(done.path, messages, repaired=False)


def ask_both_in_turn(version: str) -> list[str]:
    """The client begins and is killed in a call; we go on with it, and then the client again."""
    place = _place("in-turn", version)
    place.mkdir(parents=True)
    failed = run_inside(place, "-", version)
    if failed:
        return [failed]
    shutil.copytree(_captured(place, version) / "transcripts", place / "projects")
    found = (place / "projects").glob("*/*.jsonl")
    (transcript,) = (one for one in found if parse_file_name(one).role == "session")
    history = load_history(transcript)
    anyio.run(_go_on, transcript, history, version)
    messages = resumed(place, transcript.stem, version)
    if isinstance(messages, str):
        return [messages]
    said = sent(messages)
    wanted = [one for one in sent(load_history(transcript)) if one not in said and _is_said(one)]
    return [f"not sent: {one!r}"[:300] for one in wanted]


def ask_of_background_refusal(version: str) -> list[str]:
    """Return what the client loses of a session in which the sandbox refused a path to a background command."""
    place = _place("refused-in-background", version)
    transcript = transcript_path(SESSION, CWD, place)
    folder = place / "project"
    folder.mkdir(parents=True)
    anyio.run(_run_refused_command, transcript, folder, version)
    if "The sandbox denied writing" not in transcript.read_text(encoding="utf-8"):
        return ["the refusal was not recorded"]
    messages = resumed(place, SESSION, version)
    return [messages] if isinstance(messages, str) else differences(transcript, messages, repaired=False)


async def _run_refused_command(transcript: Path, folder: Path, version: str) -> None:
    commands = ("touch /etc/refused; touch ended", "until [ -e ended ]; do sleep 0.05; done", "true")
    steps = [[use("Bash", command=command, run_in_background=command == commands[0])] for command in commands]
    async with Session(
        permissions=Permissions.allow_all(),
        sandbox=Sandbox(),
        cwd=folder,
        profile=version,
        transcript=transcript,
        session_id=SESSION,
    ) as session:
        await Agent(session, ScriptedModel([*steps, [say("The file was refused.")]])).prompt("Create the file")


def ask_indoors(story: str, version: str) -> list[str]:
    """What is wrong in a story in which toolspan is installed beside the client."""
    is_codex = version.startswith(_CODEX)
    chosen = "ORACLE_CODEX_VERSION" if is_codex else "ORACLE_CLAUDE_VERSION"
    program = [sys.executable, "-m", indoors.__name__, str(HARNESS)]
    run = subprocess.run(
        [*NAMESPACE, *program, "codex" if is_codex else "claude", story],
        env={**os.environ, "ORACLE_SCRATCH": str(SCRATCH), chosen: version.removeprefix(_CODEX)},
        capture_output=True,
        text=True,
        check=False,
    )
    told = run.stdout.strip().rpartition("\n")[2]
    if run.returncode:
        return [f"the story ended with {run.returncode}: {run.stderr.strip()[-400:]}"]
    problems: list[str] = json.loads(told)
    return problems


def _is_said(said: Said) -> bool:
    """Whether it is no note of the client itself, which it makes anew each time."""
    _, told = said
    return not (isinstance(told, str) and told.startswith("<system-reminder>"))


async def _go_on(transcript: Path, history: list[dict[str, Any]], version: str) -> None:
    """Our turn in a session that the client began."""
    model = ScriptedModel([say("We are here.")])
    cwd = transcript.parent  # the project itself exists only where the client runs
    async with Session(
        permissions=Permissions.allow_all(),
        cwd=cwd,
        profile=version,
        transcript=transcript,
        session_id=transcript.stem,
        history=history,
    ) as session:
        await Agent(session, model).prompt("Where were we?")


def _place(name: str, version: str) -> Path:
    place = SCRATCH / "recorded" / version / name
    shutil.rmtree(place, ignore_errors=True)
    return place


def resumed(place: Path, session_id: str, version: str) -> list[dict[str, Any]] | str:
    """What the client sends when it goes on with a session; in words, when it does not."""
    failed = run_inside(place, session_id, version)
    if failed:
        return failed
    found = _history(_captured(place, version) / "requests.jsonl")
    return found or "the client did not ask its model"


def _captured(place: Path, version: str) -> Path:
    return SCRATCH / "captures" / f"claude-{version}" / place.name


def run_inside(place: Path, session_id: str, version: str) -> str:
    """Run the client in a world of its own; what went wrong, in words."""
    name = place.name
    program = Path(shutil.copy(inside.__file__, place))
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable
    arguments = [str(HARNESS), str(place / "projects"), session_id, name, MODEL]
    run = subprocess.run(
        [*NAMESPACE, python, str(program), *arguments],
        env={**os.environ, "ORACLE_SCRATCH": str(SCRATCH), "ORACLE_CLAUDE_VERSION": version},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        return f"the client ended with {run.returncode}: {run.stderr.strip()[-400:]}"
    return ""


def _history(requests: Path) -> list[dict[str, Any]] | None:
    """The messages of the first request of the resumed turn."""
    for line in requests.read_text(encoding="utf-8").splitlines():
        request = json.loads(line)
        if request.get("route") == "resumed" and "body" in request:
            messages: list[dict[str, Any]] = request["body"]["messages"]
            return messages
    return None


def _require(version: str) -> None:
    is_codex, number = version.startswith(_CODEX), version.removeprefix(_CODEX)
    client = SCRATCH / "clients" / f"{'cx' if is_codex else 'cc'}-{number}"
    chosen = f"CLAUDE_VERSIONS={'' if is_codex else number}"
    chosen += f" CODEX_VERSIONS={number if is_codex else ''}"
    install = f"ORACLE_SCRATCH={SCRATCH} {chosen} sh install.sh"
    hidden = any(indoors.ROOT.is_relative_to(place) for place in ("/home", "/tmp"))
    missing = {
        f"the harness is not in {HARNESS}; name another folder with SHARED=...": HARNESS.is_dir(),
        f"version {version} is not in {client}; in {HARNESS}: {install}": client.is_dir(),
        "namespaces need root and unshare": os.geteuid() == 0 and bool(shutil.which("unshare")),
        f"{indoors.ROOT} is out of sight for it; move it out of /home and /tmp": not hidden,
    }
    for reason, there in missing.items():
        if not there:
            click.echo(f"Cannot ask the real client: {reason}", err=True)
            sys.exit(2)


if __name__ == "__main__":
    main()
