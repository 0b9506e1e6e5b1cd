"""Modes, the guards before them, and suggested rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.runtime.permissions.requests import bash_request, decide_request, make_request
from toolspan.runtime.permissions import MODES, Mode, Permissions, Rules
from toolspan.runtime.permissions.modes import guard_policy
from toolspan.runtime.permissions.suggestions import suggest_updates
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
        ("touch 'a b'", False), ("touch 'a -b'", False),
        ("sed -Ei s/a/b/ x.txt", True), ("sed -ni s/a/b/p x.txt", False), ("sed -i s/a/b/ src/size", False),
        ("sed -i s/a/b/ my.txt", True), ("sed -i s/a/b/ my_file", False), ("sed s/a/b/ src/size", True),
        ("sed -i s/a/b/ 5,6", False), ("sed -i s/a/b/ :x", False), ("sed -i s/a/b/ s_x", False),
    ],
)  # fmt: skip
def test_accept_edits_mode_allows_commands_that_edit(tmp_path: Path, command: str, free: bool) -> None:
    (tmp_path / "sub").mkdir()
    decision = decide_request(Permissions(mode="acceptEdits"), bash_request(command, tmp_path))

    assert isinstance(decision, Allow) is free


@pytest.mark.parametrize(
    "path",
    [
        ".git/config", ".claude/settings.json", ".mcp.json", ".bashrc", ".GIT/x", "a/.husky/x", ".gi\u200ct/config",
        ".g\u0131t/config", "\ufeff.git/x", ".bash\u202erc",
    ],
)  # fmt: skip
def test_files_that_control_later_commands_are_not_edited_without_a_question(tmp_path: Path, path: str) -> None:
    request = make_request("Write", tmp_path, file_path=path)

    def decide_in(mode: Mode) -> type:
        return type(decide_request(Permissions(Rules(allow=["Write"]), mode), request))

    assert [decide_in(mode) for mode in ("default", "acceptEdits", "dontAsk", "bypassPermissions")] == [
        Ask, Ask, Deny, Allow,
    ]  # fmt: skip


def test_worktrees_are_not_protected(tmp_path: Path) -> None:
    request = make_request("Write", tmp_path, file_path=".claude/worktrees/a/x")

    assert isinstance(decide_request(Permissions(mode="acceptEdits"), request), Allow)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "command",
    ["rm -rf /", "rm -rf ~", "rm -rf ~/", "rm -rf /*", "rm -rf .", "rm -rf ..", "rm -rf /usr",
     'rm -rf "$X"/*', "rm -rf $X/", "rm -r *", "sudo rm -rf /", "ls; rm -rf $HOME",
     "echo $(rm -rf /)", "sh -c 'rm -rf /'", "rmdir /tmp"],
)  # fmt: skip
def test_dangerous_removals_are_always_asked_about(tmp_path: Path, mode: Mode, command: str) -> None:
    permissions = Permissions(Rules(allow=["Bash"]), mode)

    assert isinstance(decide_request(permissions, bash_request(command, tmp_path)), Ask)


def test_additional_folders_belong_to_the_session(tmp_path: Path) -> None:
    project, more = tmp_path / "project", tmp_path / "more"
    project.mkdir()
    more.mkdir()
    wide = Permissions(mode="acceptEdits", folders=(more,))

    for request in (
        make_request("Read", project, file_path=str(more / "x")),
        make_request("Write", project, file_path=str(more / "x")),
        bash_request(f"cat {more}/x && touch {more}/y", project),
    ):
        assert isinstance(decide_request(wide, request), Allow)
        assert isinstance(decide_request(Permissions(mode="acceptEdits"), request), Ask)


@requirement("permission.plan")
@pytest.mark.parametrize(("version", "runs"), [("2.1.327", False), ("2.0.65", True)])
def test_no_rule_allows_subagents_and_changing_mcp_tools_in_plan_mode(tmp_path: Path, version: str, runs: bool) -> None:
    rules = Rules(allow=["Agent", "mcp__db"])
    permissions = Permissions(rules, "plan", refusals=profile(version).refusals)
    agent = make_request("Agent", tmp_path, subagent_type="Explore")
    change = make_request("mcp__db__change", tmp_path)

    assert isinstance(decide_request(permissions, agent), Allow) is runs
    assert isinstance(decide_request(permissions, change), Allow) is runs
    assert isinstance(decide_request(permissions, replace(change, read_only=True)), Allow)


@requirement("permission.plan")
def test_only_a_rule_allows_a_skill_in_plan_mode(tmp_path: Path) -> None:
    refusals, skill = profile("2.1.327").refusals, make_request("Skill", tmp_path, skill="deploy")
    guards = [guard_policy("plan", refusals, Rules(allow=rules)) for rules in ([], ["Skill(deploy)"])]

    assert [guard(skill) for guard in guards] == [Ask(basis="plan"), None]
    assert guards[0](replace(skill, read_only=True)) is None


@requirement("permission.plan")
def test_plan_mode_allows_only_reads(tmp_path: Path) -> None:
    new = Permissions(mode="plan", refusals=profile("2.1.327").refusals)
    old = Permissions(mode="plan", refusals=profile("2.0.65").refusals)

    assert isinstance(decide_request(new, bash_request("ls", tmp_path)), Allow)
    assert decide_request(new, bash_request("touch x", tmp_path)) == Deny(
        "Auto mode is unavailable", basis="classifier"
    )
    assert isinstance(decide_request(old, bash_request("touch x", tmp_path)), Ask)
    assert isinstance(decide_request(new, make_request("Write", tmp_path, file_path="x")), Ask)


@requirement("permission.question")
def test_a_question_names_the_needed_permission_and_its_path(tmp_path: Path) -> None:
    decision = decide_request(Permissions(), bash_request("ls && touch x; npm test", tmp_path))

    assert decision == Ask(
        needs=MissingPermissions(
            parts=("touch x", "npm test"), of=3, reach=AccessedPath("touch", f"{tmp_path}/x", inside=True)
        )
    )


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
def test_suggested_rules_contain_no_secret_and_do_not_allow_everything(
    tmp_path: Path, command: str, offered: list[str]
) -> None:
    request = bash_request(command, tmp_path)
    decision = decide_request(Permissions(), request)
    assert isinstance(decision, Ask)

    rules = [rule for update in suggest_updates(request, decision) for rule in update["rules"]]  # type: ignore[attr-defined]

    assert [rule["ruleContent"] for rule in rules] == offered


def test_suggestions_for_files_and_hosts_are_modes_folders_and_rules(tmp_path: Path) -> None:
    session = {"destination": "session"}
    accept = {"type": "setMode", "mode": "acceptEdits", **session}

    def suggest(tool: str, **tool_input: object) -> list[object]:
        request = make_request(tool, tmp_path, **tool_input)
        decision = decide_request(Permissions(), request)
        assert isinstance(decision, Ask)
        return list(suggest_updates(request, decision))

    assert suggest("Write", file_path="x") == [accept]
    assert suggest("Bash", command="touch x") == [
        {"type": "addDirectories", "directories": [str(tmp_path)], **session},
        accept,
    ]
    (fetch,) = suggest("WebFetch", url="https://x.org/secret?token=1")
    assert isinstance(fetch, dict)
    assert fetch["rules"] == [{"toolName": "WebFetch", "ruleContent": "domain:x.org"}]
    (read,) = suggest("Read", file_path="/srv/data/x")
    assert isinstance(read, dict)
    assert read["rules"] == [{"toolName": "Read", "ruleContent": "//srv/data/**"}]
    assert suggest("Write", file_path=".git/config") == []
