"""What a call of a file tool would change, as a diff.

In: a question about Edit, MultiEdit, Write or NotebookEdit. Out: the diff a person reads before
they say yes; None where none can be made, because the file cannot be read or the edit does not fit
it: then the call's own words have to do. The tool itself decides anew when it runs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolspan.disk.cells import notebook
from toolspan.disk.load import load, look
from toolspan.disk.match import curled, find
from toolspan.disk.place import placed
from toolspan.disk.text import Codec, Span, Text, decode, plain, spliced
from toolspan.errors import ToolspanError
from toolspan.patch import unified
from toolspan.patch.make import make
from toolspan.permission.decide import Question
from toolspan.profile.files import FileValues

MOST = 4 << 20
"""Bytes of a file that is still compared."""
_Input = Mapping[str, object]


def change_of(question: Question, values: FileValues) -> str | None:
    """The diff; None where there is none to show."""
    differ = _DIFFERS.get(question.tool)
    name = question.input.get("file_path", question.input.get("notebook_path"))
    if differ is None or not isinstance(name, str):
        return None
    try:
        path = placed(name, question.cwd, question.ground().home if values.expands_home else None)
        near = path.is_relative_to(question.cwd)
        shown = path.relative_to(question.cwd) if near else path
        return differ(question.input, _File(str(shown), _now(path), values)) or None
    except (ToolspanError, LookupError, ValueError, OSError):
        return None


def _now(path: Path) -> Text | None:
    """The file as it is; None if there is none."""
    return None if look(path) is None else decode(load(path, MOST).data)


@dataclass(frozen=True, slots=True)
class _File:
    """What is to be changed."""

    name: str
    now: Text | None
    """None: there is no file yet."""
    values: FileValues

    def diff(self, new: str) -> str:
        """From what it is to this."""
        if self.now is None:
            return unified(make("", new), self.name, change="create")
        return unified(make(self.now.shown, new), self.name)


def _written(given: _Input, file: _File) -> str:
    return file.diff(plain(str(given["content"])))


def _edited(given: _Input, file: _File) -> str:
    return file.diff(_applied(file, [given]).shown)


def _edited_often(given: _Input, file: _File) -> str:
    edits = given["edits"]
    return file.diff(_applied(file, edits if isinstance(edits, list) else []).shown)


def _applied(file: _File, edits: Sequence[_Input]) -> Text:
    """The text after the edits.

    Raises:
        LookupError: one of them does not fit.
    """
    text = file.now or Text("", "", Codec("utf-8"))
    for edit in edits:
        old, new = plain(str(edit["old_string"])), str(edit["new_string"])
        spans = find(text.plain, old) if old else [Span(0, 0)]
        if not spans:
            raise LookupError(old)
        replaced = text.plain[spans[0].start : spans[0].end]
        wanted = spans if edit.get("replace_all") is True else spans[:1]
        new = curled(new, replaced) if file.values.keeps_curly else new
        text = spliced(text, wanted, new)
    return text


def _cell(given: _Input, file: _File) -> str:
    """The source of the cell before and after: the file around it says nothing to people."""
    if file.now is None:
        raise LookupError(file.name)
    mode, wanted = given.get("edit_mode") or "replace", given.get("cell_id")
    new = "" if mode == "delete" else str(given.get("new_source", ""))
    old = "" if mode == "insert" else _source(file.now, wanted)
    return unified(make(old, new), f"{file.name}#{wanted or 'first'}")


def _source(now: Text, wanted: object) -> str:
    cells = notebook(now.raw).cells
    found = {f"cell-{at}": cell for at, cell in enumerate(cells)}
    found |= {str(cell["id"]): cell for cell in cells if "id" in cell}
    source = found[str(wanted)].get("source", "")
    return "".join(map(str, source)) if isinstance(source, list) else str(source)


_DIFFERS: Mapping[str, Callable[[_Input, _File], str]] = {
    "Edit": _edited,
    "MultiEdit": _edited_often,
    "NotebookEdit": _cell,
    "Write": _written,
}
