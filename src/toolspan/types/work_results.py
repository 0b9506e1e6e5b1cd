"""Types for the structured results of plans, tasks, agents, skills, schedules and the web.

The second half of `results.py`, with the same rules. Start at `AgentResult`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct, field

from toolspan.types.inputs import Annotation, CodeFinding, Number, TodoItem, UserQuestion
from toolspan.types.results import ContentBlock, ToolResult


class TodoResult(ToolResult, frozen=True, kw_only=True):
    """The todo list before and after a change."""

    new_todos: tuple[TodoItem, ...]
    old_todos: tuple[TodoItem, ...] | None = None
    verification_nudge_needed: bool | None = None


class TodoReadResult(ToolResult, frozen=True, kw_only=True):
    """The current todo list."""

    todos: tuple[TodoItem, ...]


class TaskItem(Struct, frozen=True, kw_only=True, rename="camel"):
    """A task in the task list; which fields are set depends on the tool."""

    id: str | int = ""
    subject: str = ""
    description: str | None = None
    status: str | None = None
    owner: str | None = None
    active_form: str | None = None
    blocks: tuple[str, ...] | None = None
    blocked_by: tuple[str, ...] | None = None


class TaskCreateResult(ToolResult, frozen=True, kw_only=True):
    """A task that was created."""

    task: TaskItem


class TaskGetResult(ToolResult, frozen=True, kw_only=True):
    """The requested task, or None if it does not exist."""

    task: TaskItem | None


class TaskListResult(ToolResult, frozen=True, kw_only=True):
    """The task list."""

    tasks: tuple[TaskItem, ...]


class StatusChange(Struct, frozen=True, kw_only=True):
    """A task's status before and after a change."""

    before: str | None = field(default=None, name="from")
    after: str | None = field(default=None, name="to")


class TaskUpdateResult(ToolResult, frozen=True, kw_only=True):
    """The changes to a task, or the reason why nothing changed."""

    success: bool
    task_id: str | int = ""
    updated_fields: tuple[str, ...] = ()
    status_change: StatusChange | None = None
    error: str | None = None
    verification_nudge_needed: bool | None = None


class CacheCreation(Struct, frozen=True, kw_only=True):
    """Tokens written to the prompt cache, by lifetime."""

    ephemeral_1h_input_tokens: int | None = None
    ephemeral_5m_input_tokens: int | None = None


class AgentUsage(Struct, frozen=True, kw_only=True):
    """Token counts for a subagent's last request, not for its whole run."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation: CacheCreation | None = None
    server_tool_use: dict[str, Any] | None = None
    service_tier: str | None = None
    inference_geo: str | None = None
    speed: str | None = None
    iterations: Any = None
    output_tokens_details: dict[str, Any] | None = None
    fallback_credit: Any = None


class AgentToolStats(Struct, frozen=True, kw_only=True, rename="camel"):
    """Call counts for a subagent, by kind of tool."""

    read_count: int | None = None
    search_count: int | None = None
    bash_count: int | None = None
    edit_file_count: int | None = None
    lines_added: int | None = None
    lines_removed: int | None = None
    other_tool_count: int | None = None
    frame_count: int | None = None


class AgentResult(ToolResult, frozen=True, kw_only=True):
    """A subagent that finished, or was started in the background.

    `status` is completed, async_launched or remote_launched; None in old versions.
    """

    status: str | None = None
    agent_id: str | None = None
    agent_type: str | None = None
    description: str | None = None
    prompt: str | None = None
    content: tuple[ContentBlock, ...] = ()
    total_duration_ms: Number | None = None
    total_tokens: int | None = None
    total_tool_use_count: int | None = None
    usage: AgentUsage | None = None
    tool_stats: AgentToolStats | None = None
    tools_used: tuple[str, ...] | None = None
    resolved_model: str | None = None
    models_used: tuple[str, ...] | None = None
    was_interrupted: bool | None = None
    is_async: bool | None = None
    output_file: str | None = None
    can_read_output_file: bool | None = None
    can_continue_agent: bool | None = None
    task_id: str | None = None
    session_url: str | None = None
    worktree_path: str | None = None
    worktree_branch: str | None = None
    harness_note_count: int | None = None
    harness_tail_count: int | None = None
    harness_section_hash: str | None = None

    @property
    def is_launched(self) -> bool:
        """True if the agent was still running when the result was written."""
        return bool(self.is_async) or self.status in ("async_launched", "remote_launched")


class PlanResult(ToolResult, frozen=True, kw_only=True):
    """A plan that the user approved."""

    plan: str | None
    is_agent: bool | None = None
    file_path: str | None = None
    plan_was_edited: bool | None = None
    has_task_tool: bool | None = None
    awaiting_leader_approval: bool | None = None
    request_id: str | None = None


class MessageResult(ToolResult, frozen=True, kw_only=True):
    """A one-sentence message that describes what was done."""

    message: str


class QuestionResult(ToolResult, frozen=True, kw_only=True):
    """Questions, and the user's answers by question text."""

    questions: tuple[UserQuestion, ...]
    answers: dict[str, str | tuple[str, ...]] | None = None
    response: str | None = None
    annotations: dict[str, Annotation] | None = None
    afk_timeout_ms: Number | None = None


class SkillResult(ToolResult, frozen=True, kw_only=True):
    """A skill that was loaded."""

    command_name: str
    success: bool | None = None
    allowed_tools: tuple[str, ...] | None = None
    model: str | None = None


