"""The agents that work can be given to: the general one, and those that people have written.

In: folders with `NAME.md` files, each a few lines between `---` and the words of the agent below
them. Out: a `Kind` for each, and what is wrong with those that are none: a broken file is told of,
and the others count. Whether a project's own count is not asked here (`settings/trust.py`). Read
`load_kinds` first.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from toolspan.errors import ToolError, ToolspanError
from toolspan.runtime.hooks.events import HookRunner
from toolspan.runtime.settings.frontmatter import (
    parse_frontmatter_fields,
    parse_frontmatter_hooks,
    split_frontmatter,
)
from toolspan.runtime.tool import Tool
from toolspan.session.agent import describe_environment, system_prompt
from toolspan.session.models.base import Model
from toolspan.tools.agent import GENERAL_AGENT_NAME

MAX_DEFINITION_SIZE = 1 << 20
"""Bytes of a file; what is longer is no description of an agent."""
_MAIN_ONLY_TOOLS = frozenset({"AskUserQuestion", "EnterPlanMode", "ExitPlanMode"})
"""Tools of the main conversation: nobody talks to an agent below it."""
_AGENT_NAME = re.compile(r"[\w.:-]+(?: [\w.:-]+)*")
_RULE_SUFFIX = re.compile(r"\(.*?\)")
_PERMISSION_MODES = ("default", "acceptEdits", "plan", "dontAsk")
_KNOWN_FIELDS = frozenset({
    "name", "description", "tools", "disallowedTools", "model", "permissionMode", "maxTurns",
    "background", "isolation", "color", "hooks",
})  # fmt: skip

MakeHooks = Callable[[object, Path], HookRunner]
"""Makes handlers of the hooks in the head of a file.

Raises:
    ToolspanError: they are none.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDefinition:
    """An agent that work can be given to."""

    name: str
    description: str
    """When to use it: the model reads that."""
    prompt: str = ""
    """What it is told before anything else; without, what every agent is told."""
    tools: tuple[str, ...] | None = None
    """The tools it has; None: those of the agent above."""
    disallowed_tools: tuple[str, ...] = ()
    """Tools it does not have, whatever else is said."""
    model: str | None = None
    permission_mode: str | None = None
    max_turns: int | None = None
    is_isolated: bool = False
    """It always works in a copy of the repository."""
    in_background: bool = False
    """It is always sent off."""
    hooks: HookRunner | None = field(default=None, compare=False)
    """Handlers beside those of the session, while it works."""
    path: Path | None = None
    """Where it was written down; None for our own."""

    def allows_tool(self, tool: Tool) -> bool:
        """Whether it has this tool of the agent above."""
        names = {tool.name, *tool.aliases}
        if names & _MAIN_ONLY_TOOLS or names & set(self.disallowed_tools):
            return False
        return self.tools is None or "*" in self.tools or bool(names & set(self.tools))


GENERAL_AGENT = AgentDefinition(
    name=GENERAL_AGENT_NAME, description="For any piece of work that takes several steps; has all your tools."
)


@dataclass(frozen=True, slots=True)
class LoadedAgents:
    """What was found in folders."""

    definitions: tuple[AgentDefinition, ...] = ()
    problems: tuple[str, ...] = ()
    """Files that are not used, or not wholly, and why."""


def load_agent_definitions(folders: Iterable[Path], make_hooks: MakeHooks | None = None) -> LoadedAgents:
    """The agents in these folders; of several with one name, the last counts.

    `make_hooks` makes handlers of what stands behind `hooks:` in a file's head; an agent that has
    such, and could not have them, is not there.
    """
    definitions: dict[str, AgentDefinition] = {}
    problems: list[str] = []
    for path in find_agent_files(folders):
        try:
            definition, notes = read_agent_definition(path, make_hooks)
        except (ValueError, ToolspanError) as problem:
            problems.append(f"{path}: {problem}; this agent is not there")
            continue
        definitions[definition.name] = definition
        problems += [f"{path}: {note}" for note in notes]
    return LoadedAgents(tuple(definitions.values()), tuple(problems))


def find_agent_files(folders: Iterable[Path]) -> list[Path]:
    """The files of agents in folders, and in those below them."""
    return [path for folder in folders if folder.is_dir() for path in sorted(folder.rglob("*.md"))]


