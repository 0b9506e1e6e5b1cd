"""Paths as transcripts write them, brought into one form without looking at any disk.

In: a path and the folder it is relative to, of this system or of another one. Out: a path that is
equal for equal files, as far as words can tell: links are not known here.
"""

from __future__ import annotations

import ntpath
import posixpath
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from toolspan.analysis.file_history.content import FileContent, FileExcerpt
from toolspan.formats.codex.results import CommandResult
from toolspan.shell.arguments import find_file_arguments
from toolspan.shell.program import Program, program_basename
from toolspan.shell.programs import find_programs, find_simple_commands
from toolspan.shell.readonly import is_read_only, is_read_only_program
from toolspan.shell.words import Redirect, ShellWord
from toolspan.shell.wrappers import expand_wrappers
from toolspan.types.span import Span

_WINDOWS_ROOT = re.compile(r"[A-Za-z]:[\\/]|\\\\")


def absolute_path(path: str, folder: str | None) -> str:
    """The path from the root, without `.` and `..`; as it is where the folder is not known."""
    style = ntpath if _WINDOWS_ROOT.match(path) or _WINDOWS_ROOT.match(folder or "") else posixpath
    if folder and not path.startswith("~"):
        path = style.join(folder, path)
    return style.normpath(path) if path else path


def is_within(path: str, folder: str) -> bool:
    """Whether a path is the folder or below it."""
    bare = folder.rstrip("/\\")
    return path == bare or path.startswith((bare + "/", bare + "\\"))


def path_ends_with(path: str, tail: str) -> bool:
    """Whether the last parts of a path are these."""
    return path == tail or path.endswith(("/" + tail, "\\" + tail))


def printable_path(path: str) -> str:
    """A path for a message: one that would play tricks on a terminal is shown as a literal."""
    return path if path.isprintable() else ascii(path)


_TAB_STRIPPING_HEREDOC = "<<-"
"""A here-document whose tabs the shell takes away."""


class HeredocWrite(Struct, frozen=True, kw_only=True):
    """A text that a command puts into a file."""

    path: str
    content: str
    appends: bool


class FileRemoval(Struct, frozen=True, kw_only=True):
    """A file that a command removes."""

    path: str


def explicit_writes(command: str, cwd: str | None) -> list[HeredocWrite | FileRemoval]:
    """What a command that succeeded did to files; nothing where that is not certain."""
    seen = find_programs(command)
    if seen.uncertainties or len(seen.programs) != 1 or _TAB_STRIPPING_HEREDOC in command:
        return []
    return list(_program_writes(seen.programs[0], cwd))


def _program_writes(program: Program, cwd: str | None) -> Iterator[HeredocWrite | FileRemoval]:
    if program.variables or program.nested:
        return
    if program.name == "cat" and len(program.words) == 1 and program.stdin_text is not None:
        yield from _heredoc_writes(program, program.stdin_text, cwd)
    elif program.name == "rm" and not program.redirects:
        files = find_file_arguments("rm", program.words[1:])
        plain = [_static_path(word, cwd) for word in files.changed] if files else []
        options = "".join(word.text for word in program.words[1:] if word.text[:1] == "-")
        if all(plain) and not set(options) & set("rRd"):  # a folder has files nobody names
            yield from (FileRemoval(path=path) for path in plain if path)


def _heredoc_writes(program: Program, text: str, cwd: str | None) -> Iterator[HeredocWrite]:
    if len(program.redirects) != 1:
        return
    (redirect,) = program.redirects
    path = _static_path(redirect.target, cwd)
    if path and redirect.operator in (">", ">|", ">>"):
        yield HeredocWrite(path=path, content=text, appends=redirect.operator == ">>")


def _static_path(word: ShellWord, cwd: str | None) -> str | None:
    """The file a word names; None where only the shell could tell."""
    if word.has_expansion or word.has_substitution or (cwd is None and not word.text.startswith("/")):
        return None
    return absolute_path(word.text, cwd)


_TRUNCATION_MARK = re.compile(r"truncated (?:after|output)|tokens truncated|\[\.\.\. omitted")
"""How clients mark an output that they cut, at its beginning, in it or at its end."""
_LINE_RANGE = re.compile(r"(\d{1,9}),(\d{1,9})p")


