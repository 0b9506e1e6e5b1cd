"""Collects what the records of a rollout say about the conversation as a whole, and its tokens.

In: records in file order and their thread. Out: a `SessionInfo`; tokens by name, so that what a
fork copied is counted once over several files. Read `About.add` first.
"""

from toolspan.model.session import SessionInfo, first_words
from toolspan.model.tokens import Tokens
from toolspan.read.codex.thread import Thread
from toolspan.read.codex.voice import prompt_of
from toolspan.wire.codex import Item, Record, Usage
from toolspan.wire.views import text_of


class About:
    """What is known of a conversation so far."""

    def __init__(self, thread: Thread, *, calls_only: bool = False) -> None:
        self._thread = thread
        self._calls_only = calls_only
        self._tokens = TokenCount(thread)
        self._versions: dict[str, None] = {}
        self._models: dict[str, None] = {}
        self._cwd: str | None = None
        self._git: str | None = None
        self._started: str | None = None
        self._ended: str | None = None
        self._said = 0
        """Prompts as items; `_told` are those that events repeat."""
        self._told = 0
        self._prompt: str | None = None
        self._title: str | None = None
        self._compactions = 0

    def add(self, record: Record) -> None:
        """One record."""
        stamp = record.timestamp
        if stamp is not None:
            self._started = self._started or stamp
            self._ended = stamp
        item = record.item
        kind = record.type
        if kind == "event_msg":
            if not self._calls_only:
                self._event(item)
        elif kind == "session_meta" or record.is_header:
            self._meta(item)
        elif kind == "turn_context":
            self._turn(item)
        elif kind == "compacted":
            self._compactions += 1
        elif item.role == "user" and not self._calls_only:
            self._hear(item)

    def _meta(self, meta: Item) -> None:
        if meta.cli_version is not None:
            self._versions[meta.cli_version] = None
        self._cwd = self._cwd or meta.cwd
        if meta.git is not None and self._git is None:
            self._git = meta.git.branch

    def _turn(self, item: Item) -> None:
        self._cwd = self._cwd or item.cwd
        if item.model is not None:
            self._models[item.model] = None

    def _event(self, item: Item) -> None:
        match item.type:
            case "token_count":
                if item.info is not None and item.info.total_token_usage is not None:
                    self._tokens.add(item.info.total_token_usage)
            case "user_message":
                self._told += 1
                self._note(text_of(item.message))
            case "thread_name_updated":
                self._title = item.name or text_of(item.message) or self._title
            case "item_completed" if item.done is not None and item.done.type == "UserMessage":
                self._told += 1
                self._note(text_of(item.done.content))

    def _hear(self, item: Item) -> None:
        words = prompt_of(item)
        if words is not None:
            self._said += 1
            self._note(words)

    def _note(self, words: str) -> None:
        if self._prompt is None and prompt_of(Item(role="user"), words) is not None:
            self._prompt = first_words(words)

    @property
    def messages(self) -> dict[str, Tokens]:
        """Tokens by the state of the thread's count when they were told."""
        return self._tokens.steps

    @property
    def tokens(self) -> Tokens:
        """All tokens of the file."""
        return sum(self._tokens.steps.values(), Tokens())

    @property
    def raw_sum(self) -> Tokens:
        """What adding up every report gives."""
        return self._tokens.raw

    def info(self, stem: str) -> SessionInfo:
        """What is known, for a file of this name."""
        thread = self._thread
        agent = thread.own if thread.parent is not None else None
        return SessionInfo(
            dialect="codex",
            session_id=(thread.session if agent else thread.own) or _name_in(stem),
            session_ids=tuple(thread.known),
            agent_id=agent,
            root=thread.own,
            forked_from=thread.forked_from,
            versions=tuple(self._versions),
            models=tuple(self._models),
            cwd=self._cwd,
            git_branch=self._git,
            title=self._title,
            first_prompt=self._prompt,
            prompts=max(self._said, self._told),
            compactions=self._compactions,
            started_at=self._started,
            ended_at=self._ended,
        )


def _name_in(stem: str) -> str | None:
    from toolspan.wire.codex_paths import thread_in

    return thread_in(stem)


class TokenCount:
    """The tokens of a thread, told as running totals.

    A total that falls begins a new count. Each step is named by the thread and the totals reached,
    so that the copy of a step in a fork has the name of its original.
    """

    def __init__(self, thread: Thread) -> None:
        self._thread = thread
        self._last = Tokens()
        self._total = 0
        self._segment = 0
        self.steps: dict[str, Tokens] = {}
        self.raw = Tokens()

    def add(self, usage: Usage) -> None:
        """The total so far."""
        now = _tokens(usage)
        total = now.input_tokens + now.output_tokens
        if total < self._total:
            self._segment += 1
            self._last = Tokens()
        self.raw += now
        step = _less(now, self._last)
        if step != Tokens():
            owner = self._thread.owner or ""
            name = f"{owner}/{self._segment}/{now.input_tokens}/{now.output_tokens}"
            self.steps[name] = self.steps.get(name, Tokens()) + step
        self._last, self._total = now, total


def _tokens(usage: Usage) -> Tokens:
    """Counts as the client tells them: the cached ones are part of the input, and shown apart."""
    return Tokens(
        input_tokens=_sane(usage.input_tokens),
        output_tokens=_sane(usage.output_tokens),
        cache_creation_input_tokens=_sane(usage.cache_write_input_tokens),
        cache_read_input_tokens=_sane(usage.cached_input_tokens),
    )


_MOST = 1 << 48
"""No thread has so many tokens."""


def _sane(count: int | None) -> int:
    """A count; absurd ones count as none."""
    return count if count is not None and 0 <= count < _MOST else 0


def _less(now: Tokens, before: Tokens) -> Tokens:
    return Tokens(
        input_tokens=now.input_tokens - before.input_tokens,
        output_tokens=now.output_tokens - before.output_tokens,
        cache_creation_input_tokens=now.cache_creation_input_tokens
        - before.cache_creation_input_tokens,
        cache_read_input_tokens=now.cache_read_input_tokens - before.cache_read_input_tokens,
    )
