"""Refusals and interruptions in the words of a profile.

In: who said no and why. Out: an `Ending`. The texts are the profile's; which one fits is decided
here. Knows nothing of tasks or scopes.
"""

from dataclasses import dataclass

from toolspan.model.decision import Ask, Deny, Needs
from toolspan.model.kind import ErrorKind
from toolspan.model.toolkind import tool_kind
from toolspan.permission.decide import Question
from toolspan.profile import Refusals
from toolspan.run.ending import Ending, error_record, tagged
from toolspan.run.outbound import clean

PEOPLE = frozenset({"user", "user_reject", "user_abort", "user_temporary"})


@dataclass(frozen=True, slots=True)
class Words:
    """The texts of a refusal: for the model, and beside it."""

    text: str
    record: str


def denied(question: Question, decision: Deny, refusals: Refusals) -> Ending:
    """Somebody said no."""
    if decision.source in ("hook", "permission_hook"):
        return _blocked(question, decision, refusals)
    if decision.source in PEOPLE:
        return _by_person(decision, refusals)
    text = _policy_text(question, decision, refusals)
    if _is_denied_file(question, decision):
        words = Words(tagged(text), error_record(text))
        return _ending(words, "rule_denied", None, decision)
    denial = "automode-unavailable" if decision.basis == "classifier" else "permission-rule"
    return _ending(Words(text, error_record(text)), "rule_denied", denial, decision)


def not_granted(question: Question, ask: Ask, refusals: Refusals) -> Ending:
    """Somebody would have to be asked, and nobody is there."""
    text = asked_words(question, ask, refusals)
    words = Words(text, error_record(text))
    return _ending(words, "not_granted", "user-rejected", Deny(text, ask.source))


def asked_words(question: Question, ask: Ask, refusals: Refusals) -> str:
    """What somebody is asked, or told when nobody is there to be asked."""
    if ask.source == "mode" and refusals.plan_mode:
        return refusals.plan_mode.format(path=_path(question))
    if ask.needs is not None:
        return _needs_text(ask.needs, refusals)
    if ask.reason is not None and ask.source != "mode":
        return ask.reason
    return _not_granted_text(question, refusals)


def _needs_text(needs: Needs, refusals: Refusals) -> str:
    """Why a command line is asked about: the place it reaches, or the commands in it."""
    reach = needs.reach
    if reach is not None and not (needs.leaves and refusals.leaving_names_parts):
        inside = refusals.redirect_inside if reach.program is None else refusals.reach_inside
        outside = refusals.redirect if reach.program is None else refusals.reach
        text = inside if reach.inside else outside
        if text is not None:
            return text.format(what=reach.program, path=reach.path)
    if needs.of <= 1:
        return "This command requires approval"
    several = len(needs.parts) > 1
    parts = "parts require" if several else "part requires"
    return (
        "This Bash command contains multiple operations."
        f" The following {parts} approval: {', '.join(needs.parts)}"
    )


def _is_denied_file(question: Question, decision: Deny) -> bool:
    """A rule about paths said so, not one about the whole tool."""
    about_paths = decision.rule is not None and "(" in decision.rule
    return about_paths and tool_kind(question.tool) in ("read", "edit", "write")


def _ending(words: Words, kind: ErrorKind, denial: str | None, decision: Deny) -> Ending:
    return Ending(
        state="denied",
        content=clean(words.text),
        structured=clean(words.record),
        flag=True,
        kind=kind,
        denial=denial,
        reason=f"refused by {decision.source}",
        stop="refused by the user" if decision.stop else None,
    )


def _by_person(decision: Deny, refusals: Refusals) -> Ending:
    text = refusals.rejected
    if decision.reason:
        text = refusals.rejected_with_words.format(words=decision.reason)
    words = Words(text, refusals.rejected_record)
    return _ending(words, "user_denied", "user-rejected", decision)


def _blocked(question: Question, decision: Deny, refusals: Refusals) -> Ending:
    text = refusals.hook_denied_silently.format(name=question.tool)
    if decision.source == "permission_hook":  # it speaks in a person's place
        text = clean(decision.reason or text)
    elif decision.reason:
        text = clean(refusals.hook_denied.format(name=question.tool, reason=decision.reason))
    return Ending(
        state="blocked_by_hook",
        content=text,
        structured=error_record(text),
        flag=True,
        kind="hook_blocked",
        denial="permission-rule",
        reason="a hook refused",
        stop="refused by a hook" if decision.stop else None,
    )


def _policy_text(question: Question, decision: Deny, refusals: Refusals) -> str:
    if decision.source == "mode" and decision.reason == "dontAsk":
        return refusals.dont_ask.format(name=question.tool)
    if decision.reason:
        return decision.reason
    if _is_denied_file(question, decision):
        return refusals.denied_file
    command = question.input.get("command")
    if question.tool == "Bash" and isinstance(command, str):
        return f"Permission to use Bash with command {command} has been denied."
    return refusals.denied.format(name=question.tool)


def _not_granted_text(question: Question, refusals: Refusals) -> str:
    kind = tool_kind(question.tool)
    path = _path(question)
    if path and kind in ("edit", "write"):
        return refusals.not_granted_write.format(path=path)
    if path and kind in ("read", "search"):
        return refusals.not_granted_read.format(path=path)
    return refusals.not_granted.format(name=question.tool)


def _path(question: Question) -> str | None:
    for key in ("file_path", "notebook_path", "path"):
        value = question.input.get(key)
        if isinstance(value, str):
            return str(question.cwd / value)
    return None


def cancelled(refusals: Refusals) -> Ending:
    """It never started, because something else ended first."""
    return Ending(
        state="cancelled",
        content=refusals.cancelled,
        structured=refusals.rejected_record,
        flag=True,
        kind="cancelled",
        denial="cancelled",
        reason="ended before it started",
    )


def interrupted(refusals: Refusals, partial: str | None) -> Ending:
    """It was running when somebody ended it; what it had to show is kept."""
    text = refusals.interrupted
    record = refusals.rejected_record
    if refusals.interrupted_keeps_output:
        text = f"Exit code 137\n{refusals.interrupt_note}" if partial is not None else text
        text = f"{text}\n{partial}" if partial else text
        record = error_record(text)
    elif partial:
        text = f"{text}\n\nWhat it had printed until then:\n{partial}"
    return Ending(
        state="interrupted",
        content=text,
        structured=record,
        flag=True,
        kind="interrupted",
        denial="interrupted",
        reason="ended while it ran",
    )


def sibling_failed() -> Ending:
    """A parallel call failed, and the policy is that one failure ends all."""
    return _dropped("Sibling tool call errored", "sibling_error", "a sibling failed")


def discarded() -> Ending:
    """The reply that asked for the call was streamed anew."""
    text = "Error: Streaming fallback - tool execution discarded"
    return _dropped(text, "stream_discarded", "the reply was streamed anew")


def _dropped(text: str, kind: ErrorKind, reason: str) -> Ending:
    """Nobody wants its result any more."""
    return Ending(
        state="cancelled",
        content=tagged(text),
        structured=error_record(text),
        flag=True,
        kind=kind,
        reason=reason,
    )
