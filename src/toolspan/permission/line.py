"""May a command line run? What each command in it needs.

In: what the line would run, where it starts, and who allows what. Out: a `Verdict`: whether every
command is allowed, and if not, which are not and why. Nothing is asked and nothing denied here.
Read `judge` first.
"""

import glob
import itertools
import re
from collections.abc import Callable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from toolspan.model.decision import Needs, Reach
from toolspan.permission.ground import Ground
from toolspan.permission.rule import Rule
from toolspan.shell.argument import CHANGERS, READERS, Files, files_of
from toolspan.shell.inside import SHELLS, base, plain
from toolspan.shell.line import Redirect, Word
from toolspan.shell.readonly import KNOWN, reads
from toolspan.shell.seen import Program, Seen
from toolspan.shell.variable import is_harmless, is_strong

_FREE = frozenset({
    ":", "[", "[[", "break", "continue", "exit", "export", "local", "declare", "readonly", "return",
    "shift", "true", "typeset", "unset", "wait",
})  # fmt: skip
"""What the shell does by itself, as long as it sets nothing of consequence."""
_JUDGED = _FREE | KNOWN | READERS.keys() | CHANGERS.keys() | {"cd", "read"}
"""Every program that may be free; all others never are."""
_EDITORS = frozenset({"cp", "mkdir", "mv", "rm", "rmdir", "sed", "touch"})
"""What counts as editing files, where edits are accepted."""
_EXACT_ONLY = frozenset({"eval", "flock", "ionice", "setsid", "watch", *SHELLS})
"""Programs that run others: a rule with a star says too little about them."""
_SAYING = frozenset({"cd", "echo", "printf"})
"""Programs whose words are no files that they read."""
_STREAMS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})
_MOST = 1_000
"""Files that a pattern is tried on."""
_BRACES = re.compile(r"\{([^{}]*(?:,|\.\.)[^{}]*)\}")
"""The innermost ones, which can be filled in without regard to those around them."""
_MOST_BRACES = 20
_SET = ("HOME", "PWD")
"""Variables that are set before the line is."""
_DESCRIPTOR = re.compile(r"\d+-?|-")
_NAME = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII)


class Forbids(Struct, frozen=True):
    """What rules say against files."""

    anything: re.Pattern[str]
    """Every path that one of the rules may forbid to read or to change."""
    by: Callable[[Ground, str, bool], Rule | None]
    """The rule that forbids reading a file, or, if so asked, changing it."""


class Freedom(Struct, frozen=True):
    """What is allowed without a question."""

    rule: Callable[[Program], Rule | None]
    """The rule that allows a program."""
    writes: Callable[[Ground, str], bool]
    """Whether a rule allows changing a file."""
    looks: Callable[[Ground, str], bool]
    """Whether a rule allows reading a file."""
    forbids: Forbids | None
    """The files that rules forbid; None when there are no such rules."""
    edits: bool = False
    """Files in the session's folders may be changed."""
    redirects: bool = False
    """Output may be redirected to files in the session's folders."""


class Verdict(Struct, frozen=True):
    """What is known of a line: nothing is needed, or this."""

    needs: Needs | None
    rules: tuple[Rule, ...] = ()
    """Those that allowed something."""
    forbidden: Rule | None = None
    """The rule that forbids a file in it."""


def judge(seen: Seen, ground: Ground, freedom: Freedom) -> Verdict:
    """What a line needs somebody's consent for."""
    judging = _Judging(ground, freedom)
    for program in seen.programs:
        judging.take(program)
    parts = judging.parts
    if seen.unclear and not parts:
        parts = [seen.text]
    if not parts:
        return Verdict(None, tuple(judging.rules), judging.forbidden)
    needed = tuple(dict.fromkeys(parts)) if len(parts) > 1 else tuple(parts)
    of = max(len([1 for program in seen.programs if program.words]), len(needed))
    needs = Needs(parts=needed, of=of, reach=judging.reach, leaves=judging.left)
    return Verdict(needs, tuple(judging.rules), judging.forbidden)


