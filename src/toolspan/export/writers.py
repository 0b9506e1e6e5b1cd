"""The formats by name, and the veils. What the command line offers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Literal, get_args

from toolspan.export.session_export import SessionExport

ExportFormat = Literal["json", "csv", "markdown", "perfetto", "otlp"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)

_FORMAT_MODULES: Mapping[ExportFormat, str] = {
    "json": "json", "csv": "csv", "markdown": "markdown", "perfetto": "perfetto", "otlp": "otlp",
}  # fmt: skip


def load_writer(export_format: ExportFormat) -> Callable[[Iterable[SessionExport]], Iterator[bytes]]:
    """What makes bytes of stories, piece by piece; its module is imported now."""
    write_function: Callable[[Iterable[SessionExport]], Iterator[bytes]]
    write_function = import_module(f"toolspan.export.{_FORMAT_MODULES[export_format]}").write
    return write_function
