"""Find removals and writes that are asked about although a rule allows the command.

Start at `find_dangerous_removal` and `find_protected_write`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from os.path import normpath

from toolspan.runtime.permissions.paths import PathScope, expand_glob, is_ambiguous, is_within, mentions_protected
from toolspan.runtime.permissions.patterns import expand_command_line
from toolspan.runtime.permissions.program_use import find_changed, find_targets, is_stream_or_null
from toolspan.shell.program import Program, bare_program_name, program_basename
from toolspan.shell.syntax import NO_OTHER_BLANKS
from toolspan.shell.words import ShellWord
from toolspan.shell.wrappers import ExpandedLine, strip_wrappers
from toolspan.types.decision import AccessedPath

_REMOVAL = re.compile(r"r[\"'\\\n]*m", re.IGNORECASE)
"""The beginning of `rm` or `rmdir`, with quotes or escapes inside."""
_REMOVAL_NAMES = frozenset({"rm", "rmdir"})
_REMOVAL_TEXT = re.compile(
    r"(?<![\w.@%+:,-])r[\"'\\]*m[\"'\\]*(?:d[\"'\\]*i[\"'\\]*r[\"'\\]*)?(?:\.exe[\"'\\]*)?"
    r"(?=[\s<>;&|)}`]|\Z)([^\n;&]*)",
    re.IGNORECASE,
)
"""A removal in a line that cannot be parsed, and the text after it."""
_REMOVAL_WORD = re.compile(r"(?<![\w.@:,-])rm(?:dir)?(?:\.exe)?(?![\w.@:-])", re.IGNORECASE)
_ACTIONS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_LIMITING_TESTS = frozenset({
    "-empty", "-iname", "-ipath", "-iregex", "-iwholename", "-name", "-path", "-regex", "-wholename",
})  # fmt: skip
_FOLDER_CHANGERS = frozenset({"cd", "chdir", "popd", "pushd"})
_FOLDER_CHANGE = re.compile(r"\b(?:cd|chdir|popd|pushd)\b")
_RELATIVE_CONTENT = re.compile(r"(?!/|~/).*/\*/*", re.DOTALL)
"""All files in a folder with a relative path. It is another folder after a `cd`, so removing them is asked about."""
_GLOB = re.compile(r"[*?\[]")
_SUBSTITUTION_START = re.compile(r"\$\(|`")
_DRIVE = re.compile(r"/(?:mnt|volumes)(?:/[^/]+){0,2}|/(?:run/)?media(?:/[^/]+){0,3}")
"""A mounted drive, a folder that holds drives, or a file at the top level of a drive."""
_SCRIPT_OPTION = re.compile(r"-[A-Za-z]*c[A-Za-z]*")
_UNREADABLE_OPTION = re.compile(r"(?!--)[-+][A-Za-z]*+[^A-Za-z]")
_SHELL_NAME = re.compile(r"sh(?:\.exe)?\s", re.IGNORECASE)
_SCRIPT_START = re.compile(r"\s-[A-Za-z]*c")
_SHELL_CALL = re.compile(r"(?<![\w.-])(?:ba|da|k|z)?sh(?:\.exe)?(?=\s)", re.IGNORECASE)
_STRING = re.compile(r"""\\.|"(?>(?:[^"\\]|\\.)*)"|\$'(?>(?:[^'\\]|\\.)*)'|'[^']*+'""", re.DOTALL)
_QUOTED_NAME = re.compile(r"['\"][\w./-]+['\"]")
_UNKNOWN_ESCAPE = re.compile(r"\\[xUc0-7]")
"""Escapes in `$'…'` that the client does not decode, so that the text may contain `rm`."""
_BLANK_ESCAPE = re.compile(r"\\[abefnrtv]")
_LETTER_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{1,4})")
_BRACED_REMOVAL = re.compile(
    r"(?<![\w.@:,-])(?:r\{(?:[^{}\s]*,)?m(?:,[^{}\s]*)?\}|\{(?:[^{}\s]*,)?r(?:,[^{}\s]*)?\}m)(?![\w.@:-])"
)
"""A pattern such as `r{m,x}`, which expands to `rm`."""
_UNREADABLE_PLACE = re.compile(
    r"(?<![\w-])(?:case|coproc|function|select)\s|(?<![\w-])alias\b|\$\{[#!]"
    r"|\([ \t]*\)|\(\(|(?:!|\btime)\s+[({]|[<>]\s*[^\s<>]++\s+\{|=\(|\]\+?="
    r"|[^\s$<>(;&|'\"`]\(|['\"]\*|\$['\"]|\$(?:\s|\Z)|\\(?:[ \t]|(?<![ \t]\\)\n|\n\s*\|)|(?<!\S)['\"]?=\w|\s=\w"
    r"|\{[^{}\s]*(?:,|\.\.)|['\"]-"
)
"""Text that keeps the client from reading a script for a shell."""

