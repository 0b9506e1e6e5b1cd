"""Plain lines: what is seen at a glance is what the tree says, and bash agrees."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.requirement import requirement
from tests.shell import lines
from tests.shell.bash_oracle import Oracle
from toolspan.shell.programs import find_programs, find_programs_in_tree, parse_plain_line
from toolspan.shell.wrappers import expand_wrappers, program_basename

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
plain_lines = st.lists(st.tuples(st.sampled_from(PLAIN), st.sampled_from(BETWEEN)), min_size=1, max_size=8).map(
    lambda pieces: "".join(map("".join, pieces))
)
soups = st.lists(st.sampled_from((*PLAIN, *BETWEEN, *HOSTILE)), max_size=9).map("".join)
spoiled = st.builds(
    lambda line, piece, at: line[: at % (len(line) + 1)] + piece + line[at % (len(line) + 1) :],
    plain_lines,
    st.sampled_from(HOSTILE) | st.characters(),
    st.integers(0, 200),
)
MARKS = ("'EOF'", '"EOF"', "EOF", "'E'", "\\EOF", "-'EOF'", "'E F'", "''")
IN_DOCUMENTS = (
    "a b", "\n", "\n", "\n\n", " ", "\t", "'", '"', "`p`", "$x", "$(p)", "\\", "\\\n", "EOF", "E",
    "<<", "<<'E'", ")", ')"', "(", "#", "é", "\u00a0", "\u2028", "\r", "\x01", "\x02", "\ud800",
    "{", "|", "\\E",
)  # fmt: skip
READERS = (
    "cat <<", "cat > f <<", "a | b 2>&1 <<", "cd x && cat <<", "a; b - << ", "cat<<", "a 2<<",
    "(a <<", "a '<<", "a # <<", 'git commit -m "$(cat <<', 'a -m "x" -b "$( cat <<', "a $(b <<",
    'a -b="$(cat <<', 'a "b"$(cat <<', 'a > "$(cat <<',
)  # fmt: skip
AT_MARKS = ("", "", "", " ", " > f", " 2>&1", " | b", " && b", " x", " > $x", " <<X", " \\", " #", ";")
BEHIND_DOCUMENTS = (
    "", "\n", "\n\n", "\nls", "\n)", '\n)"', '\n  )"', '\n)" && b | c', '\n)" x\n', "\n# c", "x",
    " ", "\nb <<'E'\nE\n", '\n)"\nb -m "$(cat <<E\nx\nE\n)"', "\n && b", "\n'",
)  # fmt: skip


def with_document(reader: str, mark: str, at_mark: str, body: list[str], behind: str) -> str:
    """A line with a here-document, or something like one."""
    name = re.sub(r"['\"\\-]", "", mark)
    text = "".join(body)
    text += "" if text[-1:] in ("", "\n") else "\n"
    return f"{reader}{mark}{at_mark}\n{text}{name}{behind}"


with_documents = st.builds(
    with_document,
    st.sampled_from(READERS),
    st.sampled_from(MARKS),
    st.sampled_from(AT_MARKS),
    st.lists(st.sampled_from(IN_DOCUMENTS), max_size=7),
    st.sampled_from(BEHIND_DOCUMENTS),
)
LETTERS = "ab12 \t\n-=~*?[]{}()<>|&;'\"\\$`#!%^@+:,./é\u00a0"


def says_the_same(line: str) -> bool:
    """Whether a line is plain; if so, the tree must agree on everything."""
    found = parse_plain_line(line)
    if found is None:
        return False
    tree = find_programs_in_tree(line)
    assert tree.uncertainties == ()
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
@settings(max_examples=400)
@given(with_documents)
@example("cat <<'EOF'\n\n\\x\nEOF\n")
@example("cat <<'E' > '<<x'\nE\nls")
@example("a -m \"$(cat <<'E'\nx \\\ny\nE\n)\" | b")
def test_a_document_that_is_only_text_is_seen_as_its_tree_would_be(line: str) -> None:
    says_the_same(line)


@requirement("shell.plain-lines")
@pytest.mark.parametrize(
    "line",
    [
        "cat > a.py <<'EOF'\nx = '$(rm)'\nEOF\nls", "python3 <<EOF\nprint(1)\nEOF",
        "git add a && git commit -m \"$(cat <<'EOF'\nIt's `done`\n\nEOF\n)\" && git log -1",
        'gh pr create --title "x" --body "$(cat <<"EOF"\n# A\nEOF\n)" 2>&1 | tail -1',
        "cat <<'A' >> f\na\nA\ncat <<'B' >> f\nb\nB\n",
    ],
)  # fmt: skip
def test_everyday_documents_are_plain(line: str) -> None:
    assert says_the_same(line)


@requirement("shell.plain-lines")
@pytest.mark.parametrize(
    "line",
    [
        "a - <<'E'\nE", "a <<E\n$(b)\nE", "a <<E\n`b`\nE", "a <<E\n\\x\nE", "a <<'E'\nb",
        "a <<'E'\n E\nE", "a <<'E'\nEx\nE", "a <<'E' | b\nE", "a <<'E' && b\nE", "a <<'E' b\nE",
        "a <<'E' <<'F'\nE\nF", "a <<'E'\nb\nE\n$x", "$x <<'E'\nE", "a '<<E\nE\n'",
        "a \"b\"\"$(cat <<'E'\nE\n)\"",
        "a \"$(b <<'E'\nE\n)\"", "a \"$(cat <<E\n$(b)\nE\n)\"", "a \"$(cat <<'E'\nE\nb)\"",
        "a <<'E'\n\x01\nE", "a \x01 <<'E'\nE", "a \x02", "a \x01", "a \"$(cat <<'E' > f\nE\n)\"",
    ],
)  # fmt: skip
def test_documents_that_could_hold_more_are_left_to_the_tree(line: str) -> None:
    assert parse_plain_line(line) is None


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
        "", " ", "#", "a $x", "a `b`", "a $(b)", "(a)", "{ a; }", "a <<E\n$x\nE", "a <(b)", "a # b",
        "x=1 a", "if a; then b; fi", "export A=1", "! a", "[ a ]", "a \\\nb", "a 'b", 'a "b',
        "a é", "a\u00a0b", "a \r", "a \0", "~/a", "'a' b", "a >&b", "a 3>c", "a;;b", "; a", "a |",
        "a && ", "a & ; b", "a{b,c}", "time a", "function a", "a ()",
    ],
)  # fmt: skip
def test_what_could_hold_more_is_left_to_the_tree(line: str) -> None:
    assert parse_plain_line(line) is None


@requirement("shell.nothing-unseen")
def test_bash_runs_of_plain_lines_what_is_seen(tmp_path: Path) -> None:
    oracle, rng, clear = Oracle(tmp_path), random.Random(5), 0
    for _ in range(150):
        line = lines.plain(rng)
        unfolded = expand_wrappers(find_programs(line))
        if parse_plain_line(line) is not None and not unfolded.uncertainties:
            clear += 1
            seen = {program_basename(found.program.name) for found in unfolded.programs}
            assert oracle.ran(line) <= seen, line

    assert clear > 100
