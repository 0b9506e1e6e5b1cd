"""Modes, what stands before them, and what a person is offered."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.runtime.permissions.asked import decided, line, question
from toolspan.runtime.permissions import MODES, Mode, Permissions, Rules
from toolspan.runtime.permissions.modes import suggest_updates
from toolspan.runtime.profiles import profile
from toolspan.types.decision import AccessedPath, Allow, Ask, Deny, MissingPermissions


@requirement("permission.accept-edits")
@pytest.mark.parametrize(
    ("command", "free"),
    [
        ("touch x", True), ("mkdir -p a/b", True), ("rm x", True), ("mv a b", True),
        ("cp a b", True), ("sed -i s/a/b/ x.txt", True), ("echo hi > x", True), ("rmdir a", True),
        ("touch x && ls", True), ("touch /tmp/x", False), ("touch ../x", False),
        ("rm -rf *", False), ("touch $x", False), ("sed -i 's/a/b/e' x", False),
        ("echo x > .git/hooks/pre-commit", False), ("touch .bashrc", False),
        ("cp a .vscode/tasks.json", False), ("touch .claude/settings.json", False),
        ("chmod +x a", False), ("npm install", False), ("cd sub && touch x", False),
        ("cd $x && touch x", False), ("sh -c 'touch x'", False),
    ],
)  # fmt: skip
def test_where_edits_are_accepted_so_are_commands_that_edit(tmp_path: Path, command: str, free: bool) -> None:
    (tmp_path / "sub").mkdir()
    decision = decided(Permissions(mode="acceptEdits"), line(command, tmp_path))

    assert isinstance(decision, Allow) is free


@requirement("permission.protected")
@pytest.mark.parametrize(
    "path", [".git/config", ".claude/settings.json", ".mcp.json", ".bashrc", ".GIT/x", "a/.husky/x"]
)
def test_a_file_that_decides_what_runs_later_is_not_edited_as_a_matter_of_course(tmp_path: Path, path: str) -> None:
    asked = question("Write", tmp_path, file_path=path)

    def of(mode: Mode) -> type:
        return type(decided(Permissions(Rules(allow=["Write"]), mode), asked))

    assert [of(mode) for mode in ("default", "acceptEdits", "dontAsk", "bypassPermissions")] == [
        Ask, Ask, Deny, Allow,
    ]  # fmt: skip


@requirement("permission.protected")
def test_worktrees_are_not_protected(tmp_path: Path) -> None:
    asked = question("Write", tmp_path, file_path=".claude/worktrees/a/x")

    assert isinstance(decided(Permissions(mode="acceptEdits"), asked), Allow)


@requirement("permission.critical")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "command",
    ["rm -rf /", "rm -rf ~", "rm -rf ~/", "rm -rf /*", "rm -rf .", "rm -rf ..", "rm -rf /usr",
     'rm -rf "$X"/*', "rm -rf $X/", "rm -r *", "sudo rm -rf /", "ls; rm -rf $HOME",
     "echo $(rm -rf /)", "sh -c 'rm -rf /'", "rmdir /tmp"],
)  # fmt: skip
def test_a_removal_that_could_cost_everything_is_never_a_matter_of_course(
    tmp_path: Path, mode: Mode, command: str
) -> None:
    permissions = Permissions(Rules(allow=["Bash"]), mode)

    assert isinstance(decided(permissions, line(command, tmp_path)), Ask)


@requirement("permission.folders")
def test_more_folders_can_belong_to_a_session(tmp_path: Path) -> None:
    project, more = tmp_path / "project", tmp_path / "more"
    project.mkdir()
    more.mkdir()
    wide = Permissions(mode="acceptEdits", folders=(more,))

    for asked in (
        question("Read", project, file_path=str(more / "x")),
        question("Write", project, file_path=str(more / "x")),
        line(f"cat {more}/x && touch {more}/y", project),
    ):
        assert isinstance(decided(wide, asked), Allow)
        assert isinstance(decided(Permissions(mode="acceptEdits"), asked), Ask)


@requirement("permission.plan")
def test_planning_reads_and_does_not_change(tmp_path: Path) -> None:
    new = Permissions(mode="plan", refusals=profile("2.1.325").refusals)
    old = Permissions(mode="plan", refusals=profile("2.0.65").refusals)

    assert isinstance(decided(new, line("ls", tmp_path)), Allow)
    assert decided(new, line("touch x", tmp_path)) == Deny("Auto mode is unavailable", basis="classifier")
    assert isinstance(decided(old, line("touch x", tmp_path)), Ask)
    assert isinstance(decided(new, question("Write", tmp_path, file_path="x")), Ask)


@requirement("permission.needs")
def test_a_question_tells_what_is_needed_and_where(tmp_path: Path) -> None:
    decision = decided(Permissions(), line("ls && touch x; npm test", tmp_path))

    assert decision == Ask(
        needs=MissingPermissions(
            parts=("touch x", "npm test"), of=3, reach=AccessedPath("touch", f"{tmp_path}/x", inside=True)
        )
    )


@requirement("permission.suggestions")
@pytest.mark.parametrize(
    ("command", "offered"),
    [
        ("npm run build", ["npm run:*"]),
        ("git commit -m x && cargo test", ["git commit:*", "cargo test:*"]),
        ("pytest -q", ["pytest:*"]),
        ("timeout 5 make check", ["make check:*"]),
        ("python3 x.py", ["python3 x.py"]),
        ("python3 x.py --token abc", []),
        ("sudo ls", ["sudo ls"]),
        ("bash -c 'npm test'", ["bash -c 'npm test'"]),
        ("npm --registry=http://u:p@h install", []),
        ("docker login -p hunter2hunter2hunter2hunter2", ["docker login:*"]),
        ("API_KEY=abc deploy", []),
        ("$x", []),
        ("echo 'open", []),
    ],
)
def test_what_is_offered_is_neither_secret_nor_everything(tmp_path: Path, command: str, offered: list[str]) -> None:
    asked = line(command, tmp_path)
    decision = decided(Permissions(), asked)
    assert isinstance(decision, Ask)

    rules = [rule for one in suggest_updates(asked, decision) for rule in one["rules"]]  # type: ignore[attr-defined]

    assert [rule["ruleContent"] for rule in rules] == offered


@requirement("permission.suggestions")
def test_files_and_hosts_are_offered_as_modes_folders_and_rules(tmp_path: Path) -> None:
    session = {"destination": "session"}
    accept = {"type": "setMode", "mode": "acceptEdits", **session}

    def offered(tool: str, **given: object) -> list[object]:
        asked = question(tool, tmp_path, **given)
        decision = decided(Permissions(), asked)
        assert isinstance(decision, Ask)
        return list(suggest_updates(asked, decision))

    assert offered("Write", file_path="x") == [accept]
    assert offered("Bash", command="touch x") == [
        {"type": "addDirectories", "directories": [str(tmp_path)], **session},
        accept,
    ]
    (fetch,) = offered("WebFetch", url="https://x.org/secret?token=1")
    assert isinstance(fetch, dict)
    assert fetch["rules"] == [{"toolName": "WebFetch", "ruleContent": "domain:x.org"}]
    (read,) = offered("Read", file_path="/srv/data/x")
    assert isinstance(read, dict)
    assert read["rules"] == [{"toolName": "Read", "ruleContent": "//srv/data/**"}]
    assert offered("Write", file_path=".git/config") == []


@requirement("permission.cat")
@pytest.mark.parametrize(
    ("command", "rules", "parts"),
    [
        ("cat a.txt", [], ("cat a.txt",)),
        ("cat a.txt | head -1", [], ("cat a.txt",)),
        ("cat a.txt", ["Bash(cat:*)"], None),
        ("head a.txt", [], None),
    ],
)
def test_the_oldest_client_asks_about_every_cat(
    tmp_path: Path, command: str, rules: list[str], parts: tuple[str, ...] | None
) -> None:
    def asked(version: str) -> tuple[str, ...] | None:
        permissions = Permissions(Rules(allow=rules), refusals=profile(version).refusals)
        decision = decided(permissions, line(command, tmp_path))
        return decision.needs.parts if isinstance(decision, Ask) and decision.needs else None

    assert [asked(version) for version in ("2.0.65", "2.1.80", "2.1.325", "seed")] == [
        parts, None, None, None,
    ]  # fmt: skip
