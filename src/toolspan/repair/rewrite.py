"""A session repaired: a new one, beside the old one, which stays as it is.

In: a transcript of Claude Code. Out: a new transcript in the same folder under a new id, with the
subagents' and the spilled outputs, and what was changed; nothing when there is nothing to change.
Read `repair` first.
"""

import os
import shutil
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from toolspan.errors import ToolspanError
from toolspan.record.encode import encode
from toolspan.record.evidence import Verdict, judged
from toolspan.record.tape import make_folder
from toolspan.repair.mend import Judge, Mended, mend
from toolspan.repair.records import Change, Record, gather
from toolspan.wire.detect import dialect_of
from toolspan.wire.paths import parse_name, session_folder
from toolspan.wire.source import source_of

_HARMLESS = frozenset({"foreign_session"})
"""Not worth a copy by itself: every client goes by the file's name."""


class Repaired(Struct, frozen=True, kw_only=True):
    """What became of a repair."""

    original: Path
    changes: list[Change]
    kept: int
    """Records of the main conversation in the new session."""
    session_id: str | None
    """The new session; None when nothing had to be changed, or nothing was to be written."""
    path: Path | None
    cwd: str | None
    """Where the session worked, and where it is gone on with."""


def repair(path: Path, *, write: bool = True) -> Repaired:
    """Make a damaged session anew; with `write=False` only tell what would be changed.

    Raises:
        SourceError: it cannot be read.
        ToolspanError: it is no session of Claude Code.
        OSError: the new one cannot be written.
    """
    source = source_of(path)
    if dialect_of(source) != "claude" or parse_name(path).role == "agent":
        raise ToolspanError(f"{path}: only sessions of Claude Code can be repaired")
    old, new = parse_name(path).stem, str(uuid.uuid4())
    mended = _mended(path, old, new, lambda calls: judged(path, calls))
    agents = {one: _mended(one, old, new, _nobody_knows) for one in _agents(path)}
    changes = [*mended.changes, *_of_agents(agents)]
    if all(change.code in _HARMLESS for change in changes):
        changes = []
    target = path.with_name(f"{new}.jsonl") if changes and write else None
    if target is not None:
        _write(target, mended.records)
        _write_beside(session_folder(path), session_folder(target), agents)
    return Repaired(
        original=path,
        changes=changes,
        kept=len(mended.records),
        session_id=new if target else None,
        path=target,
        cwd=_cwd(mended.records),
    )


def _mended(path: Path, old: str, new: str, judge: Judge) -> Mended:
    records, damage = gather(source_of(path))
    mended = mend(records, old, new, judge)
    return Mended(mended.records, [*damage, *mended.changes])


def _nobody_knows(calls: Iterable[str]) -> Mapping[str, Verdict]:
    return {call: Verdict("unknown") for call in calls}


def _agents(path: Path) -> list[Path]:
    folder = session_folder(path) / "subagents"
    return sorted(one for one in folder.rglob("*.jsonl") if parse_name(one).role == "agent")


def _of_agents(agents: Mapping[Path, Mended]) -> list[Change]:
    return [
        Change(change.code, change.line, f"{path.stem}: {change.words}", change.count)
        for path, mended in agents.items()
        for change in mended.changes
    ]


def _write(target: Path, records: Iterable[Record]) -> None:
    """All of it or nothing: under another name first, forced to the disk, then renamed."""
    make_folder(target.parent)
    begun = target.with_name(f".{target.name}.part")
    try:
        descriptor = os.open(begun, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(encode(record.fields) + b"\n" for record in records)
            file.flush()
            os.fsync(file.fileno())
        begun.rename(target)
    finally:
        begun.unlink(missing_ok=True)


def _write_beside(old: Path, new: Path, agents: Mapping[Path, Mended]) -> None:
    """Subagents' transcripts, mended too, what tells of them, and spilled outputs."""
    for path, mended in agents.items():
        _write(new / path.relative_to(old), mended.records)
    for path in (old / "subagents").rglob("*.json"):
        copy = new / path.relative_to(old)
        make_folder(copy.parent)
        shutil.copy(path, copy)
    if (old / "tool-results").is_dir():
        shutil.copytree(old / "tool-results", new / "tool-results")


def _cwd(records: Iterable[Record]) -> str | None:
    """Clients look for a session by the folder it began in."""
    found = (record.fields.get("cwd") for record in records)
    return next((cwd for cwd in found if isinstance(cwd, str)), None)
