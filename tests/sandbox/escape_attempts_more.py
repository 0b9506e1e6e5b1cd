"""Further attempts to leave the sandbox, by someone who knows only the documentation.

Run as `python -m tests.sandbox.escape_attempts_more WORLD.json`, as `escape_attempts.py`. Each attempt checks its own
success and returns the secret.
"""

# ruff: noqa: PTH100, PTH101, PTH103, PTH104, PTH108, PTH116, PTH119, PTH120, PTH208
# The system calls are the attempts.
from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

from tests.sandbox.escape_attempts import (
    MARK,
    World,
    attempt,
    check,
    connect,
    libc,
    open_folder,
    register,
    run_all,
    shell,
)

HIGH = 1 << 32
"""A bit that the kernel ignores in 32-bit arguments, and that a filter may compare."""


def call(number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char]) -> int:
    libc.syscall.restype = ctypes.c_long
    return check(libc.syscall(number, *(ctypes.c_long(item) if isinstance(item, int) else item for item in arguments)))


# Files in the home folder that run later, or that select programs

for file in (
    ".config/fish/config.fish", ".xprofile", ".xsessionrc", ".pam_environment", ".config/environment.d/x.conf",
    ".kshrc", ".tcshrc", ".vimrc", ".config/nvim/init.lua", ".emacs.d/init.el", ".tmux.conf", ".psqlrc", ".Rprofile",
    ".local/lib/python3.11/site-packages/x.pth", ".cargo/config.toml", ".npmrc", ".config/pip/pip.conf",
    ".gradle/init.gradle", ".m2/settings.xml", ".ssh/rc", ".git-template/hooks/post-checkout", ".bash_logout",
    ".config/Code/User/tasks.json", ".claude/skills/x/SKILL.md", ".claude/agents/x.md", ".claude/hooks/x.sh",
    ".claude/CLAUDE.md", ".claude/plugins/x/hooks.json", ".cache/pre-commit/x", ".local/share/applications/x.desktop",
):  # fmt: skip
    shell(f"later {file}", f'mkdir -p "$(dirname "$HOME/{file}")"; echo escaped >> "$HOME/{file}"; echo "$SECRET"')

# Secrets, by ways of reading that are not `cat`

KEY = "$HOME/.ssh/id_ed25519"
shell("secret with tar", 'tar cf - -C "$HOME" .ssh | tar xOf - .ssh/id_ed25519')
shell("secret with dd", f'dd status=none if="{KEY}"')
shell("secret with git diff", f'git diff --no-index /dev/null "{KEY}" | sed -n "s/^+\\(secret.*\\)/\\1/p"')
shell("secret with git hash-object", f'git cat-file blob "$(git hash-object -w "{KEY}")"')
shell("secret with read", f'exec 3< "{KEY}"; read -r line <&3 || true; echo "$line"')
shell("secret above the root", 'cat "/../../..$HOME/.netrc"')
shell("secret with a pattern", 'cat "$HOME"/.s*/id_e*')
shell("secret in a copy of the home", 'cp -r "$HOME" home-copy 2>/dev/null || true; cat home-copy/.aws/credentials')
shell("secret with find and xargs", 'find "$HOME/../home" -path "*/.kube/config" -print0 2>/dev/null | xargs -0 cat')
shell("secret with git clone", 'git -C "$HOME" init -q; git -C "$HOME" add .netrc; git -C "$HOME" show :.netrc')


@attempt
def secret_mapped(world: World) -> object:
    with Path(world["home"], ".netrc").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data[:].decode()


@attempt
def secret_spliced(world: World) -> object:
    reading, writing = os.pipe()
    os.sendfile(writing, os.open(Path(world["home"], ".bash_history"), os.O_RDONLY), 0, 100)
    return os.read(reading, 100).decode()


@attempt
def secret_below_a_descriptor(world: World) -> object:
    with open_folder(world["home"]) as folder:
        how = struct.pack("<3Q", os.O_RDONLY, 0, 8)  # openat2 with RESOLVE_BENEATH
        return os.read(call(437, folder, b".git-credentials", how, len(how)), 100).decode()


@attempt
def secret_in_the_folder_of_a_process(world: World) -> object:
    return Path(f"/proc/{world['victim']}/cwd/../home/.netrc").read_text()


