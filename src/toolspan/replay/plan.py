"""Which recorded calls can be run again, and with what.

In: the spans of a session, in the order they were asked for. Out: batches of `Step`s and `Skip`s.
Recorded inputs may come from anywhere: a tool is run only when it is in a short list, and only with
paths that lie in the copy. Pure. Read `planned` first, then `_reason`.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePosixPath

from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.model.inputs import decode_anything
from toolspan.model.span import Span
from toolspan.model.state import State
from toolspan.model.toolkind import ToolKind
from toolspan.patch import PatchError
from toolspan.patch.envelope import Update, parse
from toolspan.patch.heredoc import patches_in
from toolspan.replay.ground import Ground
from toolspan.report.files.place import whole

PATCH = "apply_patch"
FILE_TOOLS = {
    "Read": "file_path",
    "Write": "file_path",
    "Edit": "file_path",
    "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
}
"""Tools that touch one file, and where they name it."""
SEARCHES = frozenset({"Glob", "Grep", "LS"})
LISTS = frozenset({"TodoWrite", "TodoRead"})
SHELL = "Bash"
RUNNABLE = frozenset({*FILE_TOOLS, *SEARCHES, *LISTS, SHELL})
_CODEX_SHELLS = frozenset(
    {"shell", "container.exec", "shell_command", "local_shell", "exec_command"}
)

_BY_KIND: dict[ToolKind, str] = {
    "web": "it needs the network",
    "mcp": "it needs an MCP server",
    "agent": "it needs a model",
    "question": "it needs a person",
    "plan": "it needs a person",
}
_BY_STATE: dict[State, str] = {
    "denied": "it was denied then",
    "blocked_by_hook": "a hook stopped it then",
    "cancelled": "it was cancelled then",
    "interrupted": "it was interrupted then",
    "timed_out": "it ran out of time then",
    "never_answered": "it has no result",
    "orphan_result": "only its result was recorded",
}
_UNKNOWN = "this tool is not run again"
_HARMLESS: frozenset[ToolKind] = frozenset({"read", "search", "web", "question", "plan"})
"""Kinds that leave files as they are."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be run."""

    bash: bool = False
    """Commands too: with the rights of whoever runs this, wherever they lead."""


class Step(Struct, frozen=True, kw_only=True):
    """A call that is run again."""

    span: Span
    tool: str
    input: dict[str, object]
    paths: tuple[str, ...] = ()
    """The files it touches, as they were recorded."""


class Skip(Struct, frozen=True, kw_only=True):
    """A call that is not."""

    span: Span
    reason: str

    @property
    def clouds(self) -> bool:
        """Whether it may have changed files, so that those behind it are not as they were."""
        never = self.span.state in ("denied", "blocked_by_hook", "cancelled", "orphan_result")
        return not never and self.span.call.kind not in _HARMLESS


Planned = Step | Skip


def planned(spans: Iterable[Span], ground: Ground, limits: Limits) -> Iterator[list[Planned]]:
    """The batches of a session; calls that came in one message are one."""
    for _, batch in groupby(spans, key=_batch):
        yield [_planned(span, ground, limits) for span in batch]


def _batch(span: Span) -> tuple[str | None, str]:
    return span.call.agent_id, span.call.message_id or span.id


def _planned(span: Span, ground: Ground, limits: Limits) -> Planned:
    if span.state in _BY_STATE:
        return Skip(span=span, reason=_BY_STATE[span.state])
    if span.error_kind == "unknown_tool":
        return Skip(span=span, reason="there was no such tool then")
    try:
        given = dict(span.call.arguments)
        if span.call.dialect == "codex":
            return _codex(span, given, ground, limits)
    except SourceError as error:
        return Skip(span=span, reason=str(error))
    return _claude(span, given, ground, limits)


def _claude(span: Span, given: dict[str, object], ground: Ground, limits: Limits) -> Planned:
    reason = _reason(span, given, ground, limits)
    if reason is not None:
        return Skip(span=span, reason=reason)
    paths: tuple[str, ...] = ()
    if span.tool in FILE_TOOLS:
        name = given.get(FILE_TOOLS[span.tool])
        paths = (ground.recorded_path(name),) if isinstance(name, str) else ()
    return Step(span=span, tool=span.tool, input=_mapped(span.tool, given, ground), paths=paths)


