"""The decisions that permission rules would make on calls, with the reasons: `toolspan policy`.

Nothing is run. Start at `evaluate_call`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from toolspan.errors import ToolspanError
from toolspan.reading.transcript import read
from toolspan.replay.decisions import CallDecider
from toolspan.runtime.outcome import approval_message
from toolspan.runtime.permissions import Mode, Permissions, Rules
from toolspan.runtime.permissions.modes import parse_default_mode
from toolspan.runtime.permissions.rules import added_folders, rules_from_settings
from toolspan.runtime.permissions.suggestions import offer_updates
from toolspan.runtime.profiles import profile
from toolspan.runtime.settings import PermissionSettings, SettingsLayer, SettingsPaths, load_layers
from toolspan.runtime.settings.load import load_json
from toolspan.session.rule_problems import RuleNames, find_rule_problems
from toolspan.shell.plans import NotUnderstood, Plan, explain_program, plan
from toolspan.tools import client_tools
from toolspan.types.decision import Allow, Ask, Decision, Deny
from toolspan.types.ids import CallId
from toolspan.types.tool_kinds import sanitize_name

_BASIS_SENTENCES = {
    "rule": "a rule decides",
    "parts": "every command in the line is known to be harmless",
    "mode": "the permission mode decides",
    "hook": "a hook decides",
    "outside": "it uses a path outside the session's folders",
    "protected": "it changes a file that decides what runs later",
    "critical": "it could remove far more than is meant",
    "not_understood": "the line is not understood, so it may do what a rule denies",
    "plan": "plan mode decides",
    "classifier": "in plan mode, only commands that are known to be harmless run",
    "sandbox": "the command runs in the sandbox",
}
"""Sentences for `Decision.basis`."""


class PolicyDecision(Struct, frozen=True, kw_only=True):
    """The decision that the rules would make for a call."""

    call: str | None = None
    tool: str
    about: str
    decision: str
    rule: str | None = None
    origin: str | None = None
    basis: str | None = None
    reason: str
    """A sentence about the basis."""
    words: str | None = None
    programs: tuple[str, ...] = ()
    not_understood: str | None = None
    """The first part of the line that is not understood, or a program or argument that is not in the table."""
    files_read: tuple[str, ...] = ()
    files_written: tuple[str, ...] = ()
    suggestions: tuple[dict[str, object], ...] = ()


def parse_rule_texts(texts: Iterable[str]) -> Rules:
    """Return the rules of a command line, such as `deny:Bash(rm:*)`. A rule without a list allows.

    Raises:
        ToolspanError: a text is the name of a file.
    """
    lists: dict[str, list[str]] = {"allow": [], "ask": [], "deny": []}
    for text in texts:
        if text.endswith(".json"):
            raise ToolspanError(f"{text} is not a rule; to read a settings file, write --settings {text}")
        name, colon, rule = text.partition(":")
        is_named = colon and name in lists
        lists[name if is_named else "allow"].append(rule if is_named else text)
    return Rules(**lists, origin="cliArg")  # type: ignore[arg-type]  # three lists of strings


def load_permissions(
    rules: Rules, settings_file: Path | None, mode: Mode | None, profile_name: str, project: Path
) -> Permissions:
    """Return the permissions of some rules and a settings file."""
    layers: list[SettingsLayer] = []
    if settings_file is not None:
        paths = SettingsPaths.for_project(project)
        layers += (layer for layer in load_layers(paths, named=settings_file, scopes=()) if layer.path == settings_file)
    block = layers[0].settings.permissions if layers else PermissionSettings()
    refusals = profile(profile_name).refusals
    folder = settings_file.absolute().parent if settings_file else None
    default_mode = parse_default_mode(layers[0].default_mode if layers else None)
    folders = added_folders(block, project, refusals)
    all_rules = rules + rules_from_settings(block, "flagSettings", folder, refusals)
    return Permissions(all_rules, mode or default_mode, folders=folders, refusals=refusals)


def _explain_line(line: Plan | NotUnderstood) -> str | None:
    """Return the reason why a line needs a rule or a question, as a sentence, or None if it is understood."""
    if isinstance(line, NotUnderstood):
        return f"{line.reason} in the line is not understood."
    return next((f"{reason}." for reason in map(explain_program, line.programs) if reason is not None), None)


def evaluate_call(
    decider: CallDecider, tool: str, tool_input: Mapping[str, object], project: Path, call_id: CallId
) -> PolicyDecision:
    """Return the decision that `exec` would make on a call in a session that began in `project`."""
    decided = decider.decide(tool, tool_input, project=project, call_id=call_id)
    decision, request = decided.decision, decided.request
    prompt_text: str | None = None
    suggested_updates: tuple[dict[str, object], ...] = ()
    if isinstance(decision, Ask) and request is not None:
        prompt_text = approval_message(request, decision, decider.profile.refusals)
        suggested_updates = tuple(dict(item) for item in offer_updates(request, decision))
    line = None if request is None else request.command
    texts = (value for value in tool_input.values() if isinstance(value, str))
    understood = None if line is None else plan(line)
    program_names = () if understood is None else (item.program.text for item in understood.reached)
    return PolicyDecision(
        call=call_id,
        tool=tool if request is None else request.tool,
        about=line if line is not None else next(texts, ""),
        decision=type(decision).__name__.lower(),
        rule=decision.rule,
        origin=decision.origin,
        basis=decision.basis,
        reason=_explain_basis(decision, is_line=line is not None),
        words=prompt_text,
        programs=tuple(dict.fromkeys(filter(None, program_names))),
        not_understood=None if understood is None else _explain_line(understood),
        files_read=tuple(word.text for word in understood.files_read) if isinstance(understood, Plan) else (),
        files_written=tuple(word.text for word in understood.files_written) if isinstance(understood, Plan) else (),
        suggestions=suggested_updates,
    )


def _explain_basis(decision: Decision, *, is_line: bool) -> str:
    """Return a sentence about the reason for a decision."""
    if decision.rule is not None:
        verb = {"allow": "allows", "ask": "asks about", "deny": "denies"}[type(decision).__name__.lower()]
        return f"the rule {decision.rule} {verb} {'a command in the line' if is_line else 'the call'}"
    if decision.basis == "parts" and isinstance(decision, Ask | Deny):
        return "a command in the line needs permission"
    if decision.basis is not None:
        return _BASIS_SENTENCES[decision.basis]
    if isinstance(decision, Allow):
        return "the tool changes nothing in the project"
    if isinstance(decision, Deny):
        return decision.reason or "the call is refused"
    return decision.reason or "no rule allows it"


def evaluate_transcript(path: Path, decider: CallDecider) -> Iterator[PolicyDecision]:
    """Yield the decision on each call of a transcript."""
    transcript = read(path)
    project = Path(transcript.info.cwd or ".").absolute()
    for span in transcript.spans:
        if span.call.tool:
            yield evaluate_call(decider, span.tool, dict(span.call.arguments), project, span.id)


def known_rule_names(paths: SettingsPaths) -> RuleNames:
    """Return the names that rules may use: the tools of clients and the MCP servers of a project."""
    servers = load_json(paths.mcp_file).get("mcpServers") if paths.mcp_file.is_file() else None
    names = map(sanitize_name, servers) if isinstance(servers, Mapping) else ()
    return RuleNames.from_tools(client_tools().values(), servers=names)


def find_settings_problems(project: Path) -> Iterator[str]:
    """Yield the problems of the permission rules in the settings of the user and of a project."""
    paths = SettingsPaths.for_project(project)
    rules = Rules()
    for layer in load_layers(paths):
        rules += rules_from_settings(layer.settings.permissions, str(layer.path))
    if rules.allow or rules.ask or rules.deny:
        yield from (problem.text for problem in find_rule_problems(rules, known_rule_names(paths)))
