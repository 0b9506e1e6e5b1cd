"""`toolspan exec`: a runner over a pipe. Assistant messages in, results out, JSON lines."""

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator

import anyio
import click
import msgspec

from toolspan.cli.host import HostWishes, Story, host_options, open_host, open_terminal
from toolspan.cli.host.faults import Faults
from toolspan.cli.host.out import Out
from toolspan.cli.host.rows import Row, event_row, init_row, result_row
from toolspan.cli.host.stop import Stop, watch_signals
from toolspan.errors import ToolspanError
from toolspan.mcp.halves import without_halves
from toolspan.model.live import Duplicate, Finished, LiveEvent
from toolspan.process import become_subreaper
from toolspan.process.feed import feed
from toolspan.session import Session

_PIECE = 1 << 16


@click.command("exec")
@click.option("--model", help="The model's name; some behaviour hangs on it.")
@host_options
@click.option("--events", is_flag=True, help="Also print what happens on the way.")
@click.option(
    "--json", is_flag=True, expose_value=False, help="As always here: the output is JSON lines."
)
@click.pass_context
def command(ctx: click.Context, /, **_: object) -> None:
    """Run tool calls from standard input, a message per line, and print their results.

    A line is {"type":"assistant","message":{"content":[{"type":"tool_use",...}]}}; every call in
    it gets one line {"type":"result","tool_use_id":...}. A line that cannot be read gets an error
    line. At the end of the input everything is finished, background work is ended, and the command
    ends. Ctrl-C ends the running calls, prints their results, and exits with 130.

    Further lines, for the sake of hooks: {"type":"user","message":{"content":"..."}} is a prompt
    and gets {"type":"prompt","accepted":...}; {"type":"run_deferred"} comes back to a call that was
    put off. A turn that hooks end gets {"type":"stopped"}, one they want to go on
    {"type":"feedback"} with the words for the model. What the model is to read beside all results
    of a message (words of hooks, news of the background) comes after them as {"type":"notice"}.
    """
    become_subreaper()
    wishes = msgspec.convert(ctx.params, _Wishes)
    ctx.exit(anyio.run(_main, wishes, msgspec.convert(ctx.params, HostWishes)))


class _Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for, beside the session's surroundings."""

    model: str | None
    events: bool


async def _main(wishes: _Wishes, around: HostWishes) -> int:
    if around.ask and sys.stdin is not None and sys.stdin.isatty():
        raise ToolspanError("--ask needs the terminal for answers: messages come from a pipe then")
    printer = Printer(events=wishes.events)
    with open_terminal(wanted=around.ask) as terminal:
        async with open_host(around, model=wishes.model, terminal=terminal) as host:
            story = Story(transcript=around.place)
            session = host.session(story, model=wishes.model, direct=[printer.take])
            try:
                return await _serve(session, printer)
            finally:
                printer.end()


async def _serve(session: Session, printer: "Printer") -> int:
    stop = Stop(session)
    printer.on_broken = stop.with_code
    async with session, anyio.create_task_group() as group:
        printer.begin(session)
        await group.start(watch_signals, stop.on_signal, group.cancel_scope)
        async for number, line in _lines(None if sys.stdin is None else sys.stdin.fileno()):
            await turn(number, line, session, printer)
            if stop.code is not None:
                break
        group.cancel_scope.cancel()
    return stop.code or 0


class Printer(Out):
    """Prints what happens in a session, a row a line."""

    def __init__(self, *, events: bool) -> None:
        super().__init__("toolspan exec")
        self._events = events
        self._faults = Faults("toolspan exec")

    def begin(self, session: Session) -> None:
        """With the events, first of all what the session is and which tools it has."""
        if self._events:
            self.put(init_row(session))

    def end(self) -> None:
        """Nothing more will come."""
        self._faults.end()

    def take(self, event: LiveEvent) -> None:
        """An event of the runner: results always, the rest when asked for, faults on stderr."""
        if self._events:
            self.put(event_row(event))
        match event:
            case Finished():
                self.put(result_row(event))
            case Duplicate():
                message = f"call {event.call_id} was there before and is not run again"
                self.put({"type": "error", "tool_use_id": event.call_id, "message": message})
            case _:
                self._faults.take(event)


async def turn(number: int, line: bytes, session: Session, printer: Printer) -> None:
    """One line of the input: run its calls, or say what is wrong with it."""
    if not line.strip():
        return
    try:
        await _take(_decode(line), session, printer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        printer.put({"type": "error", "line": number, "message": f"not a JSON object: {error}"})
    except (ToolspanError, ValueError) as error:
        printer.put({"type": "error", "line": number, "message": str(error)})


def _decode(line: bytes) -> dict[str, object]:
    """The object of a line; what strict readers refuse in it is mended, for calls want an answer.

    Raises:
        MsgspecError, UnicodeDecodeError, RecursionError: it is none, also to a lenient reader.
    """
    try:
        return msgspec.json.decode(line, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        found = _mended(line)
        if found is None:
            raise
        return found


def _mended(line: bytes) -> dict[str, object] | None:
    try:
        found: object = json.loads(without_halves(line)[1])
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


async def _take(message: dict[str, object], session: Session, printer: Printer) -> None:
    match message:
        case {"type": "user", "message": {"content": str() | list() as content}}:
            accepted = await session.submit(content)
            row: Row = {"type": "prompt", "accepted": accepted}
            row["content"] = session.since(-1)[0]["content"] if accepted else []
            printer.put(row)
        case {"type": "run_deferred"}:
            await session.run_deferred()
        case _:
            await session.run(message)
            if session.notes:
                texts = [block["text"] for block in session.notes]
                printer.put({"type": "notice", "content": texts})
    if session.feedback:
        printer.put({"type": "feedback", "content": list(session.feedback)})
    if session.stopped is not None:
        printer.put({"type": "stopped", "reason": session.stopped})


async def _lines(source: int | None) -> AsyncIterator[tuple[int, bytes]]:
    """The lines of the input, until its end; none when there is no input."""
    if source is None:
        return
    number = 0
    async with feed(_split(source)) as lines:
        async for line in lines:
            number += 1
            yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line


def _split(source: int) -> Iterator[bytes]:
    """The lines of a descriptor; without a buffer object, whose lock a daemon would take along."""
    rest: list[bytes] = []
    while data := os.read(source, _PIECE):
        *whole, last = data.split(b"\n")
        for line in whole:
            yield b"".join((*rest, line))
            rest = []
        rest.append(last)
    if any(rest):
        yield b"".join(rest)
