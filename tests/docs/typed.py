"""Blocks that somebody sees at a terminal: commands that ask, questions, a conversation.

In: a home with a shell in it, and the block. Out: what the terminal showed, in the words of pages.
Each block is known by its page and its first line, and has a scene, which puts there what it needs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from tests.docs.blocks import Block
from tests.docs.spoken import Step, commands
from tests.journeys.settle import Settled
from tests.journeys.world import World
from toolspan.formats.claude.paths import hook_log_path
from toolspan.reading.sample import archive
from toolspan.testing import TranscriptBuilder, say, use
from toolspan.testing.claude_results import ran

Scene = Callable[[World], None]
Story = Callable[[World, Block], Iterator[tuple[str, str]]]
"""Pairs of what the page shows, and what was seen."""
_ANSWER = re.compile(r"\[y/N\]: (\w+)$", re.MULTILINE)


def answered(place: World, block: Block) -> Iterator[tuple[str, str]]:
    """Commands that ask; where the page shows no answer, it is yes, and then it is done."""
    for step in commands(block.text.splitlines()):
        place.screen.starts(step.code)
        for answer in _answers(step):
            place.screen.sees("[y/N]:")
            place.screen.types(answer)
        seen = place.settled(place.screen.ends())
        if step.printed:
            yield step.printed, seen
        else:
            assert "\ndone: " in seen, seen


def _answers(step: Step) -> list[str]:
    return _ANSWER.findall(step.printed) if step.printed else ["y"]


def asked(place: World, block: Block) -> Iterator[tuple[str, str]]:
    """A call that needs consent."""
    given = {"command": "npm run build && ls"}
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": given}
    calls = place.project / "calls.jsonl"
    calls.write_text(json.dumps({"content": [call]}), encoding="utf-8")
    place.screen.starts("toolspan exec --ask --transcript none < calls.jsonl > results.jsonl")
    seen = place.screen.sees("comment >")
    place.screen.types("d")
    place.screen.ends()
    yield block.text.strip(), place.settled(seen).strip()


def talked(place: World, block: Block) -> Iterator[tuple[str, str]]:
    """A conversation with a model that follows a script."""
    (place.project / "a.txt").write_text("one\n", encoding="utf-8")
    edit = use("Edit", file_path="a.txt", old_string="one", new_string="two")
    script = [[say("I look first."), use("Read", file_path="a.txt")], [edit], say("It is two now.")]
    (place.home / "script.json").write_text(json.dumps(script), encoding="utf-8")
    options = "--model scripted:$HOME/script.json --permission-mode acceptEdits"
    place.screen.starts(f"toolspan run {options}")
    place.screen.sees("\n>")
    place.screen.types(block.first.removeprefix("> "))
    seen = place.screen.sees("tokens\n>")
    place.screen.types("/exit")
    place.screen.ends()
    settled = Settled(place)
    yield settled(block.text.strip()), settled(seen[seen.index("\n> ") :].strip())


def their_files(place: World) -> None:
    """The sample, of a project in this home, with a file that is not as any call left it."""
    project = place.home / "mira"
    for path in archive().rglob("*.jsonl"):
        copy = place.home / ".claude" / path.relative_to(archive() / "claude")
        copy.parent.mkdir(parents=True, exist_ok=True)
        told = path.read_text(encoding="utf-8").replace("/home/mira", str(project))
        copy.write_text(told, encoding="utf-8")
    (project / "paperboat/static").mkdir(parents=True)
    (project / "paperboat/static/search.js").write_text("mine\n", encoding="utf-8")


def a_guard(place: World) -> None:
    """A project that brings a hook along."""
    handler = {"type": "command", "command": "./guard"}
    hooks = {"PreToolUse": [{"matcher": "Bash", "hooks": [handler]}]}
    (place.project / ".claude").mkdir()
    settings = place.project / ".claude/settings.json"
    settings.write_text(json.dumps({"hooks": hooks}), encoding="utf-8")


def a_noted_session(place: World) -> None:
    """A session in which somebody was asked, and hooks have told when."""
    story = TranscriptBuilder(cwd=str(place.project)).prompt("Build it")
    call = story.call("Bash", {"command": "make"}, after_ms=1_000)
    began = story.now.timestamp()
    story.result(call, ran("made"), after_ms=14_000)
    notes = hook_log_path(place.keeps(story))
    notes.parent.mkdir()
    this = {"v": 1, "tool": "Bash", "input": "1-1"}
    rows = [
        this | {"at": began, "event": "PreToolUse", "call": call},
        this | {"at": began + 0.7, "event": "PermissionRequest"},
        this | {"at": began + 14, "event": "PostToolUse", "call": call, "duration_ms": 1_000},
    ]
    notes.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def nothing(_: World) -> None:
    """It needs nothing."""


TYPED: dict[tuple[str, str], tuple[Scene, Story]] = {
    (
        "README.md",
        "$ toolspan restore search.js         # as the last call left it; what is there now is kept beside it",
    ): (their_files, answered),
    ("docs/files.md", "$ toolspan restore search.js --after toolu_0145IkOq     # as it was after that call"): (
        their_files,
        answered,
    ),
    ("docs/hook.md", "$ toolspan hook install"): (a_noted_session, answered),
    ("docs/permissions.md", f"--- Bash needs permission {'-' * 74}"): (nothing, asked),
    ("docs/run.md", "> make it two"): (nothing, talked),
    ("docs/settings.md", "$ toolspan trust"): (a_guard, answered),
}
"""Each block by its page and first line: what it needs, and how it goes."""


def is_typed(block: Block) -> bool:
    """Whether a block is one of those."""
    return (block.page, block.first) in TYPED
