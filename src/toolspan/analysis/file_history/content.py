"""The content of one file at any point in its history. Start at `FileTimeline.content_at`.

A history is a sequence of points: observations of the file, effects on it, and moments at which it may have changed
unrecorded. From each recorded content, effects are applied forwards and reverted backwards. A content is exact if it
was observed at that point, or if both directions lead to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Literal, NamedTuple

from msgspec import Struct

from toolspan.diffs import PatchError, apply, problems, revert
from toolspan.diffs.codex_patch import UpdateFile, apply_update, revert_update
from toolspan.diffs.hunks import NOTE, UNCHANGED
from toolspan.types.hunk import Hunk
from toolspan.types.inputs import TextEdit


class Absent(Struct, frozen=True):
    """The state of a file that does not exist."""


ABSENT = Absent()
FileContent = str | Absent


class WriteEffect(Struct, frozen=True, kw_only=True, tag="wrote"):
    """A write that replaces the whole file."""

    content: str
    hunks: tuple[Hunk, ...] = ()
    created: bool = False
    assumed: bool = False
    """True for a reported creation, because clients also report one if the file already existed."""


class AppendEffect(Struct, frozen=True, kw_only=True, tag="appended"):
    """Text appended to a file that may not have existed before."""

    content: str


class EditEffect(Struct, frozen=True, kw_only=True, tag="edited"):
    """Replacements of parts of the text."""

    edits: tuple[TextEdit, ...] = ()
    hunks: tuple[Hunk, ...] = ()
    by_person: bool = False
    """True if the user modified the request, so that only the hunks are reliable."""


class PatchEffect(Struct, frozen=True, kw_only=True, tag="fitted"):
    """A Codex patch applied to the file."""

    section: UpdateFile


class MoveEffect(Struct, frozen=True, kw_only=True, tag="moved_here"):
    """A move from another path, possibly with changes."""

    source: str
    change: EditEffect | PatchEffect
    assumed: bool = True
    """True if it is unknown whether a file already existed at the new path."""


class RemoveEffect(Struct, frozen=True, kw_only=True, tag="removed"):
    """A removal of the file."""

    content: str | None = None


class UnknownEffect(Struct, frozen=True, kw_only=True, tag="unclear"):
    """A change that the transcript does not describe."""

    reason: str


Effect = WriteEffect | AppendEffect | EditEffect | PatchEffect | MoveEffect | RemoveEffect | UnknownEffect


def apply_effect(effect: Effect, before: FileContent) -> FileContent:
    """Return the content after an effect. For a move, `before` is the content of its source.

    Raises:
        PatchError: the effect cannot be applied to the content.
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
    """Return the content before an effect.

    Raises:
        PatchError: the effect does not match the content, or does not record what it replaced.
    """
    match effect:
        case WriteEffect(created=True) | MoveEffect():
            return ABSENT
        case WriteEffect(hunks=(*_, last) as hunks):
            text = _require_text(after)
            at_end = last.new_start + last.new_lines - 1 >= len(text.removesuffix("\n").split("\n"))
            if at_end and last.lines[-1][:1] not in (UNCHANGED, NOTE):
                raise PatchError("whether a newline ended the old text is not recorded")
            _refuse_lost_tabs(hunks, text, "-")
            return revert(hunks, text)
        case RemoveEffect(content=str(content)):
            return content
        case EditEffect():
            return _revert_edit(effect, _require_text(after))
        case PatchEffect():
            before = revert_update(effect.section, _require_text(after))
            if apply_update(effect.section, before) != after:
                raise PatchError("the patch cannot be reverted from that content")
            return before
        case AppendEffect(content=content) if (text := _require_text(after)) not in ("", content):
            if not text.endswith(content):
                raise PatchError("the content does not end with the appended text")
            return text.removesuffix(content)
        case WriteEffect() | AppendEffect() | RemoveEffect() | UnknownEffect():
            raise PatchError("the previous content is not recorded")


def _refuse_lost_tabs(hunks: Sequence[Hunk], text: str, sign: str) -> None:
    """Check that the hunks do not show tabs as spaces, as some client versions do.

    Raises:
        PatchError: the file is indented with tabs, but the hunks only with spaces.
    """
    lines = [line for hunk in hunks for line in hunk.lines]
    blanks = any(line.startswith(f"{sign}  ") for line in lines)
    tabs = any(line[1:2] == "\t" for line in lines)
    if blanks and not tabs and ("\n\t" in text or text.startswith("\t")):
        raise PatchError("the recorded patch does not distinguish tabs from blanks")


