"""Build Claude Code transcripts for tests.

`TranscriptBuilder` writes the records that a client version would have written, including damaged
ones. Ids and times are seeded, so the same steps produce the same bytes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, Self

from toolspan.session.models.scripted import SeededIds
from toolspan.testing.claude_records import (
    BuiltAgent,
    LineBuilder,
    LineContext,
    Record,
    StreamRecord,
    encode_record,
    to_stream_records,
)
from toolspan.testing.claude_results import CURRENT, REJECTED, SESSION_ENDED, STOP, Blocks, Body, Denial, project_name
from toolspan.types.ids import CallId

HookOutcome = Literal["success", "error", "blocked", "cancelled", "context", "message"]

_TRANSCRIPT_START = datetime(2026, 11, 2, 9, tzinfo=UTC)
_ACCEPTED_DECISION = {"decision": "accept", "source": "config", "reasonType": "rule", "ruleSource": "projectSettings"}


@dataclass(frozen=True)
class _BuiltCall:
    """A call and the record that requested it."""

    tool: str
    uuid: str


class TranscriptBuilder:
    """A builder for transcripts.

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
        context = LineContext(
            session_id=session_id or SeededIds("transcript").next_uuid(), version=version, cwd=cwd, branch=git_branch
        )
        self._set_lines(LineBuilder(context, start))

    def _set_lines(self, lines: LineBuilder) -> None:
        self._line_builder = lines
        self._shape = lines.shape
        self._calls: dict[str, _BuiltCall] = {}
        self._open_calls: dict[str, _BuiltCall] = {}
        self._result_uuids: dict[str, str | None] = {}
        self._turn = 0
        self._progress_count = 0
        self._agents: list[TranscriptBuilder] = []
        self._sidecars: dict[str, bytes] = {}

    @property
    def session_id(self) -> str:
        """The id of the session."""
        return self._line_builder.context.session_id

    @property
    def agent_id(self) -> str:
        """The id of the subagent; empty for a main transcript."""
        agent = self._line_builder.agent
        return (agent.id or "") if agent else ""

    @property
    def now(self) -> datetime:
        """The current time of the builder's clock."""
        return self._line_builder.now

    @property
    def last(self) -> str | None:
        """The uuid of the last record, the parent of the next one."""
        return self._line_builder.last_uuid

    @property
    def is_in_message(self) -> bool:
        """True while the model's message is incomplete."""
        return self._line_builder.current_message is not None

    def uuid_of(self, call_id: str) -> str:
        """Return the uuid of the record that requested a call."""
        return self._calls[call_id].uuid

    def wait(self, ms: int) -> Self:
        """Advance the clock."""
        self._line_builder.now += timedelta(milliseconds=ms)
        return self

    def until(self, other: TranscriptBuilder) -> Self:
        """Advance the clock to the last record of another builder."""
        self._line_builder.now = max(self.now, other.now)
        return self

    def prompt(self, text: str, *, after_ms: int = 0) -> Self:
        """Add a user's prompt or, in a subagent, the prompt from the call that started it."""
        self.wait(after_ms)
        self._turn += 1
        self._line_builder.prompt_id = self._line_builder.ids.next_uuid()
        extras: Record = {}
        if self._shape.prompt_ids and not self._line_builder.agent:
            extras["permissionMode"] = "default"
        if self._shape.blocks_numbered and not self._line_builder.agent:
            extras |= {"promptSource": "sdk", "turnOrigin": "sdk"}
            extras["turnPosition"] = {"promptIndex": 0, "turnIndex": self._turn}
        self._line_builder.add_user_entry(text, extras)
        return self

    def text(self, text: str, *, message: str | None = None, after_ms: int = 0) -> Self:
        """Add text from the model."""
        self.wait(after_ms)
        self._line_builder.add_block({"type": "text", "text": text}, message)
        return self

    def thinking(self, text: str, *, message: str | None = None, after_ms: int = 0) -> Self:
        """Add thinking from the model."""
        self.wait(after_ms)
        signature = self._line_builder.ids.next_signature()
        block = {"type": "thinking", "thinking": text, "signature": signature}
        self._line_builder.add_block(block, message)
        return self

    def usage(self, **tokens: int) -> Self:
        """Set token counts for the current message; missing ones are invented.

        Raises:
            ValueError: there is no current message.
        """
        self._line_builder.set_token_counts(tokens)
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
        self.wait(after_ms)
        call_id = CallId(id or self._line_builder.ids.next_token("toolu_01"))
        block = {"type": "tool_use", "id": call_id, "name": tool, "input": dict(input)}
        built_call = _BuiltCall(tool, self._line_builder.add_block(block, message))
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
        if isinstance(content, Body):
            return self._add_result(call_id, content, after_ms)
        body = Body(content=content, structured=structured, is_error=is_error, denial=denial)
        return self._add_result(call_id, body, after_ms)

    def _add_result(self, call_id: str, body: Body, after_ms: int) -> Self:
        self.wait(after_ms)
        self._open_calls.pop(call_id, None)
        built_call = self._calls.get(call_id)
        parent = self.last if built_call is None or self._shape.is_linear else built_call.uuid
        self._line_builder.add_user_entry(
            [_result_block(call_id, body)], self._result_extras(built_call, body), parent=parent
        )
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
        text = f"[Request interrupted by user{'' if was_streaming else ' for tool use'}]"
        self._line_builder.add_user_entry([{"type": "text", "text": text}])
        return self

    def resume(self, *, after_ms: int = 0) -> Self:
        """Restart the client after a kill; newer versions answer the open calls."""
        self.wait(after_ms)
        open_calls, self._open_calls = list(self._open_calls), {}
        if not open_calls or not self._shape.decisions:
            return self
        ended = Body(content=SESSION_ENDED, structured=SESSION_ENDED, is_error=True, denial="interrupted", decision={})
        for call_id in open_calls:
            self.result(call_id, ended)
        self._line_builder.add_synthetic_reply("No response requested.")
        return self

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
        name = f"{point}:{built_call.tool}"
        if not self._shape.attachments:
            running = {"hookEvent": point, "hookName": name, "command": command}
            return self.progress(call_id, "hook_progress", **running)
        outcome_fields = _hook_outcome_fields(outcome, command, text, took_ms)
        hook_fields = {"hookName": name, "toolUseID": call_id, "hookEvent": point}
        return self._add_attachment(
            {"type": outcome_fields.pop("type"), **hook_fields, **outcome_fields},
            parent=self._result_uuids.get(call_id, built_call.uuid),
        )

    def progress(self, call_id: str, kind: str, **data: object) -> Self:
        """Add a progress record in the form that clients around 2.1.80 wrote."""
        self._progress_count += 1
        ticker = f"{kind.removesuffix('_progress')}-progress-{self._progress_count}"
        body: Record = {
            "type": "progress",
            "data": {"type": kind, **data},
            "toolUseID": call_id if kind == "hook_progress" else ticker,
            "parentToolUseID": call_id,
        }
        self._line_builder.add_entry(body, parent=self.last)
        return self

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
        origin = {"kind": "task-notification", "producer": "session-task"}
        if queued:
            mode = {"commandMode": "task-notification", "origin": origin}
            return self._add_attachment({"type": "queued_command", "prompt": text, **mode}, self.last)
        self._turn += 1
        self._line_builder.prompt_id = self._line_builder.ids.next_uuid()
        self._line_builder.add_user_entry(text, {"origin": origin, "promptSource": "system"})
        return self

    def compact(self, summary: str, *, trigger: Literal["auto", "manual"] = "auto") -> Self:
        """Replace the conversation with a summary."""
        metadata = {"trigger": trigger, "preTokens": self._line_builder.tokens}
        boundary: Record = {
            "type": "system",
            "subtype": "compact_boundary",
            "content": "Conversation compacted",
            "isMeta": False,
        }
        self._line_builder.add_entry(
            boundary,
            {"level": "info", "compactMetadata": metadata},
            parent=None,
            links={"logicalParentUuid": self.last},
        )
        self._line_builder.reset_token_counts()
        self._line_builder.add_user_entry(summary, {"isVisibleInTranscriptOnly": True, "isCompactSummary": True})
        return self

    def rewind(self, to_uuid: str | None) -> Self:
        """Rewind to a record, abandoning all later ones."""
        self._line_builder.last_uuid = to_uuid
        self._line_builder.current_message = None
        self._open_calls.clear()
        return self

    def title(self, text: str, *, custom: bool = False) -> Self:
        """Add a session title written by the model or, if `custom`, by the user."""
        if not self._shape.attachments:
            return self.raw(encode_record({"type": "summary", "summary": text, "leafUuid": self.last}))
        if custom:
            return self.state("custom-title", customTitle=text)
        return self.state("ai-title", aiTitle=text)

    def state(self, kind: str, **fields: object) -> Self:
        """Add a record about the session, outside the conversation: `mode`, `last-prompt`, …"""
        self._line_builder.add_line({"type": kind, **fields, "sessionId": self.session_id})
        return self

    def raw(self, line: bytes) -> Self:
        """Add raw bytes as a line; `line` must not include the newline."""
        self._line_builder.add_line(line)
        return self

    def glue(self) -> Self:
        """Omit the newline after the last line."""
        self._line_builder.lines[-1].end = b""
        return self

    def tear(self, kept_bytes: int, *, ended: bool = False) -> Self:
        """Truncate the last line to its first bytes; a newline follows only if `ended`."""
        self._line_builder.lines[-1].kept_bytes = kept_bytes
        self._line_builder.lines[-1].end = b"\n" if ended else b""
        return self

    def agent(self, call_id: str, *, kind: str = "general-purpose", description: str = "") -> TranscriptBuilder:
        """Return a builder for the transcript of the subagent that a call started; begin it with `prompt`.

        The builder has its own clock, which starts now. Depending on the version, its lines are
        written to this file, to a file beside it, or to the session's folder.
        """
        ids = SeededIds(call_id)
        name = {"nested": f"a{ids.next_hex(16)}", "beside": ids.next_hex(8), "inline": None}
        agent = BuiltAgent(id=name[self._shape.layout], call=call_id, kind=kind, description=description)
        child = TranscriptBuilder()
        child._set_lines(LineBuilder(self._line_builder.context, self.now, agent))
        if agent.id is None:
            child._line_builder.lines = self._line_builder.lines
        self._agents.append(child)
        return child

    def fork(self, session_id: str) -> TranscriptBuilder:
        """Return a session that starts with a copy of this one, with the same uuids but a new session id."""
        self._finish_messages()
        twin = TranscriptBuilder()
        twin._set_lines(LineBuilder(replace(self._line_builder.context, session_id=session_id), self.now))
        twin._line_builder.continue_from(self._line_builder)
        twin._line_builder.lines = copy.deepcopy(self._line_builder.lines)
        for line in twin._line_builder.lines:
            if isinstance(line.record, dict):
                line.record["sessionId"] = session_id
        twin._calls, twin._open_calls, twin._turn = (dict(self._calls), dict(self._open_calls), self._turn)
        return twin

    def task_output(self, task: str) -> str:
        """Return the path of a background task's output file."""
        project = project_name(self._line_builder.context.cwd)
        return f"/tmp/claude-1000/{project}/{self.session_id}/tasks/{task}.output"

    def sidecar(self, name: str, data: bytes) -> str:
        """Add a file such as `tool-results/x.txt` beside the session, and return its path."""
        self._sidecars[name] = data
        cwd = self._line_builder.context.cwd
        home = "/".join(cwd.split("/")[:3])
        return f"{home}/.claude/projects/{project_name(cwd)}/{self.session_id}/{name}"

    def data(self) -> bytes:
        """Return the whole file."""
        self._finish_messages()
        return b"".join(line.encoded() for line in self._line_builder.lines)

    def lines(self) -> list[bytes]:
        """Return the lines without newlines."""
        return self.data().removesuffix(b"\n").split(b"\n")

    def stream_lines(self) -> list[bytes]:
        """Return the session as lines of `--output-format stream-json`."""
        self._finish_messages()
        records = [
            StreamRecord(line.record, line.agent_call)
            for builder in (self, *self._agents_with_files())
            for line in builder._line_builder.lines
            if isinstance(line.record, dict)
        ]
        return [encode_record(line) for line in to_stream_records(records, self.session_id, self._shape.model)]

    def files(self, stem: str | None = None) -> dict[str, bytes]:
        """Return all files in the session by name, relative to the project's folder."""
        folder = stem or self.session_id
        files = {f"{folder}.jsonl": self.data()}
        for child in self._agents_with_files():
            files |= child._agent_files(folder)
        return files | {f"{folder}/{name}": data for name, data in self._sidecars.items()}

    def write(self, path: Path) -> Path:
        """Write the session to `path`, with its subagents and sidecar files around it."""
        for name, data in self.files(path.stem).items():
            target = path.parent / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        return path

    def _agent_files(self, folder: str) -> dict[str, bytes]:
        agent = self._line_builder.agent
        if agent is None:
            return {}
        name = f"agent-{agent.id}"
        if self._shape.layout == "beside":
            return {f"{name}.jsonl": self.data()}
        meta = {
            "agentType": agent.kind,
            "description": agent.description,
            "toolUseId": agent.call,
            "spawnDepth": 1,
            "requestShape": "foreground",
        }
        return {
            f"{folder}/subagents/{name}.jsonl": self.data(),
            f"{folder}/subagents/{name}.meta.json": encode_record(meta),
        }

    def _all_agents(self) -> list[TranscriptBuilder]:
        """Return the subagents, recursively."""
        return [each for child in self._agents for each in (child, *child._all_agents())]

    def _agents_with_files(self) -> list[TranscriptBuilder]:
        """Return the subagents that have their own file."""
        return [child for child in self._all_agents() if child.agent_id]

    def _finish_messages(self) -> None:
        for builder in (self, *self._all_agents()):
            builder._line_builder.finish_messages()

    def _add_attachment(self, attachment: Record, parent: str | None) -> Self:
        self._line_builder.add_entry({"attachment": attachment, "type": "attachment"}, parent=parent)
        return self

    def _result_extras(self, built_call: _BuiltCall | None, body: Body) -> Record:
        """Return the additional fields for a result's record."""
        shape = self._shape
        extras: Record = {}
        companion = _structured_companion(body)
        omits_companion = self._line_builder.agent is not None and not shape.companions_aside
        if companion is not None and (body.is_error or not omits_companion):
            extras["toolUseResult"] = companion
        if shape.decisions and body.denial:
            extras["toolDenialKind"] = body.denial
        if built_call and not shape.is_linear:
            extras["sourceToolAssistantUUID"] = built_call.uuid
        decision = _ACCEPTED_DECISION if body.decision is None else body.decision
        if shape.blocks_numbered and decision and not _is_refused(body):
            extras["permissionDecision"] = dict(decision)
        return extras


