"""Pass a listening socket and this process's namespaces to the process at the other end of standard input.

`SandboxNetwork` runs this file once in a new network namespace, with `python -I -S`, so it imports only the standard
library.
"""

from __future__ import annotations

import os
import socket


def main() -> None:
    """Listen on the loopback and send the descriptors."""
    listener = socket.create_server(("127.0.0.1", 0))
    namespaces = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in ("user", "net")]
    with socket.socket(fileno=0) as channel:
        socket.send_fds(channel, [b"\0"], [listener.fileno(), *namespaces])


if __name__ == "__main__":
    main()
