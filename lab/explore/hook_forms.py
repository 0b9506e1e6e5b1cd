"""Generate permission decisions with PreToolUse and PermissionRequest hooks, beside rules and modes.

Each handler prints one answer for all calls of its matcher. Several handlers of a case may disagree.
"""

from __future__ import annotations

import json
import random
import shlex
from typing import Any

from lab.explore.calls import Draw
from lab.explore.generate import MODES
from lab.explore.tool_forms import add_calls, draw_rules, make_case

Json = dict[str, Any]
_CALLS = 30
_CALLS_IN_PLAN_MODE = 12
_SHAPES = {"shapes": {"type": "stdio", "command": "python3", "args": ["<home>/orc/mcp_shapes.py"]}}
_RULES = (
    "Bash", "Bash(touch:*)", "Bash(touch a)", "Bash(rm:*)", "Bash(ls:*)", "Edit", "Edit(src/**)", "Read(.env)",
    "Write",
    "Read(./secret/**)", "WebFetch(domain:example.com)", "WebFetch", "mcp__shapes__give", "mcp__shapes",
    "Skill(tooled)",
    "Edit(.env)", "Bash(npm run *)", "Read", "WebSearch", "Agent", "Bash(* --force)",
)  # fmt: skip
_MATCHERS = (
    "Bash", "Bash", "Write", "Edit|Write", "*", "", "Write|Bash", "mcp__.*", "mcp__shapes__give", "WebFetch", "Read",
    ".*",
    "bash", "Ba", "^Bash$", "Bash|", "(", "Skill", "Bash(touch:*)", "mcp__shapes", "B.*h", "Web.*", "Agent", "Task",
    "Bash,Write",
    "Bash, Read", " Bash", "Bash ", "!Bash", "[", "Bash|Read|Write|WebFetch|Skill",
)  # fmt: skip
_CONDITIONS = (
    "Bash(touch:*)", "Bash(touch a)", "Bash", "Write", "Edit(src/**)", "Bash(rm:*)", "Nope",
    "WebFetch(domain:*)",
    "Read(.env)", "mcp__shapes", "Bash(ls *)",
)  # fmt: skip
_INPUTS: tuple[Json, ...] = (
    {"command": "touch a"}, {"command": "rm a.txt"}, {"command": "ls"}, {"command": "npm run x"}, {"command": 5}, {},
    {"file_path": "<cwd>/src/new.py", "content": "x\n"}, {"file_path": "<cwd>/.env", "content": "x\n"}, {"nope": 1},
    {"file_path": "<cwd>/.git/config", "content": "x\n"}, {"url": "https://example.com/", "prompt": "x"},
    {"file_path": "<home>/other/n.txt", "content": "x\n"}, {"command": "rm -rf /"}, {"x": 1}, {"skill": "greet"},
    {"file_path": "<cwd>/secret/key.pem"}, {"command": "touch a", "description": 5},
)  # fmt: skip
"""Inputs that hooks put in the place of the model's."""
_COMMANDS = (
    "touch a",
    "touch b",
    "rm a.txt",
    "ls",
    "npm run x",
    "echo hi > out",
    "rm -rf /",
    "cat .env",
    "git push --force",
)
_PATHS = ("src/new.py", "new.txt", ".env", ".git/config", "<home>/other/n.txt", ".claude/settings.json")


