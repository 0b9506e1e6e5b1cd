"""Links, dots and other indirect paths, on a real disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtime.permissions.requests import bash_request, decide_request, make_request
from toolspan.runtime.permissions import Permissions, Rules
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.permissions.modes import Mode, guard_policy
from toolspan.runtime.permissions.paths import expand_braces
from toolspan.runtime.profiles import profile
from toolspan.runtime.runner import Runner, new_workspace
from toolspan.tools import read_tool, write_tool
from toolspan.types.decision import Allow, Ask, Decision, Deny
from toolspan.types.events import Finished

EDITS = Permissions(mode="acceptEdits")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a project with all kinds of links, beside files outside of it."""
    project, outside, home = (tmp_path.resolve() / folder_name for folder_name in ("project", "outside", "home"))
    for folder in (project / "sub" / "deep", project / ".git", outside / "folder", home / ".ssh"):
        folder.mkdir(parents=True)
    for file in (project / "a", project / ".env", outside / "secret", outside / "folder" / "f"):
        file.write_text("old", encoding="utf-8")
    links: dict[str, Path | str] = {
        "out": outside / "folder", "file": outside / "secret", "up": "..", "env": ".env",
        "down": "sub/deep", "here": "/proc/self/cwd", "round": "round", "new": outside / "new",
        "git": ".git", "streams": "/dev/fd",
    }  # fmt: skip
    for name, target in links.items():
        (project / name).symlink_to(target)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(project)
    return project


def spelled(text: str, project: Path) -> str:
    """Replace `@P` with the project and `@O` with the folder outside of it."""
    return text.replace("@P", str(project)).replace("@O", str(project.parent / "outside"))


def on_line(permissions: Permissions, command: str, project: Path) -> Decision:
    return decide_request(permissions, bash_request(spelled(command, project), project))


@pytest.mark.parametrize("name", ["..\\x", "a\\..\\b", "sub/..\\..\\x", "sub\\..", "sub\\../x"])
def test_a_parent_folder_between_backslashes_leads_outside(project: Path, name: str) -> None:
    request = make_request("Write", project, file_path=f"{project}/{name}", content="")

    assert isinstance(decide_request(EDITS, request), Ask)
    assert isinstance(on_line(EDITS, f"cat '{name}'", project), Ask)
    assert isinstance(on_line(EDITS, f"touch '{name}'", project), Ask)


@pytest.mark.parametrize(
    "command",
    [
        "cd sub && cd .. && touch x", "cd /tmp && cd sub && touch x", "cd sub && cd deep && touch y", "pushd sub; rm x",
        "cd sub; cd ..; echo > x", "builtin cd sub && cd - && tee x", "cd sub; cp -",
        "cd sub && sed -i s/a/b/ -x", "cd sub; cd ..; sed -n p -x",
    ],
)  # fmt: skip
def test_a_denied_file_is_found_below_every_folder_that_the_line_enters(project: Path, command: str) -> None:
    permissions = Permissions(
        Rules(allow=["Bash"], deny=["Edit(sub/x)", "Edit(sub/deep/y)", "Edit(sub/-)", "Edit(sub/-x)"])
    )
    assert isinstance(on_line(permissions, command, project), Deny)


