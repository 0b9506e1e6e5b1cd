"""Repair a damaged Claude Code session by writing a valid copy under a new session id.

In the copy, every call is followed by one result, every record has an existing parent, and all
lines have the same session id. Only duplicate records, results for unknown calls and empty lines
are removed. Start at `repair_session`; `repair_records` lists the steps.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from pathlib import Path

from toolspan.formats import json_repair
from toolspan.formats.base import RepairChange, RepairResult
from toolspan.formats.claude.evidence import LOST_BEGINNING_MESSAGE, CallEvidence, collect_evidence, format_unanswered
from toolspan.formats.claude.paths import session_folder
from toolspan.formats.jsonl import JsonLine, read_lines
from toolspan.formats.registry import parse_file_name
from toolspan.formats.source import Source, source_for_path
from toolspan.types.span import parse_timestamp

RecordFields = dict[str, object]

_HARMLESS_CODES = frozenset({"foreign_session"})
"""Findings that alone do not justify a copy, because clients identify a session by its file name."""


def repair_session(path: Path, *, write: bool = True) -> RepairResult:
    """Write a valid copy of a damaged session, or only return the changes if `write` is false.

    Raises:
        SourceError: the session cannot be read.
        OSError: the copy cannot be written.
    """
    old, new = parse_file_name(path).stem, str(uuid.uuid4())
    repaired = _repair_file(path, old, new, lambda calls: collect_evidence(path, calls))
    agents = {agent_path: _repair_file(agent_path, old, new, _unknown_evidence) for agent_path in _agent_files(path)}
    changes = [*repaired.changes, *_agent_changes(agents)]
    if all(change.code in _HARMLESS_CODES for change in changes):
        changes = []
    target = path.with_name(f"{new}.jsonl") if changes and write else None
    if target is not None:
        _write_records(target, repaired.records)
        _write_companions(session_folder(path), session_folder(target), agents)
    return RepairResult(
        original=path,
        changes=changes,
        record_count=len(repaired.records),
        session_id=new if target else None,
        path=target,
        cwd=_first_cwd(repaired.records),
    )


_UNNAMED_AGENT = "a subagent"
"""The key for subagents in the session's own file, to which old clients wrote them without an id."""


@dataclass(slots=True, eq=False)
class RepairRecord:
    """A record and its line number."""

    fields: RecordFields
    line: int

    @property
    def uuid(self) -> str | None:
        """The uuid, or None for records outside the conversation."""
        value = self.fields.get("uuid")
        return value if isinstance(value, str) else None

    @property
    def parent_uuid(self) -> str | None:
        """The uuid of the parent."""
        value = self.fields.get("parentUuid")
        return value if isinstance(value, str) else None

    @property
    def type(self) -> object:
        """The type."""
        return self.fields.get("type")

    @property
    def is_message(self) -> bool:
        """True for a user or assistant record."""
        return self.type in ("user", "assistant")

    @property
    def agent_key(self) -> str | None:
        """The subagent that wrote the record, or None for the main conversation."""
        value = self.fields.get("agentId")
        if isinstance(value, str) and value:
            return value
        return _UNNAMED_AGENT if self.fields.get("isSidechain") else None

    @property
    def message(self) -> RecordFields:
        """The message; empty if the record has none."""
        value = self.fields.get("message")
        return value if isinstance(value, dict) else {}

    @property
    def message_id(self) -> str | None:
        """The id of the model's message, or None for user records."""
        value = self.message.get("id") if self.type == "assistant" else None
        return value if isinstance(value, str) else None

    @property
    def blocks(self) -> list[RecordFields]:
        """The content blocks of the message."""
        content = self.message.get("content")
        values = content if isinstance(content, list) else []
        return [block for block in values if isinstance(block, dict)]

    @property
    def call_ids(self) -> list[str]:
        """The ids of the calls in the record."""
        if self.type != "assistant":
            return []
        return [str(block["id"]) for block in self.blocks if _has_type(block, "tool_use") and block.get("id")]

    @property
    def result_ids(self) -> list[str]:
        """The ids of the calls whose results are in the record."""
        if self.type != "user":
            return []
        return [str(block.get("tool_use_id")) for block in self.blocks if _has_type(block, "tool_result")]

    def set_blocks(self, blocks: list[RecordFields]) -> None:
        """Replace the content blocks of the message."""
        self.fields = {**self.fields, "message": {**self.message, "content": blocks}}


def _has_type(block: RecordFields, kind: str) -> bool:
    return block.get("type") == kind


