"""Explain the exit status of a command line: the program that determined it, and whether it only means "no match".

Start at `found_nothing` and `failing_programs`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from msgspec.structs import replace

from toolspan.shell.program import Program, program_basename
from toolspan.shell.programs import find_programs
from toolspan.shell.words import ShellWord
from toolspan.shell.wrappers import expand_wrappers, strip_wrappers

Arguments = Sequence[ShellWord]

_RUNNERS = {
    "npx": 0, "bunx": 0, "uvx": 0, "pipx": 1, "corepack": 0,
    "uv": 1, "poetry": 1, "pdm": 1, "hatch": 1, "rye": 1, "pipenv": 1, "bundle": 1, "direnv": 2, "dotenv": 0,
}  # fmt: skip
"""Programs that run another program, with the number of words (such as `run`) between the two names."""
_RUNNER_VERBS = frozenset({"run", "exec", "x"})
_RUNNER_OPTIONS_WITH_VALUE = frozenset({"--with", "--python", "-p", "--package", "--group", "--extra", "--directory"})
_PYTHON = re.compile(r"python(?:\d(?:\.\d+)?)?\Z|py\Z|pypy3?\Z")
_FILTERS = frozenset({"cat", "head", "less", "more", "sed", "sort", "tail", "tee", "tr", "uniq", "wc", "column", "cut"})
"""Programs that only pass on the output of the program before them in a pipeline."""
_ENDINGS = frozenset({"exit", "return", "false"})
_SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
_CONTAINER_TOOLS = frozenset({"docker", "podman", "kubectl", "docker-compose"})
_CONTAINER_OPTIONS_WITH_VALUE = frozenset({"-e", "--env", "-u", "--user", "-w", "--workdir", "-n", "-c", "--index"})
_SILENT_PREPARATION = frozenset({
    "cd", "pushd", "popd", "export", "set", "unset", "source", ".", "mkdir", "sleep", "true", ":", "declare", "local",
    "umask", "ulimit", "shopt", "alias", "trap", "exit", "return",
})  # fmt: skip
"""Programs that print an error if they fail, and are rarely the reason why a line failed."""


@lru_cache(maxsize=512)
def failing_programs(line: str) -> tuple[str, ...]:
    """Return the programs that may have determined the exit status of a line, the most probable one first.

    Wrappers such as `sudo`, `timeout`, `bash -c` and `npx` are replaced by the programs that they run.
    """
    names: list[str] = []
    preparations: list[str] = []
    for program in reversed(_status_programs(line)):
        name = program_label(program)
        if name:
            (preparations if name in _SILENT_PREPARATION else names).append(name)
    return tuple(dict.fromkeys([*names, *preparations]))


def program_label(program: Program) -> str:
    """Return a program's name without its folder, or the name of the module or tool that it runs."""
    words = strip_wrappers(program).words
    while words and not words[0].has_expansion:
        name = program_basename(words[0].text)
        arguments = words[1:]
        if _PYTHON.match(name):
            module = _python_module(arguments)
            return module or "python"
        if name not in _RUNNERS:
            return name.removesuffix(".exe")
        inner = _runner_arguments(name, arguments)
        if not inner:
            return name
        words = inner
    return ""


def _python_module(arguments: Arguments) -> str:
    for index, word in enumerate(arguments):
        if word.text == "-m" and index + 1 < len(arguments):
            return arguments[index + 1].text.partition(".")[0]
        if not word.text.startswith("-"):
            break
    return ""


def _runner_arguments(name: str, arguments: Arguments) -> tuple[ShellWord, ...]:
    """Return the words that a runner such as `npx` or `uv run` executes; empty if it does its own work."""
    needs_verb = _RUNNERS[name] > 0
    rest = list(arguments)
    while rest:
        text = rest[0].text
        if text.startswith("-"):
            del rest[: 2 if text in _RUNNER_OPTIONS_WITH_VALUE else 1]
        elif needs_verb:
            if text not in _RUNNER_VERBS:
                return ()
            needs_verb = False
            del rest[0]
        else:
            break
    return tuple(rest)


def _status_programs(line: str) -> list[Program]:
    """Return the programs that may have determined the exit status: those after the last separator such as `;`.

    Filters are left out. In `a; b && c | head`, these programs are `b` and `c`.
    """
    programs: list[Program] = []
    for reached in expand_wrappers(find_programs(line)).programs:
        program = reached.program
        if not program.words:
            continue
        before = programs[-1] if programs else None
        if reached.wrappers and before is not None and program_basename(before.name) == reached.wrappers[-1]:
            if before.name == "command" and _with_option("-v", "-V")(before.words[1:]):
                continue
            if before.name != "find":
                programs[-1] = replace(program, ended_by=before.ended_by)
                continue
        is_separate = before is not None and not before.nested and before.ended_by in ("", ";", "\n", "&")
        if is_separate and not reached.wrappers and not program.nested:
            programs = []
        programs.append(program)
    return _drop_filters(_drop_alternatives(programs))


