"""May this call run? The rules' word, the hooks' word, and somebody's who is asked.

In: a call that is valid and has passed the hooks. Out: the call as it may run, or the refusal as an
`Ending`. A rule's denial wins over a hook's consent; the mode speaks when nobody else does.
"""

from collections.abc import Awaitable
from dataclasses import replace

import anyio
from msgspec import structs

from toolspan.errors import ToolError, words_of
from toolspan.hooks.points import Moment, Occasion
from toolspan.model.decision import Allow, Ask, Decision, Deny, Needs
from toolspan.model.kind import kind_of
from toolspan.model.live import Asked, Decided, Faulted
from toolspan.model.span import Call
from toolspan.permission.decide import Approver, Policy, Question, decide
from toolspan.permission.suggest import suggestions
from toolspan.run import denial, grants
from toolspan.run.desk import Desk, Job, Prepared
from toolspan.run.ending import Ending, refused
from toolspan.run.review import report
from toolspan.run.tool import Input, Tool, Valid
from toolspan.run.valid import known_keys, with_input
from toolspan.schema.issue import Invalid
from toolspan.shell.argument import CHANGERS

UNASKED = "the question of consent failed"
"""The evidence of a call that nobody could be asked about."""
_RETRY = "The PermissionDenied hook indicated you may retry this tool call."


async def consent(job: Job, prepared: Prepared, desk: Desk) -> Prepared | Ending:
    """The call as it may run, or why it may not; `is_asked` says whether this is needed."""
    hooked = job.before.decision
    if isinstance(hooked, Allow) and desk.profile.hooks.allow_is_final:
        note_decision(job, hooked, desk)
        return prepared
    question = question_of(job, prepared, desk)
    ruled = await _ruled(desk.policies, question, job, desk)
    if isinstance(ruled, Allow) and ruled.input is not None:
        changed = with_input(job, prepared, ruled.input, desk)
        if isinstance(changed, Ending):
            return changed
        # Whoever speaks after the rules speaks of the call as they left it.
        prepared, question = changed, question_of(job, changed, desk)
    decision = await _decision(job, question, ruled, desk)
    answer = await _ask(job, question, decision, desk) if isinstance(decision, Ask) else decision
    match answer:
        case Allow():
            wanted = answer.input
            if wanted is not None and isinstance(decision, Ask):
                wanted = known_keys(prepared, wanted)
            return with_input(job, prepared, wanted, desk)
        case Deny():
            return await _refused(job, question, answer, desk)
        case Ending():
            return answer


def _ruled(
    policies: tuple[Policy, ...], question: Question, job: Job, desk: Desk
) -> Awaitable[Decision | None]:
    return desk.checked(decide(policies, question), "policy", job)


def is_asked(job: Job, prepared: Prepared, desk: Desk) -> bool:
    """Whether anybody has a say over the call."""
    if desk.policies or desk.fallback is not None or job.before.decision is not None:
        return True
    return desk.approver is not None and prepared.tool.asks is not None


async def _decision(job: Job, question: Question, ruled: Decision | None, desk: Desk) -> Decision:
    """Deny of a rule, then a hook's word, then the rules', then the mode's."""
    hooked = job.before.decision
    decision = ruled if hooked is None or isinstance(ruled, Deny | Ask) else hooked
    if decision is None and desk.fallback is not None:
        decision = await _ruled((desk.fallback,), question, job, desk)
    decision = _as_tool_asks(job, decision or Allow())
    if not isinstance(decision, Ask):
        note_decision(job, decision, desk)
    return decision


def _as_tool_asks(job: Job, decision: Decision) -> Decision:
    """Some tools are a question to a person: only a hook's consent stands in for the answer."""
    words = job.tool.asks if job.tool is not None else None
    if words is None or isinstance(decision, Deny) or isinstance(job.before.decision, Allow):
        return decision
    return Ask(words, "tool")


async def _ask(job: Job, question: Question, ask: Ask, desk: Desk) -> Allow | Deny | Ending:
    """Somebody is asked; without an approver the answer is no."""
    words = denial.asked_words(question, ask, desk.profile.refusals)
    hooked = None if desk.hooks.silent else await _hooks_answer(job, question, ask, desk)
    if hooked is not None:
        note_decision(job, hooked, desk, asked=ask)
        return hooked
    if desk.approver is None:
        refusal = Deny(ask.reason, ask.source, rule=ask.rule, origin=ask.origin, basis=ask.basis)
        note_decision(job, refusal, desk, asked=ask)
        return denial.not_granted(question, ask, desk.profile.refusals)
    asked = desk.clock()
    desk.emit(Asked(call_id=job.call.id, reason=words, at=asked))
    try:
        answered = _answer(desk.approver, question, ask)
        answer = await desk.checked(answered, "approver", job)
    except ToolError as error:
        text = f"Error calling tool ({question.tool}): {error.message}"
        kind = kind_of(question.tool, text)
        return refused(text, kind=kind, reason=UNASKED, record=text)
    except anyio.get_cancelled_exc_class():
        waited = (desk.clock() - asked) * 1e3
        note_decision(job, Deny(None, "user_abort"), desk, asked=ask, waited=waited)
        raise
    note_decision(job, answer, desk, asked=ask, waited=(desk.clock() - asked) * 1e3)
    return answer


