"""What the model reads, and what is recorded, when an input does not fit.

In: the issues of `check.py` or `derive.py`, and the style of a client version. Out: the text
(without the tags of a refusal) and the record beside it. Missing, unknown and wrongly typed
parameters have a sentence each; when an input has no such issue, the text is the record: the
issues as the client's validation library writes them, in JSON.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from toolspan.profile.issues import IssueStyle
from toolspan.schema import zod
from toolspan.schema.issue import Invalid, Issue, Path

UNPARSED = "__unparsedToolInput"
"""The only key of an input whose JSON did not parse, as it is recorded."""
_SHOWN_BYTES = 200


@dataclass(frozen=True, slots=True)
class Explained:
    """A refusal of an input."""

    text: str
    """For the model."""
    record: str
    """For programs."""


def explain(tool_name: str, invalid: Invalid, *, style: IssueStyle) -> Explained:
    """Tell what is wrong with an input in the words of a client version."""
    issues = invalid.issues
    record = f"InputValidationError: {zod.issue_json(issues, style)}"
    lines = _lines(issues, style)
    if not lines:
        return Explained(record, record)
    noun = "issue" if len(lines) == 1 else "issues"
    head = f"InputValidationError: {tool_name} failed due to the following {noun}:"
    return Explained("\n".join((head, *lines)), record)


def unparsed(raw: str) -> dict[str, object]:
    """An input that is no JSON, as a call carries it."""
    return {UNPARSED: {"raw": raw, "len": len(raw.encode("utf-8", "replace"))}}


def raw_of(given: Mapping[str, object]) -> str | None:
    """The text of an input that is no JSON; None for every other input."""
    if len(given) != 1 or UNPARSED not in given:
        return None
    inner = given[UNPARSED]
    raw = inner.get("raw") if isinstance(inner, Mapping) else None
    return raw if isinstance(raw, str) else None


def explain_unparsed(tool_name: str, raw: str) -> Explained:
    """Tell that an input is no JSON."""
    sent = raw.encode("utf-8", "replace")
    shown = sent[:_SHOWN_BYTES].decode("utf-8", "ignore")
    many = min(len(sent), _SHOWN_BYTES)
    text = (
        f"InputValidationError: {tool_name} was called with input that could not be parsed as"
        f" JSON.\nYou sent (first {many} of {len(sent)} bytes): {shown}\n"
        "Send the whole input again as one complete JSON object."
    )
    return Explained(text, f"InputValidationError: JSON parse failed ({len(sent)} bytes)")


def path_text(path: Path) -> str:
    """A place in an input as people write it: `todos[0].activeForm`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def _lines(issues: tuple[Issue, ...], style: IssueStyle) -> list[str]:
    """The sentences: what is missing first, then what is unknown, then what has a wrong type."""
    missing = [
        f"The required parameter `{path_text(one.path)}` is missing"
        for one in issues
        if zod.is_missing(one, style)
    ]
    unexpected = [
        f"An unexpected parameter `{path_text(one.path)}` was provided"
        for one in issues
        if one.code == "unexpected"
    ]
    mistyped = [
        f"The parameter `{path_text(one.path)}` type is expected as `{zod.expected(one, style)}`"
        f" but provided as `{zod.received(one, style)}`"
        for one in issues
        if one.code == "type"
    ]
    told = missing + unexpected + mistyped
    if told and style.tells_the_rest:
        told += [
            f"The parameter `{path_text(one.path)}` is invalid: {zod.message(one, style)}"
            for one in issues
            if one.code not in ("unexpected", "type") and not zod.is_missing(one, style)
        ]
    return told
