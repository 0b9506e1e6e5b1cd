"""Recognise command lines that change nothing, and interpret their exit codes and empty output.

Start at `is_read_only`. Read-only lines may run concurrently and need no approval, so a line qualifies only if every
program is known to be read-only, whatever its arguments expand to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from toolspan.shell.program import Program, program_basename
from toolspan.shell.programs import find_programs, find_simple_commands
from toolspan.shell.words import Redirect, ShellWord

_ALWAYS_READ_ONLY = frozenset({
    "arch", "basename", "cat", "cksum", "cmp", "column", "comm", "cut", "df", "diff",
    "dirname", "du", "echo", "egrep", "expand", "false", "fgrep", "fold", "free", "grep", "groups",
    "head", "id", "join", "jq", "ls", "md5sum", "nl", "nproc", "od", "paste", "printenv", "ps",
    "pwd", "readlink", "realpath", "rev", "seq", "sha1sum", "sha256sum", "sha512sum", "sleep",
    "stat", "strings", "tac", "tail", "tr", "true", "type", "uname", "unexpand", "uptime", "wc",
    "which", "whoami",
})  # fmt: skip
"""Programs that are read-only with any arguments."""

Arguments = Sequence[str]


def is_read_only(line: str) -> bool:
    """Return whether a line is known to change nothing."""
    parsed = find_programs(line)
    if parsed.uncertainties or parsed.has_compounds:
        return False
    return bool(parsed.programs) and all(map(_is_read_only_command, parsed.programs))


def _is_read_only_command(command: Program) -> bool:
    if command.nested or command.variables or command.ended_by == "&":
        return False
    if any(word.has_substitution for word in command.words) or not all(map(_is_harmless_redirect, command.redirects)):
        return False
    return is_read_only_program(command.name, command.words[1:])


def is_read_only_program(name: str, arguments: Sequence[ShellWord]) -> bool:
    """Return whether a program is read-only with these arguments."""
    if name in _ALWAYS_READ_ONLY:
        return True
    check_arguments = _ARGUMENT_CHECKS.get(name)
    if check_arguments is None or any(word.has_expansion for word in arguments):
        return False
    return check_arguments([word.text for word in arguments])


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


def _accept_all(_arguments: Arguments) -> bool:
    return True


def _accept_only(*allowed: str) -> Callable[[Arguments], bool]:
    """Return a check that accepts only the arguments in `allowed`."""
    return lambda arguments: set(arguments) <= set(allowed)


def _reject_options(*forbidden: str) -> Callable[[Arguments], bool]:
    """Return a check that rejects the options in `forbidden`, including abbreviations and options with a value."""

    def check_arguments(arguments: Arguments) -> bool:
        names = [argument.partition("=")[0] for argument in arguments if argument[:1] == "-"]
        return not any(
            name.startswith(option) or (len(name) > 2 and option.startswith(name))
            for name in names
            for option in forbidden
        )

    return check_arguments


def _check_date(arguments: Arguments) -> bool:
    return all(argument[:1] == "+" or argument in {"-u", "--utc", "-R"} for argument in arguments)


def _check_file(arguments: Arguments) -> bool:
    options = [argument for argument in arguments if argument[:1] == "-"]
    return all(re.fullmatch(r"-[bhiL]+|--brief|--mime(-type)?", option) for option in options)


def _check_sed(arguments: Arguments) -> bool:
    """Accept only scripts that print lines by number, because others can write files and run programs."""
    return (
        len(arguments) >= 2
        and arguments[0] == "-n"
        and re.fullmatch(r"\d+(,(\d+|\$))?p", arguments[1]) is not None
        and not any(argument[:1] == "-" for argument in arguments[2:])
    )


def _check_sort(arguments: Arguments) -> bool:
    options = [argument for argument in arguments if argument[:1] == "-"]
    return all(re.fullmatch(r"-[bdfghiMnRrsuVz]+|-[kt].*", option) for option in options)


def _check_uniq(arguments: Arguments) -> bool:
    """Accept only options, because a second file name is an output file."""
    return all(re.fullmatch(r"-[cdDiuz]+", argument) for argument in arguments)


def _check_command(arguments: Arguments) -> bool:
    return arguments[:1] in (["-v"], ["-V"])


def _check_printf(arguments: Arguments) -> bool:
    """Reject `-v`, because the name after it can contain a command."""
    return bool(arguments) and arguments[0][:1] != "-"


def _check_test(arguments: Arguments) -> bool:
    """Reject `-v` and `-R`, because the name after them can contain a command."""
    return "-v" not in arguments and "-R" not in arguments


_check_history = _reject_options("--output", "--ext-diff", "--open-files-in-pager")
_GIT_CHECKS: Mapping[str, Callable[[Arguments], bool]] = {
    "blame": _check_history,
    "branch": _accept_only("-a", "--all", "-r", "--remotes", "-v", "-vv", "--list", "--show-current"),
    "cat-file": _reject_options("--batch-command", "--filters", "--textconv"),
    "describe": _accept_all,
    "diff": _check_history,
    "log": _check_history,
    "ls-files": _accept_all,
    "ls-tree": _accept_all,
    "merge-base": _accept_all,
    "remote": _accept_only("-v", "--verbose"),
    "rev-list": _accept_all,
    "rev-parse": _accept_all,
    "shortlog": _check_history,
    "show": _check_history,
    "status": _accept_all,
    "tag": _accept_only("-l", "--list"),
}
"""Checks for read-only git subcommands. Options are checked because some write files, such as `git diff --output`."""


def _check_git(arguments: Arguments) -> bool:
    """Check a git command. Options before the subcommand are rejected, because they can run programs."""
    if arguments[:1] == ["--no-pager"]:
        arguments = arguments[1:]
    if not arguments:
        return False
    if list(arguments) == ["stash", "list"]:
        return True
    check_arguments = _GIT_CHECKS.get(arguments[0])
    return check_arguments is not None and check_arguments(arguments[1:])


_ARGUMENT_CHECKS: Mapping[str, Callable[[Arguments], bool]] = {
    "[": _check_test,
    "command": _check_command,
    "date": _check_date,
    "env": _accept_only(),
    "file": _check_file,
    "find": _reject_options("-delete", "-exec", "-fls", "-fprint", "-ok"),
    "git": _check_git,
    "hostname": _accept_only(),
    "printf": _check_printf,
    "rg": _reject_options("--pre", "--hostname-bin"),
    "sed": _check_sed,
    "sort": _check_sort,
    "test": _check_test,
    "uniq": _check_uniq,
}
"""Checks for programs that are read-only with some arguments, which must not contain expansions."""
READ_ONLY_PROGRAMS = _ALWAYS_READ_ONLY | _ARGUMENT_CHECKS.keys()
"""All programs that are read-only with at least some arguments."""


_SILENT_PROGRAMS = frozenset({
    "cd", "chgrp", "chmod", "chown", "cp", "export", "ln", "mkdir", "mv", "rm", "rmdir", "touch",
    "unset", "wait",
})  # fmt: skip


def prints_nothing(line: str) -> bool:
    """Return whether a line is expected to print nothing when it succeeds."""
    commands = find_simple_commands(line)
    return bool(commands) and all(_command_name(command) in _SILENT_PROGRAMS for command in commands)


_DECLARATIONS = frozenset({"declare", "export", "local", "readonly", "typeset", "unset"})
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
    return command.name if not command.variables or command.name in _DECLARATIONS else ""
