"""A server's tools as `Tool` values, the two tools for resources, and the conversion of results.

Inputs are sent unchanged; checking them against the server's schema is optional. Audio, other binary data and
oversized output are saved to files.
"""

from __future__ import annotations

import base64
import json
import math
import mimetypes
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from toolspan.errors import ToolError
from toolspan.integrations.mcp_client.arguments import InputCheck, make_parser, prepare_arguments
from toolspan.integrations.mcp_client.config import mcp_tool_name
from toolspan.integrations.mcp_client.protocol import URL_ELICITATION_REQUIRED, McpError, McpToolListing
from toolspan.integrations.mcp_client.server import McpCall, McpServer
from toolspan.runtime.context import ToolContext
from toolspan.runtime.output_limits import (
    ERROR_LIMIT,
    spill_text,
    truncate_middle,
    utf16_head,
    utf16_length,
)
from toolspan.runtime.profiles import McpValues, Messages, Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, Tool, ToolFailure
from toolspan.tools.files.image import read_image_info
from toolspan.types.ids import CallId
from toolspan.types.tool_kinds import sanitize_name


def server_tools(server: McpServer, profile: Profile, check: InputCheck, environment: Mapping[str, str]) -> list[Tool]:
    """Return a server's tools. Rejected tools are listed in its health."""
    token_limit = profile.mcp.token_limit and _read_token_limit(environment, profile.mcp.token_limit)
    tools: dict[str, Tool] = {}
    rejected: list[str] = []
    for listing in server.listed_tools:
        name = mcp_tool_name(server.name, listing.name)
        if name in tools:
            rejected.append(f"{listing.name}: another tool has the name {name}")
            continue
        unsupported = sorted({"allOf", "anyOf", "oneOf"} & listing.input_schema.keys())
        if unsupported:  # one such tool would make the API refuse the whole request
            rejected.append(
                f"{listing.name}: its input schema has {unsupported[0]} at the top, which models do not accept"
            )
            continue
        tools[name] = Tool(
            name=name,
            description=listing.description[: profile.mcp.description_limit],
            input_schema=listing.input_schema,
            parse=make_parser(listing.input_schema, check, profile),
            run=partial(_run_tool, server, listing, token_limit),
            concurrent=listing.read_only is True,
            only_reads=partial(_is_declared_read_only, listing),
            kind="mcp",
            output_limit=None,  # results are already limited in the same way as in the client
            extra={"mcp_server": {"name": server.name, "source": "dynamic"}},
        )
    server.health.rejected_tools[:] = rejected
    return list(tools.values())


def _is_declared_read_only(listing: McpToolListing, _value: object, _workspace: object) -> bool:
    return listing.read_only is True


async def _run_tool(
    server: McpServer,
    listing: McpToolListing,
    token_limit: int | None,
    value: Mapping[str, object],
    ctx: ToolContext,
) -> Output | ToolFailure:
    values = ctx.profile.mcp

    def report_progress(done: float, total: float | None, message: str | None) -> None:
        ctx.progress("mcp", server=server.name, tool=listing.name, done=done, total=total, message=message)

    arguments = prepare_arguments(value)
    call = McpCall(tool=listing.name, arguments=arguments, call_id=ctx.call.id, progress=report_progress)
    try:
        answer = await server.call_tool(call)
    except McpError as error:
        if error.code != URL_ELICITATION_REQUIRED:
            return to_tool_failure(error, server, listing.name, ctx.profile.messages)
        text = f'URL elicitation was canceled by the user. The tool "{listing.name}" could not complete because it'
        text += " requires the user to open a URL."
        return Output(content=text, structured=text)
    saver = _BinarySaver(server.name, ctx.workspace.results_folder)
    output = _convert_result(answer, saver, values)
    if isinstance(output, Output):
        output = _limit_output(output, saver, listing, values, token_limit, ctx.call.id)
    if isinstance(output, ToolFailure) or listing.read_only is not None or not values.marks_writers:
        return output
    return replace(output, beside={**(output.beside or {}), "mcpCallNotReadOnly": "no_hint"})


