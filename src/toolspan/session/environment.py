"""The options of a session, and the resources and hook environment that a subagent shares with its session."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, get_args

from toolspan.errors import ToolspanError
from toolspan.runtime.batch import Recovery
from toolspan.runtime.context import Tracking, Workspace
from toolspan.runtime.hooks.events import HookEnvironment, HookRunner
from toolspan.runtime.permissions import Permissions, PolicyStack, Rules
from toolspan.runtime.process import ProcessSupervisor
from toolspan.runtime.profiles import VERSIONS, Profile, profile
from toolspan.runtime.runner import Runner, new_workspace
from toolspan.runtime.sandbox import Sandbox
from toolspan.runtime.sinks import Sink
from toolspan.runtime.tool import Tool
from toolspan.session.leftovers import Leftovers
from toolspan.session.recording import Fsync, Recorder, results_folder
from toolspan.types.ids import CallId
from toolspan.types.tool_kinds import ToolKind, tools_of_kinds

if TYPE_CHECKING:
    from toolspan.runtime.sandbox.active import ActiveSandbox

_TOOL_KINDS: tuple[ToolKind, ...] = (
    "shell", "read", "edit", "write", "search", "web", "agent", "plan", "question",
)  # fmt: skip
_RULE_ONLY_NAMES = frozenset({"Cd", "EndConversation"})
"""Names that are allowed in rules although they are not tools."""


class SessionOptions(TypedDict, total=False):
    """The arguments of `Session` that do not identify the conversation."""

    tools: Iterable[Tool] | None
    profile: Profile | str | None
    model: str | None
    hooks: HookRunner | None
    permissions: Permissions | PolicyStack | None
    sinks: Iterable[Sink]
    direct: Iterable[Sink]
    recoveries: Sequence[Recovery]
    by_path: bool
    sandbox: Sandbox | ActiveSandbox | None
    leftovers: Leftovers
    fsync: Fsync
    clock: Callable[[], float]


@dataclass(frozen=True, slots=True)
class SubagentInfo:
    """A subagent session's relation to the session that started it."""

    agent_id: str
    agent_type: str
    call_id: CallId | None = None
    depth: int = 1
    """The number of sessions above the subagent."""
    prompt_id: str | None = None
    """The turn in which the subagent was started."""
    folder: Path | None = None
    """The main session's folder, which the subagent shares."""
    environment: Mapping[str, str] | None = None
    transcript: Path | None = None
    """The main conversation's transcript, which is passed to hooks."""


def make_workspace(
    project: Path,
    recorder: Recorder | None,
    subagent: SubagentInfo | None,
    sandbox: Sandbox | ActiveSandbox | None,
) -> Workspace:
    """Return the workspace for a session in `project`.

    A recorded session keeps its files beside the transcript. A sandbox passed as settings is created, but not
    opened. Subagents use the sandbox of the main session, which protects that session's files.
    """
    if recorder is None:
        workspace = new_workspace(project)
    else:
        session_folder = results_folder(recorder.path).parent
        workspace = Workspace(project=project, supervisor=ProcessSupervisor(), folder=session_folder)
        workspace.intent_log = intent_log = recorder.open_intent_log()
        if intent_log is not None:
            intent_log.add_tag(workspace.supervisor.tag)
    if subagent is not None:
        workspace.agent_id = subagent.agent_id
        workspace.parent_call = subagent.call_id
        workspace.tracking = Tracking("main", subagent.depth)
        workspace.folder = subagent.folder or workspace.folder
        if subagent.environment is not None:
            workspace.environment = subagent.environment
    if isinstance(sandbox, Sandbox):
        from toolspan.runtime.sandbox.active import ActiveSandbox  # imports the proxy, which few sessions need

        sandbox = ActiveSandbox(sandbox)
    if sandbox is not None and subagent is None:
        transcript = recorder.path.absolute() if recorder else None
        sandbox.protected = replace(
            sandbox.protected, config=workspace.config, session_folder=workspace.folder, transcript=transcript
        )
    workspace.sandbox = sandbox
    return workspace


def make_hook_environment(
    workspace: Workspace,
    recorder: Recorder | None,
    subagent: SubagentInfo | None,
    *,
    cwd: Callable[[], Path],
    permission_mode: Callable[[], str],
) -> HookEnvironment:
    """Return the session state that hooks can access."""

    def export_variables(variables: Mapping[str, str | None]) -> Mapping[str, str | None]:
        before = workspace.environment
        unchanged = {name: value for name, value in before.items() if name not in variables}
        workspace.environment = unchanged | {k: v for k, v in variables.items() if v is not None}
        return {name: before.get(name) for name in variables}

    transcript = recorder.path.absolute() if recorder else None
    return HookEnvironment(
        project=workspace.project,
        supervisor=workspace.supervisor,
        session_folder=workspace.folder,
        cwd=cwd,
        env_vars=workspace.environment,
        session_id=workspace.session_id,
        transcript_path=transcript if subagent is None else subagent.transcript or transcript,
        permission_mode=permission_mode,
        export_variables=export_variables,
        sandbox=workspace.sandbox,
        agent_id=workspace.agent_id,
        agent_type=subagent.agent_type if subagent else None,
    )


