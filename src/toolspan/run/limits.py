"""Outputs too large for the conversation: the whole goes to a file, the model gets its head."""

from pathlib import Path
from typing import NamedTuple

from toolspan.ids import CallId

PREVIEW = 2_000
ERROR_LIMIT = 10_000


class Spilled(NamedTuple):
    """What the model gets instead, and where the whole is; no path when it could not be kept."""

    text: str
    path: Path | None


def spill(
    text: str, folder: Path, call_id: CallId, *, ending: str = ".txt", most: int = ERROR_LIMIT
) -> Spilled:
    """Keep the whole in a file, and give the frame that says where it is.

    `most` is how many characters of the text may stay, if that is less than usual.
    """
    path = folder / f"{file_name(call_id)}{ending}"
    data = text.encode()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_bytes(data)
    except OSError as error:
        return Spilled(
            middle_cut(text, min(most, ERROR_LIMIT)) + f"\n[Not kept whole: {error}]", None
        )
    return Spilled(frame(text, len(data), path, min(most, PREVIEW)), path)


def frame(text: str, size: int, path: Path, most: int = PREVIEW) -> str:
    """How a spilled output is announced."""
    part = "2KB" if most == PREVIEW else f"{most} characters"
    return (
        f"<persisted-output>\nOutput too large ({kilobytes(size)})."
        f" Full output saved to: {path}\n\n"
        f"Preview (first {part}):\n{preview(text, most)}\n...\n</persisted-output>"
    )


def preview(text: str, most: int = PREVIEW) -> str:
    """The beginning of a text, up to a line end when there is one in its second half."""
    head = text[:most]
    cut = head.rfind("\n")
    return head[:cut] if cut > most // 2 else head


def kilobytes(size: int) -> str:
    """A size in words: `106.3KB`."""
    if size < 1024 * 1024:
        return f"{size / 1024:.1f}".removesuffix(".0") + "KB"
    return f"{size / 1024 / 1024:.1f}".removesuffix(".0") + "MB"


def middle_cut(text: str, limit: int) -> str:
    """The first and last part of a text that is over the limit."""
    if len(text) <= limit:
        return text
    half = limit // 2
    gone = len(text) - 2 * half
    return f"{text[:half]}\n\n... [{gone} characters truncated] ...\n\n{text[-half:]}"


def file_name(call_id: CallId) -> str:
    """The id, with nothing in it that could lead out of the folder."""
    safe = "".join(c if c.isalnum() or c in "_-" else "_" for c in call_id)
    return safe[:120] or "call"
