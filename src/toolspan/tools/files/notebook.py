"""Read the cells of Jupyter notebooks, and change them without touching the rest of the file.

`parse_cells` is for reading, `parse_notebook` for changes. Unchanged parts are kept exactly: indentation, line
endings, order of keys, spelling of numbers and escapes. New parts are written in the style of the file.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from toolspan.errors import ToolError
from toolspan.runtime.profiles import NotebookValues
from toolspan.tools.files.json_errors import explain_for_jsc, explain_for_v8
from toolspan.tools.files.paths import replace_surrogates

RawCell = Mapping[str, object]
CellRecord = dict[str, Any]
NotebookBlock = dict[str, object]

_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\r\n]*")
_MAX_OUTPUT_CHARS = 10_000
"""The number of characters of a cell's outputs above which they are left out."""
_NOT_JSON = "Notebook is not valid JSON."
_NOT_A_NOTEBOOK = "The file is no notebook: its `cells` are not a list of objects."


# Changing


class _JsonNode(NamedTuple):
    start: int
    end: int
    value: object


class _JsonMember(NamedTuple):
    start: int
    name: str
    node: _JsonNode


@dataclass(frozen=True, slots=True)
class _JsonStyle:
    newline: str
    """The line ending, or an empty string if the file is a single line."""
    indent: str
    comma: str
    colon: str

    def dumps(self, value: object, depth: int) -> str:
        if not self.newline:
            separators = (self.comma, self.colon)
            return replace_surrogates(json.dumps(value, ensure_ascii=False, separators=separators))
        text = json.dumps(value, ensure_ascii=False, indent=self.indent)
        return replace_surrogates(text).replace("\n", self.newline + depth * self.indent)

    def line_start(self, depth: int) -> str:
        return self.newline + depth * self.indent if self.newline else ""

    @property
    def cell_separator(self) -> str:
        return "," + self.line_start(2) if self.newline else self.comma


@dataclass(frozen=True, slots=True)
class Notebook:
    """A notebook's text and the positions of its cells."""

    text: str
    document: Mapping[str, object]
    cells: tuple[RawCell, ...]
    _cells_range: tuple[int, int]
    """The range between the brackets of the cell list."""
    _cell_nodes: tuple[_JsonNode, ...]
    _style: _JsonStyle

    def change_cell(self, index: int, values: RawCell) -> str:
        """Return the text with some keys of a cell changed. None removes a key, and `JSON_NULL` writes null."""
        node, cell = self._cell_nodes[index], self.cells[index]
        removed = [name for name, value in values.items() if value is None and name in cell]
        added = [name for name, value in values.items() if value is not None and name not in cell]
        if removed or added:
            merged = {**cell, **values}
            members = {name: _unwrap_null(value) for name, value in merged.items() if name not in removed}
            members = {name: value for name, value in members.items() if name in cell or name in added}
            return self._replace_slice(node.start, node.end, self._style.dumps(members, 2))
        text = self.text
        for member in reversed(_object_members(text, node.start)):
            if (value := values.get(member.name)) is not None:
                written = self._style.dumps(_unwrap_null(value), 3)
                text = text[: member.node.start] + written + text[member.node.end :]
        return text

    def insert_cell(self, index: int, cell: RawCell) -> str:
        """Return the text with a new cell inserted at this index."""
        written, style = self._style.dumps(cell, 2), self._style
        if not self._cell_nodes:
            start, end = self._cells_range
            return self._replace_slice(start, end, style.line_start(2) + written + style.line_start(1))
        if index == 0:
            first = self._cell_nodes[0].start
            return self._replace_slice(first, first, written + style.cell_separator)
        before = self._cell_nodes[index - 1].end
        return self._replace_slice(before, before, style.cell_separator + written)

    def delete_cell(self, index: int) -> str:
        """Return the text without the cell."""
        nodes = self._cell_nodes
        if len(nodes) == 1:
            return self._replace_slice(*self._cells_range, "")
        if index + 1 < len(nodes):
            return self._replace_slice(nodes[index].start, nodes[index + 1].start, "")
        return self._replace_slice(nodes[index - 1].end, nodes[index].end, "")

    def _replace_slice(self, start: int, end: int, new: str) -> str:
        return self.text[:start] + new + self.text[end:]


