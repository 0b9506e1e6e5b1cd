"""Risky commands: removals, force pushes, uploads, credentials and production systems.

`RULES` is the table of risky uses of programs. A rule sees the programs that the plan of a command line reaches (see
`shell/plans.py`), not its text, so `echo "rm -rf /"` is harmless and `xargs rm -rf` is not. `RISKS` are the facts of
one file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

from msgspec import Struct

from toolspan.formats.pairing import command_line
from toolspan.reading.facts import CALLS, FactKind, FileJob, FileReading, FileSummary
from toolspan.shell.arguments import read_arguments
from toolspan.shell.exit_status import programs_run
from toolspan.shell.plans import NotUnderstood, Plan, plan
from toolspan.shell.program import Program, program_basename
from toolspan.types.span import Span

RiskKind = Literal["removal", "force_push", "upload", "credentials", "production"]
RISK_KINDS: tuple[RiskKind, ...] = get_args(RiskKind)


class Rule(NamedTuple):
    """A use of a program that is risky. All conditions must hold."""

    kind: RiskKind
    programs: str
    """Names of programs, separated by spaces."""
    reason: str
    """The effect, as a verb phrase."""
    verbs: str = ""
    """Subcommands, one of which must come first; a verb of two words is written with a dot."""
    options: str = ""
    """Options, one of which must occur. A short one also matches in a group such as `-rf`."""
    condition: Callable[[Sequence[str]], bool] = lambda _: True
    """A condition on the arguments after the verbs."""


def _is_outside(arguments: Sequence[str]) -> bool:
    """Return whether a path is outside the working folder, and not temporary."""
    paths = (word for word in arguments if word[:1] != "-")
    return any(
        (path[:1] in ("/", "~") or path.startswith(("$HOME", "..")) or path == "*")
        and not path.startswith(("/tmp/", "/var/tmp/", "/dev/null", "/private/tmp/"))
        for path in paths
    )


def _rewrites_branch(arguments: Sequence[str]) -> bool:
    """Return whether a pushed branch is overwritten (`+main`) or removed (`:main`)."""
    return any(word[:1] in ("+", ":") and len(word) > 1 for word in arguments)


def _has_remote_target(arguments: Sequence[str]) -> bool:
    """Return whether the last argument is a path on another machine."""
    return bool(arguments) and bool(re.match(r"[\w.@-]{2,}:|\w+://", arguments[-1]))


def _has_cloud_target(arguments: Sequence[str]) -> bool:
    """Return whether the last path is in a bucket."""
    paths = [word for word in arguments if word[:1] != "-"]
    return bool(paths) and "://" in paths[-1]


def _has_path(arguments: Sequence[str]) -> bool:
    """Return whether the arguments name files, so that `git checkout main` is not included."""
    return "--" in arguments or "." in arguments


def _sends_method(arguments: Sequence[str]) -> bool:
    """Return whether a request of curl has a method that changes something."""
    methods = [b for a, b in pairwise(arguments) if a in ("-X", "--request")]
    methods += [word[2:] for word in arguments if word.startswith("-X") and len(word) > 2]
    return any(method.upper() in ("POST", "PUT", "PATCH", "DELETE") for method in methods)


_HEADER_WITH_SECRET = re.compile(r"(?i)(?:authorization|x-api-key|private-token):\s*(?:\w+\s+)?[^\s$]{12,}")

RULES: tuple[Rule, ...] = (
    Rule("removal", "rm", "removes folders", options="-r -R --recursive"),
    Rule("removal", "rm unlink rmdir shred truncate", "removes files outside the project", condition=_is_outside),
    Rule("removal", "shred dd mkfs wipefs", "overwrites data", condition=_is_outside),
    Rule("removal", "find fd", "removes the files it finds", options="-delete"),
    Rule("removal", "git", "discards uncommitted changes", verbs="reset", options="--hard"),
    Rule("removal", "git", "discards uncommitted changes", verbs="checkout restore", condition=_has_path),
    Rule("removal", "git", "removes untracked files", verbs="clean", options="-f --force -x -X"),
    Rule("removal", "git", "removes a branch or stash", verbs="stash.drop stash.clear"),
    Rule("removal", "git", "removes a branch or stash", verbs="branch", options="-D"),
    Rule("removal", "git", "rewrites history", verbs="filter-branch filter-repo"),
    Rule("removal", "docker podman", "removes containers, images or volumes",
         verbs="rm rmi system.prune volume.rm volume.prune image.prune container.prune"),
    Rule("removal", "docker docker-compose podman", "removes volumes", verbs="down compose.down",
         options="-v --volumes"),
    Rule("removal", "kubectl helm", "removes resources", verbs="delete uninstall drain"),
    Rule("removal", "terraform tofu pulumi", "removes infrastructure", verbs="destroy"),
    Rule("removal", "dropdb dropuser", "removes a database"),
    Rule("removal", "aws", "removes objects", verbs="s3.rm s3.rb"),
    Rule("removal", "gsutil rclone", "removes objects", verbs="rm rb delete purge"),
    Rule("removal", "gh", "removes a repository or release", verbs="repo.delete release.delete"),
    Rule("force_push", "git", "overwrites a remote branch", verbs="push",
         options="-f --force --force-with-lease --force-if-includes --mirror --prune"),
    Rule("force_push", "git", "overwrites or removes a remote branch", verbs="push", condition=_rewrites_branch),
    Rule("force_push", "git", "removes a remote branch", verbs="push", options="-d --delete"),
    Rule("upload", "curl", "sends data",
         options="-d -F -T --data --data-raw --data-binary --data-urlencode --form --json --upload-file"),
    Rule("upload", "curl", "sends data", condition=_sends_method),
    Rule("upload", "wget", "sends data", options="--post-data --post-file --body-data --body-file"),
    Rule("upload", "http https xh", "sends data", verbs="POST PUT PATCH DELETE"),
    Rule("upload", "scp rsync", "copies files to another machine", condition=_has_remote_target),
    Rule("upload", "sftp ftp nc ncat netcat telnet", "opens a connection"),
    Rule("upload", "aws", "copies files to a bucket", verbs="s3.cp s3.mv s3.sync", condition=_has_cloud_target),
    Rule("upload", "gsutil rclone", "copies files to a bucket", verbs="cp mv rsync copy sync",
         condition=_has_cloud_target),
    Rule("upload", "npm pnpm yarn cargo poetry uv gem", "publishes a package", verbs="publish push"),
    Rule("upload", "twine", "publishes a package", verbs="upload"),
    Rule("upload", "docker podman", "publishes an image", verbs="push"),
    Rule("upload", "gh", "publishes files", verbs="gist.create release.create release.upload"),
    Rule("credentials", "gh", "prints a token", verbs="auth.token"),
    Rule("credentials", "aws", "prints a secret", verbs="secretsmanager.get-secret-value configure.get"),
    Rule("credentials", "gcloud", "prints a token", verbs="auth.print-access-token auth.print-identity-token"),
    Rule("credentials", "vault op pass", "prints a secret", verbs="read get show kv.get item.get"),
    Rule("credentials", "security", "prints a secret", verbs="find-generic-password find-internet-password"),
    Rule("credentials", "kubectl", "prints a secret", verbs="get.secret get.secrets describe.secret"),
    Rule("credentials", "printenv env", "prints all variables", condition=lambda arguments: not arguments),
    Rule("credentials", "curl wget http https", "sends a password or token of the line",
         condition=lambda arguments: any(map(_HEADER_WITH_SECRET.search, arguments))),
)  # fmt: skip
"""The table of risky uses, to be read from top to bottom. A program may match several rules of different kinds."""

_CREDENTIAL_FILES = re.compile(
    r"(?:^|/)(?:\.env(?:\.(?!example$|sample$|template$|dist$)[\w.-]+)?|\.netrc|\.npmrc|\.pypirc|\.pgpass|\.git-credentials"
    r"|\.htpasswd|id_(?:rsa|dsa|ecdsa|ed25519)|\.ssh/(?!known_hosts|config$)[\w.-]+|\.aws/credentials|\.kube/config"
    r"|\.docker/config\.json|\.config/gh/hosts\.yml|credentials\.json|service-account[\w-]*\.json"
    r"|[\w.-]+\.(?:pem|p12|pfx|keystore))$"
)
"""Paths of files with passwords, keys and tokens."""
_NAME_PROGRAMS = frozenset({
    "[", "[[", "chmod", "chown", "echo", "fd", "file", "find", "git", "ls", "printf", "realpath", "rm", "stat",
    "test", "touch",
})  # fmt: skip
"""Programs that do not show the content of the files in their arguments."""
_PATTERN_PROGRAMS = frozenset({
    "ag", "awk", "egrep", "fgrep", "grep", "perl", "rg", "sed",
})  # fmt: skip
"""Programs whose arguments may be patterns that look like files."""
_SECRET_VARIABLES = re.compile(r"(?i)(?:^|_)(?:password|passwd|secret|token|api_?key|access_?key|private_?key)$")
_PRODUCTION = re.compile(r"(?i)(?:^|[^a-z0-9])(?:prod|production|prd)(?:$|[^a-z])")
_REMOTE_PROGRAMS = frozenset({
    "ansible", "ansible-playbook", "aws", "az", "cdk", "curl", "docker-compose", "doctl", "flyctl", "fly", "gcloud",
    "gh", "helm", "heroku", "http", "kubectl", "mongo", "mongosh", "mysql", "mysqldump", "pg_dump", "pg_restore",
    "psql", "pulumi", "railway", "redis-cli", "rsync", "scp", "sftp", "ssh", "supabase", "terraform", "tofu",
    "vercel", "wrangler",
})  # fmt: skip
"""Programs that act on other machines, in whose arguments a production name matters."""
_HINTS = re.compile(
    rf"\b(?:{'|'.join(sorted({name for rule in RULES for name in rule.programs.split()}))})\b"
    r"|\.env|netrc|npmrc|pypirc|pgpass|credentials|htpasswd|id_rsa|id_ed|\.ssh/|\.kube|hosts\.yml|\.pem|\.p12|\.pfx"
    r"|(?i:prod|prd|password|passwd|secret|token|key=)"
)
"""perf: a line without any of these is not parsed, which leaves one in three."""


class Risk(NamedTuple):
    """One risky part of a command line."""

    kind: RiskKind
    reason: str
    part: str
    """The program with its arguments."""


class RiskyCall(Struct, frozen=True, kw_only=True):
    """A call whose command line is risky."""

    call: str
    command: str
    """The whole command line, up to a limit."""
    risks: tuple[Risk, ...]
    is_understood: bool
    """False if the line may do more than was found in it."""
    prompt: str | None
    """The prompt of the turn."""


class FileRisks(Struct, frozen=True, kw_only=True):
    """The risky calls of one file, and the programs that all of its command lines run."""

    calls: list[RiskyCall]
    programs: dict[str, tuple[str, ...]] = {}
    """The programs of each command line by call id, without lines that run none."""
    problem: str | None = None


class RisksOfFile(Struct, frozen=True, kw_only=True):
    """The risky calls of one file, with all calls of the file and the programs that they run."""

    summary: FileSummary
    calls: list[RiskyCall]
    programs: dict[str, tuple[str, ...]]

    @property
    def problem(self) -> str | None:
        """The reason why the file could not be read."""
        return self.summary.problem


_MAX_COMMAND = 2_000
_MAX_PROMPT = 300


def find_risks(line: str) -> tuple[tuple[Risk, ...], Plan | NotUnderstood | None]:
    """Return the risky parts of a command line, and its plan if it was parsed."""
    if not _HINTS.search(line):
        return (), None
    planned = plan(line)
    risks: dict[tuple[RiskKind, str], Risk] = {}
    for entry in planned.reached:
        for risk in _program_risks(entry.program):
            risks.setdefault((risk.kind, risk.part), risk)
    return tuple(risks.values()), planned


def _program_risks(program: Program) -> Iterator[Risk]:
    for assignment in program.assignments:
        name, _, value = assignment.partition("=")
        if _SECRET_VARIABLES.search(name) and len(value) > 1 and "$" not in value:
            yield Risk("credentials", f"sets {name} to a literal value", f"{name}=…")
    if secret := next(filter(_CREDENTIAL_FILES.search, _opened_files(program)), None):
        yield Risk("credentials", f"opens {secret}", program.text)
    if not program.words:
        return
    name, arguments = program_basename(program.name), [word.text for word in program.words[1:]]
    verbs = [word for word in _skip_global_options(name, arguments) if word[:1] != "-"]
    for rule in _RULES_BY_PROGRAM.get(name, ()):
        if (
            (not rule.verbs or any(verbs[: len(verb)] == verb for verb in _split_verbs(rule.verbs)))
            and (not rule.options or _has_option(arguments, rule.options.split()))
            and rule.condition(arguments)
        ):
            yield Risk(rule.kind, rule.reason, program.text)
    if (name in _REMOTE_PROGRAMS or verbs[:1] in (["push"], ["deploy"])) and _PRODUCTION.search(" ".join(arguments)):
        yield Risk("production", "names a production system", program.text)


def _opened_files(program: Program) -> Iterator[str]:
    """Yield the words of a program that are files whose content it reads or writes, as far as that is known."""
    name = program_basename(program.name)
    if name in _PATTERN_PROGRAMS:
        arguments = read_arguments(name, program.words[1:])
        yield from (word.text for word in arguments.files("read", "stat", "write"))
    elif name not in _NAME_PROGRAMS:
        yield from (word.text for word in program.words[1:])
    yield from (item.target.text for item in program.redirects)


_RULES_BY_PROGRAM: dict[str, list[Rule]] = {}
for _rule in RULES:
    for _name in _rule.programs.split():
        _RULES_BY_PROGRAM.setdefault(_name, []).append(_rule)
_VALUE_OPTIONS = {"git": ("-C", "-c", "--git-dir", "--work-tree"), "kubectl": ("-n", "--namespace", "--context"),
                  "docker": ("-H", "--context"), "aws": ("--profile", "--region")}  # fmt: skip
"""Options with a value that may come before the verb."""


def _skip_global_options(name: str, arguments: Sequence[str]) -> Iterator[str]:
    values = _VALUE_OPTIONS.get(name, ())
    skip = False
    for word in arguments:
        if not skip:
            yield word
        skip = not skip and word in values


def _split_verbs(verbs: str) -> Iterator[list[str]]:
    return (verb.split(".") for verb in verbs.split())


def _has_option(arguments: Sequence[str], options: Sequence[str]) -> bool:
    """Return whether one of the options occurs, alone, with a value, or in a group of short options."""
    for word in arguments:
        if word == "--":
            return False
        for option in options:
            if word == option or word.startswith(f"{option}="):
                return True
            is_group = len(option) == 2 and word[:1] == "-" and word[1:2] != "-"
            if is_group and option[1] in word[1:] and word[1:].isalpha() and len(word) <= 5:
                return True
    return False


def measure_risks(reading: FileReading) -> FileRisks:
    """Return the risky calls of a file, and the programs of all command lines.

    Raises:
        SourceError: the file can no longer be read.
    """
    risky: list[tuple[Span, str, tuple[Risk, ...], bool]] = []
    programs: dict[str, tuple[str, ...]] = {}
    for span in reading.transcript.spans:
        if span.call.kind != "shell" or span.call.continues or not span.call.at:
            continue
        line = command_line(span.call)
        if names := programs_run(line):
            programs[span.id] = names
        risks, planned = find_risks(line)
        if risks:
            risky.append((span, line, risks, isinstance(planned, Plan)))
    prompts = _read_prompts(reading) if risky else {}
    return FileRisks(
        calls=[
            RiskyCall(
                call=span.id,
                command=line[:_MAX_COMMAND],
                risks=risks,
                is_understood=is_understood,
                prompt=prompts.get(span.id),
            )
            for span, line, risks, is_understood in risky
        ],
        programs=programs,
    )


def _read_prompts(reading: FileReading) -> dict[str, str]:
    """Return the prompt of the turn of each call."""
    prompts: dict[str, str] = {}
    for timeline in reading.timeline.iter_timelines():
        for turn in timeline.turns:
            if turn.prompt is not None and (text := turn.prompt.text):
                prompts |= {placed.span.id: text[:_MAX_PROMPT] for placed in turn.calls}
    return prompts


RISKS = FactKind(
    name="risks",
    measure=measure_risks,
    facts_type=FileRisks,
    unreadable=lambda _, problem: FileRisks(calls=[], problem=problem),
    finds_causes=False,
)
RISK_JOB = FileJob(
    (CALLS, RISKS),
    lambda summary, risks: RisksOfFile(summary=summary, calls=risks.calls, programs=risks.programs),
)
