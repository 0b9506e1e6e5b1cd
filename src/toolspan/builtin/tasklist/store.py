"""The task list on disk, as clients keep it: one JSON file per task.

In: a folder. Out: tasks, and changes that two writers cannot make at the same time. Files are
replaced whole; what is in them and not known here stays. The highest number ever given away is
kept, so that the number of a deleted task is not given to another. Blocking: for worker threads.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from toolspan.disk.faults import fault
from toolspan.disk.load import Stamp, load, look
from toolspan.disk.swap import make_folders, swap
from toolspan.disk.words import clean
from toolspan.errors import ToolError

Fields = Mapping[str, object]

_ORDER = (
    "id", "subject", "description", "activeForm", "owner", "status", "blocks", "blockedBy",
    "metadata",
)  # fmt: skip
"""In which clients write the keys; others follow."""
STALE = "stale_file"
_LARGEST = 16 << 20
_PATIENCE = 10.0
"""Seconds to wait for another writer."""
_PAUSE = 0.01


@dataclass(frozen=True, slots=True)
class Task:
    """One task."""

    fields: Fields
    """Everything in its file."""
    stamp: Stamp | None = field(default=None, compare=False)
    """How its file looked when it was read; None: it has none yet."""

    @property
    def id(self) -> str:
        """Its number, as text."""
        return str(self.fields["id"])

    @property
    def subject(self) -> str:
        """What it is about, in short."""
        return str(self.fields.get("subject", ""))

    @property
    def description(self) -> str:
        """What it is about."""
        return str(self.fields.get("description", ""))

    @property
    def status(self) -> str:
        """How it stands."""
        return str(self.fields.get("status", "pending"))

    @property
    def owner(self) -> str | None:
        """Who does it."""
        owner = self.fields.get("owner")
        return owner if isinstance(owner, str) and owner else None

    @property
    def blocks(self) -> list[str]:
        """The tasks that wait for it."""
        return _names(self.fields.get("blocks"))

    @property
    def blocked_by(self) -> list[str]:
        """The tasks it waits for."""
        return _names(self.fields.get("blockedBy"))

    def having(self, changes: Fields) -> "Task":
        """The same task with some fields changed."""
        return replace(self, fields={**self.fields, **changes})

    def without(self, task_id: str) -> "Task":
        """The same task, not hanging on another one any more."""
        return self.having({
            "blocks": [one for one in self.blocks if one != task_id],
            "blockedBy": [one for one in self.blocked_by if one != task_id],
        })  # fmt: skip

    def data(self) -> bytes:
        """Its file's content."""
        known = {key: self.fields[key] for key in _ORDER if key in self.fields}
        whole = {**known, **self.fields}
        return clean(json.dumps(whole, indent=2, ensure_ascii=False)).encode()


def _names(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


class Store:
    """The tasks of one session."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def tasks(self) -> list[Task]:
        """All tasks, in the order of their numbers; files that hold none are passed over."""
        try:
            names = [one.name for one in self._folder.iterdir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise fault(error, "scandir", self._folder) from error
        numbers = sorted(int(stem) for name in names if (stem := _number(name)))
        return [task for number in numbers if (task := self._task(number))]

    def create(self, fields: Fields) -> Task:
        """Add a task, with the next number.

        Raises:
            ToolError: it cannot be written.
        """
        with self._alone():
            number = 1 + max([self._highest(), *(int(task.id) for task in self.tasks())])
            while True:
                try:
                    return self.put(Task({**fields, "id": str(number)}))
                except ToolError as error:
                    if error.kind != STALE:
                        raise
                    number += 1  # somebody who does not care for the lock has this one

    @contextmanager
    def changing(self) -> Iterator["Change"]:
        """The tasks, to be looked at and changed while nobody else does.

        Raises:
            ToolError: somebody else does not come to an end, or a file cannot be written; of kind
                `STALE` when somebody who does not care for the lock was faster.
        """
        with self._alone():
            yield Change(self, self.tasks())

    def put(self, task: Task) -> Task:
        """Write a task's file, if it is as it was when it was read; for `Change`."""
        return replace(task, stamp=swap(self._path(int(task.id)), task.data(), task.stamp))

    def remove(self, task: Task) -> None:
        """Delete a task's file, but not its number; for `Change`."""
        path = self._folder / ".highwatermark"
        highest = max(self._highest(), int(task.id))
        found = look(path)
        swap(path, str(highest).encode(), None if found is None else Stamp.of(found))
        self._path(int(task.id)).unlink(missing_ok=True)

    def _task(self, number: int) -> Task | None:
        with suppress(ToolError, ValueError, RecursionError):
            loaded = load(self._path(number), _LARGEST)
            fields = json.loads(loaded.data)
            if isinstance(fields, dict):
                return Task({**fields, "id": str(number)}, loaded.stamp)
        return None

    def _highest(self) -> int:
        with suppress(OSError, ValueError):
            return int((self._folder / ".highwatermark").read_text(encoding="utf-8"))
        return 0

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.json"

    @contextmanager
    def _alone(self) -> Iterator[None]:
        make_folders(self._folder)
        path = self._folder / ".lock"
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise fault(error, "open", path) from error
        try:
            _wait_for(lock)
            yield
        finally:
            os.close(lock)  # which also lets go of it


def _wait_for(lock: int) -> None:
    latest = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > latest:
                raise ToolError("The task list is being changed by somebody else") from None
            time.sleep(_PAUSE)
        else:
            return


def _number(name: str) -> str | None:
    """The number in a task's file name."""
    stem, _, ending = name.partition(".")
    return stem if ending == "json" and stem.isascii() and stem.isdigit() else None


class Change:
    """The tasks while nobody else changes them."""

    def __init__(self, store: Store, tasks: Iterable[Task]) -> None:
        self._store = store
        self._tasks = {task.id: task for task in tasks}

    def get(self, task_id: str) -> Task | None:
        """The task of this number."""
        return self._tasks.get(task_id)

    def put(self, task: Task) -> None:
        """Keep a task as it is now."""
        if task != self._tasks[task.id]:
            self._tasks[task.id] = self._store.put(task)

    def delete(self, task: Task) -> None:
        """Delete a task; no other one hangs on it any more."""
        self._store.remove(task)
        del self._tasks[task.id]
        for other in tuple(self._tasks.values()):
            if task.id in (*other.blocks, *other.blocked_by):
                self.put(other.without(task.id))