class _JsonNull:
    """The type of `JSON_NULL`."""


JSON_NULL = _JsonNull()
"""A marker for writing null, since None removes a key."""


def _unwrap_null(value: object) -> object:
    return None if isinstance(value, _JsonNull) else value


def parse_notebook(text: str) -> Notebook:
    """Parse a notebook's text. Raise ToolError if the text is not JSON, or not a notebook."""
    try:
        document = json.loads(text)
        start = _skip_blanks(text, 0)
        top = _object_members(text, start) if isinstance(document, dict) else []
        cells_member = next((member for member in reversed(top) if member.name == "cells"), None)
        if cells_member is None or not isinstance(cells_member.node.value, list):
            raise ToolError(_NOT_A_NOTEBOOK, kind="invalid_input")
        nodes: list[_JsonNode] = []
        at = _skip_blanks(text, cells_member.node.start + 1)
        while text[at] != "]":
            nodes.append(_decode_node(text, at))
            at = _next_element(text, nodes[-1].end)
    except (ValueError, RecursionError) as error:
        raise ToolError(_NOT_JSON, kind="invalid_input") from error
    cells = tuple(node.value for node in nodes if isinstance(node.value, dict))
    if len(cells) != len(nodes):
        raise ToolError(_NOT_A_NOTEBOOK, kind="invalid_input")
    lead = text[start + 1 : top[0].start]
    newline = next((end for end in ("\r\n", "\n", "\r") if end in lead), "")
    first = top[0].node
    colon = text[text.rindex(":", top[0].start, first.start) : first.start]
    comma = ", " if len(top) < 2 or text[top[1].start - 1] == " " else ","
    return Notebook(
        text=text,
        document=document,
        cells=cells,
        _cells_range=(cells_member.node.start + 1, cells_member.node.end - 1),
        _cell_nodes=tuple(nodes),
        _style=_JsonStyle(newline, lead.rpartition(newline)[2] if newline else "", comma, colon),
    )


