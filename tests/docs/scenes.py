"""Where the commands of a page take place: a home, a folder, and what has to be there already.

In: a home that is empty. Out, for as long as the commands run: a stage. A page is one of `SCENES`
when its commands need nobody who answers. The home's name is random and as long as the one that
pages name it by, so that tables and lines are cut in the same places every time.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from tests.docs.spoken import environment
from tests.journeys.world import SHOWN_HOME
from toolspan.reading.cache import Cache, cached_scan_files
from toolspan.reading.sample import archive
from toolspan.testing import ModelServer, ScriptedModel, TranscriptBuilder, project_name, say
from toolspan.testing.claude_results import ran, read

_LATER = 10_000_000_000
"""Nanoseconds after which a file is not new any more."""
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@dataclass(frozen=True)
class Stage:
    """Where commands are run, and how what they print becomes what the page has."""

    home: Path
    folder: Path
    columns: int = 88
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    instead: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the page says, and what is there instead."""
    differs: str | None = None
    """What is different every time."""

    @property
    def environment(self) -> dict[str, str]:
        """What the commands find."""
        return environment(self.home, self.columns) | dict(self.variables)

    def here(self, text: str) -> str:
        """Words of the page, as they are to be typed here."""
        for theirs, ours in self.instead.items():
            text = text.replace(theirs, ours)
        return text

    def there(self, text: str) -> str:
        """What is printed here, as the page would say it."""
        for theirs, ours in self.instead.items():
            text = text.replace(ours, theirs)
        text = text.replace(project_name(str(self.home)), project_name(SHOWN_HOME))
        return text.replace(str(self.home), SHOWN_HOME)


Scene = Callable[[Path], AbstractContextManager[Stage]]


@contextmanager
def new_home() -> Iterator[Path]:
    """A home for a scene."""
    home = Path(tempfile.mkdtemp(prefix="", dir="/tmp")).resolve()
    try:
        assert len(str(home)) == len(SHOWN_HOME)
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def sample(home: Path, *, columns: int = 88) -> AbstractContextManager[Stage]:
    """The sample as if it were the user's own, as `archive`, and a session of it."""
    shutil.copytree(archive() / "claude", home / ".claude")
    shutil.copytree(archive(), home / "archive")
    for transcript in archive().rglob("7e3f9c40*.jsonl"):
        shutil.copy(transcript, home)
    return nullcontext(Stage(home, home, columns))


def much(home: Path) -> AbstractContextManager[Stage]:
    """The sample, and a year of watering the garden."""
    for month in range(1, 13):
        session = f"0000000{month:x}-0000-4000-8000-000000000000"
        start = datetime(2025, month, 1, tzinfo=UTC)
        story = TranscriptBuilder(session_id=session, start=start)
        for bed in range(60):
            call = story.call("Bash", {"command": f"./water bed-{bed}"}, after_ms=900)
            story.result(call, ran("one more drop\n" * 400), after_ms=30)
        story.write(home / "garden" / f"{story.session_id}.jsonl")
    return sample(home)


def remembered(home: Path) -> AbstractContextManager[Stage]:
    """A cache that knows the sample."""
    cache = Cache(home / ".cache/toolspan")
    paths = sorted(archive().rglob("*.jsonl"))
    assert list(cached_scan_files(paths, cache, now=lambda: time.time_ns() + _LATER))
    return nullcontext(Stage(home, home, differs=r"[\d.]+ MB"))


def bare(home: Path) -> AbstractContextManager[Stage]:
    """Nothing; the times of calls differ."""
    return nullcontext(Stage(home, home, differs=r'(?<="duration_ms":)[\d.]+'))


@contextmanager
def collector(home: Path) -> Iterator[Stage]:
    """The sample, and somebody who takes spans."""
    with HTTPServer(("127.0.0.1", 0), _Collector) as server, sample(home) as stage:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}"
            yield Stage(home, stage.folder, instead={"http://localhost:4318": address})
        finally:
            server.shutdown()
            thread.join()


