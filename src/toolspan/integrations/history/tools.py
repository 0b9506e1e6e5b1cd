"""The tools through which an agent reads recorded sessions. Start at `history_tools`.

The docstrings are the descriptions that a model reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Struct
from pydantic import Field

from toolspan.archive import Archive, Filter
from toolspan.errors import ToolError, ToolspanError
from toolspan.integrations.history import answers
from toolspan.integrations.history.quotes import DEFAULT_TOKENS, MAX_TOKENS, MIN_TOKENS
from toolspan.runtime.tool import Tool, ToolHints, tool

Limit = Annotated[int, Field(ge=1, le=50)]
Skip = Annotated[int, Field(ge=0)]
Budget = Annotated[int | None, Field(ge=MIN_TOKENS, le=MAX_TOKENS)]
Where = Literal["all", "prompts", "answers", "thinking", "inputs", "results"]

_TITLES = {
    "search_history": "Search recorded sessions",
    "list_sessions": "List recorded sessions",
    "show_session": "Show a recorded session",
    "show_call": "Show a recorded tool call",
    "find_errors": "Find errors seen before and their fixes",
    "file_history": "Show who changed a file",
    "why": "Explain why a call was allowed or denied",
}


def history_tools(*sources: str | PathLike[str], max_tokens: int = DEFAULT_TOKENS) -> tuple[Tool, ...]:
    """Return read-only tools that answer from recorded sessions, for a `Session` or an MCP server.

    `sources` are those of `Archive`: files, folders or sessions, by default all that this user's clients recorded. An
    answer costs at most about `max_tokens`, unless a call sets another limit.
    """
    reader = _Reader(sources, max_tokens)
    functions: Sequence[tuple[Callable[..., object], type[Struct]]] = (
        (reader.search_history, answers.SearchAnswer),
        (reader.list_sessions, answers.SessionList),
        (reader.show_session, answers.SessionPage),
        (reader.show_call, answers.CallPage),
        (reader.find_errors, answers.SeenErrors),
        (reader.file_history, answers.FileHistoryAnswer),
        (reader.why, answers.PermissionAnswer),
    )
    return tuple(_make_tool(function, answer_type) for function, answer_type in functions)


def _make_tool(function: Callable[..., object], answer_type: type[Struct]) -> Tool:
    made = tool(concurrent=True, read_only=True, idempotent=True)(function)
    hints = ToolHints(_TITLES[made.name], read_only=True, idempotent=True)
    return replace(made, hints=hints, output_schema=answer_schema(answer_type), output_limit=None)


def answer_schema(answer_type: type[Struct]) -> Mapping[str, object]:
    """Return the JSON schema of an answer, whose own schema is at the top."""
    (schema,), components = msgspec.json.schema_components([answer_type], ref_template="#/$defs/{name}")
    name = str(schema["$ref"]).rpartition("/")[2]
    top: dict[str, Any] = dict(components.pop(name))
    return {**top, "$defs": components} if components else top


class _Reader:
    """The functions of the tools. Questions are answered one after another."""

    def __init__(self, sources: Sequence[str | PathLike[str]], max_tokens: int) -> None:
        self._sources = sources
        self._max_tokens = max_tokens
        self._lock = threading.Lock()

    def _ask(self, question: Callable[[Archive, int], Struct], max_tokens: int | None) -> object:
        try:
            with self._lock:
                answer = question(Archive(*self._sources), max_tokens or self._max_tokens)
        except ToolspanError as error:
            raise ToolError(str(error)) from error
        return msgspec.json.decode(msgspec.json.encode(answer))  # lists instead of tuples, as the schema says

    def search_history(
        self,
        query: str,
        where: Where = "all",
        regex: bool = False,  # noqa: FBT001 - the names of inputs
        project: str | None = None,
        since: str | None = None,
        until: str | None = None,
        session: str | None = None,
        tool: str | None = None,
        skip: Skip = 0,
        limit: Limit = 10,
        max_tokens: Budget = None,
    ) -> object:
        """Search all recorded sessions of coding agents for calls and messages that contain all words of the query.

        Args:
            query: The words, in any order, or a regular expression if `regex` is true.
            where: The part of a session to search: the user's prompts, the model's answers or thinking, or the inputs
                or results of tool calls.
            regex: Treat the query as a regular expression.
            project: Search only sessions whose folder contains this text.
            since: Search only from this time on, such as `7d`, `yesterday` or `2026-11-01`.
            until: Search only up to this time, whose day is included.
            session: Search only the session whose id begins with this.
            tool: Search only calls of this tool, such as `Bash`.
            skip: The number of matches to leave out; `next_skip` of the previous answer continues it.
            limit: The largest number of matches.
            max_tokens: The largest size of the answer.
        """
        words = {"project": project, "since": since, "until": until, "session": session, "tool": tool}
        return self._ask(
            lambda archive, budget: answers.search_history(
                archive, Filter.parse(**words), query, where=where, regex=regex, skip=skip, limit=limit,
                max_tokens=budget,
            ),
            max_tokens,
        )  # fmt: skip

    def list_sessions(
        self,
        about: str | None = None,
        project: str | None = None,
        client: str | None = None,
        since: str | None = None,
        until: str | None = None,
        skip: Skip = 0,
        limit: Limit = 15,
        max_tokens: Budget = None,
    ) -> object:
        """List recorded sessions of coding agents, newest first, with their title, folder and number of calls.

        Args:
            about: List only sessions whose title, first prompt or folder contains these words.
            project: List only sessions whose folder contains this text.
            client: List only sessions of this client, such as `claude`, `codex` or `gemini`.
            since: List only sessions from this time on, such as `7d`, `yesterday` or `2026-11-01`.
            until: List only sessions up to this time, whose day is included.
            skip: The number of sessions to leave out; `next_skip` of the previous answer continues it.
            limit: The largest number of sessions.
            max_tokens: The largest size of the answer.
        """
        words = {"about": about, "project": project, "client": client, "since": since, "until": until}
        return self._ask(
            lambda archive, budget: answers.list_sessions(
                archive, Filter.parse(**words), skip=skip, limit=limit, max_tokens=budget
            ),
            max_tokens,
        )

    def show_session(self, session: str, skip: int = 0, max_tokens: Budget = None) -> object:
        """Show the prompts, answers and tool calls of one recorded session in order, page by page.

        Args:
            session: The beginning of the session's id.
            skip: The number of entries to leave out; `next_skip` of the previous answer continues it. A negative
                number counts from the end: -20 shows the last entries.
            max_tokens: The largest size of the answer.
        """
        return self._ask(
            lambda archive, budget: answers.show_session(archive, session, skip=skip, max_tokens=budget), max_tokens
        )

    def show_call(self, call: str, max_tokens: Budget = None) -> object:
        """Show one recorded tool call: its input, result and diff, the prompt it served, and how it was recovered.

        Args:
            call: The beginning of the call's id.
            max_tokens: The largest size of the answer. The middle of longer texts is left out.
        """
        return self._ask(lambda archive, budget: answers.show_call(archive, call, max_tokens=budget), max_tokens)

    def find_errors(
        self,
        text: str = "",
        tool: str | None = None,
        project: str | None = None,
        since: str | None = None,
        skip: Skip = 0,
        limit: Limit = 5,
        max_tokens: Budget = None,
    ) -> object:
        """Find out whether an error happened in an earlier session, how often, and which call or edit fixed it.

        Args:
            text: The output of the failed call, or words of its message. Paths and numbers may differ. Without it,
                the latest errors are listed.
            tool: Find only errors of this tool, such as `Bash`.
            project: Find only errors in sessions whose folder contains this text.
            since: Find only errors from this time on, such as `30d`.
            skip: The number of errors to leave out; `next_skip` of the previous answer continues it.
            limit: The largest number of errors.
            max_tokens: The largest size of the answer.
        """
        words = {"tool": tool, "project": project, "since": since}
        return self._ask(
            lambda archive, budget: answers.find_errors(
                archive, Filter.parse(**words), text, skip=skip, limit=limit, max_tokens=budget
            ),
            max_tokens,
        )

    def file_history(
        self,
        path: str,
        content_before: str | None = None,
        session: str | None = None,
        since: str | None = None,
        skip: Skip = 0,
        limit: Limit = 10,
        max_tokens: Budget = None,
    ) -> object:
        """Show which recorded calls changed a file, newest first, with diffs, or its content before one of them.

        Args:
            path: The path of the file, or the end of it.
            content_before: Return the content of the file just before the call with this id, instead of the changes.
            session: Show only changes of the session whose id begins with this.
            since: Show only changes from this time on, such as `7d`.
            skip: The number of changes to leave out; `next_skip` of the previous answer continues it.
            limit: The largest number of changes.
            max_tokens: The largest size of the answer.
        """
        call_filter = {"session": session, "since": since}

        def ask(archive: Archive, budget: int) -> Struct:
            words = Filter.parse(**call_filter)
            if content_before is not None:
                return answers.file_content(archive, words, path, content_before, max_tokens=budget)
            return answers.file_history(archive, words, path, skip=skip, limit=limit, max_tokens=budget)

        return self._ask(ask, max_tokens)

    def why(self, call: str, max_tokens: Budget = None) -> object:
        """Explain who or which rule allowed or denied a recorded tool call.

        Args:
            call: The beginning of the call's id.
            max_tokens: The largest size of the answer.
        """
        return self._ask(lambda archive, budget: answers.why(archive, call, max_tokens=budget), max_tokens)
