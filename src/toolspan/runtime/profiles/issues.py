"""How a client tells that an input does not fit: what differs between versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueStyle:
    """The shape of the issues of one client version."""

    validator: Literal["zod 3", "zod 4"]
    """Whose issue objects are recorded; the two name codes, keys and messages differently."""
    reports_all: bool = False
    """Issues without a sentence of their own are told beside those that have one."""
    reports_unparsed: bool = False
    """An input that is no JSON is told as such; otherwise it counts as an empty one."""


_V2_0_65 = IssueStyle(validator="zod 3")
_V2_1_80 = replace(_V2_0_65, validator="zod 4")
_V2_1_197 = replace(_V2_1_80, reports_unparsed=True)
_V2_1_325 = replace(_V2_1_197, reports_all=True)

ISSUES: Mapping[str, IssueStyle] = {
    "seed": _V2_0_65,
    "2.0.65": _V2_0_65,
    "2.1.80": _V2_1_80,
    "2.1.197": _V2_1_197,
    "2.1.325": _V2_1_325,
}
