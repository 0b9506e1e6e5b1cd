"""Build Codex rollouts for tests.

`RolloutBuilder` writes the lines that a client of a given age would have written. Ids and times are
seeded, so the same steps produce the same bytes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, Self

from toolspan.session.models.scripted import SeededIds
from toolspan.types.ids import CallId

RolloutAge = Literal["bare", "enveloped", "paginated"]
"""The client's age: items without envelopes (mid 2025), envelopes with events beside the items (until 2026),
or numbered lines with one completed item for several events.
"""

_ROLLOUT_START = datetime(2026, 11, 2, 9, tzinfo=UTC)
_VERSIONS: dict[RolloutAge, str] = {"bare": "", "enveloped": "0.98.0", "paginated": "0.166.0"}
_FREE_TEXT = frozenset({"apply_patch", "exec"})
"""Tools whose input is plain text, not JSON."""

RolloutFields = dict[str, object]


class RolloutBuilder:
    """A builder for Codex rollouts.

    Methods return the builder, except `call`, which returns the call id that `output` needs.
    `after_ms` is the time that passes before the record is written.
    """

    def __init__(
        self,
        *,
        thread_id: str | None = None,
        age: RolloutAge = "enveloped",
        cwd: str = "/home/dev/project",
        start: datetime = _ROLLOUT_START,
        meta: Mapping[str, object] | None = None,
    ) -> None:
        self.age = age
        self.now = start
        self._ids = SeededIds(thread_id or "rollout")
        self.thread_id = thread_id or self._new_thread_id()
        self._cwd = cwd
        self._lines: list[bytes] = []
        self._turn_id: str | None = None
        self._token_totals = [0, 0, 0]
        if age == "bare":
            self._add_record({"id": self.thread_id, "timestamp": self._timestamp(), "instructions": None})
            return
        fields: RolloutFields = {
            "id": self.thread_id,
            "timestamp": self._timestamp(),
            "cwd": cwd,
            "originator": "codex_exec",
            "cli_version": _VERSIONS[age],
            "source": "exec",
            "model_provider": "example",
        }
        self.line("session_meta", {**fields, **(meta or {})})

    def _new_thread_id(self) -> str:
        """Return a version 7 UUID, which begins with the time."""
        milliseconds = int(self.now.timestamp() * 1000)
        random = uuid.UUID(self._ids.next_uuid()).int & ((1 << 74) - 1)
        number = milliseconds << 80 | 7 << 76 | (random >> 62) << 64 | 2 << 62 | random & ((1 << 62) - 1)
        return str(uuid.UUID(int=number))

    def wait(self, ms: int) -> Self:
        """Advance the clock."""
        self.now += timedelta(milliseconds=ms)
        return self

    def prompt(self, text: str, *, after_ms: int = 0) -> Self:
        """Add the user's prompt, which starts a turn."""
        self.wait(after_ms)
        if self.age != "bare":
            self._turn_id = self._new_thread_id()
            if self.age == "paginated":
                self.event("task_started", turn_id=self._turn_id)
            context = {"cwd": self._cwd, "approval_policy": "never", "model": "example-model"}
            self.line("turn_context", {"turn_id": self._turn_id, **context})
        self.injected(text)
        if self.age == "enveloped":
            self.event("user_message", message=text)
        elif self.age == "paginated":
            text_items = [{"type": "text", "text": text}]
            self.completed("UserMessage", self._ids.next_uuid(), content=text_items)
        return self

    def injected(self, text: str) -> Self:
        """Add a message that the client sends as the user."""
        content = [{"type": "input_text", "text": text}]
        return self.item({"type": "message", "role": "user", "content": content})

    def text(self, text: str, *, after_ms: int = 0) -> Self:
        """Add text from the model."""
        self.wait(after_ms)
        if self.age == "enveloped":
            self.event("agent_message", message=text)
        content = [{"type": "output_text", "text": text}]
        self.item({"type": "message", "role": "assistant", "content": content})
        if self.age == "paginated":
            text_items = [{"type": "Text", "text": text}]
            self.completed("AgentMessage", self._ids.next_uuid(), content=text_items)
        return self

    def thinking(self, text: str, *, after_ms: int = 0) -> Self:
        """Add thinking from the model."""
        self.wait(after_ms)
        if self.age == "enveloped":
            self.event("agent_reasoning", text=text)
        summary = [{"type": "summary_text", "text": text}]
        return self.item({"type": "reasoning", "summary": summary, "encrypted_content": "AAAA"})

    def call(
        self,
        tool: str,
        arguments: Mapping[str, object] | str,
        *,
        id: str | None = None,
        namespace: str | None = None,
        after_ms: int = 0,
    ) -> CallId:
        """Add a call and return its id; pass a string to use invalid JSON."""
        self.wait(after_ms)
        call_id = CallId(id or self._ids.next_token("call_", 24))
        if tool in _FREE_TEXT and isinstance(arguments, str):
            item: RolloutFields = {"type": "custom_tool_call", "status": "completed", "call_id": call_id}
            self.item({**item, "name": tool, "input": arguments})
            return call_id
        arguments_text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        space = {"namespace": namespace} if namespace else {}
        self.item({"type": "function_call", "name": tool, "arguments": arguments_text, "call_id": call_id, **space})
        return call_id

    def output(
        self, call_id: str, content: str | Sequence[Mapping[str, object]], *, custom: bool = False, after_ms: int = 0
    ) -> Self:
        """Add the output of a call."""
        self.wait(after_ms)
        kind = "custom_tool_call_output" if custom else "function_call_output"
        return self.item({"type": kind, "call_id": call_id, "output": content})

    def completed(self, kind: str, item_id: str, **fields: object) -> Self:
        """Add an event for a completed item: a command, a patch or an MCP call."""
        item = {"type": kind, "id": item_id, **fields}
        return self.event("item_completed", thread_id=self.thread_id, turn_id=self._turn_id, item=item)

    def abort(self, reason: str = "interrupted", *, after_ms: int = 0) -> Self:
        """End the turn early."""
        self.wait(after_ms)
        if self.age == "bare":
            return self
        self.injected("<turn_aborted>\nThe turn was aborted.\n</turn_aborted>")
        return self.event("turn_aborted", turn_id=self._turn_id, reason=reason)

    def tokens(self, input_tokens: int, output_tokens: int, *, cached: int = 0) -> Self:
        """Add a model request with these token counts."""
        for n, count in enumerate((input_tokens, cached, output_tokens)):
            self._token_totals[n] += count
        names = ("input_tokens", "cached_input_tokens", "output_tokens")
        usage = dict(zip(names, self._token_totals, strict=True))
        return self.event("token_count", info={"total_token_usage": usage}, rate_limits=None)

    def compact(self, summary: str) -> Self:
        """Replace the conversation with a summary."""
        replacement = [{"type": "message", "role": "user", "content": []}]
        return self.line("compacted", {"message": summary, "replacement_history": replacement})

    def roll_back(self, turns: int) -> Self:
        """Remove the last turns."""
        return self.event("thread_rolled_back", num_turns=turns)

    def fork(self, thread_id: str | None = None, *, agent: str | None = None, after_ms: int = 1) -> RolloutBuilder:
        """Return a thread that starts with a copy of this one, for a subagent if `agent` is set."""
        self.wait(after_ms)
        meta: RolloutFields = {"forked_from_id": self.thread_id}
        if agent is not None:
            spawn = {"parent_thread_id": self.thread_id, "depth": 1, "agent_nickname": agent}
            meta |= {"agent_nickname": agent, "source": {"subagent": {"thread_spawn": spawn}}}
        other = RolloutBuilder(
            thread_id=thread_id or self._new_thread_id(), age=self.age, cwd=self._cwd, start=self.now,
            meta=meta,
        )  # fmt: skip
        other._lines += self._lines
        other._token_totals = list(self._token_totals)
        return other

    def item(self, payload: RolloutFields) -> Self:
        """Add an item."""
        if self.age == "bare":
            self._add_record(payload)
            return self
        return self.line("response_item", payload)

    def event(self, kind: str, **fields: object) -> Self:
        """Add an event; the oldest clients wrote none."""
        return self if self.age == "bare" else self.line("event_msg", {"type": kind, **fields})

    def line(self, kind: str, payload: Mapping[str, object]) -> Self:
        """Add a line of any type in its envelope."""
        number = {"ordinal": len(self._lines)} if self.age == "paginated" else {}
        self._add_record({"timestamp": self._timestamp(), **number, "type": kind, "payload": payload})
        return self

    def raw(self, line: bytes) -> Self:
        """Add raw bytes as a line."""
        self._lines.append(line)
        return self

    def _add_record(self, record: Mapping[str, object]) -> None:
        self._lines.append(json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode())

    def _timestamp(self) -> str:
        return self.now.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    @property
    def lines(self) -> list[bytes]:
        """Return the lines without newlines."""
        return list(self._lines)

    def data(self) -> bytes:
        """Return the whole file."""
        return b"".join(line + b"\n" for line in self._lines)

    @property
    def name(self) -> str:
        """The file name that Codex would use."""
        return f"rollout-{self.now:%Y-%m-%dT%H-%M-%S}-{self.thread_id}.jsonl"

    def write(self, home: Path) -> Path:
        """Write the file below Codex's home folder and return its path."""
        path = home / "sessions" / f"{self.now:%Y/%m/%d}" / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.data())
        return path


