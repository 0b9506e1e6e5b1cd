"""`toolspan demo`: run, record and read a short session; no key and no network needed."""

import tempfile
import uuid
from pathlib import Path

import anyio
import click

from toolspan.cli.demo.story import PROMPT, make_model, make_session, write_project
from toolspan.cli.output import STATE_STYLE, console, duration, escape, print_json
from toolspan.ids import SessionId
from toolspan.model.live import Finished, LiveEvent
from toolspan.model.state import SIGNS
from toolspan.process import become_subreaper
from toolspan.record import transcript_path
from toolspan.sample import archive
from toolspan.session import Session


@click.command("demo")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: where, and which calls.")
@click.option(
    "--folder", type=click.Path(path_type=Path), help="Play in this folder, not a new one."
)
@click.pass_context
def command(ctx: click.Context, *, as_json: bool, folder: Path | None) -> None:
    """Run, record and read a short session: real tools, a model that follows a script.

    A small project with a bug is made in a scratch folder. The model reads it, runs its test, edits
    a file; one command fails, one is denied by a rule, one is blocked by a hook. What was recorded
    is then read back.
    """
    become_subreaper()
    scratch = (folder or Path(tempfile.mkdtemp(prefix="toolspan-demo-"))).absolute()
    project = scratch / "project"
    name = SessionId(str(uuid.uuid4()))
    transcript = transcript_path(name, project, scratch / "config")
    write_project(project)
    session = make_session(project, transcript, name, _silent if as_json else _tell)
    if not as_json:
        console().rule("[bold]Run: a scripted model, real tools[/]", align="left")
        console().print(f"[bold]❯ {escape(PROMPT)}[/]")
    anyio.run(_play, session, project, not as_json)
    if as_json:
        print_json(_summary(session))
        return
    _read_back(ctx, transcript)


async def _play(session: Session, project: Path, aloud: bool) -> None:  # noqa: FBT001 - anyio.run
    """The loop of an agent, whole."""
    model = make_model(project)
    async with session:
        session.say(PROMPT)
        while True:
            reply = await model.create(messages=session.messages, tools=session.schemas())
            if aloud:
                _say(reply)
            if not await session.run(reply):
                break


def _say(reply: dict[str, object]) -> None:
    content = reply["content"]
    blocks = content if isinstance(content, list) else []
    for text in (block["text"] for block in blocks if block["type"] == "text"):
        console().print(f"  {escape(text)}", style="dim")


def _silent(_event: LiveEvent) -> None:
    """Nobody reads along."""


def _tell(event: LiveEvent) -> None:
    """A line for each call that ended."""
    if not isinstance(event, Finished):
        return
    span = event.span
    style = STATE_STYLE[span.state]
    target = (span.call.target or "").removeprefix(f"{event.cwd}/")
    why = f"  [dim]{escape((span.message or '').splitlines()[0][:90])}[/]" if span.message else ""
    console().print(
        f"  [{style}]{SIGNS[span.state]}[/] [bold]{span.tool:5}[/] {escape(target)}"
        f"  [dim]{duration(event.duration_ms)}[/]{why}"
    )


def _summary(session: Session) -> dict[str, object]:
    return {
        "transcript": str(session.transcript),
        "project": str(session.cwd),
        "calls": [
            {"id": span.id, "tool": span.tool, "state": span.state, "error_kind": span.error_kind}
            for span in session.spans
        ],
    }


def _read_back(ctx: click.Context, transcript: Path) -> None:
    out = console()
    out.print(f"\n[dim]Recorded in {escape(str(transcript))}[/]\n")
    for title, words in (
        ("Read: the same session, from its transcript", ["show", "--no-messages"]),
        ("What went wrong, and what helps?", ["errors"]),
    ):
        _run(ctx, title, [*words, str(transcript)])
    out.print(
        "[bold]Now yours:[/] toolspan sessions · toolspan errors --since 7d · toolspan show --last"
    )
    out.print(f"[dim]More to look at: toolspan sessions {escape(str(archive()))}[/]")


def _run(ctx: click.Context, title: str, words: list[str]) -> None:
    """Run one command as a person would type it."""
    from toolspan.cli.app import app

    out = console()
    out.rule(f"[bold]{title}[/]", align="left")
    out.print(f"[dim]$ toolspan {' '.join(escape(word) for word in words)}[/]\n")
    app.main(words, prog_name="toolspan", standalone_mode=False, parent=ctx.parent)
    out.print()
