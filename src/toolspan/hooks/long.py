"""Words of a handler that are too long for the model: the whole goes to a file."""

import uuid
from pathlib import Path

LIMIT = 10_000
_PREVIEW = 2_000


def shortened(text: str, folder: Path) -> str:
    """The text; over the limit its beginning, and where the rest is."""
    if len(text) <= LIMIT:
        return text
    path = folder / "hook-results" / f"{uuid.uuid4()}.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        return f"{text[:LIMIT]}\n[{len(text) - LIMIT} characters dropped; not kept: {error}]"
    return (
        f"<persisted-output>\nOutput too large ({len(text)} characters)."
        f" Full output saved to: {path}\n\nPreview:\n{text[:_PREVIEW]}\n...\n</persisted-output>"
    )
