"""The interface of a transcript format, and of its readers.

A format is one folder: its `__init__.py` holds a subclass of `TranscriptFormat`, and `registry.py` has one line for
it. Code outside `formats` asks that object and never compares client names. A format's `__init__.py` imports its
other modules only when a method needs them, so that listing all formats is cheap.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

from msgspec import Struct

from toolspan.errors import SourceError, ToolspanError
from toolspan.formats.jsonl import JsonLine, LineChunk
from toolspan.formats.pairing import Branches
from toolspan.formats.source import Source
from toolspan.types.ids import CallId, SourceLocation
from toolspan.types.session import Finding, Message, SessionInfo, Tokens
from toolspan.types.span import LineCounts, Span

if TYPE_CHECKING:
    from toolspan.formats.checks import LineChecker, ResumeBehavior
    from toolspan.types.inputs import ToolInput


FileRole = Literal["session", "agent", "other"]


class FileName(NamedTuple):
    """The meaning of a transcript's path."""

    role: FileRole
    stem: str
    """The part of the name that identifies the session or subagent."""
    agent_id: str | None
    session_id: str | None
    """The session that the file belongs to, if the path names it."""
    project: str | None


class AgentOrigin(NamedTuple):
    """Facts about a subagent from a file beside its transcript."""

    starter_call: str | None = None
    role: str | None = None


class RunningProcess(Struct, frozen=True, kw_only=True):
    """A running client process, as the client itself lists it."""

    pid: int
    session_id: str
    cwd: str | None = None
    version: str | None = None
    started_ms: float | None = None
    process_start: str | None = None
    """The start time of the process in the unit of the operating system; detects reused process ids."""
    status: str | None = None
    """`busy`, `waiting` or `idle`."""
    status_ms: float | None = None
    waiting_for: str | None = None


class RepairChange(Struct, frozen=True):
    """A change that repair made."""

    code: str
    """The finding code."""
    line: int
    """The line in the original; 0 if the change concerns more than one line."""
    words: str
    count: int = 1


class RepairResult(Struct, frozen=True, kw_only=True):
    """The outcome of a repair."""

    original: Path
    changes: list[RepairChange]
    record_count: int
    """Number of records of the main conversation in the new session."""
    session_id: str | None
    """The new session; None if nothing had to be changed or written."""
    path: Path | None
    cwd: str | None
    """The session's working folder."""


class TranscriptContent(Struct, frozen=True, kw_only=True):
    """The calls and messages of one file, with everything a timeline needs to order them."""

    file: str
    agent_id: str | None
    """The subagent that wrote the file; None for the main conversation."""
    spans: Sequence[Span]
    messages: Sequence[Message]
    inline_agent_keys: Mapping[int, str] = {}
    """Keys of subagents whose lines are in this file, by line number: an agent id, the id of the call that started
    it, or the uuid of its first line."""
    branches: Branches
    agent_prompts: Mapping[str, str] = {}
    """Prompts of the calls that may start a subagent, by call id."""
    starter_call: str | None = None
    """The call that started the subagent, if a side file names it."""
    role: str | None = None
    """The type of the subagent."""


class CallPairing(Protocol):
    """The calls of one file."""

    @property
    def agent_starters(self) -> dict[str, str]:
        """Ids of the calls that started subagents, by agent id."""
        ...

    def success_keys(self) -> list[str]:
        """Return a key for each successful call; copies in other files have the same key."""
        ...

    def consume_spans(self, branches: Branches) -> Iterator[Span]:
        """Yield every call in the order of the requests, and free it."""
        ...


class LiveCalls(Protocol):
    """The calls of a file that still grows."""

    @property
    def agent_starters(self) -> dict[str, str]:
        """Ids of the calls that started subagents, by agent id."""
        ...

    def changed_spans(self) -> list[Span]:
        """Return the calls that may have changed since this was last called, in the order of the requests."""
        ...

    def mark_started(self, call_id: CallId) -> None:
        """Note that something outside the file shows that a call has started."""
        ...

    def finish(self, branches: Branches) -> None:
        """Treat the file as complete: open calls become unanswered."""
        ...


