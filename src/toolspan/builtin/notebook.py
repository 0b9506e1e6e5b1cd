"""NotebookEdit: one cell of a Jupyter notebook replaced, added or taken out.

In: a notebook, a cell, its new source. Out: a file that differs only in that cell. Cells are found
by their id, or as `cell-N` by their place. `_plan` decides, `_edit` does; how a notebook's text is
changed is known to `disk/cells.py`.
"""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from toolspan.disk.cells import NULL, Cell, Notebook, notebook
from toolspan.disk.load import Loaded, load, look
from toolspan.disk.place import lock_name
from toolspan.disk.text import Text, decode, encode, plain, shown
from toolspan.disk.words import clean
from toolspan.errors import ToolError
from toolspan.profile import Profile
from toolspan.run.change import Planned, known, not_a_file, path_of, put, stale, unread, wrote
from toolspan.run.context import ToolContext
from toolspan.run.tool import Output, Refusal, Tool
from toolspan.schema.check import checker

Mode = Literal["replace", "insert", "delete"]

MOST = 128 << 20
"""Bytes of a notebook that can be edited."""
_PLACE = re.compile(r"cell-(\d{1,9})", re.ASCII)
_NO_NOTEBOOK = "File must be a Jupyter notebook (.ipynb file). Other files are changed with Edit."
_MISSING = "Notebook file does not exist."
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
    steps = Planned(_plan, _edit)
    return Tool(
        name="NotebookEdit",
        description="Replace, add or delete one cell of a Jupyter notebook.",
        input_schema=_SCHEMA,
        parse=checker(_SCHEMA, coerce=profile.offer.coerces),
        run=steps.run,
        validate=steps.validate,
        announces=True,
        paths=lambda value: frozenset({lock_name(value["notebook_path"])}),
    )


@dataclass(frozen=True, slots=True)
class _Request:
    """What is asked."""

    path: Path
    mode: Mode
    cell_id: str | None
    source: str
    cell_type: str | None


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be done, found to be possible."""

    request: _Request
    text: Text
    loaded: Loaded
    book: Notebook
    index: int
    """The cell's place; for a new one, where it comes."""
    seen: bool


def _plan(value: Mapping[str, object], ctx: ToolContext) -> _Plan | Refusal:
    request = _request(value, ctx)
    if refusal := _refused(request, ctx):
        return refusal
    state = known(request.path, ctx)
    loaded = load(request.path, MOST)
    changed = stale(loaded, state)
    if changed and ctx.profile.notebook.read_first and not ctx.profile.files.recovers_stale:
        return changed
    text = decode(loaded.data)
    try:
        book = notebook(text.raw)
    except ToolError as error:
        return Refusal(error.message, "invalid_input")
    index = _find(book, request)
    if isinstance(index, Refusal):
        return index
    seen = state is not None and state.whole and changed is None
    return _Plan(request, text, loaded, book, index, seen=seen)


def _request(value: Mapping[str, object], ctx: ToolContext) -> _Request:
    cell, kind = value.get("cell_id"), value.get("cell_type")
    return _Request(
        path=path_of(str(value["notebook_path"]), ctx),
        mode=_mode(value.get("edit_mode")),
        cell_id=cell if isinstance(cell, str) and cell else None,
        source=clean(str(value["new_source"])),
        cell_type=kind if isinstance(kind, str) else None,
    )


def _mode(value: object) -> Mode:
    modes: tuple[Mode, ...] = ("insert", "delete")
    return next((mode for mode in modes if mode == value), "replace")


def _refused(request: _Request, ctx: ToolContext) -> Refusal | None:
    """What can be said without the notebook's content."""
    values = ctx.profile.notebook
    found = look(request.path)
    if found is None and not values.name_first:
        return Refusal(_MISSING, "not_found")
    if request.path.suffix != ".ipynb":
        return Refusal(_NO_NOTEBOOK, "invalid_input")
    if request.mode == "insert" and request.cell_type is None:
        return Refusal("Cell type is required when using edit_mode=insert.", "invalid_input")
    if values.read_first and known(request.path, ctx) is None:
        return unread()
    if found is None:
        return Refusal(_MISSING, "not_found")
    return not_a_file(str(request.path), found.st_mode)


