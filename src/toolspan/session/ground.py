"""What a session stands on: where it is recorded, where its calls run, what handlers see of it.

In: what a session was told at its beginning. Out: what went before, a recorder, a workspace, a
scene. Nothing is written here, and only a transcript that is there is opened, to go on with it.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from toolspan.errors import ToolspanError, UnknownDialect
from toolspan.hooks.scene import Scene
from toolspan.ids import SessionId
from toolspan.process import Custody
from toolspan.read.transcript import read
from toolspan.record import OnFailure, Origin, Recorder, results_folder, transcript_path
from toolspan.record.places import check_id
from toolspan.run.context import Context, Tracking, Workspace
from toolspan.run.runner import new_workspace
from toolspan.session.around import Aside
from toolspan.session.past import history_of
from toolspan.wire.detect import dialect_of
from toolspan.wire.source import FileSource

AtHome = Literal["home"]
History = Sequence[Mapping[str, object]]
_TORN = b'{"parentUuid":'
"""How the lines of a conversation begin, also one of which no more was written."""


class Begun(NamedTuple):
    """Which conversation it is."""

    session_id: SessionId
    place: Path | Recorder | None
    """Where it is recorded."""
    history: History


def begun(
    transcript: Path | str | AtHome | Recorder | None,
    session_id: str | None,
    cwd: Path,
    history: History,
) -> Begun:
    """The conversation that a session is to have; one that is in the file already goes on.

    Raises:
        ToolspanError: the id names no file; or the file cannot be read, or holds something else.
    """
    name = SessionId(session_id or str(uuid.uuid4()))
    check_id(name)
    if transcript is None or isinstance(transcript, Recorder):
        return Begun(name, transcript, history)
    path = transcript_path(name, cwd) if transcript == "home" else Path(transcript).absolute()
    if not _is_there(path):
        return Begun(name, path, history)
    _check_transcript(path)
    if session_id is not None and history:
        return Begun(name, path, history)
    found = read(path)
    own = found.info.session_ids[-1:] if session_id is None else ()
    return Begun(_plain(own) or name, path, history or history_of(found, path))


def _is_there(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _check_transcript(path: Path) -> None:
    """See to it that nothing but a transcript is written to.

    Raises:
        UnknownDialect: it is something else.
        SourceError: it cannot be read.
    """
    source = FileSource(path)
    if dialect_of(source) == "claude":
        return
    with source.open() as file:
        if file.read(len(_TORN)) != _TORN:
            raise UnknownDialect(f"{path}: no transcript to go on with, so it is left as it is")


def _plain(ids: Sequence[str]) -> SessionId | None:
    """The id that a transcript tells; None when there is none that files could be called by."""
    for session_id in ids:
        try:
            check_id(session_id)
        except ToolspanError:
            continue
        return SessionId(session_id)
    return None


def open_recorder(begun: Begun, origin: Origin, on_failure: OnFailure) -> Recorder | None:
    """Who writes the session down; one that goes on with a transcript answers its open calls.

    Raises:
        SourceError: the transcript cannot be read.
        InUse: another process writes to it.
    """
    place = begun.place
    if place is None or isinstance(place, Recorder):
        return place
    if _is_there(place):
        recorder = Recorder.resume(place, origin, on_failure)
        recorder.answer(begun.history)
        return recorder
    return Recorder(place, origin, on_failure)


def make_workspace(
    folder: Path,
    recorder: Recorder | None,
    aside: Aside | None,
    has_effects: Callable[[str], bool],
) -> Workspace:
    """What the calls share; a session that another one has started shares more."""
    if recorder is None:
        space = new_workspace(folder)
    else:
        place = results_folder(recorder.path).parent
        space = Workspace(project=folder, custody=Custody(), folder=place)
        space.journal = recorder.keep_intents(has_effects)
    return space if aside is None else _lowered(space, aside)


def _lowered(space: Workspace, aside: Aside) -> Workspace:
    space.agent_id = aside.agent_id
    space.parent_call = aside.call_id
    space.tracking = Tracking("main", aside.depth)
    space.folder = aside.folder or space.folder
    space.environment = space.environment if aside.environment is None else aside.environment
    return space


def make_scene(
    space: Workspace,
    recorder: Recorder | None,
    aside: Aside | None,
    permission_mode: str,
    context: Callable[[], Context],
) -> Scene:
    """What handlers see; `context` is where the next call starts from."""

    def mode() -> str:
        found = context().values.get("permission_mode")
        return found if isinstance(found, str) else permission_mode

    def export(found: Mapping[str, str | None]) -> Mapping[str, str | None]:
        before = space.environment
        left = {name: value for name, value in before.items() if name not in found}
        space.environment = left | {k: v for k, v in found.items() if v is not None}
        return {name: before.get(name) for name in found}

    own = recorder.path.absolute() if recorder else None
    return Scene(
        project=space.project,
        custody=space.custody,
        folder=space.folder,
        cwd=lambda: context().cwd,
        environment=space.environment,
        session_id=space.session_id,
        transcript=own if aside is None else aside.transcript or own,
        permission_mode=mode,
        export=export,
        agent_id=space.agent_id,
        agent_type=aside.kind if aside else None,
    )
