"""Build Claude Code transcripts for tests.

`TranscriptBuilder` writes the records that a client version would have written, including damaged
ones. Their fields come from the recorder's `entries`. Ids and times are seeded, so the same steps
produce the same bytes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, Self

from toolspan.formats.jsonl import encode_json
from toolspan.session.models.scripted import SeededIds
from toolspan.session.recording import Compaction, RecorderConfig, entries
from toolspan.session.recording.entries import EntryTemplate, Fields
from toolspan.testing.claude_results import (
    CURRENT,
    REJECTED,
    SESSION_ENDED,
    STOP,
    Blocks,
    Body,
    Denial,
    client_profile,
    project_name,
    version_numbers,
)
from toolspan.types.events import HookRan
from toolspan.types.ids import CallId, SessionId

HookOutcome = Literal["success", "error", "blocked", "cancelled", "context", "message"]

_TRANSCRIPT_START = datetime(2026, 11, 2, 9, tzinfo=UTC)
_ACCEPTED_DECISION = {"decision": "accept", "source": "config", "reasonType": "rule", "ruleSource": "projectSettings"}
_INITIAL_TOKENS = 9_000
"""The number of tokens in the system prompt."""
_MODEL_BY_VERSION = (
    ((2, 1, 250), "claude-opus-5-5"),
    ((2, 1, 100), "claude-opus-4-8"),
    ((2, 1), "claude-sonnet-4-6"),
    ((2,), "claude-sonnet-4-5-20250929"),
    ((), "claude-sonnet-4-20250514"),
)


@dataclass(frozen=True)
class _BuiltCall:
    """A call and the record that requested it."""

    tool: str
    uuid: str


@dataclass(frozen=True, kw_only=True)
class _BuiltAgent:
    """The subagent to which a file belongs."""

    id: str | None
    """The agent id, or None if subagents write into the session's file."""
    call: str
    kind: str
    description: str


@dataclass
class _BuiltLine:
    """A record or raw bytes to write as one line."""

    record: Fields | bytes
    agent_call: str | None
    kept_bytes: int | None = None
    """The number of bytes that reached the disk; None means all."""
    end: bytes = b"\n"


@dataclass
class _BuiltMessage:
    """One message from the model, in all its records."""

    cached: int
    """Tokens cached by earlier messages."""
    uncached: int
    blocks: list[Fields] = field(default_factory=list)
    """The message in each record."""
    usage: dict[str, int] = field(default_factory=dict)


