"""The agents that work can be given to: the general one, and those that people have written.

In: folders with `NAME.md` files, each a few lines between `---` and the words of the agent below
them. Out: a `Kind` for each, and what is wrong with those that are none: a broken file is told of,
and the others count. Whether a project's own count is not asked here (`settings/trust.py`). Read
`load_kinds` first.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from toolspan.builtin.agent import GENERAL
from toolspan.errors import ToolspanError
from toolspan.hooks.points import Firing
from toolspan.run.tool import Tool
from toolspan.settings.head import hooks_in

MOST = 1 << 20
"""Bytes of a file; what is longer is no description of an agent."""
_PERSONAL = frozenset({"AskUserQuestion", "EnterPlanMode", "ExitPlanMode"})
"""Tools of the main conversation: nobody talks to an agent below it."""
_NAME = re.compile(r"[\w.:-]+(?: [\w.:-]+)*")
_FRONT = re.compile(
    r"\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$\n?(.*)\Z", re.DOTALL | re.MULTILINE
)
_KEY = re.compile(r"([A-Za-z][\w-]*)[ \t]*:[ \t]*(.*)")
_RULE = re.compile(r"\(.*?\)")
_MODES = ("default", "acceptEdits", "plan", "dontAsk")
_KNOWN = frozenset({
    "name", "description", "tools", "disallowedTools", "model", "permissionMode", "maxTurns",
    "background", "isolation", "color", "hooks",
})  # fmt: skip

Field = str | list[str]
MakeHooks = Callable[[object, Path], Firing]
"""Makes handlers of the hooks in the head of a file.

Raises:
    ToolspanError: they are none.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """An agent that work can be given to."""

    name: str
    description: str
    """When to use it: the model reads that."""
    words: str = ""
    """What it is told before anything else; without, what every agent is told."""
    tools: tuple[str, ...] | None = None
    """The tools it has; None: those of the agent above."""
    without: tuple[str, ...] = ()
    """Tools it does not have, whatever else is said."""
    model: str | None = None
    permission_mode: str | None = None
    max_turns: int | None = None
    isolated: bool = False
    """It always works in a copy of the repository."""
    in_background: bool = False
    """It is always sent off."""
    hooks: Firing | None = field(default=None, compare=False)
    """Handlers beside those of the session, while it works."""
    path: Path | None = None
    """Where it was written down; None for our own."""

    def keeps(self, tool: Tool) -> bool:
        """Whether it has this tool of the agent above."""
        names = {tool.name, *tool.aliases}
        if names & _PERSONAL or names & set(self.without):
            return False
        return self.tools is None or "*" in self.tools or bool(names & set(self.tools))


GENERAL_KIND = Kind(
    name=GENERAL,
    description="For any piece of work that takes several steps; has all your tools.",
)


@dataclass(frozen=True, slots=True)
class Found:
    """What was found in folders."""

    kinds: tuple[Kind, ...] = ()
    problems: tuple[str, ...] = ()
    """Files that are not used, or not wholly, and why."""


def load_kinds(folders: Iterable[Path], make_hooks: MakeHooks | None = None) -> Found:
    """The agents in these folders; of several with one name, the last counts.

    `make_hooks` makes handlers of what stands behind `hooks:` in a file's head; an agent that has
    such, and could not have them, is not there.
    """
    kinds: dict[str, Kind] = {}
    problems: list[str] = []
    for path in agent_files(folders):
        try:
            kind, notes = read_kind(path, make_hooks)
        except (ValueError, ToolspanError) as problem:
            problems.append(f"{path}: {problem}; this agent is not there")
            continue
        kinds[kind.name] = kind
        problems += [f"{path}: {note}" for note in notes]
    return Found(tuple(kinds.values()), tuple(problems))


def agent_files(folders: Iterable[Path]) -> list[Path]:
    """The files of agents in folders, and in those below them."""
    return [path for folder in folders if folder.is_dir() for path in sorted(folder.rglob("*.md"))]


