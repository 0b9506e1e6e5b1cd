"""`toolspan why` and `toolspan policy`: explain recorded permission decisions, and test permission rules.

`why` reads the permission records for one call from its transcript. `policy` evaluates rules without running
anything.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

import click
from msgspec import Struct

from toolspan.archive.archive import Archive
from toolspan.archive.why import PermissionExplanation, explanation_rows
from toolspan.archive.words import format_count
from toolspan.cli.output import (
    combine_options,
    escape_markup,
    make_console,
    markup_line,
    print_json,
)
from toolspan.cli.profile_type import ProfileType
from toolspan.cli.select import REPORTER, locate_files
from toolspan.errors import ToolspanError
from toolspan.reading.transcript import read
from toolspan.runtime.outcome import approval_message
from toolspan.runtime.pending_call import LiveBodyStore
from toolspan.runtime.permissions import MODES, Mode, Permissions, Rules
from toolspan.runtime.permissions.decide import PermissionRequest, decide
from toolspan.runtime.permissions.modes import parse_default_mode
from toolspan.runtime.permissions.patterns import expand_command_line
from toolspan.runtime.permissions.program_use import explain_words
from toolspan.runtime.permissions.rules import added_folders, command_of, rules_from_settings
from toolspan.runtime.permissions.suggestions import offer_updates
from toolspan.runtime.profiles import DEFAULT, Refusals, profile
from toolspan.runtime.settings import PermissionSettings, SettingsLayer, SettingsPaths, load_layers
from toolspan.shell.programs import find_programs
from toolspan.types.decision import Allow, Ask, Decision
from toolspan.types.error_kinds import KIND_WORDS
from toolspan.types.ids import CallId
from toolspan.types.span import Call
from toolspan.types.state import STATE_MEANINGS

_DECISION_STYLES = {"allow": "green", "ask": "yellow", "deny": "red"}
_BASIS_LABELS = {
    "rule": "a rule",
    "parts": "every command in the line is known to be harmless",
    "mode": "the permission mode",
    "hook": "a hook's answer",
    "outside": "a path outside the session's folders",
    "protected": "a file that decides what runs later",
    "critical": "it could remove far more than is meant",
    "unclear": "the line cannot be checked before it runs",
    "plan": "plan mode",
    "classifier": "plan mode, and the command is not known to be harmless",
    "sandbox": "the command runs in the sandbox",
}
"""The texts for `Decision.basis`."""


@click.command("why")
@click.argument("call")
@click.argument("names", nargs=-1, metavar="[FILE|FOLDER|SESSION]...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def why_command(call: str, names: tuple[str, ...], *, as_json: bool) -> None:
    """Explain who allowed or denied a call, and why.

    CALL is the beginning of a call's id. The files, folders and sessions you name with it are
    searched, or else all of your transcripts. Clients before 2.1.325 recorded no decisions; for
    those, the explanation comes from the result of the call.
    """
    explanation = Archive(*names, reporter=REPORTER).why(call)
    if as_json:
        print_json(explanation)
    else:
        _print_explanation(explanation)


def _print_explanation(explanation: PermissionExplanation) -> None:
    out = make_console()
    about = f"  {markup_line(explanation.about, 100)}" if explanation.about else ""
    out.print(f"[bold]{escape_markup(explanation.tool)}[/]{about}  [dim]{escape_markup(explanation.call)}[/]")
    labels = {True: "[green]allowed[/]", False: "[yellow]not allowed[/]", None: "unknown"}
    outcome = f"{explanation.state.replace('_', ' ')}: {STATE_MEANINGS[explanation.state]}"
    if explanation.state == "denied" and explanation.error_kind in KIND_WORDS:
        outcome = KIND_WORDS[explanation.error_kind]
    out.print(f"{labels[explanation.allowed]}; {outcome}")
    if explanation.allowed and explanation.source is None and explanation.decision is None:
        out.print("  no decision is recorded; the call ran, so it was allowed")
    _print_labelled_rows(explanation_rows(explanation))
    where = f"{PurePath(explanation.file).name}:{explanation.line}" if explanation.file else "not recorded"
    out.print(f"[dim]{escape_markup(where)}[/]")


def _print_labelled_rows(rows: Iterable[tuple[str, str | None]]) -> None:
    for label, text in rows:
        if text:
            make_console().print(f"  {label:<9}{escape_markup(text)}")


class PolicyDecision(Struct, frozen=True, kw_only=True):
    """The decision that the rules would make for a call."""

    call: str | None = None
    tool: str
    about: str
    decision: str
    rule: str | None = None
    origin: str | None = None
    basis: str | None = None
    words: str | None = None
    programs: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    """The role of each recognized word, one text per command."""
    suggestions: tuple[dict[str, object], ...] = ()


class _DashSeparatedCommand(click.Command):
    """A command that keeps the arguments after `--` in `ctx.meta["trailing"]`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta["trailing"] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


