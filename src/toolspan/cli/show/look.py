"""One call, one message, one event in one line, as somebody wants to see them.

In: a `Look` and one thing that happened. Out: a rich `Text`, not yet cut to the width.
"""

from contextlib import suppress
from typing import NamedTuple

from rich.text import Text

from toolspan.cli.draw import joined, plain_line
from toolspan.cli.output import STATE_STYLE, duration
from toolspan.errors import SourceError
from toolspan.model.event import Event, Hook, Note, Notification, Permission, Progress
from toolspan.model.message import Message, Voice
from toolspan.model.span import Call, Span, moment
from toolspan.model.state import SIGNS
from toolspan.report.words import words
from toolspan.wire.paths import shortened

VOICES: dict[Voice, tuple[str, str]] = {
    "prompt": ("❯ ", "bold"),
    "command": ("❯ ", "bold"),
    "text": ("  ", "dim"),
    "thinking": ("∴ ", "dim italic"),
    "injected": ("+ ", "dim"),
    "summary": ("≡ ", "dim"),
    "notification": ("◆ ", "cyan"),
    "interrupt": ("■ ", "magenta"),
    "error": ("! ", "red"),
    "system": ("── ", "yellow"),
}
_MARKERS = frozenset({"interrupt", "system", "error"})
"""Voices that are told even where words are not wanted."""


class Look(NamedTuple):
    """How a session is to be drawn."""

    width: int
    cwd: str | None = None
    """Paths below it are shown without it."""
    messages: bool = True
    thinking: bool = False
    full: bool = False
    """Words are told in full length."""

    def wants(self, message: Message) -> bool:
        """Whether these words are shown."""
        if message.voice == "thinking":
            return self.thinking
        return self.messages or message.voice in _MARKERS

    def shortened(self, text: str) -> str:
        """A path without the working folder before it; any other text as it is."""
        return shortened(text, self.cwd)

    def target(self, call: Call) -> str:
        """What a call is about, paths shortened; for tools nobody knows, its input."""
        text = self.shortened(call.target or "")
        if not text and call.kind in ("mcp", "question", "other"):
            with suppress(SourceError):
                text = call.raw_input[: self.width * 4].decode("utf-8", "replace").strip("{}")
        return plain_line(text, self.width)


def said_text(message: Message, look: Look) -> Text:
    """What somebody said, in one line."""
    mark, style = VOICES[message.voice]
    return Text(mark + plain_line(words(message), look.width), style=style)


def call_text(span: Span, look: Look) -> Text:
    """One call in one line: how it ended, the tool, what it is about."""
    text = Text()
    text.append(f"{SIGNS[span.state]} ", style=STATE_STYLE[span.state])
    text.append(f"{plain_line(span.tool or 'orphan', 60):5} ", style="bold")
    text.append(look.target(span.call))
    if flags := [name for name in ("background", "deferred", "synthetic") if getattr(span, name)]:
        text.append(f" ⟳ {', '.join(flags)}", style="cyan")
    return text


def event_note(event: Event) -> str:
    """One thing that happened around a call, in words."""
    match event:
        case Hook():
            said = (event.text or "").strip('" ')
            name = event.name or event.point
            return joined(f"hook {name}", event.outcome, duration(event.duration_ms), said)
        case Progress():
            first, last = moment(event.first_at), moment(event.last_at)
            over = duration((last - first).total_seconds() * 1000) if first and last else ""
            return f"progress: {event.kind} ×{event.count}" + (f" over {over}" if over else "")
        case Permission():
            return "permission: " + joined(event.decision, event.source, event.reason)
        case Notification():
            return "background " + joined(event.task_id or "task", event.status, event.summary)
        case Note():
            return joined(event.kind.replace("_", " "), event.text)
