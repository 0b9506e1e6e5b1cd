"""How a turn is shown without anybody watching: a text, an object, or a stream of lines.

In: what the model streams, what the runner emits, how the turn ended. Out: bytes on standard
output, whole lines at once; faults on the error output. `live.py` is for people.
"""

from collections.abc import Mapping
from typing import Protocol

from toolspan.cli.host.faults import Faults
from toolspan.cli.host.out import Out
from toolspan.cli.output import complain
from toolspan.cli.run.rows import end_line, init_line, reply_line, result_line, retry_line
from toolspan.llm.model import ModelEvent, Retrying
from toolspan.mcp import McpServers
from toolspan.model.live import Finished, LiveEvent, Relayed
from toolspan.model.span import Span
from toolspan.session import Ended, Session


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
            complain(f"{event.failure.told()}; {wait}")

    def take(self, event: LiveEvent) -> None:
        """Faults are told."""
        self._faults.take(event)

    def end(self, ended: Ended) -> None:
        """The words; what went wrong is told apart."""
        if ended.text:
            self.out.write(ended.text.encode("utf-8", "replace") + b"\n")
        if ended.error is not None:
            complain(ended.error)

    def over(self) -> None:
        """The session is left."""
        self._faults.end()


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
            self.out.put(end_line(self._session, ended, self._denied))


class StreamShow(JsonShow):
    """A line for everything that counts, as it comes."""

    def begin(self, session: Session, servers: McpServers, *, model: str, mode: str) -> None:
        """The first line: what the session is."""
        self._session = session
        session.on_block = self._block
        self.out.put(init_line(session, servers, model=model, mode=mode))

    def heard(self, event: ModelEvent) -> None:
        """A request that is made again."""
        if isinstance(event, Retrying) and self._session is not None:
            self.out.put(retry_line(self._session, event))

    def take(self, event: LiveEvent) -> None:
        """The result of a call."""
        super().take(event)
        if isinstance(event, Finished) and self._session is not None and not event.span.deferred:
            self.out.put(result_line(self._session, event))
        elif isinstance(event, Relayed) and isinstance(event.event, Finished) and self._session:
            below = {"parent_tool_use_id": event.call_id, "agent_id": event.agent_id}
            self.out.put({**result_line(self._session, event.event), **below})

    def _block(self, head: Mapping[str, object], block: Mapping[str, object]) -> None:
        if self._session is not None:
            self.out.put(reply_line(self._session, head, block))
