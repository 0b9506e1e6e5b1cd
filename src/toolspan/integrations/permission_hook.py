"""`toolspan hook approve`: show a permission request of Claude Code in `toolspan ui`, and print the answer."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolspan.integrations.claude_hooks import APPROVE_SECONDS
from toolspan.integrations.grants import GrantOffer
from toolspan.integrations.web_approver import AlwaysOffer, PermissionQuestion, ask_page
from toolspan.runtime.pending_call import LiveBodyStore
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.permissions.suggestions import Suggestion
from toolspan.tools.request_preview import preview_request
from toolspan.types.ids import CallId
from toolspan.types.span import Call
from toolspan.types.tool_kinds import tool_kind

_DESTINATIONS = {"session": "session", "local": "localSettings", "user": "userSettings"}
_SCOPES = {"session": "for this session", "local": "in this project", "user": "in all your projects"}


def answer_permission_request() -> None:
    """Ask about the hook input on standard input, and print the answer in the client's format. Never raises."""
    try:
        if sys.stdin is None or sys.stdin.isatty():
            return
        hook_input = json.loads(sys.stdin.buffer.read())
        decision = _ask(hook_input) if hook_input.get("hook_event_name") == "PermissionRequest" else None
        if decision is not None:
            output = {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}
            sys.stdout.write(json.dumps(output) + "\n")
    except Exception:  # noqa: BLE001 - a failure must never disturb the client
        return


def _ask(hook_input: Mapping[str, object]) -> dict[str, object] | None:
    tool, tool_input = str(hook_input["tool_name"]), hook_input.get("tool_input")
    if tool_kind(tool) == "question" or not isinstance(tool_input, Mapping):
        return None  # the client shows its own form
    session, cwd, agent = (hook_input.get(key) for key in ("session_id", "cwd", "agent_id"))
    preview = preview_request(_permission_request(tool, tool_input, cwd))
    suggestions = hook_input.get("permission_suggestions")
    updates = [update for update in suggestions if isinstance(update, dict)] if isinstance(suggestions, list) else []
    answer = ask_page(
        PermissionQuestion(
            tool=tool,
            input=tool_input,
            client="Claude Code",
            session=session if isinstance(session, str) else None,
            agent=agent if isinstance(agent, str) else None,
            cwd=cwd if isinstance(cwd, str) else None,
            text=preview.raw_text,
            is_diff=preview.is_diff,
            files=preview.files,
            seconds=APPROVE_SECONDS,
            needs_page=True,
            always=_describe_offer(updates),
        )
    )
    if answer is None:
        return None
    if answer.behavior == "allow":
        if answer.always is None:
            return {"behavior": "allow"}
        destination = _DESTINATIONS[answer.always]
        return {
            "behavior": "allow", "updatedPermissions": [{**update, "destination": destination} for update in updates]
        }  # fmt: skip
    return {"behavior": "deny", "message": answer.message or "The user denied this in toolspan ui."}


def _permission_request(tool: str, tool_input: Mapping[str, object], cwd: object) -> PermissionRequest:
    folder = Path(cwd if isinstance(cwd, str) else "/")
    call = Call(
        id=CallId(""), tool=tool, at=0, requested_at=None, target=None, body_store=LiveBodyStore(tool_input)
    )  # fmt: skip
    project = Path(os.environ.get("CLAUDE_PROJECT_DIR") or folder)
    return PermissionRequest(call=call, input=tool_input, cwd=folder, project=project)


def _describe_offer(updates: Sequence[Suggestion]) -> AlwaysOffer | None:
    """Return the permissions that the client itself would offer as "always"."""
    if not updates:
        return None
    offer = GrantOffer.from_suggestions(updates)
    allows = tuple(offer.summary_lines())
    return AlwaysOffer(allows=allows, scopes={scope: _SCOPES[scope] for scope in offer.scopes}) if allows else None
