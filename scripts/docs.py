"""Write the generated pages of the documentation; `--check` only reports those that are not current."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from tool_texts import ModelText, sort_texts, texts_of_module, texts_of_tool
from toolspan.archive.calls import TimedCall
from toolspan.cli.app import COMMANDS, app
from toolspan.formats.checks import FINDING_CODES
from toolspan.formats.claude.reader import RESUME_BEHAVIOR
from toolspan.reading.rows import CallRow
from toolspan.runtime.profiles import VERSIONS, profile
from toolspan.runtime.tool import Tool
from toolspan.tables import SCHEMA_VERSION, TABLES
from toolspan.tables.schema import PARTITION_COLUMNS, STRUCT_TYPES, field_docstrings
from toolspan.tools import TOOL_FACTORIES
from toolspan.types.error_kinds import ADVICE
from toolspan.types.state import OPEN_STATES, STATE_MEANINGS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
NOTE = "<!-- Written by scripts/docs.py; `make docs` checks it. -->\n"
REFERENCE_MARK = "<!-- The rest is written by scripts/docs.py; `make docs` checks it. -->"


def commands() -> str:
    """Return the help of every command."""
    ctx = click.Context(app, info_name="toolspan", max_content_width=90, terminal_width=90)
    parts = ["# Commands\n", NOTE, f"```text\n{app.get_help(ctx)}\n```\n"]
    for name in COMMANDS:
        command = app.get_command(ctx, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=ctx, terminal_width=90)
        parts.append(f"## {name}\n\n```text\n{command.get_help(inner)}\n```\n")
    rows = [
        f"| `{name}` | {meaning} |"
        for name, meaning in (field_docstrings(CallRow) | field_docstrings(TimedCall)).items()
    ]
    parts.append(
        f"## Fields of `calls --json`\n\nTimes are as the client wrote them.\n\n{_table('| field | meaning |', rows)}\n"
    )
    return "\n".join(parts)


def _table(head: str, rows: Iterable[str]) -> str:
    return "\n".join([head, "|" + "---|" * (head.count("|") - 1), *rows])


def _page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", NOTE.rstrip(), *parts]) + "\n"


PACKAGES = ("", "types", "prices", "runtime", "tools", "session", "reading", "analysis", "archive", "redaction",
            "export", "formats", "diffs", "shell", "tables", "replay", "integrations", "web", "testing")  # fmt: skip


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
    """Return states, error kinds, finding codes and how clients react to findings."""
    rows = [
        f"| `{state}` | {'open' if state in OPEN_STATES else 'ended'} | {meaning} |"
        for state, meaning in STATE_MEANINGS.items()
    ]
    kinds = [f"| `{kind}` | {advice.cause} | {advice.solution} | {advice.retry} |" for kind, advice in ADVICE.items()]
    codes = [
        f"| `{code}` | {meaning.severity} | {meaning.explanation} | {meaning.acceptance} |"
        for code, meaning in FINDING_CODES.items()
    ]
    seen = [f"| `{code}` | {seen.now} | {seen.older or 'the same'} |" for code, seen in RESUME_BEHAVIOR.items()]
    return _page(
        "States, error kinds and findings",
        "## States",
        "Every call is in exactly one state, and every state comes with its evidence.",
        _table("| state | | meaning |", rows),
        "## Error kinds",
        _table("| kind | cause | solution | retry |", kinds),
        "## Findings",
        "`toolspan doctor` reports these. The last column is the reaction of the client (2.1.325) on resume: it\n"
        "accepts the file, skips the line, loses part of the conversation, or refuses the file.",
        _table("| code | severity | meaning | the client |", codes),
        "### How clients react",
        "Each defect was put into a recorded session, which the real client then resumed.\n"
        "[`toolspan repair`](doctor.md) makes a repaired copy for all of them.",
        _table("| code | 2.1.197 and 2.1.325 | 2.0.65 and 2.1.80 |", seen),
    )


def _cell(text: str) -> str:
    """Escape a text for a table cell."""
    plain = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return plain.replace("*", "\\*").replace("__", "\\_\\_")


def compatibility() -> str:
    """Return the explored rates per tool and version, and the intended differences."""
    folder = ROOT / "lab/explore"
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
        f"| {_cell(item['tool'].replace(chr(92), ''))} | {', '.join(item['profiles'])} | {_cell(item['reason'])} |"
        for item in purposes
    ]
    return _page(
        "Compatibility",
        "This page shows how many calls `toolspan exec --profile VERSION` answers like that version of Claude\n"
        "Code: with the same `is_error`, text and structured result, and the same permission decision. The calls\n"
        "are generated from a seed and run by the real client and by toolspan in equal folders. Each run was\n"
        "measured on a new seed: toolspan was not changed for it beforehand. There are three profiles: 2.1.327,\n"
        "2.0.65 and `seed`, which follows recorded calls. For another version, the nearest profile is used: 2.1.325\n"
        "was measured with the profile 2.1.327.",
        _table("| version | seed | calls | equal | different on purpose | both |", rates),
        "## By tool",
        "Equal calls out of all calls, excluding those that differ on purpose; `MCP` stands for the tools of a test"
        " server.",
        _table("| tool | " + " | ".join(versions) + " |", by_tool),
        "## Different on purpose",
        "Intended differences and their reasons. Only the last one lets calls run that the client refuses.",
        _table("| tool | profiles | reason |", reasons),
        "## Measure again",
        "For a new version of the client, with a seed that was not used before:",
        '```sh\nmake compatibility ARGS="--version 2.1.327 --seed 1000 --cases 69"\n```',
        "This installs the client, compares some 3,000 calls with the nearest profile, stores the\n"
        "counts in `lab/explore/measured.json` and writes this page. The differences are in `.scratch/explore/`, by\n"
        "cause. It needs root and the harness in `$SHARED/oracle`; the client reaches nothing but loopback.",
    )


def _share(count: list[int] | None) -> str:
    return "" if count is None else f"{count[0]} of {count[1]} ({count[0] / count[1]:.1%})"


def tables() -> str:
    """Return the page about tables: its first part as it is, then the columns."""
    head = (_read(DOCS / "tables.md") or "").partition(REFERENCE_MARK)[0]
    parts = []
    for name, columns in TABLES.items():
        rows = [f"| `{column.name}` | {column.type} | {column.meaning} |" for column in columns]
        parts += [f"### {name}", TABLE_MEANINGS[name], _table("| column | type | meaning |", rows)]
    structs = [f"`{name}` of {', '.join(f'`{part.name}`' for part in parts)}" for name, parts in STRUCT_TYPES.items()]
    partitions = [f"| `{column.name}` | {column.type} | {column.meaning} |" for column in PARTITION_COLUMNS]
    schema = [
        "## Schema",
        f"This is version {SCHEMA_VERSION} of the schema. The version is in `OUT/manifest.json` and, as\n"
        "`toolspan.schema_version`, in the metadata of each file. It changes when a column changes its name, type or\n"
        "meaning, and not when a column is added.",
        "- Each call and each request occurs once, even if forks and resumes copied it to other files.\n"
        "- Times are in UTC. Offsets count decompressed bytes.\n"
        f"- Types of structs: {'; '.join(structs)}.\n"
        "- Whole prompts, inputs and results are omitted unless you add `--content`. `--redact` replaces secrets and\n"
        "  personal data in every text; placeholders such as `[key-1]` are numbered per file.\n"
        "- The dataset contains the transcripts in the sources of its last run. Rows of deleted files are removed.\n"
        "  If a folder cannot be listed, its rows are kept, and `findings` has a row with the reason. If a store does\n"
        "  not list a prefix, the run ends with an error and changes nothing.\n"
        "- `manifest.json` lists the files that belong to the dataset. A glob such as `OUT/calls/**/*.parquet` finds\n"
        "  the same files, except during a run and after a killed run; the next run removes the remains.\n"
        "- Columns whose names begin with `_` and the folder `_state` are for internal use.",
        "```python\nimport toolspan\nfrom toolspan.tables import Dataset, write_tables\n\n"
        'report = write_tables([toolspan.sample.archive()], "tables")\nprint(report.rows)\n'
        'print(Dataset("tables").files("calls"))  # paths, for any Parquet reader\n```',
        "The paths contain two more columns of every table, as `calls/client=claude/day=2026-11-02/part-….parquet`:",
        _table("| column | type | meaning |", partitions),
        *parts,
    ]
    return "\n\n".join([f"{head}{REFERENCE_MARK}", *schema]) + "\n"


TABLE_MEANINGS = {
    "calls": "One row per call: the fields of `calls --json`, and facts that depend on other calls or files.\n"
    "`file`, `request_bytes` and `result_bytes` locate its body.",
    "sessions": "One row per session, with its subagents.",
    "requests": "One row per request to a model. If several records or files repeat a request, the largest count of "
    "each field is used.",
    "file_changes": "One row per file that a call changed or failed to change.",
    "findings": "One row per problem in a transcript, and per file that could not be read.",
    "files": "One row per source file.",
}

OTHER_TEXTS = {
    "Calls that do not run": ("toolspan.runtime.outcome", "toolspan.runtime.authorization", "toolspan.runtime.pipeline",
                              "toolspan.runtime.schema.issues", "toolspan.runtime.schema.check"),
    "Long and invalid output": ("toolspan.runtime.output_limits",),
    "Hooks": ("toolspan.runtime.hooks.protocol", "toolspan.runtime.hooks.merge", "toolspan.runtime.hooks.session_state",
              "toolspan.session.session_hooks"),
    "MCP servers": ("toolspan.integrations.mcp_client.tools", "toolspan.integrations.mcp_client.server",
                    "toolspan.integrations.mcp_client.servers", "toolspan.integrations.mcp_client.connection"),
    "Background tasks and subagents": ("toolspan.runtime.background", "toolspan.session.leftovers",
                                       "toolspan.session.subagents.definitions",
                                       "toolspan.session.subagents.subagents", "toolspan.session.subagents.worktree"),
    "Sandbox": ("toolspan.runtime.sandbox.violations", "toolspan.runtime.sandbox.pinned",
                "toolspan.runtime.sandbox.proxy"),
}  # fmt: skip
"""Modules outside of `toolspan.tools` with texts for models."""


def tools() -> str:
    """Return the page about tools: its first part as it is, then the texts that models read."""
    head = (_read(DOCS / "tools.md") or "").partition(REFERENCE_MARK)[0]
    texts_by_tool = {name: texts_of_tool(*place) for name, (_, place, _) in _all_tools().items()}
    users: dict[ModelText, list[str]] = {}
    for name, texts in texts_by_tool.items():
        for text in texts:
            users.setdefault(text, []).append(name)
    shared = {text for text, names in users.items() if len(names) > 1}
    parts = [
        "## Reference: the texts that models read",
        "Descriptions, parameters, results and errors of each built-in tool, and the texts of the runner. Placeholders"
        " are in\nbraces, and texts that are put together from parts are listed by part."
        " Texts of a client that programs match are\nthose of the newest profile.",
    ]
    for name, (tool, _, versions) in _all_tools().items():
        parts += [f"### {name}", tool.description, _tool_facts(tool, versions), _parameters(tool)]
        parts += _text_lists(texts_by_tool[name] - shared)
    parts.append("### Several tools")
    by_users: dict[str, set[ModelText]] = {}
    for text in shared:
        by_users.setdefault(", ".join(users[text]), set()).add(text)
    for names, texts in sorted(by_users.items()):
        parts += [f"**{names}**", *_text_lists(texts)]
    for title, modules in OTHER_TEXTS.items():
        found = sort_texts(set().union(*map(texts_of_module, modules)), by_error=False)
        parts += [f"### {title}", "\n".join(dict.fromkeys(_quote(item.text) for item in found))]
    return "\n\n".join([f"{head}{REFERENCE_MARK}", *filter(None, parts)]) + "\n"


def _all_tools() -> dict[str, tuple[Tool, tuple[str, str], list[str]]]:
    """Return each tool of the newest version that has it, its factory's module and name, and the versions."""
    by_factory: dict[object, tuple[Tool, tuple[str, str], list[str]]] = {}
    for factory in TOOL_FACTORIES:
        for version in reversed(VERSIONS):
            client = profile(version)
            tool = factory(client)
            offer = client.availability
            if tool.name in offer.tools | offer.optional_tools | offer.interactive_tools:
                entry = by_factory.setdefault(factory, (tool, (factory.__module__, factory.__name__), []))
                entry[2].append(version)
    return {entry[0].name: entry for entry in by_factory.values()}


