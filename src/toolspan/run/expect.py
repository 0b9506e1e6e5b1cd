"""How long a tool usually takes, so that a slow call can be told of while it runs."""

_IMMEDIATE = 2.0
_FAST = 5.0

_SECONDS: dict[str, float] = {
    "Glob": _FAST,
    "Grep": _FAST,
    "LS": _IMMEDIATE,
    "Read": _IMMEDIATE,
    "TodoRead": _IMMEDIATE,
    "TodoWrite": _IMMEDIATE,
    "Edit": _FAST,
    "MultiEdit": _FAST,
    "NotebookEdit": _FAST,
    "Write": _FAST,
    "WebFetch": 30.0,
    "WebSearch": 30.0,
}


def expected_seconds(tool: str) -> float | None:
    """After how many seconds a call of this tool is slow; None where anything is usual."""
    return _SECONDS.get(tool)