def _reason(span: Span, given: Mapping[str, object], ground: Ground, limits: Limits) -> str | None:
    """Why a call cannot be run again; None when it can."""
    if span.tool not in RUNNABLE:
        return _BY_KIND.get(span.call.kind, _UNKNOWN)
    if span.tool == SHELL:
        return _shell_reason(span, limits)
    if any(ground.place(name) is None for name in _names(span.tool, given)):
        return "it leads out of the project"
    return None


def _shell_reason(span: Span, limits: Limits) -> str | None:
    if not limits.bash:
        return "commands are run only with --bash"
    return "it went on in the background" if span.background else None


def _names(tool: str, given: Mapping[str, object]) -> list[str]:
    """Every path that an input names."""
    keys = [FILE_TOOLS[tool]] if tool in FILE_TOOLS else ["path"] if tool in SEARCHES else []
    found = [value for key in keys if isinstance(value := given.get(key), str)]
    pattern = given.get("pattern")
    if tool == "Glob" and isinstance(pattern, str) and _leaves(pattern):
        found.append(pattern)
    return found


def _leaves(pattern: str) -> bool:
    """Whether a pattern may name files elsewhere."""
    return pattern.startswith(("/", "~")) or ".." in PurePosixPath(pattern).parts


def _mapped(tool: str, given: Mapping[str, object], ground: Ground) -> dict[str, object]:
    """The input with its paths in the copy; texts to be written stay as they are."""
    found = dict(given)
    for key in (FILE_TOOLS.get(tool, "path"), *(("pattern",) if tool == "Glob" else ())):
        value = found.get(key)
        if isinstance(value, str) and whole(value, "/elsewhere") == whole(value, None):
            found[key] = str(ground.place(value) or value)
    command = found.get("command")
    if tool == SHELL and isinstance(command, str):
        found["command"] = ground.into_copy(command)
    return found


# Codex


def _codex(span: Span, given: dict[str, object], ground: Ground, limits: Limits) -> Planned:
    if span.tool != PATCH and span.tool not in _CODEX_SHELLS:
        return Skip(span=span, reason=_BY_KIND.get(span.call.kind, _UNKNOWN))
    named = given.get("workdir")
    folder = ground.recorded_path(named) if isinstance(named, str) else ground.recorded
    words = _words(given.get("command") or given.get("cmd"))
    patch = _patch(span, given, words)
    if patch is not None:
        return _patched(span, patch, folder, ground)
    there = ground.place(folder)
    elsewhere = None if there is not None else "it leads out of the project"
    reason = _shell_reason(span, limits) or elsewhere
    if reason is not None:
        return Skip(span=span, reason=reason)
    line = words if isinstance(words, str) else _line(words)
    run = f"cd {shlex.quote(str(there))} && {{ {ground.into_copy(line)}\n}}"
    return Step(span=span, tool=SHELL, input={"command": run})


def _words(command: object) -> str | list[str]:
    if isinstance(command, Sequence) and not isinstance(command, str):
        return [word for word in command if isinstance(word, str)]
    return command if isinstance(command, str) else ""


def _line(words: Sequence[str]) -> str:
    if len(words) == 3 and words[1] in ("-c", "-lc"):
        return words[2]
    return shlex.join(words)


def _patch(span: Span, given: Mapping[str, object], words: str | list[str]) -> str | None:
    """The patch that a call is, and nothing but it."""
    if span.tool == PATCH:
        text = given.get("input") or given.get("patch") or decode_anything(span.call.raw_input)
        return text if isinstance(text, str) else ""
    line = words if isinstance(words, str) else _line(words)
    found = patches_in(words)
    alone = line.lstrip().startswith(("apply_patch", "applypatch"))
    return found[0].patch if alone and len(found) == 1 and not found[0].folder else None


def _patched(span: Span, patch: str, folder: str, ground: Ground) -> Planned:
    try:
        sections = parse(patch)
    except PatchError:
        return Skip(span=span, reason="its patch cannot be read")
    names = [name for one in sections for name in (one.path, _target(one)) if name is not None]
    paths = [whole(name, folder) for name in names]
    if any(ground.place(path) is None for path in paths):
        return Skip(span=span, reason="it leads out of the project")
    given: dict[str, object] = {"patch": patch, "folder": folder}
    return Step(span=span, tool=PATCH, input=given, paths=tuple(dict.fromkeys(paths)))


def _target(section: object) -> str | None:
    return section.move_to if isinstance(section, Update) else None
