"""Explain the exit status of a command line: the program that determined it, and whether it only means "no match".

Start at `found_nothing` and `failing_programs`. The facts about programs are in `tables/exits.toml`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec import Struct, convert, field
from msgspec.structs import replace

from toolspan.shell.plans import find_simple_commands, plan
from toolspan.shell.program import Program, program_basename
from toolspan.shell.table import read_toml
from toolspan.shell.words import ShellWord

_PYTHON = re.compile(r"python(?:\d(?:\.\d+)?)?\Z|py\Z|pypy3?\Z")
_MEASURED_TIME = re.compile(r"\A\s*real\s+\S+\s+user\s+\S+\s+sys\s+\S+\s*\Z")
_XARGS_FAILURE = 123
_JQ_NO_RESULT = 4
_DECLARATIONS = frozenset({"declare", "export", "local", "readonly", "typeset", "unset"})
"""Builtins that set or remove variables."""


class _ExitTable(Struct, frozen=True):
    quiet: Mapping[str, str]
    empty: Mapping[str, str]
    meanings: Mapping[str, str]
    runners: Mapping[str, int]
    names: Mapping[str, str]
    words: Mapping[str, frozenset[str]] = field(default_factory=dict)
    quiet_names: str = ""
    """A pattern for lines that may contain a program of `quiet`."""


@lru_cache(maxsize=1)
def _table() -> _ExitTable:
    table = convert(read_toml("exits"), _ExitTable)
    names = sorted({re.escape(name.partition(" ")[0]) for name in table.quiet})
    return replace(
        table,
        words={name: frozenset(words.split()) for name, words in table.names.items()},
        quiet_names="|".join(names),
    )


@lru_cache(maxsize=512)
def failing_programs(line: str) -> tuple[str, ...]:
    """Return the programs that may have determined the exit status of a line, the most probable one first.

    Wrappers such as `sudo`, `timeout`, `bash -c` and `npx` are replaced by the programs that they run.
    """
    names: list[str] = []
    preparations: list[str] = []
    for program in reversed(_status_programs(line)):
        if name := program_label(program):
            (preparations if name in _table().words["preparations"] else names).append(name)
    return tuple(dict.fromkeys([*names, *preparations]))


@lru_cache(maxsize=512)
def programs_run(line: str) -> tuple[str, ...]:
    """Return the programs that a line runs, in order, each once; wrappers are replaced by what they run."""
    return tuple(dict.fromkeys(filter(None, (program_label(reached.program) for reached in plan(line).reached))))


def program_label(program: Program) -> str:
    """Return a program's name without its folder, or the name of the module or tool that it runs."""
    words = program.inner.words
    while words and not words[0].has_expansion:
        name = program_basename(words[0].text)
        texts = [word.text for word in words[1:]]
        if _PYTHON.match(name):
            options = [at for at, text in enumerate(texts) if not text.startswith("-")]
            at = texts.index("-m") if "-m" in texts else len(texts)
            is_module = at + 1 < len(texts) and (not options or at < options[0])
            return texts[at + 1].partition(".")[0] if is_module else "python"
        if name == "((":
            return ""
        if name not in _table().runners:
            return name.removesuffix(".exe")
        words = _runner_arguments(name, words[1:])
        if not words:
            return name
    return ""


def _runner_arguments(name: str, arguments: Sequence[ShellWord]) -> tuple[ShellWord, ...]:
    """Return the words that a runner such as `npx` or `uv run` executes; empty if it does its own work."""
    needs_verb = _table().runners[name] > 0
    rest = _skip_options(arguments, "runner_values")
    if not needs_verb or not rest:
        return rest
    return _skip_options(rest[1:], "runner_values") if rest[0].text in _table().words["runner_verbs"] else ()


def _skip_options(words: Sequence[ShellWord], values: str) -> tuple[ShellWord, ...]:
    """Return the words from the first one that is neither an option nor the value of one."""
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        at += 2 if words[at].text in _table().words[values] else 1
    return tuple(words[at:])


def _status_programs(line: str) -> list[Program]:
    """Return the programs that may have determined the exit status: those after the last separator such as `;`.

    Filters and conditions of `if` are left out. In `a; b && c | head`, these programs are `b` and `c`.
    """
    programs: list[Program] = []
    for reached in plan(line).reached:
        program = reached.program
        if not program.words or program.ended_by == "then":
            continue
        before = programs[-1] if programs else None
        if reached.wrappers and before is not None and program_basename(before.name) == reached.wrappers[-1]:
            if before.name == "command" and _is_quiet(before, _table().quiet):
                continue
            if before.name != "find":
                programs[-1] = replace(program, ended_by=before.ended_by)
                continue
        is_separate = before is not None and not before.nested and before.ended_by in ("", ";", "\n", "&")
        if is_separate and not reached.wrappers and not program.nested:
            programs = []
        programs.append(program)
    for index in range(len(programs) - 2, -1, -1):
        if programs[index].ended_by == "||" and not programs[index].nested:
            # If the line failed, the programs after it failed, unless one only ends the line, as in `|| exit 1`.
            rest = programs[index + 1 :]
            programs = programs if any(program.name in _table().words["endings"] for program in rest) else rest
            break
    return _drop_filters(programs)


