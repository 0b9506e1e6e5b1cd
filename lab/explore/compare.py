"""Compare what the client and toolspan answered to the same case, and group the differences by cause.

Uses the comparison of the conformance kit: ids, times and paths become placeholders, the client's advice to the model
matches any text, and a call is equal when `is_error`, `content` and `toolUseResult` are.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolspan.runtime.profiles import nearest_version

Json = dict[str, Any]
FILES = "(files)"
"""The tool name under which differences between the files afterwards are listed."""
FIELDS = ("is_error", "content", "toolUseResult")
_CONTEXT = 60
_REMOTE_TOOLS = frozenset({"WebFetch", "WebSearch", "Agent", "Task"})
"""Tools that fail in the namespaces of cases after they were permitted."""
_SKIPPED = "[Tool call skipped"
"""The beginning of the client's results for calls after the one that ended the turn."""
_END = r"[\s\S]*?(?=</tool_use_error>|\Z)"
_ADVICE = tuple(
    re.compile(pattern + _END)
    for pattern in (
        r"(?<=[.]) (?:These tools write UTF-8 \(or|Nothing was written, because the encoding)",
        r"(?<=due to disable-model-invocation)\.",
        r"(?<=Invalid pages parameter: \"\w\"\.) ",
        r"(?<=[}\]t])\n(?:Use offset and|Search within|Use jq to|Read the parts)",
        r"(?<=\[Image could not be processed: )(?!Image file is empty)",
    )
)
"""Advice to the model after an error. Like other advice, it is not compared; both sides lose it."""


@dataclass(frozen=True)
class Difference:
    """One call, or one file, that did not end as it does with the client."""

    version: str
    case: str
    call_id: str
    tool: str
    input: Json
    fields: tuple[str, ...]
    client: Json
    ours: Json
    group: str
    purpose: str = ""
    """Why the difference is intended; empty if it is not."""
    kind: str = ""
    """`laxer` or `stricter` if only one side refused the call."""

    def to_row(self) -> Json:
        """Return the difference as a line for the report."""
        return {**vars(self), "fields": list(self.fields)}


@dataclass
class Comparison:
    """The result of one case."""

    case: Json
    counts: dict[str, list[int]] = field(default_factory=dict)
    """Equal calls and all calls, by tool."""
    differences: list[Difference] = field(default_factory=list)
    acted: int = 0
    """Calls that the client ran."""
    unanswered: int = 0
    """Calls that the client itself did not answer; they are not compared."""
    problems: list[str] = field(default_factory=list)


