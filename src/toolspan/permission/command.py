"""Do rules speak of a command line?

In: a pattern and a line. Out: whether a command in it fits, in whatever way it is written or
hidden: behind a wrapper, in a script, by another path. To deny, one form is enough; what is not
understood is searched as bare text. Read `mentions` first.
"""

import re
from functools import lru_cache

from msgspec import Struct

from toolspan.permission.rule import command_like
from toolspan.shell.inside import Unfolded, base, plain, unfold
from toolspan.shell.seen import Program, see

_MARK = r"(?:[\"'\\`(){};&|]|\$\()"
_MARKS = re.compile(_MARK)
_SIGNS = re.compile(r"[\"'\\]")


@lru_cache(maxsize=256)
def opened(line: str) -> Unfolded:
    """All that a line may run."""
    return unfold(see(line))


@lru_cache(maxsize=256)
def _forms(line: str) -> tuple[str, ...]:
    """Every command of a line, in every way a rule might name it."""
    found = [line.strip()]
    for one in opened(line).found:
        words = one.program.words
        if words:
            text, name = one.program.text, words[0].text
            found.append(text)
            said = " ".join([word.text for word in words])
            if said != text:
                found.append(said)
            if "/" in name:
                found.append(base(name) + said[len(name) :])
    return tuple(found)


def is_far_from(line: str, beginnings: tuple[str, ...]) -> bool:
    """Whether no command of a line can fit a pattern that has one of these beginnings."""
    if opened(line).unclear:
        return False
    if "$'" not in line and "\\\n" not in line and not _has_one_of(_firsts(beginnings), line):
        return True
    return not [form for form in _forms(line) if form.startswith(beginnings)]


def _has_one_of(words: tuple[str, ...], line: str) -> bool:
    """Whether words stand in a line, quoted or not, be it within others."""
    if "'" in line or '"' in line or "\\" in line:
        line = _bare(line)
    for word in words:  # noqa: SIM110 - asked on every decision
        if word in line:
            return True
    return False


@lru_cache(maxsize=64)
def _firsts(beginnings: tuple[str, ...]) -> tuple[str, ...]:
    """The first words of beginnings; with signs in them, what is before those."""
    return tuple(_SIGNS.split(" ".join(one.split()[:1]), maxsplit=1)[0] for one in beginnings)


def mentions(line: str, pattern: str) -> bool:
    """Whether a command of the line fits, or might, as far as one can see."""
    if any(command_like(form, pattern) for form in _forms(line)):
        return True
    return bool(opened(line).unclear) and in_text(line, pattern)


def in_text(text: str, pattern: str) -> bool:
    """Whether the fixed words at the pattern's beginning stand in a text, quoted or not.

    They may have blanks between them, or quotes and signs; or quotes may be anywhere.
    """
    wanted = _wanted(pattern)
    if wanted is None or (wanted.first in text and wanted.is_apart_in(text)):
        return True
    bare = _bare(text)
    return wanted.first in bare and wanted.words.search(bare) is not None


class _Wanted(Struct, frozen=True):
    """The fixed words at a pattern's beginning."""

    first: str
    words: re.Pattern[str]
    """With blanks between them."""
    apart: re.Pattern[str] | None
    """With blanks, quotes or signs between them; None when they hold signs themselves."""

    def is_apart_in(self, text: str) -> bool:
        """Whether they stand in a text, with whatever parts words between them."""
        if self.apart is not None:
            return self.apart.search(text) is not None
        return any(self.words.search(one) for one in (text, _MARKS.sub(" ", text)))


@lru_cache(maxsize=256)
def _wanted(pattern: str) -> _Wanted | None:
    """The fixed words at a pattern's beginning; None when there are none."""
    head = pattern.partition("*")[0].removesuffix(":").split()
    if not head:
        return None
    signs = any("$" in word or _MARKS.search(word) for word in head)
    apart = None if signs else _in_a_row(head, rf"(?:\s|{_MARK})+")
    return _Wanted(head[0], _in_a_row(head, r"\s+"), apart)


def _in_a_row(words: list[str], between: str) -> re.Pattern[str]:
    first, *rest = map(re.escape, words)
    # What stands before the first word is looked at last: then words are found fast.
    return re.compile(between.join([rf"{first}(?<![\w.-]{first})", *rest]) + r"(?![\w-])")


@lru_cache(maxsize=16)
def _bare(text: str) -> str:
    """A text with its quotes left out."""
    return text.replace('"', "").replace("'", "").replace("\\", "")


def may_hide(line: str, patterns: list[str]) -> bool:
    """Whether a command that fits could be in the line without being seen."""
    unfolded = opened(line)
    if unfolded.unclear or not unfolded.code:
        return bool(unfolded.unclear)
    return any(in_text(code, pattern) for code in unfolded.code for pattern in patterns)


def granted(program: Program, pattern: str) -> bool:
    """Whether a pattern speaks of a program as it is written, or inside a plain wrapper."""
    inner = plain(program)
    if command_like(program.text, pattern):
        return True
    return inner is not program and command_like(inner.text, pattern)