def _drop_alternatives(programs: list[Program]) -> list[Program]:
    """Drop the programs before the last `||`: if a line failed, the programs after it failed.

    Keep them if a program after it only ends the line, as in `|| exit 1`.
    """
    for index in range(len(programs) - 2, -1, -1):
        if programs[index].ended_by == "||" and not programs[index].nested:
            rest = programs[index + 1 :]
            return programs if any(program.name in _ENDINGS for program in rest) else rest
    return programs


def _drop_filters(programs: Sequence[Program]) -> list[Program]:
    """Drop filters such as `head` from pipelines, and of the other programs in a pipeline keep only the last."""
    rest: list[Program] = []
    for index, program in enumerate(programs):
        follows_pipe = index > 0 and programs[index - 1].ended_by in ("|", "|&")
        if follows_pipe and rest:
            if program_basename(program.name) in _FILTERS:
                continue
            rest.pop()
        rest.append(program)
    return rest


# Programs whose exit status 1 is not an error


def _always(_arguments: Arguments) -> bool:
    return True


def _with_option(*options: str) -> Callable[[Arguments], bool]:
    """Return a function that checks for any of the options. A single letter may be part of a group, as in `-sq`."""
    letters = {option[1] for option in options if len(option) == 2}

    def check(arguments: Arguments) -> bool:
        for word in arguments:
            text = word.text
            if text == "--":
                return False
            if text.partition("=")[0] in options:
                return True
            if text[:1] == "-" and text[:2] != "--" and letters & set(text[1:]):
                return True
        return False

    return check


def _check_git(arguments: Arguments) -> bool:
    rest = list(arguments)
    while rest and rest[0].text.startswith("-"):
        del rest[: 2 if rest[0].text in ("-C", "-c", "--git-dir", "--work-tree") else 1]
    if not rest:
        return False
    check = _QUIET_GIT.get(rest[0].text)
    return check is not None and check(rest[1:])


_QUIET_GIT: dict[str, Callable[[Arguments], bool]] = {
    "grep": _always,
    "diff": _with_option("--quiet", "--exit-code", "--no-index", "--check"),
    "ls-files": _with_option("--error-unmatch"),
    "diff-index": _with_option("--quiet", "--exit-code"),
    "diff-files": _with_option("--quiet", "--exit-code"),
    "diff-tree": _with_option("--quiet", "--exit-code"),
    "check-ignore": _always,
    "config": _always,
    "merge-base": _always,
    "rev-parse": _with_option("-q", "--quiet"),
    "show-ref": _always,
    "symbolic-ref": _with_option("-q", "--quiet"),
}

_QUIET_PROGRAMS: dict[str, Callable[[Arguments], bool]] = {
    **dict.fromkeys(
        ("grep", "egrep", "fgrep", "zgrep", "rgrep", "rg", "ag", "ack", "ugrep", "findstr", "fd", "fdfind", "locate",
         "look", "diff", "cmp", "colordiff", "zdiff", "zcmp", "test", "[", "[[", "pgrep", "pkill", "pidof",
         "type", "hash", "expr", "let", "lsof", "fuser", "mountpoint", "findmnt"),
        _always,
    ),
    "which": bool,
    "id": bool,
    "kill": _with_option("-0"),
    "killall": _with_option("-0"),
    "sort": _with_option("-c", "-C", "--check"),
    "dpkg": _with_option("-s", "-l", "-L", "--status", "--list"),
    "dpkg-query": _always,
    "awk": lambda arguments: any("exit" in word.text for word in arguments),
    "command": _with_option("-v", "-V"),
    "git": _check_git,
    "jq": _with_option("-e", "--exit-status"),
    "nc": _with_option("-z"),
    "systemctl": lambda arguments: bool(arguments) and arguments[0].text.startswith("is-"),
    "ps": _with_option("-p", "-C", "-u", "--pid"),
}  # fmt: skip
"""Programs that exit with 1 and print nothing if they find nothing or if a condition is false."""
_EMPTY_ANSWERS: dict[str, Callable[[Arguments], bool]] = {
    **dict.fromkeys(("grep", "egrep", "fgrep", "zgrep", "rgrep"), _with_option("-c", "--count")),
    "jq": _with_option("-e", "--exit-status"),
    "expr": _always,
}
"""Programs that print `0`, `null` or `false` if they find nothing."""
_SEARCHES = frozenset({"grep", "egrep", "fgrep", "zgrep", "rgrep", "rg", "ag", "ack", "test", "[", "[[", "pgrep"})
"""Programs for which 1 is never an error: they exit with 2 or more in case of an error."""
_QUIET_WORDS = re.compile(
    r"(?:grep|\brg|\bag|\back|diff|\bz?cmp|\btest|\btype|\bhash|\bexpr|\bwhich|\bp(?:kill|idof|s)|\blsof|\bfuser|\bmountpoint|\bfindmnt"
    r"|\blet|\bid|\bkill(?:all)?|\bsort|\bdpkg(?:-query)?|awk|\bcommand|\bgit|\bjq|\bnc|\bsystemctl|\bfindstr|\bfd(?:find)?|\blo(?:ok|cate))\b|\[|\(\("
)
"""perf: a line that matches none of these needs no analysis."""
_XARGS_FAILURE = 123
_JQ_NO_RESULT = 4
_NOTHING_FOUND_CODES = frozenset({1, _JQ_NO_RESULT, _XARGS_FAILURE})


