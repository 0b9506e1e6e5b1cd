"""A damaged conversation made sound.

In: the records of a transcript. Out: records in which every call has its one result behind it,
every record hangs on one that is there, and every line names one session; and what was changed for
that. What can be saved is saved: nothing is taken away but second copies, results of calls that
nobody knows, and lines that hold nothing. Writes nothing. Read `mend` first: its steps are the
functions below it, in their order.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, timedelta

from toolspan.model.span import moment
from toolspan.record.evidence import LOST_BEGINNING, Verdict, unanswered_words
from toolspan.repair.records import Change, Fields, Record

Judge = Callable[[list[str]], Mapping[str, Verdict]]
"""What is known of calls without a result."""

_LINEAR = ("1.", "2.0.")
"""Versions in which a result hangs on the line before, not on its call."""
_ENVELOPE = (
    "isSidechain", "promptId", "agentId", "userType", "entrypoint", "cwd", "sessionId", "version",
    "gitBranch", "slug",
)  # fmt: skip
"""What a record that was never written takes over from its neighbour."""


@dataclass(frozen=True, slots=True)
class Mended:
    """A sound conversation."""

    records: list[Record]
    changes: list[Change]


@dataclass(slots=True)
class _Work:
    """A conversation on its way."""

    records: list[Record]
    changes: list[Change] = field(default_factory=list)
    gone: dict[str, str | None] = field(default_factory=dict)
    """Records that were taken away, and what they hung on."""

    def tell(self, code: str, record: Record | None, words: str) -> None:
        self.changes.append(Change(code, record.line if record else 0, words))

    def drop(self, record: Record) -> None:
        if record.uuid is not None:
            self.gone[record.uuid] = record.parent
        self.records = [one for one in self.records if one is not record]


def mend(records: list[Record], session_id: str, new_id: str, judge: Judge) -> Mended:
    """Make a conversation sound; `session_id` is the one it should have had, `new_id` the new."""
    work = _Work(list(records))
    _drop_mute(work)
    _drop_nameless(work)
    _tell_apart(work)
    _keep_first_calls(work)
    _keep_first_results(work)
    _put_results_behind_calls(work)
    _answer(work, judge)
    _begin_with_user(work)
    _link(work)
    _point_to_end(work)
    _name_session(work, session_id, new_id)
    return Mended(work.records, work.changes)


def _drop_mute(work: _Work) -> None:
    """Words that are no words."""
    for record in list(work.records):
        content = record.message.get("content")
        if record.speaks and not isinstance(content, str | list):
            work.drop(record)
            work.tell("odd_type", record, f"a {record.type} line without a message is left out")
            continue
        strange = "tool_result" if record.type == "assistant" else "tool_use"
        kept = [block for block in record.blocks if block.get("type") != strange]
        if record.speaks and len(kept) < len(record.blocks):
            _leave(work, record, kept)
            work.tell("odd_type", record, f"a {strange} in a {record.type} line is left out")


def _drop_nameless(work: _Work) -> None:
    """Calls that no result can name."""
    for record in list(work.records):
        kept = [block for block in record.blocks if not _is_call(block) or _has_name(block)]
        if record.speaks and len(kept) < len(record.blocks):
            _leave(work, record, kept)
            work.tell("odd_type", record, "a call whose id is no text is left out")


def _tell_apart(work: _Work) -> None:
    """Records that share an id: a second copy goes, another record gets an id of its own."""
    seen: dict[str, Record] = {}
    for record in list(work.records):
        if record.uuid is None:
            continue
        first = seen.setdefault(record.uuid, record)
        if first is record:
            continue
        if first.fields == record.fields:
            work.records = [one for one in work.records if one is not record]
            work.tell("duplicate_uuid", record, "a second copy of a line is left out")
        else:
            record.fields = {**record.fields, "uuid": str(uuid.uuid4())}
            work.tell("duplicate_uuid", record, "a line with another's id gets an id of its own")


def _keep_first_calls(work: _Work) -> None:
    asked: set[str] = set()
    for record in list(work.records):
        if asked.isdisjoint(record.calls):
            asked.update(record.calls)
            continue
        kept = [
            one for one in record.blocks if not _is_call(one) or str(one.get("id")) not in asked
        ]
        asked.update(record.calls)
        _leave(work, record, kept)
        work.tell("duplicate_call", record, "a call that was there before is left out")


def _keep_first_results(work: _Work) -> None:
    """One result for each call; those of calls that nobody knows go."""
    asked = {call for record in work.records for call in record.calls}
    answered: set[str] = set()
    for record in list(work.records):
        names = record.answers
        if not names:
            continue
        kept: list[Fields] = []
        for block in record.blocks:
            name = str(block.get("tool_use_id"))
            if block.get("type") != "tool_result":
                kept.append(block)
            elif name not in asked:
                work.tell("orphan_result", record, f"the call of {name} is lost; so is its result")
            elif name in answered:
                work.tell("duplicate_result", record, f"a further result of {name} is left out")
            else:
                kept.append(block)
                answered.add(name)
        if len(kept) < len(record.blocks):
            _leave(work, record, kept)


def _leave(work: _Work, record: Record, blocks: list[Fields]) -> None:
    if blocks:
        record.keep(blocks)
    else:
        work.drop(record)


def _put_results_behind_calls(work: _Work) -> None:
    """A result that stands before its call, or after somebody else has spoken, is moved."""
    groups = _groups(work)
    where = {id(record): n for n, record in enumerate(work.records)}
    for record in list(work.records):
        names = record.answers
        if not names or _is_behind(record, groups[names[0]], work.records, where):
            continue
        group = groups[names[0]]
        work.records.remove(record)
        work.records.insert(work.records.index(group[-1]) + 1, record)
        where = {id(one): n for n, one in enumerate(work.records)}
        _hang(record, _call_of(group, names[0]))
        work.tell("misplaced_result", record, f"the result of {names[0]} is put behind its call")


def _is_behind(
    result: Record, group: list[Record], records: list[Record], where: Mapping[int, int]
) -> bool:
    """Whether a result stands where it should: behind its call, and hanging on it if apart.

    Somebody may speak while a call runs; clients find its result by what it hangs on.
    """
    at, first, last = where[id(result)], where[id(group[0])], where[id(group[-1])]
    hangs = result.parent in {one.uuid for one in group}
    return at > first and (hangs or not any(map(_interrupts, records[last + 1 : at])))


def _interrupts(record: Record) -> bool:
    """Whether somebody speaks who is neither the message nor a result of it."""
    return record.speaks and not record.answers


def _groups(work: _Work) -> dict[str, list[Record]]:
    """The records of each call's message."""
    messages: dict[object, list[Record]] = {}
    for record in work.records:
        if record.type == "assistant":
            messages.setdefault((record.side, record.message_id or id(record)), []).append(record)
    return {call: group for group in messages.values() for one in group for call in one.calls}


