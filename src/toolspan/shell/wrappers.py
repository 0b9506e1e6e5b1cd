"""Find programs that are run by other programs, such as `sudo`, `xargs`, `sh -c` or `find -exec`.

Start at `expand_wrappers`, which adds the programs inside such wrappers to the programs of a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from toolspan.shell.program import LinePrograms, Program, bare_program_name, program_basename
from toolspan.shell.programs import find_programs
from toolspan.shell.words import ShellWord, join_words

_MAX_DEPTH = 8
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_ASSIGNED_NAME = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=", re.ASCII)
"""A program name that looks like an assignment but is not one, because it follows a wrapper or is quoted."""


class ReachableProgram(Struct, frozen=True, gc=False):
    """A program that a line runs, directly or through wrappers."""

    program: Program
    wrappers: tuple[str, ...] = ()
    """The wrappers around it, outermost first."""


class ExpandedLine(Struct, frozen=True, gc=False):
    """All programs that a line may run, directly or through wrappers."""

    programs: tuple[ReachableProgram, ...]
    code: tuple[str, ...] = ()
    """Code passed to interpreters of other languages."""
    uncertainties: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _WrapperSpec:
    """The command-line syntax of a wrapper."""

    value_options: frozenset[str] = frozenset()
    """Options that take the next word as their value."""
    leading_count: int = 0
    """The number of words between the options and the program."""
    line_options: frozenset[str] = frozenset()
    """Options whose value is a command line."""
    joins_arguments: bool = False
    """True if the arguments are joined and passed to a shell."""


def _wrapper_spec(
    value_options: str, leading_count: int = 0, line_options: str = "", *, joins: bool = False
) -> _WrapperSpec:
    return _WrapperSpec(frozenset(value_options.split()), leading_count, frozenset(line_options.split()), joins)


TRANSPARENT_WRAPPERS: Mapping[str, _WrapperSpec] = {
    "builtin": _wrapper_spec(""),
    "command": _wrapper_spec(""),
    "nice": _wrapper_spec("-n --adjustment"),
    "noglob": _wrapper_spec(""),
    "nohup": _wrapper_spec(""),
    "stdbuf": _wrapper_spec("-i -o -e --input --output --error"),
    "time": _wrapper_spec("-f -o --format --output"),
    "timeout": _wrapper_spec("-k -s --kill-after --signal", 1),
}
"""Wrappers that do not affect what the wrapped program may do."""

_DURATION = r"[0-9]+(?:\.[0-9]+)?[smhd]?"
_WRAPPER_FORMS: Mapping[str, re.Pattern[str]] = {
    "builtin": re.compile(""),
    "command": re.compile(r"(?:-p|--)?"),
    "nice": re.compile(r"(?:-n -?[0-9]+|-[0-9]+)?"),
    "noglob": re.compile(""),
    "nohup": re.compile(""),
    "stdbuf": re.compile(r"-[ioe](?:L|[0-9]+)(?: -[ioe](?:L|[0-9]+))*"),
    "time": re.compile(""),
    "timeout": re.compile(
        rf"(?:(?:(?:-k ?|--kill-after=){_DURATION}|(?:-s ?|--signal=)\w+"
        r"|--foreground|--preserve-status|-v|--verbose) )*" + _DURATION
    ),
}
"""The arguments with which a wrapper is transparent. Other arguments have their own effects, such as `time -o`, or are
rejected by the client, such as `nice -n5`.
"""
SKIPPABLE_WRAPPERS = frozenset({*TRANSPARENT_WRAPPERS, "xargs"})
"""Wrappers covered by an allow rule for the wrapped program."""
_WRAPPERS: Mapping[str, _WrapperSpec] = {
    **TRANSPARENT_WRAPPERS,
    "busybox": _wrapper_spec(""),
    "caffeinate": _wrapper_spec("-t -w"),
    "chpst": _wrapper_spec("-u -U -b -e -d -o -p -f -c -/ -n -l -L -r -t -m"),
    "chroot": _wrapper_spec("--userspec --groups", 1),
    "chrt": _wrapper_spec("-T -P -D", 1),
    "coproc": _wrapper_spec(""),
    "cpulimit": _wrapper_spec("-l -p -e --limit"),
    "daemonize": _wrapper_spec("-a -e -o -c -p -l -u -E"),
    "dbus-run-session": _wrapper_spec("--config-file --dbus-daemon"),
    "doas": _wrapper_spec("-u -C -a"),
    "entr": _wrapper_spec(""),
    "env": _wrapper_spec("-u -C --unset --chdir", 0, "-S --split-string"),
    "exec": _wrapper_spec("-a"),
    "fakeroot": _wrapper_spec("-l -s -i -b --lib"),
    "faketime": _wrapper_spec("", 1),
    "firejail": _wrapper_spec(""),
    "flock": _wrapper_spec("-w -E --timeout --wait --conflict-exit-code", 1, "-c --command"),
    "gtimeout": _wrapper_spec("-k -s --kill-after --signal", 1),
    "ionice": _wrapper_spec("-c -n -p -P -u --class --classdata"),
    "linux32": _wrapper_spec(""),
    "linux64": _wrapper_spec(""),
    "ltrace": _wrapper_spec("-o -e -p -s -u -n -a -l -x"),
    "nocorrect": _wrapper_spec(""),
    "nsenter": _wrapper_spec("-t -S -G --target"),
    "numactl": _wrapper_spec("-C -m -N -i -p --cpunodebind --membind"),
    "parallel": _wrapper_spec("-j -S -a -I --jobs", 0, "", joins=True),
    "pkexec": _wrapper_spec("--user"),
    "prlimit": _wrapper_spec("-p --pid"),
    "proxychains": _wrapper_spec("-f"),
    "proxychains4": _wrapper_spec("-f"),
    "rlwrap": _wrapper_spec("-f -H -C -s"),
    "runuser": _wrapper_spec("-u -g -G -s", 0, "-c --command"),
    "schroot": _wrapper_spec("-c -d -u"),
    "script": _wrapper_spec("-I -O -B -T -E -m -o", 0, "-c --command"),
    "setarch": _wrapper_spec("", 1),
    "setpriv": _wrapper_spec("--reuid --regid --groups"),
    "setsid": _wrapper_spec(""),
    "softlimit": _wrapper_spec("-a -c -d -f -l -m -n -o -p -r -s -t"),
    "ssh": _wrapper_spec("-b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w", 1, joins=True),
    "strace": _wrapper_spec("-o -e -p -s -a -b -E -I -O -S -u -P -X --output --trace"),
    "su": _wrapper_spec("-s -g -G -w --shell", 1, "-c --command --session-command"),
    "sudo": _wrapper_spec("-C -D -g -h -p -R -r -t -T -U -u --user --group --host --prompt --chdir"),
    "systemd-inhibit": _wrapper_spec("--what --who --why --mode"),
    "systemd-run": _wrapper_spec("-u -p -E -t -H -M --unit --property --setenv"),
    "taskset": _wrapper_spec("", 1),
    "torify": _wrapper_spec(""),
    "torsocks": _wrapper_spec("-a -P -u -p"),
    "toybox": _wrapper_spec(""),
    "tsocks": _wrapper_spec(""),
    "unbuffer": _wrapper_spec(""),
    "unshare": _wrapper_spec("-S -G -R -w --setuid --setgid --root --wd"),
    "valgrind": _wrapper_spec(""),
    "watch": _wrapper_spec("-n -q --interval --equexit", 0, "", joins=True),
    "xargs": _wrapper_spec(
        "-a -d -E -I -L -n -P -s --arg-file --delimiter --max-lines --max-args --max-procs"
        " --max-chars --replace --process-slot-var"
    ),
    "xvfb-run": _wrapper_spec("-e -f -n -p -s -w --server-num --server-args"),
}

SHELLS = frozenset({
    "ash", "bash", "csh", "dash", "fish", "ksh", "ksh93", "mksh", "rbash", "sh", "tcsh", "yash",
    "zsh",
})  # fmt: skip
_VERSIONED_SHELL = re.compile(r"((?:ba|da|k|z)?sh)-\d[\d.]*", re.ASCII)
_CODE_OPTIONS: Mapping[str, frozenset[str]] = {
    "bun": frozenset({"-e", "--eval", "-p", "--print"}),
    "deno": frozenset({"eval"}),
    "lua": frozenset({"-e"}),
    "node": frozenset({"-e", "--eval", "-p", "--print", "-pe"}),
    "perl": frozenset({"-e", "-E", "-ne", "-pe", "-nle", "-lne", "-ple", "-lpe", "-le"}),
    "php": frozenset({"-r"}),
    "python": frozenset({"-c"}),
    "python2": frozenset({"-c"}),
    "python3": frozenset({"-c"}),
    "ruby": frozenset({"-e"}),
}
_RENAMING_BUILTINS = frozenset({
    "alias", "bind", "compgen", "complete", "enable", "fc", "hash", "mapfile", "readarray",
})  # fmt: skip
_STATE_CHANGING_BUILTINS = frozenset({*_RENAMING_BUILTINS, "let"})
_EXECUTED_VARIABLES = frozenset({
    "BASHOPTS", "BASH_ENV", "ENV", "PROMPT_COMMAND", "PS0", "PS4", "SHELLOPTS",
})  # fmt: skip
_WRAPPERS_WITHOUT_SHELL = frozenset({*TRANSPARENT_WRAPPERS, "env", "exec", "xargs"})
"""Wrappers that do not start a shell if no program is given."""
_AWKS = frozenset({"awk", "gawk", "mawk", "nawk"})
_AWK_RUNS_COMMAND = re.compile(r"system|\||getline|@load|@include")
_ARGUMENT_ADDERS = frozenset({"find", "parallel", "xargs"})
_PLACEHOLDER = re.compile(r"[{}%@_]|^\s*$")
"""Common placeholders for `xargs -I` and `find -exec`. A script that contains one may become any other script."""
_FIND_EXEC_ACTIONS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


def expand_wrappers(line_programs: LinePrograms) -> ExpandedLine:
    """Return the programs in a line and the programs that they run, to any depth."""
    for program in line_programs.programs:
        argv = program.words
        name = argv[0].text if argv else ""
        if name.isalnum() and name not in _EXPANDED_PROGRAMS and not program.variables:
            continue  # perf: the checks below are for other names
        bare_name = bare_program_name(name)
        is_foreign = "\\" in name or name[:1] == "~" or not name.endswith(bare_name) or "sh-" in bare_name
        if program.variables or bare_name in _EXPANDED_PROGRAMS or "=" in name or is_foreign:
            break
    else:  # none of them runs another program
        return ExpandedLine(tuple(map(ReachableProgram, line_programs.programs)), (), line_programs.uncertainties)
    expander = _WrapperExpander()
    expander.add_line(line_programs, (), 0)
    return ExpandedLine(tuple(expander.programs), tuple(expander.code), tuple(dict.fromkeys(expander.uncertainties)))


def strip_wrappers(program: Program, *, through_xargs: bool = True) -> Program:
    """Return the program inside any transparent wrappers."""
    if not program.words or program.words[0].text not in SKIPPABLE_WRAPPERS:
        return program
    while (name := program.name) in TRANSPARENT_WRAPPERS or (
        name == "xargs" and through_xargs and _is_bare_xargs(program)
    ):
        argv = tuple(program.words)
        if name == "command" and len(argv) > 1 and argv[1].text[:2] in ("-v", "-V"):
            return program
        start = _find_program_index(argv, TRANSPARENT_WRAPPERS.get(name) or _WrapperSpec())
        if start is None or start >= len(argv) or argv[start].has_expansion:
            return program
        if not _has_known_form(name, argv[1:start]):
            return program
        program = _program_from(program, start)
    return program


def _has_known_form(wrapper: str, words: Sequence[ShellWord]) -> bool:
    form = _WRAPPER_FORMS.get(wrapper)
    return form is None or form.fullmatch(" ".join(word.text for word in words)) is not None


def is_plainly_wrapped(program: Program, inner: Program) -> bool:
    """Return whether the wrappers around `inner` are spelled without quotes and escapes."""
    wrappers = program.words[: len(program.words) - len(inner.words)]
    return program.text.startswith(" ".join(word.text for word in wrappers) + " ")


def is_unclear_wrapper(program: Program) -> bool:
    """Return whether a program is a wrapper with arguments of an unknown form, so that its program is uncertain."""
    name = program.name
    if name not in _WRAPPER_FORMS:
        return False
    arguments = program.words[1:]
    if not arguments or _has_known_form(name, arguments):
        return False
    return name != "command" or re.fullmatch(r"-p?[vV]", arguments[0].text) is None


def _is_bare_xargs(program: Program) -> bool:
    return len(program.words) > 1 and program.words[1].text[:1] != "-"


class _WrapperExpander:
    """A collector for the programs in a line and the programs inside wrappers."""

    def __init__(self) -> None:
        self.programs: list[ReachableProgram] = []
        self.code: list[str] = []
        self.uncertainties: list[str] = []

    def add_line(self, line_programs: LinePrograms, wrappers: tuple[str, ...], depth: int) -> None:
        self.uncertainties.extend(line_programs.uncertainties)
        for program in line_programs.programs:
            self.add_program(program, wrappers, depth)

    def add_program(self, program: Program, wrappers: tuple[str, ...], depth: int) -> None:
        """Add a program and the programs that it runs."""
        self.programs.append(ReachableProgram(program, wrappers))
        while len(program.words) > 1 and _ASSIGNED_NAME.match(program.words[0].text):
            program = _program_from(program, 1)  # some clients skip the assignment
            self.programs.append(ReachableProgram(program, wrappers))
        first = program.words[0] if program.words else None
        name = bare_program_name(program.name)
        if first is not None and first.text[:2] == "~/":
            name = bare_program_name(first.text)
        if "sh-" in name and (versioned := _VERSIONED_SHELL.fullmatch(name)):
            name = versioned[1]
        if first is not None and name and name != program_basename(program.name):  # in the home folder, or on Windows
            first = replace(first, text=name, has_expansion=False)
            self.programs.append(ReachableProgram(replace(program, words=(first, *program.words[1:])), wrappers))
        if name in _STATE_CHANGING_BUILTINS or program.variables:
            self._note_name_changes(name, program)
        if name not in _PROGRAM_RUNNERS:
            return
        if depth >= _MAX_DEPTH:
            self.uncertainties.append("wrappers are nested too deeply")
            return
        self._expand_program(name, program, (*wrappers, name), depth + 1)

    def _note_name_changes(self, name: str, program: Program) -> None:
        """Record commands that redefine names or make the shell run code later."""
        if name in _RENAMING_BUILTINS and len(program.words) > 1:
            self.uncertainties.append(f"{name} changes the meaning of names")
        if not _EXECUTED_VARIABLES.isdisjoint(program.variables):
            self.uncertainties.append("a variable is set whose value the shell runs")
        if name == "let":
            self.uncertainties.append("an arithmetic expression contains names")

    def _expand_program(self, name: str, program: Program, wrappers: tuple[str, ...], depth: int) -> None:
        if name in SHELLS:
            self._expand_shell(program, wrappers, depth)
        elif name in ("eval", "trap", "source", "."):
            self._expand_builtin(name, program, wrappers, depth)
        elif name == "find":
            self._expand_find(program, wrappers, depth)
        elif name in _WRAPPERS:
            self._expand_wrapper(_WRAPPERS[name], program, wrappers, depth)
        elif name in _AWKS:
            self._collect_awk_code(program)
        else:
            self._collect_code(name, program)

    def _expand_find(self, program: Program, wrappers: tuple[str, ...], depth: int) -> None:
        if any(word.may_split or (word.has_expansion and word.text[:1] == "-") for word in program.words):
            self.uncertainties.append("the arguments of find are filled in by the shell")
        for start, end in _find_exec_ranges(program.words):
            inner = _program_between(program, start, end)
            if not inner.name or "{" in inner.name:
                self.uncertainties.append("find runs the files that it finds")
            self.add_program(inner, wrappers, depth)

    def _expand_text(self, word: ShellWord, wrappers: tuple[str, ...], depth: int) -> None:
        """Add the programs in a word that is itself a command line."""
        if word.has_expansion or (_has_added_arguments(wrappers) and _PLACEHOLDER.search(word.text)):
            self.uncertainties.append(f"the script of {wrappers[-1]} is filled in by the shell")
        else:
            self.add_line(find_programs(word.text), wrappers, depth)

    def _expand_shell(self, program: Program, wrappers: tuple[str, ...], depth: int) -> None:
        argv = program.words
        at = 1
        while at < len(argv) and argv[at].text[:1] in ("-", "+") and len(argv[at].text) > 1:
            option = argv[at].text
            if option[:2] != "--" and "c" in option[1:] and option[0] == "-":
                self._expand_script(argv, at + 1, wrappers, depth)
                return
            takes = option in ("-o", "-O", "+O", "+o", "--rcfile", "--init-file")
            if takes or argv[at].has_expansion or any(word.may_split for word in argv[at : at + 2]):
                self.uncertainties.append(f"{wrappers[-1]} has options that are not understood")
            at += 2 if takes else 1
        if at < len(argv) and (argv[at].has_substitution or argv[at].may_split):
            self.uncertainties.append(f"the script of {wrappers[-1]} is filled in by the shell")
        elif at >= len(argv) or argv[at].text in ("-", "/dev/stdin", "/dev/fd/0"):
            self._expand_stdin(program, wrappers, depth)

    def _expand_script(self, argv: Sequence[ShellWord], at: int, wrappers: tuple[str, ...], depth: int) -> None:
        while at < len(argv) and argv[at].text[:1] in ("-", "+"):
            at += 1
        if at < len(argv):
            self._expand_text(argv[at], wrappers, depth)
        elif _has_added_arguments(wrappers):
            self.uncertainties.append(f"{wrappers[-1]} runs its input")

    def _expand_stdin(self, program: Program, wrappers: tuple[str, ...], depth: int) -> None:
        if program.stdin_text is not None:
            count_before = len(self.programs)
            self.add_line(find_programs(program.stdin_text), wrappers, depth)
            if any(_redirects_input(reached.program) for reached in self.programs[count_before:]):
                self.uncertainties.append(f"{wrappers[-1]} continues with another script")
        else:  # also without visible input, because a group or function around it may have some
            self.uncertainties.append(f"{wrappers[-1]} runs its input")

    def _expand_builtin(self, name: str, program: Program, wrappers: tuple[str, ...], depth: int) -> None:
        arguments = [word for word in program.words[1:] if word.text != "--"]
        if name == "trap":
            arguments = [word for word in arguments if word.text[:1] != "-"]
            if len(arguments) > 1:
                self._expand_text(arguments[0], wrappers, depth)
        elif name == "eval":
            self._expand_text(join_words(arguments, " "), wrappers, depth)
        elif arguments and arguments[0].has_expansion:
            self.uncertainties.append(f"the file of {name} is filled in by the shell")
        elif arguments and arguments[0].text.startswith(("/dev/", "/proc/")):
            self.uncertainties.append(f"{name} runs its input")

    def _expand_wrapper(self, wrapper: _WrapperSpec, program: Program, wrappers: tuple[str, ...], depth: int) -> None:
        argv = program.words
        for line in _command_line_values(argv, wrapper):
            self._expand_text(line, wrappers, depth)
        start = _find_program_index(argv, wrapper)
        while start is not None and argv[start : start + 1] == (ShellWord("-"),):  # the client skips it
            following = _find_program_index(argv[start:], _WrapperSpec(value_options=wrapper.value_options))
            start = None if following is None else start + following
        if start is None:
            self._add_candidates(program, wrappers)
        elif start < len(argv) and wrapper.joins_arguments:
            self.programs.append(ReachableProgram(_program_from(program, start), wrappers))
            self._expand_text(join_words(argv[start:], " "), wrappers, depth)
        elif start < len(argv):
            inner = _program_from(program, start)
            if not inner.name or ("{" in inner.name and _has_added_arguments(wrappers)):
                self.uncertainties.append("a command's name is filled in by the shell")
            self.add_program(inner, wrappers, depth)
        elif _has_added_arguments(wrappers) or wrappers[-1] not in _WRAPPERS_WITHOUT_SHELL:
            self.uncertainties.append(f"{wrappers[-1]} runs its input")

    def _add_candidates(self, program: Program, wrappers: tuple[str, ...]) -> None:
        """Add each word as a possible program, because the wrapper's options are not supported."""
        self.uncertainties.append(f"{wrappers[-1]} has options that are not understood")
        for start in range(1, len(program.words)):
            if not program.words[start].has_expansion:
                self.programs.append(ReachableProgram(_program_from(program, start), wrappers))

    def _collect_awk_code(self, program: Program) -> None:
        texts = [word.text for word in program.words[1:]]
        self.code.extend(texts)
        if any(_AWK_RUNS_COMMAND.search(text) for text in texts):
            self.uncertainties.append("awk may run programs")

    def _collect_code(self, name: str, program: Program) -> None:
        options = _CODE_OPTIONS[name]
        for word in program.words[1:]:
            if word.text in options or (word.text[:2] in options and len(word.text) > 2):
                self.code.extend(word.text for word in program.words[1:])
                return
        if program.stdin_text is not None:
            self.code.append(program.stdin_text)


