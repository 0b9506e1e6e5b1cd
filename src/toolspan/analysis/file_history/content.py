"""What a file held between two calls.

In: the points of one file's life in order: what was seen of it, done to it, or may have been done
to it. Out: its content at any place between them, how sure that is, and where the records disagree.
From every content that somebody recorded, effects lead forwards and backwards; a content is exact
when it was seen there, or when both ways meet in it. Pure; `archive.py` collects the points.

Read `Life.at` first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

from msgspec import Struct

from toolspan.diffs import PatchError, apply, problems, revert
from toolspan.diffs.codex_patch import UpdateFile, apply_update, revert_update
from toolspan.diffs.hunks import NOTE, UNCHANGED
from toolspan.types.hunk import Hunk
from toolspan.types.inputs import TextEdit


class Absent(Struct, frozen=True):
    """There is no file."""


ABSENT = Absent()
FileContent = str | Absent


class WriteEffect(Struct, frozen=True, kw_only=True, tag="wrote"):
    """The whole content was given."""

    content: str
    hunks: tuple[Hunk, ...] = ()
    """How it differs from the content before, when there was one and somebody said so."""
    created: bool = False
    assumed: bool = False
    """It would have been called so even if a file had been there."""


class AppendEffect(Struct, frozen=True, kw_only=True, tag="appended"):
    """A text was put behind the content, or made a new file."""

    content: str


class EditEffect(Struct, frozen=True, kw_only=True, tag="edited"):
    """Texts were replaced."""

    edits: tuple[TextEdit, ...] = ()
    hunks: tuple[Hunk, ...] = ()
    by_person: bool = False
    """A person changed what was asked for, so that only the hunks are to be believed."""


class PatchEffect(Struct, frozen=True, kw_only=True, tag="fitted"):
    """Chunks were put where their lines were found."""

    section: UpdateFile


class MoveEffect(Struct, frozen=True, kw_only=True, tag="moved_here"):
    """The file came from another path, perhaps changed on the way."""

    source: str
    change: EditEffect | PatchEffect
    assumed: bool = True
    """Whether a file was there is not said."""


class RemoveEffect(Struct, frozen=True, kw_only=True, tag="removed"):
    """The file went away."""

    content: str | None = None
    """What it held, when somebody said so."""


class UnknownEffect(Struct, frozen=True, kw_only=True, tag="unclear"):
    """Something was done that the transcript does not tell."""

    reason: str


Effect = WriteEffect | AppendEffect | EditEffect | PatchEffect | MoveEffect | RemoveEffect | UnknownEffect


def apply_effect(effect: Effect, before: FileContent) -> FileContent:
    """The content after an effect; that of a move is made from the content at its source.

    Raises:
        PatchError: the effect does not fit that content.
    """
    match effect:
        case WriteEffect():
            return effect.content
        case AppendEffect():
            return ("" if isinstance(before, Absent) else before) + effect.content
        case RemoveEffect():
            return ABSENT
        case UnknownEffect():
            raise PatchError(effect.reason)
        case MoveEffect():
            return apply_effect(effect.change, before)
        case EditEffect():
            return _apply_edit(effect, "" if isinstance(before, Absent) else before)
        case PatchEffect():
            return apply_update(effect.section, _require_text(before))


def revert_effect(effect: Effect, after: FileContent) -> FileContent:
    """The content before an effect.

    Raises:
        PatchError: the effect does not fit that content, or does not say what it replaced.
    """
    match effect:
        case WriteEffect(created=True) | MoveEffect():
            return ABSENT
        case WriteEffect(hunks=(_, *_) as hunks):
            return _revert_write(hunks, _require_text(after))
        case RemoveEffect(content=str(content)):
            return content
        case EditEffect():
            return _revert_edit(effect, _require_text(after))
        case PatchEffect():
            return _revert_verified(effect, _require_text(after), lambda text: revert_update(effect.section, text))
        case AppendEffect(content=str(content)) if _require_text(after) not in ("", content):
            return _strip_appended(content, _require_text(after))
        case WriteEffect() | AppendEffect() | RemoveEffect() | UnknownEffect():
            raise PatchError("what was there before is not recorded")


def _strip_appended(content: str, after: str) -> str:
    if not after.endswith(content):
        raise PatchError("the text does not end with what was put behind it")
    return after.removesuffix(content)


def _revert_write(hunks: Sequence[Hunk], after: str) -> str:
    """The old text, unless nobody knows whether a newline ended it."""
    last = hunks[-1]
    at_end = _last_line(last) >= len(after.removesuffix("\n").split("\n"))
    if at_end and last.lines[-1][:1] not in (UNCHANGED, NOTE):
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


def _require_text(content: FileContent) -> str:
    if isinstance(content, Absent):
        raise PatchError("there is no file to change")
    return content


def _apply_edit(effect: EditEffect, text: str) -> str:
    """By hunks and by replacing; where only tabs or the last newline differ, replacing knows."""
    patched = _none_if_unfit(lambda: _apply_hunks(effect.hunks, text))
    replaced = None if effect.by_person else _none_if_unfit(lambda: _replace_texts(effect.edits, text))
    if patched is None and replaced is None:
        raise PatchError("neither the recorded patch nor the replaced text fits the file")
    if replaced is None:
        _refuse_lost_tabs(effect.hunks, text, "+")
    if patched is None or (replaced is not None and _equal_ignoring_tabs(patched, replaced)):
        return replaced or ""
    return patched


def _equal_ignoring_tabs(first: str, second: str) -> bool:
    return _expand_tabs(first.rstrip("\n")) == _expand_tabs(second.rstrip("\n"))


def _expand_tabs(text: str) -> str:
    """As clients show it: some versions write two blanks for each tab that indents a line."""
    return text.replace("\t", "  ")


def _none_if_unfit(make: Callable[[], str]) -> str | None:
    try:
        return make()
    except PatchError:
        return None


def _apply_hunks(hunks: Sequence[Hunk], text: str) -> str:
    if not hunks or problems(hunks):
        raise PatchError("no sound patch is recorded")
    return apply(hunks, text)


def _replace_texts(edits: Sequence[TextEdit], text: str) -> str:
    if not edits:
        raise PatchError("no replaced text is recorded")
    for edit in edits:
        old, new = edit.old_string, edit.new_string
        if old is None or new is None or (old not in text) or (not old and text):
            raise PatchError("the replaced text is not in the file")
        text = text.replace(old, new, -1 if edit.replace_all else 1) if old else new
    return text


def _revert_edit(effect: EditEffect, after: str) -> str:
    """The first old text that the edit would turn into the new one."""
    for guess in _candidate_originals(effect, after):
        for text in (guess, guess + "\n", guess.removesuffix("\n")):
            if _none_if_unfit(lambda text=text: _apply_edit(effect, text)) == after:  # type: ignore[misc]
                return text
    raise PatchError("the edit cannot be taken back from that content")


def _candidate_originals(effect: EditEffect, after: str) -> Iterator[str]:
    if effect.hunks and not problems(effect.hunks):
        reverted = _none_if_unfit(lambda: revert(effect.hunks, after))
        if reverted is not None and not _has_lost_tabs(effect, reverted):
            yield reverted
    text = after
    for edit in reversed(effect.edits):
        old, new = edit.old_string, edit.new_string
        if old is None or not new or text.count(new) != 1:
            return  # it could have stood in several places
        text = text.replace(new, old)
    if effect.edits:
        yield text


def _has_lost_tabs(effect: EditEffect, before: str) -> bool:
    """Whether the text that was replaced would stand there, were its tabs not blanks."""
    lines = _expand_tabs(before)
    return not effect.by_person and any(
        edit.old_string not in before and _expand_tabs(edit.old_string) in lines
        for edit in effect.edits
        if edit.old_string
    )


def _revert_verified(effect: PatchEffect, after: str, undo: Callable[[str], str]) -> str:
    before = undo(after)
    if apply_update(effect.section, before) != after:
        raise PatchError("the patch cannot be taken back from that content")
    return before


CallSide = Literal["before", "after"]
_MAX_DOUBTS = 4
Confidence = Literal["exact", "derived", "doubtful", "partial", "unknown"]


class FileExcerpt(Struct, frozen=True, kw_only=True):
    """Some lines of a file that are known."""

    start: int
    """The first one's number, from 1."""
    lines: tuple[str, ...]


