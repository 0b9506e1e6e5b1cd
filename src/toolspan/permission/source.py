"""Rules from settings and options.

In: the permission block of a settings file, or an option's text. Out: `Rules` that know where they
come from. Which files count, and whom one trusts, is not decided here.
"""

import re
from pathlib import Path

from toolspan.permission.rules import Rules
from toolspan.profile.refusals import Refusals
from toolspan.settings.load import Permissions as Block

_STAR = re.compile(r"Bash\((?!.*:\*\)$)[^)]+\*.*\)$", re.DOTALL)


def rules_of(
    block: Block, origin: str, folder: Path | None = None, refusals: Refusals | None = None
) -> Rules:
    """The rules of one settings file; old clients drop a block in which one rule is unknown."""
    texts = (*block.allow, *block.ask, *block.deny)
    if refusals is not None and not refusals.star_rules and any(map(_STAR.match, texts)):
        return Rules()
    return Rules(allow=block.allow, ask=block.ask, deny=block.deny, origin=origin, folder=folder)


def split_rules(text: str) -> list[str]:
    """The rules of an option: apart by spaces or commas, but not inside brackets."""
    rules: list[str] = []
    depth, word = 0, ""
    for letter in text + " ":
        depth += (letter == "(") - (letter == ")")
        if letter in ", " and depth <= 0:
            rules += [word] if word else []
            word = ""
        else:
            word += letter
    return [*rules, word.rstrip()] if word else rules  # a bracket that never closes is no rule
