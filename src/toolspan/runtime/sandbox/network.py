"""The network of a session's sandbox: a namespace that has only a loopback, and the proxy that leads out of it.

The namespace is created once and shared by the commands of a session, so that a server started by one command is
reachable from the next. No process bridges the two sides: `namespace_listener.py` runs once inside the namespace and
passes its listening socket and the namespace itself to this process, which accepts the connections. `nsenter` starts
each command in the namespace.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from anyio import to_thread

from toolspan.errors import ToolspanError
from toolspan.runtime.sandbox.proxy import NetworkProxy

_LISTENER_SCRIPT = Path(__file__).with_name("namespace_listener.py")
_START_TIMEOUT = 20.0
_LOOPBACK_NAMES = "localhost,127.0.0.1,::1"


class NetworkError(ToolspanError):
    """Raised if the network of the sandbox cannot be created."""


class SandboxNetwork:
    """The network that the commands of one session see. Create it with `open` or `open_on_loopback`."""

    def __init__(self, proxy: NetworkProxy, port: int, prefix: tuple[str, ...], resources: ExitStack) -> None:
        self.proxy = proxy
        self.port = port
        """The port of the proxy on the loopback that commands see."""
        self.prefix = prefix
        """The beginning of a command line that runs the rest of it in the namespace."""
        self._resources = resources

    @classmethod
    async def open(cls, proxy: NetworkProxy, *, bwrap: str = "bwrap") -> Self:
        """Create a network namespace and serve the proxy on its loopback.

        Raises:
            NetworkError: a program is missing, or this user may not create namespaces.
        """
        nsenter = shutil.which("nsenter")
        if nsenter is None:
            raise NetworkError("Cannot create the sandbox's network: nsenter was not found. Install util-linux.")
        with ExitStack() as resources:
            listener, user_namespace, network_namespace = await to_thread.run_sync(_create_namespace, bwrap)
            resources.callback(listener.close)
            resources.callback(os.close, user_namespace)
            resources.callback(os.close, network_namespace)
            await proxy.listen(listener)
            # The files of this process keep the namespaces alive; no process has to run in them.
            files = f"/proc/{os.getpid()}/fd"
            entry = (f"--user={files}/{user_namespace}", f"--net={files}/{network_namespace}")
            prefix = (nsenter, "--preserve-credentials", *entry, "--")
            return cls(proxy, listener.getsockname()[1], prefix, resources.pop_all())

    @classmethod
    async def open_on_loopback(cls, proxy: NetworkProxy) -> Self:
        """Serve the proxy on this machine's loopback, for sandboxes without a network namespace."""
        listener = socket.create_server(("127.0.0.1", 0))
        await proxy.listen(listener)
        return cls(proxy, listener.getsockname()[1], (), ExitStack())

    def environment(self, *, user: str = "toolspan") -> dict[str, str]:
        """Return the variables that lead clients to the proxy. `user` identifies the call in `RefusedAddress`."""
        url = self.proxy.proxy_url(self.port, user=user)
        variables = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), url)
        variables["NO_PROXY"] = _LOOPBACK_NAMES
        return variables | {name.lower(): value for name, value in variables.items()} | {"NODE_USE_ENV_PROXY": "1"}

    async def aclose(self) -> None:
        """Close the proxy and release the namespace, which ends with its last command."""
        await self.proxy.aclose()
        self._resources.close()

    async def __aenter__(self) -> Self:
        """Return the network."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the network."""
        await self.aclose()


def _create_namespace(bwrap: str) -> tuple[socket.socket, int, int]:
    """Return a socket that listens on the loopback of a new network namespace, the user and the network namespace."""
    command = [bwrap, "--unshare-user", "--unshare-net", "--dev-bind", "/", "/", "--"]
    command += [sys.executable, "-I", "-S", str(_LISTENER_SCRIPT)]
    ours, theirs = socket.socketpair()
    with ours:
        ours.settimeout(_START_TIMEOUT)
        try:
            with theirs:
                process = subprocess.Popen(
                    command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
                )
            with process:
                _, descriptors, _, _ = socket.recv_fds(ours, 1, 3)
                assert process.stderr is not None
                problem = process.stderr.read().decode(errors="replace").strip()
        except OSError as error:
            raise NetworkError(f"Cannot create the sandbox's network: {error}") from error
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # noqa: FBT003
    if len(descriptors) != 3:
        raise NetworkError(f"Cannot create the sandbox's network: {problem or 'bubblewrap failed'}")
    return socket.socket(fileno=descriptors[0]), descriptors[1], descriptors[2]
