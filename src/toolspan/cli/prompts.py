"""`toolspan prompts`: the prompts that you wrote, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click
from rich.text import Text

from toolspan.archive.archive import Archive
from toolspan.archive.filters import Filter
from toolspan.archive.prompts import SORT_ALIASES, SORT_COLUMNS, Prompt
from toolspan.archive.words import format_count, format_duration, join_parts, plain_line, plain_lines
from toolspan.cli import lists, select
from toolspan.cli.filters import filter_options
from toolspan.cli.output import cell_width, format_time, make_console, print_json, print_lines, shorten_target

_INDENT = "  "
_TIME_WIDTH = 21


@click.command("prompts")
@select.archive_options(tables=True)
@lists.limit_option(50, "prompts")
@lists.sort_option(*SORT_COLUMNS, **SORT_ALIASES)
@click.option("--full", is_flag=True, help="Print the whole texts.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per prompt.")
@filter_options
def command(*, archive: Archive, limit: int, sort: str | None, full: bool, as_json: bool, call_filter: Filter) -> None:
    """Show the prompts that you wrote, latest last, with the calls that followed each.

    Tasks that a model wrote for a subagent are left out, and so are commands that only the client
    handles, such as /exit. Filters on calls, such as --tool and --state, keep the prompts that were
    followed by such a call.
    """
    prompts = archive.prompts(call_filter, sort=sort, limit=limit)
    if as_json:
        print_json(*prompts)
        return
    out = make_console()
    print_lines(_prompt_lines(prompts, out.width, full=full), out)
    note = lists.limit_note(len(prompts), prompts.total, "first" if sort else "last")
    out.print(format_count(prompts.total, "prompt") + note)
    if prompts:
        search = ("search WORD PATHS --in prompts", "searches them")
        lists.print_hints(archive.names, ("show SESSION:LINE PATHS", "shows what followed a prompt"), search)


def _prompt_lines(prompts: Sequence[Prompt], width: int, *, full: bool) -> Iterator[Text]:
    session = None
    for prompt in prompts:
        if prompt.session != session:
            session = prompt.session
            yield from _session_lines(prompt, width)
        right = Text(f"  {_describe_work(prompt)}  {prompt.session[:13]}:{prompt.line}", style="dim")
        line = Text(_INDENT).append(f"{format_time(prompt.at):{_TIME_WIDTH}}", style="dim")
        room = max(width - cell_width(line.plain) - cell_width(right.plain), 20)
        mark = "┊ " if prompt.branch == "abandoned" else ""
        text = Text(mark + plain_line(prompt.text, room), style="dim" if mark else "")
        text.truncate(room, overflow="ellipsis")
        yield line.append_text(text).append(" " * max(room - text.cell_len, 0)).append_text(right)
        if full:
            yield from (Text(_INDENT * 2 + line) for line in plain_lines(prompt.text)[1:])
            if prompt.characters > len(prompt.text):
                yield Text(f"{_INDENT * 2}… {prompt.characters:,} characters in all", style="dim")


def _session_lines(prompt: Prompt, width: int) -> Iterator[Text]:
    yield Text()
    project = shorten_target(prompt.project, max(width // 3, 20))
    head = join_parts(project, plain_line(prompt.title, width))
    line = Text(head, style="bold")
    line.truncate(width, overflow="ellipsis")
    yield line


def _describe_work(prompt: Prompt) -> str:
    unsuccessful = f"{prompt.unsuccessful:,} ✗" if prompt.unsuccessful else ""
    calls = format_count(prompt.calls, "call") if prompt.calls else ""
    return f"{join_parts(calls, unsuccessful):>16} {format_duration(prompt.duration_ms):>8}"
