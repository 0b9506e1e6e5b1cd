"""What patches did to files: those of Codex, and those that a command line carries.

In: a call that applied a patch. Out: what the client told of each file, else what the patch says.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from toolspan.model.hunk import Hunk
from toolspan.model.inputs import decode_anything
from toolspan.model.span import Span
from toolspan.patch import ChangeCount, PatchError, added_removed
from toolspan.patch.envelope import Add, Delete, Section, Update, count, parse
from toolspan.patch.heredoc import Embedded, patches_in
from toolspan.patch.make import make
from toolspan.patch.parse import parse_hunks
from toolspan.report.files.by_command import command_in
from toolspan.report.files.effect import Edited, Fitted, MovedHere, Removed, Unclear
from toolspan.report.files.place import whole
from toolspan.report.files.told import Told, assumed, changed, sound
from toolspan.wire import codex_results

PATCHERS = frozenset({"apply_patch", "applypatch"})


def holds_patch(span: Span) -> bool:
    """Whether a call is one for a patch, as far as can be seen without reading it."""
    shell = span.call.kind == "shell"
    return span.tool in PATCHERS or (shell and b"apply" in span.call.raw_input)


def patched_paths(span: Span, cwd: str | None) -> list[str]:
    """The files that a patch names, whether it was applied or not; none for other calls."""
    if span.tool not in PATCHERS:
        return []
    found = []
    for embedded in _patches(span):
        with suppress(PatchError):
            found += [whole(section.path, cwd) for section in parse(embedded.patch)]
    return found


def by_patch(span: Span, cwd: str | None) -> Iterator[Told]:
    """The changes that a patch made."""
    structured = span.result.structured if span.result else None
    if isinstance(structured, codex_results.PatchResult) and structured.changes:
        for name, change in structured.changes.items():
            yield from _by_event(whole(name, cwd), change, cwd)
    else:
        yield from _by_text(span, cwd)


def _by_event(path: str, change: codex_results.FileChange, cwd: str | None) -> Iterator[Told]:
    """What the client itself told of a change."""
    match change.type:
        case "add":
            yield assumed(path, change.content or "")
        case "delete":
            content = change.content
            hunks = tuple(make(content, "")) if content is not None else ()
            counted = added_removed(hunks) if content is not None else None
            yield Told(
                path=path,
                kind="deleted",
                effect=Removed(content=content),
                hunks=hunks,
                count=counted,
                before=content,
            )
        case "update":
            effect = Edited(hunks=_hunks(change.unified_diff or ""))
            if change.move_path is None:
                yield changed(path, effect, None)
            else:
                target = whole(change.move_path, cwd)
                yield from _moved(path, target, effect, added_removed(effect.hunks))
        case _:
            reason = f"a change of the kind {change.type!r} is not known"
            yield Told(path=path, kind="edited", effect=Unclear(reason=reason))


def _hunks(diff: str) -> tuple[Hunk, ...]:
    try:
        return sound(parse_hunks(diff))
    except PatchError:
        return ()


def _by_text(span: Span, cwd: str | None) -> Iterator[Told]:
    for embedded in _patches(span):
        folder = whole(embedded.folder, cwd) if embedded.folder else cwd
        try:
            sections = parse(embedded.patch)
        except PatchError:
            continue  # the client cannot have applied it
        for section in sections:
            yield from _sectioned(section, folder, unclear=embedded.moved)


def _patches(span: Span) -> Sequence[Embedded]:
    given = decode_anything(span.call.raw_input)
    if isinstance(given, str):
        return [Embedded(given)] if span.tool in PATCHERS else patches_in(given)
    if not isinstance(given, Mapping):
        return []
    if span.tool in PATCHERS:
        text = given.get("input") or given.get("patch")
        return [Embedded(text)] if isinstance(text, str) else []
    folder = given.get("workdir")
    found = patches_in(command_in(given))
    if isinstance(folder, str) and folder:
        return [one._replace(folder=whole(one.folder or ".", folder)) for one in found]
    return found


def _sectioned(section: Section, folder: str | None, *, unclear: bool) -> Iterator[Told]:
    path = whole(section.path, folder)
    if unclear:
        reason = "the command goes to a folder that is not known"
        yield Told(path=path, kind="edited", effect=Unclear(reason=reason), count=count(section))
        return
    match section:
        case Add():
            yield assumed(path, section.content)
        case Delete():
            yield Told(path=path, kind="deleted", effect=Removed())
        case Update(move_to=str(target)):
            yield from _moved(path, whole(target, folder), Fitted(section=section), count(section))
        case Update():
            effect = Fitted(section=section)
            yield Told(path=path, kind="edited", effect=effect, count=count(section))


def _moved(
    source: str, target: str, change: Edited | Fitted, counted: ChangeCount
) -> Iterator[Told]:
    yield Told(path=source, kind="moved", effect=Removed(), moved_to=target)
    yield Told(
        path=target,
        kind="moved",
        effect=MovedHere(source=source, change=change),
        count=counted,
        moved_from=source,
    )
