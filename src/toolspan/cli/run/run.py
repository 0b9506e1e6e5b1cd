"""`toolspan run`: an agent, whole: a model, the tools, a transcript."""

from contextlib import AsyncExitStack
from functools import partial

import anyio
import click
import msgspec

from toolspan.cli.host import Host, HostWishes, Story, host_options, open_host, open_terminal
from toolspan.cli.host.out import Out
from toolspan.cli.host.stop import Stop, watch_signals
from toolspan.cli.prompt.tty import Terminal
from toolspan.cli.run.show import JsonShow, Show, StreamShow, TextShow
from toolspan.cli.run.wishes import (
    FROM_STDIN,
    Wishes,
    model_of,
    other_model,
    prompt_of,
    story_of,
)
from toolspan.errors import ToolspanError
from toolspan.llm.model import MAX_TOKENS, Model
from toolspan.process import become_subreaper
from toolspan.session import Agent, Ended, Limits
from toolspan.session.compaction import Budget
from toolspan.session.mind import Mind
from toolspan.session.subagents import Staff, Subagents
from toolspan.session.system_words import system_words

FAILED = 1


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
    ctx.exit(anyio.run(_main, _wishes(ctx)))


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the command line says."""

    own: Wishes
    host: HostWishes


def _wishes(ctx: click.Context) -> _Asked:
    return _Asked(
        own=msgspec.convert(ctx.params, Wishes), host=msgspec.convert(ctx.params, HostWishes)
    )


async def _main(asked: _Asked) -> int:
    wishes, cwd = asked.own, asked.host.cwd.absolute()
    prompt = prompt_of(wishes)
    model = model_of(wishes)
    story = story_of(wishes, asked.host.place, cwd)
    mind = Mind(model)
    with open_terminal(wanted=asked.host.ask or prompt is None) as terminal:
        if prompt is None and terminal is None:
            raise ToolspanError("there is no terminal to talk at: give a prompt with -p")
        async with (
            AsyncExitStack() as stack,
            open_host(asked.host, model=model.name, terminal=terminal, mind=mind) as host,
        ):
            stack.push_async_callback(model.close)
            staff = host.staff(partial(other_model, wishes))
            stack.push_async_callback(staff.close)
            mind.find = partial(staff.model, above=model)
            setting = _Setting(wishes, host, model, story, staff)
            if prompt is not None:
                return await _headless(prompt, setting, _show(wishes))
            return await _converse(setting, terminal)


async def _converse(setting: "_Setting", terminal: Terminal | None) -> int:
    from toolspan.cli.run.live import converse

    return 0 if terminal is None else await converse(setting.agent, setting.begin, terminal)


def _show(wishes: Wishes) -> TextShow:
    shows = {"text": TextShow, "json": JsonShow, "stream-json": StreamShow}
    return shows["json" if wishes.as_json else wishes.form](Out())


class _Setting:
    """What an agent is made of."""

    def __init__(
        self, wishes: Wishes, host: Host, model: Model, story: Story, staff: Staff
    ) -> None:
        self._wishes = wishes
        self._staff = staff
        self._host = host
        self._model = model
        self._story = story

    def agent(self, show: Show) -> Agent:
        """An agent that is shown so; `begin` is called once it is entered."""
        wishes = self._wishes
        session = self._host.session(self._story, model=self._model.name, direct=[show.take])
        more = wishes.append_system_prompt
        words = system_words(session.cwd, more=more)
        if wishes.system_prompt is not None:
            words = "\n\n".join(part for part in (wishes.system_prompt, more) if part)
        budget = Budget(tokens=wishes.context_tokens)
        limits = Limits(turns=wishes.max_turns, tokens=wishes.max_tokens, budget=budget)
        agent = Agent(session, self._model, system=words, limits=limits, heard=show.heard)
        Subagents(agent, self._staff)
        return agent

    def begin(self, show: Show, agent: Agent) -> None:
        """The session is entered."""
        mode = self._host.mode
        show.begin(agent.session, self._host.servers, model=self._model.name, mode=mode)


async def _headless(prompt: str, setting: _Setting, show: TextShow) -> int:
    agent = setting.agent(show)
    stop = Stop(agent)
    show.out.on_broken = stop.with_code
    ended: Ended | None = None
    async with agent.session, anyio.create_task_group() as group:
        await group.start(watch_signals, stop.on_signal, group.cancel_scope)
        setting.begin(show, agent)
        ended = await agent.finish(prompt)
        if stop.code is not None:
            await agent.session.runner.desk.workspace.tasks.end()  # their results come before
        show.end(ended)
        group.cancel_scope.cancel()
    show.over()
    if stop.code is not None:
        return stop.code
    return FAILED if ended is None or ended.is_error else 0
