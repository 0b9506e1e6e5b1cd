"""Repair a damaged Claude Code session by writing a valid copy under a new session id.

Only duplicate records, results for unknown calls and empty lines are removed. Start at
`repair_session`; `_repair_records` lists the steps.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from pathlib import Path

from msgspec.structs import replace

from toolspan.formats import evidence, json_repair
from toolspan.formats.base import RepairChange, RepairResult
from toolspan.formats.evidence import CallEvidence, collect_evidence, format_unanswered
from toolspan.formats.jsonl import make_folder, read_lines
from toolspan.formats.registry import parse_file_name
from toolspan.formats.side_files import session_folder
from toolspan.formats.source import Source, source_for_path
from toolspan.types.span import parse_timestamp

_HARMLESS_CODES = frozenset({"foreign_session"})
"""Findings that alone do not justify a copy, because clients identify a session by its file name."""


def repair_session(path: Path, *, write: bool = True) -> RepairResult:
    """Write a valid copy of a damaged session, or only return the changes if `write` is false.

    Raises:
        SourceError: the session cannot be read.
        OSError: the copy cannot be written.
    """
    session_id, new_id, folder = parse_file_name(path).stem, str(uuid.uuid4()), session_folder(path)
    records, changes = _load_records(source_for_path(path))
    changes += _repair_records(records, session_id, new_id, lambda calls: collect_evidence(path, calls))
    agents: dict[Path, list[_Record]] = {}
    for agent_path in sorted((folder / "subagents").rglob("*.jsonl")):
        if parse_file_name(agent_path).role == "agent":
            agents[agent_path], agent_changes = _load_records(source_for_path(agent_path))
            agent_changes += _repair_records(
                agents[agent_path], session_id, new_id, lambda calls: dict.fromkeys(calls, evidence.NO_EVIDENCE)
            )
            changes += [replace(change, words=f"{agent_path.stem}: {change.words}") for change in agent_changes]
    if all(change.code in _HARMLESS_CODES for change in changes):
        changes = []
    target = path.with_name(f"{new_id}.jsonl") if changes and write else None
    if target is not None:
        _write_records(target, records)
        new_folder = session_folder(target)
        for agent_path, agent_records in agents.items():
            _write_records(new_folder / agent_path.relative_to(folder), agent_records)
        for meta_path in (folder / "subagents").rglob("*.json"):
            copy = new_folder / meta_path.relative_to(folder)
            make_folder(copy.parent)
            shutil.copy(meta_path, copy)
        if (folder / "tool-results").is_dir():
            shutil.copytree(folder / "tool-results", new_folder / "tool-results")
    folders = (record.fields.get("cwd") for record in records)
    return RepairResult(
        original=path,
        changes=changes,
        record_count=len(records),
        session_id=new_id if target else None,
        path=target,
        cwd=next((cwd for cwd in folders if isinstance(cwd, str)), None),
    )


_UNNAMED_AGENT = "a subagent"
"""The key for subagents in the session's own file, to which old clients wrote them without an id."""


@dataclass(slots=True, eq=False)
class _Record:
    """A record and its line number."""

    fields: dict[str, object]
    line: int

    def _string(self, key: str) -> str | None:
        value = self.fields.get(key)
        return value if isinstance(value, str) else None

    @property
    def uuid(self) -> str | None:
        return self._string("uuid")

    @property
    def parent_uuid(self) -> str | None:
        return self._string("parentUuid")

    @property
    def type(self) -> object:
        return self.fields.get("type")

    @property
    def is_message(self) -> bool:
        return self.type in ("user", "assistant")

    @property
    def agent_key(self) -> str | None:
        """The subagent that wrote the record, or None for the main conversation."""
        return self._string("agentId") or (_UNNAMED_AGENT if self.fields.get("isSidechain") else None)

    @property
    def message(self) -> dict[str, object]:
        value = self.fields.get("message")
        return value if isinstance(value, dict) else {}

    @property
    def blocks(self) -> list[dict[str, object]]:
        content = self.message.get("content")
        values = content if isinstance(content, list) else []
        return [block for block in values if isinstance(block, dict)]

    @property
    def call_ids(self) -> list[str]:
        if self.type != "assistant":
            return []
        return [str(block["id"]) for block in self.blocks if block.get("type") == "tool_use" and block.get("id")]

    @property
    def result_ids(self) -> list[str]:
        if self.type != "user":
            return []
        return [str(block.get("tool_use_id")) for block in self.blocks if block.get("type") == "tool_result"]

    def update(self, **fields: object) -> None:
        """Set fields, without changing the original record."""
        self.fields = self.fields | fields


