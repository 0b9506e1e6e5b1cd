"""The table of commands. Each command's module is imported only when it runs."""

from importlib import import_module

import click

COMMANDS = {
    "calls": "Every tool call, one row each.",
}
"""Name and one-line help; the command itself is `toolspan.cli.NAME.command`."""


class Commands(click.Group):
    """A group that knows its commands by name and loads them late."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"toolspan.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands)
@click.version_option(package_name="toolspan")
def app() -> None:
    """Run, record and read the tool calls of coding agents."""
