"""NotebookEdit: one cell changes, everything else keeps its bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.requirement import requirement
from tests.tools.client import Client, client, refusal
from toolspan.errors import ToolError
from toolspan.tools.files.notebook import parse_notebook
from toolspan.types.events import Finished

pytestmark = pytest.mark.anyio

OUTPUT = {"output_type": "stream", "name": "stdout", "text": ["hi\n"]}
CELLS: list[dict[str, Any]] = [
    {"cell_type": "markdown", "id": "m1", "metadata": {}, "source": ["# Title\n", "text"]},
    {
        "cell_type": "code",
        "id": "c1",
        "execution_count": 1,
        "metadata": {"odd": 1.50},
        "outputs": [OUTPUT],
        "source": ["print('hi')"],
    },
    {"cell_type": "raw", "id": "r1", "metadata": {}, "source": "raw", "attachments": {"a": {}}},
]
BOOK: dict[str, Any] = {
    "cells": CELLS,
    "metadata": {"language_info": {"name": "python"}, "custom": [1, "é"]},
    "nbformat": 4,
    "nbformat_minor": 5,
}


def format_notebook(book: dict[str, Any] = BOOK, indent: int | str | None = 1, end: str = "\n") -> str:
    return json.dumps(book, indent=indent, ensure_ascii=False) + end


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Write the notebook and return its path."""
    result = tmp_path / "n.ipynb"
    result.write_text(format_notebook(), encoding="utf-8")
    return result


def cell_id(finished: Finished) -> str:
    record: Any = finished.structured
    return str(record["cell_id"])


async def edit_cell(session: Client, path: Path, **fields: object) -> Finished:
    await session.call("Read", file_path=str(path))
    return await session.call("NotebookEdit", notebook_path=str(path), **fields)


@requirement("notebook-tool.replaces")
async def test_a_cell_is_replaced_and_its_outputs_are_removed(tmp_path: Path, path: Path) -> None:
    async with client(tmp_path) as session:
        finished = await edit_cell(session, path, cell_id="c1", new_source="print('bye')\n")

    new = json.loads(json.dumps(BOOK))
    new["cells"][1] |= {"execution_count": None, "outputs": [], "source": "print('bye')\n"}
    assert path.read_text(encoding="utf-8") == format_notebook(new)
    assert finished.content == "Updated cell c1 with print('bye')\n"
    assert finished.structured == {
        "new_source": "print('bye')\n",
        "old_source": "print('hi')",
        "cell_type": "code",
        "language": "python",
        "edit_mode": "replace",
        "cell_id": "c1",
        "error": "",
        "notebook_path": str(path),
        "original_file": format_notebook(),
        "updated_file": format_notebook(new),
    }


@requirement("notebook-tool.inserts")
async def test_cells_are_inserted_and_deleted(tmp_path: Path, path: Path) -> None:
    add = {"edit_mode": "insert", "cell_type": "code"}
    async with client(tmp_path) as session:
        last = await edit_cell(session, path, cell_id="r1", new_source="last", **add)
        first = await edit_cell(session, path, new_source="first", **add)
        deleted = await edit_cell(session, path, cell_id="cell-2", new_source="", edit_mode="delete")

    cell_ids = [cell_id(result) for result in (last, first)]
    book = json.loads(path.read_bytes())
    assert [cell["id"] for cell in book["cells"]] == [cell_ids[1], "m1", "r1", cell_ids[0]]
    assert book["cells"][0] == {
        "cell_type": "code",
        "id": cell_ids[1],
        "source": "first",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
    }
    assert path.read_text(encoding="utf-8") == format_notebook(book)
    assert first.content == f"Inserted cell {cell_ids[1]} with first"
    assert deleted.content == "Deleted cell cell-2"


