"""Rules: patterns that allow, ask for, or deny calls.

A rule is a tool's name (`Bash`), an MCP server (`mcp__db`), a name with a star (`mcp__db__*`), or a
name with something in brackets: a command (`Bash(git *)`), a path as in ignore files
(`Read(./secret/**)`), a host (`WebFetch(domain:x.org)`), an agent (`Agent(reviewer)`).
Deny wins over ask and ask over allow, whoever wrote them. A command line is allowed only when each
command in it is; it is denied when one is. Read `Rules.__call__` first.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from toolspan.errors import ToolspanError
from toolspan.model.decision import Allow, Ask, Basis, Decision, Deny, Needs
from toolspan.model.toolkind import tool_kind, tools_of
from toolspan.permission.command import granted, is_far_from, may_hide, mentions, opened
from toolspan.permission.decide import Question
from toolspan.permission.files import any_of, is_at_home, path_fits
from toolspan.permission.ground import Ground
from toolspan.permission.line import Forbids, Freedom, Verdict, judge, rule_suffices
from toolspan.permission.rule import Rule, beginning, is_prefix, like
from toolspan.shell.inside import LOOKED_THROUGH
from toolspan.shell.seen import Program, Seen, see
from toolspan.shell.variable import is_harmless

_READ_RULES = frozenset({"Read", "NotebookRead"})
_EDIT_RULES = frozenset({"Edit", "MultiEdit", "NotebookEdit", "Write"})
_FILE_RULES = _READ_RULES | _EDIT_RULES
_IDLE = frozenset({"Glob", "Grep", "LS", "MultiEdit", "NotebookEdit", "Write"})
"""Tools whose path rules grant nothing: rules for Read and Edit speak for them."""
_PATHS = ("file_path", "notebook_path", "path")
_SHELLS = tools_of("shell")
_MAIN = frozenset({"command", "url", *_PATHS})
_MOST_TOOLS = 256
_MOST_PLACES = 64
_PARAMETER = re.compile(r"(\w+)\s*:\s*(.*)", re.DOTALL)


class _Concerned(Struct, frozen=True):
    """Rules of one list that may speak of a tool's calls."""

    rules: tuple[Rule, ...]
    beginnings: tuple[str, ...]
    """Of the commands they speak of."""
    parameters: frozenset[str]
    """Fields of the input they may speak of."""
    always: bool
    """One of them speaks of every call."""

    def is_silent(self, question: Question, shell: str | None) -> bool:
        """Whether none of them speaks, at a glance; they may be silent all the same if not."""
        if not self.rules:
            return True
        if shell is None or self.always or not self.parameters.isdisjoint(question.input):
            return False
        return is_far_from(shell, self.beginnings)


class _Speakers(Struct, frozen=True):
    """Rules that may speak of a tool's calls."""

    deny: _Concerned
    ask: _Concerned
    either: _Concerned
    """Those that deny and those that ask: most calls are spoken of by none of them."""
    allow: tuple[Rule, ...]
    whole: tuple[Rule, ...]
    """Those of them that may allow a command line as it is."""


def _refuse_text(**given: Iterable[str]) -> None:
    """One text is a list of letters, each of them a rule for a tool that nobody has."""
    for name, texts in given.items():
        if isinstance(texts, str):
            raise ToolspanError(f"Rules takes lists: {name}=[{texts!r}], not {name}={texts!r}")


