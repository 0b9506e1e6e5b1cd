"""What the pages name is there: packages, modules, functions, commands, options."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import click
import pytest

from toolspan import __all__ as surface
from toolspan.cli.app import COMMANDS, app

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src/toolspan"
PACKAGES = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
GUIDE = [page for page in PAGES if page.parent.name != "reference"]
MODULE = re.compile(r"(?<![\w./~-])((?:[a-z_]+/)+[a-z_]+)(?:\.py)?(?![\w/.-])")
CONSOLE = re.compile(r"^```(?:console|sh|text|)\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`(toolspan [a-z][^`]*)`")
BEHIND = {"--", "|", "<", ">", "#", "&&"}
"""What ends the words that are toolspan's own."""
REFERENCE = [ROOT / "docs/reference.md", *sorted(ROOT.glob("docs/reference/*.md"))]


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def test_every_package_is_on_the_map() -> None:
    rows = re.findall(r"^\| \[?`(\w+)`.*\]\([\w./#-]+\) \|$", text(ROOT / "docs/README.md"), re.M)

    assert sorted(rows) == sorted(PACKAGES)


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_the_page_of_a_package_says_what_goes_in_and_out_and_what_is_not_there(package: str) -> None:
    row = re.search(rf"^\| \[?`{package}`.*\|(.*)\|$", text(ROOT / "docs/README.md"), re.M)
    assert row is not None
    page, anchor = re.findall(r"\]\(([\w-]+\.md)(?:#([\w-]+))?", row[1])[0]
    words = " ".join(below(text(ROOT / "docs" / page), anchor).split())

    assert [word for word in ("**In**", "**Out**", "**Not here**") if word not in words] == []


def below(page: str, anchor: str) -> str:
    """The section with this anchor; the whole page when there is none."""
    for section in re.split(r"^## ", page, flags=re.M)[1:] if anchor else []:
        title = section.partition("\n")[0].lower()
        if re.sub(r"[^\w -]", "", title).replace(" ", "-") == anchor:
            return section
    return "" if anchor else page


def test_every_page_is_on_the_map() -> None:
    linked = set(re.findall(r"\]\(([\w./-]+)", text(ROOT / "docs/README.md")))
    pages = [str(page.relative_to(ROOT / "docs")) for page in GUIDE if "docs" in page.parts]

    assert [page for page in pages if page not in linked and page != "README.md"] == []


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_that_a_page_names_exist(page: Path) -> None:
    named = {
        name
        for name in MODULE.findall(text(page))
        if name.partition("/")[0] in PACKAGES and name.partition("/")[0] != "sample"
    }

    assert [name for name in sorted(named) if not is_module(name)] == []


def is_module(name: str) -> bool:
    path = SOURCE / name
    return path.is_dir() or path.with_name(f"{path.name}.py").exists()


