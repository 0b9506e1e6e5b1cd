"""Lines of simple commands, in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolspan.shell.literals import parse_literal_line
from toolspan.shell.plans import find_simple_commands
from toolspan.shell.syntax import parse_line, parse_tree
from toolspan.shell.words import Redirect, ShellWord


def words(line: str) -> list[ShellWord]:
    """The words of a line that is one command."""
    (command,) = find_simple_commands(line)
    return list(command.words)


def test_a_line_is_split_at_its_operators() -> None:
    commands = find_simple_commands("a 1 && b || c | d ; e\nf & g |& h")

    assert [command.name for command in commands] == list("abcdefgh")
    assert commands[0].words == (ShellWord("a"), ShellWord("1"))
    assert [command.ended_by for command in commands if command.name != "e"] == ["&&", "||", "|", ";", "&", "|&", ""]


def test_quotes_and_escapes_belong_to_words() -> None:
    assert words(r"""echo 'a;b' "c && d" e\ f g"h"'i' "\"$" "a\b" # j""") == [
        ShellWord("echo"), ShellWord("a;b"), ShellWord("c && d"), ShellWord("e f"), ShellWord("ghi"), ShellWord('"$'),
        ShellWord(r"a\b"),
    ]  # fmt: skip


def test_a_line_break_can_be_escaped() -> None:
    assert words("ls \\\n  -la a") == [ShellWord("ls"), ShellWord("-la"), ShellWord("a")]


def test_words_that_the_shell_expands_are_marked() -> None:
    line = words('a $x ${y} "$z" *.py ~/d b{1,2} HEAD~1')

    assert [word.text for word in line] == ["a", "$x", "${y}", "$z", "*.py", "~/d", "b{1,2}", "HEAD~1"]
    assert [word.has_expansion for word in line] == [False, True, True, True, True, True, True, False]


@pytest.mark.parametrize("word", ["$(rm x)", "`rm x`", "$(echo ')' \"$(rm)\")", '"$(rm x)"', "$((1 + 2))"])
def test_a_word_with_a_substitution_is_marked_and_closes_where_it_should(word: str) -> None:
    assert [part.has_substitution for part in words(f"a {word} b")] == [False, True, False]


def test_redirects_are_separated_from_words() -> None:
    (command,) = find_simple_commands("a b2 2>/dev/null >out <in &>all 2>&1")

    assert command.words == (ShellWord("a"), ShellWord("b2"))
    assert command.redirects == (
        Redirect("2>", ShellWord("/dev/null")),
        Redirect(">", ShellWord("out")),
        Redirect("<", ShellWord("in")),
        Redirect("&>", ShellWord("all")),
        Redirect("2>&", ShellWord("1")),
    )


@pytest.mark.parametrize(
    "line",
    [
        "", "# nothing", "(ls)", "{ ls; }", "f() { ls; }", "! ls", "if a; then b; fi", "for x in a; do b; done",
        "case x in a) b;; esac", "while a; do b; done", "cat <<EOF\na\nEOF", "cat <<< a", "cat <(ls)",
        "echo 'open", 'echo "open', "echo $(open", "echo `open", "a\\", "; a", "a ;; b", 'echo $"a"', "echo ${x@P}",
        "a |", "> ", "ls \r", "$x a",
    ],
)  # fmt: skip
def test_a_line_with_more_than_simple_commands_gives_none(line: str) -> None:
    assert find_simple_commands(line) == []


@given(st.text(alphabet="ab $(){}[]'\"`\\;&|<>#\n\t~*!=12-é\0\ud800", max_size=40))
def test_every_text_gets_an_answer(line: str) -> None:
    assert all(not command.nested for command in find_simple_commands(line))


_WORDS = st.sampled_from([
    "ls", "-la", "a.txt", "..", ".", "/", "2", "12", "+x", "--", "-", "%1", "a%", "@a", "a,b", ":", "'a b'", '""',
    "'(x)'", '"a>b"', "'*'", "done", "in", "time", "if", "export", "exec", "--a=b", "a=b", "'x=y'", "'a|b'",
    "ünï", "2>&1", "*.py", "a?", "*", "src/*/x", "2>/dev/null", "~", "~/x", "~x", "~/*.py", "HEAD~1", "!", r"\(", r"\;",
    r'"a\|b\.c"', r"'a\'", "'{$x}'", '"[!]"', "'ü'", "'\u3000'", '"a\nb"', "'a\\\nb'", "--a='b c'",
    "--a='{b,c}'", "--a='b$'",
    "\"$(cat <<'EOF'\nit's `a`\n\nEOF\n)\"", "\"$(cat <<'EOF'\n EOFa\nEOF\n)\"", "\"$(cat <<'EOF'\n{'}\nEOF\n)\"",
])  # fmt: skip


@given(
    st.lists(st.tuples(st.lists(_WORDS, min_size=1, max_size=4), st.sampled_from([" && ", " || ", " | ", "; ", "\n"])))
)
def test_plain_lines_need_no_tree(commands: list[tuple[list[str], str]]) -> None:
    line = "".join(" ".join(words) + operator for words, operator in commands) + "ls"

    programs = parse_literal_line(line)

    if programs is not None:
        found = parse_tree(line)
        assert (programs, parse_line(line).reason) == (found.programs, found.reason), line
        assert not found.hides_programs


@pytest.mark.parametrize(
    "line",
    ["ls -la ~/x 2>/dev/null | head -5", "find . -name '*.md' | grep -v \"a|b\"", "npm run build && npm test 2>&1; ls"],
)
def test_everyday_lines_need_no_tree(line: str) -> None:
    assert parse_literal_line(line) == parse_tree(line).programs
