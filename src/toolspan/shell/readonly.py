"""Recognise command lines that change nothing, and interpret their exit codes and empty output.

Start at `is_read_only`. Read-only lines may run concurrently, so a line qualifies only if every program is known to be
read-only, whatever its arguments expand to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolspan.shell.arguments import read_arguments
from toolspan.shell.program import Program, program_basename
from toolspan.shell.programs import find_programs, find_simple_commands
from toolspan.shell.words import Redirect, ShellWord


def is_read_only(line: str) -> bool:
    """Return whether a line is known to change nothing."""
    parsed = find_programs(line)
    if parsed.uncertainties or parsed.unclear or parsed.has_compounds:
        return False
    return bool(parsed.programs) and all(map(_is_read_only_command, parsed.programs))


def _is_read_only_command(command: Program) -> bool:
    if command.variables or command.name == "cd" or not all(map(_is_harmless_redirect, command.redirects)):
        return False
    return is_read_only_program(command.name, command.words[1:])


def is_read_only_program(name: str, arguments: Sequence[ShellWord]) -> bool:
    """Return whether a program is read-only with these arguments."""
    known = read_arguments(name, arguments)
    return known.unknown is None and known.spec is not None and not known.changed


_SHELL_VARIABLES = frozenset({"BASHOPTS", "CDPATH", "GLOBIGNORE", "SHELLOPTS"})
"""Variables with which bash reads the same line differently: other folders for `cd`, other patterns and options."""
_PROGRAM_VARIABLES = frozenset({
    "BASH_ENV", "ENV", "GIT_ASKPASS", "GIT_EXEC_PATH", "GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_SSH", "GIT_SSH_COMMAND",
    "GREP_OPTIONS", "LESSCLOSE", "LESSOPEN", "MANPAGER", "PAGER", "POSIXLY_CORRECT", "RIPGREP_CONFIG_PATH",
})  # fmt: skip
"""Variables that make programs of the table run others, or read their arguments differently."""
_GIT_SETTINGS = {"safe.bareRepository": "explicit", "core.fsmonitor": "false", "core.hooksPath": "/dev/null"}


def command_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for commands, without those that change the meaning of a line."""
    return {name: value for name, value in environment.items() if name not in _SHELL_VARIABLES}


def harden_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a line that nobody approved, so that its programs start no others.

    git ignores folders that only look like a repository, and runs neither hooks nor a file system monitor.
    """
    hardened = {name: value for name, value in environment.items() if name not in _PROGRAM_VARIABLES}
    text = hardened.get("GIT_CONFIG_COUNT", "")
    count = int(text) if text.isascii() and text.isdigit() else 0
    for at, (key, value) in enumerate(_GIT_SETTINGS.items(), start=count):
        hardened |= {f"GIT_CONFIG_KEY_{at}": key, f"GIT_CONFIG_VALUE_{at}": value}
    return hardened | {"GIT_CONFIG_COUNT": str(count + len(_GIT_SETTINGS))}


def _is_harmless_redirect(redirect: Redirect) -> bool:
    if redirect.target.has_substitution or redirect.target.has_expansion:
        return False
    match redirect.operator.lstrip("0123456789"):
        case ">&" | "<&":
            return redirect.target.text in {"0", "1", "2", "-"}
        case "<":
            return True
        case "<>":
            return False
        case _:
            return redirect.target == ShellWord("/dev/null")


_SILENT_PROGRAMS = frozenset({
    "cd", "chgrp", "chmod", "chown", "cp", "export", "ln", "mkdir", "mv", "rm", "rmdir", "touch",
    "unset", "wait",
})  # fmt: skip


def prints_nothing(line: str) -> bool:
    """Return whether a line is expected to print nothing when it succeeds."""
    commands = find_simple_commands(line)
    return bool(commands) and all(_command_name(command) in _SILENT_PROGRAMS for command in commands)


DECLARATIONS = frozenset({"declare", "export", "local", "readonly", "typeset", "unset"})
"""Builtins that set or remove variables."""
_NO_MATCH = {1: "No matches found"}
_DIFFERENT = {1: "Files differ"}
_FALSE_CONDITION = {1: "Condition is false"}

_EXIT_CODE_MEANINGS: Mapping[str, Mapping[int, str]] = {
    "grep": _NO_MATCH,
    "egrep": _NO_MATCH,
    "fgrep": _NO_MATCH,
    "rg": _NO_MATCH,
    "git grep": _NO_MATCH,
    "diff": _DIFFERENT,
    "git diff": _DIFFERENT,
    "find": {1: "Some directories were inaccessible"},
    "test": _FALSE_CONDITION,
    "[": _FALSE_CONDITION,
}


def explain_exit_code(line: str, code: int) -> str | None:
    """Return the meaning of an exit code that is not an error, such as "no match", or None for any other code."""
    commands = find_simple_commands(line)
    if not commands:
        return None
    name = program_basename(_command_name(commands[-1]))
    arguments = commands[-1].words[1:]
    if name == "git" and arguments and not arguments[0].has_expansion:
        name = f"git {arguments[0].text}"
    return _EXIT_CODE_MEANINGS.get(name, {}).get(code)


def _command_name(command: Program) -> str:
    """Return the name of a command, or an empty string if variables are set for that command alone."""
    return command.name if not command.variables or command.name in DECLARATIONS else ""
