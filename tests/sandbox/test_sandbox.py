"""Commands in a sandbox behave as without it, except for what the sandbox refuses, which is reported."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import venv
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import psutil
import pytest

from tests.requirement import requirement
from toolspan import Allow, Call, Deny, Permissions, Rules, Sandbox, Session
from toolspan.runtime import Hooks, PermissionRequest
from toolspan.runtime.permissions import PolicyStack
from toolspan.runtime.process.tree import find_survivors
from toolspan.session import SingleCallRunner
from toolspan.types import Finished, LiveEvent, SandboxDenied

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bubblewrap")]


class Project:
    """A session in a sandbox, its calls and its events."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.events: list[LiveEvent] = []

    async def bash(self, command: str, **arguments: object) -> Finished:
        result = await SingleCallRunner(self.session).run_call("Bash", {"command": command, **arguments})
        return result.finished


@asynccontextmanager
async def open_project(
    folder: Path,
    sandbox: Sandbox | None = None,
    permissions: Permissions | PolicyStack | None = None,
    **options: object,
) -> AsyncIterator[Project]:
    events: list[LiveEvent] = []
    async with Session(
        cwd=folder,
        sandbox=sandbox or Sandbox(),
        permissions=permissions or Permissions(),
        transcript=None,
        direct=[events.append],
        **options,  # type: ignore[arg-type]
    ) as session:
        project = Project(session)
        project.events = events
        yield project


async def test_a_command_runs_without_a_question_and_leaves_its_files_in_the_project(folder: Path) -> None:
    async with open_project(folder) as project:
        finished = await project.bash("echo made > file; mkdir sub; cd sub; pwd")
        assert (finished.content, project.session.cwd) == (f"{folder}/sub", folder / "sub")
        assert (await project.bash("echo $$ > /tmp/kept; cat /tmp/kept")).span.state == "succeeded"
        assert (await project.bash("ls /tmp/kept")).content == "/tmp/kept"  # one /tmp for the session

    assert sorted(path.name for path in folder.iterdir()) == ["file", "sub"]
    assert not Path("/tmp/kept").exists()


@pytest.mark.parametrize(
    ("command", "code"),
    [("exit 7", 7), ("kill -9 $$", 1), ("kill $$", 144), ("bash -c 'kill -9 $$'", 137), ("false || (exit 130)", 130)],
)
async def test_exit_codes_and_signals_are_those_of_the_command(folder: Path, command: str, code: int) -> None:
    async with (
        open_project(folder) as inside,
        Session(cwd=folder, permissions=Permissions.allow_all(), transcript=None) as outside,
    ):
        result = await SingleCallRunner(outside).run_call("Bash", {"command": command})
        finished = await inside.bash(command)

    assert str(finished.content).splitlines()[0] == f"Exit code {code}"
    assert str(result.finished.content).splitlines()[0] == f"Exit code {code}"


async def test_a_cancelled_command_leaves_no_process(folder: Path) -> None:
    async with open_project(folder) as project:
        with anyio.move_on_after(0.5):
            await project.bash("setsid sleep 1111 & sleep 1111")
        calls = [event.call.id for event in project.events if hasattr(event, "call")]
        assert [find_survivors(call) for call in calls] == [[]]


async def test_a_daemon_without_environment_runs_until_the_session_ends(folder: Path) -> None:
    daemon = "env -i setsid sh -c 'echo up > up; exec sleep 1112.5' < /dev/null > /dev/null 2>&1 &"

    def find_daemons() -> list[int]:
        lines = {process.pid: process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])}
        return [pid for pid, line in lines.items() if line == ["sleep", "1112.5"]]

    async with open_project(folder) as project:
        finished = await project.bash(f"{daemon} until [ -e up ]; do sleep 0.01; done")
        assert finished.span.state == "succeeded"
        assert (await project.bash("true")).span.state == "succeeded"
        assert find_daemons()

    assert not find_daemons()