def _call_of(group: list[Record], name: str) -> Record:
    return next(one for one in group if name in one.calls)


def _hang(result: Record, call: Record) -> None:
    fields = {**result.fields, "parentUuid": call.uuid}
    if "sourceToolAssistantUUID" in fields:
        fields["sourceToolAssistantUUID"] = call.uuid
    result.fields = fields


def _answer(work: _Work, judge: Judge) -> None:
    """A call without a result gets one that says what is known of it."""
    answered = {name for record in work.records for name in record.answers}
    put_off = {_put_off(record) for record in work.records}
    groups = _groups(work)
    owed = [name for name in groups if name not in answered | put_off]
    verdicts = judge(owed) if owed else {}
    for name in owed:
        group = groups[name]
        call, verdict = _call_of(group, name), verdicts[name]
        at = work.records.index(group[-1]) + 1
        while at < len(work.records) and work.records[at].answers:
            at += 1
        made = _made_result(call, name, unanswered_words(verdict))
        made.fields = {**made.fields, "timestamp": _after(work.records[at - 1])}
        work.records.insert(at, made)
        if str(call.fields.get("version")).startswith(_LINEAR):
            _put_in_line(made, work.records, at)
        known = verdict.words or "nothing is known of what became of it"
        work.tell("unanswered_call", call, f"{name} is answered: {known}")


def _after(record: Record) -> object:
    """A moment after a record: older clients take the latest one for the end."""
    told = record.fields.get("timestamp")
    time = moment(told) if isinstance(told, str) else None
    if time is None:
        return told
    try:
        later = (time + timedelta(milliseconds=1)).astimezone(UTC)
    except OverflowError:  # there is none after it
        return told
    return later.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _put_in_line(made: Record, records: list[Record], at: int) -> None:
    """Old clients see one line of records: what hung on the one before hangs on the new one."""
    above = records[at - 1].uuid
    for record in records[at + 1 :]:
        if record.uuid is not None and record.parent == above:
            record.fields = {**record.fields, "parentUuid": made.uuid}
    made.fields = {**made.fields, "parentUuid": above}


