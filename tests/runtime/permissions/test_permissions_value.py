"""`Permissions`, through a runner."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.runtime.calls import call
from toolspan.runtime.permissions import Permissions, PolicyStack, Rules
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.profiles import profile
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import tool
from toolspan.types.decision import Allow, Ask, Deny

pytestmark = pytest.mark.anyio


@tool(read_only=True)
async def look() -> str:
    """Look at something."""
    return "seen"


@tool
async def change() -> str:
    """Change something."""
    return "changed"


async def succeeds(name: str, permissions: Permissions | PolicyStack, folder: Path) -> bool:
    stack = permissions.resolve(profile().refusals)
    runner = Runner(
        [look, change], cwd=folder, policies=stack.policies, fallback=stack.fallback, approver=stack.approver
    )
    async with runner:
        (result,) = await runner.run([call("a", name)])
    return not result.is_error


@requirement("permission.modes")
async def test_without_an_approver_only_read_only_calls_run(tmp_path: Path) -> None:
    assert await succeeds("look", Permissions(), tmp_path)
    assert not await succeeds("change", Permissions(), tmp_path)
    assert await succeeds("change", Permissions(Rules(allow=["change"])), tmp_path)
    assert await succeeds("change", Permissions(mode="bypassPermissions"), tmp_path)


@requirement("permission.modes")
async def test_the_approver_is_asked_about_calls_that_nothing_allows(tmp_path: Path) -> None:
    asked: list[str] = []

    def approve(request: PermissionRequest, _ask: Ask) -> Allow:
        asked.append(request.tool)
        return Allow()

    permissions = Permissions(approver=approve)

    assert await succeeds("look", permissions, tmp_path)
    assert await succeeds("change", permissions, tmp_path)
    assert asked == ["change"]


@requirement("permission.strongest")
async def test_extra_policies_count_like_rules(tmp_path: Path) -> None:
    permissions = Permissions(Rules(allow=["change"]), extra_policies=(lambda _request: Deny("not today"),))

    assert not await succeeds("change", permissions, tmp_path)


@requirement("permission.strongest")
async def test_a_policy_stack_decides_alone(tmp_path: Path) -> None:
    assert await succeeds("change", PolicyStack(), tmp_path)
    assert not await succeeds("change", PolicyStack((lambda _request: Deny("no"),)), tmp_path)
