"""The decision that a session would make on a call, without running it: `toolspan policy check` and `policy replay`.

Start at `CallDecider.decide`, which takes the path of a real call: the tool checks the input, then the policies, the
sandbox, the mode and the tool itself decide.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from toolspan.runtime.authorization import build_request, decide_request
from toolspan.runtime.context import CallContext, RunnerContext
from toolspan.runtime.pending_call import LiveBodyStore
from toolspan.runtime.permissions import Permissions
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.profiles import Profile, profile
from toolspan.runtime.runner import Runner
from toolspan.runtime.schema.issues import Invalid, Valid
from toolspan.runtime.tool import Input, Output, Tool
from toolspan.tools import client_tools
from toolspan.types.decision import Decision, Deny
from toolspan.types.ids import CallId
from toolspan.types.span import Call
from toolspan.types.tool_kinds import tool_kind

T = TypeVar("T")
INVALID_INPUT = "the input does not fit the tool's schema"


@dataclass(frozen=True, slots=True)
class DecidedCall:
    """A call and the decision on it."""

    decision: Decision
    request: PermissionRequest | None
    """The request that the policies received; None if the tool rejected the input."""


class CallDecider:
    """The permissions of a session, applied to calls that are not run.

    Hooks are not run, and nobody is asked. A tool that no client version has, such as that of an MCP server, counts as
    one that may change something.
    """

    def __init__(self, permissions: Permissions, client_profile: Profile | None = None) -> None:
        self.profile = client_profile or profile()
        self._stack = permissions.resolve(self.profile.refusals)
        self._tools = dict(client_tools(self.profile.name))
        self._contexts: dict[Path, RunnerContext] = {}

    def decide(
        self, tool: str, tool_input: Mapping[str, object], *, project: Path, cwd: Path | None = None, call_id: str = ""
    ) -> DecidedCall:
        """Return the decision on a call in a session that began in `project`, as if it ran in `cwd` now."""
        known_tool = self._tools.get(tool) or self._tools.setdefault(tool, _make_unknown_tool(tool))
        body_store = LiveBodyStore(tool_input)
        call = Call(id=CallId(call_id), tool=tool, at=0, requested_at=None, target=None, body_store=body_store)
        context = self._context_for(project)
        context.call_context = CallContext(cwd or project)
        context.set_permission_mode(self._stack.mode)
        parsed = known_tool.parse(tool_input)
        if isinstance(parsed, Invalid):
            return DecidedCall(Deny(INVALID_INPUT, "tool"), None)
        request = build_request(call, known_tool, parsed, context)
        if not project.is_dir():  # it was removed since; its repository is not known
            request = replace(request, repository=None)
        return DecidedCall(_run_to_end(decide_request(request, known_tool, context)), request)

    def _context_for(self, project: Path) -> RunnerContext:
        context = self._contexts.get(project)
        if context is None:
            runner = Runner(
                cwd=project, profile=self.profile, policies=self._stack.policies, fallback=self._stack.fallback
            )
            context = self._contexts[project] = runner.runner_context
        return context


def _make_unknown_tool(name: str) -> Tool:
    async def run(_value: object, _context: object) -> Output:
        raise NotImplementedError

    def parse(tool_input: Input) -> Valid:
        return Valid(tool_input, tool_input)

    # The names of the fields with files differ between clients, so the kinds of file tools would promise too much.
    kind = tool_kind(name) if tool_kind(name) in ("shell", "mcp") else "other"
    return Tool(name=name, description="", input_schema={"type": "object"}, parse=parse, run=run, kind=kind)


def _run_to_end(coroutine: Coroutine[object, None, T]) -> T:
    """Return the result of a coroutine that never waits, without an event loop: the caller may be inside one."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    coroutine.close()
    raise RuntimeError("a policy waited; policies of rules and modes never do")
