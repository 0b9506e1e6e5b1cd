"""Read a Claude Code transcript: chunks of lines become calls, facts and findings.

Start at `ClaudeReader._process`, then `pairing.py` for calls and `state.py` for their states.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from toolspan.formats import json_repair
from toolspan.formats.base import AgentOrigin, ContentCollector, FileBackup, ReadScope, TranscriptContent
from toolspan.formats.checks import ResumeBehavior, make_finding
from toolspan.formats.claude import records
from toolspan.formats.claude.messages import parse_entry_messages
from toolspan.formats.claude.pairing import Pairing, SubagentFilter
from toolspan.formats.claude.records import Entry
from toolspan.formats.claude.session_info import SessionInfoCollector
from toolspan.formats.claude.tree import RecordTree
from toolspan.formats.jsonl import JsonLine, LineChunk, read_lines
from toolspan.formats.lines import TranscriptReader, pack_places
from toolspan.formats.pairing import Branches
from toolspan.formats.processes import is_running
from toolspan.formats.registry import is_inside_folder, parse_file_name
from toolspan.formats.side_files import meta_path, session_folder
from toolspan.formats.source import Source, is_remote, read_small_json, to_path
from toolspan.types.ids import CallId, SourceLocation
from toolspan.types.session import Finding, Message, RequestUsage, SessionInfo
from toolspan.types.span import Span
from toolspan.types.tool_kinds import tool_kind

_META_LIMIT = 1 << 20
_FIRST_LINE_LIMIT = 1 << 24


class ClaudeReader(TranscriptReader[Entry]):
    """Reader for the lines of a Claude Code transcript."""

    decoder = records.ENTRY_DECODER

    def __init__(self, source: Source, *, scope: ReadScope = "all") -> None:
        super().__init__(source)
        self.pairing: Pairing = Pairing(source)
        self.session_info: SessionInfoCollector = SessionInfoCollector()
        self.tree = RecordTree()
        self._subagents = SubagentFilter() if scope == "requests" else None

    def _process_chunk(self, decoded: Sequence[Entry], chunk: LineChunk, ends: Sequence[int]) -> None:
        if self._subagents is None:
            super()._process_chunk(decoded, chunk, ends)
            return
        # perf: pairing all calls takes longer than decoding the lines
        self.session_info.add(decoded)
        indexes = self._subagents.select(decoded)
        self.pairing.add([decoded[n] for n in indexes], pack_places(chunk, ends, self._next_number, indexes))

    def _process(self, decoded: Sequence[Entry], places: Sequence[int], number: int) -> None:
        self.session_info.add(decoded)
        if self._subagents is not None:
            indexes = self._subagents.select(decoded)
            self.pairing.add([decoded[n] for n in indexes], [places[n] for n in indexes])
            return
        self.tree.add(decoded, number)
        self.pairing.add(decoded, places)

    def branches(self) -> Branches:
        return self.tree.branches()

    def messages(self) -> Iterator[Message]:
        for entry, place in self.records():
            yield from parse_entry_messages(entry, place, self.source)

    def messages_in(self, lines: Sequence[tuple[int, bytes]]) -> Iterator[Message]:
        for offset, data in lines:
            place = SourceLocation(self.source.name, 1, offset, len(data))
            yield from parse_entry_messages(records.decode_entry(data).entry, place, self.source)

    def read_content(self, info: SessionInfo, spans: Sequence[Span]) -> TranscriptContent:
        content = ClaudeContent(self.source, self.session_info)
        for entry, place in self.records():
            content.add(entry, place)
        origin = read_agent_origin(to_path(self.source.name)) if info.agent_id else AgentOrigin()
        return TranscriptContent(
            file=self.source.name,
            agent_id=info.agent_id,
            spans=spans,
            messages=content.messages,
            inline_agent_keys=content.inline_agent_keys,
            branches=self.branches(),
            agent_prompts=content.agent_prompts,
            starter_call=origin.starter_call,
            role=origin.role,
        )

    def line_type(self, view: Entry) -> str:
        return view.type

    def find_drift(
        self, view: Entry, fields: dict[str, object], line: JsonLine, tools: Mapping[CallId, str]
    ) -> Iterator[tuple[str, str]]:
        from toolspan.formats.claude.narrow import input_drift, result_drift  # perf: only `doctor` needs it

        if not view.is_known:
            yield "unknown_type", view.type or "no type"
        yield from (("unknown_field", key) for key in records.unknown_keys(fields))
        message = fields.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_use":
                tool = str(block.get("name") or "no tool")
                with suppress(ValueError):  # nested too deeply to be encoded
                    paths = input_drift(tool, json_repair.encode_document(block.get("input")))
                    yield from (("unknown_input", f"{tool}: {path}") for path in paths)
        blocks = view.message.content if view.message and isinstance(view.message.content, list) else ()
        answered = [block.tool_use_id for block in blocks if block.type == "tool_result"]
        answered_tool = tools.get(answered[0]) if len(answered) == 1 and answered[0] else None
        structured = fields.get("toolUseResult", fields.get("tool_use_result"))
        if structured is not None and view.type == "user" and answered_tool:
            for path in result_drift(answered_tool, records.decode_bodies(line.data).structured or b"null"):
                yield "unknown_result", f"{answered_tool}: {path}"

    def check(self, spans: Sequence[Span]) -> Iterator[Finding]:
        """Yield findings about parent links, session ids, spilled outputs, recorded patches and leftover commands."""
        file = self.source.name
        for code, lines in (
            ("duplicate_uuid", self.tree.duplicate_lines()),
            ("missing_parent", self.tree.missing_parents()),
            ("parent_cycle", self.tree.cycle_lines()),
        ):
            if lines:
                yield make_finding(code, SourceLocation(file, lines[0], 0, 0), "", len(lines))
        stem = parse_file_name(file).stem
        if _UUID.fullmatch(stem):
            foreign_places = [place for entry, place in self.records() if entry.session_id not in (None, stem)]
            if foreign_places:
                yield make_finding("foreign_session", foreign_places[0], "", len(foreign_places))
        yield from _check_sidecars(spans, to_path(file))
        yield from _check_patches(spans)
        if parse_file_name(file).role == "session" and not is_remote(file):
            yield from _check_leftovers(spans, to_path(file))


def _check_leftovers(spans: Sequence[Span], file: Path) -> Iterator[Finding]:
    """Yield findings about commands that were running, or still are, after their session was killed."""
    from toolspan.formats.evidence import read_processes  # perf: imports modules that reading does not need

    recorded = read_processes(file)
    is_recording = recorded.session is not None and is_running(*recorded.session)
    running = {} if is_recording else recorded.running()
    for span in spans:
        if span.id in running:
            detail = f"{span.tool} {span.id}: process {running[span.id]} is still running"
            yield make_finding("leftover_command", span.call.place, detail)
        elif span.id in recorded.ended:
            yield make_finding("leftover_command", span.call.place, f"{span.tool} {span.id}: {recorded.ended[span.id]}")


def _check_sidecars(spans: Sequence[Span], file: Path) -> Iterator[Finding]:
    """Yield findings about spilled outputs, which are searched for only in the session's own folder."""
    name = parse_file_name(file)
    folder = session_folder(file)
    if name.role == "agent" and name.session_id:
        folder = next((parent for parent in file.parents if parent.name == name.session_id), folder)
    for span in spans:
        if span.result is None or not span.result.persisted_path:
            continue
        recorded = Path(span.result.persisted_path)
        if not is_inside_folder(recorded, folder) and recorded.parent.name != "tool-results":
            yield make_finding("outside_path", span.result.place, span.result.persisted_path[:200])
            continue
        try:
            is_missing = not (folder / "tool-results" / recorded.name).is_file()
        except (OSError, ValueError):  # the file system does not accept the name
            is_missing = True
        if is_missing:
            yield make_finding("missing_sidecar", span.result.place, recorded.name)