_VARIABLE_CHANGE = re.compile(r"(?<![\w-])(?:eval|getopts|let|mapfile|read|readarray|source|unset|\.)\s")
"""A command after which the values of variables in a script are unknown."""


def find_dangerous_removal(command: str, scope: PathScope, *, reads_scripts: bool) -> str | None:
    """Return the command in a line that could remove far more than is meant, or None.

    It could remove the project, the home folder, a root folder or a drive, or its target is known only when it runs.
    If `reads_scripts` is true, scripts for a shell that the client cannot read are also found.
    """
    if reads_scripts and ("$'" in command or "{" in command) and "sh" in command.lower():
        hidden = _find_hidden_script(command)
        if hidden is not None:
            return hidden
    if "-delete" in command:
        for entry in expand_command_line(command).programs:
            if _deletes_everything(entry.program, scope):
                return entry.program.text
    if not _REMOVAL.search(command):
        return None
    expanded = expand_command_line(command)
    programs = [entry.program for entry in expanded.programs]
    is_uncertain = bool(expanded.uncertainties)
    if is_uncertain:  # the parser may have read several commands as one
        parts = re.split(r"[\n;&|]", command)
        programs += [entry.program for part in parts for entry in expand_command_line(part).programs]
    changes_folder = any(program.name.lstrip("!") in _FOLDER_CHANGERS for program in programs) or (
        is_uncertain and _FOLDER_CHANGE.search(command) is not None
    )
    runs_programs = "-exec" in command or "-ok" in command
    for program in programs:
        texts = [word.text for word in program.words]
        start = _find_removal_after_action(texts) if runs_programs else 0
        is_removal = bool(texts) and _is_removal_name(texts[start])
        if is_removal and _has_dangerous_target(texts[start + 1 :], scope, changes_folder=changes_folder):
            return program.text
    if is_uncertain:
        is_open = "the line cannot be parsed" in expanded.uncertainties
        text = _find_in_text(command, scope, changes_folder=changes_folder, is_open=is_open)
        if text is not None:
            return text
    return _find_unreadable_script(command, programs) if reads_scripts else None


def _deletes_everything(program: Program, scope: PathScope) -> bool:
    """Return whether `find -delete` starts at a folder that must not be removed, without a test for names."""
    texts = [word.text for word in program.words]
    if program_basename(program.name) != "find" or "-delete" not in texts or not _LIMITING_TESTS.isdisjoint(texts):
        return False
    starts = list(itertools.takewhile(lambda text: text[:1] not in ("-", "(", "!"), texts[1:]))
    return any(is_critical(start, scope) for start in starts or ["."])


def _is_removal_name(name: str) -> bool:
    return name != "" and name[-1] in "mMrReE" and bare_program_name(name).casefold() in _REMOVAL_NAMES


def _find_removal_after_action(texts: Sequence[str]) -> int:
    """Return the index of a removal after `-exec` and similar actions, which not only `find` has, or 0."""
    action = next((at for at, text in enumerate(texts) if text in _ACTIONS), len(texts))
    return next((at for at in range(action + 1, len(texts)) if _is_removal_name(texts[at])), 0)


