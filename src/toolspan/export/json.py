"""`--format json`: one object per call and line, with the fields of `CallRecord` and unchanged text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator

from msgspec import MsgspecError, Struct
from msgspec import json as fast

from toolspan.export.records import CallRecord, SessionRecord
from toolspan.export.session_export import SessionExport
from toolspan.formats import json_repair
from toolspan.reading.parallel import read_ahead
from toolspan.redaction.redact import SecretRedactor
from toolspan.redaction.redactor import NameCollector, Redactor

TOO_DEEP = "[nested too deeply]"


def encode_json(value: object) -> bytes:
    """Return a value as compact JSON. Values nested too deeply are replaced with a note."""
    try:
        return fast.encode(value)
    except (UnicodeEncodeError, OverflowError, RecursionError, TypeError, MsgspecError):
        pass
    try:
        return json_repair.encode_document(_to_json_value(value, 512))
    except (ValueError, RecursionError):
        return json_repair.encode_document(_to_json_value(value, 32))


def _to_json_value(value: object, max_depth: int) -> object:
    if max_depth < 0:
        return TOO_DEEP
    match value:
        case Struct():
            named = {item: getattr(value, item) for item in value.__struct_fields__}
            tag = value.__struct_config__.tag
            return _to_json_value({"type": tag, **named} if tag else named, max_depth)
        case dict():
            return {str(key): _to_json_value(item, max_depth - 1) for key, item in value.items()}
        case list() | tuple():
            return [_to_json_value(item, max_depth - 1) for item in value]
        case _:
            return value


def format_json(value: object, indent: int) -> str:
    """Return a value as indented JSON."""
    try:
        return json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    except RecursionError:
        return TOO_DEEP


def write(sessions: Iterable[SessionExport]) -> Iterator[bytes]:
    """Yield one line for each call."""
    for session in sessions:
        for call in session.calls():
            yield encode_json(call) + b"\n"


_ANSI_COLORS = re.compile(r"\x1b\[[0-9;:]{0,40}m")
_CONTROL_CHARS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
_CONTROL_PICTURES_START = 0x2400


def escape_control_chars(text: str) -> str:
    """Remove colour codes and make control characters visible. Newlines and tabs are kept."""
    bare = _ANSI_COLORS.sub("", text).replace("\r\n", "\n") if "\x1b" in text or "\r" in text else text
    return _CONTROL_CHARS.sub(_control_picture, bare)


def one_line(text: str, max_chars: int) -> str:
    """Return the text as one line of at most `max_chars` characters."""
    line = escape_control_chars(" ".join(text[: max_chars * 4].split()))
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"


def _control_picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(_CONTROL_PICTURES_START + code)
    return "\u2421" if code == 0x7F else f"⟨U+{code:04X}⟩"


def write_redacted(
    make_sessions: Callable[[Redactor], Iterable[SessionExport]], redactor: SecretRedactor
) -> Iterator[bytes]:
    """Yield the lines that `write` yields for `make_sessions(redactor)`.

    perf: another process reads the sessions, and this one redacts and encodes them. The time is about that of the
    redaction alone, which takes longer than the reading.
    """

    def read_sessions() -> Iterator[list[list[str]] | SessionRecord | CallRecord]:
        collector = NameCollector()
        for session in make_sessions(collector):
            yield collector.names
            collector.names = []
            yield session.header
            yield from session.calls()

    for item in read_ahead(read_sessions):
        if isinstance(item, list):
            for names in item:
                redactor.add_names(names)
            continue
        redacted = redactor.redact_record(item)
        if isinstance(redacted, CallRecord):
            yield encode_json(redacted) + b"\n"