class Rules:
    """A policy made of rules: deny before ask before allow."""

    def __init__(
        self,
        *,
        allow: Iterable[str] = (),
        ask: Iterable[str] = (),
        deny: Iterable[str] = (),
        origin: str | None = None,
        folder: Path | None = None,
    ) -> None:
        """Rules of one source: `origin` is its name, `folder` is where `/x` begins in its paths.

        Raises:
            ToolspanError: a text is no rule, or stands where a list of them belongs.
        """
        _refuse_text(allow=allow, ask=ask, deny=deny)
        self.allow = tuple(Rule.parse(text, origin, folder) for text in allow)
        self.ask = tuple(Rule.parse(text, origin, folder) for text in ask)
        self.deny = tuple(Rule.parse(text, origin, folder) for text in deny)
        self._prepare()

    def _prepare(self) -> None:
        """What can be known before anything is asked."""
        self._latest: tuple[object, Verdict] | None = None
        self._known: dict[tuple[str, str], _Speakers] = {}
        self._freedoms: dict[tuple[bool, bool, str, str, str], Freedom] = {}
        self._files = tuple(filter(_is_about_files, self.deny))
        self._at_home = any(map(is_at_home, self._files))
        self._granting_files = tuple(rule for rule in self.allow if _may_grant_files(rule))
        self._shell = tuple(rule for rule in self.allow if rule.names("Bash"))
        self._begin = tuple(beginning(rule.inside or "") for rule in self._shell)
        stopped = (rule for rule in (*self.deny, *self.ask) if rule.names("Bash"))
        self._stopped = [rule.inside for rule in stopped if rule.inside is not None]

    def __add__(self, other: "Rules") -> "Rules":
        """The rules of two sources."""
        both = Rules()
        both.allow = (*self.allow, *other.allow)
        both.ask = (*self.ask, *other.ask)
        both.deny = (*self.deny, *other.deny)
        both._prepare()
        return both

    def __call__(self, question: Question) -> Decision | None:
        """The opinion of the rules on a call."""
        shell = command_of(question)
        speakers = self._speakers(question)
        silent = speakers.either.is_silent(question, shell)
        denying = None if silent else _speaking(speakers.deny, question, shell)
        if denying is None and self._files and shell is not None:
            denying = self._forbidden(question, shell)
        if denying is not None:
            text, origin = denying.text, denying.origin
            return Deny(None, "config", rule=text, origin=origin, basis=_basis(shell))
        asking = None if silent else _speaking(speakers.ask, question, shell)
        if asking is not None:
            return Ask(None, "config", asking.text, asking.origin, "rule")
        if shell is not None and self._stopped and may_hide(shell, self._stopped):
            needs = Needs(parts=(shell,), of=1)
            return Ask(None, "config", basis="unclear", needs=needs)
        return self._granted(speakers, question, shell)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Rules that do less than they seem to."""
        return tuple(_warnings(self.allow, self.ask, self.deny))

    def removes(self, tool: str) -> bool:
        """Whether the tool as a whole is denied: then it is not offered."""
        return any(rule.inside is None and rule.names(tool) for rule in self.deny)

    def freedom(self, ground: Ground, *, edits: bool, redirects: bool) -> Freedom:
        """What these rules allow of the commands in a line, and what a mode adds to that."""
        home = ground.home if self._at_home else ""
        key = (edits, redirects, ground.cwd, ground.folders[0], home)
        found = self._freedoms.get(key)
        if found is None:
            if len(self._freedoms) >= _MOST_PLACES:
                self._freedoms.clear()
            files = self._files
            found = self._freedoms[key] = Freedom(
                rule=self._granting,
                writes=self._may_write,
                looks=self._may_read,
                forbids=Forbids(any_of(files, ground), self._forbid) if files else None,
                edits=edits,
                redirects=redirects,
            )
        return found

    def verdict(self, line: str, question: Question, *, edits: bool, redirects: bool) -> Verdict:
        """What a line needs beside what these rules and a mode allow."""
        place = (question.cwd, question.project, question.folders, question.own)
        key = (question.call.id, line, edits, redirects, *place)
        if self._latest is None or self._latest[0] != key:
            ground = question.ground()
            freedom = self.freedom(ground, edits=edits, redirects=redirects)
            self._latest = (key, judge(see(line), ground, freedom))
        return self._latest[1]

    # Denying and asking

    def _speakers(self, question: Question) -> _Speakers:
        """The rules that may speak of such a call."""
        key = (question.tool, question.call.tool)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_TOOLS:
                self._known.clear()
            allow = tuple(rule for rule in self.allow if _may_grant(rule, question))
            found = self._known[key] = _Speakers(
                deny=_concerned(self.deny, question),
                ask=_concerned(self.ask, question),
                either=_concerned((*self.deny, *self.ask), question),
                allow=allow,
                whole=tuple(rule for rule in allow if not is_prefix(rule.inside or "")),
            )
        return found

    def _forbidden(self, question: Question, shell: str) -> Rule | None:
        """The path rule that a command line goes against."""
        inner = [found.program for found in opened(shell).found if found.through]
        if inner:
            ground = question.ground()
            freedom = self.freedom(ground, edits=False, redirects=False)
            for program in inner:
                verdict = judge(_alone(program), ground, freedom)
                if verdict.forbidden is not None:
                    return verdict.forbidden
        return self.verdict(shell, question, edits=False, redirects=False).forbidden

    def _forbid(self, ground: Ground, path: str, changes: bool) -> Rule | None:  # noqa: FBT001 - called by position
        tools = _FILE_RULES if changes else _READ_RULES
        for rule in self._files:
            if rule.tool in tools and path_fits(rule, path, ground, granting=False):
                return rule
        return None

    # Allowing

    def _granted(self, speakers: _Speakers, question: Question, shell: str | None) -> Allow | None:
        for rule in speakers.allow if shell is None else speakers.whole:
            if _grants(rule, question, shell):
                return Allow(rule.text, "config", None, rule.text, rule.origin, "rule")
        if shell is None:
            return None
        verdict = self.verdict(shell, question, edits=False, redirects=False)
        if verdict.needs is not None or not verdict.rules:
            return None
        rule = verdict.rules[0]
        return Allow(rule.text, "config", None, rule.text, rule.origin, "parts")

    def _granting(self, program: Program) -> Rule | None:
        wrapped = program.words[0].text in LOOKED_THROUGH
        if not wrapped and not program.text.startswith(self._begin):
            return None
        for rule in self._shell:
            if rule.inside is None:
                return rule
            if granted(program, rule.inside) and rule_suffices(rule.inside, program):
                return rule if _sets_nothing(program) else None
        return None

    def _may_read(self, ground: Ground, path: str) -> bool:
        return self._path_granted(_FILE_RULES, ground, path)

    def _may_write(self, ground: Ground, path: str) -> bool:
        return self._path_granted(_EDIT_RULES, ground, path)

    def _path_granted(self, tools: frozenset[str], ground: Ground, path: str) -> bool:
        for rule in self._granting_files:
            if rule.tool not in tools:
                continue
            if rule.inside is None or path_fits(rule, path, ground, granting=True):
                return True
        return False


def command_of(question: Question) -> str | None:
    """The command line of a call that is one."""
    command = question.input.get("command")
    return command if question.tool in _SHELLS and isinstance(command, str) else None


def paths_of(question: Question) -> list[str]:
    """The files a call of a file tool is about."""
    ground = question.ground()
    named = [question.input.get(key) for key in _PATHS]
    found = [ground.place(name) for name in named if isinstance(name, str)]
    return found or ([ground.cwd] if tool_kind(question.tool) == "search" else [])


def _concerned(rules: Sequence[Rule], question: Question) -> _Concerned:
    """Those of the rules that may speak of calls such as this one."""
    named = [rule for rule in rules if _names(rule, question)]
    inside = [rule.inside for rule in named if rule.inside is not None]
    parameters = [_PARAMETER.fullmatch(one) for one in inside]
    return _Concerned(
        tuple(rule for rule in rules if rule in named or _path_rule(rule, question)),
        tuple(map(beginning, inside)),
        frozenset(found[1] for found in parameters if found is not None),
        len(inside) < len(named),
    )


def _speaking(concerned: _Concerned, question: Question, shell: str | None) -> Rule | None:
    """The first rule that speaks of the call."""
    if concerned.is_silent(question, shell):
        return None
    return next((rule for rule in concerned.rules if _speaks(rule, question, shell)), None)


def _speaks(rule: Rule, question: Question, shell: str | None) -> bool:
    """Whether a rule that denies or asks speaks of the call."""
    if not _names(rule, question):
        return _path_rule(rule, question) and _any_path(rule, question, granting=False)
    if rule.inside is None or _parameter_fits(rule.inside, question):
        return True
    if shell is not None:
        return mentions(shell, rule.inside)
    return _main_fits(rule, question, granting=False)


def _may_grant(rule: Rule, question: Question) -> bool:
    """Whether a rule may allow a call of this tool as a whole."""
    if not rule.grants:
        return False
    if not _names(rule, question):
        return _path_rule(rule, question) and rule.tool not in _IDLE
    return True


def _grants(rule: Rule, question: Question, shell: str | None) -> bool:
    """Whether one rule allows the call as a whole."""
    if shell is not None:
        return rule.inside is None or shell.strip() == rule.inside
    if not _names(rule, question):
        return _any_path(rule, question, granting=True)
    if rule.inside is None:
        return True
    return rule.tool not in _IDLE and _main_fits(rule, question, granting=True)


def _basis(shell: str | None) -> Basis:
    return "rule" if shell is None else "parts"


def _names(rule: Rule, question: Question) -> bool:
    if rule.names(question.tool) or rule.names(question.call.tool):
        return True
    return rule.tool == "Bash" and question.tool == "Monitor"


def _is_about_files(rule: Rule) -> bool:
    return rule.inside is not None and rule.tool in _FILE_RULES


def _may_grant_files(rule: Rule) -> bool:
    return rule.tool in _FILE_RULES and rule.tool not in _IDLE


def _path_rule(rule: Rule, question: Question) -> bool:
    """Whether a rule for Read or Edit also governs this tool."""
    if rule.inside is None:
        return False
    kind = tool_kind(question.tool)
    if rule.tool in _READ_RULES:
        return kind in ("read", "search", "edit", "write")
    return rule.tool in _EDIT_RULES and kind in ("edit", "write")


def _any_path(rule: Rule, question: Question, *, granting: bool) -> bool:
    if granting and rule.tool in _READ_RULES and tool_kind(question.tool) in ("edit", "write"):
        return False
    ground = question.ground()
    paths = paths_of(question)
    fits = [path_fits(rule, path, ground, granting=granting) for path in paths]
    return bool(fits) and (all(fits) if granting else any(fits))


def _main_fits(rule: Rule, question: Question, *, granting: bool) -> bool:
    """Whether the brackets of a rule fit what the call is about."""
    inside = rule.inside or ""
    match tool_kind(question.tool):
        case "read" | "search" | "edit" | "write":
            return _any_path(rule, question, granting=granting)
        case "web":
            return _host_fits(inside, question.input.get("url"))
        case "agent":
            return like(str(question.input.get("subagent_type", "")), inside)
        case _:
            values = (question.input.get(key) for key in ("skill", "command", "query", "pattern"))
            texts = [value for value in values if isinstance(value, str)]
            return any(like(text, inside) for text in texts)


def _host_fits(inside: str, url: object) -> bool:
    pattern = inside.removeprefix("domain:").strip().lower().rstrip(".")
    if not isinstance(url, str) or not inside.startswith("domain:"):
        return False
    try:
        host = (urlsplit(url.strip()).hostname or "").rstrip(".")
    except ValueError:
        return False
    if pattern in ("*", host):
        return bool(host)
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and host != pattern[2:]
    parts, wanted = host.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(like, parts, wanted))


def _parameter_fits(inside: str, question: Question) -> bool:
    """`Tool(param:value)`: a field of the input other than the main one."""
    found = _PARAMETER.fullmatch(inside)
    if found is None or found[1] in _MAIN or found[1] not in question.input:
        return False
    value = question.input[found[1]]
    if isinstance(value, bool):
        return like(str(value).lower(), found[2])
    return isinstance(value, str | int | float) and like(str(value), found[2])


def _sets_nothing(program: Program) -> bool:
    return all(map(is_harmless, program.sets))


def _alone(program: Program) -> Seen:
    return Seen(program.text, (program,))


def _warnings(allow: Sequence[Rule], ask: Sequence[Rule], deny: Sequence[Rule]) -> Iterator[str]:
    for rule in allow:
        if not rule.grants:
            yield f"{rule.text}: a star before a server's name allows nothing"
        elif rule.inside is not None and rule.tool in _IDLE:
            yield f"{rule.text}: grants nothing; rules for Read and Edit speak for {rule.tool}"
    for rule in (*allow, *ask, *deny):
        if rule.text.endswith("()"):
            yield f"{rule.text}: empty brackets mean the whole tool"
