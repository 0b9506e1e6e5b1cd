"""Run a command in a fork of the server at the socket that the first argument names. See `fork_server.py`.

Only the standard library is imported, because tests start this program often.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)  # until the command's id is known; it may start earlier
    server, *arguments = sys.argv[1:]
    request = json.dumps([arguments, os.getcwd(), dict(os.environ)]).encode()  # noqa: PTH109 - pathlib is slow to import
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(server)
        socket.send_fds(connection, [len(request).to_bytes(8)], [0, 1, 2])
        connection.sendall(request)
        for descriptor in (0, 1, 2):  # the command has its own; its reader waits for the last copy to be closed
            os.close(descriptor)
        process_id = int.from_bytes(connection.recv(8))
        for number in FORWARDED:
            signal.signal(number, lambda number, _: os.kill(process_id, number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        code = int.from_bytes(connection.recv(8), signed=True)
    if code < 0:  # ended by a signal
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
