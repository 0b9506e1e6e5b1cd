"""Agent definitions: `NAME.md` files with frontmatter and a prompt, and the limits for subagents.

An invalid file is reported, and the others are used. The caller checks whether a project is trusted. Start at
`load_agent_definitions`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from toolspan.errors import ToolError, ToolspanError
from toolspan.runtime.hooks.events import HookRunner
from toolspan.runtime.settings.load import parse_frontmatter_fields, parse_frontmatter_hooks, split_frontmatter
from toolspan.runtime.tool import Tool
from toolspan.session.agent import describe_environment, system_prompt
from toolspan.session.models.base import Model
from toolspan.tools.agent import GENERAL_AGENT_NAME

MAX_DEFINITION_SIZE = 1 << 20
_AGENT_NAME = re.compile(r"[\w.:-]+(?: [\w.:-]+)*")
_RULE_SUFFIX = re.compile(r"\(.*?\)")
_PERMISSION_MODES = ("default", "acceptEdits", "plan", "dontAsk")
_KNOWN_FIELDS = frozenset({
    "name", "description", "tools", "disallowedTools", "model", "permissionMode", "maxTurns",
    "background", "isolation", "color", "hooks",
})  # fmt: skip

MakeHooks = Callable[[object, Path], HookRunner]
"""A function that creates hooks from a file's frontmatter and path.

Raises:
    ToolspanError: the hooks are invalid.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDefinition:
    """The definition of a subagent: its prompt, tools, model and limits."""

    name: str
    description: str
    """The purpose of the agent, for the model that selects it."""
    prompt: str = ""
    """The system prompt, or an empty string for the general one."""
    tools: tuple[str, ...] | None = None
    """The agent's tools, or None to inherit those of its parent."""
    disallowed_tools: tuple[str, ...] = ()
    """Tools to remove from `tools`."""
    model: str | None = None
    permission_mode: str | None = None
    max_turns: int | None = None
    is_isolated: bool = False
    """True to always run in a git worktree."""
    in_background: bool = False
    """True to always run in the background."""
    hooks: HookRunner | None = field(default=None, compare=False)
    """Hooks that run in addition to the session's."""
    path: Path | None = None
    """The definition file, or None if the agent is built in."""

    def allows_tool(self, tool: Tool) -> bool:
        """Return whether the agent inherits this tool from its parent."""
        names = {tool.name, *tool.aliases}
        if tool.needs_user or names & set(self.disallowed_tools):
            return False
        return self.tools is None or "*" in self.tools or bool(names & set(self.tools))


GENERAL_AGENT = AgentDefinition(
    name=GENERAL_AGENT_NAME, description="For tasks of several steps. Has all of your tools."
)


@dataclass(frozen=True, slots=True)
class LoadedAgents:
    """The definitions found in some folders, and the problems encountered."""

    definitions: tuple[AgentDefinition, ...] = ()
    problems: tuple[str, ...] = ()
    """One line for each file or field that is ignored."""


def load_agent_definitions(folders: Iterable[Path], make_hooks: MakeHooks | None = None) -> LoadedAgents:
    """Load the definitions in these folders. If a name occurs more than once, the last definition wins.

    Without `make_hooks`, definitions with hooks are reported as problems.
    """
    definitions: dict[str, AgentDefinition] = {}
    problems: list[str] = []
    for path in find_agent_files(folders):
        try:
            definition, notes = read_agent_definition(path, make_hooks)
        except (ValueError, ToolspanError) as problem:
            problems.append(f"{path}: {problem}; ignoring this agent")
            continue
        definitions[definition.name] = definition
        problems += [f"{path}: {note}" for note in notes]
    return LoadedAgents(tuple(definitions.values()), tuple(problems))


def find_agent_files(folders: Iterable[Path]) -> list[Path]:
    """Return the definition files in these folders and their subfolders."""
    return [path for folder in folders if folder.is_dir() for path in sorted(folder.rglob("*.md"))]


