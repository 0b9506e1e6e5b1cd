"""Variables that handlers leave for later commands, in the file that `CLAUDE_ENV_FILE` names.

In: files with lines such as `export NODE_ENV=test`, one for each handler. Out: the variables they
set, as bash understands the lines. Those of a folder are taken back when the session leaves it.
Files in which nothing was written cost nothing. Read `Variables.take` first.
"""

import os
import shlex
import shutil
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio

from toolspan.hooks.points import Point
from toolspan.hooks.scene import Scene
from toolspan.process import Command, StartError

NAME = "CLAUDE_ENV_FILE"
WRITING: frozenset[Point] = frozenset({"SessionStart", "CwdChanged", "FileChanged"})
"""The points whose handlers may write."""
PATIENCE = 10.0
"""Seconds that a file may take."""
_MOST = 4 << 20
_SHELLS = ("/bin/bash", "/usr/bin/bash")
_OWN = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "TOOLSPAN_CALL", NAME})
"""What the shell that reads the files sets by itself."""


class Variables:
    """What the handlers of a session have set."""

    def __init__(self) -> None:
        self._set: dict[str, str] = {}
        """By handlers that are about no folder."""
        self._before: Mapping[str, str | None] = {}
        """What the variables were that were set for the folder in which the session is."""

    def new_file(self, scene: Scene) -> Path:
        """A file for one handler to write to."""
        path = scene.folder / "hook-env" / f"{uuid.uuid4()}.sh"
        with suppress(OSError):  # then the handler cannot write either, and is told so
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return path

    async def take(self, point: Point, files: Sequence[Path], scene: Scene) -> None:
        """Give the session what is in the files."""
        written = [file for file in files if _has_words(file)]
        before = {**scene.environment, **self._set}
        found = await _read(written, before, scene) if written else {}
        for file in files:
            file.unlink(missing_ok=True)
        with suppress(OSError):
            (scene.folder / "hook-env").rmdir()
            scene.folder.rmdir()  # if there is nothing else in it
        if point != "CwdChanged":
            self._set |= found
            scene.export(found)
        else:
            scene.export(self._before)
            self._before = scene.export(found)


def _has_words(file: Path) -> bool:
    try:
        return file.stat().st_size > 0
    except OSError:
        return False


async def _read(files: Sequence[Path], before: Mapping[str, str], scene: Scene) -> dict[str, str]:
    """What differs from before once a shell has read the files; nothing if that fails."""
    shell = next((one for one in _SHELLS if os.access(one, os.X_OK)), None)
    printer = shutil.which("env")
    if shell is None or printer is None:
        return {}
    lines = "".join(f". {shlex.quote(str(file))} >/dev/null 2>&1; " for file in files)
    command = Command(
        argv=[shell, "-c", f"set -a; {lines}exec {shlex.quote(printer)} -0"],
        cwd=scene.project,
        env=before,
        mark="hook-env",
        memory_limit=_MOST,
    )
    with suppress(StartError), anyio.move_on_after(PATIENCE):
        async with scene.custody.running(command, 0.0) as child:
            await child.wait()
            return _changed(child.stdout.data, before) if not child.stdout.dropped else {}
    return {}


def _changed(data: bytes, before: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in data.decode("utf-8", "surrogateescape").split("\0"):
        name, equals, value = entry.partition("=")
        if equals and name not in _OWN and before.get(name) != value:
            found[name] = value
    return found
