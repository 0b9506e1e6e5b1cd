"""The decisions on 200 everyday command lines in default mode, without rules."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.runtime.permissions.requests import bash_request, decide_request
from toolspan.runtime.permissions import Permissions, Rules
from toolspan.types.decision import Allow, Deny

_ENTRIES = [
    tuple(line.split("\t", 1))
    for line in Path(__file__).with_name("everyday_lines.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("project")
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    (project / "sub").mkdir()
    return project


@pytest.mark.parametrize(("reason", "line"), _ENTRIES)
def test_an_everyday_line_runs_or_is_asked_about(repository: Path, reason: str, line: str) -> None:
    decision = decide_request(Permissions(), bash_request(line, repository))

    assert isinstance(decision, Allow) is (reason == "runs")


def test_the_page_about_permissions_says_how_many_everyday_lines_are_asked_about() -> None:
    page = Path("docs/permissions.md").read_text(encoding="utf-8")
    counts = Counter(reason for reason, _ in _ENTRIES)

    assert f"Of 200 everyday lines of developers, {200 - counts.pop('runs')} are asked about" in page
    assert [count for count in counts.values() if f" {count} " not in page] == []


@pytest.mark.parametrize("line", ["git switch -c fix", "git checkout -b x", "git commit -c HEAD"])
def test_an_option_of_a_subcommand_of_git_hides_no_program(repository: Path, line: str) -> None:
    permissions = Permissions(Rules(allow=["Bash(git:*)"], deny=["Bash(curl:*)"]))

    assert isinstance(decide_request(permissions, bash_request(line, repository)), Allow)
    for hidden in ("git -c alias.x='!curl y' x", "git -C sub -c core.pager=curl log", "git --no-pager -c a.b=c log"):
        assert not isinstance(decide_request(permissions, bash_request(hidden, repository)), Allow)


def test_a_pattern_binds_a_whole_line_without_blanks_around_its_operators(repository: Path) -> None:
    permissions = Permissions(Rules(deny=["Bash(foo * baz)"]), mode="bypassPermissions")

    assert isinstance(decide_request(permissions, bash_request("foo| cat baz", repository)), Deny)
    assert isinstance(decide_request(permissions, bash_request("foo| cat", repository)), Allow)


def test_a_rule_for_a_wrapper_does_not_cover_a_change_of_folder_in_it(repository: Path) -> None:
    permissions = Permissions(Rules(allow=["Bash(./taskset *)"]))

    assert not isinstance(decide_request(permissions, bash_request("./taskset cd ..x", repository)), Allow)
