"""`toolspan policy suggest`: allow rules that would have saved questions, as a diff for a settings file."""

from __future__ import annotations

import difflib
from datetime import datetime
from pathlib import Path

import click
import msgspec

from toolspan.archive.archive import Archive
from toolspan.archive.filters import Filter
from toolspan.archive.sources import current_folder
from toolspan.archive.words import format_count, format_duration, shorten_line
from toolspan.cli import select
from toolspan.cli.filters import SINCE_TYPE
from toolspan.cli.output import escape_markup, make_console, print_json, warn
from toolspan.replay.suggest import SuggestedRules, suggest_rules
from toolspan.runtime.permissions import Permissions, Rules
from toolspan.runtime.permissions.rules import added_folders, rules_from_settings
from toolspan.runtime.profiles import profile
from toolspan.runtime.settings import (
    SettingsPaths,
    TrustStore,
    add_permissions,
    build_trust_request,
    default_trust_path,
    load_layers,
)
from toolspan.runtime.settings.load import extend_permissions, read_settings_text
from toolspan.runtime.settings.scopes import PROJECT_SCOPES, Scope

_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


@click.command("suggest")
@select.archive_options()
@click.option(
    "--since",
    type=SINCE_TYPE,
    default="30d",
    show_default=True,
    metavar="TIME",
    help="Only calls from this time on: 7d, monday, 2026-11, 2026-11-01.",
)
@click.option(
    "--project", is_flag=True, help="Only sessions of the current folder; the rules are for its .claude/settings.json."
)
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="At most this many rules; 0 for all that save two questions or more.",
)
@click.option("--write", is_flag=True, help="Add the rules to the settings file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def suggest(
    *, archive: Archive, since: datetime, project: bool, limit: int, write: bool, as_json: bool
) -> None:  # fmt: skip
    """Suggest the fewest allow rules that would have saved you the most questions.

    Reads your sessions, or those that you name, and prints the rules, the questions and the waiting
    time that each would have saved, and a diff for your settings.json.

    Transcripts record only in part which calls waited for you. A call counts as a question if
    toolspan would ask about it in default mode under the rules that you have, unless the transcript
    says that nobody was asked. Waiting times are those that are recorded or follow from the times of
    a call; most calls have none.

    A rule is not suggested if it would allow a call that was denied, a line that is not understood,
    or something risky: the network, a removal outside the project, a protected file, another user,
    or code for an interpreter. The totals are exact: all calls are decided again under the rules.
    """
    folder = current_folder()
    paths = SettingsPaths.for_project(folder)
    target = folder / ".claude" / "settings.json" if project else paths.user_file
    text = read_settings_text(target)
    permissions = _load_permissions(paths, with_project=project)
    call_filter = Filter(since=since, project=str(folder) if project else None)
    suggested = suggest_rules(archive, call_filter, permissions=permissions, limit=limit or None)
    rules = [suggestion.rule for suggestion in suggested.rules]
    diff = _make_diff(text, extend_permissions(text, target, allow=rules), target)
    written = write and bool(rules) and add_permissions(target, allow=rules, within=folder if project else None)
    if as_json:
        print_json({**msgspec.to_builtins(suggested), "file": str(target), "diff": diff, "written": written})
    else:
        _print_suggested(suggested, diff, target, written=written)
    if written and project:
        request = build_trust_request(paths, load_layers(paths, scopes=PROJECT_SCOPES))
        if not TrustStore(default_trust_path()).is_trusted(request):
            warn(f"{target}: the rules take effect once you run `toolspan trust`")


def _load_permissions(paths: SettingsPaths, *, with_project: bool) -> Permissions:
    """Return the permissions in the settings of the user, and of the project if it is the one to be changed."""
    scopes: list[Scope] = ["managed", "user"]
    rules = Rules()
    folders: tuple[Path, ...] = ()
    refusals = profile().refusals
    for layer in load_layers(paths, scopes=[*scopes, *PROJECT_SCOPES] if with_project else scopes):
        block = layer.settings.permissions
        anchor = paths.project if layer.scope != "user" else layer.path.absolute().parent
        rules += rules_from_settings(block, f"{layer.scope}Settings", anchor, refusals)
        folders += added_folders(block, paths.project, refusals)
    return Permissions(rules, "default", folders=folders)


def _make_diff(before: str, after: str, path: Path) -> str:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(path) if before else "/dev/null", str(path), lineterm=""
    )
    return "\n".join(lines)


def _print_suggested(suggested: SuggestedRules, diff: str, target: Path, *, written: bool) -> None:
    out = make_console()
    waited = f", {format_duration(suggested.wait_ms)} of waiting recorded" if suggested.wait_ms else ""
    out.print(f"{format_count(suggested.calls, 'call')}, {format_count(suggested.questions, 'question')}{waited}")
    if not suggested.rules:
        since = "No calls in this period; name an earlier one with --since."
        out.print("No rule would have saved two questions or more." if suggested.calls else since)
    for suggestion in suggested.rules:
        wait = f", {format_duration(suggestion.wait_ms)} of waiting" if suggestion.wait_ms else ""
        saves = f"saves {format_count(suggestion.questions, 'question')}{wait}"
        out.print(f"\n[bold]{escape_markup(suggestion.rule)}[/]  {saves}")
        for example in suggestion.examples:
            out.print(f"  [dim]{escape_markup(shorten_line(example, 100) or '')}[/]")
    if suggested.rules:
        saved_wait = f" and {format_duration(suggested.saved_wait_ms)} of waiting" if suggested.saved_wait_ms else ""
        saved = f"{suggested.saved_questions:,} of {format_count(suggested.questions, 'question')}{saved_wait}"
        out.print(f"\nTogether these rules save {saved}.")
    if suggested.excluded:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in suggested.excluded.items())
        out.print(f"[dim]No rule is suggested for: {escape_markup(reasons)}[/]")
    if not suggested.rules:
        return
    out.print()
    for line in diff.splitlines():
        style = _DIFF_STYLES.get(line[:1])
        out.print(f"[{style}]{escape_markup(line)}[/]" if style else escape_markup(line))
    out.print(
        f"\nAdded to {escape_markup(str(target))}" if written else "\nRun it again with --write to add the rules."
    )
