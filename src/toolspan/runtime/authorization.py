"""Decide whether a call may run, based on policies, hooks, the permission mode and an approver.

Start at `authorize_call`. A rule that denies or asks takes precedence over a hook that allows; the
mode decides last.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import anyio
from msgspec import structs

from toolspan.errors import ToolError, ToolspanError, exception_text
from toolspan.runtime.context import MAX_DECISIONS, RunnerContext, ToolContext
from toolspan.runtime.hooks.events import SessionHookEvent, ToolHookEvent
from toolspan.runtime.outcome import (
    Outcome,
    approval_message,
    denied_outcome,
    invalid_input_outcome,
    not_granted_outcome,
    refuse_link,
    refused_outcome,
    reports_denied_files,
)
from toolspan.runtime.pending_call import LiveBodyStore, PendingCall, PreparedCall
from toolspan.runtime.permissions.decide import Approver, PermissionRequest, Policy, decide
from toolspan.runtime.permissions.paths import LinkResolver
from toolspan.runtime.permissions.rules import Rules, paths_of
from toolspan.runtime.permissions.suggestions import suggest_updates
from toolspan.runtime.schema.issues import Invalid, Valid
from toolspan.runtime.tool import Input, Tool
from toolspan.shell.arguments import changes_files
from toolspan.shell.syntax import BACKGROUND
from toolspan.types.decision import Allow, Ask, Decision, Deny, MissingPermissions
from toolspan.types.error_kinds import find_error_kind
from toolspan.types.events import Decided, PermissionRequested
from toolspan.types.ids import CallId
from toolspan.types.span import Call

APPROVAL_FAILED = "the approver failed"
"""The reason recorded for a call whose approver failed."""
_READING, _FETCHING = "Read", "WebFetch"
"""The names by which rules refer to reading a file and to connecting to a host, whichever tool does it."""
_HTTPS_PORT = 443
_RETRY_MESSAGE = "The PermissionDenied hook indicated you may retry this tool call."


async def authorize_call(
    pending: PendingCall, prepared: PreparedCall, context: RunnerContext
) -> PreparedCall | Outcome:
    """Return the call to run, possibly with a changed input, or the outcome if it may not run."""
    hook_decision = pending.pre_tool_decision.decision
    if isinstance(hook_decision, Allow) and context.profile.hooks.allow_is_final:
        record_decision(pending, hook_decision, context)
        return prepared
    request = make_permission_request(pending, prepared, context)
    policy_decision = await _apply_policies(_current_policies(context), request, pending, context)
    if isinstance(policy_decision, Allow) and policy_decision.input is not None:
        changed = prepared.with_input(policy_decision.input)
        if isinstance(changed, Invalid):
            return invalid_input_outcome(pending, changed, context)
        # Later decisions apply to the input that the policies returned.
        prepared, request = changed, make_permission_request(pending, changed, context)
    evaluate = partial(_apply_policies, pending=pending, context=context)
    decision = await _complete_decision(policy_decision, hook_decision, request, prepared.tool, context, evaluate)
    if isinstance(decision, Ask):
        answer = await _ask_approver(pending, request, decision, context)
    else:
        record_decision(pending, decision, context)
        answer = decision
        prepared.tool_context.is_unapproved = decision.basis == "parts" and decision.rule is None
    match answer:
        case Allow():
            new_input = answer.input
            if new_input is not None and isinstance(decision, Ask):
                new_input = prepared.drop_unknown_keys(new_input)
            changed = prepared.with_input(new_input)
            return invalid_input_outcome(pending, changed, context) if isinstance(changed, Invalid) else changed
        case Deny():
            return await _refuse_call(pending, request, answer, context)
        case Outcome():
            return answer


_EvaluatePolicies = Callable[[tuple[Policy, ...], PermissionRequest], Awaitable[Decision | None]]
"""A function that returns the strongest decision of some policies."""


async def _complete_decision(
    policy_decision: Decision | None,
    hook_decision: Decision | None,
    request: PermissionRequest,
    tool: Tool,
    context: RunnerContext,
    evaluate: _EvaluatePolicies,
) -> Decision:
    """Combine the decisions of policies and hooks with those of the sandbox, the fallback and the tool itself.

    Precedence: a rule that denies or asks, a hook, any other rule, the fallback.
    """
    decision = policy_decision if hook_decision is None or isinstance(policy_decision, Deny | Ask) else hook_decision
    if hook_decision is None and await is_freed_by_sandbox(request, decision, context):
        decision = Allow(None, "config", basis="sandbox")
    if decision is None and context.fallback is not None:
        decision = await evaluate((context.fallback,), request)
    decision = decision or Allow()
    if isinstance(decision, Deny):
        return decision
    denial = await _find_read_denial(request, context, evaluate) or refuse_link(request, context.profile)
    is_asked = tool.approval_prompt is not None and not isinstance(hook_decision, Allow)
    decision = denial or (Ask(tool.approval_prompt, "tool") if is_asked else decision)
    if isinstance(decision, Ask) and decision.source == "config" and context.permission_mode == "dontAsk":
        return Deny("dontAsk", "mode", basis="mode")
    return decision


def _current_policies(context: RunnerContext) -> tuple[Policy, ...]:
    """Return the policies of the session and the rules that launched skills have granted."""
    granted = context.call_context.granted_rules
    return (*context.policies, _make_granted_rules(granted)) if granted else context.policies


@lru_cache(maxsize=16)
def _make_granted_rules(texts: tuple[str, ...]) -> Rules:
    """Return the rules that launched skills have granted, without those that cannot be parsed."""
    rules = Rules()
    for text in texts:
        with suppress(ToolspanError):
            rules += Rules(allow=[text], origin="command")
    return rules


async def refuse_denied_file(pending: PendingCall, prepared: PreparedCall, context: RunnerContext) -> Outcome | None:
    """Return the outcome of a call whose file is denied by rules, or None if no rule denies it.

    Called if the tool rejected the call: the tool's message could reveal something about a file that must not be read.
    """
    if not prepared.tool.reports_denied_files:
        return None
    request = make_permission_request(pending, prepared, context)
    decision = await _apply_policies(context.policies, request, pending, context)
    if not isinstance(decision, Deny):
        evaluate = partial(_apply_policies, pending=pending, context=context)
        decision = await _find_read_denial(request, context, evaluate)
    if not isinstance(decision, Deny) or decision.rule is None:
        return None
    is_binding = request.kind == "read" or context.profile.refusals.read_rules_bind_changes
    if decision.rule.startswith("Read") and not is_binding:
        return None
    record_decision(pending, decision, context)
    return denied_outcome(request, decision, context.profile)


async def _find_read_denial(
    request: PermissionRequest, context: RunnerContext, evaluate: _EvaluatePolicies
) -> Deny | None:
    """Return the rule's denial if a file to change must not be read, for clients that deny such changes."""
    binds = context.profile.refusals.read_rules_bind_changes
    if not binds or request.kind == "read" or not reports_denied_files(request):
        return None
    call = structs.replace(request.call, tool=_READING)
    reading = replace(request, call=call, known_as=_READING, read_only=True, definition=None)
    decision = await evaluate(context.policies, reading)
    if not isinstance(decision, Deny) or decision.rule is None:
        return None
    # A tool name without a path on the command line removes the tool, which does not prevent creating files.
    takes_tool = decision.origin == "cliArg" and "(" not in decision.rule
    return None if takes_tool and not any(map(os.path.exists, paths_of(reading))) else decision


