"""Who allowed or denied a call, and why: `Archive.why` and `toolspan why`."""

from __future__ import annotations

from msgspec import Struct

from toolspan.analysis.timing import noted_wait
from toolspan.archive.engine import FileEngine
from toolspan.archive.sources import transcripts_containing
from toolspan.archive.words import format_duration, shorten_line
from toolspan.errors import NotFound
from toolspan.reading.history import match_prefix, short_id
from toolspan.types.error_kinds import denial_message, find_sandbox_note, unwrap_error_text
from toolspan.types.span import Hook, Notification, Permission, Span
from toolspan.types.state import State

_SOURCE_LABELS = {
    "config": "settings, rules or the permission mode",
    "hook": "a hook",
    "limit": "a limit of cost, tokens, time or calls",
    "user": "the user",
    "user_abort": "the user, by interrupting",
    "user_permanent": "the user, permanently",
    "user_reject": "the user",
    "user_temporary": "the user",
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
    "sandbox": "the command ran inside the sandbox",
    "workingDir": "outside the folders of the session",
    "mode:plan": "the session was in plan mode",
    "mode:dontAsk": "the permission mode was dontAsk",
    "bashMiss:no-rule-match": "no rule matches the command",
    "bashMiss:too-complex": "the command line is too complex to analyse",
    "bashMiss:cd-compound-read": "it changes the folder and reads there",
    "bashMiss:cd-compound-write": "it changes the folder and writes there",
    "bashMiss:cd-compound-redirect": "it changes the folder and redirects output there",
    "bashMiss:cd-git-compound": "it changes the folder and runs git there",
    "hook:PreToolUse": "the answer of a PreToolUse hook",
    "hook:PermissionRequest": "the answer of a PermissionRequest hook",
}
_REASON_LABELS = {
    "rule": "a rule",
    "subcommandResults": "each command of the line was checked",
    "mode": "the permission mode",
    "hook": "a hook's answer",
    "classifier": "a classifier",
    "other": None,
}


class PermissionExplanation(Struct, frozen=True, kw_only=True):
    """The recorded permission decision for a call."""

    call: str
    tool: str
    about: str | None
    state: State
    error_kind: str | None = None
    allowed: bool | None
    """True if the call was allowed; None if no decision was recorded and the state does not imply one."""
    decision: str | None = None
    source: str | None = None
    reason: str | None = None
    origin: str | None = None
    code: str | None = None
    scope: str | None = None
    asked_ms: int | None = None
    """The milliseconds that the permission prompt was open, if toolspan's hooks recorded them."""
    hooks: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    said: str | None = None
    """The reason that the user gave, or the result that the model received for a call that did not run."""
    sandbox: str | None = None
    """The note about sandbox violations."""
    file: str
    line: int | None


def find_permission(engine: FileEngine, call: str) -> PermissionExplanation:
    """Explain the permission of the call whose id begins with `call`.

    Raises:
        NotFound: there is no such call.
    """
    spans: dict[str, Span] = {}
    for transcript in transcripts_containing(call, engine.locate()[0], call=True, reporter=engine.reporter):
        for span in transcript.spans:
            if span.id.startswith(call) or short_id(span.id).startswith(call):
                spans.setdefault(span.id, span)
    if not spans:
        raise NotFound(f"no call begins with {call!r}")
    return explain_permission(spans[match_prefix(call, sorted(spans), "call")])


def explain_permission(span: Span) -> PermissionExplanation:
    """Return the recorded facts about a call's permission."""
    permission = next((item for item in span.events if isinstance(item, Permission)), None)
    refused = span.state in ("denied", "blocked_by_hook")
    allowed = False if refused else True if span.state in ("succeeded", "timed_out") else None
    if permission is not None and permission.decision in ("accept", "reject"):
        allowed = permission.decision == "accept"
    result = span.result
    place = span.call.place or (result.place if result else None)
    texts = [result.text or ""] if result else []
    texts += [item.output or item.summary or "" for item in span.events if isinstance(item, Notification)]
    return PermissionExplanation(
        call=span.id,
        tool=span.tool,
        about=span.call.target,
        state=span.state,
        error_kind=span.error_kind,
        allowed=allowed,
        **{key: getattr(permission, key, None) for key in ("decision", "source", "reason", "origin", "code", "scope")},
        asked_ms=noted_wait(span),
        hooks=tuple(_describe_hook(item) for item in span.events if isinstance(item, Hook)),
        evidence=tuple(item.summary for item in span.evidence),
        said=denial_message(unwrap_error_text(result.text)) if refused and result else None,
        sandbox=next(filter(None, map(find_sandbox_note, texts)), None),
        file=place.file if place else "",
        line=place.line if place else None,
    )


def _describe_hook(hook: Hook) -> str:
    detail = f" ({shorten_line(hook.text, 100)})" if hook.text else ""
    by = f", by {shorten_line(hook.command, 80)}" if hook.command else ""
    return f"{hook.name or hook.point}: {hook.outcome}{detail}{by}"


def explanation_rows(explanation: PermissionExplanation) -> list[tuple[str, str]]:
    """Return the explanation as pairs of a label and a text."""
    rows: list[tuple[str, str | None]] = [
        ("by", _SOURCE_LABELS.get(explanation.source or "", explanation.source)),
        ("because", _REASON_LABELS.get(explanation.reason or "", explanation.reason)),
        ("rule in", _ORIGIN_LABELS.get(explanation.origin or "", explanation.origin)),
        ("detail", _CODE_LABELS.get(explanation.code or "", explanation.code)),
        ("for", explanation.scope),
        ("waited", format_duration(explanation.asked_ms)),
        *(("hook", hook) for hook in explanation.hooks),
        ("evidence", "; ".join(explanation.evidence) if explanation.source is None else None),
        ("you said" if explanation.error_kind == "user_denied" else "message", shorten_line(explanation.said, 300)),
        ("sandbox", shorten_line(explanation.sandbox, 300)),
    ]
    return [(label, text) for label, text in rows if text]
