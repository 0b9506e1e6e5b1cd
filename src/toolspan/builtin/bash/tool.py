"""Bash: run a command in a new shell.

In: a command, and how long it may take. Out: what it printed, or that it goes on in the background.
Of a shell, only the folder it ends in survives. Read `_run` first.
"""

from collections.abc import Mapping
from contextlib import suppress

import anyio

from toolspan.builtin.bash.launch import Running, Whereabouts, launch
from toolspan.builtin.bash.request import Request, request_of
from toolspan.builtin.bash.told import Told, ended, move_to, settle, shown, timed_out
from toolspan.errors import ToolError
from toolspan.process import Exit, NotEnded, StartError
from toolspan.profile import Profile, ShellValues
from toolspan.run.context import ToolContext
from toolspan.run.tasks import Task
from toolspan.run.tool import Failure, Output, Tool
from toolspan.schema.check import checker
from toolspan.shell.line import parse_line
from toolspan.shell.readonly import is_read_only

_DESCRIPTION = """\
Run a command in bash and return what it prints.

Every call is a new shell: the current folder is kept for the next call as long as it lies in the
project, variables and functions are not. Nothing can be typed into a command. A command that takes
longer than its timeout is moved to the background or ended."""

_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "description": "What bash is to run"},
        "timeout": {
            "type": "number",
            "description": "Milliseconds it may take: 120000 unless given, 600000 at most",
        },
        "description": {
            "type": "string",
            "description": "In a few words, what the command is for",
        },
        "run_in_background": {
            "type": "boolean",
            "description": "Start it and go on; its output goes to a file",
        },
        "dangerouslyDisableSandbox": {
            "type": "boolean",
            "description": "Run it outside the sandbox, where there is one",
        },
    },
    "required": ["command"],
    "additionalProperties": False,
}

_GRACE = 0.2
"""Seconds that an interrupted command has to end by itself."""
_AT_ONCE = 0.25
"""Seconds to wait for the output of a command that was sent to the background at once."""


def bash_tool(profile: Profile) -> Tool:
    """Bash as one client version has it."""

    async def run(value: Mapping[str, object], ctx: ToolContext) -> Output | Failure:
        return await _run(request_of(value, ctx.workspace.environment), ctx, profile.shell)

    return Tool(
        name="Bash",
        description=_DESCRIPTION,
        input_schema=_SCHEMA,
        parse=checker(_SCHEMA, coerce=profile.offer.coerces),
        run=run,
        concurrent=_may_overlap,
        output_limit=None,
        show=shown,
    )


def _may_overlap(value: Mapping[str, object]) -> bool:
    return not value.get("run_in_background") and is_read_only(str(value["command"]))


async def _run(request: Request, ctx: ToolContext, shell: ShellValues) -> Output | Failure:
    where = Whereabouts()
    try:
        running = await launch(request, where, ctx, shell)
        told = Told(shell, ctx.workspace)
        ctx.partial = lambda: told.so_far(running)
        if request.background or request.timeout_ms < 0:
            return await _start_in_background(running, ctx, told)
        exit = await _attend(running)
        if exit is None:
            return await _pass_timeout(running, ctx, told)
        return ended(running, exit, settle(where.read(), ctx.cwd, ctx.workspace.project), told)
    except StartError as problem:
        return _not_started(problem, ctx)
    finally:
        where.close()


async def _attend(running: Running) -> Exit | None:
    """Wait for the end; None when the timeout came first."""
    exit = None
    try:
        with anyio.move_on_after(running.request.timeout_ms / 1000):
            exit = await running.child.wait()
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await _end(running, _GRACE)
        raise
    if exit is not None:
        running.printed.finish()
    return exit


async def _end(running: Running, grace: float) -> None:
    with suppress(NotEnded):  # the custody tries again, and says so
        await running.child.end(grace)
    running.printed.finish()


async def _pass_timeout(running: Running, ctx: ToolContext, told: Told) -> Output | Failure:
    if not running.request.may_move or _is_killed(running.request.command, told.shell):
        with anyio.CancelScope(shield=True):
            await _end(running, _GRACE)
        return timed_out(running, told.shell)
    output = told.so_far(running) if told.shell.moved_keeps_output else ""
    _leave_in_background(running, ctx)
    return told.in_background(running, by_timeout=True, output=output)


async def _start_in_background(running: Running, ctx: ToolContext, told: Told) -> Output:
    output = ""
    _leave_in_background(running, ctx)
    if not running.request.background and told.shell.merged:
        with anyio.move_on_after(_AT_ONCE):
            await running.child.wait()
            output = told.so_far(running)
    return told.in_background(running, by_timeout=False, output=output)


def _is_killed(command: str, shell: ShellValues) -> bool:
    commands = parse_line(command) or ()
    return any(first.name in shell.killed_at_timeout for first in commands[:1])


def _leave_in_background(running: Running, ctx: ToolContext) -> None:
    running.printed.spill()
    ctx.workspace.tasks.add(
        Task(
            id=running.task_id,
            call_id=ctx.call.id,
            command=running.request.command,
            description=running.request.description,
            child=running.child,
            printed=running.printed,
            path=running.file,
        )
    )


def _not_started(problem: StartError, ctx: ToolContext) -> Failure:
    cwd, project = ctx.cwd, ctx.workspace.project
    if cwd.is_dir():
        raise ToolError(f"The command was not run. {problem}", kind="internal")
    text = f"The command was not run: its folder {cwd} does not exist any more."
    if cwd == project or not project.is_dir():
        return Failure(text, kind="not_found")
    text += f" The next one starts in {project}."
    return Failure(text, kind="not_found", modify=move_to(project))
