"""TodoWrite and the task list: what differs between client versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class TodoValues:
    """Shapes of the todo and task tools of one client version."""

    loose_items: bool = False
    """Todos may have an id and a priority, and need no active form."""
    records_nudge: bool = False
    """TodoWrite records whether the model should be reminded to verify."""
    stores_todos: bool = False
    """The todo list is also kept in a file of the client's home."""
    records_description: bool = True
    """TaskCreate records the description."""


_V2_1_325 = TodoValues()
_V2_1_197 = replace(_V2_1_325, records_description=False)
_V2_1_80 = replace(_V2_1_197, records_nudge=True)
_V2_0_65 = replace(_V2_1_80, records_nudge=False, stores_todos=True)
_SEED = replace(_V2_0_65, loose_items=True)

TODOS: Mapping[str, TodoValues] = {
    "seed": _SEED,
    "2.0.65": _V2_0_65,
    "2.1.80": _V2_1_80,
    "2.1.197": _V2_1_197,
    "2.1.325": _V2_1_325,
}