def _require_text(content: FileContent) -> str:
    if isinstance(content, Absent):
        raise PatchError("there is no file to change")
    return content


def _apply_edit(effect: EditEffect, text: str) -> str:
    """Apply hunks and replacements.

    If the results differ only in tabs or the last newline, the result of the replacements is returned.
    """
    patched = None
    if effect.hunks and not problems(effect.hunks):
        with suppress(PatchError):
            patched = apply(effect.hunks, text)
    replaced = None if effect.by_person else _replace_texts(effect.edits, text)
    if patched is None and replaced is None:
        raise PatchError("neither the recorded patch nor the replaced text fits the file")
    if replaced is None:
        _refuse_lost_tabs(effect.hunks, text, "+")
    if patched is None:
        return replaced or ""
    if replaced is not None and _expand_tabs(patched.rstrip("\n")) == _expand_tabs(replaced.rstrip("\n")):
        return replaced
    return patched


def _expand_tabs(text: str) -> str:
    """Return the text as some client versions show it, with two spaces for each tab."""
    return text.replace("\t", "  ")


def _replace_texts(edits: Sequence[TextEdit], text: str) -> str | None:
    for edit in edits:
        old, new = edit.old_string, edit.new_string
        if old is None or new is None or (old not in text) or (not old and text):
            return None
        text = text.replace(old, new, -1 if edit.replace_all else 1) if old else new
    return text if edits else None


def _revert_edit(effect: EditEffect, after: str) -> str:
    """Return the first old text that the edit turns into `after`."""
    for guess in _candidate_originals(effect, after):
        for text in (guess, guess + "\n", guess.removesuffix("\n")):
            with suppress(PatchError):
                if _apply_edit(effect, text) == after:
                    return text
    raise PatchError("the edit cannot be reverted from that content")


def _candidate_originals(effect: EditEffect, after: str) -> Iterator[str]:
    if effect.hunks and not problems(effect.hunks):
        with suppress(PatchError):
            reverted = revert(effect.hunks, after)
            expanded = _expand_tabs(reverted)
            shows_tabs_as_spaces = not effect.by_person and any(
                edit.old_string not in reverted and _expand_tabs(edit.old_string) in expanded
                for edit in effect.edits
                if edit.old_string
            )
            if not shows_tabs_as_spaces:
                yield reverted
    text = after
    for edit in reversed(effect.edits):
        old, new = edit.old_string, edit.new_string
        if old is None or not new or text.count(new) != 1:
            return  # it may have been in several places
        text = text.replace(new, old)
    if effect.edits:
        yield text


CallSide = Literal["before", "after"]
_MAX_DOUBTS = 4
Confidence = Literal["exact", "derived", "doubtful", "partial", "unknown"]


class FileExcerpt(Struct, frozen=True, kw_only=True):
    """A range of known lines of a file."""

    start: int
    lines: tuple[str, ...]


class HistoryPoint(Struct, frozen=True, kw_only=True):
    """An event in the history of one file."""

    call: str | None
    """The id of the call; None for client backups and other points without a call."""
    source: str
    """Display name, such as `Edit`, `Read` or `backup`."""
    before: FileContent | None = None
    after: FileContent | None = None
    seen: bool = False
    """True if the content was read from the file rather than written to it."""
    effect: Effect | None = None
    doubt: str | None = None
    """The reason why the file may have changed unrecorded at this point."""
    parts: tuple[FileExcerpt, ...] = ()

    @property
    def name(self) -> str:
        """Name used in messages."""
        return f"{self.source} {self.call or ''}".strip()


class Disagreement(Struct, frozen=True, kw_only=True):
    """Two records that contradict each other."""

    call: str | None
    words: str


class RecoveredContent(Struct, frozen=True, kw_only=True):
    """The content of a file, with its confidence and the reasons for it."""

    content: FileContent | None
    confidence: Confidence
    reasons: tuple[str, ...]
    """The origin of the content and the reasons why the confidence is not higher."""
    parts: tuple[FileExcerpt, ...] = ()


class _Derivation(NamedTuple):
    """A content, and the point and the number of steps from which it was derived."""

    content: FileContent
    start: int
    seen: bool
    steps: int = 0
    doubts: tuple[str, ...] = ()
    assumed: bool = False
    """True for likely content that any other evidence overrides."""


