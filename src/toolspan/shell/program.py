"""A program in a command line, and the program inside its wrappers.

The facts about programs that run others are in `tables/runners.toml`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal

from msgspec import Struct, convert
from msgspec.structs import replace

from toolspan.shell.arguments import Arguments, read_arguments
from toolspan.shell.table import read_toml
from toolspan.shell.words import Redirect, ShellWord, compile_cached, lazy_property

ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=", re.ASCII)


class RunnerSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """The entry of a program that runs others."""

    kind: Literal["command", "shell", "builtin", "actions", "code"] = "command"
    values: str = ""
    flags: str = ""
    leading: int = 0
    scripts: str = ""
    joins: bool = False
    adds: bool = False
    hides: str = ""
    hides_line: str = ""
    form: str | None = None
    whole_line: bool = False


@lru_cache(maxsize=1)
def runner_table() -> Mapping[str, RunnerSpec]:
    """Return the entries of all programs that run others, by name. The file is read once per process."""
    return convert(read_toml("runners"), dict[str, RunnerSpec])


class Program(Struct, frozen=True, dict=True):
    """A program that a command line may run, as written in the line."""

    words: tuple[ShellWord, ...]
    """The name and the arguments; empty if the command has only redirects or assignments."""
    text: str = ""
    """The words as written, separated by single spaces."""
    spelling: str = ""
    """The words with the blanks between them as written; empty if these are single spaces."""
    variables: tuple[str, ...] = ()
    """The variables set for this program, or for the rest of the line if there are no words."""
    values: tuple[ShellWord, ...] = ()
    """The values of the variables, or of a loop."""
    assignments: tuple[str, ...] = ()
    """The assignments before the name, as written."""
    redirects: tuple[Redirect, ...] = ()
    has_stdin: bool = False
    """True if standard input is a pipe, a file or literal text."""
    stdin_text: str | None = None
    """The content of standard input, if the line contains it."""
    nested: bool = False
    """True if the program is part of a substitution, a function, a loop or a group."""
    ended_by: str = ""
    """The operator after the program, unless it is nested."""

    @lazy_property
    def name(self) -> str:
        """The name of the program; empty if it depends on an expansion by the shell."""
        words = self.words
        return words[0].text if words and not words[0].has_expansion else ""

    @lazy_property
    def arguments(self) -> Arguments:
        """The arguments with their roles, as returned by `read_arguments`."""
        return read_arguments(self.name, self.words[1:])

    @lazy_property
    def inner(self) -> Program:
        """The program inside wrappers that do not affect what it may do, such as `timeout 5` and `xargs`."""
        program = self.inner_before_xargs
        return _strip_wrappers(program, through_xargs=True) if program.name == "xargs" else program

    @lazy_property
    def inner_before_xargs(self) -> Program:
        """The same, but `xargs` itself rather than the program to which it adds arguments."""
        return _strip_wrappers(self, through_xargs=False)

    def with_words(self, words: tuple[ShellWord, ...]) -> Program:
        """Return the program with its last words only, as a wrapper runs it."""
        start = len(self.words) - len(words)
        prefix = "".join([f"{word.text} " for word in self.words[:start]])
        is_written = self.text.startswith(prefix) and self.words[start:] == words
        text = self.text[len(prefix) :] if is_written else " ".join([word.text for word in words])
        return replace(self, words=words, text=text, spelling="", assignments=())


class ParsedLine(Struct, frozen=True, gc=False):
    """The programs in a command line, in order, and what is not understood about it."""

    text: str
    programs: tuple[Program, ...] = ()
    reason: str | None = None
    """The first part that is not understood, as a noun phrase such as "A variable"; None if there is none."""
    hides_programs: bool = False
    """True if the line may run programs that are not among `programs`."""
    is_readable: bool = True
    """False if the shell may split the line in another way."""
    is_simple: bool = True
    """True if the line consists of simple commands and operators."""


def program_basename(name: str) -> str:
    """Return the name of a program without its folder."""
    return name.rpartition("/")[2] if "/" in name else name


def bare_program_name(name: str) -> str:
    """Return the name of a program without its folder and without `.exe`, also after backslashes."""
    if name.isalnum():  # perf: most names
        return name
    name = name.replace("\\", "/").rpartition("/")[2]
    return name[:-4] if name[-4:].lower() == ".exe" else name


def program_from(program: Program, start: int) -> Program:
    """Return the program that starts at word `start` of a wrapper, with the variables that the wrapper sets."""
    assignments = [word.text for word in program.words[1:start] if ASSIGNMENT.match(word.text)]
    inner = program.with_words(program.words[start:])
    names = [text.partition("=")[0] for text in assignments]
    return replace(inner, variables=(*program.variables, *names), assignments=tuple(assignments)) if names else inner


def _strip_wrappers(program: Program, *, through_xargs: bool) -> Program:
    while program.words:
        spec = runner_table().get(program.name)
        is_xargs = program.name == "xargs" and through_xargs
        if spec is None or not (is_xargs or spec.form is not None) or program.variables:
            return program
        start = find_program_index(program.words, spec)
        if start is None or start >= len(program.words) or program.words[start].has_expansion:
            return program
        form = " ".join([word.text for word in program.words[1:start]])
        if compile_cached(spec.form or "").fullmatch(form) is None:
            return program
        program = program_from(program, start)
    return program


def find_program_index(words: Sequence[ShellWord], spec: RunnerSpec) -> int | None:
    """Return the index of the wrapped program in `words`, or None if it is not certain."""
    name, options = program_basename(words[0].text), spec.values.split()
    at, leading = 1, spec.leading
    if name == "command" and len(words) > 1 and words[1].text[:2] in ("-v", "-V"):
        return len(words)
    while at < len(words):
        word = words[at]
        is_option = word.text[:1] == "-" and len(word.text) > 1
        takes_value = is_option and word.text in options
        if word.has_expansion and (is_option or (word.may_split and (leading or "=" in word.text))):
            return None
        if (is_option or leading) and word.text.split() not in ([], [word.text]):
            return None
        if spec.flags and word.text[:1] == "-" and not takes_value and word.text not in spec.flags.split():
            return None
        if takes_value and at + 1 < len(words) and words[at + 1].may_split:
            return None
        if word.text == "--":
            return at + 1 + leading
        is_assignment = ASSIGNMENT.match(word.text) is not None and name in ("doas", "sudo", "time")
        sets_variable = is_assignment or (name == "env" and "=" in word.text)  # env accepts any name, even none
        if is_option or word.text == "-" or sets_variable or (name == "time" and word.text == "!"):
            at += 1 + takes_value
        elif leading:
            at, leading = at + 1, leading - 1
        else:
            return at
    return at
