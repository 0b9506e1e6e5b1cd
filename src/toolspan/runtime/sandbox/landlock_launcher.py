"""Restrict this process with Landlock, then replace it with a command.

`LandlockBackend` runs this file with `python -I -S`, which starts in 10 ms, so it imports only the standard library.
The first argument is a descriptor from which it reads the restrictions; the rest is the command.
`write_restrictions` defines their format. See landlock(7) for the kernel's structures.
"""

import ctypes
import os
import stat
import struct
import sys

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_OPENAT2, _AT_FDCWD, _RESOLVE_NO_SYMLINKS = 437, -100, 4
_PATH_BENEATH, _NET_PORT = 1, 2
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _SECCOMP_FILTER = 38, 22, 2
_CAP_AMBIENT, _CLEAR_ALL, _CAPBSET_DROP = 47, 4, 24
_LIBC = ctypes.CDLL(None, use_errno=True)
FILE_RIGHTS = 0b1100_0000_0000_0111
"""The rights that apply to files: execute, write, read, truncate, ioctl. The others are for folders."""


def main() -> None:
    """Read the restrictions, apply them and run the command."""
    descriptor, command = int(sys.argv[1]), sys.argv[2:]
    with open(descriptor, "rb") as file:
        fields = file.read().split(b"\0")
    try:
        _restrict(fields)
    except OSError as error:
        sys.exit(f"toolspan: Landlock cannot restrict the command: {error}")
    for ignored_by_python in (13, 25):  # SIGPIPE, SIGXFSZ
        _LIBC.signal(ignored_by_python, None)
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 - importing pathlib takes as long as all the rest
        if b"LC_CTYPE" not in {entry.partition(b"=")[0] for entry in file.read().split(b"\0")}:
            os.environ.pop("LC_CTYPE", None)  # set by Python in the C locale
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"toolspan: {command[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


def write_restrictions(
    attributes: bytes, paths: list[tuple[str, int]], ports: list[tuple[int, int]], system_calls: bytes
) -> bytes:
    """Encode the restrictions as NUL-terminated fields. Importing json would take 10 ms."""
    numbers = [(f"{rights}".encode(), os.fsencode(path)) for path, rights in paths]
    fields = [attributes.hex().encode(), system_calls.hex().encode(), b"%d" % len(ports)]
    fields += [b"%d" % number for port in ports for number in port]
    return b"\0".join([*fields, *(field for pair in numbers for field in pair)])


def _restrict(fields: list[bytes]) -> None:
    attributes, program = (bytes.fromhex(field.decode()) for field in fields[:2])
    ruleset = call_kernel(_CREATE_RULESET, attributes, len(attributes), 0)
    end = 3 + 2 * int(fields[2])
    for port, rights in zip(fields[3:end:2], fields[4:end:2], strict=True):
        call_kernel(_ADD_RULE, ruleset, _NET_PORT, struct.pack("=QQ", int(rights), int(port)), 0)
    for rights, path in zip(fields[end::2], fields[end + 1 :: 2], strict=True):
        # A background command could replace a folder with a link to a hidden one.
        how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_NO_SYMLINKS)
        try:
            parent = call_kernel(_OPENAT2, _AT_FDCWD, path, how, len(how))
        except OSError:
            continue  # it vanished or is a link; nothing is granted
        is_folder = stat.S_ISDIR(os.fstat(parent).st_mode)
        granted = int(rights) if is_folder else int(rights) & FILE_RIGHTS
        call_kernel(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", granted, parent), 0)
        os.close(parent)
    restrict_thread(ruleset)
    # A command run by root keeps its user id but loses its capabilities, some of which affect other processes.
    _LIBC.prctl(_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    for capability in range(64):
        _LIBC.prctl(_CAPBSET_DROP, capability, 0, 0, 0)
    os.close(ruleset)
    if program:
        instructions = ctypes.create_string_buffer(program, len(program))
        # struct sock_fprog: the number of instructions of eight bytes, and a pointer to them
        descriptor = struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions))
        if _LIBC.prctl(_SET_SECCOMP, _SECCOMP_FILTER, descriptor, 0, 0):
            raise OSError(ctypes.get_errno(), "system calls cannot be filtered")


def restrict_thread(ruleset: int) -> None:
    """Apply a set of rules to the calling thread and to the processes that it starts. Raise OSError if it fails."""
    if _LIBC.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs cannot be set")
    call_kernel(_RESTRICT_SELF, ruleset, 0)


def landlock_version() -> int:
    """Return the version of the kernel's Landlock interface.

    Raises:
        OSError: the kernel has no Landlock (ENOSYS), or it is disabled (EOPNOTSUPP).
    """
    return call_kernel(_CREATE_RULESET, None, 0, 1)


def call_kernel(number: int, *arguments: bytes | int | None) -> int:
    """Make a system call. Raise OSError if it fails."""
    converted = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result: int = _LIBC.syscall(ctypes.c_long(number), *converted)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


if __name__ == "__main__":
    main()
