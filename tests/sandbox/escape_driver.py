"""Plant a world as an ordinary user, make all attempts without and within the sandbox, and print the results.

Run as `python escape_driver.py FOLDER MODE [SETUID-PROGRAM]`; see `test_escapes.py`. Prints `{attempt: [succeeded
without, succeeded within, its result within]}`.
"""

from __future__ import annotations

import ctypes
import json
import os
import pty
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from tests.sandbox import escape_attempts, escape_attempts_more
from tests.sandbox.escape_attempts import ATTEMPTS, FOLLOW_UPS, MARK, World, libc, librt, run_one

SECRETS = [name.removeprefix("read_") for name in ATTEMPTS if name.startswith("read_.")]
READING = ("read_", "secret", "environment_", "names_of_secrets", "size_of_a_secret", "find_secret", "copy_secrets")
"""The beginnings of the names of attempts that succeed in an open sandbox."""
UNCHANGING = ("read_", "secret", "process ", "signal", "socket", "datagram")
"""The beginnings of the names of attempts after which nothing has to be restored."""
LAST = ["plant_python_modules", "exchange_project"]
"""Attempts after which others would find nothing."""


def plant(root: Path, number: int, setuid: str | None) -> World:
    """Create a home, a project and files outside, and the processes and sockets of a busy machine."""
    secret = f"secret-{number}"
    template = root / "template"
    for folder in (
        "outside/core", "spool/crontabs", "spool/atjobs", "home/.local/bin", "home/.local/lib",
        "home/.config/autostart", "home/.config/systemd/user", "project/scripts", "project/.claude",
        "project/.venv/bin", "area/deep/sub",
    ):  # fmt: skip
        (template / folder).mkdir(parents=True)
    for name in ATTEMPTS:
        if name.endswith("_outside") and name not in ("write_outside", "make_folder_outside", "make_fifo_outside",
                                                      "link_outside", "core_dump_outside",
                                                      "link_unnamed_file_outside"):  # fmt: skip
            (template / "outside" / name).write_text("old old old\n")
    (template / "outside/write_through_hard_link").write_text("old\n")
    (template / "outside/write_with_sed").write_text("old\n")
    for file in SECRETS:
        path = template / "home" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(secret)
    (template / "home/.bashrc").write_text("# mine\n")
    project = template / "project"
    (project / ".env").write_text(secret)
    (project / ".mcp.json").write_text('{"mcpServers": {}}')
    (project / ".claude/settings.json").write_text("{}")
    guard = project / "scripts/guard.sh"
    guard.write_text("#!/bin/sh\nexit 0\n")
    guard.chmod(0o755)
    subprocess.run(["git", "init", "-q", "--template=", str(project)], check=True)
    (project / ".git/hooks").mkdir()
    (project / ".gitconfig.shared").write_text("[core]\n")
    with (project / ".git/config").open("a") as config:
        config.write("[include]\n\tpath = ../.gitconfig.shared\n[extensions]\n\tworktreeConfig = true\n")
    for name in ("libs/parser", "libs/parser/modules/lexer"):
        repository = project / ".git/modules" / name
        repository.mkdir(parents=True)
        shutil.copy(project / ".git/HEAD", repository)
        (repository / "config").write_text("[core]\n")
    settings = {
        "sandbox": {"filesystem": {"allowWrite": [f"{root}/area/deep/sub", f"{root}/area"]}},
        "permissions": {"deny": ["Read(./.env)"]},
        "hooks": {"PostToolUse": [{"hooks": [{"type": "command", "command": "$CLAUDE_PROJECT_DIR/scripts/guard.sh"}]}]},
    }
    (template / "home/.claude/settings.json").write_text(json.dumps(settings))
    reset(root)
    world: World = {
        "secret": secret,
        "tmp_name": f"toolspan-escape-{os.getpid()}-{number}",
        "abstract": f"toolspan-escape-{os.getpid()}-{number}",
        "transcript": str(root / "project/t.jsonl"),
        "results": str(root / "project/results.json"),
        **{name: str(root / name) for name in ("home", "project", "outside", "spool", "area")},
    }
    if setuid:
        world["setuid"] = setuid
    (root / "secret").write_text(secret)
    world["descriptor"] = os.open(root / "secret", os.O_RDONLY)
    os.set_inheritable(world["descriptor"], True)
    with (root / "secret").open() as stdin:
        victim = subprocess.Popen(
            ["/bin/bash", "-c", "trap : USR1; while :; do sleep 1000; done", "x", "--victim", secret],
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"VICTIM_SECRET": secret, "PATH": "/usr/bin:/bin"},
            cwd=root / "outside",
            start_new_session=True,
        )
    world["victim"] = victim.pid
    serve_sockets(root, world)
    share_memory(world, number)
    open_pipes(root, world)
    world["key"] = libc.syscall(248, b"user", world["abstract"].encode(), secret.encode(), len(secret), -4)  # add_key
    libc.syscall(250, 5, world["key"], 0x3F3F0000)  # the user may read it
    world["keep"], terminal = pty.openpty()
    world["terminal"] = os.ttyname(terminal)
    os.close(terminal)
    return world


