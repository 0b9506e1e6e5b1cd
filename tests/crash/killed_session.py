"""A session in a separate process, with a file layer that kills it or logs its operations.

    python -m tests.crash.killed_session kill FOLDER FSYNC HALF     dies after the 1st, 2nd, … operation
    python -m tests.crash.killed_session note FOLDER FSYNC          lives, and notes every operation

`kill` forks a process for each number until one lives to the end; each works in FOLDER/<number>.
`HALF` is 1 when the last write is to be torn in the middle. `note` leaves FOLDER/operations.json.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from toolspan import Session
from toolspan.runtime.permissions import Permissions
from toolspan.runtime.profiles import profile
from toolspan.runtime.tool import Tool, tool
from toolspan.session.recording import Fsync
from toolspan.tools import coding_tools
from toolspan.types.events import Finished

SESSION = "5e551011-0000-4000-8000-000000000000"
OLD, NEW = "first line\n", "changed line\n"
Operation = tuple[str, str, str]


def use(name: str, kind: str, **fields: object) -> dict[str, object]:
    return {"type": "tool_use", "id": name, "name": kind, "input": fields}


def replies(project: Path) -> list[dict[str, object]]:
    def at(name: str) -> str:
        return str(project / name)

    request = [
        [
            use("toolu_read", "Read", file_path=at("edited.txt")),
            use("toolu_bash", "Bash", command=f"echo ran >> {at('log')}"),
            use("toolu_write", "Write", file_path=at("made.txt"), content=NEW),
        ],
        [
            use("toolu_edit", "Edit", file_path=at("edited.txt"), old_string="first",
                new_string="changed"),
            use("toolu_again", "Read", file_path=at("edited.txt")),
        ],
        [use("toolu_agent", "Helper")],
        [{"type": "text", "text": "Done."}],
    ]  # fmt: skip
    return [
        {"id": f"msg_{n}", "role": "assistant", "model": "m", "content": blocks} for n, blocks in enumerate(request)
    ]


def sub_reply(project: Path) -> dict[str, object]:
    call = use("toolu_sub", "Write", file_path=str(project / "sub.txt"), content=NEW)
    return {"id": "msg_sub", "role": "assistant", "model": "m", "content": [call]}


def prepared(place: Path) -> Path:
    project = place / "project"
    project.mkdir(parents=True)
    (project / "edited.txt").write_text(OLD, encoding="utf-8")
    return project


def transcript(place: Path) -> Path:
    return place / "home" / f"{SESSION}.jsonl"


def tools() -> list[Tool]:
    return list(coding_tools(profile("2.1.327"), only=["Read", "Write", "Edit", "Bash"]))


async def live(place: Path, fsync: Fsync, output: Callable[[Finished], None]) -> None:
    project = place / "project"

    @tool(name="Helper")
    async def helper() -> str:
        """Let another one work."""
        assert session.recorder is not None
        recorder = session.recorder.subagent_recorder("helper", {"toolUseId": "toolu_agent"})
        async with Session(
            permissions=Permissions.allow_all(),
            cwd=project,
            tools=tools(),
            transcript=recorder,
            session_id=SESSION,
            fsync=fsync,
        ) as child:
            child.say("Write it.")
            await child.run(sub_reply(project))
        return "done"

    def heard(event: object) -> None:
        if isinstance(event, Finished):
            output(event)

    session = Session(
        permissions=Permissions.allow_all(),
        cwd=project,
        tools=[*tools(), helper],
        transcript=transcript(place),
        session_id=SESSION,
        fsync=fsync,
        direct=[heard],
    )
    async with session:
        session.say("Go.")
        for reply in replies(project):
            await session.run(reply)


class Layer:
    """A layer between the session and the system's file functions."""

    def __init__(self, after: Callable[[str, str, bytes], None]) -> None:
        self._after = after
        self.half_at = 0
        self.count = 0

    def install(self) -> None:
        for name in ("replace", "link", "fsync", "write"):
            setattr(os, name, getattr(self, f"_{name}")(getattr(os, name)))

    def _write(self, real: Callable[[int, Any], int]) -> Callable[[int, Any], int]:
        def write(file: int, data: Any) -> int:
            ours = stat.S_ISREG(os.fstat(file).st_mode)
            if ours and self.count + 1 == self.half_at:
                data = bytes(data)[: len(data) // 2]
            written = real(file, data)
            if ours:
                self._note("write", _name(file), bytes(data)[:written])
            return written

        return write

    def _fsync(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def fsync(file: int) -> None:
            real(file)
            self._note("fsync", _name(file), b"")

        return fsync

    def _replace(self, real: Callable[..., None]) -> Callable[..., None]:
        return self._named(real)

    def _link(self, real: Callable[..., None]) -> Callable[..., None]:
        return self._named(real)

    def _named(self, real: Callable[..., None]) -> Callable[..., None]:
        def named(source: Any, target: Any, **more: Any) -> None:
            real(source, target, **more)
            folder = Path(_name(more["dst_dir_fd"])) if "dst_dir_fd" in more else Path()
            path = folder / os.fspath(target)
            self._note("named", str(path), path.read_bytes())

        return named

    def _note(self, what: str, path: str, data: bytes) -> None:
        self.count += 1
        self._after(what, path, data)


def _name(file: int) -> str:
    return str(Path(f"/proc/self/fd/{file}").readlink())


def _kill(place: Path, fsync: Fsync, *, half: bool) -> None:
    number = 0
    while True:
        number += 1
        prepared(place / str(number))
        child = os.fork()
        if child == 0:
            _die(place / str(number), fsync, number, half=half)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            sys.exit(os.WEXITSTATUS(status))


def _die(place: Path, fsync: Fsync, number: int, *, half: bool) -> None:
    def after(*_: object) -> None:
        if layer.count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    layer = Layer(after)
    layer.half_at = number if half else 0
    layer.install()
    code = 1
    try:
        anyio.run(live, place, fsync, lambda _: None)
        code = 0
    finally:
        os._exit(code)


def _note(place: Path, fsync: Fsync) -> None:
    operations: list[Operation] = []

    def after(what: str, path: str, data: bytes) -> None:
        operations.append((what, path, base64.b64encode(data).decode()))

    prepared(place)
    Layer(after).install()
    anyio.run(live, place, fsync, lambda done: operations.append(("told", done.call_id, "")))
    (place / "operations.json").write_text(json.dumps(operations), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "kill":
        _kill(Path(sys.argv[2]), sys.argv[3], half=sys.argv[4] == "1")  # type: ignore[arg-type]
    else:
        _note(Path(sys.argv[2]), sys.argv[3])  # type: ignore[arg-type]
