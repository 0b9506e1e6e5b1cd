"""The system calls that a sandboxed command may not make, as a filter program for the kernel.

It closes escape routes that namespaces leave open: unix sockets by path, virtual machine sockets, input injection
into a terminal, kernel keys, further namespaces, and tampering with the process that waits for the command. See
seccomp(2) for the format.
"""

from __future__ import annotations

import errno
import platform
import struct
from functools import cache

_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_X32_BIT = 0x40000000
_X32_NUMBERS = (512, 548)
"""The range of further numbers of 32-bit calls, which some kernels accept without that bit."""
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_SOCK_STREAM, _SOCK_SEQPACKET = 1, 5
_TYPE_MASK = 0xF
"""The bits of a socket's type that are not flags."""
_MSG_FASTOPEN = 0x20000000
_SEND_FLAGS = {
    "x86_64": ((44, 3), (46, 2), (307, 3)),
    "aarch64": ((206, 3), (211, 2), (269, 3)),
}
"""The numbers of sendto, sendmsg and sendmmsg, each with the index of its flags argument."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_CLONE_NEWUSER = 0x10000000

_AUDIT_NUMBERS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CALLS = {
    "socket": (41, 198), "socketpair": (53, 199), "ioctl": (16, 29), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "clone": (56, 220), "clone3": (435, 435),
    "unshare": (272, 97),
}  # fmt: skip
"""The numbers of the filtered calls on each machine."""
_MISSING = (
    "keyctl", "add_key", "request_key", "io_uring_setup", "io_uring_enter", "io_uring_register", "bpf",
    "perf_event_open", "userfaultfd", "clone3", "pidfd_getfd",
)  # fmt: skip


@cache
def build_filter(*, unix_sockets: bool, datagrams: bool = True, machine: str | None = None) -> bytes | None:
    """Return the filter program for this or another machine, or None if the numbers of its calls are unknown.

    Without `datagrams`, internet sockets are limited to TCP, and data cannot be sent while connecting (TCP Fast
    Open), which Landlock would not check.
    """
    machine = machine or platform.machine()
    if machine not in _AUDIT_NUMBERS:
        return None
    arch = _AUDIT_NUMBERS[machine]
    column = list(_AUDIT_NUMBERS).index(machine)
    numbers = {name: row[column] for name, row in _CALLS.items()}
    families = [_AF_INET, _AF_INET6, _AF_NETLINK, *([_AF_UNIX] if unix_sockets else [])]
    program: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, arch),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),  # 32-bit calls have different numbers
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
    ]
    if machine == "x86_64":
        first, end = _X32_NUMBERS
        program += [
            (_AT_LEAST, 0, 2, first),
            (_AT_LEAST, 1, 0, end),
            (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        ]

    def deny_unless(name: str, argument: int, values: list[int], error: int) -> None:
        program.append((_EQUAL, 0, len(values) + 3, numbers[name]))
        program.append((_LOAD, 0, 0, _ARGUMENTS + 8 * argument))
        program.extend((_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values))
        program.append((_RETURN, 0, 0, _ERRNO | error))
        program.append((_RETURN, 0, 0, _ALLOW))

    def deny_if(name: str, argument: int, values: list[int], error: int) -> None:
        program.append((_EQUAL, 0, len(values) + 3, numbers[name]))
        program.append((_LOAD, 0, 0, _ARGUMENTS + 8 * argument))
        program.extend((_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values))
        program.append((_RETURN, 0, 0, _ALLOW))
        program.append((_RETURN, 0, 0, _ERRNO | error))

    def deny_flag(number: int, argument: int, flag: int) -> None:
        program.extend(
            [
                (_EQUAL, 0, 5, number),
                (_LOAD, 0, 0, _ARGUMENTS + 8 * argument),
                (_AND, 0, 0, flag),
                (_EQUAL, 1, 0, 0),
                (_RETURN, 0, 0, _ERRNO | errno.EPERM),
                (_LOAD, 0, 0, _NUMBER),
            ]
        )

    if not datagrams:
        program += [
            (_EQUAL, 0, 8, numbers["socket"]),
            (_LOAD, 0, 0, _ARGUMENTS),
            (_EQUAL, 1, 0, _AF_INET),
            (_EQUAL, 0, 4, _AF_INET6),
            (_LOAD, 0, 0, _ARGUMENTS + 8),
            (_AND, 0, 0, _TYPE_MASK),
            (_EQUAL, 1, 0, _SOCK_STREAM),
            (_RETURN, 0, 0, _ERRNO | errno.EPERM),
            (_LOAD, 0, 0, _NUMBER),
        ]
        for number, argument in _SEND_FLAGS[machine]:
            deny_flag(number, argument, _MSG_FASTOPEN)
    # Creating the other namespaces requires a new user namespace.
    for name in ("clone", "unshare"):
        deny_flag(numbers[name], 0, _CLONE_NEWUSER)
    deny_unless("socket", 0, families, errno.EPERM)
    if not unix_sockets:
        # Connected sockets that cannot be connected to anything else. A datagram socket could send to any other one.
        program += [
            (_EQUAL, 0, 8, numbers["socketpair"]),
            (_LOAD, 0, 0, _ARGUMENTS),
            (_EQUAL, 0, 4, _AF_UNIX),
            (_LOAD, 0, 0, _ARGUMENTS + 8),
            (_AND, 0, 0, _TYPE_MASK),
            (_EQUAL, 2, 0, _SOCK_STREAM),
            (_EQUAL, 1, 0, _SOCK_SEQPACKET),
            (_RETURN, 0, 0, _ERRNO | errno.EPERM),
            (_RETURN, 0, 0, _ALLOW),
        ]
    deny_if("ioctl", 1, [_TIOCSTI, _TIOCLINUX], errno.EPERM)
    # Process 1 waits for the command and is not filtered, so no command may change it.
    deny_if("ptrace", 1, [1], errno.EPERM)
    for name in ("process_vm_readv", "process_vm_writev", "pidfd_open"):
        deny_if(name, 0, [1], errno.EPERM)
    # io_uring opens sockets without calling socket(2); clone3 has its flags in memory, which a filter cannot read.
    for name in _MISSING:
        program.append((_EQUAL, 0, 1, numbers[name]))
        program.append((_RETURN, 0, 0, _ERRNO | errno.ENOSYS))
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)