def reset(root: Path) -> None:
    """Restore what attempts have changed."""
    for entry in (root / "template").glob("*/*"):
        target = root / entry.relative_to(root / "template")
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
        target.parent.mkdir(exist_ok=True)
        (shutil.copytree if entry.is_dir() else shutil.copy2)(entry, target)


def serve_sockets(root: Path, world: World) -> None:
    """Serve the secret at stand-ins for the sockets of docker, D-Bus, systemd and key agents."""
    (root / "run").mkdir()
    places = {
        "docker_socket": root / "run/docker.sock", "bus_socket": root / "run/bus",
        "systemd_socket": root / "run/private", "home_socket": root / "home/S.gpg-agent",
        "project_socket": root / "project/app.sock", "agent_socket": Path("/tmp", f"{world['tmp_name']}.agent"),
    }  # fmt: skip
    servers = []
    for name, path in places.items():
        world[name] = str(path)
        servers.append(socket.socket(socket.AF_UNIX))
        servers[-1].bind(str(path))
    servers.append(socket.socket(socket.AF_UNIX))
    servers[-1].bind(b"\0" + world["abstract"].encode())
    servers.append(socket.create_server(("127.0.0.1", 0)))
    world["port"] = servers[-1].getsockname()[1]
    datagram = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    world["datagram_socket"] = str(root / "run/log")
    datagram.bind(world["datagram_socket"])
    world["keep_socket"] = datagram.detach()

    def serve(server: socket.socket) -> None:
        while True:
            with server.accept()[0] as client:
                client.sendall(world["secret"].encode())

    for server in servers:
        server.listen()
        threading.Thread(target=serve, args=(server,), daemon=True).start()


def share_memory(world: World, number: int) -> None:
    """Create shared memory and a message queue of System V that contain the secret."""
    libc.shmat.restype = ctypes.c_void_p
    for offset, name in enumerate(("memory_key", "other_memory_key", "queue_key", "semaphore_key")):
        world[name] = (os.getpid() << 8) % 0x7FFF0000 + number * 8 + offset + 1
    for name in ("memory_key", "other_memory_key"):
        address = libc.shmat(libc.shmget(world[name], 100, 0o1600), None, 0)
        ctypes.memmove(address, world["secret"].encode(), len(world["secret"]))
    message = (1).to_bytes(8, "little") + world["secret"].encode()
    libc.msgsnd(libc.msgget(world["queue_key"], 0o1600), message, 100, 0)
    libc.semget(world["semaphore_key"], 1, 0o1600)
    queue = librt.mq_open(f"/{world['tmp_name']}".encode(), os.O_CREAT | os.O_RDWR, 0o600, None)
    librt.mq_send(queue, world["secret"].encode(), len(world["secret"]), 0)
    Path("/dev/shm", f"{world['tmp_name']}.secret").write_text(world["secret"])


def open_pipes(root: Path, world: World) -> None:
    """Create a pipe from which a program reads its commands, and one that contains the secret."""
    for name in ("command_pipe", "secret_pipe"):
        world[name] = str(root / "run" / name)
        os.mkfifo(world[name])
        world[f"keep_{name}"] = os.open(world[name], os.O_RDWR | os.O_NONBLOCK)
    os.write(world["keep_secret_pipe"], world["secret"].encode())


def clean_up(world: World) -> None:
    os.killpg(world["victim"], 9)
    os.waitpid(world["victim"], 0)
    for name in ("memory_key", "other_memory_key"):
        libc.shmctl(libc.shmget(world[name], 0, 0), 0, None)
    libc.msgctl(libc.msgget(world["queue_key"], 0), 0, None)
    libc.semctl(libc.semget(world["semaphore_key"], 1, 0), 0, 0)
    librt.mq_unlink(f"/{world['tmp_name']}".encode())
    libc.syscall(250, 9, world["key"], -4)  # KEYCTL_UNLINK
    for folder in ("/tmp", "/var/tmp", "/dev/shm"):
        for path in Path(folder).glob(f"{world['tmp_name']}*"):
            path.unlink(missing_ok=True)


