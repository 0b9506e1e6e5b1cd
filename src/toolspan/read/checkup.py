"""A transcript's health: every finding, what the client would make of it, and the round trip.

In: a source. Out: a `Checkup`. Slower than reading, because it looks at every byte twice: once for
calls and damage, once line by line for drift, UTF-8 and re-encoding. Read `check` first.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.model.finding import Acceptance, Finding
from toolspan.model.place import Place
from toolspan.model.span import Counts, Span
from toolspan.patch import Fits, Mismatch, NoBase, verify
from toolspan.read.damage import finding
from toolspan.read.drift import lines_of
from toolspan.read.transcript import Transcript, read
from toolspan.wire.claude_results import EditResult, MultiEditResult, WriteResult
from toolspan.wire.detect import dialect_of
from toolspan.wire.paths import inside, parse_name, session_folder
from toolspan.wire.source import Source

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WORST: tuple[Acceptance, ...] = ("refuses", "loses", "skips", "unknown", "accepts")


class Checkup(Struct, frozen=True, kw_only=True):
    """What is wrong with a transcript."""

    file: str
    counts: Counts
    entries: dict[str, int]
    """Entries by type."""
    calls: int
    findings: list[Finding]
    roundtrip_equal: int | None
    """Lines whose re-encoding equals the original as JSON; None when that was not asked."""

    @property
    def healthy(self) -> bool:
        """Nothing is wrong that needs mending, and the client keeps the whole conversation."""
        errors = any(found.severity == "error" for found in self.findings)
        return not errors and self.client not in ("loses", "refuses")

    @property
    def client(self) -> Acceptance:
        """What the client makes of the whole file: the worst it makes of any finding."""
        verdicts = {found.client for found in self.findings if found.severity != "info"}
        return next((verdict for verdict in _WORST if verdict in verdicts), "accepts")


def check(source: Path | str | Source, *, roundtrip: bool = False) -> Checkup:
    """Everything that is wrong with a transcript.

    Raises:
        SourceError: the file cannot be opened or read.
    """
    transcript = read(source)
    lines = lines_of(transcript, roundtrip=roundtrip)
    with suppress(SourceError):  # reading has told of it already
        for line in transcript.lines():
            lines.add(line)
    found = [
        *_about_dialect(transcript),
        *_grouped(transcript.findings),
        *lines.findings(),
        *_about_calls(transcript.spans),
        *_about_tree(transcript),
        *_about_session(transcript),
        *_about_sidecars(transcript),
        *_about_patches(transcript.spans),
    ]
    counts = transcript.counts
    return Checkup(
        file=transcript.file,
        counts=Counts(
            lines=counts.lines,
            blank=counts.blank,
            malformed=counts.malformed + lines.not_utf8,
            recovered=counts.recovered,
        ),
        entries=dict(lines.entries),
        calls=sum(1 for span in transcript.spans if span.state != "orphan_result"),
        findings=found,
        roundtrip_equal=lines.equal if roundtrip else None,
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name no file system takes
        return False


def _grouped(found: Sequence[Finding]) -> Iterator[Finding]:
    """Damage one by one, but odd values only once per kind."""
    odd: Counter[str] = Counter(f.explanation for f in found if f.code == "odd_type")
    seen: set[str] = set()
    for each in found:
        if each.code != "odd_type":
            yield each
        elif each.explanation not in seen:
            seen.add(each.explanation)
            yield Finding(
                code=each.code, severity=each.severity, place=each.place,
                explanation=each.explanation, client=each.client, count=odd[each.explanation],
            )  # fmt: skip


def _about_dialect(transcript: Transcript) -> Iterator[Finding]:
    if dialect_of(transcript.source) == "unknown":
        yield finding("no_transcript", Place(transcript.file, 1, 0, 0), "")


def _about_calls(spans: Sequence[Span]) -> Iterator[Finding]:
    copies: dict[str, list[Place]] = {}
    for span in spans:
        if span.state == "orphan_result" and span.result:
            yield finding("orphan_result", span.result.place, span.id)
        elif span.result is None and not span.deferred:
            yield finding("unanswered_call", span.call.place, f"{span.tool} {span.id}")
        for copy in span.copies:
            copies.setdefault(f"duplicate_{copy.what}", []).append(copy.place)
    for code, places in copies.items():
        yield finding(code, places[0], "", len(places))


def _about_tree(transcript: Transcript) -> Iterator[Finding]:
    tree, file = transcript.tree, transcript.file
    for code, lines in (
        ("duplicate_uuid", tree.duplicates()),
        ("missing_parent", tree.missing_parents()),
        ("parent_cycle", tree.cycles()),
    ):
        if lines:
            yield finding(code, Place(file, lines[0], 0, 0), "", len(lines))


def _about_session(transcript: Transcript) -> Iterator[Finding]:
    """Lines that name another session; files whose name is no session's are not asked."""
    stem = parse_name(Path(transcript.file)).stem
    if not _UUID.fullmatch(stem):
        return
    strangers = [
        place for entry, place in transcript.entries() if entry.session_id not in (None, stem)
    ]
    if strangers:
        yield finding("foreign_session", strangers[0], "", len(strangers))


def _about_patches(spans: Sequence[Span]) -> Iterator[Finding]:
    """Recorded patches that do not fit the content recorded beside them, by reason."""
    found: dict[str, list[Place]] = {}
    for span in spans:
        changes = span.call.kind in ("edit", "write") and span.call.dialect == "claude"
        if changes and span.result and span.state == "succeeded":
            verdict = _patch_verdict(span.result.structured)
            if isinstance(verdict, Mismatch):
                reason = verdict.reason.partition(". ")[0]
                found.setdefault(reason, []).append(span.result.place)
    for reason, places in found.items():
        yield finding("patch_mismatch", places[0], reason[:160], len(places))


def _patch_verdict(change: object) -> Fits | NoBase | Mismatch:
    match change:
        case WriteResult():
            return verify(change.structured_patch, change.original_file, change.content)
        case EditResult():
            return verify(change.structured_patch, change.original_file, None)
        case MultiEditResult():
            before = change.original_file_contents or change.original_file
            return verify(change.structured_patch, before, None)
        case _:
            return NoBase()


def _about_sidecars(transcript: Transcript) -> Iterator[Finding]:
    """Spilled outputs are looked for only in the session's own folder."""
    main = Path(transcript.file)
    name = parse_name(main)
    folder = session_folder(main)
    if name.role == "agent" and name.session_id:
        folder = next((p for p in main.parents if p.name == name.session_id), folder)
    for span in transcript.spans:
        named = span.result.persisted_path if span.result else None
        if not named or span.result is None:
            continue
        sidecar = folder / "tool-results" / Path(named).name
        own = inside(Path(named), folder) or Path(named).parent.name == "tool-results"
        if not own:
            yield finding("outside_path", span.result.place, named[:200])
        elif not _is_file(sidecar):
            yield finding("missing_sidecar", span.result.place, Path(named).name)
