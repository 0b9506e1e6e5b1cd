"""The digest in sections of text, and as one HTML page: `toolspan digest` and `toolspan digest --html`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from html import escape
from typing import NamedTuple

from toolspan.archive.digest import Digest, DigestCause
from toolspan.archive.words import format_count, format_duration, join_parts, replace_unprintable, short_number


class SectionRow(NamedTuple):
    """One line of a section."""

    value: str
    text: str
    note: str = ""
    """A step to take, or another second line."""


def headline(digest: Digest, zone: tzinfo | None) -> str:
    """Return the period and its sums."""
    return join_parts(
        format_period(digest.since, digest.until, zone),
        format_cost(digest.cost_usd, digest.cost_before_usd),
        format_count(digest.sessions, "session"),
        f"{format_count(digest.calls, 'call')}{_format_change(digest.calls, digest.calls_before)}",
        f"{digest.unsuccessful:,} unsuccessful{_format_change(digest.unsuccessful, digest.unsuccessful_before)}",
    )


def format_period(since: datetime, until: datetime, zone: tzinfo | None) -> str:
    """Return the first and the last day of a period."""
    first, last = since.astimezone(zone), (until - timedelta(microseconds=1)).astimezone(zone)
    return f"{first:%Y-%m-%d} to {last:%Y-%m-%d}"


def format_cost(cost: float | None, before: float | None) -> str:
    """Return a cost with its change."""
    return "no cost known" if cost is None else f"${cost:,.2f}{_format_change(cost, before or 0)}"


def _format_change(value: float, before: float) -> str:
    """Return the change to the period before, such as ` (+12%)`; empty if there is nothing to compare with."""
    if not before:
        return " (new)" if value else ""
    change = round(100 * (value - before) / before)
    return f" ({change:+,d}%)" if change else " (±0%)"


def digest_sections(digest: Digest, *, max_projects: int) -> Iterator[tuple[str, Sequence[SectionRow]]]:
    """Yield the title and the rows of each section that is not empty."""
    projects = [
        SectionRow(f"${row.cost_usd:,.2f}", row.project + _format_change(row.cost_usd, row.cost_before_usd))
        for row in digest.projects[:max_projects]
    ]
    if hidden := digest.projects[max_projects:]:
        rest, before = sum(row.cost_usd for row in hidden), sum(row.cost_before_usd for row in hidden)
        projects.append(
            SectionRow(f"${rest:,.2f}", f"{format_count(len(hidden), 'more project')}{_format_change(rest, before)}")
        )
    waited, before = digest.permission_ms, digest.permission_before_ms
    waits = [SectionRow(format_duration(waited), f"waiting for you{_format_change(waited, before)}")] if waited else []
    hooks = [
        SectionRow(
            format_duration(hook.total_ms),
            join_parts(f"{hook.point} {hook.name}", format_count(hook.runs, "run"),
                       f"{hook.blocked:,} blocked" if hook.blocked else ""),
        )
        for hook in digest.hooks
    ]  # fmt: skip
    context = [
        SectionRow(
            f"≈{short_number(tool.resent_tokens)}", f"tokens sent with results of {tool.tool}, {tool.calls:,} calls"
        )
        for tool in digest.context
    ]
    sections = (
        ("Cost by project", projects), ("Worst causes, and one step for each", _cause_rows(digest.causes)),
        ("New", _cause_rows(digest.new if digest.calls_before else (), steps=False)),
        ("Gone", _cause_rows(digest.gone, steps=False)),
        ("Permission", waits), ("Slowest hooks", hooks), ("Context", context),
    )  # fmt: skip
    yield from ((title, rows) for title, rows in sections if rows)


def _cause_rows(causes: Sequence[DigestCause], *, steps: bool = True) -> list[SectionRow]:
    return [
        SectionRow(
            f"{cause.count:,}×",
            f"{cause.who} {cause.kind}"
            + (f", lost {format_duration(cause.lost_ms)}" if cause.lost_ms and steps else "")
            + (f": {' '.join(cause.message.split())}" if cause.message else ""),
            f"→ {cause.step}" if steps else "",
        )
        for cause in causes
    ]


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.3rem; }} h2 {{ font-size: 1.05rem; margin: 1.5rem 0 .3rem; }}
table {{ border-collapse: collapse; }}
td {{ vertical-align: top; padding: .15rem .8rem .15rem 0; overflow-wrap: anywhere; }}
td:first-child {{ text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }}
small {{ display: block; color: light-dark(#0a6, #4c9); }}
</style>
<h1>{title}</h1>
{sections}
</html>
"""


def digest_page(digest: Digest, zone: tzinfo | None) -> bytes:
    """Return the digest as one HTML page without scripts."""
    sections = []
    for title, rows in digest_sections(digest, max_projects=len(digest.projects)):
        lines = [
            f"<tr><td>{_escape(row.value)}</td><td>{_escape(row.text)}"
            + (f"<small>{_escape(row.note)}</small>" if row.note else "")
            + "</td></tr>"
            for row in rows
        ]
        sections.append(f"<h2>{_escape(title)}</h2>\n<table>\n" + "\n".join(lines) + "\n</table>")
    page = _PAGE.format(title=_escape(headline(digest, zone)), sections="\n".join(sections))
    return page.encode("utf-8", "replace")


def _escape(text: str) -> str:
    return escape(replace_unprintable(text))
