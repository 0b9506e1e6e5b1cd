"""The behaviour that differs between client versions: one dataclass per part of the runner, combined in `Profile`.

Values are booleans, limits and names; the texts are in `messages.py`. A boolean covers what changed together.
Defaults are those of the newest version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from toolspan.runtime.profiles.messages import Messages

Version = Literal["seed", "2.0.65", "2.1.327"]
"""A client version, or `seed` for the behaviour described in the founding documents of this project."""
Siblings = Literal["independent", "cancel_on_shell_error"]
Numbering = Literal["tab", "arrow"]
PlanSource = Literal["file", "input", "needed_file"]
HookLines = Literal["none", "progress", "attachments"]
"""The form in which hooks are recorded: not at all, as one progress line each, or as attachments with their outcome."""
LastPrompt = Literal["none", "words", "leaf"]
"""The form in which the last prompt is repeated at the end: not at all, alone, or with the id of the last record."""
Layout = Literal["beside", "nested"]
"""The location of subagent transcripts: beside the session's transcript, or in the session's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAvailability:
    """The tools available in one client version, and the settings of the call queue."""

    tools: frozenset[str]  # the tools in a session that does not select any
    optional_tools: frozenset[str] = frozenset()  # further tools, available to a session that selects them
    task_list_tools: frozenset[str] = frozenset()  # task list tools that only some models have by default
    models_without_tasks: tuple[str, ...] = ()
    """Prefixes of the models that lack the task list tools by default. The default model is one of these."""
    interactive_tools: frozenset[str] = frozenset()  # tools that need a user who can answer
    deferred: frozenset[str] = frozenset()
    """Tools whose schemas the model gets only by searching. If there are any, MCP tools are deferred as well."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    max_concurrent: int | None = None  # the maximum number of concurrent calls; None if no limit was observed
    siblings: Siblings = "independent"
    starts_while_streaming: bool = True  # a call starts as soon as its block is complete, before the message ends
    checks_skill_args: bool = True  # a skill's arguments must be a string
    suggests_skills: bool = True  # the refusal of an unknown skill names a similar one
    asks_about_all_skills: bool = False  # also about skills that only add text to the conversation
    coerces: bool = True  # numbers and booleans may be passed as strings
    explains_unknown: bool = True  # the error for an unknown tool says that it is not enabled, or differs in case
    fetch_has_offset: bool = True  # WebFetch can continue a long page at an offset

    def for_model(self, model: str | None) -> ToolAvailability:
        """Return the values for one model; None selects the default model."""
        if model is None or not self.task_list_tools or model.startswith(self.models_without_tasks):
            return self
        return replace(
            self, tools=self.tools | self.task_list_tools, optional_tools=self.optional_tools - self.task_list_tools
        )

    def select_named(self, names: Iterable[str]) -> frozenset[str]:
        """Return the available tools in `names`."""
        return (self.tools | self.optional_tools) & frozenset(names)

    def is_deferred(self, tool: str) -> bool:
        """Return whether the model must search for a tool before calling it."""
        return tool in self.deferred or (bool(self.deferred) and tool.startswith("mcp__"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """Values for the decision whether a call needs approval, and for the question about it."""

    precise_questions: bool = True
    """True if questions name plan mode, a protected file or a link's target, and not only the tool or the commands."""
    read_rules_bind_changes: bool = True  # a file that may not be read may not be changed
    star_rules: bool = True  # command rules may contain `*` other than in a final `:*`
    free_redirects: bool = False  # output may be redirected to files in the session's folders without approval
    link_write: str = ""  # the message for a write to a symbolic link; if empty, such writes are decided like others
    plan_shell: str = ""
    """The message for a command in plan mode that changes something; if empty, the same as outside plan mode."""
    plan_reads: bool = False  # in plan mode, files outside the session's folders may be read without approval
    suspicious_path: str = r"~\d|[. ](?:/|$)|\.(?:con|prn|aux|nul|com\d|lpt\d)$|(?:^|/)\.{3,}(?:/|$)"
    """A pattern for paths that may denote a different file on Windows, which need approval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueStyle:
    """The format in which invalid inputs are reported."""

    validator: Literal["zod 3", "zod 4"] = "zod 4"
    """The library whose issue objects are recorded. With the newer one, input that is not JSON is reported, too."""


SUFFIXES_2_0 = frozenset({
    ".3ds", ".7z", ".aac", ".ai", ".aiff", ".app", ".avi", ".bin", ".blend", ".bz2", ".class", ".dat", ".db", ".deb",
    ".dll", ".doc", ".docx", ".dylib", ".eot", ".eps", ".exe", ".fig", ".fla", ".flac", ".flv", ".gz", ".iso", ".jar",
    ".m4a", ".m4v", ".max", ".mdb", ".mkv", ".mov", ".mp3", ".mp4", ".mpeg", ".mpg", ".msi", ".obj", ".odp", ".ods",
    ".odt", ".ogg", ".opus", ".otf", ".ppt", ".pptx", ".psd", ".pyc", ".pyo", ".rar", ".rlib", ".rpm", ".sketch",
    ".so", ".sqlite", ".sqlite3", ".swf", ".tar", ".tgz", ".ttf", ".war", ".wav", ".webm", ".wma", ".wmv", ".woff",
    ".woff2", ".xd", ".xls", ".xlsx", ".xz", ".z", ".zip",
})  # fmt: skip
"""Suffixes of files that Read of 2.0.65 refuses as binary."""
_SUFFIXES = SUFFIXES_2_0 | {
    ".a", ".apk", ".avif", ".bmp", ".dmg", ".ear", ".epub", ".feather", ".heic", ".heif", ".ico", ".lib", ".lockb",
    ".lz4", ".node", ".npy", ".npz", ".numbers", ".o", ".parquet", ".pickle", ".tif", ".tiff", ".wasm", ".whl", ".zst",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FileValues:
    """Values for Read, Write and Edit."""

    numbering: Numbering = "tab"
    """The line format: `1<TAB>line`, or a number right-aligned in six columns and followed by an arrow."""
    newer_inputs: bool = True
    """True if Read accepts `pages` and `allow_large`, and tools accept other names of inputs, such as `path`."""
    loose_ranges: bool = False
    """True if negative numbers count from the end, a range is limited in size, and one empty line is beyond the end."""
    detects_encodings: bool = True
    """True to read UTF-16, hide and keep byte order marks, report invalid bytes, and not change other encodings."""
    checks_media: bool = True
    """True to check images and PDF documents, and to return documents in the result and scales beside it."""
    refuses_links: bool = True  # a link is not written, and a link that does not resolve is not read
    raw_records: bool = False
    """True if Write records the old content with its line endings, and not whether the user modified the new one."""
    read_first: bool = True  # an existing file must be read before Edit or Write changes it
    free_models: tuple[str, ...] = ("claude-opus-5",)  # prefixes of models that need not read a file before writing it
    default_model_is_free: bool = True
    expands_home: bool = True
    """True to expand `~`, strip blanks around a path and resolve `..` in its text; otherwise paths stay unchanged."""
    sorts_names: bool = False
    """True to suggest the first similar file by name; otherwise the first in file system order."""
    names_slash: bool = True  # a trailing slash in the path is kept in messages and in the list of read files
    binary_suffixes: frozenset[str] = _SUFFIXES  # suffixes of files that Read refuses as binary
    refuses_process_files: bool = True  # Read refuses files in /proc that describe a process
    reports_path_errors: bool = True
    """True to report a system error for a path that cannot be looked up; otherwise the file counts as missing."""
    checks_early: bool = False  # a missing or oversized file is refused before Read runs, not while it runs
    zero_is_first: bool = False  # with offset 0, lines are numbered from 1; otherwise from 0
    plain_dimensions: bool = False
    """True to record an image's size as `width` and `height`, not as four original and display values."""
    snippet: bool = False
    """True to show changed lines; otherwise a note says that a file which the model has seen need not be read."""
    keeps_curly: bool = True  # text that replaces curly quotes also gets curly quotes
    keeps_markdown_blanks: bool = True  # trailing blanks are removed from new lines, but not in Markdown
    recovers_stale: bool = True
    """True if Edit succeeds on a file that has changed since it was read, if the old text still matches."""
    record_limit: int | None = 10_000  # the number of characters above which the old content of a file is not recorded
    replaces_links: bool = False  # a new file replaces a link to a missing file; otherwise the link's target is created
    blank_needs_read: bool = True
    """True if Edit refuses to fill a blank file that has not been read; otherwise it fails with another error."""
    writes_old_newlines: bool = False  # Write keeps the line ending that prevails at the start of the old content
    shell_views: bool = True  # a file counts as read once a simple command such as `cat` has printed it
    remembered_files: int | None = None
    """The number of read files that are remembered, each by the spelling of its path; None for all, by any name."""
    unifies_newlines: bool = True
    """True to convert an edited file to the line ending that prevails at its start, not only the new lines."""
    folder_first: bool = True  # Write to a folder reports that it is a folder before it requires a Read

    def for_model(self, model: str | None) -> FileValues:
        """Return the values for one model; None selects the default model."""
        free = self.default_model_is_free if model is None else model.startswith(self.free_models)
        return replace(self, read_first=False) if free else self


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchValues:
    """Values for Glob, Grep and LS."""

    checks_early: bool = False  # a missing path is refused before the search runs, not while it runs
    newer_inputs: bool = True  # Grep accepts `context` and `-o`
    reports_errors: bool = True
    """True to report patterns that ripgrep rejects and folders that cannot be opened; otherwise nothing is found."""
    relative_names: bool = True
    """True to list paths relative to the current folder, and to accept absolute patterns in Glob."""
    reports_totals: bool = True  # results state the number of all matches
    checks_range: bool = True
    """True if limit and offset must not be negative and zero is no limit; otherwise results repeat them if passed."""
    output_limit: int | None = None
    """The number of characters after which Grep truncates its output; None if long output is written to a file."""
    strips_returns: bool = True  # Grep drops carriage returns at the ends of lines
    default_limit: int | None = 250  # the maximum number of lines or files that Grep returns by default


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookValues:
    """Values for NotebookEdit."""

    checks_first: bool = True
    """True if the notebook must have been read, by any model, and its name and each of its cells are checked."""
    full_records: bool = True
    """True if records contain the whole notebook, the old source and names of all cells, and count texts, not JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellValues:
    """Values for Bash."""

    marks_errors: bool = False
    """True if each piece of stderr is marked in the output of background commands. Streams are then not merged."""
    merges_streams: bool = True  # stdout and stderr form one stream, in the order in which they were printed
    closes_stdin: bool = False  # ` < /dev/null` is appended to commands, which the shell shows when it quotes a line
    interrupted_keeps_output: bool = False  # the message for an interrupted command is its exit code and output
    overflow: Literal["file", "lines"] = "file"
    """The treatment of output over the limit: saved to a file, or truncated with the number of missing lines."""
    exit_line: bool = False  # the output of a successful command ends with a line that contains the exit code
    expects_output: bool = True
    """True if the record states whether output was expected, and a notice in its stderr begins with a line break."""
    killed_at_timeout: frozenset[str] = frozenset({"sleep"})
    """Programs that are killed at their timeout instead of being moved to the background."""
    tenths: bool = False  # durations are shown with one decimal place
    moved_keeps_output: bool = True
    """True if the result of a moved command contains its output so far, and its record contains the timeout."""
    environment: Mapping[str, str] = field(default_factory=dict)  # environment variables for commands
    error_slack: int = 1_000
    """The number of characters by which the output of a failed command may exceed the limit before it is cut."""
    exports_session_id: bool = True  # add the session id to the environment
    records_edits: bool = True  # the files that a command changed are recorded in some modes
    rejects_control_characters: bool = True  # a command with characters that a terminal hides is invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskValues:
    """Values for background tasks, todos and plans."""

    notifies: bool = True  # the model is notified when a task ends by itself
    forgets_ended: bool = True
    """True if a task that ended or was stopped can no longer be found; otherwise it can be stopped again."""
    loose_output: bool = False  # TaskOutput ignores unknown fields and refuses a missing task itself
    has_exit_line: bool = True  # the output file of a command ends with a line about its end
    loose_items: bool = False  # todos may have an id and a priority, and need no active form
    stores_todos: bool = False  # the todo list is also stored in a file in the client's home folder
    asks_to_plan: bool = False  # the user is asked before planning begins
    plan_source: PlanSource = "file"  # the plan's file if that exists, the input, or a file that must exist


@dataclass(frozen=True, slots=True, kw_only=True)
class HookValues:
    """Values for hooks: their lookup, their input, and the interpretation of their output."""

    points: frozenset[str] = frozenset({
        "ConfigChange", "CwdChanged", "DirectoryAdded", "Elicitation", "ElicitationResult", "FileChanged",
        "InstructionsLoaded", "MessageDisplay", "Notification", "PermissionDenied", "PermissionRequest",
        "PostCompact", "PostToolBatch", "PostToolUse", "PostToolUseFailure", "PreCompact", "PreToolUse",
        "SessionEnd", "SessionStart", "Setup", "Stop", "StopFailure", "SubagentStart", "SubagentStop",
        "TaskCompleted", "TaskCreated", "TeammateIdle", "UserPromptExpansion", "UserPromptSubmit",
        "WorktreeCreate", "WorktreeRemove",
    })  # fmt: skip
    """The names of the supported hook events."""
    unknown_drops_all: bool = False  # an unknown event name disables all hooks in the file
    comma_matchers: bool = True  # a matcher may list names with commas, blanks and dashes, not only with `|`
    explains_rewrite: bool = True  # an invalid input that a hook returned has a message of its own
    timeout: float = 600.0  # the timeout in seconds for handlers that do not set one
    omitted_fields: frozenset[str] = frozenset()  # input fields that this version does not send yet
    effort: str | None = "medium"  # the default thinking effort
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables for commands, in addition to the project folder."""
    exports_session_id: bool = True  # add the session id and the effort to the environment
    asks_permission_headless: bool = True  # PermissionRequest hooks also run in sessions without an approver
    flat_decision: bool = False
    """True if `{"decision": "allow", "additionalContext": ...}` is valid without `hookSpecificOutput`."""
    exit_2_wins: bool = True  # exit code 2 blocks even when the JSON output allows the call
    exit_2_names_tool: bool = False  # the reason for exit code 2 begins with the tool
    input_needs_decision: bool = False  # a changed input is used only together with a decision
    updates_output: bool = True  # the output of any tool can be replaced, not only the output of MCP tools
    expands_home: bool = True  # `~/` in the path of a file tool is the home folder
    honours_ask: bool = True
    """True if `ask` leads to a question and `defer` defers the call; otherwise `ask` needs an `allow` beside it."""
    allow_is_final: bool = False  # `allow` takes precedence over deny rules
    uses_last_reason: bool = False  # a refusal uses the last handler's reason, even if that handler gave none
    max_stop_blocks: int | None = 8  # the maximum number of consecutive times that hooks can prevent a turn from ending
    summarizes_stop: bool = True  # the transcript states how each turn and each blocked prompt ended


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptShape:
    """The format of transcript records."""

    version: str  # the `version` field of records
    parent_is_own_call: bool = True  # the parent of a result is the record of its call, not the previous record
    envelope_last: bool = True  # the folder, session and version follow the content of a record instead of preceding it
    entrypoint: bool = True  # records state how the client was started
    no_branch: str = "HEAD"  # the branch recorded outside a repository
    prompt_ids: bool = True  # the user records in a turn share an id, and prompts contain the permission mode
    prompt_source: bool = True  # prompts record their source
    turn_position: bool = True  # prompts are numbered
    companions_aside: bool = False  # successful results inside subagents have a structured `toolUseResult`
    hooks: HookLines = "attachments"
    rendered: bool = True  # attachments contain the text that the model received
    final_stop: bool = True  # every block of a message has the stop reason, not only the last one
    blocks_numbered: bool = True  # blocks record their position and that a model produced them
    decisions: bool = True  # results contain the permission decision
    turn_companions: bool = True  # notes beside a result are marked as belonging to it
    times_rise: bool = False  # no two records have the same time, because the client resumes from the latest one
    last_prompt: LastPrompt = "leaf"
    agents: Layout = "nested"
    agent_digits: int = 17  # the number of digits in a subagent's id


