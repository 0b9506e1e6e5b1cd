"""Whose transcript is this?"""

from __future__ import annotations

import pytest

from toolspan.formats.registry import detect_dialect
from toolspan.formats.source import BytesSource


@pytest.mark.parametrize(
    ("data", "dialect"),
    [
        (b"", "empty"),
        (b"\n \n", "empty"),
        (b'{"type":"user","message":{"content":"hi"},"uuid":"u","sessionId":"s"}\n', "claude"),
        (b'{"type":"summary","summary":"x","leafUuid":"u"}\n', "claude"),
        (b'{"type":"assistant","message":{"content":[]},"session_id":"s"}\n', "claude"),
        (b'garbage\n{"type":"system","subtype":"init","session_id":"s"}\n', "claude"),
        (b'{"type":"summary","summary":"x"}{"type":"summary","summary":"y"}\n', "claude"),
        (b'{"timestamp":"t","type":"session_meta","payload":{}}\n', "codex"),
        (b'{"type":"response_item","payload":{"type":"function_call"}}\n', "codex"),
        (b'{"record_type":"state"}\n{"type":"function_call","call_id":"c"}\n', "codex"),
        (b"just a text\nof two lines\n", "unknown"),
        (b"\x00\x01\x02\xff", "unknown"),
        (b'{"a":1}\n[1]\n7\n', "unknown"),
    ],
)
def test_the_first_lines_tell_the_client(data: bytes, dialect: str) -> None:
    assert detect_dialect(BytesSource(data)) == dialect