class HistoryPoint(Struct, frozen=True, kw_only=True):
    """Something that happened to a file, or that somebody saw of it."""

    call: str | None
    """None: no call, but a copy the client kept."""
    source: str
    """In words, for people: `Edit`, `Read`, `backup`."""
    before: FileContent | None = None
    """Seen right before."""
    after: FileContent | None = None
    """Seen or written right after."""
    seen: bool = False
    """What is known was read from the file, not written to it."""
    effect: Effect | None = None
    """None: the file stayed as it was."""
    doubt: str | None = None
    """Why the file may have changed here without a record."""
    parts: tuple[FileExcerpt, ...] = ()

    @property
    def name(self) -> str:
        """What to call it by."""
        return f"{self.source} {self.call or ''}".strip()


class Disagreement(Struct, frozen=True, kw_only=True):
    """Two records that cannot both be the whole truth."""

    call: str | None
    """At which call it shows."""
    words: str


class RecoveredContent(Struct, frozen=True, kw_only=True):
    """A content with how sure it is."""

    content: FileContent | None
    """None: not known as a whole."""
    confidence: Confidence
    reasons: tuple[str, ...]
    """Why this content, and why not surer."""
    parts: tuple[FileExcerpt, ...] = ()


class _Derivation(NamedTuple):
    """A content and the way it was found."""

    content: FileContent
    start: int
    """The point whose record it begins with."""
    seen: bool
    """It begins with something that was read from the file."""
    steps: int = 0
    doubts: tuple[str, ...] = ()
    assumed: bool = False
    """It is what usually is so, and gives way to anything that is known."""


