"""What comes while nobody speaks: words of others, work in the background, hooks that run on.

In: letters, the tasks of a session, a way to wait for its hooks. Out: texts for the model, each
once, and waits for the next ones. What becomes of them is the session's business.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable

import anyio

from toolspan.profile import Profile
from toolspan.run.tasks import AgentTask, Tasks, notice
from toolspan.session.first import first_of

Wake = Callable[[], Awaitable[Iterable[str]]]
"""Waits for hooks that run on; what they want the model to know, nothing when none is left."""


class News:
    """What the model has not heard yet."""

    def __init__(self, tasks: Tasks, profile: Profile, wake: Wake) -> None:
        self.mail: deque[str] = deque()
        """What somebody has said to the model meanwhile; it reads it with the next results."""
        self._tasks = tasks
        self._profile = profile
        self._wake = wake

    def take(self) -> list[str]:
        """What came meanwhile: words of others, and work in the background that has ended."""
        if not self.mail and not self._tasks:
            return []
        texts = list(self.mail)
        self.mail.clear()
        if self._tasks and self._profile.tasks.tells:
            texts += [notice(task, self._profile) for task in self._tasks.news()]
        return texts

    async def hear_hooks(self) -> bool:
        """Wait for hooks that run on; whether there is something to say."""
        self.mail.extend(await self._wake())
        return bool(self.mail)

    @property
    def awaits_agents(self) -> bool:
        """Whether agents in the background will have something to tell."""
        waits = any(isinstance(task, AgentTask) for task in self._tasks.running)
        return waits and self._profile.tasks.tells

    async def wait(self) -> None:
        """Wait until work in the background has ended, or a hook has something to say."""
        await first_of(self._tasks.wait, self._until_mail)

    async def _until_mail(self) -> None:
        if not await self.hear_hooks():
            await anyio.sleep_forever()
