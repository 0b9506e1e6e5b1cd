"""Collect facts about the conversation and its tokens from the records of a rollout.

Tokens are counted per step of the thread, so that steps that a fork copied count once over several files. Start at
`RolloutInfoCollector.add`.
"""

from __future__ import annotations

from toolspan.formats.codex import parse_thread_id
from toolspan.formats.codex.records import GitInfo, RolloutItem, RolloutRecord, ThreadUsage
from toolspan.formats.codex.thread import RolloutThread, user_prompt
from toolspan.formats.decoding import extract_text
from toolspan.types.session import SessionInfo, shorten_prompt
from toolspan.types.tokens import Tokens


class RolloutInfoCollector:
    """Collects facts about one conversation."""

    def __init__(self, thread: RolloutThread, *, calls_only: bool = False) -> None:
        self._thread = thread
        self._calls_only = calls_only
        self._token_counter = RolloutTokenCounter(thread)
        self._versions: dict[str, None] = {}
        self._models: dict[str, None] = {}
        self._cwd: str | None = None
        self._git: GitInfo | None = None
        self._started_at: str | None = None
        self._ended_at: str | None = None
        self._item_prompts = 0
        """Prompts recorded as items; most are repeated as events."""
        self._event_prompts = 0
        self._first_prompt: str | None = None
        self._title: str | None = None
        self._compaction_count = 0

    def add(self, record: RolloutRecord) -> None:
        """Add one record."""
        stamp = record.timestamp
        if stamp is not None:
            self._started_at = self._started_at or stamp
            self._ended_at = stamp
        item = record.item
        kind = record.type
        if kind == "event_msg":
            if not self._calls_only:
                self._add_event(item)
        elif kind == "session_meta" or record.is_header:
            self._add_meta(item)
        elif kind == "turn_context":
            self._add_turn_context(item)
        elif kind == "compacted":
            self._compaction_count += 1
        elif item.role == "user" and not self._calls_only:
            self._add_prompt_item(item)

    def _add_meta(self, meta: RolloutItem) -> None:
        if meta.cli_version is not None:
            self._versions[meta.cli_version] = None
        self._cwd = self._cwd or meta.cwd
        self._git = self._git or meta.git

    def _add_turn_context(self, item: RolloutItem) -> None:
        self._cwd = self._cwd or item.cwd
        if item.model is not None:
            self._models[item.model] = None

    def _add_event(self, item: RolloutItem) -> None:
        match item.type:
            case "token_count":
                if item.info is not None and item.info.total_token_usage is not None:
                    self._token_counter.add(item.info.total_token_usage)
            case "user_message":
                self._event_prompts += 1
                self._set_first_prompt(extract_text(item.message))
            case "thread_name_updated":
                self._title = item.name or extract_text(item.message) or self._title
            case "item_completed" if item.done is not None and item.done.type == "UserMessage":
                self._event_prompts += 1
                self._set_first_prompt(extract_text(item.done.content))

    def _add_prompt_item(self, item: RolloutItem) -> None:
        prompt = user_prompt(item)
        if prompt is not None:
            self._item_prompts += 1
            self._set_first_prompt(prompt)

    def _set_first_prompt(self, text: str) -> None:
        if self._first_prompt is None and user_prompt(RolloutItem(role="user"), text) is not None:
            self._first_prompt = shorten_prompt(text)

    @property
    def message_tokens(self) -> dict[str, Tokens]:
        """Tokens by step of the thread."""
        return self._token_counter.tokens_by_step

    @property
    def tokens(self) -> Tokens:
        """All tokens of the file."""
        return sum(self._token_counter.tokens_by_step.values(), Tokens())

    @property
    def raw_sum(self) -> Tokens:
        """The sum over all reports."""
        return self._token_counter.raw_sum

    def build_info(self, stem: str) -> SessionInfo:
        """Return the facts, for a file whose name without endings is `stem`."""
        thread = self._thread
        agent = thread.thread_id if thread.parent_id is not None else None
        return SessionInfo(
            dialect="codex",
            session_id=(thread.session_id if agent else thread.thread_id) or parse_thread_id(stem),
            session_ids=tuple(thread.related_ids),
            agent_id=agent,
            root=thread.thread_id,
            forked_from=thread.forked_from,
            versions=tuple(self._versions),
            models=tuple(self._models),
            cwd=self._cwd,
            git_branch=self._git.branch if self._git else None,
            git_commit=self._git.commit_hash if self._git else None,
            title=self._title,
            first_prompt=self._first_prompt,
            prompts=max(self._item_prompts, self._event_prompts),
            compactions=self._compaction_count,
            started_at=self._started_at,
            ended_at=self._ended_at,
        )


class RolloutTokenCounter:
    """The tokens of a thread, which reports running totals.

    A falling total begins a new count. Each step is named by the thread and the totals reached, so that its copy in
    a fork has the same name.
    """

    def __init__(self, thread: RolloutThread) -> None:
        self._thread = thread
        self._last_tokens = Tokens()
        self._last_total = 0
        self._segment = 0
        self.tokens_by_step: dict[str, Tokens] = {}
        self.raw_sum = Tokens()

    def add(self, usage: ThreadUsage) -> None:
        """Add a report of the total so far."""
        now = _tokens_from_usage(usage)
        total = now.input_tokens + now.output_tokens
        if total < self._last_total:
            self._segment += 1
            self._last_tokens = Tokens()
        self.raw_sum += now
        step = _subtract_tokens(now, self._last_tokens)
        if step != Tokens():
            owner = self._thread.owner_id or ""
            name = f"{owner}/{self._segment}/{now.input_tokens}/{now.output_tokens}"
            self.tokens_by_step[name] = self.tokens_by_step.get(name, Tokens()) + step
        self._last_tokens, self._last_total = now, total


def _tokens_from_usage(usage: ThreadUsage) -> Tokens:
    """Convert the client's counts; the cached tokens are part of the input."""
    return Tokens(
        input_tokens=_sane_count(usage.input_tokens),
        output_tokens=_sane_count(usage.output_tokens),
        cache_creation_input_tokens=_sane_count(usage.cache_write_input_tokens),
        cache_read_input_tokens=_sane_count(usage.cached_input_tokens),
    )


_TOKEN_LIMIT = 1 << 48
"""Larger counts are damage."""


def _sane_count(count: int | None) -> int:
    """Return a count; absurd ones count as 0."""
    return count if count is not None and 0 <= count < _TOKEN_LIMIT else 0


def _subtract_tokens(now: Tokens, before: Tokens) -> Tokens:
    return Tokens(
        input_tokens=now.input_tokens - before.input_tokens,
        output_tokens=now.output_tokens - before.output_tokens,
        cache_creation_input_tokens=now.cache_creation_input_tokens - before.cache_creation_input_tokens,
        cache_read_input_tokens=now.cache_read_input_tokens - before.cache_read_input_tokens,
    )
