"""Where handlers run: what a session lends them, and what they are told of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from toolspan.process import Custody

Export = Callable[[Mapping[str, str | None]], Mapping[str, str | None]]


@dataclass(slots=True, kw_only=True)
class Scene:
    """A session, as far as handlers may see it. Only the session changes it."""

    project: Path
    """Where the session began."""
    custody: Custody
    """Every process that a handler starts."""
    folder: Path
    """The session's own folder; what is too long for the model is kept there."""
    cwd: Callable[[], Path]
    """The folder the session is in now."""
    environment: Mapping[str, str] = field(default_factory=dict)
    session_id: str | None = None
    transcript: Path | None = None
    permission_mode: Callable[[], str] = field(default=lambda: "default")
    prompt_id: str | None = None
    effort: str | None = None
    """How hard the model thinks; None: as the client version does by itself."""
    agent_id: str | None = None
    agent_type: str | None = None
    export: Export = field(default=lambda _found: {})
    """Sets variables of later commands; None takes one away. Gives what they were."""
