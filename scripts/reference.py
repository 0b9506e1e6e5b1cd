"""Generate the reference of the Python API from the code, without importing it.

Documents the names of `toolspan` itself, the names in the `__all__` of packages, every module that a page or an
example imports from, and the types that all of these mention. Each definition is documented once; other places link
to it. Start at `pages`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from render import Member, anchor, escaped, signature, text_of

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
NOTE = "<!-- Written by scripts/docs.py from the code; `make docs` checks it. -->\n"
_IMPORT = re.compile(r"^\s*(?:from (toolspan[\w.]*) import \(?|import (toolspan[\w.]*))", re.M)
_BLOCK = re.compile(r"^```(?:python|py)\n(.*?)^```", re.S | re.M)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Node = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign


@dataclass(frozen=True)
class Found:
    """A definition and its location."""

    home: str
    name: str
    node: Node
    doc: str

    @property
    def key(self) -> tuple[str, str]:
        """The unique key."""
        return self.home, self.name


@dataclass
class Page:
    """A page under construction; assigns the anchors of its headings."""

    path: str
    parts: list[str | Found] = field(default_factory=list)
    """Texts; a definition is replaced by links to the types that it mentions."""
    taken: dict[str, int] = field(default_factory=dict)

    def heading(self, level: int, title: str) -> str:
        """Write a heading and return its anchor."""
        slug = anchor(title)
        times = self.taken.get(slug, 0)
        self.taken[slug] = times + 1
        self.parts.append(f"{'#' * level} {title}\n")
        return slug if not times else f"{slug}-{times}"

    def says(self, text: str) -> None:
        """Write one or more paragraphs."""
        self.parts.append(f"{text.rstrip()}\n")

    def link(self, place: str) -> str:
        """Return the link from this page to a place."""
        inner = place.removeprefix(self.path)
        return inner if inner != place or "/" not in self.path else f"../{place}"

    def text(self, places: dict[tuple[str, str], str]) -> str:
        """Return the whole page."""
        parts = [one if isinstance(one, str) else _types(self, one, places) for one in self.parts]
        return "\n".join(part for part in parts if part)


def pages() -> dict[str, str]:
    """Return every page of the reference, by its path in docs."""
    modules = _contents()
    main = Page("reference.md")
    main.heading(1, "Python reference")
    main.says(NOTE)
    main.says(
        "What `toolspan` itself exports, and below it what its packages have for those who need\n"
        "more. Whatever the pages of the [guide](README.md) import is here."
    )
    places: dict[tuple[str, str], str] = {}
    packages = sorted({module.split(".")[1] for module in modules if "." in module})
    main.says("| package | |\n|---|---|\n" + "\n".join(_row(package) for package in packages))
    main.heading(2, "toolspan")
    for name in _listed("toolspan") or ():
        _write(main, "toolspan", name, places)
    written = [main]
    for package in packages:
        page = Page(f"reference/{package}.md")
        page.heading(1, f"toolspan.{package}")
        page.says(NOTE)
        page.says("Part of the [Python reference](../reference.md).")
        for module, names in modules.items():
            if f"{module}.".startswith(f"toolspan.{package}."):
                _write_module(page, module, names, places)
        written.append(page)
    return {page.path: page.text(places) for page in written}


def _row(package: str) -> str:
    first = _module_words(f"toolspan.{package}").partition("\n\n")[0]
    return f"| [toolspan.{package}](reference/{package}.md) | {escaped(' '.join(first.split()))} |"


def _module_words(module: str) -> str:
    return ast.get_docstring(_tree(module)) or ""


def _contents() -> dict[str, list[str]]:
    """Return the documented modules, and the names of each."""
    found: dict[str, list[str]] = {}
    for module in _documented():
        listed = _listed(module)
        found[module] = _defined(module) if listed is None else listed
    doors = [one for module, names in found.items() for one in _resolved(module, names)]
    doors += _resolved("toolspan", _listed("toolspan") or [])
    known = {one.key for one in doors}
    for one in doors:
        for node in _mentioned(one.node):
            named = resolve(one.home, node.id)
            if named is not None and named.doc and named.key not in known:
                known.add(named.key)
                found[named.home] = sorted([*found.get(named.home, []), named.name])
    return dict(sorted(found.items()))


def _resolved(module: str, names: list[str]) -> Iterator[Found]:
    for name in names:
        found = resolve(module, name)
        if found is not None:
            yield found


def _write_module(page: Page, module: str, names: list[str], places: dict[tuple[str, str], str]) -> None:
    if module != f"toolspan.{page.path.removeprefix('reference/').removesuffix('.md')}":
        page.heading(2, module)
    page.says(text_of(_module_words(module)))
    for name in names:
        _write(page, module, name, places)


def _write(page: Page, module: str, name: str, places: dict[tuple[str, str], str]) -> None:
    inner = f"{module}.{name}"
    found = resolve(module, name)
    if found is None:
        target = _module_behind(module, name)
        link = f"reference/{target.split('.')[1]}.md"
        section = "" if target.count(".") == 1 else f"#{anchor(target)}"
        page.heading(3, name)
        page.says(f"The module `{target}`: [its names]({link}{section}).")
        return
    if found.key in places:
        page.says(f"`{inner}` is [{name}]({page.link(places[found.key])}).")
        return
    slug = page.heading(3, name)
    places[found.key] = f"{page.path}#{slug}"
    page.says(_described(found, f"from {module} import {name}\n\n"))
    page.parts.append(found)


def _types(page: Page, found: Found, places: dict[tuple[str, str], str]) -> str:
    """Return links to the documented types that a definition mentions."""
    links = {}
    for node in _mentioned(found.node):
        named = resolve(found.home, node.id)
        if named is not None and named.key in places and named.key != found.key:
            links[node.id] = f"[{node.id}]({page.link(places[named.key])})"
    return f"Types: {', '.join(links[name] for name in sorted(links))}\n" if links else ""


def _mentioned(node: Node) -> Iterator[ast.Name]:
    """Yield the names in the annotations of a definition and its public members, and in an alias."""
    match node:
        case ast.ClassDef(body=body):
            for one in body:
                name = getattr(one, "name", "") or ast.unparse(getattr(one, "target", one))
                if isinstance(one, Node) and (name == "__init__" or not name.startswith("_")):
                    yield from _mentioned(one)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            given += [one for one in (node.args.vararg, node.args.kwarg) if one is not None]
            yield from _names([*(one.annotation for one in given), node.returns])
        case ast.AnnAssign(annotation=annotation):
            yield from _names([annotation])
        case ast.Assign(value=value):
            yield from (one for one in ast.walk(value) if isinstance(one, ast.Name))


def _names(found: Iterable[ast.expr | None]) -> Iterator[ast.Name]:
    for one in found:
        match one:
            case None:
                pass
            case ast.Constant(value=str(quoted)):
                yield from _names([ast.parse(quoted, mode="eval").body])
            case _:
                yield from (node for node in ast.walk(one) if isinstance(node, ast.Name))


def _described(found: Found, door: str) -> str:
    """Return the full entry of a definition; `door` is the line that imports it."""
    match found.node:
        case ast.ClassDef() as node:
            return _class(found, node, door)
        case ast.FunctionDef() | ast.AsyncFunctionDef() as node:
            shown = signature(node)
        case ast.Assign() | ast.AnnAssign() as node:
            shown = _assigned(node)
    return f"{_code(door + shown)}\n\n{text_of(found.doc)}"


def _code(text: str) -> str:
    return f"```text\n{text}\n```"


def _assigned(node: ast.Assign | ast.AnnAssign) -> str:
    """Return the value of a constant or type alias, if it is short."""
    most = 400
    if isinstance(node, ast.AnnAssign):
        return f"{ast.unparse(node.target)}: {ast.unparse(node.annotation)}"
    text = ast.unparse(node)
    if len(text) > most:
        text = f"{text[:most]}…"
    return "\n    | ".join(text.split(" | ")) if len(text) > 88 and " | " in text else text


def _class(found: Found, node: ast.ClassDef, door: str) -> str:
    members = list(_members(found.home, node))
    parts = [_code(door + _class_head(node, members)), text_of(found.doc)]
    made = next((one for one in members if one.name == "__init__"), None)
    if made is not None and made.doc:
        parts.append(text_of(made.doc))
    shown = [one for one in members if not one.name.startswith("_")]
    rows = [one for one in shown if one.kind == "field"]
    if rows:
        parts.append("| field | type | |\n|---|---|---|\n" + "\n".join(one.row() for one in rows))
    parts += [one.entry() for one in shown if one.kind == "method"]
    return "\n\n".join(part for part in parts if part)


def _class_head(node: ast.ClassDef, members: list[Member]) -> str:
    made = next((one for one in members if one.name == "__init__"), None)
    if made is not None and isinstance(made.node, _FUNCTIONS):
        return f"class {signature(made.node, name=node.name)}".removesuffix(" -> None")
    bases = [ast.unparse(one) for one in node.bases]
    known = [one for one in bases if one.partition("[")[0] not in ("Struct", "ABC")]
    return f"class {node.name}({', '.join(known)})" if known else f"class {node.name}"


def _members(home: str, node: ast.ClassDef) -> Iterator[Member]:
    """Yield the members of a class, those of its bases after its own."""
    seen = set()
    for owner in _line(home, node):
        for member in [*_own(owner), *_set_in_init(owner)]:
            if member.name not in seen:
                seen.add(member.name)
                yield member


def _line(home: str, node: ast.ClassDef) -> Iterator[ast.ClassDef]:
    yield node
    for base in node.bases:
        if isinstance(base, ast.Name):
            found = resolve(home, base.id)
            if found is not None and isinstance(found.node, ast.ClassDef):
                yield from _line(found.home, found.node)


def _own(node: ast.ClassDef) -> Iterator[Member]:
    for one, doc in _with_words(node.body):
        match one:
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield Member(name, "field", one, doc)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                marks = {ast.unparse(mark) for mark in one.decorator_list}
                if marks & {"property", "cached_property", "functools.cached_property"}:
                    yield Member(one.name, "field", one, ast.get_docstring(one) or "")
                elif "overload" not in marks:
                    yield Member(one.name, "method", one, ast.get_docstring(one) or "")
            case _:
                pass


def _set_in_init(node: ast.ClassDef) -> Iterator[Member]:
    """Yield attributes that have a docstring where they are first set."""
    made = next((one for one in node.body if getattr(one, "name", "") == "__init__"), None)
    if not isinstance(made, _FUNCTIONS):
        return
    for one, doc in _with_words(made.body):
        match one:
            case ast.AnnAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=name)) if doc:
                one.value = None  # the initial value is internal to the class
                yield Member(name, "field", one, doc)
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)]) if doc:
                yield Member(name, "field", one, doc)
            case _:
                pass


def _with_words(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """Yield each statement with the string below it."""
    for one, below in zip(body, [*body[1:], None], strict=True):
        match below:
            case ast.Expr(value=ast.Constant(value=str(words))):
                yield one, words
            case _:
                yield one, ""


@cache
def resolve(module: str, name: str) -> Found | None:
    """Return the definition of a name; None if it is a module."""
    for one, doc in _with_words(list(_statements(_tree(module)))):
        match one:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() if one.name == name and not _is_overload(
                one
            ):
                return Found(module, name, one, ast.get_docstring(one) or "")
            case ast.Assign(targets=[ast.Name(id=found)]) if found == name:
                return Found(module, name, one, doc)
            case ast.AnnAssign(target=ast.Name(id=found)) if found == name:
                return Found(module, name, one, doc)
            case ast.ImportFrom(module=str(origin)) if origin.startswith("toolspan"):
                for alias in one.names:
                    if (alias.asname or alias.name) == name and not _is_module(f"{origin}.{alias.name}"):
                        return resolve(origin, alias.name)
            case _:
                pass
    return None


def _is_overload(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(mark) == "overload" for mark in node.decorator_list)


def _module_behind(module: str, name: str) -> str:
    for one in _statements(_tree(module)):
        if isinstance(one, ast.ImportFrom) and one.module is not None:
            for alias in one.names:
                if (alias.asname or alias.name) == name:
                    return f"{one.module}.{alias.name}"
    return f"{module}.{name}"


def _statements(tree: ast.Module | ast.If | ast.Try) -> Iterator[ast.stmt]:
    for one in tree.body:
        if isinstance(one, ast.If | ast.Try):
            yield from _statements(one)
        else:
            yield one


def _defined(module: str) -> list[str]:
    """Return the public names of a module without `__all__`, in the order of definition."""
    wanted = {name for origin, name in imported() if origin == module}
    names = []
    for one, doc in _with_words(_tree(module).body):
        match one:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                names.append(one.name)
            case ast.Assign(targets=[ast.Name(id=name)]) if doc or name in wanted:
                names.append(name)
            case ast.AnnAssign(target=ast.Name(id=name)) if doc or name in wanted:
                names.append(name)
            case _:
                pass
    return list(dict.fromkeys(name for name in names if not name.startswith("_")))


def _listed(module: str) -> list[str] | None:
    """Return the names in a module's `__all__`; None if there is none."""
    for one in _tree(module).body:
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "__all__":
            return list(ast.literal_eval(one.value))
    return None


