"""What the calls of a chain amount to, in a word.

In: a chain that nothing takes up any more. Out: its name, None when nothing was tried. An input is
read again only to tell a repetition from a change. The rules are in docs/flows.md.
"""

from collections.abc import Sequence
from typing import Literal

from toolspan.model.kind import ErrorKind
from toolspan.model.span import Span
from toolspan.report.flow.watch import OpenChain, arguments

ChainName = Literal[
    "read_before_write", "reread_after_stale", "degradation", "retry_same", "retry_modified",
    "tool_switch", "paginate", "repair_command",
]  # fmt: skip
_TARGETED = frozenset({"shell", "read", "edit", "write"})
"""Kinds whose calls are about something that their input names."""
_LADDER = {"MultiEdit": 0, "Edit": 1, "Write": 2}
_TIMEOUTS: frozenset[ErrorKind] = frozenset(
    {"mcp_timeout", "permission_timeout", "command_timeout", "mcp_no_response", "network"}
)


def name_of(chain: OpenChain) -> ChainName | None:
    """What the links of a chain amount to; the more special first."""
    start, attempts = chain.start, chain.tried[1:]
    looked = any(
        role == "support" and span.call.kind != "shell" and span.state == "succeeded"
        for span, role in chain.links
    )
    if looked and start.error_kind == "read_required":
        return "read_before_write"
    if looked and start.error_kind == "stale_file":
        return "reread_after_stale"
    if not attempts:
        return None
    if _degrades(chain.tried):
        return "degradation"
    if start.error_kind == "too_large" and _in_parts(attempts[-1]):
        return "paginate"
    if looked and start.call.kind == "shell":
        return "repair_command"
    if attempts[-1].tool != start.tool:
        return "tool_switch"
    return "retry_same" if _same_input(start, attempts[-1]) else "retry_modified"


def _degrades(tried: Sequence[Span]) -> bool:
    """Each try after a timeout was a simpler tool: MultiEdit, Edit, Write."""
    steps = [_LADDER.get(span.tool, -1) for span in tried]
    if -1 in steps or steps[0] == steps[-1] or steps != sorted(steps):
        return False
    return all(span.state == "timed_out" or span.error_kind in _TIMEOUTS for span in tried[:-1])


def _in_parts(span: Span) -> bool:
    given = arguments(span)
    return span.tool == "Grep" or bool(given.keys() & {"offset", "limit", "pages"})


def _same_input(first: Span, second: Span) -> bool:
    if first.call.kind in _TARGETED and first.call.target != second.call.target:
        return False  # told without reading either again
    one, other = arguments(first), arguments(second)
    return bool(one) and one == other
