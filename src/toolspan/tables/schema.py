"""The columns of the tables, with their types and meanings. docs/tables.md is generated from this module.

Every table also has the partition columns `client` and `day`, which are in the paths and not in the files.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, reduce
from operator import or_
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec
from msgspec import Struct

from toolspan.extras import missing_extra
from toolspan.reading.rows import CallRow, HookRow

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 2
"""The version, incremented when the name, type or meaning of a column changes, but not for new columns."""


class Column(NamedTuple):
    """A column of a table."""

    name: str
    type: str
    meaning: str


PARTITION_COLUMNS = (
    Column("client", "string", "The client that wrote the transcript: `claude`, `codex` or `gemini`."),
    Column("day", "string", "The day in UTC, `YYYY-MM-DD`, or `unknown`."),
)

_FILE = Column("file", "string", "Path of the transcript, as it was named or found.")
_TOKENS = (
    Column("output_tokens", "int64", "Output tokens."),
    Column("cache_creation_input_tokens", "int64", "Tokens written to the cache."),
    Column("cache_read_input_tokens", "int64", "Tokens read from the cache."),
)
_POSITION = Column("position", "int32", "The row number within the file, from 0.")


def field_docstrings(kind: type[Struct]) -> dict[str, str]:
    """Return the fields of a struct with the docstrings below them, which are the descriptions in the documentation.

    Without the source of the module, the docstrings are empty.
    """
    try:
        (node,) = ast.parse(inspect.getsource(kind)).body
    except OSError:
        return dict.fromkeys(kind.__struct_fields__, "")
    docstrings: dict[str, str] = {}
    for statement in node.body if isinstance(node, ast.ClassDef) else ():
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)):
                docstrings[name] = ""
            case ast.Expr(value=ast.Constant(value=str(text))) if docstrings:
                docstrings[next(reversed(docstrings))] = text
    return docstrings


_COLUMN_TYPES: Mapping[object, str] = {
    bool: "bool",
    int: "int64",
    int | float: "double",
    str: "string",
    tuple[int, int]: "byte_range",
    tuple[tuple[str, str | None], ...]: "list<evidence>",
    tuple[HookRow, ...]: "list<hook>",
}


def struct_columns(kind: type[Struct]) -> list[Column]:
    """Return a column for each field of a struct."""
    meanings = field_docstrings(kind)
    return [
        Column(field.name, _column_type(field.type), meanings[field.name]) for field in msgspec.structs.fields(kind)
    ]


def _column_type(annotation: Any) -> str:
    if get_origin(annotation) in (Union, UnionType):
        annotation = reduce(or_, (kind for kind in get_args(annotation) if kind is not NoneType))
    return "string" if get_origin(annotation) is Literal else _COLUMN_TYPES[annotation]


STRUCT_TYPES: Mapping[str, Sequence[Column]] = {
    "byte_range": (Column("offset", "int64", ""), Column("length", "int64", "")),
    "evidence": (Column("rule", "string", ""), Column("text", "string", "")),
    "hook": struct_columns(HookRow),
}
"""The fields of columns that are structs or lists of structs."""
_TIMES = ("requested", "finished")
_PARTITIONS = [column.name for column in PARTITION_COLUMNS]

_CALLS = (
    *(
        column._replace(type="timestamp[ms]") if column.name in _TIMES else column
        for column in struct_columns(CallRow)
        if column.name not in _PARTITIONS
    ),
    _POSITION,
    Column("mcp_server", "string", "The MCP server, for tools named `mcp__SERVER__TOOL`."),
    Column("recovered", "bool", "True if later calls recovered from the failure; null if nothing failed."),
    Column("recovered_by", "string", "The name of the recovery chain."),
    Column("project", "string", "The working folder of the file that contains the call."),
    Column("wait_ms", "int64", "Time waited for permission while no other call ran; null if unknown."),
    Column("wait_certainty", "string", "The certainty of the wait: `known`, `inferred` or `unknown`."),
    Column("run_ms", "int64", "Time from start to result, including an unknown wait."),
    Column("hooks_ms", "int64", "Time in hooks."),
    Column("other_files", "int32", "Number of other files that contain a copy of the call."),
    Column("input", "string", "The input as JSON; null without `--content`."),
    Column("result", "string", "The text of the result; null without `--content`."),
    Column("requested_text", "string", "The time of the request as recorded, if it is not `YYYY-MM-DDTHH:MM:SS.mmmZ`."),
    Column("finished_text", "string", "The same for the result."),
    Column("_place", "binary", "Internal: agent and times (MessagePack)."),
    Column("_copies", "binary", "Internal: the copies in all files, if there are several (MessagePack)."),
)
"""The fields of `CallRow`, and facts that depend on other calls or files."""

_SESSIONS = (
    Column("file", "string", "The main transcript of the session."),
    _POSITION,
    Column("id", "string", "The session's id."),
    Column("title", "string", "The title."),
    Column("first_prompt", "string", "The beginning of the first prompt."),
    Column("project", "string", "The working folder, or the name of the project folder."),
    Column("git_branch", "string", "The git branch."),
    Column("git_commit", "string", "The git commit."),
    Column("started", "timestamp[ms]", "The earliest time, in UTC."),
    Column("ended", "timestamp[ms]", "The latest time, in UTC."),
    Column("versions", "list<string>", "Versions of the client."),
    Column("models", "list<string>", "Models."),
    Column("prompts", "int64", "Number of prompts."),
    Column("compactions", "int64", "Number of compactions."),
    Column("calls", "int64", "Number of calls, excluding orphan results."),
    Column("unsuccessful", "int64", "Number of unsuccessful calls, excluding searches that found nothing."),
    Column("agents", "int64", "Number of subagent files."),
    Column("input_tokens", "int64", "Input tokens excluding cached ones, for every client."),
    *_TOKENS,
    Column("wall_ms", "int64", "Time of the main conversation; the sum of the six parts."),
    Column("model_ms", "int64", "Time in which the model was writing."),
    Column("tools_ms", "int64", "Time in which at least one call was running."),
    Column("permission_ms", "int64", "Time spent waiting for permission."),
    Column("hooks_ms", "int64", "Time in hooks while no call ran."),
    Column("idle_ms", "int64", "Time between turns."),
    Column("nothing_recorded_ms", "int64", "Long gaps inside calls."),
    Column("malformed", "int64", "Number of malformed lines."),
    Column("files", "list<string>", "The transcripts of the session and its subagents."),
    Column("forked_from", "string", "The session that this one was forked from."),
    Column("session_ids", "list<string>", "All session ids in the main transcript."),
)

_REQUESTS = (
    _FILE,
    _POSITION,
    Column("id", "string", "The id of the message, or `#n` if the client assigned none."),
    Column("at", "timestamp[ms]", "Time of the first record of the reply, in UTC."),
    Column("model", "string", "The model."),
    Column("input_tokens", "int64", "Input tokens excluding cached ones, for every client."),
    *_TOKENS,
    Column("recorded_input_tokens", "int64", "Input tokens as recorded; some clients include cached ones."),
    Column("cache_write_1h", "int64", "The part of the cache creation tokens that is kept for an hour."),
    Column("fast", "bool", "True if the request was served in fast mode."),
    Column(
        "cost_usd", "double", "The cost that the client recorded, else at list prices; null if the model has no price."
    ),
    Column("session", "string", "The session that the request belongs to."),
    Column("project", "string", "The working folder."),
    Column("agent", "string", "The type of the subagent that made the request, or `main`."),
    Column("agent_id", "string", "The id of that subagent."),
    Column("sidechain", "bool", "True if a subagent made the request in the file of its session."),
    Column("recorded_model", "string", "The model as recorded with the request."),
    Column("at_text", "string", "The time as recorded, if it is not `YYYY-MM-DDTHH:MM:SS.mmmZ`."),
    Column("_copies", "binary", "Internal: the copies in all files, if there are several (MessagePack)."),
)

_FILE_CHANGES = (
    _FILE,
    _POSITION,
    Column("path", "string", "The changed file."),
    Column("kind", "string", "`created`, `edited`, `deleted` or `moved`; null if the change failed."),
    Column("call", "string", "The call that made the change."),
    Column("tool", "string", "Name of the tool."),
    Column("at", "timestamp[ms]", "Time of the result in UTC."),
    Column("session", "string", "The session."),
    Column("project", "string", "The working folder."),
    Column("agent", "string", "The subagent; null for the main agent."),
    Column("added", "int64", "Lines added; null if unknown."),
    Column("removed", "int64", "Lines removed; null if unknown."),
    Column("state", "string", "The state of the call."),
    Column("error_kind", "string", "The reason for the failure."),
)

_FINDINGS = (
    _FILE,
    _POSITION,
    Column("code", "string", "The code (docs/states.md), or `unreadable` for a file that could not be read."),
    Column("severity", "string", "`error`, `warning` or `info`."),
    Column("explanation", "string", "The explanation."),
    Column("acceptance", "string", "The client's reaction on resume."),
    Column("count", "int64", "Number of occurrences."),
    Column("line", "int64", "Line number of the first occurrence; null for the file as a whole."),
    Column("offset", "int64", "Byte offset of that line."),
    Column("length", "int64", "Length of that line in bytes."),
)

_FILES = (
    _FILE,
    _POSITION,
    Column("session", "string", "The session of the file."),
    Column("agent_id", "string", "The subagent that wrote the file."),
    Column("project", "string", "The working folder."),
    Column("started", "timestamp[ms]", "Time of the first record in UTC."),
    Column("ended", "timestamp[ms]", "Time of the last record in UTC."),
    Column("lines", "int64", "Number of lines."),
    Column("malformed", "int64", "Number of malformed lines."),
    Column("calls", "int64", "Number of calls in the file, including copies."),
    Column("requests", "int64", "Number of requests in the file, including copies."),
    Column("problem", "string", "The reason why the file could not be read."),
    Column("_head", "binary", "Internal: the facts about the file (MessagePack)."),
    Column("_time", "binary", "Internal: intervals by agent (MessagePack)."),
    Column("_endings", "binary", "Internal: recovery chains (MessagePack)."),
    Column("_flows", "binary", "Internal: sequences of calls (MessagePack)."),
    Column("_context", "binary", "Internal: sizes of results in the context (MessagePack)."),
    Column("_hooks", "binary", "Internal: runs of hooks (MessagePack)."),
    Column("_agents", "binary", "Internal: started subagents (MessagePack)."),
    Column("_risks", "binary", "Internal: risky commands (MessagePack)."),
    Column("_prompts", "binary", "Internal: prompts (MessagePack); null without `--content`."),
)

TABLES: Mapping[str, Sequence[Column]] = {
    "calls": _CALLS,
    "sessions": _SESSIONS,
    "requests": _REQUESTS,
    "file_changes": _FILE_CHANGES,
    "findings": _FINDINGS,
    "files": _FILES,
}
"""The columns of each table, in order."""


def import_pyarrow() -> Any:
    """Import pyarrow.

    Raises:
        ToolspanError: it is not installed.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise missing_extra(error, "writing tables") or error from error
    return pa