class SessionFacts(Protocol):
    """Facts about the conversation as a whole, collected while reading."""

    @property
    def message_tokens(self) -> dict[str, Tokens]:
        """Tokens by message id."""
        ...

    @property
    def tokens(self) -> Tokens:
        """All tokens, each message once."""
        ...

    @property
    def raw_sum(self) -> Tokens:
        """The sum over all records, repeated ones included."""
        ...

    def build_info(self, stem: str) -> SessionInfo:
        """Return the facts, for a file whose name without endings is `stem`."""
        ...


class TranscriptReader(ABC):
    """Reads one file chunk by chunk. Damage becomes findings; no content of a file raises."""

    source: Source
    findings: list[Finding]
    pairing: CallPairing
    session_info: SessionFacts

    @property
    @abstractmethod
    def counts(self) -> LineCounts:
        """Numbers of lines read so far."""

    @property
    def role(self) -> str | None:
        """The type of the subagent that wrote the file, if the file records it."""
        return None

    @abstractmethod
    def add_chunk(self, chunk: LineChunk) -> None:
        """Read the next lines."""

    @abstractmethod
    def finish(self) -> None:
        """Handle the end of the file."""

    @abstractmethod
    def handle_source_error(self, error: SourceError) -> None:
        """Record that the rest of the file cannot be read.

        Raises:
            SourceError: nothing was read before.
        """

    @abstractmethod
    def branches(self) -> Branches:
        """Return the branch of every line."""

    @abstractmethod
    def messages(self) -> Iterator[Message]:
        """Read the messages between the calls from the file again."""

    def messages_in(self, lines: Sequence[tuple[int, bytes]]) -> Iterator[Message]:
        """Yield at least the messages in some lines, given with their offsets; for `search`."""
        return self.messages()

    @abstractmethod
    def lines(self) -> Iterator[JsonLine]:
        """Read the lines, or the items of a document, from the file again."""

    @abstractmethod
    def records(self) -> Iterator[tuple[Any, SourceLocation]]:
        """Read the decoded lines with their places from the file again; their type is the format's own."""

    def read_content(self, info: SessionInfo, spans: Sequence[Span]) -> TranscriptContent:
        """Return calls and messages for a timeline, in one more pass over the file.

        A subagent's file may begin with a copy of the history it was started with; that part is left out.

        Raises:
            SourceError: the file can no longer be read.
        """
        agent_id = info.agent_id
        return TranscriptContent(
            file=self.source.name,
            agent_id=agent_id,
            spans=[span for span in spans if agent_id is None or span.call.agent_id == agent_id],
            messages=[message for message in self.messages() if agent_id is None or message.agent_id == agent_id],
            branches=self.branches(),
            role=self.role,
        )

    @abstractmethod
    def make_line_checker(self, spans: Sequence[Span], *, roundtrip: bool) -> LineChecker[Any]:
        """Return the checker for drift, UTF-8 and re-encoding of the file's lines."""

    def check(self, spans: Sequence[Span]) -> Iterator[Finding]:
        """Yield the findings that only this format can have, such as broken parent links."""
        return iter(())


class LiveReader(NamedTuple):
    """A reader for a growing file, and its calls."""

    reader: TranscriptReader
    calls: LiveCalls