def _command_line_values(argv: Sequence[ShellWord], wrapper: _WrapperSpec) -> Iterator[ShellWord]:
    """Yield the option values that are command lines: `-c ls`, `-cls`, `-xcls`, `--command=ls` and `--comm ls`."""
    for at, word in enumerate(argv if wrapper.line_options else ()):
        option, equals, value = word.text.partition("=")
        if not at or option[:1] != "-":
            continue
        if option[:2] == "--":
            matches = len(option) > 2 and any(name.startswith(option) for name in wrapper.line_options)
        else:
            letters = [name[1] for name in wrapper.line_options if len(name) == 2 and name[1] in word.text]
            matches = bool(letters)
            value = word.text.partition(letters[0])[2] if letters else ""
        if matches and (equals or value):
            yield replace(word, text=value)
        elif matches and at + 1 < len(argv):
            yield argv[at + 1]


def _redirects_input(program: Program) -> bool:
    """Return whether the program is an `exec` that redirects stdin, so that the shell may read its
    script from there.
    """
    return program.name == "exec" and any("<" in redirect.operator for redirect in program.redirects)


def _has_added_arguments(wrappers: Sequence[str]) -> bool:
    """Return whether one of the wrappers, such as `xargs`, adds arguments."""
    return not _ARGUMENT_ADDERS.isdisjoint(wrappers)


