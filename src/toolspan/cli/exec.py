"""`toolspan exec`: a runner over a pipe. Assistant messages in, results out, JSON lines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator

import anyio
import click
import msgspec

from toolspan.cli.host import HostOptions, SessionSource, host_options, open_host, open_terminal
from toolspan.cli.host.host import EarlyExit, FaultReporter, StandardOutput, watch_signals
from toolspan.cli.host.json_rows import JsonRow, event_row, init_row, result_row
from toolspan.errors import ToolspanError
from toolspan.integrations.mcp_client.protocol import replace_lone_surrogates
from toolspan.runtime.process import become_subreaper
from toolspan.runtime.process.output import stream_from_thread
from toolspan.session import Session
from toolspan.types.events import Duplicate, Finished, LiveEvent

_READ_SIZE = 1 << 16


@click.command("exec")
@click.option("--model", help="The model's name; some behaviour hangs on it.")
@host_options
@click.option("--events", is_flag=True, help="Also print what happens on the way.")
@click.option("--json", is_flag=True, expose_value=False, help="As always here: the output is JSON lines.")
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
    options = msgspec.convert(ctx.params, _ExecOptions)
    ctx.exit(anyio.run(_run_exec, options, msgspec.convert(ctx.params, HostOptions)))


class _ExecOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for, beside the session's surroundings."""

    model: str | None
    events: bool


async def _run_exec(options: _ExecOptions, session_options: HostOptions) -> int:
    if session_options.ask and sys.stdin is not None and sys.stdin.isatty():
        raise ToolspanError("--ask needs the terminal for answers: messages come from a pipe then")
    printer = EventPrinter(events=options.events)
    with open_terminal(enabled=session_options.ask) as terminal:
        async with open_host(session_options, model=options.model, terminal=terminal) as host:
            source = SessionSource(transcript=session_options.transcript_target)
            session = host.make_session(source, model=options.model, direct=[printer.on_event])
            try:
                return await _serve_lines(session, printer)
            finally:
                printer.close()


async def _serve_lines(session: Session, printer: EventPrinter) -> int:
    stop = EarlyExit(session)
    printer.on_broken = stop.request_exit
    async with session, anyio.create_task_group() as group:
        printer.on_session_start(session)
        await group.start(watch_signals, stop.on_signal, group.cancel_scope)
        async for number, line in _input_lines(None if sys.stdin is None else sys.stdin.fileno()):
            await handle_line(number, line, session, printer)
            if stop.exit_code is not None:
                break
        group.cancel_scope.cancel()
    return stop.exit_code or 0


class EventPrinter(StandardOutput):
    """Prints what happens in a session, a row a line."""

    def __init__(self, *, events: bool) -> None:
        super().__init__("toolspan exec")
        self._include_events = events
        self._fault_reporter = FaultReporter("toolspan exec")

    def on_session_start(self, session: Session) -> None:
        """With the events, first of all what the session is and which tools it has."""
        if self._include_events:
            self.write_row(init_row(session))

    def close(self) -> None:
        """Nothing more will come."""
        self._fault_reporter.close()

    def on_event(self, event: LiveEvent) -> None:
        """An event of the runner: results always, the rest when asked for, faults on stderr."""
        if self._include_events:
            self.write_row(event_row(event))
        match event:
            case Finished():
                self.write_row(result_row(event))
            case Duplicate():
                message = f"call {event.call_id} was there before and is not run again"
                self.write_row({"type": "error", "tool_use_id": event.call_id, "message": message})
            case _:
                self._fault_reporter.on_event(event)


async def handle_line(number: int, line: bytes, session: Session, printer: EventPrinter) -> None:
    """One line of the input: run its calls, or say what is wrong with it."""
    if not line.strip():
        return
    try:
        await _handle_message(_decode_message(line), session, printer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        printer.write_row({"type": "error", "line": number, "message": f"not a JSON object: {error}"})
    except (ToolspanError, ValueError) as error:
        printer.write_row({"type": "error", "line": number, "message": str(error)})


def _decode_message(line: bytes) -> dict[str, object]:
    """The object of a line; what strict readers refuse in it is mended, for calls want an answer.

    Raises:
        MsgspecError, UnicodeDecodeError, RecursionError: it is none, also to a lenient reader.
    """
    try:
        return msgspec.json.decode(line, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        message = _decode_leniently(line)
        if message is None:
            raise
        return message


def _decode_leniently(line: bytes) -> dict[str, object] | None:
    try:
        message: object = json.loads(replace_lone_surrogates(line)[1])
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


async def _handle_message(message: dict[str, object], session: Session, printer: EventPrinter) -> None:
    match message:
        case {"type": "user", "message": {"content": str() | list() as content}}:
            accepted = await session.submit(content)
            row: JsonRow = {"type": "prompt", "accepted": accepted}
            row["content"] = session.messages_since(-1)[0]["content"] if accepted else []
            printer.write_row(row)
        case {"type": "run_deferred"}:
            await session.run_deferred()
        case _:
            await session.run(message)
            if session.notes:
                texts = [block["text"] for block in session.notes]
                printer.write_row({"type": "notice", "content": texts})
    if session.feedback:
        printer.write_row({"type": "feedback", "content": list(session.feedback)})
    if session.stopped is not None:
        printer.write_row({"type": "stopped", "reason": session.stopped})


async def _input_lines(source: int | None) -> AsyncIterator[tuple[int, bytes]]:
    """The lines of the input, until its end; none when there is no input."""
    if source is None:
        return
    number = 0
    async with stream_from_thread(_split_lines(source)) as lines:
        async for line in lines:
            number += 1
            yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line


def _split_lines(source: int) -> Iterator[bytes]:
    """The lines of a descriptor; without a buffer object, whose lock a daemon would take along."""
    rest: list[bytes] = []
    while data := os.read(source, _READ_SIZE):
        *whole, last = data.split(b"\n")
        for line in whole:
            yield b"".join((*rest, line))
            rest = []
        rest.append(last)
    if any(rest):
        yield b"".join(rest)