def find_hidden_files(tool_context: ToolContext, context: RunnerContext) -> Callable[[str], bool] | None:
    """Return a predicate for files that policies hide from the model, or None if no policy can hide any.

    Tools that search for files use it. A rule for the whole Read tool hides no files, and asynchronous policies are
    skipped.
    """
    policies = [
        policy
        for policy in context.policies
        if not isinstance(policy, Rules) or any(rule.content is not None for rule in policy.deny)
    ]
    if not policies:
        return None
    request = _read_request(tool_context, context)

    @cache
    def is_hidden(path: str) -> bool:
        for policy in policies:
            try:
                opinion = policy(replace(request, input={"file_path": path}))
            except Exception:  # noqa: BLE001 - user code; a policy that fails denies
                return True
            if isinstance(opinion, Deny) and (opinion.rule is None or "(" in opinion.rule):
                return True
            if inspect.iscoroutine(opinion):
                opinion.close()
        return False

    return is_hidden


def may_read_unasked(path: str, tool_context: ToolContext, context: RunnerContext) -> bool:
    """Return whether path rules or the mode allow reading a file without approval.

    As in clients, a rule that allows the Read tool without a path is ignored. An asynchronous policy counts as a
    question. If no policy has an opinion, files in the project may be read.
    """
    request = replace(_read_request(tool_context, context), input={"file_path": path})
    for policy in (*context.policies, *(() if context.fallback is None else (context.fallback,))):
        try:
            opinion = policy(request)
        except Exception:  # noqa: BLE001 - user code; a policy that fails allows nothing
            return False
        match opinion:
            case Allow(rule=rule) if rule is None or "(" in rule:
                return True
            case Allow() | None:
                continue
            case _:
                if inspect.iscoroutine(opinion):
                    opinion.close()
                return False
    return request.path_scope().contains_path(path)


