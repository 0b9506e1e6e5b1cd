"""What programs run that are given other programs to run: `sudo`, `xargs`, `sh -c`, `find -exec`.

In: the programs of a line. Out: the programs inside them, to any depth, with the way that led
there; texts of code in other languages; and why there may be more. Read `unfold` first.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from toolspan.shell.line import Word, joined
from toolspan.shell.program import Program, Seen
from toolspan.shell.seen import see

_DEEPEST = 8
_ASSIGNS = re.compile(r"[A-Za-z_]\w*=", re.ASCII)


class Found(Struct, frozen=True):
    """A program and how it comes to run."""

    program: Program
    through: tuple[str, ...] = ()
    """The programs that run it, outermost first."""


class Unfolded(Struct, frozen=True):
    """Everything a line may run."""

    found: tuple[Found, ...]
    code: tuple[str, ...] = ()
    """What is given to interpreters of other languages."""
    unclear: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """How a program names the one that it runs."""

    takes: frozenset[str] = frozenset()
    """Options whose value is the next word."""
    before: int = 0
    """Words between the options and the program."""
    line: frozenset[str] = frozenset()
    """Options whose value is a command line."""
    joins: bool = False
    """The words are put together and given to a shell."""


def _takes(text: str, before: int = 0, line: str = "", *, joins: bool = False) -> _Wrapper:
    return _Wrapper(frozenset(text.split()), before, frozenset(line.split()), joins)


PLAIN: Mapping[str, _Wrapper] = {
    "builtin": _takes(""),
    "command": _takes(""),
    "nice": _takes("-n --adjustment"),
    "noglob": _takes(""),
    "nohup": _takes(""),
    "stdbuf": _takes("-i -o -e --input --output --error"),
    "time": _takes("-f -o --format --output"),
    "timeout": _takes("-k -s --kill-after --signal", 1),
}
"""Wrappers that change nothing of what the program inside may do."""

LOOKED_THROUGH = frozenset({*PLAIN, "xargs"})
"""Programs that an allow rule may look through."""
_WRAPPERS: Mapping[str, _Wrapper] = {
    **PLAIN,
    "busybox": _takes(""),
    "caffeinate": _takes("-t -w"),
    "chpst": _takes("-u -U -b -e -d -o -p -f -c -/ -n -l -L -r -t -m"),
    "chroot": _takes("--userspec --groups", 1),
    "chrt": _takes("-T -P -D", 1),
    "coproc": _takes(""),
    "cpulimit": _takes("-l -p -e --limit"),
    "daemonize": _takes("-a -e -o -c -p -l -u -E"),
    "dbus-run-session": _takes("--config-file --dbus-daemon"),
    "doas": _takes("-u -C -a"),
    "entr": _takes(""),
    "env": _takes("-u -C --unset --chdir", 0, "-S --split-string"),
    "exec": _takes("-a"),
    "fakeroot": _takes("-l -s -i -b --lib"),
    "faketime": _takes("", 1),
    "firejail": _takes(""),
    "flock": _takes("-w -E --timeout --wait --conflict-exit-code", 1, "-c --command"),
    "gtimeout": _takes("-k -s --kill-after --signal", 1),
    "ionice": _takes("-c -n -p -P -u --class --classdata"),
    "linux32": _takes(""),
    "linux64": _takes(""),
    "ltrace": _takes("-o -e -p -s -u -n -a -l -x"),
    "nocorrect": _takes(""),
    "nsenter": _takes("-t -S -G --target"),
    "numactl": _takes("-C -m -N -i -p --cpunodebind --membind"),
    "parallel": _takes("-j -S -a -I --jobs", 0, "", joins=True),
    "pkexec": _takes("--user"),
    "prlimit": _takes("-p --pid"),
    "proxychains": _takes("-f"),
    "proxychains4": _takes("-f"),
    "rlwrap": _takes("-f -H -C -s"),
    "runuser": _takes("-u -g -G -s", 0, "-c --command"),
    "schroot": _takes("-c -d -u"),
    "script": _takes("-I -O -B -T -E -m -o", 0, "-c --command"),
    "setarch": _takes("", 1),
    "setpriv": _takes("--reuid --regid --groups"),
    "setsid": _takes(""),
    "softlimit": _takes("-a -c -d -f -l -m -n -o -p -r -s -t"),
    "ssh": _takes("-b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w", 1, joins=True),
    "strace": _takes("-o -e -p -s -a -b -E -I -O -S -u -P -X --output --trace"),
    "su": _takes("-s -g -G -w --shell", 1, "-c --command --session-command"),
    "sudo": _takes("-C -D -g -h -p -R -r -t -T -U -u --user --group --host --prompt --chdir"),
    "systemd-inhibit": _takes("--what --who --why --mode"),
    "systemd-run": _takes("-u -p -E -t -H -M --unit --property --setenv"),
    "taskset": _takes("", 1),
    "torify": _takes(""),
    "torsocks": _takes("-a -P -u -p"),
    "toybox": _takes(""),
    "tsocks": _takes(""),
    "unbuffer": _takes(""),
    "unshare": _takes("-S -G -R -w --setuid --setgid --root --wd"),
    "valgrind": _takes(""),
    "watch": _takes("-n -q --interval --equexit", 0, "", joins=True),
    "xargs": _takes(
        "-a -d -E -I -L -n -P -s --arg-file --delimiter --max-lines --max-args --max-procs"
        " --max-chars --replace --process-slot-var"
    ),
    "xvfb-run": _takes("-e -f -n -p -s -w --server-num --server-args"),
}

SHELLS = frozenset({
    "ash", "bash", "csh", "dash", "fish", "ksh", "ksh93", "mksh", "rbash", "sh", "tcsh", "yash",
    "zsh",
})  # fmt: skip
_CODE: Mapping[str, frozenset[str]] = {
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
_RENAMES = frozenset({
    "alias", "bind", "compgen", "complete", "enable", "fc", "hash", "mapfile", "readarray",
})  # fmt: skip
_TELLING = frozenset({*_RENAMES, "let"})
_RUN_LATER = frozenset({
    "BASHOPTS", "BASH_ENV", "ENV", "PROMPT_COMMAND", "PS0", "PS4", "SHELLOPTS",
})  # fmt: skip
_IDLE = frozenset({*PLAIN, "env", "exec", "xargs"})
"""Wrappers that start no shell when they are given no program."""
_AWKS = frozenset({"awk", "gawk", "mawk", "nawk"})
_AWK_RUNS = re.compile(r"system|\||getline|@load|@include|printf?\s[^;}]*>")
_GIVERS = frozenset({"find", "parallel", "xargs"})
_REPLACED = re.compile(r"[{}%@_]|^\s*$")
"""What `xargs -I` and `find -exec` usually replace; a script that holds it may become any other."""
_FINDS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


def unfold(seen: Seen) -> Unfolded:
    """Every program of the line, and those inside them."""
    for program in seen.programs:
        words = program.words
        if program.sets or (words and base(words[0].text) in _TELLING_OR_RUNNING):
            break
    else:  # there is nothing to any of them but itself
        return Unfolded(tuple(map(Found, seen.programs)), (), seen.unclear)
    unfolder = _Unfolder()
    unfolder.line(seen, (), 0)
    return Unfolded(
        tuple(unfolder.found), tuple(unfolder.code), tuple(dict.fromkeys(unfolder.unclear))
    )


def plain(program: Program) -> Program:
    """The program without wrappers that an allow rule looks through."""
    if not program.words or program.words[0].text not in LOOKED_THROUGH:
        return program
    while (name := program.name) in PLAIN or (name == "xargs" and _bare_xargs(program)):
        words = tuple(program.words)
        if name == "command" and len(words) > 1 and words[1].text[:2] in ("-v", "-V"):
            return program
        start = _program_at(words, PLAIN.get(name) or _Wrapper())
        if start is None or start >= len(words) or words[start].filled:
            return program
        program = _rest(program, start)
    return program


def _bare_xargs(program: Program) -> bool:
    return len(program.words) > 1 and program.words[1].text[:1] != "-"


def base(name: str) -> str:
    """The name of a program without its folder."""
    return name.rpartition("/")[2]


class _Unfolder:
    """Collects programs from lines and from each other."""

    def __init__(self) -> None:
        self.found: list[Found] = []
        self.code: list[str] = []
        self.unclear: list[str] = []

    def line(self, seen: Seen, through: tuple[str, ...], depth: int) -> None:
        """All that a line runs."""
        self.unclear.extend(seen.unclear)
        for program in seen.programs:
            self.program(program, through, depth)

    def program(self, program: Program, through: tuple[str, ...], depth: int) -> None:
        """A program, and what it runs in turn."""
        self.found.append(Found(program, through))
        name = base(program.name)
        if name in _TELLING or program.sets:
            self._meanings(name, program)
        if name not in _RUNNERS:
            return
        if depth >= _DEEPEST:
            self.unclear.append("programs run programs very deeply")
            return
        self._inner(name, program, (*through, name), depth + 1)

    def _meanings(self, name: str, program: Program) -> None:
        """What changes the meaning of names, or makes the shell run a text later."""
        if name in _RENAMES and len(program.words) > 1:
            self.unclear.append(f"{name} changes what names mean")
        if not _RUN_LATER.isdisjoint(program.sets):
            self.unclear.append("a variable is set that the shell runs")
        if name == "let":
            self.unclear.append("arithmetic is done with names")

    def _inner(self, name: str, program: Program, through: tuple[str, ...], depth: int) -> None:
        if name in SHELLS:
            self._shell(program, through, depth)
        elif name in ("eval", "trap", "source", "."):
            self._builtin(name, program, through, depth)
        elif name == "find":
            self._find(program, through, depth)
        elif name in _WRAPPERS:
            self._wrapper(_WRAPPERS[name], program, through, depth)
        elif name in _AWKS:
            self._awk(program)
        else:
            self._interpreter(name, program)

    def _find(self, program: Program, through: tuple[str, ...], depth: int) -> None:
        if any(word.splits or (word.filled and word.text[:1] == "-") for word in program.words):
            self.unclear.append("what find is told is filled in by the shell")
        for start, end in _find_runs(program.words):
            inner = _between(program, start, end)
            if not inner.name or "{" in inner.name:
                self.unclear.append("find runs what it finds")
            self.program(inner, through, depth)

    def _text(self, word: Word, through: tuple[str, ...], depth: int) -> None:
        """A word that is a command line."""
        if word.filled or (_is_given(through) and _REPLACED.search(word.text)):
            self.unclear.append(f"what {through[-1]} runs is filled in by the shell")
        else:
            self.line(see(word.text), through, depth)

    def _shell(self, program: Program, through: tuple[str, ...], depth: int) -> None:
        words = program.words
        at = 1
        while at < len(words) and words[at].text[:1] in ("-", "+") and len(words[at].text) > 1:
            option = words[at].text
            if option[:2] != "--" and "c" in option[1:] and option[0] == "-":
                self._script(words, at + 1, through, depth)
                return
            takes = option in ("-o", "-O", "+O", "+o", "--rcfile", "--init-file")
            if takes or words[at].filled or any(word.splits for word in words[at : at + 2]):
                self.unclear.append(f"{through[-1]} has options that are not understood")
            at += 2 if takes else 1
        if at < len(words) and (words[at].runs or words[at].splits):
            self.unclear.append(f"what {through[-1]} runs is filled in by the shell")
        elif at >= len(words) or words[at].text in ("-", "/dev/stdin", "/dev/fd/0"):
            self._fed(program, through, depth)

    def _script(self, words: Sequence[Word], at: int, through: tuple[str, ...], depth: int) -> None:
        while at < len(words) and words[at].text[:1] in ("-", "+"):
            at += 1
        if at < len(words):
            self._text(words[at], through, depth)
        elif _is_given(through):
            self.unclear.append(f"{through[-1]} runs what it is given")

    def _fed(self, program: Program, through: tuple[str, ...], depth: int) -> None:
        if program.feed is not None:
            known = len(self.found)
            self.line(see(program.feed), through, depth)
            if any(_turns_input(one.program) for one in self.found[known:]):
                self.unclear.append(f"{through[-1]} turns to another script")
        else:  # even if nothing seems to feed it: a group or a function around it may
            self.unclear.append(f"{through[-1]} runs what it is given")

    def _builtin(self, name: str, program: Program, through: tuple[str, ...], depth: int) -> None:
        words = [word for word in program.words[1:] if word.text != "--"]
        if name == "trap":
            words = [word for word in words if word.text[:1] != "-"]
            if len(words) > 1:
                self._text(words[0], through, depth)
        elif name == "eval":
            self._text(joined(words, " "), through, depth)
        elif words and words[0].filled:
            self.unclear.append(f"what {name} reads is filled in by the shell")
        elif words and words[0].text.startswith(("/dev/", "/proc/")):
            self.unclear.append(f"{name} runs what it is given")

    def _wrapper(
        self, wrapper: _Wrapper, program: Program, through: tuple[str, ...], depth: int
    ) -> None:
        words = program.words
        for line in _lines(words, wrapper):
            self._text(line, through, depth)
        start = _program_at(words, wrapper)
        if start is None:
            self._any_of(program, through)
        elif start < len(words) and wrapper.joins:
            self._text(joined(words[start:], " "), through, depth)
        elif start < len(words):
            inner = _rest(program, start)
            if not inner.name or ("{" in inner.name and _is_given(through)):
                self.unclear.append("a command's name is filled in by the shell")
            self.program(inner, through, depth)
        elif _is_given(through) or through[-1] not in _IDLE:
            self.unclear.append(f"{through[-1]} runs what it is given")

    def _any_of(self, program: Program, through: tuple[str, ...]) -> None:
        """Which word is the program cannot be told: each may be."""
        self.unclear.append(f"{through[-1]} has options that are not understood")
        for start in range(1, len(program.words)):
            if not program.words[start].filled:
                self.found.append(Found(_rest(program, start), through))

    def _awk(self, program: Program) -> None:
        texts = [word.text for word in program.words[1:]]
        self.code.extend(texts)
        if any(_AWK_RUNS.search(text) for text in texts):
            self.unclear.append("awk may run programs")

    def _interpreter(self, name: str, program: Program) -> None:
        options = _CODE[name]
        for word in program.words[1:]:
            if word.text in options or (word.text[:2] in options and len(word.text) > 2):
                self.code.extend(word.text for word in program.words[1:])
                return
        if program.feed is not None:
            self.code.append(program.feed)


def _lines(words: Sequence[Word], wrapper: _Wrapper) -> Iterator[Word]:
    """The values of options that are command lines."""
    for at, word in enumerate(words):
        option, equals, value = word.text.partition("=")
        if at and option in wrapper.line and equals:
            yield replace(word, text=value)
        elif at and word.text in wrapper.line and at + 1 < len(words):
            yield words[at + 1]


def _turns_input(program: Program) -> bool:
    """`exec < file`: a shell that reads its script there goes on with the file."""
    return program.name == "exec" and any("<" in one.operator for one in program.redirects)


def _is_given(through: Sequence[str]) -> bool:
    """Whether words are added to a program from elsewhere."""
    return not _GIVERS.isdisjoint(through)


def _program_at(words: Sequence[Word], wrapper: _Wrapper) -> int | None:
    """Where the program begins inside a wrapper's words; None when that cannot be told."""
    at, before = 1, wrapper.before
    while at < len(words):
        text = words[at].text
        option = text[:1] == "-" and len(text) > 1
        takes = option and text in wrapper.takes
        if _may_vanish(words[at : at + 1 + takes], before=bool(before)):
            return None
        if text == "--":
            return at + 1 + before
        if option or _is_setting(text, base(words[0].text)):
            at += 1 + takes
        elif before:
            at, before = at + 1, before - 1
        else:
            return at
    return at


