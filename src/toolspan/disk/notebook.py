"""A Jupyter notebook as a model reads it.

In: the bytes of an `.ipynb` file. Out: its cells with their outputs as values for the record, and
as blocks for the model: texts that follow each other are one block, pictures stand alone.
"""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolspan.errors import ToolError

Block = dict[str, object]


@dataclass(frozen=True, slots=True)
class CellOutput:
    """What a cell printed or gave."""

    kind: str
    text: str | None
    picture: tuple[str, str] | None
    """Media type and base64."""

    def record(self) -> dict[str, object]:
        """As it is recorded."""
        record: dict[str, object] = {"output_type": self.kind}
        if self.text is not None:
            record["text"] = self.text
        if self.picture is not None:
            record["image"] = {"image_data": self.picture[1], "media_type": self.picture[0]}
        return record


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell."""

    id: str
    kind: str
    source: str
    language: str | None
    count: int | None
    outputs: tuple[CellOutput, ...]

    def record(self) -> dict[str, object]:
        """As it is recorded."""
        record: dict[str, object] = {"cellType": self.kind, "source": self.source}
        if self.count is not None:
            record["execution_count"] = self.count
        record["cell_id"] = self.id
        if self.language is not None:
            record["language"] = self.language
        if self.outputs:
            record["outputs"] = [one.record() for one in self.outputs]
        return record

    def text(self) -> str:
        """As the model reads it, without the outputs."""
        kind = "" if self.kind == "code" else f"<cell_type>{self.kind}</cell_type>"
        foreign = self.language not in (None, "python")
        language = f"<language>{self.language}</language>" if foreign else ""
        return f'<cell id="{self.id}">{kind}{language}{self.source}</cell id="{self.id}">'


def cells(data: bytes) -> tuple[Cell, ...]:
    """The cells of a notebook.

    Raises:
        ToolError: the bytes are no notebook.
    """
    try:
        found = json.loads(data)
    except ValueError as error:
        raise ToolError(f"The notebook is not valid JSON: {error}") from error
    items = found.get("cells") if isinstance(found, dict) else None
    if not isinstance(items, list):
        raise ToolError("The notebook has no list of cells")
    language = _language(_mapping(found.get("metadata")))
    return tuple(_cell(_mapping(item), nth, language) for nth, item in enumerate(items))


def blocks(read: Sequence[Cell]) -> list[Block]:
    """What the model reads."""
    made: list[Block] = []
    texts: list[str] = []
    for piece in _pieces(read):
        if isinstance(piece, str):
            texts.append(piece)
            continue
        made += [*_text_block(texts), piece]
        texts = []
    return [*made, *_text_block(texts)]


def _pieces(read: Sequence[Cell]) -> Iterator[str | Block]:
    for cell in read:
        yield cell.text()
        for output in cell.outputs:
            if output.text is not None:
                yield f"\n{output.text}"
            if output.picture is not None:
                media_type, data = output.picture
                source = {"data": data, "media_type": media_type, "type": "base64"}
                yield {"type": "image", "source": source}


def _text_block(texts: Sequence[str]) -> list[Block]:
    return [{"text": "\n".join(texts), "type": "text"}] if texts else []


def _language(metadata: Mapping[str, object]) -> str:
    for section in ("language_info", "kernelspec"):
        values = _mapping(metadata.get(section))
        name = values.get("name" if section == "language_info" else "language")
        if isinstance(name, str):
            return name
    return "python"


def _cell(item: Mapping[str, object], nth: int, language: str) -> Cell:
    kind = str(item.get("cell_type", "code"))
    code = kind == "code"
    identity = item.get("id")
    count = item.get("execution_count")
    outputs = item.get("outputs")
    return Cell(
        id=identity if isinstance(identity, str) else f"cell-{nth}",
        kind=kind,
        source=_joined(item.get("source")),
        language=language if code else None,
        count=count if code and isinstance(count, int) else None,
        outputs=tuple(_output(_mapping(one)) for one in outputs)
        if isinstance(outputs, list)
        else (),
    )


def _output(item: Mapping[str, object]) -> CellOutput:
    kind = str(item.get("output_type", "stream"))
    if kind == "stream":
        return CellOutput(kind, _joined(item.get("text")), None)
    if kind == "error":
        traceback = item.get("traceback")
        lines = [str(line) for line in traceback] if isinstance(traceback, list) else []
        head = f"{item.get('ename', '')}: {item.get('evalue', '')}"
        return CellOutput(kind, "\n".join((head, *lines)), None)
    data = _mapping(item.get("data"))
    text = _joined(data["text/plain"]) if "text/plain" in data else None
    return CellOutput(kind, text, _picture(data))


def _picture(data: Mapping[str, object]) -> tuple[str, str] | None:
    for media_type in ("image/png", "image/jpeg"):
        encoded = "".join(_joined(data.get(media_type)).split())
        try:
            base64.b64decode(encoded, validate=True)
        except binascii.Error:
            continue
        if encoded:
            return media_type, encoded
    return None


def _joined(value: object) -> str:
    """A text that may be stored as a list of lines."""
    if isinstance(value, list):
        return "".join(str(line) for line in value)
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
