"""Forms that agents write often, and rules that deny beside lines that are not understood."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runtime.permissions.requests import bash_request, decide_request
from toolspan.runtime.permissions import Permissions, Rules
from toolspan.shell import NotUnderstood, Plan, plan
from toolspan.types.decision import Allow, Ask, Deny

MESSAGE = '"$(cat <<\'EOF\'\nFix the parser\n\n- it\'s `done`: {"a": 1}\nEOF\n)"'


def decide(command: str, folder: Path, *allow: str, deny: tuple[str, ...] = (), cwd: str = ".") -> type:
    permissions = Permissions(Rules(allow=allow, deny=deny))
    return type(decide_request(permissions, replace(bash_request(command, folder), cwd=folder / cwd)))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for folder in ("src", "nested", "out"):
        (tmp_path / folder).mkdir()
    for root in (tmp_path, tmp_path / "nested"):
        subprocess.run(["git", "init", "-q", str(root)], check=True)
    return tmp_path


@pytest.mark.parametrize("command", ["git --no-pager log -5", "git -C src status", "node --version", "command -v node"])
def test_common_forms_that_only_read_run_without_a_rule(repository: Path, command: str) -> None:
    assert decide(command, repository) is Allow


@pytest.mark.parametrize("command", ["git -C nested status", "git -C .. log", "./node --version", "command -v $X"])
def test_similar_forms_that_may_do_more_are_asked_about(repository: Path, command: str) -> None:
    assert decide(command, repository) is Ask


@pytest.mark.parametrize("program", ["yarn", "cargo", "mvn", "gradle", "flake8", "pylint", "/tmp/gcc", "nodemon"])
def test_the_version_of_a_program_that_may_run_code_of_the_project_is_asked_about(tmp_path: Path, program: str) -> None:
    assert decide(f"{program} --version", tmp_path) is Ask
    assert decide("gcc --version", tmp_path) is Allow


def test_a_program_of_the_project_is_not_asked_for_its_version(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/gcc").touch()
    request = replace(bash_request("gcc --version", tmp_path), search_path=f"{tmp_path}/bin:/usr/bin")

    assert type(decide_request(Permissions(), request)) is Ask


def test_git_in_another_folder_is_asked_about_if_an_earlier_program_may_have_made_a_repository_of_it(
    repository: Path,
) -> None:
    for before in ("mv a src/b", "tar xf a.tar"):
        permissions = Permissions(Rules(allow=["Bash(tar:*)"]), mode="acceptEdits")

        assert type(decide_request(permissions, bash_request(before, repository))) is Allow
        assert type(decide_request(permissions, bash_request(f"{before} && git -C src log", repository))) is Ask
    assert decide("ls && git -C src log", repository) is Allow


def test_git_in_another_folder_does_not_follow_a_link_in_that_folder(repository: Path) -> None:
    (repository / "src/link").symlink_to("/etc/hostname")

    assert decide("git -C src diff --no-index link a", repository) is Ask
    assert decide("git -C src diff a b", repository) is Allow


def test_a_commit_with_a_literal_message_runs_in_the_same_repository(repository: Path) -> None:
    rule, commit = "Bash(git commit:*)", f"git commit -m {MESSAGE}"

    assert decide(commit, repository, rule) is decide(f"cd src && {commit}", repository, rule) is Allow
    assert decide(f"cd nested && {commit}", repository, rule) is decide(f"cd src; {commit}", repository, rule) is Ask
    assert decide(commit.replace("'EOF'", "EOF"), repository, rule) is Ask


def test_a_rule_may_begin_with_a_variable(tmp_path: Path) -> None:
    rule = "Bash(NODE_ENV=test DEBUG=1 npm run *)"

    assert decide("NODE_ENV=test DEBUG=1 npm run build", tmp_path, rule) is Allow
    assert decide("NODE_ENV=test DEBUG=2 npm run build", tmp_path, rule) is Ask
    assert decide("PATH=. npm run build", tmp_path, "Bash(npm run *)") is Ask


def test_the_exit_status_may_be_printed(tmp_path: Path) -> None:
    assert decide('npm test; echo "exit: $?"', tmp_path, "Bash(npm test)") is Allow
    assert decide('npm test; echo "exit: $HOSTNAME"', tmp_path, "Bash(npm test)") is Ask


def test_an_edit_rule_covers_redirects_from_a_folder_that_the_line_enters(repository: Path) -> None:
    rules = ("Bash(npm test)", "Edit(/out/**)")

    assert decide("cd out && npm test > log.txt", repository, *rules) is Allow
    assert decide("npm test > ../out/log.txt", repository, *rules, cwd="src") is Allow
    assert decide("cd src && npm test > log.txt", repository, *rules) is Ask
    assert decide("cd out; npm test > log.txt", repository, *rules) is Ask


@pytest.mark.parametrize(
    "command",
    [
        "tar xf a --checkpoint=1 --checkpoint-action=exec='rm x'", "ssh -o ProxyCommand='rm x' h", "sed '1e rm x' a",
        "git -c core.pager='rm x' log", "env timeout 5 nohup rm x", "find . -exec rm {} +", "ls | xargs -n1 rm",
    ],
)  # fmt: skip
def test_a_deny_rule_binds_inside_programs_that_run_others(tmp_path: Path, command: str) -> None:
    assert decide(command, tmp_path, "Bash", deny=("Bash(rm:*)",)) is Deny


@pytest.mark.parametrize("command", ["make -f -", 'eval "$X"', "for f in a; do wc $f; done", "wrap rm x"])
def test_beside_a_rule_for_bash_a_deny_rule_asks_about_lines_that_may_hide_its_command(
    tmp_path: Path, command: str
) -> None:
    assert decide(command, tmp_path, "Bash", deny=("Bash(rm:*)",)) is Ask
    assert decide(command, tmp_path, "Bash") is Allow


def test_a_plan_names_what_a_line_would_do() -> None:
    understood = plan("cd src && sort -u a.txt > b.txt && sudo rm c && curl x")

    assert isinstance(understood, Plan)
    assert [program.name for program in understood.programs] == ["cd", "sort", "sudo", "curl"]
    assert [word.text for word in (*understood.folders, *understood.files_read)] == ["src", "a.txt"]
    assert [word.text for word in understood.files_written] == ["c", "b.txt"]
    assert understood.uses_network


@pytest.mark.parametrize(
    ("line", "reason"),
    [("echo $X", "A variable"), ("echo $(ls)", "A nested command"), ("(ls)", "A subshell"), ("ls (", "A syntax error")],
)
def test_a_line_that_is_not_understood_has_one_reason(line: str, reason: str) -> None:
    understood = plan(line)

    assert isinstance(understood, NotUnderstood)
    assert understood.reason == reason
