"""Work that processes beside this one share, and that stops when this one does.

In: how much there is to do for each number, and a function of a number. Out: what the function
gives, in the order of the numbers. The processes are copies of this one, made when the work is
known: they start at once, take the next few numbers whenever they are done with some, and write
nothing but answers. Whoever leaves early, by an error or by Ctrl-C, does not wait for work that
nobody will look at. Where a process cannot be copied, it does the work itself. Read `shared` first.
"""

import gc
import os
import select
import signal
import struct
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import BinaryIO, NamedTuple

from toolspan.errors import ToolspanError

Work = Callable[[int], object]
"""What is done for a number. Bytes are sent as they are; what else it gives can be pickled."""

_SHARES = 32
"""Shares per process, so that none waits long for another at the end."""
_NUMBER = struct.Struct("<I")
_HEAD = struct.Struct("<IBQ")
"""Before each answer: its number, what it is, its length."""
_BYTES, _OBJECT, _ERROR = range(3)
_MOST = 1 << 20


def cores() -> int:
    """How many processes can work at once."""
    return (os.cpu_count() or 1) if hasattr(os, "fork") else 1


def shared(sizes: Sequence[int], work: Work) -> Generator[object, None, None]:
    """What `work` gives for each number below `len(sizes)`, in order; sizes say how much it is.

    Raises:
        ToolspanError: a process was ended from outside.
        Exception: what `work` raised.
    """
    count = min(cores(), len(sizes))
    if count < 2:
        yield from map(work, range(len(sizes)))
        return
    workers: list[_Worker] = []
    try:
        _start(workers, count, list(_shares(sizes, count * _SHARES)), work)
        yield from _in_order(workers) if workers else map(work, range(len(sizes)))
    finally:
        for worker in workers:
            worker.end()


class _Worker(NamedTuple):
    """A process, and where its answers come from."""

    pid: int
    answers: BinaryIO

    def end(self) -> None:
        """End it, should it still be there."""
        if not self.answers.closed:
            self.answers.close()
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def wait(self) -> None:
        """It has sent its last answer.

        Raises:
            ToolspanError: it had more to do.
        """
        self.answers.close()
        if os.waitpid(self.pid, 0)[1]:
            raise ToolspanError("a process that was reading was ended; is memory short?")


def _start(workers: list[_Worker], count: int, shares: Sequence[range], work: Work) -> None:
    """Start as many processes as the system lets us have."""
    numbers, given = os.pipe()
    os.write(given, b"".join(map(_NUMBER.pack, range(len(shares)))))
    os.close(given)
    with open(numbers, "rb", buffering=0) as queue, suppress(OSError):  # noqa: PTH123
        for _ in range(count):
            workers.append(_fork(workers, partial(_serve, queue, shares, work)))


def _fork(others: Sequence[_Worker], serve: Callable[[int], None]) -> _Worker:
    answers, own = os.pipe()
    stream = open(answers, "rb", buffering=0)  # noqa: PTH123, SIM115 - closed by `_Worker`
    try:
        pid = os.fork()
    except OSError:
        stream.close()
        os.close(own)
        raise
    if pid:
        os.close(own)
        return _Worker(pid, stream)
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever waits for us hears it too
        gc.freeze()  # what was there before is not looked through, which would copy it
        for one in (stream, *(other.answers for other in others)):
            one.close()
        serve(own)
        code = 0
    finally:
        os._exit(code)


def _serve(queue: BinaryIO, shares: Sequence[range], work: Work, own: int) -> None:
    """Take numbers until there are none left."""
    while number := queue.read(_NUMBER.size):
        for n in shares[_NUMBER.unpack(number)[0]]:
            _send(own, n, *_answer(work, n))


def _answer(work: Work, n: int) -> tuple[int, bytes]:
    """What comes of the work, and what sort of thing that is."""
    try:
        found, kind = work(n), _OBJECT
    except Exception as error:  # noqa: BLE001 - raised where somebody waits for the answer
        found, kind = error, _ERROR
    if isinstance(found, bytes):
        return _BYTES, found
    import pickle  # slow to import, and hardly ever needed

    return kind, pickle.dumps(found)


def _send(stream: int, n: int, kind: int, data: bytes) -> None:
    for part in (_HEAD.pack(n, kind, len(data)), data):
        rest = memoryview(part)
        while rest:
            rest = rest[os.write(stream, rest) :]


def _in_order(workers: Sequence[_Worker]) -> Iterator[object]:
    early: dict[int, object] = {}
    wanted = 0
    for n, found in _answers(workers):
        early[n] = found
        while wanted in early:
            yield early.pop(wanted)
            wanted += 1


def _answers(workers: Sequence[_Worker]) -> Iterator[tuple[int, object]]:
    """All answers with their numbers, as they come."""
    waiting = {worker.answers.fileno(): worker for worker in workers}
    poll = select.poll()
    for descriptor in waiting:
        poll.register(descriptor, select.POLLIN)
    while waiting:
        for descriptor, _ in poll.poll():
            try:
                n, kind, data = _next(waiting[descriptor].answers)
            except EOFError:
                poll.unregister(descriptor)
                waiting.pop(descriptor).wait()
            else:
                yield n, _told(kind, data)


def _next(answers: BinaryIO) -> tuple[int, int, bytes]:
    """The next answer: its number, what it is, its bytes.

    Raises:
        EOFError: there is none.
    """
    n, kind, length = _HEAD.unpack(_exactly(answers, _HEAD.size))
    return n, kind, _exactly(answers, length)


def _exactly(stream: BinaryIO, length: int) -> bytes:
    data = b""
    parts = []
    while length and (data := stream.read(min(length, _MOST))):
        parts.append(data)
        length -= len(data)
    if length:
        raise EOFError
    return data if len(parts) == 1 else b"".join(parts)


def _told(kind: int, data: bytes) -> object:
    if kind == _BYTES:
        return data
    import pickle

    found = pickle.loads(data)
    if kind == _ERROR:
        raise found
    return found


def _shares(sizes: Sequence[int], count: int) -> Iterator[range]:
    """Neighbouring numbers in about equal shares of work."""
    share = sum(sizes) / count
    start, held = 0, 0
    for n, size in enumerate(sizes):
        held += size
        if held >= share or n == len(sizes) - 1:
            yield range(start, n + 1)
            start, held = n + 1, 0