class TranscriptFormat(ABC):
    """One client's transcripts: where they are, how to recognise, read, check and repair them."""

    name: ClassVar[str]
    """The value of `--dialect` and of `dialect` in JSON."""
    title: ClassVar[str]
    """The client's display name."""
    home_variable: ClassVar[str]
    """The environment variable that moves the client's folder."""
    file_globs: ClassVar[tuple[str, ...]]
    """Patterns for ripgrep that every transcript's name matches; other files may match too."""

    # Detection

    prefixes: ClassVar[tuple[bytes, ...]] = ()
    """Beginnings of files that only this format has; a fast path."""
    hint: ClassVar[re.Pattern[bytes] | None] = None
    """Matches somewhere in the first bytes of every file of this format. None for the default format."""

    @abstractmethod
    def is_record(self, fields: dict[str, object], line: bytes) -> bool:
        """Return whether a decoded line is a record of this client."""

    def is_long_record(self, beginning: bytes) -> bool:
        """Return whether a line that is too long to be decoded for detection is a record of this client."""
        return False

    def is_document(self, beginning: bytes) -> bool:
        """Return whether a file is one JSON document of this client, rather than lines."""
        return False

    reads_whole_files: ClassVar[bool] = False
    """True if a line cannot be read by itself: states, subagents and messages need the whole file."""

    # Location

    compresses_files: ClassVar[bool] = False
    """True if the client replaces old files by compressed ones (`.zst`); for a while both may exist."""

    @abstractmethod
    def roots(self) -> list[Path]:
        """Return the folders in which this user's client keeps transcripts; they may not exist."""

    @abstractmethod
    def parse_path(self, folders: Sequence[str], name: str) -> FileName | None:
        """Return the meaning of a path, or None if its name is not one that this client gives."""

    def owning_session(self, path: Path, name: FileName) -> str | None:
        """Return the session of a file; a subagent's file belongs to the session that started it."""
        return name.session_id

    def as_agent_of(self, path: Path, name: FileName, session: str) -> FileName | None:
        """Return the name of a subagent's file if only its content shows that it belongs to a session."""
        return None

    @abstractmethod
    def has_working_folder(self, path: Path, name: FileName, folder: str) -> bool:
        """Return whether a session worked in a folder."""

    def agent_origin(self, path: Path) -> AgentOrigin:
        """Return what is recorded beside a subagent's file."""
        return AgentOrigin()

    def agent_paths(self, path: Path, started_agents: Sequence[str]) -> list[Path]:
        """Return the files of subagents that a growing session has started so far.

        May do I/O; `started_agents` are the ids of subagents that the session's calls name.

        Raises:
            SourceError: a folder cannot be listed.
        """
        return []

    def agents_folder(self, path: Path) -> Path | None:
        """Return the folder in which a session's subagents write files, if it is not the session's own."""
        return None

    # Reading

    @abstractmethod
    def make_reader(self, source: Source, chunk: LineChunk | None, *, calls_only: bool = False) -> TranscriptReader:
        """Return a reader for a file that begins with `chunk`; `calls_only` leaves out tokens, titles and prompts."""

    def make_live_reader(self, source: Source) -> LiveReader | None:
        """Return a reader for a file that still grows, or None if such files can only be read as a whole."""
        return None

    @abstractmethod
    def narrow_input(self, tool: str, data: bytes) -> ToolInput:
        """Return a tool's input as its own type, or `UnknownInput`. Never raises."""

    @abstractmethod
    def narrow_result(self, tool: str, data: bytes) -> object:
        """Return a structured result, or its equivalent, as its tool's type. Never raises."""

    def input_types(self) -> Sequence[type[Struct]]:
        """Return the types of this client's tool inputs beyond those in `toolspan.types.inputs`."""
        return ()

    # Facts that analyses depend on

    states_are_local: ClassVar[bool] = False
    """True if a clear success or failure does not depend on other lines of the file."""
    records_error_flag: ClassVar[bool] = False
    """True if results carry an error flag."""
    shell_keeps_folder: ClassVar[bool] = True
    """True if each command starts in the session's folder, or in the one it names."""
    patches_are_partial: ClassVar[bool] = False
    """True if a failed patch may have changed some of its files."""
    inlines_agents: ClassVar[bool] = False
    """True if old files hold the lines of subagents, identified by the call that started them."""
    agents_inherit_calls: ClassVar[bool] = True
    """True if a subagent's file may begin with calls of the conversation that started it."""
    has_runtime_profiles: ClassVar[bool] = False
    """True if `toolspan.runtime.profiles` describes this client's versions, and `toolspan.tools` has its tools."""
    is_repairable: ClassVar[bool] = False
    """True if `repair` can make a sound copy of a damaged session."""

    @property
    def resume_behavior(self) -> Mapping[str, ResumeBehavior]:
        """Observed behaviour of the client when it resumes a damaged file, by finding code."""
        return {}

    def running_processes(self, home: Path | None = None) -> list[RunningProcess]:
        """Return the running processes that the client lists, if it keeps such a list."""
        return []

    def repair(self, path: Path, *, write: bool = True) -> RepairResult:
        """Write a sound copy of a damaged session; with `write=False` only return the changes.

        Raises:
            SourceError: it cannot be read.
            ToolspanError: sessions of this format cannot be repaired.
            OSError: the copy cannot be written.
        """
        raise ToolspanError(f"{path}: sessions of {self.title} cannot be repaired")