def _find(book: Notebook, request: _Request) -> int | Refusal:
    """The cell's place, or that of a new one."""
    wanted = request.cell_id
    behind = 1 if request.mode == "insert" else 0
    if wanted is None:
        if request.mode == "insert":
            return 0
        text = "Cell ID must be specified when not inserting a new cell."
        return Refusal(text, "invalid_input")
    for index, cell in enumerate(book.cells):
        if cell.get("id") == wanted:
            return index + behind
    numbered = _PLACE.fullmatch(wanted)
    if numbered is None:
        return Refusal(f'Cell with ID "{clean(wanted)}" not found in notebook.', "not_found")
    index = int(numbered[1])
    if index >= len(book.cells):
        return Refusal(f"Cell with index {index} does not exist in notebook.", "not_found")
    return index + behind


def _edit(plan: _Plan, ctx: ToolContext) -> Output:
    named = _new_id(plan) if plan.request.mode == "insert" else plan.request.cell_id
    raw = _changed(plan, named)
    data = encode(raw, plan.text.codec)
    stamp = put(plan.request.path, data, plan.loaded.stamp, plan.loaded.digest, ctx)
    wrote(plan.request.path, data, stamp, ctx, whole=plan.seen)
    return Output(_told(plan, named), _record(plan, named, raw, ctx))


def _new_id(plan: _Plan) -> str | None:
    """An id no other cell has; None in notebooks whose cells have none."""
    major, minor = plan.book.document.get("nbformat"), plan.book.document.get("nbformat_minor")
    if not isinstance(major, int) or not isinstance(minor, int) or (major, minor) < (4, 5):
        return None
    taken = {cell.get("id") for cell in plan.book.cells}
    return next(one for one in iter(partial(secrets.token_hex, 4), "") if one not in taken)


def _changed(plan: _Plan, new_id: str | None) -> str:
    request, book = plan.request, plan.book
    match request.mode:
        case "delete":
            return book.deleted(plan.index)
        case "insert":
            return book.inserted(plan.index, _new_cell(request, new_id))
        case "replace":
            return book.changed(plan.index, _values(request, book.cells[plan.index]))


def _new_cell(request: _Request, new_id: str | None) -> Cell:
    cell: dict[str, object] = {"cell_type": request.cell_type}
    if new_id is not None:
        cell["id"] = new_id
    cell |= {"source": request.source, "metadata": {}}
    if request.cell_type == "code":
        cell |= {"execution_count": None, "outputs": []}
    return cell


def _values(request: _Request, cell: Cell) -> dict[str, object]:
    """What changes in a cell: what its old source printed is gone with it."""
    kind = request.cell_type or cell.get("cell_type")
    values: dict[str, object] = {"source": request.source}
    if kind != cell.get("cell_type"):
        values["cell_type"] = kind
    if kind == "code":
        return {**values, "execution_count": NULL, "outputs": []}
    # Only cells of code have these; elsewhere they make the notebook invalid.
    return {**values, "execution_count": None, "outputs": None}


def _told(plan: _Plan, named: str | None) -> str:
    request = plan.request
    match request.mode:
        case "delete":
            return f"Deleted cell {named}"
        case "insert" if named is None:
            return f"Inserted a new cell with {request.source}"
        case "insert":
            return f"Inserted cell {named} with {request.source}"
        case "replace":
            return f"Updated cell {named} with {request.source}"


def _record(plan: _Plan, named: str | None, raw: str, ctx: ToolContext) -> dict[str, object]:
    request, values = plan.request, ctx.profile.notebook
    record: dict[str, object] = {"new_source": request.source}
    if values.tells_old_source and request.mode != "insert":
        record["old_source"] = _source(plan.book.cells[plan.index])
    record["cell_type"] = request.cell_type or "code"
    record["language"] = _language(plan.book)
    record["edit_mode"] = request.mode
    if named is not None:
        record["cell_id"] = named
    record["error"] = ""
    if values.tells_file:
        record["notebook_path"] = clean(str(request.path))
        record["original_file"] = plan.text.shown
        record["updated_file"] = shown(plain(raw), plan.text.codec)
    return record


def _source(cell: Cell) -> str:
    source = cell.get("source")
    text = "".join(str(line) for line in source) if isinstance(source, list) else str(source or "")
    return clean(text)


def _language(book: Notebook) -> str:
    metadata = book.document.get("metadata")
    info = metadata.get("language_info") if isinstance(metadata, dict) else None
    name = info.get("name") if isinstance(info, dict) else None
    return clean(name) if isinstance(name, str) else "python"