class FileObservation(Struct, frozen=True, kw_only=True):
    """A file's content, or some lines of it, as somebody read it."""

    path: str
    call: str | None
    source: str
    content: FileContent | None = None
    parts: tuple[FileExcerpt, ...] = ()


def printed_files(span: Span, commands: Sequence[str], cwd: str | None) -> Iterator[FileObservation]:
    """What a command showed of a file."""
    result = span.result
    if len(commands) != 1 or result is None or result.truncated or span.state != "succeeded":
        return
    arguments = _plain_arguments(commands[0])
    structured = result.structured if arguments else None
    if not isinstance(structured, CommandResult) or structured.exit_code != 0:
        return
    if _TRUNCATION_MARK.search(structured.output):
        return
    match arguments:
        case ["cat", name]:
            path, start, end = name, 1, None
        case ["sed", "-n", script, name] if line_range := _LINE_RANGE.fullmatch(script):
            path, start, end = name, int(line_range[1]), int(line_range[2])
        case _:
            return
    yield _make_observation(span, absolute_path(path, cwd), structured.output, start, end)


def _plain_arguments(command: str) -> list[str]:
    """The words of a command that is nothing but words."""
    simple = find_simple_commands(command)
    if len(simple) != 1 or simple[0].redirects or simple[0].variables or simple[0].ended_by:
        return []
    arguments = simple[0].words
    return (
        []
        if any(word.has_expansion or word.has_substitution for word in arguments)
        else [word.text for word in arguments]
    )


def _make_observation(span: Span, path: str, output: str, start: int, end: int | None) -> FileObservation:
    lines = output.removesuffix("\n").split("\n")
    if start == 1 and (end is None or len(lines) < end):
        return FileObservation(path=path, call=span.id, source=span.tool, content=output)
    part = FileExcerpt(start=start, lines=tuple(lines))
    return FileObservation(path=path, call=span.id, source=span.tool, parts=(part,))


_CONTENT_PRESERVING_PROGRAMS = frozenset({"chgrp", "chmod", "chown", "mkdir", "rmdir", "cd", "export", "set", "wait"})
"""Programs that change something, but no content of a file."""


def may_write(command: str, path: str, cwd: str | None) -> bool:
    """Whether a command line may change the content of a file, or whether it exists."""
    if is_read_only(command):
        return False
    everything = expand_wrappers(find_programs(command))
    if everything.uncertainties or everything.code:
        return True
    programs = [entry.program for entry in everything.programs]
    if any(program.name in ("cd", "pushd", "popd") for program in programs):
        cwd = None  # from then on relative paths may be anything's
    return any(_program_may_write(program, path, cwd) for program in programs)


def _program_may_write(program: Program, path: str, cwd: str | None) -> bool:
    if any(_redirect_may_write(redirect, path, cwd) for redirect in program.redirects):
        return True
    if not program.words:
        return False
    name, arguments = program_basename(program.name), program.words[1:]
    if name in _CONTENT_PRESERVING_PROGRAMS or is_read_only_program(name, arguments):
        return False
    files = find_file_arguments(name, arguments)
    return files is None or any(_may_name_path(word, path, cwd) for word in files.changed)


def _redirect_may_write(redirect: Redirect, path: str, cwd: str | None) -> bool:
    operator = redirect.operator.lstrip("0123456789")
    if operator.startswith("<") and operator != "<>":
        return False
    if operator == ">&" and redirect.target.text in {"0", "1", "2", "-"}:
        return False
    return _may_name_path(redirect.target, path, cwd)


def _may_name_path(word: ShellWord, path: str, cwd: str | None) -> bool:
    """Whether a word may stand for the file, or for a folder it is in."""
    if word.has_expansion or word.has_substitution:
        return True
    if cwd is None and not word.text.startswith("/"):
        return word.text.rstrip("/").rpartition("/")[2] in {*_path_parts(path), ".", "..", ""}
    return is_within(path, absolute_path(word.text, cwd))


def _path_parts(path: str) -> Sequence[str]:
    return path.replace("\\", "/").split("/")
