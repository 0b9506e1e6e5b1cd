"""`toolspan ui`: start the server, or find one that is already running, and open its page in a browser."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import click

from toolspan.cli.output import print_json, warn
from toolspan.cli.sample import sample_folder
from toolspan.cli.select import fetch_stores
from toolspan.errors import NotFound
from toolspan.formats.source import to_path
from toolspan.web.server import UiOptions, open_browser, running_server, serve


@click.command("ui")
@click.argument("paths", nargs=-1, callback=fetch_stores, metavar="[PATH]...")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on.  [default: 8787, or the next free one]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; others need the token.")
@click.option("--timeout", type=click.FloatRange(1), default=60, show_default=True, metavar="SECONDS",
              help="Stop a question of the page after this much CPU time.")  # fmt: skip
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@click.option("--json", "as_json", is_flag=True, help='Print one line, {"url": …}, when the server is ready.')
def command(
    paths: tuple[str, ...], *, port: int | None, host: str, timeout: float, no_open: bool, as_json: bool
) -> None:  # fmt: skip
    """Open a web page with all sessions: their calls, errors, costs and files, and the running ones.

    Without a PATH, it shows all of your transcripts. The server listens on this machine only and
    runs until it is stopped with Ctrl-C. A second start with the same paths opens the page of the
    running server.
    """
    if (sample := sample_folder()) is not None:
        paths = (*paths, str(sample))
    roots = tuple(str(_existing(path)) for path in paths)
    options = UiOptions(roots=roots, host=host, port=port, timeout=timeout)
    if (url := running_server(options)) is not None:
        _announce(url, as_json=as_json)
        if not no_open:
            open_browser(url)
        return

    def ready(make_url: Callable[[], str]) -> None:
        from toolspan.web.security import is_loopback  # perf: the server has imported it

        _announce(make_url(), as_json=as_json)
        if not is_loopback(host):
            _warn_about_network(host, make_url())
        if not no_open and not open_browser(make_url()):
            warn("no browser found; open the address yourself")

    serve(options, ready)


def _warn_about_network(host: str, url: str) -> None:
    port = urlsplit(url).port
    warn(
        f"{host} is reachable from other machines, without encryption: who can read the traffic can read the page and "
        f"answer for you. Safer: without --host, and on the other machine `ssh -N -L {port}:127.0.0.1:{port} "
        f"{getpass.getuser()}@{urlsplit(url).hostname}`, or a proxy with TLS."
    )


def _announce(url: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"url": url})
    else:
        click.echo(f"toolspan ui: {url}\nStop it with Ctrl-C.")
    sys.stdout.flush()


def _existing(path: str) -> Path:
    resolved = to_path(path).expanduser().absolute()
    if not resolved.exists():
        raise NotFound(f"{path}: no such file or folder")
    return resolved
