"""Sessions of both clients with a given text in every place that holds texts, and their exports."""

from collections.abc import Callable, Sequence

from toolspan.export import html
from toolspan.export.formats import FORMATS, writer
from toolspan.export.story import Story
from toolspan.export.veil import Veil
from toolspan.read.transcript import Transcript, read
from toolspan.testing import TranscriptBuilder, bodies, outputs
from toolspan.testing.rollouts import RolloutBuilder
from toolspan.wire.source import BytesSource

CWD = "/home/dev/project"
HALF = "\ue000"
"""Stands for half of a letter, which clients write as `\\ud800` and no builder does."""


def claude(text: str, *, file: str = "session.jsonl") -> list[Transcript]:
    """A Claude Code session with a subagent."""
    story = TranscriptBuilder(git_branch=text).title(text).prompt(text)
    story.thinking(text).text(text)
    ran = story.call("Bash", {"command": text, "description": text})
    story.hook(ran, "PreToolUse", command=text, text=text)
    story.result(ran, bodies.ran(text), after_ms=1500)
    path = f"{CWD}/{text}.py"
    edited = story.call("Edit", {"file_path": path, "old_string": "a", "new_string": text})
    story.result(edited, bodies.edited(path, "a\n", "a", text), after_ms=40)
    served = story.call(f"mcp__{text[:20]}__ask", {text: {text: [text, 7, True, None]}})
    story.result(served, bodies.failed(text), after_ms=90)
    refused = story.call("Bash", {"command": f"rm {text}"})
    story.result(refused, bodies.rejected(text), after_ms=4_000)
    task = story.call("Task", {"prompt": text, "description": text, "subagent_type": text})
    child = story.agent(task, kind=text).prompt(text)
    inner = child.call("Grep", {"pattern": text})
    child.result(inner, bodies.found_lines([text]), after_ms=20).text(text)
    story.until(child)
    told = bodies.reported(child.agent_id, text, prompt=text, calls=1, took_ms=20)
    story.result(task, told, after_ms=5)
    left = story.call("Read", {"file_path": path}, id=f"toolu_{text}")
    assert left
    return [
        transcript(story.data(), file),
        transcript(child.data(), f"agent-{child.agent_id}.jsonl"),
    ]


def codex(text: str) -> list[Transcript]:
    """A Codex session."""
    story = RolloutBuilder().prompt(text).injected(text).text(text).thinking(text)
    ran = story.call("exec_command", {"cmd": text, "workdir": f"{CWD}/{text}"})
    story.output(ran, outputs.ran(text, code=3), after_ms=800)
    patch = f"*** Begin Patch\n*** Add File: {text}.py\n+{text}\n*** End Patch"
    patched = story.call("apply_patch", patch)
    story.output(patched, outputs.patched(f"A {text}.py"), custom=True, after_ms=90)
    story.call("no_such_tool", {text: text})
    return [transcript(story.data(), "rollout-x.jsonl")]


def transcript(data: bytes, file: str = "session.jsonl") -> Transcript:
    """Lines, read."""
    return read(BytesSource(data.replace(HALF.encode(), rb"\ud800"), file))


BOTH: tuple[Callable[[str], list[Transcript]], ...] = (claude, codex)


def exported(
    transcripts: Sequence[Transcript], veil: Callable[[], Veil | None] = lambda: None
) -> dict[str, str]:
    """What each format, and the page, makes of a session."""
    found: dict[str, str] = {
        form: b"".join(writer(form)([Story(transcripts, veil=veil())])).decode() for form in FORMATS
    }
    return {**found, "html": html.page(*transcripts, veil=veil())}