def _find_in_text(command: str, scope: PathScope, *, changes_folder: bool, is_open: bool) -> str | None:
    """Search a line that cannot be parsed completely for a dangerous removal.

    `is_open` is true if the line may end inside quotes.
    """
    for match in _REMOVAL_TEXT.finditer(command):
        if command[: match.start()].endswith("git "):
            continue
        text = match[1]
        if is_open and any(part.count(quote) % 2 for quote in "'\"" for part in (text, match[0])):
            return match[0]
        bare = text.replace("'", "").replace('"', "").rstrip(" \t)}`")
        arguments = [argument for argument in re.split(r"[\s<>]+", bare) if argument]
        if _has_dangerous_target(arguments, scope, changes_folder=changes_folder):
            return match[0]
    return None


def _has_dangerous_target(arguments: Sequence[str], scope: PathScope, *, changes_folder: bool) -> bool:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    targets = [argument for at, argument in enumerate(arguments) if argument[:1] != "-" or at > end]
    options = [argument for argument in arguments if argument[:1] == "-"]
    is_recursive = any("r" in option or "R" in option or "$" in option for option in options)
    for target in targets:
        for name in _possible_names(target):
            if is_critical(name, scope, is_recursive=is_recursive):
                return True
            if changes_folder and _RELATIVE_CONTENT.fullmatch(name):
                return True
            if _is_unresolved_content(name):
                return True
    return False


def _possible_names(target: str) -> Iterator[str]:
    """Yield a path without blanks around it, and with backslashes as separators."""
    name = target.strip()
    yield name
    if "\\" in name:
        yield name.replace("\\", "/")


def _is_unresolved_content(name: str) -> bool:
    """Return whether a path means all files in a folder that the client does not determine.

    Examples are `~name/*`, `a/../b/*`, `a*/*` and `a/*/`.
    """
    content = name.rstrip("/")
    if not content.endswith("/*"):
        return False
    folder = content[:-2]
    if name[0] == "~" and name[1] != "/":
        return True
    is_relative = name[0] not in ("/", "~")
    return ".." in folder.split("/") or _GLOB.search(folder) is not None or (is_relative and name != content)


def is_critical(name: str, scope: PathScope, *, is_recursive: bool = True) -> bool:
    """Return whether removing a path could remove a root folder, the home folder, a session folder or a drive.

    Case is ignored, as some file systems do. The output of a command in a path is unknown and may be empty.
    """
    bare = name.rstrip("/*") or "/"
    if not bare.strip("\\"):  # a root folder on some systems
        return True
    if "$" in bare or "`" in bare:
        if name.endswith(("/", "/*")) or bare.startswith("$") or (is_recursive and bare.startswith("`")):
            return True
        opening, closing = _SUBSTITUTION_START.search(bare), max(bare.rfind(")"), bare.rfind("`"))
        rest = bare[: opening.start()] + bare[closing + 1 :] if opening and opening.end() <= closing else bare
        return rest not in ("", bare) and "$" not in rest and is_critical(rest, scope, is_recursive=is_recursive)
    protected = (scope.home, scope.cwd, *scope.folders)
    protected = tuple(path.casefold() for path in (*protected, *map(scope.links.resolve, protected)))
    for path in scope.possible_paths(bare):
        for end in (path.casefold(), scope.links.resolve(path).casefold()):
            if end.count("/") <= 1 or any(is_within(folder, end) for folder in protected):
                return True
            if (is_recursive or name.endswith("*")) and _DRIVE.fullmatch(normpath(end)):
                return True
    return False


def _find_hidden_script(command: str) -> str | None:
    """Return the part of a line that passes a script to a shell if escapes or braces may hide `rm` in it, or None."""
    text = _STRING.sub(_mark_string, command)
    for part in re.split(r"[\n;&|]", text):
        if "\0" in part and _find_script_start(part) is not None:
            return command
    for line in command.splitlines() if "{" in command else ():
        start = _find_script_start(line)
        if start is not None:
            return command if _BRACED_REMOVAL.search(command, command.index(line) + start) else None
    return None


