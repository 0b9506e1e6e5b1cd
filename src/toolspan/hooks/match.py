"""Which handlers a point calls: the text of a matcher against a name.

Nothing, `""` and `*` match everything. A matcher made of names (which characters these have is the
client version's) matches one of them exactly. Anything else is a regular expression that is looked
for anywhere in the name: `Edit.*` is found in `NotebookEdit`, too. Pure.
"""

import re
from collections.abc import Callable

from toolspan.profile import HookValues

Matches = Callable[[str | None], bool]


class BadMatcher(ValueError):  # noqa: N818 - reads as a noun where it is caught
    """A matcher is no regular expression."""


def matcher(text: str, values: HookValues) -> Matches:
    """What the text of a matcher matches; a point that is about nothing is always matched.

    Raises:
        BadMatcher: it is none.
    """
    if text.strip() in ("", "*"):
        return lambda _name: True
    if re.fullmatch(values.exact, text):
        names = {name.strip() for name in re.split(f"[{values.separators}]", text)}
        return lambda name: name is None or name in names
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise BadMatcher(f"{text!r} is no regular expression: {error}") from error
    return lambda name: name is None or pattern.search(name) is not None
