"""Claude Code transcripts made by hand, for tests.

In: what happened, told in order (`prompt`, `call`, `result`, …), and a client version. Out: the
lines that version would have written, in its own shape: one line per block, results in the order
they came, every line hanging on its parent. Ids come from a seeded counter and the clock moves only
when told, so the same story gives the same bytes. What tools give back is in `bodies.py`, the form
of lines in `ledger.py`, what versions do differently in `shape.py`. Read `TranscriptBuilder` first.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, Self

from toolspan.ids import CallId
from toolspan.llm.seeded import Ids
from toolspan.testing.bodies import CURRENT, REJECTED, SESSION_ENDED, STOP, Blocks, Body, Denial
from toolspan.testing.ledger import Agent, Ledger, Record, Where, encode
from toolspan.testing.shape import project_name
from toolspan.testing.stream import Spoken, stream_of

HookOutcome = Literal["success", "error", "blocked", "cancelled", "context", "message"]

_START = datetime(2026, 11, 2, 9, tzinfo=UTC)
_ACCEPTED = {
    "decision": "accept",
    "source": "config",
    "reasonType": "rule",
    "ruleSource": "projectSettings",
}


@dataclass(frozen=True)
class _Asked:
    """A call, and the line that asked for it."""

    tool: str
    uuid: str


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
        where = Where(
            session_id=session_id or Ids("transcript").uuid(),
            version=version,
            cwd=cwd,
            branch=git_branch,
        )
        self._begin(Ledger(where, start))

    def _begin(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._shape = ledger.shape
        self._asked: dict[str, _Asked] = {}
        self._open: dict[str, _Asked] = {}
        self._answered: dict[str, str | None] = {}
        self._turn = 0
        self._ticks = 0
        self._agents: list[TranscriptBuilder] = []
        self._sidecars: dict[str, bytes] = {}

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self._ledger.where.session_id

    @property
    def agent_id(self) -> str:
        """The id of the subagent whose transcript this is; empty for others."""
        agent = self._ledger.agent
        return (agent.id or "") if agent else ""

    @property
    def now(self) -> datetime:
        """What the clock says."""
        return self._ledger.now

    @property
    def last(self) -> str | None:
        """The uuid of the line written last, on which the next one hangs."""
        return self._ledger.last

    @property
    def speaking(self) -> bool:
        """The model is in the middle of a message: what it says next belongs to it."""
        return self._ledger.speaking is not None

    def uuid_of(self, call_id: str) -> str:
        """The uuid of the line that asked for a call."""
        return self._asked[call_id].uuid

    def wait(self, ms: int) -> Self:
        """Let time pass."""
        self._ledger.now += timedelta(milliseconds=ms)
        return self

    def until(self, other: "TranscriptBuilder") -> Self:
        """Let time pass until what another one, such as a subagent, last wrote."""
        self._ledger.now = max(self.now, other.now)
        return self

    def prompt(self, text: str, *, after_ms: int = 0) -> Self:
        """A person speaks; in a subagent, the call that started it does."""
        self.wait(after_ms)
        self._turn += 1
        self._ledger.prompt_id = self._ledger.ids.uuid()
        extras: Record = {}
        if self._shape.prompt_ids and not self._ledger.agent:
            extras["permissionMode"] = "default"
        if self._shape.blocks_numbered and not self._ledger.agent:
            extras |= {"promptSource": "sdk", "turnOrigin": "sdk"}
            extras["turnPosition"] = {"promptIndex": 0, "turnIndex": self._turn}
        self._ledger.user(text, extras)
        return self

    def text(self, text: str, *, message: str | None = None, after_ms: int = 0) -> Self:
        """The model speaks."""
        self.wait(after_ms)
        self._ledger.block({"type": "text", "text": text}, message)
        return self

    def thinking(self, text: str, *, message: str | None = None, after_ms: int = 0) -> Self:
        """The model thinks."""
        self.wait(after_ms)
        signature = self._ledger.ids.signature()
        block = {"type": "thinking", "thinking": text, "signature": signature}
        self._ledger.block(block, message)
        return self

    def usage(self, **tokens: int) -> Self:
        """Token counts of the message the model is in; what is not given is made up.

        Raises:
            ValueError: the model is not in the middle of a message.
        """
        self._ledger.count(tokens)
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
        """The model asks for a tool; gives the call's id.

        Calls with nothing but the model's words between them are one batch. After a result the
        model starts anew; name the same `message` to stay in the batch all the same.
        """
        self.wait(after_ms)
        call_id = CallId(id or self._ledger.ids.token("toolu_01"))
        block = {"type": "tool_use", "id": call_id, "name": tool, "input": dict(input)}
        asked = _Asked(tool, self._ledger.block(block, message))
        self._asked[call_id] = self._open[call_id] = asked
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
        if isinstance(content, Body):
            return self._answer(call_id, content, after_ms)
        body = Body(content=content, structured=structured, is_error=is_error, denial=denial)
        return self._answer(call_id, body, after_ms)

    def _answer(self, call_id: str, body: Body, after_ms: int) -> Self:
        self.wait(after_ms)
        self._open.pop(call_id, None)
        asked = self._asked.get(call_id)
        parent = self.last if asked is None or self._shape.linear else asked.uuid
        self._ledger.user([_result_block(call_id, body)], self._beside(asked, body), parent=parent)
        self._answered[call_id] = self.last
        return self

    def interrupt(self, *, after_ms: int = 0) -> Self:
        """The person stops the turn: open calls are rejected, then the client says so."""
        self.wait(after_ms)
        talking = self.speaking and not self._open
        rejection = Body(
            content=REJECTED + STOP,
            structured="User rejected tool use",
            is_error=True,
            denial="user-rejected",
            decision={},
        )
        for call_id in list(self._open):
            self.result(call_id, rejection)
        text = f"[Request interrupted by user{'' if talking else ' for tool use'}]"
        self._ledger.user([{"type": "text", "text": text}])
        return self

    def resume(self, *, after_ms: int = 0) -> Self:
        """The client starts again after it was killed; newer ones answer the calls left open."""
        self.wait(after_ms)
        left, self._open = list(self._open), {}
        if not left or not self._shape.decisions:
            return self
        ended = Body(
            content=SESSION_ENDED,
            structured=SESSION_ENDED,
            is_error=True,
            denial="interrupted",
            decision={},
        )
        for call_id in left:
            self.result(call_id, ended)
        self._ledger.synthetic("No response requested.")
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
        """A hook spoke of a call, at `PreToolUse` or `PostToolUse`."""
        asked = self._asked[call_id]
        name = f"{point}:{asked.tool}"
        if not self._shape.attachments:
            running = {"hookEvent": point, "hookName": name, "command": command}
            return self.progress(call_id, "hook_progress", **running)
        words = _hook_words(outcome, command, text, took_ms)
        about = {"hookName": name, "toolUseID": call_id, "hookEvent": point}
        return self._attach(
            {"type": words.pop("type"), **about, **words},
            parent=self._answered.get(call_id, asked.uuid),
        )

    def progress(self, call_id: str, kind: str, **data: object) -> Self:
        """A progress line, as clients around 2.1.80 wrote them."""
        self._ticks += 1
        ticker = f"{kind.removesuffix('_progress')}-progress-{self._ticks}"
        body: Record = {
            "type": "progress",
            "data": {"type": kind, **data},
            "toolUseID": call_id if kind == "hook_progress" else ticker,
            "parentToolUseID": call_id,
        }
        self._ledger.put(body, parent=self.last)
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
            return self._attach({"type": "queued_command", "prompt": text, **mode}, self.last)
        self._turn += 1
        self._ledger.prompt_id = self._ledger.ids.uuid()
        self._ledger.user(text, {"origin": origin, "promptSource": "system"})
        return self

    def compact(self, summary: str, *, trigger: Literal["auto", "manual"] = "auto") -> Self:
        """The conversation is replaced by a summary of itself."""
        metadata = {"trigger": trigger, "preTokens": self._ledger.tokens}
        boundary: Record = {
            "type": "system",
            "subtype": "compact_boundary",
            "content": "Conversation compacted",
            "isMeta": False,
        }
        self._ledger.put(
            boundary,
            {"level": "info", "compactMetadata": metadata},
            parent=None,
            links={"logicalParentUuid": self.last},
        )
        self._ledger.forget()
        self._ledger.user(summary, {"isVisibleInTranscriptOnly": True, "isCompactSummary": True})
        return self

    def rewind(self, to_uuid: str | None) -> Self:
        """Go back to a line: the next one hangs on it, and what came after it is abandoned."""
        self._ledger.last = to_uuid
        self._ledger.speaking = None
        self._open.clear()
        return self

    def title(self, text: str, *, custom: bool = False) -> Self:
        """A title for the session, made by the model or, if `custom`, by a person."""
        if not self._shape.attachments:
            return self.raw(encode({"type": "summary", "summary": text, "leafUuid": self.last}))
        if custom:
            return self.state("custom-title", customTitle=text)
        return self.state("ai-title", aiTitle=text)

    def state(self, kind: str, **fields: object) -> Self:
        """A line about the session itself, outside the conversation: `mode`, `last-prompt`, …"""
        self._ledger.add({"type": kind, **fields, "sessionId": self.session_id})
        return self

    def raw(self, line: bytes) -> Self:
        """A line as it is, without its newline."""
        self._ledger.add(line)
        return self

    def glue(self) -> Self:
        """Lose the newline after the last line, so that the next one stands on the same line."""
        self._ledger.lines[-1].end = b""
        return self

    def tear(self, kept: int, *, ended: bool = False) -> Self:
        """Keep only the first bytes of the last line; a newline follows only if `ended`."""
        self._ledger.lines[-1].kept = kept
        self._ledger.lines[-1].end = b"\n" if ended else b""
        return self

    def agent(
        self, call_id: str, *, kind: str = "general-purpose", description: str = ""
    ) -> "TranscriptBuilder":
        """The transcript of the subagent that a call started; begin it with `prompt`.

        It has its own clock, which starts now. By version its lines come into this file, into a
        file beside it, or into the session's folder.
        """
        ids = Ids(call_id)
        name = {"nested": f"a{ids.hex(16)}", "beside": ids.hex(8), "inline": None}
        agent = Agent(id=name[self._shape.layout], call=call_id, kind=kind, description=description)
        child = TranscriptBuilder()
        child._begin(Ledger(self._ledger.where, self.now, agent))
        if agent.id is None:
            child._ledger.lines = self._ledger.lines
        self._agents.append(child)
        return child

    def fork(self, session_id: str) -> "TranscriptBuilder":
        """Another session that begins with a copy of this one: same uuids, its own id."""
        self._finish()
        twin = TranscriptBuilder()
        twin._begin(Ledger(replace(self._ledger.where, session_id=session_id), self.now))
        twin._ledger.resemble(self._ledger)
        twin._ledger.lines = copy.deepcopy(self._ledger.lines)
        for line in twin._ledger.lines:
            if isinstance(line.record, dict):
                line.record["sessionId"] = session_id
        twin._asked, twin._open, twin._turn = dict(self._asked), dict(self._open), self._turn
        return twin

    def task_output(self, task: str) -> str:
        """Where the client puts the output of a background task."""
        project = project_name(self._ledger.where.cwd)
        return f"/tmp/claude-1000/{project}/{self.session_id}/tasks/{task}.output"

    def sidecar(self, name: str, data: bytes) -> str:
        """Keep a file such as `tool-results/x.txt` beside the session; gives its path there."""
        self._sidecars[name] = data
        cwd = self._ledger.where.cwd
        home = "/".join(cwd.split("/")[:3])
        return f"{home}/.claude/projects/{project_name(cwd)}/{self.session_id}/{name}"

    def data(self) -> bytes:
        """The whole file."""
        self._finish()
        return b"".join(line.data() for line in self._ledger.lines)

    def lines(self) -> list[bytes]:
        """The lines of the file, without their newlines."""
        return self.data().removesuffix(b"\n").split(b"\n")

    def stream_lines(self) -> list[bytes]:
        """The same story as lines of `--output-format stream-json`."""
        self._finish()
        spoken = [
            Spoken(line.record, line.agent_call)
            for builder in (self, *self._apart())
            for line in builder._ledger.lines
            if isinstance(line.record, dict)
        ]
        return [encode(line) for line in stream_of(spoken, self.session_id, self._shape.model)]

    def files(self, stem: str | None = None) -> dict[str, bytes]:
        """All files of the session by name, relative to the project's folder."""
        folder = stem or self.session_id
        found = {f"{folder}.jsonl": self.data()}
        for child in self._apart():
            found |= child._agent_files(folder)
        return found | {f"{folder}/{name}": data for name, data in self._sidecars.items()}

    def write(self, path: Path) -> Path:
        """Write the session to `path`, its subagents and sidecars where they belong around it."""
        for name, data in self.files(path.stem).items():
            target = path.parent / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        return path

    def _agent_files(self, folder: str) -> dict[str, bytes]:
        agent = self._ledger.agent
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
            f"{folder}/subagents/{name}.meta.json": encode(meta),
        }

    def _family(self) -> "list[TranscriptBuilder]":
        """The subagents, and theirs."""
        return [each for child in self._agents for each in (child, *child._family())]

    def _apart(self) -> "list[TranscriptBuilder]":
        """The subagents that have a file of their own."""
        return [child for child in self._family() if child.agent_id]

    def _finish(self) -> None:
        for builder in (self, *self._family()):
            builder._ledger.finish()

    def _attach(self, attachment: Record, parent: str | None) -> Self:
        self._ledger.put({"attachment": attachment, "type": "attachment"}, parent=parent)
        return self

    def _beside(self, asked: _Asked | None, body: Body) -> Record:
        """What a result's line says besides the result."""
        shape = self._shape
        extras: Record = {}
        companion = _companion(body)
        aside = self._ledger.agent is not None and not shape.companions_aside
        if companion is not None and (body.is_error or not aside):
            extras["toolUseResult"] = companion
        if shape.decisions and body.denial:
            extras["toolDenialKind"] = body.denial
        if asked and not shape.linear:
            extras["sourceToolAssistantUUID"] = asked.uuid
        decision = _ACCEPTED if body.decision is None else body.decision
        if shape.blocks_numbered and decision and not _refused(body):
            extras["permissionDecision"] = dict(decision)
        return extras


def _result_block(call_id: str, body: Body) -> Record:
    """The block of a result; the order of its keys tells whether something threw."""
    if body.is_error:
        block: Record = {"type": "tool_result", "content": body.content, "is_error": True}
        return {**block, "tool_use_id": call_id}
    block = {"tool_use_id": call_id, "type": "tool_result", "content": body.content}
    return block if body.is_error is None else {**block, "is_error": False}


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
            return {"type": "hook_cancelled", **ran, "timedOut": True, "timeoutMs": took_ms}
        case "context":
            return {"type": "hook_additional_context", "content": [text]}
        case "message":
            return {"type": "hook_system_message", "content": text}
