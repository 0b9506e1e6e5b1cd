"""Blocks for an agent loop of your own: ask for tools, read what came back."""

from __future__ import annotations

from toolspan import blocks

ask = blocks.edit("main.go", "import (", 'import (\n\t"flag"')
print(ask["name"], ask["id"].startswith("toolu_"))

answer = {
    "role": "user",
    "content": [
        {
            "type": "tool_result",
            "tool_use_id": ask["id"],
            "content": "<tool_use_error>File has not been read yet. "
            "Read it first before writing to it.</tool_use_error>",
            "is_error": True,
        }
    ],
}
for result in blocks.parse_result(answer, tool="Edit"):
    print(result.error_kind, result.retry)
