"""Tool inputs: one frozen struct per tool, with fields named as in the tool's schema.

Old and new spellings share a struct, because transcripts from all client versions are read through
the same type. The structs do not validate: a missing required key becomes its empty value, or None
if an empty value has its own meaning. An input that does not match becomes an `UnknownInput`, which
keeps the bytes. Start at `ToolInput` and `UnknownInput`.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
from msgspec import Raw, Struct, field

Number = int | float
"""A JSON number as written: 350 stays an int."""


class ToolInput(Struct, frozen=True, kw_only=True):
    """The input of one tool."""


class BashInput(ToolInput, frozen=True, kw_only=True):
    """A command line for the shell."""

    command: str = ""
    timeout: Number | None = None
    """The timeout in milliseconds."""
    description: str | None = None
    run_in_background: bool | None = None
    dangerously_disable_sandbox: bool | None = field(default=None, name="dangerouslyDisableSandbox")
    sandbox: bool | None = None
    shell_executable: str | None = field(default=None, name="shellExecutable")


class PowerShellInput(ToolInput, frozen=True, kw_only=True):
    """A command line for PowerShell."""

    command: str = ""
    timeout: Number | None = None
    description: str | None = None
    run_in_background: bool | None = None


class WebSocketTarget(Struct, frozen=True, kw_only=True):
    """A WebSocket to listen on."""

    url: str = ""
    protocols: tuple[str, ...] = ()


class MonitorInput(ToolInput, frozen=True, kw_only=True):
    """A command or WebSocket whose lines become notifications."""

    command: str | None = None
    ws: WebSocketTarget | None = None
    description: str | None = None
    timeout_ms: Number | None = None
    persistent: bool | None = None


class BashOutputInput(ToolInput, frozen=True, kw_only=True):
    """A request for new output from a background shell.

    Later clients use this name as an alias for TaskOutput, hence `task_id`, `block` and `timeout`.
    """

    bash_id: str | None = None
    filter: str | None = None
    task_id: str | None = None
    block: bool | None = None
    timeout: Number | None = None


class KillShellInput(ToolInput, frozen=True, kw_only=True):
    """A background shell to stop."""

    shell_id: str | None = None
    task_id: str | None = None


class TaskOutputInput(ToolInput, frozen=True, kw_only=True):
    """A request for output from a background task."""

    task_id: str | None = None
    block: bool | None = None
    timeout: Number | None = None


class TaskStopInput(ToolInput, frozen=True, kw_only=True):
    """A background task to stop."""

    task_id: str | None = None
    shell_id: str | None = None


class ReadInput(ToolInput, frozen=True, kw_only=True):
    """A file to read, or a range of its lines or pages."""

    file_path: str = ""
    offset: int | None = None
    limit: int | None = None
    pages: str | None = None
    allow_large: bool | None = None


class EditInput(ToolInput, frozen=True, kw_only=True):
    """A replacement in a file; an empty `old_string` creates the file."""

    file_path: str = ""
    old_string: str | None = None
    new_string: str | None = None
    replace_all: bool = False


class TextEdit(Struct, frozen=True, kw_only=True):
    """One replacement in a MultiEdit."""

    old_string: str | None = None
    new_string: str | None = None
    replace_all: bool = False


class MultiEditInput(ToolInput, frozen=True, kw_only=True):
    """Replacements in one file, applied in order."""

    file_path: str = ""
    edits: tuple[TextEdit, ...] = ()


class WriteInput(ToolInput, frozen=True, kw_only=True):
    """The complete new content of a file."""

    file_path: str = ""
    content: str | None = None


class NotebookEditInput(ToolInput, frozen=True, kw_only=True):
    """A change to one cell of a notebook."""

    notebook_path: str = ""
    new_source: str | None = None
    cell_id: str | None = None
    cell_number: int | None = None
    cell_type: str | None = None
    edit_mode: str | None = None
    """replace (the default), insert or delete."""


class NotebookReadInput(ToolInput, frozen=True, kw_only=True):
    """A notebook, or one of its cells, to read."""

    notebook_path: str = ""
    cell_id: str | None = None


class GlobInput(ToolInput, frozen=True, kw_only=True):
    """A file name pattern."""

    pattern: str = ""
    path: str | None = None


class GrepInput(ToolInput, frozen=True, kw_only=True):
    """A pattern to search for in file contents."""

    pattern: str = ""
    path: str | None = None
    glob: str | None = None
    include: str | None = None
    """The old name for `glob`."""
    type: str | None = None
    output_mode: str | None = None
    """content, files_with_matches (the default) or count."""
    lines_after: Number | None = field(default=None, name="-A")
    lines_before: Number | None = field(default=None, name="-B")
    lines_around: Number | None = field(default=None, name="-C")
    context: Number | None = None
    line_numbers: bool | None = field(default=None, name="-n")
    ignore_case: bool | None = field(default=None, name="-i")
    only_matching: bool | None = field(default=None, name="-o")
    multiline: bool | None = None
    head_limit: Number | None = None
    offset: Number | None = None


class LsInput(ToolInput, frozen=True, kw_only=True):
    """A folder to list."""

    path: str = ""
    ignore: tuple[str, ...] = ()


class LspInput(ToolInput, frozen=True, kw_only=True, rename="camel"):
    """A query to a language server about a position in a file."""

    operation: str = ""
    file_path: str = ""
    line: int | None = None
    character: int | None = None


class TodoItem(Struct, frozen=True, kw_only=True, rename="camel"):
    """One item in a todo list."""

    content: str = ""
    status: str = ""
    """pending, in_progress or completed."""
    active_form: str | None = None
    id: str | int | None = None
    priority: str | None = None


class TodoWriteInput(ToolInput, frozen=True, kw_only=True):
    """The complete new todo list."""

    todos: tuple[TodoItem, ...] = ()


class TodoReadInput(ToolInput, frozen=True, kw_only=True):
    """A request for the todo list, without keys."""


class TaskCreateInput(ToolInput, frozen=True, kw_only=True, rename="camel"):
    """A task to add to the task list."""

    subject: str = ""
    description: str = ""
    active_form: str | None = None
    metadata: dict[str, object] | None = None


class TaskUpdateInput(ToolInput, frozen=True, kw_only=True, rename="camel"):
    """Changes to one task in the task list."""

    task_id: str = ""
    status: str | None = None
    """pending, in_progress, completed or deleted."""
    subject: str | None = None
    description: str | None = None
    active_form: str | None = None
    owner: str | None = None
    add_blocks: tuple[str, ...] = ()
    add_blocked_by: tuple[str, ...] = ()
    metadata: dict[str, object] | None = None


class TaskGetInput(ToolInput, frozen=True, kw_only=True, rename="camel"):
    """A request for one task from the task list."""

    task_id: str = ""


class TaskListInput(ToolInput, frozen=True, kw_only=True):
    """A request for the task list, without keys."""


class EnterPlanModeInput(ToolInput, frozen=True, kw_only=True):
    """A request to plan before acting, without keys."""


class AllowedPrompt(Struct, frozen=True, kw_only=True):
    """A kind of call for which a plan requests permission."""

    tool: str = ""
    prompt: str = ""


class ExitPlanModeInput(ToolInput, frozen=True, kw_only=True, rename="camel"):
    """A plan for the user to approve; newer clients fill it in from the plan file."""

    plan: str | None = None
    plan_file_path: str | None = None
    allowed_prompts: tuple[AllowedPrompt, ...] = ()


class QuestionOption(Struct, frozen=True, kw_only=True):
    """One of the answers that the user can choose."""

    label: str = ""
    description: str | None = None
    preview: str | None = None


class UserQuestion(Struct, frozen=True, kw_only=True, rename="camel"):
    """One question for the user."""

    question: str = ""
    header: str | None = None
    options: tuple[QuestionOption, ...] = ()
    multi_select: bool = False


class Annotation(Struct, frozen=True, kw_only=True):
    """The user's comment on an answer."""

    notes: str | None = None
    preview: str | None = None