def _read_request(tool_context: ToolContext, context: RunnerContext) -> PermissionRequest:
    """Return a request to read a file, without the path."""
    return PermissionRequest(
        call=structs.replace(tool_context.call, tool=_READING),
        input={},
        cwd=tool_context.cwd,
        project=context.workspace.project,
        read_only=True,
        mode=context.permission_mode,
        session_folder=context.workspace.folder,
        links=tool_context.links,
    )


async def is_freed_by_sandbox(request: PermissionRequest, decision: Decision | None, context: RunnerContext) -> bool:
    """Return whether a call needs no permission, because it runs inside the sandbox.

    Rules that deny, rules that ask about certain commands and the guards still apply.
    """
    sandbox = context.workspace.sandbox
    if sandbox is None or not sandbox.frees_commands or not sandbox.runs_inside(request):
        return False
    if isinstance(decision, Ask):
        if not _is_answered_by_sandbox(decision, request.tool):
            return False
        # It may hide a question of another policy, such as a guard.
        opinions = [await decide((policy,), request) for policy in context.policies]
        return all(_is_answered_by_sandbox(opinion, request.tool) for opinion in opinions)
    return decision is None


def _is_answered_by_sandbox(opinion: Decision | None, tool: str) -> bool:
    if not isinstance(opinion, Ask):
        return True
    is_in_background = opinion.needs is not None and opinion.needs.not_understood == BACKGROUND
    return opinion.rule in (tool, f"{tool}(*)") or is_in_background


async def ask_about_domain(host: str, port: int, context: RunnerContext) -> bool:
    """Return whether sandboxed commands may connect to a host, according to `WebFetch` rules or the approver."""
    url = f"https://{host}/" if port == _HTTPS_PORT else f"http://{host}:{port}/"
    call_id, store = CallId(f"sandbox-{host}-{port}"), LiveBodyStore({"url": url})
    call = Call(id=call_id, tool=_FETCHING, at=0, requested_at=None, target=url, body_store=store)
    request = PermissionRequest(
        call, {"url": url}, context.call_context.cwd, context.workspace.project, mode=context.permission_mode
    )
    decision = await decide(context.policies, request)
    if decision is None or isinstance(decision, Ask):
        if context.approver is None:
            return False
        ask = Ask(f"A command in the sandbox wants to connect to {host}, port {port}", "config")
        decision = await _call_approver(context.approver, request, ask)
    return isinstance(decision, Allow)


def _apply_policies(
    policies: tuple[Policy, ...], request: PermissionRequest, pending: PendingCall, context: RunnerContext
) -> Awaitable[Decision | None]:
    return context.run_check(decide(policies, request), "policy", pending)


async def _ask_approver(
    pending: PendingCall, request: PermissionRequest, ask: Ask, context: RunnerContext
) -> Allow | Deny | Outcome:
    """Ask the permission hooks, then the approver. Without an approver, the call is not granted."""
    message = approval_message(request, ask, context.profile.refusals)
    hook_answer = None if context.hooks.is_empty else await _ask_hooks(pending, request, ask, context)
    if hook_answer is not None:
        record_decision(pending, hook_answer, context, ask=ask)
        return hook_answer
    if context.approver is None:
        refusal = Deny(ask.reason, ask.source, rule=ask.rule, origin=ask.origin, basis=ask.basis)
        record_decision(pending, refusal, context, ask=ask)
        return not_granted_outcome(request, ask, context.profile.refusals)
    started_at = context.clock()
    context.emit(PermissionRequested(call_id=pending.call.id, reason=message, at=started_at))
    try:
        approval = _call_approver(context.approver, request, ask)
        answer = await context.run_check(approval, "approver", pending)
    except ToolError as error:
        text = f"Error calling tool ({request.tool}): {error.message}"
        kind = find_error_kind(request.kind, text)
        return refused_outcome(text, kind=kind, reason=APPROVAL_FAILED, record=text)
    except anyio.get_cancelled_exc_class():
        waited = (context.clock() - started_at) * 1e3
        record_decision(pending, Deny(None, "user_abort"), context, ask=ask, waited_ms=waited)
        raise
    record_decision(pending, answer, context, ask=ask, waited_ms=(context.clock() - started_at) * 1e3)
    return answer


