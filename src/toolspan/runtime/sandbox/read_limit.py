"""Limit a program that toolspan starts itself to reading certain files.

Landlock decides on the file that was opened, not on its path, so links and renamed folders make no difference. The
kernel restricts a thread and the processes that it starts, so the limit costs neither a launcher nor a new process.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from toolspan.runtime.sandbox.landlock import detect_landlock
from toolspan.runtime.sandbox.landlock_launcher import FILE_RIGHTS, call_kernel

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH, _SET_NO_NEW_PRIVS = 1, 38
_EXECUTE, _READ = 1 << 0, 1 << 2 | 1 << 3
_ALL_RIGHTS = (1 << 13) - 1
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/nix/store", "/etc/ld.so.cache")


def can_limit_reading() -> bool:
    """Return whether the kernel has Landlock."""
    return detect_landlock().backend is not None


@contextmanager
def limit_reading(program: str, descriptors: Iterable[int]) -> Iterator[Callable[[], None]]:
    """Yield a function for `Command.restrict`, to be used within the block.

    The program can read only the files and folders with these descriptors and its libraries, and write nothing.

    Raises:
        OSError: the kernel does not accept the limit.
    """
    attributes = struct.pack("=Q", _ALL_RIGHTS)
    ruleset = call_kernel(_CREATE_RULESET, attributes, len(attributes), 0)

    def grant(descriptor: int, rights: int) -> None:
        rights &= -1 if stat.S_ISDIR(os.fstat(descriptor).st_mode) else FILE_RIGHTS
        call_kernel(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, descriptor), 0)

    def restrict() -> None:
        if ctypes.CDLL(None, use_errno=True).prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "no_new_privs cannot be set")
        call_kernel(_RESTRICT_SELF, ruleset, 0)

    try:
        for descriptor in descriptors:
            grant(descriptor, _READ)
        for path, rights in (
            (program, _EXECUTE | _READ),
            (os.devnull, _READ | 1 << 1),
            *((path, _EXECUTE | _READ) for path in _LIBRARIES),
        ):
            with suppress(FileNotFoundError):
                descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
                try:
                    grant(descriptor, rights)
                finally:
                    os.close(descriptor)
        yield restrict
    finally:
        os.close(ruleset)
