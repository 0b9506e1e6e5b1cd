"""Generate permission decisions with settings in several files at once, with options, and with invalid settings.

The user's, project's, local and managed files of a case each draw their rules, default mode and folders. About a third
of the cases contain an invalid value. toolspan refuses to start with many of those; then it counts as stricter.
"""

from __future__ import annotations

import json
import random
from typing import Any

from lab.explore.calls import Draw
from lab.explore.tool_forms import add_calls, draw_rules, make_case

Json = dict[str, Any]
_CALLS = 30
_SHAPES = {"shapes": {"type": "stdio", "command": "python3", "args": ["<home>/orc/mcp_shapes.py"]}}
RULES = (
    "Bash", "Bash(touch:*)", "Bash(touch a)", "Bash(npm run *)", "Bash(rm:*)", "Bash(ls:*)", "Bash(echo *)", "Edit",
    "Edit(src/**)", "Edit(/src/**)", "Edit(//home/dev/other/**)", "Edit(~/other/**)", "Read", "Read(~/other/**)",
    "Read(.env)",
    "Read(./secret/**)", "Write", "WebFetch", "WebFetch(domain:example.com)", "WebFetch(domain:*.example.com)",
    "WebSearch",
    "mcp__shapes", "mcp__shapes__give", "mcp__*", "Agent", "Agent(Explore)", "Skill(tooled)", "Skill", "TaskCreate",
    "Read(/a.txt)",
)  # fmt: skip
_MODES = (
    "default", "acceptEdits", "plan", "dontAsk", "bypassPermissions", "manual", "auto", "bogus", "AcceptEdits",
    "", None,
    5, ["plan"], "delegate",
)  # fmt: skip
_BAD_RULES: tuple[object, ...] = (
    "", " ", "bash", "Bash(", "Bash)", "(ls)", "Bash(ls", "Bash ls", "Bash(ls))", "Bash(ls)(x)",
    "Bash(ls) x", 5, None, True, [],
    ["Bash"], {}, {"tool": "Bash"}, "Bash(touch:* )", "Bash(:*)", "mcp__shapes(*)", "mcp__shapes__give(x)",
    "Write()", "Nope",
    "Nope(x)", "Bash(touch:*),Write", "Bash, Write", "Bash(touch\n:*)", "**", "?", "Edit[src]", "-Bash", "!Bash",
    "\u0042ash",
    "Bash(touch :*)", "Bash(touch:*:*)", "mcp__shapes__g?ve", "WebFetch(example.com)", "WebFetch(http://example.com)",
    "Read(", "Read(a.txt", "Edit(../**)", "Bash(\u2028)", "Task(", "Agent(Explore", "1Bash", "_", "Bash.x", "Ba sh",
)  # fmt: skip
_BAD_KEYS: tuple[tuple[str, object], ...] = (
    ("permissions", []), ("permissions", "x"), ("permissions", None), ("permissions", 5),
    ("permissions.allow", "Write"), ("permissions.allow", {"Write": True}), ("permissions.allow", None),
    ("permissions.deny", "Write"), ("permissions.deny", None), ("permissions.ask", "Bash"), ("permissions.deny",
    {"a": 1}),
    ("permissions.additionalDirectories", "<home>/other"), ("permissions.additionalDirectories", [5]),
    ("permissions.additionalDirectories", [""]), ("permissions.additionalDirectories", ["nope"]),
    ("permissions.additionalDirectories", ["/"]), ("permissions.additionalDirectories", ["~"]),
    ("permissions.additionalDirectories", ["../other"]), ("permissions.additionalDirectories", [None]),
    ("permissions.disableBypassPermissionsMode", True), ("permissions.disableBypassPermissionsMode", "enable"),
    ("permissions.disableBypassPermissionsMode", "DISABLE"), ("permissions.disableBypassPermissionsMode", None),
    ("permissions.disableBypassPermissionsMode", "disable"), ("permissions.disableAutoMode", "disable"),
    ("permissions.unknown", 5), ("permissions.Allow", ["Write"]), ("permissions.denied", ["Write"]),
    ("unknownKey", 5), ("allow", ["Write"]), ("deny", ["Bash"]), ("allowedTools", ["Write"]), ("disallowedTools",
    ["Bash"]),
    ("env", []), ("env", {"A": 5}), ("env", {"A": None}), ("env", "x"), ("env", {"A": {}}), ("env", {"A": True}),
    ("hooks", []), ("hooks", None), ("hooks", {"PreToolUse": {}}), ("hooks", {"Nope": []}), ("hooks", "x"),
    ("hooks", {"PreToolUse": [{"matcher": "Bash"}]}), ("hooks", {"PreToolUse": [{"matcher": 5, "hooks": []}]}),
    ("hooks", {"PreToolUse": [{"hooks": [{"type": "nope"}]}]}), ("hooks",
    {"PreToolUse": [{"hooks": [{"type": "command"}]}]}),
    ("hooks", {"PreToolUse": ["x"]}), ("hooks", {"PreToolUse": [{"hooks": "x"}]}), ("hooks", {"PreToolUse": None}),
    ("disableAllHooks", "yes"), ("disableAllHooks", 1), ("disableAllHooks", None),
    ("cleanupPeriodDays", 0), ("cleanupPeriodDays", -1), ("cleanupPeriodDays", 1.5), ("cleanupPeriodDays", "5"),
    ("cleanupPeriodDays", None), ("forceLoginOrgUUID", 5), ("forceLoginOrgUUID", ["x"]), ("forceLoginOrgUUID", {}),
    ("forceLoginMethod", "nope"), ("forceLoginMethod", "claudeai"), ("forceLoginMethod", 5), ("model", 5),
    ("model", None),
    ("includeCoAuthoredBy", "no"), ("enableAllProjectMcpServers", "yes"), ("enabledMcpjsonServers", "x"),
    ("enabledMcpjsonServers", [5]), ("disabledMcpjsonServers", {}), ("sandbox", []), ("sandbox", {"enabled": "yes"}),
    ("sandbox", {"nope": 1}), ("statusLine", "x"), ("statusLine", {"type": "nope"}), ("statusLine",
    {"type": "command"}),
    ("outputStyle", 5), ("apiKeyHelper", 5), ("awsAuthRefresh", []), ("enabledPlugins", []), ("enabledPlugins",
    {"a": 5}),
    ("extraKnownMarketplaces", []), ("strictKnownMarketplaces", "x"), ("allowedMcpServers", "x"),
    ("deniedMcpServers", [5]),
    ("allowedMcpServers", [{"serverName": "x"}]), ("deniedMcpServers", [{"serverName": "shapes"}]),
    ("allowManagedHooksOnly", True), ("allowManagedPermissionRulesOnly", True), ("allowManagedPermissionRulesOnly",
    "x"),
    ("$schema", 5), ("$schema", "x"), ("spinnerTipsEnabled", "x"), ("alwaysThinkingEnabled", "x"),
    ("companyAnnouncements", "x"),
    ("companyAnnouncements", [5]), ("otelHeadersHelper", 5), ("skipWebFetchPreflight", "x"),
    ("skipWebFetchPreflight", True),
    ("allowedHttpHookUrls", "x"), ("httpHookAllowedEnvVars", [5]), ("autoUpdatesChannel", "nope"),
    ("autoUpdatesChannel", "stable"),
    ("minimumVersion", 5), ("plansDirectory", 5), ("language", 5), ("effortLevel", "nope"), ("effortLevel", "high"),
    ("attribution", "x"), ("attribution", {"commit": 5}), ("fileSuggestion", {"type": "nope"}), ("worktree", "x"),
    ("availableModels", "x"), ("availableModels", [5]), ("modelOverrides", []), ("teammateMode", "nope"),
    ("agent", 5),
    ("respectGitignore", "x"), ("defaultMode", "bypassPermissions"), ("additionalDirectories", ["<home>/other"]),
)  # fmt: skip
"""Invalid, odd and misplaced settings; a dot leads into the block `permissions`."""
_TEXTS = ("", "   ", "{", "[]", "null", "5", '"x"', "{} x", "\ufeff{}",
"// c\n{}", '{"permissions": {"allow": ["Write"],}}',
          "{'permissions': {}}", '{"permissions": {"allow": ["Write"]}, "permissions": {}}',
          '{"permissions": {"deny": ["Bash"]}}}', '{"permissions": {"deny": ["Write"], "deny": []}}')  # fmt: skip