def follow_up_environment(world: World) -> dict[str, str]:
    """Return the environment of a person who has activated the virtual environment of the project."""
    paths = {key.upper(): world[key] for key in ("outside", "area")}
    return {**os.environ, **paths, "HOME": world["home"], "PATH": f"{world['project']}/.venv/bin:{os.environ['PATH']}"}


def judge(name: str, world: World, result: dict[str, object]) -> bool:
    """Return whether an attempt has succeeded, as seen from outside."""
    root = Path(world["home"]).parent
    outside = root / "outside"
    targets = {
        "write_home": "home/write_home", "write_parent": "write_parent", "startup_file": "home/.bashrc",
        "new_startup_file": "home/.bash_login", "zsh_startup_file": "home/.zshenv",
        "git_user_config": "home/.gitconfig", "authorized_keys": "home/.ssh/authorized_keys",
        "program_on_path": "home/.local/bin/ls", "python_startup": "home/.local/lib/usercustomize.py",
        "autostart": "home/.config/autostart/x.desktop", "systemd_unit": "home/.config/systemd/user/x.service",
        "crontab": "spool/crontabs/user", "at_job": "spool/atjobs/a1",
        "client_settings": "home/.claude/settings.json", "client_state": "home/.claude.json",
        "project_settings": "project/.claude/settings.json",
        "new_local_settings": "project/.claude/settings.local.json",
        "replace_settings_folder": "project/.claude/settings.json",
        "remove_settings_folder": "project/.claude/settings.json", "new_agent": "project/.claude/agents/a.md",
        "project_servers": "project/.mcp.json", "replace_project_servers": "project/.mcp.json",
        "hook_script": "project/scripts/guard.sh", "replace_hook_folder": "project/scripts/guard.sh",
        "git_hook": "project/.git/hooks/pre-commit", "git_hooks_folder": "project/.git/hooks/pre-commit",
        "replace_git_folder": "project/.git/hooks/pre-commit", "git_config": "project/.git/config",
        "git_config_file": "project/.git/config", "replace_git_config": "project/.git/config",
        "transcript": "project/t.jsonl", "replace_transcript": "project/t.jsonl",
        "write_shared_tmp": f"/tmp/{world['tmp_name']}", "write_var_tmp": f"/var/tmp/{world['tmp_name']}",
        "write_shared_memory": f"/dev/shm/{world['tmp_name']}",
        "submodule_config": "project/.git/modules/libs/parser/config",
        "submodule_hook": "project/.git/modules/libs/parser/hooks/post-checkout",
        "inner_submodule_config": "project/.git/modules/libs/parser/modules/lexer/config",
        "included_git_config": "project/.gitconfig.shared",
        "replace_included_git_config": "project/.gitconfig.shared",
        "worktree_config": "project/.git/config.worktree", "git_config_through_hard_link": "project/.git/config",
        "settings_through_hard_link": "project/.claude/settings.json",
        "hook_script_through_hard_link": "project/scripts/guard.sh",
        "exchange_settings": "project/.claude/settings.json",
        **{name: f"outside/{name}" for name in (*FOLLOW_UPS, "exchange_outside", "link_unnamed_file_outside",
                                                 "copy_range_outside", "map_outside", "reopen_descriptor_outside")},
    }  # fmt: skip
    special: dict[str, Callable[[], bool]] = {
        "remove_outside": lambda: not (outside / "remove_outside").exists(),
        "steal_outside": lambda: not (outside / "steal_outside").exists(),
        "chmod_outside": lambda: bool((outside / "chmod_outside").stat().st_mode & stat.S_IWOTH),
        "touch_outside": lambda: (outside / "touch_outside").stat().st_mtime == 1,
        "make_folder_outside": (outside / "make_folder_outside").is_dir,
        "make_fifo_outside": (outside / "make_fifo_outside").is_fifo,
        "link_outside": (outside / "link_outside").is_symlink,
        "truncate_outside": lambda: not (outside / "truncate_outside").read_text(),
        "write_with_git": (outside / "write_with_git/.git").is_dir,
        "core_dump_outside": lambda: any((outside / "core").iterdir()),
        "exchange_project": (root / "project2").exists,
    }
    if name.startswith("later "):
        path = root / "home" / name.removeprefix("later ")
        return path.is_file() and MARK in path.read_text()
    if name in special:
        return special[name]()
    default = f"outside/{name}" if name.startswith(("write_", "append_", "copy_over", "move_")) else None
    default = default or (f"outside/{name}" if name in ("remount_writable", "nested_sandbox") else None)
    if name in targets or (default and name not in ("write_process_memory",)):
        path = root / targets.get(name, default or "")
        return path.is_file() and any(MARK in line and len(line) < 40 for line in path.read_text().splitlines())
    return world["secret"] in str(result.get("value"))


