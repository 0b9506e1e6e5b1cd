"""Python hooks that fail: what becomes of the call they guard."""

from collections.abc import Callable

import anyio
import pytest

from tests.requirement import requirement
from tests.run.made import call
from toolspan.errors import ToolspanError
from toolspan.hooks.callbacks import Hooks
from toolspan.model.span import Call
from toolspan.run.define import tool
from toolspan.run.runner import Runner


@tool
async def act() -> str:
    """Do something."""
    return "done"


def crash(call: Call) -> None:
    raise KeyError("command")


def nonsense(call: Call) -> object:
    return False


@requirement("hooks.fail-closed")
@pytest.mark.anyio
@pytest.mark.parametrize("handler", [crash, nonsense])
@pytest.mark.parametrize(("closed", "wanted"), [(True, "hook"), (False, "done")])
async def test_a_guard_that_fails_refuses_the_call_only_if_asked_to(
    handler: Callable[[Call], None], closed: bool, wanted: str
) -> None:
    hooks = Hooks(fail_closed=closed)
    hooks.pre_tool_use("act")(handler)
    with anyio.fail_after(5):
        (result,) = await Runner([act], hooks=hooks).run([call("a", "act")])

    assert wanted in result.text
    assert bool(result.is_error) is closed


@requirement("hooks.brackets")
def test_a_hook_without_brackets_is_told_of_at_once() -> None:
    hooks = Hooks()
    with pytest.raises(ToolspanError, match="brackets"):
        hooks.pre_tool_use(crash)  # type: ignore[arg-type]
