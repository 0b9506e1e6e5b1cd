"""Removals and unclear lines that the newest client asks about in every mode, whatever rules allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.permissions.requests import bash_request, decide_request
from toolspan.runtime.permissions import Permissions, Rules
from toolspan.runtime.permissions.modes import Mode
from toolspan.runtime.profiles import profile
from toolspan.types.decision import Allow, Ask, Decision, Deny


def on_line(permissions: Permissions, command: str, project: Path) -> Decision:
    return decide_request(permissions, bash_request(command, project))


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("cd x && rm -rf a/*", False), ("cd x; rmdir 'a/*'", False), ("rm a/*/ && cd x", False),
        ("pushd; rm a/*", False),
        ("cd x && env rm ../a/*", False), ("bash -c 'cd x && rm a/*'", False), ("cd x && echo $(rm a/*)", False),
        ("rm -rf a/*", True), ("cd x && rm a/*.o", True), ("cd x && rm /tmp/a/*", True), ("cd x && cp a/* b", True),
        ("case a in a) > o then x;; esac", False), ("g() { > o then x; }", False), ("`> o then x`", False),
        ("ls > o then", True), ("case a in a) > o ls;; esac", True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
def test_no_rule_and_no_mode_allows_a_line_that_may_remove_far_more(
    tmp_path: Path, command: str, runs: bool, mode: Mode
) -> None:
    permissions = Permissions(Rules(allow=["Bash"]), mode=mode, refusals=profile("2.1.327").refusals)

    assert isinstance(on_line(permissions, command, tmp_path), Allow) is runs


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("rm -rf src/*/", False), ("rm -rf ../a/*", False), ("rm -rf a/../b/*", False), ("rm -rf ~root/*", False),
        ("rm -rf a*/*", False), ("rm -rf 'a\\..\\*'", False), ("rm -rf ' /'", False), ("rm -rf a*/b", True),
        ("rm -rf ../a/b", True), ("rm -rf a/*", True), ("rm -rf /tmp/x/*", True), ("cd x && rm 'C:\\*'", False),
        ("cd x && rm ~root/*", False), ("rm -rf `pwd`", False), ("rm ~/$(x)", False), ("rm -rf /tmp/`x`", False),
        ("rm -rf a/$(x)", True), ("rm `cat list`", True), ("rm -rf /mnt/c", False), ("rm -rf /media/a/b/c", False),
        ("rm /mnt/c/*", False), ("rm /mnt/c/x", True), ("rm -rf /mnt/c/x/y", True), ("~/rm -rf /", False),
        ("'a\\rm' -rf /", False), ("Rm -rf $X/*", False), ("\u00a0rm -rf *", False), ("then rm -rf /", False),
        ("> o { cd x; rm -rf a/*; }", False), ("> o ! /bin/rm -rf /", False), ("xargs rm @(a|b) ~", False),
        ("eval rmdir $X/*", False), ("rm 'a", False), ("rm'' -v 'a", False), ("then rm -rf x", False),
        ("cd x; rm -- -a/*", False), ("rm -- -a", True),
        ("foo -exec env rm $X/* {} +", False), ("foo -execdir rm x", True),
        ("eval \"$X\"; git rm -r .", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
def test_a_removal_whose_target_is_critical_or_unknown_is_asked_about(
    tmp_path: Path, command: str, runs: bool, mode: Mode
) -> None:
    permissions = Permissions(Rules(allow=["Bash"]), mode=mode, refusals=profile("2.1.327").refusals)

    assert isinstance(on_line(permissions, command, tmp_path), Allow) is runs


def test_a_removal_of_a_session_folder_in_other_case_is_asked_about(tmp_path: Path) -> None:
    permissions = Permissions(mode="bypassPermissions")

    assert isinstance(on_line(permissions, f"rm -rf {str(tmp_path).swapcase()}", tmp_path), Ask)
    assert isinstance(on_line(permissions, f"rm -rf {tmp_path}/x", tmp_path), Allow)


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("f() { bash -c 'rm x'; }", False), ("case a in a) sh -c 'ls; rmdir x';; esac", False),
        ("select i in a; do bash -c 'rm x'; done", False), ("for ((;;)); do bash -c 'rm x'; done", False),
        ("time { bash -c 'rm x'; }", False), ("coproc { bash -c 'rm x'; }", False), ("A=(a b) bash -c 'rm x'", False),
        ("bash -c $'rm x'", False), ("bash -c '{rm,-rf} x'", False), ("bash -c 'rm a\\ b'", False),
        ("bash -c 'rm\\\n x'", False), ("bash -c 'rm =x'", False), ("bash -c 'rm x' {a,b}", False),
        ("f() { docker run x bash -c 'rm y'; }", False), ("eval 'x'; bash -c 'rm ~/\"$X\"'", False),
        ("f() { bash.exe -c \"r''m x\"; }", False), ("! { bash -c '/bin/rm x'; }", False),
        ("bash -c 'rm x'", True), ("if a; then bash -c 'rm x'; fi", True), ("f() { bash -c 'farm x'; }", True),
        ("f() { bash -c 'docker run --rm x'; }", True), ("f() { rm x; }", True), ("bash -o errexit -c 'rm x'", False),
        ("echo a \\\n && bash -c 'rm x'", False), ("docker run \"$X\" sh -c 'rm y'", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
def test_a_script_with_rm_that_the_client_cannot_read_is_asked_about(
    tmp_path: Path, command: str, runs: bool, mode: Mode
) -> None:
    permissions = Permissions(Rules(allow=["Bash"]), mode=mode, refusals=profile("2.1.327").refusals)

    assert isinstance(on_line(permissions, command, tmp_path), Allow) is runs


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("echo $(ls; (ls))", False), ('x="$(cd x && (ls))"', False), ("cat <<E\n$(ls | (ls))\nE", False),
        ("echo $(x=(1 2))", False), ("echo $(! (ls))", False), ("echo $(ls; (ls) )", True), ("echo $(ls $(ls))", True),
        ("echo $(cat <(ls))", True), ("echo '$(ls; (ls))'", True), ("(ls; (ls))", True), ("echo $((1+(2)))", False),
        ("echo $(ls;;ls)", False), ('echo "$(ls && && ls)"', False), ("echo $(then ls)", False), ("echo $(f()", False),
        ("echo $(case a in a) ls;; esac)", True), ("echo $(if a; then b; fi)", True), ("ls;;ls $(ls)", False),
        ("echo ${a0]}", False), ('echo "${${a[@]() }"', False), ("echo $(cat <<E:\nx\nE\n)", False),
        ("echo ${a[0]} ${x//\\//_} ${x:1:2} ${!x} ${x@Q} ${#x[@]}", False), ("echo $(cat <<E\nx\nE\n)", True),
        ("${x:-`$(ls)}", False), ("echo $((16#(a)))", False),
        ("$(echo (( (a) )) && ls)", False), ("echo $(if ((a)); then b; fi)", True),
        ("echo ${x:-`ls\\\n`}", False), ("echo ${x:-`ls`} \\\n a", False),
        ("cat <<E\n$((cd x); ls)\nE", False), ("cat <<'E'\n$((cd x); ls)\nE", True),
    ],
)  # fmt: skip
def test_parentheses_and_backquotes_that_parsers_read_differently_are_asked_about(
    tmp_path: Path, command: str, runs: bool
) -> None:
    permissions = Permissions(mode="bypassPermissions", refusals=profile("2.1.327").refusals)

    assert isinstance(on_line(permissions, command, tmp_path), Allow) is runs


@pytest.mark.parametrize(
    "command",
    ["rm.exe x", "/bin/rm.EXE x", "'C:\\rm.exe' x", "'a\\rm' x", "sudo rm.exe x", "git.exe push", "bash.exe -c 'rm x'"],
)
def test_a_denied_program_is_found_with_the_ending_and_separators_of_windows(tmp_path: Path, command: str) -> None:
    permissions = Permissions(Rules(deny=["Bash(rm:*)", "Bash(git push:*)"]), mode="bypassPermissions")

    assert isinstance(on_line(permissions, command, tmp_path), Deny)
    assert isinstance(on_line(permissions, "rm.cmd x; farm.exe y", tmp_path), Allow)


def test_a_background_command_that_names_the_current_folder_is_asked_about(tmp_path: Path) -> None:
    permissions = Permissions(Rules(allow=["Bash"]), mode="acceptEdits")

    assert isinstance(on_line(permissions, 'cd x & cat "$PWD/a"', tmp_path), Ask)
    assert isinstance(on_line(permissions, "cd x & make", tmp_path), Allow)


@pytest.mark.parametrize(
    "text",
    [
        "rm ", "rm '", "r'", "sh -c rm ", "bash -c ", "rm -", "$(", "$((", "))", "$(ls;(", "`\\\n", "${`", "{a", "= ",
        "> a ", "rm `", "rm $(x", "a/*/", "<<E $((", "!", "cd ", "{ ", "\n", "<1", "$($(", "{", "- ",
        "b/",
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", ["", "> a", "$(x)"])
def test_very_long_lines_are_decided(tmp_path: Path, text: str, end: str) -> None:
    permissions = Permissions(mode="bypassPermissions", refusals=profile("2.1.327").refusals)

    for start in ("", "then sh -c rm ", "command "):
        decision = on_line(permissions, start + text * (100_000 // len(text)) + end, tmp_path)
        assert isinstance(decision, (Allow, Ask))


@pytest.mark.parametrize("command", ["mv 'src/b.py x", 'cat ".env', "ls; echo x > 'src/n", "nice touch 'src/n"])
def test_a_denied_file_is_found_after_an_open_quote(tmp_path: Path, command: str) -> None:
    permissions = Permissions(Rules(deny=["Read(./.env)", "Edit(src/**)"]), mode="bypassPermissions")

    assert isinstance(on_line(permissions, command, tmp_path), Deny | Ask)


@pytest.mark.parametrize("command", ["~/rm -rf .claude", "'a\\rm' .bashrc", "rm.exe .git/config"])
def test_a_protected_file_is_found_with_another_path_of_the_program(tmp_path: Path, command: str) -> None:
    assert isinstance(on_line(Permissions(Rules(allow=["Bash"])), command, tmp_path), Ask)
