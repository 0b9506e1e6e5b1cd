"""Parallel and serial reads return the same facts in the same order."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolspan.errors import SourceError, ToolspanError
from toolspan.reading import parallel as module
from toolspan.reading.parallel import Epilogue, fork_map, read_ahead, scan_files
from toolspan.testing import TranscriptBuilder, claude_results


def archive(root: Path) -> list[Path]:
    paths = []
    for n in range(28):
        builder = TranscriptBuilder(session_id=f"s{n:02}").prompt("go")
        for m in range(n):
            call = builder.call("Bash", {"command": f"echo {m}"}, after_ms=5)
            builder.result(call, claude_results.exited(m) if m % 3 else claude_results.ran("x"), after_ms=n)
        if n % 5 == 0:
            builder.raw(b'{"torn').call("Read", {"file_path": "/a"})
        paths.append(builder.write(root / f"s{n:02}.jsonl"))
    (root / "empty.jsonl").touch()
    (root / "broken.jsonl.zst").write_bytes(b"no frame")
    return [*paths[:9], root / "empty.jsonl", root / "broken.jsonl.zst", *paths[9:]]


def test_parallel_and_serial_reads_give_the_same_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = archive(tmp_path)
    alone = list(scan_files(paths))
    monkeypatch.setattr(module, "_SERIAL_LIMIT_BYTES", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)

    together = list(scan_files(paths))

    assert together == alone
    assert [Path(facts.file) for facts in together] == paths


@pytest.mark.parametrize("alone", [0, 1 << 40])
def test_every_byte_is_counted_once(alone: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = archive(tmp_path)
    monkeypatch.setattr(module, "_SERIAL_LIMIT_BYTES", alone)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    output: list[int] = []

    list(scan_files(paths, advance=output.append))

    assert output == [path.stat().st_size for path in paths]


def test_unreadable_file_is_reported_and_does_not_raise(tmp_path: Path) -> None:
    paths = [*archive(tmp_path), tmp_path / "gone.jsonl"]

    problems = {Path(facts.file).name: facts.problem for facts in scan_files(paths) if facts.problem}

    assert set(problems) == {"broken.jsonl.zst", "gone.jsonl"}


def test_no_files_give_no_facts() -> None:
    assert list(scan_files([])) == []


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_answers_keep_the_order_of_the_files(processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: processes)
    sizes = [(7 * n) % 11 for n in range(500)]

    result = list(fork_map(sizes, lambda n: b"%d" % n if n % 3 else {"n": n, "data": "x" * 9_999}))

    assert result == [b"%d" % n if n % 3 else {"n": n, "data": "x" * 9_999} for n in range(len(sizes))]


def test_large_and_small_answers_arrive_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    sizes = [3_000_000 if n % 50 == 7 else n * 300 for n in range(200)]

    result = list(fork_map([1] * len(sizes), lambda n: bytes([n]) * sizes[n]))

    assert result == [bytes([n]) * size for n, size in enumerate(sizes)]


def test_work_continues_without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "fork", refuse)

    assert list(fork_map([1, 1, 1], lambda n: n)) == [0, 1, 2]


def test_killed_worker_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    me = os.getpid()

    def work(n: int) -> bytes:
        if n == 3 and os.getpid() != me:
            os.kill(os.getpid(), signal.SIGKILL)
        return b"x"

    with pytest.raises(ToolspanError, match="was killed"):
        list(fork_map([1] * 8, work))


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("outcome", [True, False])
def test_every_process_runs_the_epilogue_after_its_answers(
    processes: int, outcome: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: processes)
    read_end, write_end = os.pipe()

    def end() -> bool:
        os.write(write_end, b"x")
        return outcome

    epilogue = Epilogue(end)
    try:
        assert list(fork_map([1] * 64, lambda n: n, epilogue=epilogue)) == list(range(64))
        assert epilogue.wait() is outcome
        assert os.read(read_end, 64) == b"x" * processes
    finally:
        os.close(read_end)
        os.close(write_end)


def test_error_in_an_epilogue_loses_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)

    def end() -> bool:
        raise KeyError("end")

    epilogue = Epilogue(end)

    assert list(fork_map([1] * 8, lambda n: n, epilogue=epilogue)) == list(range(8))
    assert not epilogue.wait()


def test_process_killed_in_its_epilogue_loses_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    read_end, write_end = os.pipe()
    slow_work: list[int] = []

    def work(n: int) -> int:
        if n == 1:
            slow_work.append(n)
            os.close(write_end)
            assert os.read(read_end, 1) == b""  # returns when the other process has been killed
        return n

    def end() -> bool:
        if not slow_work:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    epilogue = Epilogue(end)
    answers = fork_map([1] + [0] * 63, work, epilogue=epilogue)  # the first index, and one share of all the others
    assert next(answers) == 0
    os.close(write_end)

    assert list(answers) == list(range(1, 64))
    assert not epilogue.wait()
    os.close(read_end)


def test_error_in_a_worker_is_raised_with_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)

    def work(n: int) -> bytes:
        if n == 5:
            raise KeyError("five")
        return b"x"

    answers = fork_map([1] * 8, work)
    with pytest.raises(KeyError, match="five"):
        list(answers)


def test_early_exit_leaves_no_process_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    parent = os.getpid()

    def work(n: int) -> bytes:
        if n:
            signal.pause()  # until it is killed
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


@pytest.mark.parametrize("processes", [1, 2])
def test_items_read_ahead_keep_their_order(processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: processes)
    items = [{"n": n, "text": "\ud800x" * (n * 97 % 5_000)} for n in range(300)]

    assert list(read_ahead(lambda: iter(items))) == items


def test_killed_process_that_reads_ahead_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)

    def produce() -> Iterator[int]:
        yield 1
        os.kill(os.getpid(), signal.SIGKILL)

    items = read_ahead(produce)

    assert next(items) == 1
    with pytest.raises(ToolspanError, match="was killed"):
        next(items)


def test_error_while_reading_ahead_is_raised_after_the_items_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)

    def produce() -> Iterator[int]:
        yield 1
        raise SourceError("gone.jsonl: no such file")

    items = read_ahead(produce)

    assert next(items) == 1
    with pytest.raises(SourceError, match=r"gone\.jsonl"):
        next(items)


class TwoPartError(Exception):
    """An exception that pickle cannot restore, because its initializer takes two arguments."""

    def __init__(self, file: str, line: int) -> None:
        super().__init__(f"{file}:{line} is broken")


@pytest.mark.parametrize(
    "error, message",
    [
        (TwoPartError("a.jsonl", 7), r"TwoPartError: a\.jsonl:7 is broken"),
        (ValueError("bad", lambda: None), "ValueError: .*bad"),
    ],
)
def test_error_that_cannot_be_pickled_is_raised_with_its_message(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)

    def produce() -> Iterator[int]:
        yield 1
        raise error

    def work(_: int) -> int:
        raise error

    items = read_ahead(produce)

    assert next(items) == 1
    with pytest.raises(ToolspanError, match=message):
        next(items)
    with pytest.raises(ToolspanError, match=message):
        list(fork_map([1] * 8, work))


@pytest.mark.parametrize("kind", [list, dict])
def test_deeply_nested_items_are_read_ahead(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    nested: object = "\ud800x"
    for _ in range(1_500):
        nested = [nested] if kind is list else {0: nested}

    first, (item, text), last = read_ahead(lambda: iter([("first", ""), (nested, "text"), ("last", "")]))

    for _ in range(1_500):
        assert type(item) is kind
        item = item[0]  # type: ignore[index]
    assert (first, item, text, last) == (("first", ""), "\ud800x", "text", ("last", ""))


def test_process_that_reads_ahead_ends_when_no_more_items_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    items = read_ahead(lambda: itertools.repeat(os.getpid()))

    pid = next(items)
    items.close()

    assert pid != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
