"""Generate permission decisions on tools without a command line: the web, MCP, skills, agents, tasks and notebooks.

No call reaches a network: both sides run with loopback only. A call that fails there counts as permitted.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from lab.explore.calls import Draw
from lab.explore.generate import MODES
from lab.explore.permissions import generate_permission_case

Json = dict[str, Any]
NEW_TOOLS = (
    "Bash,Read,Edit,Write,Glob,Grep,NotebookEdit,WebFetch,WebSearch,Skill,Agent,TaskCreate,TaskGet,TaskUpdate,TaskList,"
    "TaskStop,ToolSearch"
)
_SERVER = {"type": "stdio", "command": "python3", "args": ["<home>/orc/mcp_shapes.py"]}
_SERVERS = ("shapes", "my.server", "a__b", "UP", "sh", "with space")
_CALLS = 60
_CALLS_IN_PLAN_MODE = 16
URLS = (
    "https://example.com/", "http://example.com/", "https://EXAMPLE.com/", "https://example.com./",
    "HTTPS://example.com/",
    "https://example.com:8443/x", "https://example.com:443/", "https://user:pw@example.com/",
    "https://example.com@evil.test/", "https://evil.test#.example.com", "https://evil.test\\@example.com",
    "https://evil.test/?x=example.com", "https://sub.example.com/", "https://a.b.example.com/",
    "https://notexample.com/", "https://example.com.evil.test/", "https://b\u00fccher.example/",
    "https://xn--bcher-kva.example/", "https://B\u00dcCHER.example/", "https://example%2ecom/",
    "https://example.com%2eevil.test/",
    "http://127.0.0.1:9/", "http://[::1]:9/", "http://2130706433/", "http://0x7f.1/", "http://127.1/",
    "http://0177.0.0.1/",
    "http://169.254.169.254/latest", "http://localhost/", "http://localhost:9/", "ftp://example.com/",
    "file:///etc/passwd",
    "example.com", "", "javascript:1", "https://", "https:// example.com/", " https://example.com/ ",
    "https:example.com",
    "https:/example.com", "https:///example.com", "//example.com/", "https:\\\\example.com\\x",
    "https://exa\tmple.com/",
    "https://exa\u00admple.com/", "https://\uff45xample.com/", "https://example\u3002com/", "https://ex_ample.com/",
    "https://-example.com/", "https://example..com/", "https://.example.com/", "https://*.example.com/",
    "https://example.com\n.evil.test/", "https://[::ffff:127.0.0.1]/", "https://example.com:99999/", "https://e/",
    "https://example.com/" + "x" * 2100, "https://com/", "https://example.org/", "https://api.github.com/",
    "https://docs.python.org/3/", "http://docs.python.org/", "https://docs.python.org:8443/",
    "https://docs.python.org./",
    "https://DOCS.python.org/", "https://docs.python.org.evil.test/", "https://x.docs.python.org/",
    "https://python.org/",
    "https://user@docs.python.org/", "https://github.com/anthropics/", "https://github.com/anthropics",
    "https://github.com/other",
    "https://github.com/anthropics/../other", "https://github.com/anthropics-evil", "https://code.claude.com/docs",
    "https://docs.claude.com/en", "https://platform.claude.com/docs", "https://modelcontextprotocol.io/",
    "https://react.dev/",
    "https://developer.mozilla.org/", "https://vercel.com/docs", "https://vercel.com/other",
    "https://vercel.com/docs-evil",
)  # fmt: skip
_DOMAINS = (
    "example.com", "EXAMPLE.com", "*.example.com", "example.*", "*", "*example.com", "example.com.", " example.com",
    "example.com ", "example.com:8443", "https://example.com", "b\u00fccher.example", "xn--bcher-kva.example",
    "127.0.0.1",
    "[::1]", "::1", "localhost", "docs.python.org", "ex*.com", "*.com", "*.*.com", "sub.*.com", "", "example.com/*",
    "*.example.com.", "user@example.com", "github.com", "e?ample.com", "**.example.com", "*.*", "**", "*.",
    ".example.com",
    "example.com:*", "2130706433", "127.*", "evil.test", "*.test", "com", "python.org", "*.python.org", "*.org",
)  # fmt: skip
RULES: dict[str, tuple[str, ...]] = {
    "web": (
        *(f"WebFetch(domain:{domain})" for domain in _DOMAINS), "WebFetch", "WebFetch(*)", "WebFetch()",
        "WebFetch(domain:)",
        "WebFetch(example.com)", "WebFetch(https://example.com/*)", "WebFetch(url:https://example.com/)",
        "WebFetch(prompt:x)",
        "WebFetch(domain: example.com)", "WebFetch(Domain:example.com)", "WebFetch(domain:example.com,example.org)",
        "WebFetch(domain:*) ", "webfetch", "Web*", "WebFetch(**)", "WebFetch(prompt:*)",
        "WebSearch", "WebSearch(*)", "WebSearch(hello)", "WebSearch(hello *)", "WebSearch(query:hello)",
        "WebSearch()",
        "WebSearch(hello world)", "WebSearch(allowed_domains:*)", "WebSearch(domain:example.com)",
    ),
    "mcp": (
        "mcp__shapes", "mcp__shapes__*", "mcp__shapes__give", "mcp__shapes__giv*", "mcp__*", "mcp__shapes*",
        "mcp__*__give",
        "mcp__shapes__", "mcp__shap", "mcp__SHAPES", "mcp__shapes(*)", "mcp__shapes__give(x:1)", "mcp__my_server",
        "mcp__my.server", "mcp__my.server__give", "mcp__my_server__*", "mcp__a__b", "mcp__a", "mcp__a__*",
        "mcp__a__b__give",
        "mcp__shapes__give_dotted", "mcp__shapes__give.dotted", "mcp__shapes__give_read_only", "*", "mcp__", "mcp",
        "mcp_*",
        "mcp__sh", "mcp__sh__*", "mcp__sh*__give", "mcp__up", "mcp__UP", "mcp__with_space",
        "mcp__shapes__*_only", "mcp__shapes__**", "mcp__*__*", "mcp__shapes__give()", "mcp__shapes__give__*",
        "mcp__shapes__GIVE", "mcp__shapes ", "shapes", "shapes__give", "mcp__s*", "mcp__shapes_*",
    ),
    "skill": (
        "Skill", "Skill(greet)", "Skill(greet:*)", "Skill(gr:*)", "Skill(gr*)", "Skill(*)", "Skill(/greet)",
        "Skill(greet *)",
        "Skill(deploy:*)", "Skill(Greet)", "Skill(skill:greet)", "Skill(tooled)", "Skill()", "Skill( greet )",
        "Skill(:*)",
        "Skill(deploy)", "Skill(deploy *)", "Skill(args:*)", "Skill(args:two words)", "Skill(*eet)", "Skill(forked)",
        "skill",
        "Skill(*:*)", "Skill(name:greet)", "SlashCommand", "SlashCommand(/greet)", "SlashCommand(/greet:*)",
        "SlashCommand(*)", "Skill(mod:*)", "Skill(**)",
    ),
    "agent": (
        "Agent", "Task", "Task(Explore)", "Agent(Explore)", "Agent(Explore, Plan)", "Task(*)", "Agent(*)",
        "Agent(explore)",
        "Agent(gen*)", "Agent(reviewer)", "Agent(model:opus)", "Agent(subagent_type:Explore)",
        "Task(general-purpose)",
        "Agent()", "Task(reviewer:*)", "Agent(rev:*)", "agent", "Agent( Explore )", "Task(subagent_type:*)",
        "Agent(run_in_background:false)", "Agent(prompt:*)", "Agent(**)", "Agent(description:d)",
    ),
    "task": (
        "TaskCreate", "TaskList", "TaskGet", "TaskUpdate", "TaskStop", "KillShell", "TaskOutput", "BashOutput",
        "TodoWrite",
        "TaskCreate(*)", "TaskCreate(subject:a)", "TaskCreate(subject:*)", "TaskUpdate(status:completed)", "Task*",
        "Todo*",
        "TaskList()", "TodoWrite(*)", "TodoWrite(x)", "KillShell(*)", "TaskStop(task_id:x)", "ToolSearch",
        "ToolSearch(*)",
        "ToolSearch(query:select:WebFetch)", "ToolSearch(select:*)", "ExitPlanMode", "ExitPlanMode(*)",
        "EnterPlanMode",
        "AskUserQuestion", "TaskCreate(foo:bar)", "TaskCreate(a)",
    ),
    "notebook": (
        "NotebookEdit", "NotebookEdit(*)", "NotebookEdit(nb.ipynb)", "NotebookEdit(**)", "NotebookEdit(/nb.ipynb)",
        "Edit",
        "Edit(nb.ipynb)", "Edit(*.ipynb)", "Edit(/deep/**)", "Write", "Write(nb.ipynb)",
        "Edit(//home/dev/proj/nb.ipynb)",
        "Read(nb.ipynb)", "Read(*.ipynb)", "Edit(~/other/**)", "NotebookEdit(edit_mode:delete)",
        "Edit(edit_mode:insert)",
        "NotebookEdit(notebook_path:*)", "NotebookEdit(cell_id:c1)", "Notebook*", "NotebookEdit()", "NotebookRead",
    ),
}  # fmt: skip
"""Permission rules by the subject of the tools that they are about."""
_NOTEBOOK = {
    "cells": [{"cell_type": "markdown", "id": "c1", "metadata": {}, "source": ["x"]}],
    "metadata": {"language_info": {"name": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}
_NOTEBOOKS = (
    "nb.ipynb",
    "deep/nb.ipynb",
    "secret/nb.ipynb",
    ".git/nb.ipynb",
    "<home>/other/nb.ipynb",
    ".claude/nb.ipynb",
)


class ToolCalls:
    """Draws calls of tools that have no command line."""

    def __init__(self, rng: random.Random, version: str) -> None:
        self.rng = rng
        self.is_new = not version.startswith("2.0.")

    def draw(self, subject: str) -> Draw:
        """Draw a call about a subject, a key of `RULES`."""
        draws: dict[str, Callable[[], Draw]] = {
            "web": self._web,
            "mcp": self._mcp,
            "skill": self._skill,
            "agent": self._agent,
            "task": self._task,
            "notebook": self._notebook,
        }
        return draws[subject]()

    def _web(self) -> Draw:
        rng = self.rng
        if rng.random() < 0.12:
            given: Json = {"query": rng.choice(("hello", "hello world", "other words"))}
            if rng.random() < 0.4:
                key = rng.choice(("allowed_domains", "blocked_domains"))
                given[key] = rng.choice((["example.com"], ["docs.python.org"], []))
            return "WebSearch", given
        return "WebFetch", {"url": rng.choice(URLS), "prompt": rng.choice(("x", "summarise"))}

    def _mcp(self) -> Draw:
        server = self.rng.choice(("shapes", "shapes", "shapes", "my_server", "a__b", "UP", "sh", "with_space", "none"))
        tool = self.rng.choice(("give", "give", "give_read_only", "give_dotted", "give.dotted", "nosuch"))
        return f"mcp__{server}__{tool}", self.rng.choice(({"x": 1}, {"result": {"content": []}}))

    def _skill(self) -> Draw:
        rng = self.rng
        name = rng.choice(("greet", "greet", "/greet", "plain", "tooled", "forked", "modelled", "deploy", "deploy-it",
                           "greet extra", " greet", "Greet", "nosuch", "hooked", "shelled"))  # fmt: skip
        if not self.is_new and rng.random() < 0.3:
            return "SlashCommand", {
                "command": rng.choice(("/greet", "/greet it", "/nosuch", "/command", "/command it"))
            }
        return "Skill", rng.choice(({"skill": name}, {"skill": name, "args": "two words"}))

    def _agent(self) -> Draw:
        rng = self.rng
        given: Json = {"description": "d", "prompt": "hi"}
        kind = rng.choice(("Explore", "Explore", "general-purpose", "Plan", "reviewer", "explore", "nosuch", ""))
        if kind or not self.is_new:
            given["subagent_type"] = kind or "reviewer"
        if rng.random() < 0.3:
            given["model"] = rng.choice(("opus", "haiku"))
        if self.is_new:
            given["run_in_background"] = False
        return rng.choice(("Agent", "Task")) if self.is_new else "Task", given

    def _task(self) -> Draw:
        rng = self.rng
        todos = [{"content": "a", "status": "pending", "activeForm": "A"}]
        old: tuple[Draw, ...] = (
            ("TodoWrite", {"todos": rng.choice((todos, []))}), ("KillShell", {"shell_id": "x"}),
            ("TaskOutput", {"task_id": "x", "block": False, "timeout": 100}), ("BashOutput", {"bash_id": "x"}),
            ("EnterPlanMode", {}), ("ExitPlanMode", {"plan": "x"}),
        )  # fmt: skip
        new: tuple[Draw, ...] = (
            ("TaskCreate", {"subject": rng.choice(("a", "b")), "description": "d"}), ("TaskList", {}),
            ("TaskCreate", {"subject": "c", "description": "d"}), ("TaskGet", {"taskId": "1"}),
            ("TaskUpdate", {"taskId": "1", "status": rng.choice(("completed", "in_progress"))}),
            ("TaskStop", {"task_id": "x"}), ("ToolSearch", {"query": rng.choice(("select:WebFetch", "zzz"))}),
            ("KillShell", {"shell_id": "x"}),
        )  # fmt: skip
        return rng.choice(new if self.is_new else old)

    def _notebook(self) -> Draw:
        path = self.rng.choice(_NOTEBOOKS)
        path = path if path.startswith("<") else f"<cwd>/{path}"
        if self.rng.random() < 0.3:
            return "Read", {"file_path": path}
        given = {
            "notebook_path": path,
            "new_source": f"{self.rng.random()}",
            "edit_mode": "insert",
            "cell_type": "code",
        }
        return "NotebookEdit", given | ({"cell_id": "c1"} if self.rng.random() < 0.5 else {})


def generate_tool_case(seed: int, version: str, number: int) -> Json:
    """Return a case of decisions on one or two subjects, with rules about them."""
    rng = random.Random(f"tools/{seed}/{version}/{number}")
    mode = MODES[number % len(MODES)] if rng.random() < 0.5 else "default"
    subjects = rng.sample(sorted(RULES), rng.choice((1, 1, 2)))
    case = make_case(f"t{seed}-{number:03}-{'-'.join(subjects)}-{mode}", version, mode)
    case["settings"] = {"permissions": draw_rules(rng, [rule for subject in subjects for rule in RULES[subject]])}
    if not version.startswith("2.0.") and rng.random() < 0.2:
        key = rng.choice(("allowed_tools", "disallowed_tools"))
        flags = [rule for subject in subjects for rule in RULES[subject] if " " not in rule]
        case[key] = ",".join(rng.sample(flags, rng.randint(1, 3)))
    calls = ToolCalls(rng, version)
    draws = [calls.draw(rng.choice(subjects)) for _ in range(_CALLS_IN_PLAN_MODE if mode == "plan" else _CALLS)]
    if "notebook" in subjects:
        paths = [path if path.startswith("<") else f"<cwd>/{path}" for path in _NOTEBOOKS]
        draws = [*(("Read", {"file_path": path}) for path in paths), *draws]
    if "mcp" in subjects:
        case["mcp_servers"] = dict.fromkeys(_SERVERS, _SERVER)
    add_calls(case, draws)
    return case


def make_case(case_id: str, version: str, mode: str | None) -> Json:
    """Return a case without settings and calls, in a folder with skills, agents and notebooks."""
    case = generate_permission_case(77, version, 1)
    case |= {"id": case_id, "permission_mode": mode, "settings": {}}
    if not version.startswith("2.0."):
        case["tools"] = NEW_TOOLS
    skills = {
        "greet": "name: greet\ndescription: Greets",
        "deploy": "name: deploy\ndescription: Deploys",
        "deploy-it": "name: deploy-it\ndescription: Deploys it",
        "tooled": "name: tooled\ndescription: x\nallowed-tools: Bash(whoami:*)",
        "forked": "name: forked\ndescription: x\ncontext: fork",
        "modelled": "name: modelled\ndescription: x\nmodel: opus",
        "hooked": "name: hooked\ndescription: x\nhooks:\n  PreToolUse:\n    - hooks:\n"
        "        - type: command\n          command: 'true'",
    }
    texts = {f".claude/skills/{name}/SKILL.md": f"---\n{head}\n---\nSay hello.\n" for name, head in skills.items()}
    texts[".claude/skills/plain/SKILL.md"] = "No front matter.\n"
    texts[".claude/skills/shelled/SKILL.md"] = "---\nname: shelled\ndescription: x\n---\nToday: !`date`\n"
    texts[".claude/commands/command.md"] = "---\ndescription: x\n---\nSay $ARGUMENTS.\n"
    texts[".claude/agents/reviewer.md"] = "---\nname: reviewer\ndescription: Reviews\n---\nReview.\n"
    case["files"] |= {path: {"text": text} for path, text in texts.items()}
    for path in _NOTEBOOKS:
        entry = {"text": json.dumps(_NOTEBOOK), "mtime": 1_700_000_000}
        if path.startswith("<home>/"):
            case["home_files"][path.removeprefix("<home>/")] = entry
        else:
            case["files"][path] = entry
    return case


def draw_rules(rng: random.Random, rules: Sequence[str], most: int = 4) -> Json:
    """Draw the rules of a settings file."""
    permissions: Json = {}
    for key, chance in (("allow", 0.7), ("deny", 0.45), ("ask", 0.35)):
        if rng.random() < chance:
            permissions[key] = rng.sample(rules, min(len(rules), rng.randint(1, most)))
    return permissions


def add_calls(case: Json, draws: Sequence[Draw]) -> None:
    """Give a case its calls, a few per turn."""
    prefix = f"toolu_01{case['id'].replace('-', '')}"
    calls = [{"id": f"{prefix}x{at:03}", "name": name, "input": given} for at, (name, given) in enumerate(draws)]
    size = 4 if case["permission_mode"] == "plan" else 10
    case["turns"] = [calls[at : at + size] for at in range(0, len(calls), size)]
