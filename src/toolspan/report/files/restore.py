"""A file given back the content it once had.

In: a path, a recovered content, and the file on disk. Out: a `Plan` that can be shown before
anything happens, and `carry_out`, which writes all of it or nothing. Line ends, encoding and byte
order mark stay those of the file on disk, since transcripts hold plain text only. What was there
is kept beside it unless that is not wanted. Read `plan_for` first.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

from toolspan.disk.load import Loaded, Stamp, load, look
from toolspan.disk.retire import retire
from toolspan.disk.swap import swap
from toolspan.disk.text import Codec, decode, encode, like
from toolspan.errors import ToolError, ToolspanError
from toolspan.report.files.content import Recovered
from toolspan.report.files.effect import ABSENT, Absent, Content
from toolspan.report.files.place import spelled
from toolspan.report.files.story import diff_between, known_lines

Action = Literal["write", "create", "delete", "nothing"]

KEPT = ".before-restore"
"""What is put behind the name of a file that is kept; a number follows when that is taken."""


class CannotRestore(ToolspanError):  # noqa: N818 - reads as a noun where it is caught
    """The content is not known well enough, or the place is not fit for it."""


class Plan(Struct, frozen=True, kw_only=True):
    """What would be done to which file."""

    path: Path
    action: Action
    data: bytes | None
    """The new content; None: there is to be no file."""
    diff: str
    stamp: Stamp | None
    """How the file on disk looked; None: there is none."""
    mode: int
    old: bytes


def check(found: Recovered, *, force: bool, elsewhere: bool) -> None:
    """Refuse a content that is not sure enough.

    Raises:
        CannotRestore: it is not; the message says what could be done about it.
    """
    reasons = "; ".join(found.reasons)
    if found.confidence == "unknown":
        raise CannotRestore(f"its content at that time is not known: {reasons}")
    if found.confidence == "partial" and not (force and elsewhere):
        raise CannotRestore(
            f"only parts of it are known ({reasons}); --force with --output writes those parts"
        )
    if found.confidence == "doubtful" and not force:
        raise CannotRestore(f"its content is doubtful ({reasons}); --force restores it anyway")


def plan_for(path: Path, found: Recovered) -> Plan:
    """What giving the file that content means.

    Raises:
        CannotRestore: the place is not fit for a file.
        ToolError: what is there cannot be read.
    """
    status = look(path)
    if status is None and not path.parent.is_dir():
        folder = spelled(str(path.parent))
        raise CannotRestore(f"{folder}: no such folder; make it, or name a place with --output")
    there = load(path) if status is not None else None
    wanted: Content = ABSENT if isinstance(found.content, Absent) else known_lines(found)
    data = _bytes(wanted, there)
    return Plan(
        path=path,
        action=_action(there, data),
        data=data,
        diff=diff_between(_shown(there), wanted if data is None else _plain(data), str(path)),
        stamp=there.stamp if there else None,
        mode=status.st_mode if status else 0o644,
        old=there.data if there else b"",
    )


def carry_out(plan: Plan, *, backup: bool) -> Path | None:
    """Do it; gives where the old content is kept.

    Raises:
        ToolError: it could not be done; the file is as it was.
    """
    if plan.action == "nothing":
        return None
    kept = _free_name(plan.path) if backup and plan.stamp is not None else None
    if plan.data is not None:
        _write(plan, plan.data, kept)
    elif plan.stamp is not None:
        retire(plan.path, plan.stamp, kept.name if kept else None)
    return kept


def _write(plan: Plan, data: bytes, kept: Path | None) -> None:
    """The old content is kept first, so that at no time it is nowhere."""
    if kept is None:
        swap(plan.path, data, plan.stamp)
        return
    swap(kept, plan.old, None)
    try:
        with suppress(OSError):
            kept.chmod(plan.mode & 0o777)
        swap(plan.path, data, plan.stamp)
    except ToolError:
        with suppress(OSError):
            kept.unlink()
        raise


def _action(there: Loaded | None, data: bytes | None) -> Action:
    if there is None:
        return "nothing" if data is None else "create"
    if data is None:
        return "delete"
    return "nothing" if there.data == data else "write"


def _bytes(content: Content, there: Loaded | None) -> bytes | None:
    if isinstance(content, Absent):
        return None
    try:
        if there is None:
            return encode(content, Codec("utf-8"))
        old = decode(there.data)
        return encode(like(old, content), old.codec)
    except UnicodeEncodeError as error:
        raise CannotRestore(
            f"its content has half a character at {error.start}, which no file can hold"
        ) from error


def _shown(there: Loaded | None) -> Content:
    return ABSENT if there is None else _plain(there.data)


def _plain(data: bytes) -> str:
    return decode(data).shown


def _free_name(path: Path) -> Path:
    target = Path(os.path.realpath(path))
    name = target.with_name(target.name + KEPT)
    number = 1
    while os.path.lexists(name):
        number += 1
        name = target.with_name(f"{target.name}{KEPT}-{number}")
    return name
