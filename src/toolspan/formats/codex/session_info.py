"""Collect session facts and token counts from the records in a rollout.

Tokens are counted per step of the thread, so that steps copied by a fork count once across files.
Start at `RolloutInfoCollector.add`.
"""

from __future__ import annotations

from array import array

import msgspec
from msgspec import Struct

from toolspan.formats.codex import parse_thread_id
from toolspan.formats.codex.records import GitInfo, RolloutItem, RolloutRecord, ThreadUsage
from toolspan.formats.decoding import DECODE_ERRORS, extract_text
from toolspan.formats.pairing import BRANCH_NAMES, Branches
from toolspan.types.session import MessageAuthor, RequestUsage, SessionInfo, Tokens, shorten_prompt

_TURN_EVENTS = frozenset({"task_started", "turn_started"})


class _Spawn(Struct, gc=False):
    parent_thread_id: str | None = None
    agent_nickname: str | None = None
    agent_role: str | None = None


class _Subagent(Struct, gc=False):
    thread_spawn: _Spawn | None = None


class _SessionSource(Struct, gc=False):
    subagent: _Subagent | str | None = None


_SOURCE_DECODER = msgspec.json.Decoder(_SessionSource | str)


class RolloutThread:
    """The thread of one file, and the threads from which it was copied."""

    def __init__(self) -> None:
        self.thread_id: str | None = None
        """The file's own thread."""
        self.owner_id: str | None = None
        """The thread that wrote the current line: the file's own thread or an ancestor."""
        self.turn_id: str | None = None
        self.parent_id: str | None = None
        """The thread that started this one as a subagent."""
        self.forked_from: str | None = None
        self.session_id: str | None = None
        """The session to which the thread and its subagents belong."""
        self.role: str | None = None
        self.related_ids: dict[str, None] = {}
        """All thread and session ids that the file records for itself and its ancestors."""
        self._start_ordinal: int | None = None

    @property
    def agent_id(self) -> str | None:
        """The subagent that wrote the current line; None for a main conversation and for copied history."""
        return self.thread_id if self.parent_id is not None and self.owner_id == self.thread_id else None

    @property
    def owner_session_id(self) -> str | None:
        """The session of the current line."""
        return self.session_id if self.owner_id == self.thread_id else self.owner_id

    def add(self, record: RolloutRecord) -> None:
        """Add one record; must be called before other collectors process it."""
        item = record.payload
        if item is not None:
            if record.type == "session_meta":
                self._add_meta(item)
            elif record.type == "turn_context" or item.type in _TURN_EVENTS:
                self._begin_turn(item.turn_id)
        elif record.is_header and self.thread_id is None:
            self.thread_id = self.owner_id = self.session_id = record.id
            self.related_ids[record.id or ""] = None
        if self._start_ordinal is not None and record.ordinal is not None and record.ordinal >= self._start_ordinal:
            self.owner_id = self.thread_id

    def _add_meta(self, meta: RolloutItem) -> None:
        if meta.id is None:
            return
        if self.thread_id is None:
            self._set_identity(meta)
        self.owner_id = meta.id
        self.related_ids[meta.id] = None

    def _set_identity(self, meta: RolloutItem) -> None:
        """Process a `session_meta` record, the first of which describes the file itself."""
        spawn = _parse_spawn(meta)
        self.thread_id = meta.id
        self.parent_id = meta.parent_thread_id or (spawn.parent_thread_id if spawn else None)
        base = meta.history_base.thread_id if meta.history_base else None
        self.forked_from = meta.forked_from_id or (base if base != meta.id else None)
        self.session_id = extract_text(meta.session_id) or self.parent_id or meta.id
        self.role = meta.agent_role or meta.agent_nickname
        self._start_ordinal = meta.history_start
        for name in (meta.id, self.session_id, self.parent_id, self.forked_from):
            if name:
                self.related_ids[name] = None

    def _begin_turn(self, turn: str | None) -> None:
        if turn is None:
            return
        self.turn_id = turn
        if self.owner_id != self.thread_id and _is_later(turn, self.thread_id):
            self.owner_id = self.thread_id


def _parse_spawn(meta: RolloutItem) -> _Spawn | None:
    if not meta.source:
        return None
    try:
        source = _SOURCE_DECODER.decode(meta.source)
    except DECODE_ERRORS:
        return None
    inner = source.subagent if isinstance(source, _SessionSource) else None
    return inner.thread_spawn if isinstance(inner, _Subagent) else None


_UUID_VERSION_INDEX = 14
"""The position of the version digit in a UUID; version 7 begins with a timestamp."""


def _is_later(turn: str, thread: str | None) -> bool:
    """Return whether `turn` began after `thread`, judged by the times in their ids."""
    if thread is None or len(turn) != len(thread) or len(turn) <= _UUID_VERSION_INDEX:
        return False
    return turn[_UUID_VERSION_INDEX] == thread[_UUID_VERSION_INDEX] == "7" and turn > thread


_INJECTED_PREFIXES = (
    "<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<INSTRUCTIONS>",
    "<skill>", "<permissions instructions>", "<collaboration_mode>", "<apps_instructions>",
    "<model_switch>", "<personality_spec>", "<plugins_instructions>", "<skills_instructions>",
)  # fmt: skip