class TranscriptBuilder:
    """A builder for Claude Code transcripts.

    Methods return the builder so that they can be chained, except `call`, which returns the call id
    that `result` needs. `after_ms` is the time that passes before the line is written.
    """

    def __init__(
        self,
        *,
        session_id: str | None = None,
        version: str = CURRENT,
        cwd: str = "/home/dev/project",
        start: datetime = _TRANSCRIPT_START,
        git_branch: str = "main",
    ) -> None:
        self.session_id = session_id or SeededIds("transcript").next_uuid()
        self.now = start
        """The current time of the builder's clock."""
        self.last: str | None = None
        """The uuid of the last record, the parent of the next one."""
        self._version, self._cwd, self._branch = version, cwd, git_branch
        self._model = next(model for since, model in _MODEL_BY_VERSION if version_numbers(version) >= since)
        self._lines: list[_BuiltLine] = []
        self._message_id: str | None = None
        self._messages: dict[str, _BuiltMessage] = {}
        self._character_count = 0
        self._cached = 0
        self._calls: dict[str, _BuiltCall] = {}
        self._open_calls: dict[str, _BuiltCall] = {}
        self._result_uuids: dict[str, str | None] = {}
        self._turn = 0
        self._progress_count = 0
        self._agents: list[TranscriptBuilder] = []
        self._sidecars: dict[str, bytes] = {}
        self._set_agent(None)

    def _set_agent(self, agent: _BuiltAgent | None) -> None:
        profile = client_profile(self._version)
        self._shape = replace(profile.shape, version=self._version)
        self._agent = agent
        self._ids = SeededIds(f"{self.session_id}/{agent.call}" if agent else self.session_id)
        config = RecorderConfig(
            profile=replace(profile, shape=self._shape),
            session_id=SessionId(self.session_id),
            cwd=Path(self._cwd),
            agent_id=agent.id if agent else None,
        )
        self._template = EntryTemplate(config)
        self._template.set_branch(self._branch)
        self._template.is_sidechain = agent is not None

    @property
    def agent_id(self) -> str:
        """The id of the subagent; empty for a main transcript."""
        return (self._agent.id or "") if self._agent else ""

    @property
    def is_in_message(self) -> bool:
        """True while the model's message is incomplete."""
        return self._message_id is not None

    def wait(self, ms: int) -> Self:
        """Advance the clock."""
        self.now += timedelta(milliseconds=ms)
        return self

    def until(self, other: TranscriptBuilder) -> Self:
        """Advance the clock to the last record of another builder."""
        self.now = max(self.now, other.now)
        return self

    def prompt(self, text: str, *, after_ms: int = 0) -> Self:
        """Add a user's prompt or, in a subagent, the prompt from the call that started it."""
        return self.wait(after_ms)._add_prompt(text)

    def text(self, text: str, *, message: str | None = None, after_ms: int = 0) -> Self:
        """Add text from the model."""
        self.wait(after_ms)._add_block({"type": "text", "text": text}, message)
        return self

    def thinking(self, text: str, *, message: str | None = None, after_ms: int = 0) -> Self:
        """Add thinking from the model."""
        signature = self._ids.next_signature()
        self.wait(after_ms)._add_block({"type": "thinking", "thinking": text, "signature": signature}, message)
        return self

    def usage(self, **tokens: int) -> Self:
        """Set token counts for the current message; missing ones are generated.

        Raises:
            ValueError: there is no current message.
        """
        if self._message_id is None:
            raise ValueError("Expected a text, a thought or a call before its token counts")
        self._messages[self._message_id].usage |= tokens
        return self

    def call(
        self,
        tool: str,
        input: Mapping[str, object],
        *,
        id: str | None = None,
        message: str | None = None,
        after_ms: int = 0,
    ) -> CallId:
        """Add a call and return its id.

        Calls with only text or thinking between them form one batch. After a result the model
        starts a new message; pass the same `message` to stay in the batch.
        """
        call_id = CallId(id or self._ids.next_token("toolu_01"))
        block = {"type": "tool_use", "id": call_id, "name": tool, "input": dict(input)}
        built_call = _BuiltCall(tool, self.wait(after_ms)._add_block(block, message))
        self._calls[call_id] = self._open_calls[call_id] = built_call
        return call_id

    def result(
        self,
        call_id: str,
        content: str | Blocks | Body,
        *,
        is_error: bool | None = None,
        structured: object = None,
        denial: Denial | None = None,
        after_ms: int = 0,
    ) -> Self:
        """Add the result of a call; a `Body` includes error flag, structured result and denial."""
        self.wait(after_ms)
        if isinstance(content, Body):
            body = content
        else:
            body = Body(content=content, structured=structured, is_error=is_error, denial=denial)
        self._open_calls.pop(call_id, None)
        built_call = self._calls.get(call_id)
        companion, text = body.structured, body.content if isinstance(body.content, str) else ""
        if companion is None and body.is_error and text:  # an error repeats its message
            companion = f"Error: {text}"
        has_companion = self._agent is None or self._shape.companions_aside or body.is_error
        decision = _ACCEPTED_DECISION if body.decision is None else body.decision
        fields, extras = entries.result_fields(
            self._shape,
            call_id,
            body.content,
            is_error=body.is_error,
            call_uuid=built_call.uuid if built_call else None,
            structured=companion if has_companion else None,
            denial=body.denial,
            # Calls with these errors were refused before the permission check.
            decision=None if text.startswith("<tool_use_error>") else decision,
            is_command=built_call is not None and built_call.tool == "Bash",
        )
        parent = built_call.uuid if built_call and self._shape.parent_is_own_call else self.last
        self._add_user_entry(fields, extras, parent)
        self._result_uuids[call_id] = self.last
        return self

    def interrupt(self, *, after_ms: int = 0) -> Self:
        """Interrupt the turn: open calls are rejected, and the client records the interrupt."""
        self.wait(after_ms)
        was_streaming = self.is_in_message and not self._open_calls
        rejection = Body(
            content=REJECTED + STOP,
            structured="User rejected tool use",
            is_error=True,
            denial="user-rejected",
            decision={},
        )
        for call_id in list(self._open_calls):
            self.result(call_id, rejection)
        text = entries.INTERRUPTED if was_streaming else entries.INTERRUPTED_TOOL
        return self._add_user_entry(entries.user_fields([{"type": "text", "text": text}]))

    def resume(self, *, after_ms: int = 0) -> Self:
        """Restart the client after a kill; newer versions answer the open calls."""
        self.wait(after_ms)
        open_calls, self._open_calls = list(self._open_calls), {}
        if not open_calls or not self._shape.decisions:
            return self
        ended = Body(content=SESSION_ENDED, structured=SESSION_ENDED, is_error=True, denial="interrupted", decision={})
        for call_id in open_calls:
            self.result(call_id, ended)
        message = {
            "id": self._ids.next_uuid(),
            "model": entries.SYNTHETIC_MODEL,
            "role": "assistant",
            "stop_reason": "stop_sequence",
            "stop_sequence": "",
            "type": "message",
            "usage": _usage_fields(),
            "content": [{"type": "text", "text": "No response requested."}],
        }
        return self._add_entry({"type": "assistant", "message": message}, {"isApiErrorMessage": False})

    def hook(
        self,
        call_id: str,
        point: str,
        *,
        command: str,
        outcome: HookOutcome = "success",
        text: str = "",
        took_ms: int = 40,
    ) -> Self:
        """Add a hook that ran for a call, at `PreToolUse` or `PostToolUse`."""
        built_call = self._calls[call_id]
        event = HookRan(
            call_id=CallId(call_id),
            point=point,
            name=f"{point}:{built_call.tool}",
            outcome=outcome,
            command=command,
            text=f"[{command}]: {text}" if outcome == "blocked" else text,
            stdout=f"{text}\n" if outcome == "success" else None,
            duration_ms=took_ms,
            timed_out=outcome == "cancelled",
            timeout_ms=took_ms,
            at=self.now.timestamp(),
        )
        if self._shape.hooks != "attachments":
            self._progress_count += 1
            return self._add_entry(entries.hook_progress(event, built_call.tool) or {})
        attachment = entries.hook_attachment(event, built_call.tool)
        if attachment is None:
            raise ValueError(f"Clients do not record a {point} hook that ends with {outcome}")
        return self._add_attachment(attachment, self._result_uuids.get(call_id, built_call.uuid))

    def progress(self, call_id: str, kind: str, **data: object) -> Self:
        """Add a progress record in the form that clients around 2.1.80 wrote."""
        self._progress_count += 1
        ticker = f"{kind.removesuffix('_progress')}-progress-{self._progress_count}"
        data_fields = {"type": kind, **data}
        body: Fields = {"type": "progress", "data": data_fields, "toolUseID": ticker, "parentToolUseID": call_id}
        return self._add_entry(body)

    def task_notification(
        self,
        call_id: str,
        task: str,
        summary: str,
        *,
        status: str = "completed",
        result: str | None = None,
        queued: bool = False,
    ) -> Self:
        """Add a notification about a background task, as a new turn or, if `queued`, in the current one."""
        tags = {
            "task-id": task,
            "tool-use-id": call_id,
            "output-file": self.task_output(task),
            "status": status,
            "summary": summary,
        }
        if result is not None:
            tags["result"] = result
        lines = [f"<{tag}>{value}</{tag}>" for tag, value in tags.items()]
        text = "\n".join(["<task-notification>", *lines, "</task-notification>"])
        if queued:
            return self._add_attachment(entries.queued_notice(text), self.last)
        return self._add_prompt(text, is_notification=True)

    def compact(self, summary: str, *, trigger: Literal["auto", "manual"] = "auto") -> Self:
        """Replace the conversation with a summary."""
        compaction = Compaction(summary=summary, trigger=trigger, tokens_before=self._token_count(), duration_ms=0)
        self._add_entry(entries.compaction_fields(compaction, self.last), is_root=True)
        self._character_count = self._cached = 0
        flags = {"isVisibleInTranscriptOnly": True, "isCompactSummary": True}
        return self._add_user_entry(entries.user_fields(summary, **flags))

    def rewind(self, to_uuid: str | None) -> Self:
        """Rewind to a record, abandoning all later ones."""
        self.last, self._message_id = to_uuid, None
        self._open_calls.clear()
        return self

    def title(self, text: str, *, custom: bool = False) -> Self:
        """Add a session title written by the model or, if `custom`, by the user."""
        if self._shape.hooks != "attachments":
            return self.raw(encode_json({"type": "summary", "summary": text, "leafUuid": self.last}))
        return self.state("custom-title", customTitle=text) if custom else self.state("ai-title", aiTitle=text)

    def state(self, kind: str, **fields: object) -> Self:
        """Add a record about the session, outside the conversation: `mode`, `last-prompt`, …"""
        return self._add_line({"type": kind, **fields, "sessionId": self.session_id})

    def raw(self, line: bytes) -> Self:
        """Add raw bytes as a line; `line` must not include the newline."""
        return self._add_line(line)

    def glue(self) -> Self:
        """Omit the newline after the last line."""
        self._lines[-1].end = b""
        return self

    def tear(self, kept_bytes: int, *, ended: bool = False) -> Self:
        """Truncate the last line to its first bytes; a newline follows only if `ended`."""
        self._lines[-1].kept_bytes = kept_bytes
        self._lines[-1].end = b"\n" if ended else b""
        return self

    def agent(self, call_id: str, *, kind: str = "general-purpose", description: str = "") -> TranscriptBuilder:
        """Return a builder for the transcript of the subagent that a call started; begin it with `prompt`.

        The builder has its own clock, which starts now. Depending on the version, its lines are
        written to this file, to a file beside it, or to the session's folder.
        """
        ids = SeededIds(call_id)
        names = {"nested": f"a{ids.next_hex(16)}", "beside": ids.next_hex(8)}
        is_inline = version_numbers(self._version) < (2,)
        child = self._new_builder(self.session_id)
        agent_id = None if is_inline else names[self._shape.agents]
        child._set_agent(_BuiltAgent(id=agent_id, call=call_id, kind=kind, description=description))
        if is_inline:
            child._lines = self._lines
        self._agents.append(child)
        return child

    def fork(self, session_id: str) -> TranscriptBuilder:
        """Return a session that starts with a copy of this one, with the same uuids but a new session id."""
        self._finish_messages()
        twin = self._new_builder(session_id)
        twin.last, twin._character_count, twin._cached = self.last, self._character_count, self._cached
        twin._lines = copy.deepcopy(self._lines)
        for line in twin._lines:
            if isinstance(line.record, dict):
                line.record["sessionId"] = session_id
        twin._calls, twin._open_calls, twin._turn = dict(self._calls), dict(self._open_calls), self._turn
        return twin

    def task_output(self, task: str) -> str:
        """Return the path of a background task's output file."""
        return f"/tmp/claude-1000/{project_name(self._cwd)}/{self.session_id}/tasks/{task}.output"

    def sidecar(self, name: str, data: bytes) -> str:
        """Add a file such as `tool-results/x.txt` beside the session, and return its path."""
        self._sidecars[name] = data
        home = "/".join(self._cwd.split("/")[:3])
        return f"{home}/.claude/projects/{project_name(self._cwd)}/{self.session_id}/{name}"

    # Output

    def data(self) -> bytes:
        """Return the whole file."""
        self._finish_messages()
        encoded = ((line, line.record if isinstance(line.record, bytes) else encode_json(line.record))
                   for line in self._lines)  # fmt: skip
        return b"".join(data[: line.kept_bytes] + line.end for line, data in encoded)

    def lines(self) -> list[bytes]:
        """Return the lines without newlines."""
        return self.data().removesuffix(b"\n").split(b"\n")

    def files(self, stem: str | None = None) -> dict[str, bytes]:
        """Return all files in the session by name, relative to the project's folder."""
        folder = stem or self.session_id
        files = {f"{folder}.jsonl": self.data()}
        for child in self._all_agents():
            agent = child._agent
            if agent is None or agent.id is None:
                continue
            if self._shape.agents == "beside":
                files[f"agent-{agent.id}.jsonl"] = child.data()
                continue
            meta = {
                "agentType": agent.kind,
                "description": agent.description,
                "toolUseId": agent.call,
                "spawnDepth": 1,
                "requestShape": "foreground",
            }
            files[f"{folder}/subagents/agent-{agent.id}.jsonl"] = child.data()
            files[f"{folder}/subagents/agent-{agent.id}.meta.json"] = encode_json(meta)
        return files | {f"{folder}/{name}": data for name, data in self._sidecars.items()}

    def write(self, path: Path) -> Path:
        """Write the session to `path`, with its subagents and sidecar files around it."""
        for name, data in self.files(path.stem).items():
            target = path.parent / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        return path

    def stream_lines(self) -> list[bytes]:
        """Return the session as lines of `--output-format stream-json`, which contains no prompts."""
        self._finish_messages()
        files = [self, *(child for child in self._all_agents() if child.agent_id)]
        records = [
            (line.record, line.agent_call)
            for builder in files
            for line in builder._lines
            if isinstance(line.record, dict)
            and (line.record.get("type") == "assistant" or _blocks_of_type(line.record, "tool_result"))
        ]
        records.sort(key=lambda item: str(item[0]["timestamp"]))
        first: Fields = {
            "type": "system",
            "subtype": "init",
            "cwd": self._cwd if records else "",
            "session_id": self.session_id,
            "model": self._model,
            "permissionMode": "default",
            "claude_code_version": self._version if records else "",
        }
        lines = [first]
        calls: dict[object, Fields] = {}
        texts: list[object] = [""]
        denials: list[Fields] = []
        for record, agent_call in records:
            message = record["message"]
            if isinstance(message, dict) and "stop_reason" in message:  # unknown when a block is printed
                message = {**message, "stop_reason": None}
            line: Fields = {"type": record["type"], "message": message, "parent_tool_use_id": agent_call}
            line |= {"session_id": self.session_id, "uuid": record["uuid"], "timestamp": record["timestamp"]}
            for printed_key, key in (("request_id", "requestId"), ("tool_use_result", "toolUseResult")):
                if key in record:
                    line[printed_key] = record[key]
            lines.append(line)
            texts += (block["text"] for block in _blocks_of_type(record, "text"))
            calls |= {block["id"]: block for block in _blocks_of_type(record, "tool_use")}
            for block in _blocks_of_type(record, "tool_result") if "toolDenialKind" in record else ():
                call = calls[block["tool_use_id"]]
                denials.append({"tool_name": call["name"], "tool_use_id": call["id"], "tool_input": call["input"]})
        last: Fields = {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "num_turns": len(records),
            "result": texts[-1],
            "session_id": self.session_id,
            "permission_denials": denials,
            "terminal_reason": "completed",
        }
        return [encode_json(line) for line in (*lines, last)]

    # Records

    def _new_builder(self, session_id: str) -> TranscriptBuilder:
        return TranscriptBuilder(
            session_id=session_id, version=self._version, cwd=self._cwd, start=self.now, git_branch=self._branch
        )

    def _all_agents(self) -> list[TranscriptBuilder]:
        """Return the subagents, recursively."""
        return [each for child in self._agents for each in (child, *child._all_agents())]

    def _token_count(self) -> int:
        return _INITIAL_TOKENS + self._character_count // 4

    def _add_line(self, record: Fields | bytes) -> Self:
        self._lines.append(_BuiltLine(record, self._agent.call if self._agent else None))
        return self

    def _add_entry(
        self,
        body: Fields,
        extra: Fields | None = None,
        parent: str | None = None,
        *,
        is_user: bool = False,
        is_root: bool = False,
    ) -> Self:
        """Add a conversation record; its parent is the previous record by default."""
        uuid = self._ids.next_uuid()
        parent = None if is_root else parent or self.last
        entry = self._template.build_entry(parent, uuid, self.now.timestamp(), body, extra or {}, user=is_user)
        self._add_line(entry)
        counted = {key: value for key, value in entry.items() if key in body or key == "promptId"}
        self._character_count += len(encode_json(counted))
        self.last = uuid
        return self

    def _add_user_entry(self, body: Fields, extra: Fields | None = None, parent: str | None = None) -> Self:
        self._message_id = None
        return self._add_entry(body, extra, parent, is_user=True)

    def _add_prompt(self, text: str, *, is_notification: bool = False) -> Self:
        self._turn += 1
        self._template.prompt_id = self._ids.next_uuid()
        extra: Fields = {}
        if self._agent is None:
            extra = entries.prompt_fields(self._shape, "default", self._turn, is_notification=is_notification)
        return self._add_user_entry(entries.user_fields(text), extra)

    def _add_block(self, block: Mapping[str, object], message: str | None) -> str:
        """Add a block from the model's message as a record, and return its uuid."""
        self._message_id = message_id = message or self._message_id or self._ids.next_token("msg_01")
        if message_id not in self._messages:
            tokens = self._token_count()
            self._messages[message_id] = _BuiltMessage(self._cached, tokens - self._cached)
            self._cached = tokens
        blocks = self._messages[message_id].blocks
        fields = entries.message_fields({"id": message_id, "model": self._model}) | {"content": [block]}
        del fields["usage"]  # it is known only once the message is complete
        position = len(blocks) if self._shape.blocks_numbered else None
        request_id = f"req_011{message_id.removeprefix('msg_01')}"
        extra: Fields = {"madeBy": "model"} if self._shape.blocks_numbered else {}
        self._add_entry(entries.reply_fields(fields, position, request_id), extra)
        blocks.append(fields)
        return self.last or ""

    def _add_attachment(self, attachment: Fields, parent: str | None) -> Self:
        return self._add_entry(*entries.attachment_fields(self._shape, attachment), parent)

    def _finish_messages(self) -> None:
        """Fill in stop reasons and token counts, which are known only once a message is complete."""
        messages = [message for each in (self, *self._all_agents()) for message in each._messages.values()]
        for message in messages:
            contents = [encode_json(fields["content"]) for fields in message.blocks]
            stop_reason = "tool_use" if any(b'"type":"tool_use"' in content for content in contents) else "end_turn"
            output = sum(map(len, contents)) // 4
            usage = _usage_fields(message.cached, message.uncached, output, message.usage)
            for n, fields in enumerate(message.blocks, 1):
                is_final = self._shape.final_stop or n == len(contents)
                fields["stop_reason"] = stop_reason if is_final else None
                fields["usage"] = usage if is_final else usage | {"output_tokens": 1}


def _usage_fields(
    cached: int = 0, uncached: int = 0, output: int = 0, overrides: Mapping[str, int] | None = None
) -> Fields:
    return {
        "input_tokens": 4 if output else 0,
        "cache_creation_input_tokens": uncached,
        "cache_read_input_tokens": cached,
        "output_tokens": output,
        **(overrides or {}),
        "service_tier": "standard",
    }


def _blocks_of_type(record: Fields, kind: str) -> list[Fields]:
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in content if block.get("type") == kind] if isinstance(content, list) else []
