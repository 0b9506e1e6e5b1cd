"""Skill: instructions that a project or a person has written for the model.

In: a skill's name. Out: its text, beside the result. A skill is a folder with a `SKILL.md` under
`.claude/skills` of the project or of the client's folder; the project's wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from anyio import to_thread

from toolspan.errors import ToolError, ToolspanError
from toolspan.files.safe_read import read_file
from toolspan.runtime.context import AdoptHooks, ToolContext
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, Refusal, Tool

MAX_SKILL_BYTES = 1 << 20
_NAME_PATTERN = re.compile(r"[\w.:-]+", re.ASCII)
_FRONT_MATTER = re.compile(r"\A---\r?\n(.*?)^---\r?$\n?", re.DOTALL | re.MULTILINE)
_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "skill": {"type": "string", "description": "The skill's name"},
        "args": {"type": "string", "description": "What the skill is to be used on"},
    },
    "required": ["skill"],
    "additionalProperties": False,
}


def skill_tool(profile: Profile) -> Tool:
    """Skill as a client version has it."""
    return Tool(
        name="Skill",
        description="Read the instructions of a skill of this project or person, to follow them.",
        input_schema=_SCHEMA,
        parse=compile_checker(_SCHEMA, coerce=profile.availability.coerces),
        run=_run_skill,
        validate=_validate_skill,
    )


async def _validate_skill(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    name = _skill_name(value)
    if await to_thread.run_sync(_find_skill_file, name, ctx) is None:
        return Refusal(f"Unknown skill: {name}", "not_found")
    return None


async def _run_skill(value: Mapping[str, object], ctx: ToolContext) -> Output:
    name = _skill_name(value)
    path = await to_thread.run_sync(_find_skill_file, name, ctx)
    if path is None:  # it was there a moment ago
        raise ToolError(f"Unknown skill: {name}", kind="not_found", wrapped=True)
    loaded = await to_thread.run_sync(read_file, path, MAX_SKILL_BYTES)
    text = loaded.data.decode("utf-8", "replace")
    front_matter = _FRONT_MATTER.match(text)
    if front_matter is not None and ctx.workspace.adopt_hooks is not None:
        _adopt_hooks(front_matter[1], path, ctx.workspace.adopt_hooks)
    body = text[front_matter.end() if front_matter else 0 :].strip()
    args = value.get("args")
    instructions = f"Base directory for this skill: {path.parent}\n\n{body}"
    if args:
        instructions += f"\n\nARGUMENTS: {args}"
    record = {"success": True, "commandName": name}
    return Output(f"Launching skill: {name}", record, companions=(instructions,))


def _adopt_hooks(front_matter: str, path: Path, adopt: AdoptHooks) -> None:
    """The skill's own hooks; without them it is not launched, for they may be what guards it."""
    try:
        adopt(front_matter, path)
    except ToolspanError as error:
        raise ToolError(f"The hooks of this skill cannot be used: {error}") from error


def _skill_name(value: Mapping[str, object]) -> str:
    return str(value["skill"]).strip().removeprefix("/")


def _find_skill_file(name: str, ctx: ToolContext) -> Path | None:
    """The skill's file; None when nobody has such a skill."""
    if not _NAME_PATTERN.fullmatch(name) or name.startswith("."):
        return None
    files = (folder / "skills" / name / "SKILL.md" for folder in _skill_folders(ctx))
    return next((file for file in files if file.is_file()), None)


def _skill_folders(ctx: ToolContext) -> Iterator[Path]:
    yield ctx.workspace.project / ".claude"
    yield ctx.workspace.config
