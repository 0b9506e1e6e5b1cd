"""State that configured hooks keep for a session: running async handlers, exported variables and watched files."""

from __future__ import annotations

import os
import shlex
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import anyio

from toolspan.runtime.hooks.events import HookEnvironment, HookPoint
from toolspan.runtime.hooks.merge import HandlerRun
from toolspan.runtime.hooks.protocol import (
    BLOCKING_EXIT_CODE,
    DetachedHandler,
    HookOutput,
    HookOutputParser,
    HookResponse,
)
from toolspan.runtime.process import Command, StartError

ENV_FILE_VARIABLE = "CLAUDE_ENV_FILE"
ENV_FILE_POINTS: frozenset[HookPoint] = frozenset({"SessionStart", "CwdChanged", "FileChanged"})
"""The points whose handlers may export variables."""
SOURCE_TIMEOUT = 10.0
"""The timeout in seconds for the shell that reads the variable files."""
_MAX_ENVIRONMENT_SIZE = 4 << 20
_SHELLS = ("/bin/bash", "/usr/bin/bash")
_SHELL_OWN_VARIABLES = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "TOOLSPAN_CALL", ENV_FILE_VARIABLE})
"""Variables that the shell changes by itself."""
_WAKE_NOTICE = """\
<task-notification>
<summary>Stop hook feedback</summary>
</task-notification>
<system-reminder>
Stop hook blocking error from command "{name}": {words}
</system-reminder>"""
"""The client's message to the model, which is the same for every hook point."""


@dataclass(frozen=True, slots=True)
class _AsyncRun:
    run: HandlerRun
    handler: DetachedHandler
    parser: HookOutputParser
    wakes_model: bool
    deadline: float

    @property
    def is_running(self) -> bool:
        return self.handler.exit_code is None

    @property
    def requests_wake(self) -> bool:
        return self.wakes_model and self.handler.exit_code == BLOCKING_EXIT_CODE

    async def finish(self) -> HandlerRun:
        """Return the run with its output, terminating the handler if it is still running."""
        if self.is_running:
            await self.handler.terminate()
            output = HookOutput(status="timed_out")
        else:
            output = await self.handler.wait_for_output()
        if self.wakes_model and output.exit_code == BLOCKING_EXIT_CODE:
            response = HookResponse(plain_text=output.stderr.strip() or output.stdout.strip() or None)
        else:
            parsed = self.parser.parse_hook_output(output)  # too late for decisions, so keep only its messages
            response = HookResponse(
                contexts=parsed.contexts, message=parsed.message, plain_text=parsed.plain_text, error=parsed.error
            )
        return replace(self.run, output=output, response=response)


