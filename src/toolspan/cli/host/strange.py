"""Names in options and settings that nobody knows: most often a slip of the pen.

In: what was written, and the names there are. Out: a line for each that is none of them. A name
with a star or an underscore may be a server's, and is never strange. Nothing is printed here.
"""

from collections.abc import Iterable, Iterator
from functools import cache

from toolspan.model.toolkind import ToolKind, tools_of
from toolspan.permission.rules import Rules
from toolspan.profile import VERSIONS, profile

_KINDS: tuple[ToolKind, ...] = (
    "shell", "read", "edit", "write", "search", "web", "agent", "plan", "question",
)  # fmt: skip
_FOR_PEOPLE = frozenset({"Cd", "EndConversation"})
"""Names that rules may hold though no model calls them."""


def strange_tools(names: Iterable[str], more: Iterable[str] = ()) -> Iterator[str]:
    """A line for each name that no tool of any client has; `more` are further names there are."""
    there = frozenset(more)
    for name in dict.fromkeys(names):
        if name not in there and not set(name) & set("*_") and name not in _known():
            yield f"there is no tool {name!r}{_near(name, there | _known())}"


def strange_rules(rules: Rules, more: Iterable[str] = ()) -> Iterator[str]:
    """A line for each rule about a tool that there is not, and for each that does too little."""
    known = tuple(more)
    for rule in (*rules.deny, *rules.ask, *rules.allow):
        where = f" ({rule.origin})" if rule.origin else ""
        yield from (
            f"the rule {rule.text}{where}: {line}" for line in strange_tools([rule.tool], known)
        )
    yield from (f"the rule {line}" for line in rules.warnings)


@cache
def _known() -> frozenset[str]:
    names = tools_of(*_KINDS) | _FOR_PEOPLE
    for version in VERSIONS:
        offer = profile(version).offer
        names |= offer.tools | offer.known | frozenset(offer.aliases)
    return names


def _near(name: str, known: Iterable[str]) -> str:
    import difflib  # nearly never needed

    by_case = {one.lower(): one for one in sorted(known, reverse=True)}  # capitals last, and first
    close = difflib.get_close_matches(name.lower(), by_case, n=1)
    return f"; is it {by_case[close[0]]}?" if close else ""
