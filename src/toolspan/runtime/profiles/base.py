"""The values that differ between client versions: one dataclass per part of the runner, combined in `Profile`.

Defaults are those of the newest version, or those shared by all versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Version = Literal["seed", "2.0.65", "2.1.80", "2.1.197", "2.1.325"]
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
    max_concurrent: int | None = 10  # the maximum number of calls that run concurrently; None if no limit was observed
    siblings: Siblings = "independent"
    starts_while_streaming: bool = False  # a call starts as soon as its block is complete, before the message ends
    checks_skill_args: bool = True  # a skill's arguments must be a string
    suggests_skills: bool = False  # the refusal of an unknown skill names a similar one
    asks_about_all_skills: bool = False  # also about skills that only add text to the conversation
    coerces: bool = False  # numbers and booleans may be passed as strings

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
    """Messages for calls that do not run or do not finish, and settings for which calls need approval.

    Placeholders such as `{name}` and `{path}` are replaced.
    """

    unknown_tool: str = "Error: No such tool available: {name}"
    disabled_tool: str = ""  # text appended for a tool that exists but is not enabled
    other_case: str = ""  # text appended if the name differs from a tool's name only in case
    rejected: str = REJECTED_AND_STOP
    rejected_with_message: str = _REJECTED + " To tell you how to proceed, the user said:\n{words}"
    rejected_record: str = "User rejected tool use"
    cancelled: str = "The user doesn't want to take this action right now." + _STOP
    interrupted: str = REJECTED_AND_STOP  # the message for a call that was running
    interrupted_keeps_output: bool = False
    """True if the message for an interrupted command is its exit code and its output so far."""
    interrupt_note: str = "[Request interrupted by user for tool use]"
    denied: str = "Permission to use {name} has been denied."
    not_granted: str = "Claude requested permissions to use {name}, but you haven't granted it yet."
    not_granted_write: str = "Claude requested permissions to write to {path}, but you haven't granted it yet."
    sensitive_file: str = "Claude requested permissions to edit {path} which is a sensitive file."
    """The same for a protected file that is not part of the client's own settings; empty for the same text."""
    not_granted_read: str = "Claude requested permissions to read from {path}, but you haven't granted it yet."
    denied_file: str = "File is in a directory that is denied by your permission settings."
    read_denied: str = "File is covered by a Read deny rule in your permission settings and cannot be {done}."
    """The message for a change to a file that may not be read; empty if Read rules do not apply to changes."""
    unclear: str = ""  # the message for a command line with syntax whose effect depends on the shell's state
    star_rules: bool = True  # command rules may contain `*` other than in a final `:*`
    asks_about: frozenset[str] = frozenset()  # read-only programs that nevertheless need approval
    asks_about_text: str = r"\Z"  # a pattern for the text of read-only commands that nevertheless need approval
    free_redirects: bool = False  # output may be redirected to files in the session's folders without approval
    open_expansion: str = ""  # the question about a line that ends inside an expansion; if empty, as for other lines
    link_write: str = ""  # the message for a write to a symbolic link; if empty, such writes are decided like others
    plain_lines: bool = False  # lines with expansions, conditions, variables or unusual redirects need approval
    reach: str = "{what} in '{path}' was blocked."
    """The message for a command line that accesses a file outside the session's folders."""
    reach_inside: str | None = "{what} in '{path}' was blocked."
    """The message for a command line that changes a file inside the session's folders; None to list
    the commands instead.
    """
    redirect: str = "Output redirection to '{path}' was blocked."
    redirect_inside: str = "Output redirection to '{path}' was blocked."
    leaving_names_parts: bool = False
    """True to list the commands instead of the folder, for a line that leaves the session's folders."""
    plan_shell: str = ""
    """The message for a command in plan mode that changes something; if empty, the same as outside plan mode."""
    plan_reads: bool = False  # in plan mode, files outside the session's folders may be read without approval
    plan_mode: str = ""  # the message for a write in plan mode; if empty, the same as outside plan mode
    dont_ask: str = "Permission to use {name} has been denied because Claude Code is running in don't ask mode."
    hook_denied: str = "PreToolUse:{name} hook error: {reason}"
    hook_denied_silently: str = "PreToolUse:{name} hook error: Blocked by hook"
    plain_if_respelled: bool = False
    """True if a hook's reason is the whole message when the hook saw another spelling of the model's path."""
    names_raw_path: bool = False  # questions about files name the path as the model wrote it
    names_link_target: bool = False  # questions about files state where a link leads outside the session's folders
    refuses_links: bool = False  # writing to a symbolic link and reading an unresolvable one are refused
    suspicious_path: str = ""  # a pattern for paths that may denote a different file on Windows, which need approval
    no_output: str = "({name} completed with no output)"


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueStyle:
    """The format in which invalid inputs are reported."""

    validator: Literal["zod 3", "zod 4"]
    """The library whose issue objects are recorded; codes, keys and messages differ between the two."""
    reports_all: bool = False  # also report issues that have no message, if others have one
    reports_unparsed: bool = False  # report input that is not JSON. Otherwise it is treated as empty


