"""Types for structured results: text, errors, MCP, shell and files.

Most are Claude Code's (`toolUseResult`); `CommandResult` and `PatchResult` are for clients that record less.

The keys that identify a type are required, so that other objects do not match it; all other keys
have defaults, because versions differ in the keys they write. Closed vocabularies (status, mode)
are plain strings, so that a new value does not invalidate the rest. Each format maps its tools to types.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct, field

from toolspan.types.hunk import Hunk
from toolspan.types.inputs import Number, TextEdit, decode_json_or_text

_ERROR_PREFIX = "Error: "
_EXIT_CODE = re.compile(r"(?:Error: )?Exit code (-?\d{1,9})(?:\n|\Z)")


class ToolResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """The structured result of one tool, which the client records beside the text sent to the model."""


StructuredResult = ToolResult


class TextResult(ToolResult, frozen=True, kw_only=True):
    """A result that is plain text."""

    text: str


class ErrorText(ToolResult, frozen=True, kw_only=True):
    """The message of a call that failed, was denied or was interrupted."""

    text: str

    @property
    def message(self) -> str:
        """The message without the client's leading `Error: `."""
        return self.text.removeprefix(_ERROR_PREFIX)

    @property
    def exit_code(self) -> int | None:
        """The exit code at the beginning of the text, if there is one."""
        matched = _EXIT_CODE.match(self.text)
        return int(matched[1]) if matched else None


class UnknownResult(ToolResult, frozen=True, kw_only=True):
    """A result that matches no type."""

    data: bytes

    def json(self) -> Any:
        """Return the decoded value, or the text if the bytes are not JSON."""
        return decode_json_or_text(self.data)


class BlockSource(Struct, frozen=True, kw_only=True):
    """The data of an image or document in a content block."""

    type: str = ""
    media_type: str | None = None
    data: str | None = None
    url: str | None = None


class ContentBlock(Struct, frozen=True, kw_only=True, rename="camel"):
    """One content block of a result: text, an image or a resource."""

    type: str
    text: str | None = None
    source: BlockSource | None = None
    data: str | None = None
    mime_type: str | None = None
    uri: str | None = None
    name: str | None = None
    title: str | None = None
    description: str | None = None
    resource: Any = None
    annotations: Any = None
    citations: Any = None
    meta: Any = field(default=None, name="_meta")


class McpResult(ToolResult, frozen=True, kw_only=True):
    """The content blocks that an MCP tool returned."""

    blocks: tuple[ContentBlock, ...]


class McpObject(ToolResult, frozen=True, kw_only=True):
    """An object that an MCP tool returned."""

    data: dict[str, Any]


class CommitFact(Struct, frozen=True, kw_only=True):
    """A commit that a command created."""

    sha: str = ""
    kind: str | None = None
    branch: str | None = None


class GitOperation(Struct, frozen=True, kw_only=True):
    """The changes that a command made to a git repository."""

    commit: CommitFact | None = None
    push: dict[str, Any] | None = None
    branch: dict[str, Any] | None = None
    pr: dict[str, Any] | None = None


class EditedFile(Struct, frozen=True, kw_only=True, rename="camel"):
    """A file that a command changed, created or deleted."""

    file_path: str = ""
    hunks: tuple[Hunk, ...] = ()
    created: bool = False
    deleted: bool = False


class BashEditDiff(Struct, frozen=True, kw_only=True, rename="camel"):
    """The files of a git working tree that a command changed, without those that git ignores."""

    files: tuple[EditedFile, ...] = ()
    """The first files, unless they are binary or have too many changed lines."""
    more_files: int = 0
    """The number of changed files that are not in `files`."""
    changed_files: tuple[str, ...] = ()


class BashResult(ToolResult, frozen=True, kw_only=True):
    """The output of a command; newer clients put both streams into `stdout`."""

    stdout: str
    stderr: str = ""
    interrupted: bool = False
    is_image: bool = False
    exit_code: int | None = None
    """The exit code if the text states it; clients do not record it for successful commands."""
    return_code_interpretation: str | None = None
    no_output_expected: bool | None = None
    background_task_id: str | None = None
    backgrounded_by_user: bool | None = None
    assistant_auto_backgrounded: bool | None = None
    background_cwd_hint: str | None = None
    background_ends_with_final_response: bool | None = None
    timed_out_after_ms: Number | None = None
    raw_output_path: str | None = None
    persisted_output_path: str | None = None
    persisted_output_size: int | None = None
    structured_content: tuple[Any, ...] | None = None
    sandbox: bool | None = None
    dangerously_disable_sandbox: bool | None = None
    stale_read_file_state_hint: str | None = None
    gh_rate_limit_hint: str | None = None
    git_operation: GitOperation | None = None
    token_saver_output: str | None = None
    bash_edit_diff: BashEditDiff | None = None


