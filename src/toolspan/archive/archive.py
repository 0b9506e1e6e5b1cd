"""`Archive`: the door to every question about recorded sessions.

Each method takes a filter as keywords, asks one function of this package, and returns frozen rows. The command line,
the web API and MCP ask the same functions and show the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolspan.archive.answers import Rows, SortOrder
from toolspan.archive.engine import Engine, FileEngine, TableEngine
from toolspan.archive.filters import Filter
from toolspan.archive.reporter import SILENT, Reporter
from toolspan.errors import ToolspanError

if TYPE_CHECKING:
    from toolspan.analysis.compare import Comparison
    from toolspan.analysis.live_sessions import LiveSession
    from toolspan.archive.context import Context
    from toolspan.archive.errors import ErrorGroups
    from toolspan.archive.files import (
        ChangedFiles,
        FileContentAnswer,
        FileContents,
        FileDifference,
        FileHistory,
    )
    from toolspan.archive.flows import FlowReport
    from toolspan.archive.overview import RecentWork
    from toolspan.archive.search import Matches
    from toolspan.archive.session import RecordedCall, RecordedSession
    from toolspan.archive.sessions import SessionRow
    from toolspan.archive.stats import Stats
    from toolspan.archive.time import TimeReport
    from toolspan.archive.usage import UsageRows
    from toolspan.archive.why import PermissionExplanation
    from toolspan.reading.rows import CallRow


class Archive:
    """All that clients have recorded, or the transcripts in some places."""

    def __init__(self, *sources: str | PathLike[str], last: bool = False, reporter: Reporter = SILENT) -> None:
        """Create an archive of files, folders, URLs or sessions, or of everything that this user's clients recorded.

        Nothing is read before the first question. `last` reduces the archive to the session that was written to last.
        `reporter` receives warnings and progress.
        """
        self.engine: Engine = FileEngine([fspath(source) for source in sources], last=last, reporter=reporter)

    @classmethod
    def from_tables(cls, folder: str | PathLike[str], *, reporter: Reporter = SILENT) -> Archive:
        """Return an archive that answers from the Parquet tables that `toolspan tables` wrote."""
        from toolspan.tables import Dataset

        archive = cls()
        archive.engine = TableEngine(Dataset(Path(folder)), reporter)
        return archive

    def __repr__(self) -> str:
        sources = ", ".join(map(repr, self.engine.names))
        return f"Archive.from_tables({sources})" if isinstance(self.engine, TableEngine) else f"Archive({sources})"

    @property
    def names(self) -> tuple[str, ...]:
        """The sources, as they were named."""
        return self.engine.names

    def errors(
        self,
        call_filter: Filter | None = None,
        *,
        sort: str | None = None,
        limit: int | None = None,
        zone: tzinfo | None = None,
        **words: Any,
    ) -> ErrorGroups:
        """Return the failed calls by cause, most frequent first. See `Filter.parse` for the words of the filter."""
        from toolspan.archive import errors

        order = SortOrder.parse(sort, errors.SORT_COLUMNS)
        return errors.find_errors(self.engine, _make_filter(call_filter, words), sort=order, limit=limit, zone=zone)

    def sessions(
        self, call_filter: Filter | None = None, *, sort: str | None = None, limit: int | None = None, **words: Any
    ) -> Rows[SessionRow]:
        """Return the sessions, newest last, or sorted by a column."""
        from toolspan.archive import sessions

        order = SortOrder.parse(sort, sessions.SORT_COLUMNS, sessions.SORT_ALIASES)
        return sessions.list_sessions(self.engine, _make_filter(call_filter, words), sort=order, limit=limit)

    def live(self, call_filter: Filter | None = None, **words: Any) -> Rows[LiveSession]:
        """Return the sessions that are open, or died recently with open calls, waiting ones first."""
        from toolspan.archive import sessions

        return sessions.list_live_sessions(self.engine, _make_filter(call_filter, words))

    def usage(
        self,
        call_filter: Filter | None = None,
        *,
        by: str = "day",
        prices: Path | None = None,
        sort: str | None = None,
        limit: int | None = None,
        zone: tzinfo | None = None,
        **words: Any,
    ) -> UsageRows:
        """Return tokens and cost by day, week, month, block, model, project, session, agent or client."""
        from toolspan.archive import usage

        order = SortOrder.parse(sort, usage.SORT_COLUMNS, usage.SORT_ALIASES)
        return usage.sum_usage(
            self.engine, _make_filter(call_filter, words), by=by, prices=prices, sort=order, limit=limit, zone=zone
        )

    def context(self, call_filter: Filter | None = None, *, limit: int | None = None, **words: Any) -> Context:
        """Return which results fill the context, by tool and by call."""
        from toolspan.archive import context

        return context.measure_context(self.engine, _make_filter(call_filter, words), limit=limit)

    def calls(
        self,
        call_filter: Filter | None = None,
        *,
        group: str | None = None,
        sort: str | None = None,
        limit: int | None = None,
        **words: Any,
    ) -> Rows[CallRow]:
        """Return the calls in order of time, each once. `group` is the id of a group of `errors`."""
        from toolspan.archive import calls

        order = SortOrder.parse(sort, calls.SORT_COLUMNS, calls.SORT_ALIASES)
        return calls.list_calls(self.engine, _make_filter(call_filter, words), group=group, sort=order, limit=limit)

    def iter_calls(
        self, call_filter: Filter | None = None, *, limit: int | None = None, **words: Any
    ) -> Iterator[CallRow]:
        """Yield the calls like `calls`. A single file is read lazily."""
        from toolspan.archive import calls

        return calls.iter_calls(self.engine, _make_filter(call_filter, words), limit=limit)

    def stats(
        self,
        call_filter: Filter | None = None,
        *,
        by: str = "tool",
        sort: str | None = None,
        limit: int | None = None,
        zone: tzinfo | None = None,
        **words: Any,
    ) -> Stats:
        """Return counts, durations and timeouts per tool, subagent type, day or hour."""
        from toolspan.archive import stats

        order = SortOrder.parse(sort, stats.SORT_COLUMNS, stats.SORT_ALIASES)
        return stats.count_calls(
            self.engine, _make_filter(call_filter, words), by=by, sort=order, limit=limit, zone=zone
        )

    def time(self, call_filter: Filter | None = None, *, limit: int | None = None, **words: Any) -> TimeReport:
        """Return where the time went: model, tools, permission, hooks, idle."""
        from toolspan.archive import time

        return time.split_time(self.engine, _make_filter(call_filter, words), limit=limit)

    def flows(
        self,
        call_filter: Filter | None = None,
        *,
        chain: Sequence[str] = (),
        length: int = 3,
        every: bool = False,
        **words: Any,
    ) -> FlowReport:
        """Return how calls follow each other: recovery chains, batches, missed parallelism and sequences."""
        from toolspan.archive import flows

        words_filter = _make_filter(call_filter, words)
        return flows.find_flows(self.engine, words_filter, chain=chain, length=length, every=every)

    def compare(
        self, a: str, b: str, call_filter: Filter | None = None, *, prices: Path | None = None, **words: Any
    ) -> Comparison:
        """Compare two sessions of this archive, or two folders or files."""
        from toolspan.archive import compare

        return compare.compare_sources(self.engine, _make_filter(call_filter, words), a, b, prices=prices)

    def compare_periods(
        self, at: datetime | str, call_filter: Filter | None = None, *, prices: Path | None = None, **words: Any
    ) -> Comparison:
        """Compare the time before `at` with the time after it."""
        from toolspan.archive import compare
        from toolspan.archive.dates import parse_since

        moment = parse_since(at) if isinstance(at, str) else at.astimezone()
        return compare.compare_periods(self.engine, _make_filter(call_filter, words), moment, prices=prices)

    def overview(self) -> RecentWork:
        """Return an overview of the last seven days, or of the seven days up to the last activity."""
        from toolspan.archive import overview

        return overview.summarize_recent_work(self.file_engine)

    def search(
        self,
        *texts: str,
        call_filter: Filter | None = None,
        within: str = "all",
        regex: bool = False,
        ignore_case: bool | None = None,
        limit: int | None = None,
        all_lines: bool = True,
        **words: Any,
    ) -> Matches:
        """Return the calls and messages that contain all the texts, newest first."""
        from toolspan.archive import search

        return search.search_sessions(
            self.file_engine,
            _make_filter(call_filter, words),
            texts,
            within=within,
            regex=regex,
            ignore_case=ignore_case,
            limit=limit,
            all_lines=all_lines,
        )

    def session(self, name: str = "last") -> RecordedSession:
        """Return one session by the beginning of its id or by its file, or the one that was written to last."""
        from toolspan.archive import session

        return session.find_session(self.file_engine, name)

    def call(self, prefix: str) -> RecordedCall:
        """Return one call by the beginning of its id."""
        from toolspan.archive import session

        return session.find_call(self.file_engine, prefix)

    def why(self, call: str) -> PermissionExplanation:
        """Explain who allowed or denied the call whose id begins with `call`, and why."""
        from toolspan.archive import why

        return why.find_permission(self.file_engine, call)

    def files(
        self,
        call_filter: Filter | None = None,
        *,
        folder: str | None = None,
        sort: str | None = None,
        limit: int | None = None,
        **words: Any,
    ) -> ChangedFiles:
        """Return every file that calls changed, with the lines added and removed, the latest last."""
        from toolspan.archive import files

        order = SortOrder.parse(sort, files.SORT_COLUMNS, files.SORT_ALIASES)
        return files.list_changed_files(
            self.file_engine, _make_filter(call_filter, words), folder=folder, sort=order, limit=limit
        )

    def file_history(
        self, path: str, call_filter: Filter | None = None, *, limit: int | None = None, **words: Any
    ) -> FileHistory:
        """Return each change to the file whose path is `path` or ends with it, with its diff."""
        from toolspan.archive import files

        return files.read_file_history(self.file_engine, _make_filter(call_filter, words), path, limit=limit)

    def file_content(
        self,
        path: str,
        call_filter: Filter | None = None,
        *,
        before: str | None = None,
        after: str | None = None,
        **words: Any,
    ) -> FileContentAnswer:
        """Return the content of a file before or after a call, by default after the last change."""
        from toolspan.archive import files

        words_filter = _make_filter(call_filter, words)
        return files.read_file_content(self.file_engine, words_filter, path, before=before, after=after)

    def file_contents(self, path: str, call_filter: Filter | None = None, **words: Any) -> FileContents:
        """Return the content of a file before its first change and after each change."""
        from toolspan.archive import files

        return files.read_file_contents(self.file_engine, _make_filter(call_filter, words), path)

    def file_difference(
        self, path: str, start: str, end: str, call_filter: Filter | None = None, **words: Any
    ) -> FileDifference:
        """Return the difference between the contents of a file after two calls; `before:CALL` is before a call."""
        from toolspan.archive import files

        return files.read_file_difference(self.file_engine, _make_filter(call_filter, words), path, start, end)

    @property
    def file_engine(self) -> FileEngine:
        """The engine of an archive of transcripts.

        Raises:
            ToolspanError: the archive is a dataset, which lacks the texts that the question needs.
        """
        if not isinstance(self.engine, FileEngine):
            raise ToolspanError("this question needs the transcripts; name them instead of tables")
        return self.engine


def _make_filter(call_filter: Filter | None, words: dict[str, Any]) -> Filter:
    if call_filter is not None and words:
        raise TypeError("give a filter or its words, not both")
    return Filter.parse(**words) if call_filter is None else call_filter
