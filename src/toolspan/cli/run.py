"""`toolspan run`: run a model with the tools, on one prompt or in a conversation. See also `run_live.py`."""

from __future__ import annotations

import os
import sys
import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
import click
import msgspec

from toolspan.cli.host import Host, HostOptions, SessionSource, host_options, open_host, open_terminal
from toolspan.cli.host.host import EarlyExit, StandardOutput, handle_signals
from toolspan.cli.output import combine_options, warn
from toolspan.cli.run_live import JsonOutput, SessionDisplay, StreamJsonOutput, TextOutput, run_conversation
from toolspan.errors import ToolspanError
from toolspan.runtime.process import become_subreaper
from toolspan.session import Agent, AgentLimits, TurnResult
from toolspan.session.agent import Budget, HookModelAccess, system_prompt
from toolspan.session.models import make_model, parse_model_spec
from toolspan.session.models.base import MAX_TOKENS, Model
from toolspan.session.resume import find_session_file, fork_transcript, latest_session_file, load_history
from toolspan.session.subagents import SubagentConfig, Subagents
from toolspan.types.ids import SessionId

_OutputFormat = Literal["text", "json", "stream-json"]
_MODEL_ALIASES = frozenset({"sonnet", "opus", "haiku", "fable"})
"""Short model names, resolved with the environment variables that clients use."""
_FROM_STDIN = "-"
_EXIT_FAILED = 1


class _RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    prompt: str | None
    stdin: bool
    model_spec: str | None
    base_url: str | None
    output_format: _OutputFormat
    as_json: bool
    resume: str | None
    continue_last: bool
    fork_session: bool
    rewind_to: str | None
    session_id: str | None
    max_turns: int | None
    max_tokens: int
    context_tokens: int
    system_prompt: str | None
    append_system_prompt: str


_run_options = combine_options(
    click.option("-p", "--prompt", is_flag=False, flag_value=_FROM_STDIN, metavar="TEXT",
                 help="Run this prompt, print the answer and exit. Without TEXT, or with -, read it from standard"
                 " input."),
    click.option("--stdin", is_flag=True, help="Append standard input to the prompt."),
    click.option("--model", "model_spec", envvar="TOOLSPAN_MODEL", metavar="KIND:NAME",
                 help="anthropic:NAME, openai:NAME or scripted:FILE.  [env: TOOLSPAN_MODEL]"),
    click.option("--base-url", help="The URL of another server with the same API."),
    click.option("--output-format", type=click.Choice(["text", "json", "stream-json"]), default="text",
                 help="Print the final text, one JSON object, or a JSON line per event."),
    click.option("--json", "as_json", is_flag=True, help="The same as --output-format json."),
    click.option("-r", "--resume", metavar="ID", help="Resume this session."),
    click.option("-c", "--continue", "continue_last", is_flag=True, help="Resume the newest session of this folder."),
    click.option("--fork-session", is_flag=True, help="Resume in a copy with a new id."),
    click.option("--rewind-to", metavar="UUID",
                 help="Resume from this record of the session, in a copy with a new id."),
    click.option("--session-id", metavar="UUID", help="The id of the new session."),
    click.option("--max-turns", type=click.IntRange(min=1), help="The maximum number of replies per prompt."),
    click.option("--max-tokens", type=click.IntRange(min=1), default=MAX_TOKENS, show_default=True,
                 help="The maximum number of tokens in one reply."),
    click.option("--context-tokens", type=click.IntRange(min=1_000), default=Budget().tokens, show_default=True,
                 help="The model's context size; the conversation is compacted before it is full."),
    click.option("--system-prompt", metavar="TEXT", help="Replace the built-in system prompt."),
    click.option("--append-system-prompt", metavar="TEXT", default="", help="Append to the system prompt."),
)  # fmt: skip


@click.command("run")
@_run_options
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
    ctx.exit(
        anyio.run(_run_command, msgspec.convert(ctx.params, _RunOptions), msgspec.convert(ctx.params, HostOptions))
    )


async def _run_command(options: _RunOptions, session_options: HostOptions) -> int:
    prompt = _read_prompt(options)
    if options.model_spec is None:
        raise ToolspanError(
            "no model named; use --model anthropic:NAME, openai:NAME or scripted:FILE, or set TOOLSPAN_MODEL"
        )
    model = make_model(options.model_spec, base_url=options.base_url)
    source = _resolve_session(options, session_options.transcript_target, session_options.cwd.absolute())
    model_access = HookModelAccess(model)
    with open_terminal(enabled=session_options.asks_at_terminal or prompt is None) as terminal:
        if prompt is None and terminal is None:
            raise ToolspanError("there is no terminal; write a prompt after -p")
        async with (
            AsyncExitStack() as stack,
            open_host(
                session_options,
                model=model.name,
                terminal=terminal,
                model_access=model_access,
                sandbox_if_unattended=True,
            ) as host,
        ):
            stack.push_async_callback(model.close)
            subagent_config = host.load_subagent_config(partial(_subagent_model, options))
            stack.push_async_callback(subagent_config.close)
            model_access.find_model = partial(subagent_config.resolve_model, parent_model=model)
            agent_factory = _AgentFactory(options, host, model, source, subagent_config)
            if prompt is not None:
                outputs = {"text": TextOutput, "json": JsonOutput, "stream-json": StreamJsonOutput}
                display = outputs["json" if options.as_json else options.output_format](StandardOutput())
                return await _run_headless(prompt, agent_factory, display)
            assert terminal is not None
            return await run_conversation(agent_factory.make_agent, agent_factory.start_display, terminal)


