"""The exceptions that toolspan raises.

    ToolspanError
    ├── SourceError        a file cannot be opened or read
    ├── UnknownFormat     a file is not a transcript in a known format
    ├── NotFound           no session or call matches
    │   └── Ambiguous      several have
    ├── InvalidFilter      a filter has a value that it does not accept
    ├── MissingExtra       an optional package is not installed
    ├── InUse              another process is writing to the session
    ├── BadCall            a message contains no call that can be answered
    │   └── ForeignReply   a message comes from another vendor's API
    ├── BadTool            a tool's definition is invalid
    └── ToolError          a tool failed; the model reads the message and continues

The content of a transcript never raises; problems become findings. The outcome of a call never raises out of the
runner; failures become results.
"""

from __future__ import annotations


class ToolspanError(Exception):
    """Base class for all toolspan exceptions; the message is one sentence that the user can act on."""


class SourceError(ToolspanError):
    """Raised if a transcript cannot be opened or read."""


class UnknownFormat(ToolspanError):  # noqa: N818 - reads as a noun where it is caught
    """Raised if a file is not a transcript in a known format."""


class NotFound(ToolspanError):  # noqa: N818
    """Raised if no session or call has the requested name."""


class Ambiguous(NotFound):
    """Raised if several sessions, calls or files fit the requested name."""


class InvalidFilter(ToolspanError, ValueError):  # noqa: N818
    """Raised if a filter has a value that it does not accept, such as a date that does not exist."""


class MissingExtra(ToolspanError, ImportError):  # noqa: N818
    """Raised if an optional package is not installed; the message has the command that installs it."""


class InUse(ToolspanError):  # noqa: N818
    """Raised if another process is writing to the session."""


class BadCall(ToolspanError):  # noqa: N818
    """Raised if a message, or one of its blocks, contains no call that can be answered."""


class ForeignReply(BadCall, TypeError):  # noqa: N818
    """Raised if a message comes from another vendor's API, in which no calls would be found."""


class BadTool(ToolspanError):  # noqa: N818
    """Raised if a tool's definition is invalid."""


class ToolError(ToolspanError):
    """Raised by a tool to report a failure to the model.

    `kind` sets the error kind if the message alone does not identify it; `wrapped` puts the message
    in the tags that mark a call refused before the tool ran.
    """

    def __init__(self, message: str, *, kind: str | None = None, wrapped: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.wrapped = wrapped


def exception_text(error: BaseException) -> str:
    """Return the message of an exception, or an empty string if its `__str__` fails."""
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - __str__ is user code
        return ""
