"""Read a Claude Code transcript: chunks of lines become calls, facts and findings.

Start at `ClaudeReader._process`, then `pairing.py` for calls and `state.py` for their states.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec import Struct

from toolspan.formats.base import AgentOrigin, TranscriptContent
from toolspan.formats.claude import records
from toolspan.formats.claude.messages import parse_entry_messages
from toolspan.formats.claude.pairing import Pairing
from toolspan.formats.claude.paths import meta_path, session_folder
from toolspan.formats.claude.records import Entry
from toolspan.formats.claude.session_info import SessionInfoCollector
from toolspan.formats.claude.tree import RecordTree
from toolspan.formats.line_checker import LineChecker
from toolspan.formats.lines import LineReader
from toolspan.formats.pairing import Branches
from toolspan.formats.paths import parse_file_name
from toolspan.formats.source import Source
from toolspan.types.finding import Finding
from toolspan.types.session import Message, SessionInfo
from toolspan.types.span import Span
from toolspan.types.tool_kinds import tool_kind

_META_LIMIT = 1 << 20
_FIRST_LINE_LIMIT = 1 << 24


class ClaudeReader(LineReader[Entry]):
    """Reads the lines of a Claude Code transcript."""

    def __init__(self, source: Source, *, calls_only: bool = False) -> None:
        super().__init__(source)
        self.pairing: Pairing = Pairing(source)
        self.session_info: SessionInfoCollector = SessionInfoCollector(calls_only=calls_only)
        self.tree = RecordTree()

    _decode_whole = staticmethod(records.decode_entries)
    _decode = staticmethod(records.decode_entry)

    def _process(self, decoded: Sequence[Entry], places: Sequence[int], number: int) -> None:
        self.session_info.add(decoded)
        self.tree.add(decoded, number)
        self.pairing.add(decoded, places)

    def branches(self) -> Branches:
        """Return the branch of every line."""
        return self.tree.branches()

    def messages(self) -> Iterator[Message]:
        """Read the messages between the calls from the file again."""
        for entry, place in self.records():
            yield from parse_entry_messages(entry, place, self.source)

    def read_content(self, info: SessionInfo, spans: Sequence[Span]) -> TranscriptContent:
        """Return calls and messages for a timeline, in one more pass over the file.

        Raises:
            SourceError: the file can no longer be read.
        """
        inline_agents = _InlineAgents(info.agent_id)
        repeated = set(self.tree.duplicate_lines())
        messages: list[Message] = []
        agent_prompts: dict[str, str] = {}
        for entry, place in self.records():
            inline_agents.add(entry, place.line)
            if place.line not in repeated:
                messages.extend(parse_entry_messages(entry, place, self.source))
            if entry.type == "assistant":
                agent_prompts.update(_agent_prompts(entry))
        origin = read_agent_origin(Path(self.source.name)) if info.agent_id else AgentOrigin()
        return TranscriptContent(
            file=self.source.name,
            agent_id=info.agent_id,
            spans=spans,
            messages=messages,
            inline_agent_keys=inline_agents.keys_by_line,
            branches=self.branches(),
            agent_prompts=agent_prompts,
            starter_call=origin.starter_call,
            role=origin.role,
        )

    def make_line_checker(self, spans: Sequence[Span], *, roundtrip: bool) -> LineChecker[Entry]:
        """Return the checker for drift, UTF-8 and re-encoding of the file's lines."""
        from toolspan.formats.claude.checks import ClaudeLineChecker

        return ClaudeLineChecker(self.source.name, spans, roundtrip=roundtrip)

    def check(self, spans: Sequence[Span]) -> Iterator[Finding]:
        """Yield findings about parent links, session ids, spilled outputs and recorded patches."""
        from toolspan.formats.claude.checks import check_patches, check_session, check_sidecars, check_tree

        yield from check_tree(self.tree, self.source.name)
        yield from check_session(self.records(), self.source.name)
        yield from check_sidecars(spans, Path(self.source.name))
        yield from check_patches(spans)


class _InlineAgents:
    """Finds the lines of subagents in the file of the conversation that started them."""

    def __init__(self, agent_id: str | None) -> None:
        self._agent_id = agent_id
        self._keys_by_uuid: dict[str, str] = {}
        self.keys_by_line: dict[int, str] = {}

    def add(self, entry: Entry, line: int) -> None:
        """Add an entry, in file order."""
        key = self._agent_key(entry)
        if key is None:
            return
        self.keys_by_line[line] = key
        if entry.uuid is not None:
            self._keys_by_uuid[entry.uuid] = key

    def _agent_key(self, entry: Entry) -> str | None:
        if entry.parent_tool_use_id_snake is not None:
            return entry.parent_tool_use_id_snake
        if not entry.is_sidechain or (self._agent_id is not None and entry.agent_id == self._agent_id):
            return None
        if entry.agent_id is not None:
            return entry.agent_id
        return self._keys_by_uuid.get(entry.parent_uuid or "", entry.uuid)


def _agent_prompts(entry: Entry) -> Iterator[tuple[str, str]]:
    """Yield the ids of an entry's calls that start subagents, with their prompts."""
    content = entry.message.content if entry.message else None
    for block in content if isinstance(content, list) else ():
        if block.id is not None and tool_kind(block.name or "") == "agent" and block.input is not None:
            prompt = block.input.prompt
            if isinstance(prompt, str) and prompt:
                yield block.id, prompt


class _AgentMeta(Struct, frozen=True, kw_only=True, rename="camel"):
    tool_use_id: str | None = None
    agent_type: str | None = None


def read_agent_origin(path: Path) -> AgentOrigin:
    """Return the contents of a subagent's side file; empty if it is missing or not a small regular file."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(meta_path(path), flags)
        with open(descriptor, "rb") as stream:  # noqa: PTH123 - a descriptor, so that links and pipes are refused
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return AgentOrigin()
            meta = msgspec.json.decode(stream.read(_META_LIMIT), type=_AgentMeta)
    except (OSError, ValueError, msgspec.MsgspecError):
        return AgentOrigin()
    return AgentOrigin(meta.tool_use_id, meta.agent_type)


def find_agent_paths(path: Path) -> list[Path]:
    """Return the growing files of a session's subagents: in its folder, and beside it as older versions write them."""
    below = sorted(file for file in (session_folder(path) / "subagents").rglob("*.jsonl") if file.is_file())
    paths = [file for file in below if parse_file_name(file).role == "agent"]
    try:
        beside = sorted(path.parent.glob("agent-*.jsonl"))
    except OSError:
        beside = []
    session = parse_file_name(path).stem
    return paths + [file for file in beside if _belongs_to_session(file, session)]


def _belongs_to_session(path: Path, session: str) -> bool:
    try:
        return _first_session(path) == session
    except (OSError, ValueError):
        return False


@lru_cache(maxsize=4_096)
def _first_session(path: Path) -> str | None:
    """Return the session that a file's first line names.

    Raises:
        OSError: the file cannot be read.
        ValueError: the first line is not complete yet.
    """
    with path.open("rb") as stream:
        return records.decode_entry(stream.readline(_FIRST_LINE_LIMIT)).entry.session
