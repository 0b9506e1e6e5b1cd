"""Work in the background: what differs between client versions in stopping it and telling of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskValues:
    """Texts and policies of the tools for background tasks of one client version."""

    notifies: bool = True
    """The model is told when a task ends by itself."""
    notice_tail: str = ""
    """What follows such a notice; `{path}` is filled in."""
    forgets_stopped: bool = True
    """A task that was stopped is not found any more."""
    old_input: bool = False
    """The task to look at may also be named by `bash_id`, as an older tool had it."""


_V2_1_325 = TaskValues()
_V2_1_197 = replace(_V2_1_325, old_input=True)
_V2_1_80 = replace(_V2_1_325, notice_tail="\nRead the output file to retrieve the result: {path}")
_V2_0_65 = replace(_V2_1_80, notifies=False, notice_tail="", forgets_stopped=False)

TASKS: Mapping[str, TaskValues] = {
    "seed": _V2_0_65,
    "2.0.65": _V2_0_65,
    "2.1.80": _V2_1_80,
    "2.1.197": _V2_1_197,
    "2.1.325": _V2_1_325,
}
