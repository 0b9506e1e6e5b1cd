"""What was said before: a transcript as the history that a conversation goes on from.

In: a transcript of any quality. Out: messages that a server takes: the active branch from the last
compaction on, the blocks of a message joined again, every call with its one result, wherever in the
file that stands. A call without a result gets one that says so, with what is known of it. Nothing
is run again, and nothing is written, except by `fork`. Read `past` first.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from toolspan.errors import Ambiguous, NotFound, ToolspanError
from toolspan.ids import SessionId
from toolspan.llm.history import Block, Message, check_history
from toolspan.model.place import Place
from toolspan.read.discover import discover
from toolspan.read.transcript import Transcript, read
from toolspan.read.tree import Tree
from toolspan.record import Verdict, judged, transcript_path
from toolspan.record.encode import encode
from toolspan.record.evidence import LOST_BEGINNING, UNANSWERED, unanswered_words
from toolspan.record.tape import make_folder
from toolspan.session.incoming import sendable
from toolspan.session.sound import sound
from toolspan.wire import document
from toolspan.wire.claude import Entry
from toolspan.wire.paths import config_dir

__all__ = ["LOST_BEGINNING", "UNANSWERED", "find", "fork", "latest", "past"]
_SYNTHETIC = "<synthetic>"

Spoken = tuple[Entry, Place]


def past(path: Path, *, until: str | None = None) -> list[Message]:
    """The history of a transcript; `until` is the id of the line it ends with, or its beginning.

    Raises:
        SourceError: it cannot be read.
        NotFound: no line has that id.
        ToolspanError: no server would take it.
    """
    return history_of(read(path), path, until=until)


def history_of(transcript: Transcript, path: Path, *, until: str | None = None) -> list[Message]:
    """As `past`, of a transcript that was read.

    Raises:
        NotFound: no line has that id.
        ToolspanError: no server would take it.
    """
    entries = _until(list(transcript.entries()), until)
    told = _Told()
    for entry, message in _spoken(transcript, entries, _tree(transcript, entries, until)):
        told.add(entry, message)
    open_calls = told.unanswered()
    words = _unanswered_words(path, transcript, open_calls) if open_calls else {}
    messages = told.messages(words)
    problems = check_history(messages) if messages else []
    if problems:
        raise ToolspanError(f"{path}: the conversation cannot go on: {problems[0]}")
    return messages


def _unanswered_words(path: Path, transcript: Transcript, calls: list[str]) -> Mapping[str, str]:
    """What is said in place of each result, in the client's words, and what is known beside."""
    put_off = {span.id for span in transcript.spans if span.deferred}
    verdicts = judged(path, calls)
    verdicts |= {
        call: Verdict("never_started", "a hook put it off, and it was never started")
        for call in calls
        if call in put_off
    }
    return {call: unanswered_words(verdict) for call, verdict in verdicts.items()}


def find(word: str, cwd: Path) -> Path:
    """The transcript of a session by its id or the beginning of it, this folder's first.

    Raises:
        NotFound: there is none, or more than one.
    """
    projects = config_dir() / "projects"
    for folder in (_folder(cwd), projects):
        files = discover(folder) if folder.is_dir() else []
        found = [one for one in files if one.name.role == "session"]
        matching = {one.name.stem: one.path for one in found if one.name.stem.startswith(word)}
        if word in matching or len(matching) == 1:
            return matching.get(word) or next(iter(matching.values()))
        if matching:
            raise Ambiguous(f"{word!r} begins {len(matching)} sessions: {', '.join(matching)}")
    raise NotFound(f"no session begins with {word!r}; see `toolspan sessions`")


def latest(cwd: Path) -> Path:
    """The transcript in this folder that was written to last.

    Raises:
        NotFound: there is none.
    """
    folder = _folder(cwd)
    files = discover(folder) if folder.is_dir() else []
    own = [one for one in files if one.name.role == "session" and one.path.parent == folder]
    if not own:
        raise NotFound(f"{cwd}: no session was recorded in this folder")
    return max(own, key=lambda one: one.modified).path


