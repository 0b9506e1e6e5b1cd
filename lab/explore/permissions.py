"""Generate cases about permission decisions only: whether the client runs a call, and whether toolspan does.

The shell of these cases prints a word instead of running a command, so every decision stands alone and nothing happens.
"""

from __future__ import annotations

import random
from typing import Any

from lab.explore.calls import Draw
from lab.explore.command_lines import Lines
from lab.explore.generate import MODES

Json = dict[str, Any]
_SHELL = "<home>/orc/quiet/bash"
_CALLS = 200
_CALLS_IN_PLAN_MODE = 16
"""In plan mode, the newest client ends the turn after some twenty refusals."""
_RULES = (
    "Bash(ls:*)", "Bash(cat *)", "Bash(git status)", "Bash(git log:*)", "Bash(git:*)", "Bash(echo *)", "Bash(rm:*)",
    "Bash(find:*)", "Bash(sed *)", "Bash(npm run *)", "Bash(python3:*)", "Bash(* --version)", "Bash(timeout *)",
    "Bash(cd:*)", "Bash(bash:*)", "Bash(xargs:*)", "Bash(awk:*)", "Bash(cp:*)", "Bash(mkdir:*)", "Bash(git commit:*)",
    "Bash(env:*)", "Bash(make)", "Read(./secret/**)", "Read(.env)", "Read(//etc/**)", "Read(~/**)", "Edit(src/**)",
    "Edit(/new.txt)", "Read(**/*.pem)", "Edit(.env)", "Read(a.txt)", "Edit(**)", "Edit(~/other/**)", "Write", "Read",
    "Bash", "Edit", "Bash(tee:*)", "Bash(sort:*)", "Bash(docker ps:*)", "Bash(curl:*)", "Bash(head *)",
    "Edit(//tmp/**)", "Read(/src/b.py)", "Bash(ls -la)", "Bash(cat a.txt)", "Grep", "Glob",
    "Bash(* a.txt)", "Bash(git * HEAD)", "Bash(c* *)", "Bash(*x*)", "Bash(l*)", "Bash(grep:*)", "Bash(rg:*)",
    "Bash(touch:*)", "Bash(mv:*)", "Bash(jq:*)", "Bash(nice *)", "Bash(command *)", "Bash(bash -c *)",
    "Bash(git push:*)", "Read(./src/**)", "Edit(./deep/**)", "Read(//home/dev/proj/.env)", "Read(~/proj/a.txt)",
    "Edit(.git/**)", "Edit(~/proj/src/**)", "Read(secret)", "Bash(git diff:*)", "Bash(find . -name *)", "Edit(*.txt)",
    "Bash(time:*)", "Bash(export:*)", "Bash(set:*)", "Bash(foo bar)", "Bash(* --force)", "Read(src/**)",
    "Bash(npm run test:*)", "Edit(**)", "Read(**)",
    "Bash(watch ls)", "Bash(setsid ls)", "Bash(jobs:*)", "Bash(unset:*)", "Bash(find * x)", "Bash(strace ls)",
    "Bash(test:*)", "Bash(A=1 ls)", "Bash(LANG=C:*)", "Bash(X=1 cat *)", "Edit(src/b.py)", "Bash(nohup:*)",
)  # fmt: skip
_ODD_RULES = (
    "Bash()", "Bash( )", "Bash(*)", "Bash(**)", "Bash(:*)", "Bash ", " Bash(npm:*)", "Bash( ls:*)", "Bash(npm  run:*)",
    "Bash(* *)", "Bash(*:*)", "Bash(ls:* )", "Bash(l?:*)", "*", "B*", "bash", "Read()", "Read(*)", "Read(:*)",
    "Read(/)", "Read(~/)", "Read(~)", "Read(../other/**)", "Read(~/other/)", "Read(//etc/)", "Read( ~/** )",
    "Edit()", "Edit(*)", "Edit(:*)", "Edit( src/** )", "Edit(src/)", "Edit(new.txt/)", "Edit(../**)",
    "Edit(.)", "Edit(./)", "Write(*)", "Write(**)", "Write()", "Write(src/**)", "Grep(*)", "Grep(~/**)",
    "Glob()", "Glob(*)", "NotebookEdit(*)", "Read(s[!x]c/**)", "Edit(s[^x]c/**)", "Read(src//b.py)", "Read(secret/[**)",
    "Edit(src//*)", "Read(.//secret/**)", "Read({src,secret}/**)", "Read(SRC/**)", "Edit([a-z]*.txt)", "Read(!src/**)",
)  # fmt: skip
"""Rules with an empty pattern, spaces around it or a pattern that looks like the whole tool."""
_PATHS = (
    "a.txt", "src/b.py", "new.txt", "src/new.py", ".env", "secret/key.pem", ".git/config", ".git/hooks/pre-commit",
    ".gitconfig", ".bashrc", ".claude/settings.json", ".claude/settings.local.json", ".claude/commands/x.md",
    ".claude/agents/x.md", ".claude/skills/x/SKILL.md", ".vscode/settings.json", ".idea/x.xml", ".mcp.json", ".npmrc",
    ".husky/pre-commit", ".envrc", ".gitmodules", ".ripgreprc", "<home>/other/x.txt", "<home>/.bashrc", "/etc/hosts",
    "/tmp/x.txt", "ln-out", "ln-file", "ln-git", "ln-secret", "../other/x.txt", "HEAD", "hooks/post-checkout",
    "config", "src/.git/config", "~/other/x.txt", "<home>/.ssh/id_rsa", "<home>/.claude/settings.json",
    "<home>/.claude.json", "deep/er/x.json", "sub dir/c.txt", ".GIT/config", ".github/workflows/x.yml", "Makefile",
    "package.json", ".zshrc", ".profile", "ln-dir/x.txt", ".cargo/config.toml", ".yarnrc.yml", "CLAUDE.md",
    "..\\x", "a\\..\\b", "a.\\b", "a\\b", ".\\x", "odd.", "odd./x", "x~1", ".gi\u200ct/config", ".g\u0131t/config",
    ".bash\u202erc",
    ".claude/CLAUDE.md", "bare.git/config", ".devcontainer/devcontainer.json", ".pre-commit-config.yaml",
)  # fmt: skip


