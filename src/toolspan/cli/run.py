"""`toolspan run`: an agent, whole: a model, the tools, a transcript."""

from __future__ import annotations

import os
import sys
import uuid
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
import click
import msgspec

from toolspan.cli.host import Host, HostOptions, SessionSource, host_options, open_host, open_terminal
from toolspan.cli.host.host import EarlyExit, StandardOutput, watch_signals
from toolspan.cli.prompt.terminal import Terminal
from toolspan.cli.run_live import JsonOutput, SessionDisplay, StreamJsonOutput, TextOutput
from toolspan.errors import ToolspanError
from toolspan.runtime.process import become_subreaper
from toolspan.session import Agent, AgentLimits, TurnResult
from toolspan.session.agent import Budget, HookModelAccess, system_prompt
from toolspan.session.models.base import MAX_TOKENS, Model
from toolspan.session.models import make_model, parse_model_spec
from toolspan.session.resume import find_session_file, fork_transcript, latest_session_file, load_history
from toolspan.session.subagents import SubagentConfig, Subagents
from toolspan.types.ids import SessionId

OutputFormat = Literal["text", "json", "stream-json"]
MODEL_ALIASES = frozenset({"sonnet", "opus", "haiku", "fable"})
"""Short names of models; the variables that clients know say what they mean."""
FROM_STDIN = "-"
"""As a prompt: it is read from standard input."""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says of the conversation."""

    prompt: str | None
    stdin: bool
    word: str | None
    base_url: str | None
    form: OutputFormat
    as_json: bool
    resume: str | None
    again: bool
    fork_session: bool
    rewind_to: str | None
    session_id: str | None
    max_turns: int | None
    max_tokens: int
    context_tokens: int
    system_prompt: str | None
    append_system_prompt: str


def read_prompt(options: RunOptions) -> str | None:
    """What to work on; None when it will be typed.

    Raises:
        ToolspanError: there should be a prompt, and is none.
    """
    piped = sys.stdin is not None and not sys.stdin.isatty()
    text = options.prompt
    if text is None and not piped:
        return None
    if text in (None, FROM_STDIN):
        text = _read_stdin()
    elif options.stdin:
        text = f"{text}\n\n{_read_stdin()}"
    if not text or not text.strip():
        raise ToolspanError("the prompt is empty: give it with -p, or on standard input")
    return text.strip()


def _read_stdin() -> str:
    if sys.stdin is None:
        return ""
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def choose_model(options: RunOptions) -> Model:
    """The model that works.

    Raises:
        ToolspanError: none is named, or it cannot be had.
    """
    if options.word is None:
        raise ToolspanError("which model? --model anthropic:NAME, openai:NAME or scripted:FILE, or TOOLSPAN_MODEL")
    return make_model(options.word, base_url=options.base_url)


def subagent_model(options: RunOptions, name: str) -> Model | None:
    """A subagent's own model; None for a short name that nobody has said the meaning of.

    Raises:
        ToolspanError: it cannot be had.
    """
    if name in MODEL_ALIASES:
        model_name = os.environ.get(f"ANTHROPIC_DEFAULT_{name.upper()}_MODEL")
        if model_name is None:
            return None
        name = f"anthropic:{model_name}"
    same = options.word is not None and parse_model_spec(name).provider == parse_model_spec(options.word).provider
    return make_model(name, base_url=options.base_url if same else None)


def resolve_session(options: RunOptions, transcript_target: str | None, cwd: Path) -> SessionSource:
    """A new conversation, or one that goes on.

    Raises:
        ToolspanError: there is none that could.
    """
    if options.resume is not None and options.again:
        raise ToolspanError("--resume and --continue: only one can name the session")
    if options.resume is None and not options.again:
        if options.fork_session or options.rewind_to:
            option = "--rewind-to" if options.rewind_to else "--fork-session"
            raise ToolspanError(f"{option} needs --resume or --continue")
        return SessionSource(session_id=_parse_uuid(options.session_id), transcript=transcript_target)
    makes_copy = options.fork_session or options.rewind_to is not None
    if options.session_id is not None and not makes_copy:
        raise ToolspanError("--session-id: a session that goes on keeps its id; add --fork-session")
    if transcript_target not in (None, "home"):
        raise ToolspanError(
            "--transcript: --resume and --continue record where the session lies; `none` is all"
            " that can be chosen, or --transcript FILE without them, which goes on with that file"
        )
    path = latest_session_file(cwd) if options.resume is None else find_session_file(options.resume, cwd)
    history = load_history(path, until=options.rewind_to)
    if not makes_copy:
        return SessionSource(session_id=path.stem, transcript=path if transcript_target else None, history=history)
    name = SessionId(_parse_uuid(options.session_id) or str(uuid.uuid4()))
    try:
        copy = fork_transcript(path, name, cwd, until=options.rewind_to) if transcript_target else None
    except OSError as error:
        raise ToolspanError(f"{error.filename}: {error.strerror}") from error
    return SessionSource(session_id=name, transcript=copy, history=history)


def _parse_uuid(text: str | None) -> str | None:
    try:
        return None if text is None else str(uuid.UUID(text))
    except ValueError as error:
        raise ToolspanError(f"--session-id: {text!r} is no UUID") from error


EXIT_FAILED = 1


@click.command("run")
@click.option(
    "-p", "--prompt", is_flag=False, flag_value=FROM_STDIN, metavar="TEXT",
    help="Work on this, print, and end. Without TEXT, or with -, it is read from standard input.",
)  # fmt: skip
@click.option("--stdin", is_flag=True, help="Put what standard input says below the prompt.")
@click.option(
    "--model", "word", envvar="TOOLSPAN_MODEL", metavar="KIND:NAME",
    help="anthropic:NAME, openai:NAME or scripted:FILE.  [env: TOOLSPAN_MODEL]",
)  # fmt: skip
@click.option("--base-url", help="Another server that speaks the model's API.")
@click.option(
    "--output-format", "form", type=click.Choice(["text", "json", "stream-json"]), default="text",
    help="The last words, one object, or a line for everything.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The same as --output-format json.")
@click.option("-r", "--resume", metavar="ID", help="Go on with this session.")
@click.option("-c", "--continue", "again", is_flag=True, help="Go on with this folder's last one.")
@click.option("--fork-session", is_flag=True, help="Go on in a copy under another id.")
@click.option(
    "--rewind-to", metavar="UUID",
    help="Go on from this line of the session, in a copy under another id.",
)  # fmt: skip
@click.option("--session-id", metavar="UUID", help="The id of the new session.")
@click.option("--max-turns", type=click.IntRange(min=1), help="How often the model may speak.")
@click.option(
    "--max-tokens", type=click.IntRange(min=1), default=MAX_TOKENS, show_default=True,
    help="How long one reply may get.",
)  # fmt: skip
@click.option(
    "--context-tokens", type=click.IntRange(min=1_000), default=Budget().tokens, show_default=True,
    help="How much the model takes in; near it, a summary takes the conversation's place.",
)  # fmt: skip
@click.option("--system-prompt", metavar="TEXT", help="Instead of our own words to the model.")
@click.option("--append-system-prompt", metavar="TEXT", default="", help="After those words.")
@host_options
@click.pass_context
def command(ctx: click.Context, /, **_: object) -> None:
    """Let a model work with the tools: on one prompt (-p), or in a conversation.

    Every call goes through the same rules, hooks and records as in `toolspan exec`. With -p nobody
    is asked: what needs consent is denied, unless --ask or --permission-prompt-tool is given.

    In a conversation Ctrl-C ends the turn, and a second one the command; so do /exit and Ctrl-D.

    Exit codes with -p: 0 the model came to its end; 1 it did not (no reply, a refusal, a limit, a
    hook); 130 stopped with Ctrl-C; the others as everywhere.
    """
    become_subreaper()
    ctx.exit(anyio.run(_run_command, _parse_options(ctx)))


class _CommandOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the command line says."""

    run: RunOptions
    host: HostOptions