def run_calls(mode: str, calls: Sequence[Mapping[str, object]], world: World) -> subprocess.CompletedProcess[str]:
    """Run calls one after another in a kind of sandbox."""
    script = [{"content": [call]} for call in calls]
    if mode == "run":
        replies = [*(message["content"] for message in script), {"type": "text", "text": "."}]
        Path(world["home"], "script.json").write_text(json.dumps(replies))
        options = ["run", "-p", "x", "--model", f"scripted:{world['home']}/script.json", "--allowed-tools", "Bash"]
    else:
        options = ["exec", f"--sandbox={mode}", *(["--allowed-tools", "Bash"] if mode == "open" else [])]
    return subprocess.run(
        [sys.executable, "-m", "toolspan", *options, "--transcript", world["transcript"]],
        input=None if mode == "run" else "\n".join(map(json.dumps, script)),
        capture_output=True,
        text=True,
        cwd=world["project"],
        env=follow_up_environment(world),
        close_fds=False,
        check=True,
    )


def main() -> None:
    root = Path(sys.argv[1])
    mode = sys.argv[2]
    setuid = sys.argv[3] if len(sys.argv) > 3 else None
    names = [name for name in ATTEMPTS if name not in LAST] + LAST
    names = [name for name in names if setuid or name != "setuid_program"]
    if mode == "open":
        names = [name for name in names if not name.startswith(READING)]
    if not Path("/proc/sys/kernel/core_pattern").read_text().startswith("core"):
        names.remove("core_dump_outside")
    os.environ |= {"DEPLOY_TOKEN": "secret-1", "OPENAI_API_KEY": "secret-1"}
    bare: dict[str, bool] = {}
    (root / "1").mkdir()
    world = plant(root / "1", 1, setuid)
    try:
        for previous, name in pairwise(["", *names]):
            if not previous.startswith(UNCHANGING):
                reset(root / "1")
            result = run_one(name, world)
            if name in FOLLOW_UPS:
                command = ["/bin/bash", "-c", FOLLOW_UPS[name]]
                env = follow_up_environment(world)
                subprocess.run(command, capture_output=True, env=env, cwd=world["project"], check=False)
            bare[name] = judge(name, world, result)
            if not bare[name]:
                sys.stderr.write(f"{name} {result}\n")
    finally:
        clean_up(world)
    os.environ |= {"DEPLOY_TOKEN": "secret-2", "OPENAI_API_KEY": "secret-2"}
    (root / "2").mkdir()
    world = plant(root / "2", 2, setuid)
    try:
        project = Path(world["project"])
        (project / "world.json").write_text(json.dumps({**world, "attempts": names}))
        (project / "tests/sandbox").mkdir(parents=True)
        for file in (escape_attempts.__file__, escape_attempts_more.__file__):
            shutil.copy(file, project / "tests/sandbox")
        script = f"PYTHONPATH=. {Path(sys.executable).name} -m {escape_attempts_more.__name__} world.json"
        follow_ups = "; ".join(f"({text})" for text in FOLLOW_UPS.values())
        calls = [
            {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": script}},
            {"type": "tool_use", "id": "t2", "name": "Bash", "input": {"command": follow_ups}},
            {"type": "tool_use", "id": "t3", "name": "Grep", "input": {"pattern": "escaped"}},
        ]
        done = run_calls(mode, calls, world)
        if not Path(world["results"]).exists():
            sys.exit(f"the attempts were not made: {done.stdout}{done.stderr}")
        results = json.loads(Path(world["results"]).read_text())
        report = {name: (bare[name], judge(name, world, results[name]), results[name]) for name in names}
    finally:
        clean_up(world)
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main()
