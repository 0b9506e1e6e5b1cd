"""Pages that show what commands and programs print: take them apart, run them, write them anew.

In: the text of a page. Out: its sections, what their blocks print now, and the page with that in
it. A `console` block holds commands behind `$ ` with their output below; a `python` block is
followed by a `text` block with what it prints. Every section has a folder of its own, with the
sample archive as `archive` and one of its sessions as `session.jsonl`. Other pages borrow how
commands are told apart from what they print, and how they are run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from tests.docs.blocks import ROOT, Block, blocks
from toolspan.reading.sample import archive

JQ = shutil.which("jq")
COLUMNS = 92
COMPARED = ("recipes.md", "parts.md")
"""The pages of docs that are such."""
_HEADING = re.compile(r"^## .+$", re.MULTILINE)
_BLOCK = re.compile(
    r"^```console\n(?P<console>.*?)^```$"
    r"|^```python\n(?P<python>.*?)^```\n\n```text\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_HEREDOC = re.compile(r"<<'(\w+)'")


@dataclass(frozen=True)
class Step:
    """One command, or one Python program, and what it is said to print."""

    code: str
    python: bool
    printed: str

    @property
    def needs_jq(self) -> bool:
        return not self.python and re.search(r"\bjq ", self.code) is not None

    @property
    def makes_a_file(self) -> bool:
        return self.code.startswith("cat > ")


@dataclass(frozen=True)
class Section:
    """What stands below one heading."""

    title: str
    text: str

    def steps(self) -> Iterator[Step]:
        """Its commands and programs, in order."""
        for block in _BLOCK.finditer(self.text):
            yield from _steps(block)

    def renewed(self, printed: Iterator[str]) -> str:
        """The text with other outputs, one for each step."""

        def anew(block: re.Match[str]) -> str:
            return _shown([replace(step, printed=next(printed)) for step in _steps(block)])

        return _BLOCK.sub(anew, self.text)


def sections(page: str) -> list[Section]:
    """The page in pieces; what stands before the first heading is one too."""
    starts = [0, *(found.start() for found in _HEADING.finditer(page)), len(page)]
    texts = [page[a:b] for a, b in pairwise(starts) if a != b]
    return [Section(text.partition("\n")[0].strip("# "), text) for text in texts]


def prepare(folder: Path) -> None:
    """Put there what the page's commands read."""
    (folder / "home").mkdir()
    shutil.copytree(archive(), folder / "archive")
    (source,) = archive().rglob("c2a9e6b4*.jsonl")
    shutil.copy(source, folder / "session.jsonl")


def run(step: Step, folder: Path) -> str:
    """What it prints there now."""
    own = environment(folder / "home", COLUMNS) | {"TOOLSPAN_NO_CACHE": "1"}
    return "".join(f"{line}\n" for line in ran(step, folder, own)[1])


def ran(step: Step, folder: Path, own: Mapping[str, str]) -> tuple[int, list[str]]:
    """The code it ends with there, and the lines it prints, errors among them."""
    program = [sys.executable, "-c"] if step.python else ["bash", "-o", "pipefail", "-c"]
    done = subprocess.run(
        [*program, step.code],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=60, check=False, cwd=folder, env=own,
    )  # fmt: skip
    return done.returncode, [line.rstrip() for line in done.stdout.decode().splitlines()]


def environment(home: Path, columns: int) -> dict[str, str]:
    """What programs find there: toolspan, a home, a width, and nothing of who runs the tests."""
    return {
        "HOME": str(home),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TZ": "UTC",
        "LANG": "C.UTF-8",
        "COLUMNS": str(columns),
    }


def compared(page: str) -> list[Block]:
    """The blocks of a page that its sections run, or compare with what is printed."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = {
        text.count("\n", 0, at) + 1
        for block in _BLOCK.finditer(text)
        for at in (block.start("console"), block.start("python"), block.start("text"))
        if at >= 0
    }
    return [block for block in blocks(page) if block.line in lines]


def _steps(block: re.Match[str]) -> list[Step]:
    if block["python"] is not None:
        return [Step(block["python"], python=True, printed=block["text"])]
    return list(commands(block["console"].splitlines()))


def commands(lines: list[str]) -> Iterator[Step]:
    """Those of a `console` block, each with what stands below it."""
    at = 0
    while at < len(lines):
        begin = at
        at += 1
        while not _whole(code := "\n".join(lines[begin:at]).removeprefix("$ ")):
            at += 1
        first = at
        while at < len(lines) and not lines[at].startswith("$ "):
            at += 1
        yield Step(code, python=False, printed="".join(f"{line}\n" for line in lines[first:at]))


def _whole(code: str) -> bool:
    """Does a command end here?"""
    if code.endswith(("\\", "|")) or code.count("'") % 2:
        return False
    heredoc = _HEREDOC.search(code)
    return heredoc is None or code.endswith(f"\n{heredoc[1]}")


def _shown(steps: list[Step]) -> str:
    if steps[0].python:
        return f"```python\n{steps[0].code}```\n\n```text\n{steps[0].printed}```"
    return "```console\n" + "".join(f"$ {one.code}\n{one.printed}" for one in steps) + "```"
