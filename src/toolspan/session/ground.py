"""What a session stands on: where it is recorded, where its calls run, what handlers see of it.

In: what a session was told at its beginning. Out: a recorder, a workspace, a scene. Nothing is
opened or written here, except to find where a transcript left off.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from toolspan.hooks.scene import Scene
from toolspan.process import Custody
from toolspan.record import OnFailure, Origin, Recorder, results_folder, transcript_path
from toolspan.run.context import Context, Tracking, Workspace
from toolspan.run.runner import new_workspace
from toolspan.session.around import Aside

AtHome = Literal["home"]


def open_recorder(
    transcript: Path | str | AtHome | Recorder | None,
    origin: Origin,
    on_failure: OnFailure,
    history: Sequence[Mapping[str, object]],
) -> Recorder | None:
    """Who writes the session down; one that goes on with a transcript answers its open calls."""
    if transcript is None or isinstance(transcript, Recorder):
        return transcript
    path = (
        transcript_path(origin.session_id, origin.cwd)
        if transcript == "home"
        else Path(transcript).absolute()
    )
    if path.is_file() and path.stat().st_size:
        recorder = Recorder.resume(path, origin, on_failure)
        recorder.answer(history)
        return recorder
    return Recorder(path, origin, on_failure)


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
