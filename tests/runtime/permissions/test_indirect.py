"""Effects that a line does not name: repositories, links, programs on PATH, lists of files, denied files in git."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.runtime.permissions.requests import bash_request, decide_request, make_request
from toolspan import Permissions, Rules, Session
from toolspan.runtime.permissions.paths import OwnRepository
from toolspan.runtime.permissions.rules import rules_from_settings
from toolspan.runtime.permissions.suggestions import offer_updates
from toolspan.runtime.profiles import profile
from toolspan.runtime.settings.load import PermissionSettings
from toolspan.session import SingleCallRunner
from toolspan.shell.environment import command_environment, harden_environment
from toolspan.types.decision import Allow, Ask, Deny

EDITS = Permissions(mode="acceptEdits")


def is_free(command: str, folder: Path, permissions: Permissions | None = None) -> bool:
    return isinstance(decide_request(permissions or Permissions(), bash_request(command, folder)), Allow)


def make_repository_layout(folder: Path, program: str = "touch ran") -> None:
    """Lay a folder out as a repository whose configuration names a program."""
    (folder / "objects").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    script = folder / "run.sh"
    script.write_text(f"#!/bin/sh\n{program}\n", encoding="utf-8")
    script.chmod(0o755)
    config = f"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = {folder}\n\tfsmonitor = {script}\n"
    (folder / "config").write_text(config, encoding="utf-8")


def init_repository(folder: Path) -> None:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}
    subprocess.run(["git", "init", "-q", str(folder)], check=True, env=environment)


# Repositories


def test_git_is_asked_about_where_the_project_looks_like_a_repository(tmp_path: Path) -> None:
    init_repository(tmp_path / "clone")
    make_repository_layout(tmp_path / "clone" / "sub")
    make_repository_layout(tmp_path / "archive")
    (tmp_path / "plain").mkdir()

    assert is_free("git status", tmp_path / "plain")
    assert is_free("git status", tmp_path / "clone")
    assert not is_free("git status", tmp_path / "clone" / "sub")
    assert not is_free("git status", tmp_path / "archive")


def test_git_is_asked_about_in_a_repository_that_appeared_during_the_session(tmp_path: Path) -> None:
    request = replace(bash_request("git log", tmp_path), repository=OwnRepository.find(str(tmp_path)))
    assert isinstance(decide_request(Permissions(), request), Allow)

    init_repository(tmp_path)
    later = replace(request, repository=OwnRepository.find(str(tmp_path)))

    assert isinstance(decide_request(Permissions(), request), Ask)
    assert isinstance(decide_request(Permissions(), later), Allow)


@pytest.mark.parametrize(
    "command", ["mv x/HEAD . && git status", "mv x/HEAD . ; git log", "touch sub/../HEAD && git status", "mv x/y ."]
)
def test_a_line_that_makes_part_of_a_repository_does_not_run_git_unasked(tmp_path: Path, command: str) -> None:
    (tmp_path / "x").mkdir()

    assert is_free(command, tmp_path, EDITS) is ("git" not in command)


@pytest.mark.anyio
async def test_git_that_nobody_approved_runs_no_program_of_the_repository(tmp_path: Path) -> None:
    init_repository(tmp_path)
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\ntouch ran\n", encoding="utf-8")
    script.chmod(0o755)
    with (tmp_path / ".git" / "config").open("a", encoding="utf-8") as config:
        config.write(f"[core]\n\tfsmonitor = {script}\n")

    async with Session(cwd=tmp_path, transcript=None) as session:
        unasked = await SingleCallRunner(session).run_call("Bash", {"command": "git status"})
    assert unasked.finished.span.state == "succeeded"
    assert not (tmp_path / "ran").exists()
    permissions = Permissions(Rules(allow=["Bash(git status:*)"]))
    async with Session(cwd=tmp_path, transcript=None, permissions=permissions) as session:
        await SingleCallRunner(session).run_call("Bash", {"command": "git status"})
    assert (tmp_path / "ran").exists(), "an approved command runs as it would in a terminal"


@pytest.mark.anyio
async def test_a_session_does_not_trust_the_repository_that_it_made(tmp_path: Path) -> None:
    permissions = Permissions(Rules(allow=["Bash(git init:*)"]))
    async with Session(cwd=tmp_path, transcript=None, permissions=permissions) as session:
        calls = SingleCallRunner(session)
        states = [
            (await calls.run_call("Bash", {"command": command})).finished.span.state
            for command in ("git init -q", "git status")
        ]

    assert states == ["succeeded", "denied"]


# Variables and programs


@pytest.mark.anyio
async def test_variables_that_change_the_meaning_of_a_line_are_not_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside" / "sub"
    outside.mkdir(parents=True)
    (project / "sub").mkdir(parents=True)
    (outside / "secret.txt").write_text("secret", encoding="utf-8")
    start = project / "start.sh"
    start.write_text("touch ran\n", encoding="utf-8")
    monkeypatch.setenv("CDPATH", str(outside.parent))
    monkeypatch.setenv("BASH_ENV", str(start))

    async with Session(cwd=project, transcript=None) as session:
        read = await SingleCallRunner(session).run_call("Bash", {"command": "cd sub && cat secret.txt"})

    assert "No such file" in str(read.finished.content)
    assert not (project / "ran").exists()


def test_the_page_about_permissions_lists_the_variables(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "permissions.md").read_text(encoding="utf-8")
    (paragraph,) = (part for part in page.split("\n\n") if part.startswith("These variables reach no command"))
    dropped, kept_if_allowed = (re.findall(r"`(\w+)`", part) for part in paragraph.split("These reach only"))
    environment = dict.fromkeys([*dropped, *kept_if_allowed, "HOME"], str(tmp_path))

    assert set(command_environment(environment)) == {*kept_if_allowed, "HOME"}
    hardened = harden_environment(command_environment(environment))
    assert {name for name in hardened if not name.startswith("GIT_CONFIG_")} == {"HOME"}
    settings = [hardened[name] for name in sorted(hardened) if name.startswith("GIT_CONFIG_KEY_")]
    assert all(f"`{setting}=" in page for setting in settings)


def test_a_program_in_the_project_is_not_the_program_in_the_table(tmp_path: Path) -> None:
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "ls").touch()

    def decide_in_path(command: str, path: str) -> type:
        request = replace(bash_request(command, tmp_path), search_path=path)
        return type(decide_request(EDITS, request))

    path = f"{programs}:/usr/bin:/bin"
    assert decide_in_path("ls", "/usr/bin:/bin") is Allow
    assert decide_in_path("ls", path) is decide_in_path("timeout 5 ls", path) is Ask
    assert decide_in_path("ls", ".venv/bin:/usr/bin") is Ask
    assert decide_in_path("wc -l x", path) is Allow
    assert decide_in_path("cp x .venv/bin/wc", path) is decide_in_path("mv wc .venv/bin", path) is Ask
    write = replace(make_request("Write", tmp_path, file_path=".venv/bin/wc"), search_path=path)
    assert isinstance(decide_request(EDITS, write), Ask)


@requirement("permission.accept-edits")
@pytest.mark.parametrize("command", ["cp payload/config sub/", "cp payload/config sub", "mv a payload/config sub"])
def test_the_target_of_a_copy_is_the_file_in_the_folder(tmp_path: Path, command: str) -> None:
    for folder in ("payload", "sub", ".git", "other"):
        (tmp_path / folder).mkdir()
    assert is_free(command, tmp_path, EDITS)

    (tmp_path / "sub" / "config").symlink_to(tmp_path / ".git" / "config")

    assert not is_free(command, tmp_path, EDITS)
    assert is_free(command.replace("sub", "other"), tmp_path, EDITS)


# Files that are not named


@pytest.mark.parametrize(
    "command",
    [
        "strings @opts", "strings *", "strings -n 4 @opts", "wc --files0-from=opts", "wc --files0=opts", "wc --fi opts",
        "du --files0-from=opts", "tree --fromfile opts", "echo ../x | xargs head", "cat names | xargs tail",
        "git log --format=%B | xargs wc", "ls -l | xargs head", "find . -name x | xargs head < names",
        "find . | cut -c2- | xargs head",
    ],
)  # fmt: skip
def test_files_whose_names_come_from_elsewhere_are_asked_about(tmp_path: Path, command: str) -> None:
    assert not is_free(command, tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        "strings a.out", "strings bin/*", "wc -l a b", "find . -name '*.py' | xargs wc -l", "git ls-files | xargs head",
        "find . -type f -name '*.ts' | xargs grep -l TODO | sort | head -50 | xargs wc -l", "ls -1 | xargs head -n 1",
        "grep -rl x . | grep -v y | xargs grep -n z", "git diff --name-only | xargs grep x", "seq 3 | xargs echo",
        "grep -R x .", "rg -L x .", "diff -r a b",
    ],
)  # fmt: skip
def test_files_in_the_project_may_be_listed_for_another_program(tmp_path: Path, command: str) -> None:
    assert is_free(command, tmp_path)


@pytest.mark.parametrize(
    "command", ["grep -R x src", "grep -nR x .", "grep --dereference-recursive x src", "rg -L x", "diff -r src other"]
)
def test_searches_that_follow_a_link_out_of_the_project_are_asked_about(tmp_path: Path, command: str) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    assert is_free(command, project)

    (project / "src" / "link").symlink_to(tmp_path)

    assert not is_free(command, project)


@pytest.mark.parametrize(
    "command",
    [
        "grep -d recurse KEY .", "grep --directories=recurse KEY .", "grep -r KEY s*", "git grep KEY", "diff sub other",
        "git grep KEY HEAD", "git grep --cached KEY", "git diff --no-index sub other", "git log -p", "git show HEAD~1",
        "git log --patch", "git diff HEAD~3", "git diff", "git stash show -p", "git cat-file -p abc",
    ],
)  # fmt: skip
def test_commands_that_could_show_a_denied_file_without_naming_it_are_asked_about(tmp_path: Path, command: str) -> None:
    for name in ("sub/.env", "other/.env"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("KEY=1", encoding="utf-8")

    assert not is_free(command, tmp_path, Permissions(Rules(deny=["Read(.env)"])))
    assert is_free(command, tmp_path)


@pytest.mark.parametrize(
    "command", ["git log --oneline", "git status", "git diff --stat", "git show --stat", "git log -5", "grep -r x src"]
)
def test_a_denied_file_does_not_hinder_commands_that_show_no_content(tmp_path: Path, command: str) -> None:
    (tmp_path / ".env").touch()
    (tmp_path / "src").mkdir()

    assert is_free(command, tmp_path, Permissions(Rules(deny=["Read(.env)"])))


def test_a_rule_may_allow_git_to_show_changes_although_a_file_is_denied(tmp_path: Path) -> None:
    rules = Rules(allow=["Bash(git diff:*)"], deny=["Read(.env)"])

    assert is_free("git diff", tmp_path, Permissions(rules))


# Rules


def test_a_rule_for_an_mcp_tool_allows_no_other_tool(tmp_path: Path) -> None:
    def decide_tool(rule: str, tool: str) -> bool:
        return isinstance(decide_request(Permissions(Rules(allow=[rule])), make_request(tool, tmp_path)), Allow)

    assert decide_tool("mcp__db__query", "mcp__db__query")
    assert not decide_tool("mcp__db__query", "mcp__db__query__drop")
    assert decide_tool("mcp__db", "mcp__db__drop")
    assert decide_tool("mcp__db__*", "mcp__db__drop")
    assert not decide_tool("mcp__db", "mcp__db__query__drop")  # a tool of a server `db__query`
    assert not decide_tool("mcp__db__*", "mcp__db__query__drop")
    denied = Permissions(Rules(deny=["mcp__db__query"]))
    assert isinstance(decide_request(denied, make_request("mcp__db__query__drop", tmp_path)), Deny)


@requirement("permission.old-rules")
def test_an_invalid_rule_never_switches_off_rules_that_deny_or_ask(tmp_path: Path) -> None:
    old = profile("2.0.65").refusals
    block = PermissionSettings(
        allow=("Bash(npm:*)",), ask=("Bash(git push:*)",), deny=("Bash(rm -rf /*)", "Read(./secret)")
    )
    permissions = Permissions(rules_from_settings(block, "projectSettings", None, old), refusals=old)

    assert isinstance(decide_request(permissions, bash_request("rm -rf /x", tmp_path)), Deny)
    assert isinstance(decide_request(permissions, make_request("Read", tmp_path, file_path="secret")), Deny)
    assert not is_free("git push", tmp_path, permissions)
    assert not is_free("npm test", tmp_path, permissions), "the client ignores the rules of such a file"


# Guards


@pytest.mark.parametrize(
    "command",
    [
        "cd .git; echo x > config", "d=.git; echo x > $d/config", "echo x > .gi[t]/config", "dd of=.git/config",
        "bash -c 'echo x > .git/config'", "for d in .git; do cp x $d/config; done", "cp hook .git/hooks",
        "ln -sf x .git/config", "tee .git/config",
    ],
)  # fmt: skip
def test_no_rule_for_bash_covers_a_write_to_a_protected_file(tmp_path: Path, command: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").touch()

    assert not is_free(command, tmp_path, Permissions(Rules(allow=["Bash"])))


@pytest.mark.parametrize(
    "command",
    [
        "cd src; echo x > config", "cat .git/config", "grep -r x .vscode > /dev/null", "echo 'see .git/config' > x",
        "git commit -m 'Protect .claude.json' 2>&1 | tail -1", "d=build; mkdir -p $d/x", "cat > a.md <<'E'\n.bashrc\nE",
    ],
)  # fmt: skip
def test_a_rule_for_bash_covers_lines_that_only_mention_a_protected_file(tmp_path: Path, command: str) -> None:
    assert is_free(command, tmp_path, Permissions(Rules(allow=["Bash"])))


@pytest.mark.parametrize(
    ("command", "asks"),
    [
        ("find ~ -delete", True), ("find / -type f -delete", True), ("find -delete", True),
        ("find build -delete", False),
        ("find . -name '*.pyc' -delete", False), ("find . -type d -empty -delete", False),
    ],
)  # fmt: skip
def test_find_does_not_delete_everything_without_a_question(tmp_path: Path, command: str, asks: bool) -> None:
    assert is_free(command, tmp_path, Permissions(Rules(allow=["Bash"]))) is not asks


@requirement("permission.plan")
def test_leaving_plan_mode_is_refused_outside_of_it(tmp_path: Path) -> None:
    request = make_request("ExitPlanMode", tmp_path, plan="x")

    refused = decide_request(Permissions(Rules(allow=["ExitPlanMode"])), request)

    assert isinstance(refused, Deny)
    assert "not in plan mode" in str(refused.reason)
    assert not isinstance(decide_request(Permissions(mode="plan"), request), Deny)
    assert not isinstance(decide_request(Permissions(), replace(request, mode="plan")), Deny)


# Questions


@pytest.mark.parametrize(
    ("command", "kinds"),
    [
        ("npm test", ["addRules"]), ("rm -rf build", ["setMode"]), ("echo $PATH", []), ("source x", []),
        ("for f in a b; do npm x $f; done", []), ("cat /srv/x", ["addDirectories"]),
    ],
)  # fmt: skip
def test_only_updates_that_answer_the_question_are_offered(tmp_path: Path, command: str, kinds: list[str]) -> None:
    request = bash_request(command, tmp_path)
    ask = decide_request(Permissions(), request)
    assert isinstance(ask, Ask)

    assert [update["type"] for update in offer_updates(request, ask)] == kinds


@requirement("permission.question")
def test_every_part_that_needs_approval_has_a_name(tmp_path: Path) -> None:
    ask = decide_request(Permissions(), bash_request("while read l; do npm $l; done < names", tmp_path))

    assert isinstance(ask, Ask)
    assert ask.needs is not None
    assert all(ask.needs.parts)