def _drop_filters(programs: Sequence[Program]) -> list[Program]:
    """Drop filters such as `head` from pipelines, and of the other programs in a pipeline keep only the last."""
    rest: list[Program] = []
    for index, program in enumerate(programs):
        follows_pipe = index > 0 and programs[index - 1].ended_by in ("|", "|&")
        if follows_pipe and rest:
            if program_basename(program.name) in _table().words["filters"]:
                continue
            rest.pop()
        rest.append(program)
    return rest


def found_nothing(line: str, exit_code: int | None, output: str) -> bool:
    """Return whether a failed line only reports that a search found nothing or that a condition is false.

    That is the case if it exited with 1, printed nothing, and one of the programs that may have determined the status
    reports this result in that way. If a search certainly determined the status, other programs may have printed
    something.
    """
    table = _table()
    # perf: a line without the name of such a program needs no analysis
    if exit_code not in (1, _JQ_NO_RESULT, _XARGS_FAILURE) or not re.search(table.quiet_names, line):
        return False
    if output and "time " in line and _MEASURED_TIME.match(output):
        output = ""
    programs = plan(line).programs
    if len(programs) == 1 and (script := _shell_script(programs[0])):
        return found_nothing(script, exit_code, output)
    if exit_code == _XARGS_FAILURE:
        inner = [item.program for item in plan(line).reached if "xargs" in item.wrappers]
        return not output and any(_is_quiet(program, table.quiet) for program in inner)
    candidates = _status_programs(line)
    if exit_code == _JQ_NO_RESULT:
        candidates = [program for program in candidates if program_basename(program.inner.name) == "jq"]
        return not output and any(_is_quiet(program, table.quiet) for program in candidates)
    if not output:
        if len(candidates) > 1 and candidates[-1].name in table.words["endings"] and candidates[-2].ended_by == "&&":
            return False  # as in `grep -q x file && exit 1`, which fails if there is a match
        return any(_is_quiet(program, table.quiet) for program in candidates)
    if "cd: " in output and any(program.name == "cd" for program in candidates):
        return False
    if output.strip() in ("0", "null", "false") and any(_is_quiet(program, table.empty) for program in candidates):
        return True
    decisive = [program for program in candidates if program_basename(program.name) not in ("cd", "echo", "printf")]
    if len(decisive) != 1 or len(programs) < 2 or candidates[-1] is not decisive[0]:
        return False
    return program_basename(decisive[0].inner.name) in table.words["searches"]


def _is_quiet(program: Program, patterns: Mapping[str, str]) -> bool:
    words: Sequence[ShellWord] = program.inner.words
    if words and program_basename(words[0].text) in _table().words["containers"]:
        words = _container_command(words)
    name, rest = _name_and_arguments(words)
    pattern = patterns.get(name)
    if pattern is None:
        return False
    texts = [word.text for word in rest]
    end = texts.index("--") if "--" in texts else len(texts)
    return re.search(pattern, "".join(f" {text}" for text in texts[:end])) is not None


def _name_and_arguments(words: Sequence[ShellWord]) -> tuple[str, Sequence[ShellWord]]:
    """Return the name in the table, such as `grep` or `git diff`, and the words after it."""
    name = program_basename(words[0].text) if words and not words[0].has_expansion else ""
    rest = words[1:]
    if name == "git" and (rest := _skip_options(rest, "git_values")) and not rest[0].has_expansion:
        return f"git {rest[0].text}", rest[1:]
    return name, rest


def _shell_script(program: Program) -> str:
    """Return the script of `bash -c SCRIPT`, or an empty string."""
    words = [word.text for word in program.words]
    is_script = len(words) == 3 and program_basename(words[0]) in _table().words["shells"] and words[1] in ("-c", "-lc")
    return words[2] if is_script and not program.words[2].has_expansion else ""


def _container_command(words: Sequence[ShellWord]) -> Sequence[ShellWord]:
    """Return the command that `docker exec` or `kubectl exec` runs in a container; empty if there is none."""
    texts = [word.text for word in words]
    if "exec" not in texts[:4]:
        return ()
    if "--" in texts:
        return words[texts.index("--") + 1 :]
    return _skip_options(words[texts.index("exec") + 1 :], "container_values")[1:]


# Simple lines


def prints_nothing(line: str) -> bool:
    """Return whether a line is expected to print nothing when it succeeds."""
    commands = find_simple_commands(line)
    return bool(commands) and all(
        command.name in _table().words["silent"] and (not command.variables or command.name in _DECLARATIONS)
        for command in commands
    )


def explain_exit_code(line: str, code: int) -> str | None:
    """Return the meaning of an exit code that is not an error, such as "no match", or None for any other code."""
    commands = find_simple_commands(line)
    if not commands or code != 1 or commands[-1].variables:
        return None
    return _table().meanings.get(_name_and_arguments(commands[-1].words)[0])
