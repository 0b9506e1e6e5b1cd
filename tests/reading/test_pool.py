"""Work that processes share: the same answers in the same order, and nothing left behind."""

from __future__ import annotations

import os
import signal

import pytest

from tests.requirement import requirement
from toolspan.errors import ToolspanError
from toolspan.reading.parallel import fork_map


@requirement("survey.cores-change-nothing")
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_answers_come_in_order_whoever_finds_them(processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: processes)
    sizes = [(7 * n) % 11 for n in range(500)]

    found = list(fork_map(sizes, lambda n: b"%d" % n if n % 3 else {"n": n, "data": "x" * 9_999}))

    assert found == [b"%d" % n if n % 3 else {"n": n, "data": "x" * 9_999} for n in range(len(sizes))]


@requirement("survey.cores-change-nothing")
def test_where_no_process_can_be_made_the_work_is_done_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "fork", refuse)

    assert list(fork_map([1, 1, 1], lambda n: n)) == [0, 1, 2]


@requirement("survey.processes-end")
def test_a_process_that_is_ended_from_outside_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    me = os.getpid()

    def work(n: int) -> bytes:
        if n == 3 and os.getpid() != me:
            os.kill(os.getpid(), signal.SIGKILL)
        return b"x"

    with pytest.raises(ToolspanError, match="was killed"):
        list(fork_map([1] * 8, work))


@requirement("survey.processes-end")
def test_an_error_in_a_process_is_raised_where_its_answer_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)

    def work(n: int) -> bytes:
        if n == 5:
            raise KeyError("five")
        return b"x"

    answers = fork_map([1] * 8, work)
    with pytest.raises(KeyError, match="five"):
        list(answers)


@requirement("survey.processes-end")
def test_whoever_leaves_early_leaves_no_process_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    parent = os.getpid()

    def work(n: int) -> bytes:
        if n:
            signal.pause()  # until somebody ends it
        assert os.getpid() != parent
        return b"%d" % os.getpid()

    answers = fork_map([1] * 64, work)
    pid = next(answers)
    assert isinstance(pid, bytes)
    assert _is_there(int(pid))
    answers.close()

    assert not _is_there(int(pid))


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
