"""Hooks of ours in a client's settings: put in, and taken out as if they had never been there.

In: a settings file and the command that notes what hooks are told. Out: a `Change`, which shows
itself as a diff before it is made. What stood in the file before is kept, so that it can be put
back byte for byte; if somebody has changed the file since, only what is ours is taken out. Read
`to_install` and `to_uninstall` first.
"""

import base64
import difflib
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolspan.errors import SourceError
from toolspan.settings.handlers import BadSetting, kind_of, object_at
from toolspan.settings.trust import default_store
from toolspan.settings.write import put_bytes, put_json, turn

Version = tuple[int, ...]
EVENTS: Mapping[str, Version] = {
    "PreToolUse": (2, 0, 45),
    "PermissionRequest": (2, 0, 45),
    "PostToolUse": (2, 0, 45),
    "PostToolUseFailure": (2, 1, 80),
    "PermissionDenied": (2, 1, 197),
    "Notification": (2, 0, 45),
    "Stop": (2, 0, 45),
}
"""They tell when a call was announced, asked about, refused, ended, when a person is needed; and
the first version known to take them. A client that does not know an event does not read the rest
of the file either, permissions included: so an event is left out if the version is in doubt."""
_OURS = re.compile(r"\btoolspan\b.* hook record\b")
_SECONDS = 5
Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Change:
    """What would become of a settings file."""

    path: Path
    """Links resolved: the file itself."""
    before: bytes | None
    """None when there is no file."""
    after: bytes | None
    kept: bytes | None = None
    """What to put back some day, when that is known."""
    restores: bool = True
    """Taking out gives back exactly what was there; otherwise others have changed the file."""

    def __bool__(self) -> bool:
        return self.before != self.after

    def diff(self) -> Iterator[str]:
        """The lines that change, for a person."""
        old, new = (_lines(one) for one in (self.before, self.after))
        yield from difflib.unified_diff(old, new, str(self.path), str(self.path), lineterm="")

    def make(self, *, installs: bool) -> None:
        """Do it.

        Raises:
            SourceError: the file cannot be written, or is not as it was when this was planned.
        """
        with turn(self.path):
            if _read(self.path) != self.before:
                raise SourceError(f"{self.path}: has changed in the meantime; nothing was done")
            note = _note_of(self.path)
            if installs:
                note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                put_json(note, _noted(self))
            if self.after is None:
                self.path.unlink()
            else:
                put_bytes(self.path, self.after)
            if not installs:
                note.unlink(missing_ok=True)


def events_for(version: Version | None) -> tuple[str, ...]:
    """What a client of this version can be asked to tell; None: of any that has such hooks."""
    known = version or min(EVENTS.values())
    return tuple(event for event, since in EVENTS.items() if since <= known)


def to_install(path: Path, command: str, events: Sequence[str]) -> Change:
    """The file with our hooks; without a change when they are there as they should be.

    Raises:
        SourceError: the file cannot be read or is no JSON object.
        BadSetting: its hooks are none.
    """
    target = Path(os.path.realpath(path))
    before = _read(target)
    found = _parse(target, before)
    there = object_at(found, "hooks", path)
    others = _without(there, path)
    hooks = dict(others)
    for event in events:
        handler = {"type": "command", "command": command, "timeout": _SECONDS}
        hooks[event] = [*_groups(hooks, event), {"hooks": [handler]}]
    if _same(there, hooks):
        return Change(target, before, before)
    note = _note(target, before)
    ours = note is not None or there != others
    kept = note[0] if note is not None else None if ours else before
    restores = note is not None or not ours
    return Change(target, before, _text({**found, "hooks": hooks}, before), kept, restores)


def to_uninstall(path: Path) -> Change:
    """The file without our hooks: as it was before them, if nobody has changed it since.

    Raises:
        SourceError: the file cannot be read or is no JSON object.
        BadSetting: its hooks are none.
    """
    target = Path(os.path.realpath(path))
    before = _read(target)
    note = _note(target, before)
    if note is not None:
        return Change(target, before, note[0])
    found = _parse(target, before)
    hooks = object_at(found, "hooks", path)
    left = _without(hooks, path)
    if left == hooks:
        return Change(target, before, before)
    rest = {key: value for key, value in found.items() if key != "hooks"}
    after = _text({**found, "hooks": left} if left else rest, before)
    return Change(target, before, after, restores=False)


