"""`toolspan demo`: see it work on a small sample archive, no key and no network needed."""

import click

from toolspan.cli.output import console, escape, print_json
from toolspan.sample import archive

_STEPS: tuple[tuple[str, list[str]], ...] = (
    ("Which conversations are there?", ["sessions"]),
    ("What went wrong, and what helps?", ["errors", "--limit", "5"]),
    ("Where did the time go?", ["stats"]),
)
_STORY = "c2a9e6b4"
_DAMAGED = "16d9c7a2"


@click.command("demo")
@click.option("--json", "as_json", is_flag=True, help="Only say where the sample archive is.")
@click.pass_context
def command(ctx: click.Context, *, as_json: bool) -> None:
    """See it work on a small sample archive: ten invented sessions of three projects."""
    root = archive()
    if as_json:
        print_json({"archive": str(root)})
        return
    for title, words in _STEPS:
        _run(ctx, title, [*words, str(root)])
    for title, name, session in (
        ("What happened in one session?", "show", _STORY),
        ("Is a transcript whole?", "doctor", _DAMAGED),
    ):
        (file,) = root.rglob(f"{session}*.jsonl")
        _run(ctx, title, [name, str(file)])
    out = console()
    out.print(
        "[bold]Now yours:[/] toolspan sessions · toolspan errors --since 7d · toolspan show --last"
    )
    out.print(f"[dim]The sample archive is at {escape(str(root))}[/]")


def _run(ctx: click.Context, title: str, words: list[str]) -> None:
    """Run one command as a person would type it."""
    from toolspan.cli.app import app

    out = console()
    out.rule(f"[bold]{title}[/]", align="left")
    out.print(f"[dim]$ toolspan {' '.join(escape(word) for word in words)}[/]\n")
    app.main(words, prog_name="toolspan", standalone_mode=False, parent=ctx.parent)
    out.print()
