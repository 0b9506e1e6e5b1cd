"""Parts of a reference page: signatures, docstrings and members, as Markdown."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass
from typing import Literal

WIDTH = 92
_SECTIONS = {"Args:", "Raises:", "Returns:", "Yields:"}
_CODE = re.compile(r"(`[^`]*`)")
_ENTRY = re.compile(r"^(\*{0,2}\w+): (.*)$", re.S)


def anchor(title: str) -> str:
    """Return the anchor of a heading."""
    characters = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return characters.strip().replace(" ", "-")


def escaped(text: str) -> str:
    """Return a text as one line for a table, with markup escaped except code."""
    parts = _CODE.split(" ".join(text.split()))
    return "".join(part if part[:1] == "`" else _plain(part) for part in parts).replace("|", "\\|")


def _plain(text: str) -> str:
    return text.replace("<", "&lt;").replace("__", "\\_\\_").replace("*", "\\*")


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef, *, name: str | None = None) -> str:
    """Return a signature as it is called: without `self`, and with one argument per line if it is long."""
    arguments = _arguments(node)
    gives = "" if node.returns is None else f" -> {_type(node.returns)}"
    head = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    short = f"{head}{name or node.name}({', '.join(arguments)}){gives}"
    if len(short) <= WIDTH:
        return short
    lines = "".join(f"    {argument},\n" for argument in arguments)
    return f"{head}{name or node.name}(\n{lines}){gives}"


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    arguments = node.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    rendered = [_argument(argument, value) for argument, value in zip(plain, defaults, strict=True)]
    if arguments.posonlyargs:
        rendered.insert(len(arguments.posonlyargs), "/")
    if arguments.vararg is not None:
        rendered.append(f"*{_argument(arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        rendered.append("*")
    rendered += [
        _argument(argument, value) for argument, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg is not None:
        rendered.append(f"**{_argument(arguments.kwarg, None)}")
    bound = bool(plain) and plain[0].arg in ("self", "cls")
    rendered = rendered[1:] if bound else rendered
    return rendered[1:] if bound and rendered[:1] == ["/"] else rendered


def _argument(argument: ast.arg, value: ast.expr | None) -> str:
    kind = "" if argument.annotation is None else f": {_type(argument.annotation)}"
    if value is None:
        return f"{argument.arg}{kind}"
    return f"{argument.arg}{kind} = {ast.unparse(value)}" if kind else f"{argument.arg}={ast.unparse(value)}"


def _type(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value  # an annotation in quotes
    return ast.unparse(node)


def text_of(doc: str) -> str:
    """Convert a docstring to Markdown: paragraphs, fenced code, sections as lists."""
    parts: list[str] = []
    for paragraph in inspect.cleandoc(doc).split("\n\n"):
        first, _, rest = paragraph.partition("\n")
        if first.strip() in _SECTIONS:
            parts.append(_section(first.strip(), rest))
        elif paragraph and all(line.startswith("    ") for line in paragraph.splitlines() if line):
            code = inspect.cleandoc(f"\n{paragraph}")
            if parts and parts[-1].endswith("\n```"):
                parts[-1] = f"{parts[-1].removesuffix('```')}\n{code}\n```"
            else:
                parts.append(f"```text\n{code}\n```")
        else:
            parts.append(_words(paragraph))
    return "\n\n".join(part for part in parts if part)


def _words(paragraph: str) -> str:
    return "".join(part if part[:1] == "`" else part.replace("<", "&lt;") for part in _CODE.split(paragraph))


def _section(title: str, rest: str) -> str:
    entries = re.split(r"\n(?=\S)", inspect.cleandoc(rest))
    lines = []
    for entry in entries:
        named = _ENTRY.match(" ".join(entry.split()))
        lines.append(f"- `{named[1]}`: {_words(named[2])}" if named else f"- {_words(entry)}")
    return "\n".join([title, "", *lines])


@dataclass(frozen=True)
class Member:
    """A field or method of a class."""

    name: str
    kind: Literal["field", "method"]
    node: ast.stmt
    doc: str

    def row(self) -> str:
        """Return the table row of a field."""
        default = self._shown().replace("|", "\\|")
        kind = f"`{default}`" if default else ""
        first = inspect.cleandoc(self.doc).partition("\n\n")[0]
        return f"| `{self.name}` | {kind} | {escaped(first)} |"

    def _shown(self) -> str:
        match self.node:
            case ast.AnnAssign(annotation=kind, value=value):
                default = _default(value)
                return f"{_type(kind)}{default}"
            case ast.FunctionDef(returns=kind) if kind is not None:
                return _type(kind)
            case _:
                return ""

    def entry(self) -> str:
        """Return the entry of a method, with its docstring."""
        assert isinstance(self.node, ast.FunctionDef | ast.AsyncFunctionDef)
        marks = {ast.unparse(mark) for mark in self.node.decorator_list}
        head = "classmethod " if "classmethod" in marks else ""
        return f"```text\n{head}{signature(self.node)}\n```\n\n{text_of(self.doc)}".rstrip()


def _default(value: ast.expr | None) -> str:
    most = 40
    if value is None:
        return ""
    text = ast.unparse(value)
    if text.startswith(("field(", "msgspec.field(")) or len(text) > most:
        return " = …"
    return f" = {text}"
