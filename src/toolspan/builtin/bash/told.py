"""What is told of a command: that it ended, that it failed, that it goes on in the background.

In: a `Running` and how it ended. Out: an `Output` or a `Failure` in the words of a client version.
Changes nothing but files of its own output. Read `ended` first.
"""

import os
import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from toolspan.builtin.bash.launch import Running
from toolspan.builtin.bash.text import (
    decode,
    duration,
    end_trimmed,
    image_block,
    joined,
    lines_cut,
    trimmed,
)
from toolspan.process import Exit
from toolspan.profile import ShellValues
from toolspan.run.context import Context, Workspace
from toolspan.run.limits import ERROR_LIMIT, frame, kilobytes, middle_cut
from toolspan.run.tool import Failure, Output
from toolspan.shell.exits import answer
from toolspan.shell.quiet import prints_nothing


@dataclass(frozen=True, slots=True)
class Stay:
    """Where the next command starts, and what is said about that."""

    modify: Callable[[Context], Context] | None = None
    notice: str = ""


def settle(found: Path | None, cwd: Path, project: Path) -> Stay:
    """Follow the shell to the folder it ended in, unless it left the project."""
    if found is None:
        return Stay()
    home = Path(os.path.realpath(project))
    if not found.is_relative_to(home):
        return Stay(move_to(project), f"Shell cwd was reset to {project}")
    folder = project / found.relative_to(home)  # the project may be known by another name
    return Stay() if folder == cwd else Stay(move_to(folder))


def move_to(folder: Path) -> Callable[[Context], Context]:
    """The next command starts there."""
    return lambda context: replace(context, cwd=folder)


def ended(running: Running, exit: Exit, stay: Stay, told: "Told") -> Output | Failure:
    """What is told of a command that came to its end."""
    code = _code(exit)
    meaning = answer(running.request.command, code) if code else None
    if code and meaning is None:
        return _failed(running, code, stay, told.shell)
    return told.success(running, code, meaning, stay)


def _code(exit: Exit) -> int:
    """The number clients show: a shell that was killed has none of its own."""
    if exit.signal is None:
        return exit.status
    return exit.status if exit.signal == signal.SIGTERM else 1


def _failed(running: Running, code: int, stay: Stay, shell: ShellValues) -> Failure:
    text = joined(f"Exit code {code}", _error_output(running, shell), stay.notice)
    running.discard()
    return Failure(middle_cut(end_trimmed(text), ERROR_LIMIT), exit_code=code, modify=stay.modify)


def _error_output(running: Running, shell: ShellValues) -> str:
    """Errors first where the streams are apart, as they came where they are not."""
    if shell.merged:
        return decode(running.printed)[: running.request.output_limit]
    return end_trimmed(joined(decode(running.child.stderr), decode(running.child.stdout)))


def shown(record: Mapping[str, object]) -> str:
    """What the model reads of a record that somebody else made."""
    return joined(
        trimmed(str(record.get("stdout", ""))), end_trimmed(str(record.get("stderr", "")))
    )


def timed_out(running: Running, shell: ShellValues) -> Failure:
    """What is told of a command that was ended by its timeout."""
    after = duration(running.request.timeout_ms, tenths=shell.tenths)
    text = joined(
        "Exit code 143",
        f"Command timed out after {after}",
        _error_output(running, shell),
    )
    running.discard()
    return Failure(
        middle_cut(end_trimmed(text), ERROR_LIMIT),
        kind="command_timeout",
        timed_out=True,
        exit_code=143,
    )


