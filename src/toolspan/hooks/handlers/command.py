"""A handler that is a command: JSON on its standard input, an answer on its output.

In: `Told`. Out: what it printed and its exit code. The command runs in custody, in a session of its
own; cancelled, it is ended with everything it started. One that prints more than is listened to has
given no answer, only its exit code: half an answer is none. Processes that it leaves run on until
the session ends.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from toolspan.hooks.heard import Heard, Told
from toolspan.process import Capture, Child, Command, NotEnded, StartError

LIMIT = 1 << 21
"""Bytes of each output that are listened to. A longer answer is none, which is a failure unless the
exit code objects; of longer errors the first and the last half of this are kept."""
GRACE = 0.5
"""Seconds between asking a command to end and killing it, when its time is over."""
_SHELL = "/bin/sh"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandHandler:
    """One command."""

    command: str
    args: tuple[str, ...] | None = None
    """With them, even none, no shell is between."""
    shell: str | None = None
    detached: bool = False
    """Nobody waits for it: it decides nothing."""
    names_session: bool = False
    """It finds the session's id and the model's effort in its environment."""
    environment: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        """The command line."""
        return self.command if self.args is None else " ".join((self.command, *self.args))

    @property
    def key(self) -> object:
        """The command and its arguments."""
        return (self.command, self.args, self.shell)

    async def run(self, told: Told) -> Heard:
        """Run it."""
        scene = told.scene
        places = {"CLAUDE_PROJECT_DIR": str(scene.project)}
        environment = {
            key: value
            for key, value in {**scene.environment, **self.environment}.items()
            if not key.startswith("OTEL_")
        }
        command = Command(
            argv=self._argv(places),
            cwd=_folder(Path(str(told.fields["cwd"])), scene.project),
            env={**environment, **self._session(told), **told.environment, **places},
            mark=f"hook-{told.point}",
            stdin=told.data,
            memory_limit=LIMIT,
        )
        try:
            if self.detached:
                return Heard(exit_code=0, later=_RunsOn(await scene.custody.start(command)))
            async with scene.custody.running(command, GRACE) as child:
                ended = await child.wait()
                return _heard(child.stdout, child.stderr, ended.status)
        except StartError as error:
            return Heard(end="failed", problem=str(error))

    def _session(self, told: Told) -> dict[str, str]:
        if not self.names_session:
            return {}
        found = {"CLAUDE_CODE_SESSION_ID": told.scene.session_id or ""}
        effort = told.fields.get("effort")
        if isinstance(effort, Mapping):
            found["CLAUDE_EFFORT"] = str(effort.get("level"))
        return found

    def _argv(self, places: Mapping[str, str]) -> list[str]:
        if self.args is None:
            return [_shell(self.shell), "-c", self.command]  # variables are the shell's own work
        return [_placed(one, places) for one in (self.command, *self.args)]


@dataclass(frozen=True, slots=True)
class _RunsOn:
    """A command that nobody waited for."""

    child: Child

    @property
    def exit_code(self) -> int | None:
        """None as long as it runs."""
        return self.child.exit_code

    async def heard(self) -> Heard:
        """What it left."""
        try:
            ended = await self.child.wait()
        except NotEnded as error:
            return Heard(end="failed", problem=str(error))
        return _heard(self.child.stdout, self.child.stderr, ended.status)

    async def end(self) -> None:
        """End it; what cannot be ended is left to the custody."""
        with suppress(NotEnded):
            await self.child.end(GRACE)


def _shell(wanted: str | None) -> str:
    bash = "/bin/bash"
    return bash if wanted == "bash" and os.access(bash, os.X_OK) else _SHELL


def _placed(text: str, places: Mapping[str, str]) -> str:
    """The text with `${CLAUDE_PROJECT_DIR}` filled in."""
    for name, value in places.items():
        text = text.replace(f"${{{name}}}", value)
    return text


def _folder(cwd: Path, project: Path) -> Path:
    """Where the session is, if that is still there."""
    return next((folder for folder in (cwd, project) if folder.is_dir()), Path("/"))


def _heard(stdout: Capture, stderr: Capture, code: int) -> Heard:
    errors = _text(stderr)
    if stdout.dropped:
        problem = f"it printed {stdout.total} bytes, more than the {LIMIT} that are heard"
        return Heard(end="failed", exit_code=code, stderr=errors, problem=problem)
    return Heard(stdout=_text(stdout), stderr=errors, exit_code=code)


def _text(capture: Capture) -> str:
    text = capture.head.decode("utf-8", "replace")
    if capture.dropped:
        text += f"\n... [{capture.dropped} bytes dropped] ...\n"
        text += capture.tail.decode("utf-8", "replace")
    return text