def fork(
    path: Path,
    session_id: SessionId,
    cwd: Path,
    *,
    config: Path | None = None,
    until: str | None = None,
) -> Path:
    """A copy of a transcript under another id; the original is left as it is.

    `config` is the client's folder, found by itself if not given. `until` is the id of the last
    line that is copied, or its beginning: the conversation is gone on with from there.

    Raises:
        SourceError: it cannot be read.
        NotFound: no line has that id.
        OSError: the copy cannot be written.
    """
    transcript = read(path)
    entries = _until(list(transcript.entries()), until)
    target = transcript_path(session_id, cwd, config)
    make_folder(target.parent)
    target.touch(mode=0o600)
    with target.open("wb") as copy:
        for entry, place in entries:
            if entry.session_id is not None:
                fields = _fields(transcript, place)
                copy.write(encode({**fields, "sessionId": session_id}) + b"\n")
    return target


def _fields(transcript: Transcript, place: Place) -> dict[str, object]:
    """All that a line says; nothing when it is beyond repair."""
    data = transcript.source.read(place.offset, place.length)
    try:
        found = document.decode(data)
    except ValueError:
        pieces = document.recover(data).pieces
        found = document.decode(pieces[0].data) if pieces else {}
    return found if isinstance(found, dict) else {}


def _until(entries: list[Spoken], until: str | None) -> list[Spoken]:
    """The lines up to one, with what belongs to its message: further blocks, and their results.

    Raises:
        NotFound: no line has that id, or several have one that begins so.
    """
    if until is None:
        return entries
    ids = {str(entry.uuid): n for n, (entry, _) in reversed(list(enumerate(entries))) if entry.uuid}
    found = [uuid for uuid in ids if uuid.startswith(until)] if until not in ids else [until]
    if len(found) != 1:
        told = f"begins {len(found)} lines" if found else "is the id of no line"
        raise (Ambiguous if found else NotFound)(f"{until!r} {told} of this session")
    last = ids[found[0]]
    kept, rest = entries[: last + 1], entries[last + 1 :]
    name = _message_id(entries[last][0])
    if name is None:
        return kept
    same = [one for one in entries if _message_id(one[0]) == name]
    calls = {call for entry, _ in same for call in _calls(entry)}
    return kept + [
        one for one in rest if _message_id(one[0]) == name or not calls.isdisjoint(_answers(one[0]))
    ]


def _tree(transcript: Transcript, entries: list[Spoken], until: str | None) -> Tree:
    if until is None:
        return transcript.tree
    tree = Tree()
    for entry, place in entries:
        tree.add((entry,), place.line)
    return tree


def _folder(cwd: Path) -> Path:
    return transcript_path(SessionId("any"), cwd).parent


class _Body(msgspec.Struct):
    """A line, as far as the history needs it."""

    message: dict[str, object] | None = None
    rendered: list[dict[str, object]] | None = None


def _spoken(
    transcript: Transcript, entries: list[Spoken], tree: Tree
) -> Iterator[tuple[Entry, Message]]:
    """The lines the model saw, in file order, with their messages."""
    branches = tree.branches()
    is_aside = transcript.info.agent_id is not None
    lines = [one for one in entries if _is_spoken(one[0], is_aside=is_aside)]
    active = [one for one in lines if branches.of(one[1].line) == "active"]
    ids = {_message_id(entry) for entry, _ in active} - {None}
    calls = {block for entry, _ in lines if _message_id(entry) in ids for block in _calls(entry)}
    for entry, place in lines:
        # Calls that overlap make a tree: a sibling's line and result may lie beside the way up.
        own = _message_id(entry) in ids or not calls.isdisjoint(_answers(entry))
        if branches.of(place.line) == "active" or own:
            message = _message(place, transcript)
            if message is not None:
                yield entry, message


def _is_spoken(entry: Entry, *, is_aside: bool) -> bool:
    """Whether the model saw it; what subagents say, only in a transcript of theirs."""
    if (entry.is_sidechain and not is_aside) or entry.is_api_error:
        return False
    synthetic = entry.message is not None and entry.message.model == _SYNTHETIC
    return entry.type in ("user", "assistant", "attachment") and not synthetic