def _documented() -> set[str]:
    """Return the documented modules."""
    found = {
        f"toolspan.{path.parent.name}"
        for path in SOURCE.glob("toolspan/*/__init__.py")
        if _listed(f"toolspan.{path.parent.name}")
    }
    for module, name in imported():
        inner = f"{module}.{name}"
        found.add(inner if name and _is_module(inner) else module)
    for name in _listed("toolspan") or ():
        if resolve("toolspan", name) is None:
            found.add(_module_behind("toolspan", name))
    return found - {"toolspan"}


@cache
def imported() -> set[tuple[str, str]]:
    """Return the modules and names that pages and examples import; the name is '' for a whole module."""
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/journeys/*.md")]
    blocks = [block for page in pages for block in _BLOCK.findall(page.read_text("utf-8"))]
    blocks += [path.read_text("utf-8") for path in ROOT.glob("examples/*.py")]
    found = set()
    for block in blocks:
        for node in ast.walk(ast.parse(_lines_of_imports(block))):
            match node:
                case ast.ImportFrom(module=str(module)) if module.startswith("toolspan"):
                    found |= {(module, alias.name) for alias in node.names}
                case ast.Import():
                    found |= {(one.name, "") for one in node.names if one.name.startswith("toolspan")}
                case _:
                    pass
    return found


def _lines_of_imports(block: str) -> str:
    """Return the imports of a block, which may not be a complete program."""
    try:
        ast.parse(block)
    except SyntaxError:
        return "\n".join(line for line in block.splitlines() if _IMPORT.match(line))
    return block


def _is_module(name: str) -> bool:
    return _file(name) is not None


def _file(module: str) -> Path | None:
    path = SOURCE / Path(*module.split("."))
    for one in (path / "__init__.py", path.with_name(f"{path.name}.py")):
        if one.exists():
            return one
    return None


@cache
def _tree(module: str) -> ast.Module:
    path = _file(module)
    assert path is not None, f"there is no module {module}"
    return ast.parse(path.read_text(encoding="utf-8"))