def load_records(source: Source) -> tuple[list[RepairRecord], list[RepairChange]]:
    """Return every record in a transcript, and the problems found in its lines.

    Raises:
        SourceError: the transcript cannot be read.
    """
    records: list[RepairRecord] = []
    changes: list[RepairChange] = []
    for line in read_lines(source):
        documents, code = _decode_line(line)
        records += [RepairRecord(fields, line.number) for fields in documents]
        if code is not None:
            outcome = f"{len(documents)} records recovered" if documents else "no record could be recovered"
            changes.append(RepairChange(code, line.number, outcome))
    return records, changes


def _decode_line(line: JsonLine) -> tuple[list[RecordFields], str | None]:
    """Return the records on a line, and the finding code if the line is damaged."""
    if line.is_oversized:
        return [], "line_too_long"
    if not line.data.strip():
        return [], None
    try:
        whole = json_repair.decode_document(line.data)
    except ValueError:
        saved = json_repair.recover_objects(line.data)
        code = saved.reason if line.has_newline or saved.pieces else "torn_last_line"
        return list(_decode_objects(piece.data for piece in saved.pieces)), code
    if isinstance(whole, dict):
        return [whole], None
    return [], "not_an_object"


def _decode_objects(pieces: Iterator[bytes]) -> Iterator[RecordFields]:
    for data in pieces:
        value = json_repair.decode_document(data)
        if isinstance(value, dict):
            yield value


EvidenceLookup = Callable[[list[str]], Mapping[str, CallEvidence]]
"""A function that returns the evidence for calls without a result."""

_LINEAR_VERSIONS = ("1.", "2.0.")
"""Versions in which a result's parent is the previous line, not the line of its call."""
_INHERITED_KEYS = (
    "isSidechain", "promptId", "agentId", "userType", "entrypoint", "cwd", "sessionId", "version",
    "gitBranch", "slug",
)  # fmt: skip
"""Keys that a new record copies from a neighbouring record."""


@dataclass(frozen=True, slots=True)
class RepairedConversation:
    """A valid conversation, and the changes made to repair it."""

    records: list[RepairRecord]
    changes: list[RepairChange]


@dataclass(slots=True)
class _RepairState:
    """A conversation during its repair."""

    records: list[RepairRecord]
    changes: list[RepairChange] = field(default_factory=list)
    removed_parents: dict[str, str | None] = field(default_factory=dict)
    """The parent uuids of removed records, by their own uuid."""

    def add_change(self, code: str, record: RepairRecord | None, message: str) -> None:
        self.changes.append(RepairChange(code, record.line if record else 0, message))

    def remove(self, record: RepairRecord) -> None:
        if record.uuid is not None:
            self.removed_parents[record.uuid] = record.parent_uuid
        self.records = [other for other in self.records if other is not record]


def repair_records(
    records: list[RepairRecord], session_id: str, new_id: str, lookup_evidence: EvidenceLookup
) -> RepairedConversation:
    """Repair a conversation; `session_id` is the expected id, `new_id` the id of the copy."""
    state = _RepairState(list(records))
    _drop_empty_messages(state)
    _drop_calls_without_id(state)
    _resolve_duplicate_uuids(state)
    _keep_first_calls(state)
    _keep_first_results(state)
    _move_results_behind_calls(state)
    _answer_open_calls(state, lookup_evidence)
    _ensure_user_start(state)
    _repair_parents(state)
    _update_leaf(state)
    _rename_session(state, session_id, new_id)
    return RepairedConversation(state.records, state.changes)


def _drop_empty_messages(state: _RepairState) -> None:
    """Remove messages without content, and blocks that are invalid for the message's role."""
    for record in list(state.records):
        content = record.message.get("content")
        if record.is_message and not isinstance(content, str | list):
            state.remove(record)
            state.add_change("odd_type", record, f"a {record.type} line without a message was removed")
            continue
        misplaced_type = "tool_result" if record.type == "assistant" else "tool_use"
        blocks = [block for block in record.blocks if block.get("type") != misplaced_type]
        if record.is_message and len(blocks) < len(record.blocks):
            _set_blocks(state, record, blocks)
            state.add_change("odd_type", record, f"a {misplaced_type} in a {record.type} line was removed")


def _drop_calls_without_id(state: _RepairState) -> None:
    """Remove calls without an id, because no result can refer to them."""
    for record in list(state.records):
        blocks = [block for block in record.blocks if not _is_call(block) or _has_valid_id(block)]
        if record.is_message and len(blocks) < len(record.blocks):
            _set_blocks(state, record, blocks)
            state.add_change("odd_type", record, "a call whose id is not a string was removed")


