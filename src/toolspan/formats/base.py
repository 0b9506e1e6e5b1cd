"""The interface of a transcript format, and of its readers.

A format is one folder: its `__init__.py` contains a subclass of `TranscriptFormat`, and `registry.py` has one line
for it. Code outside `formats` uses that object and never compares client names. A format's `__init__.py` imports its
other modules only when a method needs them, so that listing all formats is cheap.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

from msgspec import Struct, field

from toolspan.errors import ToolspanError

if TYPE_CHECKING:
    from toolspan.formats.checks import ResumeBehavior
    from toolspan.formats.container import Member
    from toolspan.formats.conversation import Conversation, PortableCall
    from toolspan.formats.jsonl import LineChunk
    from toolspan.formats.lines import TranscriptReader
    from toolspan.formats.pairing import Branches, LiveCallPairing
    from toolspan.formats.source import Source
    from toolspan.types.ids import SourceLocation
    from toolspan.types.inputs import ToolInput
    from toolspan.types.session import Message, MessageAuthor, RequestUsage, SessionInfo, Tokens
    from toolspan.types.span import Span


FileRole = Literal["session", "agent", "other"]
ReadScope = Literal["all", "requests"]
"""The part of a transcript that a reader must collect. `requests` omits calls, except that they started subagents."""


class FileName(NamedTuple):
    """The session and role that a transcript's path encodes."""

    role: FileRole
    stem: str
    """The part of the name that identifies the session or subagent."""
    agent_id: str | None
    session_id: str | None
    """The session to which the file belongs, if the path contains its id."""
    project: str | None


class AgentOrigin(NamedTuple):
    """Facts about a subagent from the metadata file beside its transcript."""

    starter_call: str | None = None
    role: str | None = None


class RunningProcess(Struct, frozen=True, kw_only=True, rename="camel"):
    """A running client process, as listed by the client itself."""

    pid: int
    session_id: str
    cwd: str | None = None
    version: str | None = None
    started_ms: float | None = field(default=None, name="startedAt")
    process_start: str | None = field(default=None, name="procStart")
    """The start time of the process in the operating system's unit, used to detect reused process ids."""
    status: str | None = None
    """`busy`, `waiting` or `idle`."""
    status_ms: float | None = field(default=None, name="statusUpdatedAt")
    waiting_for: str | None = None


class RepairChange(Struct, frozen=True):
    """A change made by a repair."""

    code: str
    line: int
    """The line in the original file, or 0 if the change concerns several lines."""
    words: str
    count: int = 1


class RepairResult(Struct, frozen=True, kw_only=True):
    """The outcome of a repair."""

    original: Path
    changes: list[RepairChange]
    record_count: int
    """The number of records in the new session's main conversation."""
    session_id: str | None
    """The id of the new session, or None if nothing was changed or written."""
    path: Path | None
    cwd: str | None


class WrittenSession(NamedTuple):
    """A session that a format has written."""

    id: str
    path: Path


class FileBackup(NamedTuple):
    """A copy of a file that the client kept before it changed the file."""

    path: str
    """The path of the file: absolute, or relative to the client's working folder."""
    copy: Path | None
    """The copy, or None if the file did not exist."""
    at: str
    line: int
    """The line that records the copy."""


TextSide = Literal["input", "result", "toolUseResult", "message"]
"""A part of a transcript with text."""


class LineText(NamedTuple):
    """A text in one line of a transcript."""

    side: TextSide
    text: str
    call: str | None
    voice: MessageAuthor | None
    at: str | None
    session: str | None
    agent: str | None
    cwd: str | None
    offset: int
    length: int


class PluginPlaces(NamedTuple):
    """The files of a client that name MCP servers and hold skills."""

    servers: Path
    """A JSON file, or a TOML file with tables `mcp_servers.NAME`."""
    skills: Path
    key: str = "mcpServers"
    """The key of the servers in a JSON file."""


class TranscriptContent(Struct, frozen=True, kw_only=True):
    """The calls and messages in one file, with everything needed to order them in a timeline."""

    file: str
    agent_id: str | None
    """The subagent that wrote the file; None for the main conversation."""
    spans: Sequence[Span]
    messages: Sequence[Message]
    inline_agent_keys: Mapping[int, str] = {}
    """Keys of subagents whose lines are in this file, by line number.

    A key is an agent id, the id of the call that started the subagent, or the uuid of its first line.
    """
    branches: Branches
    agent_prompts: Mapping[str, str] = {}
    starter_call: str | None = None
    role: str | None = None