def _load_records(source: Source) -> tuple[list[_Record], list[RepairChange]]:
    """Return every record in a transcript, and the problems found in its lines."""
    records: list[_Record] = []
    changes: list[RepairChange] = []
    for line in read_lines(source):
        if not line.is_oversized and not line.data.strip():
            continue
        documents: list[object] = []
        code: str | None = "line_too_long"
        if not line.is_oversized:
            try:
                documents = [json_repair.decode_document(line.data)]
                code = None if isinstance(documents[0], dict) else "not_an_object"
            except ValueError:
                recovered = json_repair.recover_objects(line.data)
                code = recovered.reason if line.has_newline or recovered.pieces else "torn_last_line"
                documents = [json_repair.decode_document(piece.data) for piece in recovered.pieces]
        line_records = [_Record(fields, line.number) for fields in documents if isinstance(fields, dict)]
        records += line_records
        if code is not None:
            outcome = f"{len(line_records)} records recovered" if line_records else "no record could be recovered"
            changes.append(RepairChange(code, line.number, outcome))
    return records, changes


EvidenceLookup = Callable[[list[str]], Mapping[str, CallEvidence]]
"""A function that returns the evidence for calls without a result."""

_LINEAR_VERSIONS = ("1.", "2.0.")
"""Versions in which a result's parent is the previous line, not the line of its call."""
_INHERITED_KEYS = (
    "isSidechain", "promptId", "agentId", "userType", "entrypoint", "cwd", "sessionId", "version",
    "gitBranch", "slug",
)  # fmt: skip
"""Keys that a new record copies from a neighbouring record."""


@dataclass(slots=True)
class _RepairState:
    """A conversation during its repair."""

    records: list[_Record]
    changes: list[RepairChange] = field(default_factory=list)
    removed_parents: dict[str, str | None] = field(default_factory=dict)
    """The parent uuids of removed records, by their own uuid."""

    def add_change(self, code: str, record: _Record, message: str) -> None:
        self.changes.append(RepairChange(code, record.line, message))

    def remove(self, record: _Record) -> None:
        if record.uuid is not None:
            self.removed_parents[record.uuid] = record.parent_uuid
        self.records.remove(record)

    def set_blocks(self, record: _Record, blocks: list[dict[str, object]]) -> None:
        """Replace the content blocks of a message; a message without blocks is removed."""
        if blocks:
            record.update(message={**record.message, "content": blocks})
        else:
            self.remove(record)

    def records_by_call(self) -> dict[str, list[_Record]]:
        """Return the records of the message that contains each call, by call id."""
        messages: dict[object, list[_Record]] = {}
        for record in self.records:
            if record.type == "assistant":
                message_id = record.message.get("id")
                key = message_id if isinstance(message_id, str) and message_id else id(record)
                messages.setdefault((record.agent_key, key), []).append(record)
        return {call: group for group in messages.values() for member in group for call in member.call_ids}


def _repair_records(
    records: list[_Record], session_id: str, new_id: str, lookup_evidence: EvidenceLookup
) -> list[RepairChange]:
    """Repair a conversation in place; `session_id` is the expected id, `new_id` the id of the copy."""
    state = _RepairState(records)
    _drop_invalid_content(state)
    _resolve_duplicate_uuids(state)
    _keep_first_calls(state)
    _keep_first_results(state)
    _move_results_after_calls(state)
    _answer_open_calls(state, lookup_evidence)
    _ensure_user_start(state)
    _repair_parents(state)
    _update_leaf(state)
    _rename_session(state, session_id, new_id)
    return state.changes


def _drop_invalid_content(state: _RepairState) -> None:
    for record in list(state.records):
        content = record.message.get("content")
        if record.is_message and not isinstance(content, str | list):
            state.remove(record)
            state.add_change("odd_type", record, f"a {record.type} line without a message was removed")
            continue
        misplaced_type = "tool_result" if record.type == "assistant" else "tool_use"
        blocks = [block for block in record.blocks if block.get("type") != misplaced_type]
        if record.is_message and len(blocks) < len(record.blocks):
            state.set_blocks(record, blocks)
            state.add_change("odd_type", record, f"a {misplaced_type} in a {record.type} line was removed")
    for record in list(state.records):
        blocks = [
            block
            for block in record.blocks
            if block.get("type") != "tool_use" or (block.get("id") and isinstance(block["id"], str))
        ]
        if record.is_message and len(blocks) < len(record.blocks):
            state.set_blocks(record, blocks)
            state.add_change("odd_type", record, "a call without an id, which no result can answer, was removed")


