"""The transcripts of the session to replay, and the files that the copy of its project begins with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from toolspan.archive.reporter import SILENT, Reporter
from toolspan.archive.sources import locate_files
from toolspan.errors import ToolspanError
from toolspan.formats.side_files import session_folder
from toolspan.formats.source import to_path
from toolspan.reading.discovery import TranscriptFile, find_transcripts
from toolspan.reading.transcript import Transcript, read
from toolspan.replay.replay import recorded_commit
from toolspan.replay.scratch import has_commit


def read_session(names: Sequence[str], reporter: Reporter = SILENT) -> list[Transcript]:
    """Return the transcripts of a session, its own first.

    Raises:
        ToolspanError: the names stand for several sessions.
        SourceError: a transcript cannot be read.
    """
    files: list[TranscriptFile] = []
    for name in names:
        files += locate_files([name], reporter=reporter)[0]
        path = to_path(name)
        agents_folder = session_folder(path) / "subagents"
        if name.endswith(".jsonl") and path.is_file() and agents_folder.is_dir():
            files += [file for file in find_transcripts(agents_folder) if file.name.role == "agent"]
    sessions = {file.name.stem for file in files if file.name.role == "session"}
    if len(sessions) > 1:
        raise ToolspanError(f"{len(sessions)} sessions named; replay one at a time")
    ordered = sorted(files, key=lambda file: file.name.role != "session")
    return [read(file.path) for file in ordered]


def choose_source(
    transcripts: Sequence[Transcript], recorded: str, *, project: Path | None = None, commit: str | None = None
) -> tuple[Path | None, str | None]:
    """Return the folder and the commit to copy; None for the folder if only files in the transcript are used.

    `recorded` is the folder in the transcripts, which `project` replaces. Without a `commit`, the recorded one is used
    if git has it; `none` stands for the current files.

    Raises:
        ToolspanError: the folder does not exist, or is not a project.
    """
    folder = project or Path(recorded)
    if not folder.is_dir() or (not folder.is_absolute() and project is None):
        if commit not in (None, "none"):
            raise ToolspanError(f"{folder}: no such folder; name the project with --project")
        return None, None
    if folder.resolve() in (Path(folder.anchor or "/"), Path.home().resolve()):
        raise ToolspanError(f"{folder} is not a project folder; name one with --project")
    if commit is not None:
        return folder, None if commit == "none" else commit
    commit = next(filter(None, map(recorded_commit, transcripts)), None)
    if commit is None:
        return folder, None
    return folder, commit if has_commit(folder, commit) else None
