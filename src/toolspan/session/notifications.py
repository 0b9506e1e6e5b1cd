"""What comes while nobody speaks: words of others, work in the background, hooks that run on.

In: letters, the tasks of a session, a way to wait for its hooks. Out: texts for the model, each
once, and waits for the next ones. What becomes of them is the session's business.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TextIO

import anyio

from toolspan.runtime.background import AgentTask, BackgroundTasks, format_notification
from toolspan.runtime.pending_call import call_block
from toolspan.runtime.profiles import Profile
from toolspan.session.recording import Recorder
from toolspan.session.reply import wait_first
from toolspan.types.events import Finished, HookRan, LiveEvent, Requested, Started
from toolspan.types.ids import CallId
from toolspan.types.span import Call
from toolspan.types.state import STATE_SYMBOLS

WaitForHooks = Callable[[], Awaitable[Iterable[str]]]
"""Waits for hooks that run on; what they want the model to know, nothing when none is left."""


class NotificationQueue:
    """What the model has not heard yet."""

    def __init__(self, tasks: BackgroundTasks, profile: Profile, wait_for_hooks: WaitForHooks) -> None:
        self.pending: deque[str] = deque()
        """What somebody has said to the model meanwhile; it reads it with the next results."""
        self._tasks = tasks
        self._profile = profile
        self._wait_for_hooks = wait_for_hooks

    def take_texts(self) -> list[str]:
        """What came meanwhile: words of others, and work in the background that has ended."""
        if not self.pending and not self._tasks:
            return []
        texts = list(self.pending)
        self.pending.clear()
        if self._tasks and self._profile.tasks.notifies:
            texts += [format_notification(task, self._profile) for task in self._tasks.take_finished()]
        return texts

    async def collect_hook_texts(self) -> bool:
        """Wait for hooks that run on; whether there is something to say."""
        self.pending.extend(await self._wait_for_hooks())
        return bool(self.pending)

    @property
    def has_running_agents(self) -> bool:
        """Whether agents in the background will have something to tell."""
        is_running = any(isinstance(task, AgentTask) for task in self._tasks.running)
        return is_running and self._profile.tasks.notifies

    async def wait_for_next(self) -> None:
        """Wait until work in the background has ended, or a hook has something to say."""
        await wait_first(self._tasks.wait_any, self._wait_for_hook_texts)

    async def _wait_for_hook_texts(self) -> None:
        if not await self.collect_hook_texts():
            await anyio.sleep_forever()


_MAX_TARGET_LENGTH = 80
"""Characters of what a call is about."""


class CallLines:
    """Prints a line for each call that starts, and one for each that ends."""

    def __init__(self, out: TextIO | None = None) -> None:
        """Print to `out`, or to what is the standard output then."""
        self._out = out
        self._calls: dict[CallId, Call] = {}

    def __call__(self, event: LiveEvent) -> None:
        """Take an event."""
        match event:
            case Requested():
                self._calls[event.call.id] = event.call
            case Started() if event.call_id in self._calls:
                self._print_line(f"▸ {_describe_call(self._calls[event.call_id])}")
            case Finished():
                self._calls.pop(event.call_id, None)
                state = event.span.state
                summary = f"{STATE_SYMBOLS[state]} {_describe_call(event.span.call)}"
                state_suffix = "" if state == "succeeded" else f"  {state}"
                self._print_line(f"{summary}  {_format_duration(event.duration_ms)}{state_suffix}")
            case _:
                pass

    def _print_line(self, line: str) -> None:
        out = self._out or sys.stdout
        out.write(f"{line}\n")
        out.flush()


def _describe_call(call: Call) -> str:
    return f"{_sanitize_line(call.tool)}  {_sanitize_line(call.target or '')}".rstrip()


def _sanitize_line(text: str) -> str:
    """One line, without anything that a terminal would obey."""
    line = "".join(c if c.isprintable() else "�" for c in " ".join(text[: _MAX_TARGET_LENGTH * 4].split()))
    return line if len(line) <= _MAX_TARGET_LENGTH else f"{line[: _MAX_TARGET_LENGTH - 1]}…"


def _format_duration(ms: float) -> str:
    return f"{ms:.0f} ms" if ms < 1_000 else f"{ms / 1_000:.1f} s"


class EventRecorder:
    """Writes results and hooks down as they come, and where the session is by then."""

    def __init__(self, recorder: Recorder, cwd: Path) -> None:
        self._recorder = recorder
        self._cwd = str(cwd)

    def record_event(self, event: LiveEvent, reply: Mapping[str, object]) -> None:
        """Write an event down, if it is one to be; `reply` is the one whose calls are run."""
        match event:
            case Finished():
                if event.cwd != self._cwd and event.cwd is not None:
                    self._recorder.set_cwd(Path(event.cwd))
                    self._cwd = event.cwd
                self._recorder.record_result(event)
            case HookRan():
                self._recorder.record_hook(event)
            case Requested() if event.recovers is not None:
                self._recorder.record_reply_block(reply, call_block(event.call), last=False)
            case _:
                pass