class _Judging:
    """Goes through the programs of a line in their order; `cd` moves the ground."""

    __slots__ = (
        "_forbids", "_freedom", "_ground", "_lost", "_origin", "_rule", "_values", "forbidden",
        "left", "parts", "reach", "rules",
    )  # fmt: skip

    def __init__(self, ground: Ground, freedom: Freedom) -> None:
        self._ground, self._origin, self._freedom = ground, ground, freedom
        self._rule, self._forbids = freedom.rule, freedom.forbids
        self._lost = False
        self._values: dict[str, str | None] = {}
        self.parts: list[str] = []
        self.rules: list[Rule] = []
        self.reach: Reach | None = None
        self.left = False
        self.forbidden: Rule | None = None

    def take(self, program: Program) -> None:
        """Judge one program."""
        if program.sets:
            self._remember(program)
        if self._forbids is not None:
            self._forbidden(program, self._forbids)
        if program.redirects:
            self._redirects(program)
        if not program.words:
            if any(map(is_strong, program.sets)):
                self._need(" ".join(f"{name}=" for name in program.sets))
            return
        rule = self._rule(program)
        if rule is not None:
            self.rules.append(rule)
            self._follow(program)
        elif (program.sets and not _is_itself(program)) or not self._is_free(plain(program)):
            self._need(program.text)

    def _need(self, text: str, reach: Reach | None = None) -> None:
        self.parts.append(text)
        self.reach = self.reach or reach

    def _remember(self, program: Program) -> None:
        if program.words and program.name not in _FREE:
            return
        for name, value in zip(program.sets, program.values, strict=False):
            said = None if value.runs else self._resolved(value)
            self._values[name] = None if name in self._values or name in _SET else said

    def _forbidden(self, program: Program, forbids: Forbids) -> None:
        """Whether a file that the program names is one that a rule forbids."""
        words = arguments = program.words[1:] if program.name not in _SAYING else ()
        targets = program.redirects
        if targets:
            targets = tuple(one for one in targets if not _is_descriptor(one))
        if targets or program.choices:
            words = (*program.choices, *arguments, *[one.target for one in targets])
        names, open_ended = _names(words)
        near = self._ground.near(names, forbids.anything) if names else set()
        if not near and not open_ended:
            return
        for word in program.choices:
            self._forbid(word, near, changes=False)
        self._forbid_arguments(program.name, arguments, near)
        for redirect in targets:
            self._forbid(redirect.target, near, changes=">" in redirect.operator)

    def _forbid_arguments(self, name: str, arguments: tuple[Word, ...], near: set[str]) -> None:
        files = files_of(base(name), arguments)
        changed = files.changed if files is not None else ()
        for word in arguments:
            self._forbid(word, near, changes=word in changed)
            if "=" in word.text:
                value = Word(word.text.partition("=")[2], word.filled)
                self._forbid(value, near, changes=False)

    def _forbid(self, word: Word, near: set[str], *, changes: bool) -> None:
        """Look at a word closer if the shell fills it in, or it is near a forbidden file."""
        if self._forbids is None or not (word.filled or word.text in near):
            return
        text = self._resolved(word)
        if not text or self.forbidden is not None:
            return
        for path in self._meant(text, pattern=word.filled):
            self.forbidden = self.forbidden or self._forbids.by(self._origin, path, changes)

    def _meant(self, text: str, *, pattern: bool) -> list[str]:
        """The files that a word may mean now; patterns are tried on the disk."""
        if not pattern:
            return self._ground.meanings(text)
        found: list[str] = []
        for one in itertools.islice(alternatives(text), _MOST):
            found += self._ground.meanings(one)
            if re.search(r"[*?\[]", one):
                there = glob.iglob(found[-1], include_hidden=True)  # noqa: PTH207 - absolute, lazily
                found += itertools.islice(there, _MOST)
        return found

    # Programs

    def _is_free(self, program: Program) -> bool:
        name = program.name
        if name not in _JUDGED:
            return False
        if name == "cd":
            return self._moves(program)
        if name in _FREE:
            return not any(map(is_strong, program.sets))
        arguments = program.words[1:]
        if [1 for word in arguments if word.filled]:
            arguments = tuple(map(self._written, arguments))
        if name == "read":
            return _only_reads_lines(arguments)
        files = files_of(name, arguments)
        if reads(name, arguments) and not (name == "git" and self._ground.cwd != self._origin.cwd):
            return files is None or self._reads(name, program, files)
        if files is not None and files.changed:
            return self._changes(name, program, files)
        return False

    def _reads(self, name: str, program: Program, files: Files) -> bool:
        for word in (*files.read, *files.changed):
            path = self._path(word)
            if path is None:
                self._need(program.text)
                return True
            if not self._readable(path):
                self._need(program.text, Reach(name, path, inside=False))
                return True
        return True

    def _changes(self, name: str, program: Program, files: Files) -> bool:
        """Whether changing files is free here; if not, the need is noted."""
        free = self._freedom.edits and name in _EDITORS and _plain_sed(name, program)
        for word in files.changed:
            path = self._path(word)
            if path is None or _is_pattern(word):
                self._need(program.text)
                return True
            inside = self._ground.inside(path)
            if not inside or self._ground.is_protected(path) or not free:
                self._need(program.text, Reach(name, path, inside=inside))
                return True
        return free

    def _moves(self, program: Program) -> bool:
        """`cd`: where the rest of the line goes on."""
        words = [word for word in program.words[1:] if word.text not in ("--", "-P", "-L")]
        target = words[0] if words else Word("~", filled=True)
        path = None if target.text == "-" or len(words) > 1 else self._path(target)
        if path is None:
            self._lost = True
            return False
        inside = self._readable(path)
        self._ground = replace(self._ground, cwd=path)
        if not inside:
            self.left = True
            self._need(program.text, Reach("cd", path, inside=False))
        return True

    def _follow(self, program: Program) -> None:
        """A rule allows the program: what it does to the ground counts all the same."""
        if program.name == "cd":
            parts, reach, left = list(self.parts), self.reach, self.left
            self._moves(program)
            self.parts, self.reach, self.left = parts, reach, left
        elif program.name in ("pushd", "popd"):
            self._lost = True

    # Paths

    def _path(self, word: Word) -> str | None:
        """Where a word leads; None when only the shell could tell."""
        text = self._resolved(word) if word.filled or word.text[:1] == "~" else word.text
        if text is None or (self._lost and not text.startswith(("/", "~"))):
            return None
        if text.startswith("~") and text[1:2] not in ("", "/"):
            return None
        cut = re.search(r"[*?\[{]", text) if word.filled else None
        if cut:
            if ".." in text[cut.start() :] or "{" in text:
                return None
            text = text[: cut.start()].rpartition("/")[0] or ("/" if text[0] == "/" else ".")
        if ".." in text and not self._ground.has_one_meaning(text):
            return None
        return self._ground.place(text)

    def _written(self, word: Word) -> Word:
        """A word that the shell fills in as one knows is as good as written out."""
        text = self._resolved(word) if word.filled else None
        if not text or text[:1] == "-" or re.search(r"[*?\[{\s]", text):
            return word
        return Word(self._ground.home + text[1:] if text[:1] == "~" else text)

    def _resolved(self, word: Word) -> str | None:
        """A word with the variables filled in that the line itself sets."""
        if not word.filled:
            return word.text if word.text[:1] != "~" else "./" + word.text
        if word.runs:
            return None
        missing = False

        def value(found: re.Match[str]) -> str:
            nonlocal missing
            known = self._value(found[1] or found[2])
            missing = missing or known is None
            return known or ""

        text = _NAME.sub(value, word.text)
        return None if missing or "$" in text or "`" in text else text

    def _value(self, name: str) -> str | None:
        """What a variable holds, as far as the line tells."""
        if name in _SET and name not in self._values:
            return self._origin.home if name == "HOME" else self._origin.cwd
        return self._values.get(name)

    # Redirects

    def _redirects(self, program: Program) -> None:
        for redirect in program.redirects:
            if _is_descriptor(redirect):
                continue
            kind = redirect.operator.lstrip("0123456789")
            if kind in ("<", "<&"):
                self._input(program, redirect)
            elif redirect.target.text not in _STREAMS or redirect.target.filled:
                self._output(program, redirect)

    def _input(self, program: Program, redirect: Redirect) -> None:
        path = self._path(redirect.target)
        text = program.text or "< " + redirect.target.text
        if path is None or path.startswith(("/dev/tcp", "/dev/udp")):
            self._need(text)
        elif path != "/dev/null" and not self._readable(path):
            self._need(text, Reach(base(program.name) or None, path, inside=False))

    def _readable(self, path: str) -> bool:
        return self._ground.inside(path, reading=True) or self._freedom.looks(self._origin, path)

    def _output(self, program: Program, redirect: Redirect) -> None:
        text = f"{program.text} {redirect.operator} {redirect.target.text}".strip()
        path = None if redirect.target.filled else self._path(redirect.target)
        if path is None:
            self._need(text)
            return
        inside = self._ground.inside(path)
        protected = self._ground.is_protected(path)
        if self._freedom.writes(self._origin, path) and not protected:
            return
        free = self._freedom.edits or self._freedom.redirects
        if not (free and inside) or protected:
            self._need(text, Reach(None, path, inside=inside))


