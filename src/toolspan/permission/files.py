"""Path patterns, as in ignore files.

In: a rule's pattern and a path. Out: whether they fit. `//x` begins at the root, `~/x` at home,
`/x` where the rule was written, anything else where the session is. A pattern that names a folder
means all that is in it.
"""

import os
import re
from functools import lru_cache
from typing import NamedTuple

from toolspan.permission.ground import Ground, Links
from toolspan.permission.rule import Rule


def is_at_home(rule: Rule) -> bool:
    """Whether a rule means something else for somebody with another home."""
    return rule.inside is not None and rule.inside.startswith("~/")


def any_of(rules: tuple[Rule, ...], ground: Ground) -> re.Pattern[str]:
    """Every path that one of the rules forbids or asks about."""
    at_home = any(map(is_at_home, rules))
    return _together(rules, ground.folders[0], ground.cwd, ground.home if at_home else "")


def path_fits(rule: Rule, path: str, ground: Ground, *, granting: bool) -> bool:
    """Whether a rule speaks of a file; to grant, it must speak of what a link leads to as well."""
    home = ground.home if is_at_home(rule) else ""
    patterns = _patterns(rule, ground.folders[0], ground.cwd, home, granting)
    if _any_fits(patterns, path) is not granting:
        return not granting
    end = ground.links.real(path)
    return granting if end == path else _any_fits(patterns, end)


def _any_fits(patterns: tuple[re.Pattern[str], ...], path: str) -> bool:
    return any(pattern.match(path) for pattern in patterns)


@lru_cache(maxsize=64)
def _together(rules: tuple[Rule, ...], project: str, cwd: str, home: str) -> re.Pattern[str]:
    """All that rules forbid, in one pattern."""
    places = _Places(project, cwd, home)
    patterns = [one.pattern for rule in rules for one in _anchored(rule, places, granting=False)]
    return re.compile("|".join(f"(?:{one})" for one in patterns), re.DOTALL)


@lru_cache(maxsize=512)
def _patterns(
    rule: Rule,
    project: str,
    cwd: str,
    home: str,
    granting: bool,  # noqa: FBT001 - for the cache
) -> tuple[re.Pattern[str], ...]:
    places = _Places(project, cwd, home)
    return tuple(_anchored(rule, places, granting=granting))


class _Places(NamedTuple):
    """Where patterns begin."""

    project: str
    cwd: str
    home: str
    """Nothing, where no pattern begins there."""


def _anchored(rule: Rule, places: _Places, *, granting: bool) -> list[re.Pattern[str]]:
    """The pattern, from each folder in which it may begin."""
    pattern = rule.inside or "**"
    project = places.project
    for start, folder in (("//", "/"), ("~/", places.home), ("/", str(rule.folder or project))):
        if pattern.startswith(start):
            return _from([folder], pattern.removeprefix(start), deep=False)
    if pattern.startswith("../"):
        place = os.path.normpath(f"{project}/{pattern}")
        return _from(["/"], place[1:], deep=False)
    here = pattern.startswith("./")
    body = pattern.removeprefix("./").rstrip("/")
    if granting:
        return _from([project], body, deep="/" not in body and not here)
    # What is denied is denied wherever a folder of that name is.
    return _from([project, places.cwd], body, deep="/" not in body.removesuffix("/**"))


def _from(folders: list[str], pattern: str, *, deep: bool) -> list[re.Pattern[str]]:
    links = Links()
    both = dict.fromkeys(one for folder in folders for one in (folder, links.real(folder)))
    return [_compiled(folder, pattern, deep=deep) for folder in both]


def _compiled(folder: str, pattern: str, *, deep: bool) -> re.Pattern[str]:
    inside = pattern.rstrip("/").removesuffix("/**")
    start = re.escape(folder.rstrip("/")) + "/" + ("(?:.*/)?" if deep else "")
    try:
        return re.compile(start + _translated(inside) + r"(?:/.*)?\Z", re.DOTALL)
    except re.error:  # such as [z-a]: then it means itself
        return re.compile(start + re.escape(inside) + r"(?:/.*)?\Z", re.DOTALL)


def _translated(pattern: str) -> str:
    out, at = "", 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            out, at = out + "(?:.*/)?", at + 3
        elif pattern.startswith("**", at):
            out, at = out + ".*", at + 2
        elif pattern[at] == "*":
            out, at = out + "[^/]*", at + 1
        elif pattern[at] == "?":
            out, at = out + "[^/]", at + 1
        elif pattern[at] == "\\" and at + 1 < len(pattern):
            out, at = out + re.escape(pattern[at + 1]), at + 2
        else:
            piece, at = _letter(pattern, at)
            out += piece
    return out


def _letter(pattern: str, at: int) -> tuple[str, int]:
    """A letter, or one of several in square brackets."""
    end = pattern.find("]", at + 2)
    if pattern[at] != "[" or end < 0:
        return re.escape(pattern[at]), at + 1
    letters = pattern[at + 1 : end]
    negated = letters[:1] in ("!", "^")
    inner = re.escape(letters[negated:]).replace("\\-", "-")
    return f"[{'^' if negated else ''}{inner}]", end + 1
