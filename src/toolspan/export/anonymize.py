"""`--skeleton`: replace all content and keep only structure, states, times, sizes and tool names.

Records are rebuilt from fields that are known to be safe. All other fields, values and names are left out. Strings are
replaced by their lengths, and ids and names by numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast, get_args

import msgspec

from toolspan.analysis.timing import from_epoch_ms
from toolspan.export.records import (
    AgentRecord,
    CallRecord,
    DiffRecord,
    EventRecord,
    ExportRecord,
    MessageRecord,
    RequestRecord,
    SessionRecord,
)
from toolspan.formats.registry import all_formats
from toolspan.reading.rows import CallRow
from toolspan.redaction.redactor import R
from toolspan.types import inputs
from toolspan.types.span import HookOutcome
from toolspan.types.tool_kinds import ToolKind, tools_of_kinds

_KNOWN_TOOLS = tools_of_kinds(*get_args(ToolKind))
_VERSION = re.compile(r"\d{1,4}(?:\.\d{1,4}){1,3}")
_HOOK_POINTS = frozenset({"PreToolUse", "PostToolUse", "PostToolUseFailure", "PermissionRequest", "Stop"})
_DECISIONS = frozenset({"accept", "reject"})
_OUTCOMES = frozenset(get_args(HookOutcome))
_SAFE_CALL_FIELDS = (
    "kind", "client", "state", "error_kind", "retry", "branch", "paired", "background", "ambiguous", "synthetic",
    "deferred", "truncated", "copies", "start", "end", "duration_ms", "phases", "wait_certainty", "exit_code",
    "is_error", "input_chars", "result_chars", "request_line", "result_line", "request_bytes", "result_bytes",
)  # fmt: skip
"""Fields with numbers or values from fixed sets, which contain no session text."""
_CALL_IDS = {
    "file": "file", "session": "session", "agent": "agent", "started_agent": "agent", "id": "call",
    "parent_call": "call", "batch": "batch", "prompt": "prompt", "background_task": "task", "error_group": "error",
}  # fmt: skip
"""Fields with ids, and the names of the numbers that replace them."""
_CALL_TEXTS = ("target", "message", "error_program", "error_text", "background_outcome", "permission")


def _input_keys() -> frozenset[str]:
    shared = [kind for kind in vars(inputs).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
    kinds = (*shared, *(kind for each in all_formats() for kind in each.input_types()))
    return frozenset(field.encode_name for kind in kinds for field in msgspec.structs.fields(kind))


def length_of(text: str | None) -> str | None:
    """Return a placeholder with the length of `text`, or None if `text` is None."""
    return None if text is None else f"<{len(text):,} chars>"


class Anonymizer:
    """A redactor that keeps only values known to be safe."""

    notice: str | None = None
    counts: Mapping[str, int] = {}

    def __init__(self) -> None:
        self._safe_keys = _input_keys()
        self._pseudonyms: dict[str, dict[str, str]] = {}

    def learn_names(self, lines: Iterable[bytes]) -> None:
        """Do nothing, because safe values are known in advance."""

    def redact_record(self, record: R) -> R:
        """Return a record without any session text."""
        anonymized: ExportRecord
        match record:
            case SessionRecord():
                anonymized = SessionRecord(
                    id=self._pseudonym_for("session", record.id) or "",
                    title=length_of(record.title),
                    versions=tuple(version for version in record.versions if _VERSION.fullmatch(version)),
                    **_copy_fields(record, "client", "start", "end", "tokens", "slices", "findings"),
                )
            case AgentRecord():
                anonymized = AgentRecord(
                    session=self._pseudonym_for("session", record.session),
                    agent=self._pseudonym_for("agent", record.agent),
                    parent_call=self._pseudonym_for("call", record.parent_call),
                    **_copy_fields(record, "calls", "linked", "start", "end"),
                )
            case MessageRecord():
                anonymized = MessageRecord(
                    session=self._pseudonym_for("session", record.session),
                    agent=self._pseudonym_for("agent", record.agent),
                    at=_format_time(record.start),
                    text=length_of(record.text) or "",
                    **_copy_fields(record, "voice", "opens", "start", "branch", "chars"),
                )
            case RequestRecord():
                anonymized = RequestRecord(
                    id=self._pseudonym_for("request", record.id) or "",
                    at=_format_time(record.start),
                    **_copy_fields(record, "start", "tokens", "cost_usd"),
                )
            case CallRecord():
                anonymized = self._anonymize_call(record)
            case _:
                raise TypeError(f"{type(record).__name__} is not a record of an export")
        return cast(R, anonymized)

    def _anonymize_call(self, record: CallRecord) -> CallRecord:
        tool = record.tool
        if tool and tool not in _KNOWN_TOOLS:  # server and user tools get a number
            tool = self._pseudonym_for(f"{record.kind}-tool", tool)
        fields: dict[str, Any] = dict.fromkeys(CallRow.__struct_fields__)
        fields |= _copy_fields(record, *_SAFE_CALL_FIELDS)
        fields |= {name: self._pseudonym_for(kind, getattr(record, name)) for name, kind in _CALL_IDS.items()}
        fields |= {name: length_of(getattr(record, name)) for name in _CALL_TEXTS}
        fields |= {
            "tool": tool,
            "requested": _format_time(record.start),
            "finished": _format_time(record.end),
            "hooks": (),  # they are among the events
            "evidence": tuple((length_of(rule), None) for rule, _ in record.evidence),
        }
        return CallRecord(
            **fields,
            input=self._input_shape(record.input),
            result=length_of(record.result),
            diffs=tuple(
                DiffRecord(
                    path=length_of(diff.path) or "",
                    text=length_of(diff.text) or "",
                    **_copy_fields(diff, "kind", "added", "removed"),
                )
                for diff in record.diffs
            ),
            events=tuple(_anonymize_event(event) for event in record.events),
        )

    def _pseudonym_for(self, kind: str, name: str | None) -> str | None:
        if name is None:
            return None
        pseudonyms = self._pseudonyms.setdefault(kind, {})
        return pseudonyms.setdefault(name, f"{kind}-{len(pseudonyms) + 1}")

    def _input_shape(self, value: object, depth: int = 0) -> object:
        match value:
            case None | bool():
                return value
            case int() | float():
                return "<number>"
            case str():
                return length_of(value)
            case list() if depth < 8:
                return [self._input_shape(item, depth + 1) for item in value]
            case dict() if depth < 8:
                return {
                    key if key in self._safe_keys else f"key-{n}": self._input_shape(item, depth + 1)
                    for n, (key, item) in enumerate(value.items(), start=1)
                }
            case _:
                return "<value>"


def _format_time(ms: int | None) -> str | None:
    """Format a time from its number, because the client's timestamp may contain arbitrary text."""
    return None if ms is None else from_epoch_ms(ms).isoformat().replace("+00:00", "Z")


def _copy_fields(record: msgspec.Struct, *names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def _anonymize_event(event: EventRecord) -> EventRecord:
    safe = {"hook": _HOOK_POINTS, "permission": _DECISIONS}.get(event.type, frozenset())
    return EventRecord(
        name=event.name if event.name in safe else length_of(event.name),
        text=length_of(event.text),
        outcome=event.outcome if event.outcome in _OUTCOMES else None,
        **_copy_fields(event, "type", "exit_code", "duration_ms", "count"),
    )