@click.group("policy")
def policy_command() -> None:
    """Test permission rules on a command or on a recorded session.

    Nothing is run. Both commands print JSON with --json.
    """


_policy_options = combine_options(
    click.option("--settings", "settings_file", type=click.Path(path_type=Path),
                 help="Read rules from this settings file."),
    click.option("--permission-mode", "mode", type=click.Choice(MODES),
                 help="The mode that decides calls without a matching rule."),
    click.option("--profile", "profile_name", type=ProfileType(), default=DEFAULT,
                 help="The client version whose messages are used."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line."),
)  # fmt: skip


@policy_command.command("check", cls=_DashSeparatedCommand)
@click.argument("rules", nargs=-1, metavar="[RULE]... -- COMMAND...")
@click.option("--tool", default="Bash", show_default=True, help="The tool to call.")
@click.option("--input", "input_json", help="The input of the call as JSON, instead of a command.")
@click.option("--cwd", type=click.Path(path_type=Path, file_okay=False), default=Path(), help="The working folder.")
@_policy_options
@click.pass_context
def check(
    ctx: click.Context, /, rules: tuple[str, ...], tool: str, input_json: str | None, cwd: Path, *, as_json: bool,
    **permission_values: Any,
) -> None:  # fmt: skip
    """Show whether one call would be allowed, asked about or denied.

    Write a RULE as in settings, with the list it belongs to in front: "deny:Bash(rm:*)",
    "ask:WebFetch"; without a list it allows. The command follows --, as one argument or several.
    """
    lists: dict[str, list[str]] = {name: [] for name in _DECISION_STYLES}
    for text in rules:
        if text.endswith(".json"):
            raise ToolspanError(f"{text} is not a rule; to read a settings file, write --settings {text}")
        name, colon, rule = text.partition(":")
        if colon and name in lists:
            lists[name].append(rule)
        else:
            lists["allow"].append(text)
    command_line_rules = Rules(**lists, origin="cliArg")  # type: ignore[arg-type]  # three lists of strings
    permissions = _load_permissions(command_line_rules, project=cwd.absolute(), **permission_values)
    command = ctx.meta.get("trailing", [])
    if input_json is None and not command:
        raise ToolspanError("no call to check; add -- COMMAND, or --tool NAME --input JSON")
    tool_input: object = {"command": command[0] if len(command) == 1 else shlex.join(command)}
    if input_json is not None:
        try:
            tool_input = json.loads(input_json)
        except ValueError as error:
            raise ToolspanError(f"--input is not JSON: {error}") from error
    if not isinstance(tool_input, dict):
        raise ToolspanError("--input is not a JSON object")
    row = evaluate_call(_make_request(CallId("check"), tool, tool_input, cwd.absolute()), permissions)
    if as_json:
        print_json(row)
    else:
        _print_decision(row, permissions)


@policy_command.command("replay")
@click.argument("names", nargs=-1, required=True, metavar="TRANSCRIPT...")
@click.option("--all", "everything", is_flag=True, help="Also list calls that would be allowed.")
@_policy_options
def replay(names: tuple[str, ...], *, everything: bool, as_json: bool, **permission_values: Any) -> None:
    """List the calls of a recorded session that the rules would ask about or deny.

    Every call is checked as if it ran in the folder where the session began.
    """
    permissions = _load_permissions(Rules(), project=Path.cwd(), **permission_values)
    counts: Counter[str] = Counter()
    out = make_console()
    for row in _evaluate_transcripts(names, permissions):
        counts[row.decision] += 1
        if row.decision == "allow" and not everything:
            continue
        if as_json:
            print_json(row)
        else:
            about = markup_line(row.about, 100)
            reason = row.rule or row.basis or ""
            out.print(f"{_style_decision(row.decision):<5} {escape_markup(row.tool)}  {about}", end="")
            out.print(f"  [dim]{escape_markup(reason)}[/]" if reason else "")
    if not as_json:
        totals = ", ".join(f"{counts[kind]:,} {kind}" for kind in _DECISION_STYLES)
        out.print(f"{format_count(counts.total(), 'call')}: {totals}")


def _load_permissions(
    rules: Rules, settings_file: Path | None, mode: Mode | None, profile_name: str, project: Path
) -> Permissions:
    layers: list[SettingsLayer] = []
    if settings_file is not None:
        paths = SettingsPaths.for_project(project)
        layers += (layer for layer in load_layers(paths, named=settings_file, scopes=()) if layer.path == settings_file)
    block = layers[0].settings.permissions if layers else PermissionSettings()
    refusals = profile(profile_name).refusals
    folder = settings_file.absolute().parent if settings_file else None
    default_mode = parse_default_mode(layers[0].default_mode if layers else None)
    folders = added_folders(block, project, refusals)
    all_rules = rules + rules_from_settings(block, "flagSettings", folder, refusals)
    return Permissions(all_rules, mode or default_mode, folders=folders, refusals=refusals)


def _make_request(call_id: CallId, tool: str, tool_input: dict[str, object], cwd: Path) -> PermissionRequest:
    call = Call(id=call_id, tool=tool, at=0, requested_at=None, target=None, body_store=LiveBodyStore(tool_input))
    return PermissionRequest(call=call, input=tool_input, cwd=cwd, project=cwd)


def _explain_doubts(line: str) -> tuple[str, ...]:
    """Return the first unsupported construct and the first unknown word in a line, and its other uncertainties."""
    parsed = find_programs(line)
    words = [
        f"{unknown} is not a known program" if text.startswith(unknown) else f"{unknown} is not understood in {text}"
        for text, _, unknown in explain_words(parsed)
        if unknown is not None
    ]
    return (*parsed.unclear[:1], *words[:1], *expand_command_line(line).uncertainties)


def evaluate_call(request: PermissionRequest, permissions: Permissions) -> PolicyDecision:
    """Return the decision that `permissions` make for a call."""
    decision = _decide_call(request, permissions)
    prompt_text: str | None = None
    suggested_updates: tuple[dict[str, object], ...] = ()
    if isinstance(decision, Ask):
        prompt_text = approval_message(request, decision, permissions.refusals or Refusals())
        suggested_updates = tuple(dict(item) for item in offer_updates(request, decision))
    line = command_of(request)
    texts = (value for value in request.input.values() if isinstance(value, str))
    expanded = None if line is None else expand_command_line(line)
    program_names = () if expanded is None else (item.program.text for item in expanded.programs)
    return PolicyDecision(
        call=request.call.id,
        tool=request.tool,
        about=line if line is not None else next(texts, ""),
        decision=type(decision).__name__.lower(),
        rule=decision.rule,
        origin=decision.origin,
        basis=decision.basis,
        words=prompt_text,
        programs=tuple(dict.fromkeys(filter(None, program_names))),
        unclear=() if line is None else _explain_doubts(line),
        roles=() if line is None else tuple(roles for _, roles, _ in explain_words(find_programs(line))),
        suggestions=suggested_updates,
    )


def _decide_call(request: PermissionRequest, permissions: Permissions) -> Decision:
    """Evaluate the policies without an event loop, because none of them blocks."""
    for policies in (permissions.policies, [permissions.fallback]):
        try:
            decide(policies, request).send(None)
        except StopIteration as ended:
            decision: Decision | None = ended.value
            if decision is not None:
                return decision
    return Allow()


def _evaluate_transcripts(names: Sequence[str], permissions: Permissions) -> Iterator[PolicyDecision]:
    for file in locate_files(names)[0]:
        transcript = read(file.path)
        cwd = Path(transcript.info.cwd or ".").absolute()
        for span in transcript.spans:
            if span.call.tool:
                arguments = dict(span.call.arguments)
                yield evaluate_call(_make_request(span.id, span.tool, arguments, cwd), permissions)


def _style_decision(decision: str) -> str:
    return f"[{_DECISION_STYLES[decision]}]{decision}[/]"


def _print_decision(row: PolicyDecision, permissions: Permissions) -> None:
    out = make_console()
    out.print(f"{_style_decision(row.decision)}  {markup_line(row.about, 120)}")
    is_rule_for_part = row.rule is not None and row.basis == "parts"
    basis = "a rule for a command in the line" if is_rule_for_part else _BASIS_LABELS.get(row.basis or "")
    rows = [
        ("rule", f"{row.rule} ({row.origin})" if row.rule else None),
        ("because", basis),
        ("question", row.words),
        ("runs", "; ".join(row.programs)),
        ("words", "; ".join(row.roles)),
        ("unclear", "; ".join(row.unclear)),
        *(("offer", json.dumps(suggestion)) for suggestion in row.suggestions),
        *(("warning", warning) for warning in permissions.rules.warnings),
    ]
    _print_labelled_rows(rows)
