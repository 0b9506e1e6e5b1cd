"""Types for the inputs of Codex tools, with old and new spellings of their keys.

The types describe inputs and do not validate them. `results.py` creates them from the bytes in a rollout.
"""

from __future__ import annotations

from msgspec import Struct

from toolspan.types.inputs import Number, ToolInput


class ShellInput(ToolInput, frozen=True, kw_only=True):
    """A command as a list of words, or as one string in one version of the tool."""

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
    """A command line whose process may continue after the call has returned."""

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
    """Input for a process that an earlier call started, or an empty string to poll its output."""

    session_id: int | str | None = None
    chars: str | None = None
    yield_time_ms: Number | None = None
    max_output_tokens: Number | None = None


class ApplyPatchInput(ToolInput, frozen=True, kw_only=True):
    """A patch in Codex's own envelope."""

    input: str = ""
    patch_text: str | None = None
    """The patch under the key used by some versions of the tool."""

    @property
    def patch(self) -> str:
        """The patch, regardless of the key that holds it."""
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


class UpdatePlanInput(ToolInput, frozen=True, kw_only=True):
    """The whole plan."""

    explanation: str | None = None
    plan: tuple[PlanStep, ...] = ()


class ViewImageInput(ToolInput, frozen=True, kw_only=True):
    """An image to show to the model."""

    path: str = ""
    detail: str | None = None


class WebActionInput(ToolInput, frozen=True, kw_only=True):
    """An action of the built-in web search: search, open a page, or find text in a page."""

    type: str | None = None
    query: str | None = None
    queries: tuple[str, ...] | None = None
    url: str | None = None
    pattern: str | None = None
    max_results: int | None = None


class FindToolsInput(ToolInput, frozen=True, kw_only=True):
    """A search for deferred tools."""

    query: str = ""
    limit: int | None = None


class SpawnAgentInput(ToolInput, frozen=True, kw_only=True):
    """A subagent to start, and its task."""

    message: str | None = None
    items: tuple[dict[str, object], ...] | None = None
    agent_type: str | None = None
    task_name: str | None = None
    fork_context: bool | None = None
    fork_turns: str | int | None = None
    model: str | None = None
    reasoning_effort: str | None = None


class AgentInput(ToolInput, frozen=True, kw_only=True):
    """A message to running subagents, or a request to wait for them or to stop them."""

    target: str | None = None
    targets: tuple[str, ...] | None = None
    id: str | None = None
    ids: tuple[str, ...] | None = None
    message: str | None = None
    items: tuple[dict[str, object], ...] | None = None
    interrupt: bool | None = None
    timeout_ms: Number | None = None
    cell_id: str | int | None = None
    yield_time_ms: Number | None = None
    max_tokens: Number | None = None
    terminate: bool | None = None


class CodexQuestionChoice(Struct, frozen=True, kw_only=True):
    """An answer that the user can choose."""

    label: str = ""
    description: str | None = None


class CodexQuestion(Struct, frozen=True, kw_only=True):
    """A question for the user."""

    id: str | None = None
    header: str | None = None
    question: str = ""
    options: tuple[CodexQuestionChoice, ...] = ()


class RequestUserInputInput(ToolInput, frozen=True, kw_only=True):
    """Questions for the user."""

    questions: tuple[CodexQuestion, ...] = ()


class McpResourceInput(ToolInput, frozen=True, kw_only=True):
    """A request to list or read MCP resources."""

    server: str | None = None
    uri: str | None = None
    cursor: str | None = None


class GoalInput(ToolInput, frozen=True, kw_only=True):
    """A goal to set or change."""

    objective: str | None = None
    token_budget: int | None = None
    status: str | None = None
