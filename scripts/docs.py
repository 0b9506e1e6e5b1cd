"""Write the generated pages of the documentation; `--check` only reports those that are not current."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from toolspan.cli.app import COMMANDS, app
from toolspan.formats.checks import FINDING_CODES
from toolspan.formats.claude.reader import RESUME_BEHAVIOR
from toolspan.reading import rows
from toolspan.tables import SCHEMA_VERSION, TABLES
from toolspan.tables.schema import PARTITION_COLUMNS
from toolspan.types.error_kinds import ADVICE
from toolspan.types.state import OPEN_STATES, STATE_MEANINGS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
NOTE = "<!-- Written by scripts/docs.py; `make docs` checks it. -->\n"


def commands() -> str:
    """Return the help of every command."""
    ctx = click.Context(app, info_name="toolspan", max_content_width=90, terminal_width=90)
    parts = ["# Commands\n", NOTE, f"```text\n{app.get_help(ctx)}\n```\n"]
    for name in COMMANDS:
        command = app.get_command(ctx, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=ctx, terminal_width=90)
        parts.append(f"## {name}\n\n```text\n{command.get_help(inner)}\n```\n")
    rows = [f"| `{name}` | {meaning} |" for name, meaning in fields().items()]
    parts.append(f"## Fields of `calls --json`\n\n{_table('| field | meaning |', rows)}\n")
    return "\n".join(parts)


def _table(head: str, rows: Iterable[str]) -> str:
    return "\n".join([head, "|" + "---|" * (head.count("|") - 1), *rows])


def _page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", NOTE.rstrip(), *parts]) + "\n"


def fields() -> dict[str, str]:
    """Return the fields of a call row with their descriptions."""
    module = ast.parse(inspect.getsource(rows))
    (row,) = (node for node in module.body if isinstance(node, ast.ClassDef) and node.name == "CallRow")
    meanings = {}
    for field, below in zip(row.body, [*row.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            described = isinstance(below, ast.Expr)
            meanings[field.target.id] = ast.literal_eval(below.value) if described else ""
    return meanings


PACKAGES = ("", "types", "runtime", "tools", "session", "reading", "analysis", "archive", "redaction", "export",
            "formats", "diffs", "shell", "tables", "replay", "integrations", "web", "testing")  # fmt: skip


def reference() -> str:
    """Return the public names of each package with the first lines of their docstrings."""
    parts = []
    for package in PACKAGES:
        module = importlib.import_module(f"toolspan.{package}".rstrip("."))
        table = [f"| `{name}` | {_cell(_first_line(getattr(module, name)))} |" for name in module.__all__]
        parts += [f"## {module.__name__}", _first_line(module), _table("| name | |", table)]
    return _page(
        "Public API", "Import these names from `toolspan` or `toolspan.<package>`; deeper modules are private.", *parts
    )


def _first_line(value: object) -> str:
    described = inspect.ismodule(value) or inspect.isclass(value) or inspect.isroutine(value)
    return (inspect.getdoc(value) or "").partition("\n")[0] if described else ""


def states() -> str:
    """Return states and error kinds."""
    rows = [
        f"| `{state}` | {'open' if state in OPEN_STATES else 'ended'} | {meaning} |"
        for state, meaning in STATE_MEANINGS.items()
    ]
    kinds = [f"| `{kind}` | {advice.cause} | {advice.solution} | {advice.retry} |" for kind, advice in ADVICE.items()]
    return _page(
        "States and error kinds",
        "Every call is in exactly one state, and every state comes with its evidence.",
        _table("| state | | meaning |", rows),
        "## Error kinds",
        _table("| kind | cause | solution | retry |", kinds),
    )


def findings() -> str:
    """Return finding codes and how clients react to them."""
    rows = [
        f"| `{code}` | {meaning.severity} | {meaning.explanation} | {meaning.client} |"
        for code, meaning in FINDING_CODES.items()
    ]
    seen = [f"| `{code}` | {seen.now} | {seen.older or 'the same'} |" for code, seen in RESUME_BEHAVIOR.items()]
    return _page(
        "Findings",
        "`toolspan doctor` reports these. The last column is the reaction of the client (2.1.325) on resume: it\n"
        "accepts the file, skips the line, loses part of the conversation, or refuses the file.",
        _table("| code | severity | meaning | the client |", rows),
        "## Observed reactions",
        "Each defect was put into a recorded session, which the real client then resumed; `python -m tests.oracle\n"
        "--defects` repeats this. [`toolspan repair`](doctor.md) makes a repaired copy for all of them.",
        _table("| code | 2.1.197 and 2.1.325 | 2.0.65 and 2.1.80 |", seen),
    )


VERDICTS = {
    "works": "Toolspan does it, as it is.",
    "reader accepts": "Files that are so are read; toolspan itself does not write them so.",
    "only under seed": "The newest clients do it otherwise, and so does toolspan without `--profile seed`.",
    "differs": "Toolspan does something else on purpose; the row says what and why.",
}


def seeds() -> str:
    """Return each statement of the founding documents with its verdict and proof."""
    data = tomllib.loads((ROOT / "tests/seeds.toml").read_text(encoding="utf-8"))
    rows: list[dict[str, Any]] = data["statement"]
    parts = [
        "# Every statement of the documents toolspan began with\n",
        NOTE,
        f"{data['intro'].strip()}\n",
        _verdict_counts(data["document"], rows),
        "\n".join(f"- **{name}**: {meaning}" for name, meaning in VERDICTS.items()) + "\n",
    ]
    for document in data["document"]:
        own_rows = [row for row in rows if _document_of(row, data["document"]) == document["name"]]
        parts += [
            f"## {document['name']}: {document['title']}\n",
            f"{document['about'].strip()}\n",
            _table("| | it says | verdict | shown by | proved by |", map(_statement_row, own_rows)) + "\n",
        ]
    parts += [
        "## Their words and ours\n",
        f"{data['nouns'].strip()}\n",
        f"```python\n{data['setup'].strip()}\n```\n",
        _table("| in the documents | here | try |", map(_noun_row, data["noun"])) + "\n",
    ]
    return "\n".join(parts)


def _noun_row(noun: dict[str, Any]) -> str:
    theirs = ", ".join(f"`{name}`" for name in noun["theirs"])
    return f"| {theirs} | {noun['ours']} | `{noun['line']}` |"


def _document_of(row: dict[str, Any], documents: list[dict[str, Any]]) -> str:
    """Return the document of a statement."""
    prefix, _, number = row["id"].partition("-")
    (name,) = (
        document["name"]
        for document in documents
        if prefix == document["prefix"] and document["first"] <= int(number) <= document["last"]
    )
    return str(name)


def _verdict_counts(documents: list[dict[str, Any]], rows: list[dict[str, Any]]) -> str:
    counted = Counter((_document_of(row, documents), row["verdict"]) for row in rows)
    lines = []
    for document in documents:
        numbers = [counted[document["name"], verdict] for verdict in VERDICTS]
        link = f"{document['name']}: {document['title']}".lower()
        anchor = "".join(c for c in link if c.isalnum() or c in " -").replace(" ", "-")
        lines.append(f"| [{document['name']}](#{anchor}) | {sum(numbers)} | {' | '.join(map(str, numbers))} |")
    every = Counter(row["verdict"] for row in rows)
    lines.append(f"| all | {len(rows)} | {' | '.join(str(every[v]) for v in VERDICTS)} |\n")
    return _table(f"| document | statements | {' | '.join(VERDICTS)} |", lines)


def _statement_row(row: dict[str, Any]) -> str:
    verdict = row["verdict"] + (f": {row['why']}" if "why" in row else "")
    proofs = []
    for proof in row["proof"]:
        file, _, name = proof.partition("::")
        sentence = name.removeprefix("test_").replace("_", " ")
        proofs.append(f"[{sentence}](../{file})")
    return f"| {row['id']} | {_cell(row['says'])} | {_cell(verdict)} | `{row['show']}` | {', '.join(proofs)} |"


def _cell(text: str) -> str:
    """Escape a text for a table cell."""
    plain = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return plain.replace("*", "\\*").replace("__", "\\_\\_")


def compatibility() -> str:
    """Return the explored rates per tool and version, and the intended differences."""
    folder = ROOT / "tests/explore"
    runs: list[dict[str, Any]] = json.loads((folder / "measured.json").read_text(encoding="utf-8"))
    versions = sorted({run["version"] for run in runs}, reverse=True)
    rates = [
        f"| {run['version']} | {run['seed']} | {run['calls']} | {run['equal']} ({run['equal'] / run['calls']:.1%}) |"
        f" {run['intended']} | {(run['equal'] + run['intended']) / run['calls']:.1%} |"
        for run in runs
    ]
    tools: dict[str, dict[str, list[int]]] = {}
    for run in runs:
        for tool, count in run["tools"].items():
            total = tools.setdefault(tool, {}).setdefault(run["version"], [0, 0])
            total[:] = [sum(pair) for pair in zip(total, count, strict=True)]
    by_tool = [
        f"| {_cell(tool)} | " + " | ".join(_share(counts.get(version)) for version in versions) + " |"
        for tool, counts in sorted(tools.items())
    ]
    purposes = tomllib.loads((folder / "on_purpose.toml").read_text(encoding="utf-8"))["difference"]
    reasons = [
        f"| {_cell(item['tool'].replace(chr(92), ''))} | {', '.join(item['versions'])} | {_cell(item['reason'])} |"
        for item in purposes
    ]
    return _page(
        "Compatibility",
        "This page shows how many calls `toolspan exec --profile VERSION` answers like that version of Claude\n"
        "Code: with the same `is_error`, text and structured result, and the same permission decision. The calls\n"
        "are generated from a seed and run by the real client and by toolspan in equal folders. Each run was\n"
        "measured on a new seed: toolspan was not changed for it beforehand. The profiles 2.1.80, 2.1.197 and\n"
        "`seed` follow recorded calls.",
        _table("| version | seed | calls | equal | different on purpose | both |", rates),
        "## By tool",
        "Equal calls out of all calls, excluding those that differ on purpose; `MCP` stands for the tools of a test"
        " server.",
        _table("| tool | " + " | ".join(versions) + " |", by_tool),
        "## Different on purpose",
        "Intended differences and their reasons. None of them lets a call run that the client refuses.",
        _table("| tool | versions | reason |", reasons),
        "## Measure again",
        "For a new version of the client, with a seed that was not used before:",
        '```sh\nmake compatibility ARGS="--version 2.1.325 --seed 1000 --cases 69"\n```',
        "This installs the client, compares some 3,000 calls with the newest profile that is not newer, stores the\n"
        "counts in `tests/explore/measured.json` and writes this page. The differences are in `.scratch/explore/`, by\n"
        "cause. It needs root and the harness in `$SHARED/oracle`; the client reaches nothing but loopback.",
    )


def _share(count: list[int] | None) -> str:
    return "" if count is None else f"{count[0]} of {count[1]} ({count[0] / count[1]:.1%})"


def tables() -> str:
    """Return the columns of the tables."""
    parts = []
    for name, columns in TABLES.items():
        rows = [f"| `{column.name}` | {column.type} | {column.meaning} |" for column in columns]
        parts += [f"## {name}", TABLE_MEANINGS[name], _table("| column | type | meaning |", rows)]
    partitions = [f"| `{column.name}` | {column.type} | {column.meaning} |" for column in PARTITION_COLUMNS]
    return _page(
        "Tables",
        "`toolspan tables SOURCE… -o OUT` writes transcripts as Parquet files, compressed with Zstandard.\n"
        "[Query many sessions with SQL](scale.md) has example queries and benchmarks.",
        f"This is version {SCHEMA_VERSION} of the schema. The version is in `OUT/manifest.json` and, as\n"
        "`toolspan.schema_version`, in the metadata of each file. It changes when a column changes its name, type or\n"
        "meaning, and not when a column is added.",
        "- Each call and each request occurs once, even if forks and resumes copied it to other files.\n"
        "- Times are in UTC. Offsets count decompressed bytes.\n"
        "- Inputs and results are omitted unless you add `--content`. `--redact` replaces secrets and personal\n"
        "  data in every text; placeholders such as `[key-1]` are numbered per file.\n"
        "- The dataset contains the transcripts in the sources of its last run. Rows of deleted files are removed.\n"
        "  If a folder cannot be listed, its rows are kept, and `findings` has a row with the reason. If a store does\n"
        "  not list a prefix, the run ends with an error and changes nothing.\n"
        "- `manifest.json` lists the files that belong to the dataset. A glob such as `OUT/calls/**/*.parquet` finds\n"
        "  the same files, except during a run and after a killed run; the next run removes the remains.\n"
        "- Columns whose names begin with `_` and the folder `_state` are for internal use.",
        "```python\nimport toolspan\nfrom toolspan.tables import Dataset, write_tables\n\n"
        'report = write_tables([toolspan.sample.archive()], "tables")\nprint(report.rows)\n'
        'print(Dataset("tables").files("calls"))  # paths, for any Parquet reader\n```',
        "The paths contain two more columns of every table, as `calls/dialect=claude/day=2026-11-02/part-….parquet`:",
        _table("| column | type | meaning |", partitions),
        *parts,
    )


TABLE_MEANINGS = {
    "calls": "One row per call. `uri`, `offset` and `length` locate its body.",
    "sessions": "One row per session, with its subagents.",
    "requests": "One row per request to a model. If several records or files repeat a request, the largest count of "
    "each field is used.",
    "file_changes": "One row per file that a call changed or failed to change.",
    "findings": "One row per problem in a transcript, and per file that could not be read.",
    "files": "One row per source file.",
}

PAGES = {
    "compatibility.md": compatibility,
    "commands.md": commands,
    "states.md": states,
    "findings.md": findings,
    "seeds.md": seeds,
    "reference.md": reference,
    "tables.md": tables,
}


def main() -> int:
    """Write or check every page."""
    texts = {name: page() for name, page in PAGES.items()}
    stale = [name for name, text in texts.items() if _read(DOCS / name) != text]
    if "--check" not in sys.argv:
        for name in stale:
            (DOCS / name).write_text(texts[name], encoding="utf-8")
        return 0
    if stale:
        sys.stderr.write(f"not current: {', '.join(stale)} (run: python scripts/docs.py)\n")
    return 1 if stale else 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
