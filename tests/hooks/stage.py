"""A session for handlers of settings files: without a conversation, and at the command line."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.run.made import asked_for
from toolspan.hooks.fire import Compose, SettingsHooks
from toolspan.hooks.make import Means, hooks_of
from toolspan.hooks.points import Moment
from toolspan.hooks.scene import Scene
from toolspan.process import Custody
from toolspan.profile import profile
from toolspan.settings import Layer, merge
from toolspan.settings.load import read_settings

ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nowhere"}


def says(answer: object) -> dict[str, object]:
    """A handler that answers with this."""
    text = answer if isinstance(answer, str) else json.dumps(answer)
    return command(f"printf '%s\\n' {shlex.quote(text)}")


def decides(decision: str, **more: object) -> dict[str, object]:
    """A handler that decides on a call."""
    given = {"hookEventName": "PreToolUse", "permissionDecision": decision, **more}
    return says({"hookSpecificOutput": given})


def command(line: str, **more: object) -> dict[str, object]:
    """A handler that runs this."""
    return {"type": "command", "command": line, **more}


def at(point: str, *handlers: Mapping[str, object], matcher: str = "*") -> dict[str, object]:
    """A block with handlers at one point."""
    return {point: [{"matcher": matcher, "hooks": list(handlers)}]}


def moment(tool: str = "Bash", folder: Path | None = None, **given: object) -> Moment:
    """A call of a tool."""
    return Moment(call=asked_for(tool, given), input=given, cwd=folder or Path("/"))


def run_agent(folder: Path, script: object, *options: str) -> subprocess.CompletedProcess[str]:
    """A run at the command line that may do everything, and whose model follows a script."""
    (folder / "work").mkdir(exist_ok=True)
    (folder / "script.json").write_text(json.dumps(script), encoding="utf-8")
    return subprocess.run(
        [
            *(sys.executable, "-m", "toolspan", "run", "-p", "Go.", "--transcript", "none"),
            *("--permission-mode", "bypassPermissions"),
            *("--model", f"scripted:{folder / 'script.json'}", *options),
        ],
        cwd=folder / "work",
        env={"PATH": os.environ["PATH"], "HOME": str(folder / "home")},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


@asynccontextmanager
async def hooks(
    folder: Path,
    block: Mapping[str, object],
    *,
    version: str = "2.1.325",
    compose: Compose = "parallel",
    fail_closed: bool = False,
    means: Means | None = None,
    settings: Mapping[str, object] | None = None,
) -> AsyncIterator[SettingsHooks]:
    """The handlers of a block, ready to be fired in a folder."""
    raw = {"hooks": block, **(settings or {})}
    path = folder / "settings.json"
    layer = Layer("user", path, read_settings(raw, str(path)), raw)
    made = hooks_of(
        merge([layer], trusted=True),
        profile(version),
        means=means,
        compose=compose,
        fail_closed=fail_closed,
    )
    async with Custody() as custody:
        yield made.hooks.bind(
            Scene(
                project=folder,
                custody=custody,
                folder=folder / "session",
                cwd=lambda: folder,
                environment=ENVIRONMENT,
                session_id="the-session",
                transcript=folder / "t.jsonl",
                prompt_id="the-prompt",
            )
        )
