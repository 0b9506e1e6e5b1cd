"""Questions for the tests of permission, and who answers them."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.calls import pending_call
from toolspan.runtime.permissions import Permissions
from toolspan.runtime.permissions.decide import PermissionRequest, decide
from toolspan.types.decision import Allow, Decision


def question(tool: str, folder: Path, **given: object) -> PermissionRequest:
    return PermissionRequest(call=pending_call(tool, given), input=given, cwd=folder, project=folder)


def line(command: str, folder: Path) -> PermissionRequest:
    return question("Bash", folder, command=command)


def answered(work: Coroutine[Any, Any, Decision | None]) -> Decision | None:
    """What comes of a decision that waits for nobody."""
    with pytest.raises(StopIteration) as ended:
        work.send(None)
    found: Decision | None = ended.value.value
    return found


def decided(permissions: Permissions, asked: PermissionRequest) -> Decision:
    """What rules, guard and mode say together."""
    ruled = answered(decide(permissions.policies, asked))
    return ruled or answered(decide([permissions.fallback], asked)) or Allow()
