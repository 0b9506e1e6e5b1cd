"""Whether a patch is true: does it lead from the text before to the text after?

In: hunks and the texts, as far as they are known. Out: a `Verdict`; what the hunks or the texts
contain never raises. Read `verify` first.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from toolspan.model.hunk import Hunk
from toolspan.patch.apply import PatchError, apply, difference


class Fits(Struct, frozen=True, tag="fits"):
    """The patch leads from the text before to the text after."""


class NoBase(Struct, frozen=True, tag="no_base"):
    """The text before is not known, so there is nothing to apply the patch to."""


class Mismatch(Struct, frozen=True, tag="mismatch"):
    """The patch does not lead from the text before to the text after."""

    reason: str


Verdict = Fits | NoBase | Mismatch
"""Do hunks and a file belong together?"""

_LEADING_TABS = re.compile(r"(?:^|(?<=\n))\t+")


def verify(hunks: Sequence[Hunk], before: str | None, after: str | None) -> Verdict:
    """Check a patch against the texts; with `after` unknown, only that it applies.

    A creation is often recorded without hunks: its `before` is unknown (None), not empty.
    """
    if before is None:
        return NoBase()
    reason = _misfit(hunks, before, after)
    if reason is None:
        return Fits()
    if _fits_with_tabs_shown(hunks, before, after):
        reason = f"The patch shows leading tabs as two spaces each; otherwise it fits. {reason}"
    return Mismatch(reason=reason)


def _misfit(hunks: Sequence[Hunk], before: str, after: str | None) -> str | None:
    try:
        made = apply(hunks, before)
    except PatchError as error:
        return str(error)
    return None if after is None or made == after else _difference(made, after)


def _fits_with_tabs_shown(hunks: Sequence[Hunk], before: str, after: str | None) -> bool:
    """Some clients make the patch of texts in which leading tabs are shown as spaces."""
    shown_after = None if after is None else _tabs_shown(after)
    return _misfit(hunks, _tabs_shown(before), shown_after) is None


def _tabs_shown(text: str) -> str:
    return _LEADING_TABS.sub(lambda tabs: "  " * len(tabs[0]), text)


def _difference(made: str, after: str) -> str:
    if made.removesuffix("\n") == after.removesuffix("\n"):
        ends = "has none" if made.endswith("\n") else "has one"
        return f"Only the final newline differs: the text after {ends}."
    if made.replace("\r\n", "\n") == after.replace("\r\n", "\n"):
        return "Only line ends differ: \\r\\n on one side, \\n on the other."
    index, words = difference(after.split("\n"), made.split("\n"))
    return f"Line {index + 1} of the patched text is not that of the text after: {words}."