def _resolve_duplicate_uuids(state: _RepairState) -> None:
    """Remove duplicate records, and give different records that share a uuid a new one."""
    seen: dict[str, RepairRecord] = {}
    for record in list(state.records):
        if record.uuid is None:
            continue
        first = seen.setdefault(record.uuid, record)
        if first is record:
            continue
        if first.fields == record.fields:
            state.records = [other for other in state.records if other is not record]
            state.add_change("duplicate_uuid", record, "a second copy of a line was removed")
        else:
            record.fields = {**record.fields, "uuid": str(uuid.uuid4())}
            state.add_change("duplicate_uuid", record, "a line with the uuid of another line got a new one")


def _keep_first_calls(state: _RepairState) -> None:
    seen_calls: set[str] = set()
    for record in list(state.records):
        if seen_calls.isdisjoint(record.call_ids):
            seen_calls.update(record.call_ids)
            continue
        blocks = [block for block in record.blocks if not _is_call(block) or str(block.get("id")) not in seen_calls]
        seen_calls.update(record.call_ids)
        _set_blocks(state, record, blocks)
        state.add_change("duplicate_call", record, "a second copy of a call was removed")


def _keep_first_results(state: _RepairState) -> None:
    """Keep one result for each call, and remove results for unknown calls."""
    call_ids = {call for record in state.records for call in record.call_ids}
    answered: set[str] = set()
    for record in list(state.records):
        names = record.result_ids
        if not names:
            continue
        blocks: list[RecordFields] = []
        for block in record.blocks:
            name = str(block.get("tool_use_id"))
            if block.get("type") != "tool_result":
                blocks.append(block)
            elif name not in call_ids:
                state.add_change("orphan_result", record, f"the result of {name} was removed: its call is lost")
            elif name in answered:
                state.add_change("duplicate_result", record, f"a second result of {name} was removed")
            else:
                blocks.append(block)
                answered.add(name)
        if len(blocks) < len(record.blocks):
            _set_blocks(state, record, blocks)


def _set_blocks(state: _RepairState, record: RepairRecord, blocks: list[RecordFields]) -> None:
    if blocks:
        record.set_blocks(blocks)
    else:
        state.remove(record)


def _move_results_behind_calls(state: _RepairState) -> None:
    """Move results that precede their call or follow another message."""
    groups = _records_by_call(state)
    positions = {id(record): n for n, record in enumerate(state.records)}
    for record in list(state.records):
        names = record.result_ids
        if not names or _is_behind(record, groups[names[0]], state.records, positions):
            continue
        group = groups[names[0]]
        state.records.remove(record)
        state.records.insert(state.records.index(group[-1]) + 1, record)
        positions = {id(other): n for n, other in enumerate(state.records)}
        _attach_to_call(record, _find_call_record(group, names[0]))
        state.add_change("misplaced_result", record, f"the result of {names[0]} was moved behind its call")


def _is_behind(
    result: RepairRecord, group: list[RepairRecord], records: list[RepairRecord], positions: Mapping[int, int]
) -> bool:
    """Return whether a result is correctly placed after its call.

    The user may write while a call runs. If other messages are in between, the result must be a
    child of its call, because clients use the parent to find it.
    """
    at, first, last = positions[id(result)], positions[id(group[0])], positions[id(group[-1])]
    hangs = result.parent_uuid in {record.uuid for record in group}
    return at > first and (hangs or not any(map(_is_interruption, records[last + 1 : at])))


def _is_interruption(record: RepairRecord) -> bool:
    """Return whether a record is a message other than a result."""
    return record.is_message and not record.result_ids


def _records_by_call(state: _RepairState) -> dict[str, list[RepairRecord]]:
    """Return the records of the message that contains each call, by call id."""
    messages: dict[object, list[RepairRecord]] = {}
    for record in state.records:
        if record.type == "assistant":
            messages.setdefault((record.agent_key, record.message_id or id(record)), []).append(record)
    return {call: group for group in messages.values() for member in group for call in member.call_ids}


def _find_call_record(group: list[RepairRecord], name: str) -> RepairRecord:
    return next(record for record in group if name in record.call_ids)


def _attach_to_call(result: RepairRecord, call: RepairRecord) -> None:
    fields = {**result.fields, "parentUuid": call.uuid}
    if "sourceToolAssistantUUID" in fields:
        fields["sourceToolAssistantUUID"] = call.uuid
    result.fields = fields


