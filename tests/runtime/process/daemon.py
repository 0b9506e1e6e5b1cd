"""A daemon that forks twice, changes its session and clears its environment; then it names itself in a file."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    with open(sys.argv[1] + ".new", "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(str(os.getpid()))
    os.rename(sys.argv[1] + ".new", sys.argv[1])  # noqa: PTH104
    os.execve("/bin/sleep", ["sleep", "1000"], {})