@pytest.mark.parametrize(
    "command",
    [
        "cd && cat .key", "cd; cat .key", "cd -L && cat .key", "cd -- && cat .key", "cd . && cd && cat .key",
        "command cd && cat .key", "cd ~ && env cat .key", "bash -c 'cd; cat .key'", "cd sub && env rm x",
        "cd sub && sh -c 'rm x'", "sh -c 'cd sub && rm x'", "cd .; " * 70 + "cd sub; rm x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
def test_a_denied_file_is_found_after_a_change_to_the_home_folder_and_in_wrappers(
    project: Path, command: str, mode: Mode
) -> None:
    permissions = Permissions(Rules(allow=["Bash"], deny=["Read(~/.key)", "Edit(sub/x)"]), mode)

    assert isinstance(on_line(permissions, command, project), Deny)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("rm 1 2>&1>f", "1"), ("rm 1 >& 1>f", "1"), ("env rm 1 <&1>f", "1"), ("rm 1 >&\\\n1>f", "1"),
        ("rm \u0663>f", "\u0663"), ("rm {1}>f", "{1}"), ("cat 2>&- 1", "1"), ("rm 0<x 1", "1"),
    ],
)  # fmt: skip
def test_only_the_number_of_a_stream_is_not_a_file(project: Path, command: str, name: str) -> None:
    permissions = Permissions(Rules(deny=[f"Edit({name})", f"Read({name})"]), "bypassPermissions")

    assert isinstance(on_line(permissions, command, project), Deny)


@pytest.mark.parametrize("command", ["jq . f -- -x/../../y", "jq . -- -x/../../y", "git grep x f -- -x/../../y"])
def test_a_rule_does_not_cover_a_parent_folder_in_an_option(project: Path, command: str) -> None:
    permissions = Permissions(Rules(allow=["Bash(jq:*)", "Bash(git:*)"]))

    assert isinstance(on_line(permissions, command, project), Ask)


@pytest.mark.parametrize("folder", ["cd -", "pushd", "popd", 'cd "$X"', "".join(f"cd d{n}; " for n in range(9))])
def test_a_name_of_a_denied_file_in_an_unknown_folder_is_asked_about(project: Path, folder: str) -> None:
    permissions = Permissions(Rules(allow=["Bash"], deny=["Read(~/.key)"]))

    assert isinstance(on_line(permissions, f"{folder}; cat .key", project), Ask)


