"""Check a command line that is understood: the commands that need approval, and the files that they access.

`check_command` follows the programs in order. A program may run if a rule allows it or if it is in the table with all
its arguments; in both cases, only with files that the session may use. In a line that enters another folder, commands
that change files or run git need approval.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from toolspan.runtime.permissions.paths import PathScope, expand_glob, has_parent_after_name, may_be_renamed
from toolspan.runtime.permissions.program_facts import (
    COMMON_NAME,
    add_copies,
    has_effect,
    has_harmless_variables,
    is_lookup,
    is_unquoted,
    outer_words,
    words_after_script,
)
from toolspan.runtime.permissions.rule import Rule
from toolspan.shell.plans import NotUnderstood, Plan, is_read_only_program, is_stream
from toolspan.shell.program import Program, program_basename, runner_table
from toolspan.shell.syntax import parse_line
from toolspan.shell.table import ProgramSpec, state_builtins, version_programs
from toolspan.shell.words import Redirect, ShellWord, has_glob
from toolspan.shell.wrappers import expand_programs
from toolspan.types.decision import AccessedPath, MissingPermissions

if TYPE_CHECKING:
    from toolspan.runtime.permissions.rules import Rules

_FOLDER_CHANGERS = frozenset({"cd", "popd", "pushd"})
_SHELL_BUILTINS = frozenset({"[", "[[", "cd", "help", "history", "printf", "test", "type"})
"""Builtins that wrappers run in another way, or not at all."""
_REPOSITORY_PROGRAMS = frozenset({"git", "hg", "jj", "svn"})
"""Programs that run code configured in the repository of the current folder."""
_CREATING_PROGRAMS = frozenset({"cp", "dd", "install", "ln", "mkdir", "mv", "rsync", "tee", "touch"})
_REPOSITORY_PARTS = frozenset({"head", "hooks", "objects", "refs"})
"""Names of files that make git treat a folder as a repository and run the hooks in it."""
_KNOWN_WRAPPERS = re.compile(r"(?:noglob )?(?:command(?: -p| --)? )*(?:timeout [0-9]+(?:\.[0-9]+)?[smhd]? )*")
"""Wrappers in the order in which every shell runs the program after them."""
_UNKNOWN_NAME = re.compile(r"[*?\[{}$`\n]|\A//|\A!|\A~[^/]|\A-\Z|\A-.*\.\.")
"""Characters in the names of files that some shell or system expands, even in quotes."""
_LINE_FILTERS = frozenset({"egrep", "fgrep", "grep", "head", "sort", "tail", "uniq"})
"""Programs that only select or sort the lines of their input if they have no file as an argument."""
_XARGS_READERS = frozenset({"egrep", "fgrep", "grep", "head", "tail", "wc"})


class CommandCheck(Struct, frozen=True, gc=False):
    """The result of checking a line. The line may run without approval if `needs` is None."""

    needs: MissingPermissions | None
    used_rules: tuple[Rule, ...] = ()
    """The rules that allowed a program."""


def check_command(
    line: Plan | NotUnderstood, scope: PathScope, rules: Rules, *, edits: bool = False, redirects: bool = False
) -> CommandCheck:
    """Check a line and return the parts of it that need approval.

    `edits` and `redirects` say whether programs and redirects may change files in the session's folders.
    """
    if isinstance(line, NotUnderstood):
        return CommandCheck(MissingPermissions(parts=(line.text,), of=1, not_understood=line.reason))
    checker = _CommandChecker(line, scope, rules, edits=edits, redirects=redirects)
    for program in line.programs:
        checker.check_program(program)
    if not checker.parts:
        return CommandCheck(None, tuple(checker.rules))
    parts = tuple(dict.fromkeys(checker.parts))
    total = max(len([1 for program in line.programs if program.words]), len(parts))
    needs = MissingPermissions(parts=parts, of=total, reach=checker.reach, leaves=checker.leaves_scope)
    return CommandCheck(needs, tuple(checker.rules))


class _CommandChecker:
    """A checker that follows the programs of a line in order, tracking the folders that may be current."""

    def __init__(self, line: Plan, scope: PathScope, rules: Rules, *, edits: bool, redirects: bool) -> None:
        self._line, self._start_scope, self._rules = line, scope, rules
        self._edits, self._writes_output = edits, edits or redirects
        self._scopes: tuple[PathScope, ...] = (scope,)
        """A scope for each possible current folder, because `cd` may fail; empty if the folder is unknown."""
        self._entered: PathScope | None = None
        """The current folder after a `cd` that certainly succeeded."""
        changers = [program for program in line.programs if program.inner.name in _FOLDER_CHANGERS]
        self._changers = len(changers)
        self._moves = bool(changers) and not (self._changers == 1 and self._stays(changers[0]))
        """True if the line changes the folder for a command."""
        self._is_chain = True
        """True as long as each command runs only if all before it succeeded."""
        self.parts: list[str] = []
        self.rules: list[Rule] = []
        self.reach: AccessedPath | None = None
        self.leaves_scope = False

    def _stays(self, program: Program) -> bool:
        """Return whether a line begins with `cd` to the folder that is already current."""
        here = self._start_scope.cwd
        is_bare = program is self._line.programs[0] and not (program.variables or program.redirects)
        is_spelled = program.text in (f"cd {here}", f'cd "{here}"', f"cd '{here}'") and not program.spelling
        return is_bare and is_spelled and program.ended_by == "&&" and "\\\n" not in self._line.text

    def check_program(self, program: Program) -> None:
        inner = program.inner
        for redirect in program.redirects:
            self._check_redirect(program, redirect)
        if not program.words:
            self._require_approval(program.text or "a redirect")
            return
        rule, name = self._rules.find_program_grant(program), inner.name
        spec = runner_table().get(name)
        is_unknown_wrapper = spec is not None and spec.form is not None and not is_lookup(inner)
        if name in _CREATING_PROGRAMS:
            self._check_repository_parts(program, add_copies(inner, inner.words[1:]))
        if name in state_builtins() or is_unknown_wrapper or not COMMON_NAME.fullmatch(name):
            self._require_approval(program.text)
        elif rule is not None:
            self.rules.append(rule)
            self._check_granted(program, inner, rule)
        elif not self._is_understood(program):
            self._require_approval(program.text)
        self._is_chain = self._is_chain and program.ended_by in ("&&", "")
        if not self._is_chain:
            self._entered = None

    def _require_approval(self, text: str, reach: AccessedPath | None = None) -> None:
        self.parts.append(text)
        self.reach = self.reach or reach

    # Programs that a rule allows

    def _check_granted(self, program: Program, inner: Program, rule: Rule) -> None:
        name, words, known = inner.name, inner.words[1:], inner.arguments.spec
        spec = runner_table().get(program_basename(name))
        if spec is not None and spec.kind == "command" and not is_lookup(inner):
            self._check_granted_wrapper(program, inner)
        through_xargs = any(word.text == "xargs" for word in program.words[: len(program.words) - len(inner.words)])
        if name == "git":
            entered = self._entered
            is_own = entered is not None and Path(entered.cwd).is_dir() and entered.is_own_repository()
            is_here = not self._changers or (inner is program and (is_own or not self._moves))
            if through_xargs or not is_here or any(word.text[:2] == "//" for word in words):
                self._require_approval(program.text)
        if through_xargs and known is not None and name not in (*_XARGS_READERS, "echo", "printf"):
            runs_code = known.grammar or "script" in known.roles
            if runs_code or not (rule.content or "").startswith("xargs"):  # the added words may be actions or a script
                self._require_approval(program.text)
        self._check_granted_files(program, inner)

    def _check_granted_wrapper(self, program: Program, wrapper: Program) -> None:
        """Check the program inside a wrapper. A rule for the wrapper does not cover files outside of the project."""
        for entry in expand_programs((wrapper,), parse_line).programs:
            if not entry.program.words:
                continue
            first, *rest = entry.program.words
            bare = replace(first, text=program_basename(first.text))
            inner = replace(entry.program, words=(bare, *rest)).inner
            spec = runner_table().get(inner.name)
            is_open = spec is not None and (spec.whole_line or spec.form is not None)
            is_state = inner.name in state_builtins() or inner.name in _FOLDER_CHANGERS
            if is_open or is_state or (self._moves and inner.name in ("git", "sed")):
                self._require_approval(program.text)
            if entry.wrappers:
                self._check_granted_files(program, inner)

    def _check_granted_files(self, program: Program, inner: Program) -> None:
        """Check the files of a program that a rule allows. The rule covers only files in the session's folders."""
        name, words, arguments, spec = inner.name, inner.words[1:], inner.arguments, inner.arguments.spec
        if name in _FOLDER_CHANGERS:
            if not self._follow_cd(program, inner):
                self._require_approval(program.text)
            return
        if spec is None or spec.only:
            return
        has_pattern = any(word.has_expansion and has_glob(word.text) for word in words)
        is_unfit = has_pattern and not spec.globs and name != "rm"
        if arguments.unknown is None:
            reads, changed = arguments.files("read"), self._find_changed(inner)
        else:
            takes_files = spec.roles[-1:] in (("read*",), ("write*",)) or name == "uniq"
            changes = "write*" in spec.roles or spec.grammar == "sed"
            files = (*(words_after_script(inner) if takes_files else ()), *outer_words(inner, self._start_scope))
            changed, reads = (files, ()) if changes else ((), files)
            is_unfit = is_unfit or spec.grammar in ("printf", "test") or name == "command"
            is_unfit = is_unfit or (changes and (has_pattern or name in ("cp", "mv") or ShellWord("-") in words))
            is_unfit = is_unfit or (name == "find" and any(has_glob(word.text) or "]" in word.text for word in words))
        is_rejected = re.fullmatch if spec.grammar == "find" else re.search
        if is_unfit or (spec.rejects and any(is_rejected(spec.rejects, word.text) for word in words)):
            self._require_approval(program.text)
            return
        if (changed or spec.edits) and self._moves:
            self._require_approval(program.text)
        self._check_files(program, name, (*reads, *outer_words(inner, self._start_scope)), changed)

    # Programs without a rule

    def _is_understood(self, program: Program) -> bool:
        """Return whether a program without a rule is understood: its name, its wrappers and all its arguments.

        If it is, require approval for the files that need it. Otherwise, the caller requires approval.
        """
        inner = program.inner_before_xargs
        if program.variables and not has_harmless_variables(program):
            return False
        if inner is not program:
            wrappers = program.text.removesuffix(inner.text)
            if program.variables or inner.name in _SHELL_BUILTINS or not _KNOWN_WRAPPERS.fullmatch(wrappers):
                return False
        if not inner.text.startswith(inner.name) or (program.stdin_text is not None and not inner.text):
            return False
        if inner.name == "cd":
            return self._follow_cd(program, inner)
        folders = self._start_scope.program_folders
        names = {program.name, inner.name, *(word.text for word in inner.words[1:] if inner.name == "xargs")}
        if any(os.path.lexists(f"{folder}/{name}") for folder in folders for name in names):
            return False  # the session may have written the program
        asks_for_version = inner.text == f"{inner.name} --version" and inner.name in version_programs()
        if is_lookup(inner) or asks_for_version:
            return not program.variables
        scopes = self._scopes
        if inner.name == "git":
            inner = self._follow_git_options(program, inner)
        spec = inner.arguments.spec
        is_understood = inner.arguments.unknown is None and spec is not None and self._check_known(program, inner, spec)
        self._scopes = scopes
        return is_understood

    def _follow_git_options(self, outer: Program, program: Program) -> Program:
        """Return `git` without `--no-pager` and `-C FOLDER`, which makes the folder the current one.

        The folder must not become another repository first: all programs before this one must only read.
        """
        words = program.words[1:]
        earlier = itertools.takewhile(lambda other: other is not outer, self._line.programs)
        if not all(is_read_only_program(other.name, other.words[1:]) for other in earlier):
            return program
        while words and words[0].text in ("--no-pager", "-C"):
            if words[0].text == "-C":
                paths = self._resolve_paths(words[1]) if len(words) > 1 and not self._changers else None
                if paths is None or len(paths) != 1 or not self._start_scope.contains_path(paths[0]):
                    return program
                self._scopes = (replace(self._start_scope, cwd=paths[0]),)
            words = words[2 if words[0].text == "-C" else 1 :]
        return program if len(words) == len(program.words) - 1 else program.with_words((program.words[0], *words))

    def _check_known(self, program: Program, inner: Program, spec: ProgramSpec) -> bool:
        """Check the files of a program whose arguments are understood. Return False if it needs approval as a whole."""
        name, arguments = inner.name, inner.arguments
        is_bare = inner.words == program.words and not program.variables and program.stdin_text is None
        if spec.bare and not (is_bare and is_unquoted(program)):
            return False
        if name in _REPOSITORY_PROGRAMS and (self._moves or not self._scopes[0].is_own_repository()):
            return False
        outer = outer_words(inner, self._scopes[0] if self._scopes else self._start_scope)
        changed, reads = self._find_changed(inner), (*arguments.files("read"), *outer)
        if changed or "write*" in spec.roles:
            free = spec.edits and is_bare and self._edits
            if self._moves or not (free or changed):
                return False
            self._check_files(program, name, (), changed, free=free)
            return True
        if self._reads_unnamed_files(inner, reads):
            return False
        if self._moves and self._rules.denies_reading:
            return False
        self._check_files(program, name, reads, ())
        return True

    def _find_changed(self, program: Program) -> tuple[ShellWord, ...]:
        """Return the files that a program changes, also those that options may name."""
        changed = program.arguments.changed
        return (*add_copies(program, changed), *outer_words(program, self._start_scope)) if changed else ()

    def _reads_unnamed_files(self, program: Program, files: Sequence[ShellWord]) -> bool:
        """Return whether a program may read files that nobody checked: names from a pipe, links, denied files in git.

        A list of files in the session's folders is a checked source of names.
        """
        if self._rules.denies_reading and has_effect(program, "shows"):
            return True
        if program.name == "xargs":
            reader = next((word.text for word in program.words[1:] if word.text in _XARGS_READERS), None)
            return reader is not None and program.has_stdin and not self._gets_file_list(program)
        if has_effect(program, "follows"):
            folders = [path for word in files for path in self._resolve_paths(word) or ()]
            return any(map(self._start_scope.may_lead_outside, folders))
        return False

    def _check_repository_parts(self, program: Program, words: Sequence[ShellWord]) -> None:
        """Require approval for a file that makes git treat the current folder as a repository, if the line runs git."""
        folder = self._start_scope.cwd.rstrip("/") + "/"
        runs_git = any(program_basename(entry.program.name) in _REPOSITORY_PROGRAMS for entry in self._line.reached)
        for word in words if runs_git else ():
            path = self._start_scope.absolute_path(word.text).casefold()
            name = path.removeprefix(folder.casefold()).partition("/")[0]
            if name in _REPOSITORY_PARTS or path.endswith("/head"):
                self._require_approval(program.text)

    # Files and folders

    def _resolve_paths(self, word: ShellWord) -> list[str] | None:
        """Return the files to which a word refers in each possible folder, or None if they are unknown."""
        text = word.text
        if word.has_expansion:
            text = text.replace("$HOME", self._start_scope.home, 1)
        elif text[:1] == "~":  # the home folder for some programs, even in quotes
            return None
        if (
            "$" in text
            or "`" in text
            or text.startswith(("//", "="))
            or (text[:1] == "~" and text[1:2] not in ("", "/"))
            or has_parent_after_name(text)
        ):
            return None
        paths: list[str] = []
        for scope in self._scopes or ((self._start_scope,) if text[:1] in ("/", "~") else ()):
            names = expand_glob(text, scope) if word.has_expansion and has_glob(text) else [text]
            if names is None or any(".." in name and not scope.is_same_on_disk(name) for name in names):
                return None
            paths += map(scope.absolute_path, names)
        return paths or None

    def _resolve_target(self, word: ShellWord) -> list[str] | None:
        """Return the paths of a file to change, or None if they are unknown."""
        if _UNKNOWN_NAME.search(word.text) and not word.text.startswith("$HOME/"):
            return None
        paths = self._resolve_paths(word)
        return None if paths is None or any(map(may_be_renamed, paths)) else paths

    def _is_readable(self, path: str) -> bool:
        scope = self._start_scope
        return scope.contains_path(path, reading=True) or self._rules.allows_path(scope, path, writing=False)

    def _check_files(
        self,
        program: Program,
        name: str,
        reads: Sequence[ShellWord],
        changed: Sequence[ShellWord],
        *,
        free: bool = True,
    ) -> None:
        """Require approval for a program at the first file that it must not read or change without approval."""
        scope = self._start_scope
        for word in dict.fromkeys((*reads, *changed)):
            changes = word in changed
            if word.text == "-" and not changes:
                continue
            paths = self._resolve_target(word) if changes else self._resolve_paths(word)
            if paths is None:
                self._require_approval(program.text)
                return
            for path in paths:
                inside = changes and scope.contains_path(path)
                if not (inside and free and not scope.is_protected(path) if changes else self._is_readable(path)):
                    self._require_approval(program.text, AccessedPath(name, path, inside=inside))
                    return

    def _follow_cd(self, program: Program, inner: Program) -> bool:
        """Make the target of `cd` one of the folders that may be current. Return whether it is understood."""
        if not self._moves:
            return True
        self._entered = None
        target = inner.words[1] if len(inner.words) > 1 else ShellWord("~", has_expansion=True)
        is_known = inner.arguments.unknown is None and target.text not in ("", "-") and self._changers == 1
        is_known = is_known and not any("<" in redirect.operator for redirect in program.redirects)
        paths = self._resolve_paths(target) if is_known else None
        if paths is None:
            self._scopes = ()
            return False
        entered = tuple(replace(self._start_scope, cwd=path) for path in paths)
        is_piped = program.has_stdin or program.ended_by in ("|", "|&")
        is_bare = inner is program and not program.variables and not program.redirects and not is_piped
        is_certain = is_bare and self._is_chain and program.ended_by == "&&" and len(entered) == 1
        if is_certain and not target.has_expansion and ".." not in target.text:
            self._entered = entered[0]
        self._scopes = (self._start_scope, *entered)
        outside = next((path for path in paths if not self._is_readable(path)), None)
        if outside is not None:
            self.leaves_scope = True
            self._require_approval(program.text, AccessedPath("cd", outside, inside=False))
        return f"{program.text} && \\\n" not in self._line.text

    # Redirects and pipes

    def _check_redirect(self, program: Program, redirect: Redirect) -> None:
        target, scope = redirect.target, self._start_scope
        if is_stream(redirect) or (target.text == "/dev/null" and not target.has_expansion):
            return
        is_relative = target.text[:1] not in ("/", "~")
        if redirect.operator.endswith("<"):
            is_literal = not (
                _UNKNOWN_NAME.search(target.text) or program.name == "cd" or (self._changers and is_relative)
            )
            paths = self._resolve_paths(target) if is_literal else None
            outside = next((path for path in paths or () if not self._is_readable(path)), None)
            if paths is None or outside is not None:
                reach = None if outside is None else AccessedPath(program.name, outside, inside=False)
                self._require_approval(program.text or f"< {target.text}", reach)
            return
        text = f"{program.text} {redirect.operator} {target.text}".strip()
        self._check_repository_parts(program, (target,))
        is_literal = bool(target.text) and not target.has_expansion
        if self._entered is not None and is_relative and is_literal:
            path = self._entered.absolute_path(target.text)
            is_known = not (_UNKNOWN_NAME.search(target.text) or may_be_renamed(path) or ".." in target.text)
            if is_known and self._rules.allows_path(scope, path, writing=True) and not scope.is_protected(path):
                return
        paths = self._resolve_target(target) if is_literal and not self._moves else None
        if paths is None:
            self._require_approval(text)
        for path in paths or ():
            inside = scope.contains_path(path)
            may_write = (self._writes_output and inside) or self._rules.allows_path(scope, path, writing=True)
            if scope.is_protected(path) or not may_write:
                self._require_approval(text, AccessedPath(None, path, inside=inside))

    def _gets_file_list(self, program: Program) -> bool:
        """Return whether the input of a command is a list of files in the session's folders."""
        at = next(at for at, other in enumerate(self._line.programs) if other is program)
        before = self._line.programs[at - 1] if at else None
        is_redirected = program.stdin_text is not None or any("<" in item.operator for item in program.redirects)
        if before is None or before.ended_by != "|" or is_redirected:
            return False
        inner = before.inner
        known = inner.arguments
        filters = inner.name in _LINE_FILTERS and known.unknown is None and not known.files("read")
        return has_effect(inner, "lists_names") or (filters and self._gets_file_list(before))
