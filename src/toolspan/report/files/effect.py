"""What a call did to a file, as a step that can be taken forwards and backwards.

In: a content and an effect. Out: the content on the other side, or a `PatchError` when the effect
does not fit. A content is a text, or `ABSENT` where there is no file. Knows no calls and no
transcripts; `change.py` makes effects. Read `forwards` and `backwards` first.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from toolspan.model.hunk import Hunk
from toolspan.model.inputs import TextEdit
from toolspan.patch import PatchError, apply, problems, revert
from toolspan.patch.envelope import Update, take_back, update
from toolspan.patch.hunks import KEPT, NOTE


class Absent(Struct, frozen=True):
    """There is no file."""


ABSENT = Absent()
Content = str | Absent


class Wrote(Struct, frozen=True, kw_only=True, tag="wrote"):
    """The whole content was given."""

    content: str
    hunks: tuple[Hunk, ...] = ()
    """How it differs from the content before, when there was one and somebody said so."""
    created: bool = False
    assumed: bool = False
    """It would have been called so even if a file had been there."""


class Appended(Struct, frozen=True, kw_only=True, tag="appended"):
    """A text was put behind the content, or made a new file."""

    content: str


class Edited(Struct, frozen=True, kw_only=True, tag="edited"):
    """Texts were replaced."""

    edits: tuple[TextEdit, ...] = ()
    hunks: tuple[Hunk, ...] = ()
    by_person: bool = False
    """A person changed what was asked for, so that only the hunks are to be believed."""


class Fitted(Struct, frozen=True, kw_only=True, tag="fitted"):
    """Chunks were put where their lines were found."""

    section: Update


class MovedHere(Struct, frozen=True, kw_only=True, tag="moved_here"):
    """The file came from another path, perhaps changed on the way."""

    source: str
    change: Edited | Fitted
    assumed: bool = True
    """Whether a file was there is not said."""


class Removed(Struct, frozen=True, kw_only=True, tag="removed"):
    """The file went away."""

    content: str | None = None
    """What it held, when somebody said so."""


class Unclear(Struct, frozen=True, kw_only=True, tag="unclear"):
    """Something was done that the transcript does not tell."""

    reason: str


Effect = Wrote | Appended | Edited | Fitted | MovedHere | Removed | Unclear


def forwards(effect: Effect, before: Content) -> Content:
    """The content after an effect; that of a move is made from the content at its source.

    Raises:
        PatchError: the effect does not fit that content.
    """
    match effect:
        case Wrote():
            return effect.content
        case Appended():
            return ("" if isinstance(before, Absent) else before) + effect.content
        case Removed():
            return ABSENT
        case Unclear():
            raise PatchError(effect.reason)
        case MovedHere():
            return forwards(effect.change, before)
        case Edited():
            return _edited(effect, "" if isinstance(before, Absent) else before)
        case Fitted():
            return update(effect.section, _text(before))


def backwards(effect: Effect, after: Content) -> Content:
    """The content before an effect.

    Raises:
        PatchError: the effect does not fit that content, or does not say what it replaced.
    """
    match effect:
        case Wrote(created=True) | MovedHere():
            return ABSENT
        case Wrote(hunks=(_, *_) as hunks):
            return _unwritten(hunks, _text(after))
        case Removed(content=str(content)):
            return content
        case Edited():
            return _unedited(effect, _text(after))
        case Fitted():
            return _proved(effect, _text(after), lambda text: take_back(effect.section, text))
        case Appended(content=str(content)) if _text(after) not in ("", content):
            return _without(content, _text(after))
        case Wrote() | Appended() | Removed() | Unclear():
            raise PatchError("what was there before is not recorded")


def _without(content: str, after: str) -> str:
    if not after.endswith(content):
        raise PatchError("the text does not end with what was put behind it")
    return after.removesuffix(content)


def _unwritten(hunks: Sequence[Hunk], after: str) -> str:
    """The old text, unless nobody knows whether a newline ended it."""
    last = hunks[-1]
    at_end = _last_line(last) >= len(after.removesuffix("\n").split("\n"))
    if at_end and last.lines[-1][:1] not in (KEPT, NOTE):
        raise PatchError("whether a newline ended the old text is not recorded")
    _refuse_lost_tabs(hunks, after, "-")
    return revert(hunks, after)


def _refuse_lost_tabs(hunks: Sequence[Hunk], text: str, sign: str) -> None:
    """Lines that only a patch tells may be indented by tabs that it does not show.

    Raises:
        PatchError: the file is indented by tabs, the patch by blanks alone.
    """
    lines = [line for hunk in hunks for line in hunk.lines]
    blanks = any(line.startswith(f"{sign}  ") for line in lines)
    tabs = any(line[1:2] == "\t" for line in lines)
    if blanks and not tabs and ("\n\t" in text or text.startswith("\t")):
        raise PatchError("the recorded patch does not tell tabs from blanks")


def _last_line(hunk: Hunk) -> int:
    """The last line of the new text that a hunk shows."""
    return hunk.new_start + hunk.new_lines - 1


def _text(content: Content) -> str:
    if isinstance(content, Absent):
        raise PatchError("there is no file to change")
    return content


def _edited(effect: Edited, text: str) -> str:
    """By hunks and by replacing; where only tabs or the last newline differ, replacing knows."""
    patched = _tried(lambda: _patched(effect.hunks, text))
    swapped = None if effect.by_person else _tried(lambda: _swapped(effect.edits, text))
    if patched is None and swapped is None:
        raise PatchError("neither the recorded patch nor the replaced text fits the file")
    if swapped is None:
        _refuse_lost_tabs(effect.hunks, text, "+")
    if patched is None or (swapped is not None and _alike(patched, swapped)):
        return swapped or ""
    return patched


def _alike(one: str, other: str) -> bool:
    return _untabbed(one.rstrip("\n")) == _untabbed(other.rstrip("\n"))


def _untabbed(text: str) -> str:
    """As clients show it: some versions write two blanks for each tab that indents a line."""
    return text.replace("\t", "  ")


def _tried(make: Callable[[], str]) -> str | None:
    try:
        return make()
    except PatchError:
        return None


def _patched(hunks: Sequence[Hunk], text: str) -> str:
    if not hunks or problems(hunks):
        raise PatchError("no sound patch is recorded")
    return apply(hunks, text)


def _swapped(edits: Sequence[TextEdit], text: str) -> str:
    if not edits:
        raise PatchError("no replaced text is recorded")
    for edit in edits:
        old, new = edit.old_string, edit.new_string
        if old is None or new is None or (old not in text) or (not old and text):
            raise PatchError("the replaced text is not in the file")
        text = text.replace(old, new, -1 if edit.replace_all else 1) if old else new
    return text


def _unedited(effect: Edited, after: str) -> str:
    """The first old text that the edit would turn into the new one."""
    for guess in _guesses(effect, after):
        for text in (guess, guess + "\n", guess.removesuffix("\n")):
            if _tried(lambda text=text: _edited(effect, text)) == after:  # type: ignore[misc]
                return text
    raise PatchError("the edit cannot be taken back from that content")


def _guesses(effect: Edited, after: str) -> Iterator[str]:
    if effect.hunks and not problems(effect.hunks):
        found = _tried(lambda: revert(effect.hunks, after))
        if found is not None and not _lost_tabs(effect, found):
            yield found
    text = after
    for edit in reversed(effect.edits):
        old, new = edit.old_string, edit.new_string
        if old is None or not new or text.count(new) != 1:
            return  # it could have stood in several places
        text = text.replace(new, old)
    if effect.edits:
        yield text


def _lost_tabs(effect: Edited, before: str) -> bool:
    """Whether the text that was replaced would stand there, were its tabs not blanks."""
    lines = _untabbed(before)
    return not effect.by_person and any(
        edit.old_string not in before and _untabbed(edit.old_string) in lines
        for edit in effect.edits
        if edit.old_string
    )


def _proved(effect: Fitted, after: str, undo: Callable[[str], str]) -> str:
    before = undo(after)
    if update(effect.section, before) != after:
        raise PatchError("the patch cannot be taken back from that content")
    return before
