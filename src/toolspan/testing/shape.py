"""What client versions write differently, and ids that come out the same every time.

In: a version such as `2.1.80`. Out: a `Shape`, whose fields name the differences. The boundaries
lie between versions that were observed; the real change may be earlier or later. Knows nothing of
sessions; `ledger.py` and `transcripts.py` apply the shape.
"""

import re
from dataclasses import dataclass
from typing import Literal

Layout = Literal["inline", "beside", "nested"]
"""Where subagents are kept: in the session's file, in files beside it, in the session's folder."""

_MODELS = (
    ((2, 1, 250), "claude-opus-5-5"),
    ((2, 1, 100), "claude-opus-4-8"),
    ((2, 1), "claude-sonnet-4-6"),
    ((2,), "claude-sonnet-4-5-20250929"),
    ((), "claude-sonnet-4-20250514"),
)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The differences between client versions that a transcript shows."""

    layout: Layout
    model: str
    linear: bool
    """Results hang on the line before, and do not name the line that asked."""
    envelope_last: bool
    """Folder, session and version stand after what the line tells; before, in front of it."""
    prompt_ids: bool
    companions_aside: bool
    """Successes inside subagents have structured companions; later clients leave them out."""
    attachments: bool
    """Hooks leave attachments; before, they left progress lines or nothing."""
    final_stop: bool
    """Every block of a message carries its final stop reason and token counts; before, the last."""
    decisions: bool
    """Denial kinds are recorded."""
    blocks_numbered: bool
    """Blocks carry their position, results the decision that let them run."""
    arrows: bool
    """Read numbers lines with an arrow; later clients with a tab."""
    snippets: bool
    """Edits answer with a numbered snippet of the file; later clients with one sentence."""


def shape_of(version: str) -> Shape:
    """How a client of this version writes."""
    numbers = tuple(int(part) for part in version.split("."))
    return Shape(
        layout="nested" if numbers >= (2, 1, 2) else "beside" if numbers >= (2,) else "inline",
        model=next(model for since, model in _MODELS if numbers >= since),
        linear=numbers < (2, 1, 1),
        envelope_last=numbers >= (2, 1, 80),
        prompt_ids=numbers >= (2, 1, 80),
        companions_aside=numbers < (2, 1, 80),
        attachments=numbers >= (2, 1, 97),
        final_stop=numbers >= (2, 1, 97),
        decisions=numbers >= (2, 1, 204),
        blocks_numbered=numbers >= (2, 1, 250),
        arrows=numbers < (2, 1, 86),
        snippets=numbers < (2, 1),
    )


def project_name(cwd: str) -> str:
    """The name of a project's folder: its path with a dash for all but letters and digits."""
    return re.sub(r"[^A-Za-z0-9]", "-", cwd)
