"""`toolspan demo`: run, record and read a short session without an API key or network access."""

from __future__ import annotations

import os
import shlex
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path

import anyio
import click

from toolspan.archive.words import format_duration
from toolspan.cli.output import STATE_STYLES, escape_markup, make_console, print_json, program_name
from toolspan.runtime.hooks.callbacks import Hooks
from toolspan.runtime.permissions import PolicyStack, Rules
from toolspan.runtime.process import become_subreaper
from toolspan.session import Session
from toolspan.session.models.scripted import ScriptedModel, say, use
from toolspan.session.recording import transcript_path
from toolspan.types.decision import Allow, Deny
from toolspan.types.events import Finished, LiveEvent
from toolspan.types.ids import SessionId
from toolspan.types.span import Call
from toolspan.types.state import STATE_SYMBOLS

_PROMPT = "The test fails. Fix it, then clean up and push."

_PROJECT_FILES = {
    "greet.py": 'def greet(name: str) -> str:\n    return f"Helo, {name}!"\n',
    "test_greet.py": (
        "from greet import greet\n\n"
        'got = greet("Ada")\n'
        'assert got == "Hello, Ada!", f"got {got!r}"\n'
        'print("1 test passed")\n'
    ),
    "notes.md": "# Notes\n\nReleases are pushed by the release job, never by hand.\n",
}


@click.command("demo")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: the files and the calls.")
@click.option("--folder", type=click.Path(path_type=Path), help="Use this folder instead of a new one.")
@click.pass_context
def command(ctx: click.Context, *, as_json: bool, folder: Path | None) -> None:
    """Run, record and read a short session with real tools and a scripted model.

    The demo creates a small project with a bug in a scratch folder. The model reads it, runs its
    test and edits a file; one command fails, one is denied by a rule and one is blocked by a hook.
    Then the demo reads the recorded session.
    """
    become_subreaper()
    scratch = (folder or Path(tempfile.mkdtemp(prefix="toolspan-demo-"))).absolute()
    project = scratch / "project"
    name = SessionId(str(uuid.uuid4()))
    transcript = transcript_path(name, project, scratch / "config")
    project.mkdir(parents=True, exist_ok=True)
    for file_name, text in _PROJECT_FILES.items():
        (project / file_name).write_text(text, encoding="utf-8")
    session = _make_session(project, transcript, name, (lambda _: None) if as_json else _print_event)
    if not as_json:
        make_console().rule("[bold]Run: a scripted model, real tools[/]", align="left")
        make_console().print(f"[bold]❯ {escape_markup(_PROMPT)}[/]")
    anyio.run(_run_session, session, project, not as_json)
    if as_json:
        calls = [
            {"id": span.id, "tool": span.tool, "state": span.state, "error_kind": span.error_kind}
            for span in session.spans
        ]
        print_json({"transcript": str(session.transcript), "project": str(session.cwd), "calls": calls})
    else:
        _print_recorded_session(ctx, transcript, scratch if folder is None else transcript)


def _make_session(folder: Path, transcript: Path, session_id: str, on_event: Callable[[LiveEvent], None]) -> Session:
    """Return a session that allows everything except `git push`, with a hook that blocks `rm -rf`."""
    hooks = Hooks()

    @hooks.pre_tool_use("Bash")
    def keep_files(call: Call) -> Deny | None:
        wipes = "rm -rf" in str(call.arguments.get("command"))
        return Deny("Nothing is removed recursively here.") if wipes else None

    return Session(
        cwd=folder,
        hooks=hooks,
        permissions=PolicyStack((Rules(deny=["Bash(git push:*)"]), lambda _: Allow())),
        direct=[on_event],
        transcript=transcript,
        session_id=session_id,
    )


def _make_model(folder: Path) -> ScriptedModel:
    greet = str(folder / "greet.py")
    run_tests = use("Bash", command="python3 test_greet.py", description="Run the test")
    return ScriptedModel(
        [
            [
                say("I look at the code, its test and the notes."),
                use("Read", file_path=greet),
                use("Read", file_path=str(folder / "test_greet.py")),
                use("Read", file_path=str(folder / "notes.md")),
            ],
            [say("Now the failure itself."), run_tests],
            [say("A letter is missing."), use("Edit", file_path=greet, old_string="Helo", new_string="Hello")],
            [run_tests],
            [
                say("It passes. I clean up and push."),
                use("Bash", command="rm -rf __pycache__", description="Clean up"),
                use("Bash", command="git push origin main", description="Push"),
            ],
            [
                say(
                    "The greeting is fixed and the test passes. Cleaning up was blocked by a hook"
                    " and pushing is not allowed here, so both are left to you."
                )
            ],
        ],
        seed="demo",
    )


async def _run_session(session: Session, project: Path, verbose: bool) -> None:  # noqa: FBT001 - anyio.run
    model = _make_model(project)
    async with session:
        session.say(_PROMPT)
        while True:
            reply = await model.create(messages=session.messages, tools=session.schemas())
            blocks = reply["content"]
            for block in blocks if verbose and isinstance(blocks, list) else ():
                if block["type"] == "text":
                    make_console().print(f"  {escape_markup(block['text'])}", style="dim")
            if not await session.run(reply):
                break


def _print_event(event: LiveEvent) -> None:
    if not isinstance(event, Finished):
        return
    span = event.span
    style = STATE_STYLES[span.state]
    target = (span.call.target or "").removeprefix(f"{event.cwd}/")
    reason = f"  [dim]{escape_markup((span.message or '').splitlines()[0][:90])}[/]" if span.message else ""
    make_console().print(
        f"  [{style}]{STATE_SYMBOLS[span.state]}[/] [bold]{span.tool:5}[/] {escape_markup(target)}"
        f"  [dim]{format_duration(event.duration_ms)}[/]{reason}"
    )


def _print_recorded_session(ctx: click.Context, transcript: Path, source: Path) -> None:
    from toolspan.cli.app import app

    out = make_console()
    program = escape_markup(program_name())
    quoted = escape_markup(shlex.quote(str(source)))
    os.environ.setdefault("TOOLSPAN_HINTS", "0")  # what to type next is below
    out.print(f"\n[dim]Recorded in {escape_markup(str(transcript))}[/]\n", soft_wrap=True)
    for title, *arguments in (
        ("Read: the same session, from its transcript", "show", "--no-messages"),
        ("Errors: causes, solutions and recoveries", "errors"),
    ):
        out.rule(f"[bold]{title}[/]", align="left")
        out.print(f"[dim]$ {program} {' '.join(arguments)} {quoted}[/]\n", soft_wrap=True)
        app.main([*arguments, str(source)], prog_name="toolspan", standalone_mode=False, parent=ctx.parent)
        out.print()
    out.print("[bold]Next[/]")
    suggestions = [
        (f"{program} ui {quoted}", "the same in the browser"),
        (f"{program} --demo errors", "a week of sample sessions"),
        (f"{program} errors --since 7d", "your own sessions"),
    ]
    if source != transcript:
        suggestions.append((f"rm -r {quoted}", "remove what this demo wrote"))
    for command_line, text in suggestions:
        out.print(f"  {command_line}  [dim]{text}[/]", soft_wrap=True)
