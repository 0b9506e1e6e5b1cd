"""What a line would run, where the tree alone would mislead."""

from __future__ import annotations

import pytest

from tests.requirement import requirement
from toolspan.shell.parse import Redirect, ShellWord
from toolspan.shell.programs import Program, find_programs, find_programs_in_tree
from toolspan.shell.wrappers import expand_wrappers


@requirement("shell.nothing-unseen")
@pytest.mark.parametrize("before", ["ls | ", "ls && ", "ls || ls | ", "echo $x; ls | "])
def test_words_behind_a_redirect_belong_to_the_last_command(before: str) -> None:
    program = find_programs(f"{before}rm > out -rf /").programs[-1]

    assert program.text == "rm -rf /"
    assert program.redirects == (Redirect(">", ShellWord("out")),)
    assert program.has_stdin is before.endswith("| ")


@requirement("shell.nothing-unseen")
def test_what_is_behind_an_operator_is_not_in_the_pipe_before_it() -> None:
    for line in ("a 2>&1 | b || c | d", "a | b && c", "a | b || c > f"):
        fed = {program.name: program.has_stdin for program in find_programs_in_tree(line).programs}
        assert fed["b"]
        assert not fed["c"]
    for line in ("a | { b && c; }", "a | if b; then c && c; fi", "a | case x in x) b && c;; esac"):
        assert all(one.has_stdin for one in find_programs_in_tree(line).programs if one.name in ("b", "c"))
    assert all(one.has_stdin for one in find_programs_in_tree("{ b && c; } < f").programs if one.words)


@requirement("shell.nothing-unseen")
@pytest.mark.parametrize("behind", ["fi", "x y", "'x'", "$x", "`x`"])
def test_a_word_that_touches_the_mark_of_a_document_belongs_to_the_mark(behind: str) -> None:
    assert find_programs(f'bash <<"EOF"{behind}\nrm x\nEOF\nls').uncertainties


@requirement("shell.nothing-unseen")
def test_a_document_behind_a_pipe_is_read_by_its_last_command() -> None:
    found = expand_wrappers(find_programs("ls | bash <<'EOF'\nrm x\nEOF\n"))

    assert "rm x" in {one.program.text for one in found.programs}


@requirement("shell.simple-commands")
def test_letters_of_several_bytes_shift_nothing() -> None:
    line = "echo é$(p1 'ü€😀' x) \"😀 $y\" > ä; ls ö"

    assert find_programs(line).programs[-1] == Program((ShellWord("ls"), ShellWord("ö")), "ls ö")
    assert [one.text for one in find_programs(line).programs][:2] == ["p1 'ü€😀' x", line.partition(" >")[0]]


@requirement("shell.simple-commands")
@pytest.mark.parametrize(
    ("word", "filled"),
    [("a=~/x", True), ("a=b:~/x", True), ("a=b/c:~", True), ("a+=~", True), ("--a=~/x", False), ("a=x~", False)],
)
def test_home_behind_an_equals_sign_is_filled_in_as_bash_does(word: str, filled: bool) -> None:
    assert find_programs(f"dd {word}").programs[0].words[1].has_expansion is filled
    assert find_programs_in_tree(f"dd {word}").programs[0].words[1].has_expansion is filled
