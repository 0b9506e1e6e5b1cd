"""Preview a call for the user who must allow it: its files, the command or the diff, and the reason for asking."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from toolspan.diffs import unified
from toolspan.diffs.make import make_hunks
from toolspan.errors import ToolspanError
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.permissions.rules import paths_of
from toolspan.runtime.profiles import FileValues, Profile
from toolspan.runtime.profiles import profile as find_profile
from toolspan.shell.plans import NotUnderstood, plan
from toolspan.tools.files.notebook import parse_notebook
from toolspan.tools.files.paths import resolve_path
from toolspan.tools.files.safe_read import read_file, stat_path
from toolspan.tools.files.text import (
    Codec,
    DecodedText,
    TextRange,
    decode_text,
    find_occurrences,
    match_quote_style,
    normalize_newlines,
    replace_ranges,
)
from toolspan.types.decision import Ask, RequestedFile
from toolspan.types.tool_kinds import ToolKind
from toolspan.types.visible_text import escape_invisible

_ToolInput = Mapping[str, object]
_FILE_KINDS: frozenset[ToolKind] = frozenset({"edit", "read", "search", "write"})
_MAX_PREVIEW_BYTES = 4 << 20
_BASIS_TEXTS = {
    "outside": "it is outside the folders of the session",
    "plan": "the session is in plan mode: nothing may be changed yet",
    "protected": "this file controls what other programs run",
    "not_understood": "the command line may contain a command that a rule denies or asks about",
}


class RequestPreview(Struct, frozen=True):
    """The part of a request that the user must see before allowing it."""

    raw_text: str
    """The command line, the diff or the fields of the input, with all characters as they are."""
    is_diff: bool = False
    files: tuple[RequestedFile, ...] = ()

    @property
    def text(self) -> str:
        """The whole text in which every character is visible, for a person to read."""
        return "\n".join(map(escape_invisible, self.raw_text.split("\n")))


def preview_request(request: PermissionRequest, profile: Profile | None = None) -> RequestPreview:
    """Return the files of a request with its command line, the diff of its change, or the fields of its input."""
    command = request.command
    if command is not None:
        return RequestPreview(command)
    files = _requested_files(request)
    change = preview_change(request, (profile or find_profile()).files)
    if change is not None:
        return RequestPreview(change.rstrip("\n"), is_diff=True, files=files)
    fields = (_format_field(escape_invisible(key), value) for key, value in request.input.items())
    return RequestPreview("\n".join(fields), files=files)


def _format_field(name: str, value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    # Lines of a value are indented, so that none looks like another field.
    return (
        f"{name}: {text}" if "\n" not in text else "\n".join([f"{name}:", *(f"  {line}" for line in text.split("\n"))])
    )


def _requested_files(request: PermissionRequest) -> tuple[RequestedFile, ...]:
    kind = request.kind
    if kind not in _FILE_KINDS:
        return ()
    scope = request.path_scope()
    files = []
    for path in paths_of(request):
        if kind == "search" and path == scope.cwd:
            continue
        target = scope.links.resolve(path)
        files.append(
            RequestedFile(
                path=target,
                link=None if target == path else path,
                is_outside=not scope.contains_path(path, reading=kind in ("read", "search")),
                is_new=kind in ("edit", "write") and not os.path.lexists(target),
            )
        )
    return tuple(files)


def explain_request(request: PermissionRequest, ask: Ask) -> str:
    """Return the reason why a call needs permission."""
    reason = _explain_question(request, ask)
    return f"{reason}; it runs outside the sandbox" if request.leaves_sandbox else reason


def _explain_question(request: PermissionRequest, ask: Ask) -> str:
    if ask.source == "hook":
        return f"a hook asks: {ask.reason or 'no reason given'}"
    if ask.rule is not None:
        return f"the rule {ask.rule} asks" + (f" ({ask.origin})" if ask.origin else "")
    if ask.needs is not None and ask.basis is None:
        line = plan(request.command or "")
        if isinstance(line, NotUnderstood):
            return f"the command line is not understood: {line.reason[:1].lower()}{line.reason[1:]}"
        if (reach := ask.needs.reach) is not None:
            what = f"{reach.program} reaches" if reach.program else "output goes to"
            return f"{what} {reach.path}{'' if reach.inside else ', outside the folders of the session'}"
        return f"no rule allows {'; '.join(ask.needs.parts)}" if ask.needs.of > 1 else "no rule allows it"
    return _BASIS_TEXTS.get(ask.basis or "") or ask.reason or "no rule allows it"


class RequestedChange(NamedTuple):
    """The change that a call would make to a file, or to a cell of a notebook."""

    path: str
    name: str
    """The path as shown: relative to the folder of the call if it is in it, and with the cell."""
    old: str | None
    """The present text; None if the call would create the file."""
    new: str


def preview_change(request: PermissionRequest, values: FileValues) -> str | None:
    """Return a diff of the change that a call would make, or None if there is nothing to show."""
    change = find_change(request, values)
    if change is None:
        return None
    if change.old is None:
        return unified(make_hunks("", change.new), change.name, change="create") or None
    return unified(make_hunks(change.old, change.new), change.name) or None


def find_change(request: PermissionRequest, values: FileValues) -> RequestedChange | None:
    """Return the change that a call would make, or None if it makes none or would fail."""
    is_notebook = "notebook_path" in request.input
    name = request.input.get("notebook_path" if is_notebook else "file_path")
    if request.kind not in ("edit", "write") or not isinstance(name, str):
        return None
    try:
        path = resolve_path(name, request.cwd, request.path_scope().home if values.expands_home else None)
        display_name = str(path.relative_to(request.cwd) if path.is_relative_to(request.cwd) else path)
        current = None if stat_path(path) is None else decode_text(read_file(path, _MAX_PREVIEW_BYTES).data)
        if is_notebook:
            return _find_cell_change(request.input, path, display_name, current)
        if request.kind == "write":
            new = normalize_newlines(str(request.input["content"]))
        else:
            edits = request.input.get("edits", [request.input])
            new = _apply_edits(current, edits if isinstance(edits, list) else [], values).printable
        return RequestedChange(str(path), display_name, None if current is None else current.printable, new)
    except (ToolspanError, LookupError, ValueError, OSError):
        return None


def _apply_edits(current: DecodedText | None, edits: Sequence[_ToolInput], values: FileValues) -> DecodedText:
    text = current or DecodedText("", "", Codec("utf-8"))
    for edit in edits:
        old, new = normalize_newlines(str(edit["old_string"])), str(edit["new_string"])
        spans = find_occurrences(text.normalized, old) if old else [TextRange(0, 0)]
        if not spans:
            raise LookupError(old)
        replaced = text.normalized[spans[0].start : spans[0].end]
        targets = spans if edit.get("replace_all") is True else spans[:1]
        new = match_quote_style(new, replaced) if values.keeps_curly else new
        text = replace_ranges(text, targets, new)
    return text


def _find_cell_change(tool_input: _ToolInput, path: Path, name: str, current: DecodedText | None) -> RequestedChange:
    if current is None:
        raise LookupError(name)
    mode, cell_id = tool_input.get("edit_mode") or "replace", tool_input.get("cell_id")
    new = "" if mode == "delete" else str(tool_input.get("new_source", ""))
    old = ""
    if mode != "insert":
        cells = parse_notebook(current.raw).cells
        cells_by_id = {f"cell-{at}": cell for at, cell in enumerate(cells)}
        cells_by_id |= {str(cell["id"]): cell for cell in cells if "id" in cell}
        source = cells_by_id[str(cell_id)].get("source", "")
        old = "".join(map(str, source)) if isinstance(source, list) else str(source)
    return RequestedChange(str(path), f"{name}#{cell_id or 'first'}", old, new)
