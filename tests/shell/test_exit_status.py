"""What ended a command line, and whether it only says that nothing was found."""

from __future__ import annotations

import pytest

from toolspan.shell.exit_status import failing_programs, found_nothing


@pytest.mark.parametrize(
    "line",
    [
        "rg x", "grep -q x a", "cat a | grep x", "cd /w && grep x a", "diff -q a b > /dev/null", "cmp -s a b",
        "test -f a", "[ -d a ]", "[[ -n $X ]]", "command -v x", "which x", "pgrep x", "git diff --quiet",
        "git diff --exit-code -- a", "git -C /w grep x", "timeout 5 grep x a", "bash -c 'grep x a'",
        "test -f a && cat a", "sudo grep x /a", "for f in a b; do grep x $f; done", "type -P x",
        "hash x", "git ls-files --error-unmatch x",
        "docker exec -it -u www app grep x /a", "kubectl exec pod -c main -- test -f /a", "bash -lc 'make; grep x a'",
        "grep -q x a || exit 1", "grep x a || grep x b", "(( x == 0 ))", "cd /w && (( 3 > 4 ))",
        "((1 == 2)) && echo x", "let 0", "kill -0 99999 2>/dev/null", "sort -C a", "id -u mira >/dev/null 2>&1",
        "awk '/x/{f=1} END{exit !f}' a", "cat <<'X' | grep z\nhi\nX", "grep -q z <<X\nhi\nX",
        "dpkg -s x >/dev/null 2>&1", "if ! grep -q x a; then grep y a; fi",
    ],
)  # fmt: skip
def test_a_search_or_check_that_ends_with_1_and_prints_nothing_found_nothing(line: str) -> None:
    assert found_nothing(line, 1, "")


@pytest.mark.parametrize(
    ("line", "code", "output"),
    [
        ("grep x a", 2, ""), ("grep x a", 1, "grep: a: binary"), ("npm test", 1, ""), ("git diff", 1, ""),
        ("git push", 1, ""), ("grep x a; npm test", 1, ""), ("diff a b", 1, "1c1\n< x"), ("command rm a", 1, ""),
        ("false", 1, ""), ("make && grep x a", 1, "make: *** no rule"), ("python grep.py", 1, ""),
        ("which", 1, ""), ("[ -f a ] || make", 1, ""), ("test -d x || npm ci > log", 1, ""),
        ("bash -c 'rg x; false'", 1, ""), ("cd /w && grep x a", 1, "bash: line 1: cd: /w: No such file or directory"),
        ("cd /w && echo $((1 + 2)) && false", 1, ""),
        ("if [ -f a ]; then npm test; fi", 1, ""), ("grep -q TODO a && exit 1", 1, ""), ("[ -f a ] && false", 1, ""),
        ("kill 99999 2>/dev/null", 1, ""), ("sort a > b", 1, ""), ("awk '{print}' a", 1, ""),
        ("docker exec app make", 1, ""), ("docker run grep", 1, ""), ("grep -c x a", 1, "1"), ("jq . a", 1, "null"),
    ],
)  # fmt: skip
def test_any_other_failure_is_one(line: str, code: int, output: str) -> None:
    assert not found_nothing(line, code, output)


def test_the_output_before_a_search_does_not_make_it_a_failure() -> None:
    assert found_nothing("echo looking; grep x a", 1, "looking")
    assert found_nothing("find . | xargs grep x", 123, "")
    assert found_nothing("time grep x a", 1, "real\t0m0.017s\nuser\t0m0.003s\nsys\t0m0.000s")


def test_jq_ends_with_4_if_it_has_no_result() -> None:
    assert found_nothing("cat a.json | jq -e 'select(.a == 5)'", 4, "")
    assert not found_nothing("grep x a && jq . b.json", 4, "")


@pytest.mark.parametrize(("line", "output"), [("grep -c x a", "0"), ("jq -e .x a.json", "null"), ("expr 1 = 2", "0\n")])
def test_an_empty_answer_is_nothing_found(line: str, output: str) -> None:
    assert found_nothing(line, 1, output)


@pytest.mark.parametrize(
    ("line", "programs"),
    [
        ("cd x && pnpm add y", ("pnpm", "cd")),
        ("a; b && c | head", ("c", "b")),
        ("a && b || c", ("c",)),
        ("a || { b; exit 1; }", ("b", "a", "exit")),
        ("sudo timeout 5 npx --yes tsc -p .", ("tsc",)),
        ("FOO=1 make test 2>&1 | tee log", ("make",)),
        ("python3.12 -m pytest -q", ("pytest",)),
        ("uv run --with x pytest", ("pytest",)),
        ("/usr/bin/git push", ("git",)),
        ("bash -lc 'git status && npm run build'", ("npm", "git")),
        ("$TOOL x", ()),
    ],
)
def test_the_programs_that_can_have_ended_a_line_are_named_the_last_one_first(
    line: str, programs: tuple[str, ...]
) -> None:
    assert failing_programs(line) == programs
