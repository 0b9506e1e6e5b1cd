"""NotebookEdit: replace, insert or delete one cell of a Jupyter notebook.

A cell is addressed by its id, or by its position as `cell-N`.
`files/notebook.py` changes the notebook's text without touching other cells.
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
from toolspan.runtime.context import ToolContext
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.schema.issues import Invalid, Valid
from toolspan.runtime.tool import Output, Refusal, Tool, ToolHints, ToolSubject
from toolspan.tools.files.changes import (
    MAX_EDITABLE_BYTES,
    UNREAD_FILE,
    PlannedChange,
    PlannedTool,
    check_not_stale,
    check_regular_file,
    find_file_state,
    lock_by_path,
    permitted_target,
    resolve_tool_path,
    stat_tool_path,
    with_stripped_path,
)
from toolspan.tools.files.notebook import Notebook, parse_notebook
from toolspan.tools.files.paths import replace_surrogates
from toolspan.tools.files.safe_read import read_file, stat_path
from toolspan.tools.files.text import decode_text, encode_text, prevails_crlf, replace_undecodable
from toolspan.tools.schemas import object_schema, text

_EditMode = Literal["replace", "insert", "delete"]

_CELL_INDEX = re.compile(r"cell-(\d{1,9})", re.ASCII)
_SCHEMA = object_schema(
    {
        "notebook_path": text("The path of the notebook."),
        "cell_id": text(
            "The id of the cell, or `cell-N` for its position, counted from 0. With `insert`, the new"
            " cell follows it; without an id, it becomes the first cell."
        ),
        "new_source": text("The new source of the cell. It is ignored with `delete`."),
        "cell_type": text("The type of the cell. It is required with `insert`.", enum=["code", "markdown"]),
        "edit_mode": text("What to do with the cell. The default is `replace`.", enum=["replace", "insert", "delete"]),
    },
    required=["notebook_path", "new_source"],
)


def notebook_edit_tool(profile: Profile) -> Tool:
    """Return the NotebookEdit tool for a client version."""
    check = compile_checker(_SCHEMA, coerce=profile.availability.coerces)

    def parse(raw_input: Mapping[str, object]) -> Valid | Invalid:
        checked = check(raw_input)
        if isinstance(checked, Invalid):
            return checked
        return with_stripped_path(checked.recorded, "notebook_path", strips=profile.files.expands_home)

    steps = PlannedTool(_plan_cell_edit)
    return Tool(
        name="NotebookEdit",
        description=(
            "Replace, insert or delete one cell of a Jupyter notebook. Replacing a code cell also removes its outputs."
        ),
        input_schema=_SCHEMA,
        parse=parse,
        run=steps.run,
        validate=steps.validate,
        records_intent=True,
        paths=lock_by_path("notebook_path"),
        kind="edit",
        subject=ToolSubject("file", "notebook_path"),
        slow_after=5.0,
        hints=ToolHints("Edit a notebook", destructive=True),
        replayable=True,
    )


@dataclass(frozen=True, slots=True)
class _CellEditRequest:
    name: str
    path: Path
    ends_with_slash: bool
    mode: _EditMode
    cell_id: str | None
    source: str
    cell_type: str | None

    @classmethod
    def parse(cls, value: Mapping[str, object], ctx: ToolContext) -> _CellEditRequest:
        cell_id, cell_type = value.get("cell_id"), value.get("cell_type")
        modes: tuple[_EditMode, ...] = ("insert", "delete")
        return cls(
            name=str(value["notebook_path"]),
            path=resolve_tool_path(str(value["notebook_path"]), ctx),
            ends_with_slash=str(value["notebook_path"]).endswith("/"),
            mode=next((mode for mode in modes if mode == value.get("edit_mode")), "replace"),
            cell_id=cell_id if isinstance(cell_id, str) and cell_id else None,
            source=replace_surrogates(str(value["new_source"])),
            cell_type=cell_type if isinstance(cell_type, str) else None,
        )


def _plan_cell_edit(value: Mapping[str, object], ctx: ToolContext) -> PlannedChange | Refusal:
    request = _CellEditRequest.parse(value, ctx)
    values, path = ctx.profile.notebook, request.path
    state = find_file_state(path, ctx)
    if refusal := _check_request(request, ctx):
        return refusal
    loaded = read_file(path, MAX_EDITABLE_BYTES, permitted_target(path, ctx))
    stale = check_not_stale(loaded, state)
    was_read = state is not None and state.range is not None
    if stale and values.checks_first and (was_read or not ctx.profile.files.recovers_stale):
        return stale
    old_text = decode_text(loaded.data)
    try:
        notebook = parse_notebook(old_text.raw)
    except ToolError as error:
        return Refusal(error.message, "invalid_input")
    index = _find_cell(notebook, request)
    if isinstance(index, Refusal):
        return index
    cell_id = _new_cell_id(notebook) if request.mode == "insert" else request.cell_id
    unnamed = "a new cell"
    if not values.full_records and not _has_cell_ids(notebook):
        cell_id, unnamed = None, "cell undefined"  # older clients print this
    raw = _edited_text(notebook, index, request, cell_id)
    if old_text.raw.endswith("\n"):
        raw += "\n"

    def make_output() -> Output:
        record: dict[str, object] = {"new_source": request.source}
        if values.full_records and request.mode != "insert":
            source = notebook.cells[index].get("source")
            joined = "".join(map(str, source)) if isinstance(source, list) else str(source or "")
            record["old_source"] = replace_surrogates(joined)
        record["cell_type"] = request.cell_type or "code"
        match notebook.document:
            case {"metadata": {"language_info": {"name": str(name)}}}:
                record["language"] = replace_surrogates(name)
            case _:
                record["language"] = "python"
        record["edit_mode"] = request.mode
        if cell_id is not None:
            record["cell_id"] = cell_id
        record["error"] = ""
        if values.full_records:
            record["notebook_path"] = replace_surrogates(str(path))
            record["original_file"] = old_text.printable
            record["updated_file"] = replace_undecodable(raw, old_text.codec)
        shown = unnamed if cell_id is None else f"cell {cell_id}"
        messages: dict[_EditMode, str] = {
            "delete": f"Deleted {shown}",
            "insert": f"Inserted {shown} with {request.source}",
            "replace": f"Updated {shown} with {request.source}",
        }
        return Output(messages[request.mode], record)

    fully_seen = state is not None and state.whole and stale is None
    lines = raw.replace("\n", "\r\n") if prevails_crlf(old_text.raw) else raw
    data = encode_text(lines, old_text.codec)
    return PlannedChange(path, data, loaded.version, loaded.digest, fully_seen, make_output)


def _check_request(request: _CellEditRequest, ctx: ToolContext) -> Refusal | None:
    """Return a refusal if the request is invalid regardless of the notebook's content."""
    values = ctx.profile.notebook
    stat_result = None
    if not request.ends_with_slash:
        expands = ctx.profile.files.expands_home
        stat_result = stat_path(request.path) if expands else stat_tool_path(request.name, ctx)
    missing = Refusal("Notebook file does not exist.", "not_found")
    if stat_result is None and not values.checks_first:
        return missing
    if request.path.suffix != ".ipynb":
        message = "File must be a Jupyter notebook (.ipynb file). Use Edit for other files."
        return Refusal(message, "invalid_input")
    if request.mode == "insert" and request.cell_type is None:
        return Refusal("Cell type is required when using edit_mode=insert.", "invalid_input")
    if values.checks_first and (request.ends_with_slash or find_file_state(request.path, ctx) is None):
        return UNREAD_FILE
    return missing if stat_result is None else check_regular_file(str(request.path), stat_result.st_mode)


