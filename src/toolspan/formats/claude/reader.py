"""Read a Claude Code transcript: chunks of lines become calls, facts and findings.

Start at `ClaudeReader._process`, then `pairing.py` for calls and `state.py` for their states.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from toolspan.formats import json_repair
from toolspan.formats.base import AgentOrigin, TranscriptContent
from toolspan.formats.checks import LineChecker, ResumeBehavior, make_finding
from toolspan.formats.claude import records
from toolspan.formats.claude.messages import parse_entry_messages
from toolspan.formats.claude.pairing import Pairing
from toolspan.formats.claude.paths import meta_path, session_folder
from toolspan.formats.claude.records import Entry, unknown_keys
from toolspan.formats.claude.session_info import SessionInfoCollector
from toolspan.formats.claude.tree import RecordTree
from toolspan.formats.jsonl import JsonLine
from toolspan.formats.lines import LineReader
from toolspan.formats.pairing import Branches
from toolspan.formats.registry import is_inside_folder, parse_file_name
from toolspan.formats.source import Source
from toolspan.types.ids import SourceLocation
from toolspan.types.session import Finding, Message, SessionInfo
from toolspan.types.span import Span
from toolspan.types.tool_kinds import tool_kind

if TYPE_CHECKING:
    from toolspan.diffs import Verification


_META_LIMIT = 1 << 20
_FIRST_LINE_LIMIT = 1 << 24


class ClaudeReader(LineReader[Entry]):
    """Reader for the lines of a Claude Code transcript."""

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
        """Read the messages between the calls by rereading the file."""
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
        """Return a checker for drift, UTF-8 errors and re-encoding differences in the file's lines."""
        return ClaudeLineChecker(self.source.name, spans, roundtrip=roundtrip)

    def check(self, spans: Sequence[Span]) -> Iterator[Finding]:
        """Yield findings about parent links, session ids, spilled outputs and recorded patches."""
        yield from check_tree(self.tree, self.source.name)
        yield from check_session(self.records(), self.source.name)
        yield from check_sidecars(spans, Path(self.source.name))
        yield from check_patches(spans)


class _InlineAgents:
    """A finder for subagent lines in the file of the conversation that started the subagents."""

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
    """Yield the id and prompt of each call in an entry that starts a subagent."""
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
    """Return the contents of a subagent's metadata file; empty if it is missing or not a small regular file."""
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
    """Return a session's growing subagent files, from its folder and, for older versions, from beside it."""
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
    """Return the session id in a file's first line.

    Raises:
        OSError: the file cannot be read.
        ValueError: the first line is not complete yet.
    """
    with path.open("rb") as stream:
        return records.decode_entry(stream.readline(_FIRST_LINE_LIMIT)).entry.session


_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class ClaudeLineChecker(LineChecker[Entry]):
    """Checker for the lines of a Claude Code transcript."""

    def _decode_view(self, data: bytes) -> Entry:
        return records.decode_entry(data).entry

    def _line_type(self, view: Entry) -> str:
        return view.type

    def _encode_view(self, view: Entry, data: bytes) -> bytes:
        return records.encode_entry(view, data)

    def _check_drift(self, view: Entry, fields: dict[str, object], line: JsonLine) -> None:
        from toolspan.formats.claude.narrow import input_drift, result_drift  # perf: only `doctor` needs it

        if not view.is_known:
            self._add_finding("unknown_type", view.type or "no type", line)
        for key in unknown_keys(fields):
            self._add_finding("unknown_field", key, line)
        for tool, input_json in _called_tools(fields):
            for path in input_drift(tool, input_json):
                self._add_finding("unknown_input", f"{tool}: {path}", line)
        structured = fields.get("toolUseResult", fields.get("tool_use_result"))
        answered_tool = self._answered_tool(view)
        if structured is None or view.type != "user" or answered_tool is None:
            return
        for path in result_drift(answered_tool, records.decode_bodies(line.data).structured or b"null"):
            self._add_finding("unknown_result", f"{answered_tool}: {path}", line)

    def _answered_tool(self, view: Entry) -> str | None:
        """Return the tool that produced a line's only result, or None if the call is not in the file."""
        content = view.message.content if view.message else None
        blocks = [block for block in content if block.type == "tool_result"] if isinstance(content, list) else []
        if len(blocks) != 1 or not blocks[0].tool_use_id:
            return None
        return self._tools.get(blocks[0].tool_use_id) or None


def _called_tools(fields: dict[str, object]) -> Iterator[tuple[str, bytes]]:
    """Yield the tools called on a line, with their inputs."""
    message = fields.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "tool_use":
            with suppress(ValueError):  # nested too deeply to be encoded
                yield (str(block.get("name") or "no tool"), json_repair.encode_document(block.get("input")))