async def _refuse_call(pending: PendingCall, request: PermissionRequest, deny: Deny, context: RunnerContext) -> Outcome:
    """Return the outcome of a denied call. If the classifier was unavailable, hooks may let the model retry."""
    refusal = denied_outcome(request, deny, context.profile)
    if deny.basis != "classifier" or context.hooks.is_empty:
        return refusal
    tool_event = _permission_hook_event(pending, request)
    fields = {
        "tool_name": tool_event.tool,
        "tool_input": dict(tool_event.input),
        "tool_use_id": pending.call.id,
        "reason": "Classifier unavailable",
    }
    hook_event = SessionHookEvent(
        point="PermissionDenied", subject=tool_event.tool, fields=fields, tool_event=tool_event
    )
    effects = await context.run_hook(context.hooks.run_session_event(hook_event), pending)
    context.emit_hook_reports(pending.call.id, effects.reports)
    return structs.replace(refusal, companions=(_RETRY_MESSAGE,)) if effects.retry else refusal


def _permission_hook_event(pending: PendingCall, request: PermissionRequest) -> ToolHookEvent:
    return ToolHookEvent(
        call=pending.call,
        input=request.input,
        cwd=request.cwd,
        known_as=request.known_as,
        definition=request.definition,
    )


async def _ask_hooks(
    pending: PendingCall, request: PermissionRequest, ask: Ask, context: RunnerContext
) -> Allow | Deny | None:
    """Return the decision of the permission hooks, or None if they have no opinion."""
    tool_event = structs.replace(_permission_hook_event(pending, request), suggestions=suggest_updates(request, ask))
    response = await context.run_hook(context.hooks.run_permission_request(tool_event), pending)
    context.emit_hook_reports(pending.call.id, response.reports)
    match response.decision:
        case Allow(reason, _, new_input):
            for problem in apply_permission_updates(response.permission_updates, context):
                context.report_fault("hook", problem, pending.call.id)
            if new_input is not None:  # a rule may still deny the input that the hook returned
                changed_request = replace(request, input=new_input)
                decision = await _apply_policies(context.policies, changed_request, pending, context)
                if isinstance(decision, Deny):
                    return decision
            return Allow(reason, "permission_hook", new_input)
        case Deny(reason, _, stop):
            message = reason or approval_message(request, Ask(), context.profile.refusals)
            return Deny(message, "permission_hook", stop)
        case _:
            return None


async def _call_approver(approver: Approver, request: PermissionRequest, ask: Ask) -> Allow | Deny:
    try:
        answer = approver(request, ask)
        if isinstance(answer, Awaitable):
            answer = await answer
        if not isinstance(answer, Allow | Deny):
            raise TypeError(f"an approver says Allow or Deny, not {type(answer).__name__}")
    except ToolError:
        raise  # the message is meant for the model
    except Exception as error:  # noqa: BLE001 - an approver that fails does not allow the call
        return Deny(f"Tool permission request failed: {exception_text(error)}", "policy")
    return answer


async def preview_decision(call: Call, tool: Tool, arguments: Input, context: RunnerContext) -> Decision:
    """Return the decision on a call, without running hooks or asking an approver."""
    parsed = tool.parse(arguments)
    if isinstance(parsed, Invalid):
        return Deny("The input does not match the tool's schema")
    return await decide_request(build_request(call, tool, parsed, context), tool, context)


def build_request(call: Call, tool: Tool, valid: Valid, context: RunnerContext) -> PermissionRequest:
    """Return the request that policies would receive if the call ran now."""
    return _build_request(call, tool, valid, context.call_context.cwd, LinkResolver(), context)


async def decide_request(request: PermissionRequest, tool: Tool, context: RunnerContext) -> Decision:
    """Return the decision on a request, without running hooks or asking an approver."""
    policy_decision = await decide(context.policies, request)
    return await _complete_decision(policy_decision, None, request, tool, context, decide)


