"""Tools as an MCP server lists them: schema, hints, and the shape of what they give.

In: tools of a session. Out: MCP's own form of them. Hints tell what a tool may do at worst.
"""

from collections.abc import Mapping
from typing import NamedTuple

from mcp_types import Tool as Listed
from mcp_types import ToolAnnotations

from toolspan.run.tool import Tool


class _Hints(NamedTuple):
    title: str
    reads: bool = False
    destroys: bool = False
    repeats: bool = False
    """A second time changes nothing more."""
    leaves: bool = False
    """It may reach beyond this machine."""


_HINTS: Mapping[str, _Hints] = {
    "Bash": _Hints("Run a command", destroys=True, leaves=True),
    "Edit": _Hints("Edit a file", destroys=True),
    "Glob": _Hints("Find files by name", reads=True),
    "Grep": _Hints("Search in files", reads=True),
    "LS": _Hints("List a folder", reads=True),
    "MultiEdit": _Hints("Edit a file in several places", destroys=True),
    "NotebookEdit": _Hints("Edit a notebook", destroys=True),
    "Read": _Hints("Read a file", reads=True),
    "TaskOutput": _Hints("Output of a background command", reads=True),
    "TaskStop": _Hints("Stop a background command", destroys=True, repeats=True),
    "KillShell": _Hints("Stop a background command", destroys=True, repeats=True),
    "WebFetch": _Hints("Fetch a page", reads=True, leaves=True),
    "WebSearch": _Hints("Search the web", reads=True, leaves=True),
    "Write": _Hints("Write a file", destroys=True, repeats=True),
}

_TEXT = {"type": "string"}
_NUMBER = {"type": "number"}
_FLAG = {"type": "boolean"}
_NAMES = {"type": "array", "items": _TEXT}


def _object(required: Mapping[str, object], **more: object) -> dict[str, object]:
    return {"type": "object", "properties": {**required, **more}, "required": list(required)}


OUTPUTS: Mapping[str, dict[str, object]] = {
    "Bash": _object(
        {"stdout": _TEXT, "stderr": _TEXT, "interrupted": _FLAG}, backgroundTaskId=_TEXT
    ),
    "Edit": _object({"filePath": _TEXT, "oldString": _TEXT, "newString": _TEXT}),
    "Glob": _object({"filenames": _NAMES, "numFiles": _NUMBER, "truncated": _FLAG}),
    "Grep": _object({"mode": _TEXT, "filenames": _NAMES, "numFiles": _NUMBER}),
    "Read": _object({"type": _TEXT, "file": {"type": "object"}}),
    "Write": _object({"type": _TEXT, "filePath": _TEXT, "content": _TEXT}),
}
"""The keys that are always there in what a tool gives to programs; there may be more."""


def listed(tool: Tool, *, structured: bool) -> Listed:
    """A tool as clients see it; with `structured`, also the shape of its results."""
    return Listed(
        name=tool.name,
        title=_hints(tool).title,
        description=tool.description,
        input_schema=dict(tool.input_schema),
        output_schema=OUTPUTS.get(tool.name) if structured else None,
        annotations=_annotations(_hints(tool)),
    )


def _hints(tool: Tool) -> _Hints:
    found = _HINTS.get(tool.name)
    if found is not None:
        return found
    far = tool.name.startswith("mcp__")
    reads = tool.read_only
    return _Hints(tool.name, reads, destroys=not reads, repeats=tool.idempotent, leaves=far)


def _annotations(hints: _Hints) -> ToolAnnotations:
    return ToolAnnotations(
        title=hints.title,
        read_only_hint=hints.reads,
        destructive_hint=hints.destroys,
        idempotent_hint=hints.reads or hints.repeats,
        open_world_hint=hints.leaves,
    )
