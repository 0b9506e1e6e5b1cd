"""Build and parse API content blocks, for agent loops that do not use toolspan's runtime.

Parsing never raises, while builders raise on invalid arguments. Blocks for server-side tools are
skipped. States are not inferred, because refusals and interrupts are visible only in a transcript.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict, cast

from msgspec import Struct

from toolspan.formats.decoding import content_to_text
from toolspan.types.error_kinds import ErrorKind, kind_of, parse_exit_code, unwrap_error_text
from toolspan.types.ids import CallId
from toolspan.types.tool_kinds import tool_kind


class ToolUse(TypedDict):
    """An API request block for one tool call."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


_BASE62 = string.ascii_letters + string.digits


def tool_use(name: str, input: Mapping[str, Any], *, id: str | None = None) -> ToolUse:
    """Return a request block for one tool. The input is copied; by default, a new id is generated.

    Raises:
        TypeError: a name or id is not a string, or the input is not a mapping of JSON values.
        ValueError: a name or id is empty, or the input has a non-JSON number or is nested too deeply.
    """
    if id is None:
        id = "toolu_" + "".join(secrets.choice(_BASE62) for _ in range(24))
    block_id, tool, what = _require_text(id, "id"), _require_text(name, "name"), f"input of {name}"
    fields: object = input
    if not isinstance(fields, Mapping):
        raise TypeError(f"{what}: expected a mapping, got {_describe_value(input)}")
    if bad_keys := [key for key in fields if not isinstance(key, str)]:
        raise TypeError(f"{what}: expected strings as keys, got {_describe_value(bad_keys[0])}")
    try:
        copied: dict[str, Any] = json.loads(json.dumps(dict(input), allow_nan=False))
    except TypeError as error:
        raise TypeError(f"{what}: expected JSON values: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what}: expected JSON values: {error}") from error
    return {"type": "tool_use", "id": block_id, "name": tool, "input": copied}


def edit(file_path: str | os.PathLike[str], old_string: str, new_string: str, *, replace_all: bool = False) -> ToolUse:
    """Return a request to replace text in a file.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the path is empty.
    """
    change = _build_edit(old_string, new_string, replace_all, "")
    return tool_use("Edit", {"file_path": _require_path(file_path), **change})


def multi_edit(file_path: str | os.PathLike[str], edits: Iterable[tuple[str, str] | Mapping[str, Any]]) -> ToolUse:
    """Return a request to make several replacements in a file, each in the result of the previous one.

    An edit is a pair (old, new), or a mapping with `old`, `new` and optionally `replace_all`;
    `old_string`, `new_string` and `replaceAll` are other names for these.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the path is empty, there are no edits, or one has missing or unknown keys.
    """
    path, items = _require_path(file_path), cast(object, edits)
    if not isinstance(items, Iterable) or isinstance(items, str | bytes | Mapping):
        raise TypeError(f"edits: expected a list of edits, got {_describe_value(edits)}")
    changes = [_parse_edit(item, f"edits[{number}]") for number, item in enumerate(items)]
    if not changes:
        raise ValueError("edits: expected at least one edit, got none")
    return tool_use("MultiEdit", {"file_path": path, "edits": changes})


def write(file_path: str | os.PathLike[str], content: str) -> ToolUse:
    """Return a request to write a whole file.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the path is empty.
    """
    return tool_use("Write", {"file_path": _require_path(file_path), "content": _require_string(content, "content")})


_EDIT_KEYS = {
    "old": "old_string",
    "old_string": "old_string",
    "new": "new_string",
    "new_string": "new_string",
    "replaceAll": "replace_all",
    "replace_all": "replace_all",
}


def _parse_edit(value: object, where: str) -> dict[str, Any]:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and len(value) == 2:
        return _build_edit(value[0], value[1], None, f"{where}.")
    if not isinstance(value, Mapping):
        raise TypeError(f"{where}: expected a pair (old, new) or a mapping, got {_describe_value(value)}")
    named: dict[str, Any] = {}
    for key, item in value.items():
        name = _EDIT_KEYS.get(key)
        if name is None:
            raise ValueError(f"{where}: expected old, new and replace_all, got {key!r}")
        if name in named:
            raise ValueError(f"{where}: {name} is given twice, under two names")
        named[name] = item
    for name in ("old_string", "new_string"):
        if name not in named:
            raise ValueError(f"{where}: {name} is missing")
    return _build_edit(named["old_string"], named["new_string"], named.get("replace_all"), f"{where}.")


