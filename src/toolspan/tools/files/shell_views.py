"""Find the files that a command line printed or rewrote, to track which content the conversation has seen."""

from __future__ import annotations

import os
import re
import shlex
from contextlib import suppress
from pathlib import Path

from toolspan.errors import ToolError
from toolspan.runtime.context import FileState, ToolContext
from toolspan.tools.files.paths import real_path, replace_surrogates, resolve_path
from toolspan.tools.files.safe_read import read_file

_SEPARATOR = re.compile(r"\s*(?:;|&&|\n)\s*")
_UNUSUAL = re.compile(r"[|<>&$`()\\*?~{}#!\[\]]")
_SED_RANGE = re.compile(r"1,(\d+)p")
_PRINTERS = frozenset({"echo", "printf"})
_REWRITERS = re.compile(
    r"--(?:fix|write|in-place)|\b(?:black|isort|rustfmt|swiftformat)\b|\bruff\s+format\b|\bcargo\s+(?:fmt|fix)\b"
    r"|\b(?:go|terraform|dprint)\s+fmt\b|\b(?:npm\s+run|(?:pnpm|yarn|bun)(?:\s+run)?)\s+(?:format|fix|lint:fix)\b"
    r"|sed\b.*\s-[A-Za-z]*i"
)
"""Commands that rewrite files, at any position in a line."""
_SHOWN_NAMES = 5
_HEAD_LINES = 10
_MAX_BYTES = 256 << 10


def record_shell_views(command: str, ctx: ToolContext) -> None:
    """Record the files that a successful command printed, if its whole output was returned."""
    for name, limit in find_shell_views(command):
        path = resolve_path(name, ctx.cwd)
        try:
            loaded = read_file(path, _MAX_BYTES)
            line_count = loaded.data.decode("utf-8").count("\n") + 1
        except (ToolError, UnicodeDecodeError):
            continue
        if limit is not None and line_count >= limit:
            continue
        version = loaded.version
        state = FileState(loaded.digest, version.mtime_ns, version.size, whole=True, call_id=ctx.call.id)
        for key in {path, real_path(path)}:
            ctx.files.set_state(key, state)


def describe_rewritten_files(command: str, folder: Path, since_ns: int, ctx: ToolContext) -> str:
    """Return a hint about seen files that a formatter or similar command has changed, or an empty string."""
    if _REWRITERS.search(command) is None:
        return ""
    names = []
    for path in {real_path(path): path for path in ctx.files}.values():
        with suppress(OSError):
            if path.stat().st_mtime_ns >= since_ns:
                names.append(os.path.relpath(path, folder))
    if not names:
        return ""
    noun = "file" if len(names) == 1 else "files"
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    shown = replace_surrogates(", ".join(reversed(names[-_SHOWN_NAMES:])))
    return (
        f"[This command modified {len(names)} {noun} you've previously read: {shown}{more}. Call Read before editing.]"
    )


def find_shell_views(command: str) -> list[tuple[str, int | None]]:
    """Return the files that a line prints, each with the number of printed lines or None for all.

    The result is empty unless every command in the line prints the start of one file or fixed text.
    """
    views: list[tuple[str, int | None]] = []
    for part in filter(None, _SEPARATOR.split(command.strip())):
        if _UNUSUAL.search(part):
            return []
        try:
            words = shlex.split(part)
        except ValueError:
            return []
        if words and words[0] in _PRINTERS:
            continue
        view = _parse_view(words)
        if view is None:
            return []
        views.append(view)
    return views


def _parse_view(words: list[str]) -> tuple[str, int | None] | None:
    """Return the file that a command prints from its start, and the number of printed lines or None for all."""
    match words:
        case ["cat" | "nl", name] | ["cat", "-n", name]:
            limit = None
        case ["head", name]:
            limit = _HEAD_LINES
        case ["head", "-n", count, name] if count.isdecimal():
            limit = int(count)
        case ["sed", "-n", script, name] if (found := _SED_RANGE.fullmatch(script)) is not None:
            limit = int(found[1])
        case _:
            return None
    return None if name.startswith("-") else (name, limit)
