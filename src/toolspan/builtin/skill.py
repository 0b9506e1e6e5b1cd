"""Skill: instructions that a project or a person has written for the model.

In: a skill's name. Out: its text, beside the result. A skill is a folder with a `SKILL.md` under
`.claude/skills` of the project or of the client's folder; the project's wins.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from anyio import to_thread

from toolspan.disk.load import load
from toolspan.errors import ToolError, ToolspanError
from toolspan.profile import Profile
from toolspan.run.context import Adopt, ToolContext
from toolspan.run.tool import Output, Refusal, Tool
from toolspan.schema.check import checker

MOST_SKILL = 1 << 20
_NAME = re.compile(r"[\w.:-]+", re.ASCII)
_FRONT = re.compile(r"\A---\r?\n(.*?)^---\r?$\n?", re.DOTALL | re.MULTILINE)
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
        parse=checker(_SCHEMA, coerce=profile.offer.coerces),
        run=_run,
        validate=_find,
    )


async def _find(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    name = _name(value)
    if await to_thread.run_sync(_place, name, ctx) is None:
        return Refusal(f"Unknown skill: {name}", "not_found")
    return None


async def _run(value: Mapping[str, object], ctx: ToolContext) -> Output:
    name = _name(value)
    path = await to_thread.run_sync(_place, name, ctx)
    if path is None:  # it was there a moment ago
        raise ToolError(f"Unknown skill: {name}", kind="not_found", wrapped=True)
    loaded = await to_thread.run_sync(load, path, MOST_SKILL)
    text = loaded.data.decode("utf-8", "replace")
    head = _FRONT.match(text)
    if head is not None and ctx.workspace.adopt is not None:
        _adopt(head[1], path, ctx.workspace.adopt)
    body = text[head.end() if head else 0 :].strip()
    args = value.get("args")
    told = f"Base directory for this skill: {path.parent}\n\n{body}"
    if args:
        told += f"\n\nARGUMENTS: {args}"
    record = {"success": True, "commandName": name}
    return Output(f"Launching skill: {name}", record, companions=(told,))


def _adopt(head: str, path: Path, adopt: Adopt) -> None:
    """The skill's own hooks; without them it is not launched, for they may be what guards it."""
    try:
        adopt(head, path)
    except ToolspanError as error:
        raise ToolError(f"The hooks of this skill cannot be used: {error}") from error


def _name(value: Mapping[str, object]) -> str:
    return str(value["skill"]).strip().removeprefix("/")


def _place(name: str, ctx: ToolContext) -> Path | None:
    """The skill's file; None when nobody has such a skill."""
    if not _NAME.fullmatch(name) or name.startswith("."):
        return None
    files = (folder / "skills" / name / "SKILL.md" for folder in _folders(ctx))
    return next((file for file in files if file.is_file()), None)


def _folders(ctx: ToolContext) -> Iterator[Path]:
    yield ctx.workspace.project / ".claude"
    yield ctx.workspace.config
