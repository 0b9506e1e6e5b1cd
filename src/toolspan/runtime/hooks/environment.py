"""Variables that handlers leave for later commands, in the file that `CLAUDE_ENV_FILE` names.

In: files with lines such as `export NODE_ENV=test`, one for each handler. Out: the variables they
set, as bash understands the lines. Those of a folder are taken back when the session leaves it.
Files in which nothing was written cost nothing. Read `Variables.take` first.
"""

from __future__ import annotations

import os
import shlex
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import anyio

from toolspan.runtime.hooks.events import HookEnvironment, HookPoint
from toolspan.runtime.process import Command, StartError

ENV_FILE_VARIABLE = "CLAUDE_ENV_FILE"
ENV_FILE_POINTS: frozenset[HookPoint] = frozenset({"SessionStart", "CwdChanged", "FileChanged"})
"""The points whose handlers may write."""
SOURCE_TIMEOUT = 10.0
"""Seconds that a file may take."""
_MAX_OUTPUT_BYTES = 4 << 20
_SHELLS = ("/bin/bash", "/usr/bin/bash")
_SHELL_OWN_VARIABLES = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "TOOLSPAN_CALL", ENV_FILE_VARIABLE})
"""What the shell that reads the files sets by itself."""


class HookVariables:
    """What the handlers of a session have set."""

    def __init__(self) -> None:
        self._persistent: dict[str, str] = {}
        """By handlers that are about no folder."""
        self._previous_values: Mapping[str, str | None] = {}
        """What the variables were that were set for the folder in which the session is."""

    def new_file(self, hook_environment: HookEnvironment) -> Path:
        """A file for one handler to write to."""
        path = hook_environment.session_folder / "hook-env" / f"{uuid.uuid4()}.sh"
        with suppress(OSError):  # then the handler cannot write either, and is told so
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return path

    async def export_files(self, point: HookPoint, files: Sequence[Path], hook_environment: HookEnvironment) -> None:
        """Give the session what is in the files."""
        written = [file for file in files if _has_content(file)]
        base_env = {**hook_environment.env_vars, **self._persistent}
        variables = await _source_files(written, base_env, hook_environment) if written else {}
        for file in files:
            file.unlink(missing_ok=True)
        with suppress(OSError):
            (hook_environment.session_folder / "hook-env").rmdir()
            hook_environment.session_folder.rmdir()  # if there is nothing else in it
        if point != "CwdChanged":
            self._persistent |= variables
            hook_environment.export_variables(variables)
        else:
            hook_environment.export_variables(self._previous_values)
            self._previous_values = hook_environment.export_variables(variables)


def _has_content(file: Path) -> bool:
    try:
        return file.stat().st_size > 0
    except OSError:
        return False


async def _source_files(
    files: Sequence[Path], base_env: Mapping[str, str], hook_environment: HookEnvironment
) -> dict[str, str]:
    """What differs from before once a shell has read the files; nothing if that fails."""
    shell = next((candidate for candidate in _SHELLS if os.access(candidate, os.X_OK)), None)
    printer = shutil.which("env")
    if shell is None or printer is None:
        return {}
    lines = "".join(f". {shlex.quote(str(file))} >/dev/null 2>&1; " for file in files)
    command = Command(
        argv=[shell, "-c", f"set -a; {lines}exec {shlex.quote(printer)} -0"],
        cwd=hook_environment.project,
        env=base_env,
        tag="hook-env",
        memory_limit=_MAX_OUTPUT_BYTES,
    )
    with suppress(StartError), anyio.move_on_after(SOURCE_TIMEOUT):
        async with hook_environment.supervisor.running_child(command, 0.0) as child:
            await child.wait()
            return _changed_variables(child.stdout.data, base_env) if not child.stdout.dropped else {}
    return {}


def _changed_variables(data: bytes, base_env: Mapping[str, str]) -> dict[str, str]:
    changed: dict[str, str] = {}
    for entry in data.decode("utf-8", "surrogateescape").split("\0"):
        name, equals, value = entry.partition("=")
        if equals and name not in _SHELL_OWN_VARIABLES and base_env.get(name) != value:
            changed[name] = value
    return changed


FileChangeKind = Literal["add", "change", "unlink"]
_FileSignature = tuple[int, int, int] | None
"""When a file was changed, how long it is, which it is; None: it is not there."""


class WatchedFiles:
    """The files of a session that are looked at."""

    def __init__(self, names: Iterable[str], folder: Path) -> None:
        self._base_paths = frozenset(folder / name for name in names)
        self._signatures: dict[Path, _FileSignature] = {path: _read_signature(path) for path in self._base_paths}

    def watch_paths(self, paths: Iterable[str]) -> None:
        """Look at these, too, in place of those that were named before."""
        targets = self._base_paths | {Path(path) for path in paths if Path(path).is_absolute()}
        self._signatures = {
            path: self._signatures[path] if path in self._signatures else _read_signature(path) for path in targets
        }

    def poll_changes(self) -> list[tuple[Path, FileChangeKind]]:
        """What is not as it was at the last look."""
        changes: list[tuple[Path, FileChangeKind]] = []
        for path, before in sorted(self._signatures.items()):
            now = _read_signature(path)
            if now == before:
                continue
            self._signatures[path] = now
            changes.append((path, "unlink" if now is None else "change" if before else "add"))
        return changes


def _read_signature(path: Path) -> _FileSignature:
    try:
        info = path.stat()
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino
