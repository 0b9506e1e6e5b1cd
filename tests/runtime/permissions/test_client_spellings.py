"""Unusual spellings of commands that the newest client recognises, in rules and in scripts for a shell."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.permissions.requests import bash_request, decide_request
from toolspan.runtime.permissions import Permissions, Rules
from toolspan.runtime.permissions.modes import Mode
from toolspan.runtime.permissions.restrictions import first_words, matches_line, mentions_any
from toolspan.runtime.profiles import profile
from toolspan.types.decision import Allow, Ask, Decision


def on_line(permissions: Permissions, command: str, project: Path) -> Decision:
    return decide_request(permissions, bash_request(command, project))


@pytest.mark.parametrize(
    ("command", "is_denied"),
    [
        ("sudo foo $'x' bar", True), ("'foo' $'x' bar", True), ("/bin/foo $'x' bar", True), ("foo $'x' 'bar'", True),
        ("echo ${x:-`foo $'x' bar`}", True), ("foo x$'x' bar", False),
        ("a\\ foo bar", True), ("a\\  foo bar", True), ("sudo a\\ foo bar", True), ("X=1 a\\ foo bar", True),
        ("echo $(a\\ b\\ foo bar)", True), ("a\\ timeout 5 foo bar", True), ("a\\ b foo bar", False),
        ("else foo.exe bar", True), ("} 'foo.EXE' bar", True), ("then sudo foo.exe bar", True), ("a foo.exe x", False),
        ("/bin/foo $X bar", True), ("echo ${x:-`foo $X bar`}", True), ("foo x bar", False),
        ("../ X=1 foo bar", True), ("else foo<<<x bar", True), ("bash-5.2 -c 'foo bar'", True),
        ("ionice -c2 - -n7 foo bar", True), ("watch - -n 1 foo bar", True),
        ("sudo $'x' foo bar", True), ("busybox $'x' foo bar", True), ("eval a\\ foo bar", True),
        ("foo = bar", True), ("nice = foo bar", True), ("foo =\nbar", True),
        ("foo '=' bar", False), ("foo =x bar", False),
        ('"\ufeffX=1" foo bar', True), ("/x=1 foo bar", True), ("-f/x=1 foo bar", True), ("x.y=1 foo bar", False),
        ("foo bar $(id) c", True), ("foo $X bar `id` c", True),
        ("nice foo bar X=$(id) c", True), ("foo bar <(ls) c", True),
        ('foo bar "$(id)" c', False), ("foo bar $((1)) c", False),
    ],
)  # fmt: skip
def test_a_denied_command_is_found_in_an_unusual_spelling(tmp_path: Path, command: str, is_denied: bool) -> None:
    permissions = Permissions(Rules(allow=["Bash"], deny=["Bash(foo bar)"]))

    if is_denied:
        assert not isinstance(on_line(permissions, command, tmp_path), Allow)


@pytest.mark.parametrize("command", ["watch 'foo a; b baz'", "watch foo a 'b; c' baz", "watch -n1 'foo a | baz'"])
def test_the_line_that_a_wrapper_joins_matches_as_one_command(tmp_path: Path, command: str) -> None:
    permissions = Permissions(Rules(allow=["Bash"], deny=["Bash(foo * baz)"]))

    assert not isinstance(on_line(permissions, command, tmp_path), Allow)


_PARTS = (
    "foo", "bar", "sudo", "watch", "nice", "env", "sh -c", "eval", "command", "-", "X=1", "/x=1", "../", "=", "$'x'",
    "a\\ ", "'foo'", "'foo bar'", "fo\\o", "$X", "$(id)", "`id`", "<(ls)", "<<<", "> o", "2>&1", "&&", ";", "|", "\n",
    "\\\n", "(", "{", "if", "then", "[", "]", "!", "/bin/foo", "foo.exe", "<<'E'\n", "\nE\n", "\ufeff",
)  # fmt: skip


@given(st.lists(st.sampled_from(_PARTS), min_size=1, max_size=8), st.sampled_from([" ", ""]))
def test_the_search_for_first_words_skips_no_matching_rule(parts: list[str], separator: str) -> None:
    line = separator.join(parts)
    for text in ("foo bar", "foo", "nice foo", "X=1 foo", "["):
        if matches_line(line, f"{text}:*"):
            assert mentions_any(line, first_words((text,)))


@pytest.mark.parametrize(
    "line",
    [
        "a\\ b " + "\\;" * 20_000, "'../' " * 2_000 + "rm x", "/x=1 " * 2_000 + "rm x", "foo " + "= " * 5_000,
        "bash {" + "sh " * 3_000, "A=1 \\\n" * 1_600,
    ],
)  # fmt: skip
def test_long_lines_with_a_repeated_spelling_are_decided(tmp_path: Path, line: str) -> None:
    permissions = Permissions(Rules(deny=["Bash(rm:*)"]))

    assert not isinstance(on_line(permissions, line, tmp_path), Allow)


@pytest.mark.parametrize(
    ("body", "runs"), [("$((1 + 1))", False), ("a $((x)) b", False), ("$((`id`))", False), ("$((ls) | (wc))", False)]
)
def test_plain_arithmetic_in_a_document_is_not_taken_for_a_subshell(tmp_path: Path, body: str, runs: bool) -> None:
    permissions = Permissions(mode="bypassPermissions", refusals=profile().refusals)

    assert isinstance(on_line(permissions, f"cat <<EOF\n{body}\nEOF", tmp_path), Allow) is runs


@pytest.mark.parametrize(
    ("rule", "command", "runs"),
    [
        ("watch x", "watch x", True), ("watch x", "watch x; ls", False), ("setsid x", "nice setsid x", False),
        ("strace x", "strace x 2>&1", False), ("pkexec x", "pkexec x; ls", False), ("foo x", "foo x; ls", True),
        ("foo:*", "foo <<< a", False), ("foo:*", "foo<<<a", False), ("foo:*", "foo x<<<a", False),
        ("foo x:*", "foo x<<< a b", False), ("foo*", "foo<<<a", False),
        ("foo * x", "foo y x", True), ("foo * x", "foo  x", False), ("foo * x", "foo y  x", True),
        ("foo * * x", "foo y  x", False), ("foo x", "foo  x", False), ("foo *", "foo  x", True),
        ("jobs:*", "jobs -l", False), ("jobs:*", "jobs -lx y", False),
        ("export:*", "export -p", False), ("export:*", "export -x", False),
        ("unset:*", "unset -p", False),
        ("awk:*", "xargs awk '{print}'", False), ("awk:*", "xargs awk", False), ("awk:*", "xargs awk -F :", False),
        ("awk:*", "xargs awk -F : x", False),
    ],
)  # fmt: skip
def test_a_rule_allows_a_part_of_a_line_only_as_it_is_written(
    tmp_path: Path, rule: str, command: str, runs: bool
) -> None:
    permissions = Permissions(Rules(allow=[f"Bash({rule})"]))

    assert isinstance(on_line(permissions, command, tmp_path), Allow) is runs


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("x ((a))", False), ("'x' ((a))", False), ("x* ((a))", False), ("x((a))", False), ("x <<< ((a))", False),
        ("echo $(x) ((a))", False), ("x \\\n((a))", False), ("time ((a))", False),
        ("x; ((a))", True), ("! ((a))", True), ("if ((a)); then x; fi", True), ("x=((a))", False), ("x (a)", False),
        ("(( a = 2 * ((1 + 2)) ))", False), ("[[ $x =~ ^((a|b)) ]]", True), ("echo 'x ((a))'", True),
        ("for ((i=0;i<3;i++)); do x; done", False), ("case a in a) ((b));; esac", True),
        ("echo ${x:-a\\\nb}", False), ("echo ${x:-$(ls \\\n y)}", False), ("echo ${x} $(ls \\\n y)", True),
        ("x[0]=1 if", False), ("} x=1 else", False), ("done > o then", False), ("! x=1 fi", False),
        ("if [ x=1 do", False), ("x=1 \\\n if", False), ("> o \\\nwhile x", False), ("x=1 \\\nls", True),
        ("echo $$[1]", False), ("echo $$ [1]", True), ("for $((1)) in a", False), ("echo for $((1))", True),
        ("'bash' -c $'\\x66'", False),
        ("if x=1; then ls; fi", True), ("x[0]=1 ls", True), ("awk '{ x=1 } END { y=2 if (z) w }' f", True),
        ("bash-5 -c 'rm -rf /'", False), ("zsh-5.9 -c ls", True),
        ("bash -c $'\\146oo'", False), ("sudo bash -ec x$'\\x66'", False), ("sh -c $'ls\\nrm x'", False),
        ("bash -c $'\\u0072m x'", False), ("bash -c 'r{m,x} y'", False), ("bash -c 'alias x=ls; rm y'", False),
        ("bash -c 'echo ${#x}; rm y'", False),
        ("bash -c $'ls\\n'", True), ("bash -c ls; echo $'\\x66'", False), ("bash -c \"printf $'\\x66'\"", False),
        ("bash -c 'cp a.{rs,mk} x'", True), ("bash -c 'rm y'", True), ("grep $'\\x66' x", True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
def test_a_line_that_parsers_may_read_differently_is_asked_about(
    tmp_path: Path, command: str, runs: bool, mode: Mode
) -> None:
    permissions = Permissions(Rules(allow=["Bash"]), mode=mode, refusals=profile("2.1.327").refusals)

    assert isinstance(on_line(permissions, command, tmp_path), Allow) is runs


def test_the_length_of_a_line_is_counted_in_utf_16_code_units(tmp_path: Path) -> None:
    assert isinstance(on_line(Permissions(), "echo " + "\U0001f600" * 4_000, tmp_path), Allow)
    assert isinstance(on_line(Permissions(), "echo " + "\U0001f600" * 5_000, tmp_path), Ask)


@pytest.mark.parametrize(
    "command",
    ["echo $((" + "1+" * 600 + "1))", "[ " + "-f a -a " * 600 + "-f b ]", "[[ " + "-f a && " * 1000 + "-f b ]]"],
)
def test_an_expression_with_very_many_operators_is_asked_about(tmp_path: Path, command: str) -> None:
    assert isinstance(on_line(Permissions(), command, tmp_path), Ask)


def test_a_removal_of_a_name_with_a_null_character_is_asked_about(tmp_path: Path) -> None:
    assert isinstance(on_line(Permissions(), "rm 'x\0", tmp_path), Ask)


@pytest.mark.parametrize("command", ["uniq --group=", "uniq --skip-fields="])
def test_an_option_of_uniq_with_an_empty_value_is_asked_about(tmp_path: Path, command: str) -> None:
    assert isinstance(on_line(Permissions(), command, tmp_path), Ask)
