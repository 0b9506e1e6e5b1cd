"""Read the cells of Jupyter notebooks, and change them.

`parse_cells` is for reading, `parse_notebook` for changes. The errors for invalid JSON are those of the clients'
JavaScript engines.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from json import JSONDecodeError
from typing import Any

from toolspan.errors import ToolError
from toolspan.runtime.profiles import NotebookValues
from toolspan.tools.files.paths import replace_surrogates

RawCell = Mapping[str, object]
CellRecord = dict[str, Any]
NotebookBlock = dict[str, object]

_INDEX = re.compile(r"0|[1-9]\d{0,8}")
_LARGEST_PLAIN_NUMBER = 1e21
"""The smallest number that clients write with an exponent."""
_MAX_OUTPUT_CHARS = 10_000
"""The length in characters above which a cell's outputs are omitted."""
_NOT_JSON = "Notebook is not valid JSON."
_NOT_A_NOTEBOOK = "The file is not a notebook: its `cells` are not a list of objects."


# Changing


@dataclass(frozen=True, slots=True)
class Notebook:
    """A parsed notebook. Clients rewrite all of it after a change, with one space of indentation."""

    document: Mapping[str, object]
    cells: tuple[RawCell, ...]

    def replace_cell(self, index: int, cell: RawCell) -> str:
        """Return the text with another cell at this index."""
        return self._dump_with_cells([*self.cells[:index], cell, *self.cells[index + 1 :]])

    def insert_cell(self, index: int, cell: RawCell) -> str:
        """Return the text with a new cell inserted at this index."""
        return self._dump_with_cells([*self.cells[:index], cell, *self.cells[index:]])

    def delete_cell(self, index: int) -> str:
        """Return the text without the cell."""
        return self._dump_with_cells([*self.cells[:index], *self.cells[index + 1 :]])

    def _dump_with_cells(self, cells: Sequence[RawCell]) -> str:
        return replace_surrogates(json.dumps({**self.document, "cells": cells}, ensure_ascii=False, indent=1))


def parse_notebook(text: str) -> Notebook:
    """Parse a notebook's text. Raise ToolError if the text is not JSON, or not a notebook."""
    try:
        document = json.loads(
            text, parse_float=_parse_number, parse_constant=_reject_constant, object_pairs_hook=_order_members
        )
    except (ValueError, RecursionError) as error:
        raise ToolError(_NOT_JSON, kind="invalid_input") from error
    cells = document.get("cells") if isinstance(document, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise ToolError(_NOT_A_NOTEBOOK, kind="invalid_input")
    return Notebook(document, tuple(cells))


def _order_members(members: list[tuple[str, object]]) -> dict[str, object]:
    """Return the object with its members in JavaScript order: numeric names first."""
    numbered = sorted((member for member in members if _INDEX.fullmatch(member[0])), key=lambda member: int(member[0]))
    return {**dict(numbered), **dict(members)}


def _parse_number(text: str) -> float:
    """Parse a number as clients do: a zero fraction is dropped."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < _LARGEST_PLAIN_NUMBER else number


_READ_NOT_JSON = (
    "Notebook file is not valid JSON (it may be truncated, corrupted, or still being written): JSON Parse error: "
)


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def parse_cells(data: bytes, values: NotebookValues) -> list[CellRecord]:
    """Parse the cells in a notebook file, in the format that clients record.

    Raise ToolError if the bytes are not a notebook.
    """
    head = _READ_NOT_JSON if values.checks_first else ""
    try:
        document = json.loads(data)
    except json.JSONDecodeError as error:
        reason = explain_for_jsc(error) if values.checks_first else explain_for_v8(error)
        raise ToolError(head + replace_surrogates(reason), kind="invalid_input") from error
    except ValueError as error:
        raise ToolError(f"{head}{error}", kind="invalid_input") from error
    items = document.get("cells") if isinstance(document, dict) else None
    if not isinstance(items, list) or (values.checks_first and not all(map(_has_source, items))):
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
        if kind == "code" and isinstance(count, int) and count:  # clients omit zero
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
    if not values.full_records:
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


_STRING_OR_BRACKET = re.compile(r'"(?:\\.|[^"\\])*"|[\[\]{}]')
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_EXCERPT = 10
"""The number of characters that V8 quotes on each side of an error in a long text."""


def explain_for_jsc(error: JSONDecodeError) -> str:
    """Return JavaScriptCore's error message for invalid JSON."""
    text, at = error.doc, error.pos
    match error.msg.split()[:2]:
        case ["Expecting", "value"]:
            char, word = text[at : at + 1], _WORD.match(text, at)
            if not char:
                return "Unexpected EOF"
            if char == "'":
                return "Single quotes (') are not allowed in JSON"
            if char == "]" and text[:at].rstrip().endswith(","):
                return "Unexpected comma at the end of array expression"
            return f"Unexpected token '{char}'" if word is None else f'Unexpected identifier "{word[0]}"'
        case ["Expecting", "':'"]:
            return "Expected ':' before value in object property definition"
        case ["Expecting", _]:
            return f"Expected '{_closing_bracket(text[:at])}'"
        case ["Extra", _]:
            return "Unable to parse JSON string"
        case _:
            return "Unterminated string"


def explain_for_v8(error: JSONDecodeError) -> str:
    """Return V8's error message for invalid JSON."""
    text, at = error.doc, error.pos
    match error.msg.split()[:2]:
        case ["Expecting", "value"]:
            return _unexpected_token(text, at)
        case ["Expecting", "property"]:
            problem = "Expected property name or '}'"
        case ["Expecting", "':'"]:
            problem = "Expected ':' after property name"
        case ["Expecting", _]:
            bracket = _closing_bracket(text[:at])
            problem = f"Expected ',' or '{bracket}' after {'property value' if bracket == '}' else 'array element'}"
        case ["Extra", _]:
            return f"Unexpected non-whitespace character after JSON at position {at}"
        case ["Invalid", "control"]:
            problem = "Bad control character in string literal"
        case _:
            problem, at = "Unterminated string", len(text)
    return f"{problem} in JSON at position {at}"


def _unexpected_token(text: str, at: int) -> str:
    for literal in ("true", "false", "null"):  # the error is at the first character that differs
        if text.startswith(literal[0], at):
            at += next((n for n, char in enumerate(literal) if text[at + n : at + n + 1] != char), 0)
            break
    if at >= len(text):
        return "Unexpected end of JSON input"
    start, end = 0, len(text)
    if end > 2 * _EXCERPT:
        start, end = max(0, at - _EXCERPT), min(end, at + _EXCERPT)
    excerpt = f'{"..." if start else ""}"{text[start:end]}"{"..." if end < len(text) else ""}'
    return f"Unexpected token '{text[at]}', {excerpt} is not valid JSON"


def _closing_bracket(text: str) -> str:
    """Return the bracket that closes the innermost list or object that is open at the end of a text."""
    stack: list[str] = []
    for token in _STRING_OR_BRACKET.findall(text):
        if token in "[{":
            stack.append("]" if token == "[" else "}")
        elif token in "]}" and stack:
            stack.pop()
    return stack[-1] if stack else "}"