class CommandResult(ToolResult, frozen=True, kw_only=True, rename=None):
    """The output of a command that has exited or is still running."""

    output: str = ""
    exit_code: int | None = None
    wall_ms: float | None = None
    process: str | None = None
    """The number of a process that is still running."""


class BashOutputResult(ToolResult, frozen=True, kw_only=True):
    """The output of a background shell since the previous request."""

    status: str
    shell_id: str = ""
    command: str | None = None
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    stdout_lines: int | None = None
    stderr_lines: int | None = None
    timestamp: str | None = None


class KillShellResult(ToolResult, frozen=True, kw_only=True, rename=None):
    """A background shell that was stopped."""

    shell_id: str
    message: str = ""
    success: bool | None = None


class TaskStopResult(ToolResult, frozen=True, kw_only=True, rename=None):
    """A background task that was stopped."""

    task_id: str
    message: str = ""
    task_type: str | None = None
    command: str | None = None


class BackgroundTask(Struct, frozen=True, kw_only=True):
    """A background command or agent as TaskOutput reports it."""

    task_id: str = ""
    task_type: str | None = None
    status: str | None = None
    description: str | None = None
    output: str | None = None
    prompt: str | None = None
    result: str | None = None
    exit_code: int | None = field(default=None, name="exitCode")
    error: str | None = None


class TaskOutputResult(ToolResult, frozen=True, kw_only=True, rename=None):
    """The state of a background task, and its output."""

    retrieval_status: str
    task: BackgroundTask | None = None


class TextFile(Struct, frozen=True, kw_only=True, rename="camel"):
    """The lines of a file that were read."""

    file_path: str = ""
    """The path; empty if only the text sent to the model is recorded."""
    content: str = ""
    num_lines: int | None = None
    start_line: int | None = None
    total_lines: int | None = None
    truncated_by_token_cap: bool | None = None


