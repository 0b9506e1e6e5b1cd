"""The command line: thin, one file per command. `app.py` holds the table of commands."""


def main() -> None:
    """Run `toolspan`."""
    from toolspan.cli.app import app

    app()