def _find_cell(notebook: Notebook, request: _CellEditRequest) -> int | Refusal:
    """Return the cell's index or, for an insertion, the index after it."""
    cell_id = request.cell_id
    offset = 1 if request.mode == "insert" else 0
    if cell_id is None:
        if request.mode == "insert":
            return 0
        return Refusal("Cell ID must be specified when not inserting a new cell.", "invalid_input")
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


def _has_cell_ids(notebook: Notebook) -> bool:
    """Return whether cells have ids in the notebook's version of the format."""
    major, minor = notebook.document.get("nbformat"), notebook.document.get("nbformat_minor")
    return isinstance(major, int) and isinstance(minor, int) and (major, minor) >= (4, 5)


def _new_cell_id(notebook: Notebook) -> str | None:
    """Return an unused id, or None for notebook formats whose cells have no ids."""
    if not _has_cell_ids(notebook):
        return None
    used_ids = {cell.get("id") for cell in notebook.cells}
    return next(candidate for candidate in iter(partial(secrets.token_hex, 4), "") if candidate not in used_ids)


def _edited_text(notebook: Notebook, index: int, request: _CellEditRequest, new_id: str | None) -> str:
    if request.mode == "delete":
        return notebook.delete_cell(index)
    if request.mode == "insert":
        cell: dict[str, object] = {"cell_type": request.cell_type}
        if new_id is not None:
            cell["id"] = new_id
        cell |= {"source": request.source, "metadata": {}}
        if request.cell_type == "code":
            cell |= {"execution_count": None, "outputs": []}
        return notebook.insert_cell(index, cell)
    cell = {**notebook.cells[index], "source": request.source}
    cell["cell_type"] = request.cell_type or cell.get("cell_type")
    if cell["cell_type"] == "code":  # the outputs belong to the old source
        cell |= {"execution_count": None, "outputs": []}
    else:  # only code cells have these keys; elsewhere they make the notebook invalid
        cell = {key: value for key, value in cell.items() if key not in ("execution_count", "outputs")}
    return notebook.replace_cell(index, cell)