def generate_permission_case(seed: int, version: str, number: int) -> Json:
    """Return a case of decisions in one mode, with one set of rules."""
    rng = random.Random(f"permissions/{seed}/{version}/{number}")
    mode = MODES[number % len(MODES)] if rng.random() < 0.7 else "default"
    permissions: Json = {}
    for key, chance, most in (("allow", 0.6, 5), ("deny", 0.5, 3), ("ask", 0.3, 3)):
        if rng.random() < chance:
            permissions[key] = rng.sample(_RULES, rng.randint(1, most))
            if rng.random() < 0.2:
                permissions[key].append(rng.choice(_ODD_RULES))
    if rng.random() < 0.15:
        permissions["additionalDirectories"] = ["<home>/other"]
    case: Json = {
        "id": f"p{seed}-{number:03}-{mode}",
        "version": version,
        "theme": "permissions",
        "permission_mode": mode,
    }
    case["settings"] = {"permissions": permissions}
    case["files"], case["home_files"] = _files(), _home_files()
    case["env"] = {"SHELL": _SHELL}
    if not version.startswith("2.0."):
        case["tools"] = "Bash,Read,Edit,Write,Glob,Grep,NotebookEdit"
    lines, calls = Lines(rng), []
    for index in range(_CALLS_IN_PLAN_MODE if mode == "plan" else _CALLS):
        name, given = ("Bash", {"command": lines.line()}) if rng.random() < 0.75 else _file_call(rng)
        calls.append({"id": f"toolu_01{case['id'].replace('-', '')}x{index:03}", "name": name, "input": given})
    size = 4 if mode == "plan" else 10
    case["turns"] = [calls[at : at + size] for at in range(0, len(calls), size)]
    return case


def _file_call(rng: random.Random) -> Draw:
    path = rng.choice(_PATHS)
    path = path if path.startswith(("<", "/", "~")) else rng.choice((f"<cwd>/{path}", f"<cwd>/{path}", path))
    folder = rng.choice((".", "src", "<home>", "/etc", "secret", ".git", "..", "<home>/other", path))
    return rng.choice((
        ("Read", {"file_path": path}), ("Read", {"file_path": path}),
        ("Write", {"file_path": path, "content": "x\n"}), ("Write", {"file_path": path, "content": "x\n"}),
        ("Edit", {"file_path": path, "old_string": "", "new_string": "y\n"}),
        ("Glob", {"pattern": "*", "path": folder}), ("Grep", {"pattern": "x", "path": folder}),
        ("Glob", {"pattern": rng.choice(("**/*.pem", "/etc/*", "../*", "~/*"))}),
        ("Grep", {"pattern": "key", "output_mode": "content"}),
    ))  # fmt: skip


def _files() -> Json:
    text = {"text": "x\n", "mtime": 1_700_000_000}
    names = (
        "a.txt",
        "src/b.py",
        "sub dir/c.txt",
        "deep/er/x.json",
        ".env",
        "secret/key.pem",
        "package.json",
        "Makefile",
        ".git/HEAD",
        ".git/config",
        "a.sh",
        "odd./x",
        "x~1",
        "a\\..\\b",
        "a.\\b",
    )
    links = {
        "ln-out": "<home>/other/x.txt",
        "ln-file": "a.txt",
        "ln-git": ".git/config",
        "ln-secret": "secret/key.pem",
        "ln-dir": "<home>/other",
    }
    git = {
        ".git/HEAD": {"text": "ref: refs/heads/main\n"},
        ".git/config": {"text": "[core]\n\tbare = false\n"},
        ".git/objects": {"dir": True},
        ".git/refs": {"dir": True},
    }
    return {**dict.fromkeys(names, text), **git, **{name: {"symlink": target} for name, target in links.items()}}


def _home_files() -> Json:
    shell = {"text": "#!/bin/sh\necho ran\n", "mode": "755"}
    return {
        "orc/quiet/bash": shell,
        "other/x.txt": {"text": "x\n"},
        ".bashrc": {"text": ""},
        ".ssh/id_rsa": {"text": "x\n"},
    }
