"""`toolspan why`: who decided whether a call may run, and on what ground."""

import json
from pathlib import PurePath

import click
from msgspec import Struct

from toolspan.cli.output import console, duration, escape, print_json, short
from toolspan.cli.reading import mentioning
from toolspan.cli.select import locate
from toolspan.errors import NotFound
from toolspan.model.event import Hook, Permission
from toolspan.model.span import Span
from toolspan.model.state import MEANING
from toolspan.read.discover import FoundFile
from toolspan.read.history import pick, short_id
from toolspan.report.time.waits import noted_wait

_BY = {
    "config": "settings, rules or the mode",
    "hook": "a hook",
    "user": "a person",
    "user_abort": "a person, by ending it",
    "user_permanent": "a person, for good",
    "user_reject": "a person",
    "user_temporary": "a person",
}
_ORIGINS = {
    "cliArg": "the command line",
    "localSettings": "the project's local settings",
    "policySettings": "managed settings",
    "projectSettings": "the project's settings",
    "session": "this session",
    "userSettings": "the user's settings",
}
_CODES = {
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
_REASONS = {
    "rule": "a rule",
    "subcommandResults": "each command of the line was judged",
    "mode": "the permission mode",
    "hook": "a hook's answer",
    "classifier": "a classifier",
    "other": None,
}


class Answer(Struct, frozen=True, kw_only=True):
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
    answer = answer_of(_find(call, locate(names)[0]))
    if as_json:
        print_json(answer)
    else:
        _print(answer)


def _find(word: str, files: list[FoundFile]) -> Span:
    """The call whose id begins with a word.

    Raises:
        NotFound: none does, or more than one.
    """
    found: dict[str, Span] = {}
    for transcript in mentioning(word, files):
        for span in transcript.spans:
            named = span.id.startswith(word) or short_id(span.id).startswith(word)
            if named and span.call is not None:
                found.setdefault(span.id, span)
    if not found:
        raise NotFound(f"no call begins with {word!r}")
    return found[pick(word, sorted(found), "call")]


def answer_of(span: Span) -> Answer:
    """What is known of the consent for a call."""
    told = next((one for one in span.events if isinstance(one, Permission)), None)
    hooks = [one for one in span.events if isinstance(one, Hook)]
    refused = span.state in ("denied", "blocked_by_hook")
    result = span.result
    place = span.call.place or (result.place if result else None)
    return Answer(
        call=span.id,
        tool=span.tool,
        about=span.call.target,
        state=span.state,
        allowed=_allowed(span, told),
        decision=told.decision if told else None,
        source=told.source if told else None,
        reason=told.reason if told else None,
        origin=told.origin if told else None,
        code=told.code if told else None,
        scope=told.scope if told else None,
        asked_ms=noted_wait(span),
        hooks=tuple(map(_told_hook, hooks)),
        evidence=tuple(
            f"{one.rule}: {one.text}" if one.text else one.rule for one in span.evidence
        ),
        said=result.text if refused and result else None,
        file=place.file if place else "",
        line=place.line if place else None,
    )


def _told_hook(one: Hook) -> str:
    """What a handler did, in its words, and which it was."""
    words, command = _objection(one)
    said = f" ({short(words, 100)})" if words else ""
    by = f", by {short(command, 80)}" if command else ""
    return f"{one.name or one.point}: {one.outcome}{said}{by}"


def _objection(one: Hook) -> tuple[str | None, str | None]:
    """What a handler said, and its command: of an objection both are in one text."""
    if one.outcome != "blocked" or not (one.text or "").startswith("{"):
        return one.text, one.command
    try:
        told = json.loads(one.text or "")
    except ValueError:
        return one.text, one.command
    return str(told.get("blockingError", one.text)), told.get("command") or one.command


def _allowed(span: Span, told: Permission | None) -> bool | None:
    if told is not None and told.decision in ("accept", "reject"):
        return told.decision == "accept"
    if span.state in ("denied", "blocked_by_hook"):
        return False
    return True if span.state in ("succeeded", "timed_out") else None


def _print(answer: Answer) -> None:
    out = console()
    about = f"  {escape(short(answer.about, 100))}" if answer.about else ""
    out.print(f"[bold]{escape(answer.tool)}[/]{about}  [dim]{escape(answer.call)}[/]")
    words = {True: "[green]allowed[/]", False: "[yellow]not allowed[/]", None: "not known"}
    out.print(f"{words[answer.allowed]}; {answer.state}: {_in_words(answer.state)}")
    for label, text in _grounds(answer):
        out.print(f"  {label:<9}{escape(text)}")
    if answer.said:
        out.print(f"  told     {escape(short(answer.said, 300))}")
    where = f"{PurePath(answer.file).name}:{answer.line}" if answer.file else "nowhere"
    out.print(f"[dim]{escape(where)}[/]")


def _in_words(state: str) -> str:
    return next((text for name, text in MEANING.items() if name == state), state)


def _grounds(answer: Answer) -> list[tuple[str, str]]:
    """Who, and on what ground; only what is known."""
    rows: list[tuple[str, str | None]] = [
        ("by", _BY.get(answer.source or "", answer.source)),
        ("because", _REASONS.get(answer.reason or "", answer.reason)),
        ("rule of", _ORIGINS.get(answer.origin or "", answer.origin)),
        ("about", _CODES.get(answer.code or "", answer.code)),
        ("for", answer.scope),
        ("asked", duration(answer.asked_ms) if answer.asked_ms is not None else None),
        *(("hook", one) for one in answer.hooks),
    ]
    if answer.source is None:
        rows.append(("evidence", "; ".join(answer.evidence)))
    return [(label, text) for label, text in rows if text]
