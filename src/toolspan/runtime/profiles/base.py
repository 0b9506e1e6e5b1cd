"""The values in which client versions differ: one dataclass per part of the runner, bundled in `Profile`.

Defaults are those of the newest version, or those that all versions share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Version = Literal["seed", "2.0.65", "2.1.80", "2.1.197", "2.1.325"]
"""A client version, or `seed`: the behaviour that the founding documents of this project describe."""
Siblings = Literal["independent", "cancel_on_shell_error"]
Numbering = Literal["tab", "arrow"]
PlanSource = Literal["file", "input", "needed_file"]
HookLines = Literal["none", "progress", "attachments"]
"""How hooks are recorded: not at all, by one progress line each, or by attachments with their outcome."""
LastPrompt = Literal["none", "words", "leaf"]
"""Whether the last prompt is repeated at the end, alone or with the id of the last record."""
Layout = Literal["beside", "nested"]
"""Where transcripts of subagents are: beside that of the session, or in a folder of the session."""

_REJECTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was"
    " a file edit, the new_string was NOT written to the file)."
)
_STOP = " STOP what you are doing and wait for the user to tell you how to proceed."
REJECTED_AND_STOP = _REJECTED + _STOP
BACKGROUND_STARTED = "Command running in background with ID: {id}. Output is being written to: {path}"
READ_OUTPUT_HINT = ". Read that file for what it has printed so far."


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAvailability:
    """The tools of one client version, and how their calls are queued."""

    tools: frozenset[str]
    """The tools of a session that names none."""
    optional_tools: frozenset[str] = frozenset()
    """Further tools, which a session gets when it names them."""
    unavailable: frozenset[str] = frozenset()
    """Optional tools that are not available even when they are named."""
    task_list_tools: frozenset[str] = frozenset()
    """Task list tools that only some models have without naming them."""
    models_without_tasks: tuple[str, ...] = ()
    """Prefixes of the models that do not have them. The default model is one of these."""
    interactive_tools: frozenset[str] = frozenset()
    """Tools that need a person who can answer."""
    deferred: frozenset[str] = frozenset()
    """Tools whose schemas the model gets only by searching. If there are any, MCP tools are deferred, too."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    max_concurrent: int | None = 10
    """The number of calls that may run at once; None: no limit was observed."""
    siblings: Siblings = "independent"
    starts_while_streaming: bool = False
    """A call starts as soon as its block is complete, before the message ends."""
    coerces: bool = False
    """Numbers and booleans may be passed as strings."""

    def for_model(self, model: str | None) -> ToolAvailability:
        """Return the values for one model; None is the default model."""
        if model is None or not self.task_list_tools or model.startswith(self.models_without_tasks):
            return self
        return replace(
            self, tools=self.tools | self.task_list_tools, optional_tools=self.optional_tools - self.task_list_tools
        )

    def select_named(self, names: Iterable[str]) -> frozenset[str]:
        """Return those of the named tools that are available."""
        return (self.tools | self.optional_tools - self.unavailable) & frozenset(names)

    def is_deferred(self, tool: str) -> bool:
        """Return whether the model has to search for a tool before it can call it."""
        return tool in self.deferred or (bool(self.deferred) and tool.startswith("mcp__"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """Texts for calls that do not run or do not finish, and the calls that need approval.

    `{name}`, `{path}` and other placeholders are filled in.
    """

    unknown_tool: str = "Error: No such tool available: {name}"
    disabled_tool: str = ""
    """Appended for a tool that exists but is not enabled."""
    other_case: str = ""
    """Appended when the name differs from a tool's only in upper and lower case."""
    rejected: str = REJECTED_AND_STOP
    rejected_with_message: str = _REJECTED + " To tell you how to proceed, the user said:\n{words}"
    rejected_record: str = "User rejected tool use"
    cancelled: str = "The user doesn't want to take this action right now." + _STOP
    interrupted: str = REJECTED_AND_STOP
    """For a call that was running."""
    interrupted_keeps_output: bool = False
    """The text of an interrupted command is its exit code and its output so far."""
    interrupt_note: str = "[Request interrupted by user for tool use]"
    denied: str = "Permission to use {name} has been denied."
    not_granted: str = "Claude requested permissions to use {name}, but you haven't granted it yet."
    not_granted_write: str = "Claude requested permissions to write to {path}, but you haven't granted it yet."
    not_granted_read: str = "Claude requested permissions to read from {path}, but you haven't granted it yet."
    denied_file: str = "File is in a directory that is denied by your permission settings."
    star_rules: bool = True
    """Command rules may contain `*` elsewhere than in a final `:*`."""
    asks_about: frozenset[str] = frozenset()
    """Read-only programs that need approval nevertheless."""
    free_redirects: bool = False
    """Output may be redirected to files in the session's folders without approval."""
    reach: str = "{what} in '{path}' was blocked."
    """For a command line that accesses a file outside the session's folders."""
    reach_inside: str | None = "{what} in '{path}' was blocked."
    """For a command line that changes a file inside them; None: the commands are named instead."""
    redirect: str = "Output redirection to '{path}' was blocked."
    redirect_inside: str = "Output redirection to '{path}' was blocked."
    leaving_names_parts: bool = False
    """For a line that leaves the session's folders, the commands are named, not the folder."""
    plan_shell: str = ""
    """For a command in plan mode that changes something; empty: as outside plan mode."""
    plan_mode: str = ""
    """For a write in plan mode; empty: as outside plan mode."""
    dont_ask: str = "Permission to use {name} has been denied because Claude Code is running in don't ask mode."
    hook_denied: str = "PreToolUse:{name} hook error: {reason}"
    hook_denied_silently: str = "PreToolUse:{name} hook error: Blocked by hook"
    no_output: str = "({name} completed with no output)"


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueStyle:
    """The form in which invalid inputs are reported."""

    validator: Literal["zod 3", "zod 4"]
    """The library whose issue objects are recorded; codes, keys and messages differ between the two."""
    reports_all: bool = False
    """Issues without a sentence of their own are listed beside those that have one."""
    reports_unparsed: bool = False
    """Input that is not JSON is reported as such; otherwise it counts as empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileValues:
    """Read, Write and Edit. `{path}` and other placeholders are filled in."""

    numbering: Numbering = "tab"
    """`1<TAB>line`, or the number right-aligned in six columns and an arrow."""
    read_first: bool = True
    """An existing file has to be read before Edit or Write changes it."""
    free_models: tuple[str, ...] = ()
    """Prefixes of models that may write without reading first."""
    default_model_is_free: bool = False
    expands_home: bool = True
    """`~` at the beginning of a path is the home folder."""

    missing: str = "File does not exist. Note: your current working directory is {cwd}."
    read_missing: str = "File does not exist. Note: your current working directory is {cwd}."
    unreadable_folder: str = "EISDIR: illegal operation on a directory, read '{path}'"
    device: str = "Cannot read '{path}': this path names a device or process file that this tool does not read."
    too_large: str = "File content ({size}) exceeds maximum allowed size ({most})."
    empty: str = "Warning: the file exists but the contents are empty."
    beyond_end: str = (
        "Warning: the file exists but is shorter than the provided offset ({offset}). The file has {lines} lines."
    )
    checks_early: bool = False
    """A missing or too large file is refused before the Read runs, not by the Read."""
    odd_range: Literal["dropped", "first", "from_end"] = "dropped"
    """The meaning of a negative offset or a limit below one: ignored, as the first line and no line, or counted
    from the end of the file."""
    zero_is_first: bool = False
    """Offset 0 gives the first line as number 1; otherwise it is numbered 0."""
    whole_numbers: bool = True
    """The schema declares the range as integers."""
    extra_inputs: frozenset[str] = frozenset({"pages", "allow_large"})
    """Inputs of Read besides path and range."""
    reports_unchanged: bool = False
    """A second Read of the same unchanged lines returns a pointer to the first."""
    decodes_utf16: bool = True
    reports_bad_bytes: bool = True
    """A note below the lines says that some bytes could not be decoded."""
    checks_images: bool = True
    """A file that is named like an image but is none is an error; otherwise it is sent unchanged."""
    plain_dimensions: bool = False
    """The size of an image is recorded as `width` and `height`, not as four original and display values."""
    scale_note_inline: bool = False
    """The scale of a reduced image is part of the result, not of a message beside it."""
    document_inline: bool = True
    """A PDF is part of the result, not of a message beside it."""

    reports_current: bool = True
    """A note after a write says that the file need not be read again."""
    reports_unseen: bool = True
    """That note is omitted, and the record says so, when the model has not seen the file."""
    snippet: bool = False
    """The written lines are shown with line numbers."""
    all_replaced: str = "The file {path} has been updated. All occurrences were successfully replaced."
    no_match: str = "String to replace not found in file.\nString: {old}"
    records_user_modified: bool = True
    """Write records `userModified`."""
    keeps_curly: bool = True
    """Text that replaces curly quotes gets curly quotes."""
    recovers_stale: bool = True
    """Edit of a file that changed since it was read succeeds if the text still matches."""
    folder_first: bool = True
    """Write to a folder says that it is a folder, before it demands a Read."""

    def for_model(self, model: str | None) -> FileValues:
        """Return the values for one model; None is the default model."""
        free = self.default_model_is_free if model is None else model.startswith(self.free_models)
        return replace(self, read_first=False) if free else self


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchValues:
    """Glob, Grep and LS. `{path}` and `{cwd}` are filled in."""

    no_folder: str = "Directory does not exist: {path}. Note: your current working directory is {cwd}."
    no_path: str = "Path does not exist: {path}. Note: your current working directory is {cwd}."
    checks_early: bool = False
    """A missing path is refused before the search runs, not by the search."""
    reports_rejection: bool = True
    """A pattern that ripgrep rejects is an error; otherwise nothing is found."""
    reports_unreadable: bool = True
    """A folder that cannot be opened is an error; otherwise nothing is found in it."""

    relative_names: bool = True
    """Glob lists paths relative to the current folder, not absolute ones."""
    absolute_patterns: bool = True
    """A Glob pattern may be absolute; otherwise such a pattern matches nothing."""
    counts_matches: bool = True
    """Glob reports the number of matches besides those it lists."""

    default_limit: int | None = 250
    """The number of lines or files that Grep returns by default."""
    zero_is_all: bool = True
    """A limit of zero means no limit; otherwise nothing is returned."""
    checks_range: bool = True
    """Limit and offset have to be non-negative integers."""
    reports_whole_range: bool = False
    """Limit and offset are reported whenever they were passed, not only when something was omitted."""
    reports_totals: bool = True
    """Grep reports totals besides what it returns."""
    relative_context: bool = True
    """Context lines are prefixed with relative paths, as matches are."""
    grep_inputs: frozenset[str] = frozenset({"context", "-o"})
    """Inputs that Grep did not have in its first version."""
    cuts_content: int | None = None
    """The number of characters after which Grep cuts its lines; None: long output goes to a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookValues:
    """NotebookEdit."""

    read_first: bool = True
    """The notebook has to be read before it is changed, whatever the model."""
    name_first: bool = True
    """The file name is checked before the file."""
    records_old_source: bool = True
    records_file: bool = True
    """The record contains the whole notebook before and after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TodoValues:
    """TodoWrite and the task list."""

    loose_items: bool = False
    """Todos may have an id and a priority, and need no active form."""
    records_nudge: bool = False
    """TodoWrite records whether the model should be reminded to verify."""
    stores_todos: bool = False
    """The todo list is also stored in a file in the client's home folder."""
    records_description: bool = True
    """TaskCreate records the description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellValues:
    """Bash."""

    merges_streams: bool = True
    """stdout and stderr are one stream, in the order of printing."""
    closes_stdin: bool = False
    """Commands get ` < /dev/null`; visible when the shell quotes a line that it cannot parse."""
    overflow: Literal["file", "lines"] = "file"
    """Output over the limit is saved to a file, or cut with the number of lines that are missing."""
    exit_line: bool = False
    """Successful output ends with a line that contains the exit code."""
    expects_output: bool = True
    """The record says whether the command was expected to print something."""
    notice_on_new_line: bool = True
    """A notice in the recorded stderr begins with a line break."""
    killed_at_timeout: frozenset[str] = frozenset()
    """Programs that are killed at their timeout instead of being moved to the background."""
    tenths: bool = False
    """Durations have one decimal place."""
    started_text: str = BACKGROUND_STARTED
    """For a command that starts in the background."""
    moved_text: str = ""
    """For a command that its timeout moved to the background; empty: as `started_text`."""
    moved_keeps_output: bool = False
    """The result of a moved command contains its output so far, and the record the timeout."""
    records_auto_move: bool = False
    """The record of a moved command says that it was moved automatically."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that are set for commands."""
    exports_session_id: bool = False
    """The session id is among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskValues:
    """Background tasks."""

    notifies: bool = True
    """The model is notified when a task ends by itself."""
    notice_tail: str = ""
    """Appended to such a notice; `{path}` is filled in."""
    forgets_stopped: bool = True
    """A stopped task cannot be found any more."""
    old_input: bool = False
    """A task may also be named by `bash_id`, the input of an older tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanValues:
    """AskUserQuestion, EnterPlanMode and ExitPlanMode."""

    enter_question: str | None = None
    """The question before planning begins; None: planning begins without one."""
    exit_question: str = "Exit plan mode?"
    answer_question: str = "Answer questions?"
    answered: str = "Your questions have been answered: {answers}. You can now continue with these answers in mind."
    unanswered: str = "The user did not answer the questions."
    """Empty: as `answered`, without answers."""
    source: PlanSource = "file"
    """The place of the plan: its file if it exists, the input, or a file that has to exist."""
    records_edited: bool = False
    """The record says that the plan differs from the one in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchValues:
    """WebFetch."""

    undotted_host: str = (
        "WebFetch cannot fetch localhost or other hostnames without a dot."
        " To reach a local server, use Bash with curl instead."
    )
    has_offset: bool = True
    """A long page can be continued at an offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookValues:
    """Hooks: their discovery, their input and the meaning of their output."""

    points: frozenset[str] = frozenset({
        "ConfigChange", "CwdChanged", "DirectoryAdded", "Elicitation", "ElicitationResult", "FileChanged",
        "InstructionsLoaded", "MessageDisplay", "Notification", "PermissionDenied", "PermissionRequest",
        "PostCompact", "PostToolBatch", "PostToolUse", "PostToolUseFailure", "PreCompact", "PreToolUse",
        "SessionEnd", "SessionStart", "Setup", "Stop", "StopFailure", "SubagentStart", "SubagentStop",
        "TaskCompleted", "TaskCreated", "TeammateIdle", "UserPromptExpansion", "UserPromptSubmit",
        "WorktreeCreate", "WorktreeRemove",
    })  # fmt: skip
    """The names of hook events."""
    unknown_drops_all: bool = False
    """An unknown event name disables all hooks of the file."""
    exact_matcher: str = r"[A-Za-z0-9_\-, |]*"
    """A matcher that consists of these characters is a list of names; any other is searched as a pattern."""
    separators: str = "|,"
    """The characters that separate the names of a list."""
    timeout: float = 600.0
    """Seconds for a handler without a timeout of its own."""
    omitted_fields: frozenset[str] = frozenset()
    """Input fields that this version does not send yet."""
    effort: str | None = "medium"
    """The thinking effort by default."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables for commands, besides the project folder."""
    exports_session_id: bool = True
    """The session id and the effort are among them."""
    asks_permission_headless: bool = True
    """PermissionRequest hooks run also in sessions without an approver."""
    flat_decision: bool = False
    """`{"decision": "allow", "additionalContext": ...}` counts without `hookSpecificOutput`."""
    exit_2_wins: bool = True
    """Exit code 2 blocks, whatever the JSON output allows."""
    input_needs_decision: bool = False
    """A changed input counts only beside a decision."""
    updates_output: bool = True
    """The output of every tool can be replaced; otherwise only that of MCP tools."""
    honours_ask: bool = True
    """`ask` leads to a question; otherwise it is ignored."""
    honours_defer: bool = True
    allow_is_final: bool = False
    """`allow` wins over deny rules."""
    uses_last_reason: bool = False
    """A refusal gives the reason of the last handler, even if that has none."""
    blocked_text: str = "[{command}]: {words}"
    """The reason after exit code 2 before a call, as `Refusals.hook_denied` takes it."""
    max_stop_blocks: int | None = 8
    """The number of times in a row that hooks can prevent the end of a turn."""
    summarizes_stop: bool = True
    """The transcript has a line for each end of a turn."""
    records_prompt_outcome: bool = True
    """The record of a blocked prompt contains its outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptShape:
    """The form of transcript records."""

    version: str
    """The `version` field of records."""
    parent_is_own_call: bool
    """The parent of a result is the record of its call; otherwise the previous record."""
    envelope_last: bool
    """Folder, session and version come after the content of a record; otherwise before it."""
    entrypoint: bool
    """Records say how the client was started."""
    no_branch: str
    """The branch outside a repository."""
    prompt_ids: bool
    """The user records of a turn share an id, and prompts contain the permission mode."""
    prompt_source: bool
    """Prompts say where they came from."""
    turn_position: bool
    """Prompts are numbered."""
    companions_aside: bool
    """Successful results inside subagents have a structured `toolUseResult`."""
    hooks: HookLines
    rendered: bool
    """Attachments contain the text that the model was sent."""
    final_stop: bool
    """Every block of a message has the stop reason; otherwise only the last one."""
    blocks_numbered: bool
    """Blocks have their position, and say that a model made them."""
    decisions: bool
    """Results contain the permission decision."""
    turn_companions: bool
    """Notes beside a result say that they belong to it."""
    times_rise: bool
    """No two records have the same time, because the client resumes from the latest one."""
    last_prompt: LastPrompt
    agents: Layout
    agent_digits: int
    """The length of a subagent's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpValues:
    """Calls of MCP servers."""

    error: str = "MCP error {code}: {message}"
    """For an error of the protocol."""
    timed_out: str = "MCP error -32001: Request timed out"
    not_connected: str = "Not connected"
    restarts: bool = False
    """The next call restarts a server that crashed."""
    joins_errors: bool = False
    """All texts of an error result are returned, not only the first."""
    saves_binary: bool = False
    """Content that a conversation cannot hold is saved to a file; otherwise it is dropped."""
    names_images: bool = False
    """Images are saved as well, and the result names the files."""
    inline_limit: int | None = None
    """The number of characters that stay in the conversation; None: no limit was observed."""
    meta: frozenset[str] = frozenset()
    """The fields of `mcpMeta` that are recorded beside a result."""
    marks_writers: bool = False
    """Records mark tools that do not declare themselves read-only."""
    description_limit: int = 2_048
    connect_timeout: float = 30.0
    call_timeout: float = 600.0
    """Seconds for a call, unless the server or the environment sets another timeout. Clients wait a day."""
    idle_remote: float | None = None
    """Seconds without a message or progress from a remote server; None: no limit."""
    idle_local: float | None = None
    approval_requires_input: bool = True
    """A permission prompt tool that allows a call has to return the input."""
    approval_invalid: str | None = None
    """For an invalid answer of that tool; None: the message of the validation library."""
    approval_interrupts: bool = False
    """A refusal that interrupts has the text of a user's refusal, not its own."""
    approval_timeout: float | None = None
    """Seconds for the permission prompt tool; None: as for any call."""
    approval_timed_out: str | None = None
    """For its timeout, and for a broken connection; None: as for any call."""
    approval_unanswered: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentValues:
    """The tool that starts subagents, and the form of its results."""

    name: str
    models: tuple[str, ...]
    """Short model names that the input may contain."""
    needs_kind: bool
    """`subagent_type` is required."""
    resumes: bool
    """The input may name an agent to continue; later clients have SendMessage for that."""
    isolates: bool
    """An agent may get its own worktree."""
    has_effort: bool
    in_background: bool
    """Agents run in the background unless the input says otherwise."""
    depth: int
    """The number of levels on which agents may start agents."""
    token_word: str | None
    """The name of the token count in a result; None: tokens are not counted."""
    reports_kind: bool
    """Results contain the agent type, the model and the number of uses of each tool."""
    framed: bool
    """A report is indented below a heading, in one block with the rest."""
    completion_word: str
    """The verb of a notice that an agent has finished."""
    has_note: bool
    """Notices explain what a report is."""
    notice_tail: str
    """Appended to a notice; `{path}` is filled in."""
    records_call: bool
    """The metadata beside a transcript contain the call and the depth."""
    records_request: bool
    """They also contain how the agent was requested, and that it has finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The behaviour of one client version: texts, policies and record shapes."""

    name: Version
    availability: ToolAvailability
    refusals: Refusals
    issues: IssueStyle
    files: FileValues
    search: SearchValues
    notebook: NotebookValues
    todo: TodoValues
    shell: ShellValues
    tasks: TaskValues
    plan: PlanValues
    fetch: FetchValues
    hooks: HookValues
    shape: TranscriptShape
    mcp: McpValues
    agents: AgentValues

    def for_model(self, model: str | None) -> Profile:
        """Return the profile with the values for one model; None is the default model."""
        return replace(self, availability=self.availability.for_model(model), files=self.files.for_model(model))
