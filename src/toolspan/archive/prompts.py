"""The prompts that a person wrote, in order of time: `Archive.prompts` and `toolspan prompts`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from toolspan.analysis.prompts import PROMPTS, FilePrompts, RecordedPrompt, join_prompts
from toolspan.archive.answers import Rows, SortOrder, arrange
from toolspan.archive.engine import Engine
from toolspan.archive.filters import Filter
from toolspan.archive.selection import check_project, choose_sessions
from toolspan.archive.sources import session_project
from toolspan.reading.facts import CALLS, FileJob, FileSummary
from toolspan.reading.lineage import SessionFiles, group_sessions
from toolspan.types.session import ClientName, SessionInfo
from toolspan.types.span import Branch, parse_timestamp

SORT_COLUMNS = ("at", "session", "project", "calls", "unsuccessful", "duration", "characters")
SORT_ALIASES = {"time": "at", "duration": "duration_ms"}


class Prompt(Struct, frozen=True, kw_only=True):
    """A prompt, and the work that followed it up to the next one."""

    at: str | None
    session: str
    title: str | None
    """The title of the session, or else its first prompt."""
    project: str
    client: ClientName
    text: str
    """At most 10,000 characters. `toolspan show SESSION:LINE` shows longer prompts."""
    characters: int
    """The length of the whole prompt."""
    is_command: bool
    """True for a command such as `/review`. Those that only the client handles, such as `/exit`, are left out."""
    calls: int
    """Number of calls of the main agent up to the next prompt."""
    unsuccessful: int
    duration_ms: int | None
    """Time up to the last record before the next prompt."""
    branch: Branch
    file: str
    line: int


class FileWithPrompts(Struct, frozen=True, kw_only=True):
    """The calls and the prompts in one file."""

    calls: FileSummary
    prompts: FilePrompts

    @property
    def file(self) -> str:
        """The path of the file."""
        return self.prompts.file

    @property
    def info(self) -> SessionInfo:
        """The metadata of the session."""
        return self.prompts.info

    @property
    def has_content(self) -> bool:
        """True if the file contains calls or prompts."""
        return self.prompts.has_content

    @property
    def problem(self) -> str | None:
        """The reason why the file could not be read."""
        return self.prompts.problem


PROMPT_JOB = FileJob((CALLS, PROMPTS), lambda calls, prompts: FileWithPrompts(calls=calls, prompts=prompts))


def list_prompts(
    engine: Engine, call_filter: Filter, *, sort: SortOrder | None = None, limit: int | None = None
) -> Rows[Prompt]:
    """Return the prompts in order of time, each once. A limit keeps the latest, or the first ones of a sorted list.

    Filters on calls accept the prompts that were followed by such a call.
    """
    files, _ = engine.read(PROMPT_JOB)
    check_project(call_filter.project, [(file.file, file.info) for file in files])
    sessions = choose_sessions(group_sessions(files), call_filter)
    call_rows = {file.file: {row.id: row for row in file.calls.calls} for file in files}
    rest = call_filter.without_file_filters().replace(since=None, until=None)
    prompts = []
    for session, file, recorded in join_prompts(sessions, files):
        if not call_filter.accepts_time(recorded.at):
            continue
        calls = [row for name in recorded.calls if (row := call_rows[file.file].get(name)) is not None]
        if rest == Filter() or any(map(rest.accepts_call, calls)):
            unsuccessful = sum(row.is_unsuccessful for row in calls)
            prompts.append(_make_row(session, file, recorded, unsuccessful))
    if not prompts:
        _explain_nothing(engine, call_filter, files)
    return Rows(arrange(prompts, sort, limit), len(prompts))


def _make_row(
    session: SessionFiles[FileWithPrompts], file: FileWithPrompts, prompt: RecordedPrompt, unsuccessful: int
) -> Prompt:
    start, end = parse_timestamp(prompt.at), parse_timestamp(prompt.ended)
    info = session.file.info
    return Prompt(
        at=prompt.at,
        session=session.id,
        title=info.title or info.first_prompt,
        project=session_project(session),
        client=info.client,
        text=prompt.text,
        characters=prompt.characters,
        is_command=prompt.is_command,
        calls=len(prompt.calls),
        unsuccessful=unsuccessful,
        duration_ms=round((end - start).total_seconds() * 1000) if start and end and end >= start else None,
        branch=prompt.branch,
        file=file.file,
        line=prompt.line,
    )


def _explain_nothing(engine: Engine, call_filter: Filter, files: Sequence[FileWithPrompts]) -> None:
    times = sorted(prompt.at for file in files for prompt in file.prompts.prompts if prompt.at)
    if times and (call_filter.since or call_filter.until):
        engine.reporter.warn(f"no prompts in this period; there are prompts from {times[0][:10]} to {times[-1][:10]}")
