"""May this call run? The three answers."""

from collections.abc import Mapping

from msgspec import Struct


class Allow(Struct, frozen=True, tag="allow"):
    """It may; with `input`, it runs with that instead of what was asked."""

    reason: str | None = None
    source: str = "config"
    """Who said so: `config`, `hook`, `user_temporary`, `user_permanent`, …"""
    input: Mapping[str, object] | None = None


class Deny(Struct, frozen=True, tag="deny"):
    """It may not; the reason goes to the model, None takes the client's own words."""

    reason: str | None = None
    source: str = "config"
    stop: bool = False
    """A person refused without a word: the rest of the batch is not wanted either."""


class Ask(Struct, frozen=True, tag="ask"):
    """Somebody has to be asked; without anybody there the answer is no."""

    reason: str | None = None
    source: str = "config"


Decision = Allow | Deny | Ask