@attempt
def names_of_secrets(world: World) -> object:
    return world["secret"] if "id_ed25519" in os.listdir(f"{world['home']}/.ssh") else None


@attempt
def size_of_a_secret(world: World) -> object:
    return world["secret"] if os.stat(f"{world['home']}/.netrc").st_size == len(world["secret"]) else None


# Protected files of the project, by ways of writing that are not `open`

PROTECTED = (".git/config", ".claude/settings.json", ".mcp.json", "scripts/guard.sh")


def on_protected(name: str, change: object) -> None:
    """Register an attempt that changes each protected file, and succeeds if one of them has changed."""

    def run(world: World) -> object:
        errors = []
        for file in PROTECTED:
            before = os.stat(file), Path(file).read_bytes()
            try:
                change(file)  # type: ignore[operator]
            except OSError as error:
                errors.append(str(error))
            after = os.stat(file), Path(file).read_bytes()
            if after[1] != before[1] or after[0].st_mode != before[0].st_mode or after[0].st_mtime == 1:
                return world["secret"]
        raise OSError(errors)

    register(name, run)


def _exchange(file: str) -> None:
    Path("own").write_text(MARK)
    check(libc.renameat2(-100, b"own", -100, file.encode(), 2))  # RENAME_EXCHANGE


def _exchange_folder(file: str) -> None:
    folder = os.path.dirname(file) or "."
    os.makedirs("own-folder", exist_ok=True)
    Path("own-folder", os.path.basename(file)).write_text(MARK)
    check(libc.renameat2(-100, b"own-folder", -100, folder.encode(), 2))


def _whiteout(file: str) -> None:
    Path("own").write_text(MARK)
    check(libc.renameat2(-100, b"own", -100, file.encode(), 0))


def _reopen(file: str) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    Path(f"/proc/self/fd/{descriptor}").write_text(MARK)


def _reopen_path(file: str) -> None:
    descriptor = os.open(file, os.O_PATH)
    Path(f"/dev/fd/{descriptor}").write_text(MARK)


def _link_descriptor(file: str) -> None:
    descriptor = os.open(file, os.O_PATH)
    check(libc.linkat(-100, f"/proc/self/fd/{descriptor}".encode(), -100, b"linked", 0x400))
    try:
        Path("linked").write_text(MARK)
    finally:
        os.unlink("linked")


def _map(file: str) -> None:
    with Path(file).open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as memory:
        memory[0:1] = b"#"


def _unnamed(file: str) -> None:
    descriptor = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o644)
    os.write(descriptor, MARK.encode())
    os.unlink(file)
    check(libc.linkat(-100, f"/proc/self/fd/{descriptor}".encode(), -100, file.encode(), 0x400))


def _send(file: str) -> None:
    Path("own").write_text(MARK)
    os.sendfile(os.open(file, os.O_WRONLY), os.open("own", os.O_RDONLY), 0, len(MARK))


def _allocate(file: str) -> None:
    os.posix_fallocate(os.open(file, os.O_WRONLY), 0, 5000)


def _clone(file: str) -> None:
    Path("own").write_text(MARK)
    os.copy_file_range(os.open("own", os.O_RDONLY), os.open(file, os.O_WRONLY), len(MARK))


def _through_parent(file: str) -> None:
    with open_folder(os.path.dirname(file) or ".") as folder:
        descriptor = os.open(os.path.basename(file), os.O_WRONLY | os.O_TRUNC, dir_fd=folder)
        os.write(descriptor, MARK.encode())


def _through_root(file: str) -> None:
    Path("/proc/self/root" + os.path.abspath(file)).write_text(MARK)


def _upper_folder(file: str) -> None:
    os.rename(file.partition("/")[0], "moved-away")
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(MARK)


for function in (
    _exchange, _exchange_folder, _whiteout, _reopen, _reopen_path, _link_descriptor, _map, _unnamed, _send, _allocate,
    _clone, _through_parent, _through_root, _upper_folder,
):  # fmt: skip
    on_protected(f"protected file{function.__name__.replace('_', ' ')}", function)
