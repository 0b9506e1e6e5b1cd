"""What Codex writes around the words of a tool: outputs to put into a made rollout.

In: what a tool did. Out: the text that goes back to the model. Pure functions; where ages differ,
each has its own. The texts are those the clients write.
"""

import json


def ran(output: str = "", *, code: int = 0, seconds: float = 0.1) -> str:
    """A command that ended, as `exec_command` tells it."""
    return (
        f"Chunk ID: 0a1b2c\nWall time: {seconds:.4f} seconds\nProcess exited with code {code}\n"
        f"Original token count: {len(output) // 4}\nOutput:\n{output}"
    )


def runs_on(process: int, output: str = "", *, seconds: float = 10.0) -> str:
    """A command that still runs when the call returns."""
    return (
        f"Chunk ID: 0a1b2c\nWall time: {seconds:.4f} seconds\n"
        f"Process running with session ID {process}\nOriginal token count: 0\nOutput:\n{output}"
    )


def headed(output: str = "", *, code: int = 0, seconds: float = 0.1) -> str:
    """A command that ended, as `shell_command` and patches tell it."""
    return f"Exit code: {code}\nWall time: {seconds:g} seconds\nOutput:\n{output}"


def wrapped(output: str = "", *, code: int = 0, seconds: float = 0.1) -> str:
    """A command that ended, as `shell` tells it."""
    facts = {"exit_code": code, "duration_seconds": seconds}
    return json.dumps({"output": output, "metadata": facts})


def timed_out(milliseconds: int, *, wrap: bool = True) -> str:
    """A command that was ended by its timer."""
    words = f"command timed out after {milliseconds} milliseconds\n"
    seconds = milliseconds / 1000
    return (
        wrapped(words, code=124, seconds=seconds)
        if wrap
        else headed(words, code=124, seconds=seconds)
    )


def aborted(seconds: float = 0.8) -> str:
    """A command that the person stopped."""
    return f"Wall time: {seconds:g} seconds\naborted by user"


def rejected() -> str:
    """The person said no."""
    return "exec command rejected by user"


def blocked(reason: str, command: str) -> str:
    """A hook said no."""
    return f"Command blocked by PreToolUse hook: {reason}. Command: {command}"


def no_such_tool(tool: str) -> str:
    """The model named a tool that is not offered."""
    return f"unsupported call: {tool}"


def bad_arguments(reason: str = "missing field `cmd` at line 1 column 2") -> str:
    """The arguments do not fit the tool."""
    return f"failed to parse function arguments: {reason}"


def no_match(path: str, lines: str) -> str:
    """A patch whose old lines are not in the file."""
    return f"apply_patch verification failed: Failed to find expected lines in {path}:\n{lines}"


def patched(*changes: str) -> str:
    """A patch that was applied; changes are like `M src/main.py`."""
    listing = "".join(f"{change}\n" for change in changes)
    return headed(f"Success. Updated the following files:\n{listing}")


def served(*texts: str, seconds: float = 0.01) -> list[dict[str, object]]:
    """What an MCP server gave back."""
    head = f"Wall time: {seconds:.4f} seconds\nOutput:"
    return [{"type": "input_text", "text": text} for text in (head, *texts)]
