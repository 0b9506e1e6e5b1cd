"""Build permission requests, and decide them without an event loop."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.calls import pending_call
from toolspan.runtime.permissions import Permissions
from toolspan.runtime.permissions.decide import PermissionRequest, decide
from toolspan.tools import client_tools
from toolspan.types.decision import Allow, Decision


def make_request(tool: str, folder: Path, **tool_input: object) -> PermissionRequest:
    call, definition = pending_call(tool, tool_input), client_tools().get(tool)
    return PermissionRequest(call=call, input=tool_input, cwd=folder, project=folder, definition=definition)


def bash_request(command: str, folder: Path) -> PermissionRequest:
    return make_request("Bash", folder, command=command)


def run_without_waiting(work: Coroutine[Any, Any, Decision | None]) -> Decision | None:
    """Return the result of a coroutine that never waits."""
    with pytest.raises(StopIteration) as ended:
        work.send(None)
    decision: Decision | None = ended.value.value
    return decision


def decide_request(permissions: Permissions, request: PermissionRequest) -> Decision:
    """Return the decision of rules, guards and mode."""
    decision = run_without_waiting(decide(permissions.policies, request))
    return decision or run_without_waiting(decide([permissions.fallback], request)) or Allow()
