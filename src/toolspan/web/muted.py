"""Error groups that the user has muted or marked as fixed, stored in `$XDG_CONFIG_HOME/toolspan/muted.json`.

    {"groups": {"5476085b45": {"status": "muted", "since": "2026-11-16T13:00:00Z", "label": "Bash: timed out"}}}

`status` is `muted` or `fixed`. A fixed group is shown again if it has calls after `since`. Other keys in the file are
kept.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolspan.web.requests import ApiError, read_body
from toolspan.web.security import write_private

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


def config_file(name: str) -> Path:
    """Return the path of a file of the UI, which may not exist."""
    named = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(named) if Path(named).is_absolute() else Path.home() / ".config"
    return folder / "toolspan" / name


def muted_file() -> Path:
    """Return the path of the file, which may not exist."""
    return config_file("muted.json")


def read_marks(file: Path) -> dict[str, _Mark]:
    """Return the marks by group.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not valid.
    """
    return msgspec.convert(read_document(file).get("groups", {}), dict[str, _Mark])


def write_mark(file: Path, group: str, mark: _Mark | None) -> None:
    """Set or remove the mark of a group.

    Raises:
        OSError: the file cannot be read or written.
        ValueError: the file is not valid. It is not changed.
    """
    read_marks(file)
    write_entry(file, "groups", group, None if mark is None else msgspec.to_builtins(mark))


def write_entry(file: Path, table: str, key: str, value: object | None) -> None:
    """Set or remove a value in a table of a JSON file, and keep everything else.

    Raises:
        OSError: the file cannot be read or written.
        ValueError: the file is not valid. It is not changed.
    """
    document = read_document(file)
    entries = dict(document.get(table, {}))
    entries.pop(key, None)
    if value is not None:
        entries[key] = value
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(file, msgspec.json.format(msgspec.json.encode({**document, table: entries}), indent=2) + b"\n")


def read_document(file: Path) -> dict[str, Any]:
    """Return the content of a JSON file, or an empty document if there is no file."""
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
        return JSONResponse({"groups": {}, "problem": explain_problem(file, error)})
    return JSONResponse({"groups": msgspec.to_builtins(marks), "problem": None})


async def _change_mark(request: Request) -> Response:
    group = request.path_params["id"]
    if not _GROUP_ID.fullmatch(group):
        raise ApiError(400, f"not a group: {group[:80]!r}")
    change = await read_body(request, _Change)
    since = (change.since or datetime.now(UTC).replace(microsecond=0)).astimezone(UTC)
    mark = None if change.status is None else _Mark(change.status, since, change.label[:_MAX_LABEL])
    file = muted_file()
    try:
        write_mark(file, group, mark)
    except (OSError, ValueError) as error:
        raise ApiError(409, explain_problem(file, error)) from error
    return _list_marks(request)


def explain_problem(file: Path, error: Exception) -> str:
    """Return why a file cannot be used."""
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return f"{file} cannot be used ({reason}); correct or remove it"
