"""`Permissions`, through a runner."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.calls import call
from toolspan.runtime.permissions import Permissions, PolicyStack, Rules
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.profiles import profile
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import tool
from toolspan.types.decision import Allow, Ask, Deny

pytestmark = pytest.mark.anyio


@tool(read_only=True)
async def read_state() -> str:
    """Read the state."""
    return "seen"


@tool
async def change_state() -> str:
    """Change the state."""
    return "changed"


async def succeeds(name: str, permissions: Permissions | PolicyStack, folder: Path) -> bool:
    stack = permissions.resolve(profile().refusals)
    runner = Runner(
        [read_state, change_state],
        cwd=folder,
        policies=stack.policies,
        fallback=stack.fallback,
        approver=stack.approver,
    )
    async with runner:
        (result,) = await runner.run([call("a", name)])
    return not result.is_error


async def test_without_an_approver_only_read_only_calls_run(tmp_path: Path) -> None:
    assert await succeeds("read_state", Permissions(), tmp_path)
    assert not await succeeds("change_state", Permissions(), tmp_path)
    assert await succeeds("change_state", Permissions(Rules(allow=["change_state"])), tmp_path)
    assert await succeeds("change_state", Permissions(mode="bypassPermissions"), tmp_path)


async def test_the_approver_is_asked_about_calls_that_nothing_allows(tmp_path: Path) -> None:
    approved: list[str] = []

    def approve(request: PermissionRequest, _ask: Ask) -> Allow:
        approved.append(request.tool)
        return Allow()

    permissions = Permissions(approver=approve)

    assert await succeeds("read_state", permissions, tmp_path)
    assert await succeeds("change_state", permissions, tmp_path)
    assert approved == ["change_state"]


async def test_extra_policies_count_like_rules(tmp_path: Path) -> None:
    permissions = Permissions(Rules(allow=["change_state"]), extra_policies=(lambda _request: Deny("not today"),))

    assert not await succeeds("change_state", permissions, tmp_path)


async def test_a_policy_stack_decides_alone(tmp_path: Path) -> None:
    assert await succeeds("change_state", PolicyStack(), tmp_path)
    assert not await succeeds("change_state", PolicyStack((lambda _request: Deny("no"),)), tmp_path)
