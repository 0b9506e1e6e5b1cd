"""Error groups that the user has muted or marked as fixed, stored in `$XDG_CONFIG_HOME/toolspan/muted.json`.

    {"groups": {"5476085b45": {"status": "muted", "since": "2026-11-16T13:00:00Z", "label": "Bash: timed out"}}}

`status` is `muted` or `fixed`. A fixed group is shown again if it has calls after `since`. Other keys in the file are
kept.
"""

from __future__ import annotations

import os
import re
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

_MAX_BODY_BYTES = 4096
_MAX_LABEL = 200
_GROUP_ID = re.compile(r"[0-9a-zA-Z_-]{1,64}")


class _Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """The mark of one group."""

    status: Literal["muted", "fixed"]
    since: datetime
    label: str = ""


class _Change(msgspec.Struct, frozen=True):
    """A request to mark a group; a status of null removes the mark."""

    status: Literal["muted", "fixed"] | None
    since: datetime | None = None
    label: str = ""


def muted_file() -> Path:
    """Return the path of the file, which may not exist."""
    named = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(named) if Path(named).is_absolute() else Path.home() / ".config"
    return folder / "toolspan" / "muted.json"


def read_marks(file: Path) -> dict[str, _Mark]:
    """Return the marks by group.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not valid.
    """
    return msgspec.convert(_read_document(file).get("groups", {}), dict[str, _Mark])


def write_mark(file: Path, group: str, mark: _Mark | None) -> None:
    """Set or remove the mark of a group.

    Raises:
        OSError: the file cannot be read or written.
        ValueError: the file is not valid. It is not changed.
    """
    document = _read_document(file)
    read_marks(file)
    groups = dict(document.get("groups", {}))
    groups.pop(group, None)
    if mark is not None:
        groups[group] = msgspec.to_builtins(mark)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=".muted-")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(msgspec.json.format(msgspec.json.encode({**document, "groups": groups}), indent=2) + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _read_document(file: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        return {}


def muted_routes() -> list[Route]:
    """Return the routes that read and change the marks."""
    return [Route("/api/muted", _list_marks), Route("/api/muted/{id}", _change_mark, methods=["POST"])]


def _list_marks(_: Request) -> Response:
    """Answer with the marks. If they cannot be read, `problem` is the reason."""
    file = muted_file()
    try:
        marks = read_marks(file)
    except (OSError, ValueError) as error:
        return JSONResponse({"groups": {}, "problem": _explain(file, error)})
    return JSONResponse({"groups": msgspec.to_builtins(marks), "problem": None})


async def _change_mark(request: Request) -> Response:
    group = request.path_params["id"]
    if not _GROUP_ID.fullmatch(group):
        return _refuse(400, f"not a group: {group[:80]!r}")
    body = await request.body()
    if len(body) > _MAX_BODY_BYTES:
        return _refuse(413, "the request is too long")
    try:
        change = msgspec.json.decode(body, type=_Change)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return _refuse(400, f"not a mark: {error}")
    since = (change.since or datetime.now(UTC).replace(microsecond=0)).astimezone(UTC)
    mark = None if change.status is None else _Mark(change.status, since, change.label[:_MAX_LABEL])
    file = muted_file()
    try:
        write_mark(file, group, mark)
    except (OSError, ValueError) as error:
        return _refuse(409, _explain(file, error))
    return _list_marks(request)


def _refuse(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status)


def _explain(file: Path, error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return f"{file} cannot be used ({reason}); correct or remove it"
