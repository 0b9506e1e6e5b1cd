"""`toolspan why`: who decided whether a call may run, and on what ground."""

from __future__ import annotations

import json
from pathlib import PurePath

import click
from msgspec import Struct

from toolspan.analysis.phases import noted_wait
from toolspan.cli.output import escape_markup, format_duration, make_console, print_json, shorten_line
from toolspan.cli.read_selected import transcripts_containing
from toolspan.cli.select import locate_files
from toolspan.errors import NotFound
from toolspan.reading.discovery import TranscriptFile
from toolspan.reading.history import match_prefix, short_id
from toolspan.types.span import Hook, Permission, Span
from toolspan.types.state import STATE_MEANINGS

_SOURCE_LABELS = {
    "config": "settings, rules or the mode",
    "hook": "a hook",
    "user": "a person",
    "user_abort": "a person, by ending it",
    "user_permanent": "a person, for good",
    "user_reject": "a person",
    "user_temporary": "a person",
}
_ORIGIN_LABELS = {
    "cliArg": "the command line",
    "localSettings": "the project's local settings",
    "policySettings": "managed settings",
    "projectSettings": "the project's settings",
    "session": "this session",
    "userSettings": "the user's settings",
}
_CODE_LABELS = {
    "unknown": None,
    "workingDir": "it is outside the session's folders",
    "mode:plan": "the session was in plan mode",
    "mode:dontAsk": "the session was told not to ask",
    "bashMiss:no-rule-match": "no rule speaks of the command",
    "bashMiss:too-complex": "it cannot be told what the line would run",
    "bashMiss:cd-compound-read": "it goes to another folder and reads there",
    "bashMiss:cd-compound-write": "it goes to another folder and changes something there",
    "bashMiss:cd-compound-redirect": "it goes to another folder and writes to a file there",
    "bashMiss:cd-git-compound": "it goes to another folder and runs git there",
    "hook:PreToolUse": "what a hook said before the call",
    "hook:PermissionRequest": "what a hook said in a person's place",
}
_REASON_LABELS = {
    "rule": "a rule",
    "subcommandResults": "each command of the line was judged",
    "mode": "the permission mode",
    "hook": "a hook's answer",
    "classifier": "a classifier",
    "other": None,
}


class PermissionExplanation(Struct, frozen=True, kw_only=True):
    """What a transcript tells of the consent for a call."""

    call: str
    tool: str
    about: str | None
    state: str
    allowed: bool | None
    """None when nothing was recorded and the call's end does not tell."""
    decision: str | None = None
    source: str | None = None
    reason: str | None = None
    origin: str | None = None
    code: str | None = None
    scope: str | None = None
    asked_ms: int | None = None
    """How long somebody was asked, where hooks of ours have noted it."""
    hooks: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    said: str | None = None
    """What the model was told, for a call that did not run."""
    file: str
    line: int | None


@click.command("why")
@click.argument("call")
@click.argument("names", nargs=-1, metavar="[FILE|FOLDER|SESSION]...")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(call: str, names: tuple[str, ...], *, as_json: bool) -> None:
    """Who decided whether a call may run, and why.

    CALL is the beginning of a call's id; it is looked for in what is named beside it, else in all
    of this user's transcripts. Clients before 2.1.325 recorded no decisions: then what the result
    itself says is told.
    """
    explanation = explain_permission(_find_call(call, locate_files(names)[0]))
    if as_json:
        print_json(explanation)
    else:
        _print_explanation(explanation)


def _find_call(word: str, files: list[TranscriptFile]) -> Span:
    """The call whose id begins with a word.

    Raises:
        NotFound: none does, or more than one.
    """
    spans: dict[str, Span] = {}
    for transcript in transcripts_containing(word, files):
        for span in transcript.spans:
            named = span.id.startswith(word) or short_id(span.id).startswith(word)
            if named and span.call is not None:
                spans.setdefault(span.id, span)
    if not spans:
        raise NotFound(f"no call begins with {word!r}")
    return spans[match_prefix(word, sorted(spans), "call")]