def command_output(output: str = "", *, code: int = 0, seconds: float = 0.1) -> str:
    """Return the output of a finished command in the format of `exec_command`."""
    return (
        f"Chunk ID: 0a1b2c\nWall time: {seconds:.4f} seconds\nProcess exited with code {code}\n"
        f"Original token count: {len(output) // 4}\nOutput:\n{output}"
    )


def running_output(process: int, output: str = "", *, seconds: float = 10.0) -> str:
    """Return the output of a command that is still running."""
    return (
        f"Chunk ID: 0a1b2c\nWall time: {seconds:.4f} seconds\n"
        f"Process running with session ID {process}\nOriginal token count: 0\nOutput:\n{output}"
    )


def headed_output(output: str = "", *, code: int = 0, seconds: float = 0.1) -> str:
    """Return the output of a finished command in the format of `shell_command` and patches."""
    return f"Exit code: {code}\nWall time: {seconds:g} seconds\nOutput:\n{output}"


def json_output(output: str = "", *, code: int = 0, seconds: float = 0.1) -> str:
    """Return the output of a finished command in the format of `shell`."""
    facts = {"exit_code": code, "duration_seconds": seconds}
    return json.dumps({"output": output, "metadata": facts})


def timed_out_output(milliseconds: int, *, wrap: bool = True) -> str:
    """Return the output of a command that timed out."""
    message = f"command timed out after {milliseconds} milliseconds\n"
    seconds = milliseconds / 1000
    return (
        json_output(message, code=124, seconds=seconds) if wrap else headed_output(message, code=124, seconds=seconds)
    )