def _result_block(call_id: str, body: Body) -> Record:
    """Return the result block; its key order depends on whether the tool raised an error."""
    if body.is_error:
        block: Record = {"type": "tool_result", "content": body.content, "is_error": True}
        return {**block, "tool_use_id": call_id}
    block = {"tool_use_id": call_id, "type": "tool_result", "content": body.content}
    return block if body.is_error is None else {**block, "is_error": False}


def _structured_companion(body: Body) -> object:
    """Return the structured result; an error without one repeats its message."""
    if body.structured is None and body.is_error and isinstance(body.content, str):
        return f"Error: {body.content}"
    return body.structured


def _is_refused(body: Body) -> bool:
    """Return whether the call was refused before the permission check."""
    return isinstance(body.content, str) and body.content.startswith("<tool_use_error>")


def _hook_outcome_fields(outcome: HookOutcome, command: str, text: str, took_ms: int) -> Record:
    """Return the attachment fields for a hook's outcome."""
    ran = {"command": command, "durationMs": took_ms}
    match outcome:
        case "success":
            output = {"content": text, "stdout": f"{text}\n", "stderr": "", "exitCode": 0}
            return {"type": "hook_success", **output, **ran}
        case "error":
            output = {"stderr": text, "stdout": "", "exitCode": 1}
            return {"type": "hook_non_blocking_error", **output, **ran}
        case "blocked":
            error = {"blockingError": f"[{command}]: {text}", "command": command}
            return {"type": "hook_blocking_error", "blockingError": error}
        case "cancelled":
            return {"type": "hook_cancelled", **ran, "timedOut": True, "timeoutMs": took_ms}
        case "context":
            return {"type": "hook_additional_context", "content": [text]}
        case "message":
            return {"type": "hook_system_message", "content": text}