class AskUserQuestionInput(ToolInput, frozen=True, kw_only=True):
    """Questions for the user; the approver may fill in the answers."""

    questions: tuple[UserQuestion, ...] = ()
    answers: dict[str, str | tuple[str, ...]] | None = None
    annotations: dict[str, Annotation] | None = None
    metadata: dict[str, object] | None = None


class AgentInput(ToolInput, frozen=True, kw_only=True):
    """A job for a subagent; formerly called Task."""

    description: str | None = None
    prompt: str = ""
    subagent_type: str | None = None
    model: str | None = None
    run_in_background: bool | None = None
    name: str | None = None
    isolation: str | None = None
    effort: str | None = None
    resume: str | None = None
    max_turns: int | None = None
    mode: str | None = None
    team_name: str | None = None


class SkillInput(ToolInput, frozen=True, kw_only=True):
    """A skill to load; older clients use `command`."""

    skill: str | None = None
    command: str | None = None
    args: str | None = None


class SlashCommandInput(ToolInput, frozen=True, kw_only=True):
    """A slash command to run."""

    command: str = ""


class BatchInvocation(Struct, frozen=True, kw_only=True):
    """One call in a Batch."""

    tool_name: str = ""
    input: Raw = field(default_factory=lambda: Raw(b"{}"))