def aborted_output(seconds: float = 0.8) -> str:
    """Return the output of a command that the user aborted."""
    return f"Wall time: {seconds:g} seconds\naborted by user"


def rejected_output() -> str:
    """Return the output for a call that the user rejected."""
    return "exec command rejected by user"


def blocked_output(reason: str, command: str) -> str:
    """Return the output for a call that a hook denied."""
    return f"Command blocked by PreToolUse hook: {reason}. Command: {command}"


def unknown_tool_output(tool: str) -> str:
    """Return the error for an unknown tool."""
    return f"unsupported call: {tool}"


def bad_arguments_output(reason: str = "missing field `cmd` at line 1 column 2") -> str:
    """Return the error for invalid arguments."""
    return f"failed to parse function arguments: {reason}"


def patch_mismatch_output(path: str, lines: str) -> str:
    """Return the error for a patch whose old lines are not in the file."""
    return f"apply_patch verification failed: Failed to find expected lines in {path}:\n{lines}"


def patched_output(*changes: str) -> str:
    """Return the output of an applied patch; each change has the form `M src/main.py`."""
    listing = "".join(f"{change}\n" for change in changes)
    return headed_output(f"Success. Updated the following files:\n{listing}")


def mcp_output(*texts: str, seconds: float = 0.01) -> list[dict[str, object]]:
    """Return the output of an MCP tool."""
    head = f"Wall time: {seconds:.4f} seconds\nOutput:"
    return [{"type": "input_text", "text": text} for text in (head, *texts)]