@requirement("notebook-tool.inserts")
async def test_cells_of_older_notebooks_are_found_by_position(tmp_path: Path) -> None:
    path = tmp_path / "n.ipynb"
    old = json.loads(json.dumps({**BOOK, "nbformat_minor": 4}))
    for cell in old["cells"]:
        del cell["id"]
    path.write_text(format_notebook(old), encoding="utf-8")
    add = {"edit_mode": "insert", "cell_type": "markdown"}
    async with client(tmp_path) as session:
        finished = await edit_cell(session, path, cell_id="cell-0", new_source="new", **add)
        changed = await edit_cell(session, path, cell_id="cell-1", new_source="newer")

    assert finished.content == "Inserted a new cell with new"
    assert changed.content == "Updated cell cell-1 with newer"
    new = {"cell_type": "markdown", "source": "newer", "metadata": {}}
    assert json.loads(path.read_bytes())["cells"][1] == new


@requirement("notebook-tool.valid")
async def test_a_cell_that_changes_its_type_stays_valid(tmp_path: Path, path: Path) -> None:
    async with client(tmp_path) as session:
        await edit_cell(session, path, cell_id="m1", new_source="1", cell_type="code")
        await edit_cell(session, path, cell_id="c1", new_source="t", cell_type="markdown")

    code, text, _ = json.loads(path.read_bytes())["cells"]
    assert (code["cell_type"], code["execution_count"], code["outputs"]) == ("code", None, [])
    assert text == {
        "cell_type": "markdown", "id": "c1", "metadata": {"odd": 1.5}, "source": "t",
    }  # fmt: skip


@requirement("notebook-tool.refuses")
@pytest.mark.parametrize(
    ("tool_input", "text"),
    [
        ({}, "Cell ID must be specified when not inserting a new cell."),
        ({"cell_id": "zz"}, 'Cell with ID "zz" not found in notebook.'),
        ({"cell_id": "cell-3"}, "Cell with index 3 does not exist in notebook."),
        ({"edit_mode": "insert"}, "Cell type is required when using edit_mode=insert."),
    ],
)
async def test_a_missing_cell_is_refused(tmp_path: Path, path: Path, tool_input: dict[str, object], text: str) -> None:
    async with client(tmp_path) as session:
        finished = await edit_cell(session, path, new_source="x", **tool_input)

    assert finished.content == refusal(text)
    assert path.read_text(encoding="utf-8") == format_notebook()


@requirement("notebook-tool.refuses")
async def test_newer_clients_require_a_read_and_older_ones_a_file(tmp_path: Path, path: Path) -> None:
    (tmp_path / "bad.ipynb").write_text("{nope", encoding="utf-8")
    (tmp_path / "list.ipynb").write_text("[]", encoding="utf-8")
    tool_input = {"cell_id": "c1", "new_source": "x"}
    async with client(tmp_path) as session:
        unread = await session.text("NotebookEdit", notebook_path=str(path), **tool_input)
        text = await session.text("NotebookEdit", notebook_path="f.txt", **tool_input)
    async with client(tmp_path, version="2.0.65") as session:
        missing = await session.text("NotebookEdit", notebook_path="no.ipynb", **tool_input)
        bad = await session.text("NotebookEdit", notebook_path="bad.ipynb", **tool_input)
        listed = await session.text("NotebookEdit", notebook_path="list.ipynb", **tool_input)
        result = await session.call("NotebookEdit", notebook_path=str(path), **tool_input)

    assert unread.startswith("<tool_use_error>File has not been read yet.")
    assert text.startswith("<tool_use_error>File must be a Jupyter notebook (.ipynb file).")
    assert missing == refusal("Notebook file does not exist.")
    assert bad == refusal("Notebook is not valid JSON.")
    assert listed.startswith("<tool_use_error>The file is not a notebook")
    assert result.structured == {
        "new_source": "x",
        "cell_type": "code",
        "language": "python",
        "edit_mode": "replace",
        "cell_id": "c1",
        "error": "",
    }


STYLES = [
    format_notebook(),
    format_notebook(indent=4, end=""),
    format_notebook(indent="\t"),
    format_notebook(indent=2, end="\r\n").replace("\n", "\r\n").replace("\r\r", "\r"),
    json.dumps(BOOK, separators=(",", ":")),
    json.dumps(BOOK, indent=3).replace("1.5", "15e-1").replace('"nbformat": 4', '"nbformat" : 4.0'),
]