@pytest.mark.skipif(os.getuid() != 0, reason="the files belong to root")
@pytest.mark.parametrize("path", ["/proc/sys/kernel/hostname", "/proc/irq/default_smp_affinity", "/proc/fs"])
async def test_settings_of_the_kernel_are_read_only_for_root(folder: Path, path: str) -> None:
    if not Path(path).exists():
        pytest.skip(f"this kernel has no {path}")
    async with open_project(folder, permissions=Permissions.allow_all()) as project:
        finished = await project.bash(f"touch {path}")

    assert "Read-only file system" in str(finished.content)


@pytest.mark.usefixtures("curl")
async def test_a_background_command_serves_later_commands_until_it_is_stopped(folder: Path) -> None:
    (folder / "index.html").write_text("served")
    serve = "python3 -m http.server 8137 --bind 127.0.0.1"
    async with open_project(folder) as project:
        started = await project.bash(serve, run_in_background=True)
        fetch = "for i in $(seq 100); do curl -s http://127.0.0.1:8137/index.html && exit; sleep 0.1; done; exit 1"
        assert (await project.bash(fetch)).content == "served"
        assert find_survivors(started.call_id)

    assert not find_survivors(started.call_id)


async def test_a_timeout_ends_the_command_with_its_output(folder: Path) -> None:
    async with open_project(folder) as project:
        finished = await project.bash("sleep 0; echo before; sleep 60", timeout=1500)

    assert finished.span.state == "timed_out"
    assert finished.content == "Exit code 143\nCommand timed out after 1s\nbefore"


# Violations


async def test_a_denied_path_is_a_note_for_the_model_an_event_and_an_error_kind(
    folder: Path, user_folder: Path
) -> None:
    async with open_project(folder) as project:
        finished = await project.bash("echo x > ../outside")

    assert (finished.span.state, finished.span.error_kind) == ("failed", "sandbox_denied")
    assert f"The sandbox denied writing {user_folder}/outside." in str(finished.content)
    (event,) = [event for event in project.events if isinstance(event, SandboxDenied)]
    assert [(item.action, item.target) for item in event.violations] == [("write", f"{user_folder}/outside")]
    assert finished.beside == {"sandboxed": True}


@pytest.mark.parametrize(
    "command",
    [
        "cat missing",
        "echo x > sub/missing/file",
        "cat secret",  # no permission outside either
        "echo 'Read-only file system: /etc/passwd'; false",  # nobody may write there
        "curl -sS http://127.0.0.1:1",  # nothing listens there
        "grep -r needle . || exit 2",
    ],
)
async def test_an_ordinary_failure_is_not_attributed_to_the_sandbox(folder: Path, command: str) -> None:
    if os.getuid() == 0 and command.startswith(("cat secret", "echo 'Read")):
        pytest.skip("root may read and write everything outside")
    (folder / "secret").touch(mode=0)
    async with open_project(folder) as project:
        finished = await project.bash(command)

    assert finished.span.state == "failed"
    assert finished.span.error_kind != "sandbox_denied"
    assert not [event for event in project.events if isinstance(event, SandboxDenied)]


@pytest.mark.parametrize("version", ["2.1.327", "2.0.65"])
async def test_a_denial_in_a_background_command_is_reported_when_it_ends(
    folder: Path, user_folder: Path, version: str
) -> None:
    transcript, target = user_folder / "session.jsonl", user_folder / "outside"
    note = f"The sandbox denied writing {target}."
    events: list[LiveEvent] = []
    async with Session(
        cwd=folder, sandbox=Sandbox(), transcript=transcript, direct=[events.append], profile=version
    ) as session:
        runner = SingleCallRunner(session)
        started = await runner.run_call("Bash", {"command": f"touch {target}", "run_in_background": True})
        (task,) = session.runner.runner_context.workspace.tasks
        await task.wait()
        assert not [event for event in events if isinstance(event, SandboxDenied)]
        if version == "2.0.65":  # which has a tool for the output of background commands
            later = await runner.run_call("TaskOutput", {"task_id": task.id})
            assert note in str(later.finished.content)
        else:
            later = await runner.run_call("Bash", {"command": "true"})
            assert note in str(later.companions)

    assert (started.finished.span.state, note in str(started.finished.content)) == ("succeeded", False)
    (event,) = [event for event in events if isinstance(event, SandboxDenied)]
    assert (event.call_id, event.violations[0].target) == (started.finished.call_id, str(target))
    (group,) = run_json("errors", str(transcript))
    assert (group["kind"], group["background"], group["message"]) == ("sandbox_denied", 1, note.rstrip("."))
    assert note in str(run_json("show", str(transcript), str(started.finished.call_id)))
    (explanation,) = run_json("why", str(started.finished.call_id), str(transcript))
    assert str(explanation["sandbox"]).startswith(note)