def _check_patches(spans: Sequence[Span]) -> Iterator[Finding]:
    """Yield one finding for each reason why recorded patches do not apply to the recorded content."""
    from toolspan.diffs import Mismatch, verify  # perf: only `doctor` needs it
    from toolspan.types.results import EditResult, MultiEditResult, WriteResult

    places_by_reason: dict[str, list[SourceLocation]] = {}
    for span in spans:
        if span.call.kind not in ("edit", "write") or not span.result or span.state != "succeeded":
            continue
        match change := span.result.structured:
            case WriteResult():
                outcome = verify(change.structured_patch, change.original_file, change.content)
            case EditResult():
                outcome = verify(change.structured_patch, change.original_file, None)
            case MultiEditResult():
                before = change.original_file_contents or change.original_file
                outcome = verify(change.structured_patch, before, None)
            case _:
                continue
        if isinstance(outcome, Mismatch):
            places_by_reason.setdefault(outcome.reason.partition(". ")[0], []).append(span.result.place)
    for reason, places in places_by_reason.items():
        yield make_finding("patch_mismatch", places[0], reason[:160], len(places))


class ClaudeContent(ContentCollector):
    """The messages, inline subagents and subagent prompts in one transcript."""

    def __init__(self, source: Source, session_info: SessionInfoCollector) -> None:
        super().__init__()
        self._source = source
        self._session_info = session_info
        self._keys_by_uuid: dict[str, str] = {}
        self._seen_uuids: set[int] = set()
        """Hashes, as in `RecordTree`; a client that resumes a session may write its lines once more."""

    def add(self, entry: Entry, place: SourceLocation) -> None:
        self._add_inline_line(entry, place.line)
        is_repeated = False
        if entry.uuid is not None and entry.session_id_snake is None:
            is_repeated = hash(entry.uuid) in self._seen_uuids
            self._seen_uuids.add(hash(entry.uuid))
        if not is_repeated:
            self.messages.extend(parse_entry_messages(entry, place, self._source))
        content = entry.message.content if entry.message and entry.type == "assistant" else None
        for block in content if isinstance(content, list) else ():
            prompt = block.input.prompt if block.input else None
            if block.id is not None and isinstance(prompt, str) and prompt and tool_kind(block.name or "") == "agent":
                self.agent_prompts[block.id] = prompt

    def changed_requests(self) -> dict[str, RequestUsage]:
        return self._session_info.changed_requests()

    def _add_inline_line(self, entry: Entry, line: int) -> None:
        key: str | None = entry.parent_tool_use_id_snake
        agent_id = self._session_info.agent_id
        is_own = not entry.is_sidechain or (agent_id is not None and entry.agent_id == agent_id)
        if key is None and not is_own:
            key = entry.agent_id
            if key is None:
                key = self._keys_by_uuid.get(entry.parent_uuid or "", entry.uuid)
        if key is None:
            return
        self.inline_agent_keys[line] = key
        if entry.uuid is not None:
            self._keys_by_uuid[entry.uuid] = key