def _find_program_index(argv: Sequence[ShellWord], wrapper: _WrapperSpec) -> int | None:
    """Return the index of the wrapped program in `argv`, or None if it is uncertain."""
    at, leading_count = 1, wrapper.leading_count
    while at < len(argv):
        text = argv[at].text
        option = text[:1] == "-" and len(text) > 1
        takes = option and text in wrapper.value_options
        if _may_vanish(argv[at : at + 1 + takes], before=bool(leading_count)):
            return None
        if text == "--":
            return at + 1 + leading_count
        if option or _is_assignment(text, program_basename(argv[0].text)):
            at += 1 + takes
        elif leading_count:
            at, leading_count = at + 1, leading_count - 1
        else:
            return at
    return at


def _may_vanish(candidates: Sequence[ShellWord], *, before: bool) -> bool:
    """Return whether words before the program may expand to no word or several, which would shift its position."""
    first = candidates[0]
    if first.has_expansion and (first.text[:1] == "-" or (first.may_split and (before or "=" in first.text))):
        return True
    return any(word.may_split for word in candidates[1:])


def _is_assignment(text: str, wrapper: str) -> bool:
    """Return whether a word sets a variable for the program that follows it."""
    if wrapper == "time":  # `time` is a keyword; assignments before it are not commands
        return text == "!" or _ASSIGNMENT.match(text) is not None
    if wrapper == "env" and text == "-":
        return True
    return "=" in text and wrapper in ("doas", "env", "sudo")


