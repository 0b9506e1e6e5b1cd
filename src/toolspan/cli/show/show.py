"""`toolspan show`: a session as a timeline, or one call in full."""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import msgspec
from rich.text import Text

from toolspan.cli.draw import draw, facts, joined
from toolspan.cli.output import STATE_STYLE, console, count, print_json
from toolspan.cli.select import complete_session
from toolspan.cli.show.find import find
from toolspan.cli.show.look import Look
from toolspan.cli.show.portrait import Portrait, call_json, call_lines, period
from toolspan.cli.show.session import session_lines
from toolspan.cli.show.told import Told, transcripts
from toolspan.cli.veiled import deliver, veil, veils
from toolspan.model.span import moment
from toolspan.model.state import SIGNS
from toolspan.model.tokens import Tokens
from toolspan.read.discover import FoundFile
from toolspan.read.timeline import turn_facts
from toolspan.wire.paths import parse_name


@click.command("show")
@click.argument(
    "names", nargs=-1, shell_complete=complete_session, metavar="[FILE|FOLDER|SESSION|CALL]..."
)
@click.option("--last", is_flag=True, help="The session written to last (the default).")
@click.option("--session", help="Look for the call in the session whose id begins so.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option(
    "--messages/--no-messages", default=True, help="Whether the words between calls are told."
)
@click.option("--thinking", is_flag=True, help="The model's thinking too.")
@click.option("--width", type=click.IntRange(40), help="Columns; by default the terminal's.")
@click.option("--full", is_flag=True, help="Texts in full length.")
@click.option("--html", "as_html", is_flag=True, help="One page that needs no network.")
@veils
def command(
    names: tuple[str, ...],
    *,
    last: bool,
    session: str | None,
    as_json: bool,
    width: int | None,
    output: Path | None,
    **wishes: bool,
) -> None:
    """Tell a session as a timeline, or one call in full.

    A session is named by its file or by the beginning of its id; its subagents stand under the
    calls that started them. A call is named by the beginning of its id, and looked for in the files
    and folders named beside it, else in all transcripts.

    Lanes: calls joined by ┌ │ └ ran at the same time; ╷ ╎ ╵ were asked for together and ran one
    after another; ┊ marks what a rewind left behind. Times are UTC.
    """
    if as_json and wishes["as_html"]:
        raise click.UsageError("--json and --html: one of them")
    found = find(names, last=last, session=session)
    page = Page(wishes.pop("as_html"), output, wishes.pop("redact"), wishes.pop("skeleton"))
    if page.wanted:
        page.write(found)
        return
    out = console()
    out.width = width or _columns() or out.width
    told = Told.of(found) if isinstance(found, list) else found
    look = Look(out.width, told.cwd, **wishes)
    if as_json:
        print_json(_session_json(told, look) if isinstance(told, Told) else call_json(told))
        return
    lines = _session_lines(told, look) if isinstance(told, Told) else call_lines(told, look)
    draw(lines, out)


def _columns() -> int | None:
    """The terminal's width, also when the output goes to a pager."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return None


class Page(NamedTuple):
    """What was said about the page that a session may be made into."""

    html: bool
    output: Path | None
    redact: bool
    skeleton: bool

    @property
    def wanted(self) -> bool:
        """Whether a page is to be written.

        Raises:
            UsageError: it is told where or how, but not that it is.
        """
        if not self.html and (self.output or self.redact or self.skeleton):
            raise click.UsageError("-o, --redact and --skeleton go with --html")
        return self.html

    def write(self, found: list[FoundFile] | Portrait) -> None:
        """Write the page of a session.

        Raises:
            UsageError: it is a call, or the page would go to a terminal.
        """
        from toolspan.export import html

        if not isinstance(found, list):
            raise click.UsageError("--html makes a page of a session, not of one call")
        if self.output is None and sys.stdout.isatty():
            raise click.UsageError("a page is not for the terminal: add -o FILE")
        over = veil(redact=self.redact, skeleton=self.skeleton)
        made = html.page(*transcripts(found), veil=over)
        deliver((made.encode("utf-8", "replace"),), self.output)
        if self.output is not None:
            click.echo(f"{self.output}: {len(made) / 1e6:.1f} MB", err=True)


def _session_lines(told: Told, look: Look) -> Iterator[Text]:
    info, width = told.main.info, look.width
    name = info.session_id or parse_name(Path(told.main.file)).stem
    yield from facts("session", joined(name, info.agent_id), width, "bold")
    yield from facts("about", info.title or info.first_prompt, width)
    yield from facts("project", joined(info.cwd, info.git_branch), width)
    yield from facts("client", joined(*info.versions, *info.models), width)
    yield from facts("when", period(moment(info.started_at), moment(info.ended_at)), width)
    yield _calls_line(told, width)
    agents = count(told.agents, "subagent") if told.agents else None
    busiest = f"up to {told.busiest} calls at once" if told.busiest > 1 else None
    yield from facts("", joined(agents, busiest), width, "dim")
    yield from facts("tokens", _spent(told.tokens), width)
    yield from session_lines(told.strand, look)


def _calls_line(told: Told, width: int) -> Text:
    states = Counter(span.state for span in told.spans)
    calls = states.total() - states["orphan_result"]  # which is no call
    (line,) = facts("calls", f"{calls:,}", width)
    for state, n in states.most_common():
        line.append(f"  {SIGNS[state]} {n:,} {state}", style=STATE_STYLE[state])
    line.truncate(width, overflow="ellipsis")
    return line


def _spent(tokens: Tokens) -> str:
    return (
        f"{tokens.input_tokens:,} in · {tokens.output_tokens:,} out · "
        f"{tokens.cache_creation_input_tokens:,} cache writes · "
        f"{tokens.cache_read_input_tokens:,} cache reads"
    )


def _session_json(told: Told, look: Look) -> dict[str, object]:
    session = {
        **msgspec.to_builtins(told.main.info),
        "file": told.main.file,
        "files": [transcript.file for transcript in told.files],
        "calls": Counter(span.state for span in told.spans),
        "agents": told.agents,
        "concurrency": told.busiest,
        "tokens": told.tokens,
    }
    return {"session": session, "turns": turn_facts(told.strand, look.wants)}
