"""Plain lines: what is seen at a glance is what the tree says, and bash agrees."""

import random
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.requirement import requirement
from tests.shell import lines
from tests.shell.bash_oracle import Oracle
from toolspan.shell.easy import easy
from toolspan.shell.inside import base, unfold
from toolspan.shell.seen import by_tree, see

PLAIN = (
    "ls", "rm", "git", "./b", "/bin/cat", "log", "-n", "--all", "--x=y", "a=b", "a==b", "2", "12",
    "1e3", "0x1", "*.py", "a?b", "~", "~/x", "x~", "HEAD^", "HEAD~1", "@{u}", "%h", "+x", "a:b",
    "a,b", ".", "..", "./x/", "//", "{}", "--", "'a b'", "'\\'", '"c;d"', '"a\\n"', '"\\""', "''",
    '""', "'é'", '"\u00a0"', "'\u2028'", "a'b'\"c\"", "\\;", "\\(", "\\)", "\\!", "!", "if", "in",
    "do", "done", "then", "test", "time", "echo", "'$x'", "'`p`'", "'# no'", "'\n'", '"\n"',
)  # fmt: skip
BETWEEN = (
    " ", " ", " ", " ", "  ", "\t", " && ", " || ", " | ", "; ", "\n", "\n\n ", ";\n", "&&\n",
    "|", ";", "&", " & ", "&&", " > ", " >", " 2>", " 2>&1 ", " 2>&1", " >&2 ", " < ", " >> ",
    " &> ", " &>>",
)  # fmt: skip
HOSTILE = (
    "$", "$x", "${x}", "$(p)", "`p`", "`", "(", ")", "{", "}", "[", "]", "[[", "#", " # c", "\\",
    "\\\n", "'", '"', "<<", "<<E", "<<<", "<(", ">(", ">|", "<>", "|&", ";;", "=", "==", "=~", "-",
    "\r", "\0", "\x1b", "\x7f", "\u00a0", "\u2028", "\u200b", "\ufeff", "é", "\ud800", "!!", "x=1 ",
    "for ", "while ", "case ", "function ", "coproc ", "export ", "declare ", "unset ", "select ",
    "f()", "$'", '$"', "12>", "3>&1", ">&-", "2>&1x", ">&f", "-2>", "a[0]=x", "@(a)", "?(b)",
)  # fmt: skip
plain_lines = st.lists(
    st.tuples(st.sampled_from(PLAIN), st.sampled_from(BETWEEN)), min_size=1, max_size=8
).map(lambda pieces: "".join(map("".join, pieces)))
soups = st.lists(st.sampled_from((*PLAIN, *BETWEEN, *HOSTILE)), max_size=9).map("".join)
spoiled = st.builds(
    lambda line, piece, at: line[: at % (len(line) + 1)] + piece + line[at % (len(line) + 1) :],
    plain_lines,
    st.sampled_from(HOSTILE) | st.characters(),
    st.integers(0, 200),
)
LETTERS = "ab12 \t\n-=~*?[]{}()<>|&;'\"\\$`#!%^@+:,./é\u00a0"


def says_the_same(line: str) -> bool:
    """Whether a line is plain; if so, the tree must agree on everything."""
    found = easy(line)
    if found is None:
        return False
    tree = by_tree(line)
    assert tree.unclear == ()
    assert repr(tree.programs) == repr(found)  # what is not compared is written as well
    return True


@requirement("shell.plain-lines")
@settings(max_examples=400)
@given(plain_lines)
@example("a | b || c | d")
@example("a 2>/dev/null | b || c | d > e x")
@example("ls - 2>&1")
@example("ls ==")
@example("gh x 2>&1 | grep -i 'y' || true")
def test_a_plain_line_is_seen_as_its_tree_would_be(line: str) -> None:
    says_the_same(line)


@requirement("shell.plain-lines")
@settings(max_examples=400)
@given(soups | spoiled | st.text(LETTERS, max_size=30).map("ls ".__add__) | st.text(max_size=20))
def test_no_other_line_passes_for_a_plain_one(line: str) -> None:
    says_the_same(line)


@requirement("shell.plain-lines")
@pytest.mark.parametrize(
    "line",
    [
        "git status", "cd src && grep -rn 'foo bar' . | head -20", "npm test 2>&1 | tail -5",
        'git commit -m "a; b\n\nc"', "ls -la;", "make && ./run --x=1 > out.txt &",
        r"find . -name '*.py' -not -path './x/*' -exec grep -l x {} \;", "a\nb | c\n",
    ],
)  # fmt: skip
def test_everyday_lines_are_plain(line: str) -> None:
    assert says_the_same(line)


@requirement("shell.plain-lines")
@pytest.mark.parametrize(
    "line",
    [
        "", " ", "#", "a $x", "a `b`", "a $(b)", "(a)", "{ a; }", "a <<E\nE", "a <(b)", "a # b",
        "x=1 a", "if a; then b; fi", "export A=1", "! a", "[ a ]", "a \\\nb", "a 'b", 'a "b',
        "a é", "a\u00a0b", "a \r", "a \0", "~/a", "'a' b", "a >&b", "a 3>c", "a;;b", "; a", "a |",
        "a && ", "a & ; b", "a{b,c}", "time a", "function a", "a ()",
    ],
)  # fmt: skip
def test_what_could_hold_more_is_left_to_the_tree(line: str) -> None:
    assert easy(line) is None


@requirement("shell.nothing-unseen")
def test_bash_runs_of_plain_lines_what_is_seen(tmp_path: Path) -> None:
    oracle, rng, clear = Oracle(tmp_path), random.Random(5), 0
    for _ in range(150):
        line = lines.plain(rng)
        unfolded = unfold(see(line))
        if easy(line) is not None and not unfolded.unclear:
            clear += 1
            seen = {base(found.program.name) for found in unfolded.found}
            assert oracle.ran(line) <= seen, line

    assert clear > 100