class AsyncHandlers:
    """The asynchronous handlers of a session that have not been collected yet."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._async_runs: list[_AsyncRun] = []
        self._clock = clock

    def add(self, run: HandlerRun, handler: DetachedHandler, parser: HookOutputParser, *, wakes_model: bool) -> None:
        """Track a handler until it is collected."""
        deadline = self._clock() + run.timeout_ms / 1e3
        self._async_runs.append(_AsyncRun(run, handler, parser, wakes_model, deadline))

    @property
    def has_wake_request(self) -> bool:
        """True if a finished handler requests that the model be woken."""
        return any(run.requests_wake for run in self._async_runs)

    async def collect_finished(self) -> list[HandlerRun]:
        """Collect the handlers that finished or timed out and did not request a wake-up."""
        now = self._clock()
        chosen = self._take_matching(lambda run: not run.requests_wake and (not run.is_running or run.deadline <= now))
        return [await run.finish() for run in chosen]

    async def collect_wake_requests(self) -> list[tuple[HandlerRun, str]]:
        """Collect the handlers that request a wake-up, each with its message to the model."""
        requests = []
        for async_run in self._take_matching(lambda run: run.requests_wake):
            run = await async_run.finish()
            text = run.output.stderr if run.output.stderr.strip() else run.output.stdout
            requests.append((run, _WAKE_NOTICE.format(name=run.name, words=text)))
        return requests

    async def wait_for_wake_request(self) -> None:
        """Wait until a handler requests a wake-up, or until no remaining handler can."""
        while not self.has_wake_request:
            waking = [run for run in self._async_runs if run.wakes_model and run.is_running]
            remaining = [run.deadline - self._clock() for run in waking]
            if not remaining or max(remaining) <= 0:
                return
            with anyio.move_on_after(max(remaining)):
                async with anyio.create_task_group() as group:
                    for run in waking:
                        group.start_soon(_wait_until_finished, run.handler, group.cancel_scope)

    def _take_matching(self, predicate: Callable[[_AsyncRun], bool]) -> list[_AsyncRun]:
        taken = [run for run in self._async_runs if predicate(run)]
        self._async_runs = [run for run in self._async_runs if run not in taken]
        return taken


async def _wait_until_finished(handler: DetachedHandler, scope: anyio.CancelScope) -> None:
    await handler.wait_for_output()
    scope.cancel()


class HookVariables:
    """The variables that handlers export to later commands in the session.

    Each handler writes lines such as `export NODE_ENV=test` to the file in `CLAUDE_ENV_FILE`.
    Variables that belong to a folder are reset when the session leaves it.
    """

    def __init__(self) -> None:
        self._persistent: dict[str, str] = {}  # variables that do not depend on the current folder
        self._previous_values: Mapping[str, str | None] = {}
        """The former values of the variables set for the current folder."""

    def new_file(self, hook_environment: HookEnvironment) -> Path:
        """Return the path of a new file for one handler."""
        path = hook_environment.session_folder / "hook-env" / f"{uuid.uuid4()}.sh"
        with suppress(OSError):  # the handler then reports that it cannot write
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return path

    async def export_files(self, point: HookPoint, files: Sequence[Path], hook_environment: HookEnvironment) -> None:
        """Export the variables in the files to the session, and remove the files."""
        written = [file for file in files if file.is_file() and file.stat().st_size > 0]
        base_env = {**hook_environment.env_vars, **self._persistent}
        variables = await _source_files(written, base_env, hook_environment) if written else {}
        for file in files:
            file.unlink(missing_ok=True)
        with suppress(OSError):
            (hook_environment.session_folder / "hook-env").rmdir()
            hook_environment.session_folder.rmdir()  # if it is empty
        if point != "CwdChanged":
            self._persistent |= variables
            hook_environment.export_variables(variables)
        else:
            hook_environment.export_variables(self._previous_values)
            self._previous_values = hook_environment.export_variables(variables)


async def _source_files(
    files: Sequence[Path], base_env: Mapping[str, str], hook_environment: HookEnvironment
) -> dict[str, str]:
    """Return the variables that have changed after bash has read the files; empty if that fails."""
    shell = next((candidate for candidate in _SHELLS if os.access(candidate, os.X_OK)), None)
    env_program = shutil.which("env", path=os.defpath) or shutil.which("env")
    if shell is None or env_program is None:
        return {}
    lines = "".join(f". {shlex.quote(str(file))} >/dev/null 2>&1; " for file in files)
    command = Command(
        argv=[shell, "-c", f"set -a; {lines}exec {shlex.quote(env_program)} -0"],
        cwd=hook_environment.project,
        env=base_env,
        tag="hook-env",
        memory_limit=_MAX_ENVIRONMENT_SIZE,
    )
    with suppress(StartError), anyio.move_on_after(SOURCE_TIMEOUT):
        async with hook_environment.supervisor.running_child(command, 0.0) as child:
            await child.wait()
            if child.stdout.dropped:
                return {}
            entries = child.stdout.data.decode("utf-8", "surrogateescape").split("\0")
            variables = dict(entry.split("=", 1) for entry in entries if "=" in entry)
            return {
                name: value
                for name, value in variables.items()
                if name not in _SHELL_OWN_VARIABLES and base_env.get(name) != value
            }
    return {}


FileChangeKind = Literal["add", "change", "unlink"]
_FileSignature = tuple[int, int, int] | None
"""A file's modification time, size and inode; None if the file does not exist."""


class WatchedFiles:
    """The files in a session whose changes fire FileChanged, detected by polling."""

    def __init__(self, names: Iterable[str], folder: Path) -> None:
        self._base_paths = frozenset(folder / name for name in names)
        self._signatures: dict[Path, _FileSignature] = {path: _read_signature(path) for path in self._base_paths}

    def watch_paths(self, paths: Iterable[str]) -> None:
        """Watch these absolute paths instead of those from an earlier call."""
        targets = self._base_paths | {Path(path) for path in paths if Path(path).is_absolute()}
        self._signatures = {
            path: self._signatures[path] if path in self._signatures else _read_signature(path) for path in targets
        }

    def poll_changes(self) -> list[tuple[Path, FileChangeKind]]:
        """Return the files that changed since the last poll."""
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
