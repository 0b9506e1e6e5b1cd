"""The columns of the tables, with their types and meanings. docs/tables.md is generated from this module.

Every table also has the partition columns `dialect` and `day`, which are in the paths and not in the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from toolspan.errors import ToolspanError

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 1
"""The version, incremented when the name, type or meaning of a column changes, but not for new columns."""


class Column(NamedTuple):
    """A column of a table."""

    name: str
    type: str
    meaning: str


PARTITION_COLUMNS = (
    Column("dialect", "string", "The client that wrote the transcript: `claude`, `codex` or `gemini`."),
    Column("day", "string", "The day in UTC, `YYYY-MM-DD`, or `unknown`."),
)

_URI = Column("uri", "string", "The transcript, as it was named or found.")
_TOKENS = (
    Column("output_tokens", "int64", "Output tokens."),
    Column("cache_creation_input_tokens", "int64", "Tokens written to the cache."),
    Column("cache_read_input_tokens", "int64", "Tokens read from the cache."),
)
_POSITION = Column("position", "int32", "The row number within the file, from 0.")

_CALLS = (
    _URI,
    _POSITION,
    Column("offset", "int64", "Byte offset of the line with the request (of an orphan: the result)."),
    Column("length", "int64", "Length of that line in bytes."),
    Column("result_offset", "int64", "Byte offset of the line with the result."),
    Column("result_length", "int64", "Length of that line in bytes."),
    Column("id", "string", "The call's id. Begins with `#` if the client assigned none."),
    Column("tool", "string", "Name of the tool; null for an orphan result."),
    Column("kind", "string", "The kind of tool: `shell`, `read`, `edit`, `mcp`, …"),
    Column("mcp_server", "string", "The MCP server, for tools named `mcp__SERVER__TOOL`."),
    Column("state", "string", "The final state (docs/states.md)."),
    Column("error_kind", "string", "The reason for the failure; null if the call succeeded."),
    Column("error_group", "string", "The id of the group of failures with the same cause."),
    Column("error_program", "string", "The program that failed, for commands."),
    Column("error_text", "string", "The line of the output that best explains the cause."),
    Column("message", "string", "The beginning of the error text, without tags."),
    Column("is_error", "bool", "The error flag as recorded. Most successful calls have none."),
    Column("exit_code", "int64", "The exit code found in the result text."),
    Column("retry", "string", "The recommended reaction to the failure."),
    Column("recovered", "bool", "True if later calls recovered from the failure; null if nothing failed."),
    Column("recovered_by", "string", "The name of the recovery chain."),
    Column("session", "string", "The session that the call belongs to."),
    Column("project", "string", "The working folder of the file that contains the call."),
    Column("agent", "string", "The subagent that made the request; null for the main agent."),
    Column("parent_call", "string", "The call that started that subagent."),
    Column("started_agent", "string", "The subagent that the call started."),
    Column("batch", "string", "The id of the assistant message. Calls with the same id form a batch."),
    Column("prompt", "string", "The prompt that began the turn."),
    Column("requested", "timestamp[ms]", "Time of the request in UTC."),
    Column("finished", "timestamp[ms]", "Time at which the client wrote the result, in UTC."),
    Column("duration_ms", "int64", "Time from request to result, including any wait for permission."),
    Column("wait_ms", "int64", "Time waited for permission while no other call ran; null if unknown."),
    Column("wait_certainty", "string", "The certainty of the wait: `known`, `inferred` or `unknown`."),
    Column("run_ms", "int64", "Time from start to result, including an unknown wait."),
    Column("hooks_ms", "int64", "Time in hooks."),
    Column("took_ms", "int64", "Time from request to result; null if the result was fabricated later."),
    Column("permission", "string", "The recorded permission decision."),
    Column(
        "hooks", "list<hook>", "Hooks that ran for the call: point, name, outcome, command, exit_code, duration_ms."
    ),
    Column("target", "string", "The subject of the call: a path, command, pattern or address."),
    Column("background", "bool", "True if the call returned while its work continued."),
    Column("background_task", "string", "The background task that the call started."),
    Column("background_outcome", "string", "The outcome of that task, if reported."),
    Column("branch", "string", "`active`, `compacted` (before a compaction) or `abandoned` (by a rewind)."),
    Column("paired", "bool", "True if the file contains both the request and the result."),
    Column("ambiguous", "bool", "True if the transcript allows another interpretation."),
    Column("synthetic", "bool", "True if the client fabricated the result to repair the conversation."),
    Column("deferred", "bool", "True if a hook deferred the call."),
    Column("truncated", "bool", "True if the model saw only part of the output."),
    Column("copies", "int64", "Number of times the request or result is repeated in the file."),
    Column("other_files", "int32", "Number of other files that contain a copy of the call."),
    Column("evidence", "list<evidence>", "The evidence for the state: each rule with the text it matched."),
    Column("request_line", "int64", "Line number of the request, from 1."),
    Column("result_line", "int64", "Line number of the result, from 1."),
    Column("input", "string", "The input as JSON; null without `--content`."),
    Column("result", "string", "The text of the result; null without `--content`."),
    Column("requested_text", "string", "The time of the request as recorded, if it is not `YYYY-MM-DDTHH:MM:SS.mmmZ`."),
    Column("finished_text", "string", "The same for the result."),
    Column("_place", "binary", "Internal: agent and pauses (MessagePack)."),
    Column("_copies", "binary", "Internal: the copies in all files, if there are several (MessagePack)."),
)

_SESSIONS = (
    Column("uri", "string", "The main transcript of the session."),
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
    Column("failed", "int64", "Number of failed calls, excluding searches that found nothing."),
    Column("agents", "int64", "Number of subagent files."),
    Column("input_tokens", "int64", "Input tokens as recorded; some clients include cached ones."),
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
    _URI,
    _POSITION,
    Column("id", "string", "The id of the message, or `#n` if the client assigned none."),
    Column("at", "timestamp[ms]", "Time of the first record of the reply, in UTC."),
    Column("model", "string", "The model."),
    Column("input_tokens", "int64", "Input tokens excluding cached ones, for every client."),
    *_TOKENS,
    Column("recorded_input_tokens", "int64", "Input tokens as recorded; some clients include cached ones."),
    Column("cache_write_1h", "int64", "The part of the cache creation tokens that is kept for an hour."),
    Column("fast", "bool", "True if the request was served in fast mode."),
    Column("cost_usd", "double", "The cost at list prices; null if the model has no price."),
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
    _URI,
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
    _URI,
    _POSITION,
    Column("code", "string", "The code (docs/findings.md), or `unreadable` for a file that could not be read."),
    Column("severity", "string", "`error`, `warning` or `info`."),
    Column("explanation", "string", "The explanation."),
    Column("client", "string", "The client's reaction on resume."),
    Column("count", "int64", "Number of occurrences."),
    Column("line", "int64", "Line number of the first occurrence; null for the file as a whole."),
    Column("offset", "int64", "Byte offset of that line."),
    Column("length", "int64", "Length of that line in bytes."),
)

_FILES = (
    _URI,
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
        raise ToolspanError("tables need pyarrow: run pip install 'toolspan[tables]'") from error
    return pa


@cache
def arrow_schema(table: str, *, partitions: bool = False) -> pa.Schema:
    """Return the Arrow schema of a table, with its version; with `partitions`, also the partition columns."""
    pa = import_pyarrow()
    hook = {"point": "string", "name": "string", "outcome": "string", "command": "string", "exit_code": "int64"}
    types = {
        "timestamp[ms]": pa.timestamp("ms"),
        "list<string>": pa.list_(pa.string()),
        "list<evidence>": pa.list_(pa.struct([("rule", pa.string()), ("text", pa.string())])),
        "list<hook>": pa.list_(pa.struct([*hook.items(), ("duration_ms", pa.float64())])),
    }
    columns = (*TABLES[table], *(PARTITION_COLUMNS if partitions else ()))
    fields = [(column.name, types.get(column.type) or pa.type_for_alias(column.type)) for column in columns]
    return pa.schema(fields, metadata={"toolspan.table": table, "toolspan.schema_version": str(SCHEMA_VERSION)})


def make_arrow_table(table: str, columns: Mapping[str, Sequence[Any]]) -> pa.Table:
    """Convert columns to an Arrow table with partition columns, sorted by partition, file and position.

    Invalid Unicode is replaced and numbers over 64 bits are omitted, because Arrow cannot store them.
    """
    pa = import_pyarrow()
    schema = arrow_schema(table, partitions=True)
    arrays = []
    for field in schema:
        values = columns.get(field.name) or [None] * len(columns["uri"])
        try:
            arrays.append(pa.array(values, field.type))
        except (UnicodeEncodeError, OverflowError, pa.ArrowInvalid):
            arrays.append(pa.array(map(storable, values), field.type))
    order = [(name, "ascending") for name in ("dialect", "day", "uri", "position")]
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
