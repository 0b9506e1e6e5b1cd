"""Going on with what was recorded, in one word: `Session(**resumed())`.

In: a folder, or also the name of a session. Out: the arguments with which a `Session` goes on with
it, or begins anew where nothing was recorded yet. `past.py` reads the history.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from toolspan.errors import NotFound
from toolspan.session.past import find, latest, past


class Resumed(TypedDict, total=False):
    """Arguments of a `Session`."""

    cwd: Path
    session_id: str
    transcript: Path
    history: Sequence[Mapping[str, object]]


def resumed(cwd: Path | str = ".", *, session: str | None = None) -> Resumed:
    """What a session in this folder goes on from: its last one, or the one that is named.

    `session` is an id or the beginning of one. Without it, a folder that has no session yet gets a
    new one. Nothing is run again: a call that was cut off is answered with what is known of it.

    Raises:
        NotFound: no session has that name.
        Ambiguous: several have.
        SourceError: it cannot be read.
        ToolspanError: no server would take its history.
    """
    folder = Path(cwd).expanduser().resolve()
    try:
        path = latest(folder) if session is None else find(session, folder)
    except NotFound:
        if session is not None:
            raise
        return {"cwd": folder}
    return {
        "cwd": folder,
        "session_id": path.stem,
        "transcript": path,
        "history": past(path),
    }