def read_agent_definition(path: Path, make_hooks: MakeHooks | None = None) -> tuple[AgentDefinition, Sequence[str]]:
    """The agent that a file describes, and what of it is not used.

    Raises:
        ValueError: it describes none.
        ToolspanError: its hooks are none.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_DEFINITION_SIZE + 1)
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    if len(data) > MAX_DEFINITION_SIZE:
        raise ValueError("longer than a megabyte")
    parts = split_frontmatter(data.decode("utf-8", "replace"))
    if parts is None:
        raise ValueError("it does not begin with lines between `---`")
    head, body = parts
    fields = parse_frontmatter_fields(head)
    notes = [f"{name} is not used" for name in fields if name not in _KNOWN_FIELDS]
    definition = _build_definition(fields, body.strip(), path)
    block = parse_frontmatter_hooks(head)
    if block is None:
        return definition, notes
    if make_hooks is None:
        raise ValueError("it has hooks, and nobody here runs them")
    return replace(definition, hooks=make_hooks(block, path)), notes


def _build_definition(fields: Mapping[str, object], prompt: str, path: Path) -> AgentDefinition:
    name = _field_text(fields, "name")
    if name is None or not _AGENT_NAME.fullmatch(name):
        raise ValueError("it has no name" if name is None else f"{name!r} is no name")
    description = _field_text(fields, "description")
    if description is None:
        raise ValueError("it has no description")
    model = _field_text(fields, "model")
    return AgentDefinition(
        name=name,
        description=description,
        prompt=prompt,
        tools=_field_tool_names(fields, "tools"),
        disallowed_tools=_field_tool_names(fields, "disallowedTools") or (),
        model=None if model == "inherit" else model,
        permission_mode=_field_choice(fields, "permissionMode", _PERMISSION_MODES),
        max_turns=_field_count(fields, "maxTurns"),
        is_isolated=_field_choice(fields, "isolation", ("worktree",)) is not None,
        in_background=_field_choice(fields, "background", ("true", "false")) == "true",
        path=path,
    )


def _field_text(fields: Mapping[str, object], key: str) -> str | None:
    value = fields.get(key)
    if isinstance(value, Mapping):
        raise ValueError(f"{key} is not a text")
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value or "")
    return text.strip() or None


def _field_tool_names(fields: Mapping[str, object], key: str) -> tuple[str, ...] | None:
    """Names of tools; what may stand in brackets behind one is a matter of rules."""
    text = _field_text(fields, key)
    if text is None:
        return None
    parts = _RULE_SUFFIX.sub("", text).split(",")
    return tuple(name for part in parts if (name := part.strip()))


def _field_choice(fields: Mapping[str, object], key: str, choices: Sequence[str]) -> str | None:
    text = _field_text(fields, key)
    if text is not None and text not in choices:
        raise ValueError(f"{key} is {text!r}; there are {', '.join(choices)}")
    return text


def _field_count(fields: Mapping[str, object], key: str) -> int | None:
    text = _field_text(fields, key)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"{key} is {text!r}, not a number above zero")
    return int(text)


FindModel = Callable[[str], Model | None]
"""From a model's name, short or not, to the model; None where the agent above has the right one."""

_SUBAGENT_PROMPT = """\
Another agent has given you a piece of work. Nobody answers questions: decide, and say what you
decided. Your last message is your report and all that is read of you: what you found or did, with
the paths and lines it rests on, and what is open."""
_MODES_BY_STRICTNESS = ("bypassPermissions", "acceptEdits", "default", "dontAsk", "plan")
"""The permission modes, each stricter than the one before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentLimits:
    """How far agents may go."""

    max_concurrent: int = 20
    """How many may work at the same time, at all depths together."""
    timeout: float | None = None
    """How long one may work."""
    max_depth: int | None = None
    """How far below the main conversation they may be; None: as the client version has it."""


def _no_other_model(_name: str) -> Model | None:
    return None


class SubagentConfig:
    """The agents that work can be given to."""

    def __init__(
        self,
        definitions: Iterable[AgentDefinition] = (),
        *,
        find_model: FindModel = _no_other_model,
        limits: SubagentLimits | None = None,
    ) -> None:
        """`kinds` beside the general one, which one of them may take the place of."""
        by_name = {definition.name: definition for definition in definitions}
        self.definitions: Mapping[str, AgentDefinition] = {GENERAL_AGENT.name: GENERAL_AGENT, **by_name}
        self.limits = limits or SubagentLimits()
        self._find_model = find_model
        self._models: dict[str, Model] = {}
        self._running_count = 0

    def acquire_slot(self) -> None:
        """One more agent works.

        Raises:
            ToolError: there are too many.
        """
        if self._running_count >= self.limits.max_concurrent:
            raise ToolError(
                f"Concurrent subagent limit reached. {self._running_count} agents work already: wait for one to end"
            )
        self._running_count += 1

    def release_slot(self) -> None:
        """An agent does not work any more."""
        self._running_count -= 1

    def resolve_model(self, name: str | None, parent_model: Model) -> Model:
        """The model of this name; the one above where there is no other.

        Raises:
            ToolError: it cannot be had.
        """
        if name is None or name in ("inherit", parent_model.name):
            return parent_model
        if name not in self._models:
            try:
                model = self._find_model(name)
            except ToolspanError as problem:
                raise ToolError(f"model {name}: {problem}", kind="invalid_input") from problem
            self._models[name] = model or parent_model
        return self._models[name]

    async def close(self) -> None:
        """Let the connections of other models go."""
        for model in set(self._models.values()):
            await model.close()

    def describe_agents(self) -> str:
        """The agents, for a model."""
        lines = [
            f"- {definition.name}: {definition.description}{_describe_tools(definition)}"
            for definition in self.definitions.values()
        ]
        return "\n".join(("The agents:", *lines))


def _describe_tools(definition: AgentDefinition) -> str:
    return "" if definition.tools is None else f" (has {', '.join(definition.tools)})"


def subagent_prompt(definition: AgentDefinition, cwd: Path) -> str:
    """What an agent is told before anything else."""
    if not definition.prompt:
        return system_prompt(cwd, extra=_SUBAGENT_PROMPT)
    return "\n\n".join((definition.prompt, _SUBAGENT_PROMPT, describe_environment(cwd)))


def subagent_mode(definition: AgentDefinition, parent_mode: str) -> str:
    """The mode of an agent: its own, unless somebody has chosen a stricter one above."""
    own_mode = definition.permission_mode
    if own_mode is None or parent_mode not in _MODES_BY_STRICTNESS or own_mode not in _MODES_BY_STRICTNESS:
        return parent_mode
    is_stricter = _MODES_BY_STRICTNESS.index(own_mode) > _MODES_BY_STRICTNESS.index(parent_mode)
    return own_mode if is_stricter or parent_mode == "default" else parent_mode


def new_agent_id(digits: int) -> str:
    """A name that no agent has yet, as long as the client's."""
    letters = secrets.token_hex(digits)
    return f"a{letters[: digits - 1]}"
