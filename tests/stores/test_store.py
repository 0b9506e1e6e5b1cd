"""All stores keep the contracts of the Agent SDK's interface, and those of leases and transactions."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.stores.conftest import MakeUrl
from toolspan.errors import InUse, ToolspanError
from toolspan.stores import LeasedStore, LeaseLost, open_store
from toolspan.stores.base import Append, LeaseRequest, StreamKey

pytestmark = pytest.mark.anyio

MakeStore = Callable[[], LeasedStore]
KEY = StreamKey("project", "session")
INTENTS = KEY.with_subpath("toolspan/intents")


def lines(*numbers: int) -> list[bytes]:
    return [json.dumps({"type": "x", "uuid": f"id-{n}", "n": n}).encode() for n in numbers]


def request(ttl: float = 60.0) -> LeaseRequest:
    return LeaseRequest.make(KEY, ttl)


async def test_the_agent_sdks_contracts_are_kept(make_store: MakeStore) -> None:
    testing = pytest.importorskip("claude_agent_sdk.testing", reason="claude-agent-sdk is not installed")
    await testing.run_session_store_conformance(make_store)


async def test_entries_come_back_as_they_were_appended(make_store: MakeStore) -> None:
    odd = {"type": "x", "text": "\0 \ud800 é\u2028", "big": 2**70, "float": 0.1, "none": None, "nested": [{"": []}]}
    store = make_store()
    await store.append(KEY.to_json(), [odd])
    assert await store.load(KEY.to_json()) == [odd]


async def test_an_entry_with_the_same_id_is_kept_once(make_store: MakeStore) -> None:
    store = make_store()
    for _ in range(2):
        await store.append(KEY.to_json(), [{"type": "x", "uuid": "a"}, {"type": "x", "uuid": "b"}, {"type": "title"}])
    loaded = await store.load(KEY.to_json())
    assert loaded is not None
    assert [entry.get("uuid") for entry in loaded] == ["a", "b", None, None]


def test_a_commit_that_is_repeated_appends_nothing(make_store: MakeStore) -> None:
    store = make_store()
    lease = store.acquire_lease(request())
    without_id = [b'{"type":"last-prompt"}']
    for _ in range(2):
        store.commit([Append(KEY, lines(1, 2) + without_id, 0), Append(INTENTS, [b'{"begin":"a"}'], 0)], lease)
    store.commit([Append(KEY, without_id + lines(3), 2)], lease)  # repeats the third
    assert store.read_lines(KEY) == lines(1, 2) + without_id + lines(3)
    assert store.read_lines(KEY, 2) == without_id + lines(3)
    assert store.read_lines(INTENTS) == [b'{"begin":"a"}']


def test_a_second_owner_waits_for_the_end_of_the_lease(make_store: MakeStore) -> None:
    store = make_store()
    first = store.acquire_lease(request())
    with pytest.raises(InUse, match="is running this session"):
        store.acquire_lease(request())
    (listed,) = store.list_leases("project")
    assert (listed.owner, listed.fence, listed.is_live) == (first.owner, first.fence, True)
    store.release_lease(first)
    assert store.list_leases() == []
    assert store.acquire_lease(request()).fence > first.fence


def test_an_owner_whose_lease_was_taken_over_cannot_append(make_store: MakeStore) -> None:
    store = make_store()
    old = store.acquire_lease(request())
    store.commit([Append(KEY, lines(1), 0)], old)
    store.release_lease(old)
    new = store.acquire_lease(request())
    with pytest.raises(LeaseLost):
        store.commit([Append(KEY, lines(2), 1), Append(INTENTS, lines(3), 0)], old)
    with pytest.raises(LeaseLost):
        store.renew_lease(old)
    store.release_lease(old)  # does not end the lease of another owner
    store.commit([Append(KEY, lines(4), 1)], new)
    assert store.read_lines(KEY) == lines(1, 4)
    assert store.read_lines(INTENTS) is None


def test_an_expired_owner_may_append_until_another_one_is_there(make_store: MakeStore) -> None:
    store = make_store()
    expired = store.acquire_lease(request(ttl=-10))
    store.commit([Append(KEY, lines(1), 0)], expired)  # its ttl is negative, so that this does not extend it
    assert not store.list_leases()[0].is_live
    new = store.acquire_lease(request())
    assert new.previous_fence == expired.fence
    with pytest.raises(LeaseLost):
        store.commit([Append(KEY, lines(2), 1)], expired)


async def test_without_a_lease_nobody_appends_to_a_running_session(make_store: MakeStore) -> None:
    store = make_store()
    lease = store.acquire_lease(request())
    store.commit([Append(KEY, lines(1), 0)], lease)
    with pytest.raises(InUse):
        await store.append(KEY.to_json(), [{"type": "x"}])
    with pytest.raises(InUse):
        await store.delete(KEY.to_json())
    store.release_lease(lease)

    expired = store.acquire_lease(request(ttl=-10))
    await store.append(KEY.to_json(), [{"type": "x"}])
    with pytest.raises(LeaseLost):  # it would append after entries that it does not know
        store.commit([Append(KEY, lines(2), 1)], expired)


def test_of_many_owners_at_once_one_gets_the_lease(make_url: MakeUrl) -> None:
    url, count = make_url(), 6
    stores = [open_store(url) for _ in range(count)]
    start = threading.Barrier(count)

    def acquire(store: LeasedStore) -> int | None:
        start.wait()
        try:
            return store.acquire_lease(request()).fence
        except InUse:
            return None
        finally:
            store.close()

    with ThreadPoolExecutor(count) as executor:
        fences = list(executor.map(acquire, stores))
    assert len([fence for fence in fences if fence is not None]) == 1


def test_appends_of_many_writers_lose_nothing(make_url: MakeUrl) -> None:
    url, count = make_url(), 4
    stores = [open_store(url) for _ in range(count)]

    def append(n: int) -> None:
        for m in range(10):
            stores[n].commit([Append(KEY, lines(100 * n + m))])
        stores[n].close()

    with ThreadPoolExecutor(count) as executor:
        list(executor.map(append, range(count)))
    store = open_store(url)
    found = [json.loads(line)["n"] for line in store.read_lines(KEY) or ()]
    assert sorted(found) == sorted(100 * n + m for n in range(count) for m in range(10))
    for n in range(count):
        assert [number for number in found if number // 100 == n] == [100 * n + m for m in range(10)]
    (stream,) = store.list_streams()
    assert stream.entries == len(found)
    store.close()


@pytest.mark.parametrize("url", ["nothing", "mysql://host/db", "sqlite://", "s3://"])
def test_a_url_of_no_store_is_an_error(url: str) -> None:
    with pytest.raises(ToolspanError, match="is not the URL of a store"):
        open_store(url)