def generate_hook_case(seed: int, version: str, number: int) -> Json:
    """Return a case of decisions with one to four handlers."""
    rng = random.Random(f"hooks/{seed}/{version}/{number}")
    mode = MODES[number // 3 % len(MODES)] if rng.random() < 0.6 else "default"
    case = make_case(f"h{seed}-{number:03}-{mode}", version, mode)
    case["mcp_servers"] = _SHAPES
    hooks: Json = {}
    for _ in range(rng.choice((1, 1, 2, 2, 3, 4))):
        event = rng.choice(("PreToolUse", "PreToolUse", "PreToolUse", "PermissionRequest"))
        group: Json = {"hooks": [_draw_handler(rng, event) for _ in range(rng.choice((1, 1, 1, 2)))]}
        if rng.random() < 0.9:
            group["matcher"] = rng.choice(_MATCHERS)
        hooks.setdefault(event, []).append(group)
    permissions = draw_rules(rng, _RULES, 3)
    case["settings"] = {"permissions": permissions, "hooks": hooks}
    count = _CALLS_IN_PLAN_MODE if mode == "plan" else _CALLS
    add_calls(case, [_draw_call(rng) for _ in range(count)])
    return case


def _draw_handler(rng: random.Random, event: str) -> Json:
    answer = _draw_answer(rng, event)
    script = f"python3 <home>/orc/hook.py <home>/orc/hooks.jsonl {answer}"
    if rng.random() < 0.06:
        script = rng.choice(
            ("/nonexistent/hook", "exit 2", "exit 127", "false", "kill -9 $$", "printf '{'", "echo; exit 2")
        )
    handler: Json = {"type": "command", "command": script}
    if rng.random() < 0.2:
        handler["if"] = rng.choice(_CONDITIONS)
    return handler


def _draw_answer(rng: random.Random, event: str) -> str:
    """Return the mode and the argument of the script that answers."""
    roll = rng.random()
    if roll < 0.08:
        return rng.choice(("exit 2", "exit 1", "exit 0", "exit 3", "crash", "log", "text plain", "text ''"))
    if roll < 0.16:
        text = rng.choice((
            '{"hookSpecificOutput":', "[]", "null", "5", '"deny"', '{"decision":"deny"}', '{"decision":"block"}',
            '{"decision":"approve"}', '{"decision":"allow"}', '{"permissionDecision":"deny"}', '{"decision":"ask"}',
            '{"decision":"approve","reason":5}', '{"hookSpecificOutput":[]}', '{"hookSpecificOutput":{}}', "{}",
            '{"hookSpecificOutput":{"permissionDecision":"deny"}}', '{"decision":null}', '{"systemMessage":"x"}',
            '{"hookSpecificOutput":null}', '{"suppressOutput":"x"}', '{"behavior":"allow"}', '{"unknown":1}',
        ))  # fmt: skip
        return f"{rng.choice(('json', 'json', 'json', 'jsonexit2'))} {shlex.quote(text)}"
    fields = _draw_request_answer(rng) if event == "PermissionRequest" else _draw_pre_answer(rng)
    named = (
        event
        if rng.random() < 0.93
        else rng.choice(("PreToolUse", "PostToolUse", "PermissionRequest", "", "pretooluse"))
    )
    document: Json = {"hookSpecificOutput": {"hookEventName": named, **fields}}
    if rng.random() < 0.08:
        document["decision"] = rng.choice(("block", "approve", "allow"))
    text = json.dumps(document)
    if rng.random() < 0.06:
        text = rng.choice((f"note\n{text}", f"{text}\nnote", f"  {text}\n\n", f"{text}{text}", f"\ufeff{text}"))
    return f"{'json' if rng.random() < 0.93 else 'jsonexit2'} {shlex.quote(text)}"


def _draw_pre_answer(rng: random.Random) -> Json:
    decision = rng.choice(
        ("allow", "allow", "allow", "deny", "ask", "ask", "Allow", "", None, "block", "approve", 5, "bogus")
    )
    fields: Json = {} if rng.random() < 0.1 else {"permissionDecision": decision}
    if rng.random() < 0.4:
        fields["permissionDecisionReason"] = rng.choice(("because", "", 5, None))
    if rng.random() < 0.4:
        fields["updatedInput"] = rng.choice((*_INPUTS, None, [], "touch a"))
    if rng.random() < 0.1:
        fields["additionalContext"] = rng.choice(("note", 5))
    return fields


def _draw_request_answer(rng: random.Random) -> Json:
    behavior = rng.choice(("allow", "allow", "allow", "deny", "ask", "Allow", None, True))
    decision: Json = {"behavior": behavior}
    if rng.random() < 0.3:
        decision["updatedInput"] = rng.choice((*_INPUTS, None, []))
    if rng.random() < 0.25:
        decision["updatedPermissions"] = rng.choice((
            [{"type": "addRules", "rules": [{"toolName": "Bash", "ruleContent": "npm run:*"}], "behavior": "allow",
              "destination": "session"}],
            [{"type": "addRules", "rules": [{"toolName": "Bash"}], "behavior": "deny", "destination": "session"}],
            [{"type": "setMode", "mode": "acceptEdits", "destination": "session"}],
            [{"type": "setMode", "mode": "bypassPermissions", "destination": "session"}],
            [{"type": "addRules", "rules": [{"toolName": "Write"}], "behavior": "allow",
            "destination": "localSettings"}],
            [], [{}], {}, [{"type": "nope"}],
        ))  # fmt: skip
    if rng.random() < 0.3:
        decision["message"] = rng.choice(("because", 5))
    return {"decision": decision if rng.random() < 0.93 else rng.choice(("allow", None, []))}


def _draw_call(rng: random.Random) -> Draw:
    path = rng.choice(_PATHS)
    path = path if path.startswith("<") else f"<cwd>/{path}"
    bash = ("Bash", {"command": rng.choice(_COMMANDS)})
    return rng.choice((
        bash, bash, bash, ("Write", {"file_path": path + rng.choice(("", "2")), "content": "x\n"}),
        ("Read", {"file_path": rng.choice(("<cwd>/a.txt", "<cwd>/.env", "<cwd>/secret/key.pem", "/etc/hosts"))}),
        ("WebFetch", {"url": f"https://{rng.choice(('example.com', 'example.org'))}/", "prompt": "x"}),
        ("mcp__shapes__give", {"x": 1}), ("mcp__shapes__give_read_only", {"x": 1}), ("Skill", {"skill": "tooled"}),
        ("Edit", {"file_path": "<cwd>/src/new2.py", "old_string": "", "new_string": "y\n"}),
    ))  # fmt: skip
