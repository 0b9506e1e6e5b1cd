"""Does a command line change anything?

In: a line. Out: True only when every program in it is known to read and nothing else, whatever its
arguments turn out to be; everything not understood is no. Two lines that only read may run at the
same time, and need less consent. What a program reads is not asked here. Read `is_read_only` first.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from toolspan.shell.line import Redirect, Simple, Word, parse_line

_ALWAYS = frozenset({
    "arch", "basename", "cat", "cksum", "cmp", "column", "comm", "cut", "df", "diff",
    "dirname", "du", "echo", "egrep", "expand", "false", "fgrep", "fold", "free", "grep", "groups",
    "head", "id", "join", "jq", "ls", "md5sum", "nl", "nproc", "od", "paste", "printenv", "ps",
    "pwd", "readlink", "realpath", "rev", "seq", "sha1sum", "sha256sum", "sha512sum", "sleep",
    "stat", "strings", "tac", "tail", "tr", "true", "type", "uname", "unexpand", "uptime", "wc",
    "which", "whoami",
})  # fmt: skip
"""Programs that read, with whatever arguments."""

Arguments = Sequence[str]


def is_read_only(line: str) -> bool:
    """Whether running it would change nothing, for certain."""
    commands = parse_line(line) or ()
    return bool(commands) and all(_reads(command) for command in commands)


def _reads(command: Simple) -> bool:
    if command.ended_by == "&" or not all(map(_harmless, command.redirects)):
        return False
    return not any(word.runs for word in command.words) and reads(command.name, command.words[1:])


def reads(name: str, arguments: Sequence[Word]) -> bool:
    """Whether a program with these arguments reads and does nothing else."""
    if name in _ALWAYS:
        return True
    judge = _JUDGES.get(name)
    if judge is None or any(word.filled for word in arguments):
        return False
    return judge([word.text for word in arguments])


def _harmless(redirect: Redirect) -> bool:
    if redirect.target.runs or redirect.target.filled:
        return False
    match redirect.operator.lstrip("0123456789"):
        case ">&" | "<&":
            return redirect.target.text in {"0", "1", "2", "-"}
        case "<":
            return True
        case "<>":
            return False
        case _:
            return redirect.target == Word("/dev/null")


def _anything(_arguments: Arguments) -> bool:
    return True


def _only(*allowed: str) -> Callable[[Arguments], bool]:
    """Nothing but these arguments."""
    return lambda arguments: set(arguments) <= set(allowed)


def _none_like(*forbidden: str) -> Callable[[Arguments], bool]:
    """No argument that is one of these options, shortened or with a value or not."""

    def judge(arguments: Arguments) -> bool:
        names = [argument.partition("=")[0] for argument in arguments if argument[:1] == "-"]
        return not any(
            name.startswith(option) or (len(name) > 2 and option.startswith(name))
            for name in names
            for option in forbidden
        )

    return judge


def _date(arguments: Arguments) -> bool:
    return all(argument[:1] == "+" or argument in {"-u", "--utc", "-R"} for argument in arguments)


def _file(arguments: Arguments) -> bool:
    options = [argument for argument in arguments if argument[:1] == "-"]
    return all(re.fullmatch(r"-[bhiL]+|--brief|--mime(-type)?", option) for option in options)


def _sed(arguments: Arguments) -> bool:
    """Only the printing of lines by number: a script can write and run as well."""
    return (
        len(arguments) >= 2
        and arguments[0] == "-n"
        and re.fullmatch(r"\d+(,(\d+|\$))?p", arguments[1]) is not None
        and not any(argument[:1] == "-" for argument in arguments[2:])
    )


def _sort(arguments: Arguments) -> bool:
    options = [argument for argument in arguments if argument[:1] == "-"]
    return all(re.fullmatch(r"-[bdfghiMnRrsuVz]+|-[kt].*", option) for option in options)


def _uniq(arguments: Arguments) -> bool:
    """A second file is one it writes to."""
    return all(re.fullmatch(r"-[cdDiuz]+", argument) for argument in arguments)


def _command(arguments: Arguments) -> bool:
    return arguments[:1] in (["-v"], ["-V"])


def _printf(arguments: Arguments) -> bool:
    """`-v` takes a name, and a name can hold a command."""
    return bool(arguments) and arguments[0][:1] != "-"


def _test(arguments: Arguments) -> bool:
    """`-v` and `-R` take a name, and a name can hold a command."""
    return "-v" not in arguments and "-R" not in arguments


_history = _none_like("--output", "--ext-diff", "--open-files-in-pager")
_GIT: Mapping[str, Callable[[Arguments], bool]] = {
    "blame": _history,
    "branch": _only("-a", "--all", "-r", "--remotes", "-v", "-vv", "--list", "--show-current"),
    "cat-file": _none_like("--batch-command", "--filters", "--textconv"),
    "describe": _anything,
    "diff": _history,
    "log": _history,
    "ls-files": _anything,
    "ls-tree": _anything,
    "merge-base": _anything,
    "remote": _only("-v", "--verbose"),
    "rev-list": _anything,
    "rev-parse": _anything,
    "shortlog": _history,
    "show": _history,
    "status": _anything,
    "tag": _only("-l", "--list"),
}
"""What git only shows; `git diff --output` is why the options count."""


def _git(arguments: Arguments) -> bool:
    """Only with the verb first: options before it can run programs."""
    if arguments[:1] == ["--no-pager"]:
        arguments = arguments[1:]
    if not arguments:
        return False
    if list(arguments) == ["stash", "list"]:
        return True
    judge = _GIT.get(arguments[0])
    return judge is not None and judge(arguments[1:])


_JUDGES: Mapping[str, Callable[[Arguments], bool]] = {
    "[": _test,
    "command": _command,
    "date": _date,
    "env": _only(),
    "file": _file,
    "find": _none_like("-delete", "-exec", "-fls", "-fprint", "-ok"),
    "git": _git,
    "hostname": _only(),
    "printf": _printf,
    "rg": _none_like("--pre", "--hostname-bin"),
    "sed": _sed,
    "sort": _sort,
    "test": _test,
    "uniq": _uniq,
}
"""Programs that read unless their arguments say otherwise; those must be known for that."""
KNOWN = _ALWAYS | _JUDGES.keys()
"""Every program that may only read."""