class SessionFacts(Protocol):
    """Facts about the whole conversation, collected while reading."""

    @property
    def message_tokens(self) -> dict[str, Tokens]:
        """Tokens by message id."""
        ...

    @property
    def requests(self) -> dict[str, RequestUsage]:
        """Model requests by message id."""
        ...

    @property
    def tokens(self) -> Tokens:
        """All tokens, counting each message once."""
        ...

    def build_info(self, stem: str) -> SessionInfo:
        """Return the collected facts; `stem` is the file name without suffixes."""
        ...


class ContentCollector(ABC):
    """Collector of the messages and subagent links that a timeline needs besides calls."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.inline_agent_keys: dict[int, str] = {}
        """See `TranscriptContent`."""
        self.agent_prompts: dict[str, str] = {}
        """Prompts of calls that start subagents, by call id."""

    @abstractmethod
    def add(self, record: Any, place: SourceLocation) -> None:
        """Add the next record, after the reader has processed it."""

    @abstractmethod
    def changed_requests(self) -> dict[str, RequestUsage]:
        """Return the model requests that are new or changed since the last invocation."""


class LiveReader(NamedTuple):
    """A reader for a growing file, and its calls."""

    reader: TranscriptReader[Any]
    calls: LiveCallPairing[Any]
    content: ContentCollector | None = None
    """A collector for the same file; None if a timeline of this format must be built as a whole."""


class TranscriptFormat(ABC):
    """One client's transcript format: how to locate, recognise, read, check and repair its files."""

    name: ClassVar[str]
    """The name of the client: the value of `--client` and of `client` in JSON."""
    title: ClassVar[str]
    home_variable: ClassVar[str]
    """The environment variable that overrides the client's folder; empty for a format without a folder."""
    home_name: ClassVar[str] = ""
    """The client's folder, relative to the user's home."""
    agent_name: ClassVar[str] = ""
    """The name of the client in trajectories (ATIF), if it differs from `name`."""
    file_globs: ClassVar[tuple[str, ...]]
    """Glob patterns for ripgrep that match every transcript; they may match other files too."""

    def load_module(self, name: str) -> Any:
        """Import a module of the format."""
        return import_module(f"{type(self).__module__}.{name}")

    # Detection

    prefixes: ClassVar[tuple[bytes, ...]] = ()
    """Byte prefixes that only files in this format have; a fast path."""
    hint: ClassVar[re.Pattern[bytes] | None] = None
    """A pattern that occurs near the start of every file in this format; None for the default format."""

    @abstractmethod
    def is_record(self, fields: dict[str, object], line: bytes) -> bool:
        """Return whether a decoded line is a record written by this client."""

    def is_long_record(self, beginning: bytes) -> bool:
        """Return whether a line too long to decode during detection is a record written by this client."""
        return False

    def is_document(self, beginning: bytes) -> bool:
        """Return whether a file is a single JSON document written by this client, not a file of lines."""
        return False

    reads_whole_files: ClassVar[bool] = False
    """True if lines cannot be read individually, because states, subagents and messages need the whole file."""

    # Location

    compresses_files: ClassVar[bool] = False
    """True if the client replaces old files with compressed ones (`.zst`); both may exist for a while."""

    def home(self, environ: Mapping[str, str] = os.environ) -> Path:
        """Return the client's folder, with its settings and usually its sessions."""
        named = environ.get(self.home_variable)
        return Path(named).expanduser() if named else Path(environ.get("HOME") or Path.home()) / self.home_name

    @abstractmethod
    def roots(self) -> list[Path]:
        """Return the folders in which the client stores this user's transcripts; they may not exist."""

    @abstractmethod
    def parse_path(self, folders: Sequence[str], name: str) -> FileName | None:
        """Parse a path, or return None if this client does not use such file names."""

    def owning_session(self, path: Path, name: FileName) -> str | None:
        """Return the session to which a file belongs; for a subagent, the session that started it."""
        return name.session_id

    def as_agent_of(self, path: Path | str, name: FileName, session: str) -> FileName | None:
        """Return a file's name as a subagent of `session`, if only its content shows the connection."""
        return None

    def project_folder(self, cwd: str) -> str | None:
        """Return the name of the folder for the sessions of `cwd`, if such folders are named after it."""
        return None

    def has_working_folder(self, path: Path, name: FileName, folder: str) -> bool:
        """Return whether a session worked in a folder: by default, whether its first line has it as `cwd`."""
        from msgspec import json

        from toolspan.formats.source import read_first_line

        return b'"cwd":' + json.encode(folder) in read_first_line(path)

    def agent_origin(self, path: Path) -> AgentOrigin:
        """Return the metadata stored beside a subagent's file."""
        return AgentOrigin()

    def agent_paths(self, path: Path, started_agents: Sequence[str]) -> list[Path]:
        """Return the files of subagents that a growing session has started so far.

        May do I/O; `started_agents` are the subagent ids recorded in the session's calls.

        Raises:
            SourceError: a folder cannot be listed.
        """
        return []

    def agent_places(self, path: Path) -> list[Path]:
        """Return the existing files and folders that may be transcripts of a session's subagents.

        May do I/O. Files whose names do not show the session are opened to see it.
        """
        folder = self.agents_folder(path)
        return [folder] if folder is not None and folder.is_dir() else []

    def agents_folder(self, path: Path) -> Path | None:
        """Return the folder in which a session's subagents write files, if it differs from the session's folder."""
        return None

    side_folders: ClassVar[tuple[str, ...]] = ()
    """The names of folders beside `roots` that hold only files of sessions, such as copies of edited files."""

    def side_paths(self, path: Path) -> list[Path]:
        """Return existing files and folders that belong to a transcript, such as long results; folders may hold others.

        May do I/O.
        """
        return []

    def orphaned_side_paths(self, root: Path) -> list[Path]:
        """Return files and folders of sessions whose transcripts are not in `root`. May do I/O."""
        return []

    def hooks_path(self) -> Path | None:
        """Return the file with the user's hooks, if it has the layout of Claude Code's settings but no settings."""
        return None

    # Containers, such as databases, that hold many sessions

    container_names: ClassVar[tuple[str, ...]] = ()
    """Glob patterns for the names of files that hold many sessions, with one of `CONTAINER_SUFFIXES`."""

    def members(self, container: Path) -> Iterator[Member]:
        """Yield the sessions in a container, without reading their content.

        Raises:
            SourceError: the container cannot be read, or is of another program.
        """
        raise NotImplementedError

    def member(self, container: Path, names: Sequence[str]) -> Member | None:
        """Return a session in a container with its current size and time, or None if it is not there.

        Raises:
            SourceError: the container cannot be read.
        """
        return next((member for member in self.members(container) if member.names == tuple(names)), None)

    def make_member_source(self, path: Path) -> Source:
        """Return the source for a session in a container; see `RowSource`."""
        raise NotImplementedError

    # Reading

    @abstractmethod
    def make_reader(
        self, source: Source, chunk: LineChunk | None, *, scope: ReadScope = "all"
    ) -> TranscriptReader[Any]:
        """Return a reader for a file that begins with `chunk`. It may collect more than `scope`."""

    def make_live_reader(self, source: Source) -> LiveReader | None:
        """Return a reader for a growing file, or None if the format must be read as a whole."""
        return None

    @abstractmethod
    def narrow_input(self, tool: str, data: bytes) -> ToolInput:
        """Return an input as its tool's type, or `UnknownInput`. Never raises."""

    @abstractmethod
    def narrow_result(self, tool: str, data: bytes) -> object:
        """Return a structured result, or its equivalent, as its tool's type. Never raises."""

    def command_output(self, text: str) -> str:
        """Return the output of a command from the text of its result, without the lines that the client adds."""
        return text

    def narrow_text_result(self, tool: str, text: str) -> object:
        """Return the structured result that a result's text describes, or None. Never raises."""
        return None

    def line_texts(
        self, line: bytes, offset: int, sides: Collection[TextSide], may_match: Callable[[bytes], bool]
    ) -> Iterator[LineText]:
        """Yield the texts in a line, for formats whose lines can be read individually.

        Bodies that `may_match` rejects may be left out. Of a damaged line, yield the texts that can be recovered.
        """
        raise NotImplementedError

    def input_types(self) -> Sequence[type[Struct]]:
        """Return this client's tool input types, except those in `toolspan.types.inputs`."""
        return ()

    # Facts that analyses depend on

    states_are_local: ClassVar[bool] = False
    """True if a clear success or failure does not depend on other lines in the file."""
    records_error_flag: ClassVar[bool] = False
    """True if results carry an error flag."""
    input_includes_cache: ClassVar[bool] = False
    """True if the input tokens include those written to and read from the cache."""
    shell_keeps_folder: ClassVar[bool] = True
    """True if each command starts in the session's folder, or in the folder that it specifies."""
    patches_are_partial: ClassVar[bool] = False
    """True if a failed patch may have been partially applied."""
    inlines_agents: ClassVar[bool] = False
    """True if old files contain the lines of subagents, identified by the call that started them."""
    agents_inherit_calls: ClassVar[bool] = True
    """True if a subagent's file may begin with calls copied from its parent conversation."""
    has_runtime_profiles: ClassVar[bool] = False
    """True if `toolspan.runtime.profiles` covers this client's versions and `toolspan.tools` its tools."""
    runs_changes_alone: ClassVar[bool] = False
    """True if a call that changes something runs after all earlier calls of its reply, and before all later ones."""
    has_local_bodies: ClassVar[bool] = False
    """True if the lines around a call are enough to show it, so that the rest of a large file is not read."""
    is_writable: ClassVar[bool] = False
    """True if the module `new_session` of the format can write sessions."""
    is_repairable: ClassVar[bool] = False
    """True if `repair` can write a valid copy of a damaged session."""

    @property
    def resume_behavior(self) -> Mapping[str, ResumeBehavior]:
        """The client's observed behaviour when it resumes a damaged file, by finding code."""
        return {}

    def process_folder(self) -> Path | None:
        """Return the folder in which the client lists its running processes, if it keeps such a list."""
        return None

    def running_processes(self, home: Path | None = None) -> list[RunningProcess]:
        """Return the client's running processes, if the client keeps a list of them."""
        return []

    def ended_writer(self, path: Path, calls: Collection[str]) -> int | None:
        """Return the id of the process that recorded these unanswered calls, if it is known to have ended."""
        return None

    def backups(self, source: Source, session: str | None) -> Iterator[FileBackup]:
        """Yield the copies of files that the client kept during a session, in the order of their lines.

        Raises:
            SourceError: the transcript cannot be read.
        """
        yield from ()

    def plugin_places(self, project: Path | None = None) -> PluginPlaces | None:
        """Return where the client finds servers and skills, for all projects or for one; None if it is not known."""
        return None

    def server_settings(self, command: Sequence[str]) -> dict[str, object]:
        """Return the settings of an MCP server that a command starts."""
        return {"command": command[0], "args": list(command[1:])}

    def resume_command(self, session: str, path: Path) -> str | None:
        """Return the command that continues a session with the client, or None if it is not known."""
        return None

    def equivalent_call(self, call: PortableCall) -> tuple[str, dict[str, object] | str] | None:
        """Return the tool and input of an equivalent call by this client's model, or None if it has no such tool."""
        if not self.is_writable:
            return None
        equivalent: tuple[str, dict[str, object] | str] | None = self.load_module("new_session").equivalent_call(call)
        return equivalent

    def write_session(self, conversation: Conversation, home: Path | None = None) -> WrittenSession:
        """Write a conversation as a new session, below `home` instead of the user's folder if it is given.

        Raises:
            ToolspanError: sessions in this format cannot be written.
            OSError: the file cannot be written.
        """
        if not self.is_writable:
            raise ToolspanError(f"sessions of {self.title} cannot be written")
        written: WrittenSession = self.load_module("new_session").write_session(conversation, home or self.home())
        return written

    def repair(self, path: Path, *, write: bool = True) -> RepairResult:
        """Write a valid copy of a damaged session, or only return the changes if `write` is false.

        Raises:
            SourceError: the session cannot be read.
            ToolspanError: sessions in this format cannot be repaired.
            OSError: the copy cannot be written.
        """
        raise ToolspanError(f"{path}: sessions of {self.title} cannot be repaired")
