"""Asks the real client: does it resume what we record, and lose nothing?

    python -m tests.oracle [--version 2.1.325] [--only NAME]

Records sessions, lets Claude Code go on with them against a scripted model on loopback, and
compares the history it sends with what was recorded. Needs the harness in $SHARED/oracle (default
../shared), clients installed by it into $ORACLE_SCRATCH (default /var/tmp/toolspan-oracle), and
root, for namespaces. Exit code: 0 agreed, 1 not, 2 something is missing.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tests.oracle import inside
from tests.oracle.compare import differences, recorded
from tests.oracle.defects import DEFECTS, base, lost
from tests.oracle.stories import STORIES, record
from tests.record.story import MODEL, SESSION
from toolspan.record import Recorder

HARNESS = Path(os.environ.get("SHARED", "../shared")).resolve() / "oracle"
SCRATCH = Path(os.environ.get("ORACLE_SCRATCH", "/var/tmp/toolspan-oracle")).resolve()
REPAIRS = ("2.1.325",)
"""Clients that answer open calls themselves; others leave them out of what they send."""


@click.command()
@click.option("--version", "versions", multiple=True, help="A client's version (default 2.1.325).")
@click.option("--only", help="One story.")
@click.option("--defects", is_flag=True, help="What does the client lose by each defect?")
def main(versions: tuple[str, ...], only: str | None, *, defects: bool) -> None:
    """Ask the real client whether it resumes what we record."""
    failed = 0
    for version in versions or ("2.1.325",):
        _require(version)
        for defect in DEFECTS if defects else ():
            if only in (None, defect.__name__):
                losses = ask_of_defect(defect, version)
                click.echo(f"{version} {defect.__name__}: {'nothing lost' if not losses else ''}")
                for loss in losses:
                    click.echo(f"  {loss}")
        if defects:
            continue
        for story in STORIES:
            if only in (None, story.__name__):
                problems = ask(story, version)
                failed += bool(problems)
                click.echo(f"{version} {story.__name__}: {'ok' if not problems else 'FAILED'}")
                for problem in problems:
                    click.echo(f"  {problem}")
    sys.exit(1 if failed else 0)


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
    return [messages] if isinstance(messages, str) else lost(whole, messages)


def _place(name: str, version: str) -> Path:
    place = SCRATCH / "recorded" / version / name
    shutil.rmtree(place, ignore_errors=True)
    return place


def resumed(place: Path, session_id: str, version: str) -> list[dict[str, Any]] | str:
    """What the client sends when it goes on with a session; in words, when it does not."""
    name = place.name
    program = Path(shutil.copy(inside.__file__, place))
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable
    namespace = ["unshare", "-n", "-m", "--propagation", "private"]
    arguments = [str(HARNESS), str(place / "projects"), session_id, name, MODEL]
    run = subprocess.run(
        [*namespace, python, str(program), *arguments],
        env={**os.environ, "ORACLE_SCRATCH": str(SCRATCH), "ORACLE_CLAUDE_VERSION": version},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        return f"the client ended with {run.returncode}: {run.stderr.strip()[-400:]}"
    captured = SCRATCH / "captures" / f"claude-{version}" / name
    return _history(captured / "requests.jsonl") or "the client did not ask its model"


def _history(requests: Path) -> list[dict[str, Any]] | None:
    """The messages of the first request of the resumed turn."""
    for line in requests.read_text(encoding="utf-8").splitlines():
        request = json.loads(line)
        if request.get("route") == "resumed" and "body" in request:
            messages: list[dict[str, Any]] = request["body"]["messages"]
            return messages
    return None


def _require(version: str) -> None:
    client = SCRATCH / "clients" / f"cc-{version}"
    install = f"ORACLE_SCRATCH={SCRATCH} CLAUDE_VERSIONS={version} CODEX_VERSIONS= sh install.sh"
    missing = {
        f"the harness is not in {HARNESS}; name another folder with SHARED=...": HARNESS.is_dir(),
        f"Claude Code {version} is not in {client}; in {HARNESS}: {install}": client.is_dir(),
        "namespaces need root and unshare": os.geteuid() == 0 and bool(shutil.which("unshare")),
    }
    for reason, there in missing.items():
        if not there:
            click.echo(f"Cannot ask the real client: {reason}", err=True)
            sys.exit(2)


if __name__ == "__main__":
    main()
