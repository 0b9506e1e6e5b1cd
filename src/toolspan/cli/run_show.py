"""How a turn is shown without anybody watching: a text, an object, or a stream of lines.

In: what the model streams, what the runner emits, how the turn ended. Out: bytes on standard
output, whole lines at once; faults on the error output. `run_live.py` is for people.
"""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Protocol

import click
import msgspec

from toolspan.cli.app import CLOSED
from toolspan.cli.faults import Faults
from toolspan.cli.live_json import Row
from toolspan.cli.run_rows import end_line, init_line, reply_line, result_line, retry_line
from toolspan.llm.model import ModelEvent, Retrying
from toolspan.mcp import McpServers
from toolspan.model.live import Finished, LiveEvent, Relayed
from toolspan.model.span import Span
from toolspan.session import Ended, Session

UNWRITABLE = 3


class Show(Protocol):
    """Shows a session. Nothing in it may raise."""

    def begin(self, session: Session, servers: McpServers, *, model: str, mode: str) -> None:
        """The session is entered."""
        ...

    def heard(self, event: ModelEvent) -> None:
        """The model streams."""
        ...

    def take(self, event: LiveEvent) -> None:
        """The runner emits."""
        ...

    def end(self, ended: Ended) -> None:
        """A turn is over."""
        ...


class Out:
    """Standard output, where somebody may have gone away."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = descriptor
        self.on_broken: Callable[[int], None] = lambda _: None
        """Is told the exit code when nothing can be printed any more."""
        self._is_broken = False

    def write(self, data: bytes) -> None:
        """Print bytes; none after some that could not be printed."""
        if self._is_broken:
            return
        left = memoryview(data)
        out = sys.stdout.fileno() if self._descriptor is None else self._descriptor
        try:
            while left:
                left = left[os.write(out, left) :]
        except BrokenPipeError:
            self._is_broken = True
            self.on_broken(CLOSED)
        except OSError as error:
            self._is_broken = True
            click.echo(f"toolspan: the output cannot be written: {error.strerror}", err=True)
            self.on_broken(UNWRITABLE)


class TextShow:
    """The model's last words, and nothing else."""

    def __init__(self, out: Out) -> None:
        self.out = out
        self._faults = Faults()
        self._session: Session | None = None

    def begin(self, session: Session, servers: McpServers, *, model: str, mode: str) -> None:  # noqa: ARG002 - the protocol's
        """Nothing is shown yet."""
        self._session = session

    def heard(self, event: ModelEvent) -> None:
        """That it takes longer is told."""
        if isinstance(event, Retrying):
            wait = f"again in {event.wait_s:.1f} s ({event.attempt} of {event.of})"
            click.echo(f"toolspan: {event.failure.told()}; {wait}", err=True)

    def take(self, event: LiveEvent) -> None:
        """Faults are told."""
        self._faults.take(event)

    def end(self, ended: Ended) -> None:
        """The words; what went wrong is told apart."""
        if ended.text:
            self.out.write(ended.text.encode("utf-8", "replace") + b"\n")
        if ended.error is not None:
            click.echo(f"toolspan: {ended.error}", err=True)


class JsonShow(TextShow):
    """One object at the end."""

    def __init__(self, out: Out) -> None:
        super().__init__(out)
        self._denied: list[Span] = []

    def take(self, event: LiveEvent) -> None:
        """Refused calls are told at the end, also those that a summary has taken the place of."""
        super().take(event)
        if isinstance(event, Finished) and event.span.state == "denied":
            self._denied.append(event.span)

    def end(self, ended: Ended) -> None:
        """The object."""
        if self._session is not None:
            self.put(end_line(self._session, ended, self._denied))

    def put(self, row: Row) -> None:
        """Print a row."""
        self.out.write(msgspec.json.encode(row) + b"\n")


class StreamShow(JsonShow):
    """A line for everything that counts, as it comes."""

    def begin(self, session: Session, servers: McpServers, *, model: str, mode: str) -> None:
        """The first line: what the session is."""
        self._session = session
        session.on_block = self._block
        self.put(init_line(session, servers, model=model, mode=mode))

    def heard(self, event: ModelEvent) -> None:
        """A request that is made again."""
        if isinstance(event, Retrying) and self._session is not None:
            self.put(retry_line(self._session, event))

    def take(self, event: LiveEvent) -> None:
        """The result of a call."""
        super().take(event)
        if isinstance(event, Finished) and self._session is not None and not event.span.deferred:
            self.put(result_line(self._session, event))
        elif isinstance(event, Relayed) and isinstance(event.event, Finished) and self._session:
            below = {"parent_tool_use_id": event.call_id, "agent_id": event.agent_id}
            self.put({**result_line(self._session, event.event), **below})

    def _block(self, head: Mapping[str, object], block: Mapping[str, object]) -> None:
        if self._session is not None:
            self.put(reply_line(self._session, head, block))
