"""NotebookEdit: one cell of a Jupyter notebook replaced, added or taken out.

In: a notebook, a cell, its new source. Out: a file that differs only in that cell. Cells are found
by their id, or as `cell-N` by their place. `_plan` decides, `_edit` does; how a notebook's text is
changed is known to `disk/cells.py`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from toolspan.errors import ToolError
from toolspan.files.paths import lock_name, replace_surrogates
from toolspan.files.safe_read import LoadedFile, read_file, stat_path
from toolspan.files.text import DecodedText, decode_text, encode_text, normalize_newlines, replace_undecodable
from toolspan.runtime.context import ToolContext
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, Refusal, Tool
from toolspan.tools.files.changes import (
    PlannedTool,
    check_not_stale,
    check_regular_file,
    find_file_state,
    remember_written,
    resolve_tool_path,
    unread_file_refusal,
    write_file,
)
from toolspan.tools.files.notebook import JSON_NULL, Notebook, RawCell, parse_notebook

EditMode = Literal["replace", "insert", "delete"]

MAX_NOTEBOOK_BYTES = 128 << 20
"""Bytes of a notebook that can be edited."""
_CELL_INDEX = re.compile(r"cell-(\d{1,9})", re.ASCII)
_NOT_A_NOTEBOOK = "File must be a Jupyter notebook (.ipynb file). Other files are changed with Edit."
_MISSING_NOTEBOOK = "Notebook file does not exist."
_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "notebook_path": {"type": "string", "description": "The notebook"},
        "cell_id": {
            "type": "string",
            "description": "The cell; a new one comes behind it, or first if this is left out",
        },
        "new_source": {"type": "string", "description": "The cell's new source"},
        "cell_type": {
            "type": "string",
            "enum": ["code", "markdown"],
            "description": "What the cell is; a new one needs it",
        },
        "edit_mode": {
            "type": "string",
            "enum": ["replace", "insert", "delete"],
            "description": "What to do; replace if left out",
        },
    },
    "required": ["notebook_path", "new_source"],
    "additionalProperties": False,
}


def notebook_edit_tool(profile: Profile) -> Tool:
    """NotebookEdit as a client version has it."""
    steps = PlannedTool(_plan_cell_edit, _apply_cell_edit)
    return Tool(
        name="NotebookEdit",
        description="Replace, add or delete one cell of a Jupyter notebook.",
        input_schema=_SCHEMA,
        parse=compile_checker(_SCHEMA, coerce=profile.availability.coerces),
        run=steps.run,
        validate=steps.validate,
        records_intent=True,
        paths=lambda value: frozenset({lock_name(value["notebook_path"])}),
    )


@dataclass(frozen=True, slots=True)
class _CellEditRequest:
    """What is asked."""

    path: Path
    mode: EditMode
    cell_id: str | None
    source: str
    cell_type: str | None


@dataclass(frozen=True, slots=True)
class _CellEditPlan:
    """What is to be done, found to be possible."""

    request: _CellEditRequest
    text: DecodedText
    loaded: LoadedFile
    notebook: Notebook
    index: int
    """The cell's place; for a new one, where it comes."""
    is_fully_seen: bool


def _plan_cell_edit(value: Mapping[str, object], ctx: ToolContext) -> _CellEditPlan | Refusal:
    request = _parse_request(value, ctx)
    if refusal := _check_request(request, ctx):
        return refusal
    state = find_file_state(request.path, ctx)
    loaded = read_file(request.path, MAX_NOTEBOOK_BYTES)
    changed = check_not_stale(loaded, state)
    if changed and ctx.profile.notebook.read_first and not ctx.profile.files.recovers_stale:
        return changed
    text = decode_text(loaded.data)
    try:
        notebook = parse_notebook(text.raw)
    except ToolError as error:
        return Refusal(error.message, "invalid_input")
    index = _find_cell(notebook, request)
    if isinstance(index, Refusal):
        return index
    is_fully_seen = state is not None and state.whole and changed is None
    return _CellEditPlan(request, text, loaded, notebook, index, is_fully_seen=is_fully_seen)


def _parse_request(value: Mapping[str, object], ctx: ToolContext) -> _CellEditRequest:
    cell, kind = value.get("cell_id"), value.get("cell_type")
    return _CellEditRequest(
        path=resolve_tool_path(str(value["notebook_path"]), ctx),
        mode=_parse_mode(value.get("edit_mode")),
        cell_id=cell if isinstance(cell, str) and cell else None,
        source=replace_surrogates(str(value["new_source"])),
        cell_type=kind if isinstance(kind, str) else None,
    )


def _parse_mode(value: object) -> EditMode:
    modes: tuple[EditMode, ...] = ("insert", "delete")
    return next((mode for mode in modes if mode == value), "replace")


def _check_request(request: _CellEditRequest, ctx: ToolContext) -> Refusal | None:
    """What can be said without the notebook's content."""
    values = ctx.profile.notebook
    stat_result = stat_path(request.path)
    if stat_result is None and not values.name_first:
        return Refusal(_MISSING_NOTEBOOK, "not_found")
    if request.path.suffix != ".ipynb":
        return Refusal(_NOT_A_NOTEBOOK, "invalid_input")
    if request.mode == "insert" and request.cell_type is None:
        return Refusal("Cell type is required when using edit_mode=insert.", "invalid_input")
    if values.read_first and find_file_state(request.path, ctx) is None:
        return unread_file_refusal()
    if stat_result is None:
        return Refusal(_MISSING_NOTEBOOK, "not_found")
    return check_regular_file(str(request.path), stat_result.st_mode)


