"""The base of formats whose records a `RecordParser` understands. Most formats need nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

from toolspan.formats.base import LiveReader, TranscriptFormat
from toolspan.formats.source import Source

if TYPE_CHECKING:
    from toolspan.formats.base import ReadScope
    from toolspan.formats.jsonl import LineChunk
    from toolspan.formats.parsed_reader import ParsedReader
    from toolspan.formats.record_parser import RecordParser, ToolShape
    from toolspan.types.inputs import ToolInput


class ParsedFormat(TranscriptFormat):
    """A format whose records a `RecordParser` understands. Most of its methods have defaults."""

    reads_whole_files = True
    nested_key: ClassVar[str | None] = None
    """The key of a list of documents within a document, if the client embeds subagents so."""

    def make_parser(self) -> RecordParser:
        """Return a parser for the records of one file: by default, `Parser` of the module `records` of the format."""
        parser: RecordParser = self.load_module("records").Parser()
        return parser

    def tools(self) -> Mapping[str, ToolShape]:
        """Return the types of the inputs of the client's tools: by default, `TOOLS` of that module."""
        return getattr(self.load_module("records"), "TOOLS", {})

    def document_key(self, beginning: bytes) -> str | None:
        """Return the key of the list of records, if a file that begins so is one JSON document."""
        return None

    def is_document(self, beginning: bytes) -> bool:
        return self.document_key(beginning) is not None

    def make_reader(self, source: Source, chunk: LineChunk | None, *, scope: ReadScope = "all") -> ParsedReader:
        """Return a reader for lines or a document."""
        from toolspan.formats.parsed_reader import ParsedReader

        beginning = b"" if chunk is None else bytes(chunk.data[chunk.start : chunk.end])
        return ParsedReader(source, self, document_key=self.document_key(beginning))

    def make_live_reader(self, source: Source) -> LiveReader | None:
        """Return a reader for a file that is still growing."""
        from toolspan.formats.parsed_reader import ParsedContent

        reader = self.make_reader(source, None)
        reader.pairing.is_live = True
        return LiveReader(reader, reader.pairing, ParsedContent(reader))

    def narrow_input(self, tool: str, data: bytes) -> ToolInput:
        import msgspec

        from toolspan.types.inputs import UnknownInput, decode_json_or_text

        arguments = decode_json_or_text(data)
        shape = self.tools().get(tool)
        if shape is not None and isinstance(arguments, dict):
            try:
                return shape.convert(arguments)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                pass
        return UnknownInput(data=data)

    def narrow_result(self, tool: str, data: bytes) -> object:
        from toolspan.formats.json_repair import decode_readable

        return self.convert_result(tool, decode_readable(data))

    def convert_result(self, tool: str, structured: object) -> object:
        """Return a structured result as its tool's type, or as decoded."""
        return structured or None

    def input_types(self) -> Sequence[type[Struct]]:
        return ()
