"""What a person may say to be asked less often.

In: a question and what it needs. Out: changes that would answer it and its like, in the client's
own form: a rule, a folder, a mode. Nothing that looks like a secret gets into a rule, and no rule
is offered that would allow any program at all. Read `suggestions` first.
"""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from toolspan.model.decision import Ask, Needs
from toolspan.model.toolkind import tool_kind
from toolspan.permission.decide import Question
from toolspan.permission.rules import command_of, paths_of
from toolspan.shell.inside import SHELLS, base, plain
from toolspan.shell.seen import Program, see

Suggestion = Mapping[str, object]

_VERBS = frozenset({
    "apt", "aws", "brew", "bun", "cargo", "composer", "deno", "docker", "dotnet", "gh", "git", "go",
    "gradle", "helm", "just", "kubectl", "make", "mise", "mvn", "npm", "pip", "pnpm", "poetry",
    "rake", "rustup", "systemctl", "terraform", "uv", "yarn",
})  # fmt: skip
"""Programs whose first word says what they do."""
_BROAD = frozenset({
    "busybox", "chroot", "command", "doas", "env", "eval", "exec", "find", "flock", "node", "npx",
    "nsenter", "perl", "php", "python", "python2", "python3", "ruby", "source", "ssh", "su", "sudo",
    "unshare", "watch", "xargs", *SHELLS,
})  # fmt: skip
"""Programs that run whatever they are given: a rule for all of it would allow everything."""
_STAYS = frozenset({"critical", "plan", "protected", "rule", "unclear"})
"""What is asked again whatever a rule allows; so is what a hook or a tool itself asks."""
_KEY = (
    r"://[^/\s]*:[^/\s]*@|\b(?:(?:sk|pk|gh[pousr]|xox[abp])[-_]\w{8,}|AKIA\w{12,}|eyJ\w{12,})"
    r"|(?=[A-Za-z+]*\d)(?=\d*[A-Za-z+])[A-Za-z0-9+]{24,}"
)
_IS_KEY = re.compile(_KEY)
"""What looks like a key by itself: a known beginning, or letters and digits without end."""
_SECRET = re.compile(
    r"(?i:passw|secret|token|api[-_]?key|auth|bearer|credential|private[-_]?key)|" + _KEY
)
"""The same, or what is called one. A folder may be called so and hold none."""


def suggestions(question: Question, ask: Ask) -> tuple[Suggestion, ...]:
    """What would answer the question and those like it; nothing when nothing is safe to offer."""
    command = command_of(question)
    if ask.source != "config" or ask.basis in _STAYS:
        return ()
    if command is not None:
        return _for_line(command, ask.needs)
    match tool_kind(question.tool):
        case "edit" | "write" if ask.basis == "outside":
            return (_folders(question), _ACCEPT)
        case "edit" | "write":
            return (_ACCEPT,)
        case "read" | "search":
            paths = [path for path in paths_of(question) if not _IS_KEY.search(path)]
            return tuple(_rule("Read", f"/{_folder(path)}/**") for path in paths)
        case "web":
            host = _host(question.input.get("url"))
            return (_rule("WebFetch", f"domain:{host}"),) if host else ()
        case _:
            return (_rule(question.tool, None),)


_ACCEPT: Suggestion = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}


def _folders(question: Question) -> Suggestion:
    folders = list(dict.fromkeys(map(_folder, paths_of(question))))
    return {"type": "addDirectories", "directories": folders, "destination": "session"}


def _rule(tool: str, content: str | None) -> Suggestion:
    rule = {"toolName": tool} if content is None else {"toolName": tool, "ruleContent": content}
    destination = "session" if tool == "Read" else "localSettings"
    return {
        "type": "addRules",
        "rules": [rule],
        "behavior": "allow",
        "destination": destination,
    }


def _for_line(command: str, needs: Needs | None) -> tuple[Suggestion, ...]:
    if needs is not None and needs.reach is not None:
        if needs.reach.program is None and not needs.reach.inside:
            return ()
        folder = needs.reach.path if needs.reach.program == "cd" else _folder(needs.reach.path)
        added: Suggestion = {
            "type": "addDirectories",
            "directories": [folder],
            "destination": "session",
        }
        return (added, _ACCEPT) if needs.reach.inside else (added,)
    seen = see(command)
    if seen.unclear or needs is None:
        return ()
    wanted = [one for one in seen.programs if one.text in needs.parts and one.words]
    texts = dict.fromkeys(filter(None, map(_pattern, wanted)))
    return tuple(_rule("Bash", text) for text in texts)


def _pattern(program: Program) -> str | None:
    """A pattern for a program and its like; the whole command when only that is safe."""
    inner = plain(program)
    name = inner.name
    words = [word.text for word in inner.words[1:] if not word.filled]
    if not name or program.sets or _SECRET.search(name):
        return None
    if base(name) in _BROAD:
        # What it runs may be in its input, or in a variable: then its words say nothing.
        open_ended = program.fed or any(word.filled for word in program.words)
        unfit = open_ended or _SECRET.search(program.text) or "*" in program.text
        return None if unfit else program.text
    if name in _VERBS:
        verb = next((word for word in words if word[:1] != "-"), None)
        direct = bool(words) and words[0] == verb
        if verb is None or not direct or _SECRET.search(verb):
            return None if _SECRET.search(program.text) else program.text
        return f"{name} {verb}:*"
    return f"{name}:*"


def _folder(path: str) -> str:
    return str(PurePosixPath(path).parent)


def _host(url: object) -> str | None:
    try:
        return urlsplit(url).hostname if isinstance(url, str) else None
    except ValueError:
        return None
