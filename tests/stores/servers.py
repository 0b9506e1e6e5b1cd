"""Real servers for stores, each in a folder of its own on a free port of this machine."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, Thread
from typing import IO, Any

from tests.limits import PATIENCE


def find_postgres() -> Path | None:
    """Return the folder with PostgreSQL's programs; Debian keeps them outside of PATH."""
    candidates = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    if program := shutil.which("initdb"):
        candidates.insert(0, Path(program).resolve().parent)
    return next((folder for folder in candidates if (folder / "initdb").exists()), None)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Server:
    """A server process that a test can pause, kill and start again with its data."""

    def __init__(
        self,
        command: list[str],
        port: int,
        url: str,
        user: str | None = None,
        is_ready: Sequence[str] = ("true",),
        *,
        is_durable: bool = True,
    ) -> None:
        self.command = command
        self.is_durable = is_durable
        """True if its data survives a restart."""
        self._is_ready = is_ready
        """A command that fails while the server accepts connections but is not ready."""
        self.port = port
        self.url = url
        self._user = user
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with tempfile.TemporaryFile() as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, user=self._user, cwd="/")
            self._wait_until_ready(self.process, log)

    def _wait_until_ready(self, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", self.port)) == 0 and not subprocess.call(
                    self._is_ready, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                ):
                    return
            if time.monotonic() > deadline or process.poll() is not None:
                log.seek(0)
                raise RuntimeError(f"{self.command[0]} did not start:\n{log.read().decode(errors='replace')[-2000:]}")
            time.sleep(0.05)

    def stop(self, number: int = signal.SIGINT) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait()
            self.process = None


def prepare_postgres(folder: Path, *settings: str) -> Server:
    """Return a PostgreSQL server with an empty database. It refuses to run as root, so that its own user runs it."""
    programs = find_postgres()
    assert programs is not None
    user = "postgres" if os.geteuid() == 0 else None
    data, port = folder / "postgres", free_port()
    data.mkdir(parents=True)
    if user is not None:
        os.chown(data, pwd.getpwnam(user).pw_uid, -1)
        for parent in data.parents:  # its user must reach the folder
            if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
                parent.chmod(parent.stat().st_mode | 0o011)
    subprocess.run(
        [programs / "initdb", "-D", data, "-U", "toolspan", "--auth=trust", "-E", "UTF8", "--no-sync", "--locale=C"],
        check=True, stdout=subprocess.DEVNULL, user=user, cwd="/",
    )  # fmt: skip
    command = [str(programs / "postgres"), "-D", str(data), "-p", str(port), "-k", ""]
    for setting in ("listen_addresses=127.0.0.1", *settings):
        command += ["-c", setting]
    is_ready = [str(programs / "pg_isready"), "-h", "127.0.0.1", "-p", str(port), "-U", "toolspan", "-d", "postgres"]
    return Server(command, port, f"postgresql://toolspan@127.0.0.1:{port}/postgres", user, is_ready)


def prepare_redis(folder: Path) -> Server:
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "",
               "--appendonly", "yes", "--appendfsync", "always"]  # fmt: skip
    return Server(command, port, f"redis://127.0.0.1:{port}/0")


S3_KEYS = {
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
}
"""Variables with which boto3 uses a local server."""


def prepare_s3(folder: Path) -> Server:
    """Return a server like `moto_server` in a process. It forgets everything when it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    is_ready = [sys.executable, "-c", f"import urllib.request as r; r.urlopen('http://127.0.0.1:{port}/test')"]
    return Server([sys.executable, __file__, str(port)], port, "s3://test/sessions", None, is_ready, is_durable=False)


@contextmanager
def moto_server(port: int = 0) -> Iterator[str]:
    """Run an S3-compatible server in a thread, with a bucket `test`; yield its address.

    It answers one request after another, because moto checks the condition of a request before it reads its body.
    """
    import boto3
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    application, lock = DomainDispatcherApplication(create_backend_app), Lock()

    def answer(environ: Any, start_response: Any) -> list[bytes]:
        with lock:
            return list(application(environ, start_response))

    server = make_server("127.0.0.1", port, answer, threaded=True)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        client = boto3.client(
            "s3", endpoint_url=address, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
        )
        client.create_bucket(Bucket="test")
        client.close()
        yield address
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


if __name__ == "__main__":
    with moto_server(int(sys.argv[1])):
        signal.pause()
