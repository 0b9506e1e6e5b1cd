"""`toolspan hook approve`: answer a permission request of Claude Code in the page of a running `toolspan ui`.

Prints the decision, or nothing: then the client asks as always. It always exits with code 0.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolspan.integrations.web_approver import AlwaysOffer
    from toolspan.runtime.permissions.modes import Suggestion

_DESTINATIONS = {"session": "session", "local": "localSettings", "user": "userSettings"}
_SCOPES = {"session": "for this session", "local": "in this project", "user": "in all your projects"}


def answer_permission_request() -> None:
    """Ask about the hook input on standard input, and print the answer as the client expects it. Never raises."""
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
    from toolspan.integrations.claude_hooks import APPROVE_SECONDS
    from toolspan.integrations.web_approver import ASK_USER_QUESTION, PermissionQuestion, ask_page

    tool, tool_input = str(hook_input["tool_name"]), hook_input.get("tool_input")
    if tool == ASK_USER_QUESTION or not isinstance(tool_input, Mapping):
        return None  # the client shows its own form
    session, cwd, agent = (hook_input.get(key) for key in ("session_id", "cwd", "agent_id"))
    text, is_diff = _describe(tool_input)
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
            text=text,
            is_diff=is_diff,
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


def _describe_offer(updates: Sequence[Suggestion]) -> AlwaysOffer | None:
    """Return what the client itself would offer as "always"."""
    if not updates:
        return None
    from toolspan.cli.prompt.approver import GrantOffer
    from toolspan.integrations.web_approver import AlwaysOffer

    offer = GrantOffer.from_suggestions(updates)
    allows = tuple(offer.summary_lines())
    return AlwaysOffer(allows=allows, scopes={scope: _SCOPES[scope] for scope in offer.scopes}) if allows else None


def _describe(tool_input: Mapping[str, object]) -> tuple[str, bool]:
    """Return what the person must see: the command, the edit as a diff, or the fields of the input."""
    if isinstance(command := tool_input.get("command"), str):
        return command, False
    old, new = tool_input.get("old_string"), tool_input.get("new_string")
    if isinstance(old, str) and isinstance(new, str):
        from toolspan.diffs import unified
        from toolspan.diffs.make import make_hunks

        return unified(make_hunks(old, new), str(tool_input.get("file_path", ""))), True
    lines = [
        f"{key}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)}"
        for key, value in tool_input.items()
    ]
    return "\n".join(lines), False