async def _run_headless(prompt: str, agent_factory: _AgentFactory, display: TextOutput) -> int:
    agent = agent_factory.make_agent(display)
    early_exit = EarlyExit(agent)
    display.out.on_broken = early_exit.request_exit
    ended: TurnResult | None = None
    async with agent.session, anyio.create_task_group() as group:
        handle_signals(early_exit.on_signal, group.cancel_scope)
        agent_factory.start_display(display, agent)
        ended = await agent.run_to_completion(prompt)
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
    options: _RunOptions
    host: Host
    model: Model
    source: SessionSource
    subagent_config: SubagentConfig

    def make_agent(self, display: SessionDisplay) -> Agent:
        """Return an agent that reports to `display`. Call `start_display` once its session has been entered."""
        options = self.options
        session = self.host.make_session(self.source, model=self.model.name, direct=[display.on_event])
        extra = options.append_system_prompt
        system = system_prompt(session.cwd, extra=extra)
        if options.system_prompt is not None:
            system = "\n\n".join(part for part in (options.system_prompt, extra) if part)
        budget = Budget(tokens=options.context_tokens)
        limits = AgentLimits(turns=options.max_turns, tokens=options.max_tokens, budget=budget)
        agent = Agent(session, self.model, system=system, limits=limits, on_event=display.on_model_event)
        Subagents(agent, self.subagent_config)
        return agent

    def start_display(self, display: SessionDisplay, agent: Agent) -> None:
        mode = self.host.permission_mode
        if self.host.sandbox_note is not None:
            warn(self.host.sandbox_note)
        has_sandbox = self.host.sandbox is not None and self.host.sandbox.is_on
        if mode == "bypassPermissions" and os.geteuid() == 0 and not has_sandbox:
            warn("bypassPermissions as root without a sandbox: calls can change everything on this machine unasked")
        display.on_session_start(agent.session, self.host.servers, model=self.model.name, mode=mode)


def _read_prompt(options: _RunOptions) -> str | None:
    text = options.prompt
    if text is None and (sys.stdin is None or sys.stdin.isatty()):
        return None
    if text in (None, _FROM_STDIN) or options.stdin:
        piped_text = "" if sys.stdin is None else sys.stdin.buffer.read().decode("utf-8", "replace")
        text = piped_text if text in (None, _FROM_STDIN) else f"{text}\n\n{piped_text}"
    if not text or not text.strip():
        raise ToolspanError("the prompt is empty; write it after -p, or send it to standard input")
    return text.strip()


def _subagent_model(options: _RunOptions, name: str) -> Model | None:
    if name in _MODEL_ALIASES:
        model_name = os.environ.get(f"ANTHROPIC_DEFAULT_{name.upper()}_MODEL")
        if model_name is None:
            return None
        name = f"anthropic:{model_name}"
    is_same_provider = parse_model_spec(name).provider == parse_model_spec(options.model_spec or "").provider
    return make_model(name, base_url=options.base_url if is_same_provider else None)


def _resolve_session(options: _RunOptions, transcript_target: str | None, cwd: Path) -> SessionSource:
    if options.resume is not None and options.continue_last:
        raise ToolspanError("use either --resume or --continue")
    if options.resume is None and not options.continue_last:
        if options.fork_session or options.rewind_to:
            option = "--rewind-to" if options.rewind_to else "--fork-session"
            raise ToolspanError(f"{option} needs --resume or --continue")
        return SessionSource(session_id=_parse_uuid(options.session_id), transcript=transcript_target)
    makes_copy = options.fork_session or options.rewind_to is not None
    if options.session_id is not None and not makes_copy:
        raise ToolspanError("--session-id: a resumed session keeps its id; add --fork-session to resume in a copy")
    if transcript_target not in (None, "home"):
        raise ToolspanError(
            "--transcript: --resume and --continue record to the session's own file; use `none` to record"
            " nothing, or --transcript FILE without them to continue that file"
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
        raise ToolspanError(f"--session-id: {text!r} is not a UUID") from error