def _answer_open_calls(state: _RepairState, lookup_evidence: EvidenceLookup) -> None:
    """Add a result that states the evidence to each call without a result."""
    answered = {name for record in state.records for name in record.result_ids}
    deferred = {_deferred_call(record) for record in state.records}
    groups = _records_by_call(state)
    open_calls = [name for name in groups if name not in answered | deferred]
    evidence_by_call = lookup_evidence(open_calls) if open_calls else {}
    for name in open_calls:
        group = groups[name]
        call, evidence = _find_call_record(group, name), evidence_by_call[name]
        at = state.records.index(group[-1]) + 1
        while at < len(state.records) and state.records[at].result_ids:
            at += 1
        new_record = _make_result_record(call, name, format_unanswered(evidence))
        new_record.fields = {**new_record.fields, "timestamp": _timestamp_after(state.records[at - 1])}
        state.records.insert(at, new_record)
        if str(call.fields.get("version")).startswith(_LINEAR_VERSIONS):
            _insert_into_chain(new_record, state.records, at)
        outcome = evidence.explanation or "its outcome is unknown"
        state.add_change("unanswered_call", call, f"{name} got a result: {outcome}")


def _timestamp_after(record: RepairRecord) -> object:
    """Return a time just after a record, because older clients resume at the record with the latest time."""
    timestamp = record.fields.get("timestamp")
    time = parse_timestamp(timestamp) if isinstance(timestamp, str) else None
    if time is None:
        return timestamp
    try:
        later = (time + timedelta(milliseconds=1)).astimezone(UTC)
    except OverflowError:  # no later time can be represented
        return timestamp
    return later.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _insert_into_chain(new_record: RepairRecord, records: list[RepairRecord], at: int) -> None:
    """Link a new record between `records[at - 1]` and its children, because old clients expect a single chain."""
    above = records[at - 1].uuid
    for record in records[at + 1 :]:
        if record.uuid is not None and record.parent_uuid == above:
            record.fields = {**record.fields, "parentUuid": new_record.uuid}
    new_record.fields = {**new_record.fields, "parentUuid": above}


def _deferred_call(record: RepairRecord) -> str | None:
    """Return the id of the call that a record reports as deferred by a hook."""
    attached = record.fields.get("attachment")
    if isinstance(attached, dict) and attached.get("type") == "hook_deferred_tool":
        return str(attached.get("toolUseID"))
    return None


def _make_result_record(call: RepairRecord, name: str, text: str) -> RepairRecord:
    block: RecordFields = {"type": "tool_result", "content": text, "is_error": True, "tool_use_id": name}
    extra_fields: RecordFields = {
        "toolUseResult": text,
        "toolDenialKind": "interrupted",
        "sourceToolAssistantUUID": call.uuid,
    }
    return _make_user_record(call, {"role": "user", "content": [block]}, call.uuid, extra_fields)


def _make_user_record(
    like: RepairRecord, message: RecordFields, parent: str | None, extra_fields: RecordFields
) -> RepairRecord:
    """Return a new user record with the common fields of `like`."""
    fields: RecordFields = {"parentUuid": parent, "type": "user", "message": message}
    fields |= {"uuid": str(uuid.uuid4()), "timestamp": like.fields.get("timestamp")} | extra_fields
    return RepairRecord(fields | {key: like.fields[key] for key in _INHERITED_KEYS if key in like.fields}, 0)


def _ensure_user_start(state: _RepairState) -> None:
    """Insert a placeholder if the user's first message is lost."""
    first = next((record for record in state.records if record.is_message and record.agent_key is None), None)
    if first is None or (first.type == "user" and not first.result_ids):
        return
    if first.parent_uuid is None:
        return  # the original also starts this way
    message: RecordFields = {"role": "user", "content": LOST_BEGINNING_MESSAGE}
    new_record = _make_user_record(first, message, None, {"isMeta": True})
    state.records.insert(state.records.index(first), new_record)
    first.fields = {**first.fields, "parentUuid": new_record.uuid}
    state.add_change("lost_beginning", first, "the first message is lost; a placeholder was added")


def _repair_parents(state: _RepairState) -> None:
    """Give every record an existing parent, without cycles."""
    records_by_uuid = {record.uuid: record for record in state.records if record.uuid is not None}
    before: dict[str | None, str | None] = {}
    for record in records_by_uuid.values():
        last, before[record.agent_key] = before.get(record.agent_key), record.uuid
        parent = _surviving_parent(record.parent_uuid, state.removed_parents)
        if parent is not None and parent not in records_by_uuid:
            state.add_change("missing_parent", record, "its parent is lost; the previous line became its parent")
            parent = last
        record.fields = {**record.fields, "parentUuid": parent}
    _break_cycles(state, records_by_uuid)