def _resolve_duplicate_uuids(state: _RepairState) -> None:
    """Remove duplicate records, and assign new uuids to different records that share one."""
    seen: dict[str, _Record] = {}
    for record in list(state.records):
        first = seen.setdefault(record.uuid, record) if record.uuid is not None else record
        if first is record:
            continue
        if first.fields == record.fields:
            state.records.remove(record)
            state.add_change("duplicate_uuid", record, "a second copy of a line was removed")
        else:
            record.update(uuid=str(uuid.uuid4()))
            state.add_change("duplicate_uuid", record, "a line with the uuid of another line got a new one")


def _keep_first_calls(state: _RepairState) -> None:
    seen_calls: set[str] = set()
    for record in list(state.records):
        call_ids = record.call_ids
        if not seen_calls.isdisjoint(call_ids):
            blocks = [
                block
                for block in record.blocks
                if block.get("type") != "tool_use" or str(block.get("id")) not in seen_calls
            ]
            state.set_blocks(record, blocks)
            state.add_change("duplicate_call", record, "a second copy of a call was removed")
        seen_calls.update(call_ids)


def _keep_first_results(state: _RepairState) -> None:
    """Keep one result for each call, and remove results for unknown calls."""
    call_ids = {call for record in state.records for call in record.call_ids}
    answered: set[str] = set()
    for record in list(state.records):
        if not record.result_ids:
            continue
        blocks: list[dict[str, object]] = []
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
            state.set_blocks(record, blocks)


def _move_results_after_calls(state: _RepairState) -> None:
    """Move results that precede their call or follow another message.

    The user may write while a call runs. If other messages are in between, the result must be a
    child of its call, because clients use the parent to find it.
    """
    groups, records = state.records_by_call(), state.records
    positions = {id(record): n for n, record in enumerate(records)}
    for record in list(records):
        names = record.result_ids
        if not names:
            continue
        group = groups[names[0]]
        at, first, last = positions[id(record)], positions[id(group[0])], positions[id(group[-1])]
        is_child = record.parent_uuid in {member.uuid for member in group}
        between = records[last + 1 : at]
        if at > first and (is_child or not any(other.is_message and not other.result_ids for other in between)):
            continue
        records.remove(record)
        records.insert(records.index(group[-1]) + 1, record)
        positions = {id(other): n for n, other in enumerate(records)}
        call = next(member for member in group if names[0] in member.call_ids)
        record.update(parentUuid=call.uuid)
        if "sourceToolAssistantUUID" in record.fields:
            record.update(sourceToolAssistantUUID=call.uuid)
        state.add_change("misplaced_result", record, f"the result of {names[0]} was moved after its call")


def _answer_open_calls(state: _RepairState, lookup_evidence: EvidenceLookup) -> None:
    """Add a result that states the evidence to each call without a result."""
    records = state.records
    answered = {name for record in records for name in record.result_ids}
    for record in records:  # a hook may have deferred the call
        attached = record.fields.get("attachment")
        if isinstance(attached, dict) and attached.get("type") == "hook_deferred_tool":
            answered.add(str(attached.get("toolUseID")))
    groups = state.records_by_call()
    open_calls = [name for name in groups if name not in answered]
    evidence_by_call = lookup_evidence(open_calls) if open_calls else {}
    for name in open_calls:
        group, call_evidence = groups[name], evidence_by_call[name]
        call = next(record for record in group if name in record.call_ids)
        at = records.index(group[-1]) + 1
        while at < len(records) and records[at].result_ids:
            at += 1
        before = records[at - 1]
        text = format_unanswered(call_evidence)
        block = {"type": "tool_result", "content": text, "is_error": True, "tool_use_id": name}
        new_record = _make_user_record(
            call,
            {"role": "user", "content": [block]},
            parentUuid=call.uuid,
            toolUseResult=text,
            toolDenialKind="interrupted",
            sourceToolAssistantUUID=call.uuid,
            timestamp=_time_after(before.fields.get("timestamp")),
        )
        records.insert(at, new_record)
        if str(call.fields.get("version")).startswith(_LINEAR_VERSIONS):  # old clients expect a single chain
            for record in records[at + 1 :]:
                if record.uuid is not None and record.parent_uuid == before.uuid:
                    record.update(parentUuid=new_record.uuid)
            new_record.update(parentUuid=before.uuid)
        outcome = call_evidence.explanation or "its outcome is unknown"
        state.add_change("unanswered_call", call, f"{name} got a result: {outcome}")