def _skip_blanks(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _decode_node(text: str, at: int) -> _JsonNode:
    value, end = _DECODER.raw_decode(text, at)
    return _JsonNode(at, end, value)


def _object_members(text: str, start: int) -> list[_JsonMember]:
    members: list[_JsonMember] = []
    at = _skip_blanks(text, start + 1)
    while text[at] != "}":
        name = _decode_node(text, at)
        node = _decode_node(text, _skip_blanks(text, _skip_blanks(text, name.end) + 1))
        members.append(_JsonMember(at, str(name.value), node))
        at = _next_element(text, node.end)
    return members


def _next_element(text: str, end: int) -> int:
    at = _skip_blanks(text, end)
    return _skip_blanks(text, at + 1) if text[at] == "," else at


# Reading


def parse_cells(data: bytes, values: NotebookValues) -> list[CellRecord]:
    """Parse the cells in a notebook file, in the format that clients record.

    Raise ToolError if the bytes are not a notebook.
    """
    try:
        document = json.loads(data)
    except json.JSONDecodeError as error:
        reason = explain_for_jsc(error) if values.checks_cells else explain_for_v8(error)
        raise ToolError(values.not_json.format(reason=replace_surrogates(reason)), kind="invalid_input") from error
    except ValueError as error:
        raise ToolError(values.not_json.format(reason=error), kind="invalid_input") from error
    items = document.get("cells") if isinstance(document, dict) else None
    if not isinstance(items, list) or (values.checks_cells and not all(map(_has_source, items))):
        raise ToolError(
            'Notebook file is not a valid Jupyter notebook (top-level "cells" must be an array of cell objects, each'
            ' with a string or string-array "source").',
            kind="invalid_input",
        )
    language = "python"
    match document.get("metadata"):
        case {"language_info": {"name": str(name)}} | {"kernelspec": {"language": str(name)}}:
            language = name
        case _:
            pass
    cells: list[CellRecord] = []
    for index, cell in enumerate(_as_mapping(item) for item in items):
        kind = str(cell.get("cell_type", "code"))
        cell_id, count, outputs = cell.get("id"), cell.get("execution_count"), cell.get("outputs")
        record: CellRecord = {"cellType": kind, "source": _join_lines(cell.get("source"))}
        if kind == "code" and isinstance(count, int) and count:  # clients leave out zero
            record["execution_count"] = count
        record["cell_id"] = cell_id if isinstance(cell_id, str) else f"cell-{index}"
        if kind == "code":
            record["language"] = language
        if isinstance(outputs, list) and outputs:
            shown = [_parse_output(_as_mapping(output)) for output in outputs]
            record["outputs"] = shown if _output_size(shown, values) <= _MAX_OUTPUT_CHARS else [_omitted_outputs(index)]
        cells.append(record)
    return cells


def _output_size(outputs: list[CellRecord], values: NotebookValues) -> int:
    if values.counts_json:
        return len(json.dumps(outputs, ensure_ascii=False, separators=(",", ":")))
    return sum(len(output["text"]) + len(output.get("image", {}).get("image_data", "")) for output in outputs)


def _omitted_outputs(index: int) -> CellRecord:
    command = f"cat <notebook_path> | jq '.cells[{index}].outputs'"
    return {"output_type": "stream", "text": f"Outputs are too large to include. Use Bash with: {command}"}


def _has_source(cell: object) -> bool:
    source = _as_mapping(cell).get("source")
    return isinstance(source, str) or (isinstance(source, list) and all(isinstance(line, str) for line in source))


def cell_blocks(cells: Sequence[CellRecord]) -> list[NotebookBlock]:
    """Return the cells as content blocks for the model. Adjacent texts form one block."""
    content: list[NotebookBlock] = []
    texts: list[str] = []
    for cell in cells:
        kind, cell_id = cell["cellType"], cell["cell_id"]
        head = "" if kind == "code" else f"<cell_type>{kind}</cell_type>"
        if cell.get("language", "python") != "python":
            head += f"<language>{cell['language']}</language>"
        texts.append(f'<cell id="{cell_id}">{head}{cell["source"]}</cell id="{cell_id}">')
        for output in cell.get("outputs", ()):
            if output.get("text"):
                texts.append(f"\n{output['text']}")
            if "image" in output:
                image = output["image"]
                source = {"data": image["image_data"], "media_type": image["media_type"], "type": "base64"}
                content += [*_text_block(texts), {"type": "image", "source": source}]
                texts = []
    return [*content, *_text_block(texts)]


def _text_block(texts: Sequence[str]) -> list[NotebookBlock]:
    return [{"text": "\n".join(texts), "type": "text"}] if texts else []


def _parse_output(item: Mapping[str, object]) -> CellRecord:
    kind = str(item.get("output_type", "stream"))
    record: CellRecord = {"output_type": kind}
    if kind == "stream":
        record["text"] = _join_lines(item.get("text"))
    elif kind == "error":
        traceback = item.get("traceback")
        lines = [str(line) for line in traceback] if isinstance(traceback, list) else []
        record["text"] = "\n".join((f"{item.get('ename', '')}: {item.get('evalue', '')}", *lines))
    else:
        data = _as_mapping(item.get("data"))
        record["text"] = _join_lines(data.get("text/plain"))
        for media_type in ("image/jpeg", "image/png"):  # the last one wins
            encoded = "".join(_join_lines(data.get(media_type)).split())
            with suppress(binascii.Error):
                base64.b64decode(encoded, validate=True)
                if encoded:
                    record["image"] = {"image_data": encoded, "media_type": media_type}
    return record


def _join_lines(value: object) -> str:
    """Return a string, joining it if it is stored as a list of lines."""
    if isinstance(value, list):
        return "".join(str(line) for line in value)
    return value if isinstance(value, str) else ""


def _as_mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
