"""`toolspan exec`: run tool calls from a pipe, reading assistant messages and writing results as JSON lines."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress

import anyio
import click
import msgspec

from toolspan.cli.app import EXIT_OUTPUT_CLOSED
from toolspan.cli.host import HostOptions, host_options, make_session, new_source, open_terminal
from toolspan.cli.process import EarlyExit, handle_signals
from toolspan.cli.session_output import EventPrinter
from toolspan.errors import ToolspanError
from toolspan.integrations.mcp_client.protocol import replace_lone_surrogates
from toolspan.runtime.process import become_subreaper
from toolspan.runtime.process.output import stream_from_thread
from toolspan.session import Session
from toolspan.session.recording import StoreOptions
from toolspan.session.storage import find_source

_READ_SIZE = 1 << 16


@click.command("exec")
@click.option("--model", help="The name of the model, on which some tools depend.")
@host_options
@click.option("--resume", metavar="ID", help="Resume this session of --store.")
@click.option("--events", is_flag=True, help="Also print the events of each call.")
@click.option("--json", is_flag=True, expose_value=False, help="No effect: the output is always JSON lines.")
@click.pass_context
def command(ctx: click.Context, /, model: str | None, *, resume: str | None, events: bool, **_: object) -> None:
    """Run tool calls from standard input, one message per line, and print their results.

    A line is {"type":"assistant","message":{"content":[{"type":"tool_use",...}]}}; every call in
    it gets one line {"type":"result","tool_use_id":...}. A line that cannot be parsed gets an error
    line. At the end of the input, running calls are finished and background tasks are stopped.
    Ctrl-C stops the running calls, prints their results and exits with code 130.

    For hooks: {"type":"user","message":{"content":"..."}} is a prompt and gets
    {"type":"prompt","accepted":...}; {"type":"run_deferred"} resumes a deferred call. A turn that a
    hook ends gets {"type":"stopped"}; a turn that a hook continues gets {"type":"feedback"} with the
    text for the model. Other text for the model (from hooks and background tasks) follows the
    results of a message as {"type":"notice"}.
    """
    become_subreaper()
    options = msgspec.convert(ctx.params, HostOptions)
    ctx.exit(anyio.run(_run_exec, options, model, resume, EventPrinter(events=events)))


async def _run_exec(options: HostOptions, model: str | None, resume: str | None, printer: EventPrinter) -> int:
    if options.asks_at_terminal and sys.stdin is not None and sys.stdin.isatty():
        raise ToolspanError("--ask needs the terminal for your answers; send the messages through a pipe")
    source = new_source(options)
    if resume is not None:
        if options.store is None:
            raise ToolspanError("--resume needs --store; --transcript FILE continues a file")
        settings = StoreOptions(options.durability)
        source = find_source(source, resume, options.cwd.absolute(), settings, fork=False, until=None)
    with open_terminal(enabled=options.asks_at_terminal) as terminal, closing(printer):
        async with (
            make_session(options, source, terminal=terminal, model=model, direct=[printer.on_event]) as session,
            anyio.create_task_group() as group,
        ):
            early_exit = EarlyExit(session)
            printer.on_broken = early_exit.request_exit
            printer.on_session_start(session)
            group.start_soon(_watch_output, early_exit)
            handle_signals(early_exit.on_signal, group.cancel_scope)
            async for number, line in _input_lines(None if sys.stdin is None else sys.stdin.fileno()):
                await _handle_line(number, line, session, printer)
                if early_exit.exit_code is not None:
                    break
            group.cancel_scope.cancel()
    return early_exit.exit_code or 0


async def _watch_output(early_exit: EarlyExit) -> None:
    """Request an exit as soon as the reader of standard output is gone, even if a call prints nothing for hours."""
    descriptor = -1 if sys.stdout is None else sys.stdout.fileno()
    if descriptor >= 0 and stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        await anyio.wait_readable(descriptor)  # the writing end of a pipe is never readable, but it may be broken
        early_exit.request_exit(EXIT_OUTPUT_CLOSED)


async def _handle_line(number: int, line: bytes, session: Session, printer: EventPrinter) -> None:
    if not line.strip():
        return
    try:
        await _handle_message(_decode_message(line), session, printer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        printer.write_row({"type": "error", "line": number, "message": f"not a JSON object: {error}"})
    except (ToolspanError, ValueError) as error:
        printer.write_row({"type": "error", "line": number, "message": str(error)})


def _decode_message(line: bytes) -> dict[str, object]:
    """Decode a line. Invalid escapes that strict parsers reject are repaired, so that the calls still get results."""
    try:
        return msgspec.json.decode(line, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        with suppress(ValueError):
            message: object = json.loads(replace_lone_surrogates(line)[1])
            if isinstance(message, dict):
                return message
        raise


async def _handle_message(message: dict[str, object], session: Session, printer: EventPrinter) -> None:
    match message:
        case {"type": "user", "message": {"content": str() | list() as content}}:
            accepted = await session.submit(content)
            recorded = session.messages_since(-1)[0]["content"] if accepted else []
            printer.write_row({"type": "prompt", "accepted": accepted, "content": recorded})
        case {"type": "run_deferred"}:
            await session.run_deferred()
        case _:
            printer.remember_ids(message)
            await session.run(message)
            if session.notes:
                printer.write_row({"type": "notice", "content": [block["text"] for block in session.notes]})
    if session.feedback:
        printer.write_row({"type": "feedback", "content": list(session.feedback)})
    if session.stopped is not None:
        printer.write_row({"type": "stopped", "reason": session.stopped})


async def _input_lines(source: int | None) -> AsyncIterator[tuple[int, bytes]]:
    if source is None:  # standard input is closed
        return
    number = 0
    async with stream_from_thread(_split_lines(source)) as lines:
        async for line in lines:
            number += 1
            yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line


def _split_lines(source: int) -> Iterator[bytes]:
    """Yield the lines read from a file descriptor.

    Uses no buffered reader, because a daemon thread that holds its lock would block the interpreter's exit.
    """
    rest: list[bytes] = []
    while data := os.read(source, _READ_SIZE):
        *whole, last = data.split(b"\n")
        for line in whole:
            yield b"".join((*rest, line))
            rest = []
        rest.append(last)
    if any(rest):
        yield b"".join(rest)
