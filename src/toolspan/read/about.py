"""Collects what the lines say about the conversation as a whole, and its tokens.

In: entries in file order. Out: a `SessionInfo`, and token sums from `tokens.py`.
"""

from collections.abc import Sequence

from toolspan.model.session import SessionInfo, first_words
from toolspan.model.tokens import Tokens
from toolspan.read.tokens import TokenCount
from toolspan.read.voice import voice_of
from toolspan.wire.claude import Entry, text_of

_TITLES = {"summary": 1, "ai-title": 2, "custom-title": 3}


class About:
    """What is known of a conversation so far.

    Those who only ask about calls do without tokens, titles and prompts.
    """

    def __init__(self, *, calls_only: bool = False) -> None:
        self._calls_only = calls_only
        self._tokens = TokenCount()
        self._session: str | None = None
        self._version: str | None = None
        self._sessions: dict[str, None] = {}
        self._versions: dict[str, None] = {}
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

    def add(self, entries: Sequence[Entry]) -> None:
        """Entries in file order."""
        calls_only, count = self._calls_only, self._tokens.add
        for entry in entries:
            if (
                entry.session_id != self._session
                or entry.version != self._version
                or not self._root
            ):
                self._turn(entry)
            if calls_only:
                continue
            kind = entry.type
            if kind == "assistant":
                if entry.message is not None:
                    count(entry, entry.message)
            elif kind == "user":
                self._hear(entry)
            elif kind in _TITLES or entry.subtype == "compact_boundary":
                self._mark(kind, entry)
        times = (entry.timestamp for entry in reversed(entries))
        self._ended = next((time for time in times if time is not None), self._ended)

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

    def _hear(self, entry: Entry) -> None:
        content = entry.message.content if entry.message else None
        if type(content) is list and content and content[0].type == "tool_result":
            return  # most user lines carry results; no need to look closer
        if voice_of(entry) != "prompt":
            return
        self._prompts += 1
        if self._prompt is None and not entry.is_sidechain:
            words = content if isinstance(content, str) else _first_text(entry)
            self._prompt = first_words(words)

    @property
    def messages(self) -> dict[str, Tokens]:
        """Tokens by message; messages without any id count one by one, as `#n`."""
        return self._tokens.messages

    @property
    def raw_sum(self) -> Tokens:
        """What adding up every line gives."""
        return self._tokens.raw_sum

    @property
    def tokens(self) -> Tokens:
        """The sum over messages."""
        return self._tokens.sum

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
            models=tuple(self._tokens.models),
            cwd=self._cwd,
            git_branch=self._branch,
            title=self._title[1] if self._title else None,
            first_prompt=self._prompt,
            prompts=self._prompts,
            compactions=self._compactions,
            started_at=self._started,
            ended_at=self._ended,
        )


def _first_text(entry: Entry) -> str:
    content = entry.message.content if entry.message else None
    if isinstance(content, list):
        for block in content:
            if block.type == "text":
                return text_of(block.text)
    return ""