class Comparer:
    """The comparison rules of the conformance kit in the shared folder, and the intended differences."""

    def __init__(self, shared: Path, purposes: Iterable[Json] = ()) -> None:
        for name in ("oracle", "conformance"):
            if str(shared / name) not in sys.path:
                sys.path.insert(0, str(shared / name))
        self._score = importlib.import_module("score")
        self._prose = importlib.import_module("prose")
        self._purposes = [Purpose.from_row(row) for row in purposes]

    def compare(self, case: Json, client: Json, ours: Json) -> Comparison:
        """Compare two outputs of `inside.py`."""
        comparison = Comparison(case)
        comparison.problems = [
            f"{side}: {output['problem']}"
            for side, output in (("client", client), ("toolspan", ours))
            if output["problem"]
        ]
        norms = {}
        for side, output in (("client", client), ("ours", ours)):
            norms[side] = norm = self._score.Norm("/home/dev/proj", "/home/dev")
            for result in output["results"].values():
                norm.learn(result.get("toolUseResult"))
                norm.learn(result.get("content"))
        for call in (call for turn in case["turns"] for call in turn):
            answer, own = client["results"].get(call["id"]), ours["results"].get(call["id"], {})
            if answer is None or str(answer.get("content")).startswith(_SKIPPED):
                comparison.unanswered += 1
                continue
            count = comparison.counts.setdefault(tool_name(call), [0, 0])
            count[1] += 1
            comparison.acted += has_acted(call["name"], answer)
            want = {name: self._prose.cut(cut_advice(norms["client"](answer.get(name), name))) for name in FIELDS}
            got = {name: cut_advice(norms["ours"](own.get(name), name)) for name in FIELDS}
            order, ignored = self._order(call, answer)
            fields = tuple(
                name
                for name in FIELDS
                if name not in ignored and not self._score.same(order(want[name]), order(got[name]))
            )
            kind = compare_decisions(call["name"], answer, own)
            if case.get("theme") == "permissions":
                fields = ()
            if not fields and not kind:
                count[0] += 1
                continue
            self._add(comparison, call, fields, want, got, kind)
        self._compare_files(comparison, client, ours, norms)
        return comparison

    def _order(self, call: Json, answer: Json) -> tuple[Any, tuple[str, ...]]:
        """Return how lines are ordered before comparing, and the fields that have no fixed value."""
        result = answer.get("toolUseResult")
        if call["name"] != "Grep" or not isinstance(result, dict) or result.get("mode") not in ("content", "count"):
            return (lambda value: value), ()
        if "appliedLimit" in result or "appliedOffset" in result:
            return (lambda value: value), ("content", "toolUseResult")
        return self._score.any_order, ()

    def _add(
        self, comparison: Comparison, call: Json, fields: tuple[str, ...], want: Json, got: Json, kind: str
    ) -> None:
        case, tool = comparison.case, tool_name(call)
        group = group_key(tool, fields, want, got)
        if not fields:
            refusal = want if kind == "laxer" else got
            group = f"{kind} {tool} {skeleton(str(refusal.get('content')))}"
        purposes = [one for one in self._purposes if one.laxer or kind != "laxer"]
        purpose = next((one.reason for one in purposes if one.explains(case, call, fields, want, got)), "")
        comparison.differences.append(
            Difference(
                case["version"], case["id"], call["id"], tool, call["input"], fields, want, got, group, purpose, kind
            )
        )

    def _compare_files(self, comparison: Comparison, client: Json, ours: Json, norms: Json) -> None:
        count = comparison.counts.setdefault(FILES, [0, 0])
        for path in sorted(client["files"].keys() | ours["files"].keys()):
            sides = []
            for side, output in (("client", client), ("ours", ours)):
                entry = output["files"].get(path)
                kept = entry and {key: entry[key] for key in ("text", "base64", "symlink", "mode") if key in entry}
                sides.append(norms[side](kept))
            count[1] += 1
            if sides[0] == sides[1]:
                count[0] += 1
                continue
            want, got = ({"content": side} for side in sides)
            call = {"id": path, "name": FILES, "input": {"path": path}}
            self._add(comparison, call, ("content",), want, got, "")


@dataclass(frozen=True)
class Purpose:
    """An intended difference, from `on_purpose.toml`."""

    tool: str
    client: str
    ours: str
    profiles: tuple[str, ...]
    reason: str
    fields: frozenset[str] = frozenset(FIELDS)
    """The fields that may differ; others must be equal."""
    where: str = "content"
    """The field that the patterns are for."""
    mode: str = ""
    """The permission mode of the case; empty for all."""
    input: str = ""
    """A pattern for the call's input; empty for all."""
    allow: str = ""
    """An allow rule of the case; empty for all cases."""
    restriction: str = ""
    """A pattern for a deny or ask rule of the case; empty for all cases."""
    laxer: bool = False
    """True if toolspan runs a call that the client refuses. Such an entry must match the whole command."""

    @classmethod
    def from_row(cls, row: Json) -> Purpose:
        """Return the entry of a table; patterns are regular expressions."""
        fields = frozenset(row.get("fields", FIELDS))
        return cls(
            tool=row["tool"],
            client=row.get("client", ""),
            ours=row.get("ours", ""),
            profiles=tuple(row["profiles"]),
            reason=row["reason"],
            fields=fields,
            where=row.get("where", "content"),
            mode=row.get("mode", ""),
            input=row.get("input", ""),
            allow=row.get("allow", ""),
            restriction=row.get("restriction", ""),
            laxer=row.get("laxer", False),
        )

    def explains(self, case: Json, call: Json, fields: tuple[str, ...], want: Json, got: Json) -> bool:
        """Return whether the difference is this one."""
        texts = [json.dumps(side.get(self.where), ensure_ascii=False) for side in (want, got)]
        restrictions = [*_rules_of(case, "deny"), *_rules_of(case, "ask")]
        return (
            nearest_version(case["version"]) in self.profiles
            and self.mode in ("", case.get("permission_mode"))
            and (not self.allow or self.allow in _rules_of(case, "allow"))
            and (not self.restriction or any(re.fullmatch(self.restriction, rule) for rule in restrictions))
            and self.fields.issuperset(fields)
            and re.fullmatch(self.tool, tool_name(call)) is not None
            and re.search(self.input, json.dumps(call["input"])) is not None
            and re.search(self.client, texts[0]) is not None
            and re.search(self.ours, texts[1]) is not None
        )