def to_tool_failure(error: McpError, server: McpServer, tool: str, messages: Messages) -> ToolFailure:
    """Convert an `McpError` to a failure with the profile's message."""
    match error.kind:
        case "timeout":
            waited = int(error.seconds or server.call_timeout)
            text = messages.mcp_timed_out.format(server=server.name, tool=tool, seconds=waited)
            return ToolFailure(text, kind="mcp_timeout", timed_out=True)
        case "closed" | "protocol":
            text = error.message
            if error.code is not None:
                text = messages.mcp_error.format(code=error.code, message=error.message)
            return ToolFailure(_fit_error(text))  # readers infer the kind from the text
        case "login":
            return ToolFailure(f"The MCP server {server.name!r} {error.message}")
        case "not_connected" | "connect" | "unreadable" | "tool":
            return ToolFailure(error.message)


def _fit_error(text: str) -> str:
    """Return an error message as clients show it: stripped, shortened and never empty."""
    return truncate_middle(text.strip(), ERROR_LIMIT) or "Command failed with no output"


LIST_TOOL = "ListMcpResourcesTool"
READ_TOOL = "ReadMcpResourceTool"
_Input = Mapping[str, object]
_Block = dict[str, object]
_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""Image types that a model can read."""
_FILE_SUFFIXES = {
    "audio/wav": ".wav",
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "image/webp": ".webp",
    "image/jpeg": ".jpg",
    "image/x-icon": ".ico",
    "application/xml": ".xml",
    "application/gzip": ".bin",
    "image/bmp": ".bin",
    "image/tiff": ".bin",
    "image/heic": ".bin",
}
"""File suffixes for binary data, where clients use an unusual one."""
_SERVER = {"type": "string", "description": "The name of the MCP server."}
_LIST_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "server": {**_SERVER, "description": "Return only the resources of this server. The default is all servers."}
    },
    "additionalProperties": False,
}
_READ_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "server": _SERVER,
        "uri": {"type": "string", "description": "The URI of the resource, as ListMcpResourcesTool returned it."},
    },
    "required": ["server", "uri"],
    "additionalProperties": False,
}
_TOKEN_CHARS = 4
"""The estimated number of characters in a token."""
_SURE_FACTOR = 4
"""The factor by which an estimate must exceed the limit to be used without counting tokens."""
_SCHEMA_DEPTH = 2
_SCHEMA_MEMBERS = 10
_RESOURCE_KEYS = ("name", "title", "uri", "description", "mimeType", "size", "annotations", "_meta")
"""The keys of a listed resource, in the client's order."""
_RESOURCE_NOT_FOUND = -32_002


def resource_tools(servers: Mapping[str, McpServer], profile: Profile) -> list[Tool]:
    """Return the tools for resources; empty if no server has resources."""

    async def list_resources(value: _Input, ctx: ToolContext) -> Output:  # noqa: ARG001
        name = value.get("server")
        selected = [_find_server(servers, str(name))] if name is not None else list(servers.values())
        resources: list[dict[str, object]] = []
        for server in selected:
            try:
                for resource in await server.list_resources() if server.has_resources else ():
                    first = {key: resource[key] for key in _RESOURCE_KEYS if key in resource}
                    resources.append({**first, **resource, "server": server.name})
            except McpError as error:
                if name is not None:
                    raise ToolError(to_tool_failure(error, server, LIST_TOOL, profile.messages).text) from error
        return Output(content=_compact_json(resources), structured=resources)

    async def read_resource(value: _Input, ctx: ToolContext) -> Output | ToolFailure:
        server = _find_server(servers, str(value["server"]))
        try:
            answer = await server.read_resource(str(value["uri"]))
        except McpError as error:
            if error.code != _RESOURCE_NOT_FOUND:
                return to_tool_failure(error, server, READ_TOOL, profile.messages)
            text = (
                f"Resource not found: {value['uri']} \u2014 it may have been deleted or the URI is stale."
                f" Re-run {LIST_TOOL} to refresh."
            )
            return Output(content=text, structured={"contents": [], "error": text})
        contents = _read_contents(answer, _BinarySaver(server.name, ctx.workspace.results_folder))
        return Output(content=_compact_json({"contents": contents}), structured={"contents": contents})

    if not any(server.has_resources for server in servers.values()):
        return []
    coerce = profile.availability.coerces
    return [
        Tool(
            name=LIST_TOOL,
            description=(
                "List the resources of the connected MCP servers, or of one of them. Returns the URI, name"
                " and type of each."
            ),
            input_schema=_LIST_SCHEMA,
            parse=compile_checker(_LIST_SCHEMA, coerce=coerce),
            run=list_resources,
            concurrent=True,
            read_only=True,
        ),
        Tool(
            name=READ_TOOL,
            description="Return the content of one resource of an MCP server. Binary content is saved to a file.",
            input_schema=_READ_SCHEMA,
            parse=compile_checker(_READ_SCHEMA, coerce=coerce),
            run=read_resource,
            concurrent=True,
            read_only=True,
        ),
    ]