def _build_edit(old: object, new: object, everywhere: object, where: str) -> dict[str, Any]:
    if everywhere is not None and not isinstance(everywhere, bool):
        raise TypeError(f"{where}replace_all: expected true or false, got {_describe_value(everywhere)}")
    return {
        "old_string": _require_string(old, f"{where}old_string"),
        "new_string": _require_string(new, f"{where}new_string"),
        "replace_all": bool(everywhere),
    }


def _require_path(path: object) -> str:
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    return _require_text(path, "file_path")


def _require_text(value: object, what: str) -> str:
    text = _require_string(value, what)
    if not text.strip():
        raise ValueError(f"{what}: expected some text, got {text!r}")
    return text


def _require_string(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what}: expected a string, got {_describe_value(value)}")
    return value


def _describe_value(value: object) -> str:
    return f"{type(value).__name__} {value!r:.80}"


class ExtractedCall(Struct, frozen=True, kw_only=True):
    """A call in a model's reply."""

    id: CallId | None
    """The call id, or None if the block has none and its result cannot be paired."""
    tool: str
    params: dict[str, Any]


def extract(message: object) -> tuple[ExtractedCall, ...]:
    """Return the calls in an assistant message, a transcript line, a list of blocks or one block.

    Never validates or raises: a missing input becomes empty, and content without calls returns ().
    """
    calls = []
    for block in _find_blocks(message):
        if block.get("type") == "tool_use":
            name, params = block.get("name"), block.get("input")
            tool = name if isinstance(name, str) else ""
            params = dict(params) if isinstance(params, Mapping) else {}
            calls.append(ExtractedCall(id=_to_call_id(block.get("id")), tool=tool, params=params))
    return tuple(calls)


SeedType = Literal["TIMEOUT", "READ_REQUIRED", "MCP_NO_RESPONSE", "NETWORK_ERROR", "VALIDATION_ERROR"]
"""The five error names in the tool call reference."""

Handling = Literal["success", "retry_with_fallback", "read_first", "fail"]
"""The reaction recommended by the tool call reference."""


class ParsedResult(Struct, frozen=True, kw_only=True):
    """A tool result, with its error kind and the recommended reaction."""

    call_id: CallId | None
    is_error: bool
    text: str
    """The text sent to the model, without error tags."""
    error_kind: ErrorKind | None = None
    seed_type: SeedType | None = None
    exit_code: int | None = None
    """The exit code from the first line (`Exit code 1`) or the last line (`[Exit code: 0]`)."""
    retry: Handling


def parse_result(message: object, *, tool: str | Mapping[str, str] = "") -> tuple[ParsedResult, ...]:
    """Return the results in a tool_result block, user message, transcript line or block list.

    `tool` is the tool's name, or the names by call id: `{c.id: c.tool for c in extract(reply)}`. Without it, the
    kind is inferred from the text alone. Never raises; content without results returns ().

    This follows the intent of the parser in the tool call reference, and differs from it as follows:

    - All blocks are read, and content may be a list of blocks.
    - A success has no error type, even if its text contains the word timeout.
    - "timed out" is a timeout like "timeout"; a multi-line error is unwrapped like any other.
    - Words inside an error of another known kind do not count: a failed command may print "timeout",
      and a missing file may have it in its name.

    As in the reference, only an error in `<tool_use_error>` tags is worth a retry: text without them is the
    tool's own. A result without an error flag is an error if it has these tags, because old clients wrote errors
    that way.
    """
    results = []
    for block in _find_blocks(message):
        if block.get("type") != "tool_result":
            continue
        call_id, flag = _to_call_id(block.get("tool_use_id")), block.get("is_error")
        tool_name = tool if isinstance(tool, str) else tool.get(call_id or "", "")
        text = content_to_text(block.get("content"))
        unwrapped, body = unwrap_error_text(text), text.strip()
        is_error = flag is True or (flag is None and body.startswith(_OPEN) and body.endswith(_CLOSE))
        if not is_error:
            is_shell = not tool_name or tool_kind(tool_name) == "shell"
            code = _find_exit_code(unwrapped) if is_shell else None
            results.append(ParsedResult(call_id=call_id, is_error=False, text=text, exit_code=code, retry="success"))
            continue
        inner, closed, _ = text.partition(_OPEN)[2].rpartition(_CLOSE)
        tagged_type = _infer_seed_type(tool_name, inner.strip()) if closed else None
        result = ParsedResult(
            call_id=call_id,
            is_error=True,
            text=_TAGS.sub("", text),
            error_kind=_infer_error_kind(tool_name, unwrapped),
            seed_type=_infer_seed_type(tool_name, unwrapped),
            exit_code=_find_exit_code(unwrapped),
            retry=_HANDLING.get(tagged_type, "fail"),
        )
        results.append(result)
    return tuple(results)


