"""The thread of the event loop: there news of calls is told, whichever thread brings them."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec

P = ParamSpec("P")


class Home:
    """The thread this is made in, and its event loop."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):  # no loop, or another backend's
            self._loop = asyncio.get_running_loop()

    def tell(self, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Do something here, soon if another thread asks; it is lost when the loop is closed."""
        if self._loop is None or threading.get_ident() == self._thread:
            work(*args, **kwargs)
            return
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(lambda: work(*args, **kwargs))
