"""Find the programs that programs run in turn: those inside `sudo`, `xargs`, `sh -c` or `find -exec`.

Start at `expand_programs`. The facts are in `tables/runners.toml`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from toolspan.shell.environment import runs_variable
from toolspan.shell.program import (
    ASSIGNMENT,
    ParsedLine,
    Program,
    RunnerSpec,
    bare_program_name,
    find_program_index,
    program_from,
    runner_table,
)
from toolspan.shell.words import ShellWord, compile_cached

_MAX_DEPTH = 8
_VERSION = re.compile(r"-?\d[\d.]*\Z")
_PLACEHOLDERS = frozenset("{}%@_")
"""Characters of common placeholders. A script that contains one may become any other script."""
_RENAMING_BUILTINS = frozenset({
    "alias", "bind", "compgen", "complete", "enable", "fc", "hash", "let", "mapfile", "readarray",
})  # fmt: skip
"""Builtins that run their arguments, or change what later commands run."""
FIND_ACTIONS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


class Reached(Struct, frozen=True, gc=False):
    """A program that a line runs, directly or through wrappers."""

    program: Program
    wrappers: tuple[str, ...] = ()
    """The wrappers around it, outermost first."""


def is_shell(name: str) -> bool:
    """Return whether a program is a shell, which runs a script."""
    spec = runner_table().get(name)
    return spec is not None and spec.kind == "shell"


def runner_name(program: Program) -> str:
    """Return the name of a program's entry in the table, or an empty string if it runs no others."""
    name = bare_program_name(program.name or (program.words[0].text if program.words else ""))
    if name not in runner_table() and "sh" in name:
        name = _VERSION.sub("", name)
    return name if name in runner_table() else ""


def expand_programs(programs: Sequence[Program], parse: Callable[[str], ParsedLine]) -> ExpandedPrograms:
    """Return the programs in a line and the programs that they run, to any depth. `parse` reads scripts."""
    expanded = ExpandedPrograms(parse)
    for program in programs:
        name = program.name
        is_runner = name in runner_table() or name in _RENAMING_BUILTINS or "sh" in name
        if name.isalnum() and not (is_runner or program.variables):
            expanded.programs.append(Reached(program))  # perf: it runs no other program
        else:
            expanded.add_program(program, (), 0)
    return expanded


