"""`toolspan run`: run a model with the tools, on one prompt or in a conversation. See also `run_live.py`."""

from __future__ import annotations

import os
import sys
import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import anyio
import click
import msgspec

from toolspan.cli.host import (
    HostOptions,
    host_options,
    make_session,
    model_options,
    new_source,
    open_model,
    open_terminal,
)
from toolspan.cli.output import warn
from toolspan.cli.process import EarlyExit, StandardOutput, handle_signals
from toolspan.cli.prompt.terminal import Terminal
from toolspan.cli.run_live import SessionDisplay, run_conversation
from toolspan.cli.run_options import FROM_STDIN, RunOptions, run_options
from toolspan.cli.session_output import JsonOutput, StreamJsonOutput, TextOutput
from toolspan.errors import ToolspanError
from toolspan.runtime.process import become_subreaper
from toolspan.session import Agent, AgentLimits, SpendingLimits, TurnResult
from toolspan.session.agent import Budget
from toolspan.session.final_answer import AnswerFormat
from toolspan.session.models import make_subagent_model
from toolspan.session.models.base import Model
from toolspan.session.recording import StoreOptions
from toolspan.session.storage import SessionSource, find_source

_EXIT_FAILED = 1


@click.command("run")
@run_options
@model_options
@host_options
@click.pass_context
def command(ctx: click.Context, /, **_: object) -> None:
    """Run a model with the tools: on one prompt (-p), or in a conversation.

    Permissions, hooks and recording work as in `toolspan exec`. With -p, there are no prompts:
    calls that need permission are denied, unless you add --approve or --permission-prompt-tool.
    If nobody is asked (-p, or the mode dontAsk or bypassPermissions), commands run in a sandbox
    if bubblewrap is installed; --no-sandbox switches it off.

    In a conversation, Ctrl-C interrupts the turn; a second Ctrl-C, /exit or Ctrl-D quits.

    Exit codes with -p: 0 the model finished; 1 it did not (no reply, a refusal, a limit, a hook);
    130 interrupted with Ctrl-C; others as for all commands.
    """
    become_subreaper()
    ctx.exit(anyio.run(_run_command, msgspec.convert(ctx.params, RunOptions), msgspec.convert(ctx.params, HostOptions)))


async def _run_command(options: RunOptions, session_options: HostOptions) -> int:
    prompt, schema = _read_prompt(options), _read_schema(options)
    if schema is not None and prompt is None:
        raise ToolspanError("--output-schema needs a prompt after -p")
    model = open_model(options.model_spec, options.base_url)
    source = _resolve_source(options, session_options)
    with open_terminal(enabled=session_options.asks_at_terminal or prompt is None) as terminal:
        if prompt is None and terminal is None:
            raise ToolspanError("there is no terminal; write a prompt after -p")
        agent_factory = _AgentFactory(options, session_options, terminal, model, source)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(model.close)
            if prompt is not None:
                outputs = {"text": TextOutput, "json": JsonOutput, "stream-json": StreamJsonOutput}
                display = outputs["json" if options.as_json else options.output_format](StandardOutput())
                return await _run_headless(prompt, schema, agent_factory, display)
            assert terminal is not None
            return await run_conversation(agent_factory.make_agent, agent_factory.start_display, terminal)


async def _run_headless(
    prompt: str, schema: dict[str, object] | None, agent_factory: _AgentFactory, display: TextOutput
) -> int:
    agent = agent_factory.make_agent(display)
    early_exit = EarlyExit(agent)
    display.out.on_broken = early_exit.request_exit
    ended: TurnResult | None = None
    async with agent.session, anyio.create_task_group() as group:
        handle_signals(early_exit.on_signal, group.cancel_scope)
        agent_factory.start_display(display, agent)
        ended = await agent.run_to_completion(prompt, output=schema)
        if early_exit.exit_code is not None:
            await agent.session.runner.runner_context.workspace.tasks.stop_all()  # print their results first
        display.on_turn_end(ended)
        group.cancel_scope.cancel()
    display.close()
    if early_exit.exit_code is not None:
        return early_exit.exit_code
    return _EXIT_FAILED if ended is None or ended.is_error else 0