class ToolSearchResult(ToolResult, frozen=True, kw_only=True, rename=None):
    """The tools that a search found and loaded."""

    matches: tuple[str, ...]
    query: str = ""
    total_deferred_tools: int | None = None


class BatchItem(Struct, frozen=True, kw_only=True):
    """The result of one call in a Batch."""

    key: str = ""
    message: Raw = field(default_factory=lambda: Raw(b"null"))
    """A complete transcript entry that contains the result."""


class BatchResult(ToolResult, frozen=True, kw_only=True):
    """The results of several calls that were made as one call."""

    ordered_tool_results: tuple[BatchItem, ...]
    normalized_messages: tuple[Raw, ...] = ()
    """The calls, each as a complete transcript entry."""
    resolved_invocations: Any = None
    total_duration_ms: Number | None = None
    total_tokens: int | None = None
    total_tool_calls: int | None = None


class WorkflowResult(ToolResult, frozen=True, kw_only=True):
    """A workflow that was started in the background."""

    status: str
    task_id: str | None = None
    task_type: str | None = None
    workflow_name: str | None = None
    run_id: str | None = None
    summary: str | None = None
    transcript_dir: str | None = None
    script_path: str | None = None
    session_url: str | None = None
    warning: str | None = None
    error: str | None = None


class FindingsResult(ToolResult, frozen=True, kw_only=True, rename=None):
    """The problems that a code review recorded."""

    findings: tuple[CodeFinding, ...]
    count: int | None = None
    level: str | None = None


class EnterWorktreeResult(ToolResult, frozen=True, kw_only=True):
    """The git worktree that the session has entered."""

    worktree_path: str
    worktree_branch: str | None = None
    message: str | None = None


class ExitWorktreeResult(ToolResult, frozen=True, kw_only=True):
    """The git worktree that the session has left."""

    action: str
    original_cwd: str | None = None
    worktree_path: str | None = None
    worktree_branch: str | None = None
    tmux_session_name: str | None = None
    discarded_files: int | None = None
    discarded_commits: int | None = None
    message: str | None = None


class MonitorResult(ToolResult, frozen=True, kw_only=True):
    """A monitor that was started."""

    task_id: str
    timeout_ms: Number | None = None
    persistent: bool | None = None


class CronJob(ToolResult, frozen=True, kw_only=True):
    """A scheduled prompt that was created, deleted (only its id) or listed."""

    id: str
    cron: str | None = None
    human_schedule: str | None = None
    prompt: str | None = None
    recurring: bool | None = None
    durable: bool | None = None


class CronListResult(ToolResult, frozen=True, kw_only=True):
    """The scheduled prompts."""

    jobs: tuple[CronJob, ...]


class WakeupResult(ToolResult, frozen=True, kw_only=True):
    """The time at which the session will continue on its own."""

    scheduled_for: Number
    clamped_delay_seconds: Number | None = None
    was_clamped: bool | None = None
    stopped: bool | None = None
    cancelled_wakeups: int | None = None


class PushResult(ToolResult, frozen=True, kw_only=True):
    """The delivery of a message to the user's device."""

    message: str
    push_sent: bool | None = None
    local_sent: bool | None = None
    disabled_reason: str | None = None
    sent_at: str | None = None


class RemoteTriggerResult(ToolResult, frozen=True, kw_only=True):
    """The response from the remote sessions service."""

    status: int
    json: str
    summary: str | None = None


class WebFetchResult(ToolResult, frozen=True, kw_only=True):
    """A fetched page, and a model's answer to a question about it."""

    url: str
    code: int | None = None
    code_text: str | None = None
    bytes: int | None = None
    duration_ms: Number | None = None
    result: str | None = None
    artifact_read: Any = None


class SearchLink(Struct, frozen=True, kw_only=True):
    """One web search hit."""

    title: str = ""
    url: str = ""


class SearchHits(Struct, frozen=True, kw_only=True):
    """The hits for one query."""

    tool_use_id: str | None = None
    content: tuple[SearchLink, ...] = ()


class WebSearchResult(ToolResult, frozen=True, kw_only=True):
    """Web search hits, and commentary on them."""

    query: str
    results: tuple[SearchHits | str, ...] = ()
    duration_seconds: Number | None = None
    search_count: int | None = None


class McpResource(Struct, frozen=True, kw_only=True, rename="camel"):
    """An MCP resource, or its content."""

    uri: str = ""
    name: str | None = None
    server: str | None = None
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    text: str | None = None
    blob: str | None = None
    blob_saved_to: str | None = None
    annotations: Any = None
    icons: Any = None
    meta: Any = field(default=None, name="_meta")


class McpResourceList(ToolResult, frozen=True, kw_only=True):
    """The resources that MCP servers offer."""

    resources: tuple[McpResource, ...]
    error: str | None = None


class McpResourceContents(ToolResult, frozen=True, kw_only=True):
    """The contents of one MCP resource."""

    contents: tuple[McpResource, ...]
    error: str | None = None


class McpServerTools(Struct, frozen=True, kw_only=True, rename="camel"):
    """The changes to one MCP server's tools after a reload."""

    server: str = ""
    status: str | None = None
    tool_count: int | None = None
    added: tuple[str, ...] | None = None
    removed: tuple[str, ...] | None = None
    error: str | None = None


class McpToolsRefreshed(ToolResult, frozen=True, kw_only=True):
    """The changes to MCP tools after a reload."""

    servers: tuple[McpServerTools, ...]
