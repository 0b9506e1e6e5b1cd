"""Generators of calls that depend on earlier calls of the session, of MCP calls, and of calls with invalid input."""

from __future__ import annotations

import base64
import random
from typing import Any

from lab.explore.calls import Draw
from lab.explore.contents import png

Json = dict[str, Any]
_PICTURE = base64.b64encode(png(5, 4)).decode()
TASK_TOOLS = ("TaskCreate", "TaskGet", "TaskUpdate", "TaskList")


class SessionCalls:
    """Draws calls about background tasks, task lists and todos."""

    def __init__(self, rng: random.Random, version: str) -> None:
        self.rng, self.version = rng, version
        self.started: list[str] = []
        """The ids of calls that started a background task."""
        self._tasks = 0

    def start(self) -> Draw:
        """Draw a command that runs in the background."""
        command = self.rng.choice((
            "echo quick", "sleep 0.3; echo late", "sleep 30", "echo a; sleep 30", "exit 4", "echo e >&2; exit 2",
            "true", "printf 'no newline'", "cat nofile", "for i in 1 2 3; do echo $i; done; sleep 30",
        ))  # fmt: skip
        return "Bash", {
            "command": command,
            "description": "bg",
            "run_in_background": self.rng.choice((True, True, True, "true")),
        }

    def follow(self) -> Draw:
        """Draw a question about a background task, or an order to stop it."""
        rng = self.rng
        ids = [f"<task-id:{call_id}>" for call_id in self.started] * 4
        task_id = rng.choice([*ids, "b0000000", "", "nope"])
        if rng.random() < 0.4 or not self.version.startswith("2.0."):
            if self.version.startswith("2.0."):
                return "KillShell", {"shell_id": task_id}
            return rng.choice((
                ("TaskStop", {"task_id": task_id}), ("TaskStop", {"task_id": task_id}),
                ("TaskStop", {"shell_id": task_id}), ("KillShell", {"shell_id": task_id}), ("TaskStop", {}),
                ("TaskOutput", {"task_id": task_id}),
            ))  # fmt: skip
        return "TaskOutput", {
            "task_id": task_id,
            "block": rng.choice((True, True, False)),
            "timeout": rng.choice((500, 1500)),
        }

    def pause(self) -> Draw:
        """Draw a wait, after which short background tasks have ended."""
        return "Bash", {"command": "sleep 1; echo waited"}

    def todo(self) -> Draw:
        """Draw a TodoWrite."""
        rng = self.rng
        todos: list[Json] = [
            {
                "content": f"step {n}",
                "status": rng.choice(("pending", "in_progress", "completed")),
                "activeForm": f"Doing {n}",
            }
            for n in range(rng.randint(0, 4))
        ]
        if todos and rng.random() < 0.2:
            key = rng.choice(("content", "status", "activeForm", "id", "priority"))
            if key in todos[0] and rng.random() < 0.5:
                del todos[0][key]
            else:
                todos[0][key] = rng.choice(("", "bogus", 5, None, "high"))
        return "TodoWrite", {"todos": todos}

    def task(self) -> Draw:
        """Draw a call on the task list."""
        rng = self.rng
        some_id = str(rng.choice([*range(1, self._tasks + 1)] * 3 + [99, 0])) if self._tasks else "1"
        roll = rng.random()
        if roll < 0.35:
            self._tasks += 1
            given: Json = {
                "subject": rng.choice(("First", "Second thing", "", "ünï")),
                "description": rng.choice(("do it", "")),
            }
            if rng.random() < 0.4:
                given["activeForm"] = "Doing"
            if rng.random() < 0.2:
                given["metadata"] = rng.choice(({"k": 1}, {}, {"a": None}))
            return "TaskCreate", given
        if roll < 0.5:
            return "TaskList", rng.choice(({}, {}, {"x": 1}))
        if roll < 0.62:
            return "TaskGet", {"taskId": rng.choice((some_id, some_id, "#1", "", int(some_id)))}
        given = {"taskId": some_id}
        for key, values, chance in (
            ("status", ("pending", "in_progress", "completed", "deleted", "bogus"), 0.6),
            ("subject", ("Renamed", ""), 0.2),
            ("description", ("other", ""), 0.2),
            ("activeForm", ("Redoing",), 0.15),
            ("owner", ("me", ""), 0.2),
            ("addBlocks", (["2"], ["1"], ["77"], []), 0.15),
            ("addBlockedBy", (["1"], ["2"], ["77"], []), 0.2),
            ("metadata", ({"k": 2}, {"k": None}, {}), 0.1),
        ):
            if rng.random() < chance:
                given[key] = rng.choice(values)
        return "TaskUpdate", given

    def skill(self) -> Draw:
        """Draw a Skill or another tool without effects on files."""
        rng = self.rng
        if rng.random() < 0.15 and not self.version.startswith("2.0."):
            query = rng.choice(("select:WebFetch", "select:nosuch", "select:NotebookEdit,TaskStop", "zzzqqq", ""))
            return "ToolSearch", {"query": query}
        name = rng.choice(("greet", "greet", "nosuch", "", "/greet", "plain", "hidden", "greet extra", "proj:greet"))
        return "Skill", rng.choice(({"skill": name}, {"skill": name, "args": "two words"}, {"skill": name, "args": ""}))


