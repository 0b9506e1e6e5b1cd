"""Build `ConfiguredHooks` from merged settings, without running anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, get_args

from msgspec import structs

from toolspan.errors import ToolspanError
from toolspan.runtime.hooks.configured import Compose, ConfiguredHandler, ConfiguredHooks
from toolspan.runtime.hooks.events import HookEnvironment, HookPoint, ToolHookEvent
from toolspan.runtime.hooks.handlers import (
    AskModel,
    CallTool,
    CommandHandler,
    HookHandler,
    HttpHandler,
    McpHandler,
    PromptHandler,
)
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.permissions.paths import LinkResolver
from toolspan.runtime.permissions.rule import Rule, path_matches
from toolspan.runtime.permissions.rules import Rules, paths_of
from toolspan.runtime.profiles import HookValues, Profile
from toolspan.runtime.settings.load import AgentSpec, CommandSpec, HandlerSpec, HttpSpec, McpSpec, PromptSpec, Switches
from toolspan.runtime.settings.scopes import MergedSettings, ScopedGroup

_POINT_BY_NAME: Mapping[str, HookPoint] = {point: point for point in get_args(HookPoint)}
_DEFAULT_TIMEOUTS: Mapping[type, float] = {PromptSpec: 30.0, AgentSpec: 60.0}
_FILE_KINDS = ("read", "search", "edit", "write")


@dataclass(frozen=True, slots=True, kw_only=True)
class HookServices:
    """Functions that handlers need and only the session's owner can provide."""

    call_tool: CallTool | None = None
    ask_model: AskModel | None = None
    ask_agent: AskModel | None = None
    """A function that asks a model with tools, which may take any number of turns."""


class LoadedHooks(NamedTuple):
    """The hooks from settings, and notes for the user about ignored hooks."""

    hooks: ConfiguredHooks
    notes: tuple[str, ...]


def load_hooks(
    merged: MergedSettings,
    profile: Profile,
    *,
    services: HookServices | None = None,
    compose: Compose = "parallel",
    fail_closed: bool = False,
) -> LoadedHooks:
    """Build the hooks configured in merged settings.

    Raises:
        ToolspanError: a handler's `if` is not a rule, or hooks fail closed and one of them would be ignored.
    """
    loader = _HookLoader(merged.switches, profile, merged.env, services or HookServices(), merged.is_limited_by_project)
    handlers: list[ConfiguredHandler] = []
    for scoped in loader.select_supported(merged.hooks):
        handlers += loader.build_handlers(scoped)
    if fail_closed and loader.notes:
        raise ToolspanError("; ".join(loader.notes))
    hooks = ConfiguredHooks(handlers, profile.hooks, compose=compose, fail_closed=fail_closed)
    return LoadedHooks(hooks, tuple(loader.notes))


