"""Collects what the lines say about the conversation as a whole, and its tokens.

In: entries in file order. Out: a `SessionInfo`, and token sums from `tokens.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from toolspan.formats.claude.messages import message_author
from toolspan.formats.claude.records import ApiMessage, Entry, MessageUsage
from toolspan.formats.decoding import extract_text
from toolspan.types.session import SessionInfo, shorten_prompt
from toolspan.types.tokens import Tokens


class TokenCounter:
    """The tokens of the messages so far."""

    def __init__(self) -> None:
        self.models: dict[str, None] = {}
        self._last_model: str | None = None
        self._last_message: str | None = None
        self._last_usage: MessageUsage | None = None
        """Of the last line; the next one often repeats it."""
        self._last_packed = 0
        """The same, packed."""
        self._packed_by_message: dict[str, int] = {}
        """Tokens by message, packed: there are as many messages as calls."""
        self._raw_total = 0

    def add(self, entry: Entry, message: ApiMessage) -> None:
        """An assistant line and the message on it."""
        usage, model = message.usage, message.model
        if usage is None or model == "<synthetic>":
            return
        if model != self._last_model and model:
            self._last_model = model
            self.models[model] = None
        name = message.id or entry.request_id or entry.request_id_snake
        if name is None:
            name = f"#{len(self._packed_by_message)}"
        elif name == self._last_message:
            if message.id:
                message.id = self._last_message  # one object for all lines of a message
            if usage == self._last_usage:
                self._raw_total += self._last_packed
                return
        self._last_message, self._last_usage, self._last_packed = name, usage, _pack_usage(usage)
        self._add_packed(name, self._last_packed)

    def _add_packed(self, name: str, packed: int) -> None:
        self._raw_total += packed
        before = self._packed_by_message.setdefault(name, packed)
        if before != packed:
            self._packed_by_message[name] = _max_packed(before, packed)

    @property
    def message_tokens(self) -> dict[str, Tokens]:
        """Tokens by message; messages without any id count one by one, as `#n`."""
        return {name: _unpack_tokens(packed) for name, packed in self._packed_by_message.items()}

    @property
    def raw_sum(self) -> Tokens:
        """What adding up every line gives."""
        return _unpack_tokens(self._raw_total)

    @property
    def total(self) -> Tokens:
        """The sum over messages."""
        return _unpack_tokens(sum(self._packed_by_message.values()))


_COUNTS_FORMAT = struct.Struct("<4Q")
_COUNT_BITS = 48
"""No message has so many tokens, and many such messages still fit into a field."""

_OUTPUT_MASK = ((1 << 64) - 1) << 64
"""Where the tokens of the answer stand."""


def _pack_usage(usage: MessageUsage) -> int:
    """Four counts in one number, which also adds up field by field; absurd ones count as none."""
    input_tokens = usage.input_tokens or 0
    output_tokens = usage.output_tokens or 0
    cache_created = usage.cache_creation_input_tokens or 0
    cache_read = usage.cache_read_input_tokens or 0
    if (input_tokens | output_tokens | cache_created | cache_read) >> _COUNT_BITS:
        counts = (input_tokens, output_tokens, cache_created, cache_read)
        input_tokens, output_tokens, cache_created, cache_read = (n if not n >> _COUNT_BITS else 0 for n in counts)
    return input_tokens | output_tokens << 64 | cache_created << 128 | cache_read << 192


def _unpack_counts(packed: int) -> tuple[int, int, int, int]:
    return _COUNTS_FORMAT.unpack(packed.to_bytes(_COUNTS_FORMAT.size, "little"))


def _unpack_tokens(packed: int) -> Tokens:
    input_tokens, output_tokens, cache_created, cache_read = _unpack_counts(packed)
    return Tokens(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_creation_input_tokens=cache_created,
        cache_read_input_tokens=cache_read,
    )


def _max_packed(first: int, second: int) -> int:
    """Field by field the larger of the two."""
    if not (first ^ second) & ~_OUTPUT_MASK:  # most often only what is given grows
        return max(first, second)
    counts = map(max, _unpack_counts(first), _unpack_counts(second))
    return int.from_bytes(_COUNTS_FORMAT.pack(*counts), "little")


_TITLE_RANKS = {"summary": 1, "ai-title": 2, "custom-title": 3}


class SessionInfoCollector:
    """What is known of a conversation so far.

    Those who only ask about calls do without tokens, titles and prompts.
    """

    def __init__(self, *, calls_only: bool = False) -> None:
        self._calls_only = calls_only
        self._token_counter = TokenCounter()
        self._last_session_id: str | None = None
        self._last_version: str | None = None
        self._session_ids: dict[str, None] = {}
        self._versions: dict[str, None] = {}
        self._root_uuid: str | None = None
        self._agent_id: str | None = None
        self._cwd: str | None = None
        self._git_branch: str | None = None
        self._started_at: str | None = None
        self._ended_at: str | None = None
        self._title: tuple[int, str] | None = None
        self._first_prompt: str | None = None
        self._prompt_count = 0
        self._compaction_count = 0
        self._forked_from: str | None = None

    def add(self, entries: Sequence[Entry]) -> None:
        """Entries in file order."""
        calls_only, count_tokens = self._calls_only, self._token_counter.add
        for entry in entries:
            if entry.session_id != self._last_session_id or entry.version != self._last_version or not self._root_uuid:
                self._update_identity(entry)
            if calls_only:
                continue
            kind = entry.type
            if kind == "assistant":
                if entry.message is not None:
                    count_tokens(entry, entry.message)
            elif kind == "user":
                self._add_prompt(entry)
            elif kind in _TITLE_RANKS or entry.subtype == "compact_boundary":
                self._add_title_or_compaction(kind, entry)
        times = (entry.timestamp for entry in reversed(entries))
        self._ended_at = next((time for time in times if time is not None), self._ended_at)

    def _update_identity(self, entry: Entry) -> None:
        """A line unlike the one before: another session or version, or the first of all."""
        session = entry.session
        if session is not None:
            self._session_ids[session] = None
        if self._started_at is None:
            self._started_at = entry.timestamp
        if entry.uuid is None:
            return
        self._last_session_id, self._last_version = entry.session_id, entry.version
        if self._root_uuid is None:  # copies, because an entry holds on to everything around it
            self._root_uuid = entry.uuid
            self._agent_id = entry.agent_id if entry.is_sidechain else None
        if entry.version is not None:
            self._versions[entry.version] = None
        self._cwd = self._cwd or entry.cwd
        self._git_branch = entry.git_branch or self._git_branch
        if entry.forked_from:
            self._forked_from = entry.forked_from.session_id

    def _add_title_or_compaction(self, kind: str, entry: Entry) -> None:
        """A compaction, or a title of some rank; of equals the last one wins."""
        if kind not in _TITLE_RANKS:
            self._compaction_count += 1
            return
        title = entry.custom_title or entry.ai_title or entry.summary
        rank = _TITLE_RANKS[kind]
        if title and (self._title is None or rank >= self._title[0]):
            self._title = (rank, title)

    def _add_prompt(self, entry: Entry) -> None:
        content = entry.message.content if entry.message else None
        if type(content) is list and content and content[0].type == "tool_result":
            return  # most user lines carry results; no need to look closer
        if message_author(entry) != "prompt":
            return
        self._prompt_count += 1
        if self._first_prompt is None and not entry.is_sidechain:
            text = content if isinstance(content, str) else _first_text(entry)
            self._first_prompt = shorten_prompt(text)

    @property
    def message_tokens(self) -> dict[str, Tokens]:
        """Tokens by message; messages without any id count one by one, as `#n`."""
        return self._token_counter.message_tokens

    @property
    def raw_sum(self) -> Tokens:
        """What adding up every line gives."""
        return self._token_counter.raw_sum

    @property
    def tokens(self) -> Tokens:
        """The sum over messages."""
        return self._token_counter.total

    def build_info(self, stem: str) -> SessionInfo:
        """What is known, for a file of this name."""
        sessions = tuple(self._session_ids)
        return SessionInfo(
            session_id=stem if stem in self._session_ids else (sessions[-1] if sessions else None),
            session_ids=sessions,
            agent_id=self._agent_id,
            root=self._root_uuid,
            forked_from=self._forked_from,
            versions=tuple(self._versions),
            models=tuple(self._token_counter.models),
            cwd=self._cwd,
            git_branch=self._git_branch,
            title=self._title[1] if self._title else None,
            first_prompt=self._first_prompt,
            prompts=self._prompt_count,
            compactions=self._compaction_count,
            started_at=self._started_at,
            ended_at=self._ended_at,
        )


def _first_text(entry: Entry) -> str:
    content = entry.message.content if entry.message else None
    if isinstance(content, list):
        for block in content:
            if block.type == "text":
                return extract_text(block.text)
    return ""
