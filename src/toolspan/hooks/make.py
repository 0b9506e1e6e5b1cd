"""From settings to handlers.

In: merged settings, a profile, and what comes from above: a function that calls MCP tools, one that
asks a model. Out: `SettingsHooks`, and notes on what is not done as written. Nothing is run here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, get_args

from msgspec import structs

from toolspan.errors import ToolspanError
from toolspan.hooks.fire import Compose, Registered, SettingsHooks
from toolspan.hooks.handlers.command import CommandHandler
from toolspan.hooks.handlers.http import HttpHandler
from toolspan.hooks.handlers.mcp_tool import CallTool, McpHandler
from toolspan.hooks.handlers.prompt import AskModel, PromptHandler
from toolspan.hooks.heard import Handler
from toolspan.hooks.match import BadMatcher, matcher
from toolspan.hooks.points import Moment, Point
from toolspan.hooks.scene import Scene
from toolspan.model.toolkind import tool_kind
from toolspan.permission.decide import Question
from toolspan.permission.files import path_fits
from toolspan.permission.ground import Links
from toolspan.permission.rule import Rule
from toolspan.permission.rules import Rules, paths_of
from toolspan.profile import Profile
from toolspan.settings.handlers import (
    AgentSpec,
    CommandSpec,
    HandlerSpec,
    HttpSpec,
    McpSpec,
    PromptSpec,
)
from toolspan.settings.load import Switches
from toolspan.settings.merge import Merged, ScopedGroup

_POINTS: Mapping[str, Point] = {point: point for point in get_args(Point)}
_MODEL_TIMEOUT = 30.0
_AGENT_TIMEOUT = 60.0
_FILE_KINDS = ("read", "search", "edit", "write")


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What handlers need that only a session's owner has."""

    call_tool: CallTool | None = None
    ask_model: AskModel | None = None
    ask_agent: AskModel | None = None
    """Asks a model that has tools of its own, and as many turns as it needs."""


class Made(NamedTuple):
    """Handlers, and what a person should know of them."""

    hooks: SettingsHooks
    notes: tuple[str, ...]


def hooks_of(
    merged: Merged,
    profile: Profile,
    *,
    means: Means | None = None,
    compose: Compose = "parallel",
    fail_closed: bool = False,
) -> Made:
    """The handlers of settings.

    Raises:
        ToolspanError: a handler's rule is none; or hooks fail closed, and one cannot be kept.
    """
    maker = _Maker(merged.switches, profile, merged.env, means or Means())
    registered: list[Registered] = []
    for scoped in maker.known(merged.hooks):
        registered += maker.registered(scoped)
    if fail_closed and maker.notes:
        raise ToolspanError("; ".join(maker.notes))
    made = SettingsHooks(registered, profile.hooks, compose=compose, fail_closed=fail_closed)
    return Made(made, tuple(maker.notes))


