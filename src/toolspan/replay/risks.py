"""Risky calls, which no suggested rule may allow: network, removals, other users, and interpreters with code.

`find_risk` judges a call of the history. `probe_lines` are risky lines for a program: a rule that allows one of them is
not suggested, even if the history contains no such line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from toolspan.shell.plans import NotUnderstood, plan
from toolspan.shell.program import Program, program_basename
from toolspan.shell.table import program_table
from toolspan.shell.wrappers import is_shell

_ANY = ("",)
"""Every use of the program."""
_NETWORK: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("aider", "aria2c", "aws", "az", "bunx", "claude", "claude-code", "codex", "curl", "cursor-agent", "dig",
         "docker", "docker-compose", "firebase", "fly", "flyctl", "ftp", "gcloud", "gemini", "gh", "glab", "gsutil",
         "helm", "heroku", "host", "http", "https", "kubectl", "lftp", "mail", "mongosh", "mysql", "nc", "ncat",
         "netcat", "netlify", "nmap", "npx", "nslookup", "opencode", "ping", "podman", "psql", "rclone", "redis-cli",
         "rsync", "s3cmd", "scp", "sendmail", "sftp", "socat", "ssh", "ssh-copy-id", "telnet", "terraform",
         "traceroute", "uvx", "vercel", "wget", "whois", "wrangler"),
        _ANY,
    ),
    **dict.fromkeys(("apk", "apt", "apt-get", "brew", "conda", "dnf", "pacman", "port", "snap", "yum", "zypper"), _ANY),
    "bun": ("add", "create", "install", "i", "link", "pm", "publish", "update", "upgrade", "x"),
    "bundle": ("add", "install", "outdated", "update"),
    "cargo": ("add", "fetch", "install", "login", "publish", "search", "update", "yank"),
    "composer": ("create-project", "install", "require", "update"),
    "deno": ("add", "cache", "install", "publish", "upgrade"),
    "dotnet": ("add", "nuget", "restore", "tool", "workload"),
    "gem": ("fetch", "install", "push", "update"),
    "git": (
        "archive", "clone", "fetch", "lfs", "ls-remote", "pull", "push", "remote", "send-email", "submodule", "svn",
    ),
    "go": ("generate", "get", "install", "mod"),
    "npm": (
        "access", "adduser", "audit", "ci", "create", "exec", "i", "init", "install", "install-test", "it", "link",
        "login", "outdated", "publish", "search", "unpublish", "update", "upgrade", "view", "x",
    ),
    "pip": ("download", "index", "install", "wheel"),
    "pip3": ("download", "index", "install", "wheel"),
    "pipenv": ("install", "lock", "sync", "update"),
    "pipx": _ANY,
    "pdm": ("add", "install", "lock", "publish", "sync", "update"),
    "pnpm": ("add", "create", "dlx", "i", "install", "outdated", "publish", "up", "update"),
    "poetry": ("add", "install", "lock", "publish", "self", "update"),
    "rustup": _ANY,
    "twine": _ANY,
    "uv": ("add", "lock", "pip", "publish", "self", "sync", "tool"),
    "yarn": ("add", "create", "dlx", "install", "npm", "publish", "up", "upgrade"),
}  # fmt: skip
"""Programs that use the network, with the subcommands that do."""
_GIT_VALUE_OPTIONS = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--exec-path"})
_PRIVILEGED = frozenset({
    "chgrp", "chown", "chroot", "crontab", "dd", "doas", "fdisk", "halt", "insmod", "iptables", "launchctl", "mkfs",
    "modprobe", "mount", "nsenter", "osascript", "parted", "pkexec", "poweroff", "reboot", "shutdown", "su", "sudo",
    "systemctl", "umount", "unshare", "useradd", "usermod", "visudo",
})  # fmt: skip
"""Programs that act as another user, or on the whole machine."""
_RUNNERS: Mapping[str, tuple[str, ...]] = {
    "bundle": ("exec",), "bun": ("run",), "cargo": ("script",), "deno": ("eval", "run"), "go": ("run",),
    "hatch": ("run",), "mise": ("exec", "x"), "nix": ("develop", "run", "shell"), "npm": ("exec", "x"),
    "pdm": ("run",), "pipenv": ("run",), "pnpm": ("exec",), "poetry": ("run",), "uv": ("run",), "yarn": ("exec",),
}  # fmt: skip
"""Programs that run the program in their arguments, with the subcommands that do."""
_INTERPRETERS = re.compile(
    r"(?:python|pypy|ruby|perl|php|lua|node|deno|bun|tclsh|guile|julia|pwsh|ts-node|tsx|Rscript|groovy|scala|ghci|irb)[\d.]*"
)
_AWK = frozenset({"awk", "gawk", "mawk", "nawk"})
_EVALUATING = frozenset({"eval", "source", ".", "exec", "trap", "xargs", "parallel", "watch", "entr", "expect", "m4"})
_SAFE_MODULES = frozenset({
    "black", "build", "compileall", "coverage", "doctest", "flake8", "isort", "json.tool", "mypy", "py_compile",
    "pylint", "pytest", "ruff", "timeit", "tox", "unittest", "venv",
})  # fmt: skip
"""Python modules that run no code from the command line."""
_DEVELOPMENT_TOOLS = frozenset({
    "black", "clippy", "ctest", "eslint", "flake8", "gofmt", "golangci-lint", "isort", "jest", "markdownlint", "mocha",
    "mypy", "phpstan", "phpunit", "prettier", "pylint", "pyright", "pytest", "rspec", "rubocop", "ruff", "rustfmt",
    "shellcheck", "stylelint", "tree", "tsc", "vitest", "yamllint",
})  # fmt: skip
_REMOVERS = ("rm", "rmdir", "unlink", "shred", "trash", "mv", "truncate")
_OUTSIDE = ("/srv/other/x", "../x", "~/x")
_CODE_PROBES: Mapping[str, tuple[str, ...]] = {
    "find": ("find . -exec sh -c x {} ;", "find .. -delete", "find /srv/other -delete"),
    "git": ("git -c alias.x=!sh x", "git clean -fdx /srv/other", "git clean -fdx .."),
    "sed": ("sed -n 1e x", "sed -i s/a/b/ ~/.bashrc", "sed -i s/a/b/ /srv/other/x"),
    "tar": ("tar --checkpoint=1 --checkpoint-action=exec=sh -cf a b",),
    "tee": ("tee ~/.bashrc", "tee .git/hooks/pre-commit", "tee /srv/other/x"),
    "cp": ("cp x ~/.bashrc", "cp x .git/hooks/pre-commit", "cp x /srv/other/x"),
    "make": ("make -f -", "make SHELL=/tmp/x", "make -C /srv/other"),
    "ln": ("ln -s /srv/other/x y", "ln x .git/hooks/pre-commit"),
}
"""Further risky lines of programs: code, protected files, and files outside the project."""


def find_risk(line: str) -> str | None:
    """Return the reason why a command line is risky or not understood, or None."""
    if is_not_understood(line):
        return "not understood"
    for entry in plan(line).reached:
        if (risk := _program_risk(entry.program)) is not None:
            return risk
    return None


def is_not_understood(line: str) -> bool:
    """Return whether a line cannot be checked before it runs."""
    return isinstance(plan(line), NotUnderstood)


def _program_risk(program: Program) -> str | None:
    words = [word.text for word in program.words]
    if not words:
        return None
    if not program.name:
        return "not understood"
    if program_basename(words[0]) in _AWK and program.arguments.unknown is None:
        return None
    return _words_risk(words, has_stdin=program.has_stdin)


def _words_risk(words: list[str], *, has_stdin: bool) -> str | None:
    name, arguments = program_basename(words[0]), words[1:]
    if name == "git":  # the global options that have a value come before the subcommand
        while len(arguments) > 1 and arguments[0] in _GIT_VALUE_OPTIONS:
            arguments = arguments[2:]
    plain = [word for word in arguments if word[:1] != "-"]
    verb = plain[0] if plain else ""
    if name in _PRIVILEGED or name.startswith("mkfs."):
        return "privileged"
    verbs = _NETWORK.get(name, ())
    if verbs == _ANY or verb in verbs:
        return "network"
    if name in ("yarn", "bun") and not plain:  # without a subcommand, they install
        return "network"
    if verb in _RUNNERS.get(name, ()):
        inner = arguments[arguments.index(verb) + 1 :]
        if not inner or inner[0][:1] == "-":
            return "interpreter"
        return _words_risk(inner, has_stdin=has_stdin)
    if name in _REMOVERS and any(word[:1] in ("/", "~") or ".." in word.split("/") for word in plain):
        return "removal"
    if is_shell(name) or name in _EVALUATING or name in _AWK or _INTERPRETERS.fullmatch(name):
        return None if _runs_file(name, arguments, has_stdin=has_stdin) else "interpreter"
    return None


def _runs_file(name: str, arguments: list[str], *, has_stdin: bool) -> bool:
    """Return whether an interpreter runs a file of the project or a harmless module, and no code of the line."""
    if name in _EVALUATING or name in _AWK or not arguments:
        return False
    if arguments[0] == "-m":
        return len(arguments) > 1 and arguments[1] in _SAFE_MODULES
    if arguments == ["--version"]:
        return True
    script = arguments[0]
    is_inside = script[:1] not in ("-", "/", "~", "$", "<") and ".." not in script.split("/")
    return is_inside and not has_stdin


def is_known_program(prefix: str) -> bool:
    """Return whether a rule for all commands with this prefix is about a program whose effects are known.

    These are the programs of the table, tools that check or test a project, and programs with a subcommand.
    """
    words = prefix.split()
    return words[0] in program_table() or words[0] in _DEVELOPMENT_TOOLS or len(words) > 1


def probe_lines(name: str) -> Iterator[str]:
    """Yield risky lines for a program. The paths in them are outside of every project."""
    base = program_basename(name)
    for verb in _NETWORK.get(base, ()):
        yield f"{name} {verb} example.org x".replace("  ", " ")
    for verb in _RUNNERS.get(base, ()):
        yield f"{name} {verb} python3 -c x"
        yield f"{name} {verb} sh -c x"
    if base in _PRIVILEGED or base in _EVALUATING:
        yield f"{name} x"
        yield f"{name} sh -c x"
    if is_shell(base) or base in _AWK or _INTERPRETERS.fullmatch(base):
        yield from (f"{name} {option} x" for option in ("-c", "-e", "-", "-m http.server", "--eval"))
        yield f"{name} 'BEGIN {{ system(\"x\") }}'"
        yield f"{name} /srv/other/x"
    if base in _REMOVERS:
        yield from (f"{name} {option}{path}" for option in ("", "-f ", "-rf ") for path in _OUTSIDE)
    yield from (line.replace(base, name, 1) for line in _CODE_PROBES.get(base, ()))
    yield from (f"{name} x > {path}" for path in ("~/.bashrc", ".git/hooks/pre-commit", ".claude/settings.json"))
    yield f"{name} x | sh"
    yield f"{name} $(x)"
