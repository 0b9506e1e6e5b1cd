"""`toolspan flows`: sequences of calls, batches and missed parallelism, or recovery chains with `--chain`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import click
import msgspec
from msgspec import Struct

from toolspan.analysis.flows import FileFlows, Flow, Flows, MissedBatch, MultiCallBatch, file_flows
from toolspan.analysis.recovery import CHAIN_NAMES, RecoveryChain
from toolspan.cli.output import (
    escape_markup,
    format_count,
    format_duration,
    make_console,
    make_table,
    print_json,
    print_table,
    shorten_line,
)
from toolspan.cli.select import (
    CallFilter,
    filter_options,
    last_option,
    limit_option,
    names_argument,
    read_filtered_files,
)
from toolspan.reading.parallel import FileJob
from toolspan.types.span import parse_timestamp

_STEP_SEPARATOR = " → "
_MAX_EXAMPLES = 3


class _FlowReport(Struct, frozen=True, kw_only=True):
    calls: int | None
    """The number of calls; None if a filter selects calls."""
    chains: list[RecoveryChain]
    flows: list[Flow]
    batches: list[MultiCallBatch]
    missed: list[MissedBatch]
    steps: Counter[tuple[str, ...]]


@click.command("flows")
@names_argument
@last_option
@click.option(
    "--chain", multiple=True, type=click.Choice(CHAIN_NAMES), metavar="NAME",
    help="Show each recovery chain of this name (repeatable).",
)  # fmt: skip
@click.option("--length", default=3, show_default=True, type=click.IntRange(2, 8),
              help="Number of calls in a sequence.")  # fmt: skip
@click.option("--every", is_flag=True, help="Count repeated calls of one tool as separate steps.")
@limit_option(10, "rows per table")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per chain, flow, batch, …")
@filter_options
def command(
    names: tuple[str, ...], *, last: bool, chain: tuple[str, ...], limit: int, as_json: bool, **filter_values: Any
) -> None:
    """Show how calls follow each other: sequences, batches and missed parallelism.

    `toolspan errors` shows how failures were recovered; --chain lists the recoveries one by one.
    Filters on calls (tool, state, error, agent, time) select recovery chains by the call that
    failed. Sequences always cover whole sessions, those that overlap the selected time.
    """
    length, every = filter_values.pop("length"), filter_values.pop("every")
    call_filter = CallFilter.from_options(filter_values)
    flows = Flows(_read_flows(names, call_filter, last=last))
    report = _filter_flows(flows, call_filter, chain, flows.count_sequences(length, runs=not every))
    if as_json:
        _print_json_rows(report, limit, only_chains=bool(chain))
    elif chain:
        _print_chains_in_full(report.chains, limit)
    else:
        _print_report(report, limit)


def _read_flows(names: Sequence[str], call_filter: CallFilter, *, last: bool) -> list[FileFlows]:
    def is_in_period(file: FileFlows) -> bool:
        first, last = parse_timestamp(file.info.started_at), parse_timestamp(file.info.ended_at)
        return (call_filter.since is None or last is None or last >= call_filter.since) and (
            call_filter.until is None or first is None or first < call_filter.until
        )

    return read_filtered_files(names, FileJob(file_flows, FileFlows), call_filter, last=last, predicate=is_in_period)


def _filter_flows(
    flows: Flows, call_filter: CallFilter, names: Sequence[str], steps: Counter[tuple[str, ...]]
) -> _FlowReport:
    rest = call_filter.without_file_filters()
    in_time = call_filter.accepts_time
    return _FlowReport(
        calls=flows.calls if rest == CallFilter() else None,
        chains=[
            chain for chain in flows.chains if rest.accepts_call(chain.start) and (not names or chain.name in names)
        ],
        flows=[item for item in flows.flows if in_time(item.requested)],
        batches=[item for item in flows.batches if in_time(item.requested)],
        missed=[item for item in flows.missed if in_time(item.requested)],
        steps=steps,
    )


def _print_json_rows(report: _FlowReport, limit: int, *, only_chains: bool) -> None:
    kinds: dict[str, Sequence[Struct]] = {"chain": report.chains}
    if not only_chains:
        kinds |= {"flow": report.flows, "batch": report.batches, "missed": report.missed}
    for kind, rows in kinds.items():
        for row in rows[-limit:]:  # all of them if the limit is 0
            print_json({"type": kind, **msgspec.to_builtins(row)})
    if not only_chains:
        for tools, n in report.steps.most_common(limit or None):
            print_json({"type": "sequence", "tools": list(tools), "count": n})


def _print_report(report: _FlowReport, limit: int) -> None:
    _print_headline(report)
    _print_evasions(report.chains, limit)
    _print_batches(report.batches)
    _print_missed(report.missed)
    _print_flows(report.flows)
    _print_steps(report.steps, limit)


def _print_headline(report: _FlowReport) -> None:
    out = make_console()
    recovered = [chain for chain in report.chains if chain.outcome == "recovered"]
    calls = "" if report.calls is None else f" in {format_count(report.calls, 'call')}"
    if not report.chains:
        out.print(f"[bold]0[/] failures{calls}")
        return
    ways = Counter(chain.name for chain in recovered).most_common(1)
    mostly = f", mostly by {ways[0][0]} ({ways[0][1]:,})" if ways else ""
    failed = len({name for chain in report.chains for name in chain.failures})
    again = f" ({format_count(failed, 'call')} with their retries)" if failed > len(report.chains) else ""
    out.print(
        f"[bold]{len(recovered):,}[/] of {format_count(len(report.chains), 'failure')}{again}{calls} "
        f"{'was' if len(recovered) == 1 else 'were'} recovered "
        f"({len(recovered) / len(report.chains):.0%}){mostly}  [dim](see toolspan errors)[/]"
    )


def _print_evasions(chains: Sequence[RecoveryChain], limit: int) -> None:
    evasions = [chain for chain in chains if chain.evasion]
    if not evasions:
        return
    out = make_console()
    out.print(
        f"\n[bold yellow]{format_count(len(evasions), 'possible evasion')}[/]: another tool did what had "
        "just been denied"
    )
    _print_each(evasions, limit)


def _print_chains_in_full(chains: Sequence[RecoveryChain], limit: int) -> None:
    out = make_console()
    recovered = sum(chain.outcome == "recovered" for chain in chains)
    out.print(f"[bold]{format_count(len(chains), 'chain')}[/], {recovered:,} recovered\n")
    _print_each(chains, limit)


def _print_each(chains: Sequence[RecoveryChain], limit: int) -> None:
    out = make_console()
    ordered = sorted(chains, key=lambda chain: chain.start.requested or "")
    for chain in ordered[-limit:]:  # all of them if the limit is 0
        start = chain.start
        steps = [_format_step(start.tool or "?", start.error_kind or start.state)]
        steps += [_format_step(link.tool, link.error_kind or _state_note(link.state)) for link in chain.links]
        style = {"recovered": "green", "abandoned": "red", "blocked": "yellow"}[chain.outcome]
        out.print(
            f"  [{style}]{chain.outcome:9}[/] {_STEP_SEPARATOR.join(_collapse_repeats(steps))}"
            f"  [dim]{format_duration(chain.wall_ms)}[/]"
        )
        about = escape_markup(shorten_line(start.target, max(out.width - 46, 20)))
        line = f"            [dim]{escape_markup(start.id)}  {about}[/]"
        out.print(line, no_wrap=True, overflow="ellipsis")


def _format_step(tool: str, note: str) -> str:
    name = escape_markup(shorten_line(tool, 40))
    return f"{name}({note})" if note else name


def _state_note(state: str) -> str:
    return "" if state == "succeeded" else state


def _collapse_repeats(steps: Sequence[str]) -> list[str]:
    """Merge repeated steps, as in `Bash ×3`."""
    runs = [(step, sum(1 for _ in same)) for step, same in groupby(steps)]
    return [step if n == 1 else f"{step} ×{n}" for step, n in runs]


def _print_batches(batches: Sequence[MultiCallBatch]) -> None:
    if not batches:
        return
    serial = sum(batch.serial for batch in batches)
    wide = [batch for batch in batches if batch.concurrency > 1]
    saved = sum(batch.saved_ms for batch in wide)
    most = max(batch.concurrency for batch in batches)
    make_console().print(
        f"\n[bold]{_format_batch_count(len(batches))}[/] of several calls: {len(wide):,} ran in parallel "
        f"(up to {most} at once, {format_duration(saved)} of overlap), "
        f"{serial:,} one after another"
    )


def _format_batch_count(n: int, sort: str = "") -> str:
    return f"{n:,} {sort}batch" + ("" if n == 1 else "es")


def _print_missed(missed: Sequence[MissedBatch]) -> None:
    if not missed:
        return
    out = make_console()
    saved = sum(batch.saved_ms for batch in missed)
    spent = sum(batch.messages for batch in missed)
    out.print(
        f"\n[bold]{_format_batch_count(len(missed), 'missed ')}[/]: "
        f"{spent:,} messages requested independent reads and searches one by one; "
        f"in parallel they would have taken up to [bold]{format_duration(saved)}[/] less"
    )
    ranked = sorted(missed, key=lambda batch: -batch.saved_ms)
    for batch in ranked[:_MAX_EXAMPLES]:
        pairs = zip(batch.tools, batch.targets, strict=True)
        summary = ", ".join(f"{tool} {_shorten_target(target)}" for tool, target in pairs)
        out.print(
            f"  [dim]{format_duration(batch.saved_ms):>8}[/]  {escape_markup(shorten_line(summary, out.width - 14))}"
        )


def _shorten_target(target: str | None) -> str:
    """Return the last part of a path, or the beginning of any other target."""
    text = (target or "").replace("\\", "/")
    return text[:40] if " " in text.partition("/")[0] else text.rpartition("/")[2][:40]


def _print_flows(flows: Sequence[Flow]) -> None:
    if not flows:
        return
    table = make_table("known flow", "times", "e.g.", right=("times",), cut=("e.g.",))
    for name, n in Counter(flow.name for flow in flows).most_common():
        example = next(flow for flow in flows if flow.name == name)
        steps = [escape_markup(shorten_line(tool, 30)) for tool in example.tools]
        table.add_row(name, f"{n:,}", _STEP_SEPARATOR.join(_collapse_repeats(steps)))
    print_table(table)


def _print_steps(steps: Counter[tuple[str, ...]], limit: int) -> None:
    if not steps:
        return
    table = make_table("times", "sequence", right=("times",), cut=("sequence",))
    for tools, n in steps.most_common(limit or None):
        table.add_row(f"{n:,}", _STEP_SEPARATOR.join(escape_markup(shorten_line(tool, 40)) for tool in tools))
    print_table(table)