class BatchInput(ToolInput, frozen=True, kw_only=True):
    """Several calls combined in one."""

    description: str | None = None
    invocations: tuple[BatchInvocation, ...] = ()


class SendMessageInput(ToolInput, frozen=True, kw_only=True):
    """A message to another agent."""

    to: str | None = None
    prompt: str | None = None


class ListAgentsInput(ToolInput, frozen=True, kw_only=True):
    """A search for agents that can receive messages."""

    channel: str | None = None
    q: str | None = None


class WorkflowInput(ToolInput, frozen=True, kw_only=True, rename="camel"):
    """A script that runs several agents."""

    script: str | None = None
    script_path: str | None = None
    name: str | None = None
    title: str | None = None
    description: str | None = None
    args: object = None
    resume_from_run_id: str | None = None


class ToolSearchInput(ToolInput, frozen=True, kw_only=True):
    """A search for tools that are not loaded yet."""

    query: str = ""
    max_results: int | None = None


class CodeFinding(Struct, frozen=True, kw_only=True):
    """One problem reported by a code review."""

    file: str = ""
    line: int | None = None
    summary: str = ""
    short_summary: str | None = None
    failure_scenario: str | None = None
    category: str | None = None
    verdict: str | None = None
    outcome: str | None = None


class ReportFindingsInput(ToolInput, frozen=True, kw_only=True):
    """The problems found by a code review."""

    level: str | None = None
    findings: tuple[CodeFinding, ...] = ()


class EnterWorktreeInput(ToolInput, frozen=True, kw_only=True):
    """A git worktree to create or enter."""

    name: str | None = None
    path: str | None = None


class ExitWorktreeInput(ToolInput, frozen=True, kw_only=True):
    """A git worktree to leave; `action` is keep or remove."""

    action: str = ""
    discard_changes: bool | None = None


class CronCreateInput(ToolInput, frozen=True, kw_only=True):
    """A prompt to run on a schedule."""

    cron: str = ""
    prompt: str = ""
    recurring: bool | None = None
    durable: bool | None = None


class CronDeleteInput(ToolInput, frozen=True, kw_only=True):
    """A scheduled prompt to remove."""

    id: str = ""


class CronListInput(ToolInput, frozen=True, kw_only=True):
    """A request for the scheduled prompts, without keys."""


