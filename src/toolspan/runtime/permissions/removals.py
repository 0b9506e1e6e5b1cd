"""Find removals of more than is meant, and writes to files that decide what runs later.

Both are asked about whatever rules and modes allow. Start at `find_dangerous_removal` and `find_protected_write`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from functools import lru_cache
from os.path import normpath

from toolspan.runtime.permissions.paths import PathScope, expand_glob, is_within, may_be_renamed, mentions_protected
from toolspan.runtime.permissions.program_facts import add_copies, strip_quotes
from toolspan.shell.plans import NotUnderstood, Plan, is_stream
from toolspan.shell.program import Program, bare_program_name, program_basename
from toolspan.shell.table import program_table
from toolspan.shell.words import ShellWord, has_glob
from toolspan.shell.wrappers import FIND_ACTIONS
from toolspan.types.decision import AccessedPath

_REMOVAL_NAMES = frozenset({"rm", "rmdir"})
_REMOVAL_WORD = re.compile(r"(?<![\w.@:,+-])(?:rm|rmdir)(?:\.exe)?(?![\w.@:+-])", re.IGNORECASE)
_SHELL = re.compile(r"(?<![\w.-])(?:ba|da|k|z)?sh(?:\.exe)?[\s'\"]", re.IGNORECASE)
_HIDDEN_REMOVAL = re.compile(r"\\[xUu0-7]|r\{[^{}\s]*m|\{[^{}\s]*r[^{}\s]*\}m")
"""Escapes and braces that may hide the name `rm` in a script."""
_ESCAPED_BLANK = re.compile(r"\\[abefnrtv]")
_LIMITING_TESTS = frozenset({
    "-empty", "-iname", "-ipath", "-iregex", "-iwholename", "-name", "-path", "-regex", "-wholename",
})  # fmt: skip
_FOLDER_CHANGERS = frozenset({"cd", "chdir", "popd", "pushd"})
_SUBSTITUTION = re.compile(r"\$\(.*\)|`.*`", re.DOTALL)
_DRIVE = re.compile(r"/(?:mnt|volumes)(?:/[^/]+){0,2}|/(?:run/)?media(?:/[^/]+){0,3}")
"""A mounted drive, a folder that holds drives, or a file at the top level of a drive."""


def find_dangerous_removal(line: Plan | NotUnderstood, scope: PathScope) -> str | None:
    """Return the command in a line that could remove far more than is meant, or None.

    It could remove the project, the home folder, a root folder or a drive, or its target is known only when it runs.
    In a line that may run other programs than those that were found, any removal counts.
    """
    programs = [entry.program for entry in line.reached]
    for program in programs:
        if "-delete" in line.text and _deletes_everything(program, scope):
            return program.text
    bare = strip_quotes(line.text)
    if isinstance(line, NotUnderstood):  # the line, or a script in it, may run other programs than those found
        runs_shell = _SHELL.search(line.text) is not None
        text = strip_quotes(_ESCAPED_BLANK.sub(" ", line.text)) if runs_shell else bare if line.hides_programs else ""
        if _REMOVAL_WORD.search(text) or (runs_shell and _HIDDEN_REMOVAL.search(line.text)):
            return line.text
    if "rm" not in bare.casefold():  # perf: most lines end here
        return None
    changes_folder = any(program.name.lstrip("!") in _FOLDER_CHANGERS for program in programs)
    for program in programs:
        texts = [word.text for word in program.words]
        start = _find_removal(texts)
        if start is not None and _has_dangerous_target(texts[start + 1 :], scope, changes_folder=changes_folder):
            return program.text
    return None


def _find_removal(texts: Sequence[str]) -> int | None:
    """Return the index of the name `rm`, also after an action such as `-exec`, which not only `find` has."""
    action = next((at for at, text in enumerate(texts) if text in FIND_ACTIONS), len(texts))
    starts = (0, *range(action + 1, len(texts))) if texts else ()
    return next((at for at in starts if bare_program_name(texts[at]).casefold() in _REMOVAL_NAMES), None)


def _deletes_everything(program: Program, scope: PathScope) -> bool:
    """Return whether `find -delete` starts at a folder that must not be removed, without a test for names."""
    texts = [word.text for word in program.words]
    if program_basename(program.name) != "find" or "-delete" not in texts or not _LIMITING_TESTS.isdisjoint(texts):
        return False
    starts = list(itertools.takewhile(lambda text: text[:1] not in ("-", "(", "!"), texts[1:]))
    return any(is_critical(start, scope) for start in starts or ["."])


def _has_dangerous_target(arguments: Sequence[str], scope: PathScope, *, changes_folder: bool) -> bool:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    targets = [argument for at, argument in enumerate(arguments) if argument[:1] != "-" or at > end]
    options = [argument for argument in arguments if argument[:1] == "-"]
    is_recursive = any("r" in option or "R" in option or "$" in option for option in options)
    names = [name for target in targets for name in (target.strip(), target.strip().replace("\\", "/"))]
    return any(
        is_critical(name, scope, is_recursive=is_recursive) or _is_unknown_content(name, changes_folder=changes_folder)
        for name in names
    )


def _is_unknown_content(name: str, *, changes_folder: bool) -> bool:
    """Return whether a path means all files in a folder that is not known.

    Examples are `~name/*`, `a/../b/*`, `a*/*`, `a/*/`, and `a/*` after a `cd`.
    """
    content = name.rstrip("/")
    if not content.endswith("/*"):
        return False
    folder, is_relative = content[:-2], name[0] not in ("/", "~")
    if name[0] == "~" and name[1] != "/":
        return True
    if ".." in folder.split("/") or has_glob(folder):
        return True
    return is_relative and (changes_folder or name != content)


def is_critical(name: str, scope: PathScope, *, is_recursive: bool = True) -> bool:
    """Return whether removing a path could remove a root folder, the home folder, a session folder or a drive.

    Case is ignored, as some file systems do. The output of a command in a path is unknown and may be empty.
    """
    bare = name.rstrip("/*") or "/"
    if not bare.strip("\\"):  # a root folder on some systems
        return True
    if "$" in bare or "`" in bare:
        rest = _SUBSTITUTION.sub("", bare)
        if name.endswith(("/", "/*")) or bare.startswith("$") or (is_recursive and bare.startswith("`")):
            return True
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


def find_protected_write(line: Plan | NotUnderstood, scope: PathScope) -> AccessedPath | None:
    """Return a protected file that a line would change, even if a rule allows all commands.

    In a line that changes files, the words that may become part of a path count as well: folders of `cd`, values of
    variables, and all words of the programs that change files.
    """
    mentions: list[ShellWord] = []
    has_targets = False
    names = {bare_program_name(entry.program.words[0].text) for entry in line.reached if entry.program.words}
    if ">" not in line.text and names.isdisjoint(_changing_programs()):
        return None
    for entry in line.reached:
        program = entry.program.inner
        name = bare_program_name(program.words[0].text) if program.words else ""
        if program.words and name != program.name:
            program = program.with_words((ShellWord(name), *program.words[1:]))
        changed = _find_changed(program)
        mentions += (*program.values, *(program.words[1:] if changed or program.name in _FOLDER_CHANGERS else ()))
        redirects = [item for item in entry.program.redirects if ">" in item.operator and not is_stream(item)]
        targets = [item.target for item in redirects if item.target.text != "/dev/null"]
        has_targets = has_targets or bool(changed or targets)
        for word in (*changed, *targets):
            text = word.text.replace("$HOME", "~", 1) if word.has_expansion else word.text
            path = scope.absolute_path(text)
            matches = expand_glob(text, scope) if word.has_expansion and has_glob(text) else None
            places = [path, *map(scope.absolute_path, matches or ())]
            is_known = text[:2] != "//" and not may_be_renamed(path) and scope.is_same_on_disk(text)
            is_known = is_known and not scope.links.resolve(path).startswith("/proc/")
            if not (is_known or entry.wrappers) or any(
                scope.is_protected(place) or scope.leads_outside(place) for place in places
            ):
                return AccessedPath(program.name if word in changed else None, path, scope.contains_path(path))
    mention = next((word.text for word in mentions if mentions_protected(word.text)), None) if has_targets else None
    if mention is None:
        return None
    path = scope.absolute_path(mention)
    return AccessedPath(None, path, scope.contains_path(path))


@lru_cache(maxsize=1)
def _changing_programs() -> frozenset[str]:
    table = program_table()
    return frozenset(name for name, spec in table.items() if spec.edits or "write*" in spec.roles)


def _find_changed(program: Program) -> tuple[ShellWord, ...]:
    """Return the files that a program changes. If its arguments are not understood, each of them may be such a file."""
    arguments, spec = program.arguments, program.arguments.spec
    if spec is None or not (spec.edits or "write*" in spec.roles):
        return ()
    if arguments.unknown is None:
        return add_copies(program, arguments.changed)
    words = program.words[2:] if program.name == "sed" else program.words[1:]
    return add_copies(program, tuple(word for word in words if word.text[:1] != "-" or word.text == "-"))
