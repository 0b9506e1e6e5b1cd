"""What the programmer or the command line got wrong.

    ToolspanError
    ├── SourceError        a file cannot be opened or read
    ├── UnknownDialect     a file is no transcript that can be read
    ├── NotFound           no session or call has that name
    │   └── Ambiguous      more than one has
    ├── InUse              another process writes to the session
    ├── BadCall            a message holds no call that could be answered
    ├── BadTool            a tool is defined in a way that cannot work
    └── ToolError          a tool says what went wrong; the model reads it and goes on

What a transcript *contains* never raises: it becomes a finding. What a call *did* never raises out
of the runner: it becomes a result.
"""

from __future__ import annotations


class ToolspanError(Exception):
    """Anything toolspan raises on purpose; the message is one sentence a person can act on."""


class SourceError(ToolspanError):
    """A transcript cannot be opened or read."""


class UnknownDialect(ToolspanError):  # noqa: N818 - reads as a noun where it is caught
    """A file is not a transcript of a client that can be read."""


class NotFound(ToolspanError):  # noqa: N818
    """No session or call has this name."""


class Ambiguous(NotFound):
    """More than one session or call begins with this name."""


class InUse(ToolspanError):  # noqa: N818
    """Another process writes to the session."""


class BadCall(ToolspanError):  # noqa: N818
    """A message, or a block of it, holds no call that could be answered."""


class BadTool(ToolspanError):  # noqa: N818
    """A tool is defined in a way that cannot work."""


class ToolError(ToolspanError):
    """What a tool raises to tell the model what went wrong.

    `kind` names the error in the taxonomy when the text alone does not; `wrapped` puts the text
    into the tags that mark a refusal before the tool ran.
    """

    def __init__(self, message: str, *, kind: str | None = None, wrapped: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.wrapped = wrapped


def exception_text(error: BaseException) -> str:
    """What an exception says; nothing when it cannot even say that."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an exception of others
        return ""
