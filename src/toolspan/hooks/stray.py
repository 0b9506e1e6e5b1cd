"""Is this task to end, or did only something end that it waited for?

Whoever awaits a task that somebody else cancelled is raised the exception of a cancellation. Passed
on as one, it would end everything around the call; so user code's is told apart from ours.
"""

import asyncio
import math

import anyio


def is_cancelled() -> bool:
    """Whether somebody wants the current task to end."""
    if anyio.current_effective_deadline() == -math.inf:
        return True
    try:
        task = asyncio.current_task()
    except RuntimeError:  # another backend, which has no tasks to cancel one by one
        return False
    return task is not None and task.cancelling() > 0