@dataclass(frozen=True, slots=True, kw_only=True)
class McpValues:
    """Values for calls to MCP servers."""

    restarts: bool = True  # the next call restarts a server that has crashed
    joins_errors: bool = True  # return all text in an error result, not only the first block
    saves_binary: bool = True  # save content that a conversation cannot contain to a file. Otherwise it is dropped
    keeps_other_blocks: bool = True  # structured content replaces only text, not images, links and resources
    records_text_metadata: bool = True  # the `_meta` of text blocks
    names_images: bool = True  # save images as well, and list the files in the result
    inline_limit: int | None = 50_000
    """The maximum number of characters that stay in the conversation; None if no limit was observed."""
    token_limit: int | None = 25_000
    """The number of tokens above which a result is replaced by a notice that names a file; None for no limit."""
    checks_images: bool = True  # replace unreadable images with a notice
    meta: frozenset[str] = frozenset({"structuredContent", "resourceLinks"})  # the recorded fields of `mcpMeta`
    marks_writers: bool = True  # records mark tools that do not declare themselves read-only
    description_limit: int = 4_096
    idle_remote: float | None = 300.0
    """The seconds without a message or progress after which a remote server times out; None for no limit."""
    idle_local: float | None = 1_800.0
    strict_approval: bool = False
    """True if a permission prompt tool must return the input, and its invalid answers and interrupts are explained."""
    approval_timeout: float | None = None
    """The timeout in seconds for that tool, with messages of its own; None for the timeout and messages of any call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentValues:
    """Values for the tool that starts subagents, and for the format of its results."""

    name: str = "Agent"
    models: tuple[str, ...] = ("sonnet", "opus", "haiku", "fable")  # the short model names that the input accepts
    newer_inputs: bool = True
    """True if an agent may have a worktree and an effort; otherwise its type is required, and it may be continued."""
    framed: bool = True
    """True if a report has a heading, type, model and numbers of calls and tokens, and a notification explains it."""
    records_request: bool = True
    """True if the metadata beside a transcript contains the call, its depth, the form of the request, and the end."""
    in_background: bool = True  # agents run in the background by default
    depth: int = 3  # the maximum nesting depth of agents that start agents


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The behaviour of one client version: messages, policies and record formats."""

    name: Version
    messages: Messages = field(default_factory=Messages)
    availability: ToolAvailability
    refusals: Refusals = Refusals()
    issues: IssueStyle = IssueStyle()
    files: FileValues = FileValues()
    search: SearchValues = SearchValues()
    notebook: NotebookValues = NotebookValues()
    shell: ShellValues
    tasks: TaskValues = TaskValues()
    hooks: HookValues
    shape: TranscriptShape
    mcp: McpValues = McpValues()
    agents: AgentValues = AgentValues()

    def for_model(self, model: str | None) -> Profile:
        """Return the profile with the values that apply to one model; None selects the default model."""
        return replace(self, availability=self.availability.for_model(model), files=self.files.for_model(model))
