"""Results of commands with a label before each part, as Gemini CLI and the clients derived from it write them."""

from __future__ import annotations

import re

_NEXT_LABEL = r"(?=^(?:Error|Stderr|Exit Code|Signal|Background PIDs|Process Group PGID): |^</untrusted_context>|\Z)"
_PARTS = re.compile(rf"^(?:Output|Stdout|Error|Stderr): (.*?){_NEXT_LABEL}", re.MULTILINE | re.DOTALL)
_EMPTY = frozenset({"", "(empty)", "(none)"})


def parse_labelled_output(text: str) -> str:
    """Return a command's output and errors from a result with labels, or the text if it has none."""
    parts = [part.strip() for part in _PARTS.findall(text)]
    return "\n".join(part for part in parts if part not in _EMPTY) if parts else text
