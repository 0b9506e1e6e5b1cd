"""Rules about paths, hosts, servers, agents and parameters, and their precedence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.requirement import requirement
from tests.runtime.permissions.requests import bash_request, decide_request, make_request
from toolspan import tool
from toolspan.errors import ToolspanError
from toolspan.runtime.permissions import Permissions, Rules
from toolspan.runtime.permissions.rule import matches_command, matches_wildcard, split_rules
from toolspan.runtime.permissions.rules import added_folders, rules_from_settings
from toolspan.runtime.profiles import profile
from toolspan.runtime.settings.load import PermissionSettings as Block
from toolspan.session.rule_problems import find_weak_rules
from toolspan.types.decision import Allow, Ask, Decision, Deny


def on_file(rules: Rules, tool: str, path: str, folder: Path) -> Decision | None:
    return rules(make_request(tool, folder, file_path=path))


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
        ("a[!b]c", "axc", True),
        ("a[z-b]c", "a[z-b]c", True),
        ("../other/x", "../other/x", True),
        ("a\\*b", "a*b", True),
        ("a\\*b", "axb", False),
    ],
)
def test_path_rules_follow_gitignore_patterns(tmp_path: Path, pattern: str, path: str, fits: bool) -> None:
    decision = on_file(Rules(deny=[f"Read({pattern})"]), "Read", path, tmp_path)

    assert isinstance(decision, Deny) is fits


def test_the_prefix_of_a_path_selects_its_base_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    project, settings = tmp_path / "project", tmp_path / "settings"

    assert isinstance(on_file(Rules(deny=["Read(//etc/**)"]), "Read", "/etc/x", project), Deny)
    assert isinstance(on_file(Rules(deny=["Read(~/.ssh/**)"]), "Read", "~/.ssh/k", project), Deny)
    rooted = Rules(deny=["Read(/x)"], folder=settings)
    assert isinstance(on_file(rooted, "Read", str(settings / "x"), project), Deny)
    assert on_file(rooted, "Read", str(project / "x"), project) is None


def test_a_relative_folder_is_allowed_once_and_denied_at_every_depth(tmp_path: Path) -> None:
    allow, deny = Rules(allow=["Read(src/**)"]), Rules(deny=["Read(src/**)"])

    assert isinstance(on_file(allow, "Read", "src/a", tmp_path), Allow)
    assert on_file(allow, "Read", "lib/src/a", tmp_path) is None
    assert isinstance(on_file(deny, "Read", "lib/src/a", tmp_path), Deny)


def test_allowed_relative_paths_also_start_at_the_current_folder(tmp_path: Path) -> None:
    def allows(rule: str, path: str) -> bool:
        request = replace(make_request("Write", tmp_path, file_path=str(tmp_path / path)), cwd=tmp_path / "src")
        return isinstance(Rules(allow=[rule])(request), Allow)

    assert not allows("Edit(src/**)", "src/a")
    assert allows("Edit(src/**)", "src/src/a")
    assert allows("Edit(/src/**)", "src/a")


def test_relative_paths_are_denied_in_added_folders_too(tmp_path: Path) -> None:
    project, added = tmp_path / "project", tmp_path / "added"
    rules, target = Rules(deny=["Read(secret/**)"]), str(added / "secret/key")
    for request in (make_request("Read", project, file_path=target), bash_request(f"cat {target}", project)):
        assert isinstance(rules(replace(request, folders=(added,))), Deny)


def test_a_link_is_checked_by_its_name_and_its_target(tmp_path: Path) -> None:
    outside, project = tmp_path / "outside", tmp_path / "project"
    for folder in (outside, project, project / "ok"):
        folder.mkdir()
    (outside / "k").write_text("x", encoding="utf-8")
    (project / "ok" / "link").symlink_to(outside / "k")
    (project / "linked").symlink_to(outside)

    granted = Rules(allow=["Read(ok/**)"])
    assert on_file(granted, "Read", "ok/link", project) is None
    denied = Rules(deny=[f"Read(/{outside}/**)"])
    assert isinstance(on_file(denied, "Read", "ok/link", project), Deny)
    assert isinstance(on_file(denied, "Read", "linked/k", project), Deny)
    assert isinstance(decide_request(Permissions(), make_request("Read", project, file_path="linked/k")), Ask)
    edits = Permissions(mode="acceptEdits")
    assert isinstance(decide_request(edits, make_request("Edit", project, file_path="linked/k")), Ask)
    assert isinstance(decide_request(Permissions(), bash_request("cat linked/k", project)), Ask)
    assert isinstance(decide_request(edits, bash_request("touch linked/new", project)), Ask)


@requirement("permission.file-tools")
@pytest.mark.parametrize("tool", ["Read", "Grep", "Glob", "Edit", "Write", "NotebookEdit"])
def test_a_read_deny_rule_applies_to_every_tool_that_shows_or_changes_the_file(tmp_path: Path, tool: str) -> None:
    key = {"Grep": "path", "Glob": "path", "NotebookEdit": "notebook_path"}.get(tool, "file_path")

    decision = Rules(deny=["Read(secret/**)"])(make_request(tool, tmp_path, **{key: "secret/x"}))

    assert isinstance(decision, Deny)


@requirement("permission.file-tools")
def test_edit_rules_apply_to_write_and_an_allowed_edit_may_also_be_read(tmp_path: Path) -> None:
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
def test_a_read_deny_rule_applies_to_commands(tmp_path: Path, command: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "secret.env").write_text("k", encoding="utf-8")
    (tmp_path / "link").symlink_to("secret.env")
    rules = Rules(allow=["Bash"], deny=["Read(./secret.env)"])

    assert isinstance(rules(bash_request(command, tmp_path)), Deny)


@requirement("permission.file-commands")
def test_an_edit_deny_rule_applies_to_redirects_and_commands(tmp_path: Path) -> None:
    rules = Rules(allow=["Bash"], deny=["Edit(gen/**)"])

    for command in ("echo x > gen/a", "touch gen/a", "rm gen/a", "mv a gen/a", "tee gen/a"):
        assert isinstance(rules(bash_request(command, tmp_path)), Deny)
    assert isinstance(rules(bash_request("cat gen/a", tmp_path)), Allow)
    allowed = Rules(allow=["Bash(echo:*)", "Edit(out/**)"])
    assert isinstance(allowed(bash_request("echo x > out/a", tmp_path)), Allow)
    assert allowed(bash_request("echo x > other", tmp_path)) is None


@pytest.mark.parametrize(
    ("pattern", "url", "fits"),
    [
        ("example.com", "https://example.com/x", True),
        ("example.com", "https://EXAMPLE.com/x", True),
        ("example.com", "https://example.com./x", False),
        (" example.com", "https://example.com/", False),
        ("example.com.", "https://example.com/", True),
        ("*.*", "https://a.b.example.com/", True),
        ("*.*", "https://localhost/", False),
        ("*.*", "https://a..b/", False),
        ("*.ex*.com", "https://a.b.example.com/", True),
        ("*.", "https://example.com/", False),
        ("[*", "https://[::1]/", False),
        ("[::1]", "https://[0:0::1]/", True),
        ("xn--exmple-cua.com", "https://exämple.com/", True),
        ("example.com", "https://example.com\\@evil.com/", False),
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
def test_domain_rules_compare_normalized_hosts(tmp_path: Path, pattern: str, url: str, fits: bool) -> None:
    rules = Rules(allow=[f"WebFetch(domain:{pattern})"])

    assert isinstance(rules(make_request("WebFetch", tmp_path, url=url)), Allow) is fits


@pytest.mark.parametrize(
    ("pattern", "url"),
    [
        ("example.com", "http:example.com"), ("example.com", "http:\\\\example.com\\x"),
        ("example.com", "http://example.com\\@evil.org/"), ("evil.org", "http://example.com\\@evil.org/"),
        ("example.com", "http://ex%61mple.com/"), ("example.com", "http://\uff45xample.com/"),
        ("127.0.0.1", "http://0x7f.1:9/"), ("127.0.0.1", "http://2130706433/"), ("[::1]", "http://[::1]:9/"),
        ("xn--exmple-cua.com", "http://ex\u00e4mple.com/"), ("ex\u00e4mple.com", "http://ex\u00e4mple.com/"),
        ("*.*", "http://example.com/"), ("*", "http:example.com"), (" example.com", "http://example.com/"),
    ],
)  # fmt: skip
def test_a_denied_host_is_found_under_every_reading_of_a_url(tmp_path: Path, pattern: str, url: str) -> None:
    rules = Rules(allow=["WebFetch"], deny=[f"WebFetch(domain:{pattern})"])

    assert isinstance(rules(make_request("WebFetch", tmp_path, url=url)), Deny)


@pytest.mark.parametrize(
    ("pattern", "skill", "allows", "denies"),
    [
        ("deploy", "deploy", True, True), ("deploy", "/deploy", False, True), ("/deploy", "deploy", True, True),
        ("deploy:*", "deploy2", True, True), ("dep *", "deploy", True, True), ("dep*", "deploy", False, True),
        ("*ploy", "deploy", False, True), ("Deploy", "deploy", False, False), ("skill:deploy", "/deploy", False, True),
        ("skill:deploy", " deploy ", False, True), ("*:*", "p:s", False, True), ("my*:*", "my-p:s", False, True),
        ("/:*", "deploy", False, True),
    ],
)  # fmt: skip
def test_a_star_after_a_skill_matches_names_with_the_same_beginning(
    tmp_path: Path, pattern: str, skill: str, allows: bool, denies: bool
) -> None:
    request = make_request("Skill", tmp_path, skill=skill)

    assert isinstance(Rules(allow=[f"Skill({pattern})"])(request), Allow) is allows
    assert isinstance(Rules(deny=[f"Skill({pattern})"])(request), Deny) is denies


def test_rules_for_bash_restrict_every_tool_that_runs_command_lines(tmp_path: Path) -> None:
    @tool(kind="shell")
    def run_elsewhere(command: str) -> str:
        """Run a command line on another machine."""
        return command

    def decide_elsewhere(rules: Rules, **tool_input: object) -> Decision | None:
        return rules(replace(make_request("run_elsewhere", tmp_path, **tool_input), definition=run_elsewhere))

    assert isinstance(decide_elsewhere(Rules(deny=["Bash(rm:*)"]), command="ls; rm x"), Deny)
    assert isinstance(decide_elsewhere(Rules(ask=["Bash"]), command="ls"), Ask)
    assert decide_elsewhere(Rules(deny=["Bash"]), job="1") is None
    assert isinstance(decide_elsewhere(Rules(deny=["Bash"]), command="ls"), Deny)
    assert decide_elsewhere(Rules(allow=["Bash"]), command="eval $x") is None


def test_a_pattern_after_an_mcp_tool_allows_nothing(tmp_path: Path) -> None:
    request = make_request("mcp__db__query", tmp_path)

    for rule in ("mcp__db(*)", "mcp__db__query(*)", "mcp__db__query(x)", "mcp__db__*(**)"):
        assert Rules(allow=[rule])(request) is None
    assert isinstance(Rules(deny=["mcp__db(*)"])(request), Deny)


def test_a_star_in_a_tool_name_denies_any_tool_and_allows_only_after_a_server(tmp_path: Path) -> None:
    request = make_request("mcp__db__query", tmp_path)

    assert isinstance(Rules(deny=["mcp__*"])(request), Deny)
    assert isinstance(Rules(deny=["*"])(request), Deny)
    assert Rules(allow=["*"])(request) is None
    assert Rules(allow=["mcp__*"])(request) is None
    assert isinstance(Rules(allow=["mcp__db__*"])(request), Allow)
    assert len(list(find_weak_rules(Rules(allow=["*", "mcp__*", "Write(x)"], deny=["Bash()"])))) == 4


def test_rules_may_name_agents_skills_and_parameters(tmp_path: Path) -> None:
    agent = make_request("Agent", tmp_path, subagent_type="reviewer")
    assert isinstance(Rules(deny=["Task(reviewer)"])(agent), Deny)
    assert Rules(deny=["Agent(writer)"])(agent) is None
    skill = make_request("Skill", tmp_path, skill="deploy now")
    assert isinstance(Rules(ask=["Skill(deploy *)"])(skill), Ask)
    background = make_request("Bash", tmp_path, command="ls", run_in_background=True)
    assert isinstance(Rules(ask=["Bash(run_in_background: true)"])(background), Ask)
    assert Rules(ask=["Bash(run_in_background:true)"])(bash_request("ls", tmp_path)) is None


def test_an_ask_rule_for_reading_a_path_does_not_restrict_writing(tmp_path: Path) -> None:
    read, write = (make_request(tool, tmp_path, file_path=str(tmp_path / "a.txt")) for tool in ("Read", "Write"))

    assert isinstance(Rules(ask=["Read(a.txt)"])(read), Ask)
    assert Rules(ask=["Read(a.txt)"])(write) is None
    assert isinstance(Rules(deny=["Read(a.txt)"])(write), Deny)


@requirement("permission.removed")
def test_only_a_tool_that_is_denied_as_a_whole_is_not_offered() -> None:
    rules = Rules(deny=["WebFetch", "mcp__db", "Read(*)", "Bash(rm:*)"])

    assert [rules.denies_tool(name) for name in ("WebFetch", "mcp__db__x", "Read", "Bash", "Edit")] == [
        True, True, True, False, False,
    ]  # fmt: skip


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
def test_a_star_matches_any_text_and_a_blank_before_it_a_whole_word(pattern: str, command: str, fits: bool) -> None:
    assert matches_command(command, pattern) is fits


@given(st.text("ab*", max_size=8), st.text("ab", max_size=10))
def test_patterns_match_like_a_simple_reference_implementation(pattern: str, text: str) -> None:
    def reference(pattern: str, text: str) -> bool:
        if not pattern:
            return not text
        if pattern[0] == "*":
            return reference(pattern[1:], text) or (bool(text) and reference(pattern, text[1:]))
        return bool(text) and text[0] == pattern[0] and reference(pattern[1:], text[1:])

    assert matches_wildcard(text, pattern) is reference(pattern, text)


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
        ("Bash(xargs:*)", "ls | xargs rm ../x", False),
        ("Bash(find:*)", "ls | xargs find .", False),
        ("Bash(git:*)", "cd missing && git status", False),
        ("Bash(git:*)", "git diff --no-index a /etc/passwd", False),
        ("Bash(cat:*)", "for i in 1 2; do cat a; done", False),
        ("Bash(ls:*)", "COLUMNS=x ls", False),
        ("Bash(ls:*)", "time -o x ls", False),
        ("Bash", "cp a b &", True),
        ("Bash", "ls &", False),
        ("Bash(touch:*)", "ls | xargs touch", False),
    ],
)
def test_a_line_is_allowed_if_each_of_its_commands_is(tmp_path: Path, rule: str, command: str, allowed: bool) -> None:
    (tmp_path / "sub").mkdir()

    decision = decide_request(Permissions(Rules(allow=[rule])), bash_request(command, tmp_path))

    assert isinstance(decision, Allow) is allowed


@requirement("permission.origin")
def test_a_decision_names_its_rule_and_the_origin_of_the_rule(tmp_path: Path) -> None:
    user_rules = Rules(allow=["Bash(npm run:*)"], origin="userSettings")
    rules = user_rules + Rules(deny=["Bash(curl:*)"], ask=["WebFetch"], origin="projectSettings")

    denied, asked, allowed = (
        rules(bash_request("curl x", tmp_path)),
        rules(make_request("WebFetch", tmp_path, url="http://x")),
        rules(bash_request("npm run x", tmp_path)),
    )

    assert denied == Deny(rule="Bash(curl:*)", origin="projectSettings", basis="parts")
    assert asked == Ask(rule="WebFetch", origin="projectSettings", basis="rule")
    assert isinstance(allowed, Allow)
    assert (allowed.rule, allowed.origin, allowed.basis) == (
        "Bash(npm run:*)", "userSettings", "parts",
    )  # fmt: skip


@requirement("permission.old-rules")
@pytest.mark.parametrize(
    ("rule", "is_known"),
    [
        ("Bash(rm *)", False), ("Bash(*)", False), ("Bash()", False), ("Bash(:*)", False), ("Bash(a*:*)", False),
        ("Read(x:*)", False), ("Read(a*b)", False), ("bash", False), ("mcp__x(y)", False), ("WebFetch(x)", False),
        ("Bash(rm:*)", True), ("Bash(a(b):*)", True), ("Read(*)", True), ("Edit(*.txt)", True), ("mcp__x", True),
        ("WebFetch(domain:*)", True), ("Foo", True),
    ],
)  # fmt: skip
def test_with_an_old_client_a_block_with_a_rule_it_does_not_know_allows_nothing(rule: str, is_known: bool) -> None:
    block = Block(allow=("WebSearch",), deny=(rule, "Glob"))

    old = rules_from_settings(block, "projectSettings", None, profile("2.0.65").refusals)
    new = rules_from_settings(block, "projectSettings", None, profile("2.1.327").refusals)

    assert (old.allows_tool("WebSearch"), new.allows_tool("WebSearch")) == (is_known, True)
    assert old.denies_tool("Glob")
    assert new.denies_tool("Glob")


@pytest.mark.parametrize(
    "rule",
    [
        "Bash()", "Bash( )", "Bash(:*)", " Bash", "Bash ", "Bash (npm:*)", "Bash( npm:*)", "Bash(npm run x )", "*",
        "B*",
    ],
)  # fmt: skip
def test_a_rule_that_is_empty_or_not_written_exactly_restricts_but_does_not_allow(tmp_path: Path, rule: str) -> None:
    request = bash_request("npm run x", tmp_path)

    assert Rules(allow=[rule])(request) is None
    assert isinstance(Rules(deny=[rule])(request), Deny)
    assert [warning.partition(": ")[0] for warning in find_weak_rules(Rules(allow=[rule]))] == [rule.strip()]


def test_several_spaces_in_a_restriction_count_as_one(tmp_path: Path) -> None:
    request = bash_request("npm run x", tmp_path)

    assert isinstance(Rules(deny=["Bash(npm  run:*)"])(request), Deny)
    assert isinstance(Rules(ask=["Bash(npm\trun:*)"])(request), Ask)
    assert isinstance(Rules(deny=["Bash(ls  && pwd)"])(bash_request("ls  && pwd", tmp_path)), Deny)


@pytest.mark.parametrize(
    ("rule", "tool", "path", "allows"),
    [
        ("Write", "Write", "/elsewhere/x", True), ("Write(*)", "Write", "/elsewhere/x", False),
        ("Write(*)", "Write", "src/x", True), ("Write(**)", "Write", "src/x", False), ("Write()", "Write", "x", False),
        ("Read(*)", "Read", "/elsewhere/x", False), ("Read(../other/**)", "Read", "../other/x", False),
        ("Read(~/other/)", "Read", "~/other/x", True), ("Read(~/other/)", "Read", "~/other", False),
        ("Edit(x.txt/)", "Write", "x.txt", False), ("Edit(src/)", "Write", "src/x", True),
        ("Edit( src/** )", "Write", "src/x", False), ("Edit(:*)", "Edit", "x", False),
        ("Edit(s[!x]c/**)", "Write", "src/x", False), ("Edit(s[^x]c/**)", "Write", "src/x", False),
        ("Edit(s[a-z]c/**)", "Write", "src/x", True),
    ],
)  # fmt: skip
def test_a_path_rule_allows_only_what_it_covers_exactly(
    tmp_path: Path, rule: str, tool: str, path: str, allows: bool
) -> None:
    decision = on_file(Rules(allow=[rule]), tool, path, tmp_path / "project")

    assert isinstance(decision, Allow) is allows


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("s[!r]c/**", "src/x"), ("s[^r]c/**", "src/x"), ("s[!r]c/**", "sxc/x"), ("src//x", "src/x"),
        ("./src//x", "src/x"), (".//src/**", "src/x"), ("src/[**", "src/x"), ("~//other/**", "~/other/x"),
        ("//etc//x", "/etc/x"), ("///etc/**", "/etc/x"),
    ],
)  # fmt: skip
def test_a_denied_path_may_be_spelled_oddly(tmp_path: Path, pattern: str, path: str) -> None:
    rules = Rules(allow=["Read"], deny=[f"Read({pattern})"])

    assert isinstance(on_file(rules, "Read", path, tmp_path / "project"), Deny)


@requirement("permission.old-rules")
def test_a_folder_in_the_project_or_a_file_is_not_added(tmp_path: Path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    for folder in (project, other):
        folder.mkdir()
    for link in (project / "inside", tmp_path / "outside"):
        link.symlink_to(other)
    (other / "file").touch()
    block = Block(
        additional_directories=("../other", "inside", "../outside", "../other/file", "../missing", "~nobody9")
    )

    assert added_folders(block, project, profile().refusals) == (other, tmp_path / "outside")


def test_rules_of_an_option_are_separated_by_blanks_or_commas() -> None:
    assert split_rules("Read, Bash(git log:*) Bash(a, b),Edit") == [
        "Read", "Bash(git log:*)", "Bash(a, b)", "Edit",
    ]  # fmt: skip


@pytest.mark.parametrize("which", ["allow", "ask", "deny"])
def test_a_string_instead_of_a_list_of_rules_is_rejected(which: str) -> None:
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
    ],
)
def test_code_that_may_run_a_denied_command_is_asked_about(tmp_path: Path, code: str, hides: bool) -> None:
    rules = Rules(allow=["Bash(python3:*)"], deny=["Bash(git push:*)"])
    command = f"python3 <<'EOF'\n{code}\nEOF"

    decision = decide_request(Permissions(rules), bash_request(command, tmp_path))

    assert isinstance(decision, Ask if hides else Allow)
