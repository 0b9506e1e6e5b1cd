"""`Archive`: the door to every question about recorded sessions.

Each method takes a filter as keywords, asks one function of this package, and returns frozen rows. The command line,
the web API and MCP ask the same functions and show the same rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, tzinfo
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolspan.archive.answers import Rows, SortOrder
from toolspan.archive.engine import Engine, FileEngine, TableEngine
from toolspan.archive.filters import Filter, parse_since
from toolspan.archive.reporter import SILENT, Reporter
from toolspan.errors import NotFound, ToolspanError
from toolspan.stores.opening import is_store_url

if TYPE_CHECKING:
    from toolspan.analysis.compare import Comparison
    from toolspan.analysis.live_sessions import LiveSession
    from toolspan.archive.agents import AgentRow
    from toolspan.archive.blame import Blame
    from toolspan.archive.calls import TimedCall
    from toolspan.archive.context import Context
    from toolspan.archive.denials import Denials
    from toolspan.archive.digest import Digest
    from toolspan.archive.disk import DiskRow
    from toolspan.archive.doctor import CheckedFile
    from toolspan.archive.errors import ErrorGroups, ErrorTotals
    from toolspan.archive.files import (
        ChangedFiles,
        FileContentAnswer,
        FileContents,
        FileDifference,
        FileHistory,
    )
    from toolspan.archive.flows import FlowReport
    from toolspan.archive.hooks import HookRun, HookTotals
    from toolspan.archive.keep.deletion import Deletable
    from toolspan.archive.keep.kept import KeptArchive
    from toolspan.archive.known_errors import KnownError
    from toolspan.archive.overview import RecentWork
    from toolspan.archive.permissions import RecordedPermission
    from toolspan.archive.prompts import Prompt
    from toolspan.archive.retention import Retention
    from toolspan.archive.risky import RiskyCommand
    from toolspan.archive.search import Matches
    from toolspan.archive.session import RecordedCall, RecordedSession
    from toolspan.archive.sessions import SessionRow
    from toolspan.archive.stats import Stats
    from toolspan.archive.time import TimeReport
    from toolspan.archive.usage import UsageRows
    from toolspan.archive.why import PermissionExplanation
    from toolspan.stores.base import LeasedStore, SessionStore


class Archive:
    """All that clients have recorded, or the transcripts in some places."""

    def __init__(
        self,
        *sources: str | PathLike[str] | LeasedStore | SessionStore,
        last: bool = False,
        reporter: Reporter = SILENT,
    ) -> None:
        """Create an archive of files, folders, URLs, sessions or stores, or of all that this user's clients recorded.

        Nothing is read before the first question, but new entries of stores are fetched now. `last` reduces the archive
        to the session that was written to last.
        `reporter` receives warnings and progress.
        """
        self.engine: Engine = FileEngine(list(map(_locate_source, sources)), last=last, reporter=reporter)

    @classmethod
    def from_tables(cls, folder: str | PathLike[str], *, reporter: Reporter = SILENT) -> Archive:
        """Return an archive that answers from the Parquet tables that `toolspan tables` wrote."""
        from toolspan.tables import Dataset

        return cls.from_engine(TableEngine(Dataset(Path(folder)), reporter))

    @classmethod
    def from_engine(cls, engine: Engine) -> Archive:
        """Return an archive whose files an engine reads."""
        archive = cls()
        archive.engine = engine
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
        recovered: bool | None = None,
        sort: str | None = None,
        limit: int | None = None,
        zone: tzinfo | None = None,
        **words: Any,
    ) -> ErrorGroups:
        """Return unsuccessful calls by cause, most frequent first. See `Filter.parse` for the words of the filter.

        `recovered` selects the calls that a later call recovered, or those that none did.
        """
        from toolspan.archive import errors

        order = SortOrder.parse(sort, errors.SORT_COLUMNS, errors.SORT_ALIASES)
        parsed = self._filter(call_filter, words)
        return errors.find_errors(self.engine, parsed, recovered=recovered, sort=order, limit=limit, zone=zone)

    def error_totals(
        self,
        call_filter: Filter | None = None,
        *,
        by: str = "program",
        recovered: bool | None = None,
        sort: str | None = None,
        limit: int | None = None,
        zone: tzinfo | None = None,
        **words: Any,
    ) -> Rows[ErrorTotals]:
        """Return the number of unsuccessful calls by program, tool, kind, client, client-version, model, …

        `recovered` selects the calls that a later call recovered, or those that none did.
        """
        from toolspan.archive import errors

        order = SortOrder.parse(sort, errors.TOTAL_SORT_COLUMNS, errors.TOTAL_SORT_ALIASES)
        parsed = self._filter(call_filter, words)
        return errors.total_errors(self.engine, parsed, by=by, recovered=recovered, sort=order, limit=limit, zone=zone)

    def sessions(
        self, call_filter: Filter | None = None, *, sort: str | None = None, limit: int | None = None, **words: Any
    ) -> Rows[SessionRow]:
        """Return the sessions, newest last, or sorted by a column."""
        from toolspan.archive import sessions

        order = SortOrder.parse(sort, sessions.SORT_COLUMNS, sessions.SORT_ALIASES)
        return sessions.list_sessions(self.engine, self._filter(call_filter, words), sort=order, limit=limit)

    def agents(
        self, call_filter: Filter | None = None, *, sort: str | None = None, limit: int | None = None, **words: Any
    ) -> Rows[AgentRow]:
        """Return the subagents with their type, prompt, cost and calls, each before those that it started."""
        from toolspan.archive import agents

        order = SortOrder.parse(sort, agents.SORT_COLUMNS, agents.SORT_ALIASES)
        return agents.list_agents(self.engine, self._filter(call_filter, words), sort=order, limit=limit)

    def risky(
        self,
        call_filter: Filter | None = None,
        *,
        risk: Sequence[str] = (),
        sort: str | None = None,
        limit: int | None = None,
        **words: Any,
    ) -> Rows[RiskyCommand]:
        """Return the risky parts of command lines: removals, force pushes, uploads, credentials, production systems."""
        from toolspan.archive import risky

        order = SortOrder.parse(sort, risky.SORT_COLUMNS, risky.SORT_ALIASES)
        return risky.find_risky(self.engine, self._filter(call_filter, words), risk=risk, sort=order, limit=limit)

    def live(self, call_filter: Filter | None = None, **words: Any) -> Rows[LiveSession]:
        """Return the sessions that are open, or died recently with open calls, waiting ones first."""
        from toolspan.archive import sessions

        return sessions.list_live_sessions(self.engine, self._filter(call_filter, words))

    def disk(
        self,
        call_filter: Filter | None = None,
        *,
        by: str = "project",
        sort: str | None = None,
        limit: int | None = None,
        **words: Any,
    ) -> Rows[DiskRow]:
        """Return the space that sessions take by project, client, age or session, largest first."""
        from toolspan.archive import disk

        order = SortOrder.parse(sort, disk.SORT_COLUMNS, disk.SORT_ALIASES)
        return disk.measure_disk(self.file_engine, self._filter(call_filter, words), by=by, sort=order, limit=limit)

    def deletable(
        self, call_filter: Filter | None = None, *, kept: KeptArchive | None = None, verify: bool = True, **words: Any
    ) -> list[Deletable]:
        """Return the sessions that a kept archive has, and orphaned files; `Deletable.delete()` deletes one.

        With `verify`, all contents are compared with the kept ones; otherwise only sizes and times.
        """
        from toolspan.archive.keep import deletion
        from toolspan.archive.keep import kept as kept_module

        folder = kept or kept_module.KeptArchive()
        return deletion.find_deletable(self.file_engine, self._filter(call_filter, words), folder, verify=verify)

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
            self.engine, self._filter(call_filter, words), by=by, prices=prices, sort=order, limit=limit, zone=zone
        )

    def context(self, call_filter: Filter | None = None, *, limit: int | None = None, **words: Any) -> Context:
        """Return which results fill the context, by tool and by call."""
        from toolspan.archive import context

        return context.measure_context(self.engine, self._filter(call_filter, words), limit=limit)

    def calls(
        self,
        call_filter: Filter | None = None,
        *,
        group: str | None = None,
        commands: bool = False,
        sort: str | None = None,
        limit: int | None = None,
        **words: Any,
    ) -> Rows[TimedCall]:
        """Return the calls in order of time, each once. `group` is the id of a group of `errors`.

        With `commands`, a background command and the calls that read its output are one row.
        """
        from toolspan.archive import calls

        order = SortOrder.parse(sort, calls.SORT_COLUMNS, calls.SORT_ALIASES)
        return calls.list_calls(
            self.engine,
            self._filter(call_filter, words),
            group=group,
            commands=commands,
            sort=order,
            limit=limit,
        )

    def iter_calls(
        self, call_filter: Filter | None = None, *, limit: int | None = None, **words: Any
    ) -> Iterator[TimedCall]:
        """Yield the calls like `calls`. A single file is read lazily."""
        from toolspan.archive import calls

        return calls.iter_calls(self.engine, self._filter(call_filter, words), limit=limit)

    def prompts(
        self, call_filter: Filter | None = None, *, sort: str | None = None, limit: int | None = None, **words: Any
    ) -> Rows[Prompt]:
        """Return the prompts that a person wrote, in order of time, with the calls that followed each."""
        from toolspan.archive import prompts

        order = SortOrder.parse(sort, prompts.SORT_COLUMNS, prompts.SORT_ALIASES)
        return prompts.list_prompts(self.engine, self._filter(call_filter, words), sort=order, limit=limit)

    def denials(
        self,
        call_filter: Filter | None = None,
        *,
        every: bool = False,
        sort: str | None = None,
        limit: int | None = None,
        **words: Any,
    ) -> Denials:
        """Return the calls that a person refused and what they said, or with `every` all that were refused."""
        from toolspan.archive import denials

        order = SortOrder.parse(sort, denials.SORT_COLUMNS, denials.SORT_ALIASES)
        words_filter = self._filter(call_filter, words)
        return denials.list_denials(self.engine, words_filter, every=every, sort=order, limit=limit)

    def hooks(
        self,
        call_filter: Filter | None = None,
        *,
        point: str | None = None,
        sort: str | None = None,
        limit: int | None = None,
        **words: Any,
    ) -> Rows[HookTotals]:
        """Return how often each hook ran, how long it took and what it blocked, slow ones first."""
        from toolspan.archive import hooks

        order = SortOrder.parse(sort, hooks.SORT_COLUMNS, hooks.SORT_ALIASES)
        return hooks.sum_hooks(self.engine, self._filter(call_filter, words), point=point, sort=order, limit=limit)

    def hook_runs(
        self,
        call_filter: Filter | None = None,
        *,
        point: str | None = None,
        sort: str | None = None,
        limit: int | None = None,
        **words: Any,
    ) -> Rows[HookRun]:
        """Return each run of a hook in order of time."""
        from toolspan.archive import hooks

        order = SortOrder.parse(sort, hooks.RUN_SORT_COLUMNS, hooks.SORT_ALIASES)
        return hooks.list_hook_runs(self.engine, self._filter(call_filter, words), point=point, sort=order, limit=limit)

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
            self.engine, self._filter(call_filter, words), by=by, sort=order, limit=limit, zone=zone
        )

    def time(self, call_filter: Filter | None = None, *, limit: int | None = None, **words: Any) -> TimeReport:
        """Return where the time went: model, tools, permission, hooks, idle."""
        from toolspan.archive import time

        return time.split_time(self.engine, self._filter(call_filter, words), limit=limit)

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

        words_filter = self._filter(call_filter, words)
        return flows.find_flows(self.engine, words_filter, chain=chain, length=length, every=every)

    def compare(
        self,
        a: str | None = None,
        b: str | None = None,
        call_filter: Filter | None = None,
        *,
        prices: Path | None = None,
        **words: Any,
    ) -> Comparison:
        """Compare two sessions of this archive, or two folders or files. Without names, compare the last two sessions.

        Raises:
            NotFound: there are no two sessions.
        """
        from toolspan.archive import compare

        if a is None or b is None:
            last = self.sessions(call_filter, limit=2, **words)
            if len(last) < 2:
                raise NotFound("there are no two sessions to compare")
            a, b = last[0].id, last[1].id
        return compare.compare_sources(self.engine, self._filter(call_filter, words), a, b, prices=prices)

    def compare_periods(
        self, at: datetime | str, call_filter: Filter | None = None, *, prices: Path | None = None, **words: Any
    ) -> Comparison:
        """Compare the time before `at` with the time after it."""
        from toolspan.archive import compare

        moment = parse_since(at) if isinstance(at, str) else at.astimezone()
        return compare.compare_periods(self.engine, self._filter(call_filter, words), moment, prices=prices)

    def doctor(self, *, roundtrip: bool = False) -> Iterator[CheckedFile]:
        """Yield the report about each transcript. With `roundtrip`, every line is encoded again and compared."""
        from toolspan.archive import doctor
        from toolspan.archive.sources import locate_files

        engine = self.file_engine
        files, _ = locate_files(engine.names, last=engine.last, allow_unknown=True, reporter=engine.reporter)
        return doctor.check_files(engine, files, roundtrip=roundtrip)

    def overview(self, since: datetime | str | None = None) -> RecentWork:
        """Return an overview from a time on, by default of the last seven days or those up to the last activity."""
        from toolspan.archive import overview

        start = parse_since(since) if isinstance(since, str) else since
        return overview.summarize_recent_work(self.file_engine, start)

    def retention(self) -> Retention | None:
        """Return when Claude Code deletes sessions of this user; None if it has recorded none."""
        from toolspan.archive.retention import find_retention

        return find_retention()

    def digest(self, call_filter: Filter | None = None, *, zone: tzinfo | None = None, **words: Any) -> Digest:
        """Return a period, by default the last seven days, at a glance, compared with the one before it."""
        from toolspan.archive import digest

        return digest.make_digest(self.engine, self._filter(call_filter, words), zone=zone)

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
            self._filter(call_filter, words),
            texts,
            within=within,
            regex=regex,
            ignore_case=ignore_case,
            limit=limit,
            all_lines=all_lines,
        )

    def session(self, name: str = "last") -> RecordedSession:
        """Return one session by the beginning of its id, its file or its topic, or the one that was written to last."""
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

    def permissions(self, call_filter: Filter | None = None, **words: Any) -> Iterator[RecordedPermission]:
        """Yield each call with its input, and what is recorded about its permission and the wait for it."""
        from toolspan.archive import permissions

        return permissions.iter_permissions(self.file_engine, self._filter(call_filter, words))

    def known_errors(
        self,
        text: str = "",
        call_filter: Filter | None = None,
        *,
        limit: int = 5,
        fixes: bool | Collection[str] = True,
        **words: Any,
    ) -> Rows[KnownError]:
        """Find earlier errors that match `text`, and the calls that fixed them; `fixes` can name groups."""
        from toolspan.archive import known_errors

        words_filter = self._filter(call_filter, words)
        return known_errors.find_known_errors(self.file_engine, words_filter, text, limit=limit, fixes=fixes)

    def blame(
        self,
        path: str,
        text: str,
        call_filter: Filter | None = None,
        *,
        names: Sequence[str] = (),
        until: datetime | None = None,
        **words: Any,
    ) -> Blame:
        """Return which call and prompt wrote each line of a text, which is the content of the file `path`.

        `names` are earlier paths of the file, and changes after `until` do not count.
        `toolspan.integrations.blame_file` asks git for these, and for the commits of other lines.
        """
        from toolspan.archive import blame

        return blame.blame_lines(
            self.file_engine, self._filter(call_filter, words), path, text, names=names, until=until
        )

    def blame_recorded(
        self, path: str, point: str | None = None, call_filter: Filter | None = None, **words: Any
    ) -> Blame:
        """Return which call and prompt wrote each line of a recorded file at a point: `CALL` or `before:CALL`."""
        from toolspan.archive import blame

        return blame.blame_point(self.file_engine, self._filter(call_filter, words), path, point)

    def files(
        self,
        call_filter: Filter | None = None,
        *,
        folder: str | None = None,
        name: str | None = None,
        sort: str | None = None,
        limit: int | None = None,
        **words: Any,
    ) -> ChangedFiles:
        """Return every file that calls changed, with the lines added and removed, the latest last.

        `folder` selects the files below it, and `name` those whose path is or ends with it.
        """
        from toolspan.archive import files

        order = SortOrder.parse(sort, files.SORT_COLUMNS, files.SORT_ALIASES)
        return files.list_changed_files(
            self.engine, self._filter(call_filter, words), folder=folder, name=name, sort=order, limit=limit
        )

    def file_history(
        self, path: str, call_filter: Filter | None = None, *, limit: int | None = None, **words: Any
    ) -> FileHistory:
        """Return each change to the file whose path is `path` or ends with it, with its diff."""
        from toolspan.archive import files

        return files.read_file_history(self.file_engine, self._filter(call_filter, words), path, limit=limit)

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

        words_filter = self._filter(call_filter, words)
        return files.read_file_content(self.file_engine, words_filter, path, before=before, after=after)

    def file_contents(self, path: str, call_filter: Filter | None = None, **words: Any) -> FileContents:
        """Return the content of a file before its first change and after each change."""
        from toolspan.archive import files

        return files.read_file_contents(self.file_engine, self._filter(call_filter, words), path)

    def file_difference(
        self, path: str, start: str, end: str, call_filter: Filter | None = None, **words: Any
    ) -> FileDifference:
        """Return the difference between the contents of a file after two calls; `before:CALL` is before a call."""
        from toolspan.archive import files

        return files.read_file_difference(self.file_engine, self._filter(call_filter, words), path, start, end)

    @property
    def file_engine(self) -> FileEngine:
        """The engine of an archive of transcripts.

        Raises:
            ToolspanError: the archive is a dataset, which lacks the texts that the question needs.
        """
        if not isinstance(self.engine, FileEngine):
            raise ToolspanError("this question needs the transcripts; name them instead of tables")
        return self.engine

    def _filter(self, call_filter: Filter | None, words: dict[str, Any]) -> Filter:
        if call_filter is not None and words:
            raise TypeError("give a filter or its words, not both")
        parsed = Filter.parse(**words) if call_filter is None else call_filter
        if parsed.program or parsed.about is not None:
            from toolspan.archive.topics import resolve_filter  # perf: rarely needed

            return resolve_filter(self.engine, parsed)
        return parsed


def _locate_source(source: str | PathLike[str] | LeasedStore | SessionStore) -> str:
    """Return the name of a source; for a store, the folder with its local copy."""
    if isinstance(source, str | PathLike) and not is_store_url(fspath(source)):
        return fspath(source)
    from toolspan.stores.mirror import fetch_store

    return str(fetch_store(fspath(source) if isinstance(source, PathLike) else source))
