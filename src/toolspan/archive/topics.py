"""Find sessions by what they are about, and calls by the programs that they run.

`resolve_filter` turns `about` and `program` of a filter into the files and calls that they stand for, because rows of
calls have neither prompts nor whole command lines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from toolspan.analysis.risks import RISK_JOB
from toolspan.archive.engine import Engine, FileEngine, without_warnings
from toolspan.archive.filters import Filter
from toolspan.archive.prompts import PROMPT_JOB
from toolspan.archive.selection import raise_unknown, read_calls
from toolspan.archive.sources import session_project
from toolspan.errors import ToolspanError
from toolspan.reading.lineage import SessionFiles, group_sessions

_TITLE_SCORE, _FIRST_PROMPT_SCORE, _PROJECT_SCORE, _MAX_PROMPTS_SCORE = 8, 4, 3, 5


def find_sessions_about(engine: Engine, words: str) -> list[tuple[SessionFiles[Any], int]]:
    """Return the sessions whose title, prompts and folder contain all words, each with its relevance.

    Case is ignored. A word counts most in the title, then in the first prompt, in the folder and in other prompts.
    Tables without contents have the first prompts only.
    """
    wanted = words.casefold().split()
    rated = ((session, _rate(session, prompts, wanted)) for session, prompts in _read_sessions(engine))
    return [(session, score) for session, score in rated if score]


def _rate(session: SessionFiles[Any], prompts: Sequence[str], wanted: Sequence[str]) -> int:
    """Return the relevance of a session, or 0 if it lacks a word."""
    info = session.file.info
    places = {
        (info.title or "").casefold(): _TITLE_SCORE,
        (info.first_prompt or "").casefold(): _FIRST_PROMPT_SCORE,
        session_project(session).casefold(): _PROJECT_SCORE,
    }
    texts = [text.casefold() for text in prompts]
    if not all(any(word in text for text in (*places, *texts)) for word in wanted):
        return 0
    mentions = sum(any(word in text for word in wanted) for text in texts)
    score = sum(points for text, points in places.items() for word in wanted if word in text)
    return score + min(mentions, _MAX_PROMPTS_SCORE)


def _read_sessions(engine: Engine) -> Iterator[tuple[SessionFiles[Any], list[str]]]:
    """Yield each session with its prompts."""
    try:
        files, _ = engine.read(PROMPT_JOB)
    except ToolspanError:
        if isinstance(engine, FileEngine):
            raise
        # The tables were written without contents.
        yield from ((session, []) for session in read_calls(engine).call_table.sessions)
        return
    for session in group_sessions(files):
        yield session, [prompt.text for file in session.files for prompt in file.prompts.prompts]


def resolve_filter(engine: Engine, call_filter: Filter) -> Filter:
    """Return a filter with the files that `about` and the calls that `program` stand for.

    Raises:
        NotFound: no command line runs the program.
    """
    quiet = without_warnings(engine)
    if call_filter.about is not None and call_filter.files is None:
        found = find_sessions_about(quiet, call_filter.about)
        call_filter = call_filter.replace(
            files={file.file: score for session, score in found for file in session.files}
        )
    if call_filter.program and call_filter.calls is None:
        call_filter = call_filter.replace(calls=_find_calls(quiet, call_filter))
    return call_filter


def _find_calls(engine: Engine, call_filter: Filter) -> dict[str, frozenset[str]]:
    known: set[str] = set()
    found: defaultdict[str, set[str]] = defaultdict(set)
    for file in engine.read(RISK_JOB)[0]:
        for call, programs in file.programs.items():
            known.update(programs)
            if call_filter.accepts_programs(programs):
                found[call].add(file.summary.file)
    if known and not found:
        raise_unknown("program", call_filter.program, known)
    return {call: frozenset(files) for call, files in found.items()}