@pytest.mark.parametrize(
    "page",
    [page for page in GUIDE if page.name != "telemetry.md"],  # names of attributes look the same
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_dotted_names_that_a_page_names_exist(page: Path) -> None:
    named = set(re.findall(r"`toolspan((?:\.\w+)+)[^`]*`", text(page)))

    assert [name for name in sorted(named) if not is_there(name.split(".")[1:])] == []


def is_there(parts: list[str]) -> bool:
    """Whether the parts of a name lead to a module, or to something that a module has."""
    length = len(parts)
    while length and not is_module("/".join(parts[:length])):
        length -= 1
    if length == len(parts):
        return True
    found: object = import_module(".".join(["toolspan", *parts[:length]]))
    for part in parts[length:]:
        found = getattr(found, part, None)
    return found is not None


def test_functions_and_classes_that_the_flow_names_exist() -> None:
    quoted = re.findall(r"`([A-Za-z_][\w.]*)`", text(ROOT / "docs/flow.md"))
    names = {name.rpartition(".")[2] for name in quoted if not name.endswith(".py")}

    assert sorted(names - defined()) == []


def test_the_flow_names_functions_where_they_are() -> None:
    rows = re.findall(r"\| `([\w.]+)` \| `([\w/]+\.py)` \|$", text(ROOT / "docs/flow.md"), re.M)

    assert len(rows) > 10
    assert [row for row in rows if not is_in(*row)] == []


def is_in(name: str, file: str) -> bool:
    body = ast.parse((SOURCE / file).read_bytes()).body
    for part in name.split("."):
        found = [node for node in body if getattr(node, "name", None) == part]
        if not found:
            return False
        body = getattr(found[0], "body", [])
    return True


@cache
def defined() -> set[str]:
    """Every name that the code defines: functions, classes, attributes, arguments, texts."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    found.add(name)
                case ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                    found.add(name)
                case ast.Constant(value=str(words)):
                    found.add(words)
                case _:
                    pass
    return found


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_that_a_page_shows_exist(page: Path) -> None:
    lines = [line for block in CONSOLE.findall(text(page)) for line in block.splitlines()]
    typed = [line.removeprefix("$ ").split() for line in lines if line.startswith("$ toolspan ")]
    typed += [line.split() for line in lines if line.startswith("toolspan ")]
    typed += [code.split() for code in INLINE.findall(CONSOLE.sub("", text(page)))]

    assert [words for words in typed if not is_known(words[1:])] == []


def is_known(words: list[str]) -> bool:
    """Whether toolspan has such a command, with such options."""
    own = words[: next((at for at, word in enumerate(words) if word in BEHIND), len(words))]
    if not own or own[0] not in COMMANDS:
        return not own or own == ["--json"]
    given = {word.partition("=")[0] for word in own[1:] if word.startswith("--")}
    return given <= known_options(own[0])


@cache
def known_options(name: str) -> set[str]:
    """The options of a command and of those below it."""
    context = click.Context(app, info_name="toolspan")
    command = app.get_command(context, name)
    assert command is not None
    inner = [command]
    if isinstance(command, click.Group):
        inner += [command.commands[one] for one in command.commands]
    found = {"--help", "--version"}
    for one in inner:
        for parameter in one.params:
            found |= {*parameter.opts, *parameter.secondary_opts}
    return found


def test_the_reference_has_every_public_name() -> None:
    headings = set(re.findall(r"^### (\w+)$", text(ROOT / "docs/reference.md"), re.M))

    assert [name for name in surface if name not in headings] == []


def test_the_reference_has_whatever_pages_and_examples_import() -> None:
    whole = "\n".join(map(text, REFERENCE))

    missing = [
        f"{module}.{name}"
        for module, name in sorted(imported())
        if f"from {module} import {name}\n" not in whole
        and f"`{module}.{name}` is [" not in whole
        and not (module == "toolspan" and f"\n### {name}\n" in whole)
        and not re.search(rf"^#+ {re.escape(f'{module}.{name}')}$", whole, re.M)
    ]

    assert missing == []


def imported() -> set[tuple[str, str]]:
    blocks = [block for page in GUIDE for block in re.findall(r"^```python\n(.*?)^```", text(page), re.S | re.M)]
    blocks += [text(path) for path in ROOT.glob("examples/*.py")]
    return {
        (node.module, alias.name)
        for block in blocks
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("toolspan")
        for alias in node.names
        if node.module is not None
    }


@pytest.mark.parametrize("page", REFERENCE, ids=lambda page: page.name)
def test_everything_in_the_reference_has_words(page: Path) -> None:
    sections = re.split(r"^### ", text(page), flags=re.M)[1:]

    wordless = []
    for section in sections:
        title, _, below = section.partition("\n")
        words = re.sub(r"^```.*?^```$", "", below.partition("\n## ")[0], flags=re.S | re.M)
        if not [line for line in words.splitlines() if line and not line.startswith(("|", "Types"))]:
            wordless.append(title)
    assert wordless == []