def _rules_of(case: Json, key: str) -> list[str]:
    """Return the rules of a case's project settings, which may be invalid."""
    block = case.get("settings", {}).get("permissions")
    rules = block.get(key) if isinstance(block, dict) else None
    return [rule for rule in rules if isinstance(rule, str)] if isinstance(rules, list) else []


def load_purposes(path: Path) -> list[Json]:
    """Return the entries of the list of intended differences."""
    entries: list[Json] = tomllib.loads(path.read_text(encoding="utf-8")).get("difference", [])
    return entries


def cut_advice(value: object) -> object:
    """Remove the advice to the model that follows an error."""
    if isinstance(value, str):
        for pattern in _ADVICE:
            value = pattern.sub("", value)
    if isinstance(value, list):
        return [cut_advice(item) for item in value]
    if isinstance(value, dict) and value.get("type") == "text":
        return {**value, "text": cut_advice(value.get("text"))}
    return value


def compare_decisions(tool: str, client: Json, ours: Json) -> str:
    """Return `laxer` if only toolspan acted on a call that the client refused, `stricter` for the reverse.

    toolspan refuses all calls of a case, without answers, if it does not start with its settings.
    """
    if client.get("denied") and has_acted(tool, ours):
        return "laxer"
    if has_acted(tool, client) and (ours.get("denied") or not ours):
        return "stricter"
    return ""


def has_acted(tool: str, result: Json) -> bool:
    """Return whether a call got as far as having effects.

    A command has them even if it fails, and so has a call that needs a network, a server or a model. Other tools have
    not.
    """
    if not result or result.get("denied"):
        return False
    if not result.get("is_error"):
        return True
    content = str(result.get("content"))
    if tool in _REMOTE_TOOLS or tool.startswith("mcp__"):
        return "<tool_use_error>" not in content and not content.startswith("PreToolUse")
    return tool == "Bash" and content.startswith("Exit code")


def tool_name(call: Json) -> str:
    """Return the name under which a call is counted."""
    return "MCP" if call["name"].startswith("mcp__") else str(call["name"])


def group_key(tool: str, fields: tuple[str, ...], want: Json, got: Json) -> str:
    """Return what differences of one cause have in common: the tool and both texts without their particulars."""
    if "content" in fields or not fields:
        pair = first_difference(want.get("content"), got.get("content"))
    else:
        pair = first_difference(want.get(fields[-1]), got.get(fields[-1]))
    return f"{tool} [{','.join(fields) or 'decision'}] {skeleton(pair[0])} <> {skeleton(pair[1])}"


def first_difference(want: object, got: object) -> tuple[str, str]:
    """Return both values as text, cut to where they begin to differ."""
    if isinstance(want, dict) and isinstance(got, dict):
        keys = [key for key in [*want, *got] if want.get(key, ...) != got.get(key, ...)]
        if keys:
            left, right = first_difference(want.get(keys[0], "<absent>"), got.get(keys[0], "<absent>"))
            return f"{keys[0]}: {left}", f"{keys[0]}: {right}"
    if isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        for one, other in zip(want, got, strict=True):
            if one != other:
                return first_difference(one, other)
    left, right = (side if isinstance(side, str) else json.dumps(side, ensure_ascii=False) for side in (want, got))
    at = next((at for at, (one, other) in enumerate(zip(left, right, strict=False)) if one != other), 0)
    begin = max(left.rfind("\n", 0, at) + 1, at - _CONTEXT) if at else 0
    return left[begin : begin + 2 * _CONTEXT], right[begin : begin + 2 * _CONTEXT]


def skeleton(text: str) -> str:
    """Replace numbers, paths and quoted texts, which differ between examples of one cause."""
    text = re.sub(r"(?:<cwd>|<home>|~|\.{1,2})?(?:/[\w.@ üñ+-]*)+", "<path>", text)
    text = re.sub(r"'[^'\n]{0,200}'|\"[^\"\n]{0,200}\"|`[^`\n]{0,200}`", "'…'", text)
    return re.sub(r"\d+", "#", text).replace("\n", "⏎")[:110]
