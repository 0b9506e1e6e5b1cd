"""Limit a program that toolspan starts itself to reading certain files.

Landlock decides on the file that was opened, not on its path, so links and renamed folders make no difference. The
kernel restricts a thread and the processes that it starts, so the limit costs neither a launcher nor a new process.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial

from toolspan.runtime.sandbox.landlock import detect_landlock
from toolspan.runtime.sandbox.landlock_launcher import FILE_RIGHTS, call_kernel, restrict_thread

_CREATE_RULESET, _ADD_RULE, _PATH_BENEATH = 444, 445, 1
_EXECUTE, _READ = 1 << 0, 1 << 2 | 1 << 3
_ALL_RIGHTS = (1 << 13) - 1
_INTERPRETER = 3
"""The type of an entry in the program header that names the dynamic linker."""
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

    try:
        for descriptor in descriptors:
            grant(descriptor, _READ)
        for path, rights in (
            (program, _EXECUTE | _READ),
            (os.devnull, _READ | 1 << 1),
            *((path, _EXECUTE | _READ) for path in (_LIBRARIES if _needs_libraries(program) else ())),
        ):
            with suppress(FileNotFoundError):
                descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
                try:
                    grant(descriptor, rights)
                finally:
                    os.close(descriptor)
        yield partial(restrict_thread, ruleset)
    finally:
        os.close(ruleset)


@cache
def _needs_libraries(program: str) -> bool:
    """Return whether a program may be linked dynamically. perf: rules for libraries take 0.1 ms of each call."""
    with suppress(OSError, struct.error), open(program, "rb") as file:  # noqa: PTH123
        header = file.read(64)
        if header[:6] == b"\x7fELF\x02\x01":  # 64 bits, little-endian; see elf(5)
            start, (size, count) = *struct.unpack_from("<Q", header, 32), struct.unpack_from("<HH", header, 54)
            file.seek(start)
            table = file.read(size * count)
            return any(struct.unpack_from("<I", table, at)[0] == _INTERPRETER for at in range(0, len(table), size))
    return True
