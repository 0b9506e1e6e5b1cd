"""What may wait, brought to the event loop: a thread takes, the loop is told.

In: an iterator that blocks, such as the lines of our own input. Out: a stream of the same. Knows
nothing of what it carries.
"""

import threading
from collections.abc import Iterable
from typing import TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

T = TypeVar("T")


def feed(source: Iterable[T]) -> MemoryObjectReceiveStream[T]:
    """What the iterator gives, one at a time; close the stream to hear no more."""
    send, receive = anyio.create_memory_object_stream[T]()
    token = anyio.lowlevel.current_token()
    # A daemon: it may wait for an input that never ends, and must not keep us from ending.
    threading.Thread(target=_pump, args=(source, send, token), daemon=True).start()
    return receive


def _pump(
    source: Iterable[T], send: MemoryObjectSendStream[T], token: anyio.lowlevel.EventLoopToken
) -> None:
    try:
        for one in source:
            anyio.from_thread.run(send.send, one, token=token)
        anyio.from_thread.run(send.aclose, token=token)
    except (anyio.BrokenResourceError, anyio.RunFinishedError, RuntimeError):
        return  # nobody listens any more