class ScheduleWakeupInput(ToolInput, frozen=True, kw_only=True, rename="camel"):
    """A time to wake up and a prompt to continue with."""

    delay_seconds: Number | None = None
    reason: str | None = None
    prompt: str | None = None
    stop: bool | None = None
    noop: bool | None = None


class PushNotificationInput(ToolInput, frozen=True, kw_only=True):
    """A short message to the user's device."""

    message: str = ""
    status: str | None = None


class RemoteTriggerInput(ToolInput, frozen=True, kw_only=True):
    """A request concerning remotely triggered sessions."""

    action: str = ""
    trigger_id: str | None = None
    session_id: str | None = None
    cursor: str | None = None
    body: dict[str, object] | None = None


class ArtifactInput(ToolInput, frozen=True, kw_only=True):
    """A page to publish, or a request concerning published pages."""

    action: str | None = None
    file_path: str | None = None
    file_paths: tuple[str, ...] = ()
    url: str | None = None
    title: str | None = None
    description: str | None = None
    label: str | None = None
    favicon: str | None = None
    icon: str | None = None
    prompt: str | None = None
    scope: str | None = None
    limit: int | None = None
    force: bool | None = None
    pin: bool | None = None
    out_dir: str | None = None
    asset_id: str | None = None
    after: str | None = None
    capabilities: dict[str, object] | None = None
    contract: str | None = None


class WebFetchInput(ToolInput, frozen=True, kw_only=True):
    """A page to fetch, and a prompt to apply to it."""

    url: str = ""
    prompt: str | None = None
    offset: int | None = None


class WebSearchInput(ToolInput, frozen=True, kw_only=True):
    """A query for a web search."""

    query: str = ""
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()


class ListMcpResourcesInput(ToolInput, frozen=True, kw_only=True):
    """A request for the resources of one or all MCP servers."""

    server: str | None = None


class ReadMcpResourceInput(ToolInput, frozen=True, kw_only=True):
    """An MCP resource, or a folder of resources, to read."""

    server: str = ""
    uri: str = ""


class RefreshMcpToolsInput(ToolInput, frozen=True, kw_only=True):
    """A request to reload the tools of one or all MCP servers."""

    server: str | None = None


class McpInput(ToolInput, frozen=True, kw_only=True):
    """The arguments for an MCP tool."""

    server: str
    tool: str
    arguments: dict[str, object]


class StructuredOutputInput(ToolInput, frozen=True, kw_only=True):
    """A final answer that follows the schema requested by the host."""

    data: dict[str, object]


class UnparsedInput(ToolInput, frozen=True, kw_only=True):
    """An input that is not JSON, or the part of it that the client recorded."""

    raw: str = ""
    len: int | None = None
    """The length of the input before the client truncated it."""


class UnknownInput(ToolInput, frozen=True, kw_only=True):
    """The input of an unknown tool, or an input that does not match its tool's type."""

    data: bytes

    def json(self) -> object:
        """The decoded value, or the text if the bytes are not JSON."""
        return decode_json_or_text(self.data)


def decode_json(data: bytes) -> object:
    """Decode JSON, keeping the lone surrogates that clients sometimes write.

    Raises:
        ValueError: the bytes are not a single JSON value, or the value is nested too deeply.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def decode_json_or_text(data: bytes, decode: Callable[[bytes], object] = decode_json) -> object:
    """Decode JSON, or return the bytes as text if they are not JSON. Never raises; `decode` may raise `ValueError`."""
    try:
        return decode(data)
    except ValueError:
        readable = data.decode("utf-8", "replace")
    try:
        return decode(readable.encode())
    except ValueError:
        return readable


def decode_json_object(data: bytes) -> dict[str, object]:
    """Decode a JSON object, or return an empty dict for any other value. Never raises."""
    value = decode_json_or_text(data)
    return value if isinstance(value, dict) else {}
