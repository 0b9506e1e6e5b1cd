"""Files that are shown as text: lines with their numbers, the cells of a notebook.

In: a question about a file that is there. Out: what is told of it; of a file that has not changed
since, that it has not.
"""

from toolspan.builtin.read.asked import Question
from toolspan.builtin.read.refused import MOST_LARGE, MOST_TEXT
from toolspan.builtin.read.shown import Shown
from toolspan.disk import notebook
from toolspan.disk.load import load
from toolspan.disk.window import Window, window
from toolspan.disk.words import numbered
from toolspan.run.context import ToolContext
from toolspan.run.files import FileState
from toolspan.run.tool import Output

_UNCHANGED = (
    "Wasted call — file unchanged since your last Read. Refer to that earlier tool_result instead."
)
_BAD_BYTES = (
    "\n\n[This file has bytes that are not valid text in its encoding; each is shown as \ufffd.]"
)


def show_text(question: Question, ctx: ToolContext) -> Shown:
    """Lines of a text."""
    values = question.values
    most = MOST_LARGE if question.large else MOST_TEXT
    seen = window(question.path, question.range, most, utf16=values.decodes_utf16)
    before = ctx.files.get(question.path)
    if values.tells_unchanged and _same(before, question, seen):
        pointer = {"type": "file_unchanged", "file": {"filePath": question.name}}
        return Shown(question, Output(_UNCHANGED, pointer), seen.digest, seen.stamp)
    record = {
        "type": "text",
        "file": {
            "filePath": question.name,
            "content": seen.text,
            "numLines": seen.lines,
            "startLine": question.offset,
            "totalLines": seen.total,
        },
    }
    return Shown(question, Output(_told(question, seen), record), seen.digest, seen.stamp)


def _same(before: FileState | None, question: Question, seen: Window) -> bool:
    """Whether the last thing the conversation saw of the file are these lines, by a Read."""
    if before is None or before.range is None:
        return False
    return before.digest == seen.digest and before.range == (question.offset, question.limit)


def _told(question: Question, seen: Window) -> str:
    values = question.values
    nothing = seen.stamp.size == 0
    if not seen.text and (nothing or seen.lines == 0):
        warning = values.empty if nothing and question.offset <= 1 else values.beyond
        text = warning.format(offset=question.offset, lines=seen.total)
        return f"<system-reminder>{text}</system-reminder>"
    text = numbered(seen.text.split("\n"), question.offset, values.numbering)
    return text + (_BAD_BYTES if seen.bad_bytes and values.tells_bad_bytes else "")


def show_notebook(question: Question) -> Shown:
    """The cells of a notebook."""
    loaded = load(question.path, MOST_LARGE)
    cells = notebook.cells(loaded.data)
    record = {
        "type": "notebook",
        "file": {"filePath": question.name, "cells": [cell.record() for cell in cells]},
    }
    output = Output(notebook.blocks(cells), record)
    return Shown(question, output, loaded.digest, loaded.stamp)
