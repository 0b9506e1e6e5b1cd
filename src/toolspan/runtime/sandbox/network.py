"""A session's network namespace, which contains only a loopback interface.

All sandboxed commands of a session share it, so that one command can reach a server started by another. A helper
process keeps it open and hands over a socket that listens inside it, on which the proxy accepts connections.
"""

from __future__ import annotations

import array
import asyncio
import socket
import subprocess
import sys
from contextlib import suppress

from toolspan.runtime.sandbox.settings import SandboxUnavailable

# The helper runs with `python -I -S`: it imports only what it needs, which takes 10 ms.
_HELPER = """
import ctypes, fcntl, os, socket, struct, sys
channel = socket.socket(fileno=int(sys.argv[1]))
uid, gid = os.getuid(), os.getgid()
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x10000000 | 0x40000000):  # CLONE_NEWUSER | CLONE_NEWNET
    channel.sendall(os.strerror(ctypes.get_errno()).encode())
    sys.exit(1)
for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    fcntl.ioctl(control, 0x8914, struct.pack("16sh14x", b"lo", 1 | 64))  # SIOCSIFFLAGS: IFF_UP | IFF_RUNNING
listener = socket.create_server(("127.0.0.1", 0))
socket.send_fds(channel, [b"ok"], [listener.fileno()])
listener.close()
channel.recv(1)  # until the session ends, however it ends
"""


class NetworkNamespace:
    """A network namespace with a socket that listens on its loopback address."""

    def __init__(self, process: subprocess.Popen[bytes], channel: socket.socket, listener: socket.socket) -> None:
        self._process = process
        self._channel = channel
        self.listener = listener
        self.pid = process.pid

    @classmethod
    async def open(cls) -> NetworkNamespace:
        """Create a network namespace.

        Raises:
            SandboxUnavailable: the kernel does not permit it.
        """
        return await asyncio.to_thread(cls._open)

    @classmethod
    def _open(cls) -> NetworkNamespace:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _HELPER, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                process_group=0,  # Ctrl-C is for toolspan
            )
        ours.settimeout(10)
        try:
            message, descriptors, _, _ = socket.recv_fds(ours, 256, 1)
        except OSError as error:
            message, descriptors = str(error).encode(), array.array("i").tolist()
        if not descriptors:
            ours.close()
            process.wait()
            raise SandboxUnavailable(f"cannot create a network namespace: {message.decode() or 'the helper failed'}")
        listener = socket.socket(fileno=descriptors[0])
        listener.settimeout(0)
        return cls(process, ours, listener)

    @property
    def is_open(self) -> bool:
        """True while the helper process is running."""
        return self._process.poll() is None

    def close(self) -> None:
        """Terminate the helper process. The namespace exists until the last command in it has ended."""
        with suppress(OSError):
            self.listener.close()
        self._channel.close()
        self._process.wait()
