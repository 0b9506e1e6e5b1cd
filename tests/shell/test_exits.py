"""Exit codes that are answers, and lines that print nothing."""

from __future__ import annotations

import pytest

from tests.requirement import requirement
from toolspan.shell.exit_status import explain_exit_code, prints_nothing


@requirement("shell.exit-codes")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("grep x f", "No matches found"),
        ("cat f | grep x", "No matches found"),
        ("cd a && rg x", "No matches found"),
        ("/usr/bin/grep \"$(cat p)\" f", "No matches found"),
        ("git grep x", "No matches found"),
        ("diff a b", "Files differ"),
        ("git diff --no-index a b", "Files differ"),
        ("find . nodir", "Some directories were inaccessible"),
        ("test -f a", "Condition is false"),
        ("[ -f a ]", "Condition is false"),
        ("grep x f | head", None),
        ("grep x f; false", None),
        ("git status", None),
        ("false", None),
        ("", None),
        ("grep 'open", None),
    ],
)  # fmt: skip
def test_code_1_of_the_last_command_can_be_an_answer(line: str, said: str | None) -> None:
    assert explain_exit_code(line, 1) == said


@requirement("shell.exit-codes")
def test_other_codes_are_errors() -> None:
    assert explain_exit_code("grep x nofile", 2) is None
    assert explain_exit_code("diff a nofile", 2) is None


@requirement("shell.prints-nothing")
@pytest.mark.parametrize("line", ["cd sub", "export A=b", "mkdir -p a && touch a/b", "rm a; mv b c"])
def test_lines_that_print_nothing_are_known(line: str) -> None:
    assert prints_nothing(line)


@requirement("shell.prints-nothing")
@pytest.mark.parametrize("line", ["", "true", "ls", "touch a; ls", "cd a && pwd", "(cd a)"])
def test_others_may_print(line: str) -> None:
    assert not prints_nothing(line)
