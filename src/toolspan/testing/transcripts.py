"""Claude Code transcripts made by hand, for tests.

In: what happened, told in order (`prompt`, `call`, `result`, …), and a client version. Out: the lines
that version would have written, in its own shape: one line per block, results in the order they
came, every line hanging on its parent. Ids come from a seeded counter and the clock moves only when
told, so the same story gives the same bytes. What tools give back is in `bodies.py`; the differences
between versions are in `shape.py`; the stream form is in `stream.py`. Read `TranscriptBuilder` first.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, Self

import msgspec

from toolspan.testing.bodies import CURRENT, REJECTED, SESSION_ENDED, STOP, Blocks, Body, Denial
from toolspan.testing.shape import Ids, project_name, shape_of
from toolspan.testing.stream import Spoken, stream_of

Record = dict[str, object]
HookOutcome = Literal["success", "error", "blocked", "cancelled", "context", "message"]

_START = datetime(2026, 11, 2, 9, tzinfo=UTC)
_OVERHEAD = 9_000
"""Tokens that every conversation begins with, before anybody has said a word."""
_ACCEPTED = {
    "decision": "accept",
    "source": "config",
    "reasonType": "rule",
    "ruleSource": "projectSettings",
}


@dataclass
class _Line:
    """One line to be: a record, or bytes as they are."""

    record: Record | bytes
    agent_call: str | None = None
    """The call that started the subagent which wrote it."""
    kept: int | None = None
    """How many bytes of it reached the disk; None: all."""
    end: bytes = b"\n"

    def data(self) -> bytes:
        whole = self.record if isinstance(self.record, bytes) else _encode(self.record)
        return whole[: self.kept] + self.end


@dataclass
class _Message:
    """One message of the model, over all its lines."""

    bodies: list[Record]
    read: int
    """Tokens before it that were cached."""
    new: int
    usage: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Asked:
    """A call, and the line that asked for it."""

    tool: str
    uuid: str


@dataclass(frozen=True)
class _Agent:
    """Which subagent a transcript belongs to."""

    id: str | None
    call: str
    kind: str
    description: str


class TranscriptBuilder:
    """A transcript in the making.

    Methods return the builder, so that a story can be told in one breath; `call` returns the id of
    the call, which its result needs. `after_ms` is the time that passes before the line is written.
    """

    def __init__(
        self,
        *,
        session_id: str | None = None,
        version: str = CURRENT,
        cwd: str = "/home/dev/project",
        start: datetime = _START,
        git_branch: str = "main",
    ) -> None:
        self.session_id = session_id or Ids("transcript").uuid()
        self.version = version
        self.cwd = cwd
        self.now = start
        self.last: str | None = None
        """The uuid of the line written last: what the next line hangs on."""
        self._branch = git_branch
        self._shape = shape_of(version)
        self._ids = Ids(self.session_id)
        self._lines: list[_Line] = []
        self._messages: dict[str, _Message] = {}
        self._speaking: str | None = None
        self._asked: dict[str, _Asked] = {}
        self._open: dict[str, _Asked] = {}
        self._answered: dict[str, str] = {}
        self._prompt_id: str | None = None
        self._turn = 0
        self._length = 0
        self._cached = 0
        self._ticks = 0
        self._agent: _Agent | None = None
        self._agents: list[TranscriptBuilder] = []
        self._sidecars: dict[str, bytes] = {}

    # ---- time ----

    def wait(self, ms: int) -> Self:
        """Let time pass."""
        self.now += timedelta(milliseconds=ms)
        return self

    def until(self, other: "TranscriptBuilder") -> Self:
        """Let time pass until what another one, such as a subagent, last wrote."""
        self.now = max(self.now, other.now)
        return self

    # ---- what people and the model say ----

    def prompt(self, text: str, *, after_ms: int = 0) -> Self:
        """A person speaks; in a subagent, the call that started it does."""
        self.wait(after_ms)
        self._turn += 1
        self._prompt_id = self._ids.uuid()
        extras: Record = {}
        if self._shape.prompt_ids and self._agent is None:
            extras["permissionMode"] = "default"
        if self._shape.blocks_numbered and self._agent is None:
            extras |= {
                "promptSource": "sdk",
                "turnOrigin": "sdk",
                "turnPosition": {"promptIndex": 0, "turnIndex": self._turn},
            }
        return self._user(text, extras)

    def text(self, text: str, *, message: str | None = None, after_ms: int = 0) -> Self:
        """The model speaks."""
        self.wait(after_ms)
        self._block({"type": "text", "text": text}, message)
        return self

    def thinking(self, text: str, *, message: str | None = None, after_ms: int = 0) -> Self:
        """The model thinks."""
        self.wait(after_ms)
        block = {"type": "thinking", "thinking": text, "signature": self._ids.signature()}
        self._block(block, message)
        return self

    def usage(self, **tokens: int) -> Self:
        """Token counts of the message the model is in; what is not given is made up."""
        if self._speaking is None:
            raise ValueError("Expected a text, a thought or a call before its token counts")
        self._messages[self._speaking].usage |= tokens
        return self

    # ---- calls and results ----

    def call(
        self,
        tool: str,
        input: Mapping[str, object],
        *,
        id: str | None = None,
        message: str | None = None,
        after_ms: int = 0,
    ) -> str:
        """The model asks for a tool; gives the call's id.

        Calls with nothing but the model's words between them are one batch. After a result the
        model starts anew; name the same `message` to stay in the batch all the same.
        """
        self.wait(after_ms)
        call_id = id or self._ids.token("toolu_01")
        block = {"type": "tool_use", "id": call_id, "name": tool, "input": dict(input)}
        self._asked[call_id] = self._open[call_id] = _Asked(tool, self._block(block, message))
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
        """What goes back to the model; a `Body` brings flag, companion and denial with it."""
        self.wait(after_ms)
        body = content if isinstance(content, Body) else Body(
            content=content, structured=structured, is_error=is_error, denial=denial
        )  # fmt: skip
        asked = self._asked.get(call_id)
        self._speaking = None
        self._open.pop(call_id, None)
        block: Record = (
            {"type": "tool_result", "content": body.content, "is_error": True}
            | {"tool_use_id": call_id}
            if body.is_error
            else {"tool_use_id": call_id, "type": "tool_result", "content": body.content}
        )
        if body.is_error is False:
            block["is_error"] = False
        own_call = asked.uuid if asked and not self._shape.linear else self.last
        self._user([block], self._beside(asked, body), parent=own_call)
        self._answered[call_id] = self.last or ""
        return self

    def interrupt(self, *, after_ms: int = 0) -> Self:
        """The person stops the turn: open calls are rejected, then the client says so."""
        self.wait(after_ms)
        text = "[Request interrupted by user]"
        if self._open or self._speaking is None:
            text = "[Request interrupted by user for tool use]"
        rejection = Body(
            content=REJECTED + STOP,
            structured="User rejected tool use",
            is_error=True,
            denial="user-rejected",
            decision={},
        )
        for call_id in list(self._open):
            self.result(call_id, rejection)
        return self._user([{"type": "text", "text": text}])

    def resume(self, *, after_ms: int = 0) -> Self:
        """The client starts again after it was killed; newer ones answer the calls left open."""
        self.wait(after_ms)
        left, self._open = list(self._open), {}
        if self._shape.decisions and left:
            ended = Body(
                content=SESSION_ENDED,
                structured=SESSION_ENDED,
                is_error=True,
                denial="interrupted",
                decision={},
            )
            for call_id in left:
                self.result(call_id, ended)
            self._synthetic("No response requested.")
        return self

    # ---- what happens around calls ----

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
        """A hook spoke of a call, at `PreToolUse` or `PostToolUse`."""
        asked = self._asked[call_id]
        about: Record = {
            "hookName": f"{point}:{asked.tool}",
            "toolUseID": call_id,
            "hookEvent": point,
        }
        if not self._shape.attachments:
            return self.progress(
                call_id,
                "hook_progress",
                hookEvent=point,
                hookName=about["hookName"],
                command=command,
            )
        parent = self._answered.get(call_id, asked.uuid)
        return self._attach(about | _hook_words(outcome, command, text, took_ms), parent)

    def progress(self, call_id: str, kind: str, **data: object) -> Self:
        """A progress line, as clients around 2.1.80 wrote them."""
        self._ticks += 1
        ticker = f"{kind.removesuffix('_progress')}-progress-{self._ticks}"
        self._put(
            {
                "type": "progress",
                "data": {"type": kind, **data},
                "toolUseID": call_id if kind == "hook_progress" else ticker,
                "parentToolUseID": call_id,
            },
            parent=self.last,
        )
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
        """News of background work: a new turn, or `queued` into the one that runs."""
        lines = [
            "<task-notification>",
            f"<task-id>{task}</task-id>",
            f"<tool-use-id>{call_id}</tool-use-id>",
            f"<output-file>{self.task_output(task)}</output-file>",
            f"<status>{status}</status>",
            f"<summary>{summary}</summary>",
            *([f"<result>{result}</result>"] if result else []),
            "</task-notification>",
        ]
        text = "\n".join(lines)
        origin = {"kind": "task-notification", "producer": "session-task"}
        if queued:
            mode = {"commandMode": "task-notification", "origin": origin}
            return self._attach({"type": "queued_command", "prompt": text, **mode}, self.last)
        self._turn += 1
        self._prompt_id = self._ids.uuid()
        return self._user(text, {"origin": origin, "promptSource": "system"})

    def compact(self, summary: str, *, trigger: Literal["auto", "manual"] = "auto") -> Self:
        """The conversation is replaced by a summary of itself."""
        before = self._tokens()
        self._put(
            {
                "type": "system",
                "subtype": "compact_boundary",
                "content": "Conversation compacted",
                "isMeta": False,
            },
            {"level": "info", "compactMetadata": {"trigger": trigger, "preTokens": before}},
            parent=None,
            links={"logicalParentUuid": self.last},
        )
        self._length = self._cached = 0
        return self._user(summary, {"isVisibleInTranscriptOnly": True, "isCompactSummary": True})

    def rewind(self, to_uuid: str | None) -> Self:
        """Go back to a line: the next one hangs on it, and what came after it is abandoned."""
        self.last = to_uuid
        self._speaking = None
        self._open.clear()
        return self

    # ---- the session as a whole ----

    def title(self, text: str, *, custom: bool = False) -> Self:
        """A title for the session, made by the model or `custom`, by a person."""
        if not self._shape.attachments:
            return self.raw(_encode({"type": "summary", "summary": text, "leafUuid": self.last}))
        return (
            self.state("custom-title", customTitle=text)
            if custom
            else self.state("ai-title", aiTitle=text)
        )

    def state(self, kind: str, **fields: object) -> Self:
        """A line about the session itself, outside the conversation: `mode`, `last-prompt`, …"""
        return self._add({"type": kind, **fields, "sessionId": self.session_id})

    def raw(self, line: bytes) -> Self:
        """A line as it is, without its newline."""
        self._lines.append(_Line(line))
        return self

    def glue(self) -> Self:
        """Lose the newline after the last line, so that the next one stands on the same line."""
        self._lines[-1].end = b""
        return self

    def tear(self, kept: int, *, ended: bool = False) -> Self:
        """Keep only the first bytes of the last line; a newline follows only if `ended`."""
        self._lines[-1].kept = kept
        self._lines[-1].end = b"\n" if ended else b""
        return self

    def agent(
        self, call_id: str, *, kind: str = "general-purpose", description: str = ""
    ) -> "TranscriptBuilder":
        """The transcript of the subagent that a call started; begin it with `prompt`.

        It has its own clock, which starts now. By version its lines come into this file, into a
        file beside it, or into the session's folder.
        """
        child = TranscriptBuilder(
            session_id=self.session_id,
            version=self.version,
            cwd=self.cwd,
            start=self.now,
            git_branch=self._branch,
        )
        child._ids = Ids(f"{self.session_id}/{call_id}")
        name = {"nested": "a" + child._ids.hex(16), "beside": child._ids.hex(8), "inline": None}
        child._agent = _Agent(name[self._shape.layout], call_id, kind, description)
        if self._shape.layout == "inline":
            child._lines = self._lines
        self._agents.append(child)
        return child

    @property
    def agent_id(self) -> str:
        """The id of the subagent whose transcript this is; empty for others."""
        return (self._agent.id or "") if self._agent else ""

    def fork(self, session_id: str) -> "TranscriptBuilder":
        """Another session that begins with a copy of this one: same uuids, its own id."""
        self._finish()
        twin = TranscriptBuilder(
            session_id=session_id,
            version=self.version,
            cwd=self.cwd,
            start=self.now,
            git_branch=self._branch,
        )
        twin._lines = copy.deepcopy(self._lines)
        for line in twin._lines:
            if isinstance(line.record, dict):
                line.record["sessionId"] = session_id
        twin.last = self.last
        twin._asked, twin._open = dict(self._asked), dict(self._open)
        twin._turn, twin._length, twin._cached = self._turn, self._length, self._cached
        return twin

    def uuid_of(self, call_id: str) -> str:
        """The uuid of the line that asked for a call."""
        return self._asked[call_id].uuid

    def task_output(self, task: str) -> str:
        """Where the client puts the output of a background task."""
        return f"/tmp/claude-1000/{project_name(self.cwd)}/{self.session_id}/tasks/{task}.output"

    def sidecar(self, name: str, data: bytes) -> str:
        """Keep a file beside the session, such as `tool-results/x.txt`; gives the path it is known by."""
        self._sidecars[name] = data
        home = "/".join(self.cwd.split("/")[:3])
        return f"{home}/.claude/projects/{project_name(self.cwd)}/{self.session_id}/{name}"

    # ---- what comes out ----

    def data(self) -> bytes:
        """The whole file."""
        self._finish()
        return b"".join(line.data() for line in self._lines)

    def lines(self) -> list[bytes]:
        """The lines of the file, without their newlines."""
        return self.data().removesuffix(b"\n").split(b"\n")

    def stream_lines(self) -> list[bytes]:
        """The same story as lines of `--output-format stream-json`."""
        self._finish()
        spoken = [
            Spoken(line.record, line.agent_call)
            for source in (self, *self._descendants(apart=True))
            for line in source._lines
            if isinstance(line.record, dict)
        ]
        return [_encode(line) for line in stream_of(spoken, self.session_id, self._shape.model)]

    def files(self, stem: str | None = None) -> dict[str, bytes]:
        """All files of the session by name, relative to the project's folder."""
        folder = stem or self.session_id
        found = {f"{folder}.jsonl": self.data()}
        for child in self._descendants(apart=True):
            found |= child._own_files(folder)
        return found | {f"{folder}/{name}": data for name, data in self._sidecars.items()}

    def write(self, path: Path) -> Path:
        """Write the session to `path`, its subagents and sidecars where they belong around it."""
        for name, data in self.files(path.stem).items():
            target = path.with_name(name) if "/" not in name else path.parent / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        return path

    # ---- inside ----

    def _own_files(self, folder: str) -> dict[str, bytes]:
        """The files of a subagent."""
        if self._agent is None or self._agent.id is None:
            return {}
        name = f"agent-{self._agent.id}"
        if self._shape.layout == "beside":
            return {f"{name}.jsonl": self.data()}
        meta = {
            "agentType": self._agent.kind,
            "description": self._agent.description,
            "toolUseId": self._agent.call,
            "spawnDepth": 1,
            "requestShape": "foreground",
        }
        return {
            f"{folder}/subagents/{name}.jsonl": self.data(),
            f"{folder}/subagents/{name}.meta.json": _encode(meta),
        }

    def _descendants(self, *, apart: bool) -> "list[TranscriptBuilder]":
        """The subagents, and theirs; `apart`: only those with lines of their own."""
        found = []
        for child in self._agents:
            if not apart or child._lines is not self._lines:
                found.append(child)
            found += child._descendants(apart=apart)
        return found

    def _user(
        self, content: str | Blocks, extras: Record | None = None, parent: str | None = None
    ) -> Self:
        self._speaking = None
        body: Record = {"type": "user", "message": {"role": "user", "content": content}}
        if self._shape.prompt_ids and self._prompt_id:
            body = {"promptId": self._prompt_id, **body}
        self._put(body, extras, parent=parent or self.last)
        return self

    def _block(self, block: Mapping[str, object], message: str | None) -> str:
        """One block of the model's message, as a line of its own; gives its uuid."""
        name = message or self._speaking or self._ids.token("msg_01")
        if name not in self._messages:
            tokens = self._tokens()
            self._messages[name] = _Message([], self._cached, tokens - self._cached)
            self._cached = tokens
        self._speaking = name
        known = self._messages[name]
        body: Record = {
            "message": {
                "id": name,
                "type": "message",
                "role": "assistant",
                "model": self._shape.model,
                "content": [block],
                "stop_reason": None,
                "stop_sequence": None,
            },
            "requestId": f"req_011{name.removeprefix('msg_01')}",
            "type": "assistant",
        }
        if self._shape.blocks_numbered:
            body = {"apiBlockIndex": len(known.bodies), **body}
        known.bodies.append(self._put(body, parent=self.last))
        return self.last or ""

    def _synthetic(self, text: str) -> None:
        """Words the client puts into the model's mouth."""
        message = {
            "id": self._ids.uuid(),
            "model": "<synthetic>",
            "role": "assistant",
            "stop_reason": "stop_sequence",
            "stop_sequence": "",
            "type": "message",
            "usage": _usage(),
            "content": [{"type": "text", "text": text}],
        }
        self._put(
            {"type": "assistant", "message": message},
            {"isApiErrorMessage": False},
            parent=self.last,
        )

    def _attach(self, attachment: Record, parent: str | None) -> Self:
        kind = {"type": attachment.pop("type"), **attachment}
        self._put({"attachment": kind, "type": "attachment"}, parent=parent)
        return self

    def _beside(self, asked: _Asked | None, body: Body) -> Record:
        """What a result's line says besides the result."""
        extras: Record = {}
        companion = _companion(body)
        quiet = self._agent is not None and not self._shape.companions_aside and not body.is_error
        if companion is not None and not quiet:
            extras["toolUseResult"] = companion
        if self._shape.blocks_numbered and asked and asked.tool == "Bash" and not body.is_error:
            extras["sandboxed"] = False
        if self._shape.decisions and body.denial:
            extras["toolDenialKind"] = body.denial
        if asked and not self._shape.linear:
            extras["sourceToolAssistantUUID"] = asked.uuid
        if self._shape.blocks_numbered and not _refused(body):
            decision = _ACCEPTED if body.decision is None else body.decision
            extras |= {"permissionDecision": dict(decision)} if decision else {}
        return extras

    def _put(
        self,
        body: Record,
        extras: Record | None = None,
        *,
        parent: str | None,
        links: Record | None = None,
    ) -> Record:
        """One line of the conversation."""
        uuid = self._ids.uuid()
        head: Record = {
            "parentUuid": parent,
            **(links or {}),
            "isSidechain": self._agent is not None,
        }
        own: Record = {**body, "uuid": uuid, "timestamp": _stamp(self.now), **(extras or {})}
        if self._agent and self._agent.id:
            own = {"agentId": self._agent.id, **own}
        around = self._envelope()
        record = head | own | around if self._shape.envelope_last else head | around | own
        self._add(record)
        self._length += len(_encode(body))
        self.last = uuid
        return record

    def _envelope(self) -> Record:
        """Where and by what a line was written."""
        entrypoint = {"entrypoint": "sdk-cli"} if self._shape.envelope_last else {}
        return {
            "userType": "external",
            **entrypoint,
            "cwd": self.cwd,
            "sessionId": self.session_id,
            "version": self.version,
            "gitBranch": self._branch,
        }

    def _add(self, record: Record) -> Self:
        self._lines.append(_Line(record, self._agent.call if self._agent else None))
        return self

    def _tokens(self) -> int:
        """About how long the conversation is."""
        return _OVERHEAD + self._length // 4

    def _finish(self) -> None:
        """Stop reasons and token counts, which are known only when a message is whole."""
        for source in (self, *self._descendants(apart=False)):
            for message in source._messages.values():
                source._close(message)

    def _close(self, message: _Message) -> None:
        blocks = [_content(body) for body in message.bodies]
        asks = any(block.get("type") == "tool_use" for block in blocks)
        length = sum(len(_encode(block)) for block in blocks)
        final = _usage(read=message.read, new=message.new, output=length // 4 + 1, **message.usage)
        for n, body in enumerate(message.bodies):
            whole = self._shape.final_stop or n == len(blocks) - 1
            said = body["message"]
            if isinstance(said, dict):
                said["stop_reason"] = ("tool_use" if asks else "end_turn") if whole else None
                said["usage"] = final if whole else final | {"output_tokens": 1}


def _encode(record: object) -> bytes:
    return msgspec.json.encode(record)


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _usage(*, read: int = 0, new: int = 0, output: int = 0, **given: int) -> dict[str, object]:
    counts = {
        "input_tokens": 4 if output else 0,
        "cache_creation_input_tokens": new,
        "cache_read_input_tokens": read,
        "output_tokens": output,
    }
    return {**counts, **given, "service_tier": "standard"}


def _content(body: Record) -> Record:
    """The one block of an assistant line."""
    message = body["message"]
    content = message["content"] if isinstance(message, dict) else []
    block: Record = content[0]
    return block


def _companion(body: Body) -> object:
    """The structured companion; an error without one repeats its text."""
    if body.structured is None and body.is_error and isinstance(body.content, str):
        return f"Error: {body.content}"
    return body.structured


def _refused(body: Body) -> bool:
    """Refused before anybody asked for consent."""
    return isinstance(body.content, str) and body.content.startswith("<tool_use_error>")


def _hook_words(outcome: HookOutcome, command: str, text: str, took_ms: int) -> Record:
    """What an attachment says about how a hook ended."""
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
            timer = {"timedOut": True, "timeoutMs": took_ms}
            return {"type": "hook_cancelled", **ran, **timer}
        case "context":
            return {"type": "hook_additional_context", "content": [text]}
        case "message":
            return {"type": "hook_system_message", "content": text}
