"""What was said between the calls."""

from typing import Literal

from msgspec import Struct

from toolspan.model.place import Place

Voice = Literal[
    "prompt", "text", "thinking", "injected", "command", "summary", "notification", "interrupt",
    "error", "system",
]  # fmt: skip


class Message(Struct, frozen=True, kw_only=True):
    """One thing somebody said: a person's prompt, the model's text or thinking, or the client."""

    voice: Voice
    text: str
    at: str | None
    agent_id: str | None
    place: Place
