"""Check command lines: the rules that match their commands, and the files that they access.

`matches_any_command` is for deny and ask rules. It matches a command in every form, even inside a
wrapper or a script or with another path, and searches lines that cannot be parsed as plain text.
`check_command` is for everything else: it follows the programs in a line in order and collects the
parts that need approval.
"""

from __future__ import annotations

import glob
import itertools
import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from toolspan.runtime.permissions.paths import PathScope
from toolspan.runtime.permissions.rule import Rule, matches_command
from toolspan.shell.arguments import CHANGING_PROGRAMS, READING_PROGRAMS, FileArguments, find_file_arguments
from toolspan.shell.program import LinePrograms, Program, program_basename
from toolspan.shell.programs import find_programs
from toolspan.shell.readonly import READ_ONLY_PROGRAMS, is_read_only_program
from toolspan.shell.words import Redirect, ShellWord, is_harmless_variable, is_influential_variable
from toolspan.shell.wrappers import SHELLS, ExpandedLine, expand_wrappers, strip_wrappers
from toolspan.types.decision import AccessedPath, MissingPermissions

_SEPARATOR = r"(?:[\"'\\`(){};&|]|\$\()"
_SEPARATORS = re.compile(_SEPARATOR)
_QUOTE_CHARACTERS = re.compile(r"[\"'\\]")


@lru_cache(maxsize=256)
def expand_command_line(line: str) -> ExpandedLine:
    """Return all programs that a line may run, directly or through wrappers."""
    return expand_wrappers(find_programs(line))


@lru_cache(maxsize=256)
def _command_forms(line: str) -> tuple[str, ...]:
    """Return the commands in a line, in all forms that a rule may match."""
    forms = [line.strip()]
    for entry in expand_command_line(line).programs:
        tokens = entry.program.words
        if tokens:
            text, name = entry.program.text, tokens[0].text
            forms.append(text)
            unquoted = " ".join([word.text for word in tokens])
            if unquoted != text:
                forms.append(unquoted)
            if "/" in name:
                forms.append(program_basename(name) + unquoted[len(name) :])
    return tuple(forms)


def cannot_match_prefixes(line: str, prefixes: tuple[str, ...]) -> bool:
    """Return True only if no command in a line can match a pattern with one of these prefixes."""
    if expand_command_line(line).uncertainties:
        return False
    if "$'" not in line and "\\\n" not in line and not _contains_any(_first_tokens(prefixes), line):
        return True
    return not [form for form in _command_forms(line) if form.startswith(prefixes)]


def _contains_any(tokens: tuple[str, ...], line: str) -> bool:
    """Return whether a line contains one of the tokens, even if quotes split it."""
    if "'" in line or '"' in line or "\\" in line:
        line = _strip_quotes(line)
    for word in tokens:  # noqa: SIM110 - faster than any()
        if word in line:
            return True
    return False


