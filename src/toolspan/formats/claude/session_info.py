"""Collect session facts and token counts from the entries in a transcript."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from toolspan.formats.claude.messages import message_author
from toolspan.formats.claude.records import ApiMessage, Entry, MessageUsage
from toolspan.formats.decoding import extract_text
from toolspan.types.session import RequestUsage, SessionInfo, Tokens, shorten_prompt, with_upper_drive


class TokenCounter:
    """Token counter that counts each message once, although its lines repeat the counts."""

    def __init__(self) -> None:
        self._models: dict[str, None] = {}
        self._last_model: str | None = None
        self._last_message: str | None = None
        self._last_usage: MessageUsage | None = None
        """The usage from the last line, which the next line often repeats."""
        self._requests: dict[str, RequestUsage] = {}
        self._changed_messages: dict[str, None] | None = None
        """Messages whose counts changed since the last `changed_requests`; None until its first invocation."""

    def add_usage(self, entry: Entry, message: ApiMessage) -> None:
        """Add an assistant line and its message."""
        usage, model = message.usage, message.model
        if usage is None or model == "<synthetic>":
            return
        if model == self._last_model:
            model = self._last_model  # share one object between all requests
        elif model:
            self._last_model = model
            self._models[model] = None
        name = message.id or entry.request_id or entry.request_id_snake
        if name is None:
            name = f"#{len(self._requests)}"
        elif name == self._last_message:
            if message.id:
                message.id = self._last_message  # share one object between all lines of a message
            if usage == self._last_usage:
                return
        if self._changed_messages is not None:
            self._changed_messages[name] = None
        tokens = _usage_tokens(usage)
        self._last_message, self._last_usage = name, usage
        cached = usage.cache_creation
        cached_1h = cached.ephemeral_1h_input_tokens or 0 if cached is not None else 0
        request = self._requests.get(name)
        if request is None:
            self._requests[name] = RequestUsage(
                at=entry.timestamp,
                model=model,
                tokens=tokens,
                cache_write_1h=cached_1h,
                sidechain=entry.is_sidechain is True or entry.parent_tool_use_id_snake is not None,
                fast=usage.speed == "fast",
            )
        else:
            cached_1h = max(cached_1h, request.cache_write_1h)
            self._requests[name] = replace(request, tokens=request.tokens.max_with(tokens), cache_write_1h=cached_1h)

    @property
    def message_tokens(self) -> dict[str, Tokens]:
        """Tokens by message; messages without any id are counted separately, as `#n`."""
        return {name: request.tokens for name, request in self._requests.items()}

    @property
    def requests(self) -> dict[str, RequestUsage]:
        """Requests by message."""
        return self._requests.copy()

    def changed_requests(self) -> dict[str, RequestUsage]:
        """Return the requests that are new or changed since the last invocation; all of them at first."""
        names = self._requests if self._changed_messages is None else self._changed_messages
        self._changed_messages = {}
        return {name: self._requests[name] for name in names}

    @property
    def tokens(self) -> Tokens:
        return _sum_tokens([request.tokens for request in self._requests.values()])


_COUNT_BITS = 48
"""The maximum size of a valid count."""


def _usage_tokens(usage: MessageUsage) -> Tokens:
    """Return the four counts. Invalid counts become 0."""
    input_tokens = usage.input_tokens or 0
    output_tokens = usage.output_tokens or 0
    cache_created = usage.cache_creation_input_tokens or 0
    cache_read = usage.cache_read_input_tokens or 0
    if (input_tokens | output_tokens | cache_created | cache_read) >> _COUNT_BITS:
        counts = (input_tokens, output_tokens, cache_created, cache_read)
        input_tokens, output_tokens, cache_created, cache_read = (n if not n >> _COUNT_BITS else 0 for n in counts)
    return Tokens(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_creation_input_tokens=cache_created,
        cache_read_input_tokens=cache_read,
    )


def _sum_tokens(items: Sequence[Tokens]) -> Tokens:
    """Return the sum of all counts."""
    return Tokens(  # perf: creates one object, not one per item
        input_tokens=sum(item.input_tokens for item in items),
        output_tokens=sum(item.output_tokens for item in items),
        cache_creation_input_tokens=sum(item.cache_creation_input_tokens for item in items),
        cache_read_input_tokens=sum(item.cache_read_input_tokens for item in items),
    )


_TITLE_RANKS = {"summary": 1, "ai-title": 2, "custom-title": 3}


class SessionInfoCollector(TokenCounter):
    """Facts and token counts collected from one conversation."""

    def __init__(self) -> None:
        super().__init__()
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

    @property
    def agent_id(self) -> str | None:
        """The subagent that wrote the file; None for a main conversation."""
        return self._agent_id

    def add(self, entries: Sequence[Entry]) -> None:
        """Add entries in file order."""
        add_usage = self.add_usage
        session_id, version, has_root = self._last_session_id, self._last_version, bool(self._root_uuid)
        for entry in entries:
            if entry.session_id != session_id or entry.version != version or not has_root:
                self._update_identity(entry)
                session_id, version, has_root = self._last_session_id, self._last_version, bool(self._root_uuid)
            kind = entry.type
            if kind == "assistant":
                if entry.message is not None:
                    add_usage(entry, entry.message)
            elif kind == "user":
                self._add_prompt(entry)
            elif kind in _TITLE_RANKS:
                title = entry.custom_title or entry.ai_title or entry.summary
                rank = _TITLE_RANKS[kind]
                if title and (self._title is None or rank >= self._title[0]):
                    self._title = (rank, title)
            elif entry.subtype == "compact_boundary":
                self._compaction_count += 1
        times = (entry.timestamp for entry in reversed(entries))
        self._ended_at = next((time for time in times if time is not None), self._ended_at)

    def _update_identity(self, entry: Entry) -> None:
        """Process the first line, or a line whose session or version differs from the previous line's."""
        session = entry.session
        if session is not None:
            self._session_ids[session] = None
        if self._started_at is None:
            self._started_at = entry.timestamp
        if entry.uuid is None:
            return
        self._last_session_id, self._last_version = entry.session_id, entry.version
        if self._root_uuid is None:  # only strings are kept: an entry would keep its whole chunk in memory
            self._root_uuid = entry.uuid
            self._agent_id = entry.agent_id if entry.is_sidechain else None
        if entry.version is not None:
            self._versions[entry.version] = None
        self._cwd = self._cwd or entry.cwd
        self._git_branch = entry.git_branch or self._git_branch
        if entry.forked_from:
            self._forked_from = entry.forked_from.session_id

    def _add_prompt(self, entry: Entry) -> None:
        content = entry.message.content if entry.message else None
        if type(content) is list and content and content[0].type == "tool_result":
            return  # perf: most user lines contain only results
        if message_author(entry) != "prompt":
            return
        self._prompt_count += entry.forked_from is None and not entry.is_sidechain  # those of a person in this session
        if self._first_prompt is None and not entry.is_sidechain:
            if isinstance(content, list):
                content = next((extract_text(block.text) for block in content if block.type == "text"), "")
            self._first_prompt = shorten_prompt(content or "")

    def build_info(self, stem: str) -> SessionInfo:
        sessions = tuple(self._session_ids)
        return SessionInfo(
            session_id=stem if stem in self._session_ids else (sessions[-1] if sessions else None),
            session_ids=sessions,
            agent_id=self._agent_id,
            root=self._root_uuid,
            forked_from=self._forked_from,
            versions=tuple(self._versions),
            models=tuple(self._models),
            cwd=self._cwd and with_upper_drive(self._cwd),
            git_branch=self._git_branch,
            title=self._title[1] if self._title else None,
            first_prompt=self._first_prompt,
            prompts=self._prompt_count,
            compactions=self._compaction_count,
            started_at=self._started_at,
            ended_at=self._ended_at,
        )
