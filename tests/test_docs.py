"""The documentation agrees with the code."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

from toolspan.cli.app import COMMANDS
from toolspan.formats.checks import FINDING_CODES

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`\n]*`")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
TABLE = re.compile(r"(?:^\|.*\n(?:[^\n|].*\|\n)?)+", re.MULTILINE)
RULE = re.compile(r"\|(?: ?:?-+:? ?\|)+")
SEPARATOR = re.compile(r"(?<!\\)\|")


def test_every_command_and_finding_is_documented() -> None:
    commands = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    states = (ROOT / "docs/states.md").read_text(encoding="utf-8")

    assert [name for name in COMMANDS if f"## {name}\n" not in commands] == []
    assert [code for code in FINDING_CODES if f"`{code}`" not in states] == []


def test_the_readme_shows_both_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    assert "make run" in readme
    assert "make test" in readme


def test_links_between_pages_are_valid() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {link}#{anchor}"
        for page in pages()
        for link, anchor in LINK.findall(CODE.sub("", prose(page)))
        if not leads_somewhere(page, link, anchor)
    ]

    assert broken == []


def test_every_row_of_a_table_has_the_columns_of_its_head() -> None:
    broken = []
    for page in pages():
        for table in TABLE.findall(prose(page)):
            head, *rows = table.splitlines()
            columns = len(SEPARATOR.findall(head))
            if not rows or not RULE.fullmatch(rows[0]) or any(len(SEPARATOR.findall(row)) != columns for row in rows):
                broken.append(f"{page.relative_to(ROOT)}: {head}")

    assert broken == []


def test_the_index_of_the_documentation_names_every_page() -> None:
    index = ROOT / "docs/README.md"
    named = {(index.parent / link).resolve() for link, _ in LINK.findall(prose(index))}
    decisions = ROOT / "docs/decisions/README.md"
    named |= {(decisions.parent / link).resolve() for link, _ in LINK.findall(prose(decisions))}

    assert [str(page.relative_to(ROOT)) for page in ROOT.glob("docs/**/*.md") if page not in {index, *named}] == []


def pages() -> list[Path]:
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
    return [*top, *ROOT.glob("docs/**/*.md")]


@cache
def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def leads_somewhere(page: Path, link: str, anchor: str) -> bool:
    target = page.parent / link if link else page
    if not target.exists():
        return False
    return not anchor or target.suffix != ".md" or anchor in anchors(target.resolve())


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings; a repeated heading gets a number."""
    result: Counter[str] = Counter()
    names = set()
    for heading in HEADING.findall(prose(page)):
        kept = "".join(c for c in heading.lower() if c.isalnum() or c in " -_")
        name = kept.strip().replace(" ", "-")
        names.add(f"{name}-{result[name]}" if result[name] else name)
        result[name] += 1
    return names
