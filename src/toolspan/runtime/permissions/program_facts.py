"""Facts about one program in a command line: its variables, the files that it changes, and files that it does not name.

`commands.py` uses them to decide whether the program may run.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec.structs import replace

from toolspan.runtime.permissions.paths import PathScope
from toolspan.shell.environment import is_harmless_variable
from toolspan.shell.program import Program, program_basename
from toolspan.shell.words import ShellWord, compile_cached

COMMON_NAME = re.compile(r"\[\[?|[\w./+~][\w./+~-]*", re.ASCII)
"""Names of programs that every shell reads in the same way."""
_COPYING_PROGRAMS = frozenset({"cp", "install", "ln", "mv"})
"""Programs whose last operand may be the folder in which they make files with the names of the other operands."""
_SCRIPTED_PROGRAMS = frozenset({"awk", "egrep", "fgrep", "gawk", "grep", "jq", "mawk", "rg", "sed"})
"""Programs whose first operand is a script or a pattern."""
_SCRIPT_OPTION = re.compile(r"-\w*[ef]|--[efr]")
_TEXT_VALUES = frozenset({"fd", "fdfind", "find", "git", "jq"})
"""Programs whose options take texts such as `/x`, and files only where the table says so."""
_OUTER_PATH = re.compile(r"[/~=$]|(?:.*/)?\.\.(?:/|\Z)", re.DOTALL)
"""The beginning of a path that may be outside the current folder."""
_LITERAL_ASSIGNMENT = re.compile(r"\w+=[\w./:-]+", re.ASCII)
_QUOTED_SCRIPT = re.compile(r"(?<!\S)(?:'[^'`]*'|\"[^\"\\`]*\")(?!\S)")


def strip_quotes(text: str) -> str:
    """Remove the characters that the shell removes from words."""
    return text.replace("\\\n", "").replace("\\", "").replace("'", "").replace('"', "")


def has_harmless_variables(program: Program) -> bool:
    """Return whether all variables that are set for a program have harmless names and values."""
    return all(map(is_harmless_variable, program.variables, program.values)) and len(program.variables) == len(
        program.values
    )


def has_literal_assignments(program: Program) -> bool:
    """Return whether the values of the variables before a program are literal and unquoted."""
    return all(map(_LITERAL_ASSIGNMENT.fullmatch, program.assignments))


def add_copies(program: Program, changed: tuple[ShellWord, ...]) -> tuple[ShellWord, ...]:
    """Return the files that a program changes, with those that it makes if its last operand is a folder.

    The file in that folder may be a link to a protected file.
    """
    if len(changed) < 2 or program_basename(program.name) not in _COPYING_PROGRAMS:
        return changed
    *sources, folder = changed
    start = folder.text.rstrip("/") or "/"
    names = [word.text.rstrip("/").rpartition("/")[2] for word in sources]
    return (*changed, *(replace(folder, text=f"{start}/{name}") for name in names))


def is_lookup(program: Program) -> bool:
    """Return whether a program is `command -v NAME`, written without quotes."""
    texts = program.text.split(" ")
    is_command = len(program.words) == len(texts) == 3 and texts[0] == "command" and texts[1] in ("-v", "-V")
    return is_command and not program.spelling and COMMON_NAME.fullmatch(texts[2]) is not None


def is_unquoted(program: Program) -> bool:
    """Return whether a program is written without quotes, except around a whole script."""
    spec = program.arguments.spec
    text = program.text
    if spec is not None and "script" in spec.roles:
        text = _QUOTED_SCRIPT.sub("", text)
    return text.isascii() and text == strip_quotes(text)


def words_after_script(program: Program) -> list[ShellWord]:
    """Return the arguments that may be files if the options of a program are not understood."""
    words = [word for word in program.words[1:] if word.text[:1] != "-"]
    has_script = program.name in _SCRIPTED_PROGRAMS and not any(
        _SCRIPT_OPTION.match(word.text) for word in program.words[1:]
    )
    return words[1:] if has_script else words


def outer_words(program: Program, scope: PathScope) -> list[ShellWord]:
    """Return the options, values and revisions that may be paths outside the current folder, also through a link."""
    known, takes_texts = program.arguments, program.name in _TEXT_VALUES
    found = []
    for word in known.files("ref", "value"):
        is_path = not takes_texts or word in known.roles.get("ref", ())
        if (is_path and _OUTER_PATH.match(word.text)) or (
            not word.text.isdigit() and scope.leads_outside(scope.absolute_path(word.text))
        ):
            found.append(word)
    is_late = False
    for word in program.words[1:]:
        text = word.text
        if text[:1] != "-" or len(text) < 3:
            is_late = True
            continue
        path = text.partition("=")[2] if text[:2] == "--" else text[2:]
        if _OUTER_PATH.match(path) and (known.unknown is not None or not takes_texts):
            found.append(replace(word, text=path))
        if is_late and (not takes_texts or "/.." in text):  # some programs treat options after an operand as files
            found.append(word)
    return found


Effect = Literal["follows", "lists_names", "searches", "shows"]


def has_effect(program: Program, effect: Effect) -> bool:
    """Return whether a program, with its options, does with files that it does not name what the table says.

    - `follows`: it follows links in its folders
    - `lists_names`: it prints the names of files in its folders, one per line, and nothing else
    - `searches`: it reads the files in its folders
    - `shows`: it prints the content of any file of the repository
    """
    spec = program.arguments.spec
    pattern = "" if spec is None else getattr(spec, effect)
    if not pattern:
        return False
    options = [" " + "_".join(word.text.split()) for word in program.words[1:] if word.text[:1] == "-"]
    return compile_cached(pattern).fullmatch("".join(options)) is not None