def _parse_options(ctx: click.Context) -> _CommandOptions:
    return _CommandOptions(run=msgspec.convert(ctx.params, RunOptions), host=msgspec.convert(ctx.params, HostOptions))


async def _run_command(options: _CommandOptions) -> int:
    run_options, cwd = options.run, options.host.cwd.absolute()
    prompt = read_prompt(run_options)
    model = choose_model(run_options)
    source = resolve_session(run_options, options.host.transcript_target, cwd)
    model_access = HookModelAccess(model)
    with open_terminal(enabled=options.host.ask or prompt is None) as terminal:
        if prompt is None and terminal is None:
            raise ToolspanError("there is no terminal to talk at: give a prompt with -p")
        async with (
            AsyncExitStack() as stack,
            open_host(options.host, model=model.name, terminal=terminal, model_access=model_access) as host,
        ):
            stack.push_async_callback(model.close)
            subagent_config = host.load_subagent_config(partial(subagent_model, run_options))
            stack.push_async_callback(subagent_config.close)
            model_access.find_model = partial(subagent_config.resolve_model, parent_model=model)
            agent_factory = _AgentFactory(run_options, host, model, source, subagent_config)
            if prompt is not None:
                return await _run_headless(prompt, agent_factory, _choose_output(run_options))
            return await _run_interactive(agent_factory, terminal)


