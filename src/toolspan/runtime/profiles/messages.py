"""The texts that differ between client versions. They decide nothing; the behaviour is in `base.py`.

Placeholders such as `{name}` and `{path}` are replaced. The defaults are the texts of the newest version.
"""

from __future__ import annotations

from dataclasses import dataclass

REJECTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was"
    " a file edit, the new_string was NOT written to the file)."
)
INTERRUPT_NOTE = "[Request interrupted by user for tool use]"
UNRESOLVED_LINK = (
    "Refusing to read {path}: where it leads on disk could not be determined (a link on the way could not be examined,"
    " or the links do not resolve)."
)
STOP = " STOP what you are doing and wait for the user to tell you how to proceed."
COMMAND_STARTED = "Command running in background with ID: {id}. Output is being written to: {path}"
_READ_HINT = ". Read that file for what it has printed so far."
_NOTE_CWD = " Note: your current working directory is {cwd}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """The texts of one client version."""

    # Calls that do not run or do not finish
    unknown_tool: str = "Error: No such tool available: {name}"
    dont_ask: str = "Permission to use {name} has been denied because Claude Code is running in don't ask mode."
    hook_denied: str = "PreToolUse:{name} hook error: {reason}"
    hook_denied_silently: str = "PreToolUse:{name} hook error: Blocked by hook"
    cancelled: str = REJECTED + STOP  # the call had not started
    interrupted: str = REJECTED + STOP  # the call was running
    no_output: str = "({name} completed with no output)"

    # Files and searches
    missing: str = "File does not exist." + _NOTE_CWD
    read_missing: str = "File does not exist." + _NOTE_CWD
    missing_elsewhere: str = ""  # appended if the current folder is not the project folder
    unreadable_folder: str = "EISDIR: illegal operation on a directory, read '{path}'"
    device: str = "Cannot read '{path}': this path names a device or process file that this tool does not read."
    empty: str = "Warning: the file exists but the contents are empty."
    null_path: str = "{tool} {field} cannot contain null bytes (\\0). Remove the null byte and try again."
    all_replaced: str = "The file {path} has been updated. All occurrences were successfully replaced."
    no_match: str = "String to replace not found in file.\nString: {old}"
    no_folder: str = "Directory does not exist: {path}." + _NOTE_CWD
    no_path: str = "Path does not exist: {path}." + _NOTE_CWD

    # Commands, questions, web pages, agents
    command_started: str = COMMAND_STARTED + _READ_HINT
    command_moved: str = (  # to the background, at its timeout
        "Command did not complete within its {seconds}s timeout and was moved to the background"
        " (ID: {id}). Output is being written to: {path}" + _READ_HINT
    )
    answered: str = "Your questions have been answered: {answers}. You can now continue with these answers in mind."
    unanswered: str = "The user did not answer the questions."
    undotted_host: str = (
        "WebFetch cannot fetch localhost or other hostnames without a dot."
        " To reach a local server, use Bash with curl instead."
    )
    agent_ended: str = "finished"  # the verb in the notification

    # MCP servers
    mcp_error: str = "{message}"
    mcp_timed_out: str = 'MCP server "{server}" tool "{tool}" timed out after {seconds}s'
