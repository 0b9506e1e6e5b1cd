"""The formats by name, and the veils. What the command line offers."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Literal, get_args

from toolspan.export.story import Story

Format = Literal["json", "csv", "markdown", "perfetto", "otlp"]
FORMATS: tuple[Format, ...] = get_args(Format)

_MODULES: Mapping[Format, str] = {
    "json": "jsonl", "csv": "csv", "markdown": "markdown", "perfetto": "perfetto", "otlp": "otlp",
}  # fmt: skip


def writer(form: Format) -> Callable[[Iterable[Story]], Iterator[bytes]]:
    """What makes bytes of stories, piece by piece; its module is imported now."""
    found: Callable[[Iterable[Story]], Iterator[bytes]]
    found = import_module(f"toolspan.export.{_MODULES[form]}").write
    return found
