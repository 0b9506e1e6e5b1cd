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
    message: str  # a sentence without the path, for issues that clients have no message for
    expected: str | None = None  # the JSON Schema name of the expected type, or `record`
    received: str | None = None  # the JSON Schema name of the received type, or `undefined`, `null`, `NaN`
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


def _zod_records(issues: Iterable[Issue], style: IssueStyle) -> list[_Record]:
    """Return the issues as the validation library records them. The unknown keys of an object share one record."""
    records: list[_Record] = []
    for place, group in groupby(issues, key=lambda issue: issue.path[:-1] if issue.code == "unexpected" else None):
        if place is None:
            records.extend(_zod_record(issue, style) for issue in group)
            continue
        keys = [str(issue.path[-1]) for issue in group]
        if style.validator == "zod 3":
            message = "Unrecognized key(s) in object: " + ", ".join(f"'{key}'" for key in keys)
        else:
            noun = "key" if len(keys) == 1 else "keys"
            message = f"Unrecognized {noun}: " + ", ".join(f'"{key}"' for key in keys)
        records.append({"code": "unrecognized_keys", "keys": keys, "path": list(place), "message": message})
    return records


def _zod_record(issue: Issue, style: IssueStyle) -> _Record:
    """Return an issue as the validation library records it, with its keys in the same order."""
    if issue.code in ("unexpected", "other"):
        return {"code": "custom", "path": list(issue.path), "message": issue.message}
    return _zod3_record(issue, style) if style.validator == "zod 3" else _zod4_record(issue, style)


def _zod_expected(issue: Issue, style: IssueStyle) -> str:
    """Return the library's name for the expected type."""
    name = issue.expected or "unknown"
    if style.validator == "zod 3":
        return "object" if name == "record" else name
    return "int" if name == "integer" else name


def _zod_received(issue: Issue, style: IssueStyle) -> str:
    """Return the library's name for the received type."""
    name = issue.received or "unknown"
    if style.validator == "zod 4":
        return name
    return "float" if issue.expected == "integer" and name == "number" else name.lower()


def _zod3_record(issue: Issue, style: IssueStyle) -> _Record:
    path, detail = list(issue.path), issue.detail
    expected, received = _zod_expected(issue, style), _zod_received(issue, style)
    match issue.code:
        case "format":
            name = detail.get("format")
            return {"validation": name, "code": "invalid_string", "message": f"Invalid {name}", "path": path}
        case "too_small" | "too_big":
            return _zod3_bound_record(issue)
        case "union":
            branches = [[replace(item, path=(*issue.path, *item.path)) for item in b] for b in _union_branches(issue)]
            errors = [{"issues": _zod_records(branch, style), "name": "ZodError"} for branch in branches]
            return {"code": "invalid_union", "unionErrors": errors, "path": path, "message": "Invalid input"}
        case "value":
            values, value = _issue_values(issue), detail.get("value")
            expected = " | ".join(f"'{allowed_value}'" for allowed_value in values)
            if detail.get("literal"):
                message = f"Invalid literal value, expected {json.dumps(values[0], ensure_ascii=False)}"
                given: _Record = {} if value is None else {"received": value}
                return {**given, "code": "invalid_literal", "expected": values[0], "path": path, "message": message}
            if isinstance(value, str):
                message = f"Invalid enum value. Expected {expected}, received '{value}'"
                start: _Record = {"received": value, "code": "invalid_enum_value", "options": values}
                return {**start, "path": path, "message": message}
            message = "Required" if received == "undefined" else f"Expected {expected}, received {received}"
            found: _Record = {"expected": expected, "received": received}
            return {**found, "code": "invalid_type", "path": path, "message": message}
        case _:
            pass
    message = "Required" if received == "undefined" else f"Expected {expected}, received {received}"
    return {"code": "invalid_type", "expected": expected, "received": received, "path": path, "message": message}


_UNITS = {"string": "character(s)", "array": "element(s)"}


