"""The command line's door to the scripted model.

`python -m toolspan.testing.model_server SCRIPT.json --port 0` serves a script written as JSON (see
`load_script`) until it is interrupted or terminated. The first line it prints is the base URL.
"""

import signal
import sys
from pathlib import Path

import anyio
import click

from toolspan.llm.script import load_script, say
from toolspan.llm.scripted import ScriptedModel, ScriptExhausted
from toolspan.testing.model_api import ModelServer


@click.command()
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--port", default=0, show_default=True, help="Port on 127.0.0.1; 0 is any free one.")
@click.option("--then", metavar="TEXT", help="What to say when the script is at its end.")
def main(script: Path, port: int, then: str | None) -> None:
    """Serve SCRIPT, a JSON list of replies, as the Messages API."""
    try:
        steps = load_script(script.read_bytes())
    except ValueError as error:
        raise click.ClickException(f"{script}: {error}") from error
    model = ScriptedModel(steps, then=say(then) if then else None)
    try:
        anyio.run(_serve, ModelServer(model, port=port))
    except ScriptExhausted as error:
        raise click.ClickException(str(error)) from error


async def _serve(server: ModelServer) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with server:
            sys.stdout.write(f"{server.url}\n")
            sys.stdout.flush()
            async for _ in signals:
                return


if __name__ == "__main__":
    main()