MoveSource = Callable[[str, str | None], "RecoveredContent | None"]
"""A function that returns the content of another path before a call, which is needed for moves."""


class FileTimeline:
    """The history of one file.

    Slots are the positions between points: slot `n` is before point `n`, and the last slot is after the last point.
    """

    def __init__(self, points: Sequence[HistoryPoint], source: MoveSource | None = None) -> None:
        self.points = points
        self._source = source
        self._left_derivations: list[_Derivation | None] = [None]
        self._disagreements: list[Disagreement] = []

    @property
    def disagreements(self) -> list[Disagreement]:
        """The contradictions between the records about this file."""
        self._derive_from_left(len(self.points))
        return self._disagreements

    def slot_of(self, call: str, side: CallSide) -> int | None:
        """Return the slot before or after a call, or None if the call does not concern this file."""
        places = [n for n, point in enumerate(self.points) if point.call == call]
        if not places:
            return None
        return places[0] if side == "before" else places[-1] + 1

    def content_at(self, slot: int, side: CallSide) -> RecoveredContent:
        """Return the content in a slot. `side` states whether the slot is before or after the call of interest."""
        from_left, from_right = self._derive_from_left(slot), self._right_derivations[slot]
        if from_left is not None and from_right is not None and not from_right.assumed:
            return self._recover_from_both(from_left, from_right, slot if side == "before" else slot - 1)
        derivation = from_right if from_left is None else from_left
        return self._recover_partial(slot) if derivation is None else self._recover_from(derivation)

    def _derive_from_left(self, slot: int) -> _Derivation | None:
        # On demand: a moved file needs the earlier content of another file, which may itself have been moved from here.
        while len(self._left_derivations) <= slot:
            n = len(self._left_derivations) - 1
            self._left_derivations.append(self._derive_next(n, self.points[n], self._left_derivations[n]))
        return self._left_derivations[slot]

    def _derive_next(self, n: int, point: HistoryPoint, derivation: _Derivation | None) -> _Derivation | None:
        if point.before is not None:
            if derivation is not None and not _same_content(derivation.content, point.before):
                name = self.points[derivation.start].name
                cause = derivation.doubts[-1] if derivation.doubts else "the cause is not recorded"
                message = f"the file differed from the content derived from {name}; {cause}"
                self._disagreements.append(Disagreement(call=point.call, words=message))
            derivation = _Derivation(point.before, n, seen=True)
        if point.after is not None:
            return _Derivation(point.after, n, seen=point.seen)
        if isinstance(point.effect, MoveEffect):
            recovered = self._source(point.effect.source, point.call) if self._source else None
            if recovered is None or recovered.content is None:
                return None
            doubts = recovered.reasons[-1:] if recovered.confidence == "doubtful" else ()
            derivation = _Derivation(recovered.content, n, seen=False, doubts=doubts)
        if derivation is None:
            return None
        if point.doubt is not None:
            derivation = derivation._replace(doubts=(*derivation.doubts, point.doubt))
        if point.effect is None:
            return derivation
        try:
            after = apply_effect(point.effect, derivation.content)
        except PatchError as error:
            message = f"{point.source} does not fit the previous content: {error}"
            self._disagreements.append(Disagreement(call=point.call, words=message))
            return None
        return derivation._replace(content=after, steps=derivation.steps + 1)

    @cached_property
    def _right_derivations(self) -> list[_Derivation | None]:
        derivations: list[_Derivation | None] = [None]
        derivation: _Derivation | None = None
        for n in range(len(self.points) - 1, -1, -1):
            derivation = _derive_previous(n, self.points[n], derivation)
            derivations.append(derivation)
        return derivations[::-1]

    def _recover_from(self, derivation: _Derivation) -> RecoveredContent:
        reasons = [self._describe_origin(derivation)]
        if derivation.doubts:
            distinct = list(dict.fromkeys(derivation.doubts))
            reasons += distinct[:_MAX_DOUBTS]
            if len(distinct) > _MAX_DOUBTS:
                reasons.append(f"and {len(distinct) - _MAX_DOUBTS} more such calls")
            return RecoveredContent(content=derivation.content, confidence="doubtful", reasons=tuple(reasons))
        confidence: Confidence = "exact" if derivation.seen and not derivation.steps else "derived"
        return _mark_undecodable(derivation.content, confidence, *reasons)

    def _recover_from_both(self, from_left: _Derivation, from_right: _Derivation, call_point: int) -> RecoveredContent:
        """Return the common content, or else that with fewer doubts, preferring the call's own record."""
        if _same_content(from_left.content, from_right.content):
            content = from_right.content if from_right.seen and not from_right.steps else from_left.content
            agreement = f"agrees with {self._describe_origin(from_right)}"
            return _mark_undecodable(content, "exact", self._describe_origin(from_left), agreement)
        chosen, other = sorted(
            (from_left, from_right),
            key=lambda item: (len(item.doubts), not _is_recorded_by(item, call_point), item.steps),
        )
        recovered = self._recover_from(chosen)
        return RecoveredContent(
            content=chosen.content,
            confidence=recovered.confidence if _is_recorded_by(chosen, call_point) else "doubtful",
            reasons=(*recovered.reasons, f"disagrees with {self._describe_origin(other)}"),
        )

    def _describe_origin(self, derivation: _Derivation) -> str:
        point = self.points[derivation.start]
        if derivation.steps and derivation.assumed:
            return f"assumed, because {point.name} reports that it created the file"
        origin = f"the content that {point.name} recorded"
        if not derivation.steps:
            return origin
        if derivation.steps == 1 and point.effect is not None and derivation.seen:
            return f"{origin}, with its change applied"
        return f"{origin}, {derivation.steps} change{'s' if derivation.steps > 1 else ''} away"

    def _recover_partial(self, slot: int) -> RecoveredContent:
        """Return the lines observed near a slot, as long as the file did not change in between."""
        parts: list[FileExcerpt] = []
        for nearby, new_sign in ((reversed(self.points[:slot]), "-"), (iter(self.points[slot:]), "+")):
            for point in nearby:
                if point.effect is None and point.doubt is None:
                    parts += point.parts
                    continue
                for hunk in getattr(point.effect, "hunks", ()):
                    lines = tuple(line[1:] for line in hunk.lines if line[:1] not in (new_sign, "\\"))
                    parts.append(FileExcerpt(start=hunk.old_start if new_sign == "+" else hunk.new_start, lines=lines))
                break
        if not parts:
            return RecoveredContent(content=None, confidence="unknown", reasons=("no record holds its content",))
        return RecoveredContent(
            content=None,
            confidence="partial",
            reasons=("only these lines of it were recorded",),
            parts=tuple(sorted(parts, key=lambda part: part.start)),
        )