def _read_contents(answer: Mapping[str, object], saver: _BinarySaver) -> list[_Block]:
    """Return the contents of a resource. Binary data is saved to files."""
    contents: list[_Block] = []
    for piece in _mappings(answer.get("contents")):
        fields = {key: piece[key] for key in ("uri", "mimeType", "text") if key in piece}
        if "blob" in piece:
            description, path = saver.save_encoded(piece["blob"], _mime_type(piece, "unknown type"))
            if path is not None:
                fields["blobSavedTo"] = str(path)
            fields["text"] = f"[Resource from {saver.server} at {piece.get('uri')}] {description}"
        contents.append(fields)
    return contents


def _find_server(servers: Mapping[str, McpServer], name: str) -> McpServer:
    server = servers.get(name)
    if server is None:
        names = ", ".join(servers)
        raise ToolError(f'Server "{name}" not found. Available servers: {names}')
    if not server.has_resources and server.health.state == "connected":
        raise ToolError(f'Server "{name}" does not support resources')
    return server


# Results


@dataclass(frozen=True, slots=True)
class _BinarySaver:
    server: str
    folder: Path

    def save(self, data: bytes, kind: str) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        suffix = _FILE_SUFFIXES.get(kind) or mimetypes.guess_extension(kind) or ".bin"
        stamp = f"{time.time_ns() // 1_000_000}-{secrets.token_hex(3)}"
        path = self.folder / f"mcp-{sanitize_name(self.server)}-blob-{stamp}{suffix}"
        path.write_bytes(data)
        return path

    def describe(self, encoded: object, kind: str) -> str:
        """Save binary data and return the text that replaces it, which states its type and file."""
        return self.save_encoded(encoded, kind)[0]

    def save_encoded(self, encoded: object, kind: str) -> tuple[str, Path | None]:
        """Save binary data. Return the text that replaces it, and the file, or None if there is no file."""
        data = _decode_base64(encoded)
        if data is None:
            return f"Binary content ({kind}) that is not valid base64", None
        description = f"Binary content ({kind}, {len(data)} bytes)"
        try:
            path = self.save(data, kind)
        except OSError as error:
            return f"{description} could not be saved: {error}", None
        return f"{description} saved to {path}", path


def _convert_result(answer: Mapping[str, object], saver: _BinarySaver, values: McpValues) -> Output | ToolFailure:
    blocks = _mappings(answer.get("content"))
    if answer.get("isError") is True:
        text = error_text(blocks, values)
        return ToolFailure(str(answer.get("error") or "Unknown error") if text is None else _fit_error(text))
    links = [
        {key: value for key, value in block.items() if key != "type"}
        for block in blocks
        if block.get("type") == "resource_link"
    ]
    structured = answer.get("structuredContent")
    metadata = {"structuredContent": structured, "resourceLinks": links or None}
    recorded = {key: value for key, value in metadata.items() if value is not None and key in values.meta}
    beside = {"mcpMeta": recorded} if recorded else None
    if "toolResult" in answer:  # the result of the first revision of the protocol
        old = answer["toolResult"]
        text = old if isinstance(old, str) else _compact_json(old)
        return Output(content=text, structured=text, beside=beside)
    if structured is not None:  # it repeats the text blocks
        text = _compact_json(structured)
        others = [block for block in blocks if block.get("type") != "text"] if values.keeps_other_blocks else []
        if not others:
            return Output(content=text, structured=text, beside=beside)
        blocks = [*others, _text_block(text)]
    converted = [(block, _convert_block(block, saver, values)) for block in blocks]
    content = [piece for _, pieces in converted for piece in pieces]
    record = content
    if values.records_text_metadata:
        record = [_with_metadata(piece, block) for block, pieces in converted for piece in pieces]
    return Output(content=content, structured=record, beside=beside)


