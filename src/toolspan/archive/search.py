"""Calls and messages that contain words: `Archive.search` and `toolspan search`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

from toolspan.analysis.search.query import find_candidates, find_ripgrep, query_of
from toolspan.archive.answers import Rows
from toolspan.archive.engine import FileEngine, scan_with_cache
from toolspan.archive.filters import Filter, choose_name, in_project
from toolspan.archive.selection import explain_nothing
from toolspan.formats.source import to_path
from toolspan.reading.discovery import default_roots, find_all_transcripts
from toolspan.types.session import MessageAuthor
from toolspan.types.tool_kinds import tool_kind

if TYPE_CHECKING:
    from toolspan.analysis.search.find import SearchMatch
    from toolspan.analysis.search.query import MatchSide


PLACES: dict[str, tuple[MatchSide, ...]] = {
    "prompts": ("message",),
    "answers": ("message",),
    "thinking": ("message",),
    "messages": ("message",),
    "inputs": ("input",),
    "results": ("result", "toolUseResult"),
    "all": ("input", "result", "toolUseResult", "message"),
}
"""The parts of a session that a search can be limited to."""
PLACE_ALIASES = {
    "input": "inputs",
    "result": "results",
    "message": "messages",
    "prompt": "prompts",
    "answer": "answers",
}
_VOICES: dict[str, frozenset[MessageAuthor | None]] = {
    "prompts": frozenset({"prompt", "command"}),
    "answers": frozenset({"text"}),
    "thinking": frozenset({"thinking"}),
}
"""The authors of the messages in a place. Prompts of subagents, which a model wrote, do not count as prompts."""


class Matches(Rows["SearchMatch"]):
    """Matches, newest first."""

    def __init__(self, matches: Sequence[SearchMatch], total: int, among: int | None, passed: int) -> None:
        super().__init__(matches, total)
        self.among = among
        """If the search ended at the limit, the number of files that may contain more matches; otherwise None."""
        self.passed = passed
        """The number of lines that were too long to search."""


def search_sessions(
    engine: FileEngine,
    call_filter: Filter,
    words: Sequence[str],
    *,
    within: str = "all",
    regex: bool = False,
    ignore_case: bool | None = None,
    limit: int | None = None,
    all_lines: bool = True,
) -> Matches:
    """Return the calls and messages that contain all the words, newest first.

    Words match literally, however the client escaped them in the file. By default, case is ignored for lower-case
    words. `all_lines` adds the line numbers of calls, for which their files are read.

    Raises:
        SourceError: a folder does not exist.
    """
    from toolspan.analysis.search.find import search_newest

    within = choose_name(PLACE_ALIASES.get(within, within), PLACES)
    if ignore_case is None:
        ignore_case = not regex and not any(letter.isupper() for word in words for letter in word)
    query = query_of(list(words), regex=regex, ignore_case=ignore_case)
    program = find_ripgrep()
    paths = list(map(to_path, engine.names))
    warn = engine.reporter.warn
    candidates = find_candidates(paths or default_roots(), query.rarest_filter, program=program, problem=warn)
    accept = partial(_filter_matches, call_filter, within=within)
    result = search_newest(candidates, query, limit or 0, sides=PLACES[within], keep=accept, program=program)
    for problem in result.problems:
        warn(problem)
    if not result.matches:
        files = find_all_transcripts(paths or None)
        if not files:
            warn(f"{' and '.join(engine.names) or 'your home folder'}: no transcripts there")
        explain_nothing(engine, call_filter, [file.path for file in files])
    visible = _complete_matches(result.matches[: limit or None], all_lines=all_lines)
    return Matches(visible, len(result.matches), result.among, result.passed)


def _filter_matches(call_filter: Filter, matches: Sequence[SearchMatch], *, within: str) -> list[SearchMatch]:
    """Return the matches that the filter accepts, reading files only for facts that the matching lines lack."""
    voices = _VOICES.get(within)
    candidates = [
        match
        for match in matches
        if (voices is None or match.voice in voices)
        and (within != "prompts" or match.agent is None)
        and (call_filter.session is None or (match.session or "").startswith(call_filter.session))
        and (call_filter.agent is None or (match.agent or "").startswith(call_filter.agent))
        and (call_filter.project is None or in_project(call_filter.project, match.file, match.cwd))
        and call_filter.accepts_time(match.at)
        and (call_filter.client is None or _client_of(match.file) == call_filter.client)
    ]
    if call_filter.model or call_filter.client_version or call_filter.about:
        files = {match.file: None for match in candidates}
        infos = {summary.file: summary.info for summary in scan_with_cache([to_path(file) for file in files])}
        rest = call_filter.replace(session=None, project=None, client=None)
        candidates = [match for match in candidates if rest.accepts_file(match.file, infos[match.file])]
    if call_filter.calls is not None:
        candidates = [match for match in candidates if match.file in call_filter.calls.get(match.call or "", ())]
    if not (call_filter.tool or call_filter.kind or call_filter.state or call_filter.error):
        return candidates
    return [
        match
        for match in _complete_matches([match for match in candidates if match.kind == "call"])
        if (not call_filter.tool or call_filter.accepts_tool(match.tool))
        and (not call_filter.kind or tool_kind(match.tool or "") in call_filter.kind)
        and (not call_filter.state or match.state in call_filter.state)
        and (not call_filter.error or (match.error or "") in call_filter.error)
    ]


@cache
def _client_of(file: str) -> str:
    from toolspan.formats.registry import detect_client
    from toolspan.formats.source import source_for_path

    return detect_client(source_for_path(file))


def _complete_matches(matches: Sequence[SearchMatch], *, all_lines: bool = False) -> list[SearchMatch]:
    if not matches:
        return []
    from toolspan.analysis.search.find import complete_matches, number_lines

    return complete_matches(number_lines(matches, calls=all_lines), scan_with_cache)
