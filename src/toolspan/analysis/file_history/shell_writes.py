"""Paths in transcripts, and the files that shell commands write, remove or print.

Nothing here accesses the disk: paths are compared as strings, so symbolic links are not resolved.
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
    """Return the absolute path without `.` and `..`, or a relative path if `folder` is unknown."""
    style = ntpath if _WINDOWS_ROOT.match(path) or _WINDOWS_ROOT.match(folder or "") else posixpath
    if folder and not path.startswith("~"):
        path = style.join(folder, path)
    return style.normpath(path) if path else path


def is_within(path: str, folder: str) -> bool:
    """Return whether a path is `folder` itself or below it."""
    bare = folder.rstrip("/\\")
    return path == bare or path.startswith((bare + "/", bare + "\\"))


def path_ends_with(path: str, tail: str) -> bool:
    """Return whether the last components of a path are `tail`."""
    return path == tail or path.endswith(("/" + tail, "\\" + tail))


def printable_path(path: str) -> str:
    """Return a path for messages, as a Python literal if it contains control characters."""
    return path if path.isprintable() else ascii(path)


_TAB_STRIPPING_HEREDOC = "<<-"
"""The operator of a here-document from which the shell strips leading tabs."""


class HeredocWrite(Struct, frozen=True, kw_only=True):
    """A here-document that a command writes to a file."""

    path: str
    content: str
    appends: bool


class FileRemoval(Struct, frozen=True, kw_only=True):
    """A file that a command removes."""

    path: str


def explicit_writes(command: str, cwd: str | None) -> list[HeredocWrite | FileRemoval]:
    """Return the files that a successful command wrote or removed; empty unless that is certain."""
    parsed = find_programs(command)
    if parsed.uncertainties or len(parsed.programs) != 1 or _TAB_STRIPPING_HEREDOC in command:
        return []
    return list(_program_writes(parsed.programs[0], cwd))


def _program_writes(program: Program, cwd: str | None) -> Iterator[HeredocWrite | FileRemoval]:
    if program.variables or program.nested:
        return
    if program.name == "cat" and len(program.words) == 1 and program.stdin_text is not None:
        yield from _heredoc_writes(program, program.stdin_text, cwd)
    elif program.name == "rm" and not program.redirects:
        files = find_file_arguments("rm", program.words[1:])
        paths = [_static_path(word, cwd) for word in files.changed] if files else []
        options = "".join(word.text for word in program.words[1:] if word.text[:1] == "-")
        if all(paths) and not set(options) & set("rRd"):  # the files in a folder are unknown
            yield from (FileRemoval(path=path) for path in paths if path)


def _heredoc_writes(program: Program, text: str, cwd: str | None) -> Iterator[HeredocWrite]:
    if len(program.redirects) != 1:
        return
    (redirect,) = program.redirects
    path = _static_path(redirect.target, cwd)
    if path and redirect.operator in (">", ">|", ">>"):
        yield HeredocWrite(path=path, content=text, appends=redirect.operator == ">>")


def _static_path(word: ShellWord, cwd: str | None) -> str | None:
    """Return the path that a word denotes, or None if it contains expansions or its folder is unknown."""
    if word.has_expansion or word.has_substitution or (cwd is None and not word.text.startswith("/")):
        return None
    return absolute_path(word.text, cwd)


_TRUNCATION_MARK = re.compile(r"truncated (?:after|output)|tokens truncated|\[\.\.\. omitted")
"""Markers that clients put in truncated output."""
_LINE_RANGE = re.compile(r"(\d{1,9}),(\d{1,9})p")


class FileObservation(Struct, frozen=True, kw_only=True):
    """The content of a file, or some of its lines, as read by a call."""

    path: str
    call: str | None
    source: str
    content: FileContent | None = None
    parts: tuple[FileExcerpt, ...] = ()


def printed_files(span: Span, commands: Sequence[str], cwd: str | None) -> Iterator[FileObservation]:
    """Yield the content of each file that a command printed."""
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
    """Return the arguments of a single command; empty if it contains redirections or expansions."""
    commands = find_simple_commands(command)
    if len(commands) != 1 or commands[0].redirects or commands[0].variables or commands[0].ended_by:
        return []
    words = commands[0].words
    return [] if any(word.has_expansion or word.has_substitution for word in words) else [word.text for word in words]


def _make_observation(span: Span, path: str, output: str, start: int, end: int | None) -> FileObservation:
    lines = output.removesuffix("\n").split("\n")
    if start == 1 and (end is None or len(lines) < end):
        return FileObservation(path=path, call=span.id, source=span.tool, content=output)
    part = FileExcerpt(start=start, lines=tuple(lines))
    return FileObservation(path=path, call=span.id, source=span.tool, parts=(part,))


_CONTENT_PRESERVING_PROGRAMS = frozenset({"chgrp", "chmod", "chown", "mkdir", "rmdir", "cd", "export", "set", "wait"})
"""Programs that are not read-only but never change file contents."""


def may_write(command: str, path: str, cwd: str | None) -> bool:
    """Return whether a command line may change, create or delete a file."""
    if is_read_only(command):
        return False
    expanded = expand_wrappers(find_programs(command))
    if expanded.uncertainties or expanded.code:
        return True
    programs = [entry.program for entry in expanded.programs]
    if any(program.name in ("cd", "pushd", "popd") for program in programs):
        cwd = None  # from here on, relative paths are ambiguous
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
    """Return whether a word may denote the file or a folder that contains it."""
    if word.has_expansion or word.has_substitution:
        return True
    if cwd is None and not word.text.startswith("/"):
        return word.text.rstrip("/").rpartition("/")[2] in {*path.replace("\\", "/").split("/"), ".", "..", ""}
    return is_within(path, absolute_path(word.text, cwd))
