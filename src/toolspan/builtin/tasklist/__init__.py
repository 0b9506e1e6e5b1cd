"""TaskCreate, TaskUpdate, TaskGet and TaskList: a session's list of tasks.

`tools.py` has the four tools, `store.py` the files they share with other writers.
"""

from toolspan.builtin.tasklist.tools import (
    task_create_tool,
    task_get_tool,
    task_list_tool,
    task_update_tool,
)

__all__ = ["task_create_tool", "task_get_tool", "task_list_tool", "task_update_tool"]
