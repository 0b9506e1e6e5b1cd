"""Match the rules that deny or ask against command lines.

A rule for commands binds every program that a line runs, directly or through wrappers. If the line may run programs
that cannot be seen in it, the rule also binds the words of the line as they stand there, in quotes too. A rule for
files binds every word that may be a file. Start at `matches_line` and `find_file_denial`.
"""

from __future__ import annotations

import glob
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from toolspan.runtime.permissions.paths import MAX_GLOB_FILES, PathScope, expand_braces
from toolspan.runtime.permissions.program_facts import has_effect, strip_quotes
from toolspan.runtime.permissions.rule import Rule, command_prefix, matches_command
from toolspan.shell.arguments import changes_files, read_arguments
from toolspan.shell.plans import NotUnderstood, is_stream, plan
from toolspan.shell.program import Program, bare_program_name, program_basename
from toolspan.shell.table import program_table
from toolspan.shell.words import ShellWord, has_glob
from toolspan.shell.wrappers import runner_name

_SEPARATORS = re.compile(r"[\s;&|(){}`<>$\ufeff]+")
_SEPARATORS_AND_ENDINGS = re.compile(r"\.exe\b|[\s;&|(){}`<>$=\ufeff]+", re.IGNORECASE)
_PRINTING_PROGRAMS = frozenset({"echo", "printf"})
"""Programs whose arguments are not files."""
_MAX_VISITED = 64
"""The number of possible folders above which a further `cd` counts as one to an unknown folder."""


# Commands


@lru_cache(maxsize=256)
def _command_forms(line: str) -> tuple[str, ...]:
    """Return the commands in a line, in all forms that a rule may match, also with single blanks between the words."""
    spaced = line.replace("|", " | ").replace(";", " ; ")  # some clients match the whole line in this form
    forms = [line.strip(), strip_quotes(line.strip()), spaced]
    if "\n" in forms[0] and "<<" not in line:  # some clients continue a command on the next line
        forms += _command_forms(" ".join(line.split("\n")))
    for entry in plan(line).reached:
        program = entry.program
        if program.words:
            forms += _program_forms(program)
    forms += [" ".join(form.split()) for form in forms]
    return tuple(dict.fromkeys(forms))


def _program_forms(program: Program) -> Iterator[str]:
    """Yield a command as written and without quotes, with and without its assignments and the folder of its name."""
    name, *arguments = [word.text for word in program.words]
    unquoted = " ".join((name, *arguments))
    for text in (program.text, unquoted):
        yield text
        for start in range(len(program.assignments)):
            assignments = " ".join(program.assignments[start:])
            yield f"{assignments} {text}"
            yield f"{strip_quotes(assignments)} {text}"
    if "/" in name or "\\" in name or name[-4:].lower() == ".exe":
        for bare in {program_basename(name), bare_program_name(name)}:
            yield " ".join((bare, *arguments))
    if name == "command" and arguments[:1] in (["-v"], ["-V"]):
        yield " ".join(arguments[1:])
    if name in ("[", "[["):
        yield unquoted.removesuffix("]" * len(name)).rstrip()
    if " " in name or "'" in name or '"' in name:  # a whole command in quotes, or a name in two kinds of them
        yield " ".join((strip_quotes(name).strip(), *arguments))
    lasting = [word.text for word in program.words if not (word.may_split and word.text[:1] in ("$", "`"))]
    if len(lasting) < len(program.words):  # the others may expand to nothing
        yield " ".join(lasting)
    inner = program.inner
    if inner is not program:
        yield inner.text


def matches_line(line: str, pattern: str) -> bool:
    """Return whether a command in a line matches a pattern, or may match although it is not visible."""
    if any(matches_command(form, pattern) for form in _command_forms(line)):
        return True
    return hides_programs(line) and matches_words(line, pattern)


@lru_cache(maxsize=64)
def first_words(patterns: tuple[str, ...]) -> frozenset[str]:
    """Return the first words of all commands that some patterns match, without quotes."""
    return frozenset(strip_quotes((command_prefix(pattern).split() or [""])[0]) for pattern in patterns)


def mentions_any(line: str, words: Iterable[str]) -> bool:
    """Return whether a line contains one of the words, or may contain it in a variable."""
    bare = strip_quotes(line)
    return "$" in line or any(word in bare for word in words)


