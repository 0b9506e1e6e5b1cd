"""Content blocks as people hold them in their own agent loops: build, take out, understand.

In: plain dicts of the API, or whole transcript lines that hold them. Out: request blocks to send,
the calls of a reply (`extract`), and what results say (`parse_result`). What comes from outside
never raises; what the programmer passes to a builder raises at once.

Only calls that the loop itself runs are meant: blocks of tools that the API runs are passed over.
Deliberately not here: states. Refusals and interrupts are told from more than one block; for those
read the transcript.
"""

import json
import os
import re
import secrets
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from msgspec import Struct

from toolspan.ids import CallId
from toolspan.model.kind import ErrorKind, exit_code, kind_of, unwrap
from toolspan.model.toolkind import tool_kind
from toolspan.wire.claude import plain


class ToolUse(TypedDict):
    """A request block as the API has it."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


_BASE62 = string.ascii_letters + string.digits
_ID_LENGTH = 24


def tool_use(name: str, input: Mapping[str, Any], *, id: str | None = None) -> ToolUse:
    """A request block for one tool; the input is copied, the id is new unless given.

    Raises:
        TypeError: a name or id is no string, the input no mapping or not made of JSON values.
        ValueError: a name or id is empty, or a number or the nesting of the input is not JSON.
    """
    return {
        "type": "tool_use",
        "id": _new_id() if id is None else _filled(id, "id"),
        "name": _filled(name, "name"),
        "input": _copied(input, f"input of {name}"),
    }


def edit(
    file_path: str | os.PathLike[str],
    old_string: str,
    new_string: str,
    *,
    replace_all: bool = False,
) -> ToolUse:
    """A request to replace a text in a file.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the path is empty.
    """
    change = _change(old_string, new_string, replace_all, "")
    return tool_use("Edit", {"file_path": _path(file_path), **change})


def multi_edit(
    file_path: str | os.PathLike[str], edits: Iterable[tuple[str, str] | Mapping[str, Any]]
) -> ToolUse:
    """A request to replace several texts in a file, each in the outcome of the one before.

    An edit is a pair (old, new), or a mapping with `old`, `new` and perhaps `replace_all`;
    `old_string`, `new_string` and `replaceAll` are other names for these.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the path is empty, there are no edits, or one has missing or unknown keys.
    """
    return tool_use("MultiEdit", {"file_path": _path(file_path), "edits": _edits(edits)})


def write(file_path: str | os.PathLike[str], content: str) -> ToolUse:
    """A request to write a whole file.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the path is empty.
    """
    return tool_use("Write", {"file_path": _path(file_path), "content": _text(content, "content")})


def _new_id() -> str:
    return "toolu_" + "".join(secrets.choice(_BASE62) for _ in range(_ID_LENGTH))


_KEYS = {
    "old": "old_string",
    "old_string": "old_string",
    "new": "new_string",
    "new_string": "new_string",
    "replaceAll": "replace_all",
    "replace_all": "replace_all",
}


def _edits(found: object) -> list[dict[str, Any]]:
    if not isinstance(found, Iterable) or isinstance(found, str | bytes | Mapping):
        raise TypeError(f"edits: expected a list of edits, got {_shown(found)}")
    changes = [_edit(item, f"edits[{number}]") for number, item in enumerate(found)]
    if not changes:
        raise ValueError("edits: expected at least one edit, got none")
    return changes


def _edit(found: object, where: str) -> dict[str, Any]:
    if isinstance(found, Mapping):
        named = _named(found, where)
        return _change(
            named["old_string"], named["new_string"], named.get("replace_all"), f"{where}."
        )
    if isinstance(found, Sequence) and not isinstance(found, str | bytes) and len(found) == 2:
        return _change(found[0], found[1], None, f"{where}.")
    raise TypeError(f"{where}: expected a pair (old, new) or a mapping, got {_shown(found)}")


def _named(found: Mapping[Any, Any], where: str) -> dict[str, Any]:
    """The keys of an edit under the names that the tool has for them."""
    named: dict[str, Any] = {}
    for key, value in found.items():
        name = _KEYS.get(key)
        if name is None:
            raise ValueError(f"{where}: expected old, new and replace_all, got {key!r}")
        if name in named:
            raise ValueError(f"{where}: {name} is given twice, under two names")
        named[name] = value
    for name in ("old_string", "new_string"):
        if name not in named:
            raise ValueError(f"{where}: {name} is missing")
    return named


def _change(old: object, new: object, everywhere: object, where: str) -> dict[str, Any]:
    if everywhere is not None and not isinstance(everywhere, bool):
        raise TypeError(f"{where}replace_all: expected true or false, got {_shown(everywhere)}")
    return {
        "old_string": _text(old, f"{where}old_string"),
        "new_string": _text(new, f"{where}new_string"),
        "replace_all": bool(everywhere),
    }


def _path(found: object) -> str:
    if isinstance(found, os.PathLike):
        found = os.fspath(found)
    return _filled(found, "file_path")


def _filled(found: object, what: str) -> str:
    text = _text(found, what)
    if not text.strip():
        raise ValueError(f"{what}: expected some text, got {text!r}")
    return text


def _text(found: object, what: str) -> str:
    if not isinstance(found, str):
        raise TypeError(f"{what}: expected a string, got {_shown(found)}")
    return found


def _shown(found: object) -> str:
    return f"{type(found).__name__} {found!r:.80}"


def _copied(found: object, what: str) -> dict[str, Any]:
    """The same JSON object in new dicts and lists, so that later changes do not reach the block."""
    if not isinstance(found, Mapping):
        raise TypeError(f"{what}: expected a mapping, got {_shown(found)}")
    if strange := [key for key in found if not isinstance(key, str)]:
        raise TypeError(f"{what}: expected strings as keys, got {_shown(strange[0])}")
    try:
        copied: dict[str, Any] = json.loads(json.dumps(dict(found), allow_nan=False))
    except TypeError as error:
        raise TypeError(f"{what}: expected JSON values: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what}: expected JSON values: {error}") from error
    return copied


class ExtractedCall(Struct, frozen=True, kw_only=True):
    """A call in a reply of the model."""

    id: CallId | None
    """None when the block has none: its result cannot be paired."""
    tool: str
    params: dict[str, Any]


def extract(found: object) -> tuple[ExtractedCall, ...]:
    """The calls in an assistant message, a transcript line, a list of blocks or one block.

    Nothing is validated and nothing raises: a missing input is empty, what holds no call gives ().
    """
    return tuple(
        ExtractedCall(
            id=_call_id(block.get("id")), tool=_string(block.get("name")), params=_params(block)
        )
        for block in _blocks(found)
        if block.get("type") == "tool_use"
    )


def _params(block: Mapping[str, Any]) -> dict[str, Any]:
    found = block.get("input")
    return dict(found) if isinstance(found, Mapping) else {}


SeedType = Literal[
    "TIMEOUT", "READ_REQUIRED", "MCP_NO_RESPONSE", "NETWORK_ERROR", "VALIDATION_ERROR"
]
"""The five names that the tool call reference has for errors."""

Handling = Literal["success", "retry_with_fallback", "read_first", "fail"]
"""What the tool call reference tells a loop to do with a result."""


class ParsedResult(Struct, frozen=True, kw_only=True):
    """What one result says."""

    call_id: CallId | None
    is_error: bool
    text: str
    """What the model reads; of errors without the tags around it."""
    error_kind: ErrorKind | None = None
    seed_type: SeedType | None = None
    exit_code: int | None = None
    """As the first line (`Exit code 1`) or the last (`[Exit code: 0]`) states it."""
    retry: Handling


def parse_result(found: object, *, tool: str | Mapping[str, str] = "") -> tuple[ParsedResult, ...]:
    """What the results in a tool_result block, user message, transcript line or block list say.

    `tool` is the tool's name, or the names by call id: `{c.id: c.tool for c in extract(reply)}`.
    Without it the kind is told from the text alone. Nothing raises; what holds no result gives ().

    It gives what the reference's own parser means rather than what that does:

    - All blocks are read, and content may be a list of blocks.
    - A success has no error type, even if its text contains the word timeout.
    - "timed out" is a timeout like "timeout"; an error of several lines is unwrapped like others.
    - Words inside an error that is known to be something else do not count: a failed command may
      print, and a missing file may be called, timeout.
    - As there, only an error in `<tool_use_error>` tags is worth another try: text without them is
      the tool's own.

    A result without error flag is an error if it is wrapped in these tags, as old clients wrote it.
    """
    return tuple(
        _parsed(block, tool) for block in _blocks(found) if block.get("type") == "tool_result"
    )


def _parsed(block: Mapping[str, Any], tools: str | Mapping[str, str]) -> ParsedResult:
    call_id = _call_id(block.get("tool_use_id"))
    tool = tools if isinstance(tools, str) else tools.get(call_id or "", "")
    text = plain(block.get("content"))
    words = unwrap(text)
    if not _is_error(block.get("is_error"), text):
        shell = not tool or tool_kind(tool) == "shell"
        code = _exit_code(words) if shell else None
        return ParsedResult(
            call_id=call_id, is_error=False, text=text, exit_code=code, retry="success"
        )
    return ParsedResult(
        call_id=call_id,
        is_error=True,
        text=_TAGS.sub("", text),
        error_kind=_kind(tool, words),
        seed_type=_seed_type(tool, words),
        exit_code=_exit_code(words),
        retry=_handling(tool, _tagged(text)),
    )


_OPEN, _CLOSE = "<tool_use_error>", "</tool_use_error>"
_TAGS = re.compile(f"{_OPEN}|{_CLOSE}")
_CALLING = re.compile(r"Error calling tool \(([^()\s]+)\)")


def _is_error(flag: object, text: str) -> bool:
    body = text.strip()
    return flag is True or (flag is None and body.startswith(_OPEN) and body.endswith(_CLOSE))


def _tagged(text: str) -> str | None:
    """What stands in error tags; None when nothing does."""
    inner, closed, _ = text.partition(_OPEN)[2].rpartition(_CLOSE)
    return inner if closed else None


def _exit_code(words: str) -> int | None:
    try:
        return exit_code(words)
    except ValueError:  # more digits than Python converts
        return None


def _kind(tool: str, words: str) -> ErrorKind:
    """The kind of an error; of an unknown tool as far as the words give it away."""
    known = tool or _tool_in(words)
    kind = kind_of(known, words)
    # Some kinds are told for editing tools only, and this may well be one.
    return kind_of("Edit", words) if kind == "unknown" and not known else kind


def _tool_in(words: str) -> str:
    """The tool that an error text names, or that alone writes such texts."""
    if found := _CALLING.match(words):
        return found[1]
    return "Bash" if _exit_code(words) is not None else ""


_SEED_TYPES: dict[ErrorKind, SeedType] = {
    "command_timeout": "TIMEOUT",
    "mcp_timeout": "TIMEOUT",
    "permission_timeout": "TIMEOUT",
    "read_required": "READ_REQUIRED",
    "mcp_no_response": "MCP_NO_RESPONSE",
    "network": "NETWORK_ERROR",
    "no_match": "VALIDATION_ERROR",
}
_SEED_WORDS: tuple[tuple[SeedType, tuple[str, ...]], ...] = (
    ("TIMEOUT", ("timeout", "timed out")),
    ("READ_REQUIRED", ("not been read yet",)),
    ("MCP_NO_RESPONSE", ("no response",)),
    ("NETWORK_ERROR", ("fetch failed",)),
    ("VALIDATION_ERROR", ("not found in file",)),
)
"""In the order in which they are tried; in lower case."""
_VAGUE: frozenset[ErrorKind] = frozenset(
    {"unknown", "internal", "mcp_error", "mcp_no_response", "network"}
)
"""Kinds that leave room for what the words say."""
_HEAD = 2_000


def _seed_type(tool: str, words: str) -> SeedType | None:
    kind = _kind(tool, words)
    if kind in _VAGUE:
        head = words[:_HEAD].lower()
        for seed_type, signs in _SEED_WORDS:
            if any(sign in head for sign in signs):
                return seed_type
    return _SEED_TYPES.get(kind)


def _handling(tool: str, inner: str | None) -> Handling:
    match _seed_type(tool, inner.strip()) if inner is not None else None:
        case "TIMEOUT":
            return "retry_with_fallback"
        case "READ_REQUIRED":
            return "read_first"
        case _:
            return "fail"


def _blocks(found: object) -> list[Mapping[str, Any]]:
    """The content blocks of a line, a message or a list, or the one block it is."""
    if isinstance(found, Mapping) and isinstance(found.get("message"), Mapping):
        found = found["message"]
    if isinstance(found, Mapping):
        found = _content(found)
    if not isinstance(found, list | tuple):
        return []
    return [block for block in found if isinstance(block, Mapping)]


def _content(found: Mapping[str, Any]) -> object:
    if found.get("type") in ("tool_use", "tool_result"):
        return [found]
    if found.keys() & {"is_error", "tool_use_id"} and not found.keys() & {"role", "type"}:
        return [{**found, "type": "tool_result"}]  # a result as documents show it
    return found.get("content")


def _call_id(found: object) -> CallId | None:
    return CallId(found) if isinstance(found, str) and found else None


def _string(found: object) -> str:
    return found if isinstance(found, str) else ""
