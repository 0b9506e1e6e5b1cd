"""Attempts to leave the sandbox with files and processes.

Run as `python escape_attempts.py WORLD.json`: it makes every attempt in a process of its own and prints what each one
got, as JSON. `escape_driver.py` plants the world, runs this program without and within the sandbox, and judges the
results from outside.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MARK = "escaped"
World = dict[str, Any]
Attempt = Callable[[World], object]
ATTEMPTS: dict[str, Attempt] = {}
libc = ctypes.CDLL(None, use_errno=True)
librt = ctypes.CDLL("librt.so.1", use_errno=True)


def attempt(function: Attempt) -> Attempt:
    """Register an attempt. It raises, returns something of no use, or succeeds."""
    ATTEMPTS[function.__name__] = function
    return function


def register(name: str, function: Attempt) -> None:
    """Register an attempt under a name."""
    ATTEMPTS[name] = function


def shell(name: str, script: str) -> None:
    """Register a shell script as an attempt. Its variables are the strings in the world."""

    def run(world: World) -> object:
        variables = {key.upper(): str(value) for key, value in world.items() if isinstance(value, str | int)}
        done = subprocess.run(
            ["/bin/bash", "-c", f"set -e\n{script}"],
            capture_output=True,
            text=True,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", **variables},
            cwd=world["project"],
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return done.stdout.strip()

    ATTEMPTS[name] = run


def check(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


# Writing outside: each leaves the mark in a file that the driver looks at.

shell("write_outside", 'echo escaped > "$OUTSIDE/write_outside"')
shell("write_home", 'echo escaped > "$HOME/write_home"')
shell("write_parent", "echo escaped > ../write_parent")
shell("write_through_link", 'ln -s "$OUTSIDE/write_through_link" link; echo escaped > link')
shell("write_through_folder_link", 'ln -s "$OUTSIDE" folder; echo escaped > folder/write_through_folder_link')
shell("write_through_hard_link", 'ln "$OUTSIDE/write_through_hard_link" hard; echo escaped > hard')
shell("move_outside", 'echo escaped > file; mv file "$OUTSIDE/move_outside"')
shell("append_outside", 'echo escaped >> "$OUTSIDE/append_outside"')
shell("copy_over_outside", 'echo escaped > file1; cp file1 "$OUTSIDE/copy_over_outside"')
shell("write_through_proc_root", 'echo escaped > "/proc/self/root$OUTSIDE/write_through_proc_root"')
shell("write_through_proc_cwd", "echo escaped > /proc/self/cwd/../outside/write_through_proc_cwd")
shell("write_through_thread", 'echo escaped > "/proc/thread-self/root$OUTSIDE/write_through_thread"')
shell("write_with_sed", 'sed -i s/old/escaped/ "$OUTSIDE/write_with_sed"')
shell("write_with_tar", 'echo escaped > write_with_tar; tar cf - write_with_tar | tar xf - -C "$OUTSIDE"')
shell("write_with_git", 'git init -q "$OUTSIDE/write_with_git" && test -d "$OUTSIDE/write_with_git/.git"')
shell("write_shared_tmp", 'echo escaped > "/tmp/$TMP_NAME"')
shell("write_var_tmp", 'echo escaped > "/var/tmp/$TMP_NAME"')
shell("write_shared_memory", 'echo escaped > "/dev/shm/$TMP_NAME"')
shell("remove_outside", 'rm "$OUTSIDE/remove_outside"')
shell("steal_outside", 'mv "$OUTSIDE/steal_outside" stolen')
shell("chmod_outside", 'chmod 777 "$OUTSIDE/chmod_outside"')
shell("touch_outside", 'touch -d @1 "$OUTSIDE/touch_outside"')
shell("make_folder_outside", 'mkdir "$OUTSIDE/make_folder_outside"')
shell("make_fifo_outside", 'mkfifo "$OUTSIDE/make_fifo_outside"')
shell("link_outside", 'ln -s /etc/passwd "$OUTSIDE/link_outside"')
shell("truncate_outside", 'truncate -s 0 "$OUTSIDE/truncate_outside"')
shell("exchange_project", "cd ..; mv project project2")
shell("core_dump_outside", 'cd "$OUTSIDE/core"; ulimit -c unlimited; bash -c "kill -SEGV \\$\\$" || true; ls core*')

# Files that decide what runs later

shell("startup_file", 'echo escaped >> "$HOME/.bashrc"')
shell("new_startup_file", 'echo escaped > "$HOME/.bash_login"')
shell("zsh_startup_file", 'echo escaped > "$HOME/.zshenv"')
shell("git_user_config", 'echo escaped > "$HOME/.gitconfig"')
shell("authorized_keys", 'echo escaped >> "$HOME/.ssh/authorized_keys"')
shell("program_on_path", 'echo escaped > "$HOME/.local/bin/ls"')
shell("python_startup", 'echo escaped > "$HOME/.local/lib/usercustomize.py"')
shell("autostart", 'echo escaped > "$HOME/.config/autostart/x.desktop"')
shell("systemd_unit", 'echo escaped > "$HOME/.config/systemd/user/x.service"')
shell("crontab", 'echo "* * * * * escaped" > "$SPOOL/crontabs/user"')
shell("at_job", 'echo escaped > "$SPOOL/atjobs/a1"')
shell("client_settings", 'echo escaped > "$HOME/.claude/settings.json"')
shell("client_state", 'echo escaped > "$HOME/.claude.json"')
shell("project_settings", "echo escaped > .claude/settings.json")
shell("new_local_settings", "echo escaped > .claude/settings.local.json")
shell("replace_settings_folder", "mv .claude .old; mkdir .claude; echo escaped > .claude/settings.json")
shell("remove_settings_folder", "rm -rf .claude; mkdir .claude; echo escaped > .claude/settings.json")
shell("new_agent", "mkdir -p .claude/agents; echo escaped > .claude/agents/a.md")
shell("project_servers", "echo escaped > .mcp.json")
shell("replace_project_servers", "echo escaped > x.json; mv -f x.json .mcp.json")
shell("hook_script", "echo escaped > scripts/guard.sh")
shell("replace_hook_folder", "mv scripts s2; mkdir scripts; echo escaped > scripts/guard.sh")
shell("git_hook", "echo escaped > .git/hooks/pre-commit")
shell("git_config", "git config core.fsmonitor escaped")
shell("git_config_file", "echo escaped >> .git/config")
shell("replace_git_config", "cp .git/config c; echo escaped >> c; mv -f c .git/config")
shell("replace_git_folder", "mv .git .g; cp -r .g .git; echo escaped > .git/hooks/pre-commit")
shell("git_hooks_folder", "rm -rf .git/hooks; mkdir .git/hooks; echo escaped > .git/hooks/pre-commit")
shell("transcript", 'echo escaped >> "$TRANSCRIPT"')
shell("replace_transcript", 'echo escaped > "$TRANSCRIPT.new"; mv "$TRANSCRIPT.new" "$TRANSCRIPT"')

# Git reads more than `.git/config`, and settings may permit more than the project.

shell("submodule_config", "git config -f .git/modules/libs/parser/config core.fsmonitor escaped")
shell(
    "submodule_hook",
    "mkdir -p .git/modules/libs/parser/hooks; echo escaped > .git/modules/libs/parser/hooks/post-checkout",
)
shell("inner_submodule_config", "git config -f .git/modules/libs/parser/modules/lexer/config core.fsmonitor escaped")
shell("included_git_config", "git config -f .gitconfig.shared core.fsmonitor escaped")
shell("replace_included_git_config", "echo escaped > g; mv -f g .gitconfig.shared")
shell("worktree_config", "git config --worktree core.fsmonitor escaped")
shell("git_config_through_hard_link", "ln .git/config c; echo escaped >> c")
shell("settings_through_hard_link", "ln .claude/settings.json s; echo escaped > s")
shell("hook_script_through_hard_link", "ln scripts/guard.sh g; echo escaped > g")

# Two steps: the second command, in `FOLLOW_UPS`, uses what the first has left.

FOLLOW_UPS: dict[str, str] = {}


def in_two_steps(name: str, first: str, second: str) -> None:
    shell(name, first)
    FOLLOW_UPS[name] = second


in_two_steps(
    "replace_allowed_folder",
    'mv "$AREA/deep" "$AREA/deep2"; mkdir "$AREA/deep"; ln -s "$OUTSIDE" "$AREA/deep/sub"',
    'echo escaped > "$AREA/deep/sub/replace_allowed_folder"',
)
for program in ("nsenter", "bwrap", "bash", "git", "rg"):
    script = rf"#!/bin/sh\necho escaped > $OUTSIDE/plant_{program}_on_path\nexec /usr/bin/{program} \"\$@\"\n"
    in_two_steps(
        f"plant_{program}_on_path",
        f'printf "{script}" > .venv/bin/{program}; chmod +x .venv/bin/{program}',
        f"{program} --version",
    )
FOLLOW_UPS["plant_python_modules"] = "python3 -m zipfile --help"


@attempt
def plant_python_modules(world: World) -> object:
    code = f"open({world['outside'] + '/plant_python_modules'!r}, 'w').write({MARK!r})\n"
    for name in sys.stdlib_module_names:
        Path(world["project"], f"{name}.py").write_text(code)
    return None


# Secrets: each prints the secret.

for file in (
    ".ssh/id_ed25519", ".aws/credentials", ".gnupg/private-keys-v1.d/key", ".config/gcloud/credentials.db", ".netrc",
    ".docker/config.json", ".kube/config", ".mozilla/firefox/p/logins.json", ".config/google-chrome/Default/Cookies",
    ".claude/.credentials.json", ".claude.json", ".git-credentials", ".config/gh/hosts.yml",
    ".local/share/keyrings/login.keyring", ".bash_history", ".codex/auth.json",
):  # fmt: skip
    shell(f"read_{file}", f'cat "$HOME/{file}"')
shell("read_secret_through_link", 'ln -s "$HOME/.ssh" keys; cat keys/id_ed25519')
shell("read_secret_through_hard_link", 'ln "$HOME/.ssh/id_ed25519" key; cat key')
shell("read_secret_through_proc", 'cat "/proc/self/root$HOME/.ssh/id_ed25519"')
shell("copy_secrets", 'cp -r "$HOME/.aws" copy; cat copy/credentials')
shell("rename_secrets", 'mv "$HOME/.kube" "$HOME/kube2"; cat "$HOME/kube2/config"')
shell("chmod_secret", 'chmod 600 "$HOME/.netrc"; cat "$HOME/.netrc"')
shell("find_secret", 'find "$HOME/.ssh" -name "id_*" -exec cat {} +')
shell("read_denied_file", 'cat "$PROJECT/.env"')


@attempt
def environment_secret(world: World) -> object:
    return os.environ["DEPLOY_TOKEN"]


@attempt
def environment_key(world: World) -> object:
    return os.environ["OPENAI_API_KEY"]


@attempt
def inherited_descriptor(world: World) -> object:
    return os.pread(world["descriptor"], 100, 0).decode()


@attempt
def kernel_key(world: World) -> object:
    buffer = ctypes.create_string_buffer(100)
    length = check(libc.syscall(250, 11, world["key"], buffer, 100, 0))  # KEYCTL_READ
    return buffer.raw[:length].decode()


# Other processes


@attempt
def signal_process(world: World) -> object:
    os.kill(world["victim"], signal.SIGUSR1)
    return world["secret"]


@attempt
def trace_process(world: World) -> object:
    check(libc.ptrace(0x4206, world["victim"], None, None))  # PTRACE_SEIZE
    return world["secret"]


@attempt
def process_environment(world: World) -> object:
    data = Path(f"/proc/{world['victim']}/environ").read_bytes()
    return data.partition(b"VICTIM_SECRET=")[2].partition(b"\0")[0].decode()


@attempt
def process_arguments(world: World) -> object:
    for folder in Path("/proc").glob("[0-9]*"):
        words = (folder / "cmdline").read_bytes().split(b"\0")
        if b"--victim" in words:
            return words[words.index(b"--victim") + 1].decode()
    return None


@attempt
def process_memory(world: World) -> object:
    pid = world["victim"]
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if "[stack]" in line:
            start, end = (int(number, 16) for number in line.split()[0].split("-"))
            with Path(f"/proc/{pid}/mem").open("rb") as memory:
                memory.seek(start)
                data = memory.read(end - start)
            return world["secret"] if world["secret"].encode() in data else None
    return None


@attempt
def write_process_memory(world: World) -> object:
    with Path(f"/proc/{world['victim']}/mem").open("r+b"):
        return world["secret"]


@attempt
def read_process_with_system_call(world: World) -> object:
    class Vector(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    text = Path(f"/proc/{world['victim']}/maps").read_text()
    start = int(text.split("-")[0], 16)
    buffer = ctypes.create_string_buffer(4)
    ours = Vector(ctypes.cast(buffer, ctypes.c_void_p), 4)
    check(libc.process_vm_readv(world["victim"], ctypes.byref(ours), 1, ctypes.byref(Vector(start, 4)), 1, 0))
    return world["secret"] if buffer.raw == b"\x7fELF" else None


@attempt
def process_descriptor(world: World) -> object:
    return Path(f"/proc/{world['victim']}/fd/0").read_text().strip()


@attempt
def copied_process_descriptor(world: World) -> object:
    pidfd = os.pidfd_open(world["victim"])
    return os.pread(check(libc.syscall(438, pidfd, 0, 0)), 100, 0).decode().strip()  # pidfd_getfd


@attempt
def process_root(world: World) -> object:
    return Path(f"/proc/{world['victim']}/root{world['home']}/.ssh/id_ed25519").read_text().strip()


@attempt
def write_process_folder(world: World) -> object:
    Path(f"/proc/{world['victim']}/cwd/write_process_folder").write_text(MARK)
    return None


@attempt
def slow_process(world: World) -> object:
    os.setpriority(os.PRIO_PROCESS, world["victim"], 19)
    return world["secret"]


@attempt
def pin_process(world: World) -> object:
    os.sched_setaffinity(world["victim"], os.sched_getaffinity(0))
    return world["secret"]


@attempt
def score_process(world: World) -> object:
    Path(f"/proc/{world['victim']}/oom_score_adj").write_text("999")
    return world["secret"]


@attempt
def shared_memory(world: World) -> object:
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(check(libc.shmget(world["memory_key"], 100, 0)), None, 0)
    return ctypes.string_at(address).decode()


@attempt
def remove_shared_memory(world: World) -> object:
    check(libc.shmctl(check(libc.shmget(world["other_memory_key"], 100, 0)), 0, None))
    return world["secret"]


@attempt
def message_queue(world: World) -> object:
    buffer = ctypes.create_string_buffer(200)
    check(libc.msgrcv(check(libc.msgget(world["queue_key"], 0)), buffer, 100, 0, 0o4000))
    return buffer.raw[8:].split(b"\0")[0].decode()


@attempt
def limit_process(world: World) -> object:
    resource.prlimit(world["victim"], resource.RLIMIT_CORE, resource.prlimit(world["victim"], resource.RLIMIT_CORE))
    return world["secret"]


@attempt
def starve_process(world: World) -> object:
    check(libc.syscall(251, 1, world["victim"], 7 | 2 << 13))  # ioprio_set
    return world["secret"]


@attempt
def compare_process(world: World) -> object:
    check(libc.syscall(312, world["victim"], world["victim"], 3, 0, 0))  # kcmp
    return world["secret"]


@attempt
def find_pages_of_process(world: World) -> object:
    start = int(Path(f"/proc/{world['victim']}/maps").read_text().split("-")[0], 16)
    page, status = ctypes.c_void_p(start), ctypes.c_int()
    check(libc.syscall(279, world["victim"], 1, ctypes.byref(page), None, ctypes.byref(status), 0))
    return world["secret"]


@attempt
def clear_references_of_process(world: World) -> object:
    Path(f"/proc/{world['victim']}/clear_refs").write_text("1")
    return world["secret"]


@attempt
def schedule_process(world: World) -> object:
    os.sched_setscheduler(world["victim"], os.SCHED_BATCH, os.sched_param(0))
    return world["secret"]


@attempt
def signal_through_descriptor(world: World) -> object:
    with open_folder(f"/proc/{world['victim']}") as folder:
        check(libc.syscall(424, folder, signal.SIGUSR1, None, 0))  # pidfd_send_signal
    return world["secret"]


@attempt
def executable_of_process(world: World) -> object:
    return world["secret"] if Path(f"/proc/{world['victim']}/exe").read_bytes()[:4] == b"\x7fELF" else None


@attempt
def posix_message_queue(world: World) -> object:
    queue = check(librt.mq_open(f"/{world['tmp_name']}".encode(), os.O_RDONLY | os.O_NONBLOCK))
    buffer = ctypes.create_string_buffer(8192)
    length = check(librt.mq_receive(queue, buffer, 8192, None))
    return buffer.raw[:length].decode()


@attempt
def semaphore(world: World) -> object:
    check(libc.semctl(check(libc.semget(world["semaphore_key"], 1, 0)), 0, 12))  # GETVAL
    return world["secret"]


@attempt
def shared_memory_file(world: World) -> object:
    return Path("/dev/shm", f"{world['tmp_name']}.secret").read_text()


# File operations beside open and write


@contextmanager
def open_folder(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@attempt
def exchange_outside(world: World) -> object:
    Path("own").write_text(MARK)
    target = f"{world['outside']}/exchange_outside".encode()
    check(libc.renameat2(-100, b"own", -100, target, 2))  # RENAME_EXCHANGE
    return None


@attempt
def exchange_settings(world: World) -> object:
    Path("new").mkdir()
    Path("new/settings.json").write_text(MARK)
    check(libc.renameat2(-100, b"new", -100, b".claude", 2))
    return None


@attempt
def link_unnamed_file_outside(world: World) -> object:
    descriptor = os.open(world["outside"], os.O_TMPFILE | os.O_WRONLY)
    os.write(descriptor, MARK.encode())
    source, target = f"/proc/self/fd/{descriptor}", f"{world['outside']}/link_unnamed_file_outside"
    check(libc.linkat(-100, source.encode(), -100, target.encode(), 0x400))  # AT_SYMLINK_FOLLOW
    return None


@attempt
def copy_range_outside(world: World) -> object:
    Path("source").write_text(MARK)
    with Path("source").open("rb") as source, Path(world["outside"], "copy_range_outside").open("r+b") as target:
        os.copy_file_range(source.fileno(), target.fileno(), len(MARK))
    return None


@attempt
def map_outside(world: World) -> object:
    with (
        Path(world["outside"], "map_outside").open("r+b") as file,
        mmap.mmap(file.fileno(), len(MARK), access=mmap.ACCESS_WRITE) as memory,
    ):
        memory[:] = MARK.encode()
    return None


@attempt
def reopen_descriptor_outside(world: World) -> object:
    descriptor = os.open(Path(world["outside"], "reopen_descriptor_outside"), os.O_RDONLY)
    Path(f"/proc/self/fd/{descriptor}").write_text(MARK)
    return None


@attempt
def change_mode_of_descriptor_outside(world: World) -> object:
    descriptor = os.open(Path(world["outside"], "change_mode_of_descriptor_outside"), os.O_RDONLY)
    os.fchmod(descriptor, 0o777)
    return world["secret"]


@attempt
def attribute_outside(world: World) -> object:
    os.setxattr(Path(world["outside"], "attribute_outside"), "user.mark", MARK.encode())
    return world["secret"]


@attempt
def pipe_with_reader(world: World) -> object:
    descriptor = os.open(world["command_pipe"], os.O_WRONLY | os.O_NONBLOCK)
    os.write(descriptor, b"escaped\n")
    return world["secret"]


@attempt
def pipe_with_writer(world: World) -> object:
    return os.read(os.open(world["secret_pipe"], os.O_RDONLY | os.O_NONBLOCK), 100).decode()


# System calls that widen the surface


@attempt
def io_uring(world: World) -> object:
    check(libc.syscall(425, 4, ctypes.create_string_buffer(120)))
    return world["secret"]


@attempt
def page_fault_descriptor(world: World) -> object:
    check(libc.syscall(323, 1))  # userfaultfd with UFFD_USER_MODE_ONLY
    return world["secret"]


@attempt
def session_keyring(world: World) -> object:
    check(libc.syscall(250, 1, b"toolspan"))  # KEYCTL_JOIN_SESSION_KEYRING
    return world["secret"]


@attempt
def user_namespace_by_clone3(world: World) -> object:
    arguments = struct.pack("<11Q", 0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, 0)
    pid = check(libc.syscall(435, arguments, len(arguments)))
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return world["secret"]


@attempt
def vsock(world: World) -> object:
    with socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM):
        return world["secret"]


shell(
    "clone_mount",
    "unshare -Urm sh -c \"mount --make-rprivate / && mount --rbind '$HOME' /mnt && cat /mnt/.ssh/id_ed25519\"",
)


# Namespaces, mounts and rights


@attempt
def user_namespace(world: World) -> object:
    check(libc.unshare(0x10000000))
    return world["secret"]


@attempt
def user_namespace_by_clone(world: World) -> object:
    pid = check(libc.syscall(56, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0))
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return world["secret"]


shell("mount_in_namespace", 'unshare -Urm sh -c "mount -t tmpfs none /mnt" && echo "$SECRET"')
shell("bind_secret", "unshare -Urm sh -c \"mount --bind '$HOME/.ssh' /mnt && cat /mnt/id_ed25519\"")
shell("unmount_secret", "unshare -Urm sh -c \"umount '$HOME/.ssh' 2>/dev/null || true; cat '$HOME/.ssh/id_ed25519'\"")
shell(
    "remount_writable", "unshare -Urm sh -c \"mount -o remount,rw,bind / ; echo escaped > '$OUTSIDE/remount_writable'\""
)
shell("change_root", 'unshare -Ur chroot / cat "$HOME/.ssh/id_ed25519"')
shell("nested_sandbox", "bwrap --dev-bind / / sh -c \"echo escaped > '$OUTSIDE/nested_sandbox'\"")
shell("new_network", 'unshare -Urn true && echo "$SECRET"')


@attempt
def join_namespace(world: World) -> object:
    with Path(f"/proc/{world['victim']}/ns/net").open() as file:
        return world["secret"] if file.fileno() else None


@attempt
def setuid_program(world: World) -> object:
    done = subprocess.run([world["setuid"], "-u"], capture_output=True, text=True, check=True)
    return world["secret"] if done.stdout.strip() == "0" else None


# Sockets and terminals


def connect(family: int, kind: int, address: str | bytes) -> str:
    with socket.socket(family, kind) as client:
        client.settimeout(30)
        client.connect(address)
        if kind == socket.SOCK_DGRAM:
            client.send(b"hello")
            return ""
        return client.recv(100).decode()


for name in ("docker_socket", "bus_socket", "agent_socket", "systemd_socket", "home_socket", "project_socket"):
    ATTEMPTS[name] = lambda world, name=name: connect(socket.AF_UNIX, socket.SOCK_STREAM, world[name])  # type: ignore[misc]


@attempt
def abstract_socket(world: World) -> object:
    return connect(socket.AF_UNIX, socket.SOCK_STREAM, b"\0" + world["abstract"].encode())


@attempt
def datagram_socket(world: World) -> object:
    connect(socket.AF_UNIX, socket.SOCK_DGRAM, world["datagram_socket"])
    return world["secret"]


@attempt
def datagram_pair(world: World) -> object:
    socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"hello", world["datagram_socket"])
    return world["secret"]


@attempt
def connected_datagram_pair(world: World) -> object:
    client = socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)[0]
    client.connect(world["datagram_socket"])
    client.send(b"hello")
    return world["secret"]


@attempt
def descriptor_through_datagram_pair(world: World) -> object:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", 0))]
    socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendmsg([b"x"], rights, 0, world["datagram_socket"])
    return world["secret"]


@attempt
def socket_through_link(world: World) -> object:
    link = Path(world["project"], "sock")
    link.symlink_to(world["docker_socket"])
    return connect(socket.AF_UNIX, socket.SOCK_STREAM, str(link))


@attempt
def local_server(world: World) -> object:
    with socket.create_connection(("127.0.0.1", world["port"]), 5) as client:
        return client.recv(100).decode()


@attempt
def terminal_input(world: World) -> object:
    os.setsid()
    terminal = os.open(world["terminal"], os.O_RDWR)
    for character in b"x\n":
        fcntl.ioctl(terminal, 0x5412, bytes([character]))  # TIOCSTI
    return world["secret"]


@attempt
def terminal_output(world: World) -> object:
    Path(world["terminal"]).write_text("x")
    return world["secret"]


def run_one(name: str, world: World) -> dict[str, object]:
    """Make one attempt in a process of its own and return its value or its error."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(world["project"])
            result: dict[str, object] = {"value": ATTEMPTS[name](world)}
        except BaseException as error:  # noqa: BLE001 - whatever stops an attempt is reported
            result = {"error": f"{type(error).__name__}: {error}"[-200:]}
        os.write(writing, json.dumps(result).encode())
        os._exit(0)
    os.close(writing)
    data = os.read(reading, 1 << 16)
    os.close(reading)
    os.waitpid(pid, 0)
    made: dict[str, object] = json.loads(data or b'{"error": "killed"}')
    return made


def run_all(world_file: Path) -> None:
    """Make the attempts that a world names, and write their results to a file of the world."""
    given = json.loads(world_file.read_text())
    results = {name: run_one(name, given) for name in given["attempts"]}
    Path(given["results"]).write_text(json.dumps(results))


if __name__ == "__main__":
    run_all(Path(sys.argv[1]))