def _is_recorded_by(derivation: _Derivation, point: int) -> bool:
    """Return whether a point recorded the content itself, as opposed to content derived backwards from its record."""
    return derivation.start == point and (derivation.seen or not derivation.steps)


def _derive_previous(n: int, point: HistoryPoint, derivation: _Derivation | None) -> _Derivation | None:
    if point.before is not None:
        return _Derivation(point.before, n, seen=True)
    if point.after is not None:
        derivation = _Derivation(point.after, n, seen=point.seen)
    if point.effect is not None:
        try:
            # A created file did not exist before, even if it was changed later.
            content = revert_effect(point.effect, derivation.content if derivation else Absent())
        except PatchError:
            return None
        steps = derivation.steps + 1 if derivation else 1
        doubts = derivation.doubts if derivation else ()
        assumed = isinstance(point.effect, WriteEffect | MoveEffect) and point.effect.assumed
        start = derivation.start if derivation else n
        derivation = _Derivation(content, start, False, steps, doubts, assumed)  # noqa: FBT003
    if derivation is not None and point.doubt is not None:
        derivation = derivation._replace(doubts=(*derivation.doubts, point.doubt))
    return derivation


def _same_content(first: FileContent, second: FileContent) -> bool:
    if isinstance(first, Absent) or isinstance(second, Absent):
        return first == second
    return first == second or first.replace("\r\n", "\n") == second.replace("\r\n", "\n")


def _mark_undecodable(content: FileContent, confidence: Confidence, *reasons: str) -> RecoveredContent:
    """Lower the confidence of text that contains U+FFFD, which may stand for undecodable bytes."""
    if isinstance(content, str) and "\ufffd" in content:
        confidence = "doubtful"
        reasons = (*reasons, "it contains U+FFFD, which may replace bytes that are not text")
    return RecoveredContent(content=content, confidence=confidence, reasons=reasons)
