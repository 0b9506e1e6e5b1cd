"""Skill: load instructions that a project or a user has written for the model.

A skill is a folder with a `SKILL.md` under `.claude/skills` of the project or under the client's
folder; the project's skill takes precedence. The model receives its text along with the result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from anyio import to_thread

from toolspan.errors import ToolError, ToolspanError
from toolspan.runtime.context import ToolContext, Workspace
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.schema.issues import Invalid, Valid
from toolspan.runtime.settings.load import split_frontmatter
from toolspan.runtime.tool import Output, Refusal, Tool, ToolSubject
from toolspan.tools.files.safe_read import read_file
from toolspan.tools.schemas import object_schema, text

_HIDDEN_SKILL = re.compile(r"^disable-model-invocation:\s*[\"']?(?:true|yes|on)\b", re.MULTILINE | re.IGNORECASE)
MAX_SKILL_BYTES = 1 << 20
_EFFECTS_IN_HEAD = re.compile(r"allowed-?_?tools|hooks|\\|^[^\w\n]*+paths\W*:", re.IGNORECASE | re.MULTILINE)
"""Fields with which a skill does more than add text. A backslash may spell such a field."""
_COMMAND_IN_BODY = re.compile(r"!`|```!")
"""A command whose output the client inserts into the text."""
_MAX_TYPOS = 2
_NAME_PATTERN = re.compile(r"[\w.:-]+", re.ASCII)
_SCHEMA = object_schema(
    {"skill": text("The skill's name"), "args": text("What the skill is to be used on")}, required=["skill"]
)


def skill_tool(profile: Profile) -> Tool:
    """Return the Skill tool for a client version."""
    check = compile_checker(_SCHEMA, coerce=profile.availability.coerces)

    def parse(raw_input: Mapping[str, object]) -> Valid | Invalid:
        # Unknown fields are ignored. The oldest client also ignores arguments that are not a string.
        is_unused = not profile.availability.checks_skill_args and not isinstance(raw_input.get("args"), str)
        names = {"skill"} if is_unused else {"skill", "args"}
        return check({name: value for name, value in raw_input.items() if name in names})

    return Tool(
        name="Skill",
        description="Read the instructions of a skill of this project or person, to follow them.",
        input_schema=_SCHEMA,
        parse=parse,
        run=_run_skill,
        validate=_validate_skill,
        subject=ToolSubject("text", "skill"),
        only_reads=None if profile.availability.asks_about_all_skills else _only_adds_text,
    )


def _only_adds_text(value: Mapping[str, object], workspace: Workspace) -> bool:
    """Return whether a skill only adds text to the conversation. Such skills run without a question.

    Those that bring hooks, change the tools, contain commands for the client, or are links to elsewhere do more.
    """
    path = _find_skill_file(_skill_name(value), workspace)
    if path is None:
        return False
    resolved = path.resolve()
    if not any(resolved.is_relative_to(folder.resolve()) for folder in _skill_folders(workspace)):
        return False
    try:
        content = read_file(resolved, MAX_SKILL_BYTES).data.decode("utf-8", "replace")
    except ToolError:
        return False
    head, body = split_frontmatter(content) or ("", content)
    return _EFFECTS_IN_HEAD.search(head) is None and _COMMAND_IN_BODY.search(body) is None


async def _validate_skill(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    name = _skill_name(value)
    if not name:
        return Refusal("Invalid skill format: ", "invalid_input")
    path = await to_thread.run_sync(_find_skill_file, name, ctx.workspace)
    if path is None:
        similar = await to_thread.run_sync(_find_similar_skill, name, ctx)
        advice = f". Did you mean {similar}?" if similar and ctx.profile.availability.suggests_skills else ""
        return Refusal(f"Unknown skill: {name}{advice}", "not_found")
    if await to_thread.run_sync(_is_hidden_from_models, path):
        message = f"Skill {name} cannot be used with Skill tool due to disable-model-invocation"
        return Refusal(message, "invalid_input")
    return None


def _find_similar_skill(name: str, ctx: ToolContext) -> str | None:
    """Return the skill with the most similar name, if it differs in at most two letters."""
    folders = _skill_folders(ctx.workspace)
    names = [path.parent.name for folder in folders for path in sorted(folder.glob("*/SKILL.md"))]
    distances = [(_edit_distance(name, other), other) for other in names if abs(len(name) - len(other)) <= _MAX_TYPOS]
    distance, nearest = min(distances, key=lambda pair: pair[0], default=(_MAX_TYPOS + 1, None))
    return nearest if distance <= _MAX_TYPOS else None


def _edit_distance(one: str, other: str) -> int:
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        previous, row[0] = row[0], at
        for place, other_letter in enumerate(other, 1):
            changed = previous + (letter != other_letter)
            previous, row[place] = row[place], min(changed, row[place] + 1, row[place - 1] + 1)
    return row[-1]


def _is_hidden_from_models(path: Path) -> bool:
    """Return whether only users may start the skill. Models cannot start a skill that cannot be read."""
    try:
        content = read_file(path, MAX_SKILL_BYTES).data.decode("utf-8", "replace")
    except ToolError:
        return False  # the run reports the problem
    head = (split_frontmatter(content) or ("", ""))[0]
    return _HIDDEN_SKILL.search(head) is not None


async def _run_skill(value: Mapping[str, object], ctx: ToolContext) -> Output:
    name = _skill_name(value)
    path = await to_thread.run_sync(_find_skill_file, name, ctx.workspace)
    if path is None:  # it was deleted after validation
        raise ToolError(f"Unknown skill: {name}", kind="not_found", wrapped=True)
    loaded = await to_thread.run_sync(read_file, path, MAX_SKILL_BYTES)
    content = loaded.data.decode("utf-8", "replace")
    head, body = split_frontmatter(content) or (None, content)
    if head is not None and ctx.workspace.adopt_hooks is not None:
        try:
            ctx.workspace.adopt_hooks(head, path)
        except ToolspanError as error:  # without its hooks, which may be safeguards, the skill is not loaded
            raise ToolError(f"The hooks of this skill cannot be used: {error}") from error
    args = value.get("args")
    instructions = f"Base directory for this skill: {path.parent}\n\n{body.strip()}"
    if args:
        instructions += f"\n\nARGUMENTS: {args}"
    record = {"success": True, "commandName": name}
    return Output(f"Launching skill: {name}", record, companions=(instructions,))


def _skill_name(value: Mapping[str, object]) -> str:
    return str(value["skill"]).strip().removeprefix("/")


def _skill_folders(workspace: Workspace) -> tuple[Path, ...]:
    user_folder = workspace.config / "skills"
    return (workspace.project / ".claude" / "skills", user_folder) if workspace.uses_project_skills else (user_folder,)


def _find_skill_file(name: str, workspace: Workspace) -> Path | None:
    if not _NAME_PATTERN.fullmatch(name) or name.startswith("."):
        return None
    files = (folder / name / "SKILL.md" for folder in _skill_folders(workspace))
    return next((file for file in files if file.is_file()), None)
