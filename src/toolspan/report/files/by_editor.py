"""What Claude Code's own tools did to files.

In: a call of an editing tool that succeeded. Out: what its result tells; where nothing stands
beside the text for the model, what was asked for.
"""

from collections.abc import Iterator

from toolspan.model.inputs import EditInput, MultiEditInput, NotebookEditInput, TextEdit, WriteInput
from toolspan.model.span import Span
from toolspan.report.files.effect import Edited, Unclear, Wrote
from toolspan.report.files.place import whole
from toolspan.report.files.told import Told, changed, created, sound
from toolspan.wire import claude_results as results


def by_editor(span: Span, cwd: str | None) -> Iterator[Told]:
    """The changes that an editing tool made."""
    structured = span.result.structured if span.result else None
    match structured:
        case results.EditResult():
            if not structured.staged:
                yield _edit(structured, cwd)
        case results.MultiEditResult():
            yield _multi_edit(structured, cwd)
        case results.WriteResult():
            if not structured.staged:
                yield _write(structured, cwd)
        case results.NotebookEditResult():
            if not structured.error:
                yield from _notebook(structured, span, cwd)
        case _:
            yield from _by_input(span, cwd)


def _edit(result: results.EditResult, cwd: str | None) -> Told:
    edit = TextEdit(
        old_string=result.old_string,
        new_string=result.new_string,
        replace_all=bool(result.replace_all),
    )
    effect = Edited(
        edits=(edit,), hunks=result.structured_patch, by_person=bool(result.user_modified)
    )
    if not result.old_string and not result.original_file:
        return created(whole(result.file_path, cwd), result.new_string)
    return changed(whole(result.file_path, cwd), effect, result.original_file)


def _multi_edit(result: results.MultiEditResult, cwd: str | None) -> Told:
    effect = Edited(
        edits=result.edits,
        hunks=result.structured_patch,
        by_person=bool(result.user_modified),
    )
    before = result.original_file_contents
    before = result.original_file if before is None else before
    return changed(whole(result.file_path, cwd), effect, before)


def _write(result: results.WriteResult, cwd: str | None) -> Told:
    path = whole(result.file_path, cwd)
    if result.content is None:
        return Told(path=path, kind="edited", effect=Unclear(reason="no content is recorded"))
    if result.type == "create":
        return created(path, result.content)
    effect = Wrote(content=result.content, hunks=sound(result.structured_patch))
    return changed(path, effect, result.original_file)


def _notebook(result: results.NotebookEditResult, span: Span, cwd: str | None) -> Iterator[Told]:
    given = span.input
    name = result.notebook_path or (
        given.notebook_path if isinstance(given, NotebookEditInput) else ""
    )
    if not name:
        return
    path = whole(name, cwd)
    if result.updated_file is None:
        reason = "only the cell is recorded, not the notebook"
        yield Told(path=path, kind="edited", effect=Unclear(reason=reason))
    else:
        yield changed(path, Wrote(content=result.updated_file), result.original_file)


def _by_input(span: Span, cwd: str | None) -> Iterator[Told]:
    """Where nothing stands beside the text for the model, the request says what was done."""
    match span.input:
        case EditInput(file_path=path, old_string="", new_string=str(new)) if path:
            yield created(whole(path, cwd), new)
        case EditInput(file_path=path) as given if path:
            edit = TextEdit(
                old_string=given.old_string,
                new_string=given.new_string,
                replace_all=given.replace_all,
            )
            yield changed(whole(path, cwd), Edited(edits=(edit,)), None)
        case MultiEditInput(file_path=path, edits=edits) if path:
            yield changed(whole(path, cwd), Edited(edits=edits), None)
        case WriteInput(file_path=path, content=str(content)) if path:
            assert span.result is not None
            if "created" in span.result.text[:40]:
                yield created(whole(path, cwd), content)
            else:
                yield changed(whole(path, cwd), Wrote(content=content), None)
        case NotebookEditInput(notebook_path=path) if path:
            reason = "only the cell is recorded, not the notebook"
            yield Told(path=whole(path, cwd), kind="edited", effect=Unclear(reason=reason))
        case _:
            return
