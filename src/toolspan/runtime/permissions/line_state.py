"""Track the folders and variables that may be current in a command line, and find the files that its words refer to."""

from __future__ import annotations

import glob
import itertools
import re

from msgspec.structs import replace

from toolspan.runtime.permissions.paths import MAX_GLOB_FILES, PathScope, expand_braces, expand_glob, is_ambiguous
from toolspan.shell.program import Program
from toolspan.shell.words import ShellWord

_EXPANSION_SIGN = re.compile(r"[$`]")
_GLOB = re.compile(r"[*?\[]")
_UNSAFE_TARGET = re.compile(r"[*?\[{}$]|\A//")
"""Characters in the names of files to change that some shell or system expands, even in quotes."""
_PLAIN_PATH = re.compile(r"(?!.*\.\.)/?+[\w.][\w./: -]*+", re.ASCII)
"""Paths that every shell and file system reads in the same way."""
_UNKNOWN_FOLDER = re.compile(r"[*?\[]|\$PWD")
"""Text in the argument of `cd` that the client does not replace."""
_UNKNOWN_CD_OPTION = re.compile(r"-(?![LPe@]+\Z|-?\Z)")
_MAX_VISITED = 64
"""The number of possible folders above which a further `cd` counts as one to an unknown folder."""
_VARIABLE_REFERENCE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII)


def has_parent_after_name(path: str) -> bool:
    """Return whether `..` follows the name of a folder in a path. The folder may be a link."""
    if "/.." not in path:
        return False
    has_name = False
    for part in path.split("/"):
        if part == ".." and has_name:
            return True
        has_name = has_name or part not in ("", ".", "..")
    return False


class LineState:
    """The folders that may be current and the values of variables, after the programs visited so far."""

    def __init__(self, scope: PathScope, *, allows_parents: bool) -> None:
        self._start_scope = scope
        self.scopes: tuple[PathScope, ...] = (scope,)
        """A scope for each possible current folder, because `cd` may fail; empty if the folder is unknown."""
        self.is_folder_unknown = False
        """True after a `cd` to an unknown folder."""
        self._allows_parents = allows_parents
        self._visited_scopes: tuple[PathScope, ...] = self.scopes
        """A scope for each folder that a `cd` may have entered so far, used to find denied files."""
        self._values: dict[str, str | None] = {}

    def record_variables(self, program: Program) -> None:
        """Record the variables that a command without a program sets. A variable set twice has no known value."""
        if not program.words or program.name in ("declare", "export", "local", "readonly", "typeset"):
            for name, value in zip(program.variables, program.values, strict=False):
                text = None if value.has_substitution else self.substitute_variables(value)
                self._values[name] = None if name in self._values else text

    def record_folders(self, program: Program) -> None:
        """Record the folders that a `cd` may enter from each folder recorded so far."""
        if program.name not in ("cd", "pushd", "popd"):
            return
        folders = [
            None if word.has_expansion and _UNKNOWN_FOLDER.search(word.text) else self.substitute_variables(word)
            for word in program.words[1:]
        ]
        operands = [folder for folder in folders if folder is None or folder[:1] != "-" or folder == "-"]
        if program.name == "cd" and not operands:
            operands = ["~"]
        scopes = {scope.cwd: scope for scope in self._visited_scopes}
        for folder in operands:
            if folder not in (None, "-") and len(scopes) <= _MAX_VISITED:
                visited = [replace(scope, cwd=scope.absolute_path(folder)) for scope in scopes.values()]
                scopes |= {scope.cwd: scope for scope in visited}
            else:
                self.is_folder_unknown = True
        has_unknown_option = any(_UNKNOWN_CD_OPTION.match(word.text) for word in program.words[1:])
        self.is_folder_unknown = self.is_folder_unknown or len(operands) != 1 or has_unknown_option
        self._visited_scopes = tuple(scopes.values())

    def resolve_paths(self, word: ShellWord) -> list[str] | None:
        """Return the files to which a word refers in each possible folder, or None if they are unknown."""
        if not word.has_expansion and _PLAIN_PATH.fullmatch(word.text):  # perf: most paths pass all checks below
            scopes = self.scopes or ((self._start_scope,) if word.text[0] == "/" else ())
            return [scope.absolute_path(word.text) for scope in scopes] or None
        text = self.substitute_variables(word)
        if text is None or (text[:1] == "~" and text[1:2] not in ("", "/")) or text[:2] == "//" or text[:1] == "=":
            return None
        if not word.has_expansion and _EXPANSION_SIGN.search(text):  # a variable for the client, even in quotes
            return None
        if not self._allows_parents and has_parent_after_name(text):
            return None
        paths: list[str] = []
        for scope in self.scopes or ((self._start_scope,) if text[:1] in ("/", "~") else ()):
            found = expand_glob(text, scope) if word.has_expansion and _GLOB.search(text) else [text]
            if found is None or any(".." in name and not scope.is_unambiguous(name) for name in found):
                return None
            paths += map(scope.absolute_path, found)
        return paths or None

    def resolve_target(self, word: ShellWord) -> list[str] | None:
        """Return the paths of a file to change, or None if they are unknown or may pass through a parent folder."""
        if _UNSAFE_TARGET.search(word.text):
            return None
        if not self._allows_parents and has_parent_after_name(word.text):
            return None
        paths = self.resolve_paths(word)
        return None if paths is None or any(map(is_ambiguous, paths)) else paths

    def substitute_variables(self, word: ShellWord) -> str | None:
        """Return a word as a string with its variables replaced, or None if a value is unknown."""
        if not word.has_expansion:
            return word.text if word.text[:1] != "~" else None  # the home folder for the client, even in quotes
        if word.has_substitution:
            return None
        missing = False

        def replace_variable(match: re.Match[str]) -> str:
            nonlocal missing
            value = self._variable_value(match[1] or match[2])
            missing = missing or value is None
            return value or ""

        text = _VARIABLE_REFERENCE.sub(replace_variable, word.text)
        return None if missing or "$" in text or "`" in text else text

    def _variable_value(self, name: str) -> str | None:
        if name in self._values:
            return self._values[name]
        if name == "PWD" and len(self.scopes) == 1:
            return self._start_scope.cwd
        return self._start_scope.home if name == "HOME" else None

    def possible_files(self, text: str, *, expands: bool) -> list[str]:
        """Return the files that a word without variables may refer to, expanding patterns on disk."""
        if not expands and self._visited_scopes is self.scopes:  # perf: there was no `cd`
            return self._start_scope.possible_paths(text)
        paths: list[str] = []
        for scope in {scope.cwd: scope for scope in (*self.scopes, *self._visited_scopes)}.values():
            if not expands:
                paths += scope.possible_paths(text)
                continue
            for alternative in itertools.islice(expand_braces(text), MAX_GLOB_FILES):
                paths += scope.possible_paths(alternative)
                if _GLOB.search(alternative):
                    matches = glob.iglob(paths[-1], include_hidden=True)  # noqa: PTH207 - absolute, lazily
                    paths += itertools.islice(matches, MAX_GLOB_FILES)
        return paths
