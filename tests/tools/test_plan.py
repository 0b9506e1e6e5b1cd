"""EnterPlanMode and ExitPlanMode: the plan and its approval."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.tools.files import kind, record
from tests.tools.toolbox import Toolbox
from toolspan.runtime.permissions import mode_policy
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.profiles import profile
from toolspan.tools import enter_plan_tool, exit_plan_tool
from toolspan.types.decision import Allow, Ask

pytestmark = pytest.mark.anyio


def allow_all(_question: PermissionRequest, _ask: Ask) -> Allow:
    return Allow(None, "user_temporary")


def make_toolbox(folder: Path, version: str, *, has_user: bool = True) -> Toolbox:
    client = profile(version)
    return Toolbox(
        folder,
        [enter_plan_tool(client), exit_plan_tool(client)],
        version=version,
        approver=allow_all if has_user else None,
        fallback=mode_policy("default"),
    )


def mode(tools: Toolbox) -> object:
    return tools.runner.context.values["permission_mode"]


@requirement("plan-tools.mode")
@pytest.mark.parametrize("version", ["2.0.65", "2.1.327"])
async def test_plan_mode_starts_and_ends_with_the_tools(tmp_path: Path, version: str) -> None:
    tools = make_toolbox(tmp_path, version)
    async with tools.runner:
        entered = await tools.call("EnterPlanMode")
        assert mode(tools) == "plan"
        path = _named_file(str(entered.content))
        path.parent.mkdir(parents=True)
        path.write_text("1. Look\n2. Leap\n", encoding="utf-8")
        exited = await tools.call("ExitPlanMode")

        assert mode(tools) == "default"
    assert str(entered.content).startswith("Entered plan mode.")
    assert record(entered) == {"message": entered.content}
    assert str(exited.content).startswith("User has approved your plan.")
    assert "2. Leap" in str(exited.content)
    assert record(exited) == {"plan": "1. Look\n2. Leap\n", "isAgent": False, "filePath": str(path)}


def _named_file(text: str) -> Path:
    (word,) = (word for word in text.split() if "/plans/" in word)
    return Path(word.rstrip("."))


@requirement("plan-tools.plan")
async def test_the_source_of_the_plan_depends_on_the_client(tmp_path: Path) -> None:
    newest = await make_toolbox(tmp_path, "2.1.327").call("ExitPlanMode", plan="mine")
    seed = await make_toolbox(tmp_path, "seed").call("ExitPlanMode", plan="mine")
    oldest = await make_toolbox(tmp_path, "2.0.65").call("ExitPlanMode", plan="mine")

    assert newest.content == "User has approved exiting plan mode. You can now proceed."
    assert record(newest)["plan"] is None
    assert record(seed)["plan"] == "mine"
    path = record(seed)["filePath"]
    assert oldest.content == (
        f"No plan file found at {path}. Please write your plan to this file before calling ExitPlanMode."
    )


@requirement("plan-tools.without-a-user")
async def test_without_a_user_nothing_is_approved(tmp_path: Path) -> None:
    old = make_toolbox(tmp_path, "2.0.65", has_user=False)

    refused = [await old.call("EnterPlanMode"), await old.call("ExitPlanMode")]

    assert [result.content for result in refused] == ["Enter plan mode?", "Exit plan mode?"]
    assert {kind(result) for result in refused} == {"not_granted"}
