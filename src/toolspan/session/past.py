"""What was said before: a transcript as the history that a conversation goes on from.

In: a transcript. Out: messages that a server takes: the active branch from the last compaction on,
the blocks of a message joined again, every call with its one result. What has no result gets one
that says so. Nothing is written, except by `fork`. Read `past` first.
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
from toolspan.record import transcript_path
from toolspan.record.tape import make_folder
from toolspan.session.incoming import is_blank, sendable
from toolspan.wire.claude import Entry
from toolspan.wire.jsonl import read_lines
from toolspan.wire.paths import config_dir
from toolspan.wire.source import source_of

UNANSWERED = (
    "[Tool call interrupted: the session ended before this call's result was recorded, so its"
    " outcome is unknown. Check whether it took effect before relying on it or running it again.]"
)
_SYNTHETIC = "<synthetic>"


def past(path: Path) -> list[Message]:
    """The history of a transcript.

    Raises:
        SourceError: it cannot be read.
        ToolspanError: no server would take it.
    """
    told = _Told()
    transcript = read(path)
    for entry, message in _spoken(transcript):
        told.add(entry, message)
    messages = told.messages()
    problems = check_history(messages) if messages else []
    if problems:
        raise ToolspanError(f"{path}: the conversation cannot go on: {problems[0]}")
    return messages


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


def fork(path: Path, session_id: SessionId, cwd: Path, *, config: Path | None = None) -> Path:
    """A copy of a transcript under another id; the original is left as it is.

    `config` is the client's folder, found by itself if not given.

    Raises:
        SourceError: it cannot be read.
        OSError: the copy cannot be written.
    """
    target = transcript_path(session_id, cwd, config)
    make_folder(target.parent)
    target.touch(mode=0o600)
    with target.open("wb") as copy:
        for line in read_lines(source_of(path)):
            try:
                fields = msgspec.json.decode(line.data, type=dict[str, object])
            except (msgspec.MsgspecError, UnicodeError):
                continue
            if "sessionId" in fields:
                copy.write(msgspec.json.encode({**fields, "sessionId": session_id}) + b"\n")
    return target


def _folder(cwd: Path) -> Path:
    return transcript_path(SessionId("any"), cwd).parent


class _Body(msgspec.Struct):
    """A line, as far as the history needs it."""

    message: dict[str, object] | None = None
    rendered: list[dict[str, object]] | None = None


def _spoken(transcript: Transcript) -> Iterator[tuple[Entry, Message]]:
    """The lines the model saw, in file order, with their messages."""
    branches = transcript.tree.branches()
    lines = [one for one in transcript.entries() if _is_spoken(one[0])]
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


def _is_spoken(entry: Entry) -> bool:
    if entry.is_sidechain or entry.is_api_error:
        return False
    synthetic = entry.message is not None and entry.message.model == _SYNTHETIC
    return entry.type in ("user", "assistant", "attachment") and not synthetic


def _message(place: Place, transcript: Transcript) -> Message | None:
    try:
        data = transcript.source.read(place.offset, place.length)
        body = msgspec.json.decode(data, type=_Body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
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

    def add(self, entry: Entry, message: Message) -> None:
        """The next line."""
        blocks = _blocks(message.get("content"))
        if not blocks:
            return
        if entry.type == "assistant":
            self._assistant(str(message.get("id")), blocks)
        else:
            self._user(blocks)

    def messages(self) -> list[Message]:
        """All of it, such that a server takes it."""
        made: list[Message] = []
        wanted: dict[str, Block] = {}
        for said in [*self._said, _Said("user")]:
            if said.role == "user":
                blocks = _answered(said.blocks, wanted)
                wanted = {}
            elif made:  # the first word is the user's
                blocks = sendable(self._once(said.blocks))
                wanted |= {str(one["id"]): one for one in blocks if one["type"] == "tool_use"}
            else:
                continue
            if blocks:
                made.append({"role": said.role, "content": blocks})
        return made

    def _once(self, blocks: list[Block]) -> list[Block]:
        """Without calls that were there before: clients may write a part of the history again."""
        fresh: list[Block] = []
        for one in blocks:
            name = one["id"] if one["type"] == "tool_use" else None
            if name is None or name not in self._calls:
                fresh.append(one)
            self._calls.add(name)
        return fresh

    def _assistant(self, name: str, blocks: list[Block]) -> None:
        """A result may stand between two blocks of one message."""
        latest = next((one for one in reversed(self._said) if one.role == "assistant"), None)
        if latest is None or latest.id != name:
            latest = _Said("assistant", name)
            self._said.append(latest)
        latest.blocks += blocks

    def _user(self, blocks: list[Block]) -> None:
        if not self._said or self._said[-1].role != "user":
            self._said.append(_Said("user"))
        self._said[-1].blocks += blocks


def _blocks(content: object) -> list[Block]:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    found = content if isinstance(content, list) else []
    blocks = [dict(one) for one in found if isinstance(one, Mapping) and "type" in one]
    return [one for one in blocks if not is_blank(one)]


def _answered(blocks: list[Block], wanted: Mapping[str, Block]) -> list[Block]:
    """What the user's side said: one result for each call first, then the rest."""
    results = {str(one["tool_use_id"]): one for one in blocks if one["type"] == "tool_result"}
    front = [one for name, one in results.items() if name in wanted]
    front += [_unanswered(name) for name in wanted if name not in results]
    return front + [one for one in blocks if one["type"] != "tool_result"]


def _unanswered(call_id: str) -> Block:
    return {
        "type": "tool_result",
        "tool_use_id": call_id,
        "content": UNANSWERED,
        "is_error": True,
    }
