"""Stars and notes of sessions, stored in `$XDG_CONFIG_HOME/toolspan/notes.json`, beside `muted.json`.

    {"sessions": {"5f0c1d7e-…": {"star": true, "note": "the one that worked"}}}

Other keys in the file are kept.
"""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolspan.web.muted import config_file, explain_problem, read_document, write_entry
from toolspan.web.requests import ApiError, read_body, read_id

_MAX_NOTE = 2000


class SessionNote(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The star and the note of a session."""

    star: bool = False
    note: str = ""


def note_routes() -> list[Route]:
    """Return the routes that read and change the notes."""
    return [Route("/api/notes", _list_notes), Route("/api/notes/{id}", _change_note, methods=["POST"])]


def _list_notes(_: Request) -> Response:
    """Answer with the notes. If they cannot be read, `problem` is the reason."""
    file = config_file("notes.json")
    try:
        notes = msgspec.convert(read_document(file).get("sessions", {}), dict[str, SessionNote])
    except (OSError, ValueError) as error:
        return JSONResponse({"sessions": {}, "problem": explain_problem(file, error)})
    return JSONResponse({"sessions": msgspec.to_builtins(notes), "problem": None})


async def _change_note(request: Request) -> Response:
    session = read_id(request)
    change = await read_body(request, SessionNote)
    if len(change.note) > _MAX_NOTE:
        raise ApiError(413, f"a note has at most {_MAX_NOTE} characters")
    file = config_file("notes.json")
    try:
        write_entry(file, "sessions", session, msgspec.to_builtins(change) or None)
    except (OSError, ValueError) as error:
        raise ApiError(409, explain_problem(file, error)) from error
    return _list_notes(request)
