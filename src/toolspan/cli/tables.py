"""`toolspan tables`: write transcripts as Parquet tables, on this machine or on a Ray cluster."""

from __future__ import annotations

import click

from toolspan.archive.words import format_count
from toolspan.cli.output import make_console, make_table, print_json, progress_bar, warn
from toolspan.cli.select import fetch_stores
from toolspan.tables.engines import EngineName


@click.command("tables")
@click.argument("sources", nargs=-1, callback=fetch_stores, required=True, metavar="SOURCE...")
@click.option("-o", "--output", "out", required=True, metavar="OUT",
              help="The folder for the tables.")  # fmt: skip
@click.option("--engine", type=click.Choice(("local", "ray")), default="local", show_default=True,
              help="Run on this machine, or on a Ray cluster.")  # fmt: skip
@click.option("--address", help="The Ray cluster, such as auto or HOST:6379; by default one on this machine.")
@click.option("--jobs", type=click.IntRange(min=1), help="The number of concurrent tasks.  [default: one per core]")
@click.option("--content", is_flag=True, help="Add the prompts, and the inputs and results of calls.")
@click.option("--redact", is_flag=True, help="Replace secrets and personal data with placeholders.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    sources: tuple[str, ...], *, out: str, engine: EngineName, address: str | None, jobs: int | None,
    content: bool, redact: bool, as_json: bool,
) -> None:  # fmt: skip
    """Write transcripts as Parquet tables: calls, sessions, requests, file changes, findings.

    The tables are partitioned by client and day. Later runs read only new and changed files, and
    write only affected partitions. docs/tables.md lists the columns.

    `toolspan errors --tables OUT` reads the tables instead of transcripts, as do most commands that list or count;
    prompts and denials need tables with --content.
    """
    from toolspan.tables import write_tables

    if redact:  # perf: its patterns take a tenth of a second to compile
        from toolspan.redaction.redact import SecretRedactor
    try:
        report = write_tables(
            sources, out, engine=engine, jobs=jobs, address=address, content=content,
            redactor=SecretRedactor if redact else None, progress=lambda size: progress_bar(size, "reading"),
        )  # fmt: skip
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), error.filename or out) from error
    for problem in report.unlisted:
        warn(problem)
    if as_json:
        print_json(report)
        return
    console = make_console()
    table = make_table("table", "rows", right=("rows",))
    for name, rows in report.rows.items():
        table.add_row(name, f"{rows:,}")
    console.print(table)
    console.print(
        f"{format_count(report.read, 'file')} of {report.objects:,} read, "
        f"{report.partitions_written:,} of {format_count(report.partitions, 'partition')} written"
    )
    if report.unreadable:
        warn(f"{format_count(report.unreadable, 'file')} cannot be read; see the table findings")