@requirement("notebook-tool.format")
@pytest.mark.parametrize("text", STYLES)
def test_a_notebook_is_rewritten_with_one_space_of_indentation(text: str) -> None:
    book = parse_notebook(text)
    cell = {"cell_type": "markdown", "source": "a\nb", "metadata": {}}

    grown = book.insert_cell(1, cell)

    assert grown == format_notebook({**BOOK, "cells": [CELLS[0], cell, *CELLS[1:]]}, end="")
    assert parse_notebook(grown).delete_cell(1) == format_notebook(end="")
    assert book.replace_cell(1, cell) == format_notebook({**BOOK, "cells": [CELLS[0], cell, *CELLS[2:]]}, end="")


@requirement("notebook-tool.format")
def test_members_named_by_numbers_come_first() -> None:
    text = '{"b": 1, "10": 2, "9": 3, "cells": []}'

    assert parse_notebook(text).insert_cell(0, {}) == '{\n "9": 3,\n "10": 2,\n "b": 1,\n "cells": [\n  {}\n ]\n}'


@pytest.mark.anyio
@requirement("notebook-tool.format")
async def test_a_notebook_keeps_its_line_endings(tmp_path: Path) -> None:
    path = tmp_path / "n.ipynb"
    path.write_bytes(format_notebook().replace("\n", "\r\n").encode())
    async with client(tmp_path) as session:
        await edit_cell(session, path, cell_id="r1", new_source="x")

    assert b"\r\n" in path.read_bytes()
    assert b"\n" not in path.read_bytes().replace(b"\r\n", b"")


@pytest.mark.anyio
@requirement("notebook-tool.final-line-break")
@pytest.mark.parametrize(
    ("end", "kept"), [("", ""), ("\n", "\n"), ("\r\n", "\n"), ("\n\n\n", "\n"), ("\n ", ""), (" \n", "\n")]
)
async def test_a_notebook_keeps_its_final_line_break(tmp_path: Path, end: str, kept: str) -> None:
    path = tmp_path / "n.ipynb"
    path.write_bytes((format_notebook(end="") + end).encode())
    async with client(tmp_path) as session:
        await edit_cell(session, path, cell_id="r1", new_source="x")

    assert path.read_bytes().decode().rpartition("}")[2] == kept


@pytest.mark.anyio
@requirement("notebook-tool.refuses")
async def test_a_notebook_that_changed_after_it_was_read_must_be_read_again(tmp_path: Path, path: Path) -> None:
    async with client(tmp_path) as session:
        await session.call("Read", file_path=str(path))
        path.write_text(format_notebook() + "\n", encoding="utf-8")
        text = await session.text("NotebookEdit", notebook_path=str(path), cell_id="c1", new_source="x")

    assert text.startswith("<tool_use_error>File has been modified since read")


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@requirement("notebook-tool.format")
@given(
    st.lists(st.dictionaries(st.text(), VALUES, max_size=4), max_size=4),
    st.dictionaries(st.text().filter(lambda name: name != "cells"), VALUES, max_size=3),
    st.sampled_from([None, 1, 4, "\t"]),
    st.text(alphabet=st.characters(exclude_categories=["Cs"])),
)
def test_any_notebook_can_be_changed_at_any_place(
    cells: list[dict[str, Any]], rest: dict[str, Any], indent: int | str | None, source: str
) -> None:
    text = json.dumps({**rest, "cells": cells}, indent=indent)
    book = parse_notebook(text)
    new = {"source": source}
    for at in range(len(cells) + 1):
        grown = book.insert_cell(at, new)
        assert json.loads(grown)["cells"] == [*cells[:at], new, *cells[at:]]
        assert json.loads(parse_notebook(grown).delete_cell(at)) == json.loads(text)
    for at, cell in enumerate(cells):
        assert json.loads(book.replace_cell(at, {**cell, **new}))["cells"][at] == {**cell, **new}


@requirement("notebook-tool.refuses")
@given(st.text() | VALUES.map(json.dumps))
def test_an_invalid_notebook_raises_a_tool_error(text: str) -> None:
    try:
        book = parse_notebook(text)
    except ToolError:
        return
    assert isinstance(json.loads(text)["cells"], list)
    assert len(book.cells) == len(json.loads(text)["cells"])