SUFFIXES_2_0 = frozenset({
    ".3ds", ".7z", ".aac", ".ai", ".aiff", ".app", ".avi", ".bin", ".blend", ".bz2", ".class", ".dat", ".db", ".deb",
    ".dll", ".doc", ".docx", ".dylib", ".eot", ".eps", ".exe", ".fig", ".fla", ".flac", ".flv", ".gz", ".iso", ".jar",
    ".m4a", ".m4v", ".max", ".mdb", ".mkv", ".mov", ".mp3", ".mp4", ".mpeg", ".mpg", ".msi", ".obj", ".odp", ".ods",
    ".odt", ".ogg", ".opus", ".otf", ".ppt", ".pptx", ".psd", ".pyc", ".pyo", ".rar", ".rlib", ".rpm", ".sketch",
    ".so", ".sqlite", ".sqlite3", ".swf", ".tar", ".tgz", ".ttf", ".war", ".wav", ".webm", ".wma", ".wmv", ".woff",
    ".woff2", ".xd", ".xls", ".xlsx", ".xz", ".z", ".zip",
})  # fmt: skip
"""Suffixes of files that Read of 2.0.65 refuses as binary."""
SUFFIXES_2_1 = SUFFIXES_2_0 | {
    ".a",
    ".bmp",
    ".ear",
    ".ico",
    ".lib",
    ".lockb",
    ".node",
    ".o",
    ".tif",
    ".tiff",
    ".wasm",
}
_SUFFIXES = SUFFIXES_2_1 | {
    ".apk", ".avif", ".dmg", ".epub", ".feather", ".heic", ".heif", ".lz4", ".npy", ".npz", ".numbers", ".parquet",
    ".pickle", ".whl", ".zst",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FileValues:
    """Values for Read, Write and Edit. Placeholders such as `{path}` are replaced."""

    numbering: Numbering = "tab"
    """The line format: `1<TAB>line`, or a number right-aligned in six columns and followed by an arrow."""
    read_first: bool = True  # an existing file must be read before Edit or Write changes it
    free_models: tuple[str, ...] = ()  # Prefixes of models that may write a file without reading it first
    default_model_is_free: bool = False
    expands_home: bool = True
    """True to expand `~`, strip blanks around a path and resolve `..` without the file system; otherwise absolute
    paths are used unchanged.
    """

    missing: str = "File does not exist. Note: your current working directory is {cwd}."
    read_missing: str = "File does not exist. Note: your current working directory is {cwd}."
    missing_elsewhere: str = ""
    """Text appended if the current folder is not the project folder."""
    sorts_names: bool = False
    """True to suggest the first similar file by name; otherwise the first in file system order."""
    unreadable_folder: str = "EISDIR: illegal operation on a directory, read '{path}'"
    names_slash: bool = True
    """True if a trailing slash in the path is kept, in that message and in the list of read files."""
    unresolved_link: str = (
        "Refusing to read {path}: where it leads on disk could not be determined (a link on the way could not be"
        " examined, or the links do not resolve)."
    )
    """The message for circular links; if empty, the system error."""
    binary_suffixes: frozenset[str] = _SUFFIXES  # suffixes of files that Read refuses as binary
    checks_pdf: bool = True  # a file with a PDF suffix must be a PDF
    refuses_process_files: bool = True  # Read refuses files in /proc that describe a process
    limits_range: bool = False
    """True if the size limit also applies to a range of lines; an offset alone makes a range."""
    device: str = "Cannot read '{path}': this path names a device or process file that this tool does not read."
    too_large: str = "File content ({size}) exceeds maximum allowed size ({most})."
    empty: str = "Warning: the file exists but the contents are empty."
    beyond_end: str = (
        "Warning: the file exists but is shorter than the provided offset ({offset}). The file has {lines} lines."
    )
    null_path: str = "{tool} {field} cannot contain null bytes (\\0). Remove the null byte and try again."
    reports_path_errors: bool = True
    """True to report a system error for a path that cannot be looked up; otherwise the file counts as missing."""
    checks_early: bool = False
    """True to refuse a missing or oversized file before Read runs, not while it runs."""
    odd_range: Literal["dropped", "first", "from_end"] = "dropped"
    """The treatment of a negative offset or a limit below one: ignored, as the first line and no line, or counted
    from the end of the file.
    """
    zero_is_first: bool = False  # with offset 0, lines are numbered from 1; otherwise from 0
    whole_numbers: bool = True  # the schema declares the range as integers
    extra_inputs: frozenset[str] = frozenset({"pages", "allow_large"})  # the inputs of Read other than path and range
    reports_unchanged: bool = False  # a second Read of the same unchanged lines returns a reference to the first
    decodes_utf16: bool = True
    """True to decode UTF-16 text with a little-endian byte order mark, and to hide byte order marks."""
    refuses_other_encodings: bool = True
    """True if Edit and Write refuse files that are neither UTF-8 nor marked as little-endian UTF-16."""
    keeps_mark: bool = True
    """True if Write keeps the byte order mark of a UTF-8 file."""
    blank_is_beyond: bool = False
    """True if a range that contains only an empty line counts as beyond the end of the file."""
    drops_last_return: bool = True
    """True if Read drops a carriage return at the end of the file."""
    reports_bad_bytes: bool = True
    """True to add a note below the lines if some bytes could not be decoded."""
    checks_images: bool = True
    """True if a file that has an image suffix but is not an image is an error; otherwise it is sent unchanged."""
    plain_dimensions: bool = False
    """True to record an image's size as `width` and `height`, not as four original and display values."""
    scale_note_inline: bool = False  # the result contains the scale of a reduced image, not a separate message
    document_inline: bool = True  # a PDF is contained in the result, not in a separate message

    reports_current: bool = True  # note after a write that the file need not be read again
    reports_unseen: bool = True  # omit that note and record the omission, if the model has not seen the file
    snippet: bool = False  # show the written lines with their line numbers
    all_replaced: str = "The file {path} has been updated. All occurrences were successfully replaced."
    no_match: str = "String to replace not found in file.\nString: {old}"
    records_user_modified: bool = True  # Write records `userModified`
    keeps_curly: bool = True  # text that replaces curly quotes also gets curly quotes
    recovers_stale: bool = True
    """True if Edit succeeds on a file that has changed since it was read, provided that the old text
    still matches.
    """
    aliases: bool = False
    """True to accept other input names, such as `path` for `file_path`, and to ignore a description."""
    record_limit: int | None = None
    """The number of characters above which the old content of a file is not recorded."""
    keeps_blanks_in: frozenset[str] = frozenset({".md", ".mdx"})
    """Suffixes of files in which trailing blanks are kept in new lines; in others they are removed."""
    writes_raw_record: bool = False
    """True if Write records the old content with its line endings."""
    free_outside: bool = False
    """True if files outside the working folders may be changed without being read first, too."""
    replaces_links: bool = False
    """True if a new file replaces a link to a missing file; otherwise the link's target is created."""
    blank_needs_read: bool = True
    """True if Edit refuses to fill a blank file that has not been read; otherwise it fails with another error."""
    writes_old_newlines: bool = False
    """True if Write keeps the line ending that prevails at the start of the old content."""
    shell_views: bool = True
    """True if a file counts as read once a simple command such as `cat` has printed it."""
    remembered_files: int | None = None
    """The number of read files that are remembered, each by the spelling of its path; None for all, by any name."""
    unifies_newlines: bool = True
    """True to convert an edited file to the line ending that prevails at its start; otherwise other lines keep theirs.
    """
    folder_first: bool = True
    """True if Write to a folder reports that it is a folder before it requires a Read."""

    def for_model(self, model: str | None) -> FileValues:
        """Return the values for one model; None selects the default model."""
        free = self.default_model_is_free if model is None else model.startswith(self.free_models)
        return replace(self, read_first=False) if free else self


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchValues:
    """Values for Glob, Grep and LS. The placeholders `{path}` and `{cwd}` are replaced."""

    no_folder: str = "Directory does not exist: {path}. Note: your current working directory is {cwd}."
    no_path: str = "Path does not exist: {path}. Note: your current working directory is {cwd}."
    checks_early: bool = False
    """True to refuse a missing path before the search runs, not while it runs."""
    reports_rejection: bool = True
    """True to report an error for a pattern that ripgrep rejects; otherwise it matches nothing."""
    strips_returns: bool = True
    """True if Grep drops carriage returns at the ends of lines."""
    reports_unreadable: bool = True
    """True to report an error for a folder that cannot be opened; otherwise it counts as empty."""

    relative_names: bool = True  # Glob lists paths relative to the current folder
    absolute_patterns: bool = True  # a Glob pattern may be absolute; otherwise such a pattern matches nothing
    counts_matches: bool = True  # Glob reports the total number of matches

    default_limit: int | None = 250  # the maximum number of lines or files that Grep returns by default
    zero_is_all: bool = True  # a limit of zero means no limit; otherwise nothing is returned
    checks_range: bool = True  # limit and offset must be non-negative integers
    reports_whole_range: bool = False
    """True to report limit and offset whenever they were passed, not only if results were omitted."""
    reports_totals: bool = True  # Grep reports totals in addition to the returned results
    relative_context: bool = True  # context lines, like matches, are prefixed with relative paths
    grep_inputs: frozenset[str] = frozenset({"context", "-o"})
    """The inputs that were added after the first version of Grep."""
    cuts_content: int | None = None
    """The number of characters after which Grep truncates its output; None if long output is written to a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookValues:
    """Values for NotebookEdit."""

    read_first: bool = True  # the notebook must be read before it is changed, with any model
    name_first: bool = True  # the file name is checked before the file itself
    names_all_cells: bool = True  # cells of formats without ids are named in results
    records_old_source: bool = True
    records_file: bool = True  # the record contains the whole notebook before and after the change
    not_json: str = (
        "Notebook file is not valid JSON (it may be truncated, corrupted, or still being written):"
        " JSON Parse error: {reason}"
    )
    checks_cells: bool = True  # each cell must be an object with a source
    counts_json: bool = False  # output size is the length of the JSON, not of the texts and images


@dataclass(frozen=True, slots=True, kw_only=True)
class TodoValues:
    """Values for TodoWrite and the task list."""

    loose_items: bool = False
    """True if todos may have an id and a priority, and need no active form."""
    records_nudge: bool = False
    """True if TodoWrite records whether the model should be reminded to verify its work."""
    stores_todos: bool = False
    """True to also store the todo list in a file in the client's home folder."""
    repairs_input: bool = False
    """True if a new task may lack its subject or description or have unknown fields, and `id` names a task."""
    records_description: bool = True
    """True if TaskCreate records the description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellValues:
    """Values for Bash."""

    marks_errors: bool = False
    """True if each piece of stderr is marked in the output of background commands. Streams are then not merged."""
    merges_streams: bool = True  # stdout and stderr form one stream, in the order in which they were printed
    closes_stdin: bool = False
    """True if ` < /dev/null` is appended to commands. It is visible when the shell quotes a line that
    it cannot parse.
    """
    overflow: Literal["file", "lines"] = "file"
    """The treatment of output over the limit: saved to a file, or truncated with the number of missing lines."""
    exit_line: bool = False  # the output of a successful command ends with a line that contains the exit code
    expects_output: bool = True  # the record contains whether the command was expected to print something
    notice_on_new_line: bool = True  # a notice in the recorded stderr begins with a line break
    killed_at_timeout: frozenset[str] = frozenset()
    """Programs that are killed at their timeout instead of being moved to the background."""
    tenths: bool = False  # durations are shown with one decimal place
    started_text: str = BACKGROUND_STARTED  # the message for a command that starts in the background
    moved_text: str = ""
    """The message for a command that is moved to the background at its timeout; if empty, `started_text` is used."""
    moved_keeps_output: bool = False
    """True if the result of a moved command contains its output so far, and its record contains the timeout."""
    records_auto_move: bool = False  # the record of a moved command states that it was moved automatically
    environment: Mapping[str, str] = field(default_factory=dict)  # environment variables for commands
    error_slack: int = 0
    """The number of characters by which the output of a failed command may exceed the limit before it is cut."""
    exports_session_id: bool = False  # add the session id to the environment
    rejects_control_characters: bool = False  # a command with characters that a terminal hides is invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskValues:
    """Values for background tasks."""

    notifies: bool = True
    """True if the model is notified when a task ends by itself."""
    notice_tail: str = ""
    """Text appended to such a notification. The placeholder `{path}` is replaced."""
    forgets_stopped: bool = True
    """True if a stopped task can no longer be found."""
    forgets_ended: bool = False
    """True if a task that ended by itself can no longer be stopped, as if it were unknown."""
    loose_output: bool = False  # TaskOutput ignores unknown fields and refuses a missing task itself
    old_input: bool = False
    """True if a task may also be identified by `bash_id`, the input of an older tool."""
    has_exit_line: bool = False  # the output file of a command ends with a line about its end


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanValues:
    """Values for AskUserQuestion, EnterPlanMode and ExitPlanMode."""

    enter_question: str | None = None  # the question asked before planning begins; None for no question
    exit_question: str = "Exit plan mode?"
    answer_question: str = "Answer questions?"
    answered: str = "Your questions have been answered: {answers}. You can now continue with these answers in mind."
    unanswered: str = "The user did not answer the questions."
    """The message if the user does not answer; if empty, `answered` is used without answers."""
    source: PlanSource = "file"
    """The source of the plan: its file if that exists, the input, or a file that must exist."""
    records_edited: bool = False  # the record notes that the plan differs from the one in the file


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchValues:
    """Values for WebFetch."""

    undotted_host: str = (
        "WebFetch cannot fetch localhost or other hostnames without a dot."
        " To reach a local server, use Bash with curl instead."
    )
    has_offset: bool = True  # a long page can be continued at an offset


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
    exact_matcher: str = r"[A-Za-z0-9_\-, |]*"
    """A pattern for matchers that are a list of names. Any other matcher is a regular expression."""
    separators: str = "|,"  # the characters that separate the names in a list
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
    input_needs_decision: bool = False  # a changed input is used only together with a decision
    updates_output: bool = True  # the output of any tool can be replaced, not only the output of MCP tools
    expands_home: bool = True  # `~/` in the path of a file tool is the home folder
    honours_ask: bool = True  # `ask` leads to a question; otherwise only if another handler allows the call
    honours_defer: bool = True
    allow_is_final: bool = False  # `allow` takes precedence over deny rules
    uses_last_reason: bool = False  # a refusal uses the last handler's reason, even if that handler gave none
    blocked_text: str = "[{command}]: {words}"
    """The reason for exit code 2 before a call, inserted into `Refusals.hook_denied`."""
    max_stop_blocks: int | None = 8  # the maximum number of consecutive times that hooks can prevent a turn from ending
    summarizes_stop: bool = True  # the transcript has a line for each time a turn ends
    records_prompt_outcome: bool = True  # the record of a blocked prompt contains its outcome
    invalid_input: str = ""
    """The message if an input that a hook returned is invalid; if empty, the same as for the model's inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptShape:
    """The format of transcript records."""

    version: str  # the `version` field of records
    parent_is_own_call: bool  # the parent of a result is the record of its call, not the previous record
    envelope_last: bool  # the folder, session and version follow the content of a record instead of preceding it
    entrypoint: bool  # records state how the client was started
    no_branch: str  # the branch recorded outside a repository
    prompt_ids: bool  # the user records in a turn share an id, and prompts contain the permission mode
    prompt_source: bool  # prompts record their source
    turn_position: bool  # prompts are numbered
    companions_aside: bool  # successful results inside subagents have a structured `toolUseResult`
    hooks: HookLines
    rendered: bool  # attachments contain the text that the model received
    final_stop: bool  # every block of a message has the stop reason, not only the last one
    blocks_numbered: bool  # blocks record their position and that a model produced them
    decisions: bool  # results contain the permission decision
    turn_companions: bool  # notes beside a result are marked as belonging to it
    times_rise: bool  # no two records have the same time, because the client resumes from the latest one
    last_prompt: LastPrompt
    agents: Layout
    agent_digits: int  # the number of digits in a subagent's id


@dataclass(frozen=True, slots=True, kw_only=True)
class McpValues:
    """Values for calls to MCP servers."""

    error: str = "MCP error {code}: {message}"  # the message for a protocol error
    timed_out: str = "MCP error -32001: Request timed out"
    not_connected: str = "Not connected"
    restarts: bool = False  # the next call restarts a server that has crashed
    joins_errors: bool = False  # return all text in an error result, not only the first block
    saves_binary: bool = False  # save content that a conversation cannot contain to a file. Otherwise it is dropped
    keeps_other_blocks: bool = False  # structured content replaces only text, not images, links and resources
    records_text_metadata: bool = False  # the `_meta` of text blocks
    names_images: bool = False  # save images as well, and list the files in the result
    inline_limit: int | None = None
    """The maximum number of characters that stay in the conversation; None if no limit was observed."""
    token_limit: int | None = None
    """The number of tokens above which a result is replaced by a notice that names a file; None for no limit."""
    checks_images: bool = False  # replace unreadable images with a notice
    meta: frozenset[str] = frozenset()  # the fields of `mcpMeta` that are recorded beside a result
    marks_writers: bool = False  # records mark tools that do not declare themselves read-only
    description_limit: int = 2_048
    connect_timeout: float = 30.0
    call_timeout: float = 600.0
    """The timeout for a call in seconds, unless the server or the environment sets another. Clients wait a day."""
    idle_remote: float | None = None
    """The seconds without a message or progress after which a remote server times out; None for no limit."""
    idle_local: float | None = None
    approval_requires_input: bool = True  # a permission prompt tool that allows a call must return the input
    approval_invalid: str | None = None
    """The message for an invalid answer from that tool; None for the message of the validation library."""
    approval_interrupts: bool = False
    """True if an interrupting refusal uses the message for a user's refusal instead of its own."""
    approval_timeout: float | None = None
    """The timeout in seconds for the permission prompt tool; None for the timeout of any call."""
    approval_timed_out: str | None = None
    """The message if that tool times out or its connection breaks; None for the message of any call."""
    approval_unanswered: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentValues:
    """Values for the tool that starts subagents, and for the format of its results."""

    name: str
    models: tuple[str, ...]  # the short model names that the input accepts
    needs_kind: bool  # `subagent_type` is required
    resumes: bool  # the input may identify an agent to continue. Later clients use SendMessage for that
    isolates: bool  # an agent may run in its own worktree
    has_effort: bool
    in_background: bool  # agents run in the background by default
    depth: int  # the maximum nesting depth of agents that start agents
    token_word: str | None  # the label for the token count in a result; None if tokens are not counted
    reports_kind: bool  # results contain the agent type, the model and the number of calls to each tool
    framed: bool  # a report is indented below a heading, in one block with the rest
    completion_word: str  # the verb used in a notification that an agent has finished
    has_note: bool  # notifications explain what a report is
    notice_tail: str  # text appended to a notification. The placeholder `{path}` is replaced
    records_call: bool  # the metadata beside a transcript contains the call and the depth
    records_request: bool  # the metadata also contains how the agent was requested, and that it has finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The behaviour of one client version: messages, policies and record formats."""

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
        """Return the profile with the values that apply to one model; None selects the default model."""
        return replace(self, availability=self.availability.for_model(model), files=self.files.for_model(model))