@cache
def arrow_schema(table: str, *, partitions: bool = False) -> pa.Schema:
    """Return the Arrow schema of a table, with its version; with `partitions`, also the partition columns."""
    pa = import_pyarrow()
    columns = (*TABLES[table], *(PARTITION_COLUMNS if partitions else ()))
    return pa.schema(
        _arrow_fields(columns), metadata={"toolspan.table": table, "toolspan.schema_version": str(SCHEMA_VERSION)}
    )


def _arrow_fields(columns: Iterable[Column]) -> list[tuple[str, pa.DataType]]:
    return [(column.name, _arrow_type(column.type)) for column in columns]


def _arrow_type(name: str) -> pa.DataType:
    pa = import_pyarrow()
    if name.startswith("list<"):
        return pa.list_(_arrow_type(name[5:-1]))
    if name in STRUCT_TYPES:
        return pa.struct(_arrow_fields(STRUCT_TYPES[name]))
    return pa.timestamp("ms") if name == "timestamp[ms]" else pa.type_for_alias(name)


def make_arrow_table(table: str, columns: Mapping[str, Sequence[Any]]) -> pa.Table:
    """Convert columns to an Arrow table with partition columns, sorted by partition, file and position.

    Invalid Unicode is replaced and numbers over 64 bits are omitted, because Arrow cannot store them.
    """
    pa = import_pyarrow()
    schema = arrow_schema(table, partitions=True)
    arrays = []
    for field in schema:
        values = columns.get(field.name) or [None] * len(columns["file"])
        try:
            arrays.append(pa.array(values, field.type))
        except (UnicodeEncodeError, OverflowError, pa.ArrowInvalid):
            arrays.append(pa.array(map(storable, values), field.type))
    order = [(name, "ascending") for name in ("client", "day", "file", "position")]
    return pa.Table.from_arrays(arrays, schema=schema).sort_by(order)


_INT64 = 1 << 63


def storable(value: Any) -> Any:
    """Replace lone surrogates and integers over 64 bits, which a column cannot store."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        return None
    if isinstance(value, dict):
        return {name: storable(item) for name, item in value.items()}
    return type(value)(map(storable, value)) if isinstance(value, list | tuple) else value
