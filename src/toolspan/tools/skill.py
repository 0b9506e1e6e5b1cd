"""Skill: load instructions that a project or a user has written for the model.

A skill is a folder with a `SKILL.md` under `.claude/skills`, or a file under `.claude/commands`, of the project or
under the client's folder; the user's own takes precedence. The model receives its text along with the result, and the
tools that it names in `allowed-tools` run without a question until the next prompt.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from anyio import to_thread

from toolspan.errors import ToolError, ToolspanError
from toolspan.runtime.context import CallContext, ToolContext, Workspace
from toolspan.runtime.permissions.rule import split_rules
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.schema.issues import Invalid, Valid
from toolspan.runtime.settings.load import parse_frontmatter_fields, split_frontmatter
from toolspan.runtime.tool import Output, Refusal, Tool, ToolSubject
from toolspan.tools.files.safe_read import read_file
from toolspan.tools.schemas import object_schema, text

_HIDDEN_SKILL = re.compile(r"^disable-model-invocation:\s*[\"']?(?:true|yes|on)\b", re.MULTILINE | re.IGNORECASE)
MAX_SKILL_BYTES = 1 << 20
_EFFECTS_IN_HEAD = re.compile(r"allowed-?_?tools|hooks|\\|^[^\w\n]*+paths\W*:", re.IGNORECASE | re.MULTILINE)
"""Fields with which a skill does more than add text. A backslash may spell such a field."""
_COMMAND_IN_BODY = re.compile(r"!`|```!")
"""A command whose output the client inserts into the text."""
_VARIABLE = re.compile(r"\\(?P<escaped>\$\d+)|\$ARGUMENTS(?:\[(?P<index>\d+)\])?|\$(?P<number>\d+)")
_DECLARED_NAME = re.compile(r"^name:[ \t]*[\"']?([\w.:-]+)[\"']?[ \t]*$", re.MULTILINE | re.ASCII)
_SKILL_FILE = "SKILL.md"
_MAX_TYPOS = 2
_NAME_PATTERN = re.compile(r"[\w.:-]+", re.ASCII)
_SCHEMA = object_schema(
    {"skill": text("The name of the skill."), "args": text("Arguments for the skill.")}, required=["skill"]
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
        description=(
            "Load the instructions of a skill, which the project or the user has written for a kind of task. If a"
            " skill matches your task, load it before you start, and follow it. A skill has the name of its folder in"
            " `.claude/skills`, or of its file in `.claude/commands` without `.md`."
        ),
        input_schema=_SCHEMA,
        parse=parse,
        run=_run_skill,
        validate=_validate_skill,
        subject=ToolSubject("skill", "skill"),
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
    names = [name for folder in _skill_folders(ctx.workspace) for name in _list_skills(folder)]
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
            raise ToolError(f"The skill was not loaded, because its hooks are invalid: {error}") from error
    instructions = _insert_arguments(body, str(value.get("args") or ""), path.parent)
    if path.name == _SKILL_FILE:
        instructions = f"Base directory for this skill: {path.parent}\n\n{instructions}"
    record: dict[str, object] = {"success": True, "commandName": name}
    rules = _read_allowed_tools(head or "")
    if not rules:
        return Output(f"Launching skill: {name}", record, companions=(instructions,))
    record["allowedTools"] = rules

    def grant(context: CallContext) -> CallContext:
        return replace(context, granted_rules=(*context.granted_rules, *rules))

    return Output(f"Launching skill: {name}", record, companions=(instructions,), modify=grant)


def _read_allowed_tools(head: str) -> list[str]:
    """Return the rules in a skill's `allowed-tools`, which the skill's approval has allowed."""
    try:
        field = parse_frontmatter_fields(head).get("allowed-tools")
    except ValueError:
        return []
    return [rule for text in (field if isinstance(field, list) else [field]) for rule in split_rules(str(text or ""))]


def _insert_arguments(body: str, args: str, folder: Path) -> str:
    """Replace `$ARGUMENTS`, `$ARGUMENTS[0]` and `$0`. Append the arguments if the text uses none of them."""
    try:
        words = shlex.split(args)
    except ValueError:  # an unclosed quote
        words = args.split()
    is_used = False

    def replace_variable(match: re.Match[str]) -> str:
        nonlocal is_used
        if match["escaped"]:
            return match["escaped"]
        number = match["index"] or match["number"]
        if number is not None and int(number) >= len(words):
            return match[0]
        is_used = True
        return args if number is None else words[int(number)]

    text = _VARIABLE.sub(replace_variable, body.replace("${CLAUDE_SKILL_DIR}", str(folder)))
    return text if is_used or not args else f"{text}\n\nARGUMENTS: {args}"


def _skill_name(value: Mapping[str, object]) -> str:
    return str(value["skill"]).strip().removeprefix("/")


def _skill_folders(workspace: Workspace) -> tuple[Path, ...]:
    """Return the folders with skills, in order of precedence."""
    roots = (workspace.config, workspace.project / ".claude") if workspace.uses_project_skills else (workspace.config,)
    return tuple(root / kind for kind in ("skills", "commands") for root in roots)


def _list_skills(folder: Path) -> dict[str, Path]:
    """Return the skill files in a folder by name. A command in a subfolder is named `subfolder:command`."""
    if folder.name == "skills":
        return {file.parent.name: file for file in sorted(folder.glob(f"*/{_SKILL_FILE}"))}
    files: dict[str, Path] = {}
    for file in sorted(folder.rglob("*.md")):
        steps = file.relative_to(folder).with_suffix("").parts
        if file.name == _SKILL_FILE:
            files[":".join(steps[:-1])] = file
        elif not (file.parent / _SKILL_FILE).exists():  # otherwise the file belongs to that skill
            files[":".join(steps)] = file
    return files


def _find_skill_file(name: str, workspace: Workspace) -> Path | None:
    if not _NAME_PATTERN.fullmatch(name) or name.startswith("."):
        return None
    skills = [_list_skills(folder) for folder in _skill_folders(workspace)]
    named = next((files[name] for files in skills if name in files), None)
    return named or next((file for files in skills for file in files.values() if _declared_name(file) == name), None)


def _declared_name(path: Path) -> str | None:
    """Return the name in a skill's frontmatter, which may differ from that of its folder."""
    if path.name != _SKILL_FILE:
        return None
    try:
        content = read_file(path, MAX_SKILL_BYTES).data.decode("utf-8", "replace")
    except ToolError:
        return None
    match = _DECLARED_NAME.search((split_frontmatter(content) or ("", ""))[0])
    return match[1] if match else None
