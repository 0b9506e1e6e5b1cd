"""The transcript's records: what differs between client versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

HookLines = Literal["none", "progress", "attachments"]
"""How hooks are told: not at all, by a progress line each, by attachments that say how it went."""

LastPrompt = Literal["none", "words", "leaf"]
"""Whether the last prompt is repeated at the end, and whether the last line is named with it."""

Layout = Literal["beside", "nested"]
"""Where subagents are kept: in files beside the session's, or in the session's own folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptShape:
    """The form of the records of one client version."""

    version: str
    """What records say in their `version` field."""
    parent_is_own_call: bool
    """A result hangs on the record of its own call and names it; before, on the record before."""
    envelope_last: bool
    """Folder, session and version stand after what a record tells; before, in front of it."""
    entrypoint: bool
    """Records say how the client was started."""
    no_branch: str
    """What stands for the branch outside a repository."""
    prompt_ids: bool
    """The records of a turn's user side share an id; prompts tell the permission mode."""
    prompt_source: bool
    """Prompts tell where they came from."""
    turn_position: bool
    """Prompts are counted."""
    companions_aside: bool
    """Successes inside subagents keep their structured companion; later clients leave it out."""
    hooks: HookLines
    rendered: bool
    """Attachments carry the words the model was sent."""
    final_stop: bool
    """Every block of a message carries its stop reason; before, only the last one does."""
    blocks_numbered: bool
    """Blocks carry their position, and say that a model made them."""
    decisions: bool
    """Results tell how the question of consent was answered."""
    turn_companions: bool
    """Notes beside a result say that they belong to it."""
    times_rise: bool
    """The client resumes from the record with the latest time: no two may share one."""
    last_prompt: LastPrompt
    agents: Layout
    agent_digits: int
    """Length of a subagent's id."""


_V2_0_65 = TranscriptShape(
    version="2.0.65",
    parent_is_own_call=False,
    envelope_last=False,
    entrypoint=False,
    no_branch="",
    prompt_ids=False,
    prompt_source=False,
    turn_position=False,
    companions_aside=True,
    hooks="none",
    rendered=False,
    final_stop=False,
    blocks_numbered=False,
    decisions=False,
    turn_companions=False,
    times_rise=True,
    last_prompt="none",
    agents="beside",
    agent_digits=7,
)
_V2_1_80 = replace(
    _V2_0_65,
    version="2.1.80",
    parent_is_own_call=True,
    envelope_last=True,
    entrypoint=True,
    no_branch="HEAD",
    prompt_ids=True,
    companions_aside=False,
    hooks="progress",
    last_prompt="words",
    agents="nested",
    agent_digits=17,
)
_V2_1_197 = replace(
    _V2_1_80,
    version="2.1.197",
    prompt_source=True,
    times_rise=False,
    hooks="attachments",
    final_stop=True,
    last_prompt="leaf",
)
_V2_1_325 = replace(
    _V2_1_197,
    version="2.1.325",
    turn_position=True,
    rendered=True,
    blocks_numbered=True,
    decisions=True,
    turn_companions=True,
)

TRANSCRIPT_SHAPES: Mapping[str, TranscriptShape] = {
    "seed": replace(_V2_0_65, hooks="progress"),
    "2.0.65": _V2_0_65,
    "2.1.80": _V2_1_80,
    "2.1.197": _V2_1_197,
    "2.1.325": _V2_1_325,
}
