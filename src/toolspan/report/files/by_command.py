"""What commands did to files in so many words: `cat > name <<…`, `rm name`.

In: a call of a shell that succeeded. Out: what it wrote and removed, where that is certain.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from toolspan.model.inputs import decode_anything
from toolspan.model.span import Span
from toolspan.patch import added_removed
from toolspan.patch.make import make
from toolspan.report.files.effect import Appended, Removed
from toolspan.report.files.place import whole
from toolspan.report.files.shell import Dropped, Poured, done_by
from toolspan.report.files.told import Told, assumed
from toolspan.wire import claude_results as results
from toolspan.wire import codex_results

_SAYS_SO = re.compile(r"\A\s*(?:cat\b.*<<|rm\s)")
"""Lines worth a closer look; most are not."""


class Commands(NamedTuple):
    """Command lines, and the folder they start in."""

    lines: tuple[str, ...]
    folder: str | None


def commands_of(span: Span, cwd: str | None) -> Commands:
    """What a call gave to a shell; nothing for calls of other tools."""
    given = decode_anything(span.call.raw_input)
    if not isinstance(given, Mapping):
        return Commands((), cwd)
    command = command_in(given)
    folder = given.get("workdir")
    if isinstance(folder, str) and folder:
        cwd = whole(folder, cwd)
    if isinstance(command, str):
        return Commands((command,) if command else (), cwd)
    script = len(command) == 3 and command[1] in ("-c", "-lc")
    return Commands((command[2] if script else shlex.join(command),) if command else (), cwd)


def by_command(span: Span, cwd: str | None) -> Iterator[Told]:
    """What a command wrote in so many words; Claude Code's shell may stand in any folder."""
    lines, folder = commands_of(span, cwd)
    if len(lines) != 1 or span.background or not _SAYS_SO.search(lines[0]) or not _silent(span):
        return
    for done in done_by(lines[0], folder if span.call.dialect == "codex" else None):
        match done:
            case Poured(appends=True):
                hunks = make("", done.content)
                yield Told(
                    path=done.path,
                    kind="edited",
                    effect=Appended(content=done.content),
                    count=added_removed(hunks),
                )
            case Poured():
                yield assumed(done.path, done.content)
            case Dropped():
                yield Told(path=done.path, kind="deleted", effect=Removed())


def _silent(span: Span) -> bool:
    """Whether a command printed nothing: one that should not and did was not run as written."""
    match span.result.structured if span.result else None:
        case results.BashResult(stdout=stdout, stderr=stderr):
            return not (stdout.strip() or stderr.strip())
        case codex_results.CommandResult(output=output):
            return not output.strip()
        case _:
            return False


def command_in(given: Mapping[str, object]) -> str | list[str]:
    """The command line of an input, in either dialect; words where it was given as words."""
    command = given.get("command") or given.get("cmd") or ""
    if isinstance(command, list):
        return [word for word in command if isinstance(word, str)]
    return command if isinstance(command, str) else ""