def explain_permission(span: Span) -> PermissionExplanation:
    """What is known of the consent for a call."""
    permission = next((item for item in span.events if isinstance(item, Permission)), None)
    hooks = [item for item in span.events if isinstance(item, Hook)]
    refused = span.state in ("denied", "blocked_by_hook")
    result = span.result
    place = span.call.place or (result.place if result else None)
    return PermissionExplanation(
        call=span.id,
        tool=span.tool,
        about=span.call.target,
        state=span.state,
        allowed=_is_allowed(span, permission),
        decision=permission.decision if permission else None,
        source=permission.source if permission else None,
        reason=permission.reason if permission else None,
        origin=permission.origin if permission else None,
        code=permission.code if permission else None,
        scope=permission.scope if permission else None,
        asked_ms=noted_wait(span),
        hooks=tuple(map(_describe_hook, hooks)),
        evidence=tuple(f"{item.rule}: {item.text}" if item.text else item.rule for item in span.evidence),
        said=result.text if refused and result else None,
        file=place.file if place else "",
        line=place.line if place else None,
    )


def _describe_hook(hook: Hook) -> str:
    """What a handler did, in its words, and which it was."""
    text, command = _hook_objection(hook)
    detail = f" ({shorten_line(text, 100)})" if text else ""
    by = f", by {shorten_line(command, 80)}" if command else ""
    return f"{hook.name or hook.point}: {hook.outcome}{detail}{by}"


def _hook_objection(hook: Hook) -> tuple[str | None, str | None]:
    """What a handler said, and its command: of an objection both are in one text."""
    if hook.outcome != "blocked" or not (hook.text or "").startswith("{"):
        return hook.text, hook.command
    try:
        objection = json.loads(hook.text or "")
    except ValueError:
        return hook.text, hook.command
    return str(objection.get("blockingError", hook.text)), objection.get("command") or hook.command


def _is_allowed(span: Span, permission: Permission | None) -> bool | None:
    if permission is not None and permission.decision in ("accept", "reject"):
        return permission.decision == "accept"
    if span.state in ("denied", "blocked_by_hook"):
        return False
    return True if span.state in ("succeeded", "timed_out") else None


def _print_explanation(explanation: PermissionExplanation) -> None:
    out = make_console()
    about = f"  {escape_markup(shorten_line(explanation.about, 100))}" if explanation.about else ""
    out.print(f"[bold]{escape_markup(explanation.tool)}[/]{about}  [dim]{escape_markup(explanation.call)}[/]")
    labels = {True: "[green]allowed[/]", False: "[yellow]not allowed[/]", None: "not known"}
    out.print(f"{labels[explanation.allowed]}; {explanation.state}: {_state_meaning(explanation.state)}")
    for label, text in _explanation_rows(explanation):
        out.print(f"  {label:<9}{escape_markup(text)}")
    if explanation.said:
        out.print(f"  told     {escape_markup(shorten_line(explanation.said, 300))}")
    where = f"{PurePath(explanation.file).name}:{explanation.line}" if explanation.file else "nowhere"
    out.print(f"[dim]{escape_markup(where)}[/]")


def _state_meaning(state: str) -> str:
    return next((text for name, text in STATE_MEANINGS.items() if name == state), state)


def _explanation_rows(explanation: PermissionExplanation) -> list[tuple[str, str]]:
    """Who, and on what ground; only what is known."""
    rows: list[tuple[str, str | None]] = [
        ("by", _SOURCE_LABELS.get(explanation.source or "", explanation.source)),
        ("because", _REASON_LABELS.get(explanation.reason or "", explanation.reason)),
        ("rule of", _ORIGIN_LABELS.get(explanation.origin or "", explanation.origin)),
        ("about", _CODE_LABELS.get(explanation.code or "", explanation.code)),
        ("for", explanation.scope),
        ("asked", format_duration(explanation.asked_ms) if explanation.asked_ms is not None else None),
        *(("hook", hook) for hook in explanation.hooks),
    ]
    if explanation.source is None:
        rows.append(("evidence", "; ".join(explanation.evidence)))
    return [(label, text) for label, text in rows if text]