MoveSource = Callable[[str, str | None], "RecoveredContent | None"]
"""The content of another path before a call; for moves."""


class FileTimeline:
    """One file from the first to the last that is known of it.

    There is a slot before each point and one behind the last; slot `n` is before point `n`.
    """

    def __init__(self, points: Sequence[HistoryPoint], source: MoveSource | None = None) -> None:
        self.points = points
        self._source = source
        self._left_derivations: list[_Derivation | None] = [None]
        self._disagreements: list[Disagreement] = []

    @property
    def disagreements(self) -> list[Disagreement]:
        """Where the records of the file cannot all be the whole truth."""
        self._derive_from_left(len(self.points))
        return self._disagreements

    def slot_of(self, call: str, side: CallSide) -> int | None:
        """The slot before or after a call; None when the call is not of this file."""
        places = [n for n, point in enumerate(self.points) if point.call == call]
        if not places:
            return None
        return places[0] if side == "before" else places[-1] + 1

    def content_at(self, slot: int, side: CallSide) -> RecoveredContent:
        """What the file held there; seen from the call before it (`after`) or behind it."""
        from_left, from_right = self._derive_from_left(slot), self._right_derivations[slot]
        if from_left is not None and from_right is not None and not from_right.assumed:
            return self._recover_from_both(from_left, from_right, slot if side == "before" else slot - 1)
        trail = from_right if from_left is None else from_left
        return self._recover_partial(slot) if trail is None else self._recover_from(trail)

    def _derive_from_left(self, slot: int) -> _Derivation | None:
        """What a slot holds by all that came before it.

        Not further than asked for: a file that was moved asks another one what it held before,
        and that one may have come from this one earlier.
        """
        while len(self._left_derivations) <= slot:
            n = len(self._left_derivations) - 1
            self._left_derivations.append(self._derive_next(n, self.points[n], self._left_derivations[n]))
        return self._left_derivations[slot]

    def _derive_next(self, n: int, point: HistoryPoint, trail: _Derivation | None) -> _Derivation | None:
        if point.before is not None:
            self._check_agreement(point, trail)
            trail = _Derivation(point.before, n, seen=True)
        if point.after is not None:
            return _Derivation(point.after, n, seen=point.seen)
        if isinstance(point.effect, MoveEffect):
            trail = self._derive_moved(n, point, point.effect)
        if trail is None:
            return None
        if point.doubt is not None:
            trail = trail._replace(doubts=(*trail.doubts, point.doubt))
        if point.effect is None:
            return trail
        try:
            after = apply_effect(point.effect, trail.content)
        except PatchError as error:
            self._add_disagreement(point, f"{point.source} does not fit what was there before: {error}")
            return None
        return trail._replace(content=after, steps=trail.steps + 1)

    def _derive_moved(self, n: int, point: HistoryPoint, effect: MoveEffect) -> _Derivation | None:
        recovered = self._source(effect.source, point.call) if self._source else None
        if recovered is None or recovered.content is None:
            return None
        doubts = recovered.reasons[-1:] if recovered.confidence == "doubtful" else ()
        return _Derivation(recovered.content, n, seen=False, doubts=doubts)

    @cached_property
    def _right_derivations(self) -> list[_Derivation | None]:
        """What each slot holds by all that came behind it."""
        derivations: list[_Derivation | None] = [None]
        trail: _Derivation | None = None
        for n in range(len(self.points) - 1, -1, -1):
            trail = _derive_previous(n, self.points[n], trail)
            derivations.append(trail)
        return derivations[::-1]

    def _check_agreement(self, point: HistoryPoint, trail: _Derivation | None) -> None:
        if trail is None or point.before is None or _same_content(trail.content, point.before):
            return
        name = self.points[trail.start].name
        blamed = f"; perhaps {trail.doubts[-1]}" if trail.doubts else "; nobody recorded by what"
        self._add_disagreement(point, f"the file was not what followed from {name}: it was changed{blamed}")

    def _add_disagreement(self, point: HistoryPoint, message: str) -> None:
        self._disagreements.append(Disagreement(call=point.call, words=message))

    def _recover_from(self, trail: _Derivation) -> RecoveredContent:
        origin = self._describe_origin(trail)
        if trail.doubts:
            reasons = (origin, *_format_doubts(trail.doubts))
            return RecoveredContent(content=trail.content, confidence="doubtful", reasons=reasons)
        exact = trail.seen and not trail.steps
        return _mark_undecodable(
            RecoveredContent(content=trail.content, confidence="exact" if exact else "derived", reasons=(origin,))
        )

    def _recover_from_both(self, from_left: _Derivation, from_right: _Derivation, call_point: int) -> RecoveredContent:
        """One of two ways; where they do not meet, the call's own record is believed first."""
        if _same_content(from_left.content, from_right.content):
            met = (self._describe_origin(from_left), f"agrees with {self._describe_origin(from_right)}")
            content = from_right.content if from_right.seen and not from_right.steps else from_left.content
            return _mark_undecodable(RecoveredContent(content=content, confidence="exact", reasons=met))
        chosen, other = sorted(
            (from_left, from_right), key=lambda way: (len(way.doubts), not _is_recorded_by(way, call_point), way.steps)
        )
        recovered = self._recover_from(chosen)
        return RecoveredContent(
            content=chosen.content,
            confidence=recovered.confidence if _is_recorded_by(chosen, call_point) else "doubtful",
            reasons=(*recovered.reasons, f"disagrees with {self._describe_origin(other)}"),
        )

    def _describe_origin(self, trail: _Derivation) -> str:
        point = self.points[trail.start]
        name = point.name
        if not trail.steps:
            return f"what {name} recorded"
        if trail.assumed:
            return f"assumed, because {name} says that it made the file"
        if trail.steps == 1 and point.effect is not None and trail.seen:
            return f"what {name} recorded, with its change made"
        changes = "1 change" if trail.steps == 1 else f"{trail.steps} changes"
        return f"what {name} recorded, {changes} away"

    def _recover_partial(self, slot: int) -> RecoveredContent:
        parts = tuple(self._known_excerpts(slot))
        if not parts:
            return RecoveredContent(content=None, confidence="unknown", reasons=("no record holds its content",))
        return RecoveredContent(
            content=None,
            confidence="partial",
            reasons=("only these lines of it were recorded",),
            parts=tuple(sorted(parts, key=lambda part: part.start)),
        )

    def _known_excerpts(self, slot: int) -> Iterator[FileExcerpt]:
        """Lines that were seen around a slot, as far as the file stayed as it was."""
        for step, first in ((-1, slot - 1), (1, slot)):
            n = first
            while 0 <= n < len(self.points):
                point = self.points[n]
                if point.effect is not None or point.doubt is not None:
                    yield from _hunk_excerpts(point, old=step == 1)
                    break
                yield from point.parts
                n += step