def _break_cycles(state: _RepairState, records_by_uuid: Mapping[str, RepairRecord]) -> None:
    """Break each cycle by giving one of its records an earlier record of its conversation as parent."""
    ends: set[str] = set()
    before: dict[str | None, str] = {}
    for uuid_, record in records_by_uuid.items():
        way: set[str] = set()
        at: RepairRecord | None = record
        while at is not None and at.uuid is not None and at.uuid not in ends:
            if at.uuid in way:
                at.fields = {**at.fields, "parentUuid": before.get(at.agent_key)}
                state.add_change("parent_cycle", at, "it was its own ancestor; an earlier line became its parent")
                break
            way.add(at.uuid)
            at = records_by_uuid.get(at.parent_uuid or "")
        ends |= way
        before[record.agent_key] = uuid_


def _update_leaf(state: _RepairState) -> None:
    """Correct records that refer to the last message of the conversation."""
    uuids = {record.uuid for record in state.records if record.uuid is not None}
    last: str | None = None
    for record in state.records:
        leaf = record.fields.get("leafUuid")
        if record.is_message and record.agent_key is None:
            last = record.uuid
        elif isinstance(leaf, str) and leaf not in uuids and record.type == "last-prompt":
            record.fields = {**record.fields, "leafUuid": last}


def _surviving_parent(parent: str | None, removed_parents: Mapping[str, str | None]) -> str | None:
    """Return the nearest ancestor that was not removed."""
    passed: set[str] = set()
    while parent is not None and parent in removed_parents:
        if parent in passed:
            return None
        passed.add(parent)
        parent = removed_parents[parent]
    return parent


def _rename_session(state: _RepairState, session_id: str, new_id: str) -> None:
    foreign_count = 0
    for record in state.records:
        for key in ("sessionId", "session_id"):
            if key in record.fields:
                foreign_count += record.fields[key] != session_id
                record.fields = {**record.fields, key: new_id}
    if foreign_count:
        message = "lines that named another session were corrected"
        state.changes.append(RepairChange("foreign_session", 0, message, foreign_count))


def _is_call(block: RecordFields) -> bool:
    return block.get("type") == "tool_use"


def _has_valid_id(call: RecordFields) -> bool:
    """Return whether a call's id is a string or missing."""
    return isinstance(call.get("id"), str | None)


def _repair_file(path: Path, old: str, new: str, lookup_evidence: EvidenceLookup) -> RepairedConversation:
    records, damage = load_records(source_for_path(path))
    repaired = repair_records(records, old, new, lookup_evidence)
    return RepairedConversation(repaired.records, [*damage, *repaired.changes])


def _unknown_evidence(calls: Iterable[str]) -> Mapping[str, CallEvidence]:
    return {call: CallEvidence("unknown") for call in calls}


def _agent_files(path: Path) -> list[Path]:
    folder = session_folder(path) / "subagents"
    return sorted(file for file in folder.rglob("*.jsonl") if parse_file_name(file).role == "agent")


def _agent_changes(agents: Mapping[Path, RepairedConversation]) -> list[RepairChange]:
    return [
        RepairChange(change.code, change.line, f"{path.stem}: {change.words}", change.count)
        for path, repaired in agents.items()
        for change in repaired.changes
    ]


def _write_records(target: Path, records: Iterable[RepairRecord]) -> None:
    """Write a file atomically: write and sync a temporary file, then rename it."""
    _make_private_folder(target.parent)
    partial_path = target.with_name(f".{target.name}.part")
    try:
        descriptor = os.open(partial_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(json_repair.encode_document(record.fields) + b"\n" for record in records)
            file.flush()
            os.fsync(file.fileno())
        partial_path.rename(target)
    finally:
        partial_path.unlink(missing_ok=True)


def _make_private_folder(folder: Path) -> None:
    if not folder.exists():
        _make_private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _write_companions(old: Path, new: Path, agents: Mapping[Path, RepairedConversation]) -> None:
    """Write the repaired subagent transcripts, their metadata files and spilled outputs."""
    for path, repaired in agents.items():
        _write_records(new / path.relative_to(old), repaired.records)
    for path in (old / "subagents").rglob("*.json"):
        copy = new / path.relative_to(old)
        _make_private_folder(copy.parent)
        shutil.copy(path, copy)
    if (old / "tool-results").is_dir():
        shutil.copytree(old / "tool-results", new / "tool-results")


def _first_cwd(records: Iterable[RepairRecord]) -> str | None:
    """Return the first working folder, by which clients find a session."""
    values = (record.fields.get("cwd") for record in records)
    return next((cwd for cwd in values if isinstance(cwd, str)), None)
