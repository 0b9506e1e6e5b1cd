"""Files that a command writes in so many words: `cat > FILE <<'EOF'` and `rm FILE`.

In: a command line and the folder it starts in. Out: what it does to which file, when the line is
nothing but that one program and says all of it. Anything else is for `doubt.py`.
"""

from collections.abc import Iterator

from msgspec import Struct

from toolspan.report.files.place import whole
from toolspan.shell.argument import files_of
from toolspan.shell.line import Word
from toolspan.shell.program import Program
from toolspan.shell.seen import see

_INDENTED = "<<-"
"""A here-document whose tabs the shell takes away."""


class Poured(Struct, frozen=True, kw_only=True):
    """A text that a command puts into a file."""

    path: str
    content: str
    appends: bool


class Dropped(Struct, frozen=True, kw_only=True):
    """A file that a command removes."""

    path: str


def done_by(command: str, cwd: str | None) -> list[Poured | Dropped]:
    """What a command that succeeded did to files; nothing where that is not certain."""
    seen = see(command)
    if seen.unclear or len(seen.programs) != 1 or _INDENTED in command:
        return []
    return list(_done(seen.programs[0], cwd))


def _done(program: Program, cwd: str | None) -> Iterator[Poured | Dropped]:
    if program.sets or program.nested:
        return
    if program.name == "cat" and len(program.words) == 1 and program.feed is not None:
        yield from _poured(program, program.feed, cwd)
    elif program.name == "rm" and not program.redirects:
        files = files_of("rm", program.words[1:])
        plain = [_path(word, cwd) for word in files.changed] if files else []
        options = "".join(word.text for word in program.words[1:] if word.text[:1] == "-")
        if all(plain) and not set(options) & set("rRd"):  # a folder has files nobody names
            yield from (Dropped(path=path) for path in plain if path)


def _poured(program: Program, text: str, cwd: str | None) -> Iterator[Poured]:
    if len(program.redirects) != 1:
        return
    (redirect,) = program.redirects
    path = _path(redirect.target, cwd)
    if path and redirect.operator in (">", ">|", ">>"):
        yield Poured(path=path, content=text, appends=redirect.operator == ">>")


def _path(word: Word, cwd: str | None) -> str | None:
    """The file a word names; None where only the shell could tell."""
    if word.filled or word.runs or (cwd is None and not word.text.startswith("/")):
        return None
    return whole(word.text, cwd)
