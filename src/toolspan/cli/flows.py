"""`toolspan flows`: what was done about errors; sequences, batches, missed parallelism."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import groupby
from statistics import median
from typing import Any

import click
import msgspec
from msgspec import Struct

from toolspan.cli.gather import gather_meant
from toolspan.cli.output import (
    console,
    count,
    duration,
    escape,
    print_json,
    print_table,
    short,
    table,
)
from toolspan.cli.select import Filter, filters, limited, named, wanted_filter
from toolspan.model.span import moment
from toolspan.read.spread import Job
from toolspan.report.flow.batches import Together
from toolspan.report.flow.chains import CHAIN_NAMES, Chain
from toolspan.report.flow.flows import FileFlows, Flows, file_flows
from toolspan.report.flow.missed import Missed
from toolspan.report.flow.sequences import Flow

_ARROW = " → "
_EXAMPLES = 3
_UNTRIED = "(nothing tried)"


class _Shown(Struct, frozen=True, kw_only=True):
    """What is to be told."""

    calls: int | None
    """Of how many calls; None where a filter chose among them."""
    chains: list[Chain]
    flows: list[Flow]
    batches: list[Together]
    missed: list[Missed]
    steps: Counter[tuple[str, ...]]


@click.command("flows")
@named
@click.option("--last", is_flag=True, help="The session written to last.")
@click.option(
    "--chain", multiple=True, type=click.Choice(CHAIN_NAMES), metavar="NAME",
    help="Only these recovery chains, each in full (repeatable).",
)  # fmt: skip
@click.option("--length", default=3, show_default=True, type=click.IntRange(2, 8),
              help="Steps of a sequence.")  # fmt: skip
@click.option("--every", is_flag=True, help="In sequences, one tool used twice is two steps.")
@limited(10, "Rows of each table")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per chain, flow, batch, …")
@filters
def command(
    names: tuple[str, ...],
    *,
    last: bool,
    chain: tuple[str, ...],
    limit: int,
    as_json: bool,
    **wanted: Any,
) -> None:
    """What was done about errors, and how calls follow each other.

    Filters that choose calls (tool, state, error, agent, time) choose recovery chains by the call
    that failed; sequences are of whole sessions, those of which some part lies in that time.
    """
    length, every = wanted.pop("length"), wanted.pop("every")
    keep = wanted_filter(wanted)
    found = Flows(_read(names, keep, last=last))
    shown = _chosen(found, keep, chain, found.steps(length, runs=not every))
    if as_json:
        _print_rows(shown, limit, only_chains=bool(chain))
    elif chain:
        _print_in_full(shown.chains, limit)
    else:
        _print(shown, limit)


def _read(names: Sequence[str], keep: Filter, *, last: bool) -> list[FileFlows]:
    def meant(file: FileFlows) -> bool:
        return _overlaps(file, keep)

    return gather_meant(names, Job(file_flows, FileFlows), keep, last=last, also=meant)


def _overlaps(file: FileFlows, keep: Filter) -> bool:
    """Whether a file tells of the time that is asked about."""
    first, last = moment(file.info.started_at), moment(file.info.ended_at)
    return (keep.since is None or last is None or last >= keep.since) and (
        keep.until is None or first is None or first < keep.until
    )


def _chosen(
    found: Flows, keep: Filter, names: Sequence[str], steps: Counter[tuple[str, ...]]
) -> _Shown:
    rest = keep._replace(project=None, session=None, dialect=None)  # files were chosen by these
    in_time = _window(keep)
    return _Shown(
        calls=found.calls if rest == Filter() else None,
        chains=[
            chain
            for chain in found.chains
            if rest.takes(chain.start) and (not names or chain.name in names)
        ],
        flows=[one for one in found.flows if in_time(one.requested)],
        batches=[one for one in found.batches if in_time(one.requested)],
        missed=[one for one in found.missed if in_time(one.requested)],
        steps=steps,
    )


def _window(keep: Filter) -> Callable[[str | None], bool]:
    if keep.since is None and keep.until is None:
        return lambda _: True
    since, until = keep.since, keep.until

    def inside(text: str | None) -> bool:
        at: datetime | None = moment(text)
        return at is not None and (since is None or at >= since) and (until is None or at < until)

    return inside


def _print_rows(shown: _Shown, limit: int, *, only_chains: bool) -> None:
    kinds: dict[str, Sequence[Struct]] = {"chain": shown.chains}
    if not only_chains:
        kinds |= {"flow": shown.flows, "batch": shown.batches, "missed": shown.missed}
    for kind, rows in kinds.items():
        for row in rows[-limit:]:  # all of them, when it is 0
            print_json({"type": kind, **msgspec.to_builtins(row)})
    if not only_chains:
        for tools, n in shown.steps.most_common(limit or None):
            print_json({"type": "sequence", "tools": list(tools), "count": n})


def _print(shown: _Shown, limit: int) -> None:
    _print_answer(shown)
    _print_chains(shown.chains)
    _print_evasions(shown.chains, limit)
    _print_batches(shown.batches)
    _print_missed(shown.missed)
    _print_flows(shown.flows)
    _print_steps(shown.steps, limit)


def _print_answer(shown: _Shown) -> None:
    out = console()
    good = [chain for chain in shown.chains if chain.outcome == "recovered"]
    calls = "" if shown.calls is None else f" in {count(shown.calls, 'call')}"
    if not shown.chains:
        out.print(f"[bold]0[/] failures{calls}")
        return
    ways = Counter(chain.name for chain in good).most_common(1)
    mostly = f", mostly by {ways[0][0]} ({ways[0][1]:,})" if ways else ""
    failed = len({name for chain in shown.chains for name in chain.failures})
    again = f" ({count(failed, 'call')} with their retries)" if failed > len(shown.chains) else ""
    out.print(
        f"[bold]{len(good):,}[/] of {count(len(shown.chains), 'failure')}{again}{calls} "
        f"{'was' if len(good) == 1 else 'were'} recovered "
        f"({len(good) / len(shown.chains):.0%}){mostly}"
    )


def _print_chains(chains: Sequence[Chain]) -> None:
    if not chains:
        return
    numbers = ("chains", "recovered", "abandoned", "blocked", "p50", "tokens")
    listing = table("what was tried", *numbers, right=numbers)
    rows = Counter(chain.name for chain in chains).most_common()
    for name, n in sorted(rows, key=lambda row: row[0] is None):
        members = [chain for chain in chains if chain.name == name]
        ends = Counter(chain.outcome for chain in members)
        walls = [chain.wall_ms for chain in members if chain.wall_ms is not None]
        spent = sum(chain.tokens.output_tokens for chain in members if chain.tokens)
        listing.add_row(
            name or f"[dim]{_UNTRIED}[/]",
            f"{n:,}",
            *(
                f"{ends[end]:,}" if ends[end] else ""
                for end in ("recovered", "abandoned", "blocked")
            ),
            duration(median(walls)) if name and walls else "",
            _thousands(spent) if name else "",
        )
    print_table(listing)


def _thousands(n: int) -> str:
    if n < 1_000:
        return str(n) if n else ""
    return f"{n / 1000:,.1f}k"


def _print_evasions(chains: Sequence[Chain], limit: int) -> None:
    evasions = [chain for chain in chains if chain.evasion]
    if not evasions:
        return
    out = console()
    out.print(
        f"\n[bold yellow]{count(len(evasions), 'possible evasion')}[/]: another tool did what had "
        "just been refused"
    )
    _print_each(evasions, limit)


def _print_in_full(chains: Sequence[Chain], limit: int) -> None:
    out = console()
    good = sum(chain.outcome == "recovered" for chain in chains)
    out.print(f"[bold]{count(len(chains), 'chain')}[/], {good:,} recovered\n")
    _print_each(chains, limit)


def _print_each(chains: Sequence[Chain], limit: int) -> None:
    out = console()
    shown = sorted(chains, key=lambda chain: chain.start.requested or "")
    for chain in shown[-limit:] if limit else shown:
        start = chain.start
        steps = [_step(start.tool or "?", start.error_kind or start.state)]
        steps += [_step(one.tool, one.error_kind or _mark(one.state)) for one in chain.links]
        style = {"recovered": "green", "abandoned": "red", "blocked": "yellow"}[chain.outcome]
        out.print(
            f"  [{style}]{chain.outcome:9}[/] {_ARROW.join(_folded(steps))}"
            f"  [dim]{duration(chain.wall_ms)}[/]",
        )
        about = escape(short(start.target, max(out.width - 46, 20)))
        line = f"            [dim]{escape(start.id)}  {about}[/]"
        out.print(line, no_wrap=True, overflow="ellipsis")


def _step(tool: str, said: str) -> str:
    name = escape(short(tool, 40))
    return f"{name}({said})" if said else name


def _mark(state: str) -> str:
    return "" if state == "succeeded" else state


def _folded(steps: Sequence[str]) -> list[str]:
    """The steps, with the same one again and again told once."""
    runs = [(step, sum(1 for _ in same)) for step, same in groupby(steps)]
    return [step if n == 1 else f"{step} ×{n}" for step, n in runs]


def _print_batches(batches: Sequence[Together]) -> None:
    if not batches:
        return
    serial = sum(batch.serial for batch in batches)
    wide = [batch for batch in batches if batch.concurrency > 1]
    saved = sum(batch.saved_ms for batch in wide)
    most = max(batch.concurrency for batch in batches)
    console().print(
        f"\n[bold]{_batches(len(batches))}[/] of several calls: {len(wide):,} ran at the same time "
        f"(up to {most} at once, {duration(saved)} of overlap), "
        f"{serial:,} one after another (batched, serial)"
    )


def _batches(n: int, sort: str = "") -> str:
    return f"{n:,} {sort}batch" + ("" if n == 1 else "es")


def _print_missed(missed: Sequence[Missed]) -> None:
    if not missed:
        return
    out = console()
    saved = sum(one.saved_ms for one in missed)
    spent = sum(one.messages for one in missed)
    out.print(
        f"\n[bold]{_batches(len(missed), 'missed ')}[/]: "
        f"{spent:,} messages asked one by one for reads and searches that did not need each other; "
        f"together, up to [bold]{duration(saved)}[/] less"
    )
    ranked = sorted(missed, key=lambda one: -one.saved_ms)
    for one in ranked[:_EXAMPLES]:
        pairs = zip(one.tools, one.targets, strict=True)
        told = ", ".join(f"{tool} {_tail(target)}" for tool, target in pairs)
        out.print(f"  [dim]{duration(one.saved_ms):>8}[/]  {escape(short(told, out.width - 14))}")


def _tail(target: str | None) -> str:
    """The end of a path, or the beginning of anything else."""
    text = (target or "").replace("\\", "/")
    return text[:40] if " " in text.partition("/")[0] else text.rpartition("/")[2][:40]


def _print_flows(flows: Sequence[Flow]) -> None:
    if not flows:
        return
    listing = table("known flow", "times", "e.g.", right=("times",), cut=("e.g.",))
    for name, n in Counter(flow.name for flow in flows).most_common():
        example = next(flow for flow in flows if flow.name == name)
        steps = [escape(short(tool, 30)) for tool in example.tools]
        listing.add_row(name, f"{n:,}", _ARROW.join(_folded(steps)))
    print_table(listing)


def _print_steps(steps: Counter[tuple[str, ...]], limit: int) -> None:
    if not steps:
        return
    listing = table("times", "sequence", right=("times",), cut=("sequence",))
    for tools, n in steps.most_common(limit or None):
        listing.add_row(f"{n:,}", _ARROW.join(escape(short(tool, 40)) for tool in tools))
    print_table(listing)
