"""Suggest allow rules from the questions in recorded sessions: `toolspan policy suggest`.

Start at `suggest_rules`. A *question* is a call that the permissions would ask about in default mode, unless the
transcript records that nobody was asked. A rule is suggested only if it allows no call that was refused, that is risky
or that is not understood, and no line of `risks.probe_lines`. The result is exact: all calls are decided again under
the suggested rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
from msgspec import Struct

from toolspan.archive.archive import Archive
from toolspan.archive.filters import Filter
from toolspan.archive.permissions import RecordedPermission
from toolspan.formats.registry import get_format
from toolspan.replay.decisions import CallDecider, DecidedCall
from toolspan.replay.risks import find_risk, is_known_program, probe_lines
from toolspan.runtime.permissions import Permissions, Rules
from toolspan.runtime.permissions.suggestions import offer_updates, suggest_exact_rules
from toolspan.runtime.sandbox.secrets import SECRET_FILES, SYSTEM_SECRETS
from toolspan.types.decision import Allow, Ask, Deny
from toolspan.types.tool_kinds import tool_kind

_MIN_QUESTIONS = 2
"""The questions that a rule must save. A question that was asked once is not a habit."""
_MIN_FOLDER_PARTS = 4
"""The parts of the shortest path in a suggested rule for reading, such as `/home/me/notes`."""
_GUARDED_BASES = frozenset({"critical", "plan", "protected", "rule"})
_PROBE_PROJECT = Path("/nonexistent/project")


class RuleSuggestion(Struct, frozen=True, kw_only=True):
    """A rule, and the questions that would be asked without it although the other rules are there."""

    rule: str
    questions: int
    wait_ms: int
    """The recorded and inferred time that these questions were open."""
    examples: tuple[str, ...]


class SuggestedRules(Struct, frozen=True, kw_only=True):
    """The suggested rules and what they would have saved."""

    calls: int
    """The number of calls in the period."""
    questions: int
    """The number of calls that would be asked about."""
    wait_ms: int
    saved_questions: int
    saved_wait_ms: int
    rules: tuple[RuleSuggestion, ...]
    excluded: dict[str, int]
    """The questions for which no rule is suggested, by reason."""


class _Case(Struct, kw_only=True):
    """All calls with the same tool, input and project, which are decided in the same way."""

    record: RecordedPermission
    decided: DecidedCall
    exclusion: str | None = None
    """The reason why no rule may allow the calls, or None."""
    questions: int = 0
    wait_ms: int = 0
    options: tuple[tuple[str, ...], ...] = ()
    """The sets of rules that would allow the calls, the most general first."""
    text: str = ""
    """The command or path of the calls."""

    @property
    def is_guarded(self) -> bool:
        """True if the calls are not allowed now and must stay so."""
        return self.exclusion is not None and not isinstance(self.decided.decision, Allow)


def suggest_rules(
    archive: Archive,
    call_filter: Filter | None = None,
    *,
    permissions: Permissions | None = None,
    limit: int | None = None,
    **words: Any,
) -> SuggestedRules:
    """Return the fewest allow rules that would have saved the most questions in an archive.

    `permissions` are those that already apply; rules are suggested for their default mode. See `Filter.parse` for the
    words of the filter.
    """
    base = replace(permissions or Permissions(), mode="default")
    records = [record for record in archive.permissions(call_filter, **words) if _has_rules(record)]
    decider = CallDecider(base)
    cases = _group_cases(records, decider)
    search = _RuleSearch(base, cases)
    rules = search.find_rules(limit)
    questions = [case for case in cases if case.questions]
    saved = search.saved_cases(rules)
    excluded: Counter[str] = Counter()
    for case in questions:
        if not case.options:
            excluded[case.exclusion or "no safe rule"] += case.questions
    return SuggestedRules(
        calls=len(records),
        questions=sum(case.questions for case in questions),
        wait_ms=sum(case.wait_ms for case in questions),
        saved_questions=sum(case.questions for case in saved),
        saved_wait_ms=sum(case.wait_ms for case in saved),
        rules=tuple(sorted(search.describe_rules(rules), key=lambda rule: (-rule.questions, rule.rule))),
        excluded=dict(excluded.most_common()),
    )


def _has_rules(record: RecordedPermission) -> bool:
    """Return whether permission rules are about calls of this client, in a folder of this kind of system."""
    return get_format(record.client).has_runtime_profiles and (record.project or "").startswith("/")


def _group_cases(records: Iterable[RecordedPermission], decider: CallDecider) -> list[_Case]:
    cases: dict[tuple[str, str | None, bytes], _Case] = {}
    for record in records:
        key = (record.tool, record.project, msgspec.json.encode(dict(record.input), order="sorted"))
        case = cases.get(key)
        if case is None:
            decided = _decide(decider, record)
            exclusion = _find_exclusion(record, decided)
            case = cases[key] = _Case(record=record, decided=decided, exclusion=exclusion, text=_main_text(record))
        if record.refused:
            case.exclusion = "denied"
        if isinstance(case.decided.decision, Ask) and record.asked is not False:
            case.questions += 1
            case.wait_ms += record.wait_ms or 0
    for case in cases.values():
        if case.questions and case.exclusion is None:
            case.options = tuple(_rule_options(case.decided))
    return list(cases.values())


def _decide(decider: CallDecider, record: RecordedPermission) -> DecidedCall:
    return decider.decide(record.tool, record.input, project=Path(record.project or "/"), call_id=record.call)


def _find_exclusion(record: RecordedPermission, decided: DecidedCall) -> str | None:
    """Return the reason why no rule may allow a call, or None."""
    decision, kind = decided.decision, tool_kind(record.tool)
    if isinstance(decision, Deny):
        return "denied"
    command = record.input.get("command")
    if isinstance(command, str) and record.tool in ("Bash", "Monitor"):
        risk = find_risk(command)
        if risk is not None:
            return risk
    elif kind == "web":
        return "network"
    elif kind not in ("read", "search", "edit", "write"):
        return "a tool whose effect is not known"
    if isinstance(decision, Ask):
        if decision.basis in _GUARDED_BASES:
            return "protected"
        if decision.basis == "not_understood" or decision.source != "config":
            return "not understood"
    return None


def _rule_options(decided: DecidedCall) -> Iterator[tuple[str, ...]]:
    """Yield the sets of rules that would answer the question, the most general first."""
    request, ask = decided.request, decided.decision
    if request is None or not isinstance(ask, Ask):
        return
    kind = tool_kind(request.tool)
    if kind in ("edit", "write"):
        if ask.basis != "outside" and (rule := _edit_rule(request.path_scope().folders[0], request.input)):
            yield (rule,)
        return
    updates = offer_updates(request, ask)
    rules = [rule for update in updates if update.get("type") == "addRules" for rule in _rule_texts(update)]
    if rules and all(map(_is_about_known_program, rules)):
        yield tuple(dict.fromkeys(rules))
    if kind == "shell" and (exact := suggest_exact_rules(request, ask)):
        yield exact


def _is_about_known_program(rule: str) -> bool:
    """Return whether a rule is exact, or about a program of which it is known what it can do."""
    tool, content = _split_rule(rule)
    return tool != "Bash" or not content.endswith(":*") or is_known_program(content.removesuffix(":*"))


def _rule_texts(update: Any) -> list[str]:
    return [
        f"{rule['toolName']}({rule['ruleContent']})" if "ruleContent" in rule else rule["toolName"]
        for rule in update["rules"]
    ]


def _edit_rule(project: str, tool_input: Any) -> str | None:
    """Return a rule for the top folder of the project that contains the file, or None for a hidden one."""
    name = tool_input.get("file_path") or tool_input.get("notebook_path")
    if not isinstance(name, str):
        return None
    path = PurePosixPath(project, name)
    if not path.is_relative_to(project) or ".." in path.parts:
        return None
    folder, *rest = path.relative_to(project).parts
    is_literal = not set(folder) & set("*?[]\\()") and folder[:1] not in (".", "~")
    return f"Edit({folder}/**)" if rest and is_literal else None


class _RuleSearch:
    """The search for the fewest rules that save the most questions.

    perf: A decision takes about a millisecond, so a rule is tried only on the calls whose text contains its program or
    folder. The rules that are returned are tried on all guarded calls.
    """

    def __init__(self, base: Permissions, cases: Sequence[_Case]) -> None:
        self._base = base
        self._questions = [case for case in cases if case.questions and case.exclusion is None]
        self._guarded = [case for case in cases if case.is_guarded]
        self._safe_rules: dict[str, bool] = {}

    def find_rules(self, limit: int | None) -> tuple[str, ...]:
        """Return the rules, those that save most first. Each of them saves at least two questions."""
        remaining = self._working_options()
        chosen: list[str] = []
        rejected: set[frozenset[str]] = set()
        while best := self._best_option(remaining, chosen, rejected, limit):
            rules = (*chosen, *sorted(best.difference(chosen)))
            if not all(map(self._is_safe, best)) or self._allows_guarded(rules, best):
                rejected.add(best)
                continue
            chosen = list(rules)
            remaining = [pair for pair in remaining if not any(option <= set(chosen) for option in pair[1])]
        while chosen and self._allows_guarded(chosen):
            chosen.pop()
        return self._without_useless(chosen)

    def _working_options(self) -> list[tuple[_Case, list[frozenset[str]]]]:
        """Return the questions with the sets of rules that really answer them."""
        cases_by_option: dict[tuple[str, ...], list[_Case]] = {}
        for case in self._questions:
            for rules in case.options:
                cases_by_option.setdefault(rules, []).append(case)
        options: dict[int, list[frozenset[str]]] = {}
        for rules, cases in cases_by_option.items():
            for case in self._allowed(cases, rules):
                options.setdefault(id(case), []).append(frozenset(rules))
        return [(case, options[id(case)]) for case in self._questions if id(case) in options]

    @staticmethod
    def _best_option(
        remaining: Iterable[tuple[_Case, Sequence[frozenset[str]]]],
        chosen: Sequence[str],
        rejected: set[frozenset[str]],
        limit: int | None,
    ) -> frozenset[str] | None:
        """Return the rules that would save most questions per new rule, or None if no rules would save enough."""
        gains: Counter[frozenset[str]] = Counter()
        waits: Counter[frozenset[str]] = Counter()
        for case, options in remaining:
            for option in options:
                if option not in rejected and (limit is None or len(option.union(chosen)) <= limit):
                    gains[option] += case.questions
                    waits[option] += case.wait_ms

        def rank(option: frozenset[str]) -> tuple[float, int, list[str]]:
            return gains[option] / len(option.difference(chosen)), waits[option], sorted(option)

        return max((option for option in gains if gains[option] >= _MIN_QUESTIONS), key=rank, default=None)

    def _without_useless(self, rules: Sequence[str]) -> tuple[str, ...]:
        """Return the rules without those that save fewer than two questions beside the others."""
        useful = list(rules)
        for rule in reversed(rules):
            if sum(case.questions for case in self._lost_cases(useful, rule)) < _MIN_QUESTIONS:
                useful.remove(rule)
        return tuple(useful)

    def _lost_cases(self, rules: Sequence[str], rule: str) -> list[_Case]:
        """Return the questions that would be asked again without one of the rules."""
        others = [other for other in rules if other != rule]
        concerned = [case for case in self._questions if _may_concern(rule, case)]
        kept = {id(case) for case in self._allowed(concerned, others)}
        return [case for case in self._allowed(concerned, rules) if id(case) not in kept]

    def describe_rules(self, rules: Sequence[str]) -> Iterator[RuleSuggestion]:
        """Yield each rule with the questions that would be asked without it."""
        for rule in rules:
            lost = sorted(self._lost_cases(rules, rule), key=lambda case: case.questions, reverse=True)
            yield RuleSuggestion(
                rule=rule,
                questions=sum(case.questions for case in lost),
                wait_ms=sum(case.wait_ms for case in lost),
                examples=tuple(_main_text(case.record) for case in lost[:3]),
            )

    def saved_cases(self, rules: Sequence[str]) -> list[_Case]:
        """Return the questions that would not be asked under the rules."""
        return self._allowed(self._questions, rules)

    def _allowed(self, cases: Iterable[_Case], rules: Sequence[str]) -> list[_Case]:
        if not rules:
            return []
        decider = self._decider(rules)
        return [case for case in cases if isinstance(_decide(decider, case.record).decision, Allow)]

    def _allows_guarded(self, rules: Sequence[str], tried: Iterable[str] | None = None) -> bool:
        """Return whether the rules allow a guarded call; with `tried`, one that these of the rules may concern."""
        cases = self._guarded
        if tried is not None:
            cases = [case for case in cases if any(_may_concern(rule, case) for rule in tried)]
        return bool(self._allowed(cases, rules))

    def _decider(self, rules: Sequence[str]) -> CallDecider:
        allow = Rules(allow=rules, origin="userSettings")
        return CallDecider(replace(self._base, rules=self._base.rules + allow))

    def _is_safe(self, rule: str) -> bool:
        """Return whether a rule allows no probe and none of the guarded calls."""
        if rule not in self._safe_rules:
            decider = self._decider((rule,))
            calls = (decider.decide(tool, value, project=_PROBE_PROJECT).decision for tool, value in _probe_calls(rule))
            self._safe_rules[rule] = (
                not _is_too_broad(rule)
                and not any(isinstance(decision, Allow) for decision in calls)
                and not self._allows_guarded((rule,), (rule,))
            )
        return self._safe_rules[rule]


def _may_concern(rule: str, case: _Case) -> bool:
    """Return whether a rule may match a call, because the call mentions its program or its folder."""
    tool, content = _split_rule(rule)
    if tool == "Bash":
        return case.record.tool in ("Bash", "Monitor") and content.split()[0].removesuffix(":*") in case.text
    return PurePosixPath(content.removesuffix("/**")).name in case.text


def _split_rule(rule: str) -> tuple[str, str]:
    tool, _, content = rule.partition("(")
    return tool, content.removesuffix(")")


def _probe_calls(rule: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield risky calls that a rule must not allow."""
    tool, content = _split_rule(rule)
    if tool == "Bash":
        name = content.removesuffix(":*").split()[0]
        yield from (("Bash", {"command": line}) for line in probe_lines(name))
    elif tool == "Read":
        secrets = [f"~/{name}" for names in SECRET_FILES.values() for name in names]
        yield from (("Read", {"file_path": str(Path(name).expanduser())}) for name in (*secrets, *SYSTEM_SECRETS))


def _is_too_broad(rule: str) -> bool:
    """Return whether a rule for reading covers a whole home folder, or a hidden folder."""
    tool, content = _split_rule(rule)
    if tool != "Read":
        return False
    parts = PurePosixPath(content.removesuffix("/**").replace("//", "/", 1)).parts
    return len(parts) < _MIN_FOLDER_PARTS or any(part.startswith(".") for part in parts)


def _main_text(record: RecordedPermission) -> str:
    texts = (record.input.get(key) for key in ("command", "file_path", "notebook_path", "path", "pattern"))
    return next((text for text in texts if isinstance(text, str)), record.tool)
