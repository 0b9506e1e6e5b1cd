"""What a session stands on: where it is recorded, where its calls run, what handlers see of it.

In: what a session was told at its beginning. Out: what went before, a recorder, a workspace, a
scene. Nothing is written here, and only a transcript that is there is opened, to go on with it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from toolspan.errors import ToolspanError, UnknownDialect
from toolspan.formats.claude import ClaudeFormat
from toolspan.formats.detect import detect_dialect
from toolspan.formats.source import FileSource
from toolspan.reading.transcript import read
from toolspan.runtime.context import CallContext, Tracking, Workspace
from toolspan.runtime.hooks.events import HookEnvironment
from toolspan.runtime.process import ProcessSupervisor
from toolspan.runtime.runner import new_workspace
from toolspan.session.recording import OnFailure, Recorder, RecorderConfig, results_folder, transcript_path
from toolspan.session.recording.resume import check_session_id
from toolspan.session.resume import build_history
from toolspan.session.session_hooks import SubagentInfo
from toolspan.types.ids import SessionId

DefaultLocation = Literal["home"]
History = Sequence[Mapping[str, object]]
_RECORD_START = b'{"parentUuid":'
"""How the lines of a conversation begin, also one of which no more was written."""


class ConversationStart(NamedTuple):
    """Which conversation it is."""

    session_id: SessionId
    target: Path | Recorder | None
    """Where it is recorded."""
    history: History


def resolve_start(
    transcript: Path | str | DefaultLocation | Recorder | None, session_id: str | None, cwd: Path, history: History
) -> ConversationStart:
    """The conversation that a session is to have; one that is in the file already goes on.

    Raises:
        ToolspanError: the id names no file; or the file cannot be read, or holds something else.
    """
    new_id = SessionId(session_id or str(uuid.uuid4()))
    check_session_id(new_id)
    if transcript is None or isinstance(transcript, Recorder):
        return ConversationStart(new_id, transcript, history)
    path = transcript_path(new_id, cwd) if transcript == "home" else Path(transcript).absolute()
    if not _has_content(path):
        return ConversationStart(new_id, path, history)
    _check_transcript(path)
    if session_id is not None and history:
        return ConversationStart(new_id, path, history)
    recorded = read(path)
    recorded_ids = recorded.info.session_ids[-1:] if session_id is None else ()
    return ConversationStart(_valid_session_id(recorded_ids) or new_id, path, history or build_history(recorded, path))


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _check_transcript(path: Path) -> None:
    """See to it that nothing but a transcript is written to.

    Raises:
        UnknownDialect: it is something else.
        SourceError: it cannot be read.
    """
    source = FileSource(path)
    if detect_dialect(source) == ClaudeFormat.name:
        return
    with source.open() as file:
        if file.read(len(_RECORD_START)) != _RECORD_START:
            raise UnknownDialect(f"{path}: no transcript to go on with, so it is left as it is")


def _valid_session_id(ids: Sequence[str]) -> SessionId | None:
    """The id that a transcript tells; None when there is none that files could be called by."""
    for session_id in ids:
        try:
            check_session_id(session_id)
        except ToolspanError:
            continue
        return SessionId(session_id)
    return None


def open_recorder(start: ConversationStart, origin: RecorderConfig, on_failure: OnFailure) -> Recorder | None:
    """Who writes the session down; one that goes on with a transcript answers its open calls.

    Raises:
        SourceError: the transcript cannot be read.
        InUse: another process writes to it.
    """
    target = start.target
    if target is None or isinstance(target, Recorder):
        return target
    if _has_content(target):
        recorder = Recorder.resume(target, origin, on_failure)
        recorder.set_resume_answers(start.history)
        return recorder
    return Recorder(target, origin, on_failure)


def make_workspace(
    folder: Path, recorder: Recorder | None, subagent: SubagentInfo | None, has_effects: Callable[[str], bool]
) -> Workspace:
    """What the calls share; a session that another one has started shares more."""
    if recorder is None:
        workspace = new_workspace(folder)
    else:
        session_folder = results_folder(recorder.path).parent
        workspace = Workspace(project=folder, supervisor=ProcessSupervisor(), folder=session_folder)
        workspace.intent_log = recorder.open_intent_log(has_effects)
    return workspace if subagent is None else _apply_subagent(workspace, subagent)


def _apply_subagent(workspace: Workspace, subagent: SubagentInfo) -> Workspace:
    workspace.agent_id = subagent.agent_id
    workspace.parent_call = subagent.call_id
    workspace.tracking = Tracking("main", subagent.depth)
    workspace.folder = subagent.folder or workspace.folder
    workspace.environment = workspace.environment if subagent.environment is None else subagent.environment
    return workspace


def make_hook_environment(
    workspace: Workspace,
    recorder: Recorder | None,
    subagent: SubagentInfo | None,
    permission_mode: str,
    context: Callable[[], CallContext],
) -> HookEnvironment:
    """What handlers see; `context` is where the next call starts from."""

    def current_mode() -> str:
        value = context().values.get("permission_mode")
        return value if isinstance(value, str) else permission_mode

    def set_environment(variables: Mapping[str, str | None]) -> Mapping[str, str | None]:
        before = workspace.environment
        unchanged = {name: value for name, value in before.items() if name not in variables}
        workspace.environment = unchanged | {k: v for k, v in variables.items() if v is not None}
        return {name: before.get(name) for name in variables}

    own_transcript = recorder.path.absolute() if recorder else None
    return HookEnvironment(
        project=workspace.project,
        supervisor=workspace.supervisor,
        session_folder=workspace.folder,
        cwd=lambda: context().cwd,
        env_vars=workspace.environment,
        session_id=workspace.session_id,
        transcript_path=own_transcript if subagent is None else subagent.transcript or own_transcript,
        permission_mode=current_mode,
        export_variables=set_environment,
        agent_id=workspace.agent_id,
        agent_type=subagent.agent_type if subagent else None,
    )