def read_agent_definition(path: Path, make_hooks: MakeHooks | None = None) -> tuple[AgentDefinition, Sequence[str]]:
    """Read a definition. Return it with a note about each unknown field.

    Raises:
        ValueError: the file is not a valid definition.
        ToolspanError: its hooks are invalid.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_DEFINITION_SIZE + 1)
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    if len(data) > MAX_DEFINITION_SIZE:
        raise ValueError("the file is larger than 1 MiB")
    parts = split_frontmatter(data.decode("utf-8", "replace"))
    if parts is None:
        raise ValueError("there is no frontmatter between `---` lines")
    head, prompt = parts
    fields = parse_frontmatter_fields(head)
    notes = [f"ignoring unknown field {name}" for name in fields if name not in _KNOWN_FIELDS]
    name = _field_text(fields, "name")
    if name is None or not _AGENT_NAME.fullmatch(name):
        raise ValueError("the name is missing" if name is None else f"{name!r} is not a valid name")
    description = _field_text(fields, "description")
    if description is None:
        raise ValueError("the description is missing")
    model, max_turns = _field_text(fields, "model"), _field_text(fields, "maxTurns")
    if max_turns is not None and (not max_turns.isascii() or not max_turns.isdigit() or int(max_turns) < 1):
        raise ValueError(f"maxTurns is {max_turns!r}, but must be a positive number")
    definition = AgentDefinition(
        name=name,
        description=description,
        prompt=prompt.strip(),
        tools=_field_tool_names(fields, "tools"),
        disallowed_tools=_field_tool_names(fields, "disallowedTools") or (),
        model=None if model == "inherit" else model,
        permission_mode=_field_choice(fields, "permissionMode", _PERMISSION_MODES),
        max_turns=None if max_turns is None else int(max_turns),
        is_isolated=_field_choice(fields, "isolation", ("worktree",)) is not None,
        in_background=_field_choice(fields, "background", ("true", "false")) == "true",
        path=path,
    )
    block = parse_frontmatter_hooks(head)
    if block is None:
        return definition, notes
    if make_hooks is None:
        raise ValueError("it has hooks, which cannot be run here")
    return replace(definition, hooks=make_hooks(block, path)), notes


def _field_text(fields: Mapping[str, object], key: str) -> str | None:
    value = fields.get(key)
    if isinstance(value, Mapping):
        raise ValueError(f"{key} is not a string")
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value or "")
    return text.strip() or None


def _field_tool_names(fields: Mapping[str, object], key: str) -> tuple[str, ...] | None:
    """Return the tool names in a field, without rule patterns in parentheses."""
    text = _field_text(fields, key)
    if text is None:
        return None
    parts = _RULE_SUFFIX.sub("", text).split(",")
    return tuple(name for part in parts if (name := part.strip()))


def _field_choice(fields: Mapping[str, object], key: str, choices: Sequence[str]) -> str | None:
    text = _field_text(fields, key)
    if text is not None and text not in choices:
        raise ValueError(f"{key} is {text!r}, but must be one of {', '.join(choices)}")
    return text


FindModel = Callable[[str], Model | None]
"""A function that returns the model for a full or short name, or None to use the parent's model."""

_SUBAGENT_PROMPT = """\
Another agent has given you a task. You cannot ask questions: make decisions, and report them. Only your last
message is read. It is your report: what you found or did, with paths and line numbers, and what is still open."""
_MODES_BY_STRICTNESS = ("bypassPermissions", "acceptEdits", "default", "dontAsk", "plan")
"""The permission modes, from least to most strict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentLimits:
    """Limits for a session's subagents."""

    max_concurrent: int = 20
    """The maximum number of subagents running at once, at all depths."""
    timeout: float | None = None
    """The maximum duration of one subagent run, in seconds."""
    max_depth: int | None = None
    """The maximum depth below the main conversation, or None for the client version's limit."""


class SubagentConfig:
    """The definitions, models and limits shared by all subagents in a session."""

    def __init__(
        self,
        definitions: Iterable[AgentDefinition] = (),
        *,
        find_model: FindModel = lambda _name: None,
        limits: SubagentLimits | None = None,
    ) -> None:
        """Create the configuration. `definitions` extend the general agent and may replace it by name."""
        by_name = {definition.name: definition for definition in definitions}
        self.definitions: Mapping[str, AgentDefinition] = {GENERAL_AGENT.name: GENERAL_AGENT, **by_name}
        self.limits = limits or SubagentLimits()
        self._find_model = find_model
        self._models: dict[str, Model] = {}
        self._running_count = 0

    def acquire_slot(self) -> None:
        """Reserve a slot for a subagent that is about to start."""
        if self._running_count >= self.limits.max_concurrent:
            raise ToolError(
                f"Concurrent subagent limit reached. {self._running_count} agents are running. Wait until one"
                " of them finishes."
            )
        self._running_count += 1

    def release_slot(self) -> None:
        """Release the slot of a subagent that has finished."""
        self._running_count -= 1

    def resolve_model(self, name: str | None, parent_model: Model) -> Model:
        """Return the model called `name`, or the parent's model if there is no other."""
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
        """Close the models that were created for subagents."""
        for model in set(self._models.values()):
            await model.close()

    def describe_agents(self) -> str:
        """Return the list of agents for the Agent tool's description."""
        lines = ["The agents:"]
        for definition in self.definitions.values():
            tools = "" if definition.tools is None else f" (has {', '.join(definition.tools)})"
            lines.append(f"- {definition.name}: {definition.description}{tools}")
        return "\n".join(lines)


def subagent_prompt(definition: AgentDefinition, cwd: Path) -> str:
    """Return a subagent's system prompt."""
    if not definition.prompt:
        return system_prompt(cwd, extra=_SUBAGENT_PROMPT)
    return "\n\n".join((definition.prompt, _SUBAGENT_PROMPT, describe_environment(cwd)))


def subagent_mode(definition: AgentDefinition, parent_mode: str) -> str:
    """Return a subagent's permission mode, which is its own unless the parent's is stricter."""
    own_mode = definition.permission_mode
    if own_mode is None or parent_mode not in _MODES_BY_STRICTNESS or own_mode not in _MODES_BY_STRICTNESS:
        return parent_mode
    is_stricter = _MODES_BY_STRICTNESS.index(own_mode) > _MODES_BY_STRICTNESS.index(parent_mode)
    return own_mode if is_stricter or parent_mode == "default" else parent_mode


def new_agent_id(digits: int) -> str:
    """Return a new agent id that is `digits` characters long."""
    letters = secrets.token_hex(digits)
    return f"a{letters[: digits - 1]}"
