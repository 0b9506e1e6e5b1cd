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
        "agents": "List subagents with type, prompt, cost and calls.",
        "prompts": "Show the prompts that you wrote, in order.",
        "errors": "Group unsuccessful calls, with causes, solutions and recoveries.",
        "denials": "Show the calls that you refused, and what you said.",
        "risky": "List removals, force pushes, uploads and other risky commands.",
        "hooks": "Show what hooks did, how long they took and what they blocked.",
        "stats": "Show counts, durations and timeouts per tool, and tokens.",
        "usage": "Show tokens and cost by day, model, project, session or agent.",
        "time": "Show where the time went: model, tools, permission, hooks, idle.",
        "digest": "Show a week on one page: cost, worst causes, what is new.",
        "compare": "Compare two sessions, folders, files or periods.",
        "flows": "Show sequences of calls, batches and missed parallelism.",
        "files": "Show what calls did to files: totals, history, content.",
        "disk": "Show how much space sessions take, and how old they are.",
    },
    "Find and fix": {
        "search": "Find calls and messages that contain words.",
        "blame": "Show which call and prompt wrote each line of a file or commit.",
        "restore": "Restore a file as it was before or after a call.",
        "keep": "Copy sessions to an archive before the client deletes them.",
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
        "convert": "Continue a session with another client, or summarize it.",
        "tables": "Write transcripts as Parquet tables, for SQL and other machines.",
    },
    "Run": {
        "demo": "Run, record and read a short sample session.",
        "run": "Run a model with the tools: one prompt, or a conversation.",
        "exec": "Run tool calls from a pipe: messages in, results out.",
        "mcp": "Serve the tools to an MCP client.",
        "acp": "Serve an agent to an editor.",
        "replay": "Run the calls of a session again in a copy and compare.",
        "tools": "List the tools of a session and how their calls run.",
        "trust": "Accept the hooks, rules and MCP servers of a project folder.",
        "hook": "Make Claude Code record when it asks for permission.",
        "guard": "Set limits at which Claude Code stops: cost, tokens, failures.",
        "statusline": "Print one line for Claude Code's status line.",
        "plugin": "Let a client's agent ask about recorded sessions.",
    },
}
COMMANDS = {name: line for group in _GROUPS.values() for name, line in group.items()}
"""Command names and their one-line help."""

_LOCATIONS = {
    "statusline": ("toolspan.cli.guard", "statusline"),
    "why": ("toolspan.cli.permissions", "why_command"),
    "policy": ("toolspan.cli.permissions", "policy_command"),
    "cache": ("toolspan.cli.machine", "cache_command"),  # an unlisted alias of `doctor --cache`
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


_SYNONYMS = {
    "cost": ["usage"], "costs": ["usage"], "tokens": ["usage"], "diff": ["files", "compare"],
    "du": ["disk"], "size": ["disk"], "sizes": ["disk"], "space": ["disk"], "storage": ["disk"],
    "find": ["search"], "fix": ["repair"], "report": ["digest"], "summary": ["digest"], "week": ["digest"],
    "weekly": ["digest"], "fsck": ["doctor"], "grep": ["search"], "html": ["export"],
    "list": ["sessions"], "live": ["sessions --live", "watch"], "log": ["show --last", "calls"], "ls": ["sessions"],
    "open": ["show", "ui"], "ps": ["sessions --live"], "serve": ["ui"], "share": ["export --redact"],
    "tail": ["watch"], "top": ["sessions --live", "stats"], "undo": ["restore"], "web": ["ui"],
}  # fmt: skip
"""The commands to suggest for words that other programs use."""


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
        try:
            command: click.Command = getattr(import_module(module), attribute)
        except ImportError as error:
            raise _missing_extra(error, cmd_name) or error from error
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; `--no-pager` and `--demo` are accepted before and after the command."""
        from toolspan.cli.pager import note_arguments
        from toolspan.cli.sample import take_demo_flag

        return super().parse_args(ctx, note_arguments(ctx, take_demo_flag(ctx, args, [*_GROUPS["Run"]])))

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

            near = _SYNONYMS.get(args[0]) or get_close_matches(args[0], COMMANDS, n=2, cutoff=0.6)
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
        except ModuleNotFoundError as error:  # only some inputs need the package
            raise _missing_extra(error, ctx.invoked_subcommand or "") or error from error
        except BrokenPipeError as error:  # click would exit with code 1
            raise click.exceptions.Exit(EXIT_OUTPUT_CLOSED) from error


class _CommandError(click.ClickException):
    exit_code = 2

    def show(self, file: Any = None) -> None:
        from toolspan.cli.output import warn

        warn(self.message, file)


def _missing_extra(error: ImportError, command: str) -> _CommandError | None:
    """Return the message about a package of an extra, or None if it is another package."""
    from toolspan.extras import missing_extra

    # The extra `acp` includes `run`, so that one command installs both.
    missing = missing_extra(error, f"toolspan {command}", extra="acp" if command == "acp" else None)
    return None if missing is None else _CommandError(str(missing))


_OLD_NAMES = {"dialect": "client"}
"""Former names of options and of values such as `--by client`, which still work."""
_CONTEXT_SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "token_normalize_func": lambda name: _OLD_NAMES.get(name, name),
}


@click.group(cls=LazyCommandGroup, context_settings=_CONTEXT_SETTINGS, invoke_without_command=True)
@click.version_option(package_name="toolspan")
@click.option("--json", "as_json", is_flag=True, help="Print the overview as one JSON object.")
@click.option("--since", metavar="TIME", help="Begin the overview at this time, such as 1h or yesterday.")
@click.option("--demo", is_flag=True, expose_value=False, help="Read a sample archive instead of your transcripts.")
@click.pass_context
def app(ctx: click.Context, *, as_json: bool, since: str | None) -> None:
    """Run, record and read the tool calls of coding agents.

    Without a command, toolspan prints an overview of the last seven days and suggests what to
    type next.

    Long output goes through $TOOLSPAN_PAGER, $PAGER or less; --no-pager prints it directly.

    Shell completion: eval "$(_TOOLSPAN_COMPLETE=bash_source toolspan)"; use zsh_source or
    fish_source for those shells.
    """
    if ctx.invoked_subcommand is None:
        from toolspan.archive.filters import parse_since
        from toolspan.cli.overview import print_overview

        print_overview(as_json=as_json, since=None if since is None else parse_since(since))
    elif since is not None:
        raise click.UsageError(f"write --since after the command: toolspan {ctx.invoked_subcommand} --since {since}")
