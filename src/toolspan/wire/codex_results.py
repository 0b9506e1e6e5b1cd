"""What Codex's calls gave back, as far as outputs and events tell.

In: nothing; these are values, made by `codex_narrow.py`. Out: one frozen struct per sort of tool.
"""

from msgspec import Struct

from toolspan.model.inputs import decode_anything


class CodexResult(Struct, frozen=True, kw_only=True):
    """What one call gave back."""


class CommandResult(CodexResult, frozen=True, kw_only=True):
    """A command that ran, or still runs."""

    output: str = ""
    exit_code: int | None = None
    wall_ms: float | None = None
    process: str | None = None
    """The number by which a process that goes on is asked for."""


class FileChange(Struct, frozen=True, kw_only=True):
    """What became of one file."""

    type: str = ""
    """add, update or delete."""
    content: str | None = None
    unified_diff: str | None = None
    move_path: str | None = None


class PatchResult(CodexResult, frozen=True, kw_only=True):
    """A patch that was applied, or was not."""

    output: str = ""
    exit_code: int | None = None
    success: bool | None = None
    changes: dict[str, FileChange] = {}
    """By path; empty where only the output tells what changed."""


class McpResult(CodexResult, frozen=True, kw_only=True):
    """What an MCP server gave back."""

    content: tuple[dict[str, object], ...] = ()
    structured: object = None
    is_error: bool | None = None
    error: str | None = None
    """Why the server could not be asked."""


class OtherResult(CodexResult, frozen=True, kw_only=True):
    """An output of another tool, as it was written."""

    data: bytes

    def json(self) -> object:
        """The decoded value; the text itself when it is not JSON."""
        return decode_anything(self.data)