def alternatives(text: str) -> Iterator[str]:
    """What braces make of a word: `{a,b}c` is `ac` and `bc`, `{1..9}` is a pattern for them."""
    if text.count("{") > _MOST_BRACES:
        text = re.sub(r"\{.*\}", "*", text)
    found = _BRACES.search(text)
    if found is None:
        yield text
        return
    for one in found[1].split(",") if "," in found[1] else [_counted(found[1])]:
        yield from alternatives(text[: found.start()] + one + text[found.end() :])


def _counted(inner: str) -> str:
    """A pattern for what `{a..c}` or `{1..9}` counts."""
    letters = re.fullmatch(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.-?\d+)?", inner)
    if letters is not None:
        return "[{}-{}]".format(*sorted(letters.groups()))
    return "[-0-9]*" if re.fullmatch(r"-?\d+\.\.-?\d+(?:\.\.-?\d+)?", inner) else "*"


def _names(words: tuple[Word, ...]) -> tuple[list[str], bool]:
    """What words, and values in them, say; and whether the shell fills in one of them."""
    names: list[str] = []
    open_ended = False
    for word in words:
        if word.filled:
            open_ended = True
        else:
            names.append(word.text)
            if "=" in word.text:
                names.append(word.text.partition("=")[2])
    return names, open_ended


