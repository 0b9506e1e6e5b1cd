"""The export formats by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Literal, get_args

from toolspan.export.session_export import SessionExport

ExportFormat = Literal["json", "csv", "markdown", "perfetto", "otlp"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)


def load_writer(export_format: ExportFormat) -> Callable[[Iterable[SessionExport]], Iterator[bytes]]:
    """Return the function that writes sessions in a format. Its module is imported on demand."""
    write_function: Callable[[Iterable[SessionExport]], Iterator[bytes]]
    write_function = import_module(f"toolspan.export.{export_format}").write
    return write_function
