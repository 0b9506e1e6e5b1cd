"""`toolspan why` and `toolspan policy`: explain recorded permission decisions, and test permission rules.

`why` reads the permission records for one call from its transcript. `policy` evaluates rules without running
anything.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path, PurePath
from typing import Any

import click

from toolspan.archive.archive import Archive
from toolspan.archive.sources import locate_files
from toolspan.archive.why import PermissionExplanation, explanation_rows
from toolspan.archive.words import format_count
from toolspan.cli.output import combine_options, escape_markup, make_console, markup_line, print_json, warn
from toolspan.cli.policy_suggest import suggest
from toolspan.cli.profile_type import ProfileType
from toolspan.cli.select import REPORTER, fetch_stores
from toolspan.errors import ToolspanError
from toolspan.integrations.grants import GrantOffer
from toolspan.replay.decisions import CallDecider
from toolspan.replay.policy import (
    PolicyDecision,
    evaluate_call,
    evaluate_transcript,
    known_rule_names,
    load_permissions,
    parse_rule_texts,
)
from toolspan.runtime.permissions import MODES, Rules
from toolspan.runtime.profiles import DEFAULT, profile
from toolspan.runtime.settings import SettingsPaths
from toolspan.session.rule_problems import find_rule_problems
from toolspan.types.error_kinds import KIND_WORDS
from toolspan.types.ids import CallId
from toolspan.types.state import STATE_MEANINGS

_DECISION_STYLES = {"allow": "green", "ask": "yellow", "deny": "red"}


@click.command("why")
@click.argument("call")
@click.argument("names", nargs=-1, callback=fetch_stores, metavar="[FILE|FOLDER|SESSION]...")
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
    """Test permission rules on a command or a recorded session, or find rules that save questions.

    Nothing is run. All commands print JSON with --json.
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
    "ask:WebFetch"; without a list it allows. The command follows --, as one argument or several. The
    decision is that of `toolspan exec` without hooks. Rules that can have no effect are reported on
    standard error.
    """
    permissions = load_permissions(parse_rule_texts(rules), project=cwd.absolute(), **permission_values)
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
    decider = CallDecider(permissions, profile(permission_values["profile_name"]))
    row = evaluate_call(decider, tool, tool_input, cwd.absolute(), CallId("check"))
    for problem in find_rule_problems(permissions.rules, known_rule_names(SettingsPaths.for_project(cwd.absolute()))):
        warn(problem.text)
    if as_json:
        print_json(row)
    else:
        _print_decision(row)


@policy_command.command("replay")
@click.argument("names", nargs=-1, callback=fetch_stores, required=True, metavar="TRANSCRIPT...")
@click.option("--all", "everything", is_flag=True, help="Also list calls that would be allowed.")
@_policy_options
def replay(names: tuple[str, ...], *, everything: bool, as_json: bool, **permission_values: Any) -> None:
    """List the calls of a recorded session that the rules would ask about or deny.

    The decisions are those of `toolspan exec` without hooks. Every call is checked as if it ran in the
    folder where the session began.
    """
    permissions = load_permissions(Rules(), project=Path.cwd(), **permission_values)
    counts: Counter[str] = Counter()
    out = make_console()
    decider = CallDecider(permissions, profile(permission_values["profile_name"]))
    files, _ = locate_files(names, reporter=REPORTER)
    for row in chain.from_iterable(evaluate_transcript(file.path, decider) for file in files):
        counts[row.decision] += 1
        if row.decision == "allow" and not everything:
            continue
        if as_json:
            print_json(row)
        else:
            about = markup_line(row.about, 100)
            out.print(f"{_style_decision(row.decision):<5} {escape_markup(row.tool)}  {about}", end="")
            out.print(f"  [dim]{escape_markup(row.reason)}[/]")
    if not as_json:
        totals = ", ".join(f"{counts[kind]:,} {kind}" for kind in _DECISION_STYLES)
        out.print(f"{format_count(counts.total(), 'call')}: {totals}")


policy_command.add_command(suggest)


def _style_decision(decision: str) -> str:
    return f"[{_DECISION_STYLES[decision]}]{decision}[/]"


def _print_decision(row: PolicyDecision) -> None:
    out = make_console()
    out.print(f"{_style_decision(row.decision)}  {markup_line(row.about or row.tool, 120)}")
    rows = [
        ("rule", f"{row.rule} ({row.origin})" if row.rule else None),
        ("because", row.reason),
        ("question", row.words),
        *(("runs", program) for program in row.programs),
        ("reads", ", ".join(row.files_read)),
        ("changes", ", ".join(row.files_written)),
        ("but", row.not_understood),
        *(("offer", _describe_offer(suggestion)) for suggestion in row.suggestions),
    ]
    _print_labelled_rows(rows)


def _describe_offer(suggestion: Mapping[str, object]) -> str:
    lines = GrantOffer.from_suggestions([suggestion]).summary_lines()
    return f"always allow {'; '.join(lines)}"
