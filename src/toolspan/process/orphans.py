"""Orphans that came to us because we are the subreaper: collected the moment they end.

In: processes that are, or may become, our children without our having started them. Out: nothing.
"""

import asyncio
import os
from collections.abc import Iterable
from contextlib import suppress

from toolspan.process.table import Identity, Process


class Orphans:
    """The orphans we wait for, each by a descriptor."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._watched: dict[Identity, int] = {}

    def watch(self, left: Iterable[Process]) -> None:
        """Collect these when they end."""
        for one in left:
            if one.identity in self._watched:
                continue
            with suppress(OSError):  # ended already, or too many descriptors: `end` collects it
                self._watched[one.identity] = os.pidfd_open(one.pid)
                self._loop.add_reader(self._watched[one.identity], self._collect, one.identity)

    def close(self) -> None:
        """Stop waiting, after collecting who has ended."""
        for identity in list(self._watched):
            self._collect(identity)

    def _collect(self, identity: Identity) -> None:
        descriptor = self._watched.pop(identity)
        self._loop.remove_reader(descriptor)
        with suppress(ChildProcessError):  # its parent still lives, or it was collected already
            os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOHANG)
        os.close(descriptor)
