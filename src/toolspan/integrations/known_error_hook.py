"""`toolspan hook known-errors`: tell the model how the same failure was recovered before.

Clients run this only after a call has failed, and wait for it. So it imports little more than the standard library, and
answers from a small file with the failures that were recovered, which `known_error_index.py` writes in another process.
Start at `print_known_error`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import stat
import sys
import time

from toolspan.reading.key_lines import FIRST_EXIT_LINE, MAX_CAUSE_TEXT, find_key_line, normalize_line

TYPE_CHECKING = False  # perf: typing is imported only by `key_lines`
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType
    from typing import Any

    from toolspan.integrations.known_error_index import Entries

_EVENT = "PostToolUseFailure"
INDEX_FORMAT = 1
_MAX_SECONDS = 4
"""The time to wait for the file, before the client stops the hook and says so."""
_MIN_AGE = 5
"""The age in seconds from which the hook waits for a new file."""
_MAX_AGE = 600
"""The age in seconds from which the file is updated after an answer."""


def print_known_error() -> None:
    """Print context about the failed call on standard input, in the client's format. Never raises."""
    try:
        if sys.stdin is None or sys.stdin.isatty():
            return
        hook_input = json.loads(sys.stdin.buffer.read())
        path = index_path()
        if hook_input.get("hook_event_name") != _EVENT or path is None:
            return
        entries, made = load_entries(path)
        context = find_known_error(entries or {}, hook_input)
        if entries is None or (context is None and _has_newer_session(hook_input, made)):
            _wait(_start_update())
            context = find_known_error(load_entries(path)[0] or {}, hook_input)
        elif not 0 <= time.time() - made < _MAX_AGE:
            _start_update()
        if context is not None:
            output = {"hookSpecificOutput": {"hookEventName": _EVENT, "additionalContext": context}}
            sys.stdout.write(json.dumps(output) + "\n")
    except Exception as error:  # noqa: BLE001 - a failure must never disturb the client
        sys.stderr.write(f"toolspan hook known-errors: {error}\n")


def find_known_error(entries: Entries, hook_input: Mapping[str, Any]) -> str | None:
    """Return the context for a failed call, or None if it is not certain that the same failure was recovered before.

    The same line must explain both failures. Of a command, the line or the command must also name the program.
    """
    error, tool = str(hook_input["error"]).strip(), hook_input["tool_name"]
    if hook_input.get("is_interrupt"):
        return None
    if tool != "Bash":
        line = error.partition("\n")[0].strip()
        matches = [item for item in _entries_for(entries, line) if item["tool"] == tool and not item["program"]]
    else:
        first = FIRST_EXIT_LINE.match(error)
        key_line = find_key_line(error[first.end() :] if first else error)
        if key_line is None:
            return None
        line, command = key_line.text, str(hook_input["tool_input"]["command"])
        matches = [item for item in _entries_for(entries, line)
                   if item["program"] and (item["program"] == key_line.program or _runs(command, item["program"]))
                   ]  # fmt: skip
    return matches[0]["text"] if len(matches) == 1 else None


def _entries_for(entries: Entries, line: str) -> Sequence[Mapping[str, Any]]:
    key = normalize_line(line[:MAX_CAUSE_TEXT])
    return entries.get(key, ()) if key else ()


def _runs(command: str, program: str) -> bool:
    return re.search(rf"(?<![^\s;&|(/'\"`]){re.escape(program)}[\d.]*(?![^\s;&|)'\"`])", command) is not None


# The file


def index_path() -> str | None:
    """Return the path of the file, which is in the cache folder; None if caching is disabled."""
    if os.environ.get("TOOLSPAN_NO_CACHE"):
        return None
    named = os.environ.get("XDG_CACHE_HOME", "")
    folder = named if named.startswith("/") else os.path.expanduser("~/.cache")  # noqa: PTH111 - perf: without pathlib
    return os.path.join(folder, "toolspan", "known-errors.json")  # noqa: PTH118


def load_entries(path: str) -> tuple[Entries | None, float]:
    """Return the content of the file and its time, or None if it is missing, damaged or may be another user's."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, encoding="utf-8") as file:  # noqa: PTH123
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022:
                index = json.load(file)
                if index["format"] == INDEX_FORMAT:
                    return index["entries"], status.st_mtime
    return None, 0.0


def _has_newer_session(hook_input: Mapping[str, Any], made: float) -> bool:
    """Return whether another session in this folder, which may have recovered the failure, was recorded since."""
    own = str(hook_input.get("transcript_path") or "")
    if time.time() - made < _MIN_AGE:
        return False
    with contextlib.suppress(OSError), os.scandir(os.path.dirname(own)) as files:  # noqa: PTH120 - perf
        return any(file.name.endswith(".jsonl") and file.path != own and file.stat().st_mtime > made for file in files)
    return False


def _start_update() -> int:
    """Start a process that updates the file, and that outlives this one; return its id."""
    command = [sys.executable, "-P", "-m", "toolspan", "hook", "known-errors", "--update"]
    files = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    return os.posix_spawn(command[0], command, os.environ, file_actions=files, setsid=True)


def _wait(process: int) -> None:
    """Wait until a process ends, but not longer than the client waits."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(_MAX_SECONDS)
    with contextlib.suppress(TimeoutError):
        os.waitpid(process, 0)
    signal.alarm(0)