def hides_programs(line: str) -> bool:
    """Return whether a line may run programs that are not visible in it."""
    understood = plan(line)
    return isinstance(understood, NotUnderstood) and understood.hides_programs


def matches_words(text: str, pattern: str) -> bool:
    """Return whether a text contains the fixed words at the start of a pattern, in any quotes."""
    head, star, _ = pattern.partition("*")
    is_whole = not star or head.endswith((" ", ":"))
    words = head.removesuffix(":").split() or max(pattern.split("*"), key=len).split()
    if not words:
        return True
    expected = " " + " ".join(words) + (" " if is_whole else "")
    bare = strip_quotes(text)
    for separators in (_SEPARATORS, _SEPARATORS_AND_ENDINGS):
        found = [word for word in separators.split(bare) if word]
        for names in (found, [program_basename(word) for word in found]):
            if expected in f" {' '.join(names)} ":
                return True
    return False


def may_hide_command(line: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a line may run a command that matches one of the patterns, although none was found.

    The line contains such a command in code for an interpreter, or an argument of a program in a pattern has an unknown
    value, or a program that is not in the table gets words that match: it may run them.
    """
    if not mentions_any(line, first_words(patterns)):
        return False
    understood = plan(line)
    if any(matches_words(code, pattern) for code in understood.code for pattern in patterns):
        return True
    names = {(pattern.split() or [""])[0].removesuffix(":*") for pattern in patterns}
    for entry in understood.reached:
        program = entry.program
        name = program_basename(program.name)
        if isinstance(understood, NotUnderstood) and (name in names or any("*" in word for word in names)):
            return True
        if len(program.words) > 1 and name not in program_table() and not runner_name(program):
            text = " ".join(word.text for word in program.words[1:])
            if any(matches_words(text, pattern) for pattern in patterns):
                return True
    return False


# Files


class ForbiddenFiles(Struct, frozen=True):
    """The files that rules deny."""

    pattern: re.Pattern[str]
    """A pattern that matches all paths that rules deny reading or changing."""
    names: re.Pattern[str]
    """A pattern that matches the names of these files, without their folders."""
    find_rule: Callable[[PathScope, str, bool], Rule | None]
    """A function that returns the rule that denies reading (False) or changing (True) a file."""
    denies_reading: bool = True
    """False if rules deny only changing files."""


class FileDenial(Struct, frozen=True):
    """The rule that denies a file in a line, if any."""

    rule: Rule | None = None
    may_exist: bool = False
    """True if a word may refer to a denied file."""


def find_file_denial(line: str, scope: PathScope, forbidden: ForbiddenFiles) -> FileDenial:
    """Return the rule that denies a file which a line may open."""
    understood = plan(line)
    finder = _FileFinder(scope, forbidden)
    for entry in understood.reached:
        finder.check_program(entry.program)
        if finder.rule is not None:
            return FileDenial(finder.rule)
    if isinstance(understood, NotUnderstood) and understood.hides_programs:
        for text in _SEPARATORS.split(strip_quotes(line)):
            finder.check_word(ShellWord(text), changes=True)
        finder.may_exist = True
    return FileDenial(finder.rule, finder.may_exist)


class _FileFinder:
    """A search for denied files in the programs of a line, from every folder that the line may enter."""

    def __init__(self, scope: PathScope, forbidden: ForbiddenFiles) -> None:
        self._scope, self._forbidden = scope, forbidden
        self._scopes = {scope.cwd: scope}
        self._is_folder_unknown = False
        self.rule: Rule | None = None
        self.may_exist = False

    def check_program(self, program: Program) -> None:
        inner = program.inner
        name = bare_program_name(inner.name).lower()  # some file systems ignore the case
        words = () if inner.name in _PRINTING_PROGRAMS else inner.words[1:]
        known = inner.arguments if name == inner.name else read_arguments(name, words)
        edits = name == "sed" and (known.unknown is not None or bool(known.changed))
        changes = edits or name == "install" or changes_files(name)
        are_options = known.unknown is None
        for word in words:
            are_options = are_options and word.text[:1] == "-" and len(word.text) > 2
            for part in _inner_values(word) if are_options else (word, *_inner_values(word)):
                if not are_options or "/" in part.text or "." in part.text:
                    self.check_word(part, changes=changes)
        for word in known.files("read"):  # also the folder that is read if none is named
            if word not in words:
                self.check_word(word, changes=changes)
        for value in program.values:
            self.check_word(value, changes=False)
        for redirect in program.redirects:
            if not is_stream(redirect):
                self.check_word(redirect.target, changes=">" in redirect.operator)
        opened = [*(words if known.spec is not None else ()), *(redirect.target for redirect in program.redirects)]
        opens_files = known.spec is not None and bool(words or known.files("read"))
        is_denied = opens_files and self._forbidden.pattern.match(f"{self._scope.cwd}/\0") is not None
        if is_denied or any(self._substitute(word) is None for word in opened):
            self.may_exist = True
        if self._forbidden.denies_reading:  # also files that the program does not name
            adds_names = program.name == "xargs" and len(program.words) > 1 and name not in _PRINTING_PROGRAMS
            searched = inner.arguments.files("read", "ref") if has_effect(inner, "searches") else ()
            paths = (path for word in searched for path in self._possible_files(word.text, expands=word.has_expansion))
            if adds_names or any(self._scope.may_contain(path, self._forbidden.pattern) for path in paths):
                self.may_exist = True
        self._enter_folders(inner)

    def check_word(self, word: ShellWord, *, changes: bool) -> None:
        """Check a word that may be a file."""
        text = self._substitute(word)
        if not text or self.rule is not None:
            return
        if self._is_folder_unknown and text[:1] not in ("/", "~"):
            self.may_exist = self.may_exist or self._forbidden.names.match(text.rpartition("/")[2]) is not None
        for path in self._possible_files(text, expands=word.has_expansion):
            if self.rule is None and self._scope.matches_any_name(path, self._forbidden.pattern):
                self.rule = self._forbidden.find_rule(self._scope, path, changes)

    def _substitute(self, word: ShellWord) -> str | None:
        """Return a word with the values of `$HOME` and `$PWD`, or None if another value is unknown."""
        if not word.has_expansion:
            return (
                None if word.text[:1] == "~" or "=~" in word.text else word.text
            )  # the home folder for some programs, even in quotes
        text = word.text.replace("$HOME", self._scope.home).replace("$PWD", self._scope.cwd)
        return None if "$" in text or "`" in text else text

    def _possible_files(self, text: str, *, expands: bool) -> list[str]:
        """Return the files that a word may refer to, expanding patterns on disk."""
        paths: list[str] = []
        for scope in self._scopes.values():
            for alternative in itertools.islice(expand_braces(text), MAX_GLOB_FILES) if expands else (text,):
                paths += scope.possible_paths(alternative)
                if expands and has_glob(alternative):
                    matches = glob.iglob(paths[-1], include_hidden=True)  # noqa: PTH207 - absolute, lazily
                    paths += itertools.islice(matches, MAX_GLOB_FILES)
        return paths

    def _enter_folders(self, program: Program) -> None:
        """Record the folders that a `cd` may enter from each folder recorded so far."""
        if program.name not in ("cd", "pushd", "popd"):
            return
        operands = [word for word in program.words[1:] if word.text not in ("-L", "-P", "-e", "--")]
        if program.name == "cd" and not operands:
            operands = [ShellWord("~", has_expansion=True)]
        self._is_folder_unknown = self._is_folder_unknown or len(operands) != 1
        for word in operands:
            text = self._substitute(word)
            if text is None or text[:1] == "-" or has_glob(word.text) or len(self._scopes) > _MAX_VISITED:
                self._is_folder_unknown = True
            else:
                entered = [replace(scope, cwd=scope.absolute_path(text)) for scope in self._scopes.values()]
                self._scopes |= {scope.cwd: scope for scope in entered}


def _inner_values(word: ShellWord) -> Iterator[ShellWord]:
    """Yield the parts of a word that may be a file: `--file=x`, `HEAD:x`, `@x` and `-fx`."""
    text = word.text
    for mark in "=:@":
        if mark in text:
            yield ShellWord(text.rpartition(mark)[2], has_expansion=word.has_expansion)
    if text[:1] == "-" and text[1:2] != "-" and len(text) > 2:
        yield ShellWord(text[2:], has_expansion=word.has_expansion)
