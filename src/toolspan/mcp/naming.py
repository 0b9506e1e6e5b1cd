"""Names of MCP tools: `mcp__<server>__<tool>`, in letters that every model API takes.

In: a server's and a tool's own names, which may hold anything. Out: a name of at most 64
characters. The other way is not needed: a tool remembers its own names.
"""

import hashlib
import re

LONGEST = 64
_HASH = 8
_OTHER = re.compile(r"[^A-Za-z0-9_-]")


def plain(name: str) -> str:
    """A name with `_` for every letter that is not allowed in one."""
    return _OTHER.sub("_", name)


def tool_name(server: str, tool: str) -> str:
    """What the model calls a server's tool; long ones are cut, and told apart by a hash."""
    name = f"mcp__{plain(server)}__{plain(tool)}"
    if len(name) <= LONGEST:
        return name
    tag = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "replace")).hexdigest()[:_HASH]
    return f"{name[: LONGEST - _HASH - 1]}_{tag}"