def _zod3_bound_record(issue: Issue) -> _Record:
    detail, small = issue.detail, issue.code == "too_small"
    origin, bound, inclusive = str(detail["origin"]), detail["bound"], detail["inclusive"]
    if origin in _UNITS:
        message = f"{origin.capitalize()} must contain {'at least' if small else 'at most'} {bound} {_UNITS[origin]}"
    else:
        side = ("greater than" if small else "less than") + (" or equal to" if inclusive else "")
        message = f"Number must be {side} {bound}"
    message = str(detail.get("message", message))
    return {
        "code": issue.code,
        "minimum" if small else "maximum": bound,
        "type": origin,
        "inclusive": inclusive,
        "exact": False,
        "message": message,
        "path": list(issue.path),
    }


def _zod4_record(issue: Issue, style: IssueStyle) -> _Record:
    path, detail = list(issue.path), issue.detail
    match issue.code:
        case "value":
            values = _issue_values(issue)
            choice = "|".join(json.dumps(value, ensure_ascii=False, default=str) for value in values)
            message = f"Invalid option: expected one of {choice}"
            if len(values) == 1:
                message = f"Invalid input: expected {choice}"
            return {"code": "invalid_value", "values": values, "path": path, "message": message}
        case "format":
            name = detail.get("format")
            message = "Invalid URL" if name == "url" else f"Invalid {name}"
            return {"code": "invalid_format", "format": name, "path": path, "message": message}
        case "too_small" | "too_big":
            small = issue.code == "too_small"
            origin, bound, inclusive = detail["origin"], detail["bound"], detail["inclusive"]
            sign = (">" if small else "<") + ("=" if inclusive else "")
            unit = {"string": " characters", "array": " items"}.get(str(origin))
            measure = f"to have {sign}{bound}{unit}" if unit else f"to be {sign}{bound}"
            message = f"Too {'small' if small else 'big'}: expected {origin} {measure}"
            return {
                "origin": origin,
                "code": issue.code,
                "minimum" if small else "maximum": bound,
                "inclusive": inclusive,
                "path": path,
                "message": detail.get("message", message),
            }
        case "union":
            errors = [_zod_records(branch, style) for branch in _union_branches(issue)]
            return {"code": "invalid_union", "errors": errors, "path": path, "message": "Invalid input"}
        case _:
            expected = _zod_expected(issue, style)
            whole: _Record = {"format": "safeint"} if expected == "int" else {}
            message = f"Invalid input: expected {expected}, received {_zod_received(issue, style)}"
            return {"expected": expected, **whole, "code": "invalid_type", "path": path, "message": message}


def _issue_values(issue: Issue) -> list[object]:
    values = issue.detail.get("values", ())
    return list(values) if isinstance(values, list | tuple) else [values]


def _union_branches(issue: Issue) -> list[tuple[Issue, ...]]:
    branches = issue.detail.get("branches")
    return list(branches) if isinstance(branches, tuple) else []


UNPARSED_KEY = "__unparsedToolInput"
"""The only key in the recorded form of an input that is not valid JSON."""
_PREVIEW_BYTES = 200


@dataclass(frozen=True, slots=True)
class InvalidInputText:
    """The error for an invalid input."""

    text: str  # the message for the model
    record: str  # the message in the structured record


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
    missing, unexpected, mistyped, others = list[str](), list[str](), list[str](), list[str]()
    for issue in issues:
        name = format_path(issue.path)
        # In zod 4, a missing choice is an invalid value.
        is_missing_choice = issue.code == "value" and issue.received == "undefined" and style.validator == "zod 3"
        if issue.code == "missing" or is_missing_choice:
            missing.append(f"The required parameter `{name}` is missing")
        elif issue.code == "unexpected":
            unexpected.append(f"An unexpected parameter `{name}` was provided")
        elif issue.code == "value" and style.validator == "zod 3" and not isinstance(issue.detail.get("value"), str):
            choices = " | ".join(f"'{value}'" for value in _issue_values(issue))
            mistyped.append(
                f"The parameter `{name}` type is expected as `{choices}` but provided as `{issue.received}`"
            )
        elif issue.code == "type":
            expected, received = _zod_expected(issue, style), _zod_received(issue, style)
            mistyped.append(f"The parameter `{name}` type is expected as `{expected}` but provided as `{received}`")
        else:
            record = _zod_record(issue, style)
            is_union = record.get("code") == "invalid_union"
            problem = "matches none of the accepted forms" if is_union else f"is invalid: {record['message']}"
            others.append(f"The parameter `{name}` {problem}")
    sentences = missing + unexpected + mistyped
    return sentences + others if sentences and style.validator == "zod 4" else sentences