class _Collector(BaseHTTPRequestHandler):
    """Refuses what holds no spans."""

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
        spans = [one for part in sent["resourceSpans"] for one in part["scopeSpans"]]
        self.send_response(200 if self.path == "/v1/traces" and spans else 400)
        self.end_headers()
        self.wfile.write(b"{}\n")

    def log_message(self, *_: object) -> None:
        """Nobody reads along."""


def refused(home: Path) -> AbstractContextManager[Stage]:
    """A call that a hook of the user's has refused, on record."""
    decision = {"behavior": "deny", "message": "ask me later"}
    said = {"hookEventName": "PermissionRequest", "decision": decision}
    answer = json.dumps({"hookSpecificOutput": said})
    handler = {"type": "command", "command": f"echo '{answer}'"}
    settings = {"hooks": {"PermissionRequest": [{"hooks": [handler]}]}}
    (home / ".claude").mkdir()
    (home / ".claude/settings.json").write_text(json.dumps(settings), encoding="utf-8")
    (home / "a.txt").write_text("one\n", encoding="utf-8")
    edit = {"file_path": str(home / "a.txt"), "old_string": "one", "new_string": "two"}
    given = {"toolu_1": ("Read", {"file_path": edit["file_path"]}), "toolu_01MQf7L08WqG5zKp3ZAcd09B": ("Edit", edit)}
    messages = [
        {"content": [{"type": "tool_use", "id": call, "name": tool, "input": values}]}
        for call, (tool, values) in given.items()
    ]
    stage = Stage(home, home)
    subprocess.run(
        ["toolspan", "exec", "--transcript", "t.jsonl"],
        input="".join(f"{json.dumps(message)}\n" for message in messages),
        cwd=home, env=stage.environment, text=True, check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return nullcontext(stage)


def broken(home: Path) -> AbstractContextManager[Stage]:
    """A session that ended in the middle: a line is torn, and a call has no result."""
    folder = home / "proj"
    folder.mkdir()
    session = "0d6a1a0e-7f5e-4f0b-9a54-0d9f5a1c2b3d"
    story = TranscriptBuilder(session_id=session, cwd=str(folder)).prompt("Why does it fail?")
    looked = story.call("Read", {"file_path": f"{folder}/build.log"}, after_ms=900)
    story.result(looked, read(f"{folder}/build.log", "make: error\n"), after_ms=12)
    made = story.call("Bash", {"command": "make"}, after_ms=900)
    story.result(made, ran("built"), after_ms=4_000)
    story.tear(180, ended=True)
    story.text("It is built now.", after_ms=700)
    story.write(home / ".claude/projects" / project_name(str(folder)) / f"{session}.jsonl")
    return nullcontext(Stage(home, folder, 110, differs=rf"(?!{session}){_UUID}"))


@contextmanager
def models(home: Path) -> Iterator[Stage]:
    """A project with a change, and a server that speaks for every model."""
    script = home / "script.json"
    script.write_text(json.dumps([[say("On Windows it is the path.")]]), encoding="utf-8")
    own = Stage(home, home).environment
    for words in (["init", "--quiet"], ["add", "--intent-to-add", "."]):
        subprocess.run(["git", *words], cwd=home, env=own, check=True, timeout=60)
    with ModelServer(ScriptedModel([], then=say("It does not."))) as server:
        variables = {
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "none",
            "OPENAI_BASE_URL": f"{server.url}/v1",
            "OPENAI_API_KEY": "none",
            "TOOLSPAN_MODEL": f"scripted:{script}",
        }
        instead = {"http://127.0.0.1:8080": server.url}
        yield Stage(home, home, variables=variables, instead=instead)


SCENES: dict[str, Scene] = {
    "README.md": partial(sample, columns=90),
    "docs/cache.md": remembered,
    "docs/exec.md": bare,
    "docs/export.md": collector,
    "docs/files.md": sample,
    "docs/flows.md": sample,
    "docs/hooks.md": refused,
    "docs/permissions.md": sample,
    "docs/repair.md": broken,
    "docs/replay.md": partial(sample, columns=100),
    "docs/run.md": models,
    "docs/search.md": much,
    "docs/time.md": sample,
}
"""The scene of each page that has one."""