_OPEN, _CLOSE = "<tool_use_error>", "</tool_use_error>"
_TAGS = re.compile(f"{_OPEN}|{_CLOSE}")
_FAILED_TOOL_NAME = re.compile(r"Error calling tool \(([^()\s]+)\)")


def _find_exit_code(text: str) -> int | None:
    try:
        return parse_exit_code(text)
    except ValueError:  # more digits than Python converts
        return None


def _infer_error_kind(tool: str, text: str) -> ErrorKind:
    """Return the kind of an error, using only the text if `tool` is empty."""
    if not tool and (named := _FAILED_TOOL_NAME.match(text)):
        tool = named[1]
    elif not tool and _find_exit_code(text) is not None:  # which only shells write
        tool = "Bash"
    kind = kind_of(tool, text)
    # Some kinds exist only for editing tools, and this may be one of those.
    return kind_of("Edit", text) if kind == "unknown" and not tool else kind


_SEED_TYPES: dict[ErrorKind, SeedType] = {
    "command_timeout": "TIMEOUT",
    "mcp_timeout": "TIMEOUT",
    "permission_timeout": "TIMEOUT",
    "read_required": "READ_REQUIRED",
    "mcp_no_response": "MCP_NO_RESPONSE",
    "network": "NETWORK_ERROR",
    "no_match": "VALIDATION_ERROR",
}
_SEED_PHRASES: tuple[tuple[SeedType, tuple[str, ...]], ...] = (
    ("TIMEOUT", ("timeout", "timed out")),
    ("READ_REQUIRED", ("not been read yet",)),
    ("MCP_NO_RESPONSE", ("no response",)),
    ("NETWORK_ERROR", ("fetch failed",)),
    ("VALIDATION_ERROR", ("not found in file",)),
)
"""Lower-case phrases for each error name, in order of precedence."""
_HANDLING: dict[SeedType | None, Handling] = {"TIMEOUT": "retry_with_fallback", "READ_REQUIRED": "read_first"}
_VAGUE_KINDS: frozenset[ErrorKind] = frozenset({"unknown", "internal", "mcp_error", "mcp_no_response", "network"})
"""Error kinds that the text may refine."""
_HEAD_LENGTH = 2_000


def _infer_seed_type(tool: str, text: str) -> SeedType | None:
    kind = _infer_error_kind(tool, text)
    if kind in _VAGUE_KINDS:
        head = text[:_HEAD_LENGTH].lower()
        for seed_type, signs in _SEED_PHRASES:
            if any(sign in head for sign in signs):
                return seed_type
    return _SEED_TYPES.get(kind)


def _find_blocks(value: object) -> list[Mapping[str, Any]]:
    """Return the content blocks of a line, a message or a list, or the block itself."""
    if isinstance(value, Mapping) and isinstance(value.get("message"), Mapping):
        value = value["message"]
    if isinstance(value, Mapping):
        if value.get("type") in ("tool_use", "tool_result"):
            return [value]
        if value.keys() & {"is_error", "tool_use_id"} and not value.keys() & {"role", "type"}:
            return [{**value, "type": "tool_result"}]  # a bare result, as in the reference
        value = value.get("content")
    return [block for block in value if isinstance(block, Mapping)] if isinstance(value, list | tuple) else []


def _to_call_id(value: object) -> CallId | None:
    return CallId(value) if isinstance(value, str) and value else None
