"""`toolspan policy`: what permission rules would do, without anything being run."""

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from msgspec import Struct

from toolspan.cli.options import options
from toolspan.cli.output import console, count, escape, print_json, short
from toolspan.cli.select import locate
from toolspan.errors import ToolspanError
from toolspan.ids import CallId
from toolspan.model.decision import Allow, Ask, Decision, Deny
from toolspan.model.span import Call
from toolspan.permission import MODES, Mode, Permissions, Rules
from toolspan.permission.command import opened
from toolspan.permission.decide import Question, decide
from toolspan.permission.rules import command_of
from toolspan.permission.source import rules_of
from toolspan.permission.suggest import suggestions
from toolspan.profile import DEFAULT, VERSIONS, profile
from toolspan.read.transcript import read
from toolspan.run.denial import asked_words
from toolspan.run.shelf import LiveShelf
from toolspan.settings import Settings, load

_LISTS = ("allow", "ask", "deny")


class Verdict(Struct, frozen=True, kw_only=True):
    """What would happen to a call."""

    call: str | None = None
    tool: str
    about: str
    decision: str
    """`allow`, `ask` or `deny`."""
    rule: str | None = None
    origin: str | None = None
    basis: str | None = None
    words: str | None = None
    """What would be asked."""
    programs: tuple[str, ...] = ()
    """Of a command line: all that it may run, as far as that can be told."""
    unclear: tuple[str, ...] = ()
    suggestions: tuple[dict[str, object], ...] = ()


class _Apart(click.Command):
    """A command that knows what stood behind `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what is behind `--` to itself."""
        if "--" in args:
            at = args.index("--")
            ctx.meta["behind"] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


@click.group("policy")
def command() -> None:
    """What permission rules would do, to a command or to a whole session.

    Nothing is run. Both commands print JSON with --json.
    """


_options = options(
    click.option("--settings", "settings_file", type=click.Path(path_type=Path),
                 help="Rules from this settings file."),
    click.option("--permission-mode", "mode", type=click.Choice(MODES),
                 help="What happens to calls no rule speaks of."),
    click.option("--profile", "name", type=click.Choice(VERSIONS), default=DEFAULT,
                 help="The client version whose words are used."),
    click.option("--json", "as_json", is_flag=True, help="JSON, one object per line."),
)  # fmt: skip
"""The options that say which rules and which mode."""


@command.command("check", cls=_Apart)
@click.argument("rules", nargs=-1, metavar="[RULE]... -- COMMAND...")
@click.option("--tool", default="Bash", show_default=True, help="The tool that is called.")
@click.option("--input", "given", help="The call's input as JSON, instead of a command.")
@click.option("--cwd", type=click.Path(path_type=Path, file_okay=False), default=Path())
@_options
@click.pass_context
def check(ctx: click.Context, /, rules: tuple[str, ...], **wishes: object) -> None:
    """What would happen to one call.

    A RULE is written as in settings, with the list it belongs to before it: "deny:Bash(rm:*)",
    "ask:WebFetch"; without a list it allows. What stands behind -- is the command, as one word or
    several.
    """
    asked = _Asked.of(wishes)
    permissions = asked.permissions(_rules(rules))
    question = _question(asked, ctx.meta.get("behind", []))
    verdict = judged(question, permissions)
    if asked.as_json:
        print_json(verdict)
    else:
        _print(verdict, permissions)


@command.command("replay")
@click.argument("names", nargs=-1, required=True, metavar="TRANSCRIPT...")
@click.option("--all", "everything", is_flag=True, help="Also calls that would be allowed.")
@_options
def replay(names: tuple[str, ...], **wishes: object) -> None:
    """What would have been asked or denied in a session that was recorded.

    Every call is judged as if it were asked for in the folder the session began in.
    """
    everything = bool(wishes.pop("everything"))
    asked = _Asked.of({"tool": "", "given": None, "cwd": Path(), **wishes})
    permissions = asked.permissions(Rules())
    counts: Counter[str] = Counter()
    out = console()
    for verdict in _replayed(names, permissions):
        counts[verdict.decision] += 1
        if verdict.decision == "allow" and not everything:
            continue
        if asked.as_json:
            print_json(verdict)
        else:
            about = escape(short(verdict.about, 100))
            ground = verdict.rule or verdict.basis or ""
            out.print(f"{_styled(verdict.decision):<5} {escape(verdict.tool)}  {about}", end="")
            out.print(f"  [dim]{escape(ground)}[/]" if ground else "")
    if not asked.as_json:
        told = ", ".join(f"{counts[one]:,} {one}" for one in _LISTS)
        out.print(f"{count(counts.total(), 'call')}: {told}")