def _with_metadata(piece: _Block, block: Mapping[str, object]) -> _Block:
    """Return a block in its recorded form: text keeps its metadata, which the model does not see."""
    return {**piece, "_meta": block["_meta"]} if block.get("type") == "text" and block.get("_meta") else piece


def _read_token_limit(environment: Mapping[str, str], default: int) -> int:
    """Return the number of tokens that the environment allows in a result."""
    try:
        limit = float(environment.get("MAX_MCP_OUTPUT_TOKENS", ""))
    except ValueError:
        return default
    return int(limit) if 1 <= limit < math.inf else default


def _limit_output(
    output: Output,
    saver: _BinarySaver,
    listing: McpToolListing,
    values: McpValues,
    token_limit: int | None,
    call_id: CallId,
) -> Output:
    """Move a result that is too long for the conversation to a file, or cut it if it contains an image."""
    content = output.content
    if isinstance(content, str):
        text, suffix, char_count = content, ".txt", utf16_length(content)
    else:
        text, suffix = json.dumps(content, indent=2, ensure_ascii=False), ".json"
        char_count = sum(utf16_length(str(block.get("text", ""))) for block in _mappings(content))
    has_image = any(block.get("type") == "image" for block in _mappings(content))
    if token_limit and listing.inline_limit is None and round(char_count / _TOKEN_CHARS) > _SURE_FACTOR * token_limit:
        if has_image:
            shortened = _shorten_blocks(_mappings(content), token_limit)
            return replace(output, content=shortened, structured=shortened)
        with suppress(OSError):
            notice = _save_whole(content, saver, listing.name)
            return replace(output, content=notice, structured=notice)
    inline_limit = listing.inline_limit or values.inline_limit
    if inline_limit is None or has_image or utf16_length(text) <= inline_limit:
        return output
    spilled = spill_text(text, saver.folder, call_id, suffix=suffix)
    return replace(output, content=spilled.text, persisted=spilled.path)


def _shorten_blocks(blocks: Sequence[Mapping[str, object]], token_limit: int) -> list[_Block]:
    """Return the beginning of a result with images, and a notice that the rest is missing."""
    room = token_limit * _TOKEN_CHARS
    shortened: list[_Block] = []
    for block in blocks:
        if block.get("type") == "text":
            text = utf16_head(str(block.get("text", "")), room)
            room -= utf16_length(text)
            shortened += [_text_block(text)] if text else []
            continue
        size = len(str(_as_mapping(block.get("source")).get("data", "")))
        fits = size <= room
        room -= size if fits else 0
        left_out = _text_block("[Image left out: it did not fit in the tool output limit]")
        shortened.append(dict(block) if fits else left_out)
    notice = (
        f"\n\n[OUTPUT TRUNCATED - exceeded {token_limit} token limit]\n\nThe rest of the output is missing."
        " Ask the server for less at a time, if its tools can do that; otherwise tell the user that it is incomplete."
    )
    return [*shortened, _text_block(notice)]


def _save_whole(content: object, saver: _BinarySaver, tool: str) -> str:
    """Save a result that has too many tokens, and return the notice that replaces it."""
    blocks = _mappings(content)
    lines = ""
    if len(blocks) == 1:
        text = str(blocks[0].get("text", ""))
        line_count = text.count("\n") + (not text.endswith("\n"))
        lines, form = f" across {line_count:,} line{'' if line_count == 1 else 's'}", "Plain text"
    elif isinstance(content, str):
        text, form = content, f"JSON with schema: {_describe_json(json.loads(content))}"
    else:
        text = json.dumps(content, indent=2, ensure_ascii=False)
        form = f"JSON array with schema: {_describe_json(content)}"
    saver.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = f"mcp-{sanitize_name(saver.server)}-{sanitize_name(tool)}-{time.time_ns() // 1_000_000}.txt"
    path = saver.folder / name
    path.write_text(text, encoding="utf-8", errors="replace")
    return (
        f"Error: result ({utf16_length(text):,} characters{lines}) exceeds maximum allowed tokens."
        f" Output has been saved to {path}.\nFormat: {form}\nRead the parts that you need from the file."
    )


