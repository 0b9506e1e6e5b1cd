"""`toolspan policy`: what permission rules would do, without anything being run."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from msgspec import Struct

from toolspan.cli.output import combine_options, escape_markup, format_count, make_console, print_json, shorten_line
from toolspan.cli.select import locate_files
from toolspan.errors import ToolspanError
from toolspan.reading.transcript import read
from toolspan.runtime.outcome import approval_message
from toolspan.runtime.pending_call import LiveBodyStore
from toolspan.runtime.permissions import MODES, Mode, Permissions, Rules
from toolspan.runtime.permissions.commands import expand_command_line
from toolspan.runtime.permissions.decide import PermissionRequest, decide
from toolspan.runtime.permissions.rules import command_of, rules_from_settings
from toolspan.runtime.permissions.suggestions import suggest_updates
from toolspan.runtime.profiles import DEFAULT, VERSIONS, Refusals, profile
from toolspan.runtime.settings import Settings, load_settings
from toolspan.types.decision import Allow, Ask, Decision, Deny
from toolspan.types.ids import CallId
from toolspan.types.span import Call

_DECISIONS = ("allow", "ask", "deny")


class PolicyDecision(Struct, frozen=True, kw_only=True):
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


class _DashSeparatedCommand(click.Command):
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


_policy_options = combine_options(
    click.option("--settings", "settings_file", type=click.Path(path_type=Path),
                 help="Rules from this settings file."),
    click.option("--permission-mode", "mode", type=click.Choice(MODES),
                 help="What happens to calls no rule speaks of."),
    click.option("--profile", "name", type=click.Choice(VERSIONS), default=DEFAULT,
                 help="The client version whose words are used."),
    click.option("--json", "as_json", is_flag=True, help="JSON, one object per line."),
)  # fmt: skip
"""The options that say which rules and which mode."""


@command.command("check", cls=_DashSeparatedCommand)
@click.argument("rules", nargs=-1, metavar="[RULE]... -- COMMAND...")
@click.option("--tool", default="Bash", show_default=True, help="The tool that is called.")
@click.option("--input", "given", help="The call's input as JSON, instead of a command.")
@click.option("--cwd", type=click.Path(path_type=Path, file_okay=False), default=Path())
@_policy_options
@click.pass_context
def check(ctx: click.Context, /, rules: tuple[str, ...], **option_values: object) -> None:
    """What would happen to one call.

    A RULE is written as in settings, with the list it belongs to before it: "deny:Bash(rm:*)",
    "ask:WebFetch"; without a list it allows. What stands behind -- is the command, as one word or
    several.
    """
    command_options = _PolicyOptions.from_options(option_values)
    permissions = command_options.load_permissions(_parse_rules(rules))
    question = _build_request(command_options, ctx.meta.get("behind", []))
    row = evaluate_call(question, permissions)
    if command_options.as_json:
        print_json(row)
    else:
        _print_decision(row, permissions)


@command.command("replay")
@click.argument("names", nargs=-1, required=True, metavar="TRANSCRIPT...")
@click.option("--all", "everything", is_flag=True, help="Also calls that would be allowed.")
@_policy_options
def replay(names: tuple[str, ...], **option_values: object) -> None:
    """What would have been asked or denied in a session that was recorded.

    Every call is judged as if it were asked for in the folder the session began in.
    """
    everything = bool(option_values.pop("everything"))
    command_options = _PolicyOptions.from_options({"tool": "", "given": None, "cwd": Path(), **option_values})
    permissions = command_options.load_permissions(Rules())
    counts: Counter[str] = Counter()
    out = make_console()
    for row in _evaluate_transcripts(names, permissions):
        counts[row.decision] += 1
        if row.decision == "allow" and not everything:
            continue
        if command_options.as_json:
            print_json(row)
        else:
            about = escape_markup(shorten_line(row.about, 100))
            reason = row.rule or row.basis or ""
            out.print(f"{_style_decision(row.decision):<5} {escape_markup(row.tool)}  {about}", end="")
            out.print(f"  [dim]{escape_markup(reason)}[/]" if reason else "")
    if not command_options.as_json:
        totals = ", ".join(f"{counts[kind]:,} {kind}" for kind in _DECISIONS)
        out.print(f"{format_count(counts.total(), 'call')}: {totals}")


class _PolicyOptions(Struct, frozen=True, kw_only=True):
    """What the command line asks for."""

    settings_file: Path | None
    mode: Mode | None
    name: str
    as_json: bool
    tool: str
    given: str | None
    cwd: Path

    @classmethod
    def from_options(cls, values: dict[str, object]) -> _PolicyOptions:
        """From the options of a command."""
        return cls(**values)  # type: ignore[arg-type]  # click has checked them

    def load_permissions(self, rules: Rules) -> Permissions:
        """Rules, mode and folders, from options and settings."""
        settings = load_settings(self.settings_file) if self.settings_file else Settings()
        client_profile = profile(self.name)
        folder = self.settings_file.absolute().parent if self.settings_file else None
        block = settings.permissions
        default_mode: Mode = next((mode for mode in MODES if mode == block.default_mode), "default")
        folders = tuple(Path(directory).expanduser().absolute() for directory in block.additional_directories)
        everything = rules + rules_from_settings(block, "flagSettings", folder, client_profile.refusals)
        return Permissions(everything, self.mode or default_mode, folders=folders, refusals=client_profile.refusals)


def _parse_rules(texts: Sequence[str]) -> Rules:
    """The rules that the words of a command line are.

    Raises:
        ToolspanError: one is the name of a file.
    """
    lists: dict[str, list[str]] = {name: [] for name in _DECISIONS}
    for text in texts:
        if text.endswith(".json"):
            raise ToolspanError(f"{text} is no rule; a settings file is named by --settings {text}")
        name, colon, rule = text.partition(":")
        if colon and name in lists:
            lists[name].append(rule)
        else:
            lists["allow"].append(text)
    return Rules(**lists, origin="cliArg")  # type: ignore[arg-type]  # three lists of texts


def _build_request(command_options: _PolicyOptions, trailing_arguments: Sequence[str]) -> PermissionRequest:
    if command_options.given is None and not trailing_arguments:
        raise ToolspanError("say what is called: -- COMMAND, or --tool NAME --input JSON")
    tool_input: object = {
        "command": trailing_arguments[0] if len(trailing_arguments) == 1 else shlex.join(trailing_arguments)
    }
    if command_options.given is not None:
        try:
            tool_input = json.loads(command_options.given)
        except ValueError as error:
            raise ToolspanError(f"--input is no JSON: {error}") from error
    if not isinstance(tool_input, dict):
        raise ToolspanError("--input is no JSON object")
    return _make_request(CallId("check"), command_options.tool, tool_input, command_options.cwd.absolute())


def _make_request(call_id: CallId, tool: str, tool_input: dict[str, object], cwd: Path) -> PermissionRequest:
    call = Call(id=call_id, tool=tool, at=0, requested_at=None, target=None, body_store=LiveBodyStore(tool_input))
    return PermissionRequest(call=call, input=tool_input, cwd=cwd, project=cwd)


def evaluate_call(question: PermissionRequest, permissions: Permissions) -> PolicyDecision:
    """What would happen to a call."""
    decision = _decide_call(question, permissions)
    prompt_text: str | None = None
    suggested_updates: tuple[dict[str, object], ...] = ()
    if isinstance(decision, Ask):
        prompt_text = approval_message(question, decision, permissions.refusals or Refusals())
        suggested_updates = tuple(dict(item) for item in suggest_updates(question, decision))
    line = command_of(question)
    unfolded = None if line is None else expand_command_line(line)
    program_names = () if unfolded is None else (item.program.text for item in unfolded.programs)
    return PolicyDecision(
        call=question.call.id,
        tool=question.tool,
        about=line if line is not None else _describe_input(question),
        decision=_decision_name(decision),
        rule=decision.rule,
        origin=decision.origin,
        basis=decision.basis,
        words=prompt_text,
        programs=tuple(dict.fromkeys(filter(None, program_names))),
        unclear=() if unfolded is None else unfolded.uncertainties,
        suggestions=suggested_updates,
    )


def _decide_call(question: PermissionRequest, permissions: Permissions) -> Decision:
    """The decision; none of these opinions waits for anything, so no loop is needed."""
    for policies in (permissions.policies, [permissions.fallback]):
        try:
            decide(policies, question).send(None)
        except StopIteration as ended:
            decision: Decision | None = ended.value
            if decision is not None:
                return decision
    return Allow()


def _decision_name(decision: Decision) -> str:
    match decision:
        case Allow():
            return "allow"
        case Ask():
            return "ask"
        case Deny():
            return "deny"


def _describe_input(question: PermissionRequest) -> str:
    texts = (value for value in question.input.values() if isinstance(value, str))
    return next(texts, "")


def _evaluate_transcripts(names: Sequence[str], permissions: Permissions) -> Iterator[PolicyDecision]:
    for file in locate_files(names)[0]:
        transcript = read(file.path)
        cwd = Path(transcript.info.cwd or ".").absolute()
        for span in transcript.spans:
            if span.call.tool:
                arguments = dict(span.call.arguments)
                yield evaluate_call(_make_request(span.id, span.tool, arguments, cwd), permissions)


def _style_decision(decision: str) -> str:
    styles = {"allow": "green", "ask": "yellow", "deny": "red"}
    return f"[{styles[decision]}]{decision}[/]"


def _print_decision(row: PolicyDecision, permissions: Permissions) -> None:
    out = make_console()
    out.print(f"{_style_decision(row.decision)}  {escape_markup(shorten_line(row.about, 120))}")
    rule = f"{row.rule} ({row.origin})" if row.rule else None
    rows = [
        ("rule", rule),
        ("because", row.basis),
        ("words", row.words),
        ("runs", "; ".join(row.programs)),
        ("unclear", "; ".join(row.unclear)),
    ]
    for label, text in rows:
        if text:
            out.print(f"  {label:<9}{escape_markup(text)}")
    for suggestion in row.suggestions:
        out.print(f"  {'offer':<9}{escape_markup(json.dumps(suggestion))}")
    for warning in permissions.rules.warnings:
        out.print(f"  {'warning':<9}{escape_markup(warning)}")
