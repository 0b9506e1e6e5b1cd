"""Questions about recorded sessions, one function each, for Python, the command line, the web API and MCP.

Start at `Archive`. A question takes an engine (how files are read), a `Filter` and its own options, and returns frozen
rows. Nothing here prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolspan.lazy import lazy_exports

if TYPE_CHECKING:
    from toolspan.archive.answers import Rows
    from toolspan.archive.archive import Archive
    from toolspan.archive.errors import ErrorGroups
    from toolspan.archive.filters import Filter
    from toolspan.archive.keep.kept import KeptArchive
    from toolspan.archive.reporter import Reporter
    from toolspan.archive.sessions import SessionRow
    from toolspan.archive.usage import Usage, UsageRows


__all__ = ["Archive", "ErrorGroups", "Filter", "KeptArchive", "Reporter", "Rows", "SessionRow", "Usage", "UsageRows"]

__getattr__ = lazy_exports(
    __name__,
    {
        "Archive": "archive",
        "ErrorGroups": "errors",
        "Filter": "filters",
        "KeptArchive": "keep.kept",
        "Reporter": "reporter",
        "Rows": "answers",
        "SessionRow": "sessions",
        "Usage": "usage",
        "UsageRows": "usage",
    },
)