on_protected("protected file truncate", lambda file: os.truncate(file, 0))
on_protected("protected file mode", lambda file: os.chmod(file, 0o666))
on_protected("protected file time", lambda file: os.utime(file, (1, 1)))

# git writes where its options say

COMMIT = "git -c user.name=a -c user.email=b commit -q --allow-empty -m x"
shell(
    "git worktree outside", f'{COMMIT}; git worktree add -q "$OUTSIDE/tree"; test -e "$OUTSIDE/tree" && echo "$SECRET"'
)
shell("git bundle outside", f'{COMMIT}; git bundle create -q "$OUTSIDE/b" HEAD && echo "$SECRET"')
shell("git archive outside", f'{COMMIT}; git archive -o "$OUTSIDE/a.tar" HEAD && echo "$SECRET"')
shell("git patch outside", f'{COMMIT}; git format-patch -q -o "$OUTSIDE" --root HEAD --always && echo "$SECRET"')
shell(
    "git other work tree",
    'echo x > w; git add w; git --work-tree="$OUTSIDE" checkout-index -f w; test -e "$OUTSIDE/w" && echo "$SECRET"',
)
shell("git template", "mkdir -p tpl/hooks; echo escaped > tpl/hooks/pre-push; git init -q --template=tpl ."
      '; test -e .git/hooks/pre-push && echo "$SECRET"')  # fmt: skip
shell("git global setting", 'git config --global core.pager escaped && echo "$SECRET"')
shell("git remote", 'git remote add x ext::escaped && echo "$SECRET"')
shell("git separate folder", 'git init -q --separate-git-dir "$OUTSIDE/sep" new && echo "$SECRET"')
shell("git link to hooks", "mkdir own-hooks; rm -rf .git/hooks; ln -s ../own-hooks .git/hooks"
      '; test -L .git/hooks && echo "$SECRET"')  # fmt: skip
shell("git branch setting", f'{COMMIT}; git branch x; git config branch.x.remote escaped && echo "$SECRET"')
shell("git submodule setting", "git config -f .gitmodules submodule.x.path x; "
      'git config submodule.x.update "!escaped" && echo "$SECRET"')  # fmt: skip

# System calls whose arguments have bits that the kernel ignores, or that come by another way


@attempt
def socket_with_high_bits(world: World) -> object:
    return world["secret"] if call(41, 1 | HIGH, 1, 0) >= 0 else None


@attempt
def socket_with_high_type(world: World) -> object:
    return world["secret"] if call(41, 1, 2 | HIGH, 0) >= 0 else None


@attempt
def datagram_pair_with_high_bits(world: World) -> object:
    return world["secret"] if call(53, 1, 2 | HIGH, 0, ctypes.create_string_buffer(8)) == 0 else None


@attempt
def datagram_pair_with_high_family(world: World) -> object:
    return world["secret"] if call(53, 1 | HIGH, 2, 0, ctypes.create_string_buffer(8)) == 0 else None


@attempt
def datagram_pair_with_flags(world: World) -> object:
    return world["secret"] if call(53, 1, 2 | 0x80800, 0, ctypes.create_string_buffer(8)) == 0 else None


@attempt
def seqpacket_socket(world: World) -> object:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET):
        return world["secret"]


@attempt
def raw_unix_socket(world: World) -> object:
    with socket.socket(socket.AF_UNIX, socket.SOCK_RAW):
        return world["secret"]


def run_machine_code(code: bytes) -> int:
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(address)())


@attempt
def process_id_by_32_bit_call(world: World) -> object:
    # mov eax, 20 (getpid); int 0x80; ret
    return world["secret"] if run_machine_code(b"\xb8\x14\0\0\0\xcd\x80\xc3") == os.getpid() else None


@attempt
def unix_socket_by_32_bit_call(world: World) -> object:
    # push rbx; mov eax, 359 (socket); mov ebx, 1; mov ecx, 1; xor edx, edx; int 0x80; pop rbx; ret
    code = b"\x53\xb8\x67\x01\0\0\xbb\x01\0\0\0\xb9\x01\0\0\0\x31\xd2\xcd\x80\x5b\xc3"
    return world["secret"] if run_machine_code(code) >= 0 else None


