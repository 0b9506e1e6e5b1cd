"""Path patterns, as in ignore files.

In: a rule's pattern and a path. Out: whether they fit. `//x` begins at the root, `~/x` at home, `/x`
where the rule was written, anything else where the session is. A pattern that names a folder means
all that is in it.
"""

import os
import re
from functools import lru_cache
from pathlib import Path

from toolspan.permission.ground import Ground, real
from toolspan.permission.rule import Rule


def path_fits(rule: Rule, path: Path, ground: Ground, *, granting: bool) -> bool:
    """Whether a rule speaks of a file; to grant, it must speak of what a link leads to as well."""
    patterns = [_compiled(*one, granting) for one in _anchored(rule, ground, granting=granting)]
    ends = (str(path), str(real(path)))
    fits = [any(pattern.match(end) for pattern in patterns) for end in ends]
    return all(fits) if granting else any(fits)


def _anchored(rule: Rule, ground: Ground, *, granting: bool) -> list[tuple[str, str]]:
    """Folders in which the pattern begins, with what is left of it."""
    pattern = rule.inside or "**"
    project = ground.folders[0]
    if pattern.startswith("//"):
        return [("/", pattern[2:])]
    if pattern.startswith("~/"):
        return _both(ground.home, pattern[2:])
    if pattern.startswith("/"):
        return _both(rule.folder or project, pattern[1:])
    pattern = pattern.removeprefix("./")
    if pattern.startswith("../"):
        return _both(Path(os.path.normpath(project / pattern)).parent, pattern.rpartition("/")[2])
    found = _both(project, pattern)
    return found if granting else [*found, *_both(ground.cwd, pattern)]


def _both(folder: Path, pattern: str) -> list[tuple[str, str]]:
    return [(one, pattern) for one in dict.fromkeys((str(folder), str(real(folder))))]


@lru_cache(maxsize=512)
def _compiled(folder: str, pattern: str, granting: bool) -> re.Pattern[str]:  # noqa: FBT001
    body = pattern.rstrip("/")
    deep = "/" not in body
    if not granting and body.endswith("/**") and "/" not in body.removesuffix("/**"):
        deep = True
    inside = body.removesuffix("/**")
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