def run_json(*words: str) -> list[dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-m", "toolspan", *words, "--json"], capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.usefixtures("curl")
async def test_refused_addresses_and_hidden_files_are_named(folder: Path, user_folder: Path) -> None:
    secret = user_folder / "key"
    secret.write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        async with open_project(folder, Sandbox(deny_read=[secret])) as project:
            refused = await project.bash("curl -sSf http://example.com/")
            unreachable = await project.bash(f"curl -sS http://127.0.0.1:{port}/")
            hidden = await project.bash(f"cat {secret}")

    assert "denied connecting to example.com:80." in str(refused.content)
    assert f"denied connecting to localhost:{port}." in str(unreachable.content)
    assert f"denied reading {secret}." in str(hidden.content)
    assert {span.error_kind for span in (refused.span, unreachable.span, hidden.span)} == {"sandbox_denied"}


async def test_only_allowed_unix_sockets_can_be_reached(folder: Path, user_folder: Path) -> None:
    paths = [user_folder / "allowed", user_folder / "other"]
    connect = "python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])' "
    with socket.socket(socket.AF_UNIX) as allowed, socket.socket(socket.AF_UNIX) as other:
        for server, path in zip((allowed, other), paths, strict=True):
            server.bind(str(path))
            server.listen()
        async with open_project(folder, Sandbox(allow_unix_sockets=paths[:1])) as project:
            states = [(await project.bash(connect + str(path))).span.state for path in paths]

    assert states == ["succeeded", "failed"]


async def test_folders_above_the_project_and_allowed_folders_cannot_be_replaced(user_folder: Path) -> None:
    work, outside = user_folder / "work", user_folder / "outside"
    for folder in (work / "team/project", work / "deep/inner/allowed", outside):
        folder.mkdir(parents=True)
    sandbox = Sandbox(allow_write=[work / "deep/inner/allowed", work])
    async with open_project(work / "team/project", sandbox) as project:
        for name, place in (("team", "team/project"), ("deep", "deep/inner/allowed")):
            await project.bash(
                f"mv {work}/{name} {work}/old; mkdir -p {work}/{place}/..; ln -sfn {outside} {work}/{place}"
            )
            await project.bash(f"cd /; echo escaped > {work}/{place}/made; echo escaped > {outside}/{name}")

    assert list(outside.iterdir()) == []
    assert (work / "deep/inner/allowed").is_dir()


# Permissions


async def test_rules_that_deny_or_ask_apply_before_the_sandbox_allows(folder: Path) -> None:
    questions: list[object] = []

    def approver(request: PermissionRequest, ask: object) -> Allow | Deny:
        questions.append(request.input["command"])
        return Allow()

    rules = Rules(deny=["Bash(rm:*)"], ask=["Bash(git push:*)", "Bash"])
    async with open_project(folder, permissions=Permissions(rules, approver=approver)) as project:
        states = [
            (await project.bash(command)).span.state
            for command in ("touch a", "rm a", "git push", "rm -rf ~", "touch a & wait")
        ]

    assert states == ["succeeded", "denied", "failed", "denied", "succeeded"]
    assert questions == ["git push"]


async def test_a_call_can_ask_to_run_outside_unless_the_settings_forbid_it(folder: Path, user_folder: Path) -> None:
    outside = user_folder / "made"
    async with open_project(folder) as project:
        denied = await project.bash(f"touch {outside}", dangerouslyDisableSandbox=True)
    permissions = Permissions(approver=lambda request, ask: Allow())
    async with open_project(folder, permissions=permissions) as project:
        allowed = await project.bash(f"touch {outside}", dangerouslyDisableSandbox=True)
    outside.unlink()
    async with open_project(folder, Sandbox(allow_unsandboxed=False), permissions) as project:
        ignored = await project.bash(f"touch {outside}", dangerouslyDisableSandbox=True)

    assert [item.span.state for item in (denied, allowed, ignored)] == ["denied", "succeeded", "failed"]
    assert ignored.span.error_kind == "sandbox_denied"


async def test_excluded_commands_and_regular_permissions_are_asked_about(folder: Path, user_folder: Path) -> None:
    rules = Rules(allow=["Bash(touch:*)"])
    sandbox = Sandbox(excluded_commands=["touch"])
    async with open_project(folder, sandbox, Permissions(rules, "bypassPermissions")) as project:
        outside = await project.bash(f"touch {user_folder}/made")
        inside = await project.bash(f"$(echo sh) -c 'echo x > {user_folder}/other'")
    async with open_project(folder, Sandbox(auto_allow=False)) as project:
        asked = await project.bash("npm test")

    assert (outside.span.state, asked.span.state) == ("succeeded", "denied")
    assert inside.span.error_kind == "sandbox_denied"


@requirement("sandbox.allows-if-secrets-are-hidden")
async def test_a_sandbox_that_shows_all_files_asks_as_without_one(folder: Path) -> None:
    questions: list[object] = []

    def approver(request: PermissionRequest, ask: object) -> Allow | Deny:
        questions.append(request.input["command"])
        return Allow()

    commands = ["ls", "cat /etc/hostname", "python3 -c 'print(1)'", "touch made"]
    for sandbox in (Sandbox(strict=False), Sandbox(files_disabled=True), Sandbox()):
        async with open_project(folder, sandbox, Permissions(approver=approver)) as project:
            assert [(await project.bash(command)).span.state for command in commands] == ["succeeded"] * len(commands)

    assert questions == commands[1:] * 2  # none about the last sandbox


async def test_a_sandbox_without_limits_for_files_shows_the_home_folder(
    folder: Path, user_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = user_folder / "home"
    home.mkdir()
    (home / ".netrc").write_text("visible\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    async with open_project(folder, Sandbox(files_disabled=True), Permissions.allow_all()) as project:
        finished = await project.bash("cat ~/.netrc && touch ~/made && echo ${XDG_CACHE_HOME-unchanged}")

    assert finished.content == "visible\nunchanged"
    assert (home / "made").exists()


@pytest.mark.usefixtures("curl")
async def test_an_unknown_domain_is_asked_about_once(folder: Path) -> None:
    asked: list[object] = []

    async def approver(request: PermissionRequest, ask: object) -> Allow | Deny:
        asked.append(request.input.get("url"))
        return Deny("no")

    async with open_project(folder, permissions=Permissions(approver=approver)) as project:
        await project.bash("curl -s http://unknown.example/ ; curl -s http://unknown.example/a")

    assert asked == ["http://unknown.example:80/"]


# Files that decide what runs later


async def test_settings_and_git_hooks_cannot_be_created_and_leave_no_trace(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    subprocess.run(["git", "-C", str(folder), "config", "core.hooksPath", ".githooks"], check=True)
    (folder / ".git/hooks").rename(folder / ".git/old-hooks")
    async with open_project(folder) as project:
        finished = await project.bash("sh -c 'echo {} > .claude/settings.json'; sh -c 'echo x > .git/hooks/pre-commit'")
        assert (await project.bash("sh -c 'echo x > .githooks/pre-commit'")).span.error_kind == "sandbox_denied"
        commit = "git -c user.name=a -c user.email=b commit -q --allow-empty -m x && git log --oneline | wc -l"
        assert (await project.bash(commit)).content == "1"

    assert f"{folder}/.claude/settings.json" in str(finished.content)
    assert not (folder / ".claude").exists()
    assert not (folder / ".githooks").exists()
    assert not any((folder / ".git/hooks").iterdir())


async def test_a_worktree_can_be_committed_to_but_not_pointed_elsewhere(folder: Path, user_folder: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=b", "-C", str(folder)]
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    tree = user_folder / "tree"
    subprocess.run([*git, "worktree", "add", "-q", str(tree)], check=True)
    common = f"{folder}/.git"
    async with open_project(tree, permissions=Permissions.allow_all()) as project:
        commit = "echo a > a; git add a; git -c user.name=a -c user.email=b commit -q -m y"
        assert (await project.bash(commit)).span.state == "succeeded"
        for file in (".git", f"{common}/hooks/pre-commit", f"{common}/worktrees/tree/commondir", f"{common}/config"):
            assert (await project.bash(f"sh -c 'echo x > {file}'")).span.error_kind == "sandbox_denied"


async def test_a_command_cannot_gain_rights_for_the_next_one(folder: Path, user_folder: Path) -> None:
    outside = user_folder / "outside"
    outside.mkdir()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / "build").mkdir()
    sandbox = Sandbox(allow_write=["build"], allow_unix_sockets=["app.sock"])
    async with open_project(folder, sandbox, Permissions.allow_all()) as project:
        (outside / "file").write_text("old")
        await project.bash(f"rmdir build; ln -s {outside} build; ln -s {outside}/file app.sock")
        assert (await project.bash("sh -c 'echo x > build/made'")).span.state == "failed"
        assert (await project.bash("sh -c 'echo x > app.sock'")).span.state == "failed"
        forged = await project.bash("mkdir evil; sh -c 'echo ../evil > .git/commondir'")
        made = await project.bash(f"sh -c 'git init -q sub; rm sub/.git/config; ln -s {outside}/new sub/.git/config'")
        assert made.span.state == "succeeded"
    async with open_project(folder / "sub") as project:
        await project.bash("true")

    assert f"denied writing {folder}/.git/commondir" in str(forged.content)
    assert not (folder / ".git/commondir").exists()
    assert [path.read_text() for path in outside.iterdir()] == ["old"]


async def test_start_up_files_cannot_be_created_in_a_home_that_is_the_project(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    async with open_project(folder, permissions=Permissions.allow_all()) as project:
        finished = await project.bash("sh -c 'echo x > ~/.zshrc'; sh -c 'echo x > ~/.bashrc'; sh -c 'echo x > ~/notes'")

    assert [path.name for path in folder.iterdir()] == ["notes"]
    assert finished.span.state == "succeeded"


# Hooks and servers


async def test_a_hook_runs_inside_if_its_configuration_requests_it(folder: Path, user_folder: Path) -> None:
    settings = folder.parent / "settings.json"
    hook = {"type": "command", "command": f"touch {user_folder}/by-hook; touch {folder}/by-hook"}
    hooks = {"PreToolUse": [{"matcher": "Bash", "hooks": [{**hook, "sandbox": True}]}]}
    settings.write_text(json.dumps({"sandbox": {"enabled": True}, "hooks": hooks}))
    rows = run_exec(folder, "true", "--settings", str(settings))

    assert rows[0]["state"] == "succeeded"
    assert (folder / "by-hook").exists()
    assert not (user_folder / "by-hook").exists()


@pytest.mark.parametrize("temporary", ["/tmp", "/var/tmp"])
def test_an_interpreter_in_a_temporary_folder_runs_inside(folder: Path, temporary: str) -> None:
    with TemporaryDirectory(dir=temporary) as environment:
        venv.create(environment, symlinks=True)
        [packages] = Path(environment).glob("lib/python*/site-packages")
        (packages / "all.pth").write_text("\n".join(path for path in sys.path if Path(path).is_dir()))
        python = f"{environment}/bin/python"
        rows = run_exec(folder, f"{python} -I -c 'import sys; print(sys.prefix)'", "--sandbox", python=python)

    assert (rows[0]["state"], rows[0]["content"]) == ("succeeded", environment)


def run_exec(folder: Path, command: str, *options: str, python: str = sys.executable) -> list[dict[str, object]]:
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": command}}
    done = subprocess.run(
        [python, "-m", "toolspan", "exec", "--transcript", "none", *options],
        input=json.dumps({"type": "assistant", "message": {"content": [call]}}),
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "HOME": str(folder.parent)},
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


async def test_python_hooks_are_asked_before_the_sandbox(folder: Path) -> None:
    hooks = Hooks()

    @hooks.pre_tool_use()
    def deny(call: Call) -> Deny:
        return Deny("not today")

    async with open_project(folder, hooks=hooks) as project:
        assert (await project.bash("touch a")).span.state == "blocked_by_hook"
