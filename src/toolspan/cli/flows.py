"""`toolspan flows`: sequences of calls, batches and missed parallelism, or recovery chains with `--chain`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

import click

from toolspan.analysis.flows import MissedBatch
from toolspan.analysis.recovery import CHAIN_NAMES, CHAIN_WORDS, ChainLink, RecoveryChain
from toolspan.archive.archive import Archive
from toolspan.archive.filters import Filter
from toolspan.archive.flows import FlowReport
from toolspan.archive.words import format_count, format_duration, shorten_line
from toolspan.cli import lists, select
from toolspan.cli.filters import filter_options
from toolspan.cli.output import (
    escape_markup,
    make_console,
    make_table,
    markup_line,
    print_json,
    print_table,
    shorten_target,
)
from toolspan.reading.history import short_id
from toolspan.reading.rows import CallRow

_STEP_SEPARATOR = " → "


@click.command("flows")
@select.archive_options(tables=True)
@click.option(
    "--chain", multiple=True, type=click.Choice(CHAIN_NAMES), metavar="NAME",
    help="Show each recovery chain of this name (repeatable).",
)  # fmt: skip
@click.option("--length", default=3, show_default=True, type=click.IntRange(2, 8),
              help="Number of calls in a sequence.")  # fmt: skip
@click.option("--every", is_flag=True, help="Count repeated calls of one tool as separate steps.")
@lists.limit_option(10, "rows per table")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per chain, flow, batch, …")
@filter_options
def command(
    *, archive: Archive, chain: tuple[str, ...], length: int, every: bool, limit: int, as_json: bool,
    call_filter: Filter,
) -> None:  # fmt: skip
    """Show how calls follow each other: sequences, batches and missed parallelism.

    `toolspan errors` shows how unsuccessful calls were recovered; --chain lists the recoveries one by one.
    Filters on calls (tool, state, error, agent, time) select recovery chains by the call that
    failed. Sequences always cover whole sessions, those that overlap the selected time.
    """
    report = archive.flows(call_filter, chain=chain, length=length, every=every)
    if as_json:
        print_json(*report.to_rows(limit, only_chains=bool(chain)))
        return
    if chain:
        recovered = sum(item.outcome == "recovered" for item in report.chains)
        make_console().print(f"[bold]{format_count(len(report.chains), 'chain')}[/], {recovered:,} recovered\n")
        _print_chains(report.chains, limit)
    else:
        _print_report(report, limit)
    if report.chains or report.missed:
        hints = [lists.CALL_HINT]
        if not chain and report.chains:
            hints.append(("flows PATHS --chain NAME", "lists the recoveries of one kind"))
        make_console().print()
        lists.print_hints(archive.names, *hints)


def _print_report(report: FlowReport, limit: int) -> None:
    _print_headline(report)
    if evasions := [chain for chain in report.chains if chain.evasion]:
        make_console().print(
            f"\n[bold yellow]{format_count(len(evasions), 'possible evasion')}[/]: another tool did what had "
            "just been denied"
        )
        _print_chains(evasions, limit)
    if report.batches:
        serial = sum(batch.serial for batch in report.batches)
        wide = [batch for batch in report.batches if batch.concurrency > 1]
        saved = format_duration(sum(batch.saved_ms for batch in wide))
        most = max(batch.concurrency for batch in report.batches)
        make_console().print(
            f"\n[bold]{len(report.batches):,} batch{'es' * (len(report.batches) != 1)}[/] of several calls: "
            f"{len(wide):,} ran in parallel (up to {most} at once, {saved} of overlap), {serial:,} one after another"
        )
    _print_missed(report.missed, limit)
    if report.flows:
        table = make_table("known flow", "times", "e.g.", right=("times",), cut=("e.g.",))
        for name, n in Counter(flow.name for flow in report.flows).most_common():
            example = next(flow for flow in report.flows if flow.name == name)
            steps = [markup_line(tool, 30) for tool in example.tools]
            table.add_row(name, f"{n:,}", _join_steps(steps))
        print_table(table)
    if report.sequences:
        table = make_table("times", "sequence", right=("times",), cut=("sequence",))
        for row in report.sequences[: limit or None]:
            table.add_row(f"{row.count:,}", _STEP_SEPARATOR.join(markup_line(tool, 40) for tool in row.tools))
        print_table(table)


def _print_headline(report: FlowReport) -> None:
    out = make_console()
    recovered = [chain for chain in report.chains if chain.outcome == "recovered"]
    calls = "" if report.calls is None else f" in {format_count(report.calls, 'call')}"
    if not report.chains:
        out.print(f"[bold]0[/] unsuccessful calls{calls}")
        return
    ways = Counter(chain.name for chain in recovered).most_common(1)
    mostly = f", mostly by: {CHAIN_WORDS[ways[0][0] or '']} ({ways[0][1]:,})" if ways else ""
    retried = len({name for chain in report.chains for name in chain.failures})
    again = f" ({retried:,} with their retries)" if retried > len(report.chains) else ""
    out.print(
        f"[bold]{len(recovered):,}[/] of {format_count(len(report.chains), 'unsuccessful call')}{again}{calls} "
        f"{'was' if len(recovered) == 1 else 'were'} recovered "
        f"({len(recovered) / len(report.chains):.0%}){mostly}  [dim](see toolspan errors)[/]"
    )


def _print_chains(chains: Sequence[RecoveryChain], limit: int) -> None:
    out = make_console()
    ordered = sorted(chains, key=lambda chain: chain.start.requested or "")
    for chain in ordered[-limit:]:  # all of them if the limit is 0
        start = chain.start
        steps = []
        calls: list[CallRow | ChainLink] = [start, *chain.links]
        for call in calls:
            note = call.error_kind or (call.state if call is start or call.state != "succeeded" else "")
            name = markup_line(call.tool or "?", 40)
            steps.append(f"{name}({note})" if note else name)
        style = {"recovered": "green", "abandoned": "red", "blocked": "yellow"}[chain.outcome]
        took = f"[dim]{format_duration(chain.wall_ms):>7}[/]"
        line = f"  [{style}]{chain.outcome:9}[/] {took}  {_join_steps(steps)}"
        out.print(line, no_wrap=True, overflow="ellipsis")
        about = escape_markup(shorten_target(start.target, max(out.width - 55, 20)))
        line = f"                     [dim]{escape_markup(start.id)}  {about}[/]"
        out.print(line, no_wrap=True, overflow="ellipsis")


def _join_steps(steps: Sequence[str]) -> str:
    """Join the steps, merging repeated ones, as in `Bash ×3`."""
    runs = [(step, sum(1 for _ in same)) for step, same in groupby(steps)]
    return _STEP_SEPARATOR.join(step if n == 1 else f"{step} ×{n}" for step, n in runs)


def _print_missed(missed: Sequence[MissedBatch], limit: int) -> None:
    if not missed:
        return
    out = make_console()
    saved = sum(batch.saved_ms for batch in missed)
    spent = sum(batch.messages for batch in missed)
    out.print(
        f"\n[bold]{len(missed):,} missed batch{'es' * (len(missed) != 1)}[/]: "
        f"{spent:,} messages requested independent reads and searches one by one; "
        f"in parallel they would have taken up to [bold]{format_duration(saved)}[/] less"
    )
    ranked = sorted(missed, key=lambda batch: -batch.saved_ms)
    for batch in ranked[: limit or None]:
        pairs = zip(batch.tools, batch.targets, strict=True)
        summary = shorten_line(", ".join(f"{tool} {_shorten_target(target)}" for tool, target in pairs), out.width - 22)
        call = escape_markup(short_id(batch.calls[0])[:8])
        out.print(f"  [dim]{format_duration(batch.saved_ms):>8}[/]  {call:<8}  {escape_markup(summary)}")
    if limit and (hidden := len(missed) - limit) > 0:
        out.print(f"  {hidden:,} more (--limit 0: all)")


def _shorten_target(target: str | None) -> str:
    text = (target or "").replace("\\", "/")
    return text[:40] if " " in text.partition("/")[0] else text.rpartition("/")[2][:40]
