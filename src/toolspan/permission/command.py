"""Do rules speak of a command line?

In: a pattern and a line. Out: whether a command in it fits, in whatever way it is written or
hidden: behind a wrapper, in a script, by another path. To deny, one form is enough; what is not
understood is searched as bare text. Read `mentions` first.
"""

import re
from functools import lru_cache

from toolspan.permission.rule import command_like
from toolspan.shell.inside import Unfolded, base, plain, unfold
from toolspan.shell.seen import Program, see

_QUOTES = re.compile(r"[\"'\\]")
_MARKS = re.compile(r"[\"'\\`]|\$\(|[(){};&|]")


@lru_cache(maxsize=256)
def opened(line: str) -> Unfolded:
    """All that a line may run."""
    return unfold(see(line))


@lru_cache(maxsize=256)
def _forms(line: str) -> frozenset[str]:
    """Every command of a line, in every way a rule might name it."""
    found = {line.strip()}
    for one in opened(line).found:
        if one.program.words:
            words = [word.text for word in one.program.words]
            found.add(one.program.text)
            found.add(" ".join(words))
            words[0] = base(words[0])
            found.add(" ".join(words))
    return frozenset(found)


def is_far_from(line: str, beginnings: tuple[str, ...]) -> bool:
    """Whether no command of a line can fit a pattern that has one of these beginnings."""
    if opened(line).unclear:
        return False
    return all(not form.startswith(beginnings) for form in _forms(line))


def mentions(line: str, pattern: str) -> bool:
    """Whether a command of the line fits, or might, as far as one can see."""
    if any(command_like(form, pattern) for form in _forms(line)):
        return True
    return bool(opened(line).unclear) and in_text(line, pattern)


def in_text(text: str, pattern: str) -> bool:
    """Whether the fixed words at the pattern's beginning stand in a text, quoted or not."""
    wanted = _wanted(pattern)
    return wanted is None or any(wanted.search(one) for one in _readings(text))


@lru_cache(maxsize=256)
def _wanted(pattern: str) -> re.Pattern[str] | None:
    """The fixed words at a pattern's beginning; None when there are none."""
    head = pattern.partition("*")[0].removesuffix(":").split()
    words = r"\s+".join(map(re.escape, head))
    return re.compile(rf"(?<![\w.-]){words}(?![\w-])") if head else None


@lru_cache(maxsize=16)
def _readings(text: str) -> tuple[str, str, str]:
    """A text as it stands, with blanks for quotes and signs, and with quotes left out."""
    return text, _MARKS.sub(" ", text), _QUOTES.sub("", text)


def may_hide(line: str, patterns: list[str]) -> bool:
    """Whether a command that fits could be in the line without being seen."""
    unfolded = opened(line)
    if unfolded.unclear:
        return True
    return any(in_text(code, pattern) for code in unfolded.code for pattern in patterns)


def granted(program: Program, pattern: str) -> bool:
    """Whether a pattern speaks of a program as it is written, or inside a plain wrapper."""
    inner = plain(program)
    if command_like(program.text, pattern):
        return True
    return inner is not program and command_like(inner.text, pattern)