def _is_descriptor(redirect: Redirect) -> bool:
    """Whether a stream goes where another one goes, and to no file."""
    if redirect.operator[-1] != "&":
        return False
    text = redirect.target.text
    return text in ("1", "2") or _DESCRIPTOR.fullmatch(text) is not None


def _plain_sed(name: str, program: Program) -> bool:
    """`sed` can write and run: only a substitution without such flags is an edit."""
    if name != "sed":
        return True
    scripts = [word.text for word in program.words[1:] if word.text[:1] != "-"][:1]
    return all(re.fullmatch(r"(\d+(,\d+)?)?(s(.).*\4.*\4[gI\d]*|d)", text) for text in scripts)


def _is_pattern(word: Word) -> bool:
    return word.filled and re.search(r"[*?\[{]", word.text) is not None


def _only_reads_lines(arguments: tuple[Word, ...]) -> bool:
    """`read` with names that mean nothing to anybody else."""
    for word in arguments:
        option = word.text[:1] == "-"
        if word.filled or (not option and (is_strong(word.text) or not word.text.isidentifier())):
            return False
        if option and not re.fullmatch(r"-[rs]+|-d|-n\d*|-t\d*|-a", word.text):
            return False
    return True


def _is_itself(program: Program) -> bool:
    """Whether it runs as it would without the variables that are set for it."""
    return program.name in _FREE or all(map(is_harmless, program.sets))


def rule_suffices(pattern: str | None, program: Program) -> bool:
    """Whether a rule says enough about a program: some run others, and need an exact one."""
    if pattern is None or "*" not in pattern:
        return True
    name = base(program.name)
    if name in _EXACT_ONLY:
        return name in SHELLS and not _is_inline(program)
    words = {word.text for word in program.words}
    return not (name == "find" and words & {"-exec", "-execdir", "-ok", "-okdir", "-delete"})


def _is_inline(program: Program) -> bool:
    """Whether a shell gets its script from the line itself."""
    options = [word.text for word in program.words[1:] if word.text[:1] == "-"]
    files = [word for word in program.words[1:] if word.text[:1] != "-"]
    inline = any("c" in option[1:] for option in options if option[:2] != "--")
    return inline or not files or program.fed or any(word.runs for word in files)
