"""Helpers to run hooks of settings files, in a bare session or at the command line."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.fork_server import run_toolspan
from tests.runtime.calls import pending_call
from toolspan.runtime.hooks.configured import Compose, ConfiguredHooks
from toolspan.runtime.hooks.events import HookEnvironment, ToolHookEvent
from toolspan.runtime.hooks.load import HookServices, load_hooks
from toolspan.runtime.process import ProcessSupervisor
from toolspan.runtime.profiles import profile
from toolspan.runtime.settings import SettingsLayer, merge_settings
from toolspan.runtime.settings.load import parse_settings

ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nowhere"}


def says(output: object) -> dict[str, object]:
    text = output if isinstance(output, str) else json.dumps(output)
    return command(f"printf '%s\\n' {shlex.quote(text)}")


def decides(decision: str, **more: object) -> dict[str, object]:
    fields = {"hookEventName": "PreToolUse", "permissionDecision": decision, **more}
    return says({"hookSpecificOutput": fields})


def command(line: str, **more: object) -> dict[str, object]:
    return {"type": "command", "command": line, **more}


def at(point: str, *handlers: Mapping[str, object], matcher: str = "*") -> dict[str, object]:
    return {point: [{"matcher": matcher, "hooks": list(handlers)}]}


def tool_event(tool: str = "Bash", folder: Path | None = None, **fields: object) -> ToolHookEvent:
    return ToolHookEvent(call=pending_call(tool, fields), input=fields, cwd=folder or Path("/"))


def run_agent(folder: Path, script: object, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "work").mkdir(exist_ok=True)
    (folder / "script.json").write_text(json.dumps(script), encoding="utf-8")
    return run_toolspan(
        *("run", "-p", "Go.", "--transcript", "none", "--permission-mode", "bypassPermissions"),
        *("--model", f"scripted:{folder / 'script.json'}", *options),
        cwd=folder / "work",
        env={"PATH": os.environ["PATH"], "HOME": str(folder / "home")},
    )


@asynccontextmanager
async def hooks(
    folder: Path,
    block: Mapping[str, object],
    *,
    version: str = "2.1.327",
    compose: Compose = "parallel",
    fail_closed: bool = False,
    services: HookServices | None = None,
    settings: Mapping[str, object] | None = None,
) -> AsyncIterator[ConfiguredHooks]:
    raw = {"hooks": block, **(settings or {})}
    path = folder / "settings.json"
    layer = SettingsLayer("user", path, parse_settings(raw, str(path)), raw)
    loaded = load_hooks(
        merge_settings([layer], trusted=True),
        profile(version),
        services=services,
        compose=compose,
        fail_closed=fail_closed,
    )
    async with ProcessSupervisor() as supervisor:
        yield loaded.hooks.bind(
            HookEnvironment(
                project=folder,
                supervisor=supervisor,
                session_folder=folder / "session",
                cwd=lambda: folder,
                env_vars=ENVIRONMENT,
                session_id="the-session",
                transcript_path=folder / "t.jsonl",
                prompt_id="the-prompt",
            )
        )
