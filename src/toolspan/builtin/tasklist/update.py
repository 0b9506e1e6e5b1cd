"""What TaskUpdate changes in the list.

In: the parsed input and the list, held. Out: which fields changed. Fields that stay as they are
do not count; tasks that do not exist are not linked.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from toolspan.builtin.tasklist.store import Change, Task

_PLAIN = ("subject", "description", "activeForm", "owner")


@dataclass(frozen=True, slots=True)
class Updated:
    """What an update did."""

    fields: tuple[str, ...]
    before: str
    """The status the task had."""
    after: str

    @property
    def moved(self) -> bool:
        """The status changed."""
        return self.before != self.after


def update(change: Change, task: Task, value: Mapping[str, object]) -> Updated:
    """Change a task as asked."""
    status = str(value.get("status", task.status))
    if status == "deleted":
        change.delete(task)
        return Updated(("deleted",), task.status, "deleted")
    changes: dict[str, object] = {
        name: value[name]
        for name in _PLAIN
        if name in value and value[name] != task.fields.get(name)
    }
    if isinstance(given := value.get("metadata"), Mapping):
        changes["metadata"] = _merged(task.fields.get("metadata"), given)
    if status != task.status:
        changes["status"] = status
    if changes:
        change.put(task.having(changes))
    links = [name for name, key in (("blocks", "addBlocks"), ("blockedBy", "addBlockedBy"))
             if _link(change, task.id, value.get(key), back=name == "blockedBy")]  # fmt: skip
    return Updated((*changes, *links), task.status, status)


def _merged(old: object, new: Mapping[str, object]) -> dict[str, object]:
    """The old values with the new ones; null takes one away."""
    kept = dict(old) if isinstance(old, Mapping) else {}
    for key, value in new.items():
        if value is None:
            kept.pop(key, None)
        else:
            kept[key] = value
    return kept


def _link(change: Change, task_id: str, others: object, *, back: bool) -> bool:
    """Let tasks wait for this one, or, `back`, this one for them; whether anything was new."""
    new = False
    for other in others if isinstance(others, list) else ():
        first, then = (str(other), task_id) if back else (task_id, str(other))
        new = _blocks(change, first, then) or new
    return new


def _blocks(change: Change, first: str, then: str) -> bool:
    blocker, blocked = change.get(first), change.get(then)
    if blocker is None or blocked is None or then in blocker.blocks:
        return False
    change.put(blocker.having({"blocks": [*blocker.blocks, then]}))
    blocked = change.get(then) or blocked  # a task may block itself
    change.put(blocked.having({"blockedBy": [*blocked.blocked_by, first]}))
    return True
