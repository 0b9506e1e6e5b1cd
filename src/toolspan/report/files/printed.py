"""Files that a command printed: `cat FILE` and `sed -n 1,200p FILE`.

In: a call to a shell. Out: what it showed of which file. Only commands that print one file and do
nothing else count, and only where the client records the output as it was: Claude Code takes blank
lines off its ends. Read `printed` first.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from toolspan.model.span import Span
from toolspan.report.files.content import Part
from toolspan.report.files.effect import Content
from toolspan.report.files.place import whole
from toolspan.shell.line import parse_line
from toolspan.wire.codex_results import CommandResult

_CUT = re.compile(r"truncated (?:after|output)|tokens truncated|\[\.\.\. omitted")
"""How clients mark an output that they cut, at its beginning, in it or at its end."""
_RANGE = re.compile(r"(\d{1,9}),(\d{1,9})p")


class Sight(Struct, frozen=True, kw_only=True):
    """A file's content, or some lines of it, as somebody read it."""

    path: str
    call: str | None
    what: str
    content: Content | None = None
    parts: tuple[Part, ...] = ()


def printed(span: Span, commands: Sequence[str], cwd: str | None) -> Iterator[Sight]:
    """What a command showed of a file."""
    result = span.result
    if len(commands) != 1 or result is None or result.truncated or span.state != "succeeded":
        return
    words = _words(commands[0])
    structured = result.structured if words else None
    if not isinstance(structured, CommandResult) or structured.exit_code != 0:
        return
    if _CUT.search(structured.output):
        return
    match words:
        case ["cat", name]:
            path, start, end = name, 1, None
        case ["sed", "-n", script, name] if found := _RANGE.fullmatch(script):
            path, start, end = name, int(found[1]), int(found[2])
        case _:
            return
    yield _sight(span, whole(path, cwd), structured.output, start, end)


def _words(command: str) -> list[str]:
    """The words of a command that is nothing but words."""
    simple = parse_line(command) or []
    if len(simple) != 1 or simple[0].redirects or simple[0].ended_by:
        return []
    words = simple[0].words
    return [] if any(word.filled or word.runs for word in words) else [word.text for word in words]


def _sight(span: Span, path: str, output: str, start: int, end: int | None) -> Sight:
    lines = output.removesuffix("\n").split("\n")
    if start == 1 and (end is None or len(lines) < end):
        return Sight(path=path, call=span.id, what=span.tool, content=output)
    part = Part(start=start, lines=tuple(lines))
    return Sight(path=path, call=span.id, what=span.tool, parts=(part,))
