"""Lines that Claude Code 2.0.65 asks about although newer clients run them, and the other way round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.runtime.permissions.requests import bash_request, decide_request, make_request
from toolspan.runtime.permissions import Permissions, Rules
from toolspan.runtime.permissions.rules import rules_from_settings
from toolspan.runtime.profiles import profile
from toolspan.runtime.settings.load import PermissionSettings
from toolspan.types.decision import Allow, Ask, Decision


def on_line(permissions: Permissions, command: str, project: Path) -> Decision:
    return decide_request(permissions, bash_request(command, project))


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("tr '{' '}'", False), ("cut -d')' -f1 a", False), ("ls '$'", False), ("wc -l '`'", False),
        ("tr '[' ']'", True), ("echo '{'", True), ("grep ')' a", True), ("find . -name -delete", False),
        ("find ./my-exec -type f", False), ("find . -name 'x-fprintf y'", False), ("find . -name x-deleted", True),
        ("find . -name my-executor", True),
    ],
)  # fmt: skip
def test_an_old_client_asks_about_operators_and_actions_of_find_in_any_word(
    tmp_path: Path, command: str, runs: bool
) -> None:
    permissions = Permissions(refusals=profile("2.0.65").refusals)
    assert isinstance(on_line(permissions, command, tmp_path), Allow) is runs


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("git branch -vv", True), ("git branch -av", False), ("git branch -a -v", False), ("git branch '-a'", False),
        ("git branch --contains HEAD", True), ("git branch --contains=HEAD", False), ("git branch --sort=x", True),
        ("git branch --merged 'main'", True), ("git branch --points-at HEAD", False), ("git remote -v", True),
        ("git remote --verbose", False), ("git tag -l 'v*'", True), ("git tag '-l'", False),
        ("git show --pretty=%h", True), ("git show -s --format=%h", False), ("git show HEAD --raw", False),
        ("git status''", False), ("git \\grep x", False), ("echo \\(", False), ("sed -n 1p a.", False),
        ("ls &&\nls", False), ("sed -n 1p a.b", True),
        ("git ls-files '-z'", True), ("git 'ls-files' -z", False), ("cut -d a -f1", True), ("cut -d / -f1", False),
        ("cut -d~/ -f1", True), ("cut -d ~/ -f1", False),
        ("git log --reverse", True), ("git log -n 3 --no-walk", False), ("grep -rn x .", True), ("grep -rI x .", False),
    ],
)  # fmt: skip
def test_an_old_client_knows_fewer_options(tmp_path: Path, command: str, runs: bool) -> None:
    permissions = Permissions(refusals=profile("2.0.65").refusals)

    assert isinstance(on_line(permissions, command, tmp_path), Allow) is runs


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("cut -d' ' -f1 a.txt", True),
        ("du -h'--max-depth=1' x", False),
        ("echo 'x' y", True),
        ("echo x'y'", False),
        ("echo x'y \"\" '", False),
        ('echo "x it\'s"', True),
        ("ls x'y'", True),
        ('jq . "a|b"', True),
        ('jq . "a&b"', False),
        ('jq . "a;b"', False),
        ("python --version", True),
        ("python '--version'", False),
        ("grep --include='*.py' x a.txt", True),
        ("head -n'5' a.txt", False),
        ("ls --color 2>&1", True),
        ("ls 2>&1x", False),
        ("cd . 2>&1", True),
        ("cd . 3>&1", False),
        ("ls 2>&1 >&2", True),
        ("ls >&2 2>&1", False),
        ("2>&1 ls", False),
        ("2>/dev/null ls 2>&1", True),
        ("2>/dev/null 2>&1 ls", False),
        ("'ls'; pwd", False),
        ("echo 'a'-'b'", False),
        ("grep ']' a.txt", True),
        ("grep ] a.txt", False),
        ("mkdir a-b", True),
        ("mkdir a:b", False),
        ("mkdir a%b", False),
        ("ls > x", True),
        ("ls > x~", False),
        ("ls > 'a b'", True),
        ("ls > '%1'", False),
        ("ls > 'a;b'", True),
        ("ls > 'a<b'", False),
        ("ls > 'a(b'", False),
        ("ls > 'a]b'", False),
        ("mkdir ]", False),
        (">/dev/null du src", True),
        (">/dev/null du ~", False),
        (">/dev/null 'du' src | wc", False),
        (">/dev/null echo 'a{b'", False),
        ("du ~ >/dev/null", True),
        ("echo 'a>b'", True),
        ("echo 'a>b$c'", False),
        ("git log --format='%an<%h'", True),
        ("git log --format='<%ae>%n'", False),
        ("head -c 10 digit.txt", False),
        ("head -c10 digit.txt", True),
        ("grep -c x digit.txt", True),
        ("rg -c x digit.txt", True),
        ("echo --exec-path git", False),
        ("sort a\nls -o x | wc", True),
        ("sort a\nls -o x > y | wc", False),
        ("ls | cd src\nls", False),
        ("touch src/../x", True),
        ("touch link/../x", False),
        ("touch src/../../x", False),
    ],
)
def test_an_old_client_knows_fewer_forms_of_quotes_redirects_and_names(
    tmp_path: Path, command: str, runs: bool
) -> None:
    (tmp_path / "link").symlink_to(tmp_path.parent)
    permissions = Permissions(mode="acceptEdits", refusals=profile("2.0.65").refusals)

    assert isinstance(on_line(permissions, command, tmp_path), Allow) is runs


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("docker ps", True), ("docker inspect x", False), ("tree", True), ("tree src", False), ("ifconfig eth0", True),
        ("node -v", True), ("find . -printf '%p'", True), ("find %x", False), ("ps a.txt", True),
    ],
)  # fmt: skip
def test_an_old_client_runs_few_uses_of_these_programs(tmp_path: Path, command: str, runs: bool) -> None:
    permissions = Permissions(refusals=profile("2.0.65").refusals)

    assert isinstance(on_line(permissions, command, tmp_path), Allow) is runs


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("git tag -l x", True), ("git tag --sort=x -l", False), ("git tag --contains x", False),
        ("git branch --list", True), ("git branch -a --list", False), ("git branch -rl x", False),
    ],
)  # fmt: skip
def test_an_old_client_knows_fewer_ways_to_list_branches_and_tags(tmp_path: Path, command: str, runs: bool) -> None:
    permissions = Permissions(refusals=profile("2.0.65").refusals)
    assert isinstance(on_line(permissions, command, tmp_path), Allow) is runs


@pytest.mark.parametrize("permissions", [Permissions(mode="acceptEdits"), Permissions(Rules(allow=["Bash(touch:*)"]))])
def test_an_old_client_asks_about_changes_after_any_other_spelling_of_the_folder(
    tmp_path: Path, permissions: Permissions
) -> None:
    permissions = replace(permissions, refusals=profile("2.0.65").refusals)
    assert isinstance(on_line(permissions, "cd . && touch x", tmp_path), Ask)
    assert isinstance(on_line(permissions, "cd . && sed -n 1p", tmp_path), Ask)
    assert isinstance(on_line(permissions, f"cd {tmp_path}/ && touch x", tmp_path), Ask)
    assert isinstance(on_line(permissions, "touch x", tmp_path), Allow)


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("npm run x", True), ("npm run a#b", False), ("npm run x # y", False), ("npm run 'a#b'", True),
        ("npm run a\\#b", True), ("npm run a\\\\#b", False), ("npm run a\\<b", False), ("npm run a\\;b", True),
        ("npm run x &>/dev/null", False), ("npm run x >/dev/null", True), ("npm run x |& npm run y", False),
        ("npm run x | npm run y", True), ("npm run -e'x'", False), ("npm run -e 'x'", True),
        ("npm run x\nnpm run y", True), ("npm run x\n\nnpm run y", False), ("npm run x;\nnpm run y", False),
        ("LANG=C npm run x", False), ("\nnpm run x", False), ("npm run \\\n x", False),
        ("npm run x &&\nnpm run y", False), ("npm run x || \nls", False), ("npm run x 2< a", False),
        ("npm run x <&0", False), ("npm run x >&3", False), ("npm run x 3>&1", True), ("xargs npm run x", False),
        ("'cd' . && npm run x", False), ("cd . && npm run x", True), ("make 2>&1", True), ("make 3>&1", False),
    ],
)  # fmt: skip
def test_an_old_client_asks_about_odd_lines_in_spite_of_a_rule(tmp_path: Path, command: str, runs: bool) -> None:
    permissions = Permissions(Rules(allow=["Bash(npm run:*)", "Bash(make)"]), refusals=profile("2.0.65").refusals)

    assert isinstance(on_line(permissions, command, tmp_path), Allow) is runs


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("sed -n 1p a.txt", False), ("sed --quiet 1p a.txt", False), ("sed s/a/b/ a.txt", True),
        ("sed -i 's/a/b/g' a.txt", True),
    ],
)  # fmt: skip
def test_an_old_client_that_accepts_edits_runs_only_substitutions_of_sed(
    tmp_path: Path, command: str, runs: bool
) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    permissions = Permissions(mode="acceptEdits", refusals=profile("2.0.65").refusals)

    assert isinstance(on_line(permissions, command, tmp_path), Allow) is runs


@pytest.mark.parametrize(("version", "runs"), [("2.1.325", True), ("2.0.65", False)])
def test_an_old_client_treats_all_files_of_sed_as_changed(tmp_path: Path, version: str, runs: bool) -> None:
    settings = PermissionSettings(allow=("Bash",), deny=("Edit(src/**)",))
    refusals = profile(version).refusals
    permissions = Permissions(rules_from_settings(settings, "settings", None, refusals), refusals=refusals)

    assert isinstance(on_line(permissions, "sed -n p src/x", tmp_path), Allow) is runs
    assert isinstance(on_line(permissions, "sed -n p x", tmp_path), Allow)


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("ps -ef secret/key.pem", True), ("ps HEAD~1", True), ("ps a.txt -f", True), ("ps ae", False),
        ("ps a.txt e", False), ("ps *", False), ("jq --seq . a.json", True), ("jq --unbuffered . /etc/x", False),
        ("jq -f x a.json", False), ("jq env a.json", False), ("file -z a.txt", True), ("file -m x a.txt", True),
        ("file -m /etc/x a.txt", False), ("file -C", False), ("info ls", True), ("info -o x ls", False),
        ("git status --porcelain=v2", True), ("git blame -L1,5 a.txt", True), ("git blame -L'1,5' a.txt", False),
        ("find . \\! -name x", True), ("find . \\( -name x -o -name y \\)", True), ("find . '(' -name x \\)", False),
        ("find . \\( -name x \\) -delete", False), ("find . -name 'a(b)'", False), ("ls !x", True), ("echo !x", False),
        ("ls 'a b'/c", True), ("ls 'a'*", False), ("echo 'a'b", False), ("jq . 'a'/b", False), ("ls '/etc'/x", False),
        ("sort '-o'x a", False), ("grep 'a\\|b' a.txt", True), ('grep "a\\|b" a.txt', True), ('wc "a\\|b"', False),
        ("grep 'a{1,2}$' a.txt", True), ("rg 'a{1,2}$' src", True), ("rg a 'src$x'", False),
    ],
)  # fmt: skip
def test_an_old_client_runs_more_forms_of_some_programs(tmp_path: Path, command: str, runs: bool) -> None:
    permissions = Permissions(refusals=profile("2.0.65").refusals)

    assert isinstance(on_line(permissions, command, tmp_path), Allow) is runs


@pytest.mark.parametrize("tool", ["Glob", "Grep"])
@pytest.mark.parametrize(("folder", "runs"), [("src", True), ("odd.", False), ("odd./", False), ("x~1", False)])
def test_an_old_client_asks_about_searches_in_ambiguous_folders(
    tmp_path: Path, tool: str, folder: str, runs: bool
) -> None:
    (tmp_path / folder).mkdir()
    request = make_request(tool, tmp_path, pattern="*", path=str(tmp_path) + "/" + folder)

    decision = decide_request(Permissions(refusals=profile("2.0.65").refusals), request)

    assert isinstance(decision, Allow) is runs