@attempt
def user_namespace_with_high_bits(world: World) -> object:
    pid = call(56, 0x10000000 | signal.SIGCHLD | HIGH, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return world["secret"]


def new_namespace(name: str, flag: int) -> None:
    def run(world: World) -> object:
        call(272, 0x10000000 | flag)  # unshare
        return world["secret"]

    register(f"{name} namespace", run)


for kind, flag in (("mount", 0x20000), ("network", 0x40000000), ("process", 0x20000000), ("name", 0x4000000),
                   ("message", 0x8000000), ("group", 0x2000000)):  # fmt: skip
    new_namespace(kind, flag)


@attempt
def terminal_input_with_high_bits(world: World) -> object:
    os.setsid()
    terminal = pty.openpty()[1]
    fcntl.ioctl(terminal, 0x540E, 0)  # TIOCSCTTY
    call(16, terminal, 0x5412 | HIGH, b"x")  # TIOCSTI
    return world["secret"]


@attempt
def new_key(world: World) -> object:
    return world["secret"] if call(248, b"user", world["abstract"].encode() + b"k", b"x", 1, -2) > 0 else None


@attempt
def ring_buffer_registration(world: World) -> object:
    try:
        call(427, -1, 0, 0, 0)  # io_uring_register
    except OSError as error:
        return world["secret"] if error.errno in (9, 22) else None  # the arguments are wrong, so the call is available
    return None


@attempt
def listen_on_a_pair(world: World) -> object:
    """A pair of sockets must not become a server or a client."""
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    right.close()
    left.close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(f"{world['project']}/own.sock")
        server.listen()
    return world["secret"]


@attempt
def descriptor_from_a_server(world: World) -> object:
    """A server of the machine could pass a descriptor of a folder outside."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(world["bus_socket"])
        return client.recvmsg(100, 100)[0].decode()


@attempt
def abstract_socket_of_another_kind(world: World) -> object:
    return connect(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC, "\0" + world["abstract"])


@attempt
def list_unix_sockets(world: World) -> object:
    return world["secret"] if world["abstract"] in Path("/proc/net/unix").read_text() else None


@attempt
def list_unix_sockets_by_netlink(world: World) -> object:
    request = struct.pack("<BBHIIII2I", 1, 0, 0, 0xFFFFFFFF, 0, 1, 0, 0, 0)[:24]
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as client:  # NETLINK_SOCK_DIAG
        client.settimeout(30)
        client.send(struct.pack("<IHHII", 16 + len(request), 20, 0x301, 1, 0) + request)
        data = client.recv(1 << 16)
        while len(chunk := client.recv(1 << 16)) > 20:
            data += chunk
    return world["secret"] if world["abstract"].encode() in data else None


# The processes of the machine, as /proc and system calls show them

for name in ("status", "stat", "statm", "limits", "cgroup", "mountinfo", "sched", "comm", "wchan", "loginuid"):
    shell(f"process {name}", f'head -c 10 "/proc/$VICTIM/{name}" > /dev/null && echo "$SECRET"')
shell("process folders", 'ls "/proc/$VICTIM/task" "/proc/$VICTIM/fdinfo" > /dev/null && echo "$SECRET"')
shell("process names", 'ls -l "/proc/$VICTIM/ns/mnt" > /dev/null && echo "$SECRET"')
shell("process working folder", 'cat "/proc/$VICTIM/cwd/../home/.netrc"')
shell("process in pgrep", 'pgrep -f -- "--victim" | grep -qx "$VICTIM" && echo "$SECRET"')
shell(
    "process join with nsenter",
    'nsenter --user --target "$VICTIM" true 2>&1 | grep -q "Invalid argument" && echo "$SECRET"',
)


@attempt
def process_group_of_process(world: World) -> object:
    return world["secret"] if os.getpgid(world["victim"]) == world["victim"] else None


@attempt
def session_of_process(world: World) -> object:
    return world["secret"] if os.getsid(world["victim"]) else None


@attempt
def priority_of_process(world: World) -> object:
    os.getpriority(os.PRIO_PROCESS, world["victim"])
    return world["secret"]


@attempt
def processors_of_process(world: World) -> object:
    return world["secret"] if os.sched_getaffinity(world["victim"]) else None


@attempt
def descriptor_of_process(world: World) -> object:
    return world["secret"] if os.pidfd_open(world["victim"]) >= 0 else None


@attempt
def signal_to_group(world: World) -> object:
    os.killpg(world["victim"], 0)
    return world["secret"]


@attempt
def signal_to_thread(world: World) -> object:
    call(234, world["victim"], world["victim"], 0)  # tgkill
    return world["secret"]


@attempt
def signal_with_data(world: World) -> object:
    information = struct.pack("<3i", signal.SIGUSR1, 0, -1) + bytes(116)
    call(129, world["victim"], signal.SIGUSR1, information)  # rt_sigqueueinfo
    return world["secret"]


@attempt
def change_process_with_system_call(world: World) -> object:
    line = next(line for line in Path(f"/proc/{world['victim']}/maps").read_text().splitlines() if "[stack]" in line)
    start = int(line.split("-")[0], 16)
    ours = ctypes.create_string_buffer(struct.pack("<2Q", ctypes.addressof(ctypes.create_string_buffer(4)), 0), 16)
    theirs = ctypes.create_string_buffer(struct.pack("<2Q", start, 0), 16)
    call(311, world["victim"], ours, 1, theirs, 1, 0)  # process_vm_writev
    return world["secret"]


@attempt
def stop_and_trace_process(world: World) -> object:
    call(101, 0x4206, world["victim"], 0, 0)  # PTRACE_SEIZE
    call(101, 0x4207, world["victim"], 0, 0)  # PTRACE_INTERRUPT
    return world["secret"]


# Other places of the machine

shell("list of temporary files", 'ls /tmp | grep -q "$TMP_NAME.agent" && echo "$SECRET"')
shell("list of shared memory", 'ls /dev/shm | grep -q "$TMP_NAME.secret" && echo "$SECRET"')
shell("shared memory segments", 'test "$(wc -l < /proc/sysvipc/shm)" -gt 1 && echo "$SECRET"')
shell("message queues", 'test "$(wc -l < /proc/sysvipc/msg)" -gt 1 && echo "$SECRET"')
shell("semaphores", 'test "$(wc -l < /proc/sysvipc/sem)" -gt 1 && echo "$SECRET"')
shell("list of terminals", 'test -e "$TERMINAL" && echo "$SECRET"')
shell("intent log", 'mkdir -p t; echo escaped >> t/toolspan-intent.log && echo "$SECRET"')
shell("output files", 'mkdir -p t; ln -s "$OUTSIDE" t/tool-results && echo "$SECRET"')
shell("session folder", 'mkdir -p t; mv t t2; ln -s "$OUTSIDE" t && echo "$SECRET"')
shell("time of a file outside", 'touch "$HOME/.bashrc" && echo "$SECRET"')
shell("owner of a file outside", 'chgrp "$(id -g)" "$OUTSIDE/write_with_sed" && echo "$SECRET"')
shell("write with rsync options", 'cp --parents scripts/guard.sh "$OUTSIDE" && echo "$SECRET"')
shell("write with install", 'install -m 755 scripts/guard.sh "$HOME/.local/bin/make" && echo "$SECRET"')
shell("write with python", "python3 -c \"open('$OUTSIDE/p', 'w')\" && echo \"$SECRET\"")
shell("write with unzip", "echo x > f; python3 -m zipfile -c a.zip f; "
      'python3 -m zipfile -e a.zip "$OUTSIDE" && test -e "$OUTSIDE/f" && echo "$SECRET"')  # fmt: skip
PATCH = "diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+x\n"
shell(
    "write with patch of git",
    f'printf \'{PATCH}\' > d.patch; cd "$OUTSIDE"; git apply "$PROJECT/d.patch" && test -e x && echo "$SECRET"',
)
shell("settings in an allowed folder", 'rm -rf "$PROJECT/.claude"; ln -s "$AREA" "$PROJECT/.claude" && echo "$SECRET"')


@attempt
def limit_of_open_files_of_process(world: World) -> object:
    done = subprocess.run(["prlimit", f"--pid={world['victim']}"], capture_output=True, check=True)
    return world["secret"] if done.stdout else None


if __name__ == "__main__":
    run_all(Path(sys.argv[1]))
