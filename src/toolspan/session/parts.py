"""The parts of a session, built once and in the order of their needs. Start at `build_parts`.

A part gets what it needs from earlier parts in its constructor. What it needs from later parts, or from the session,
it gets as a function that is called when the session runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, get_args

from toolspan.errors import ToolspanError
from toolspan.runtime.authorization import ask_about_domain
from toolspan.runtime.batch import Recovery
from toolspan.runtime.hooks.events import HookEnvironment, HookRunner, NoHooks
from toolspan.runtime.permissions import Permissions, PolicyStack, Rules
from toolspan.runtime.profiles import DEFAULT, Profile
from toolspan.runtime.profiles import profile as named_profile
from toolspan.runtime.runner import Runner
from toolspan.runtime.sandbox import Sandbox
from toolspan.runtime.sinks import FilteredSink, Sink
from toolspan.runtime.tool import Tool
from toolspan.session.conversation import Conversation
from toolspan.session.environment import (
    SessionOptions,
    SkillHookLoader,
    SubagentInfo,
    make_hook_environment,
    make_workspace,
)
from toolspan.session.leftovers import Leftovers
from toolspan.session.models.history import iter_call_ids
from toolspan.session.recording import Fsync, Recorder, RecorderConfig, StoredTranscript, StoreOptions, StoreTarget
from toolspan.session.resume import ConversationStart, DefaultLocation, History, resolve_start
from toolspan.session.session_hooks import NotificationQueue, SessionHooks
from toolspan.session.storage import prepare_store
from toolspan.tools import coding_tools
from toolspan.types.events import Faulted, Finished, HookRan, LiveEvent, Requested, WriteFailed
from toolspan.types.ids import CallId

if TYPE_CHECKING:
    from toolspan.runtime.sandbox.active import ActiveSandbox

_RECORDED = (Requested, Finished, HookRan)
"""The events that a session handles. The first is needed for recovery policies only."""


class ConversationArguments(NamedTuple):
    """The arguments of a session that identify its conversation."""

    transcript: Path | str | DefaultLocation | Recorder | None
    store: StoreTarget | StoredTranscript | None
    session_id: str | None
    history: History


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSetup:
    """The arguments of a session, checked and with their defaults."""

    folder: Path
    start: ConversationStart
    stored: StoredTranscript | None
    profile: Profile
    policies: PolicyStack
    hooks: HookRunner
    subagent: SubagentInfo | None = None
    tools: Iterable[Tool] | None = None
    model: str | None = None
    sinks: Iterable[Sink] = ()
    direct: Iterable[Sink] = ()
    recoveries: Sequence[Recovery] = ()
    by_path: bool = False
    sandbox: Sandbox | ActiveSandbox | None = None
    leftovers: Leftovers = "end"
    fsync: Fsync = "never"
    clock: Callable[[], float] = time.time


def check_arguments(
    cwd: Path | str, conversation: ConversationArguments, subagent: SubagentInfo | None, options: SessionOptions
) -> SessionSetup:
    """Check the arguments of a session, resolve those that name something, and return them.

    Raises:
        ToolspanError: the folder does not exist, the id cannot be a file name, or the transcript cannot be continued.
        TypeError, ValueError: an argument is not of its type.
    """
    if unknown := sorted(options.keys() - SessionOptions.__annotations__.keys()):
        raise TypeError(f"Session() got an unexpected keyword argument {unknown[0]!r}")
    folder = Path(cwd).expanduser().resolve()
    if not folder.is_dir():
        raise ToolspanError(f"{folder}: no such folder")
    permissions, hooks = options.get("permissions"), options.get("hooks")
    _check_types(permissions, hooks, options.get("fsync", "never"))
    profile = options.get("profile")
    if not isinstance(profile, Profile):
        profile = named_profile(profile or DEFAULT, model=options.get("model"))
    transcript, store, session_id, history = conversation
    stored = prepare_store(store, transcript, session_id, folder, StoreOptions.from_session(options))
    if stored is None:
        start = resolve_start(transcript, session_id, folder, history)
    else:  # a copy of another session keeps the ids of its records
        start = resolve_start(stored.path, None, folder, history)._replace(session_id=stored.session_id)
    names = {field.name for field in fields(SessionSetup)} - {"profile", "hooks"}
    others: dict[str, Any] = {name: value for name, value in options.items() if name in names}
    return SessionSetup(
        folder=folder,
        start=start,
        stored=stored,
        profile=profile,
        policies=(permissions or Permissions()).resolve(profile.refusals),
        hooks=hooks or NoHooks(),
        subagent=subagent,
        **others,
    )


def _check_types(permissions: object, hooks: object, fsync: object) -> None:
    """Reject arguments that would fail later or would have no effect."""
    if not isinstance(permissions, Permissions | PolicyStack | None):
        hint = "; pass Permissions(Rules(...))" if isinstance(permissions, Rules) else ""
        raise TypeError(f"permissions must be Permissions or a PolicyStack, not {type(permissions).__name__}{hint}")
    if not (hooks is None or hasattr(hooks, "bind")):
        raise TypeError(f"hooks must be Hooks or another HookRunner, not {type(hooks).__name__}")
    if fsync not in get_args(Fsync):
        raise ValueError(f"fsync must be one of {', '.join(get_args(Fsync))}, not {fsync!r}")


class SessionCallbacks(Protocol):
    """The functions of a session that its parts call. None of them is called before all parts are built."""

    def handle_event(self, event: LiveEvent) -> None:
        """Handle an event of a call."""
        ...

    def handle_sink_fault(self, fault: Faulted) -> None:
        """Handle an exception that a sink raised."""
        ...

    def handle_write_failure(self, failure: WriteFailed) -> None:
        """Handle a record that could not be written."""
        ...

    def add_hooks(self, hooks: HookRunner) -> None:
        """Add the hooks of a skill."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionParts:
    """The parts of a session."""

    recorder: Recorder | None
    conversation: Conversation
    skills: SkillHookLoader
    own_sandbox: ActiveSandbox | None
    """The sandbox that the session opens and closes; None if it has none or uses that of its host."""
    hook_environment: HookEnvironment
    runner: Runner
    session_hooks: SessionHooks
    notifications: NotificationQueue


