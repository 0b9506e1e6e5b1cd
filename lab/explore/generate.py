"""Generate cases from a seed: a project folder, settings, and turns with several calls each.

A case is a case of the conformance kit without its expectations. The same seed, version and number give the same case.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from lab.explore.calls import Calls, Draw
from lab.explore.contents import Folder
from lab.explore.more_calls import TASK_TOOLS, SessionCalls, damage, mcp_call

Json = dict[str, Any]
MODES = ("default", "acceptEdits", "plan", "dontAsk", "bypassPermissions")
ALL_ALLOWED = [
    "Bash", "Read", "Edit", "Write", "Glob", "Grep", "NotebookEdit", "TodoWrite", "Task", "Agent", "Skill", "WebFetch",
    "mcp__shapes", *TASK_TOOLS,
]  # fmt: skip
_SEARCH_TOOLS = "Bash,Read,Edit,Write,Glob,Grep,NotebookEdit"
_SHAPES = {"shapes": {"type": "stdio", "command": "python3", "args": ["<home>/orc/mcp_shapes.py"]}}
THEMES = (
    "files", "files", "files", "files", "edits", "edits", "edits", "odd", "odd", "search", "search", "shell", "shell",
    "shell", "background", "tasks", "notebooks", "mcp", "invalid", "modes", "modes", "hooks", "mixed",
)  # fmt: skip


def generate_case(seed: int, version: str, number: int) -> Json:
    """Return one case."""
    rng = random.Random(f"{seed}/{version}/{number}")
    theme = THEMES[number % len(THEMES)] if number < len(THEMES) else rng.choice(THEMES)
    folder = Folder(rng)
    _fill(folder, theme)
    case: Json = {"id": f"s{seed}-{number:03}-{theme}", "version": version, "theme": theme}
    case["settings"] = {"permissions": {"allow": ALL_ALLOWED}}
    case["permission_mode"] = "default"
    draws = _draws(folder, version, theme, case)
    case["turns"] = _turns(rng, case, draws)
    case["files"], case["home_files"] = folder.files, folder.home_files
    if theme == "modes":
        _restrict(rng, case, folder)
    if theme == "hooks":
        case["settings"]["hooks"] = draw_hooks(rng)
    return case


def _fill(folder: Folder, theme: str) -> None:
    rng = folder.rng
    folder.add_text_files(rng.randint(5, 9))
    if theme in ("files", "odd", "mixed", "search", "invalid", "modes"):
        folder.add_odd_files(6 if theme == "odd" else 3)
        folder.add_links()
    if theme in ("files", "odd", "mixed"):
        folder.add_media()
        folder.add_guarded()
    if theme in ("notebooks", "odd", "mixed", "invalid"):
        for _ in range(3 if theme == "notebooks" else 1):
            folder.add_notebook()
    if theme in ("tasks", "mixed", "invalid"):
        skills = {
            "greet/SKILL.md": "---\nname: greet\ndescription: Greets\n---\nSay hello to $ARGUMENTS.\n",
            "plain/SKILL.md": "No front matter.\n",
            "hidden/SKILL.md": "---\nname: hidden\ndescription: x\ndisable-model-invocation: true\n---\nHidden.\n",
        }
        for name, text in skills.items():
            folder.files[f".claude/skills/{name}"] = {"text": text}


def _draws(folder: Folder, version: str, theme: str, case: Json) -> Callable[[], Draw]:
    """Return a function that draws the next call of a theme; sets what the case needs for it."""
    rng = folder.rng
    calls, session = Calls(folder, version), SessionCalls(rng, version)
    case["_session"] = session
    new = not version.startswith("2.0.")
    files = [calls.read] * 5 + [calls.edit] * 4 + [calls.write] * 3 + [calls.bash] * 2
    weights: dict[str, list[Callable[[], Draw]]] = {
        "files": files,
        "modes": [*files, calls.bash, calls.bash],
        "hooks": [calls.read, calls.edit, calls.write, calls.bash, calls.bash],
        "edits": [calls.edit] * 7 + [calls.read] * 2 + [calls.write, calls.bash],
        "odd": [calls.read] * 4 + [calls.edit] * 2 + [calls.write],
        "search": [calls.grep] * 6 + [calls.glob] * 4 + [calls.write, calls.bash],
        "shell": [calls.bash] * 12 + [calls.slow_bash, calls.read],
        "background": [session.start] * 3 + [session.follow] * 4 + [session.pause, calls.slow_bash, calls.bash],
        "tasks": [session.task if new else session.todo] * 6 + [session.skill],
        "notebooks": [calls.notebook_edit] * 5
        + [calls.read, _notebook_read(folder), _notebook_read(folder), calls.edit],
        "mcp": [lambda: mcp_call(rng)] * 8 + [calls.bash],
        "invalid": [*files, calls.glob, calls.grep, calls.notebook_edit, session.todo, session.task, calls.multi_edit],
        "mixed": [*files, calls.glob, calls.grep, calls.notebook_edit, session.start, session.follow, session.skill],
    }
    chosen = weights[theme]
    if theme in ("search", "invalid", "mixed", "tasks") and new:
        case["tools"] = _SEARCH_TOOLS + "," + ",".join([*TASK_TOOLS, "TaskStop", "Skill"])
    if theme == "invalid" and not new:
        chosen = [draw for draw in chosen if draw != session.task]
    if theme == "mcp":
        case["mcp_servers"] = _SHAPES
    damaged = {"invalid": 0.6, "mixed": 0.05, "mcp": 0.0}.get(theme, 0.03)
    return lambda: damage(rng, rng.choice(chosen)()) if rng.random() < damaged else rng.choice(chosen)()


def _notebook_read(folder: Folder) -> Callable[[], Draw]:
    return lambda: ("Read", {"file_path": f"<cwd>/{folder.rng.choice(folder.notebooks)}"})


def _turns(rng: random.Random, case: Json, draw: Callable[[], Draw]) -> list[list[Json]]:
    session: SessionCalls = case.pop("_session")
    turns: list[list[Json]] = []
    number, size = 0, rng.randint(35, 55)
    while number < size:
        turn: list[Json] = []
        for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
            number += 1
            name, given = draw()
            call_id = f"toolu_01{case['id'].replace('-', '')}x{number:03}"
            turn.append({"id": call_id, "name": name, "input": given})
        session.started += [call["id"] for call in turn if call["input"].get("run_in_background") is True]
        turns.append(turn)
    return turns


def _restrict(rng: random.Random, case: Json, folder: Folder) -> None:
    """Give the case a mode and rules."""
    case["permission_mode"] = rng.choice(MODES)
    names = sorted(folder.texts)
    rules = [
        "Bash(echo:*)", "Bash(cat:*)", "Bash(ls *)", "Bash(sed:*)", "Read", "Edit", "Write",
        f"Edit(/{rng.choice(names)})", f"Read(./{rng.choice(names)})", "Read(src/**)", "Edit(src/**)",
        "Edit(//home/dev/proj/**)", "Read(~/**)", "Edit(*.txt)", "Read(**/*.py)", "Edit(**)", "Bash(rm:*)",
        "Bash(git:*)", "Bash(python3 *)", "Bash(exit *)", "Bash(cd:*)", "Glob", "Grep",
    ]  # fmt: skip
    permissions: Json = {"allow": rng.sample(rules, rng.randint(0, 6))}
    if rng.random() < 0.6:
        permissions["deny"] = rng.sample(rules, rng.randint(1, 3))
    if rng.random() < 0.4:
        permissions["ask"] = rng.sample(rules, rng.randint(1, 3))
    if rng.random() < 0.15:
        permissions["additionalDirectories"] = ["<home>"]
    case["settings"] = {"permissions": permissions}


def draw_hooks(rng: random.Random) -> Json:
    """Draw hooks around calls: what they answer, and for which tools."""

    def handler(mode: str, argument: str = "") -> Json:
        command = f"python3 <home>/orc/hook.py <home>/orc/hooks.jsonl {mode} '{argument}'"
        return {"type": "command", "command": command}

    def decide(event: str, fields: str) -> Json:
        return handler("json", f'{{"hookSpecificOutput":{{"hookEventName":"{event}",{fields}}}}}')

    pre = [
        handler("log"), handler("exit", "2"), handler("exit", "1"), handler("text", "plain"), handler("crash"),
        decide("PreToolUse", '"permissionDecision":"allow"'),
        decide("PreToolUse", '"permissionDecision":"deny","permissionDecisionReason":"no way"'),
        decide("PreToolUse", '"permissionDecision":"deny"'),
        decide("PreToolUse", '"permissionDecision":"ask","permissionDecisionReason":"sure?"'),
        decide("PreToolUse", '"permissionDecision":"allow","updatedInput":{"command":"echo changed"}'),
        decide("PreToolUse", '"updatedInput":{"command":"echo changed"}'),
        decide("PreToolUse", '"additionalContext":"note"'),
        handler("json", '{"decision":"block","reason":"blocked"}'), handler("json", '{"decision":"approve"}'),
        handler("json", '{"systemMessage":"note"}'), handler("json", '{"suppressOutput":true}'), handler("json", "{}"),
        handler("json", '{"decision":"bogus"}'), decide("PostToolUse", '"permissionDecision":"deny"'),
    ]  # fmt: skip
    post = [
        handler("log"), handler("exit", "2"), handler("json", '{"decision":"block","reason":"bad result"}'),
        decide("PostToolUse", '"additionalContext":"seen"'), decide("PostToolUse", '"updatedToolOutput":"replaced"'),
        decide("PostToolUse", '"updatedMCPToolOutput":"replaced"'),
    ]  # fmt: skip
    matchers = ("Bash", "Read", "Edit", "Write", "Edit|Write", "*", "", "Re.*", "bash", ".*")
    hooks: Json = {}
    for event, handlers in (("PreToolUse", pre), ("PostToolUse", post)):
        groups = [
            {"matcher": rng.choice(matchers), "hooks": rng.sample(handlers, rng.choice((1, 1, 2)))}
            for _ in range(rng.choice((0, 1, 1, 2)))
        ]
        if groups:
            hooks[event] = groups
    return hooks