"""Whole files: not JSON, not an object, and JSON with doubtful keys."""
_COMMANDS = (
    "touch a", "touch b", "npm run test", "rm a.txt", "ls", "ls src", "echo hi", "echo hi > out", "touch src/x",
    "touch ../other/y", "cat .env", "cat ../other/x.txt", "git push",
)  # fmt: skip
_PATHS = (
    "a.txt",
    "src/b.py",
    ".env",
    "secret/key.pem",
    "<home>/other/x.txt",
    "src/new.py",
    "new.txt",
    ".claude/settings.json",
)
_HOSTS = ("example.com", "sub.example.com", "example.org")


def generate_settings_case(seed: int, version: str, number: int) -> Json:
    """Return a case of decisions with several settings files."""
    rng = random.Random(f"settings/{seed}/{version}/{number}")
    mode = rng.choice((None, None, None, "default", "acceptEdits", "dontAsk", "bypassPermissions"))
    case = make_case(f"f{seed}-{number:03}-{mode or 'none'}", version, mode)
    case["all_scopes"] = True
    case["mcp_servers"] = _SHAPES
    case["settings"] = _draw_settings(rng)
    texts = {}
    for scope, chance in (("local", 0.6), ("user", 0.6), ("managed", 0.35)):
        if rng.random() < chance:
            texts[scope] = json.dumps(_draw_settings(rng), ensure_ascii=False)
    damage = rng.random()
    if damage < 0.08:
        texts[rng.choice(("local", "user"))] = rng.choice(_TEXTS)
    elif damage < 0.4:
        scope = rng.choice(("project", *texts))
        settings = case["settings"] if scope == "project" else json.loads(texts[scope])
        _damage(rng, settings)
        if scope != "project":
            texts[scope] = json.dumps(settings, ensure_ascii=False)
    if "local" in texts:
        case["files"][".claude/settings.local.json"] = {"text": texts["local"]}
    if "user" in texts:
        case["home_files"][".claude/settings.json"] = {"text": texts["user"]}
    if "managed" in texts:
        case["managed_settings"] = texts["managed"]
    for key in ("allowed_tools", "disallowed_tools"):
        if rng.random() < 0.25:
            case[key] = rng.choice((",", ", ", " ")).join(rng.sample([rule for rule in RULES if " " not in rule], 2))
    add_calls(case, [_draw_call(rng) for _ in range(_CALLS)])
    return case