@dataclass(slots=True)
class _Maker:
    switches: Switches
    profile: Profile
    env: Mapping[str, str]
    means: Means
    notes: list[str] = field(default_factory=list)

    def known(self, groups: tuple[ScopedGroup, ...]) -> list[ScopedGroup]:
        """The groups of points that the client version knows, and that are fired here."""
        values = self.profile.hooks
        strange = {one.path: one.point for one in groups if one.point not in values.points}
        kept = []
        for one in groups:
            if values.unknown_drops_all and one.path in strange:
                self._note(one, f"not run: {self.profile.name} knows no {strange[one.path]}")
            elif one.point in strange.values():
                self._note(one, f"not run: {self.profile.name} knows no such point")
            elif one.point not in _POINTS:
                self._note(one, "not run: nothing fires this point here")
            else:
                kept.append(one)
        return kept

    def registered(self, scoped: ScopedGroup) -> list[Registered]:
        """The handlers of a group."""
        try:
            matches = matcher(scoped.group.matcher, self.profile.hooks)
        except BadMatcher as error:
            self._note(scoped, f"not run: {error}")
            return []
        return [
            Registered(
                point=_POINTS[scoped.point],
                matches=matches,
                handler=self._handler(spec),
                source=scoped.scope,
                speaks_of=_condition(spec.if_),
                timeout=_timeout(spec),
                closed=spec.on_failure == "block",
                names=_names(scoped),
                once=spec.once and scoped.scope == "skill",
                wakes=isinstance(spec, CommandSpec) and spec.async_rewake,
            )
            for spec in scoped.group.hooks
        ]

    def _handler(self, spec: HandlerSpec) -> Handler:
        match spec:
            case CommandSpec():
                return self._command(spec)
            case HttpSpec():
                return self._http(spec)
            case McpSpec():
                call = self.means.call_tool
                return McpHandler(server=spec.server, tool=spec.tool, input=spec.input, call=call)
            case PromptSpec():
                return PromptHandler(
                    prompt=spec.prompt,
                    model=spec.model,
                    continues=spec.continue_on_block,
                    ask=self.means.ask_model,
                )
            case AgentSpec():
                return PromptHandler(
                    prompt=spec.prompt,
                    model=spec.model,
                    acts=True,
                    continues=True,
                    ask=self.means.ask_agent,
                )

    def _command(self, spec: CommandSpec) -> Handler:
        environment = {**self.env, **self.profile.hooks.environment}
        return CommandHandler(
            command=spec.command,
            args=spec.args,
            shell=spec.shell,
            detached=spec.async_ or spec.async_rewake,
            names_session=self.profile.hooks.names_session,
            environment=environment,
        )

    def _http(self, spec: HttpSpec) -> Handler:
        names = frozenset(spec.allowed_env_vars)
        most = self.switches.http_hook_allowed_env_vars
        return HttpHandler(
            url=spec.url,
            headers=spec.headers,
            variables=names if most is None else names & frozenset(most),
            allowed=self.switches.allowed_http_hook_urls,
        )

    def _note(self, scoped: ScopedGroup, words: str) -> None:
        self.notes.append(f"{scoped.path}: hooks.{scoped.point}: {words}")


def _names(scoped: ScopedGroup) -> tuple[str, ...]:
    """The files that a matcher at `FileChanged` names."""
    if scoped.point != "FileChanged":
        return ()
    names = (name.strip() for name in scoped.group.matcher.split("|"))
    return tuple(name for name in names if name not in ("", "*"))


def _timeout(spec: HandlerSpec) -> float | None:
    if spec.timeout is not None:
        return spec.timeout
    match spec:
        case PromptSpec():
            return _MODEL_TIMEOUT
        case AgentSpec():
            return _AGENT_TIMEOUT
        case _:
            return None


class _Condition:
    """The `if` of a handler: a rule that names the call's tool, and speaks of the call."""

    def __init__(self, text: str) -> None:
        self._rule = Rule.parse(text)
        self._rules = Rules(deny=[text])  # what denies sees through most disguises

    def __call__(self, moment: Moment, scene: Scene) -> bool:
        if not (self._rule.names(moment.tool) or self._rule.names(moment.call.tool)):
            return False  # a rule for Edit also governs Write; a handler for Edit is for Edit
        question = Question(
            call=moment.call,
            input=moment.input,
            cwd=moment.cwd,
            project=scene.project,
            known_as=moment.known_as,
        )
        if self._rule.inside is None or tool_kind(moment.tool) not in _FILE_KINDS:
            return self._rules(question) is not None
        return self._is_about(question)

    def _is_about(self, question: Question) -> bool:
        """Whether a file is one of the rule's, by its name or by what that leads to."""
        ground = question.ground()
        named = structs.replace(ground, links=_AsNamed())
        paths = paths_of(question)
        meant = [*paths, *map(ground.links.real, paths)]
        return any(path_fits(self._rule, path, named, granting=True) for path in meant)


class _AsNamed(Links):
    """Paths as they are written."""

    def real(self, path: str) -> str:
        return path


def _condition(text: str | None) -> _Condition | None:
    return None if text is None else _Condition(text)