class ReadText(ToolResult, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """A text file that was read."""

    file: TextFile
    artifact_read: Any = None


class Dimensions(Struct, frozen=True, kw_only=True, rename="camel"):
    """The original and the displayed size of an image."""

    original_width: Number | None = None
    original_height: Number | None = None
    display_width: Number | None = None
    display_height: Number | None = None
    width: Number | None = None
    height: Number | None = None


class ImageFile(Struct, frozen=True, kw_only=True, rename="camel"):
    """A base64-encoded image."""

    base64: str = ""
    type: str = ""
    original_size: int | None = None
    dimensions: Dimensions | None = None
    file_path: str | None = None


class ReadImage(ToolResult, frozen=True, kw_only=True, tag_field="type", tag="image"):
    """An image that was read."""

    file: ImageFile


class CellImage(Struct, frozen=True, kw_only=True):
    """An image in the output of a notebook cell."""

    image_data: str = ""
    media_type: str = ""


class ResultCellOutput(Struct, frozen=True, kw_only=True):
    """An output of a notebook cell."""

    output_type: str = ""
    text: str | None = None
    image: CellImage | None = None


class ResultCell(Struct, frozen=True, kw_only=True):
    """One cell of a notebook."""

    cell_type: str = field(default="", name="cellType")
    source: str | tuple[str, ...] = ""
    cell_id: str | None = None
    execution_count: int | None = None
    language: str | None = None
    outputs: tuple[ResultCellOutput, ...] = ()


class NotebookFile(Struct, frozen=True, kw_only=True, rename="camel"):
    """The cells of a notebook."""

    file_path: str = ""
    cells: tuple[ResultCell, ...] = ()


class ReadNotebook(ToolResult, frozen=True, kw_only=True, tag_field="type", tag="notebook"):
    """A notebook that was read."""

    file: NotebookFile


class PdfFile(Struct, frozen=True, kw_only=True, rename="camel"):
    """A base64-encoded PDF."""

    file_path: str = ""
    base64: str = ""
    original_size: int | None = None


class ReadPdf(ToolResult, frozen=True, kw_only=True, tag_field="type", tag="pdf"):
    """A PDF that was read as a whole."""

    file: PdfFile


class PartsFile(Struct, frozen=True, kw_only=True, rename="camel"):
    """The folder into which PDF pages were extracted as images."""

    file_path: str = ""
    original_size: int | None = None
    count: int | None = None
    output_dir: str | None = None


class ReadParts(ToolResult, frozen=True, kw_only=True, tag_field="type", tag="parts"):
    """PDF pages that were read as images."""

    file: PartsFile
    first_page: int | None = None
    pages: tuple[Any, ...] | None = None


class UnchangedFile(Struct, frozen=True, kw_only=True, rename="camel"):
    """The path of a file that the model has already read."""

    file_path: str = ""


class ReadUnchanged(ToolResult, frozen=True, kw_only=True, tag_field="type", tag="file_unchanged"):
    """A file that was not sent again because it has not changed."""

    file: UnchangedFile
    source: str | None = None


class GitDiff(Struct, frozen=True, kw_only=True):
    """The changes to a file relative to git, as a remote host shows them."""

    filename: str = ""
    status: str | None = None
    additions: int | None = None
    deletions: int | None = None
    changes: int | None = None
    patch: str | None = None
    repository: str | None = None


class EditResult(ToolResult, frozen=True, kw_only=True):
    """A single text replacement in a file."""

    file_path: str
    old_string: str
    new_string: str
    original_file: str | None = None
    structured_patch: tuple[Hunk, ...] = ()
    user_modified: bool | None = None
    replace_all: bool | None = None
    git_diff: GitDiff | None = None
    stale_recovered: bool | None = None
    content_not_in_model_context: bool | None = None
    staged: bool | None = None


class MultiEditResult(ToolResult, frozen=True, kw_only=True):
    """Several text replacements in a file."""

    file_path: str
    edits: tuple[TextEdit, ...]
    original_file_contents: str | None = None
    original_file: str | None = None
    structured_patch: tuple[Hunk, ...] = ()
    user_modified: bool | None = None


class WriteResult(ToolResult, frozen=True, kw_only=True):
    """A file that was written as a whole; `type` is create or update."""

    type: str
    file_path: str
    content: str | None = None
    original_file: str | None = None
    structured_patch: tuple[Hunk, ...] = ()
    user_modified: bool | None = None
    git_diff: GitDiff | None = None
    memdir_stamped: bool | None = None
    staged: bool | None = None


class PatchedFile(Struct, frozen=True, kw_only=True):
    """The change to one file."""

    type: str = ""
    content: str | None = None
    unified_diff: str | None = None
    move_path: str | None = None


class PatchResult(ToolResult, frozen=True, kw_only=True, rename=None):
    """The result of a patch."""

    output: str = ""
    exit_code: int | None = None
    success: bool | None = None
    changes: dict[str, PatchedFile] = {}
    """The changes by path; empty if only the output text describes them."""


class NotebookEditResult(ToolResult, frozen=True, kw_only=True, rename=None):
    """A notebook cell that was changed."""

    new_source: str
    edit_mode: str | None = None
    old_source: str | None = None
    cell_id: str | None = None
    cell_number: int | None = None
    cell_type: str | None = None
    language: str | None = None
    error: str | None = None
    notebook_path: str | None = None
    original_file: str | None = None
    updated_file: str | None = None


class GlobResult(ToolResult, frozen=True, kw_only=True):
    """The files whose names match a pattern."""

    filenames: tuple[str, ...]
    num_files: int | None = None
    """The number of matches, which may exceed the number of listed files."""
    duration_ms: Number | None = None
    truncated: bool = False
    total_matches: int | None = None
    count_is_complete: bool | None = None


class GrepResult(ToolResult, frozen=True, kw_only=True):
    """The files, lines or counts that match a pattern."""

    filenames: tuple[str, ...]
    num_files: int | None = None
    mode: str | None = None
    """content, files_with_matches or count; None in old versions."""
    content: str | None = None
    num_lines: int | None = None
    num_matches: int | None = None
    total_files: int | None = None
    total_lines: int | None = None
    applied_limit: int | None = None
    applied_offset: int | None = None


class LsEntries(ToolResult, frozen=True, kw_only=True):
    """The entries of a folder as a list; LS usually returns plain text."""

    entries: tuple[str, ...]


class LspResult(ToolResult, frozen=True, kw_only=True):
    """The response from a language server."""

    operation: str
    result: Any = None
    file_path: str | None = None
    result_count: int | None = None
    file_count: int | None = None
