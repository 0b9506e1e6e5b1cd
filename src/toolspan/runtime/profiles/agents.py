"""Subagents: what differs between client versions in starting them and telling of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentValues:
    """The tool for subagents of one client version, and the form of what it gives."""

    name: str
    """What the tool is called."""
    models: tuple[str, ...]
    """Short names of models that an input may hold."""
    needs_kind: bool
    """The kind of agent has to be named."""
    resumes: bool
    """An input may name an agent to go on with; later clients have SendMessage for that."""
    isolates: bool
    """An agent may get a copy of the repository for itself."""
    has_effort: bool
    in_background: bool
    """Agents are sent off unless the input says that they are to be waited for."""
    depth: int
    """How far below the main conversation agents may start agents."""
    token_word: str | None
    """What the tokens are called in a result; None: nothing is counted there."""
    reports_kind: bool
    """Results name the kind, the model and how often which tool was used."""
    framed: bool
    """A report is indented, under a line that says what it is, in one block with the rest."""
    completion_word: str
    """How a notice says that an agent is done."""
    has_note: bool
    """Notices say what a report is."""
    notice_tail: str
    """What follows a notice; `{path}` is filled in."""
    records_call: bool
    """What is kept beside a transcript names the call and the depth."""
    records_request: bool
    """It also says how the agent was asked for, and that it is done."""


_V2_0_65 = AgentValues(
    name="Task",
    models=("sonnet", "opus", "haiku"),
    needs_kind=True,
    resumes=True,
    isolates=False,
    has_effort=False,
    in_background=False,
    depth=1,
    token_word=None,
    reports_kind=False,
    framed=False,
    completion_word="completed",
    has_note=False,
    notice_tail="",
    records_call=False,
    records_request=False,
)
_V2_1_80 = replace(
    _V2_0_65,
    name="Agent",
    needs_kind=False,
    isolates=True,
    token_word="total_tokens",
    notice_tail="\nFull transcript available at: {path}",
)
_V2_1_197 = replace(
    _V2_1_80,
    models=(*_V2_1_80.models, "fable"),
    resumes=False,
    depth=3,
    token_word="subagent_tokens",
    reports_kind=True,
    completion_word="finished",
    has_note=True,
    notice_tail="",
    records_call=True,
)
_V2_1_325 = replace(_V2_1_197, has_effort=True, in_background=True, framed=True, records_request=True)

AGENTS: Mapping[str, AgentValues] = {
    "seed": _V2_0_65,
    "2.0.65": _V2_0_65,
    "2.1.80": _V2_1_80,
    "2.1.197": _V2_1_197,
    "2.1.325": _V2_1_325,
}