def _format_doubts(doubts: Sequence[str]) -> Iterator[str]:
    """Doubts as reasons; of very many, the first ones and how many more there are."""
    distinct = list(dict.fromkeys(doubts))
    yield from distinct[:_MAX_DOUBTS]
    if len(distinct) > _MAX_DOUBTS:
        yield f"and {len(distinct) - _MAX_DOUBTS} more such calls"


def _is_recorded_by(trail: _Derivation, point: int) -> bool:
    """Whether it is what that call itself recorded, not what was concluded from it backwards."""
    return trail.start == point and (trail.seen or not trail.steps)


def _hunk_excerpts(point: HistoryPoint, *, old: bool) -> Iterator[FileExcerpt]:
    """The lines that the hunks of a change show of one side."""
    leaves = "+" if old else "-"
    for hunk in getattr(point.effect, "hunks", ()):
        lines = tuple(line[1:] for line in hunk.lines if line[:1] not in (leaves, "\\"))
        yield FileExcerpt(start=hunk.old_start if old else hunk.new_start, lines=lines)


def _derive_previous(n: int, point: HistoryPoint, trail: _Derivation | None) -> _Derivation | None:
    if point.before is not None:
        return _Derivation(point.before, n, seen=True)
    if point.after is not None:
        trail = _Derivation(point.after, n, seen=point.seen)
    if point.effect is not None:
        try:
            # A file that was made was not there before, whatever became of it.
            content = revert_effect(point.effect, trail.content if trail else Absent())
        except PatchError:
            return None
        steps = trail.steps + 1 if trail else 1
        doubts = trail.doubts if trail else ()
        assumed = isinstance(point.effect, WriteEffect | MoveEffect) and point.effect.assumed
        start = trail.start if trail else n
        trail = _Derivation(content, start, False, steps, doubts, assumed)  # noqa: FBT003
    if trail is not None and point.doubt is not None:
        trail = trail._replace(doubts=(*trail.doubts, point.doubt))
    return trail


def _same_content(first: FileContent, second: FileContent) -> bool:
    if isinstance(first, Absent) or isinstance(second, Absent):
        return first == second
    return first == second or first.replace("\r\n", "\n") == second.replace("\r\n", "\n")


def _mark_undecodable(recovered: RecoveredContent) -> RecoveredContent:
    """Clients show bytes that are no text as U+FFFD, and then nobody knows which they were."""
    if isinstance(recovered.content, str) and "\ufffd" in recovered.content:
        reasons = (*recovered.reasons, "it shows U+FFFD, which may stand for bytes that are no text")
        return RecoveredContent(content=recovered.content, confidence="doubtful", reasons=reasons)
    return recovered
