"""The lines of one transcript file, in one client's shape.

In: what a line tells, piece by piece. Out: records with envelope, parent, time and ids, and at the
end the bytes of the file. Knows the form of lines, not what they mean: calls, results and hooks are
`transcripts.py`'s business. Read `Ledger.put` first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from toolspan.llm.seeded import Ids
from toolspan.testing.bodies import Blocks
from toolspan.testing.shape import shape_of

Record = dict[str, object]

_OVERHEAD = 9_000
"""Tokens that every conversation begins with, before anybody has said a word."""


@dataclass
class Line:
    """One line to be: a record, or bytes as they are."""

    record: Record | bytes
    agent_call: str | None = None
    """The call that started the subagent which wrote it."""
    kept: int | None = None
    """How many bytes of it reached the disk; None: all."""
    end: bytes = b"\n"

    def data(self) -> bytes:
        """What the file holds of it."""
        whole = self.record if isinstance(self.record, bytes) else encode(self.record)
        return whole[: self.kept] + self.end


@dataclass(frozen=True, kw_only=True)
class Agent:
    """Which subagent a file belongs to."""

    id: str | None
    """None where subagents write into the session's own file."""
    call: str
    kind: str
    description: str


@dataclass(frozen=True, kw_only=True)
class Where:
    """What every line of a session repeats."""

    session_id: str
    version: str
    cwd: str
    branch: str


@dataclass
class _Message:
    """One message of the model, over all its lines."""

    records: list[Record]
    cached: int
    """Tokens before it that an earlier message paid for."""
    fresh: int
    usage: dict[str, int] = field(default_factory=dict)


class Ledger:
    """Writes lines and keeps them."""

    def __init__(self, where: Where, now: datetime, agent: Agent | None = None) -> None:
        self.where = where
        self.shape = shape_of(where.version)
        self.agent = agent
        self.ids = Ids(f"{where.session_id}/{agent.call}" if agent else where.session_id)
        self.now = now
        self.last: str | None = None
        """The uuid of the line written last."""
        self.lines: list[Line] = []
        self.speaking: str | None = None
        """The message the model is in the middle of."""
        self.prompt_id: str | None = None
        self._messages: dict[str, _Message] = {}
        self._length = 0
        self._cached = 0

    @property
    def tokens(self) -> int:
        """About how long the conversation is."""
        return _OVERHEAD + self._length // 4

    def put(
        self,
        body: Record,
        extras: Record | None = None,
        *,
        parent: str | None,
        links: Record | None = None,
    ) -> Record:
        """One line of the conversation: what it tells, and further fields after its time."""
        uuid = self.ids.uuid()
        agent_id = {"agentId": self.agent.id} if self.agent and self.agent.id else {}
        head: Record = {"parentUuid": parent, **(links or {}), "isSidechain": bool(self.agent)}
        own: Record = {
            **agent_id,
            **body,
            "uuid": uuid,
            "timestamp": _stamp(self.now),
            **(extras or {}),
        }
        around = self._envelope()
        record = head | own | around if self.shape.envelope_last else head | around | own
        self.add(record)
        self._length += len(encode(body))
        self.last = uuid
        return record

    def add(self, record: Record | bytes) -> None:
        """One line as it is."""
        self.lines.append(Line(record, self.agent.call if self.agent else None))

    def user(
        self, content: str | Blocks, extras: Record | None = None, *, parent: str | None = None
    ) -> None:
        """A line of the user's side; it hangs on the line before unless told otherwise."""
        self.speaking = None
        body: Record = {"type": "user", "message": {"role": "user", "content": content}}
        if self.shape.prompt_ids and self.prompt_id:
            body = {"promptId": self.prompt_id, **body}
        self.put(body, extras, parent=parent or self.last)

    def block(self, block: Mapping[str, object], message: str | None) -> str:
        """One block of the model's message, as a line of its own; gives its uuid."""
        name = message or self.speaking or self.ids.token("msg_01")
        known = self._message(name)
        said = {
            "id": name,
            "type": "message",
            "role": "assistant",
            "model": self.shape.model,
            "content": [block],
            "stop_reason": None,
            "stop_sequence": None,
        }
        body: Record = {
            "message": said,
            "requestId": f"req_011{name.removeprefix('msg_01')}",
            "type": "assistant",
        }
        if self.shape.blocks_numbered:
            body = {"message": said, "apiBlockIndex": len(known.records), **body}
        known.records.append(self.put(body, parent=self.last))
        return self.last or ""

    def synthetic(self, text: str) -> None:
        """Words that the client puts into the model's mouth."""
        message = {
            "id": self.ids.uuid(),
            "model": "<synthetic>",
            "role": "assistant",
            "stop_reason": "stop_sequence",
            "stop_sequence": "",
            "type": "message",
            "usage": _usage(),
            "content": [{"type": "text", "text": text}],
        }
        body: Record = {"type": "assistant", "message": message}
        self.put(body, {"isApiErrorMessage": False}, parent=self.last)

    def count(self, tokens: dict[str, int]) -> None:
        """Token counts of the message the model is in; what is not given is made up.

        Raises:
            ValueError: the model is not in the middle of a message.
        """
        if self.speaking is None:
            raise ValueError("Expected a text, a thought or a call before its token counts")
        self._messages[self.speaking].usage |= tokens

    def forget(self) -> None:
        """The conversation starts from nothing: its tokens are counted anew."""
        self._length = self._cached = 0

    def resemble(self, other: "Ledger") -> None:
        """Go on where another file stands, with its lines as copies."""
        self.last, self._length, self._cached = other.last, other._length, other._cached

    def finish(self) -> None:
        """Stop reasons and token counts, which are known only when a message is whole."""
        for message in self._messages.values():
            self._close(message)

    def _message(self, name: str) -> _Message:
        if name not in self._messages:
            tokens = self.tokens
            self._messages[name] = _Message([], self._cached, tokens - self._cached)
            self._cached = tokens
        self.speaking = name
        return self._messages[name]

    def _envelope(self) -> Record:
        """Where and by what a line was written."""
        entrypoint = {"entrypoint": "sdk-cli"} if self.shape.envelope_last else {}
        return {
            "userType": "external",
            **entrypoint,
            "cwd": self.where.cwd,
            "sessionId": self.where.session_id,
            "version": self.where.version,
            "gitBranch": self.where.branch,
        }

    def _close(self, message: _Message) -> None:
        contents = [said["content"] for said in map(_said, message.records)]
        asks = any(b'"type":"tool_use"' in encode(content) for content in contents)
        output = sum(len(encode(content)) for content in contents) // 4
        final = _usage(
            cached=message.cached, fresh=message.fresh, output=output, given=message.usage
        )
        for n, said in enumerate(map(_said, message.records)):
            whole = self.shape.final_stop or n == len(contents) - 1
            said["stop_reason"] = ("tool_use" if asks else "end_turn") if whole else None
            said["usage"] = final if whole else final | {"output_tokens": 1}


def encode(record: object) -> bytes:
    """Compact JSON, keys in their order."""
    return msgspec.json.encode(record)


def _said(record: Record) -> Record:
    """The message inside a line."""
    message = record["message"]
    return message if isinstance(message, dict) else {}


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _usage(
    *, cached: int = 0, fresh: int = 0, output: int = 0, given: Mapping[str, int] | None = None
) -> Record:
    return {
        "input_tokens": 4 if output else 0,
        "cache_creation_input_tokens": fresh,
        "cache_read_input_tokens": cached,
        "output_tokens": output,
        **(given or {}),
        "service_tier": "standard",
    }