def _find_script_start(line: str) -> int | None:
    """Return the end of the first option `-c` after the name of a shell, or None."""
    shell = _SHELL_CALL.search(line)
    option = _SCRIPT_START.search(line, shell.end()) if shell else None
    return option.end() if option else None


def _mark_string(match: re.Match[str]) -> str:
    """Return a null character for a string that may hide `rm`, a quoted name without its quotes, or an empty string."""
    text = match[0]
    if text[0] != "$":
        return text[1:-1] if _QUOTED_NAME.fullmatch(text) else "''"
    letters = _LETTER_ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), _BLANK_ESCAPE.sub(" ", text))
    return "\0" if _UNKNOWN_ESCAPE.search(text) or _REMOVAL_WORD.search(letters) else "''"


def _find_unreadable_script(command: str, programs: Sequence[Program]) -> str | None:
    """Return a command that passes a script with `rm` to a shell if the client cannot read the script, or None."""
    if "sh" not in command.lower():
        return None
    text = command.replace("\\", "").replace("'", "").replace('"', "")
    shell = _SHELL_NAME.search(text)
    start = _SCRIPT_START.search(text, shell.end() - 1) if shell else None
    if start is None or not (_REMOVAL_WORD.search(text, start.end()) or _REMOVAL_WORD.search(command)):
        return None
    if _UNREADABLE_PLACE.search(command) or not NO_OTHER_BLANKS.fullmatch(command):
        return command
    if "$" in command and _VARIABLE_CHANGE.search(command):
        return command
    for program in programs:
        if program_basename(program.name) in ("bash", "sh"):
            texts = [word.text for word in program.words]
            at = next((at for at, text in enumerate(texts) if _SCRIPT_OPTION.fullmatch(text)), len(texts))
            if any(map(_UNREADABLE_OPTION.match, texts[1:at])):
                return program.text
    return None


def find_protected_write(line: ExpandedLine, scope: PathScope) -> AccessedPath | None:
    """Return a protected file that a line would change, even if a rule allows all commands.

    In a line that changes files, the words that may become part of a path count as well: folders of `cd`, values of
    variables, and all words of the programs that change files.
    """
    mentions: list[ShellWord] = []
    has_targets = False
    for entry in line.programs:
        program = strip_wrappers(entry.program)
        mentions += (*program.values, *program.loop_values)
        changed = find_targets(program, find_changed(program, program.arguments))
        mentions += program.words[1:] if changed or program.name in ("cd", "pushd") else ()
        if not changed and not program.redirects:
            continue
        targets = [item.target for item in program.redirects if ">" in item.operator and not is_stream_or_null(item)]
        has_targets = has_targets or bool(changed or targets)
        for word in (*changed, *targets):
            text = word.text.replace("$HOME", "~", 1) if word.has_expansion else word.text
            path = scope.absolute_path(text)
            is_odd = not entry.wrappers and _is_odd_target(text, path, scope)
            matches = expand_glob(text, scope) if word.has_expansion and _GLOB.search(text) else None
            places = [path, *map(scope.absolute_path, matches or ())]
            if is_odd or any(scope.is_protected(place) or scope.leads_outside(place) for place in places):
                return AccessedPath(program.name if word in changed else None, path, scope.contains_path(path))
    mention = next((word.text for word in mentions if mentions_protected(word.text)), None) if has_targets else None
    if mention is None:
        return None
    path = scope.absolute_path(mention)
    return AccessedPath(None, path, scope.contains_path(path))


def _is_odd_target(text: str, path: str, scope: PathScope) -> bool:
    """Return whether the file that a command would change is uncertain."""
    if text[:2] == "//" or is_ambiguous(path) or not scope.is_unambiguous(text):
        return True
    return scope.links.resolve(path).startswith("/proc/")