def _message(place: Place, transcript: Transcript) -> Message | None:
    try:
        body = msgspec.convert(_fields(transcript, place), _Body)
    except (msgspec.MsgspecError, RecursionError):
        return None
    if body.rendered is not None:
        texts = [one.get("content") for one in body.rendered]
        words = [{"type": "text", "text": text} for text in texts if isinstance(text, str)]
        return {"role": "user", "content": words}
    return body.message


def _message_id(entry: Entry) -> str | None:
    return entry.message.id if entry.type == "assistant" and entry.message else None


def _calls(entry: Entry) -> Iterator[str]:
    content = entry.message.content if entry.message else None
    for block in content if isinstance(content, list) else ():
        if block.type == "tool_use" and block.id:
            yield block.id


def _answers(entry: Entry) -> Iterator[str]:
    content = entry.message.content if entry.message else None
    for block in content if isinstance(content, list) else ():
        if block.tool_use_id:
            yield block.tool_use_id


@dataclass(slots=True)
class _Said:
    """One message to be."""

    role: str
    id: str | None = None
    blocks: list[Block] = field(default_factory=list)


class _Told:
    """Lines, joined to messages again."""

    def __init__(self) -> None:
        self._said: list[_Said] = []
        self._calls: set[object] = set()
        self._results: dict[str, Block] = {}
        """The result of each call, the first one that is there."""

    def add(self, entry: Entry, message: Message) -> None:
        """The next line."""
        blocks = sound(message.get("content"))
        if entry.type == "assistant":
            said = [one for one in blocks if one["type"] != "tool_result"]
            self._assistant(str(message.get("id")), said)
            return
        for one in blocks:
            if one["type"] == "tool_result":
                self._results.setdefault(str(one["tool_use_id"]), one)
        self._user([one for one in blocks if one["type"] not in ("tool_use", "tool_result")])

    def unanswered(self) -> list[str]:
        """The calls that have no result."""
        return [str(call) for call in self._calls if call not in self._results]

    def messages(self, unanswered: Mapping[str, str]) -> list[Message]:
        """All of it, such that a server takes it; with what is said of calls without a result."""
        made: list[Message] = []
        owed: list[Block] = []
        for said in self._said:
            if said.role == "assistant":
                if not made:
                    words: Block = {"type": "text", "text": LOST_BEGINNING}
                    made.append({"role": "user", "content": [words]})
                _add(made, "user", owed)
                blocks = sendable(said.blocks)
                owed = list(self._answers(blocks, unanswered))
            else:
                blocks, owed = owed + said.blocks, []
            _add(made, said.role, blocks)
        _add(made, "user", owed)
        return made

    def _answers(self, blocks: list[Block], unanswered: Mapping[str, str]) -> Iterator[Block]:
        """One result for each call: those there are, in the order they came in, then the others."""
        calls = {str(one["id"]) for one in blocks if one["type"] == "tool_use"}
        yield from (one for name, one in self._results.items() if name in calls)
        for one in blocks:
            if one["type"] == "tool_use" and one["id"] not in self._results:
                name = str(one["id"])
                yield {
                    "type": "tool_result",
                    "tool_use_id": name,
                    "content": unanswered[name],
                    "is_error": True,
                }

    def _once(self, blocks: list[Block]) -> Iterator[Block]:
        """Without calls that were there before: clients may write a part of the history again."""
        for one in blocks:
            if one["type"] != "tool_use":
                yield one
            elif one["id"] not in self._calls:
                self._calls.add(one["id"])
                yield one

    def _assistant(self, name: str, blocks: list[Block]) -> None:
        """A result may stand between two blocks of one message."""
        fresh = list(self._once(blocks))
        if not fresh:
            return
        latest = next((one for one in reversed(self._said) if one.role == "assistant"), None)
        if latest is None or latest.id != name:
            latest = _Said("assistant", name)
            self._said.append(latest)
        latest.blocks += fresh

    def _user(self, blocks: list[Block]) -> None:
        if not blocks:
            return
        if not self._said or self._said[-1].role != "user":
            self._said.append(_Said("user"))
        self._said[-1].blocks += blocks


def _add(made: list[Message], role: str, blocks: list[Block]) -> None:
    if blocks:
        made.append({"role": role, "content": blocks})
