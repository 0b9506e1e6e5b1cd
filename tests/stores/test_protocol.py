"""The protocol of leases and appends, checked against a model in generated orders, also with faults planted in it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.stores.conftest import MakeUrl
from toolspan.errors import InUse
from toolspan.stores import LeasedStore, LeaseLost, open_store
from toolspan.stores.base import Append, Lease, LeaseRequest, StreamKey
from toolspan.stores.sql import Database, SqlStore
from toolspan.stores.sqlite import SqliteStore

KEY = StreamKey("project", "session")
INTENTS = KEY.with_subpath("toolspan/intents")
HOSTS = 3
hosts = st.integers(0, HOSTS - 1)
_numbers = itertools.count()


class Protocol(RuleBasedStateMachine):
    """Hosts that acquire, append, release and are cut off, and what the store must contain then."""

    open_stores: Callable[[], Sequence[LeasedStore]]

    def __init__(self) -> None:
        super().__init__()
        self.stores = type(self).open_stores()
        self.leases: list[Lease | None] = [None] * HOSTS
        self.positions = [0] * HOSTS
        self.current: Lease | None = None
        self.is_live = False
        self.lines: list[bytes] = []
        self.intents: list[bytes] = []
        self.highest_fence = 0
        self.is_stored = False

    def teardown(self) -> None:
        for store in self.stores:
            store.close()

    @rule(host=hosts, live=st.booleans())
    def acquire(self, host: int, live: bool) -> None:
        """Acquire a lease that lasts, or one that has expired at once, as that of a host that stopped."""
        request = LeaseRequest(KEY, f"owner-{host}", "host", host, 60 if live else -10)
        held = self.current is not None and self.is_live and self.current.owner != request.owner
        try:
            lease = self.stores[host].acquire_lease(request)
        except InUse:
            assert held
            return
        assert not held
        assert lease.fence > self.highest_fence
        self.highest_fence = lease.fence
        self.leases[host] = self.current = lease
        self.is_live = live
        self.positions[host] = len(self.lines)

    @rule(host=hosts, attempts=st.integers(1, 3), count=st.integers(1, 3))
    def append(self, host: int, attempts: int, count: int) -> None:
        """Append, and again if the answer to the first attempt was lost."""
        lease = self.leases[host]
        if lease is None:
            return
        new = [json.dumps({"type": "x", "n": next(_numbers)}).encode() for _ in range(count)]
        intent = json.dumps({"type": "x", "begin": next(_numbers)}).encode()
        appends = [Append(KEY, new, self.positions[host]), Append(INTENTS, [intent], len(self.intents))]
        for _ in range(attempts):
            try:
                self.stores[host].commit(appends, lease)
            except LeaseLost:
                assert lease is not self.current
                return
            assert lease is self.current
        self.lines += new
        self.intents.append(intent)
        self.positions[host] = len(self.lines)
        self.is_stored = True

    @rule(host=hosts)
    def append_without_a_lease(self, host: int) -> None:
        line = json.dumps({"type": "x", "n": next(_numbers)}).encode()
        try:
            self.stores[host].commit([Append(KEY, [line])])
        except InUse:
            assert self.current is not None
            assert self.is_live
            return
        assert self.current is None or not self.is_live
        self.lines.append(line)
        self.current, self.is_stored = None, True

    @rule(host=hosts)
    def renew(self, host: int) -> None:
        lease = self.leases[host]
        if lease is not None:
            try:
                self.stores[host].renew_lease(lease)
            except LeaseLost:
                assert lease is not self.current
            else:
                assert lease is self.current

    @rule(host=hosts)
    def release(self, host: int) -> None:
        lease = self.leases[host]
        if lease is not None:
            self.stores[host].release_lease(lease)
            if lease is self.current:
                self.current = None

    @rule(host=hosts)
    def remove(self, host: int) -> None:
        if not self.is_stored:
            return
        try:
            self.stores[host].remove_stream(KEY)
        except InUse:
            assert self.current is not None
            assert self.is_live
            return
        assert self.current is None or not self.is_live
        self.current = None
        self.lines, self.intents, self.is_stored = [], [], False
        self.positions = [0] * HOSTS

    @rule(host=hosts)
    def forget(self, host: int) -> None:
        """Close a store, as if its host were started again."""
        self.stores[host].close()

    @invariant()
    def every_host_reads_what_was_appended(self) -> None:
        for store in self.stores[:2]:
            assert (store.read_lines(KEY) or []) == self.lines
            assert (store.read_lines(INTENTS) or []) == self.intents


def check(open_stores: Callable[[], Sequence[LeasedStore]], **chosen_settings: Any) -> None:
    machine = type("Machine", (Protocol,), {"open_stores": staticmethod(open_stores)})
    chosen = settings(**{"stateful_step_count": 25, **chosen_settings})
    run_state_machine_as_test(machine, settings=chosen)


def test_every_order_of_steps_keeps_the_protocol(make_url: MakeUrl, request: pytest.FixtureRequest) -> None:
    def open_stores() -> Sequence[LeasedStore]:
        url = make_url()
        return [open_store(url) for _ in range(HOSTS)]

    is_local = "sqlite" in request.node.name
    check(open_stores, **({} if is_local else {"max_examples": 5, "stateful_step_count": 12}))


class IgnoredFence(SqliteStore):
    """A store that extends the lease of the session, whoever asks."""

    def _extend(self, database: Database, lease: Lease) -> None:
        database.execute(
            "UPDATE toolspan_lease SET expires = expires WHERE project_key = ? AND session_id = ?",
            (lease.project, lease.session),
        )


class ForgottenOwner(SqliteStore):
    """A store in which an append without a lease does not end an expired one."""

    def _end_expired_lease(self, database: Database, project: str, session: str) -> None:
        current = self._read_lease(database, project, session)
        if current is not None and current.owner and current.is_live:
            super()._end_expired_lease(database, project, session)


class RepeatedLines(SqliteStore):
    """A store that appends repeated lines again."""

    def _append(self, database: Database, append: Append) -> None:
        super()._append(database, append._replace(start=None))


class ReusedFence(SqliteStore):
    """A store that gives the fencing number of an expired lease again."""

    def acquire_lease(self, request: LeaseRequest) -> Lease:
        lease = super().acquire_lease(request)
        if lease.fence == 3:
            with self.transaction(writes=True) as database:
                database.execute("UPDATE toolspan_lease SET fence = 2")
            return request.grant(2, 1)
        return lease


@pytest.mark.parametrize("faulty", [IgnoredFence, ForgottenOwner, RepeatedLines, ReusedFence])
def test_a_planted_fault_is_found(faulty: type[SqlStore], tmp_path: Path) -> None:
    make: Any = faulty

    def open_stores() -> Sequence[LeasedStore]:
        path = tmp_path / f"{next(_numbers)}.db"
        return [make(path) for _ in range(HOSTS)]

    with pytest.raises((AssertionError, LeaseLost)):
        check(open_stores, max_examples=200, phases=[Phase.generate], report_multiple_bugs=False, derandomize=True)
