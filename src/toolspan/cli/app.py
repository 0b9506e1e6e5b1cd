"""The table of commands. Each command's module is imported only when it runs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

COMMANDS = {
    "demo": "See it work on a small sample archive.",
    "run": "Let a model work with the tools: one prompt, or a conversation.",
    "exec": "Run tool calls from a pipe: messages in, results out.",
    "mcp": "Offer the tools to an MCP client, under permissions and on record.",
    "tools": "Which tools a session has, and how their calls are run.",
    "trust": "Accept what a project folder would have run: hooks, rules, servers.",
    "hook": "Have Claude Code note when it asks for consent.",
    "sessions": "List conversations.",
    "show": "Tell a session as a timeline, or one call in full.",
    "calls": "List tool calls, one row each.",
    "errors": "What went wrong, grouped, with causes and solutions.",
    "stats": "Counts, durations and timeouts per tool; tokens.",
    "time": "Where the time went: model, tools, permission, hooks, idle.",
    "flows": "What was done about errors; sequences, batches, missed parallelism.",
    "search": "Find the calls and messages in which words stand.",
    "files": "What calls did to files; the history and the content of one.",
    "restore": "Give a file the content it had before or after a call.",
    "replay": "Run the calls of a session again in a copy; what differs?",
    "export": "Sessions as JSON, CSV, Markdown or traces; redacted on demand.",
    "watch": "Follow sessions as they grow.",
    "why": "Who decided whether a call may run, and why.",
    "policy": "What permission rules would do, to a command or to a whole session.",
    "cache": "What is remembered about files; forget it.",
    "doctor": "Diagnose a transcript: damage, orphans, drift.",
    "repair": "Make a sound copy of a damaged session, which the client resumes.",
}
"""Name and one-line help; the command itself is `toolspan.cli.NAME.command`."""


EXIT_OUTPUT_CLOSED = 141
"""Exit code: the reader of the output went away, as a shell reports it of any program."""


class LazyCommandGroup(click.Group):
    """A group that knows its commands by name and loads them late."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"toolspan.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what toolspan raises on purpose becomes one line and exit code 2."""
        from toolspan.errors import ToolspanError

        try:
            return super().invoke(ctx)
        except ToolspanError as error:
            raise _CommandError(str(error)) from error
        except BrokenPipeError as error:  # click would call it a failure
            raise click.exceptions.Exit(EXIT_OUTPUT_CLOSED) from error


class _CommandError(click.ClickException):
    """One line for the person, exit code 2."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        """Print the line."""
        from toolspan.cli.output import warn

        warn(self.message, file)


@click.group(
    cls=LazyCommandGroup, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True
)
@click.version_option(package_name="toolspan")
@click.option("--json", "as_json", is_flag=True, help="The overview as one JSON object.")
@click.pass_context
def app(ctx: click.Context, *, as_json: bool) -> None:
    """Run, record and read the tool calls of coding agents.

    Without a command: an overview of the last seven days, and what to type next.

    Exit codes: 0 done; 1 done, and not well: doctor found something wrong, replay a difference, a
    model did not come to its end (run -p), a folder is not trusted (trust --check); 2 a name, file
    or option is wrong; 3 the output cannot be written; 130 stopped with Ctrl-C; 141 the reader of
    the output went away.

    Shell completion: eval "$(_TOOLSPAN_COMPLETE=bash_source toolspan)", likewise zsh and fish.
    """
    if ctx.invoked_subcommand is None:
        from toolspan.cli.overview import print_overview

        print_overview(as_json=as_json)