async def _run_interactive(agent_factory: _AgentFactory, terminal: Terminal | None) -> int:
    from toolspan.cli.run_live import run_conversation

    return (
        0
        if terminal is None
        else await run_conversation(agent_factory.make_agent, agent_factory.start_display, terminal)
    )


def _choose_output(options: RunOptions) -> TextOutput:
    outputs = {"text": TextOutput, "json": JsonOutput, "stream-json": StreamJsonOutput}
    return outputs["json" if options.as_json else options.form](StandardOutput())


class _AgentFactory:
    """What an agent is made of."""

    def __init__(
        self, options: RunOptions, host: Host, model: Model, source: SessionSource, subagent_config: SubagentConfig
    ) -> None:
        self._options = options
        self._subagent_config = subagent_config
        self._host = host
        self._model = model
        self._source = source

    def make_agent(self, show: SessionDisplay) -> Agent:
        """An agent that is shown so; `begin` is called once it is entered."""
        options = self._options
        session = self._host.make_session(self._source, model=self._model.name, direct=[show.on_event])
        more = options.append_system_prompt
        words = system_prompt(session.cwd, extra=more)
        if options.system_prompt is not None:
            words = "\n\n".join(part for part in (options.system_prompt, more) if part)
        budget = Budget(tokens=options.context_tokens)
        limits = AgentLimits(turns=options.max_turns, tokens=options.max_tokens, budget=budget)
        agent = Agent(session, self._model, system=words, limits=limits, on_event=show.on_model_event)
        Subagents(agent, self._subagent_config)
        return agent

    def start_display(self, show: SessionDisplay, agent: Agent) -> None:
        """The session is entered."""
        mode = self._host.permission_mode
        show.on_session_start(agent.session, self._host.servers, model=self._model.name, mode=mode)


async def _run_headless(prompt: str, agent_factory: _AgentFactory, show: TextOutput) -> int:
    agent = agent_factory.make_agent(show)
    stop = EarlyExit(agent)
    show.out.on_broken = stop.request_exit
    ended: TurnResult | None = None
    async with agent.session, anyio.create_task_group() as group:
        await group.start(watch_signals, stop.on_signal, group.cancel_scope)
        agent_factory.start_display(show, agent)
        ended = await agent.run_to_completion(prompt)
        if stop.exit_code is not None:
            await agent.session.runner.runner_context.workspace.tasks.stop_all()  # their results come before
        show.on_turn_end(ended)
        group.cancel_scope.cancel()
    show.close()
    if stop.exit_code is not None:
        return stop.exit_code
    return EXIT_FAILED if ended is None or ended.is_error else 0
