"""WebFetch: what differs between client versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchValues:
    """Texts and policies of WebFetch of one client version."""

    undotted_host: str = (
        "WebFetch cannot fetch localhost or other hostnames without a dot."
        " To reach a local server, use Bash with curl instead."
    )
    """For the name of a host that is none of the internet's."""
    has_offset: bool = True
    """A long page can be read on from a later character."""


_V2_1_325 = FetchValues()
_OLDER = replace(_V2_1_325, undotted_host="Invalid URL", has_offset=False)

FETCHES: Mapping[str, FetchValues] = {
    "seed": _OLDER,
    "2.0.65": _OLDER,
    "2.1.80": _OLDER,
    "2.1.197": _OLDER,
    "2.1.325": _V2_1_325,
}
