"""Command lines that change nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolspan.shell.plans import is_read_only


@pytest.mark.parametrize(
    "line",
    [
        "ls",
        "ls -la *.py $HOME ~/x",
        "sleep 2; ls",
        "ls; sleep 0.5",
        "cat a.txt | head -5 | wc -l",
        "cat a 2>/dev/null || echo none >&2",
        "grep -rn 'a;b' src 2>&1",
        "ls >/dev/null 2>&1 && pwd",
        "cat < a.txt",
        "cat /etc/hostname # whose",
        "git status",
        "git log --oneline -5",
        "git diff HEAD~1 -- a.py",
        "git branch -a",
        "git stash list",
        "find . -name '*.py' -type f -not -path './x/*'",
        "sed -n 10,25p file",
        "sed -n '5,9p' file",
        "sort -k 2 -n a | uniq -c",
        "test -f a && [ -d b ]",
        "date +%s",
        "printf '%s\\n' a",
        "file -b a",
        "rg -n pattern src",
        "ls\npwd",
        "head -x --unknown a",
        "find . -name x - /etc",
        "tput cols",
        "test -f $HOME/x",
    ],
)
def test_programs_that_only_read_are_known(line: str) -> None:
    assert is_read_only(line)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "# nothing",
        "touch a",
        "ls; rm a",
        "ls && rm a",
        "ls || rm a",
        "ls | xargs rm",
        "ls\nrm a",
        "ls &",
        "ls > out",
        "ls >> out",
        "ls &> out",
        "ls 2> err",
        "ls >& out",
        "cat <> a",
        "ls > $OUT",
        "ls > /dev/null/../x",
        "cat $(rm a)",
        "cat `rm a`",
        'cat "$(rm a)"',
        "cat < $(rm a)",
        "$CMD a",
        "'rm' a",
        "l\\s; \\rm a",
        "LD_PRELOAD=x ls",
        "/bin/ls",
        "if ls; then ls; fi",
        "for i in a; do ls; done",
        "(ls)",
        "! ls",
        "cd sub && ls",
        "time ls",
        "find . -delete",
        "find . -exec rm {} +",
        "find . -execdir rm x",
        "find . -ok rm x",
        "find . -fprintf out x",
        "find . $ARGS",
        "find *",
        "sed -i s/a/b/ f",
        "sed -n 'w out' f",
        "sed s/a/b/e f",
        "sed -n 1p -i f",
        "sort -o out in",
        "sort -no out in",
        "sort --output=out in",
        "sort --compress-program=x in",
        "uniq in out",
        "git",
        "git -c core.pager=x log",
        "git -C x status",
        "git commit -m x",
        "git diff --output=x",
        "git log --outpu x",
        "git show --ext-diff",
        "git branch new",
        "git branch -D old",
        "git stash",
        "git tag v1",
        "git log $ARGS",
        "rg --pre cat x",
        "rg --hostname-bin=x y",
        "date -s 2020-01-01",
        "date 010100002020",
        "hostname new",
        "env rm a",
        "command rm a",
        "printf -v 'a[$(rm x)]' y",
        "test -v 'a[$(rm x)]'",
        "[ -v 'a[$(rm x)]' ]",
        "file -C -m a",
        "tee out",
        "awk 1 a",
        "bash -c ls",
        "eval ls",
        "source a",
        "xxd a b",
        "ls 'open",
    ],
)
def test_everything_else_counts_as_changing_something(line: str) -> None:
    assert not is_read_only(line)


@given(st.text(alphabet="ls catfind -o/dev/null $()'\"`\\;&|<>#\n", max_size=40))
def test_every_line_gets_an_answer(line: str) -> None:
    assert is_read_only(line) in (True, False)


@given(st.sampled_from(["ls", "cat a", "git status"]), st.sampled_from([";", "&&", "||", "|", "\n"]))
def test_a_line_is_no_better_than_its_worst_command(reads: str, operator: str) -> None:
    assert is_read_only(f"{reads} {operator} {reads}")
    assert not is_read_only(f"{reads} {operator} rm x")
    assert not is_read_only(f"rm x {operator} {reads}")