def _find_cell(notebook: Notebook, request: _CellEditRequest) -> int | Refusal:
    """The cell's place, or that of a new one."""
    cell_id = request.cell_id
    offset = 1 if request.mode == "insert" else 0
    if cell_id is None:
        if request.mode == "insert":
            return 0
        text = "Cell ID must be specified when not inserting a new cell."
        return Refusal(text, "invalid_input")
    for index, cell in enumerate(notebook.cells):
        if cell.get("id") == cell_id:
            return index + offset
    index_match = _CELL_INDEX.fullmatch(cell_id)
    if index_match is None:
        return Refusal(f'Cell with ID "{replace_surrogates(cell_id)}" not found in notebook.', "not_found")
    index = int(index_match[1])
    if index >= len(notebook.cells):
        return Refusal(f"Cell with index {index} does not exist in notebook.", "not_found")
    return index + offset


def _apply_cell_edit(plan: _CellEditPlan, ctx: ToolContext) -> Output:
    cell_id = _new_cell_id(plan) if plan.request.mode == "insert" else plan.request.cell_id
    raw = _edited_text(plan, cell_id)
    data = encode_text(raw, plan.text.codec)
    version = write_file(plan.request.path, data, plan.loaded.version, plan.loaded.digest, ctx)
    remember_written(plan.request.path, data, version, ctx, whole=plan.is_fully_seen)
    return Output(_format_result(plan, cell_id), _build_record(plan, cell_id, raw, ctx))


def _new_cell_id(plan: _CellEditPlan) -> str | None:
    """An id no other cell has; None in notebooks whose cells have none."""
    major, minor = (plan.notebook.document.get("nbformat"), plan.notebook.document.get("nbformat_minor"))
    if not isinstance(major, int) or not isinstance(minor, int) or (major, minor) < (4, 5):
        return None
    used_ids = {cell.get("id") for cell in plan.notebook.cells}
    return next(candidate for candidate in iter(partial(secrets.token_hex, 4), "") if candidate not in used_ids)


def _edited_text(plan: _CellEditPlan, new_id: str | None) -> str:
    request, notebook = plan.request, plan.notebook
    match request.mode:
        case "delete":
            return notebook.delete_cell(plan.index)
        case "insert":
            return notebook.insert_cell(plan.index, _new_cell(request, new_id))
        case "replace":
            return notebook.change_cell(plan.index, _changed_values(request, notebook.cells[plan.index]))


def _new_cell(request: _CellEditRequest, new_id: str | None) -> RawCell:
    cell: dict[str, object] = {"cell_type": request.cell_type}
    if new_id is not None:
        cell["id"] = new_id
    cell |= {"source": request.source, "metadata": {}}
    if request.cell_type == "code":
        cell |= {"execution_count": None, "outputs": []}
    return cell


def _changed_values(request: _CellEditRequest, cell: RawCell) -> dict[str, object]:
    """What changes in a cell: what its old source printed is gone with it."""
    kind = request.cell_type or cell.get("cell_type")
    values: dict[str, object] = {"source": request.source}
    if kind != cell.get("cell_type"):
        values["cell_type"] = kind
    if kind == "code":
        return {**values, "execution_count": JSON_NULL, "outputs": []}
    # Only cells of code have these; elsewhere they make the notebook invalid.
    return {**values, "execution_count": None, "outputs": None}


def _format_result(plan: _CellEditPlan, cell_id: str | None) -> str:
    request = plan.request
    match request.mode:
        case "delete":
            return f"Deleted cell {cell_id}"
        case "insert" if cell_id is None:
            return f"Inserted a new cell with {request.source}"
        case "insert":
            return f"Inserted cell {cell_id} with {request.source}"
        case "replace":
            return f"Updated cell {cell_id} with {request.source}"


def _build_record(plan: _CellEditPlan, cell_id: str | None, raw: str, ctx: ToolContext) -> dict[str, object]:
    request, values = plan.request, ctx.profile.notebook
    record: dict[str, object] = {"new_source": request.source}
    if values.records_old_source and request.mode != "insert":
        record["old_source"] = _cell_source(plan.notebook.cells[plan.index])
    record["cell_type"] = request.cell_type or "code"
    record["language"] = _notebook_language(plan.notebook)
    record["edit_mode"] = request.mode
    if cell_id is not None:
        record["cell_id"] = cell_id
    record["error"] = ""
    if values.records_file:
        record["notebook_path"] = replace_surrogates(str(request.path))
        record["original_file"] = plan.text.printable
        record["updated_file"] = replace_undecodable(normalize_newlines(raw), plan.text.codec)
    return record


def _cell_source(cell: RawCell) -> str:
    source = cell.get("source")
    text = "".join(str(line) for line in source) if isinstance(source, list) else str(source or "")
    return replace_surrogates(text)


def _notebook_language(notebook: Notebook) -> str:
    metadata = notebook.document.get("metadata")
    info = metadata.get("language_info") if isinstance(metadata, dict) else None
    name = info.get("name") if isinstance(info, dict) else None
    return replace_surrogates(name) if isinstance(name, str) else "python"
