"""Calls that do not run: invalid inputs, permission questions and denial messages, per client version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import pytest

from tests.runtime.calls import EventLog, call
from toolspan.errors import ToolError
from toolspan.runtime.context import ToolContext
from toolspan.runtime.hooks import Hooks
from toolspan.runtime.permissions import Rules, mode_policy
from toolspan.runtime.permissions.decide import Approver, PermissionRequest, Policy
from toolspan.runtime.profiles import profile
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import Refusal, Tool, tool
from toolspan.types.decision import AccessedPath, Allow, Ask, Decision, Deny, MissingPermissions
from toolspan.types.events import Decided, PermissionRequested, Started
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

    return replace(nothing, reports_denied_files=name in ("Read", "Write"))


@tool
async def halve() -> str:
    """Half of it."""
    return "half"


TOOLS = [*map(idle, ("Bash", "Read", "Write", "Grep")), halve]


async def refused(
    policy: Policy, name: str, version: str = "2.1.327", hooks: Hooks | None = None
) -> tuple[str, str, str]:
    log = EventLog()
    runner = Runner(TOOLS, cwd="/p", policies=[policy], profile=profile(version), hooks=hooks, direct=[log])
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


@pytest.mark.parametrize(("decision", "name", "state", "kind", "text"), CASES)
async def test_denied_call_has_the_reason_of_the_client(
    decision: Decision, name: str, state: str, kind: str, text: str
) -> None:
    assert await refused(says(decision), name) == (state, kind, text)


async def test_older_clients_have_no_message_for_plan_mode() -> None:
    *_, text = await refused(says(Ask(source="mode")), "Write", "2.0.65")

    assert text == ("Claude requested permissions to write to a.txt, but you haven't granted it yet.")


NEEDS: list[tuple[str, MissingPermissions, str]] = [
    ("2.1.327", MissingPermissions(parts=("make",), of=1), "This command requires approval"),
    (
        "2.1.327",
        MissingPermissions(parts=("make",), of=2),
        "This Bash command contains multiple operations. The following part requires approval: make",
    ),
    (
        "2.1.327",
        MissingPermissions(parts=("make", "rm a"), of=3),
        "This Bash command contains multiple operations. The following parts require approval: make, rm a",
    ),
    (
        "2.1.327",
        MissingPermissions(parts=("rm a",), of=1, reach=AccessedPath(program="rm", path="/p/a", inside=True)),
        "rm in '/p/a' needs approval.",
    ),
    (
        "2.1.327",
        MissingPermissions(parts=("rm a",), of=1, reach=AccessedPath(program="rm", path="/a", inside=False)),
        "rm in '/a' was blocked.",
    ),
    (
        "2.1.327",
        MissingPermissions(parts=("ls",), of=1, reach=AccessedPath(program=None, path="/a", inside=False)),
        "Output redirection to '/a' was blocked.",
    ),
    (
        "2.1.327",
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


@pytest.mark.parametrize(("version", "needs", "text"), NEEDS)
async def test_command_line_is_denied_by_what_it_needs(version: str, needs: MissingPermissions, text: str) -> None:
    state, kind, output = await refused(says(Ask(needs=needs)), "Bash", version)

    assert (state, kind, output) == ("denied", "not_granted", text)


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


async def test_hook_approval_is_final_only_in_some_versions() -> None:
    ended: dict[str, str] = {}
    for version in ("seed", "2.0.65", "2.1.327"):
        hooks, request = Hooks(), list[PermissionRequest]()

        @hooks.pre_tool_use()
        def always(call: Call) -> Allow:
            return Allow("fine")

        def never(question: PermissionRequest) -> Deny:
            request.append(question)  # noqa: B023 - used within the round
            return Deny("rule")

        log = EventLog()
        runner = Runner(TOOLS, policies=[never], profile=profile(version), hooks=hooks, direct=[log])
        (finished,) = await runner.finish([call("a", "halve")])
        final = profile(version).hooks.allow_is_final
        assert (finished.span.state, request == []) == (("succeeded" if final else "denied"), final)
        assert [item.allowed for item in log.of(Decided)] == [final]
        ended[version] = finished.span.state

    assert set(ended.values()) == {"succeeded", "denied"}  # both sorts of clients are there


async def ended(*tools: Tool, name: str, version: str = "2.1.327") -> tuple[str, str, str]:
    log = EventLog()
    runner = Runner(tools, profile=profile(version), direct=[log])
    (finished,) = await runner.finish([call("a", name)])
    assert log.of(Started) == []
    return finished.span.state, str(finished.span.error_kind), str(finished.content)


@tool(name="Look")
async def look() -> str:
    """Look."""
    return ""


@pytest.mark.parametrize(
    ("version", "name", "more"),
    [
        ("2.1.327", "look", ". Tool names are case-sensitive: call Look instead."),
        ("2.0.65", "look", ""),
        ("2.1.327", "Bash", ". Bash exists but is not enabled in this context."),
        ("2.1.327", "Dance", ""),
    ],
)
async def test_unknown_tool_is_reported_with_similar_names(version: str, name: str, more: str) -> None:
    state, kind, text = await ended(look, name=name, version=version)

    assert (state, kind) == ("failed", "unknown_tool")
    assert text == f"<tool_use_error>Error: No such tool available: {name}{more}</tool_use_error>"


def vetoing(outcome: Refusal | Exception | None) -> Tool:
    async def check(tool_input: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    @tool(validate_input=check)
    async def act() -> str:
        """Act."""
        return "acted"

    return act


@pytest.mark.parametrize(
    ("outcome", "kind", "text"),
    [
        (Refusal("not now"), "invalid_input", "<tool_use_error>not now</tool_use_error>"),
        (Refusal("not now", "stale_file"), "stale_file", "<tool_use_error>not now</tool_use_error>"),
        (Refusal("not now", wrapped=False), "invalid_input", "not now"),
        (ToolError("no disk", kind="internal"), "internal", "no disk"),
    ],
)
async def test_check_of_a_tool_ends_the_call_with_its_message(
    outcome: Refusal | Exception, kind: str, text: str
) -> None:
    state, result, message = await ended(vetoing(outcome), name="act")

    assert (state, result) == ("failed", kind)
    assert text in message


async def test_crashing_check_ends_only_its_call() -> None:
    state, _, text = await ended(vetoing(ValueError("oops")), name="act")

    assert state == "failed"
    assert "oops" in text
    (result,) = await Runner([vetoing(None)]).run([call("a", "act")])
    assert result.text == "acted"


@tool
async def double(n: int) -> str:
    """Twice as much."""
    return str(2 * n)


def asks(question: PermissionRequest) -> Ask:
    return Ask("is it?")


async def answered(approver: Approver | None) -> tuple[str, str, EventLog]:
    log = EventLog()
    runner = Runner([double], policies=[asks], approver=approver, direct=[log])
    (finished,) = await runner.finish([call("a", "double", n=1)])
    return finished.span.state, str(finished.content), log


async def test_approver_answer_is_followed_and_reported() -> None:
    state, text, output = await answered(lambda question, ask: Allow(None, "user_temporary"))

    assert (state, text) == ("succeeded", "2")
    assert [item.reason for item in output.of(PermissionRequested)] == ["is it?"]
    assert [(item.allowed, item.source) for item in output.of(Decided)] == [(True, "user_temporary")]


async def test_approver_may_change_the_input_which_is_validated() -> None:
    async def four(question: PermissionRequest, ask: Ask) -> Allow:
        return Allow(None, "user_temporary", {"n": 4})

    async def wrong(question: PermissionRequest, ask: Ask) -> Allow:
        return Allow(None, "user_temporary", {"m": 4})

    assert (await answered(four))[:2] == ("succeeded", "8")
    state, text, output = await answered(wrong)
    assert (state, "InputValidationError" in text, output.of(Started)) == ("failed", True, [])


async def test_unknown_keys_of_an_approvers_input_are_dropped() -> None:
    def answers_for_any_tool(question: PermissionRequest, ask: Ask) -> Allow:
        return Allow(None, "user_temporary", {"n": 4, "answers": {}})

    assert (await answered(answers_for_any_tool))[:2] == ("succeeded", "8")


def crashes(question: PermissionRequest, ask: Ask) -> Allow | Deny:
    raise ValueError("no idea")


async def gives_nothing(question: PermissionRequest, ask: Ask) -> Allow | Deny:
    return cast("Allow", None)


async def asks_back(question: PermissionRequest, ask: Ask) -> Allow | Deny:
    return cast("Allow", Ask())


def says_true(question: PermissionRequest, ask: Ask) -> Allow | Deny:
    return cast("Allow", True)


@pytest.mark.parametrize("approver", [crashes, gives_nothing, asks_back, says_true])
async def test_failing_approver_denies(approver: Approver) -> None:
    state, text, output = await answered(approver)

    assert state == "denied"
    assert "Tool permission request failed" in text
    assert output.of(Started) == []
    assert [item.allowed for item in output.of(Decided)] == [False]


async def test_missing_approver_denies() -> None:
    state, text, output = await answered(None)

    assert (state, text, output.of(PermissionRequested)) == ("denied", "is it?", [])
    assert [item.allowed for item in output.of(Decided)] == [False]


async def test_tool_can_query_permissions() -> None:
    reply: list[object] = []

    @tool
    async def asking(ctx: ToolContext) -> str:
        for name, fields in (("double", {"n": 1}), ("double", {}), ("halve", {}), ("asking", {})):
            reply.append(await ctx.can_use_tool(name, fields))
        return "asked"

    runner = Runner(
        [asking, double], policies=[Rules(deny=["double"], allow=["asking"])], fallback=mode_policy("default")
    )
    await runner.run([call("a", "asking")])

    assert [type(item) for item in reply] == [Deny, Deny, Deny, Allow]


async def test_tool_sees_the_answer_to_its_own_question() -> None:
    observed: list[object] = []

    @tool
    async def looking(ctx: ToolContext) -> str:
        observed.extend(ctx.decisions.values())
        return "x"

    await Runner([looking], policies=[Rules(allow=["looking"])]).run([call("a", "looking")])

    assert observed == [Allow("looking", "config", rule="looking", basis="rule")]
