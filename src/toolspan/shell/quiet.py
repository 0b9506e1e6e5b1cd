"""Which command lines print nothing when all goes well.

In: a line. Out: yes or no; no when it is not understood.
"""

from toolspan.shell.line import parse_line

_QUIET = frozenset({
    "cd", "chgrp", "chmod", "chown", "cp", "export", "ln", "mkdir", "mv", "rm", "rmdir", "touch",
    "unset", "wait",
})  # fmt: skip


def prints_nothing(line: str) -> bool:
    """Whether silence is what one expects of it."""
    commands = parse_line(line) or ()
    return bool(commands) and all(command.name in _QUIET for command in commands)