class _Asked(Struct, frozen=True, kw_only=True):
    """What the command line asks for."""

    settings_file: Path | None
    mode: Mode | None
    name: str
    as_json: bool
    tool: str
    given: str | None
    cwd: Path

    @classmethod
    def of(cls, wishes: dict[str, object]) -> "_Asked":
        """From the options of a command."""
        return cls(**wishes)  # type: ignore[arg-type]  # click has checked them

    def permissions(self, rules: Rules) -> Permissions:
        """Rules, mode and folders, from options and settings."""
        settings = load(self.settings_file) if self.settings_file else Settings()
        chosen = profile(self.name)
        folder = self.settings_file.absolute().parent if self.settings_file else None
        block = settings.permissions
        wanted: Mode = next((mode for mode in MODES if mode == block.default_mode), "default")
        folders = tuple(Path(one).expanduser().absolute() for one in block.additional_directories)
        everything = rules + rules_of(block, "flagSettings", folder, chosen.refusals)
        return Permissions(everything, self.mode or wanted, folders, chosen.refusals)


def _rules(texts: Sequence[str]) -> Rules:
    """The rules that the words of a command line are.

    Raises:
        ToolspanError: one is the name of a file.
    """
    lists: dict[str, list[str]] = {name: [] for name in _LISTS}
    for text in texts:
        if text.endswith(".json"):
            raise ToolspanError(f"{text} is no rule; a settings file is named by --settings {text}")
        name, colon, rule = text.partition(":")
        if colon and name in lists:
            lists[name].append(rule)
        else:
            lists["allow"].append(text)
    return Rules(**lists, origin="cliArg")  # type: ignore[arg-type]  # three lists of texts


def _question(asked: _Asked, behind: Sequence[str]) -> Question:
    if asked.given is None and not behind:
        raise ToolspanError("say what is called: -- COMMAND, or --tool NAME --input JSON")
    given: object = {"command": behind[0] if len(behind) == 1 else shlex.join(behind)}
    if asked.given is not None:
        try:
            given = json.loads(asked.given)
        except ValueError as error:
            raise ToolspanError(f"--input is no JSON: {error}") from error
    if not isinstance(given, dict):
        raise ToolspanError("--input is no JSON object")
    return _asked_for(CallId("check"), asked.tool, given, asked.cwd.absolute())


def _asked_for(call_id: CallId, tool: str, given: dict[str, object], cwd: Path) -> Question:
    call = Call(id=call_id, tool=tool, at=0, requested_at=None, target=None, shelf=LiveShelf(given))
    return Question(call=call, input=given, cwd=cwd, project=cwd)


def judged(question: Question, permissions: Permissions) -> Verdict:
    """What would happen to a call."""
    decision = _decided(question, permissions)
    words: str | None = None
    offered: tuple[dict[str, object], ...] = ()
    if isinstance(decision, Ask):
        words = asked_words(question, decision, permissions.refusals)
        offered = tuple(dict(one) for one in suggestions(question, decision))
    line = command_of(question)
    unfolded = None if line is None else opened(line)
    found = () if unfolded is None else (one.program.text for one in unfolded.found)
    return Verdict(
        call=question.call.id,
        tool=question.tool,
        about=line if line is not None else _about(question),
        decision=_name(decision),
        rule=decision.rule,
        origin=decision.origin,
        basis=decision.basis,
        words=words,
        programs=tuple(dict.fromkeys(filter(None, found))),
        unclear=() if unfolded is None else unfolded.unclear,
        suggestions=offered,
    )


def _decided(question: Question, permissions: Permissions) -> Decision:
    """The decision; none of these opinions waits for anything, so no loop is needed."""
    for policies in (permissions.policies, [permissions.fallback]):
        try:
            decide(policies, question).send(None)
        except StopIteration as ended:
            decision: Decision | None = ended.value
            if decision is not None:
                return decision
    return Allow()


def _name(decision: Decision) -> str:
    match decision:
        case Allow():
            return "allow"
        case Ask():
            return "ask"
        case Deny():
            return "deny"


def _about(question: Question) -> str:
    texts = (value for value in question.input.values() if isinstance(value, str))
    return next(texts, "")


def _replayed(names: Sequence[str], permissions: Permissions) -> Iterator[Verdict]:
    for file in locate(names)[0]:
        transcript = read(file.path)
        cwd = Path(transcript.info.cwd or ".").absolute()
        for span in transcript.spans:
            if span.call.tool:
                given = dict(span.call.arguments)
                yield judged(_asked_for(span.id, span.tool, given, cwd), permissions)


def _styled(decision: str) -> str:
    styles = {"allow": "green", "ask": "yellow", "deny": "red"}
    return f"[{styles[decision]}]{decision}[/]"


def _print(verdict: Verdict, permissions: Permissions) -> None:
    out = console()
    out.print(f"{_styled(verdict.decision)}  {escape(short(verdict.about, 120))}")
    rule = f"{verdict.rule} ({verdict.origin})" if verdict.rule else None
    rows = [
        ("rule", rule),
        ("because", verdict.basis),
        ("words", verdict.words),
        ("runs", "; ".join(verdict.programs)),
        ("unclear", "; ".join(verdict.unclear)),
    ]
    for label, text in rows:
        if text:
            out.print(f"  {label:<9}{escape(text)}")
    for one in verdict.suggestions:
        out.print(f"  {'offer':<9}{escape(json.dumps(one))}")
    for warning in permissions.rules.warnings:
        out.print(f"  {'warning':<9}{escape(warning)}")