@lru_cache(maxsize=64)
def _first_tokens(prefixes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the first word of each prefix, cut at the first quote."""
    return tuple(_QUOTE_CHARACTERS.split(" ".join(prefix.split()[:1]), maxsplit=1)[0] for prefix in prefixes)


def matches_any_command(line: str, pattern: str) -> bool:
    """Return whether a command in a line matches `pattern`, or may match if the line cannot be parsed completely."""
    if any(matches_command(form, pattern) for form in _command_forms(line)):
        return True
    return bool(expand_command_line(line).uncertainties) and matches_text(line, pattern)


def matches_text(text: str, pattern: str) -> bool:
    """Return whether `text` contains the fixed words at the start of a pattern.

    The words may be separated by blanks, quotes or operators, and may contain quotes.
    """
    prefix = _fixed_prefix(pattern)
    if prefix is None or (prefix.first in text and prefix.matches_loosely(text)):
        return True
    bare = _strip_quotes(text)
    return prefix.first in bare and prefix.pattern.search(bare) is not None


class _FixedPrefix(Struct, frozen=True):
    """The fixed words at the start of a pattern."""

    first: str
    pattern: re.Pattern[str]
    """A pattern that matches the words with blanks between them."""
    loose_pattern: re.Pattern[str] | None
    """A pattern that also allows quotes and operators between the words; None if the words themselves contain any."""

    def matches_loosely(self, text: str) -> bool:
        if self.loose_pattern is not None:
            return self.loose_pattern.search(text) is not None
        return any(self.pattern.search(candidate) for candidate in (text, _SEPARATORS.sub(" ", text)))


@lru_cache(maxsize=256)
def _fixed_prefix(pattern: str) -> _FixedPrefix | None:
    head = pattern.partition("*")[0].removesuffix(":").split()
    if not head:
        return None
    signs = any("$" in word or _SEPARATORS.search(word) for word in head)
    loose_pattern = None if signs else _sequence_pattern(head, rf"(?:\s|{_SEPARATOR})+")
    return _FixedPrefix(head[0], _sequence_pattern(head, r"\s+"), loose_pattern)


def _sequence_pattern(tokens: list[str], between: str) -> re.Pattern[str]:
    first, *rest = map(re.escape, tokens)
    # perf: the lookbehind follows the first word, so that the regex engine searches for the word
    return re.compile(between.join([rf"{first}(?<![\w.-]{first})", *rest]) + r"(?![\w-])")


@lru_cache(maxsize=16)
def _strip_quotes(text: str) -> str:
    return text.replace('"', "").replace("'", "").replace("\\", "")


def may_hide_match(line: str, patterns: list[str]) -> bool:
    """Return whether a line may contain a matching command that the parser did not find."""
    unfolded = expand_command_line(line)
    if unfolded.uncertainties or not unfolded.code:
        return bool(unfolded.uncertainties)
    return any(matches_text(code, pattern) for code in unfolded.code for pattern in patterns)


def matches_program(program: Program, pattern: str) -> bool:
    """Return whether a pattern matches a program as written, or inside a transparent wrapper."""
    inner = strip_wrappers(program)
    if matches_command(program.text, pattern):
        return True
    return inner is not program and matches_command(inner.text, pattern)


_SHELL_BUILTINS = frozenset({
    ":", "[", "[[", "break", "continue", "exit", "export", "local", "declare", "readonly", "return",
    "shift", "true", "typeset", "unset", "wait",
})  # fmt: skip
"""Shell builtins that are harmless unless they set an influential variable."""
_CHECKED_PROGRAMS = (
    _SHELL_BUILTINS | READ_ONLY_PROGRAMS | READING_PROGRAMS.keys() | CHANGING_PROGRAMS.keys() | {"cd", "read"}
)
"""All programs that may run without an allow rule."""
_EDIT_PROGRAMS = frozenset({"cp", "mkdir", "mv", "rm", "rmdir", "sed", "touch"})
"""Programs that count as edits in `acceptEdits` mode."""
_EXACT_ONLY = frozenset({"eval", "flock", "ionice", "setsid", "watch", *SHELLS})
"""Programs that run other programs, so that an allow rule with a `*` does not suffice for them."""
_NON_FILE_PROGRAMS = frozenset({"cd", "echo", "printf"})
"""Programs whose arguments are not files to read."""
_STANDARD_STREAMS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})
_MAX_GLOB_FILES = 1_000
"""The maximum number of files to which a pattern is expanded."""
_BRACES = re.compile(r"\{([^{}]*(?:,|\.\.)[^{}]*)\}")
"""Innermost braces, which can be expanded independently of enclosing ones."""
_MAX_BRACES = 20
_PRESET_VARIABLES = ("HOME", "PWD")
"""Variables that are set before the line runs."""
_DESCRIPTOR_TARGET = re.compile(r"\d+-?|-")
_VARIABLE_REFERENCE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII)


class ForbiddenFiles(Struct, frozen=True):
    """The files that rules deny."""

    pattern: re.Pattern[str]
    """A pattern that matches all paths that rules deny reading or changing."""
    find_rule: Callable[[PathScope, str, bool], Rule | None]
    """A function that returns the rule that denies reading (False) or changing (True) a file."""


class AllowedActions(Struct, frozen=True):
    """The actions of a command line that need no approval."""

    find_rule: Callable[[Program], Rule | None]
    """A function that returns the rule that allows a program."""
    can_write: Callable[[PathScope, str], bool]
    """A function that returns whether a rule allows changing a file."""
    can_read: Callable[[PathScope, str], bool]
    """A function that returns whether a rule allows reading a file."""
    forbidden_files: ForbiddenFiles | None
    edits: bool = False
    """True if files in the session's folders may be changed."""
    redirects: bool = False
    """True if output may be redirected to files in the session's folders."""


class CommandCheck(Struct, frozen=True):
    """The result of checking a line. The line may run without approval if `needs` is None."""

    needs: MissingPermissions | None
    used_rules: tuple[Rule, ...] = ()
    """The rules that allowed a program."""
    forbidden_by: Rule | None = None
    """The rule that denies a file in the line, if any."""


def check_command(parsed_line: LinePrograms, scope: PathScope, allowed: AllowedActions) -> CommandCheck:
    """Check a line and return the parts of it that need approval."""
    checker = _CommandChecker(scope, allowed)
    for program in parsed_line.programs:
        checker.check_program(program)
    parts = checker.parts
    if parsed_line.uncertainties and not parts:
        parts = [parsed_line.text]
    if not parts:
        return CommandCheck(None, tuple(checker.rules), checker.forbidden_by)
    unique_parts = tuple(dict.fromkeys(parts)) if len(parts) > 1 else tuple(parts)
    total = max(len([1 for program in parsed_line.programs if program.words]), len(unique_parts))
    needs = MissingPermissions(parts=unique_parts, of=total, reach=checker.reach, leaves=checker.leaves_scope)
    return CommandCheck(needs, tuple(checker.rules), checker.forbidden_by)


class _CommandChecker:
    """A checker that follows the programs of a line in order, tracking the current folder and variables."""

    __slots__ = (
        "_allowed",
        "_cwd_unknown",
        "_find_rule",
        "_forbidden_files",
        "_scope",
        "_start_scope",
        "_values",
        "forbidden_by",
        "leaves_scope",
        "parts",
        "reach",
        "rules",
    )  # fmt: skip

    def __init__(self, scope: PathScope, allowed: AllowedActions) -> None:
        self._scope, self._start_scope, self._allowed = scope, scope, allowed
        self._find_rule, self._forbidden_files = allowed.find_rule, allowed.forbidden_files
        self._cwd_unknown = False
        self._values: dict[str, str | None] = {}
        self.parts: list[str] = []
        self.rules: list[Rule] = []
        self.reach: AccessedPath | None = None
        self.leaves_scope = False
        self.forbidden_by: Rule | None = None

    def check_program(self, program: Program) -> None:
        if program.variables:
            self._record_variables(program)
        if self._forbidden_files is not None:
            self._check_forbidden_files(program, self._forbidden_files)
        if program.redirects:
            self._check_redirects(program)
        if not program.words:
            if any(map(is_influential_variable, program.variables)):
                self._require_approval(" ".join(f"{name}=" for name in program.variables))
            return
        rule = self._find_rule(program)
        if rule is not None:
            self.rules.append(rule)
            self._track_cwd(program)
        elif (program.variables and not _has_harmless_variables(program)) or not self._is_allowed(
            strip_wrappers(program)
        ):
            self._require_approval(program.text)

    def _require_approval(self, text: str, reach: AccessedPath | None = None) -> None:
        self.parts.append(text)
        self.reach = self.reach or reach

    def _record_variables(self, program: Program) -> None:
        if program.words and program.name not in _SHELL_BUILTINS:
            return
        for name, value in zip(program.variables, program.values, strict=False):
            text = None if value.has_substitution else self._substitute_variables(value)
            self._values[name] = None if name in self._values or name in _PRESET_VARIABLES else text

    def _check_forbidden_files(self, program: Program, forbidden_files: ForbiddenFiles) -> None:
        """Look for a rule that denies a file mentioned by the program."""
        candidates = arguments = program.words[1:] if program.name not in _NON_FILE_PROGRAMS else ()
        targets = program.redirects
        if targets:
            targets = tuple(redirection for redirection in targets if not _is_descriptor(redirection))
        if targets or program.loop_values:
            candidates = (*program.loop_values, *arguments, *[redirection.target for redirection in targets])
        names, open_ended = _literal_names(candidates)
        near_names = self._scope.select_near(names, forbidden_files.pattern) if names else set()
        if not near_names and not open_ended:
            return
        for word in program.loop_values:
            self._check_word(word, near_names, changes=False)
        self._check_arguments(program.name, arguments, near_names)
        for redirect in targets:
            self._check_word(redirect.target, near_names, changes=">" in redirect.operator)

    def _check_arguments(self, name: str, arguments: tuple[ShellWord, ...], near_names: set[str]) -> None:
        files = find_file_arguments(program_basename(name), arguments)
        changed = files.changed if files is not None else ()
        for word in arguments:
            self._check_word(word, near_names, changes=word in changed)
            if "=" in word.text:
                value = ShellWord(word.text.partition("=")[2], word.has_expansion)
                self._check_word(value, near_names, changes=False)

    def _check_word(self, word: ShellWord, near_names: set[str], *, changes: bool) -> None:
        """Check a word that the shell expands or that may refer to a denied file."""
        if self._forbidden_files is None or not (word.has_expansion or word.text in near_names):
            return
        text = self._substitute_variables(word)
        if not text or self.forbidden_by is not None:
            return
        for path in self._possible_files(text, pattern=word.has_expansion):
            self.forbidden_by = self.forbidden_by or self._forbidden_files.find_rule(self._start_scope, path, changes)

    def _possible_files(self, text: str, *, pattern: bool) -> list[str]:
        """Return the files that a word may refer to, expanding patterns on disk."""
        if not pattern:
            return self._scope.possible_paths(text)
        paths: list[str] = []
        for alternative in itertools.islice(expand_braces(text), _MAX_GLOB_FILES):
            paths += self._scope.possible_paths(alternative)
            if re.search(r"[*?\[]", alternative):
                matches = glob.iglob(paths[-1], include_hidden=True)  # noqa: PTH207 - absolute, lazily
                paths += itertools.islice(matches, _MAX_GLOB_FILES)
        return paths

    # Programs

    def _is_allowed(self, program: Program) -> bool:
        name = program.name
        if name not in _CHECKED_PROGRAMS:
            return False
        if name == "cd":
            return self._check_cd(program)
        if name in _SHELL_BUILTINS:
            return not any(map(is_influential_variable, program.variables))
        arguments = program.words[1:]
        if [1 for word in arguments if word.has_expansion]:
            arguments = tuple(map(self._expand_word, arguments))
        if name == "read":
            return _only_reads_lines(arguments)
        files = find_file_arguments(name, arguments)
        if is_read_only_program(name, arguments) and not (name == "git" and self._scope.cwd != self._start_scope.cwd):
            return files is None or self._check_reads(name, program, files)
        if files is not None and files.changed:
            return self._check_changes(name, program, files)
        return False

    def _check_reads(self, name: str, program: Program, files: FileArguments) -> bool:
        for word in (*files.read, *files.changed):
            path = self._resolve_path(word)
            if path is None:
                self._require_approval(program.text)
                return True
            if not self._is_readable(path):
                self._require_approval(program.text, AccessedPath(name, path, inside=False))
                return True
        return True

    def _check_changes(self, name: str, program: Program, files: FileArguments) -> bool:
        """Check the files that a program changes, recording those that need approval. Return False if
        it changes none.
        """
        free = self._allowed.edits and name in _EDIT_PROGRAMS and _is_plain_sed(name, program)
        for word in files.changed:
            path = self._resolve_path(word)
            if path is None or _is_pattern(word):
                self._require_approval(program.text)
                return True
            inside = self._scope.contains_path(path)
            if not inside or self._scope.is_protected(path) or not free:
                self._require_approval(program.text, AccessedPath(name, path, inside=inside))
                return True
        return free

    def _check_cd(self, program: Program) -> bool:
        """Check `cd`, and make its target the current folder for the rest of the line."""
        arguments = [word for word in program.words[1:] if word.text not in ("--", "-P", "-L")]
        target = arguments[0] if arguments else ShellWord("~", has_expansion=True)
        path = None if target.text == "-" or len(arguments) > 1 else self._resolve_path(target)
        if path is None:
            self._cwd_unknown = True
            return False
        inside = self._is_readable(path)
        self._scope = replace(self._scope, cwd=path)
        if not inside:
            self.leaves_scope = True
            self._require_approval(program.text, AccessedPath("cd", path, inside=False))
        return True

    def _track_cwd(self, program: Program) -> None:
        """Follow a change of the current folder by a program that a rule allows."""
        if program.name == "cd":
            parts, reach, leaves_scope = list(self.parts), self.reach, self.leaves_scope
            self._check_cd(program)
            self.parts, self.reach, self.leaves_scope = parts, reach, leaves_scope
        elif program.name in ("pushd", "popd"):
            self._cwd_unknown = True

    # Paths

    def _resolve_path(self, word: ShellWord) -> str | None:
        """Return the path that a word refers to, or None if it depends on an expansion by the shell."""
        text = self._substitute_variables(word) if word.has_expansion or word.text[:1] == "~" else word.text
        if text is None or (self._cwd_unknown and not text.startswith(("/", "~"))):
            return None
        if text.startswith("~") and text[1:2] not in ("", "/"):
            return None
        cut = re.search(r"[*?\[{]", text) if word.has_expansion else None
        if cut:
            if ".." in text[cut.start() :] or "{" in text:
                return None
            text = text[: cut.start()].rpartition("/")[0] or ("/" if text[0] == "/" else ".")
        if ".." in text and not self._scope.is_unambiguous(text):
            return None
        return self._scope.absolute_path(text)

    def _expand_word(self, word: ShellWord) -> ShellWord:
        """Return a word with its variables replaced, or the word itself if a value is unknown."""
        text = self._substitute_variables(word) if word.has_expansion else None
        if not text or text[:1] == "-" or re.search(r"[*?\[{\s]", text):
            return word
        return ShellWord(self._scope.home + text[1:] if text[:1] == "~" else text)

    def _substitute_variables(self, word: ShellWord) -> str | None:
        """Return a word as a string with its variables replaced, or None if a value is unknown."""
        if not word.has_expansion:
            return word.text if word.text[:1] != "~" else "./" + word.text
        if word.has_substitution:
            return None
        missing = False

        def replace_variable(match: re.Match[str]) -> str:
            nonlocal missing
            variable_value = self._variable_value(match[1] or match[2])
            missing = missing or variable_value is None
            return variable_value or ""

        text = _VARIABLE_REFERENCE.sub(replace_variable, word.text)
        return None if missing or "$" in text or "`" in text else text

    def _variable_value(self, name: str) -> str | None:
        if name in _PRESET_VARIABLES and name not in self._values:
            return self._start_scope.home if name == "HOME" else self._start_scope.cwd
        return self._values.get(name)

    # Redirects

    def _check_redirects(self, program: Program) -> None:
        for redirect in program.redirects:
            if _is_descriptor(redirect):
                continue
            kind = redirect.operator.lstrip("0123456789")
            if kind in ("<", "<&"):
                self._check_input_redirect(program, redirect)
            elif redirect.target.text not in _STANDARD_STREAMS or redirect.target.has_expansion:
                self._check_output_redirect(program, redirect)

    def _check_input_redirect(self, program: Program, redirect: Redirect) -> None:
        path = self._resolve_path(redirect.target)
        text = program.text or "< " + redirect.target.text
        if path is None or path.startswith(("/dev/tcp", "/dev/udp")):
            self._require_approval(text)
        elif path != "/dev/null" and not self._is_readable(path):
            self._require_approval(text, AccessedPath(program_basename(program.name) or None, path, inside=False))

    def _is_readable(self, path: str) -> bool:
        return self._scope.contains_path(path, reading=True) or self._allowed.can_read(self._start_scope, path)

    def _check_output_redirect(self, program: Program, redirect: Redirect) -> None:
        text = f"{program.text} {redirect.operator} {redirect.target.text}".strip()
        path = None if redirect.target.has_expansion else self._resolve_path(redirect.target)
        if path is None:
            self._require_approval(text)
            return
        inside = self._scope.contains_path(path)
        protected = self._scope.is_protected(path)
        if self._allowed.can_write(self._start_scope, path) and not protected:
            return
        free = self._allowed.edits or self._allowed.redirects
        if not (free and inside) or protected:
            self._require_approval(text, AccessedPath(None, path, inside=inside))


def expand_braces(text: str) -> Iterator[str]:
    """Yield the strings to which braces expand: `{a,b}c` yields `ac` and `bc`, while `{1..9}` yields a pattern."""
    if text.count("{") > _MAX_BRACES:
        text = re.sub(r"\{.*\}", "*", text)
    match = _BRACES.search(text)
    if match is None:
        yield text
        return
    for alternative in match[1].split(",") if "," in match[1] else [_range_pattern(match[1])]:
        yield from expand_braces(text[: match.start()] + alternative + text[match.end() :])


def _range_pattern(inner: str) -> str:
    """Return a pattern that matches the values of `{a..c}` or `{1..9}`."""
    letters = re.fullmatch(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.-?\d+)?", inner)
    if letters is not None:
        return "[{}-{}]".format(*sorted(letters.groups()))
    return "[-0-9]*" if re.fullmatch(r"-?\d+\.\.-?\d+(?:\.\.-?\d+)?", inner) else "*"


def _literal_names(tokens: tuple[ShellWord, ...]) -> tuple[list[str], bool]:
    """Return the literal words and the values after `=`, and whether the shell expands any of the words."""
    names: list[str] = []
    open_ended = False
    for word in tokens:
        if word.has_expansion:
            open_ended = True
        else:
            names.append(word.text)
            if "=" in word.text:
                names.append(word.text.partition("=")[2])
    return names, open_ended


def _is_descriptor(redirect: Redirect) -> bool:
    """Return whether the redirect's target is another stream instead of a file."""
    if redirect.operator[-1] != "&":
        return False
    text = redirect.target.text
    return text in ("1", "2") or _DESCRIPTOR_TARGET.fullmatch(text) is not None


def _is_plain_sed(name: str, program: Program) -> bool:
    """Return whether the program is not `sed`, or its script only edits; other scripts can write files
    and run programs.
    """
    if name != "sed":
        return True
    scripts = [word.text for word in program.words[1:] if word.text[:1] != "-"][:1]
    return all(re.fullmatch(r"(\d+(,\d+)?)?(s(.).*\4.*\4[gI\d]*|d)", text) for text in scripts)


def _is_pattern(word: ShellWord) -> bool:
    return word.has_expansion and re.search(r"[*?\[{]", word.text) is not None


def _only_reads_lines(arguments: tuple[ShellWord, ...]) -> bool:
    """Return whether the arguments of `read` set only harmless variables."""
    for word in arguments:
        option = word.text[:1] == "-"
        if word.has_expansion or (not option and (is_influential_variable(word.text) or not word.text.isidentifier())):
            return False
        if option and not re.fullmatch(r"-[rs]+|-d|-n\d*|-t\d*|-a", word.text):
            return False
    return True


def _has_harmless_variables(program: Program) -> bool:
    """Return whether the variables set for a program do not affect its behaviour."""
    return program.name in _SHELL_BUILTINS or all(map(is_harmless_variable, program.variables))


def rule_suffices(pattern: str | None, program: Program) -> bool:
    """Return whether a rule is precise enough to allow a program. Programs that run others need a rule
    without `*`.
    """
    if pattern is None or "*" not in pattern:
        return True
    name = program_basename(program.name)
    if name in _EXACT_ONLY:
        return name in SHELLS and not _is_inline(program)
    tokens = {word.text for word in program.words}
    return not (name == "find" and tokens & {"-exec", "-execdir", "-ok", "-okdir", "-delete"})


def _is_inline(program: Program) -> bool:
    """Return whether a shell's script is part of the line or comes from its input."""
    options = [word.text for word in program.words[1:] if word.text[:1] == "-"]
    files = [word for word in program.words[1:] if word.text[:1] != "-"]
    inline = any("c" in option[1:] for option in options if option[:2] != "--")
    return inline or not files or program.has_stdin or any(word.has_substitution for word in files)