def read_kind(path: Path, make_hooks: MakeHooks | None = None) -> tuple[Kind, Sequence[str]]:
    """The agent that a file describes, and what of it is not used.

    Raises:
        ValueError: it describes none.
        ToolspanError: its hooks are none.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST + 1)
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    if len(data) > MOST:
        raise ValueError("longer than a megabyte")
    found = _FRONT.match(data.decode("utf-8", "replace"))
    if found is None:
        raise ValueError("it does not begin with lines between `---`")
    fields = front_fields(found[1])
    notes = [f"{name} is not used" for name in fields if name not in _KNOWN]
    kind = _kind(fields, found[2].strip(), path)
    block = hooks_in(found[1])
    if block is None:
        return kind, notes
    if make_hooks is None:
        raise ValueError("it has hooks, and nobody here runs them")
    return replace(kind, hooks=make_hooks(block, path)), notes


def _kind(fields: Mapping[str, Field], words: str, path: Path) -> Kind:
    name = _line(fields, "name")
    if name is None or not _NAME.fullmatch(name):
        raise ValueError("it has no name" if name is None else f"{name!r} is no name")
    description = _line(fields, "description")
    if description is None:
        raise ValueError("it has no description")
    model = _line(fields, "model")
    return Kind(
        name=name,
        description=description,
        words=words,
        tools=_names(fields, "tools"),
        without=_names(fields, "disallowedTools") or (),
        model=None if model == "inherit" else model,
        permission_mode=_one_of(fields, "permissionMode", _MODES),
        max_turns=_count(fields, "maxTurns"),
        isolated=_one_of(fields, "isolation", ("worktree",)) is not None,
        in_background=_one_of(fields, "background", ("true", "false")) == "true",
        path=path,
    )


def _line(fields: Mapping[str, Field], key: str) -> str | None:
    found = fields.get(key)
    text = ", ".join(found) if isinstance(found, list) else found
    return text.strip() or None if text else None


def _names(fields: Mapping[str, Field], key: str) -> tuple[str, ...] | None:
    """Names of tools; what may stand in brackets behind one is a matter of rules."""
    text = _line(fields, key)
    if text is None:
        return None
    parts = _RULE.sub("", text).split(",")
    return tuple(name for part in parts if (name := part.strip()))


def _one_of(fields: Mapping[str, Field], key: str, words: Sequence[str]) -> str | None:
    text = _line(fields, key)
    if text is not None and text not in words:
        raise ValueError(f"{key} is {text!r}; there are {', '.join(words)}")
    return text


def _count(fields: Mapping[str, Field], key: str) -> int | None:
    text = _line(fields, key)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"{key} is {text!r}, not a number above zero")
    return int(text)


# The lines between `---`: as much YAML as these files have.


def front_fields(text: str) -> dict[str, Field]:
    """Keys and values: words, quoted or not, over several lines or not, and lists of words.

    Raises:
        ValueError: a line is none of that.
    """
    fields: dict[str, Field] = {}
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _KEY.fullmatch(line.rstrip())
        if found is None:
            raise ValueError(f"line {at + 1} is not understood: {line.strip()[:60]!r}")
        below = at
        while at < len(lines) and (not lines[at].strip() or lines[at][0] in " \t-"):
            at += 1
        fields[found[1]] = _value(found[2], lines[below:at])
    return fields


def _value(first: str, below: Sequence[str]) -> Field:
    inside = [line.strip() for line in below]
    mark = first.rstrip("+-")
    if mark == "|":
        return "\n".join(inside).strip("\n")
    if mark == ">":
        return " ".join(line for line in inside if line)
    if not first and any(line.startswith("- ") for line in inside):
        return [_unquoted(line[2:]) for line in inside if line.startswith("- ")]
    if first.startswith("[") and first.endswith("]"):
        return [_unquoted(part) for part in first[1:-1].split(",") if part.strip()]
    return _unquoted(" ".join(part for part in (first, *inside) if part))


def _unquoted(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\")
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return re.split(r"\s#", text, maxsplit=1)[0].strip()