def listening(path: Path) -> Mapping[str, str]:
    """The events that our hooks listen to in a file, with their commands.

    Raises:
        SourceError: the file cannot be read or is no JSON object.
        BadSetting: its hooks are none.
    """
    found: dict[str, str] = {}
    for event, groups in object_at(_parse(path, _read(path)), "hooks", path).items():
        for group in groups if isinstance(groups, list) else ():
            for handler in _handlers(group):
                if is_ours(handler):
                    found[event] = str(handler["command"])
    return found


def is_ours(handler: object) -> bool:
    """Whether a handler is one that was put there by us."""
    command = handler.get("command") if isinstance(handler, Mapping) else None
    return isinstance(command, str) and _OURS.search(command) is not None


def _without(hooks: Json, path: Path) -> Json:
    """Hooks without ours, and without what is empty for that reason."""
    left: Json = {}
    for event, groups in hooks.items():
        if not isinstance(groups, list):
            raise BadSetting(f"{path}: `hooks.{event}` is a list, not {kind_of(groups)}")
        kept = [one for group in groups for one in _group_without(group)]
        if kept or not groups:
            left[event] = kept
    return left


def _groups(hooks: Json, event: str) -> Sequence[object]:
    found = hooks.get(event, [])
    return found if isinstance(found, list) else []


def _group_without(group: object) -> Sequence[object]:
    handlers = _handlers(group)
    if not isinstance(group, dict) or not any(map(is_ours, handlers)):
        return [group]
    kept = [one for one in handlers if not is_ours(one)]
    return [{**group, "hooks": kept}] if kept else []


def _handlers(group: object) -> Sequence[Mapping[str, object]]:
    found = group.get("hooks") if isinstance(group, Mapping) else None
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _same(one: Json, other: Json) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


# Files


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from error


def _parse(path: Path, data: bytes | None) -> Json:
    """The object in a file; what could be lost by writing it anew is no object to us."""
    if data is None or not data.strip():
        return {}
    try:
        found = json.loads(data.decode(), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: not JSON, and left as it is: {error}") from error
    if not isinstance(found, dict):
        raise SourceError(f"{path}: expected an object, not {kind_of(found)}")
    return found


def _once(pairs: Sequence[tuple[str, object]]) -> Json:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _text(value: Json, like: bytes | None) -> bytes:
    """An object as a file, indented as it was before."""
    old = (like or b"").decode(errors="replace")
    first = re.search(r"\n([ \t]+)\S", old)
    lines = old.splitlines()
    indent: str | int | None = first[1] if first else None if len(lines) == 1 else 2
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    ending = "" if old and not old.endswith("\n") else "\n"
    return (text + ending).encode(errors="surrogatepass")


def _lines(data: bytes | None) -> list[str]:
    return [] if data is None else data.decode(errors="replace").splitlines()


# What stood there before


def _note_of(path: Path) -> Path:
    """Where it is kept: outside of every project and of the client's own folder."""
    name = hashlib.sha256(str(path).encode(errors="surrogateescape")).hexdigest()[:24]
    return default_store().with_name("hooks") / f"{name}.json"


def _noted(change: Change) -> Json:
    kept = None if change.kept is None else base64.b64encode(change.kept).decode()
    digest = hashlib.sha256(change.after or b"").hexdigest()
    return {"path": str(change.path), "kept": kept, "exact": change.restores, "digest": digest}


def _note(path: Path, data: bytes | None) -> tuple[bytes | None] | None:
    """What stood in the file, if it is as we left it; None when that is not known."""
    found = _read(_note_of(path))
    if found is None or data is None:
        return None
    try:
        note = json.loads(found)
        kept = note["kept"]
        if note["digest"] != hashlib.sha256(data).hexdigest() or note["exact"] is not True:
            return None
        return (None if kept is None else base64.b64decode(kept),)
    except (ValueError, KeyError, TypeError):
        return None