async def _refused(job: Job, question: Question, deny: Deny, desk: Desk) -> Ending:
    """The refusal; where nobody could judge the call, hooks may let the model try it again."""
    refusal = denial.denied(question, deny, desk.profile.refusals)
    if deny.basis != "classifier" or desk.hooks.silent:
        return refusal
    moment = _moment(job, question)
    fields = {
        "tool_name": moment.tool,
        "tool_input": dict(moment.input),
        "tool_use_id": job.call.id,
        "reason": "Classifier unavailable",
    }
    occasion = Occasion(point="PermissionDenied", about=moment.tool, fields=fields, moment=moment)
    after = await desk.hooked(desk.hooks.fire(occasion), job)
    report(job.call.id, after.reports, desk)
    return structs.replace(refusal, companions=(_RETRY,)) if after.retry else refusal


def _moment(job: Job, question: Question) -> Moment:
    return Moment(call=job.call, input=question.input, cwd=question.cwd, known_as=question.known_as)


async def _hooks_answer(job: Job, question: Question, ask: Ask, desk: Desk) -> Allow | Deny | None:
    """What the hooks for questions of consent say in somebody's place."""
    moment = structs.replace(_moment(job, question), suggestions=suggestions(question, ask))
    said = await desk.hooked(desk.hooks.permission(moment), job)
    report(job.call.id, said.reports, desk)
    match said.decision:
        case Allow(reason, _, given):
            for told in grants.apply(said.updates, desk):
                fault = Faulted(where="hook", reason=told, call_id=job.call.id, at=desk.clock())
                desk.emit(fault)
            allow = Allow(reason, "permission_hook", given)
            return await _still_allowed(allow, question, job, desk)
        case Deny(reason, _, stop):
            words = reason or denial.asked_words(question, Ask(), desk.profile.refusals)
            return Deny(words, "permission_hook", stop)
        case _:
            return None


async def _still_allowed(allow: Allow, question: Question, job: Job, desk: Desk) -> Allow | Deny:
    """A hook's consent, unless it comes with another input that a rule denies."""
    if allow.input is None:
        return allow
    ruled = await _ruled(desk.policies, replace(question, input=allow.input), job, desk)
    return ruled if isinstance(ruled, Deny) else allow


async def _answer(approver: Approver, question: Question, ask: Ask) -> Allow | Deny:
    try:
        answer = approver(question, ask)
        if isinstance(answer, Awaitable):
            answer = await answer
        if not isinstance(answer, Allow | Deny):
            raise TypeError(f"an approver says Allow or Deny, not {type(answer).__name__}")
    except ToolError:
        raise  # it has words of its own
    except Exception as error:  # noqa: BLE001 - consent fails closed
        return Deny(f"Tool permission request failed: {words_of(error)}", "policy")
    return answer


async def consent_for(call: Call, tool: Tool, given: Input, desk: Desk) -> Decision:
    """What the answer would be if this were asked for; nobody is asked, no hook is fired."""
    parsed = tool.parse(given)
    if isinstance(parsed, Invalid):
        return Deny("The input does not fit the tool's schema")
    question = Question(
        call=call,
        input=parsed.recorded,
        cwd=desk.context.cwd,
        project=desk.workspace.project,
        read_only=_changes_nothing(tool, parsed),
        mode=_mode(desk),
        known_as=tool.name,
        own=desk.workspace.folder,
    )
    decision = await decide(desk.policies, question)
    if decision is None and desk.fallback is not None:
        decision = await decide((desk.fallback,), question)
    return decision or Allow()


def _mode(desk: Desk) -> str | None:
    """The mode that a plan tool has put the session in."""
    found = desk.context.values.get("permission_mode")
    return found if isinstance(found, str) else None


def _changes_nothing(tool: Tool, valid: Valid) -> bool:
    return tool.read_only or (tool.name == "Bash" and tool.may_overlap(valid.value))


def note_decision(
    job: Job,
    decision: Allow | Deny,
    desk: Desk,
    *,
    asked: Ask | None = None,
    waited: float = 0.0,
) -> None:
    """Remember the decision on a call, and tell of it; `asked` is the question it answers."""
    desk.remember(job.call.id, decision)
    ground = decision if asked is None else asked
    by_mode = ground.basis in ("mode", "plan")
    job.decided = Decided(
        call_id=job.call.id,
        allowed=isinstance(decision, Allow),
        source=decision.source if not by_mode or decision.source != "mode" else "config",
        reason=decision.reason,
        rule=ground.rule,
        origin=ground.origin,
        basis="hook" if ground.source == "hook" else ground.basis,
        missed=None if asked is None or asked.needs is None else _missed(asked, asked.needs),
        mode=_mode(desk) if by_mode else None,
        asked=asked is not None,
        waited_ms=waited,
        at=desk.clock(),
    )
    desk.emit(job.decided)


def _missed(ask: Ask, needs: Needs) -> str | None:
    """Why a command line is not free; None where the place that it reaches says it."""
    if ask.basis == "unclear":
        return "too-complex"
    if needs.leaves and needs.of > 1:
        changes = any(part.partition(" ")[0] in CHANGERS for part in needs.parts)
        return "cd-compound-write" if changes else "cd-compound-read"
    return None if needs.reach is not None else "no-rule-match"


def question_of(job: Job, prepared: Prepared, desk: Desk) -> Question:
    """The call as policies see it."""
    return Question(
        call=job.call,
        input=prepared.valid.recorded,
        cwd=prepared.view.cwd,
        project=desk.workspace.project,
        read_only=_changes_nothing(prepared.tool, prepared.valid),
        mode=_mode(desk),
        known_as=prepared.tool.name,
        own=desk.workspace.folder,
        links=prepared.view.links,
    )