class _AgentMeta(Struct, frozen=True, kw_only=True, rename="camel"):
    tool_use_id: str | None = None
    agent_type: str | None = None


def read_agent_origin(path: Path) -> AgentOrigin:
    """Return the contents of a subagent's metadata file; empty if it is missing or not a small regular file."""
    meta = read_small_json(meta_path(path), _AgentMeta, _META_LIMIT)
    return AgentOrigin(meta.tool_use_id, meta.agent_type) if meta else AgentOrigin()


def find_agent_paths(path: Path) -> list[Path]:
    """Return a session's growing subagent files, from its folder and, for older versions, from beside it."""
    below = sorted(file for file in (session_folder(path) / "subagents").rglob("*.jsonl") if file.is_file())
    paths = [file for file in below if parse_file_name(file).role == "agent"]
    try:
        beside = sorted(path.parent.glob("agent-*.jsonl"))
    except OSError:
        beside = []
    session = parse_file_name(path).stem
    for file in beside:
        with suppress(OSError, ValueError):  # the first line cannot be read yet
            if _first_session(file) == session:
                paths.append(file)
    return paths


@lru_cache(maxsize=4_096)
def _first_session(path: Path) -> str | None:
    """Return the session id in a file's first line."""
    with path.open("rb") as stream:
        return records.decode_entry(stream.readline(_FIRST_LINE_LIMIT)).entry.session


_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


_LOSES_EARLIER_LINES = "loses everything before the line"

RESUME_BEHAVIOR: dict[str, ResumeBehavior] = {
    "torn_last_line": ResumeBehavior("skips the line"),
    "torn_line": ResumeBehavior("skips the line, and drops the other half of a call or result on it",
                          _LOSES_EARLIER_LINES),
    "not_an_object": ResumeBehavior("skips the line and loses nothing"),
    "glued_records": ResumeBehavior("keeps the first record on the line, loses the others",
                              _LOSES_EARLIER_LINES),
    "nul_bytes": ResumeBehavior("skips the line", _LOSES_EARLIER_LINES),
    "invalid_utf8": ResumeBehavior("replaces the bytes with U+FFFD; a line that is not JSON is treated as torn"),
    "control_characters": ResumeBehavior("skips the line", _LOSES_EARLIER_LINES),
    "byte_order_mark": ResumeBehavior("ignores it", "2.0.65 loses the first line"),
    "unanswered_call": ResumeBehavior(
        "at the end of the conversation, 2.1.325 answers it as interrupted and 2.1.197 drops it;"
        " elsewhere, both drop it", "drops it; 2.0.65 may also lose earlier messages"),
    "orphan_result": ResumeBehavior("drops it",
                              "2.0.65 sends it, and the server rejects the request"),
    "duplicate_result": ResumeBehavior("sends one of them", "2.0.65 sends all, and the server rejects the request"),
    "duplicate_uuid": ResumeBehavior("ignores it"),
    "missing_parent": ResumeBehavior("continues from the previous line", _LOSES_EARLIER_LINES),
    "parent_cycle": ResumeBehavior("ignores it", "2.0.65 never finishes"),
    "foreign_session": ResumeBehavior("uses the file's name"),
}  # fmt: skip
"""Behaviour observed in real clients; `python -m lab.oracle --defects` repeats the observation."""


def find_backups(source: Source, session: str | None) -> Iterator[FileBackup]:
    """Yield the copies of files that a transcript records and whose place is known, each once."""
    seen: set[records.Backup] = set()
    parents = to_path(source.name).parents
    folder = parents[2] / "file-history" / session if session is not None and len(parents) > 3 else None
    for line in read_lines(source):
        for backup in records.parse_backups(line.data):
            name = backup.name
            is_safe = name is None or (folder and not name.startswith(".") and not {"/", "\\"} & set(name))
            if is_safe and backup not in seen:
                seen.add(backup)
                copy = None if name is None or folder is None else folder / name
                yield FileBackup(backup.path, copy, backup.at, line.number)
