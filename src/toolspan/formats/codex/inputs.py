"""What models gave to Codex's tools, one type per tool.

In: nothing; these are values. `wire/codex_narrow.py` makes them from the bytes of a rollout. Out:
one frozen struct per tool, fields named as the tool's schema names them, old spellings beside new
ones. Like `inputs.py` these views describe, they do not validate.
"""

from __future__ import annotations

from msgspec import Struct

from toolspan.types.inputs import Number, ToolInput


class ShellInput(ToolInput, frozen=True, kw_only=True):
    """A command as a list of words; in one version of the tool, as one text."""

    command: tuple[str, ...] | str = ()
    cmd: tuple[str, ...] | str | None = None
    workdir: str | None = None
    working_directory: str | None = None
    timeout_ms: Number | None = None
    timeout: Number | None = None
    login: bool | None = None
    with_escalated_permissions: bool | None = None
    sandbox_permissions: str | None = None
    justification: str | None = None
    prefix_rule: tuple[str, ...] | None = None
    env: dict[str, str] | None = None
    user: str | None = None
    type: str | None = None


class ExecCommandInput(ToolInput, frozen=True, kw_only=True):
    """A command line whose process may go on after the call has returned."""

    cmd: str = ""
    workdir: str | None = None
    environment_id: str | None = None
    shell: str | None = None
    tty: bool | None = None
    login: bool | None = None
    yield_time_ms: Number | None = None
    max_output_tokens: Number | None = None
    sandbox_permissions: str | None = None
    additional_permissions: dict[str, object] | None = None
    justification: str | None = None
    prefix_rule: tuple[str, ...] | None = None


class WriteStdinInput(ToolInput, frozen=True, kw_only=True):
    """Words for a process that an earlier call started; none to ask for its news."""

    session_id: int | str | None = None
    chars: str | None = None
    yield_time_ms: Number | None = None
    max_output_tokens: Number | None = None


class ApplyPatchInput(ToolInput, frozen=True, kw_only=True):
    """A patch in Codex's own envelope."""

    input: str = ""
    patch_text: str | None = None
    """As some versions of the tool name it."""

    @property
    def patch(self) -> str:
        """The patch, under whichever name it came."""
        return self.input or self.patch_text or ""


class ScriptInput(ToolInput, frozen=True, kw_only=True):
    """A script that calls tools itself."""

    input: str = ""
    code: str | None = None
    timeout_ms: Number | None = None


class PlanStep(Struct, frozen=True, kw_only=True):
    """One step of a plan."""

    step: str = ""
    status: str | None = None
    """pending, in_progress or completed."""


class UpdatePlanInput(ToolInput, frozen=True, kw_only=True):
    """The whole plan, as it stands now."""

    explanation: str | None = None
    plan: tuple[PlanStep, ...] = ()


class ViewImageInput(ToolInput, frozen=True, kw_only=True):
    """A picture to look at."""

    path: str = ""
    detail: str | None = None


class WebActionInput(ToolInput, frozen=True, kw_only=True):
    """What the vendor's own search did: search, open a page, find something in it."""

    type: str | None = None
    query: str | None = None
    queries: tuple[str, ...] | None = None
    url: str | None = None
    pattern: str | None = None
    max_results: int | None = None


class FindToolsInput(ToolInput, frozen=True, kw_only=True):
    """What deferred tools are searched for."""

    query: str = ""
    limit: int | None = None


class SpawnAgentInput(ToolInput, frozen=True, kw_only=True):
    """A subagent to start, and what it is to do."""

    message: str | None = None
    items: tuple[dict[str, object], ...] | None = None
    agent_type: str | None = None
    task_name: str | None = None
    fork_context: bool | None = None
    fork_turns: str | int | None = None
    model: str | None = None
    reasoning_effort: str | None = None


class AgentInput(ToolInput, frozen=True, kw_only=True):
    """Something for subagents that are there: words, an end, a wait."""

    target: str | None = None
    targets: tuple[str, ...] | None = None
    id: str | None = None
    ids: tuple[str, ...] | None = None
    message: str | None = None
    items: tuple[dict[str, object], ...] | None = None
    interrupt: bool | None = None
    timeout_ms: Number | None = None
    cell_id: str | int | None = None
    """Of a script, where the call waits for one."""
    yield_time_ms: Number | None = None
    max_tokens: Number | None = None
    terminate: bool | None = None


class CodexQuestionChoice(Struct, frozen=True, kw_only=True):
    """One answer to choose."""

    label: str = ""
    description: str | None = None


class CodexQuestion(Struct, frozen=True, kw_only=True):
    """One question to a person."""

    id: str | None = None
    header: str | None = None
    question: str = ""
    options: tuple[CodexQuestionChoice, ...] = ()


class RequestUserInputInput(ToolInput, frozen=True, kw_only=True):
    """Questions to a person."""

    questions: tuple[CodexQuestion, ...] = ()


class McpResourceInput(ToolInput, frozen=True, kw_only=True):
    """Resources of MCP servers: a list of them, or one to read."""

    server: str | None = None
    uri: str | None = None
    cursor: str | None = None


class GoalInput(ToolInput, frozen=True, kw_only=True):
    """A goal to set or to change."""

    objective: str | None = None
    token_budget: int | None = None
    status: str | None = None