def _tool_facts(tool: Tool, versions: list[str]) -> str:
    facts = [f"Kind: {tool.kind}"]
    if tool.subject is not None:
        facts.append(f"rules match `{tool.subject.field}` ({tool.subject.kind})")
    facts.append("read-only" if tool.read_only else "read-only for some inputs" if tool.only_reads else "not read-only")
    facts.append(
        {True: "runs in parallel", False: "runs alone"}.get(tool.concurrent is True, "runs alone")
        if isinstance(tool.concurrent, bool)
        else "runs in parallel for some inputs"
    )
    missing = [] if profile().name in versions else [f"only in the profiles {', '.join(versions)}"]
    return "; ".join([*facts, *missing]) + "."


def _parameters(tool: Tool) -> str:
    schema = tool.input_schema
    properties, required = schema.get("properties"), schema.get("required", ())
    if not isinstance(properties, dict) or not properties:
        return "No parameters."
    rows = []
    for name, field in _nested_fields(properties):
        is_required = isinstance(required, list) and name in required
        kind = " or ".join(map(str, field["enum"])) if "enum" in field else str(field.get("type", "string"))
        description = _cell(field.get("description", ""))
        if "default" in field:
            description += f" Default: `{json.dumps(field['default'])}`."
        rows.append(f"| `{name}`{' (required)' if is_required else ''} | {kind} | {description} |")
    return _table("| parameter | type | description |", rows)