@dataclass(frozen=True, slots=True)
class _AgentFactory:
    options: RunOptions
    session_options: HostOptions
    terminal: Terminal | None
    model: Model
    source: SessionSource

    def make_agent(self, display: SessionDisplay) -> Agent:
        """Return an agent that reports to `display`. Call `start_display` once its session has been entered."""
        options = self.options
        session = make_session(
            self.session_options,
            self.source,
            terminal=self.terminal,
            model=self.model,
            direct=[display.on_event],
            guards_unattended=True,
        )
        limits = AgentLimits(
            turns=options.max_turns,
            tokens=options.max_tokens,
            budget=Budget(tokens=options.context_tokens),
            turn=SpendingLimits(seconds=options.max_seconds),
            session=SpendingLimits(
                cost=options.max_budget_usd, tokens=options.max_session_tokens, calls=options.max_calls
            ),
        )
        agent = session.make_agent(
            system=options.system_prompt,
            extra=options.append_system_prompt,
            limits=limits,
            on_event=display.on_model_event,
            find_model=partial(make_subagent_model, main=options.model_spec or "", base_url=options.base_url),
        )
        if options.max_budget_usd is not None and agent.meter.prices.find(self.model.name) is None:
            warn(
                f"the price of {self.model.name} is unknown: --max-budget-usd does not count its requests;"
                " --max-session-tokens counts them"
            )
        return agent

    def start_display(self, display: SessionDisplay, agent: Agent) -> None:
        """Tell `display` about the session."""
        session = agent.session
        mode, sandbox = session.permission_mode, session.runner.runner_context.workspace.sandbox
        if mode == "bypassPermissions" and os.geteuid() == 0 and not (sandbox is not None and sandbox.is_on):
            warn("bypassPermissions as root without a sandbox: calls can change everything on this machine unasked")
        display.on_session_start(session, model=self.model.name, mode=mode)


def _read_prompt(options: RunOptions) -> str | None:
    text = options.prompt
    if text is None and (sys.stdin is None or sys.stdin.isatty()):
        return None
    if text in (None, FROM_STDIN) or options.stdin:
        piped_text = "" if sys.stdin is None else sys.stdin.buffer.read().decode("utf-8", "replace")
        text = piped_text if text in (None, FROM_STDIN) else f"{text}\n\n{piped_text}"
    if not text or not text.strip():
        raise ToolspanError("the prompt is empty; write it after -p, or send it to standard input")
    return text.strip()


def _read_schema(options: RunOptions) -> dict[str, object] | None:
    path = options.output_schema
    if path is None:
        return None
    try:
        schema = msgspec.json.decode(path.read_bytes(), type=dict[str, object])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ToolspanError(f"--output-schema: {path} is not a JSON object: {error}") from error
    except RecursionError as error:
        raise ToolspanError(f"--output-schema: {path} is nested too deeply") from error
    AnswerFormat.of(schema)  # raises before anything is run
    return schema


def _resolve_source(options: RunOptions, session_options: HostOptions) -> SessionSource:
    """Return a new session, or the one to resume."""
    if options.resume is not None and options.continue_last:
        raise ToolspanError("use either --resume or --continue")
    makes_copy = options.fork_session or options.rewind_to is not None
    resumes = options.resume is not None or options.continue_last
    if makes_copy and not resumes:
        option = "--rewind-to" if options.rewind_to else "--fork-session"
        raise ToolspanError(f"{option} needs --resume or --continue")
    if options.session_id is not None and resumes and not makes_copy:
        raise ToolspanError("--session-id: a resumed session keeps its id; add --fork-session to resume in a copy")
    new = new_source(session_options, _parse_uuid(options.session_id))
    if not resumes:
        return new
    if new.transcript not in (None, "home"):
        raise ToolspanError(
            "--transcript: --resume and --continue record to the session's own file; use `none` to record"
            " nothing, or --transcript FILE without them to continue that file"
        )
    cwd, settings = session_options.cwd.absolute(), StoreOptions(session_options.durability)
    return find_source(new, options.resume, cwd, settings, fork=makes_copy, until=options.rewind_to)


def _parse_uuid(text: str | None) -> str | None:
    try:
        return None if text is None else str(uuid.UUID(text))
    except ValueError as error:
        raise ToolspanError(f"--session-id: {text!r} is not a UUID") from error
