"""Suggest permission updates that would answer a question for good, such as a rule for `npm run`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.permissions.rule import standardized_host
from toolspan.runtime.permissions.rules import Rules, paths_of
from toolspan.shell.plans import NotUnderstood, plan
from toolspan.shell.program import Program, program_basename
from toolspan.shell.wrappers import is_shell
from toolspan.types.decision import Ask, MissingPermissions

Suggestion = Mapping[str, object]

_SUBCOMMAND_PROGRAMS = frozenset({
    "apt", "aws", "brew", "bun", "cargo", "composer", "deno", "docker", "dotnet", "gh", "git", "go",
    "gradle", "helm", "just", "kubectl", "make", "mise", "mvn", "npm", "pip", "pnpm", "poetry",
    "rake", "rustup", "systemctl", "terraform", "uv", "yarn",
})  # fmt: skip
"""Programs whose first argument is a subcommand."""
_INTERPRETERS = frozenset({
    "busybox", "chroot", "command", "doas", "env", "eval", "exec", "find", "flock", "node", "npx",
    "nsenter", "perl", "php", "python", "python2", "python3", "ruby", "source", "ssh", "su", "sudo",
    "unshare", "watch", "xargs",
})  # fmt: skip
"""Programs that run their arguments or input, so that a rule for them would allow everything."""
_UNGRANTABLE_BASES = frozenset({"critical", "not_understood", "plan", "protected", "rule"})
"""Reasons for questions that are asked regardless of rules."""
_KEY_PATTERN = (
    r"://[^/\s]*:[^/\s]*@|\b(?:(?:sk|pk|gh[pousr]|xox[abp])[-_]\w{8,}|AKIA\w{12,}|eyJ\w{12,})"
    r"|(?=[A-Za-z+]*\d)(?=\d*[A-Za-z+])[A-Za-z0-9+]{24,}"
)
_KEY_REGEX = re.compile(_KEY_PATTERN)
"""A pattern for strings that look like a key: a known prefix, or many letters and digits."""
_SECRET_REGEX = re.compile(
    r"(?i:passw|secret|token|api[-_]?key|auth|bearer|credential|private[-_]?key)|" + _KEY_PATTERN
)
"""The same, or a word such as `token`. Not used for paths, because a folder may have such a name."""


def suggest_updates(request: PermissionRequest, ask: Ask) -> tuple[Suggestion, ...]:
    """Return permission updates that would answer this question and similar ones; empty if none is safe."""
    command = request.command
    if ask.source != "config" or ask.basis in _UNGRANTABLE_BASES:
        return ()
    if command is not None:
        return _suggest_for_command(command, ask.needs)
    match request.kind:
        case "edit" | "write" if ask.basis == "outside":
            folders = list(dict.fromkeys(map(_parent_folder, paths_of(request))))
            return (_suggest_folders(folders), _ACCEPT_EDITS)
        case "edit" | "write":
            return (_ACCEPT_EDITS,)
        case "read" | "search":
            paths = [path for path in paths_of(request) if not _KEY_REGEX.search(path)]
            return tuple(_suggest_rule("Read", f"/{_parent_folder(path)}/**") for path in paths)
        case "web":
            url = request.input.get("url")
            host = standardized_host(url).rstrip(".") if isinstance(url, str) else ""
            return (_suggest_rule("WebFetch", f"domain:{host}"),) if host else ()
        case "shell":  # a rule without a pattern would allow every command
            return ()
        case _:
            return (_suggest_rule(request.tool, None),)


def offer_updates(request: PermissionRequest, ask: Ask) -> tuple[Suggestion, ...]:
    """Return the suggested updates with which the question would not be asked again.

    The client also suggests folders that the session already has, and rules that do not cover the line.
    """
    updates = suggest_updates(request, ask)
    command, scope = request.command, request.path_scope()
    offered = []
    for update in updates:
        folders = update.get("directories")
        if not isinstance(folders, list) or not all(map(scope.contains_path, folders)):
            offered.append(update)
    texts = [f"Bash({rule['ruleContent']})" for update in updates for rule in _suggested_rules(update)]
    if command is None or ask.needs is None or not texts:
        return tuple(offered)
    needs = Rules(allow=texts).check_line(command, request, edits=False).needs
    if needs is None or {command, *ask.needs.parts}.isdisjoint(needs.parts):
        return tuple(offered)
    return tuple(update for update in offered if not _suggested_rules(update))


def suggest_exact_rules(request: PermissionRequest, ask: Ask) -> tuple[str, ...]:
    """Return rules for exactly the commands of a line that need approval; empty if one of them has no safe rule."""
    command, needs = request.command, ask.needs
    line = plan(command or "")
    if command is None or needs is None or needs.reach is not None or isinstance(line, NotUnderstood):
        return ()
    programs = [program for program in line.programs if program.text in needs.parts]
    is_unfit = any(
        not program.words or program.variables or "*" in program.text or "\n" in program.text
        or program.has_stdin or any(word.has_expansion for word in program.words)
        or _SECRET_REGEX.search(program.text)
        for program in programs
    )  # fmt: skip
    return () if is_unfit else tuple(dict.fromkeys(f"Bash({program.text})" for program in programs))


def _suggested_rules(update: Suggestion) -> list[Mapping[str, str]]:
    rules = update.get("rules")
    return [rule for rule in rules if rule.get("toolName") == "Bash"] if isinstance(rules, list) else []


_ACCEPT_EDITS: Suggestion = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}


def _suggest_folders(folders: list[str]) -> Suggestion:
    return {"type": "addDirectories", "directories": folders, "destination": "session"}


def _suggest_rule(tool: str, content: str | None) -> Suggestion:
    rule = {"toolName": tool} if content is None else {"toolName": tool, "ruleContent": content}
    destination = "session" if tool == "Read" else "localSettings"
    return {"type": "addRules", "rules": [rule], "behavior": "allow", "destination": destination}


def _suggest_for_command(command: str, needs: MissingPermissions | None) -> tuple[Suggestion, ...]:
    if needs is not None and needs.reach is not None:
        if needs.reach.program is None and not needs.reach.inside:
            return ()
        folder = needs.reach.path if needs.reach.program == "cd" else _parent_folder(needs.reach.path)
        added = _suggest_folders([folder])
        return (added, _ACCEPT_EDITS) if needs.reach.inside else (added,)
    line = plan(command)
    if isinstance(line, NotUnderstood) or needs is None:
        return ()
    programs = [program for program in line.programs if program.text in needs.parts and program.words]
    texts = dict.fromkeys(filter(None, map(_program_pattern, programs)))
    return tuple(_suggest_rule("Bash", text) for text in texts)


def _program_pattern(program: Program) -> str | None:
    """Return a rule pattern for similar commands, the whole command if only that is safe, or None."""
    inner = program.inner
    name = inner.name
    arguments = [word.text for word in inner.words[1:] if not word.has_expansion]
    if not name or program.variables or _SECRET_REGEX.search(name):
        return None
    if program_basename(name) in _INTERPRETERS or is_shell(program_basename(name)):
        # The program may run its input or the value of a variable, which are not visible in its words.
        open_ended = program.has_stdin or any(word.has_expansion for word in program.words)
        unfit = open_ended or _SECRET_REGEX.search(program.text) or "*" in program.text
        return None if unfit else program.text
    if name in _SUBCOMMAND_PROGRAMS:
        verb = next((word for word in arguments if word[:1] != "-"), None)
        direct = bool(arguments) and arguments[0] == verb
        if verb is None or not direct or _SECRET_REGEX.search(verb):
            return None if _SECRET_REGEX.search(program.text) else program.text
        return f"{name} {verb}:*"
    return f"{name}:*"


def _parent_folder(path: str) -> str:
    return str(PurePosixPath(path).parent)