_HERE_DOCUMENT = re.compile(
    r"<<-?[ \t]*[\"']?(?P<end>\w+)[\"']?(?P<rest>[^\n]*)\n(?:.*?\n)??[ \t]*(?P=end)(?=\n|\Z)", re.DOTALL
)
_IF_WITHOUT_ELSE = re.compile(
    r"\s*if\s(?:(?!\b(?:if|then|else|elif)\b).)*\bthen\s(?P<body>(?:(?!\b(?:if|else|elif|fi)\b).)*)[;\n]\s*fi\s*",
    re.DOTALL,
)
_FALSE_CONDITION = re.compile(r"(?:\A|[;\n])\s*\(\((?:[^()]|\([^()]*\))*\)\)\s*(?:&&[^;|\n]*)?\Z")
_MEASURED_TIME = re.compile(r"\A\s*real\s+\S+\s+user\s+\S+\s+sys\s+\S+\s*\Z")


def found_nothing(line: str, exit_code: int | None, output: str) -> bool:
    """Return whether a failed line only reports that a search found nothing or that a condition is false.

    That is the case if it exited with 1, printed nothing, and one of the programs that may have determined the status
    reports this result in that way. If a search certainly determined the status, other programs may have printed
    something.
    """
    if exit_code not in _NOTHING_FOUND_CODES or not _QUIET_WORDS.search(line):
        return False
    if "<<" in line:
        line = _HERE_DOCUMENT.sub(lambda match: match["rest"], line)
    if condition := _IF_WITHOUT_ELSE.fullmatch(line):  # a false condition ends it with 0
        return found_nothing(condition["body"], exit_code, output)
    if output and "time " in line and _MEASURED_TIME.match(output):
        output = ""
    programs = find_programs(line).programs
    if len(programs) == 1 and (script := _shell_script(programs[0])):
        return found_nothing(script, exit_code, output)
    if exit_code == _XARGS_FAILURE:
        if output or not any(program.name == "xargs" for program in programs):
            return False
        reached = expand_wrappers(find_programs(line)).programs
        return any("xargs" in item.wrappers and _is_quiet(item.program, _QUIET_PROGRAMS) for item in reached)
    candidates = _status_programs(line)
    if exit_code == _JQ_NO_RESULT:
        candidates = [program for program in candidates if program_basename(strip_wrappers(program).name) == "jq"]
        return not output and any(_is_quiet(program, _QUIET_PROGRAMS) for program in candidates)
    if not output:
        return _is_silent_answer(line, candidates)
    if "cd: " in output and any(program.name == "cd" for program in candidates):
        return False
    if output.strip() in ("0", "null", "false") and any(_is_quiet(program, _EMPTY_ANSWERS) for program in candidates):
        return True
    decisive = [program for program in candidates if program_basename(program.name) not in ("cd", "echo", "printf")]
    return (
        len(decisive) == 1
        and bool(candidates)
        and candidates[-1] is decisive[0]
        and program_basename(strip_wrappers(decisive[0]).name) in _SEARCHES
        and len(programs) > 1
    )


def _is_silent_answer(line: str, candidates: Sequence[Program]) -> bool:
    """Return whether the status 1 of a line that printed nothing means that nothing was found or a test was false."""
    if len(candidates) > 1 and candidates[-1].name in _ENDINGS and candidates[-2].ended_by == "&&":
        return False  # as in `grep -q x file && exit 1`, which fails if there is a match
    is_condition = line.rstrip().endswith("))") and all(program.name == "cd" for program in candidates)
    is_condition = is_condition or bool(_FALSE_CONDITION.search(line))
    return is_condition or any(_is_quiet(program, _QUIET_PROGRAMS) for program in candidates)


def _is_quiet(program: Program, checks: Mapping[str, Callable[[Arguments], bool]]) -> bool:
    words: Arguments = strip_wrappers(program).words
    if words and program_basename(words[0].text) in _CONTAINER_TOOLS:
        words = _container_command(words)
    check = checks.get(program_basename(words[0].text)) if words else None
    return check is not None and check(words[1:])


def _shell_script(program: Program) -> str:
    """Return the script of `bash -c SCRIPT`, or an empty string."""
    words = [word.text for word in program.words]
    is_script = len(words) == 3 and program_basename(words[0]) in _SHELLS and words[1] in ("-c", "-lc")
    return words[2] if is_script and not program.words[2].has_expansion else ""


def _container_command(words: Arguments) -> Arguments:
    """Return the command that `docker exec` or `kubectl exec` runs in a container; empty if there is none."""
    texts = [word.text for word in words]
    if "exec" not in texts[:4]:
        return ()
    at = texts.index("exec") + 1
    if "--" in texts:
        return words[texts.index("--") + 1 :]
    while at < len(texts) and texts[at].startswith("-"):
        at += 2 if texts[at] in _CONTAINER_OPTIONS_WITH_VALUE else 1
    return words[at + 1 :]
