"""The programs of a line, where the tree alone would mislead, and of everyday lines."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.shell import lines
from tests.shell.bash_oracle import Oracle
from toolspan.shell.plans import NotUnderstood, plan
from toolspan.shell.program import Program, program_basename
from toolspan.shell.syntax import parse_line
from toolspan.shell.words import Redirect, ShellWord


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("git status", ["git status"]),
        ("cd src && grep -rn 'foo bar' . | head -20", ["cd src", "grep -rn 'foo bar' .", "head -20"]),
        ("npm test 2>&1 | tail -5", ["npm test", "tail -5"]),
        ('git commit -m "a; b\n\nc"', ['git commit -m "a; b\n\nc"']),
        ("ls -la;", ["ls -la"]),
        ("make && ./run --x=1 > out.txt &", ["make", "./run --x=1"]),
        (r"find . -name '*.py' -exec grep -l x {} \;", [r"find . -name '*.py' -exec grep -l x {} \;"]),
        ("a\nb | c\n", ["a", "b", "c"]),
        ("gh x 2>&1 | grep -i 'y' || true", ["gh x", "grep -i 'y'", "true"]),
        ("cat > a.py <<'EOF'\nx = '$(rm)'\nEOF\nls", ["cat", "ls"]),
        ("python3 <<EOF\nprint(1)\nEOF", ["python3"]),
        ("cat <<'A' >> f\na\nA\ncat <<'B' >> f\nb\nB\n", ["cat", "cat"]),
    ],
)
def test_everyday_lines_are_understood(line: str, texts: list[str]) -> None:
    parsed = parse_line(line)

    assert not parsed.hides_programs
    assert [program.text for program in parsed.programs] == texts


def test_a_document_inside_a_word_is_read_by_its_program() -> None:
    parsed = parse_line("git add a && git commit -m \"$(cat <<'EOF'\nIt's `done`\n\nEOF\n)\" && git log -1")

    assert not parsed.hides_programs
    assert [program.name for program in parsed.programs] == ["git", "cat", "git", "git"]
    assert parsed.programs[1].stdin_text == "It's `done`\n\n"


def test_bash_runs_only_the_programs_found_in_plain_lines(tmp_path: Path) -> None:
    oracle, rng, clear = Oracle(tmp_path), random.Random(5), 0
    for _ in range(150):
        line = lines.plain(rng)
        expanded = plan(line)
        if not (isinstance(expanded, NotUnderstood) and expanded.hides_programs):
            clear += 1
            names = {program_basename(entry.program.name) for entry in expanded.reached}
            assert oracle.ran(line) <= names, line

    assert clear > 100


@pytest.mark.parametrize("before", ["ls | ", "ls && ", "ls || ls | ", "echo $x; ls | "])
def test_words_behind_a_redirect_belong_to_the_last_command(before: str) -> None:
    program = parse_line(f"{before}rm > out -rf /").programs[-1]

    assert program.text == "rm -rf /"
    assert program.redirects == (Redirect(">", ShellWord("out")),)
    assert program.has_stdin is before.endswith("| ")


def test_a_command_after_an_operator_does_not_read_from_the_pipe_before_it() -> None:
    for line in ("a 2>&1 | b || c | d", "a | b && c", "a | b || c > f"):
        has_stdin = {program.name: program.has_stdin for program in parse_line(line).programs}
        assert has_stdin["b"]
        assert not has_stdin["c"]
    for line in ("a | { b && c; }", "a | if b; then c && c; fi", "a | case x in x) b && c;; esac"):
        assert all(program.has_stdin for program in parse_line(line).programs if program.name in ("b", "c"))
    assert all(program.has_stdin for program in parse_line("{ b && c; } < f").programs if program.words)


@pytest.mark.parametrize("suffix", ["fi", "x y", "'x'", "$x", "`x`"])
def test_a_word_that_touches_the_mark_of_a_document_belongs_to_the_mark(suffix: str) -> None:
    assert parse_line(f'bash <<"EOF"{suffix}\nrm x\nEOF\nls').hides_programs


@pytest.mark.parametrize(
    "line",
    ["0<x rm y", "rm 0<x y", "rm y 0< x", "rm y 0<<<x", "A=1 0<x 0<z rm y", "2>&- rm y", "rm 2>&- y"],
)
def test_the_number_of_a_stream_is_not_a_word_and_a_word_after_a_closed_stream_is_one(line: str) -> None:
    assert [program.text for program in parse_line(line).programs] == ["rm y"]


def test_a_document_behind_a_pipe_is_read_by_its_last_command() -> None:
    expanded = plan("ls | bash <<'EOF'\nrm x\nEOF\n")

    assert "rm x" in {entry.program.text for entry in expanded.reached}


def test_characters_of_several_bytes_shift_nothing() -> None:
    line = "echo é$(p1 'ü€😀' x) \"😀 $y\" > ä; ls ö"
    programs = parse_line(line).programs

    assert programs[-1] == Program((ShellWord("ls"), ShellWord("ö")), "ls ö")
    assert [program.text for program in programs][:2] == ["p1 'ü€😀' x", line.partition(" >")[0]]


@pytest.mark.parametrize(
    ("word", "expands"),
    [("a=~/x", True), ("a=b:~/x", True), ("a=b/c:~", True), ("a+=~", True), ("--a=~/x", False), ("a=x~", False)],
)
def test_home_behind_an_equals_sign_expands_as_in_bash(word: str, expands: bool) -> None:
    assert parse_line(f"dd {word}").programs[0].words[1].has_expansion is expands
