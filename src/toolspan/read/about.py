"""Collects what the lines say about the conversation as a whole, and its tokens.

In: entries in file order. Out: a `SessionInfo` and token sums. One rule for tokens: per message the
largest value of each field, because the blocks of one message repeat and grow; the plain sum is
kept beside it to show the difference.
"""

from toolspan.model.session import SessionInfo
from toolspan.model.tokens import Tokens
from toolspan.read.voice import voice_of
from toolspan.wire.claude import Entry, Usage, text_of

_TITLES = {"summary": 1, "ai-title": 2, "custom-title": 3}
_PROMPT_LIMIT = 200


class About:
    """What is known of a conversation so far."""

    def __init__(self, *, tokens: bool = True) -> None:
        self._counting = tokens
        self._session: str | None = None
        self._version: str | None = None
        self._model: str | None = None
        self._message: str | None = None
        self._sessions: dict[str, None] = {}
        self._versions: dict[str, None] = {}
        self._models: dict[str, None] = {}
        self._root: str | None = None
        self._agent: str | None = None
        self._cwd: str | None = None
        self._branch: str | None = None
        self._started: str | None = None
        self._ended: str | None = None
        self._title: tuple[int, str] | None = None
        self._prompt: str | None = None
        self._prompts = 0
        self._compactions = 0
        self._forked: str | None = None
        self._usages: dict[str, int] = {}
        """Tokens by message, packed: there are as many messages as calls."""
        self._raw = 0

    def add(self, entry: Entry) -> None:
        """One entry."""
        if entry.timestamp is not None:
            self._ended = entry.timestamp
        if entry.session_id != self._session or entry.version != self._version or not self._root:
            self._turn(entry)
        kind = entry.type
        if kind == "assistant":
            if self._counting:
                self._count(entry)
        elif kind == "user":
            self._hear(entry)
        elif kind in _TITLES or entry.subtype == "compact_boundary":
            self._mark(kind, entry)

    def _turn(self, entry: Entry) -> None:
        """A line unlike the one before: another session or version, or the first of all."""
        session = entry.session
        if session is not None:
            self._sessions[session] = None
        if self._started is None:
            self._started = entry.timestamp
        if entry.uuid is None:
            return
        self._session, self._version = entry.session_id, entry.version
        if self._root is None:  # copies, because an entry holds on to everything around it
            self._root = entry.uuid
            self._agent = entry.agent_id if entry.is_sidechain else None
        if entry.version is not None:
            self._versions[entry.version] = None
        self._cwd = self._cwd or entry.cwd
        self._branch = entry.git_branch or self._branch
        if entry.forked_from:
            self._forked = entry.forked_from.session_id

    def _mark(self, kind: str, entry: Entry) -> None:
        """A compaction, or a title of some rank; of equals the last one wins."""
        if kind not in _TITLES:
            self._compactions += 1
            return
        title = entry.custom_title or entry.ai_title or entry.summary
        rank = _TITLES[kind]
        if title and (self._title is None or rank >= self._title[0]):
            self._title = (rank, title)

    def _count(self, entry: Entry) -> None:
        message = entry.message
        usage = message.usage if message else None
        if message is None or usage is None or message.model == "<synthetic>":
            return
        if message.model and message.model != self._model:
            self._model = message.model
            self._models[message.model] = None
        packed = _packed(usage)
        self._raw += packed
        name = message.id or entry.request_id or entry.request_id_snake
        if name is None:
            name = f"#{len(self._usages)}"
        elif name == self._message:
            if message.id is not None:
                message.id = self._message  # one object for all lines of a message
        else:
            self._message = name
        before = self._usages.get(name)
        if before is None:
            self._usages[name] = packed
        elif before != packed:
            self._usages[name] = _most(before, packed)

    def _hear(self, entry: Entry) -> None:
        content = entry.message.content if entry.message else None
        if type(content) is list and content and content[0].type == "tool_result":
            return  # most user lines carry results; no need to look closer
        if voice_of(entry) != "prompt":
            return
        self._prompts += 1
        if self._prompt is None and not entry.is_sidechain:
            words = content if isinstance(content, str) else _first_text(entry)
            self._prompt = " ".join(words.split())[:_PROMPT_LIMIT] or None

    @property
    def messages(self) -> dict[str, Tokens]:
        """Tokens by message; messages without any id count one by one, as `#n`."""
        return {name: _unpacked(packed) for name, packed in self._usages.items()}

    @property
    def raw_sum(self) -> Tokens:
        """What adding up every line gives."""
        return _unpacked(self._raw)

    @property
    def tokens(self) -> Tokens:
        """The sum over messages."""
        return _unpacked(sum(self._usages.values()))

    def info(self, stem: str) -> SessionInfo:
        """What is known, for a file of this name."""
        sessions = tuple(self._sessions)
        return SessionInfo(
            session_id=stem if stem in self._sessions else (sessions[-1] if sessions else None),
            session_ids=sessions,
            agent_id=self._agent,
            root=self._root,
            forked_from=self._forked,
            versions=tuple(self._versions),
            models=tuple(self._models),
            cwd=self._cwd,
            git_branch=self._branch,
            title=self._title[1] if self._title else None,
            first_prompt=self._prompt,
            prompts=self._prompts,
            compactions=self._compactions,
            started_at=self._started,
            ended_at=self._ended,
        )


_BITS = 64
_FIELD = (1 << _BITS) - 1
_MOST = 1 << 48
"""No message has that many tokens, and this many messages still fit into a field."""


def _packed(usage: Usage) -> int:
    """Four counts in one number, which also adds up field by field; absurd ones count as none."""
    asked = usage.input_tokens or 0
    given = usage.output_tokens or 0
    made = usage.cache_creation_input_tokens or 0
    used = usage.cache_read_input_tokens or 0
    if 0 <= (asked | given | made | used) < _MOST:
        return asked | given << _BITS | made << 2 * _BITS | used << 3 * _BITS
    sane = (count if 0 <= count < _MOST else 0 for count in (asked, given, made, used))
    return sum(count << n * _BITS for n, count in enumerate(sane))


def _unpacked(packed: int) -> Tokens:
    return Tokens(
        input_tokens=packed & _FIELD,
        output_tokens=packed >> _BITS & _FIELD,
        cache_creation_input_tokens=packed >> 2 * _BITS & _FIELD,
        cache_read_input_tokens=packed >> 3 * _BITS,
    )


def _most(first: int, second: int) -> int:
    """Field by field the larger of the two."""
    most = 0
    for shift in range(0, 4 * _BITS, _BITS):
        most |= max(first >> shift & _FIELD, second >> shift & _FIELD) << shift
    return most


def _first_text(entry: Entry) -> str:
    content = entry.message.content if entry.message else None
    if isinstance(content, list):
        for block in content:
            if block.type == "text":
                return text_of(block.text)
    return ""