def _describe_json(value: object, depth: int = 0) -> str:
    """Return the shape of a JSON value, at most two levels deep."""
    match value:
        case dict() if depth >= _SCHEMA_DEPTH:
            return "{...}"
        case list() if depth >= _SCHEMA_DEPTH:
            return "[...]"
        case dict():
            members = [f"{key}: {_describe_json(inner, depth + 1)}" for key, inner in value.items()]
            more = ["..."] if len(members) > _SCHEMA_MEMBERS else []
            return "{" + ", ".join(members[:_SCHEMA_MEMBERS] + more) + "}"
        case list():
            return f"[{_describe_json(value[0], depth + 1) if value else ''}]"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case _:
            return "null"


def error_text(blocks: Sequence[Mapping[str, object]], values: McpValues) -> str | None:
    """Return the text of an error result: of all blocks or, in some profiles, only of the first one."""
    texts = [
        _link_text(block) if block.get("type") == "resource_link" else str(block["text"])
        for block in (blocks if values.joins_errors else blocks[:1])
        if isinstance(block.get("text"), str) or (values.joins_errors and block.get("type") == "resource_link")
    ]
    return "\n".join(texts) if texts else None


def _link_text(block: Mapping[str, object]) -> str:
    description = block.get("description")
    note = f" ({description})" if isinstance(description, str) and description else ""
    return f"[Resource link: {block.get('name')}] {block.get('uri')}{note}"


def _convert_block(block: Mapping[str, object], saver: _BinarySaver, values: McpValues) -> list[_Block]:
    match block:
        case {"type": "text", "text": str(text)}:
            return [_text_block(text)]
        case {"type": "image"}:
            return _image_blocks(block.get("data"), _mime_type(block, "image/png"), saver, values)
        case {"type": "audio"} if values.saves_binary:
            description = saver.describe(block.get("data"), _mime_type(block, "audio/wav"))
            return [_text_block(f"[Audio from {saver.server}] {description}")]
        case {"type": "resource", "resource": Mapping() as resource}:
            head = f"[Resource from {saver.server} at {resource.get('uri')}] "
            resource_text, blob = resource.get("text"), resource.get("blob")
            if isinstance(resource_text, str):
                return [_text_block(head + resource_text)]
            kind = _mime_type(resource, "unknown type")
            if kind in _IMAGE_TYPES and _decode_base64(blob) is not None:
                return [_text_block(head), *_image_blocks(blob, kind, saver, values)]
            described = saver.describe(blob, kind) if values.saves_binary else f"Base64 data ({kind}) {blob}"
            return [_text_block(head + described)]
        case {"type": "resource_link"}:
            return [_text_block(_link_text(block))]
        case _:
            return []


def _image_blocks(encoded: object, kind: str, saver: _BinarySaver, values: McpValues) -> list[_Block]:
    data = _decode_base64(encoded)
    if data is None or kind not in _IMAGE_TYPES:
        if not values.saves_binary:
            return []
        return [_text_block(f"[Image from {saver.server}] {saver.describe(encoded, kind)}")]
    info = read_image_info(data) if values.checks_images else None
    if values.checks_images and info is None:
        reason = "its format is unknown" if data else "Image file is empty (0 bytes)"
        problem = _text_block(f"[Image could not be processed: {reason}]")
        with suppress(OSError):
            return [problem, _text_block(f"[Image source: {saver.save(data, kind)}]")]
        return [problem]
    source = {"type": "base64", "media_type": kind if info is None else info.media_type, "data": encoded}
    blocks: list[_Block] = [{"type": "image", "source": source}]
    if values.names_images:
        with suppress(OSError):  # the conversation contains the image as well
            blocks.append(_text_block(f"[Image: source: {saver.save(data, kind)}]"))
    return blocks


def _text_block(text: str) -> _Block:
    return {"type": "text", "text": text}


def _mime_type(block: Mapping[str, object], default: str) -> str:
    kind = block.get("mimeType")
    return kind.partition(";")[0].strip().lower() if isinstance(kind, str) and kind else default


def _decode_base64(encoded: object) -> bytes | None:
    try:
        return base64.b64decode(encoded, validate=True) if isinstance(encoded, str) else None
    except ValueError:
        return None


def _mappings(items: object) -> list[Mapping[str, object]]:
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []


def _as_mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _compact_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