def _may_vanish(words: Sequence[Word], *, before: bool) -> bool:
    """Whether words before the program may become none or several: then it is elsewhere."""
    first = words[0]
    if first.filled and (first.text[:1] == "-" or (first.splits and (before or "=" in first.text))):
        return True
    return any(word.splits for word in words[1:])


def _is_setting(text: str, wrapper: str) -> bool:
    """Whether a word sets a variable for the program behind it."""
    if wrapper == "time":  # a word of the shell's own, which takes what stands before a command
        return text == "!" or _ASSIGNS.match(text) is not None
    if wrapper == "env" and text == "-":
        return True
    return "=" in text and wrapper in ("doas", "env", "sudo")


def _rest(program: Program, start: int) -> Program:
    """The program that begins at one of the words of another."""
    words = program.words[start:]
    sets = [
        word.text.partition("=")[0] for word in program.words[1:start] if _ASSIGNS.match(word.text)
    ]
    text = " ".join(program.text.split(" ")[start:])
    if " ".join(word.text for word in program.words) != program.text:
        text = " ".join(word.text for word in words)
    return replace(program, words=words, text=text, sets=(*program.sets, *sets))


def _between(program: Program, start: int, end: int) -> Program:
    words = program.words[start:end]
    return replace(program, words=words, text=" ".join(word.text for word in words), redirects=())


def _find_runs(words: Sequence[Word]) -> Iterator[tuple[int, int]]:
    """Where `find` is given programs."""
    for at, word in enumerate(words):
        if word.text in _FINDS:
            end = at + 1
            while end < len(words) and words[end].text not in (";", "+"):
                end += 1
            yield at + 1, end


_RUNNERS = frozenset({
    *_WRAPPERS, *SHELLS, *_CODE, *_AWKS, "eval", "trap", "source", ".", "find",
})  # fmt: skip
_TELLING_OR_RUNNING = _TELLING | _RUNNERS