class ExpandedPrograms:
    """All programs that a line runs, directly or through wrappers."""

    def __init__(self, parse: Callable[[str], ParsedLine]) -> None:
        self._parse = parse
        self.programs: list[Reached] = []
        self.code: list[str] = []
        """Code passed to interpreters of other languages."""
        self.hidden: str | None = None
        """The reason why further programs may run; None if there are none."""
        self.reason: str | None = None
        """The first part of a script that is not understood, if no programs are hidden in it."""

    def _hide(self, reason: str) -> None:
        self.hidden = self.hidden or reason

    def add_program(self, program: Program, wrappers: tuple[str, ...], depth: int) -> None:
        """Add a program and the programs that it runs."""
        self.programs.append(Reached(program, wrappers))
        while len(program.words) > 1 and ASSIGNMENT.match(program.words[0].text):
            program = program_from(program, 1)
            self.programs.append(Reached(program, wrappers))
        if program.variables and any(map(runs_variable, program.variables)):
            self._hide("A variable whose value the shell runs")
        name = program.name
        if name in _RENAMING_BUILTINS and (len(program.words) > 1 or name == "let"):
            self._hide(f"The builtin {name}")
        if " " in program.name:
            self._hide("A blank in the name of a program")
        name = runner_name(program)
        if not name:
            return
        if depth >= _MAX_DEPTH:
            self._hide("A program inside many others")
            return
        self._expand(name, runner_table()[name], program, (*wrappers, name), depth + 1)

    def _expand(self, name: str, spec: RunnerSpec, program: Program, wrappers: tuple[str, ...], depth: int) -> None:
        texts = [word.text for word in program.words[1:]]
        patterns = ((spec.hides, texts), (spec.hides_line, [" ".join(texts)]))
        if any(pattern and any(map(compile_cached(pattern).search, found)) for pattern, found in patterns):
            self._hide(f"An argument of {name} that runs a program")
            self.code += texts
        if spec.kind == "shell":
            self._expand_shell(program, wrappers, depth)
        elif spec.kind == "builtin":
            self._expand_builtin(name, program, wrappers, depth)
        elif spec.kind == "actions":
            self._expand_actions(program, wrappers, depth)
        elif spec.kind == "code":
            self._collect_code(spec, program)
        else:
            self._expand_wrapper(spec, program, wrappers, depth)

    def _expand_actions(self, program: Program, wrappers: tuple[str, ...], depth: int) -> None:
        if any(word.may_split or (word.has_expansion and word.text[:1] == "-") for word in program.words):
            self._hide("An argument of find that the shell fills in")
        for start, end in _find_action_ranges(program.words):
            inner = program.with_words(program.words[start:end])
            if not inner.name or "{" in inner.name:
                self._hide("A file that find runs")
            self.add_program(replace(inner, redirects=()), wrappers, depth)

    def _expand_script(self, word: ShellWord, wrappers: tuple[str, ...], depth: int) -> None:
        """Add the programs in a word that is itself a command line."""
        changes = self._adds_arguments(wrappers) and (not word.text.strip() or _PLACEHOLDERS.intersection(word.text))
        if word.has_expansion or changes:
            self._hide(f"A script of {wrappers[-1]} that is filled in later")
            return
        line = self._parse(word.text)
        if line.hides_programs:
            self._hide(line.reason or "A script")
        self.reason = self.reason or line.reason
        for program in line.programs:
            self.add_program(program, wrappers, depth)

    @staticmethod
    def _adds_arguments(wrappers: Sequence[str]) -> bool:
        return any(runner_table()[name].adds for name in wrappers)

    def _expand_shell(self, program: Program, wrappers: tuple[str, ...], depth: int) -> None:
        words, at = program.words, 1
        while at < len(words) and words[at].text[:1] in ("-", "+") and len(words[at].text) > 1:
            option = words[at].text
            if option[:2] != "--" and "c" in option[1:] and option[0] == "-":
                while at < len(words) and words[at].text[:1] in ("-", "+"):
                    at += 1
                if at < len(words):
                    self._expand_script(words[at], wrappers, depth)
                else:
                    self._hide(f"A script of {wrappers[-1]} that is filled in later")
                return
            takes_value = option in ("-o", "-O", "+O", "+o", "--rcfile", "--init-file")
            if takes_value or any(word.may_split for word in words[at : at + 2]) or not option[1:].strip("-").isalpha():
                self._hide(f"An option of {wrappers[-1]}")
            at += 2 if takes_value else 1
        if at < len(words) and words[at].text not in ("-", "/dev/stdin", "/dev/fd/0"):
            if words[at].has_substitution or words[at].may_split:
                self._hide(f"A script of {wrappers[-1]} that is filled in later")
        elif program.stdin_text is None:
            self._hide(f"The input of {wrappers[-1]}")
        else:
            self._expand_script(ShellWord(program.stdin_text), wrappers, depth)
            if any(reached.program.name == "exec" and reached.program.redirects for reached in self.programs):
                self._hide(f"The input of {wrappers[-1]}")

    def _expand_builtin(self, name: str, program: Program, wrappers: tuple[str, ...], depth: int) -> None:
        arguments = [word for word in program.words[1:] if word.text != "--"]
        if name == "trap":
            arguments = [word for word in arguments if word.text[:1] != "-"]
            if len(arguments) > 1:
                self._expand_script(arguments[0], wrappers, depth)
        elif name == "eval":
            self._expand_script(join_words(arguments), wrappers, depth)
        elif arguments and (arguments[0].has_expansion or arguments[0].text.startswith(("/dev/", "/proc/"))):
            self._hide(f"The file of {name}")

    def _expand_wrapper(self, spec: RunnerSpec, program: Program, wrappers: tuple[str, ...], depth: int) -> None:
        words = program.words
        for line in _option_values(words, spec.scripts.split()):
            self._expand_script(line, wrappers, depth)
        start = find_program_index(words, spec)
        if start is None:
            self._hide(f"An option of {wrappers[-1]}")
            inner = [program_from(program, at) for at in range(1, len(words)) if not words[at].has_expansion]
            self.programs += [Reached(candidate, wrappers) for candidate in inner]
        elif start >= len(words):
            if self._adds_arguments(wrappers) or spec.form is None:
                self._hide(f"The input of {wrappers[-1]}")
        else:
            inner_program = program_from(program, start)
            if not inner_program.name or ("{" in inner_program.name and self._adds_arguments(wrappers)):
                self._hide("A program whose name is filled in later")
            if spec.joins:
                self.programs.append(Reached(inner_program, wrappers))
                self._expand_script(join_words(words[start:]), wrappers, depth)
            else:
                self.add_program(inner_program, wrappers, depth)

    def _collect_code(self, spec: RunnerSpec, program: Program) -> None:
        options, words = spec.scripts.split(), program.words[1:]
        if any(word.text in options or (word.text[:2] in options and len(word.text) > 2) for word in words):
            self.code += [word.text for word in words]
        elif program.stdin_text is not None and options:
            self.code.append(program.stdin_text)


def join_words(words: Sequence[ShellWord]) -> ShellWord:
    """Join several words into one, with blanks between them."""
    has_expansion = any(word.has_expansion for word in words)
    return ShellWord(" ".join([word.text for word in words]), has_expansion=has_expansion)


def _option_values(words: Sequence[ShellWord], options: Sequence[str]) -> Iterator[ShellWord]:
    """Yield the values of options that are command lines: `-c ls`, `-cls`, `-xcls`, `--command=ls` and `--comm ls`."""
    for at, word in enumerate(words if options else ()):
        name, equals, value = word.text.partition("=")
        if not at or name[:1] != "-":
            continue
        if name[:2] == "--":
            matches = len(name) > 2 and any(option.startswith(name) for option in options)
        else:
            letters = [option[1] for option in options if len(option) == 2 and option[1] in word.text]
            matches, equals = bool(letters), ""
            value = word.text.partition(letters[0])[2] if letters else ""
        if matches and (equals or value):
            yield replace(word, text=value)
        elif matches and at + 1 < len(words):
            yield words[at + 1]


def _find_action_ranges(words: Sequence[ShellWord]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the programs that `find` runs, as indexes in `words`."""
    for at, word in enumerate(words):
        if word.text in FIND_ACTIONS:
            end = at + 1
            while end < len(words) and words[end].text not in (";", "+"):
                end += 1
            yield at + 1, end
