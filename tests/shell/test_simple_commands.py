"""Lines of simple commands, in pieces."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.requirement import requirement
from toolspan.shell.program import find_document_program, find_plain_programs
from toolspan.shell.programs import find_programs, find_programs_in_tree, find_simple_commands
from toolspan.shell.words import Redirect, ShellWord


def words(line: str) -> list[ShellWord]:
    """The words of a line that is one command."""
    (command,) = find_simple_commands(line)
    return list(command.words)


@requirement("shell.simple-commands")
def test_a_line_is_split_at_its_operators() -> None:
    commands = find_simple_commands("a 1 && b || c | d ; e\nf & g |& h")

    assert [command.name for command in commands] == list("abcdefgh")
    assert commands[0].words == (ShellWord("a"), ShellWord("1"))
    assert [command.ended_by for command in commands if command.name != "e"] == ["&&", "||", "|", ";", "&", "|&", ""]


@requirement("shell.simple-commands")
def test_quotes_and_escapes_belong_to_words() -> None:
    assert words(r"""echo 'a;b' "c && d" e\ f g"h"'i' "\"$" "a\b" # j""") == [
        ShellWord("echo"), ShellWord("a;b"), ShellWord("c && d"), ShellWord("e f"), ShellWord("ghi"), ShellWord('"$'),
        ShellWord(r"a\b"),
    ]  # fmt: skip


@requirement("shell.simple-commands")
def test_a_line_break_can_be_escaped() -> None:
    assert words("ls \\\n  -la a") == [ShellWord("ls"), ShellWord("-la"), ShellWord("a")]


@requirement("shell.simple-commands")
def test_words_that_the_shell_expands_are_marked() -> None:
    line = words('a $x ${y} "$z" *.py ~/d b{1,2} HEAD~1')

    assert [word.text for word in line] == ["a", "$x", "${y}", "$z", "*.py", "~/d", "b{1,2}", "HEAD~1"]
    assert [word.has_expansion for word in line] == [False, True, True, True, True, True, True, False]


@requirement("shell.simple-commands")
@pytest.mark.parametrize("word", ["$(rm x)", "`rm x`", "$(echo ')' \"$(rm)\")", '"$(rm x)"', "$((1 + 2))"])
def test_a_word_with_a_substitution_is_marked_and_closes_where_it_should(word: str) -> None:
    assert [part.has_substitution for part in words(f"a {word} b")] == [False, True, False]


@requirement("shell.simple-commands")
def test_redirects_are_separated_from_words() -> None:
    (command,) = find_simple_commands("a 2>/dev/null >out <in &>all b2 2>&1 3>x")

    assert command.words == (ShellWord("a"), ShellWord("b2"))
    assert command.redirects == (
        Redirect("2>", ShellWord("/dev/null")),
        Redirect(">", ShellWord("out")),
        Redirect("<", ShellWord("in")),
        Redirect("&>", ShellWord("all")),
        Redirect("2>&", ShellWord("1")),
        Redirect("3>", ShellWord("x")),
    )


@requirement("shell.simple-commands")
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


@requirement("shell.never-raises")
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


@requirement("shell.simple-commands")
@given(
    st.lists(st.tuples(st.lists(_WORDS, min_size=1, max_size=4), st.sampled_from([" && ", " || ", " | ", "; ", "\n"])))
)
def test_plain_lines_need_no_tree(commands: list[tuple[list[str], str]]) -> None:
    line = "".join(" ".join(words) + operator for words, operator in commands) + "ls"

    assume(not re.search(r"\| .*\| .*\n.* 2>", line))  # the tree joins the commands of such lines
    programs = find_plain_programs(line)

    if programs is not None:
        found = find_programs_in_tree(line)
        assert (tuple(programs), (), ()) == (found.programs, found.uncertainties, found.unclear), line


_DOCUMENT_LINES = st.sampled_from([
    "", "text", "import json", "it's `a`", '"{', "{'a': 1}", "$x $(y) ${z}", "EOF", " EOF", "\tEOF", "EOFa", "aEOF",
    "<<EOF", "<<'EOF'", "\\", "# a", "if a; then", "a)", "((", "=cmd", "ü", "\u3000", "A_B", "\x07", "end",
])  # fmt: skip


@requirement("shell.simple-commands")
@given(
    st.lists(st.sampled_from(["cat", "python3", "-", "-u", "a.txt", "'b c'", "--a=b", "*.py"]) | _WORDS, min_size=1),
    st.sampled_from(["", "> a.txt ", ">> b/c "]) | st.sampled_from(["> 'x' ", ">a ", "2> e ", "> ~/x "]),
    st.sampled_from(["<<", "<< ", "<<", "<<-"]),
    st.sampled_from(["'EOF'", "'A_B'", "'end'", '"EOF"', "EOF"]),
    st.lists(_DOCUMENT_LINES, max_size=5),
    st.sampled_from(["", "\n", "", "\n", "\n\n", "\nls"]),
)
def test_plain_documents_need_no_tree(
    words: list[str], target: str, operator: str, mark: str, body: list[str], rest: str
) -> None:
    name = mark.strip("'\"")
    line = "\n".join([f"{' '.join(words)} {target}{operator}{mark}", *body, name]) + rest

    if find_document_program(line) is not None and "\x07" not in line:  # lines with control characters are not parsed
        found, expected = find_programs(line), find_programs_in_tree(line)
        assert (found.programs, found.uncertainties) == (expected.programs, expected.uncertainties), line
        assert found.has_compounds == expected.has_compounds
        assert set(expected.unclear) <= set(found.unclear)


@requirement("shell.simple-commands")
@pytest.mark.parametrize(
    "line",
    [
        "cat > src/a.py <<'EOF'\nprint({'a': \"b\"})\n\nEOF\n",
        "python3 - <<'EOF'\nimport os\nEOF",
        "python3 - a 'b c' << 'END'\nEND",
    ],
)
def test_everyday_documents_need_no_tree(line: str) -> None:
    program = find_document_program(line)

    assert program is not None
    assert (program,) == find_programs_in_tree(line).programs


@requirement("shell.simple-commands")
@pytest.mark.parametrize(
    "line",
    [
        "ls -la ~/x 2>/dev/null | head -5",
        r"""find . \( -name '*.md' -o ! -path "./.git/*" \) | grep -v "a\|b" """.strip(),
        "git add -A && git commit -m \"$(cat <<'EOF'\nIt's `done`: $1\n\nÜ (x)\nEOF\n)\" && git status",
        'python3 -c "\nimport json\n\tprint([1])\n"\n',
    ],
)
def test_everyday_lines_need_no_tree(line: str) -> None:
    programs = find_plain_programs(line)

    assert programs is not None
    assert tuple(programs) == find_programs_in_tree(line).programs


@requirement("shell.simple-commands")
def test_a_comment_in_quotes_is_unclear_without_a_tree() -> None:
    line = 'python3 -c "\nimport json\n  # a comment\n"'

    assert find_plain_programs(line) is not None
    assert find_programs(line).unclear == find_programs_in_tree(line).unclear != ()
