"""Paths in transcripts, and the files that shell commands write, remove or print.

Nothing here accesses the disk: paths are compared as strings, so symbolic links are not resolved.
"""

from __future__ import annotations

import ntpath
import posixpath
import re

from msgspec import Struct

from toolspan.analysis.file_history.content import AppendEffect, FileContent, FileExcerpt, RemoveEffect, WriteEffect
from toolspan.shell.arguments import changes_files, read_arguments
from toolspan.shell.plans import NotUnderstood, find_simple_commands, is_read_only, is_read_only_program, plan
from toolspan.shell.program import program_basename
from toolspan.shell.words import ShellWord
from toolspan.types.results import CommandResult
from toolspan.types.session import with_upper_drive
from toolspan.types.span import Span

_WINDOWS_ROOT = re.compile(r"[A-Za-z]:[\\/]|\\\\")


def absolute_path(path: str, folder: str | None) -> str:
    """Return the absolute path without `.` and `..`, or a relative path if `folder` is unknown.

    A Windows drive is in upper case.
    """
    style = ntpath if _WINDOWS_ROOT.match(path) or _WINDOWS_ROOT.match(folder or "") else posixpath
    if folder and not path.startswith("~"):
        path = style.join(folder, path)
    return with_upper_drive(style.normpath(path)) if path else path


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


def explicit_writes(command: str, cwd: str | None) -> list[tuple[str, WriteEffect | AppendEffect | RemoveEffect]]:
    """Return the paths that a successful command wrote or removed; empty unless that is certain."""
    parsed = plan(command)
    hides = isinstance(parsed, NotUnderstood) and parsed.hides_programs
    if hides or len(parsed.programs) != 1 or _TAB_STRIPPING_HEREDOC in command:
        return []
    program = parsed.programs[0]
    if program.variables or program.nested:
        return []
    if program.name == "cat" and len(program.words) == len(program.redirects) == 1 and program.stdin_text is not None:
        (redirect,) = program.redirects
        path = _static_path(redirect.target, cwd)
        if path and redirect.operator in (">", ">|"):
            return [(path, WriteEffect(content=program.stdin_text))]
        if path and redirect.operator == ">>":
            return [(path, AppendEffect(content=program.stdin_text))]
    elif program.name == "rm" and not program.redirects:
        known = program.arguments
        paths = [_static_path(word, cwd) for word in known.changed] if known.unknown is None else []
        options = "".join(word.text for word in program.words[1:] if word.text[:1] == "-")
        if all(paths) and not set(options) & set("rRd"):  # the files in a folder are unknown
            return [(path, RemoveEffect()) for path in paths if path]
    return []


def _static_path(word: ShellWord, cwd: str | None) -> str | None:
    """Return the path that a word denotes, or None if it contains expansions or its folder is unknown."""
    if word.has_expansion or word.has_substitution or (cwd is None and not word.text.startswith("/")):
        return None
    return absolute_path(word.text, cwd)


_TRUNCATION_MARK = re.compile(r"truncated (?:after|output)|tokens truncated|\[\.\.\. omitted")
_LINE_RANGE = re.compile(r"(\d{1,9}),(\d{1,9})p")


class FileObservation(Struct, frozen=True, kw_only=True):
    """The content of a file, or some of its lines, as read by a call."""

    path: str
    call: str | None
    source: str
    content: FileContent | None = None
    parts: tuple[FileExcerpt, ...] = ()


def printed_file(span: Span, command: str, cwd: str | None) -> FileObservation | None:
    """Return the content of the file that a command printed, or None unless that is certain."""
    result = span.result
    if not command or result is None or result.truncated or span.state != "succeeded":
        return None
    commands = find_simple_commands(command)
    if len(commands) != 1 or commands[0].redirects or commands[0].variables or commands[0].ended_by:
        return None
    words = commands[0].words
    if any(word.has_expansion or word.has_substitution for word in words):
        return None
    match [word.text for word in words]:
        case ["cat", path]:
            start, end = 1, None
        case ["sed", "-n", script, path] if line_range := _LINE_RANGE.fullmatch(script):
            start, end = int(line_range[1]), int(line_range[2])
        case _:
            return None
    structured = result.structured
    if not isinstance(structured, CommandResult) or structured.exit_code != 0:
        return None
    output = structured.output
    if _TRUNCATION_MARK.search(output):
        return None
    path = absolute_path(path, cwd)
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
    parsed = plan(command)
    if parsed.code or (isinstance(parsed, NotUnderstood) and parsed.hides_programs):
        return True
    programs = [entry.program for entry in parsed.reached]
    if any(program.name in ("cd", "pushd", "popd") for program in programs):
        cwd = None  # from here on, relative paths are ambiguous
    for program in programs:
        for redirect in program.redirects:
            operator = redirect.operator.lstrip("0123456789")
            reads = operator.startswith("<") and operator != "<>"
            copies_descriptor = operator == ">&" and redirect.target.text in {"0", "1", "2", "-"}
            if not reads and not copies_descriptor and _may_name_path(redirect.target, path, cwd):
                return True
        name, arguments = program_basename(program.name), program.words[1:]
        if program.words and name not in _CONTENT_PRESERVING_PROGRAMS and not is_read_only_program(name, arguments):
            known = read_arguments(name, arguments)
            if known.spec is None or known.spec.only or known.spec.grammar == "unknown":
                return True
            changed = known.changed
            if known.unknown is not None and (name == "sed" or changes_files(name)):
                changed = tuple(arguments)
            if any(_may_name_path(word, path, cwd) for word in changed):
                return True
    return False


def _may_name_path(word: ShellWord, path: str, cwd: str | None) -> bool:
    """Return whether a word may denote the file or a folder that contains it."""
    if word.has_expansion or word.has_substitution:
        return True
    if cwd is None and not word.text.startswith("/"):
        return word.text.rstrip("/").rpartition("/")[2] in {*path.replace("\\", "/").split("/"), ".", "..", ""}
    return is_within(path, absolute_path(word.text, cwd))
