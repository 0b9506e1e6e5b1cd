"""Denial messages, per client version."""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import pytest

from tests.requirement import requirement
from tests.runtime.calls import EventLog, call
from toolspan.runtime.hooks import Hooks
from toolspan.runtime.permissions.decide import PermissionRequest, Policy
from toolspan.runtime.profiles import profile
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import Tool, tool
from toolspan.types.decision import AccessedPath, Allow, Ask, Decision, Deny, MissingPermissions
from toolspan.types.events import Decided, Started
from toolspan.types.span import Call

pytestmark = pytest.mark.anyio

GIVEN: Mapping[str, dict[str, object]] = {
    "Bash": {"command": "make"},
    "Read": {"file_path": "/p/a.txt"},
    "Write": {"file_path": "a.txt"},
    "Grep": {"path": "/p"},
    "halve": {},
}


def idle(name: str) -> Tool:
    @tool(name=name)
    async def nothing(command: str = "", file_path: str = "", path: str = "") -> str:
        return command or file_path or path

    return nothing


@tool
async def halve() -> str:
    """Half of it."""
    return "half"


TOOLS = [*map(idle, ("Bash", "Read", "Write", "Grep")), halve]


async def refused(
    policy: Policy, name: str, version: str = "2.1.325", hooks: Hooks | None = None
) -> tuple[str, str, str]:
    log = EventLog()
    runner = Runner(TOOLS, cwd="/p", policies=[policy], profile=profile(version), hooks=hooks, direct=[log])
    with anyio.fail_after(10):
        (finished,) = await runner.finish([call("a", name, **GIVEN[name])])
    assert log.of(Started) == []
    return finished.span.state, str(finished.span.error_kind), str(finished.content)


def says(decision: Decision) -> Policy:
    return lambda question: decision


CASES: list[tuple[Decision, str, str, str, str]] = [
    (Deny(), "halve", "denied", "rule_denied", "Permission to use halve has been denied."),
    (Deny("not today"), "halve", "denied", "rule_denied", "not today"),
    (Deny(), "Bash", "denied", "rule_denied", "Permission to use Bash with command make has been denied."),
    (
        Deny(rule="Read(/p/**)"),
        "Read",
        "denied",
        "rule_denied",
        "<tool_use_error>File is in a directory that is denied by your permission settings.</tool_use_error>",
    ),
    (Deny(rule="Read"), "Read", "denied", "rule_denied", "Permission to use Read has been denied."),
    (
        Deny("dontAsk", "mode"),
        "halve",
        "denied",
        "rule_denied",
        "Permission to use halve has been denied because Claude Code is running in don't ask mode.",
    ),
    (
        Ask(),
        "halve",
        "denied",
        "not_granted",
        "Claude requested permissions to use halve, but you haven't granted it yet.",
    ),
    (
        Ask(),
        "Write",
        "denied",
        "not_granted",
        "Claude requested permissions to write to /p/a.txt, but you haven't granted it yet.",
    ),
    (
        Ask(),
        "Grep",
        "denied",
        "not_granted",
        "Claude requested permissions to read from /p, but you haven't granted it yet.",
    ),
    (Ask("is it?"), "halve", "denied", "not_granted", "is it?"),
    (Ask(source="mode"), "Write", "denied", "not_granted", "Cannot write to /p/a.txt while in plan mode."),
]


@requirement("run.refusal-words")
@pytest.mark.parametrize(("decision", "name", "state", "kind", "text"), CASES)
async def test_denied_call_has_the_reason_of_the_client(
    decision: Decision, name: str, state: str, kind: str, text: str
) -> None:
    assert await refused(says(decision), name) == (state, kind, text)


@requirement("run.refusal-words")
async def test_older_clients_have_no_message_for_plan_mode() -> None:
    *_, text = await refused(says(Ask(source="mode")), "Write", "2.0.65")

    assert text == ("Claude requested permissions to write to a.txt, but you haven't granted it yet.")


NEEDS: list[tuple[str, MissingPermissions, str]] = [
    ("2.1.325", MissingPermissions(parts=("make",), of=1), "This command requires approval"),
    (
        "2.1.325",
        MissingPermissions(parts=("make",), of=2),
        "This Bash command contains multiple operations. The following part requires approval: make",
    ),
    (
        "2.1.325",
        MissingPermissions(parts=("make", "rm a"), of=3),
        "This Bash command contains multiple operations. The following parts require approval: make, rm a",
    ),
    (
        "2.1.325",
        MissingPermissions(parts=("rm a",), of=1, reach=AccessedPath(program="rm", path="/p/a", inside=True)),
        "rm in '/p/a' needs approval.",
    ),
    (
        "2.1.325",
        MissingPermissions(parts=("rm a",), of=1, reach=AccessedPath(program="rm", path="/a", inside=False)),
        "rm in '/a' was blocked.",
    ),
    (
        "2.1.325",
        MissingPermissions(parts=("ls",), of=1, reach=AccessedPath(program=None, path="/a", inside=False)),
        "Output redirection to '/a' was blocked.",
    ),
    (
        "2.1.325",
        MissingPermissions(
            parts=("cd /",), of=1, leaves=True, reach=AccessedPath(program="cd", path="/", inside=False)
        ),
        "This command requires approval",  # of a line that leaves, the commands are named
    ),
    (
        "2.0.65",
        MissingPermissions(parts=("rm a",), of=1, reach=AccessedPath(program="rm", path="/p/a", inside=True)),
        "This command requires approval",  # no words for a place inside
    ),
]


@requirement("run.refusal-words")
@pytest.mark.parametrize(("version", "needs", "text"), NEEDS)
async def test_command_line_is_denied_by_what_it_needs(version: str, needs: MissingPermissions, text: str) -> None:
    state, kind, output = await refused(says(Ask(needs=needs)), "Bash", version)

    assert (state, kind, output) == ("denied", "not_granted", text)


@requirement("run.refusal-words")
@pytest.mark.parametrize(
    ("reason", "text"),
    [("not here", "PreToolUse:halve hook error: not here"), (None, "PreToolUse:halve hook error: Blocked by hook")],
)
async def test_hook_denies_with_or_without_a_message(reason: str | None, text: str) -> None:
    hooks = Hooks()

    @hooks.pre_tool_use()
    def never(call: Call) -> Deny:
        return Deny(reason)

    state, kind, output = await refused(says(Allow()), "halve", hooks=hooks)

    assert (state, kind, output) == ("blocked_by_hook", "hook_blocked", text)


@requirement("run.refusal-words")
async def test_hook_approval_is_final_only_in_some_versions() -> None:
    ended: dict[str, str] = {}
    for version in ("seed", "2.0.65", "2.1.325"):
        hooks, request = Hooks(), list[PermissionRequest]()

        @hooks.pre_tool_use()
        def always(call: Call) -> Allow:
            return Allow("fine")

        def never(question: PermissionRequest) -> Deny:
            request.append(question)  # noqa: B023 - used within the round
            return Deny("rule")

        log = EventLog()
        runner = Runner(TOOLS, policies=[never], profile=profile(version), hooks=hooks, direct=[log])
        with anyio.fail_after(10):
            (finished,) = await runner.finish([call("a", "halve")])
        final = profile(version).hooks.allow_is_final
        assert (finished.span.state, request == []) == (("succeeded" if final else "denied"), final)
        assert [item.allowed for item in log.of(Decided)] == [final]
        ended[version] = finished.span.state

    assert set(ended.values()) == {"succeeded", "denied"}  # both sorts of clients are there
