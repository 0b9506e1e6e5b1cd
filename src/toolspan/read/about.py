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

    def __init__(self) -> None:
        self._session: str | None = None
        self._version: str | None = None
        self._model: str | None = None
        self._sessions: dict[str, None] = {}
        self._versions: dict[str, None] = {}
        self._models: dict[str, None] = {}
        self._first: Entry | None = None
        self._last_cwd: str | None = None
        self._branch: str | None = None
        self._started: str | None = None
        self._ended: str | None = None
        self._title: tuple[int, str] | None = None
        self._prompt: str | None = None
        self._prompts = 0
        self._compactions = 0
        self._forked: str | None = None
        self.messages: dict[str, Tokens] = {}
        """Tokens by message; messages without any id count one by one."""
        self.raw_sum = Tokens()
        self._nameless = 0

    def add(self, entry: Entry) -> None:
        """One entry."""
        session = entry.session_id or entry.session_id_snake
        if session != self._session and session is not None:
            self._session = session
            self._sessions[session] = None
        if entry.timestamp is not None:
            self._ended = entry.timestamp
            if self._started is None:
                self._started = entry.timestamp
        if entry.version != self._version or self._first is None:
            self._place(entry)
        kind = entry.type
        if kind == "assistant":
            self._count(entry)
        elif kind == "user":
            self._hear(entry)
        elif kind in _TITLES or entry.subtype == "compact_boundary":
            self._mark(kind, entry)

    def _mark(self, kind: str, entry: Entry) -> None:
        """A compaction, or a title of some rank; of equals the last one wins."""
        if kind not in _TITLES:
            self._compactions += 1
            return
        title = entry.custom_title or entry.ai_title or entry.summary
        rank = _TITLES[kind]
        if title and (self._title is None or rank >= self._title[0]):
            self._title = (rank, title)

    def _place(self, entry: Entry) -> None:
        if entry.uuid is None:
            return
        if self._first is None:
            self._first = entry
        if entry.version is not None:
            self._version = entry.version
            self._versions[entry.version] = None
        self._last_cwd = self._last_cwd or entry.cwd
        self._branch = entry.git_branch or self._branch
        if entry.forked_from:
            self._forked = entry.forked_from.session_id

    def _count(self, entry: Entry) -> None:
        message = entry.message
        if message is None or message.model == "<synthetic>":
            return
        if message.model and message.model != self._model:
            self._model = message.model
            self._models[message.model] = None
        usage = message.usage
        if usage is None:
            return
        tokens = _tokens(usage)
        self.raw_sum += tokens
        name = message.id or entry.request_id or entry.request_id_snake
        if name is None:
            self._nameless += 1
            name = f"#{self._nameless}"
        before = self.messages.get(name)
        if before is None:
            self.messages[name] = tokens
        elif before != tokens:
            self.messages[name] = before.most(tokens)

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
    def tokens(self) -> Tokens:
        """The sum over messages."""
        return sum(self.messages.values(), Tokens())

    def info(self, stem: str) -> SessionInfo:
        """What is known, for a file of this name."""
        first = self._first
        sessions = tuple(self._sessions)
        return SessionInfo(
            session_id=stem if stem in self._sessions else (sessions[-1] if sessions else None),
            session_ids=sessions,
            agent_id=first.agent_id if first and first.is_sidechain else None,
            root=first.uuid if first else None,
            forked_from=self._forked,
            versions=tuple(self._versions),
            models=tuple(self._models),
            cwd=self._last_cwd,
            git_branch=self._branch,
            title=self._title[1] if self._title else None,
            first_prompt=self._prompt,
            prompts=self._prompts,
            compactions=self._compactions,
            started_at=self._started,
            ended_at=self._ended,
        )


def _tokens(usage: Usage) -> Tokens:
    return Tokens(
        input_tokens=usage.input_tokens or 0,
        output_tokens=usage.output_tokens or 0,
        cache_creation_input_tokens=usage.cache_creation_input_tokens or 0,
        cache_read_input_tokens=usage.cache_read_input_tokens or 0,
    )


def _first_text(entry: Entry) -> str:
    content = entry.message.content if entry.message else None
    if isinstance(content, list):
        for block in content:
            if block.type == "text":
                return text_of(block.text)
    return ""
