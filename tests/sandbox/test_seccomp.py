"""The system call filter leaves no way to a socket of the machine, on both kinds of machines."""

from __future__ import annotations

import errno
import platform
import re
import socket
import struct
from pathlib import Path

import pytest

from tests.sandbox.test_sandbox import open_project
from toolspan.runtime.sandbox.seccomp import build_filter

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_HEADERS = {
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "aarch64": "/usr/include/asm-generic/unistd.h",
}


def run_filter(machine: str, number: int, *arguments: int, arch: int | None = None) -> int:
    """Return the error number of a system call, or 0, as the kernel's interpreter of filters would."""
    program = build_filter(unix_sockets=False, machine=machine)
    assert program is not None
    instructions = list(struct.iter_unpack("<HBBI", program))
    values = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("<IIQ6Q", number, arch or _ARCHES[machine], 0, *values)
    at = accumulator = 0
    while True:
        code, on_true, on_false, value = instructions[at]
        at += 1
        match code:
            case 0x20:
                accumulator = struct.unpack_from("<I", data, value)[0]
            case 0x54:
                accumulator &= value
            case 0x15:
                at += on_true if accumulator == value else on_false
            case 0x35:
                at += on_true if accumulator >= value else on_false
            case 0x06:
                return 0 if value == _ALLOW else value - _ERRNO
            case _:
                pytest.fail(f"unknown instruction {code:#x}")


def read_numbers(machine: str) -> dict[str, int]:
    header = Path(_HEADERS[machine])
    if not header.exists():
        pytest.skip("the kernel's headers are not installed")
    return {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)$", header.read_text(), re.M)}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_call_that_makes_a_socket_is_filtered(machine: str) -> None:
    numbers = read_numbers(machine)
    families = {name: int(getattr(socket, name)) for name in dir(socket) if name.startswith("AF_")}
    allowed = {name for name, family in families.items() if run_filter(machine, numbers["socket"], family, 1) == 0}
    pairs = [kind for kind in range(16) if run_filter(machine, numbers["socketpair"], socket.AF_UNIX, kind) == 0]

    assert allowed == {"AF_INET", "AF_INET6", "AF_NETLINK", "AF_ROUTE"} & families.keys()
    assert pairs == [socket.SOCK_STREAM, socket.SOCK_SEQPACKET]
    assert run_filter(machine, numbers["socketpair"], socket.AF_UNIX, socket.SOCK_STREAM | 0o2004000) == 0
    assert run_filter(machine, numbers["socketpair"], socket.AF_UNIX, socket.SOCK_DGRAM | 0o2004000) == errno.EPERM
    for name in ("io_uring_setup", "io_uring_enter", "io_uring_register", "pidfd_getfd", "clone3", "bpf", "keyctl"):
        assert run_filter(machine, numbers[name]) == errno.ENOSYS
    for name in ("read", "write", "connect", "sendto", "execve", "openat", "clone"):
        assert run_filter(machine, numbers[name], 17) == 0


def test_calls_with_the_numbers_of_32_bit_programs_are_refused() -> None:
    numbers = read_numbers("x86_64")

    assert run_filter("x86_64", 102, arch=0x40000003) == errno.EPERM  # socketcall(2) of i386
    assert run_filter("x86_64", numbers["socket"] | 0x40000000, socket.AF_INET) == errno.EPERM  # of x32
    assert {run_filter("x86_64", number) for number in range(512, 548)} == {errno.EPERM}
    assert [run_filter("x86_64", number) for number in (511, 548)] == [0, 0]
    assert run_filter("aarch64", 281, socket.AF_UNIX, arch=0x40000028) == errno.EPERM  # socket(2) of arm


_REACH = """
import array, socket, sys
path, kind = sys.argv[1], getattr(socket, sys.argv[2])
results = []
for way in ("pair", "sendto", "connect", "pass", "after close"):
    try:
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        if way == "sendto":
            ours.sendto(b"reached", path)
        elif way == "connect":
            ours.connect(path)
            ours.send(b"reached")
        elif way == "pass":
            ours.sendmsg([b"reached"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))], 0, path)
        elif way == "after close":
            theirs.close()
            ours.connect(path)
            ours.send(b"reached")
        results.append(way)
    except OSError:
        pass
print(*results, sep=",")
"""


@pytest.mark.anyio
@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.skipif(platform.machine() not in _ARCHES, reason="system calls are not filtered on this machine")
async def test_a_pair_of_sockets_does_not_reach_a_socket_of_the_machine(folder: Path, user_folder: Path) -> None:
    (folder / "reach.py").write_text(_REACH)
    results = {}
    kinds = ("SOCK_DGRAM", "SOCK_RAW", "SOCK_STREAM", "SOCK_SEQPACKET")
    async with open_project(folder) as project:
        for kind in kinds:
            path = user_folder / kind
            with socket.socket(socket.AF_UNIX, getattr(socket, kind)) as server:
                server.bind(str(path))
                server.setblocking(False)
                if kind in ("SOCK_STREAM", "SOCK_SEQPACKET"):
                    server.listen()
                results[kind] = (await project.bash(f"python3 reach.py {path} {kind}")).content
                with pytest.raises(BlockingIOError):  # neither a message nor a connection has arrived
                    _ = server.accept() if kind in ("SOCK_STREAM", "SOCK_SEQPACKET") else server.recv(100)

    # A packet socket ignores the address and sends to its own pair.
    assert {kind: str(text).split(",")[0] for kind, text in results.items()} == {
        "SOCK_DGRAM": "(Bash completed with no output)",
        "SOCK_RAW": "(Bash completed with no output)",
        "SOCK_STREAM": "pair",
        "SOCK_SEQPACKET": "pair",
    }


@pytest.mark.anyio
@pytest.mark.usefixtures("bubblewrap")
async def test_a_command_inherits_no_socket_and_no_descriptor_of_a_folder(folder: Path) -> None:
    listing = "python3 -c \"import os; print(*{os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')"
    listing += " if os.path.lexists(f'/proc/self/fd/{n}')}, sep='\\n')\""
    async with open_project(folder) as project:
        finished = await project.bash(listing)

    lines = str(finished.content).splitlines()
    assert finished.span.state == "succeeded"
    assert [line for line in lines if line.startswith("socket:")] == []
    assert {re.sub(r"\d+", "N", line) for line in lines} <= {
        "/dev/null",
        "pipe:[N]",
        "/memfd:cwd (deleted)",
        "/proc/N/fd",
    }