class SkillHookLoader:
    """Loader that adds each skill's hooks to a session once."""

    def __init__(self, add_hooks: Callable[[HookRunner], None]) -> None:
        self.make_hooks: Callable[[str, Path], HookRunner | None] | None = None
        """A function that creates hooks from a skill's frontmatter and path, or returns None if it has none.
        It may raise ToolspanError. None ignores hooks defined by skills.
        """
        self._add_hooks = add_hooks
        self._loaded_paths: set[Path] = set()

    def load_skill_hooks(self, frontmatter: str, path: Path) -> None:
        """Add a skill's hooks to the session."""
        if self.make_hooks is None or path in self._loaded_paths:
            return
        hooks = self.make_hooks(frontmatter, path)
        self._loaded_paths.add(path)
        if hooks is not None:
            self._add_hooks(hooks)


def announce_mode(runner: Runner, mode: str) -> None:
    """Announce a session's initial mode to its runner, if the runner must deny calls that its policies ask about."""
    if mode == "dontAsk":
        runner.set_permission_mode(mode)


def check_options(cwd: Path | str, permissions: object, hooks: object, fsync: object) -> Path:
    """Reject arguments of a session that would fail later or would have no effect, and return its folder.

    Raises:
        ToolspanError: the folder does not exist.
        TypeError, ValueError: an argument is not of its type.
    """
    folder = Path(cwd).expanduser().resolve()
    if not folder.is_dir():
        raise ToolspanError(f"{folder}: no such folder")
    if not isinstance(permissions, Permissions | PolicyStack | None):
        hint = "; pass Permissions(Rules(...))" if isinstance(permissions, Rules) else ""
        raise TypeError(f"permissions must be Permissions or a PolicyStack, not {type(permissions).__name__}{hint}")
    if not (hooks is None or hasattr(hooks, "bind")):
        raise TypeError(f"hooks must be Hooks or another HookRunner, not {type(hooks).__name__}")
    if fsync not in get_args(Fsync):
        raise ValueError(f"fsync must be one of {', '.join(get_args(Fsync))}, not {fsync!r}")
    return folder


def log_rule_warnings(permissions: Permissions | PolicyStack | None, tools: Iterable[Tool]) -> None:
    """Log a warning for each rule about an unknown tool, and for each rule that has no effect."""
    if isinstance(permissions, Permissions):
        for warning in rule_warnings(permissions.rules, (tool.name for tool in tools)):
            logging.getLogger("toolspan").warning("%s", warning)


def unknown_tool_warnings(names: Iterable[str], more: Iterable[str] = ()) -> Iterator[str]:
    """Yield a warning for each name that is neither a client tool nor in `more`."""
    import difflib

    available = frozenset(more)
    for name in dict.fromkeys(names):
        if name in available or set(name) & set("*_") or name in _known_tool_names():
            continue
        # If names differ only in case, the capitalized one is suggested.
        by_case = {known.lower(): known for known in sorted(available | _known_tool_names(), reverse=True)}
        close = difflib.get_close_matches(name.lower(), by_case, n=1)
        yield f"there is no tool {name!r}{f'; did you mean {by_case[close[0]]}?' if close else ''}"


def rule_warnings(rules: Rules, more: Iterable[str] = ()) -> Iterator[str]:
    """Yield a warning for each rule about an unknown tool, and for each rule that has no effect."""
    extra_names = tuple(more)
    for rule in (*rules.deny, *rules.ask, *rules.allow):
        where = f" ({rule.origin})" if rule.origin else ""
        yield from (f"the rule {rule.text}{where}: {line}" for line in unknown_tool_warnings([rule.tool], extra_names))
    yield from (f"the rule {line}" for line in rules.warnings)


@cache
def _known_tool_names() -> frozenset[str]:
    names = _RULE_ONLY_NAMES | {
        name for name in tools_of_kinds(*_TOOL_KINDS) if name[0].isupper()
    }  # not those of Codex
    for version in VERSIONS:
        offer = profile(version).availability
        names |= offer.tools | offer.optional_tools | frozenset(offer.aliases)
    return names