@dataclass(frozen=True, slots=True)
class Told:
    """Says what happened, in the words of one client version."""

    shell: ShellValues
    workspace: Workspace

    def success(self, running: Running, code: int, meaning: str | None, stay: Stay) -> Output:
        """A command that did what it should."""
        text = self._output(running)
        picture = image_block(text)
        record = self._record(running, text, meaning=meaning, notice=stay.notice)
        if picture is not None:
            running.discard()
            return Output([picture], record | {"isImage": True}, None, stay.modify, exit_code=code)
        shown, record = self._fitted(running, text, record)
        shown = joined(shown, stay.notice)
        if self.shell.exit_line:
            shown = f"{shown}\n\n[Exit code: {code}]".lstrip("\n")
        return Output(shown, record, flag=False, modify=stay.modify, exit_code=code)

    def in_background(self, running: Running, *, by_timeout: bool, output: str = "") -> Output:
        """A command that goes on."""
        shell, request = self.shell, running.request
        words = (shell.moved if by_timeout else "") or shell.started
        text = words.format(
            id=running.task_id, path=running.file, seconds=f"{request.timeout_ms / 1000:g}"
        )
        problem = running.printed.spill_error
        if problem is not None:
            text += f" (nothing more can be written there: {problem.strerror or problem})"
        record = self._record(running, output) | {"backgroundTaskId": running.task_id}
        if by_timeout and shell.moved_keeps_output:
            record |= {"timedOutAfterMs": request.timeout_ms}
        if by_timeout and shell.records_auto_move:
            record |= {"assistantAutoBackgrounded": False}
        return Output(joined(output, text), record, flag=False, background_task=running.task_id)

    def so_far(self, running: Running) -> str:
        """What a command has printed until now."""
        return trimmed(decode(running.printed)[: running.request.output_limit])

    def _output(self, running: Running) -> str:
        if self.shell.merged:
            return trimmed(decode(running.printed))
        child = running.child
        return joined(trimmed(decode(child.stdout)), trimmed(decode(child.stderr)))

    def _record(
        self, running: Running, stdout: str, *, meaning: str | None = None, notice: str = ""
    ) -> dict[str, object]:
        if notice and self.shell.notice_on_new_line:
            notice = "\n" + notice
        record: dict[str, object] = {
            "stdout": stdout,
            "stderr": notice,
            "interrupted": False,
            "isImage": False,
        }
        if meaning is not None:
            record["returnCodeInterpretation"] = meaning
        if self.shell.expects_output:
            record["noOutputExpected"] = prints_nothing(running.request.command)
        return record

    def _fitted(
        self, running: Running, text: str, record: dict[str, object]
    ) -> tuple[str, dict[str, object]]:
        """What goes back of an output, and the record of it."""
        limit = running.request.output_limit
        if len(text) <= limit:
            running.discard()
            return text, record
        if self.shell.overflow == "lines":
            unseen = max(0, running.meter.lines - text.count("\n") - 1)
            running.discard()
            text = lines_cut(text, limit, lost=unseen if running.printed.dropped else 0)
            return text, record | {"stdout": text}
        head = trimmed(decode(running.printed)[:limit])
        try:
            path = self._kept(running)
        except OSError as problem:
            running.discard()
            return f"{middle_cut(text, limit)}\n[Not kept whole: {problem}]", record | {
                "stdout": head
            }
        kept: dict[str, object] = {"stdout": head}
        kept |= {"persistedOutputPath": str(path), "persistedOutputSize": running.printed.total}
        return _framed(running, text, path), record | kept

    def _kept(self, running: Running) -> Path:
        """Put the whole output where it outlives the command.

        Raises:
            OSError: that cannot be done.
        """
        folder = self.workspace.results_folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"{running.task_id}.txt"
        printed = running.printed
        if printed.path is not None:
            shutil.move(printed.path, path)
        elif printed.dropped:
            raise printed.spill_error or OSError("it is not in memory any more")
        else:
            path.write_bytes(printed.data)
        return path


def _framed(running: Running, text: str, path: Path) -> str:
    """The beginning of an output in its frame; a file that stopped growing is not called full."""
    printed = running.printed
    framed = frame(text, printed.total, path)
    if printed.path is None or printed.spilled == printed.total:
        return framed
    return framed.replace("Full output", f"The first {kilobytes(printed.spilled)}", 1)
