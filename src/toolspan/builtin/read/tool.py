"""Read: the lines of a text file, an image, a PDF or a notebook.

In: a path and perhaps a range of lines. Out: what the model reads and what is recorded, and a mark
in the file states that the conversation has seen the file. `_read` tells the story.
"""

import stat
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from anyio import to_thread

from toolspan.builtin.read.asked import question_of, schema_of, sound_range
from toolspan.builtin.read.lines import show_notebook, show_text
from toolspan.builtin.read.media import show_document, show_image, show_pages
from toolspan.builtin.read.refused import error_of, missing, oversize, validate
from toolspan.builtin.read.shown import Shown
from toolspan.disk.load import look
from toolspan.disk.picture import MEDIA_TYPES
from toolspan.disk.place import lock_name, real
from toolspan.disk.words import clean
from toolspan.errors import ToolError
from toolspan.profile import Profile
from toolspan.run.context import ToolContext
from toolspan.run.files import FileState
from toolspan.run.tool import Output, Tool
from toolspan.schema.check import checker
from toolspan.schema.issue import Invalid, Valid

_DESCRIPTION = """\
Show a file. Text comes with line numbers, from `offset` on and `limit` lines long when these are
given; images, PDF documents and Jupyter notebooks come as what they are. Very large files need a
range. Paths are absolute, or relative to the current folder."""


def read_tool(profile: Profile) -> Tool:
    """Read as a client version has it."""
    schema = schema_of(profile.files)
    check = checker(schema, coerce=profile.offer.coerces)

    def parse(given: Mapping[str, object]) -> Valid | Invalid:
        return check(sound_range(given) if profile.files.odd_range == "dropped" else given)

    return Tool(
        name="Read",
        description=_DESCRIPTION,
        input_schema=schema,
        parse=parse,
        run=_run,
        validate=validate,
        concurrent=True,
        read_only=True,
        idempotent=True,
        output_limit=None,  # what is read is bounded by itself, and must not be spilled to a file
        paths=lambda value: frozenset({lock_name(value["file_path"])}),
    )


async def _run(value: Mapping[str, object], ctx: ToolContext) -> Output:
    shown = await to_thread.run_sync(partial(_read, value, ctx), abandon_on_cancel=True)
    _remember(shown, ctx)  # here, since a cancelled Read has shown nothing
    return shown.output


def _read(value: Mapping[str, object], ctx: ToolContext) -> Shown:
    question = question_of(value, ctx)
    found = look(question.path)
    if found is None:
        raise error_of(missing(question, ctx))
    if stat.S_ISDIR(found.st_mode):
        text = question.values.unreadable_folder.format(path=clean(str(question.path)))
        raise ToolError(text, kind="is_directory")
    ending = question.path.suffix.lower()
    if ending in MEDIA_TYPES:
        return show_image(question)
    if ending == ".pdf":
        return show_document(question) if question.pages is None else show_pages(question, ctx)
    if ending == ".ipynb":
        return show_notebook(question)
    if refusal := oversize(question, found.st_size):
        raise error_of(refusal)
    return show_text(question, ctx)


def _remember(shown: Shown, ctx: ToolContext) -> None:
    question = shown.question
    state = FileState(
        digest=shown.digest,
        mtime_ns=shown.stamp.mtime_ns,
        size=shown.stamp.size,
        whole=question.whole,
        call_id=ctx.call.id,
        range=(question.offset, question.limit),
    )
    ctx.files.saw(question.path, state)
    target = real(question.path)
    if target != question.path:  # by its own name no lines were shown, so no range
        ctx.files.saw(target, replace(state, range=None))
