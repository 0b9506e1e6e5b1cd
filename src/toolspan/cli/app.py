"""The table of commands, and a click group that imports each command's module only when it runs."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

_GROUPS = {
    "Look": {
        "sessions": "List sessions.",
        "show": "Show a session as a timeline, or one call in detail.",
        "calls": "List tool calls, one row each.",
        "errors": "Group failed calls, with causes, solutions and recoveries.",
        "stats": "Show counts, durations and timeouts per tool, and tokens.",
        "usage": "Show tokens and cost by day, model, project, session or agent.",
        "time": "Show where the time went: model, tools, permission, hooks, idle.",
        "compare": "Compare two sessions, folders, files or periods.",
        "flows": "Show sequences of calls, batches and missed parallelism.",
        "files": "Show what calls did to files: totals, history, content.",
    },
    "Find and fix": {
        "search": "Find calls and messages that contain words.",
        "restore": "Restore a file as it was before or after a call.",
        "doctor": "Check transcripts for damage; inspect the cache.",
        "repair": "Make a repaired copy of a damaged session that the client can resume.",
        "why": "Explain who allowed or denied a call, and why.",
        "policy": "Test permission rules on a command or a recorded session.",
    },
    "Watch": {
        "watch": "Follow sessions as they grow.",
        "ui": "Open the web UI: sessions, errors, usage, files, live.",
    },
    "Share and scale": {
        "export": "Export sessions as JSON, CSV, Markdown, HTML or traces.",
        "tables": "Write transcripts as Parquet tables, for SQL and other machines.",
    },
    "Run": {
        "demo": "Run, record and read a short sample session.",
        "run": "Run a model with the tools: one prompt, or a conversation.",
        "exec": "Run tool calls from a pipe: messages in, results out.",
        "mcp": "Serve the tools to an MCP client.",
        "replay": "Run the calls of a session again in a copy and compare.",
        "tools": "List the tools of a session and how their calls run.",
        "trust": "Accept the hooks, rules and MCP servers of a project folder.",
        "hook": "Make Claude Code record when it asks for permission.",
    },
}
COMMANDS = {name: line for group in _GROUPS.values() for name, line in group.items()}
"""Command names and their one-line help."""

_LOCATIONS = {
    "why": ("toolspan.cli.permissions", "why_command"),
    "policy": ("toolspan.cli.permissions", "policy_command"),
    "cache": ("toolspan.cli.doctor", "cache_command"),  # an unlisted alias of `doctor --cache`
}
"""Module and attribute of each command that is not at `toolspan.cli.NAME.command`."""

EXIT_OUTPUT_CLOSED = 141
"""Exit code if standard output was closed by its reader, the same as a shell reports for SIGPIPE."""


_EXIT_CODES = [
    ("0", "Success."),
    ("1", "The check failed: doctor found damage, replay found a difference, the model did not finish (run -p), "
          "a folder is not trusted (trust --check)."),
    ("2", "A name, file or option is wrong."),
    ("3", "The output cannot be written."),
    ("130", "Interrupted with Ctrl-C."),
    ("141", "The output was closed by its reader."),
]  # fmt: skip


class LazyCommandGroup(click.Group):
    """A group that lists its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all listed commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, or None if there is no command with that name."""
        if cmd_name not in COMMANDS and cmd_name not in _LOCATIONS:
            return None
        module, attribute = _LOCATIONS.get(cmd_name, (f"toolspan.cli.{cmd_name}", "command"))
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; `--no-pager` is accepted before and after the command."""
        from toolspan.cli.pager import note_arguments

        return super().parse_args(ctx, note_arguments(ctx, args))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands without importing any of them."""
        for group, commands in _GROUPS.items():
            with formatter.section(group):
                formatter.write_dl(list(commands.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes after the commands."""
        with formatter.section("Exit codes"):
            formatter.write_dl(_EXIT_CODES)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or fail with the most similar name as a suggestion."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=2, cutoff=0.6)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(error.message + hint, ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. A `ToolspanError` is printed as one line and exits with code 2."""
        from toolspan.cli.pager import page_output
        from toolspan.errors import ToolspanError

        try:
            with page_output(ctx):
                result = super().invoke(ctx)
                if "toolspan.cli.output" in sys.modules:
                    from toolspan.cli.output import print_zone_note

                    print_zone_note(ctx)
                return result
        except ToolspanError as error:
            raise _CommandError(str(error)) from error
        except BrokenPipeError as error:  # click would exit with code 1
            raise click.exceptions.Exit(EXIT_OUTPUT_CLOSED) from error


class _CommandError(click.ClickException):
    exit_code = 2

    def show(self, file: Any = None) -> None:
        from toolspan.cli.output import warn

        warn(self.message, file)


@click.group(
    cls=LazyCommandGroup, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True
)
@click.version_option(package_name="toolspan")
@click.option("--json", "as_json", is_flag=True, help="Print the overview as one JSON object.")
@click.pass_context
def app(ctx: click.Context, *, as_json: bool) -> None:
    """Run, record and read the tool calls of coding agents.

    Without a command, toolspan prints an overview of the last seven days and suggests what to
    type next.

    Long output goes through $TOOLSPAN_PAGER, $PAGER or less; --no-pager prints it directly.

    Shell completion: eval "$(_TOOLSPAN_COMPLETE=bash_source toolspan)"; use zsh_source or
    fish_source for those shells.
    """
    if ctx.invoked_subcommand is None:
        from toolspan.cli.overview import print_overview

        print_overview(as_json=as_json)