def _time_after(timestamp: object) -> object:
    """Return a time just after that of a record, because older clients resume at the latest record."""
    time = parse_timestamp(timestamp) if isinstance(timestamp, str) else None
    if time is None:
        return timestamp
    try:
        later = (time + timedelta(milliseconds=1)).astimezone(UTC)
    except OverflowError:  # no later time can be represented
        return timestamp
    return later.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _make_user_record(like: _Record, message: dict[str, object], **fields: object) -> _Record:
    """Return a new user record with the common fields of `like`."""
    new_fields = {
        "parentUuid": None,
        "type": "user",
        "message": message,
        "uuid": str(uuid.uuid4()),
        "timestamp": like.fields.get("timestamp"),
        **fields,
    }
    return _Record(new_fields | {key: like.fields[key] for key in _INHERITED_KEYS if key in like.fields}, 0)


def _ensure_user_start(state: _RepairState) -> None:
    first = next((record for record in state.records if record.is_message and record.agent_key is None), None)
    if first is None or (first.type == "user" and not first.result_ids):
        return
    if first.parent_uuid is None:
        return  # the original also starts this way
    new_record = _make_user_record(first, {"role": "user", "content": evidence.LOST_BEGINNING_MESSAGE}, isMeta=True)
    state.records.insert(state.records.index(first), new_record)
    first.update(parentUuid=new_record.uuid)
    state.add_change("lost_beginning", first, "the first message is lost; a placeholder was added")


def _repair_parents(state: _RepairState) -> None:
    """Give every record an existing parent, without cycles."""
    records_by_uuid = {record.uuid: record for record in state.records if record.uuid is not None}
    previous: dict[str | None, str | None] = {}
    for record in records_by_uuid.values():
        last, previous[record.agent_key] = previous.get(record.agent_key), record.uuid
        parent = record.parent_uuid
        passed: set[str] = set()
        while parent is not None and parent in state.removed_parents:
            passed.add(parent)
            parent = state.removed_parents[parent]
            if parent in passed:
                parent = None
        if parent is not None and parent not in records_by_uuid:
            state.add_change("missing_parent", record, "its parent is lost; the previous line became its parent")
            parent = last
        record.update(parentUuid=parent)
    _break_cycles(state, records_by_uuid)


def _break_cycles(state: _RepairState, records_by_uuid: Mapping[str, _Record]) -> None:
    """Break each cycle by giving one of its records an earlier record of its conversation as parent."""
    ends: set[str] = set()
    before: dict[str | None, str] = {}
    for uuid_, record in records_by_uuid.items():
        way: set[str] = set()
        at: _Record | None = record
        while at is not None and at.uuid is not None and at.uuid not in ends:
            if at.uuid in way:
                at.update(parentUuid=before.get(at.agent_key))
                state.add_change("parent_cycle", at, "it was its own ancestor; an earlier line became its parent")
                break
            way.add(at.uuid)
            at = records_by_uuid.get(at.parent_uuid or "")
        ends |= way
        before[record.agent_key] = uuid_


def _update_leaf(state: _RepairState) -> None:
    uuids = {record.uuid for record in state.records if record.uuid is not None}
    last: str | None = None
    for record in state.records:
        leaf = record.fields.get("leafUuid")
        if record.is_message and record.agent_key is None:
            last = record.uuid
        elif isinstance(leaf, str) and leaf not in uuids and record.type == "last-prompt":
            record.update(leafUuid=last)


def _rename_session(state: _RepairState, session_id: str, new_id: str) -> None:
    foreign_count = 0
    for record in state.records:
        for key in ("sessionId", "session_id"):
            if key in record.fields:
                foreign_count += record.fields[key] != session_id
                record.update(**{key: new_id})
    if foreign_count:
        message = "lines that named another session were corrected"
        state.changes.append(RepairChange("foreign_session", 0, message, foreign_count))


def _write_records(target: Path, records: Iterable[_Record]) -> None:
    """Write a file atomically: write and sync a temporary file, then rename it."""
    make_folder(target.parent)
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
