"""Run something in the current task, and be told when it has to wait.

Most calls of a busy session never wait, and a task costs more than they do. With this a worker runs
them in its own task and makes another worker only when one really waits.
"""

import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, TypeVar, cast

_T = TypeVar("_T")


@types.coroutine
def telling(work: Coroutine[Any, Any, _T], waits: Callable[[], None]) -> Generator[Any, Any, _T]:
    """The result of `work`; `waits` is called whenever it is suspended."""
    try:
        wanted = work.send(None)
    except StopIteration as done:
        return cast(_T, done.value)
    while True:
        waits()
        try:
            sent = yield wanted
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is for `work`
            step = partial(work.throw, error)
        else:
            step = partial(work.send, sent)
        try:
            wanted = step()
        except StopIteration as done:
            return cast(_T, done.value)
