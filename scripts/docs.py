"""Writes the reference pages that come from code; --check only says whether they are current."""

import ast
import inspect
import sys
from itertools import pairwise
from pathlib import Path

import click

from toolspan.cli.app import COMMANDS, app
from toolspan.model.kind import ADVICE
from toolspan.model.state import MEANING, OPEN_STATES
from toolspan.read import facts
from toolspan.read.damage import CODES

DOCS = Path(__file__).parent.parent / "docs"
NOTE = "<!-- Written by scripts/docs.py; `make docs` checks it. -->\n"


def commands() -> str:
    """The help of every command."""
    ctx = click.Context(app, info_name="toolspan", max_content_width=90, terminal_width=90)
    parts = ["# Commands\n", NOTE, f"```text\n{app.get_help(ctx)}\n```\n"]
    for name in COMMANDS:
        command = app.get_command(ctx, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=ctx, terminal_width=90)
        parts.append(f"## {name}\n\n```text\n{command.get_help(inner)}\n```\n")
    rows = "\n".join(f"| `{name}` | {meaning} |" for name, meaning in fields().items())
    parts.append(f"## Fields of `calls --json`\n\n| field | meaning |\n|---|---|\n{rows}\n")
    return "\n".join(parts)


def fields() -> dict[str, str]:
    """Every field of a row with the string below it in the code."""
    module = ast.parse(inspect.getsource(facts))
    (row,) = (n for n in module.body if isinstance(n, ast.ClassDef) and n.name == "CallFacts")
    found = {}
    for field, below in pairwise(row.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            assert isinstance(below, ast.Expr), f"{field.target.id} has no meaning"
            found[field.target.id] = ast.literal_eval(below.value)
    return found


def states() -> str:
    """States and error kinds."""
    rows = [
        f"| `{state}` | {'open' if state in OPEN_STATES else 'ended'} | {meaning} |"
        for state, meaning in MEANING.items()
    ]
    kinds = [
        f"| `{kind}` | {advice.cause} | {advice.solution} | {advice.retry} |"
        for kind, advice in ADVICE.items()
    ]
    return "\n".join(
        [
            "# States and error kinds\n",
            NOTE,
            "Every call is in exactly one state, and every state comes with its evidence.\n",
            "| state | | meaning |\n|---|---|---|",
            *rows,
            "\n## Error kinds\n",
            "| kind | cause | solution | retry |\n|---|---|---|---|",
            *kinds,
            "",
        ]
    )


def findings() -> str:
    """Finding codes."""
    rows = [
        f"| `{code}` | {meaning.severity} | {meaning.explanation} | {meaning.client} |"
        for code, meaning in CODES.items()
    ]
    return "\n".join(
        [
            "# Findings\n",
            NOTE,
            "What `toolspan doctor` reports. The last column says what the client that wrote the "
            "file does\nwith it on resume: accepts it, skips the line, loses part of the "
            "conversation, refuses.\n",
            "| code | severity | meaning | the client |\n|---|---|---|---|",
            *rows,
            "",
        ]
    )


PAGES = {"commands.md": commands, "states.md": states, "findings.md": findings}


def main() -> int:
    """Write or check every page."""
    stale = []
    for name, page in PAGES.items():
        path = DOCS / name
        text = page()
        if "--check" in sys.argv:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                stale.append(name)
        else:
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.stderr.write(f"not current: {', '.join(stale)} (run: python scripts/docs.py)\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