@pytest.mark.parametrize(
    ("option", "runs"),
    [
        ("-x", True), ("--x=/etc/passwd", False), ("-.git", True), ("-x..y", False), ("-x/../y", False),
        ("-x..", False),
        ("--x=../y", False), ("-x.", False), ("'-x*'", False), ("'-x$X'", False), ("-x/.git/config", False),
        ("-x~1", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["rm a", "tee -a a", "sed -n p", "touch a", "mkdir a"])
def test_an_option_after_a_file_to_change_is_such_a_file(project: Path, command: str, option: str, runs: bool) -> None:
    permissions = Permissions(Rules(allow=[f"Bash({name}:*)" for name in ("rm", "tee", "sed", "touch", "mkdir")]))

    assert isinstance(on_line(permissions, f"{command} {option}", project), Allow) is runs


@pytest.mark.parametrize(
    "command",
    ["diff a --sub/k.pem", "cat - -k.pem", "head a -- -k.pem", "0< a tee sub/x", "cd s* && cat x", "TEE sub/x"],
)
def test_a_denied_file_may_be_an_option_or_in_an_unknown_folder(project: Path, command: str) -> None:
    permissions = Permissions(Rules(deny=["Read(**/*.pem)", "Read(//etc/**)", "Edit(sub/x)"]), "bypassPermissions")

    assert isinstance(on_line(permissions, command, project), (Ask, Deny))
    assert isinstance(on_line(permissions, "cd sub && cat /usr/x", project), Allow)


@pytest.mark.parametrize("command", ["rm ../a -f", "touch -- -c", "mkdir ../y -p", "tee ../a -a", "cp -tx", "mv -- -x"])
@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
def test_an_option_after_a_file_to_change_may_be_a_denied_file(project: Path, command: str, mode: Mode) -> None:
    permissions = Permissions(Rules(allow=["Bash"], deny=["Edit(sub/**)"]), mode)

    assert isinstance(on_line(permissions, f"cd sub && {command}", project), Deny)


@pytest.mark.parametrize(
    ("command", "runs"),
    [("wc -l/.. a", False), ("wc a -l/.. b", False), ("diff - -t/../x a", False), ("tail a -n/x", False)],
)
def test_an_option_with_a_parent_folder_after_a_file_is_asked_about(project: Path, command: str, runs: bool) -> None:
    assert isinstance(on_line(Permissions(), command, project), Allow) is runs
    granted = Permissions(Rules(allow=["Bash(wc:*)", "Bash(diff *)", "Bash(tail:*)"]))
    assert isinstance(on_line(granted, command, project), Allow) is runs


@pytest.mark.parametrize(
    "command",
    ["env touch .git/config", ">x env rm .bashrc", "env -i A=1 cp a ~/.profile", "/usr/bin/env mkdir $HOME/.profile"],
)
def test_a_protected_file_is_found_inside_env(project: Path, command: str) -> None:
    permissions = Permissions(Rules(allow=["Bash"]), refusals=profile("2.1.327").refusals)

    assert isinstance(on_line(permissions, command, project), Ask)
    assert isinstance(on_line(permissions, "env touch x", project), Allow)


@pytest.mark.parametrize("name", ["a\\b", ".\\x", "x.y\\z"])
def test_a_backslash_in_a_name_is_an_ordinary_character(project: Path, name: str) -> None:
    request = make_request("Write", project, file_path=f"{project}/{name}", content="")

    assert isinstance(decide_request(EDITS, request), Allow)
    assert isinstance(on_line(EDITS, f"cat '{name}'", project), Allow)


@pytest.mark.parametrize("name", ["x.", "x~1", "x.nul", "x.\\y"])
def test_a_search_below_an_ambiguous_name_is_asked_about(project: Path, name: str) -> None:
    request = make_request("Grep", project, pattern="x", path=name)
    assert isinstance(decide_request(Permissions(), request), Allow)  # the search fails, because nothing is there

    (project / name).mkdir()

    assert isinstance(decide_request(Permissions(), request), Ask)
    assert isinstance(decide_request(Permissions(Rules(allow=["Grep"])), request), Allow)


@pytest.mark.parametrize(
    "command",
    [
        "cat ../outside/secret", "cat sub/../../outside/secret", "cat ./sub/./../../outside/secret",
        "cat @P/../outside/secret", "cat @P//../outside/secret", "cat ..//outside/secret",
        "cat /../etc/passwd", "cat //etc/passwd", "cat ///etc/passwd", "ls ..", "ls ../",
        "ls sub/../..",
        "cat out/f", "cat out//f", "cat ./out/./f", "cat out/../secret", "cat out/../folder/f",
        "cat file", "cat up/outside/secret", "cat up/project/../outside/secret", "cat new",
        "cat down/../../../outside/secret", "cat down/../../a", "ls out", "ls out/", "ls out/..",
        "grep -r x out", "find out/ -name x", "cat here/a", "cat here/../outside/secret",
        "cat /proc/self/cwd/a", "cat /proc/self/cwd/../outside/secret",
        "cat /proc/self/root/etc/passwd", "cat /dev/fd/3", "cat < /dev/fd/3", "cat streams/3",
        "cat ~", "cat ~/x", "cat ~/../outside/secret", "cat ~root/x", "cat ~+/x", "cat ~-/x",
        "cd .. && cat a", "cd out && cat f", "cd out/.. && cat secret", "cd up && ls",
        "cd down && cat ../../a", "cd sub/deep && cat ../../../outside/secret", "cd / && ls",
        "cat < ../outside/secret", "cat < out/f", "cat < out/../secret",
        "cat sub/../a", "cat sub/deep/../../a", "cat @P//sub/../a", "ls sub/..", "cd sub/.. && cat a",
    ],
)  # fmt: skip
def test_reads_outside_the_project_are_asked_about_in_any_spelling(project: Path, command: str) -> None:
    assert isinstance(on_line(Permissions(), command, project), Ask)


@pytest.mark.parametrize(
    "command",
    [
        "cat a", "cat ./a", "cat .//a", "cat @P/a", "ls sub/", "ls .", "ls ./", "cat down/x", "ls down/",
        "cat ../project/a", "cat env", "cat -- -x",
    ],
)  # fmt: skip
def test_indirect_paths_to_files_of_the_project_are_allowed(project: Path, command: str) -> None:
    assert isinstance(on_line(Permissions(), command, project), Allow)


@pytest.mark.parametrize(
    "command",
    [
        "echo x > ../n", "echo x > out/n", "echo x > out/../n", "echo x > up/n", "echo x > new",
        "echo x > sub/../../n", "touch out/../n", "touch new", "mkdir out/n", "rm out/f",
        "mv a out/", "cp a out/../n", "cp a ~/n", "sed -i s/a/b/ out/f", "echo x > here/n",
        "echo x > /proc/self/cwd/n", "echo x > /dev/fd/3", "echo x >> streams/3",
        "echo x > .git/config", "echo x > git/config", "echo x > sub/../.git/config",
        "echo x > .GIT/config", "touch .Git/hooks/x", "touch down/../../.git/x",
    ],
)  # fmt: skip
def test_writes_outside_the_project_are_asked_about_in_accept_edits_mode(project: Path, command: str) -> None:
    assert isinstance(on_line(EDITS, command, project), Ask)


COSTLY = (
    "..", "../project", ".", "./", "sub/..", "@P/", "@P//", "//", "//home", "/../home", "/./home/",
    "~/", "up/", "up/project", "/proc/self/cwd", "here/", "/proc/self/root/home", r"\\", r"'\*'",
)  # fmt: skip
WAYS = (
    ".env", "./.env", ".//.env", ".env/", "sub/../.env", "env", "@P/.env", "@P//.env", "//@P/.env",
    "down/../../.env", ".en?", ".env*", ".e{nv,x}", "{a,.env}", "{a,{b,.env}}", ".en{u..w}",
    "~/../project/.env", "/proc/self/cwd/.env", "here/.env", "/proc/self/root@P/.env",
    "/proc/self/task/1/cwd/.env", "~/.ssh/id", "out/f", "out/../secret", "@O/secret", "/@O/secret",
    "file", "up/outside/secret",
)  # fmt: skip


@pytest.mark.parametrize(
    "command", [*(f"rm -rf {what}" for what in COSTLY), *("ls | rm > sub/x -rf /", "true && rm 2>&1 -rf ~")]
)
def test_dangerous_removals_are_recognized_behind_links_and_dots(project: Path, command: str) -> None:
    anything_goes = Permissions(Rules(allow=["Bash"]), "bypassPermissions")

    assert isinstance(on_line(anything_goes, command, project), Ask)


@pytest.mark.parametrize(
    "command",
    [*(f"cat {way}" for way in WAYS), *("dd if=.env", "head -c5 < .env", "cd sub && cat ../.env", "dd if=~/.ssh/id")],
)
def test_a_denied_file_is_denied_on_every_path_to_it(project: Path, command: str) -> None:
    rules = Rules(
        allow=["Bash(cat:*)", "Bash(dd:*)", "Bash(head:*)"],
        deny=["Read(./.env)", "Read(~/.ssh/**)", spelled("Read(/@O/**)", project)],
    )

    assert isinstance(on_line(Permissions(rules), command, project), Deny)


@pytest.mark.parametrize("cwd", [".", "sub", "/"])
@pytest.mark.parametrize(
    "command",
    [
        "cat env", "cat a env", "cat --file=env", "cat x=env", "cat ./env",
        "cat sub/../env", "cat .//gone/x", "cat ./gone/x", "cat gone/x", "cat gone/./x",
        "cat > env", "cat 2> gone/x", "cat a 2>/dev/null < env", "cd sub && cat ../env",
        "cd down && cat ../../env", "cat new/x", "for f in env; do cat $f; done", "cat @P/gone/x",
        "cat link/gone/x", "sudo cat env",
    ],
)  # fmt: skip
def test_a_denied_file_is_denied_from_any_folder(
    project: Path, command: str, cwd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "-n").symlink_to(".env")
    (project / "link").symlink_to(".")
    outside = spelled("Read(/@O/new/**)", project)
    rules = Rules(allow=["Bash"], deny=["Read(./.env)", "Read(./gone/**)", outside])
    monkeypatch.chdir(project / cwd)

    assert isinstance(on_line(Permissions(rules), command, project), Deny)


def test_a_linked_folder_is_checked_by_both_its_names(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = project.parent / "other"
    link.symlink_to(project)
    rules = Rules(allow=["Bash"], deny=[f"Read(/{project}/gone/**)", f"Read(/{link}/lost/**)"])
    monkeypatch.chdir(link)

    for name in ("gone/x", "lost/x"):
        decision = decide_request(Permissions(rules), bash_request(f"cat {name}", link))
        assert isinstance(decision, Deny), name


@pytest.mark.parametrize("command", ["cat a", "dd if=a", "cat sub/*"])
def test_other_files_are_not_denied(project: Path, command: str) -> None:
    rules = Rules(allow=["Bash(cat:*)", "Bash(dd:*)"], deny=["Read(./.env)", "Read(./x)"])
    (project / ".env").unlink()

    assert isinstance(on_line(Permissions(rules), command, project), Allow)


def test_braces_are_expanded_and_too_many_match_any_path() -> None:
    assert set(expand_braces("{a,b}{1,2}")) == {"a1", "b1", "a2", "b2"}
    assert set(expand_braces("x{a,{b,c}}")) == {"xa", "xb", "xc"}
    assert list(expand_braces("x{9..12}{a..c}")) == ["x[-0-9]**"]
    assert list(expand_braces("{}{a}")) == ["{}{a}"]
    assert list(expand_braces("{a,b}" * 500 + ".env")) == ["*.env"]


@pytest.mark.parametrize(
    "path",
    [
        "../outside/n", "sub/../../outside/n", "@P/../outside/n", "out/n", "file", "new", "up/n",
        "~/n", "~/../outside/n", "/proc/self/cwd/a", "here/a", "/dev/fd/3", "streams/3",
        "//etc/passwd", ".git/x", "git/x", ".GIT/x", "sub/../.git/x", "@P//.git//x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("tool", ["Write", "Edit", "NotebookEdit"])
def test_file_tools_ask_before_they_write_outside_the_project(project: Path, path: str, tool: str) -> None:
    key = "notebook_path" if tool == "NotebookEdit" else "file_path"
    request = make_request(tool, project, **{key: spelled(path, project)})

    assert isinstance(decide_request(EDITS, request), Ask)


class SwitchingSession:
    """A session with file tools that runs a function right after each decision."""

    def __init__(self, project: Path, switch: Callable[[], object]) -> None:
        client = profile("2.1.327")

        def last(request: PermissionRequest) -> Decision | None:
            decision = EDITS.fallback(request)
            assert isinstance(decision, Allow)
            switch()
            return decision

        self._runner = Runner(
            [write_tool(client), read_tool(client)],
            cwd=project,
            profile=client,
            workspace=new_workspace(project),
            policies=EDITS.policies,
            fallback=last,
        )

    async def write(self, path: Path) -> Finished:
        tool_input = {"file_path": str(path), "content": "new"}
        block = {"type": "tool_use", "id": "toolu_a", "name": "Write", "input": tool_input}
        return (await self._runner.finish([block]))[0]


def replace_by_link(folder: Path, target: Path) -> None:
    """Move a folder away and put a link in its place."""
    folder.rename(folder.parent / "aside")
    folder.symlink_to(target)


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["sub/n", "sub/deep/n", "sub/deep/more/n", "down/n"])
async def test_a_folder_replaced_by_a_link_after_approval_does_not_redirect_a_write(project: Path, name: str) -> None:
    outside = project.parent / "outside"
    (outside / "deep").mkdir()
    before = sorted(outside.rglob("*"))
    session = SwitchingSession(project, lambda: replace_by_link(project / "sub", outside))

    finished = await session.write(project / name)

    assert finished.span.state == "failed"
    assert sorted(outside.rglob("*")) == before


@pytest.mark.anyio
async def test_a_file_replaced_by_a_link_after_approval_is_not_followed(project: Path) -> None:
    target = project.parent / "outside" / "target"
    session = SwitchingSession(project, lambda: (project / "n").symlink_to(target))

    finished = await session.write(project / "n")

    assert finished.span.state == "denied"
    assert not target.exists()


@pytest.mark.anyio
async def test_a_link_changed_after_approval_is_followed_to_its_approved_target(project: Path) -> None:
    def redirect() -> None:
        (project / "down").unlink()
        (project / "down").symlink_to(project.parent / "outside")

    finished = await SwitchingSession(project, redirect).write(project / "down" / "n")

    assert finished.span.state == "succeeded"
    assert (project / "sub" / "deep" / "n").read_text(encoding="utf-8") == "new"
    assert not (project.parent / "outside" / "n").exists()


@pytest.mark.anyio
async def test_dots_after_a_link_resolve_as_they_were_checked(project: Path) -> None:
    finished = await SwitchingSession(project, lambda: None).write(Path(f"{project}/out/../n"))

    assert finished.span.state == "succeeded"
    assert (project / "n").read_text(encoding="utf-8") == "new"
    assert not (project.parent / "outside" / "n").exists()
    assert os.listdir(project.parent / "outside" / "folder") == ["f"]  # noqa: PTH208 - names only


@pytest.mark.parametrize("command", ["cat hard", "cat HARD/../.ENV", "head -n 1 .ENV", "grep x hard"])
def test_a_denied_file_is_denied_under_each_of_its_names(tmp_path: Path, command: str) -> None:
    (tmp_path / ".env").write_text("x\n", encoding="utf-8")
    (tmp_path / "hard").hardlink_to(tmp_path / ".env")
    permissions = Permissions(Rules(allow=["Bash"], deny=["Read(./.env)"]))

    assert isinstance(decide_request(permissions, bash_request(command, tmp_path)), Deny)
    assert isinstance(
        decide_request(permissions, make_request("Read", tmp_path, file_path=str(tmp_path / "hard"))), Deny
    )
    assert isinstance(decide_request(permissions, bash_request("cat other", tmp_path)), Allow)


@pytest.mark.parametrize("command", ["touch x", "git push", "echo x > y", "npm test"])
def test_rules_do_not_extend_what_plan_mode_may_do(tmp_path: Path, command: str) -> None:
    permissions = Permissions(Rules(allow=["Bash", "Edit", "Write"]), mode="plan")

    assert not isinstance(decide_request(permissions, bash_request(command, tmp_path)), Allow)
    assert isinstance(decide_request(permissions, bash_request("ls", tmp_path)), Allow)


@pytest.mark.parametrize("tool", ["Edit", "Write"])
def test_a_new_client_refuses_to_change_a_file_through_a_link(tmp_path: Path, tool: str) -> None:
    (tmp_path / "a.txt").write_text("x\n", encoding="utf-8")
    (tmp_path / "link").symlink_to("a.txt")
    check = guard_policy("bypassPermissions", profile("2.1.327").refusals)

    refused = check(make_request(tool, tmp_path, file_path=str(tmp_path / "link")))

    assert isinstance(refused, Deny)
    assert f"Write to the link's target path instead: {tmp_path}/a.txt." in str(refused.reason)
    assert check(make_request(tool, tmp_path, file_path=str(tmp_path / "a.txt"))) is None