def _program_from(program: Program, start: int) -> Program:
    """Return the program that starts at word `start` of `program`."""
    argv = program.words[start:]
    sets = [word.text.partition("=")[0] for word in program.words[1:start] if _ASSIGNMENT.match(word.text)]
    text = " ".join(program.text.split(" ")[start:])
    if " ".join(word.text for word in program.words) != program.text:
        text = " ".join(word.text for word in argv)
    is_timed = program.name == "time"
    assignments = tuple(word.text for word in program.words[1:start] if is_timed and _ASSIGNMENT.match(word.text))
    return replace(program, words=argv, text=text, variables=(*program.variables, *sets), assignments=assignments)


def _program_between(program: Program, start: int, end: int) -> Program:
    argv = program.words[start:end]
    return replace(program, words=argv, text=" ".join(word.text for word in argv), redirects=())


def _find_exec_ranges(argv: Sequence[ShellWord]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the programs that `find` runs, as indexes in `argv`."""
    for at, word in enumerate(argv):
        if word.text in _FIND_EXEC_ACTIONS:
            end = at + 1
            while end < len(argv) and argv[end].text not in (";", "+"):
                end += 1
            yield at + 1, end


_PROGRAM_RUNNERS = frozenset({
    *_WRAPPERS, *SHELLS, *_CODE_OPTIONS, *_AWKS, "eval", "trap", "source", ".", "find",
})  # fmt: skip
_EXPANDED_PROGRAMS = _STATE_CHANGING_BUILTINS | _PROGRAM_RUNNERS
