"""Issues in an invalid input, and the format in which a client version reports them.

`check.py` and `derive.py` create the issues; `explain_issues` writes the message for the model and
the JSON for the record, in the format of the client's validation library.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal

from msgspec import Struct

from toolspan.runtime.profiles import IssueStyle

IssueCode = Literal["missing", "unexpected", "type", "value", "format", "too_small", "too_big", "union", "other"]
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Issue:
    """One problem in an input."""

    code: IssueCode
    path: Path
    """Keys and indexes, outermost first. For `unexpected`, the last one is the unknown key."""
    message: str
    """A sentence without the path, for issues that clients have no message for."""
    expected: str | None = None
    """The JSON Schema name of the expected type."""
    received: str | None = None
    """The JSON Schema name of the received type, or `undefined`, `null`, `NaN`."""
    detail: Mapping[str, object] = field(default_factory=dict)
    """Values that depend on the code: `values` and `value`, `format`, `bound` with `inclusive` and
    `origin`, or `branches` (the issues for each alternative of a union).
    """


@dataclass(frozen=True, slots=True)
class Invalid:
    """An input that does not match its schema."""

    issues: tuple[Issue, ...]


class Valid(Struct, frozen=True):  # perf: created for every call, and a Struct is ten times faster
    """An input that matches its schema, as the tool receives it and as it is recorded (with defaults)."""

    value: Any  # a mapping, a struct or keyword arguments, as the tool's function expects
    recorded: Mapping[str, object]


Parse = Callable[[Mapping[str, object]], Valid | Invalid]
"""A function that checks and converts a call's input. It never raises."""


_Record = dict[str, object]


def issue_json(issues: Iterable[Issue], style: IssueStyle) -> str:
    """Return the issues as JSON in the form that a client records."""
    return json.dumps(_zod_records(issues, style), indent=2, ensure_ascii=False, default=str)


def _is_missing(issue: Issue, style: IssueStyle) -> bool:
    """Return whether an issue is a missing parameter. In zod 4, a missing choice is an invalid value."""
    if issue.code == "missing":
        return True
    return issue.code == "value" and issue.received == "undefined" and style.validator == "zod 3"


def _zod_message(issue: Issue, style: IssueStyle) -> str:
    """Return the validation library's message for an issue."""
    return str(_zod_record(issue, style)["message"])


def _zod_records(issues: Iterable[Issue], style: IssueStyle) -> list[_Record]:
    records: list[_Record] = []
    for place, group in groupby(issues, key=_unknown_keys_owner):
        if place is None:
            records.extend(_zod_record(issue, style) for issue in group)
        else:
            records.append(_unknown_keys_record(place, [str(issue.path[-1]) for issue in group], style))
    return records


def _unknown_keys_owner(issue: Issue) -> Path | None:
    """Return the path of the object with unknown keys, which share one record, or None for other issues."""
    return issue.path[:-1] if issue.code == "unexpected" else None


def _unknown_keys_record(place: Path, keys: list[str], style: IssueStyle) -> _Record:
    if style.validator == "zod 3":
        message = "Unrecognized key(s) in object: " + ", ".join(f"'{key}'" for key in keys)
    else:
        noun = "key" if len(keys) == 1 else "keys"
        message = f"Unrecognized {noun}: " + ", ".join(f'"{key}"' for key in keys)
    return {"code": "unrecognized_keys", "keys": keys, "path": list(place), "message": message}


def _zod_record(issue: Issue, style: IssueStyle) -> _Record:
    """Return an issue as the validation library records it, with its keys in the same order."""
    makers = _ZOD3 if style.validator == "zod 3" else _ZOD4
    return makers.get(issue.code, _custom_record)(issue, style)


def _custom_record(issue: Issue, _style: IssueStyle) -> _Record:
    return {"code": "custom", "path": list(issue.path), "message": issue.message}


def _zod_expected(issue: Issue, style: IssueStyle) -> str:
    """Return the library's name for the expected type."""
    name = issue.expected or "unknown"
    return "int" if name == "integer" and style.validator == "zod 4" else name


def _zod_received(issue: Issue, style: IssueStyle) -> str:
    """Return the library's name for the received type."""
    name = issue.received or "unknown"
    if style.validator == "zod 4":
        return name
    return "float" if issue.expected == "integer" and name == "number" else name.lower()


def _type_zod3(issue: Issue, style: IssueStyle) -> _Record:
    expected_type, received_type = _zod_expected(issue, style), _zod_received(issue, style)
    return {
        "code": "invalid_type",
        "expected": expected_type,
        "received": received_type,
        "path": list(issue.path),
        "message": "Required"
        if received_type == "undefined"
        else f"Expected {expected_type}, received {received_type}",
    }