def check_tree(tree: RecordTree, file: str) -> Iterator[Finding]:
    """Yield findings about parent links."""
    for code, lines in (
        ("duplicate_uuid", tree.duplicate_lines()),
        ("missing_parent", tree.missing_parents()),
        ("parent_cycle", tree.cycle_lines()),
    ):
        if lines:
            yield make_finding(code, SourceLocation(file, lines[0], 0, 0), "", len(lines))


def check_session(entries: Iterable[tuple[Entry, SourceLocation]], file: str) -> Iterator[Finding]:
    """Yield a finding if lines have a session id that differs from the one in the file name, if it has one."""
    stem = parse_file_name(file).stem
    if not _UUID.fullmatch(stem):
        return
    foreign_places = [place for entry, place in entries if entry.session_id not in (None, stem)]
    if foreign_places:
        yield make_finding("foreign_session", foreign_places[0], "", len(foreign_places))


def check_sidecars(spans: Sequence[Span], file: Path) -> Iterator[Finding]:
    """Yield findings about spilled outputs, which are searched for only in the session's own folder."""
    name = parse_file_name(file)
    folder = session_folder(file)
    if name.role == "agent" and name.session_id:
        folder = next((parent for parent in file.parents if parent.name == name.session_id), folder)
    for span in spans:
        recorded_path = span.result.persisted_path if span.result else None
        if not recorded_path or span.result is None:
            continue
        sidecar = folder / "tool-results" / Path(recorded_path).name
        is_inside = is_inside_folder(Path(recorded_path), folder) or Path(recorded_path).parent.name == "tool-results"
        if not is_inside:
            yield make_finding("outside_path", span.result.place, recorded_path[:200])
        elif not _file_exists(sidecar):
            yield make_finding("missing_sidecar", span.result.place, Path(recorded_path).name)


def _file_exists(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # the file system does not accept the name
        return False


def check_patches(spans: Sequence[Span]) -> Iterator[Finding]:
    """Yield one finding for each reason why recorded patches do not apply to the recorded content."""
    from toolspan.diffs import Mismatch  # perf: only `doctor` needs it

    places_by_reason: dict[str, list[SourceLocation]] = {}
    for span in spans:
        if span.call.kind in ("edit", "write") and span.result and span.state == "succeeded":
            outcome = _verify_patch(span.result.structured)
            if isinstance(outcome, Mismatch):
                reason = outcome.reason.partition(". ")[0]
                places_by_reason.setdefault(reason, []).append(span.result.place)
    for reason, places in places_by_reason.items():
        yield make_finding("patch_mismatch", places[0], reason[:160], len(places))


def _verify_patch(change: object) -> Verification:
    from toolspan.diffs import NoBase, verify
    from toolspan.formats.claude.results import EditResult, MultiEditResult, WriteResult

    match change:
        case WriteResult():
            return verify(change.structured_patch, change.original_file, change.content)
        case EditResult():
            return verify(change.structured_patch, change.original_file, None)
        case MultiEditResult():
            before = change.original_file_contents or change.original_file
            return verify(change.structured_patch, before, None)
        case _:
            return NoBase()


_LOSES_EARLIER_LINES = "loses everything before the line"

RESUME_BEHAVIOR: dict[str, ResumeBehavior] = {
    "torn_last_line": ResumeBehavior("skips the line"),
    "torn_line": ResumeBehavior("skips the line; a call or result on it goes with its other half",
                          _LOSES_EARLIER_LINES),
    "not_an_object": ResumeBehavior("skips the line and loses nothing"),
    "glued_records": ResumeBehavior("keeps the first record on the line, loses the others",
                              _LOSES_EARLIER_LINES),
    "nul_bytes": ResumeBehavior("skips the line", _LOSES_EARLIER_LINES),
    "invalid_utf8": ResumeBehavior("reads U+FFFD in place of the bytes"),
    "control_characters": ResumeBehavior("skips the line", _LOSES_EARLIER_LINES),
    "byte_order_mark": ResumeBehavior("ignores it", "2.0.65 loses the first line"),
    "unanswered_call": ResumeBehavior(
        "at the end of the conversation 2.1.325 answers it as interrupted, 2.1.197 leaves it out;"
        " before the end both leave it out", "leaves it out; 2.0.65 may also lose what is before"),
    "orphan_result": ResumeBehavior("leaves it out",
                              "2.0.65 sends it in the middle, and the server refuses"),
    "duplicate_result": ResumeBehavior("sends one of them", "2.0.65 sends all, and the server refuses"),
    "duplicate_uuid": ResumeBehavior("ignores it"),
    "missing_parent": ResumeBehavior("continues from the previous line", _LOSES_EARLIER_LINES),
    "parent_cycle": ResumeBehavior("ignores it", "2.0.65 never finishes"),
    "foreign_session": ResumeBehavior("uses the file's name"),
}  # fmt: skip
"""Behaviour observed in real clients; `python -m tests.oracle --defects` repeats the observation."""
