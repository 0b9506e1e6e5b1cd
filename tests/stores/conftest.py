"""Stores on real servers. A test that takes `make_store` runs on each of them; missing servers are skipped."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.stores.servers import S3_KEYS, Server, find_postgres, moto_server, prepare_postgres, prepare_redis
from toolspan.stores import LeasedStore, open_store

MakeUrl = Callable[[], str]
"""Returns the URL of a new, empty store."""
KINDS = ("sqlite", "postgres", "redis", "s3")
_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    if find_postgres() is None or find_spec("psycopg") is None:
        pytest.skip("no PostgreSQL here (Debian: postgresql; pip: psycopg[binary])")
    # Not below pytest's folder: each pytest that starts closes that to other users, such as the server's.
    with tempfile.TemporaryDirectory(prefix="toolspan-postgres-") as folder:
        # no test ends the machine, and recovery after a crash would sync each file of the server
        server = prepare_postgres(Path(folder), "fsync=off")
        server.start()
        yield server
        server.stop()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if shutil.which("redis-server") is None or find_spec("redis") is None:
        pytest.skip("no Redis here (Debian: redis-server; pip: redis)")
    server = prepare_redis(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def s3_address() -> Iterator[str]:
    pytest.importorskip("moto", reason="no S3-compatible server here (pip: moto[server])")
    with moto_server() as address:
        yield address


def empty_postgres(server: Server) -> str:
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as connection:
        for (name,) in connection.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'toolspan%'"):
            connection.execute(f"TRUNCATE {name}")
    return server.url


@pytest.fixture(params=KINDS)
def make_url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeUrl:
    kind: str = request.param
    if kind == "sqlite":
        return lambda: f"sqlite://{tmp_path}/{next(_numbers)}.db"
    if kind == "postgres":
        server: Server = request.getfixturevalue("postgres")
        return lambda: empty_postgres(server)
    if kind == "redis":
        url: str = request.getfixturevalue("redis_server").url

        def make_redis_url() -> str:
            import redis

            redis.Redis.from_url(url).flushdb()
            return url

        return make_redis_url
    address = request.getfixturevalue("s3_address")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
    for name, value in S3_KEYS.items():
        monkeypatch.setenv(name, value)
    return lambda: f"s3://test/{next(_numbers)}"


@pytest.fixture
def make_store(make_url: MakeUrl) -> Iterator[Callable[[], LeasedStore]]:
    """Return a function that opens a new, empty store."""
    opened: list[LeasedStore] = []

    def make() -> LeasedStore:
        opened.append(open_store(make_url()))
        return opened[-1]

    yield make
    for store in opened:
        store.close()