def message_author(item: RolloutItem, text: str) -> MessageAuthor:
    """Return the author of a message that the model did not write."""
    if item.role != "user":
        return "injected"
    start = text.lstrip()
    if start.startswith("<turn_aborted>"):
        return "interrupt"
    if start.startswith("<subagent_notification>"):
        return "notification"
    if start.startswith("<user_shell_command>"):
        return "command"
    kinds = item.passed.content_item_kinds if item.passed else None
    if kinds is not None:
        return "prompt" if any(kind.startswith("user.") for kind in kinds) else "injected"
    return "injected" if start.startswith(_INJECTED_PREFIXES) else "prompt"


def user_prompt(item: RolloutItem, text: str | None = None) -> str | None:
    """Return the text of a user's prompt, or None if the client wrote the message."""
    message_text = extract_text(item.content) if text is None else text
    return message_text if message_text.strip() and message_author(item, message_text) == "prompt" else None


_COMPACTED, _ABANDONED = BRANCH_NAMES.index("compacted"), BRANCH_NAMES.index("abandoned")


class RolloutTurns:
    """The turns in one rollout, and the lines that rollbacks and compactions hide."""

    def __init__(self) -> None:
        self._lines = array("L")
        self._turn_starts: list[int] = []
        """Positions at which the user's turns begin."""
        self._hidden_runs: list[tuple[int, int, int]] = []
        """Runs of positions that the model no longer sees: start, end, branch."""

    def add(self, record: RolloutRecord, line: int) -> None:
        """Add one record with its line number."""
        kind = record.type
        if kind == "compacted":
            self._hidden_runs.append((0, len(self._lines), _COMPACTED))
        elif kind == "event_msg":
            item = record.item
            if item.type == "thread_rolled_back":
                self._roll_back(item.num_turns or 0)
            self._lines.append(line)
        else:
            item = record.item
            if item.role == "user" and user_prompt(item) is not None:
                self._turn_starts.append(len(self._lines))
            self._lines.append(line)

    def _roll_back(self, turns: int) -> None:
        if turns <= 0 or not self._turn_starts:
            return
        start = self._turn_starts[-min(turns, len(self._turn_starts))]
        del self._turn_starts[-turns:]
        self._hidden_runs.append((start, len(self._lines), _ABANDONED))

    def branches(self) -> Branches:
        """Return the branch of every line."""
        marks = bytearray(len(self._lines))
        for start, end, mark in self._hidden_runs:
            if mark == _ABANDONED:
                marks[start:end] = bytes([mark]) * (end - start)
            else:
                marks[start:end] = marks[start:end].replace(b"\0", bytes([mark]))
        return Branches(self._lines, marks)


class RolloutInfoCollector:
    """A collector of facts about one conversation."""

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
        """Prompts recorded as items, most of which are repeated as events."""
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
                self._add_event(item, stamp)
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
            self._models.pop(item.model, None)
            self._models[item.model] = None  # the last model is the current one

    def _add_event(self, item: RolloutItem, at: str | None) -> None:
        match item.type:
            case "token_count":
                if item.info is not None and item.info.total_token_usage is not None:
                    self._token_counter.add(item.info.total_token_usage, at, next(reversed(self._models), None))
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
    def requests(self) -> dict[str, RequestUsage]:
        """Requests by step of the thread."""
        counter = self._token_counter
        return {
            name: RequestUsage(at=at, model=model, tokens=counter.tokens_by_step[name])
            for name, (at, model) in counter.facts_by_step.items()
        }

    @property
    def tokens(self) -> Tokens:
        """All tokens in the file."""
        return sum(self._token_counter.tokens_by_step.values(), Tokens())

    @property
    def raw_sum(self) -> Tokens:
        """The sum over all reports."""
        return self._token_counter.raw_sum

    def build_info(self, stem: str) -> SessionInfo:
        """Return the collected facts; `stem` is the file name without suffixes."""
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
    """A counter for the tokens of a thread, which reports running totals.

    A falling total begins a new count. The key of each step consists of the thread and the totals
    reached, so that its copy in a fork has the same key.
    """

    def __init__(self, thread: RolloutThread) -> None:
        self._thread = thread
        self._last_tokens = Tokens()
        self._last_total = 0
        self._segment = 0
        self.tokens_by_step: dict[str, Tokens] = {}
        self.facts_by_step: dict[str, tuple[str | None, str | None]] = {}
        """Time and model of each step."""
        self.raw_sum = Tokens()

    def add(self, usage: ThreadUsage, at: str | None, model: str | None) -> None:
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
            self.facts_by_step.setdefault(name, (at, model))
        self._last_tokens, self._last_total = now, total


def _tokens_from_usage(usage: ThreadUsage) -> Tokens:
    """Convert the client's counts, in which the input includes the cached tokens."""
    return Tokens(
        input_tokens=_sane_count(usage.input_tokens),
        output_tokens=_sane_count(usage.output_tokens),
        cache_creation_input_tokens=_sane_count(usage.cache_write_input_tokens),
        cache_read_input_tokens=_sane_count(usage.cached_input_tokens),
    )


_TOKEN_LIMIT = 1 << 48
"""Larger counts are invalid."""


def _sane_count(count: int | None) -> int:
    """Return a valid count, or 0 for a missing or invalid one."""
    return count if count is not None and 0 <= count < _TOKEN_LIMIT else 0


def _subtract_tokens(now: Tokens, before: Tokens) -> Tokens:
    return Tokens(
        input_tokens=now.input_tokens - before.input_tokens,
        output_tokens=now.output_tokens - before.output_tokens,
        cache_creation_input_tokens=now.cache_creation_input_tokens - before.cache_creation_input_tokens,
        cache_read_input_tokens=now.cache_read_input_tokens - before.cache_read_input_tokens,
    )
