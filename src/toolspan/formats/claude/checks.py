"""Checks of a Claude Code transcript for `toolspan doctor`, and the client's observed reaction to damage."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from toolspan.diffs import Fits, Mismatch, NoBase, verify
from toolspan.formats import json_repair
from toolspan.formats.claude import records
from toolspan.formats.claude.narrow import input_drift, result_drift
from toolspan.formats.claude.paths import session_folder
from toolspan.formats.claude.records import Entry, unknown_keys
from toolspan.formats.claude.results import EditResult, MultiEditResult, WriteResult
from toolspan.formats.claude.tree import RecordTree
from toolspan.formats.findings import ResumeBehavior, make_finding
from toolspan.formats.jsonl import JsonLine
from toolspan.formats.line_checker import LineChecker
from toolspan.formats.paths import is_inside_folder, parse_file_name
from toolspan.types.finding import Finding
from toolspan.types.ids import SourceLocation
from toolspan.types.span import Span

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class ClaudeLineChecker(LineChecker[Entry]):
    """Checks the lines of a Claude Code transcript."""

    def _decode_view(self, data: bytes) -> Entry:
        return records.decode_entry(data).entry

    def _line_type(self, view: Entry) -> str:
        return view.type

    def _encode_view(self, view: Entry, data: bytes) -> bytes:
        return records.encode_entry(view, data)

    def _check_drift(self, view: Entry, fields: dict[str, object], line: JsonLine) -> None:
        if not view.is_known:
            self._add_finding("unknown_type", view.type or "no type", line)
        for key in unknown_keys(fields):
            self._add_finding("unknown_field", key, line)
        for tool, input_json in _called_tools(fields):
            for path in input_drift(tool, input_json):
                self._add_finding("unknown_input", f"{tool}: {path}", line)
        structured = fields.get("toolUseResult", fields.get("tool_use_result"))
        answered_tool = self._answered_tool(view)
        if structured is None or view.type != "user" or answered_tool is None:
            return
        for path in result_drift(answered_tool, records.decode_bodies(line.data).structured or b"null"):
            self._add_finding("unknown_result", f"{answered_tool}: {path}", line)

    def _answered_tool(self, view: Entry) -> str | None:
        """Return the tool of a line's only result; None if the call is not in the file."""
        content = view.message.content if view.message else None
        blocks = [block for block in content if block.type == "tool_result"] if isinstance(content, list) else []
        if len(blocks) != 1 or not blocks[0].tool_use_id:
            return None
        return self._tools.get(blocks[0].tool_use_id) or None


def _called_tools(fields: dict[str, object]) -> Iterator[tuple[str, bytes]]:
    """Yield the tools that a line calls, with their inputs."""
    message = fields.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "tool_use":
            with suppress(ValueError):  # nested too deeply to be encoded
                yield (str(block.get("name") or "no tool"), json_repair.encode_document(block.get("input")))


def check_tree(tree: RecordTree, file: str) -> Iterator[Finding]:
    """Yield findings about parent links."""
    for code, lines in (
        ("duplicate_uuid", tree.duplicate_lines()),
        ("missing_parent", tree.missing_parents()),
        ("parent_cycle", tree.cycle_lines()),
    ):
        if lines:
            yield make_finding(code, SourceLocation(file, lines[0], 0, 0), "", len(lines))


def check_session(entries: Iterable[tuple[Entry, SourceLocation]], file: str) -> Iterator[Finding]:
    """Yield a finding if lines name a session other than the file's; skip files that are not named after a session."""
    stem = parse_file_name(file).stem
    if not _UUID.fullmatch(stem):
        return
    foreign_places = [place for entry, place in entries if entry.session_id not in (None, stem)]
    if foreign_places:
        yield make_finding("foreign_session", foreign_places[0], "", len(foreign_places))


def check_sidecars(spans: Sequence[Span], file: Path) -> Iterator[Finding]:
    """Yield findings about spilled outputs; only the session's own folder is searched for them."""
    name = parse_file_name(file)
    folder = session_folder(file)
    if name.role == "agent" and name.session_id:
        folder = next((parent for parent in file.parents if parent.name == name.session_id), folder)
    for span in spans:
        recorded_path = span.result.persisted_path if span.result else None
        if not recorded_path or span.result is None:
            continue
        sidecar = folder / "tool-results" / Path(recorded_path).name
        is_inside = is_inside_folder(Path(recorded_path), folder) or Path(recorded_path).parent.name == "tool-results"
        if not is_inside:
            yield make_finding("outside_path", span.result.place, recorded_path[:200])
        elif not _file_exists(sidecar):
            yield make_finding("missing_sidecar", span.result.place, Path(recorded_path).name)


def _file_exists(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # the file system does not accept the name
        return False


def check_patches(spans: Sequence[Span]) -> Iterator[Finding]:
    """Yield one finding per reason why recorded patches do not fit the content recorded with them."""
    places_by_reason: dict[str, list[SourceLocation]] = {}
    for span in spans:
        if span.call.kind in ("edit", "write") and span.result and span.state == "succeeded":
            outcome = _verify_patch(span.result.structured)
            if isinstance(outcome, Mismatch):
                reason = outcome.reason.partition(". ")[0]
                places_by_reason.setdefault(reason, []).append(span.result.place)
    for reason, places in places_by_reason.items():
        yield make_finding("patch_mismatch", places[0], reason[:160], len(places))


def _verify_patch(change: object) -> Fits | NoBase | Mismatch:
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


_LOSES_EARLIER_LINES = "loses everything before the line"

RESUME_BEHAVIOR: dict[str, ResumeBehavior] = {
    "torn_last_line": ResumeBehavior("skips the line"),
    "torn_line": ResumeBehavior("skips the line; a call or result on it goes with its other half",
                          _LOSES_EARLIER_LINES),
    "not_an_object": ResumeBehavior("skips the line and loses nothing"),
    "glued_records": ResumeBehavior("keeps the first record on the line, loses the others",
                              _LOSES_EARLIER_LINES),
    "nul_bytes": ResumeBehavior("skips the line", _LOSES_EARLIER_LINES),
    "invalid_utf8": ResumeBehavior("reads U+FFFD in place of the bytes"),
    "control_characters": ResumeBehavior("skips the line", _LOSES_EARLIER_LINES),
    "byte_order_mark": ResumeBehavior("ignores it", "2.0.65 loses the first line"),
    "unanswered_call": ResumeBehavior(
        "at the end of the conversation 2.1.325 answers it as interrupted, 2.1.197 leaves it out;"
        " before the end both leave it out", "leaves it out; 2.0.65 may also lose what is before"),
    "orphan_result": ResumeBehavior("leaves it out",
                              "2.0.65 sends it in the middle, and the server refuses"),
    "duplicate_result": ResumeBehavior("sends one of them", "2.0.65 sends all, and the server refuses"),
    "duplicate_uuid": ResumeBehavior("ignores it"),
    "missing_parent": ResumeBehavior("continues from the previous line", _LOSES_EARLIER_LINES),
    "parent_cycle": ResumeBehavior("ignores it", "2.0.65 never finishes"),
    "foreign_session": ResumeBehavior("uses the file's name"),
}  # fmt: skip
"""Behaviour observed with real clients; `python -m tests.oracle --defects` repeats the observation."""
