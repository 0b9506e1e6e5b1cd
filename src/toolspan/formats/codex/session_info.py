"""Collect session facts and token counts from the records in a rollout.

Tokens are counted per step of the thread, so that steps copied by a fork count once across files.
Start at `RolloutInfoCollector.add`.
"""

from __future__ import annotations

from array import array
from typing import Any

from msgspec.structs import replace

from toolspan.formats import json_repair
from toolspan.formats.codex import parse_thread_id
from toolspan.formats.codex.records import GitInfo, RolloutItem, RolloutRecord, ThreadUsage
from toolspan.formats.decoding import extract_text, sane_count
from toolspan.formats.pairing import BRANCH_NAMES, Branches
from toolspan.types.session import MessageAuthor, RequestUsage, SessionInfo, Tokens, shorten_prompt, with_upper_drive

_TURN_EVENTS = frozenset({"task_started", "turn_started"})


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
            if record.type == "session_meta" and item.id is not None:
                self._add_meta(item, item.id)
            elif (record.type == "turn_context" or item.type in _TURN_EVENTS) and item.turn_id is not None:
                self.turn_id = item.turn_id
                # The times in version 7 ids show whether the turn began after the thread.
                ids = (item.turn_id, self.thread_id or "")
                is_comparable = len(ids[0]) == len(ids[1]) and {name[14:15] for name in ids} == {"7"}
                if self.owner_id != self.thread_id and is_comparable and ids[0] > ids[1]:
                    self.owner_id = self.thread_id
        elif record.is_header and self.thread_id is None:
            self.thread_id = self.owner_id = self.session_id = record.id
            self.related_ids[record.id or ""] = None
        if self._start_ordinal is not None and record.ordinal is not None and record.ordinal >= self._start_ordinal:
            self.owner_id = self.thread_id

    def _add_meta(self, meta: RolloutItem, thread_id: str) -> None:
        """Add a `session_meta` record, the first of which describes the file itself."""
        if self.thread_id is None:
            source: Any = json_repair.decode_readable(bytes(meta.source)) if meta.source else None
            for key in ("subagent", "thread_spawn", "parent_thread_id"):
                source = source.get(key) if isinstance(source, dict) else None
            self.thread_id = thread_id
            self.parent_id = meta.parent_thread_id or (source if isinstance(source, str) else None)
            base = meta.history_base.thread_id if meta.history_base else None
            self.forked_from = meta.forked_from_id or (base if base != thread_id else None)
            self.session_id = extract_text(meta.session_id) or self.parent_id or thread_id
            self.role = meta.agent_role or meta.agent_nickname
            self._start_ordinal = meta.history_start
            related_ids = (thread_id, self.session_id, self.parent_id, self.forked_from)
            self.related_ids |= dict.fromkeys(filter(None, related_ids))
        self.owner_id = thread_id
        self.related_ids[thread_id] = None


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
        item = record.item
        if record.type == "compacted":
            self._hidden_runs.append((0, len(self._lines), _COMPACTED))
            return
        if record.type == "event_msg":
            turns = item.num_turns or 0
            if item.type == "thread_rolled_back" and turns > 0 and self._turn_starts:
                start = self._turn_starts[-min(turns, len(self._turn_starts))]
                del self._turn_starts[-turns:]
                self._hidden_runs.append((start, len(self._lines), _ABANDONED))
        elif item.role == "user" and user_prompt(item) is not None:
            self._turn_starts.append(len(self._lines))
        self._lines.append(line)

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
    """Facts and token counts collected from one conversation.

    A thread reports running totals, and a falling total begins a new count. The key of each step
    consists of the thread and the totals reached, so that its copy in a fork has the same key.
    """

    def __init__(self, thread: RolloutThread) -> None:
        self._thread = thread
        self._last_tokens = Tokens()
        self._segment = 0
        self.requests: dict[str, RequestUsage] = {}
        """Requests by step of the thread, so that the copy of a step in a fork has the same name."""
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
            self._add_event(item, stamp)
        elif kind == "session_meta" or record.is_header:
            if item.cli_version is not None:
                self._versions[item.cli_version] = None
            self._cwd = self._cwd or item.cwd
            self._git = self._git or item.git
        elif kind == "turn_context":
            self._cwd = self._cwd or item.cwd
            if item.model is not None:
                self._models.pop(item.model, None)
                self._models[item.model] = None  # the last model is the current one
        elif kind == "compacted":
            self._compaction_count += 1
        elif item.role == "user":
            prompt = user_prompt(item)
            if prompt is not None:
                self._item_prompts += 1
                self._set_first_prompt(prompt)

    def _add_event(self, item: RolloutItem, at: str | None) -> None:
        match item.type:
            case "token_count":
                if item.info is not None and item.info.total_token_usage is not None:
                    self._add_usage(item.info.total_token_usage, at)
            case "user_message":
                self._event_prompts += 1
                self._set_first_prompt(extract_text(item.message))
            case "thread_name_updated":
                self._title = item.name or extract_text(item.message) or self._title
            case "item_completed" if item.done is not None and item.done.type == "UserMessage":
                self._event_prompts += 1
                self._set_first_prompt(extract_text(item.done.content))

    def _add_usage(self, usage: ThreadUsage, at: str | None) -> None:
        """Add a report of the total so far, in which the input includes the cached tokens."""
        last = self._last_tokens
        now = Tokens(
            input_tokens=sane_count(usage.input_tokens),
            output_tokens=sane_count(usage.output_tokens),
            cache_creation_input_tokens=sane_count(usage.cache_write_input_tokens),
            cache_read_input_tokens=sane_count(usage.cached_input_tokens),
        )
        if now.input_tokens + now.output_tokens < last.input_tokens + last.output_tokens:
            self._segment += 1
            last = Tokens()
        step = Tokens(**{name: getattr(now, name) - getattr(last, name) for name in Tokens.__struct_fields__})
        if step != Tokens():
            name = f"{self._thread.owner_id or ''}/{self._segment}/{now.input_tokens}/{now.output_tokens}"
            before = self.requests.get(name)
            if before is None:
                model = next(reversed(self._models), None)
                self.requests[name] = RequestUsage(at=at, model=model, tokens=step)
            else:
                self.requests[name] = replace(before, tokens=before.tokens + step)
        self._last_tokens = now

    def _set_first_prompt(self, text: str) -> None:
        if self._first_prompt is None and user_prompt(RolloutItem(role="user"), text) is not None:
            self._first_prompt = shorten_prompt(text)

    @property
    def message_tokens(self) -> dict[str, Tokens]:
        return {name: usage.tokens for name, usage in self.requests.items()}

    @property
    def tokens(self) -> Tokens:
        """All tokens in the file."""
        return sum(self.message_tokens.values(), Tokens())

    def build_info(self, stem: str) -> SessionInfo:
        thread = self._thread
        agent = thread.thread_id if thread.parent_id is not None else None
        return SessionInfo(
            client="codex",
            session_id=(thread.session_id if agent else thread.thread_id) or parse_thread_id(stem),
            session_ids=tuple(thread.related_ids),
            agent_id=agent,
            root=thread.thread_id,
            forked_from=thread.forked_from,
            versions=tuple(self._versions),
            models=tuple(self._models),
            cwd=self._cwd and with_upper_drive(self._cwd),
            git_branch=self._git.branch if self._git else None,
            git_commit=self._git.commit_hash if self._git else None,
            title=self._title,
            first_prompt=self._first_prompt,
            prompts=max(self._item_prompts, self._event_prompts),
            compactions=self._compaction_count,
            started_at=self._started_at,
            ended_at=self._ended_at,
        )
