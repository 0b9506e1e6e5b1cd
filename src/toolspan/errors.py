"""What the programmer or the command line got wrong.

    ToolspanError
    ├── SourceError        a file cannot be opened or read
    ├── UnknownDialect     a file is no transcript that can be read
    └── NotFound           no session or call has that name
        └── Ambiguous      more than one has

What a transcript *contains* never raises: it becomes a finding.
"""


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
