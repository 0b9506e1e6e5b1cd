"""Issues in the JSON of the validation library that the clients use.

In: neutral issues and the style of a client version. Out: the array of issue objects, indented as
clients record it; keys, codes and messages are those of zod 3 or zod 4.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import groupby

from toolspan.profile.issues import IssueStyle
from toolspan.schema.issue import Issue, Path

_Record = dict[str, object]


def issue_json(issues: Iterable[Issue], style: IssueStyle) -> str:
    """The issues as a client records them."""
    return json.dumps(_records(issues, style), indent=2, ensure_ascii=False, default=str)


def is_missing(issue: Issue, style: IssueStyle) -> bool:
    """Whether an issue counts as a missing parameter; zod 4 calls a missing choice a wrong one."""
    if issue.code == "missing":
        return True
    return issue.code == "value" and issue.received == "undefined" and style.validator == "zod 3"


def message(issue: Issue, style: IssueStyle) -> str:
    """The library's sentence for an issue."""
    return str(_record(issue, style)["message"])


def _records(issues: Iterable[Issue], style: IssueStyle) -> list[_Record]:
    records: list[_Record] = []
    for place, group in groupby(issues, key=_unknown_keys_of):
        if place is None:
            records.extend(_record(one, style) for one in group)
        else:
            records.append(_unknown_keys(place, [str(one.path[-1]) for one in group], style))
    return records


def _unknown_keys_of(issue: Issue) -> Path | None:
    """The object with unknown keys: they are told in one record; None for other issues."""
    return issue.path[:-1] if issue.code == "unexpected" else None


def _unknown_keys(place: Path, keys: list[str], style: IssueStyle) -> _Record:
    if style.validator == "zod 3":
        message = "Unrecognized key(s) in object: " + ", ".join(f"'{key}'" for key in keys)
    else:
        noun = "key" if len(keys) == 1 else "keys"
        message = f"Unrecognized {noun}: " + ", ".join(f'"{key}"' for key in keys)
    return {
        "code": "unrecognized_keys",
        "keys": keys,
        "path": list(place),
        "message": message,
    }


def _record(issue: Issue, style: IssueStyle) -> _Record:
    """One issue as the validation library of the client writes it: keys in its order."""
    tellers = _ZOD3 if style.validator == "zod 3" else _ZOD4
    return tellers.get(issue.code, _custom)(issue, style)


def _custom(issue: Issue, _style: IssueStyle) -> _Record:
    return {"code": "custom", "path": list(issue.path), "message": issue.message}


def expected(issue: Issue, style: IssueStyle) -> str:
    """The type that an issue asks for, by the name the library has for it."""
    name = issue.expected or "unknown"
    return "int" if name == "integer" and style.validator == "zod 4" else name


def received(issue: Issue, style: IssueStyle) -> str:
    """The type that came, likewise."""
    name = issue.received or "unknown"
    if style.validator == "zod 4":
        return name
    return "float" if issue.expected == "integer" and name == "number" else name.lower()


def _type_zod3(issue: Issue, style: IssueStyle) -> _Record:
    wanted, came = expected(issue, style), received(issue, style)
    return {
        "code": "invalid_type",
        "expected": wanted,
        "received": came,
        "path": list(issue.path),
        "message": "Required" if came == "undefined" else f"Expected {wanted}, received {came}",
    }


def _type_zod4(issue: Issue, style: IssueStyle) -> _Record:
    wanted = expected(issue, style)
    whole: _Record = {"format": "safeint"} if wanted == "int" else {}
    return {
        "expected": wanted,
        **whole,
        "code": "invalid_type",
        "path": list(issue.path),
        "message": f"Invalid input: expected {wanted}, received {received(issue, style)}",
    }


def _value_zod3(issue: Issue, style: IssueStyle) -> _Record:
    values = _allowed(issue)
    choice = " | ".join(f"'{one}'" for one in values)
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


def _literal_zod3(issue: Issue, wanted: object) -> _Record:
    """The only value that is allowed did not come."""
    came = issue.detail.get("value")
    return {
        **({} if came is None else {"received": came}),
        "code": "invalid_literal",
        "expected": wanted,
        "path": list(issue.path),
        "message": f"Invalid literal value, expected {json.dumps(wanted, ensure_ascii=False)}",
    }


def _value_zod4(issue: Issue, _style: IssueStyle) -> _Record:
    values = _allowed(issue)
    choice = "|".join(json.dumps(one, ensure_ascii=False, default=str) for one in values)
    several = f"Invalid option: expected one of {choice}"
    return {
        "code": "invalid_value",
        "values": values,
        "path": list(issue.path),
        "message": f"Invalid input: expected {choice}" if len(values) == 1 else several,
    }


def _allowed(issue: Issue) -> list[object]:
    values = issue.detail.get("values", ())
    return list(values) if isinstance(values, list | tuple) else [values]


def _format_zod3(issue: Issue, _style: IssueStyle) -> _Record:
    name = issue.detail.get("format")
    return {
        "validation": name,
        "code": "invalid_string",
        "message": f"Invalid {name}",
        "path": list(issue.path),
    }


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


def _branches(issue: Issue) -> list[tuple[Issue, ...]]:
    branches = issue.detail.get("branches")
    return list(branches) if isinstance(branches, tuple) else []


def _union_zod3(issue: Issue, style: IssueStyle) -> _Record:
    branches = [
        [replace(one, path=(*issue.path, *one.path)) for one in branch]
        for branch in _branches(issue)
    ]
    errors = [{"issues": _records(one, style), "name": "ZodError"} for one in branches]
    return {
        "code": "invalid_union",
        "unionErrors": errors,
        "path": list(issue.path),
        "message": "Invalid input",
    }


def _union_zod4(issue: Issue, style: IssueStyle) -> _Record:
    return {
        "code": "invalid_union",
        "errors": [_records(one, style) for one in _branches(issue)],
        "path": list(issue.path),
        "message": "Invalid input",
    }


_Tellers = Mapping[str, Callable[[Issue, IssueStyle], _Record]]
_ZOD3: _Tellers = {
    "missing": _type_zod3,
    "type": _type_zod3,
    "value": _value_zod3,
    "format": _format_zod3,
    "too_small": _bound_zod3,
    "too_big": _bound_zod3,
    "union": _union_zod3,
}
_ZOD4: _Tellers = {
    "missing": _type_zod4,
    "type": _type_zod4,
    "value": _value_zod4,
    "format": _format_zod4,
    "too_small": _bound_zod4,
    "too_big": _bound_zod4,
    "union": _union_zod4,
}
