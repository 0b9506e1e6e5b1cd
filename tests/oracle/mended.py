"""A session of the real client breaks, is mended, and the client goes on with it.

What toolspan prints is typed as it is printed, in a terminal, as a person would. That the session
was broken is asked of the client first: by one damage it finds no conversation any more, by the
other it forgets, and old clients send what a server refuses.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.journeys.screen import Screen
from tests.oracle.compare import Said, recorded, spoken
from tests.oracle.defects import lost
from tests.oracle.house import House, enters, shows, until
from tests.oracle.served import differ
from toolspan.formats.registry import parse_file_name
from toolspan.testing import check_history

_PUMPED = "pumped 12 l"
_ASIDE = "aside"


def journey_refused(house: House) -> Iterator[str]:
    """All ends of lines are lost: the client finds no conversation. Mended, nothing is missing."""
    path, said = _worked(house)
    path.write_bytes(path.read_bytes().replace(b"\n", b" "))
    tried = _tried(house, path)
    yield from differ("the client finds a conversation", tried, None)
    yield from _mended(house, path, said)


def journey_forgotten(house: House) -> Iterator[str]:
    """A line is torn: the client forgets what stood there, or more. Mended, it is told of it."""
    path, said = _worked(house)
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if _result(line))
    lines[at] = lines[at][: len(lines[at]) // 2] + b"\n"
    path.write_bytes(b"".join(lines))
    tried = _tried(house, path)
    yield from differ("the client loses nothing", tried == [], False)
    torn = [one for one in said if one[0] == "result" and _PUMPED in str(one)]
    yield from _mended(house, path, [one for one in said if one not in torn])


def _result(line: bytes) -> bool:
    return b'"tool_result"' in line and _PUMPED.encode() in line


def _worked(house: House) -> tuple[Path, list[Said]]:
    """A session of the client, and what was said in it."""
    house.writes("proj/beds.csv", "bed,crop\nnorth,beans\n")
    house.turn("I look.", {"tool": "Read", "input": {"file_path": str(house.cwd / "beds.csv")}})
    pump = f"echo {_PUMPED}"
    house.turn("North first.", {"tool": "Bash", "input": {"command": pump, "description": "pump"}})
    house.turn("Now the south.", {"tool": "Bash", "input": {"command": "pwd", "description": "go"}})
    house.turn("All is watered.")
    house.world.go()
    projects = house.home / ".claude/projects"
    (path,) = (one for one in projects.glob("*/*.jsonl") if parse_file_name(one).role == "session")
    return path, [one for one in recorded(path) if "<system-reminder>" not in str(one)]


def _tried(house: House, path: Path) -> list[str] | None:
    """What the client loses of a session; None when it does not go on with it."""
    said = recorded(path)
    projects, aside = house.home / ".claude/projects", house.home / _ASIDE
    shutil.copytree(projects, aside)
    house.world.scripts = {"tried": [["So far."]]}
    house.world.go(prompt="go on [[s:tried]]", args=["--resume", path.stem])
    shutil.rmtree(projects)
    aside.rename(projects)
    sent = house.sent("tried")
    return lost(said, sent[0]) if sent else None


def _mended(house: House, path: Path, said: list[Said]) -> Iterator[str]:
    broken = path.read_bytes()
    house.world.scripts = {"resumed": [["Nothing is forgotten."]]}
    with house.terminal() as shell:
        mend = _told(r"toolspan repair \S+", shell.runs("toolspan doctor"))
        resume = _told(r"cd \S+ && claude --resume \S+", shell.runs(mend))
        yield from differ("the broken file", path.read_bytes() == broken, True)
        _resumed(shell, resume)
    (messages,) = house.sent("resumed")
    for problem in check_history(spoken(messages)):
        yield f"the history is refused: {problem}"
    yield from lost(said, messages)
    healthy = house.types("toolspan doctor")
    yield from differ(f"afterwards: {healthy.out}", healthy.code, 0)


def _resumed(shell: Screen, command: str) -> None:
    """Type the command, and a prompt once the conversation is on the screen."""
    shell.starts(command)
    until(lambda: shows(shell, "All is watered."), what="the conversation")
    enters(shell, "go on [[s:resumed]]", then=lambda: shows(shell, "Nothing is forgotten."))
    enters(shell, "/exit", then=lambda: shell.lines()[-1] == "$")


def _told(pattern: str, shown: str) -> str:
    found = re.search(pattern, shown)
    if found is None:
        raise LookupError(f"nothing like {pattern!r} in:\n{shown}")
    return found[0]


STORIES: tuple[Callable[[House], Iterator[str]], ...] = (journey_refused, journey_forgotten)
