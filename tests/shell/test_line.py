"""Command lines in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.requirement import requirement
from toolspan.shell.parse import Redirect, ShellWord, SimpleCommand, parse_line


@requirement("shell.simple-commands")
def test_a_line_is_taken_apart_at_its_operators() -> None:
    assert parse_line("a 1 && b || c | d ; e\nf & g |& h") == [
        SimpleCommand([ShellWord("a"), ShellWord("1")], [], "&&"),
        SimpleCommand([ShellWord("b")], [], "||"),
        SimpleCommand([ShellWord("c")], [], "|"),
        SimpleCommand([ShellWord("d")], [], ";"),
        SimpleCommand([ShellWord("e")], [], "\n"),
        SimpleCommand([ShellWord("f")], [], "&"),
        SimpleCommand([ShellWord("g")], [], "|&"),
        SimpleCommand([ShellWord("h")], [], ""),
    ]


@requirement("shell.simple-commands")
def test_quotes_and_escapes_belong_to_words() -> None:
    assert parse_line(r"""echo 'a;b' "c && d" e\ f g"h"'i' "\"$" "a\b" # j""") == [
        SimpleCommand([
            ShellWord("echo"), ShellWord("a;b"), ShellWord("c && d"), ShellWord("e f"), ShellWord("ghi"), ShellWord('"$'),
            ShellWord(r"a\b"),
        ])
    ]  # fmt: skip


@requirement("shell.simple-commands")
def test_a_line_end_can_be_escaped() -> None:
    assert parse_line("ls \\\n  -la a\\\nb") == [SimpleCommand([ShellWord("ls"), ShellWord("-la"), ShellWord("ab")])]


@requirement("shell.simple-commands")
def test_what_the_shell_fills_in_is_marked() -> None:
    assert parse_line('a $x ${y} "$z" *.py ~/d b{1,2} HEAD~1') == [
        SimpleCommand([
            ShellWord("a"), ShellWord("$x", has_expansion=True), ShellWord("${y}", has_expansion=True),
            ShellWord("$z", has_expansion=True), ShellWord("*.py", has_expansion=True), ShellWord("~/d", has_expansion=True),
            ShellWord("b{1,2}", has_expansion=True), ShellWord("HEAD~1"),
        ])
    ]  # fmt: skip


@requirement("shell.simple-commands")
@pytest.mark.parametrize("word", ["$(rm x)", "`rm x`", "$(echo ')' \"$(rm)\")", '"$(rm x)"', "a`rm`b", "$((1 + 2))"])
def test_a_word_that_runs_something_first_is_marked_and_closes_where_it_should(word: str) -> None:
    parsed = parse_line(f"a {word} b")

    assert parsed is not None
    assert [one.has_substitution for one in parsed[0].words] == [False, True, False]


@requirement("shell.simple-commands")
def test_redirects_are_told_apart_from_words() -> None:
    assert parse_line("a 2>/dev/null >out <in &>all b2 2>&1 3<>x") == [
        SimpleCommand(
            [ShellWord("a"), ShellWord("b2")],
            [
                Redirect("2>", ShellWord("/dev/null")),
                Redirect(">", ShellWord("out")),
                Redirect("<", ShellWord("in")),
                Redirect("&>", ShellWord("all")),
                Redirect("2>&", ShellWord("1")),
                Redirect("3<>", ShellWord("x")),
            ],
        )
    ]


@requirement("shell.simple-commands")
@pytest.mark.parametrize(
    "line",
    [
        "(ls)", "f() { ls; }", "cat <<EOF\na\nEOF", "cat <<< a", "a=(1 2)", "cat <(ls)",
        "echo 'open", 'echo "open', "echo $(open", "echo `open", "a\\", "; a", "a ;; b",
        "echo $'a'", 'echo $"a"', "echo ${x@P}", "echo ${x:=y}", "a |", "> ", "ls \r",
    ],
)  # fmt: skip
def test_what_holds_more_than_simple_commands_is_not_taken_apart(line: str) -> None:
    commands = parse_line(line)

    assert commands is None or line == "a |"


@requirement("shell.never-raises")
@given(st.text(alphabet="ab $(){}[]'\"`\\;&|<>#\n\t~*!=12-é\0", max_size=40))
def test_no_text_is_too_odd(line: str) -> None:
    commands = parse_line(line)

    assert commands is None or all(one.words or one.redirects for one in commands)