def _put_off(record: Record) -> str | None:
    """The call that a hook put off, if that is what a record tells."""
    attached = record.fields.get("attachment")
    if isinstance(attached, dict) and attached.get("type") == "hook_deferred_tool":
        return str(attached.get("toolUseID"))
    return None


def _made_result(call: Record, name: str, words: str) -> Record:
    block: Fields = {"type": "tool_result", "content": words, "is_error": True, "tool_use_id": name}
    more: Fields = {
        "toolUseResult": words,
        "toolDenialKind": "interrupted",
        "sourceToolAssistantUUID": call.uuid,
    }
    return _made(call, {"role": "user", "content": [block]}, call.uuid, more)


def _made(like: Record, message: Fields, parent: str | None, more: Fields) -> Record:
    """A record of the user's side, beside another one."""
    told: Fields = {"parentUuid": parent, "type": "user", "message": message}
    told |= {"uuid": str(uuid.uuid4()), "timestamp": like.fields.get("timestamp")} | more
    return Record(told | {key: like.fields[key] for key in _ENVELOPE if key in like.fields}, 0)


def _begin_with_user(work: _Work) -> None:
    """A conversation begins with the user's words."""
    first = next((one for one in work.records if one.speaks and one.side is None), None)
    if first is None or (first.type == "user" and not first.answers):
        return
    if first.parent is None:
        return  # it began so
    message: Fields = {"role": "user", "content": LOST_BEGINNING}
    made = _made(first, message, None, {"isMeta": True})
    work.records.insert(work.records.index(first), made)
    first.fields = {**first.fields, "parentUuid": made.uuid}
    work.tell("lost_beginning", first, "the first words are lost; a line says so")


def _link(work: _Work) -> None:
    """Every record hangs on one that is there, and no way up runs in a circle."""
    known = {record.uuid: record for record in work.records if record.uuid is not None}
    before: dict[str | None, str | None] = {}
    for record in known.values():
        last, before[record.side] = before.get(record.side), record.uuid
        parent = _standing(record.parent, work.gone)
        if parent is not None and parent not in known:
            work.tell("missing_parent", record, "its parent is lost; it hangs on the line before")
            parent = last
        record.fields = {**record.fields, "parentUuid": parent}
    _open_circles(work, known)


def _open_circles(work: _Work, known: Mapping[str, Record]) -> None:
    """Whoever hangs on itself hangs on the latest record before whose way up is known to end."""
    ends: set[str] = set()
    before: dict[str | None, str] = {}
    for uuid_, record in known.items():
        way: set[str] = set()
        at: Record | None = record
        while at is not None and at.uuid is not None and at.uuid not in ends:
            if at.uuid in way:
                at.fields = {**at.fields, "parentUuid": before.get(at.side)}
                work.tell("parent_cycle", at, "it hung on itself; it hangs on a line before")
                break
            way.add(at.uuid)
            at = known.get(at.parent or "")
        ends |= way
        before[record.side] = uuid_


def _point_to_end(work: _Work) -> None:
    """Lines that name the end of the conversation, by which clients find it."""
    known = {record.uuid for record in work.records if record.uuid is not None}
    last: str | None = None
    for record in work.records:
        leaf = record.fields.get("leafUuid")
        if record.speaks and record.side is None:
            last = record.uuid
        elif isinstance(leaf, str) and leaf not in known and record.type == "last-prompt":
            record.fields = {**record.fields, "leafUuid": last}


def _standing(parent: str | None, gone: Mapping[str, str | None]) -> str | None:
    """What a record hangs on, those that were taken away passed over."""
    passed: set[str] = set()
    while parent is not None and parent in gone:
        if parent in passed:
            return None
        passed.add(parent)
        parent = gone[parent]
    return parent


def _name_session(work: _Work, session_id: str, new_id: str) -> None:
    strangers = 0
    for record in work.records:
        for key in ("sessionId", "session_id"):
            if key in record.fields:
                strangers += record.fields[key] != session_id
                record.fields = {**record.fields, key: new_id}
    if strangers:
        words = "lines named another session"
        work.changes.append(Change("foreign_session", 0, words, strangers))


def _is_call(block: Fields) -> bool:
    return block.get("type") == "tool_use"


def _has_name(call: Fields) -> bool:
    """Whether its id is one, or it has none at all."""
    return isinstance(call.get("id"), str | None)