def build_parts(setup: SessionSetup, callbacks: SessionCallbacks) -> SessionParts:
    """Build the parts of a session. Nothing is written and nothing is started.

    Raises:
        SourceError: the transcript cannot be read.
        InUse: another session is writing to the transcript.
    """
    profile, policies, subagent = setup.profile, setup.policies, setup.subagent

    def is_read_only(name: str) -> bool:
        tool = runner.runner_context.tools.find_enabled(name)
        return tool is not None and tool.read_only

    config = RecorderConfig(
        profile=profile,
        session_id=setup.start.session_id,
        cwd=setup.folder,
        permission_mode=policies.mode,
        fsync=setup.fsync,
        clock=setup.clock,
        stored=setup.stored,
        is_read_only=is_read_only,
    )
    recorder = setup.start.open_recorder(config, callbacks.handle_write_failure)
    conversation = Conversation(setup.start.history, recorder)
    skills = SkillHookLoader(callbacks.add_hooks)
    workspace = make_workspace(
        setup.folder,
        recorder,
        subagent,
        setup.sandbox,
        session_id=setup.start.session_id,
        model=setup.model,
        permission_mode=policies.mode,
        added_folders=policies.folders,
        adopt_hooks=skills.load_skill_hooks,
        ask_about_domain=lambda host, port: ask_about_domain(host, port, runner.runner_context),
    )
    hook_environment = make_hook_environment(
        workspace,
        recorder,
        subagent,
        cwd=lambda: runner.context.cwd,
        permission_mode=lambda: runner.runner_context.permission_mode or policies.mode,
    )
    recorded = FilteredSink(callbacks.handle_event, _RECORDED if setup.recoveries else _RECORDED[1:])
    runner = Runner(
        coding_tools(profile, person=policies.approver is not None) if setup.tools is None else setup.tools,
        cwd=setup.folder,
        profile=profile,
        hooks=setup.hooks.bind(hook_environment),
        policies=policies.policies,
        fallback=policies.fallback,
        approver=policies.approver,
        sinks=setup.sinks,
        direct=(recorded, *setup.direct),
        on_sink_fault=callbacks.handle_sink_fault,
        workspace=workspace,
        recoveries=setup.recoveries,
        by_path=setup.by_path,
        clock=setup.clock,
    )
    if policies.mode == "dontAsk":  # the runner must deny the calls that its policies ask about
        runner.set_permission_mode(policies.mode)
    runner.mark_seen(*map(CallId, iter_call_ids(conversation.messages)))
    session_hooks = SessionHooks(runner.runner_context, recorder, subagent)
    return SessionParts(
        recorder=recorder,
        conversation=conversation,
        skills=skills,
        own_sandbox=workspace.sandbox if isinstance(setup.sandbox, Sandbox) else None,
        hook_environment=hook_environment,
        runner=runner,
        session_hooks=session_hooks,
        notifications=NotificationQueue(workspace.tasks, profile, session_hooks, conversation),
    )
