"""Check the commands in a line: those that need approval, and the files that they access.

`check_command` follows the programs in a line in order and collects the parts that need approval. `line_state.py`
tracks the current folder and the variables; `patterns.py` matches the patterns of rules.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from toolspan.runtime.permissions.line_state import LineState
from toolspan.runtime.permissions.paths import PathScope
from toolspan.runtime.permissions.program_use import (
    PRINTING_PROGRAMS,
    PROGRAM_STARTERS,
    TARGET_EDITORS,
    exceeds_rule,
    find_candidates,
    find_changed,
    find_granted_files,
    find_late_options,
    find_targets,
    follows_links,
    has_harmless_variables,
    has_misread_words,
    has_parent_after_operand,
    is_free_variable,
    is_number,
    is_plain_edit,
    is_plainly_spelled,
    is_stream_or_null,
    is_understood_wrapper,
    lists_files,
    may_gain_script,
    searches_folders,
    selects_lines,
    sets_variables,
    shows_any_file,
    values_taken_for_files,
)
from toolspan.runtime.permissions.rule import Rule
from toolspan.shell.arguments import Arguments, read_arguments
from toolspan.shell.program import LinePrograms, Program, program_basename
from toolspan.shell.readonly import DECLARATIONS
from toolspan.shell.syntax import RESERVED_WORDS
from toolspan.shell.table import ProgramSpec
from toolspan.shell.words import Redirect, ShellWord
from toolspan.shell.wrappers import (
    TRANSPARENT_WRAPPERS,
    expand_wrappers,
    is_unclear_wrapper,
    strip_wrappers,
)
from toolspan.types.decision import AccessedPath, MissingPermissions

_KEYWORDS = RESERVED_WORDS - {"!", "[[", "]]", "{", "}"}
_EVALUATING_BUILTINS = _KEYWORDS | {
    ".", "alias", "autoload", "bind", "complete", "coproc", "disable", "emulate", "enable", "eval", "exec", "float",
    "foreach", "functions", "getopts", "hash", "integer", "let", "mapfile", "nocorrect", "read", "readarray", "repeat",
    "setopt", "shopt", "source", "sysopen", "sysread", "sysseek", "syswrite", "trap", "unsetopt", "vared", "zcompile",
    "zf_chmod", "zf_ln", "zf_mkdir", "zf_mv", "zf_rm", "zf_rmdir", "zformat", "zmodload", "zparseopts", "zpty",
    "zregexparse", "zselect", "zsocket", "zstat", "zstyle", "ztcp",
}  # fmt: skip
"""Builtins of bash and zsh that run their arguments, set variables or change the meaning of later commands, and
keywords used as a program name. They need approval even if a rule allows them.
"""
_SHELL_BUILTINS = frozenset({"[", "[[", "cd", "help", "history", "printf", "test", "type"})
"""Builtins that `timeout` cannot run."""
_REPOSITORY_PROGRAMS = frozenset({"git", "hg", "jj", "svn"})
"""Programs that run code configured in the repository of the current folder."""
_CREATING_PROGRAMS = frozenset({"cp", "dd", "install", "ln", "mkdir", "mv", "rsync", "tee", "touch"})
_REPOSITORY_PARTS = frozenset({"head", "hooks", "objects", "refs"})
"""Names of files that make git treat a folder as a repository and run the hooks in it."""
_ODD_NAME = re.compile(r"\A-|[^\w./:+,~%@-]")
"""Names of programs for which allow rules are ignored, because some shells expand them or treat them as options."""
_TIMING_WRAPPERS = frozenset({"nohup", "time"})
_ODD_TIMED_NAME = re.compile(r"[^\w./+~-]", re.ASCII)
"""Names of programs after `_TIMING_WRAPPERS` for which allow rules are ignored."""
_ENV_OPTIONS = re.compile(r"(?>(?:(?:-i|-0|-v|-u [A-Za-z_]\w*|[A-Za-z_]\w*=\S*)(?: |\Z))*)(?:[^-\s]|\Z)", re.ASCII)
"""The options and variables of `env` up to the name of a program."""
_PLAIN_CD = re.compile(r"""cd(?: (?:[^'"\\$`]*|'[^']*'|"[^"\\$`]*"))?""")
_CHAIN_AFTER_CD = re.compile(r"cd [^;|&\n]*(?:&&[^;|&\n]*)*")
"""A line in which every command runs only after `cd` succeeded."""
_XARGS_READERS = frozenset({"egrep", "fgrep", "grep", "head", "tail", "wc"})


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
    sed_changes: bool = False
    """True for old clients, which treat all files of `sed` as changed."""


class AllowedActions(Struct, frozen=True):
    """The actions of a command line that need no approval."""

    find_rule: Callable[[Program], Rule | None]
    """A function that returns the rule that allows a program."""
    can_write: Callable[[PathScope, str], bool]
    """A function that returns whether a rule allows changing a file."""
    can_read: Callable[[PathScope, str], bool]
    """A function that returns whether a rule allows reading a file."""
    forbidden_files: ForbiddenFiles | None
    denies_reading: bool = False
    """True if a rule denies reading a file, or all files."""
    edits: bool = False
    """True if files in the session's folders may be changed."""
    redirects: bool = False
    """True if output may be redirected to files in the session's folders."""
    parents: bool = False
    """True for old clients: a path may contain `..` after the name of a folder, and be relative after `cd`."""


class CommandCheck(Struct, frozen=True, gc=False):
    """The result of checking a line. The line may run without approval if `needs` is None."""

    needs: MissingPermissions | None
    used_rules: tuple[Rule, ...] = ()
    """The rules that allowed a program."""
    forbidden_by: Rule | None = None
    """The rule that denies a file in the line, if any."""
    doubts: bool = False
    """True if a word may refer to a denied file."""


def _is_oddly_timed(program: Program, inner: Program) -> bool:
    """Return whether the client does not recognise the name of a program inside `time` or `nohup`."""
    if not _ODD_TIMED_NAME.search(inner.name):
        return False
    wrappers = {word.text for word in program.words[: len(program.words) - len(inner.words)]}
    return not _TIMING_WRAPPERS.isdisjoint(wrappers)


def check_command(parsed_line: LinePrograms, scope: PathScope, allowed: AllowedActions) -> CommandCheck:
    """Check a line and return the parts of it that need approval."""
    is_assigning = sets_variables(parsed_line)
    if is_assigning and allowed.parents and not allowed.denies_reading:
        is_assigning = not is_number(parsed_line)
    checker = _CommandChecker(scope, allowed, sets_variables=is_assigning)
    for program in parsed_line.programs:
        checker.check_program(program)
    checker.finish(parsed_line.text)
    parts, unclear = checker.parts, parsed_line.unclear[0] if parsed_line.unclear else None
    if is_assigning and not allowed.parents:
        unclear = "A variable set"
    only_sets = is_assigning and not any(program.words for program in parsed_line.programs)
    if (parsed_line.uncertainties or unclear or only_sets) and not parts:
        parts = [parsed_line.text]
    needs = None
    if parts:
        unique_parts = tuple(dict.fromkeys(parts))
        total = max(len([1 for program in parsed_line.programs if program.words]), len(unique_parts))
        needs = MissingPermissions(
            parts=unique_parts, of=total, reach=checker.reach, leaves=checker.leaves_scope, unclear=unclear
        )
    return CommandCheck(needs, tuple(checker.rules), checker.forbidden_by, checker.doubts)


class _CommandChecker:
    """A checker that follows the programs of a line in order, tracking the folders that may be current."""

    reach: AccessedPath | None = None
    leaves_scope = False
    forbidden_by: Rule | None = None
    doubts = False
    _has_moved = False
    """True after a `cd`, even one that stays in the same folder."""
    _has_odd_cd = False
    """True after a `cd` that contains a variable, an escape or a quote inside a word."""
    _has_pipe = False
    _gets_file_list = False
    """True if the input of the current command is a list of files in the session's folders."""
    _pipes_file_list = False
    """The same for the command after it."""
    _has_moved_by_name = True
    """True unless a `cd` names the current folder in another way than by its path, or has other blanks."""

    def __init__(self, scope: PathScope, allowed: AllowedActions, *, sets_variables: bool) -> None:
        self._start_scope, self._allowed = scope, allowed
        self._sets_variables = sets_variables
        """True if the line sets variables for its commands, so that only a rule can allow them."""
        self._state = LineState(scope, allows_parents=allowed.parents)
        self.parts: list[str] = []
        self.rules: list[Rule] = []
        self._writes: list[str] = []
        """The commands that change files. They need approval if the line also changes the current folder."""
        self._repository_commands: list[str] = []
        """The commands of git and similar programs. They need approval if `cd` leads to another folder."""
        self._repository_writes: list[str] = []
        """The commands that may create a part of a repository here. They need approval if the line also runs git."""
        self._relative_reads: list[str] = []
        """The commands that read files by relative paths."""
        self._relative_inputs: list[str] = []
        """The commands whose input is a file with a relative path."""

    def check_program(self, program: Program) -> None:
        inner = strip_wrappers(program)
        name = inner.name
        self._has_pipe = self._has_pipe or program.ended_by in ("|", "|&")
        if program.variables:
            self._state.record_variables(program)
        if self._allowed.forbidden_files is not None:
            self._check_forbidden_files(program, inner, self._allowed.forbidden_files)
            self._state.record_folders(inner)
        if self._allowed.denies_reading and program.name == "xargs" and len(program.words) > 1:
            # The file names come from standard input.
            self.doubts = self.doubts or name not in PRINTING_PROGRAMS
        for redirect in program.redirects:
            self._check_redirect(program, redirect)
        self._check_pipe(program, inner)
        if not program.words:
            if not all(map(is_free_variable, program.variables)) or len(program.variables) > 1:
                self._require_approval(" ".join(f"{variable}=" for variable in program.variables))
            elif program.redirects:
                self._require_approval(" ".join(f"{item.operator} {item.target.text}" for item in program.redirects))
            return
        rule = self._allowed.find_rule(program)
        if name in _CREATING_PROGRAMS:
            self._note_repository_parts(program, find_targets(inner, inner.words[1:]))
        is_unclear = name in TRANSPARENT_WRAPPERS and is_unclear_wrapper(inner)
        is_odd = inner is not program and _is_oddly_timed(program, inner)
        if not name or name in _EVALUATING_BUILTINS or is_unclear or is_odd:
            self._require_approval(program.text)
        elif rule is not None and not _ODD_NAME.search(name):
            self.rules.append(rule)
            self._check_granted(program, inner, rule.content or "")
        elif (program.variables and not has_harmless_variables(program)) or not self._is_understood(program, inner):
            self._require_approval(program.text)

    def finish(self, line: str) -> None:
        """Require approval for the writes of a line that also changes the current folder, for reads by relative paths
        if rules deny reading, and for files that may make git treat the folder as a repository.
        """
        if self._repository_commands:
            self.parts.extend(self._repository_writes)
        if not self._has_moved:
            return
        if not self._allowed.parents and line.startswith(f"cd {self._start_scope.cwd} && \\\n"):
            self._require_approval(line)  # for the client, the line begins with the escaped line break
        is_elsewhere = len(self._state.scopes) != 1
        is_uncertain = not self._allowed.parents and not _CHAIN_AFTER_CD.fullmatch(line)
        # In a line with pipes, the client ignores a `cd` to the current folder only at the beginning.
        is_ignored = self._has_moved_by_name and (
            not self._has_pipe or line.startswith(f"cd {self._start_scope.cwd} && ")
        )
        if is_elsewhere or (self._has_odd_cd and self._has_pipe):
            self.parts.extend(self._repository_commands)
        if is_elsewhere or is_uncertain:
            self.parts.extend(self._relative_inputs)
        if is_elsewhere or (is_uncertain and not is_ignored):
            asks = self._allowed.denies_reading and not self._allowed.parents
            self.parts.extend((*self._writes, *(self._relative_reads if asks else ())))

    def _require_approval(self, text: str, reach: AccessedPath | None = None) -> None:
        self.parts.append(text)
        self.reach = self.reach or reach

    # Programs

    def _check_granted(self, program: Program, inner: Program, pattern: str) -> None:
        """Check a program that a rule allows."""
        if inner.name in DECLARATIONS and not program.text.startswith(inner.name):
            self._require_approval(program.text)  # a quoted or wrapped declaration may hide the variable that it sets
        base = program_basename(inner.name)
        if base == "env" or (base != inner.name and base in TRANSPARENT_WRAPPERS):
            self._check_granted_wrapper(program, inner)
        if strip_wrappers(program, through_xargs=False).name == "xargs":
            if may_gain_script(inner):
                self._require_approval(program.text)
            if ShellWord("git") in program.words:
                self._repository_commands.append(program.text)
            if program.name == "xargs" and pattern.startswith("xargs"):
                return
        if inner.name == "git":
            self._repository_commands.append(program.text)  # another folder may belong to another repository
            if ShellWord("diff") in inner.words[1:4]:
                self._note_relative_reads(program, [word for word in inner.words[2:] if word.text[:1] != "-"])
                for word in filter(self._is_outer_path, inner.words[1:]):
                    self._check_read(program, "git", word)
        if exceeds_rule(inner):
            self._require_approval(program.text)
        self._check_granted_files(program, inner)

    def _check_granted_wrapper(self, program: Program, wrapper: Program) -> None:
        """Check the program run by `env` or by a wrapper given by path, such as `/usr/bin/nice`.

        A rule for the wrapper covers the program, but not files outside the session's folders.
        """
        expanded = expand_wrappers(LinePrograms(wrapper.text, (wrapper,)))
        for entry in expanded.programs:
            name, *words = entry.program.words or (ShellWord(""),)
            bare = replace(name, text=program_basename(name.text))
            inner = strip_wrappers(replace(entry.program, words=(bare, *words)))
            base = inner.name
            if base == "env" and not _ENV_OPTIONS.match(" ".join(word.text for word in inner.words[1:])):
                self._require_approval(program.text)
            if base in _EVALUATING_BUILTINS or base in PROGRAM_STARTERS or is_unclear_wrapper(inner):
                self._require_approval(program.text)
            if inner.name == "git":
                self._repository_commands.append(program.text)
            if inner.name == "sed":
                self._writes.append(program.text)  # the client does not read the script inside these wrappers
            if entry.wrappers:
                self._check_granted_files(program, inner)

    def _check_granted_files(self, program: Program, inner: Program) -> None:
        """Check the files of a program that a rule allows. The rule covers only files in the session's folders."""
        if inner.name in ("cd", "pushd", "popd"):
            if not self._follow_cd(inner, is_bare=inner is program):
                self._require_approval(program.text)
            return
        arguments = inner.arguments
        if arguments.spec is None or arguments.spec.only:
            return
        values = values_taken_for_files(inner, arguments)
        self._note_relative_reads(program, values)
        changed = find_changed(inner, arguments)
        if changed or (arguments.spec.edits and (arguments.unknown is not None or not arguments.read)):
            self._writes.append(program.text)
        files = find_granted_files(inner, arguments, arguments.spec)
        late = () if self._allowed.parents else find_late_options(inner, arguments.spec)
        may_read = not late and (arguments.read or inner.name == "jq")
        if may_read and not self._allowed.parents and has_parent_after_operand(inner.words[1:]):
            files = None
        if files is None:
            self._require_approval(program.text)
            return
        self._note_relative_reads(program, files)
        changes_late = inner.name in TARGET_EDITORS or inner.name == "sed"
        for word in (*files, *values, *late):
            is_target = word in changed or (changes_late and word in late)
            check = self._check_change if is_target else self._check_read
            if not check(program, inner.name, word):
                return

    def _is_understood(self, program: Program, inner: Program) -> bool:
        """Return whether a program without a rule is understood: its name, its wrappers and all its arguments.

        If it is, require approval for the files that need it. Otherwise, the caller requires approval.
        """
        if self._sets_variables:
            return False
        if inner is not program:
            inner = strip_wrappers(program, through_xargs=False)
        if program.redirected_first and (inner is not program or program.variables):
            return False  # the client does not look for a program after these
        if inner is not program:
            if not is_understood_wrapper(program, inner):
                return False
            is_timed = ShellWord("timeout") in program.words[: -len(inner.words)]
            if inner.name in (_SHELL_BUILTINS if is_timed else ("[",)):
                return False  # the client treats `[` as shell syntax
        if inner.name == "cd":
            return self._follow_cd(inner, is_bare=inner is program) and not program.variables
        arguments = inner.arguments
        if arguments.unknown is not None and self._allowed.parents:
            arguments = read_arguments(f"{inner.name}@2.0", inner.words[1:])
        if self._start_scope.program_folders and self._starts_own_program(program, inner):
            return False
        if arguments.unknown is not None or arguments.spec is None:
            return False
        return self._check_known(program, inner, arguments, arguments.spec)

    def _starts_own_program(self, program: Program, inner: Program) -> bool:
        """Return whether a program may be in a folder of the session, so that the session may have written it."""
        names = {program.name, inner.name, *(word.text for word in inner.words[1:] if inner.name == "xargs")}
        folders = self._start_scope.program_folders
        return any(os.path.lexists(f"{folder}/{name}") for folder in folders for name in names)

    def _check_known(self, program: Program, inner: Program, arguments: Arguments, spec: ProgramSpec) -> bool:
        """Check the files of a program whose arguments are understood. Return False if it needs approval as a whole."""
        if spec.bare and (program.variables or program.redirected_first or not is_plainly_spelled(program, inner)):
            return False
        if has_misread_words(program, inner, spec, allows_parents=self._allowed.parents):
            return False
        name = inner.name
        if name in _REPOSITORY_PROGRAMS:
            if not self._is_in_own_repository():
                return False
            self._repository_commands.append(program.text)  # a `cd` elsewhere in the line may come first
        if arguments.changed or "write*" in spec.roles:
            changed = find_targets(inner, find_changed(inner, arguments))
            self._writes.append(program.text)
            is_bare = inner is program and not program.variables and not program.redirected_first
            is_plain = is_bare and is_plain_edit(program, changed)
            free = spec.edits and is_plain and self._allowed.edits
            for word in changed:
                if not self._check_change(program, name, word, free=free):
                    break
            return free or bool(changed)
        words = [*arguments.read, *values_taken_for_files(inner, arguments)]
        if self._reads_unnamed_files(inner, words):
            return False
        self._note_relative_reads(program, words)
        if name == "git" and inner.words[1].text == "diff":
            self._note_relative_reads(program, [word for word in inner.words[2:] if word.text[:1] != "-"])
            words += filter(self._is_outer_path, inner.words[2:])
        for word in words:
            if word.text != "-" and not self._check_read(program, name, word):
                break
        return True

    def _reads_unnamed_files(self, program: Program, words: Sequence[ShellWord]) -> bool:
        """Return whether a program may read files that nobody checked: names from a pipe, links, denied files in git.

        A list of files in the session's folders is a checked source of names.
        """
        forbidden_files = self._allowed.forbidden_files
        if forbidden_files is not None and forbidden_files.denies_reading and shows_any_file(program):
            return True
        if program.name == "xargs":
            reader = next((word.text for word in program.words[1:] if word.text in _XARGS_READERS), None)
            return reader is not None and program.has_stdin and not self._gets_file_list
        if follows_links(program):
            folders = [path for word in words for path in self._state.resolve_paths(word) or ()]
            return any(map(self._start_scope.may_lead_outside, folders))
        return False

    def _note_relative_reads(self, program: Program, words: Sequence[ShellWord]) -> None:
        if not self._allowed.denies_reading:
            return
        if any(not word.text.startswith(("/", "~", "$HOME/")) and word.text != "$HOME" for word in words):
            self._relative_reads.append(program.text)

    def _note_repository_parts(self, program: Program, words: Sequence[ShellWord]) -> None:
        """Record a command if it may create a file that makes git treat the current folder as a repository."""
        folder = self._start_scope.cwd.rstrip("/") + "/"
        for word in words:
            path = self._start_scope.absolute_path(word.text).casefold()
            name = path.removeprefix(folder.casefold()).partition("/")[0]
            if name in _REPOSITORY_PARTS or path.endswith("/head"):
                self._repository_writes.append(program.text)

    def _is_in_own_repository(self) -> bool:
        """Return whether the current folder certainly belongs to the repository in which the session started."""
        return len(self._state.scopes) == 1 and self._start_scope.is_own_repository()

    def _is_outer_path(self, word: ShellWord) -> bool:
        """Return whether an argument of git may be a path outside the repository instead of a revision."""
        if word.text[:1] in ("/", "~", "$", "=") or "../" in word.text or word.text == "..":
            return True
        return self._start_scope.leads_outside(self._start_scope.absolute_path(word.text))

    def _check_read(self, program: Program, name: str, word: ShellWord) -> bool:
        """Check a file that a program reads. If it needs approval, record that and return False."""
        paths = self._state.resolve_paths(word)
        if paths is None:
            self._require_approval(program.text)
            return False
        for path in paths:
            if not self._is_readable(path):
                self._require_approval(program.text, AccessedPath(name, path, inside=False))
                return False
        return True

    def _check_change(self, program: Program, name: str, word: ShellWord, *, free: bool = True) -> bool:
        """Check a file that a program changes. If it needs approval, record that and return False."""
        paths = self._state.resolve_target(word)
        if paths is None:
            self._require_approval(program.text)
            return False
        for path in paths:
            inside = self._start_scope.contains_path(path)
            if not inside or self._start_scope.is_protected(path) or not free:
                self._require_approval(program.text, AccessedPath(name, path, inside=inside))
                return False
        return True

    def _follow_cd(self, program: Program, *, is_bare: bool) -> bool:
        """Make the target of `cd` one of the folders that may be current. Return whether it is understood."""
        is_bare = is_bare and not program.variables and not program.redirects
        arguments = program.arguments
        target = program.words[1] if len(program.words) > 1 else ShellWord("~", has_expansion=True)
        is_second, self._has_moved = self._has_moved, True
        is_piped = program.has_stdin or program.ended_by in ("|", "|&")
        written = program.spelling or program.text
        self._has_moved_by_name = written == f"cd {self._start_scope.cwd}" and not is_piped
        self._has_odd_cd = self._has_odd_cd or not _PLAIN_CD.fullmatch(program.text)
        if len(program.words) == 2 and target.text == "-" and not is_second:
            self._state.scopes = ()
            return True
        paths = self._state.resolve_paths(target) if arguments.unknown is None else None
        if paths is None or is_second:  # a second `cd` starts at an uncertain folder
            self._state.scopes = ()
            return False
        # The client compares spellings: the same folder in another spelling is another folder.
        is_other_spelling = target.text[:1] in ("", "~") or target.text[:2] == ".." or target.may_split
        if paths != [self._start_scope.cwd] or is_other_spelling or not is_bare:
            self._state.scopes = (self._start_scope, *(replace(self._start_scope, cwd=path) for path in paths))
        outside = next((path for path in paths if not self._is_readable(path)), None)
        if outside is not None:
            self.leaves_scope = True
            self._require_approval(program.text, AccessedPath("cd", outside, inside=False))
        return True

    def _is_readable(self, path: str) -> bool:
        scope = self._start_scope
        return scope.contains_path(path, reading=True) or self._allowed.can_read(scope, path)

    # Redirects

    def _check_redirect(self, program: Program, redirect: Redirect) -> None:
        if is_stream_or_null(redirect):
            return
        kind, target = redirect.operator.lstrip("0123456789"), redirect.target
        if target.text[:1] == "!" or "\n" in target.text:  # zsh treats `!` as an option of the redirect
            self._require_approval(program.text or target.text)
        if kind in ("<", "<&"):
            text = program.text or "< " + target.text
            if program.name == "cd":
                self._require_approval(text)
            if target.text[:1] not in ("/", "~", "$"):
                self._relative_inputs.append(text)
            paths = None if re.search(r"[*?\[{}$`]", target.text) else self._state.resolve_paths(target)
            if paths is None or any(path.startswith(("/dev/tcp", "/dev/udp")) for path in paths):
                self._require_approval(text)
            for path in paths or ():
                if not self._is_readable(path):
                    self._require_approval(text, AccessedPath(program_basename(program.name), path, inside=False))
        else:
            self._check_output_redirect(program, redirect)

    def _check_output_redirect(self, program: Program, redirect: Redirect) -> None:
        scope, target = self._start_scope, redirect.target
        text = f"{program.text} {redirect.operator} {target.text}".strip()
        is_plain = bool(target.text) and not target.has_expansion and not re.search(r"[*?\[$`]", target.text)
        paths = self._state.resolve_target(target) if is_plain else None
        self._writes.append(text)
        self._note_repository_parts(program, (target,))
        if paths is None:
            self._require_approval(text)
            return
        for path in paths:
            inside, protected = scope.contains_path(path), scope.is_protected(path)
            free = (self._allowed.edits or self._allowed.redirects) and inside
            if protected or not (free or self._allowed.can_write(scope, path)):
                self._require_approval(text, AccessedPath(None, path, inside=inside))

    # Pipes

    def _check_pipe(self, program: Program, inner: Program) -> None:
        """Record whether the input of this command, and that of the next one, is a list of files."""
        if not self._has_pipe:
            return
        is_redirected = program.stdin_text is not None or any("<" in item.operator for item in program.redirects)
        self._gets_file_list = self._pipes_file_list and not is_redirected
        is_piped = program.ended_by == "|"
        self._pipes_file_list = is_piped and (lists_files(inner) or (self._gets_file_list and selects_lines(inner)))

    # Denied files

    def _check_forbidden_files(self, program: Program, inner: Program, forbidden_files: ForbiddenFiles) -> None:
        """Look for a rule that denies a file which the program, or the program inside its wrappers, may open."""
        base = program_basename(inner.name)
        editor = base.lower()  # the client ignores the case
        if editor in TARGET_EDITORS and editor != inner.name:
            inner = replace(inner, words=(ShellWord(editor), *inner.words[1:]))
        arguments = read_arguments(base, inner.words[1:]) if "/" in inner.name else inner.arguments
        seen: set[tuple[str, bool, bool]] = set()
        is_sed = forbidden_files.sed_changes and inner.name == "sed"
        for word, may_change in find_candidates(program, inner, arguments):
            changes = may_change or is_sed
            key = (word.text, word.has_expansion, changes)
            if key in seen:
                continue
            seen.add(key)
            text = self._state.substitute_variables(word)
            if text is None:
                may_deny = changes or forbidden_files.denies_reading
                if may_deny and arguments.spec is not None and not word.text.startswith(("<(", ">(")):
                    self.doubts = True
                continue
            if self._state.is_folder_unknown and text[:1] not in ("/", "~"):
                self.doubts = self.doubts or forbidden_files.names.match(text.rpartition("/")[2]) is not None
            for path in self._state.possible_files(text, expands=word.has_expansion):
                if self.forbidden_by is None and self._start_scope.matches_any_name(path, forbidden_files.pattern):
                    self.forbidden_by = forbidden_files.find_rule(self._start_scope, path, changes)
        if forbidden_files.denies_reading and arguments.spec is not None and searches_folders(inner):
            folders = [word for word in arguments.files("read", "ref") if word.text[:1] != "~"]
            for text, expands in {(word.text, word.has_expansion) for word in folders}:
                for path in self._state.possible_files(text, expands=expands):
                    self.doubts = self.doubts or self._start_scope.may_contain(path, forbidden_files.pattern)