def _type_zod4(issue: Issue, style: IssueStyle) -> _Record:
    expected_type = _zod_expected(issue, style)
    whole: _Record = {"format": "safeint"} if expected_type == "int" else {}
    return {
        "expected": expected_type,
        **whole,
        "code": "invalid_type",
        "path": list(issue.path),
        "message": f"Invalid input: expected {expected_type}, received {_zod_received(issue, style)}",
    }


def _value_zod3(issue: Issue, style: IssueStyle) -> _Record:
    values = _issue_values(issue)
    choice = " | ".join(f"'{allowed_value}'" for allowed_value in values)
    value = issue.detail.get("value")
    if issue.detail.get("literal"):
        return _literal_zod3(issue, values[0])
    if not isinstance(value, str):
        wrong = Issue("type", issue.path, issue.message, choice, issue.received)
        return _type_zod3(wrong, style)
    return {
        "received": value,
        "code": "invalid_enum_value",
        "options": values,
        "path": list(issue.path),
        "message": f"Invalid enum value. Expected {choice}, received '{value}'",
    }


def _literal_zod3(issue: Issue, allowed_value: object) -> _Record:
    received_value = issue.detail.get("value")
    return {
        **({} if received_value is None else {"received": received_value}),
        "code": "invalid_literal",
        "expected": allowed_value,
        "path": list(issue.path),
        "message": f"Invalid literal value, expected {json.dumps(allowed_value, ensure_ascii=False)}",
    }


def _value_zod4(issue: Issue, _style: IssueStyle) -> _Record:
    values = _issue_values(issue)
    choice = "|".join(json.dumps(allowed_value, ensure_ascii=False, default=str) for allowed_value in values)
    several = f"Invalid option: expected one of {choice}"
    return {
        "code": "invalid_value",
        "values": values,
        "path": list(issue.path),
        "message": f"Invalid input: expected {choice}" if len(values) == 1 else several,
    }


def _issue_values(issue: Issue) -> list[object]:
    values = issue.detail.get("values", ())
    return list(values) if isinstance(values, list | tuple) else [values]


def _format_zod3(issue: Issue, _style: IssueStyle) -> _Record:
    name = issue.detail.get("format")
    return {"validation": name, "code": "invalid_string", "message": f"Invalid {name}", "path": list(issue.path)}


def _format_zod4(issue: Issue, _style: IssueStyle) -> _Record:
    name = issue.detail.get("format")
    return {
        "code": "invalid_format",
        "format": name,
        "path": list(issue.path),
        "message": "Invalid URL" if name == "url" else f"Invalid {name}",
    }


_UNITS = {"string": "character(s)", "array": "element(s)"}


def _bound_zod3(issue: Issue, _style: IssueStyle) -> _Record:
    detail, small = issue.detail, issue.code == "too_small"
    origin, bound, inclusive = detail["origin"], detail["bound"], detail["inclusive"]
    if origin in _UNITS:
        side = "at least" if small else "at most"
        message = f"{str(origin).capitalize()} must contain {side} {bound} {_UNITS[str(origin)]}"
    else:
        side = ("greater than" if small else "less than") + (" or equal to" if inclusive else "")
        message = f"Number must be {side} {bound}"
    return {
        "code": issue.code,
        "minimum" if small else "maximum": bound,
        "type": origin,
        "inclusive": inclusive,
        "exact": False,
        "message": message,
        "path": list(issue.path),
    }


def _bound_zod4(issue: Issue, _style: IssueStyle) -> _Record:
    detail, small = issue.detail, issue.code == "too_small"
    origin, bound, inclusive = detail["origin"], detail["bound"], detail["inclusive"]
    sign = (">" if small else "<") + ("=" if inclusive else "")
    unit = {"string": " characters", "array": " items"}.get(str(origin))
    measure = f"to have {sign}{bound}{unit}" if unit else f"to be {sign}{bound}"
    return {
        "origin": origin,
        "code": issue.code,
        "minimum" if small else "maximum": bound,
        "inclusive": inclusive,
        "path": list(issue.path),
        "message": f"Too {'small' if small else 'big'}: expected {origin} {measure}",
    }


def _union_branches(issue: Issue) -> list[tuple[Issue, ...]]:
    branches = issue.detail.get("branches")
    return list(branches) if isinstance(branches, tuple) else []