def _draw_settings(rng: random.Random) -> Json:
    permissions = draw_rules(rng, RULES, 3)
    if rng.random() < 0.35:
        permissions["defaultMode"] = rng.choice(_MODES[:5]) if rng.random() < 0.8 else rng.choice(_MODES)
    if rng.random() < 0.2:
        permissions["additionalDirectories"] = [rng.choice(("<home>/other", "~/other", "../other"))]
    if rng.random() < 0.1:
        permissions["disableBypassPermissionsMode"] = "disable"
    return {"permissions": permissions} if permissions or rng.random() < 0.5 else {}


def _damage(rng: random.Random, settings: Json) -> None:
    """Put an invalid rule, or an odd value of another key, into settings."""
    if rng.random() < 0.4:
        key = rng.choice(("allow", "deny", "ask"))
        rules = settings.setdefault("permissions", {}).setdefault(key, [])
        rules.insert(rng.randint(0, len(rules)), rng.choice(_BAD_RULES))
        return
    name, value = rng.choice(_BAD_KEYS)
    block, _, key = name.rpartition(".")
    (settings.setdefault(block, {}) if block else settings)[key] = value


def _draw_call(rng: random.Random) -> Draw:
    path = rng.choice(_PATHS)
    path = path if path.startswith("<") else f"<cwd>/{path}"
    return rng.choice((
        ("Bash", {"command": rng.choice(_COMMANDS)}), ("Bash", {"command": rng.choice(_COMMANDS)}),
        ("Read", {"file_path": path}), ("Write", {"file_path": path + "2", "content": "x\n"}),
        ("WebFetch", {"url": f"https://{rng.choice(_HOSTS)}/", "prompt": "x"}), ("WebSearch", {"query": "x"}),
        ("mcp__shapes__give", {"x": 1}), ("mcp__shapes__give_read_only", {"x": 1}), ("Skill", {"skill": "tooled"}),
    ))  # fmt: skip