@dataclass(slots=True)
class _HookLoader:
    switches: Switches
    profile: Profile
    env: Mapping[str, str]
    services: HookServices
    is_limited_by_project: bool
    notes: list[str] = field(default_factory=list)

    def select_supported(self, groups: tuple[ScopedGroup, ...]) -> list[ScopedGroup]:
        """Return the groups whose hook points are supported by both the client version and toolspan."""
        values = self.profile.hooks
        unknown_points = {scoped.path: scoped.point for scoped in groups if scoped.point not in values.points}
        supported = []
        for scoped in groups:
            if values.unknown_drops_all and scoped.path in unknown_points:
                self._add_note(scoped, f"ignored: {self.profile.name} does not support {unknown_points[scoped.path]}")
            elif scoped.point in unknown_points.values():
                self._add_note(scoped, f"ignored: {self.profile.name} does not support this hook point")
            elif scoped.point not in _POINT_BY_NAME:
                self._add_note(scoped, "ignored: toolspan does not fire this hook point")
            else:
                supported.append(scoped)
        return supported

    def build_handlers(self, scoped: ScopedGroup) -> list[ConfiguredHandler]:
        """Build the handlers in a group."""
        matcher = scoped.group.matcher
        try:
            matches = _compile_matcher(matcher, self.profile.hooks)
        except re.error as error:
            self._add_note(scoped, f"ignored: {matcher!r} is not a regular expression: {error}")
            return []
        watched_names: tuple[str, ...] = ()
        if scoped.point == "FileChanged":
            names = (name.strip() for name in matcher.split("|"))
            watched_names = tuple(name for name in names if name not in ("", "*"))
        return [
            ConfiguredHandler(
                point=_POINT_BY_NAME[scoped.point],
                matches=matches,
                handler=self._build_handler(spec),
                source=scoped.scope,
                condition=None if spec.if_ is None else _RuleCondition(spec.if_),
                timeout=_DEFAULT_TIMEOUTS.get(type(spec)) if spec.timeout is None else spec.timeout,
                fail_closed=self._reason_to_fail_closed(spec),
                watched_names=watched_names,
                run_once=spec.once and scoped.scope == "skill",
                wakes_model=isinstance(spec, CommandSpec) and spec.async_rewake,
            )
            for spec in scoped.group.hooks
        ]

    def _reason_to_fail_closed(self, spec: HandlerSpec) -> str | None:
        if spec.on_failure == "block":
            return 'onFailure is "block"'
        if isinstance(spec, CommandSpec) and spec.sandbox and self.is_limited_by_project:
            return "an untrusted project limits its sandbox"
        return None

    def _build_handler(self, spec: HandlerSpec) -> HookHandler:
        match spec:
            case CommandSpec():
                values = self.profile.hooks
                environment = {**self.env, **values.environment}
                return CommandHandler(spec=spec, exports_session_id=values.exports_session_id, environment=environment)
            case HttpSpec():
                return HttpHandler(spec=spec, switches=self.switches)
            case McpSpec():
                return McpHandler(spec=spec, call_tool=self.services.call_tool)
            case PromptSpec():
                return PromptHandler(spec=spec, ask_model=self.services.ask_model)
            case AgentSpec():
                return PromptHandler(spec=spec, ask_model=self.services.ask_agent)

    def _add_note(self, scoped: ScopedGroup, message: str) -> None:
        self.notes.append(f"{scoped.path}: hooks.{scoped.point}: {message}")


_NAME_LIST, _OLD_NAME_LIST = r"[A-Za-z0-9_\-, |]*", r"[A-Za-z0-9_|]*"
"""Matchers that are lists of names. Any other matcher is a regular expression."""


def _compile_matcher(matcher: str, values: HookValues) -> Callable[[str | None], bool]:
    """Return a function that matches tool names. It always accepts None, for events without a subject."""
    if matcher.strip() in ("", "*"):
        return lambda _name: True
    if re.fullmatch(_NAME_LIST if values.comma_matchers else _OLD_NAME_LIST, matcher):
        names = {name.strip() for name in re.split("[|,]", matcher)}
        return lambda name: name is None or name in names
    pattern = re.compile(matcher)
    return lambda name: name is None or pattern.search(name) is not None


class _RuleCondition:
    """A handler's `if`: a permission rule that must be for the tool and match the call."""

    def __init__(self, text: str) -> None:
        self._rule = Rule.parse(text)
        self._rules = Rules(deny=[text])  # unlike allow rules, deny rules match inside wrappers and by alias

    def __call__(self, tool_event: ToolHookEvent, hook_environment: HookEnvironment) -> bool:
        if not (self._rule.covers_tool(tool_event.tool) or self._rule.covers_tool(tool_event.call.tool)):
            return False  # a rule for Edit also covers Write, but a handler for Edit does not
        request = PermissionRequest(
            call=tool_event.call,
            input=tool_event.input,
            cwd=tool_event.cwd,
            project=hook_environment.project,
            known_as=tool_event.known_as,
            definition=tool_event.definition,
        )
        if self._rule.content is None or tool_event.kind not in _FILE_KINDS:
            return self._rules(request) is not None
        # A file in the call matches the rule by its path or by its link target.
        scope = request.path_scope()
        unresolved_scope = structs.replace(scope, links=_UnresolvedLinks())
        paths = paths_of(request)
        candidates = [*paths, *map(scope.links.resolve, paths)]
        return any(path_matches(self._rule, path, unresolved_scope, granting=True) for path in candidates)


class _UnresolvedLinks(LinkResolver):
    """A resolver that returns paths unchanged."""

    def resolve(self, path: str) -> str:
        return path