def _union_zod3(issue: Issue, style: IssueStyle) -> _Record:
    branches = [[replace(item, path=(*issue.path, *item.path)) for item in branch] for branch in _union_branches(issue)]
    errors = [{"issues": _zod_records(item, style), "name": "ZodError"} for item in branches]
    return {"code": "invalid_union", "unionErrors": errors, "path": list(issue.path), "message": "Invalid input"}


def _union_zod4(issue: Issue, style: IssueStyle) -> _Record:
    return {
        "code": "invalid_union",
        "errors": [_zod_records(branch, style) for branch in _union_branches(issue)],
        "path": list(issue.path),
        "message": "Invalid input",
    }


_RecordMakers = Mapping[str, Callable[[Issue, IssueStyle], _Record]]
_ZOD3: _RecordMakers = {
    "missing": _type_zod3,
    "type": _type_zod3,
    "value": _value_zod3,
    "format": _format_zod3,
    "too_small": _bound_zod3,
    "too_big": _bound_zod3,
    "union": _union_zod3,
}
_ZOD4: _RecordMakers = {
    "missing": _type_zod4,
    "type": _type_zod4,
    "value": _value_zod4,
    "format": _format_zod4,
    "too_small": _bound_zod4,
    "too_big": _bound_zod4,
    "union": _union_zod4,
}


UNPARSED_KEY = "__unparsedToolInput"
"""The only key in the recorded form of an input that is not valid JSON."""
_PREVIEW_BYTES = 200


@dataclass(frozen=True, slots=True)
class InvalidInputText:
    """The error for an invalid input."""

    text: str
    """The message for the model."""
    record: str
    """The message in the structured record."""


def explain_issues(tool_name: str, invalid: Invalid, *, style: IssueStyle) -> InvalidInputText:
    """Return a client version's error for an invalid input."""
    issues = invalid.issues
    record = f"InputValidationError: {issue_json(issues, style)}"
    lines = _issue_sentences(issues, style)
    if not lines:
        return InvalidInputText(record, record)
    noun = "issue" if len(lines) == 1 else "issues"
    head = f"InputValidationError: {tool_name} failed due to the following {noun}:"
    return InvalidInputText("\n".join((head, *lines)), record)


def unparsed_input(raw: str) -> dict[str, object]:
    """Return the recorded form of an input that is not valid JSON."""
    return {UNPARSED_KEY: {"raw": raw, "len": len(raw.encode("utf-8", "replace"))}}


def unparsed_text(arguments: Mapping[str, object]) -> str | None:
    """Return the raw text of an input that is not valid JSON, or None for any other input."""
    if len(arguments) != 1 or UNPARSED_KEY not in arguments:
        return None
    inner = arguments[UNPARSED_KEY]
    raw = inner.get("raw") if isinstance(inner, Mapping) else None
    return raw if isinstance(raw, str) else None


def explain_unparsed(tool_name: str, raw: str) -> InvalidInputText:
    """Return the error for an input that is not valid JSON."""
    sent = raw.encode("utf-8", "replace")
    beginning = sent[:_PREVIEW_BYTES].decode("utf-8", "ignore")
    preview_size = min(len(sent), _PREVIEW_BYTES)
    text = (
        f"InputValidationError: {tool_name} was called with input that could not be parsed as"
        f" JSON.\nYou sent (first {preview_size} of {len(sent)} bytes): {beginning}\n"
        "Send the whole input again as one complete JSON object."
    )
    return InvalidInputText(text, f"InputValidationError: JSON parse failed ({len(sent)} bytes)")


def format_path(path: Path) -> str:
    """Format a path, such as `todos[0].activeForm`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def _issue_sentences(issues: tuple[Issue, ...], style: IssueStyle) -> list[str]:
    """Return the sentences for the model: missing parameters first, then unknown ones, then wrong types."""
    missing = [
        f"The required parameter `{format_path(issue.path)}` is missing"
        for issue in issues
        if _is_missing(issue, style)
    ]
    unexpected = [
        f"An unexpected parameter `{format_path(issue.path)}` was provided"
        for issue in issues
        if issue.code == "unexpected"
    ]
    mistyped = [
        f"The parameter `{format_path(issue.path)}` type is expected as `{_zod_expected(issue, style)}`"
        f" but provided as `{_zod_received(issue, style)}`"
        for issue in issues
        if issue.code == "type"
    ]
    sentences = missing + unexpected + mistyped
    if sentences and style.reports_all:
        sentences += [
            f"The parameter `{format_path(issue.path)}` is invalid: {_zod_message(issue, style)}"
            for issue in issues
            if issue.code not in ("unexpected", "type") and not _is_missing(issue, style)
        ]
    return sentences
