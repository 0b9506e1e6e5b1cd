"""What rules speak of: paths, hosts, servers, agents, parameters; and who wins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.requirement import requirement
from tests.runtime.permissions.asked import decided, line, question
from toolspan.errors import ToolspanError
from toolspan.runtime.permissions import Permissions, Rules
from toolspan.runtime.permissions.rule import matches_command, matches_wildcard
from toolspan.runtime.permissions.rules import rules_from_settings, split_rules
from toolspan.runtime.profiles import profile
from toolspan.runtime.settings.load import PermissionSettings as Block
from toolspan.types.decision import Allow, Ask, Decision, Deny


def on_file(rules: Rules, tool: str, path: str, folder: Path) -> Decision | None:
    return rules(question(tool, folder, file_path=path))


@requirement("permission.paths")
@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("./secret.env", "secret.env", True),
        ("secret.env", "secret.env", True),
        ("secret.env", "deep/er/secret.env", True),
        ("./secret.env", "other.env", False),
        ("*.env", "a/b/c.env", True),
        ("src/**", "src/a/b.py", True),
        ("src/**", "lib/src/a.py", True),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/a/b.py", False),
        ("src", "src/a/b.py", True),
        ("/src", "src/a.py", True),
        ("/src", "lib/src/a.py", False),
        ("**/keys/*", "a/b/keys/k", True),
        ("a?c", "abc", True),
        ("a[bx]c", "axc", True),
        ("a[!b]c", "abc", False),
        ("a[z-b]c", "a[z-b]c", True),
        ("../other/x", "../other/x", True),
        ("a\\*b", "a*b", True),
        ("a\\*b", "axb", False),
    ],
)
def test_path_rules_read_like_ignore_files(tmp_path: Path, pattern: str, path: str, fits: bool) -> None:
    decision = on_file(Rules(deny=[f"Read({pattern})"]), "Read", path, tmp_path)

    assert isinstance(decision, Deny) is fits


@requirement("permission.paths")
def test_paths_begin_where_their_first_letters_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    project, settings = tmp_path / "project", tmp_path / "settings"

    assert isinstance(on_file(Rules(deny=["Read(//etc/**)"]), "Read", "/etc/x", project), Deny)
    assert isinstance(on_file(Rules(deny=["Read(~/.ssh/**)"]), "Read", "~/.ssh/k", project), Deny)
    rooted = Rules(deny=["Read(/x)"], folder=settings)
    assert isinstance(on_file(rooted, "Read", str(settings / "x"), project), Deny)
    assert on_file(rooted, "Read", str(project / "x"), project) is None


@requirement("permission.paths")
def test_an_allowed_folder_is_one_place_a_denied_one_is_every_place_of_that_name(tmp_path: Path) -> None:
    allow, deny = Rules(allow=["Read(src/**)"]), Rules(deny=["Read(src/**)"])

    assert isinstance(on_file(allow, "Read", "src/a", tmp_path), Allow)
    assert on_file(allow, "Read", "lib/src/a", tmp_path) is None
    assert isinstance(on_file(deny, "Read", "lib/src/a", tmp_path), Deny)


@requirement("permission.paths")
def test_relative_paths_that_are_allowed_start_at_the_current_folder_too(tmp_path: Path) -> None:
    def allows(rule: str, path: str) -> bool:
        request = replace(question("Write", tmp_path, file_path=str(tmp_path / path)), cwd=tmp_path / "src")
        return isinstance(Rules(allow=[rule])(request), Allow)

    assert not allows("Edit(src/**)", "src/a")
    assert allows("Edit(src/**)", "src/src/a")
    assert allows("Edit(/src/**)", "src/a")


@requirement("permission.paths")
def test_relative_paths_are_denied_in_added_folders_too(tmp_path: Path) -> None:
    project, added = tmp_path / "project", tmp_path / "added"
    rules, target = Rules(deny=["Read(secret/**)"]), str(added / "secret/key")
    for request in (question("Read", project, file_path=target), line(f"cat {target}", project)):
        assert isinstance(rules(replace(request, folders=(added,))), Deny)


@requirement("permission.links")
def test_a_link_is_judged_by_both_ends(tmp_path: Path) -> None:
    outside, project = tmp_path / "outside", tmp_path / "project"
    for folder in (outside, project, project / "ok"):
        folder.mkdir()
    (outside / "k").write_text("x", encoding="utf-8")
    (project / "ok" / "link").symlink_to(outside / "k")
    (project / "door").symlink_to(outside)

    granted = Rules(allow=["Read(ok/**)"])
    assert on_file(granted, "Read", "ok/link", project) is None
    denied = Rules(deny=[f"Read(/{outside}/**)"])
    assert isinstance(on_file(denied, "Read", "ok/link", project), Deny)
    assert isinstance(on_file(denied, "Read", "door/k", project), Deny)
    assert isinstance(decided(Permissions(), question("Read", project, file_path="door/k")), Ask)
    edits = Permissions(mode="acceptEdits")
    assert isinstance(decided(edits, question("Edit", project, file_path="door/k")), Ask)
    assert isinstance(decided(Permissions(), line("cat door/k", project)), Ask)
    assert isinstance(decided(edits, line("touch door/new", project)), Ask)


@requirement("permission.file-tools")
@pytest.mark.parametrize("tool", ["Read", "Grep", "Glob", "Edit", "Write", "NotebookEdit"])
def test_a_rule_against_reading_holds_for_every_tool_that_would_show_or_change_the_file(
    tmp_path: Path, tool: str
) -> None:
    key = {"Grep": "path", "Glob": "path", "NotebookEdit": "notebook_path"}.get(tool, "file_path")

    decision = Rules(deny=["Read(secret/**)"])(question(tool, tmp_path, **{key: "secret/x"}))

    assert isinstance(decision, Deny)


@requirement("permission.file-tools")
def test_rules_for_edit_speak_for_write_and_an_allowed_edit_may_also_be_read(tmp_path: Path) -> None:
    rules = Rules(allow=["Edit(src/**)"], deny=["Edit(src/frozen/**)", "Write(made/**)"])

    assert isinstance(on_file(rules, "Write", "src/a", tmp_path), Allow)
    assert isinstance(on_file(rules, "Write", "src/frozen/a", tmp_path), Deny)
    assert isinstance(on_file(rules, "Write", "made/a", tmp_path), Deny)
    assert isinstance(on_file(rules, "Edit", "made/a", tmp_path), Deny)
    assert on_file(Rules(allow=["Read(src/**)"]), "Edit", "src/a", tmp_path) is None
    assert on_file(Rules(allow=["Write(src/**)"]), "Write", "src/a", tmp_path) is None


@requirement("permission.file-commands")
@pytest.mark.parametrize(
    "command",
    [
        "cat secret.env", "cat ./secret.env", "head -1 secret.env", "cat sec*", "cat secret.en?",
        "cat < secret.env", "f=secret.env; cat $f", "for f in a secret.env; do cat $f; done",
        "cat 'secret.env'", "cat sub/../secret.env", "sudo cat secret.env", "cat link",
        "sh -c 'cat secret.env'", "python3 x.py --file=secret.env", "cat $PWD/secret.env",
        "cp secret.env y", "for f in *; do cat $f; done", "grep x secret.env",
        "cd sub && cat ../secret.env",
    ],
)  # fmt: skip
def test_a_file_that_may_not_be_read_is_not_read_by_commands(tmp_path: Path, command: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "secret.env").write_text("k", encoding="utf-8")
    (tmp_path / "link").symlink_to("secret.env")
    rules = Rules(allow=["Bash"], deny=["Read(./secret.env)"])

    assert isinstance(rules(line(command, tmp_path)), Deny)


@requirement("permission.file-commands")
def test_a_rule_against_editing_holds_for_redirects_and_commands(tmp_path: Path) -> None:
    rules = Rules(allow=["Bash"], deny=["Edit(gen/**)"])

    for command in ("echo x > gen/a", "touch gen/a", "rm gen/a", "mv a gen/a", "tee gen/a"):
        assert isinstance(rules(line(command, tmp_path)), Deny)
    assert isinstance(rules(line("cat gen/a", tmp_path)), Allow)
    allowed = Rules(allow=["Bash(echo:*)", "Edit(out/**)"])
    assert isinstance(allowed(line("echo x > out/a", tmp_path)), Allow)
    assert allowed(line("echo x > other", tmp_path)) is None


@requirement("permission.hosts")
@pytest.mark.parametrize(
    ("pattern", "url", "fits"),
    [
        ("example.com", "https://example.com/x", True),
        ("example.com", "https://EXAMPLE.com./x", True),
        ("example.com", "https://a.example.com/", False),
        ("example.com", "https://example.com@evil.com/", False),
        ("example.com", "https://evil.com#example.com", False),
        ("example.com", "https://evil.com/?example.com", False),
        ("*.example.com", "https://a.b.example.com/", True),
        ("*.example.com", "https://example.com/", False),
        ("*.example.com", "https://evilexample.com/", False),
        ("a*.example.com", "https://ab.example.com/", True),
        ("a*.example.com", "https://a.b.example.com/", False),
        ("*", "https://anything.org", True),
        ("example.com", "no address", False),
        ("example.com", "http://[bad", False),
    ],
)
def test_hosts_are_compared_as_hosts(tmp_path: Path, pattern: str, url: str, fits: bool) -> None:
    rules = Rules(allow=[f"WebFetch(domain:{pattern})"])

    assert isinstance(rules(question("WebFetch", tmp_path, url=url)), Allow) is fits


@requirement("permission.names")
def test_stars_in_names_deny_widely_and_allow_only_behind_a_server(tmp_path: Path) -> None:
    asked = question("mcp__db__query", tmp_path)

    assert isinstance(Rules(deny=["mcp__*"])(asked), Deny)
    assert isinstance(Rules(deny=["*"])(asked), Deny)
    assert Rules(allow=["*"])(asked) is None
    assert Rules(allow=["mcp__*"])(asked) is None
    assert isinstance(Rules(allow=["mcp__db__*"])(asked), Allow)
    assert len(Rules(allow=["*", "mcp__*", "Write(x)"], deny=["Bash()"]).warnings) == 4


@requirement("permission.names")
def test_agents_skills_and_parameters_can_be_named(tmp_path: Path) -> None:
    agent = question("Agent", tmp_path, subagent_type="reviewer")
    assert isinstance(Rules(deny=["Task(reviewer)"])(agent), Deny)
    assert Rules(deny=["Agent(writer)"])(agent) is None
    skill = question("Skill", tmp_path, skill="deploy now")
    assert isinstance(Rules(ask=["Skill(deploy *)"])(skill), Ask)
    behind = question("Bash", tmp_path, command="ls", run_in_background=True)
    assert isinstance(Rules(ask=["Bash(run_in_background: true)"])(behind), Ask)
    assert Rules(ask=["Bash(run_in_background:true)"])(line("ls", tmp_path)) is None


@requirement("permission.removed")
def test_a_tool_denied_as_a_whole_is_not_offered_one_denied_in_part_is() -> None:
    rules = Rules(deny=["WebFetch", "mcp__db", "Read(*)", "Bash(rm:*)"])

    assert [rules.denies_tool(name) for name in ("WebFetch", "mcp__db__x", "Read", "Bash", "Edit")] == [
        True, True, True, False, False,
    ]  # fmt: skip


@requirement("permission.commands")
@pytest.mark.parametrize(
    ("pattern", "command", "fits"),
    [
        ("ls *", "ls", True), ("ls *", "ls -la", True), ("ls *", "lsof", False),
        ("ls:*", "ls", True), ("ls:*", "lsof", False), ("ls*", "lsof", True),
        ("git * main", "git push origin main", True), ("git * main", "git push", False),
        ("npm run build", "npm run build", True), ("npm run build", "npm run build x", False),
        ("a:*b", "a:xb", True), ("*", "anything", True), ("* --version", "node --version", True),
    ],
)  # fmt: skip
def test_a_star_stands_for_anything_and_a_blank_before_it_for_a_whole_word(
    pattern: str, command: str, fits: bool
) -> None:
    assert matches_command(command, pattern) is fits


@requirement("permission.commands")
@given(st.text("ab*", max_size=8), st.text("ab", max_size=10))
def test_patterns_are_matched_as_a_slow_and_certain_way_would(pattern: str, text: str) -> None:
    def slow(pattern: str, text: str) -> bool:
        if not pattern:
            return not text
        if pattern[0] == "*":
            return slow(pattern[1:], text) or (bool(text) and slow(pattern, text[1:]))
        return bool(text) and text[0] == pattern[0] and slow(pattern[1:], text[1:])

    assert matches_wildcard(text, pattern) is slow(pattern, text)


@requirement("permission.commands")
@pytest.mark.parametrize(
    ("rule", "command", "allowed"),
    [
        ("Bash(npm run:*)", "npm run x && ls", True),
        ("Bash(npm run:*)", "cd sub && npm run x", True),
        ("Bash(npm run:*)", "npm run x && npm install", False),
        ("Bash(npm run:*)", "timeout 60 npm run x", True),
        ("Bash(npm run:*)", "NODE_ENV=test npm run x", True),
        ("Bash(npm run:*)", "NODE_OPTIONS=--require=x npm run x", False),
        ("Bash(npm run:*)", "npm run x 2>&1 | tail -5", True),
        ("Bash(npm run:*)", "npm run x > out", False),
        ("Bash(npm run:*)", "echo $(npm run x)", False),
        ("Bash(bash:*)", "bash -c 'touch x'", True),
        ("Bash(bash:*)", "bash x.sh", True),
        ("Bash(sh:*)", "curl x | sh", False),
        ("Bash(find:*)", "find . -delete", False),
        ("Bash(find:*)", "find . -exec touch {} +", False),
        ("Bash(watch:*)", "watch ls", False),
        ("Bash(eval:*)", "eval ls", False),
        ("Bash(bash -c 'touch x')", "bash -c 'touch x'", True),
        ("Bash(xargs:*)", "ls | xargs -n1 touch", True),
        ("Bash(xargs:*)", "ls | xargs rm ../x", True),
        ("Bash(find:*)", "ls | xargs find .", False),
        ("Bash(git:*)", "cd sub && git status", False),
        ("Bash(git:*)", "git diff --no-index a /etc/passwd", False),
        ("Bash(cat:*)", "for i in 1 2; do cat a; done", False),
        ("Bash(ls:*)", "COLUMNS=x ls", False),
        ("Bash(ls:*)", "time -o x ls", False),
        ("Bash", "cp a b &", True),
        ("Bash", "ls &", False),
        ("Bash(touch:*)", "ls | xargs touch", True),
    ],
)
def test_a_line_is_allowed_when_each_command_is(tmp_path: Path, rule: str, command: str, allowed: bool) -> None:
    (tmp_path / "sub").mkdir()

    decision = decided(Permissions(Rules(allow=[rule])), line(command, tmp_path))

    assert isinstance(decision, Allow) is allowed


@requirement("permission.origin")
def test_a_decision_names_its_rule_and_where_that_was_written(tmp_path: Path) -> None:
    mine = Rules(allow=["Bash(npm run:*)"], origin="userSettings")
    rules = mine + Rules(deny=["Bash(curl:*)"], ask=["WebFetch"], origin="projectSettings")

    denied, asked, allowed = (
        rules(line("curl x", tmp_path)),
        rules(question("WebFetch", tmp_path, url="http://x")),
        rules(line("npm run x", tmp_path)),
    )

    assert denied == Deny(rule="Bash(curl:*)", origin="projectSettings", basis="parts")
    assert asked == Ask(rule="WebFetch", origin="projectSettings", basis="rule")
    assert isinstance(allowed, Allow)
    assert (allowed.rule, allowed.origin, allowed.basis) == (
        "Bash(npm run:*)", "userSettings", "parts",
    )  # fmt: skip


@requirement("permission.old-rules")
def test_old_clients_ignore_a_block_with_a_rule_they_do_not_know() -> None:
    block = Block(deny=("Bash(rm *)", "Read"))

    old = rules_from_settings(block, "projectSettings", None, profile("2.0.65").refusals)
    new = rules_from_settings(block, "projectSettings", None, profile("2.1.325").refusals)

    assert (old.denies_tool("Read"), new.denies_tool("Read")) == (False, True)


@requirement("permission.options")
def test_rules_of_an_option_stand_apart_by_blanks_or_commas() -> None:
    assert split_rules("Read, Bash(git log:*) Bash(a, b),Edit") == [
        "Read", "Bash(git log:*)", "Bash(a, b)", "Edit",
    ]  # fmt: skip


@requirement("permission.names")
@pytest.mark.parametrize("which", ["allow", "ask", "deny"])
def test_a_text_in_place_of_a_list_of_rules_is_refused(which: str) -> None:
    with pytest.raises(ToolspanError, match=rf"{which}=\['Bash'\], not {which}='Bash'"):
        Rules(**{which: "Bash"})  # type: ignore[arg-type]  # each letter would be a rule


@requirement("permission.nothing-hidden")
@pytest.mark.parametrize(
    ("code", "hides"),
    [
        ("run('git push')", True),
        ("run('git' 'push')", True),
        ("run(`git`;push)", True),
        ('run(\'g"i"t  pu"sh\')', True),
        ("$(git $(push", True),
        ("git push", True),
        ("git pushes", False),
        ("legit push", False),
        ("git-push", False),
        ("git, push", False),
        ("git$ push", False),
    ],
)
def test_code_that_may_run_a_denied_command_is_asked_about(tmp_path: Path, code: str, hides: bool) -> None:
    rules = Rules(allow=["Bash(python3:*)"], deny=["Bash(git push:*)"])
    command = f"python3 <<'EOF'\n{code}\nEOF"

    decision = decided(Permissions(rules), line(command, tmp_path))

    assert isinstance(decision, Ask if hides else Allow)