def mcp_call(rng: random.Random) -> Draw:
    """Draw a call of the server in `mcp_shapes.py`."""
    roll = rng.random()
    if roll < 0.1:
        return "mcp__shapes__fail", {
            "code": rng.choice((-32602, -32000, -32601, 5)),
            "message": rng.choice(("bad", "", "two\nlines")),
        }
    if roll < 0.14:
        return rng.choice(
            (("mcp__shapes__nosuch", {}), ("mcp__shapes__fail", {}), ("mcp__other__x", {}), ("mcp__shapes__leave", {}))
        )
    tool = rng.choice(("give", "give", "give_read_only", "give_dotted"))
    if roll < 0.22:
        return f"mcp__shapes__{tool}", rng.choice(({}, {"x": [1, None, "a"]}, {"nested": {"b": True}}, {"ünï": "é"}))
    content = [_mcp_block(rng) for _ in range(rng.choice((0, 1, 1, 1, 2, 3)))]
    result: Json = {"content": content}
    if rng.random() < 0.15:
        result["structuredContent"] = rng.choice(({"n": 3, "tags": ["a"]}, {}, {"text": "ünï", "f": 1.0, "z": None}))
    if rng.random() < 0.15:
        result["isError"] = rng.choice((True, True, False))
    if rng.random() < 0.08:
        result["_meta"] = {"k": "v"}
    if rng.random() < 0.04:
        del result["content"]
    return f"mcp__shapes__{tool}", {"result": result}


def _mcp_block(rng: random.Random) -> Json:
    text = rng.choice(
        ("plain", "", " \n", "two\nlines\n", "ünï 🎉", '{"json": true}', "x" * 3000, "<b>tag</b>", "\x1b[31mred")
    )
    annotations = {"audience": ["user"], "priority": 0.5}
    kind = rng.choice(("image/png", "image/svg+xml", "text/plain"))
    return rng.choice([
        {"type": "text", "text": text}, {"type": "text", "text": text}, {"type": "text", "text": text},
        {"type": "text", "text": text, "annotations": annotations},
        {"type": "text", "text": rng.choice(("y", "line\n")) * rng.choice((20_000, 60_000, 120_000))},
        {"type": "image", "data": _PICTURE, "mimeType": "image/png"},
        {"type": "image", "data": "bm90IGFuIGltYWdl", "mimeType": kind},
        {"type": "audio", "data": "UklGRjAwMDBXQVZF", "mimeType": rng.choice(("audio/wav", "audio/mpeg", "audio/odd"))},
        {"type": "resource", "resource": {"uri": "mem://x", "mimeType": "text/plain", "text": text}},
        {"type": "resource", "resource": {"uri": "mem://x", "text": text}},
        {"type": "resource", "resource": {"uri": "mem://b", "mimeType": "application/octet-stream", "blob": "AAEC"}},
        {"type": "resource", "resource": {"uri": "mem://p", "mimeType": "image/png", "blob": _PICTURE}},
        {"type": "resource_link", "uri": "mem://y", "name": "why", "description": rng.choice(("a link", ""))},
        {"type": "resource_link", "uri": "mem://y", "name": "why", "title": "Title", "mimeType": "text/plain"},
    ])  # fmt: skip


def damage(rng: random.Random, draw: Draw) -> Draw:
    """Return a call with invalid, odd or superfluous input."""
    name, given = draw[0], dict(draw[1])
    keys = sorted(given)
    roll = rng.random()
    if roll < 0.2 and keys:
        del given[rng.choice(keys)]
    elif roll < 0.4:
        given[rng.choice(("bogus", "extra_key", "path", "filePath", "description", "command"))] = rng.choice(
            (1, "x", None, [1], {})
        )
    elif roll < 0.75 and keys:
        given[rng.choice(keys)] = rng.choice((5, 1.5, True, False, None, [], ["a"], {}, {"a": 1}, "", "5", "true"))
    elif roll < 0.9 and keys:
        key = rng.choice(keys)
        other = {
            "file_path": "path",
            "command": "cmd",
            "pattern": "regex",
            "notebook_path": "file_path",
            "content": "text",
        }
        given[rng.choice((other.get(key, key.upper()), key.replace("_", ""), key + " "))] = given.pop(key)
    else:
        given = rng.choice(({}, {"": ""}, {"a": 1, "b": 2, "c": None}))
    return name, given