def record_decision(
    pending: PendingCall,
    decision: Allow | Deny,
    context: RunnerContext,
    *,
    ask: Ask | None = None,
    waited_ms: float = 0.0,
) -> None:
    """Store the decision on a call and emit it. `ask` is the question that the decision answers, if any."""
    context.decisions[pending.call.id] = decision
    if len(context.decisions) > MAX_DECISIONS:
        del context.decisions[next(iter(context.decisions))]
    basis_source = decision if ask is None else ask
    by_mode = basis_source.basis in ("mode", "plan")
    pending.decision_event = Decided(
        call_id=pending.call.id,
        allowed=isinstance(decision, Allow),
        source=decision.source if not by_mode or decision.source != "mode" else "config",
        reason=decision.reason,
        rule=basis_source.rule,
        origin=basis_source.origin,
        basis="hook" if basis_source.source == "hook" else basis_source.basis,
        missed=None if ask is None or ask.needs is None else _missing_permission(ask, ask.needs),
        mode=context.permission_mode if by_mode else None,
        asked=ask is not None,
        waited_ms=waited_ms,
        at=context.clock(),
    )
    context.emit(pending.decision_event)


def _missing_permission(ask: Ask, needs: MissingPermissions) -> str | None:
    """Return the client's code for the reason why a command line needs approval, or None if the reason is a path."""
    if ask.basis == "not_understood":
        return "too-complex"
    if needs.leaves and needs.of > 1:
        changes = any(changes_files(part.partition(" ")[0]) for part in needs.parts)
        return "cd-compound-write" if changes else "cd-compound-read"
    return None if needs.reach is not None else "no-rule-match"


def make_permission_request(pending: PendingCall, prepared: PreparedCall, context: RunnerContext) -> PermissionRequest:
    """Build the request that policies receive for a call."""
    tool_context = prepared.tool_context
    return _build_request(pending.call, prepared.tool, prepared.valid, tool_context.cwd, tool_context.links, context)


def _build_request(
    call: Call, tool: Tool, valid: Valid, cwd: Path, links: LinkResolver, context: RunnerContext
) -> PermissionRequest:
    request = PermissionRequest(
        call=call,
        input=valid.recorded,
        cwd=cwd,
        project=context.workspace.project,
        read_only=tool.read_only or (tool.only_reads is not None and tool.only_reads(valid.value, context.workspace)),
        mode=context.permission_mode,
        known_as=tool.name,
        searched_folder=_searched_folder(tool, valid, context),
        session_folder=context.workspace.folder,
        search_path=context.workspace.environment.get("PATH", ""),
        repository=context.workspace.repository,
        links=links,
        definition=tool,
    )
    sandbox = context.workspace.sandbox
    if sandbox is None or not sandbox.is_on or not tool.sandboxed:
        return request
    return replace(request, leaves_sandbox=not sandbox.runs_inside(request))


_GLOB_START = re.compile(r"[*?\[{]")


def _searched_folder(tool: Tool, valid: Valid, context: RunnerContext) -> str | None:
    """Return the folder at the start of an absolute pattern, if the profile's client searches there."""
    if tool.subject is None or tool.subject.pattern is None or not context.profile.search.relative_names:
        return None
    pattern = str(valid.recorded.get(tool.subject.pattern) or "")
    return (_GLOB_START.split(pattern, maxsplit=1)[0].rpartition("/")[0] or "/") if pattern[:1] == "/" else None


_SETTABLE_MODES = frozenset({"default", "acceptEdits", "plan", "dontAsk"})


def apply_permission_updates(updates: Sequence[Mapping[str, object]], context: RunnerContext) -> list[str]:
    """Apply permission updates from a hook or a user to the session, and describe those that could not be applied."""
    problems: list[str] = []
    for update in updates:
        match update:
            case {"destination": destination} if destination != "session":
                problems.append(f"{update.get('type')}: only the session is changed, not {destination}")
            case {"type": "setMode", "mode": str(mode)} if mode in _SETTABLE_MODES:
                context.set_permission_mode(mode)
            case {"type": "addRules", "behavior": "allow" | "ask" | "deny" as behavior}:
                rules = update.get("rules")
                texts = (
                    [_rule_text(rule) for rule in rules if isinstance(rule, Mapping)] if isinstance(rules, list) else []
                )
                by_behavior: dict[str, Any] = {behavior: texts}
                try:
                    context.policies = (*context.policies, Rules(**by_behavior))
                except ToolspanError as error:
                    problems.append(f"addRules: {error}")
            case _:
                problems.append(f"{update.get('type')}: not supported")
    return problems


def _rule_text(rule: Mapping[str, object]) -> str:
    name, content = str(rule.get("toolName", "")), rule.get("ruleContent")
    return f"{name}({content})" if content else name