def _code_cell(text: str) -> str:
    """Return a text for a table cell that may contain code."""
    return " ".join(text.split()).replace("|", "\\|")


def _nested_fields(properties: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield the fields of a schema, and those of the objects in its lists."""
    for name, field in properties.items():
        yield f"{prefix}{name}", field
        items = field.get("items")
        if isinstance(items, dict) and "properties" in items:
            yield from _nested_fields(items["properties"], f"{prefix}{name}[].")


def _text_lists(texts: set[ModelText]) -> list[str]:
    parts = []
    for title, is_error in (("Results and notes:", False), ("Errors:", True)):
        lines = [_quote(item.text) for item in sort_texts(texts) if item.is_error == is_error]
        if lines:
            parts.append(f"{title}\n\n" + "\n".join(dict.fromkeys(lines)))
    return parts


def _quote(text: str) -> str:
    """Return a list item with a text on one line, so that nothing in it is markup."""
    line = text.strip().replace("\n", "\\n")
    fence = "``" if "`" in line else "`"
    return f"- {fence}{' ' if fence == '``' else ''}{line}{' ' if fence == '``' else ''}{fence}"


PAGES = {
    "tools.md": tools,
    "compatibility.md": compatibility,
    "commands.md": commands,
    "states.md": states,
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
