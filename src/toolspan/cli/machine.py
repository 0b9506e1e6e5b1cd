"""The cache and the sandboxes of this machine: `toolspan doctor --cache` and `--sandbox`."""

from __future__ import annotations

import click
import msgspec

from toolspan.archive.words import format_count, format_size
from toolspan.cli.output import escape_markup, make_console, make_table, print_json
from toolspan.errors import ToolspanError


@click.command("cache", hidden=True)
@click.option("--clear", is_flag=True, help="Delete the cached results.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def cache_command(*, clear: bool, as_json: bool) -> None:
    """Show the cache, as `toolspan doctor --cache` does."""
    print_cache(clear=clear, as_json=as_json)


def print_cache(*, clear: bool, as_json: bool) -> None:
    """Print the place and the size of the cache, after deleting its results with `clear`."""
    from toolspan.reading.cache import Cache, default_folder

    folder = default_folder()
    if folder is None:
        raise ToolspanError("there is no cache: TOOLSPAN_NO_CACHE is set, or you have no home folder")
    cache = Cache(folder)
    if clear:
        cache.clear()
    files, size = cache.usage()
    if as_json:
        print_json({"path": str(cache.file), "files": files, "bytes": size})
    else:
        click.echo(f"{cache.file}: {format_count(files, 'file')}, {format_size(size)}")


def print_sandbox(*, is_alone: bool, as_json: bool) -> int:
    """Print the supported sandboxes. Return the exit code."""
    from toolspan.runtime.sandbox import Sandbox
    from toolspan.runtime.sandbox.probe import probe_sandbox

    if not is_alone:
        raise click.UsageError("--sandbox can be combined only with --json")
    report = probe_sandbox(Sandbox())
    exit_code = 1 if report.backend is None else 0
    if as_json:
        print_json(msgspec.to_builtins(report))
        return exit_code
    out = make_console()
    yes, no = "[green]yes[/]", "[bold red]no[/]"
    backends = make_table("sandbox", "works", "")
    for backend in report.backends:
        notes = (backend.problem,) if backend.problem else backend.limitations
        backends.add_row(backend.name, yes if backend.works else no, "\n".join(map(escape_markup, notes)))
    out.print(backends)
    machine = make_table("machine", "", "")
    for item in report.checks:
        machine.add_row(item.name, yes if item.ok else no, escape_markup(item.detail))
    out.print(machine)
    if report.backend is None:
        out.print("[bold red]No sandbox works here.[/] Commands run with your full permissions.")
    else:
        weaker = ", which is weaker than bubblewrap" if report.backend == "Landlock" else ""
        out.print(f"--sandbox runs commands in {report.backend}{weaker}.")
        if report.backend == "bubblewrap":
            out.print("It hides secrets; `toolspan run` uses it by default if nobody is asked about calls.")
    fixes = [backend.fix for backend in report.backends if backend.fix]
    fixes += [item.fix for item in report.checks if item.fix]
    if fixes:
        out.print("To fix it:")
    for fix in dict.fromkeys(fixes):
        out.print(f"  {escape_markup(fix)}", soft_wrap=True)
    return exit_code
