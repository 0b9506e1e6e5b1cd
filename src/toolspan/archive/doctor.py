"""Problems in transcripts, and a repaired copy: `Archive.doctor`, `toolspan doctor` and `toolspan repair`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from toolspan.archive.engine import FileEngine, warn_about_skipped
from toolspan.errors import SourceError, ToolspanError
from toolspan.formats.base import RepairChange, RepairResult
from toolspan.formats.registry import (
    FORMAT_NAMES,
    detect_client,
    format_of_path,
    get_format,
    is_default_file,
    parse_file_name,
    recorded_format,
)
from toolspan.formats.source import COMPRESSED_SUFFIXES, source_for_path
from toolspan.reading.diagnostics import DiagnosticReport, check, repair
from toolspan.reading.discovery import TranscriptFile
from toolspan.reading.facts import FactKind, single_job


class CheckedFile(Struct, frozen=True):
    """The report about one file."""

    client: str = ""
    report: DiagnosticReport | None = None
    problem: str | None = None
    """The reason why the file cannot be read."""

    def to_dict(self) -> dict[str, object]:
        """Return the object that `doctor --json` prints."""
        return {} if self.report is None else _report_row(self.report, self.client)


def _check(path: Path, *, roundtrip: bool) -> CheckedFile:
    return CheckedFile(detect_client(source_for_path(path)), check(path, roundtrip=roundtrip))


def _unreadable(_: str, problem: str) -> CheckedFile:
    return CheckedFile(problem=problem)


_CHECK = FactKind(
    name="check",
    measure=lambda reading: _check(reading.path, roundtrip=False),
    facts_type=CheckedFile,
    unreadable=_unreadable,
)
_CHECK_LINES = FactKind(
    name="check lines",
    measure=lambda reading: _check(reading.path, roundtrip=True),
    facts_type=CheckedFile,
    unreadable=_unreadable,
)
"""The same, and every line is encoded again and compared."""


def check_files(
    engine: FileEngine, files: Sequence[TranscriptFile], *, roundtrip: bool = False
) -> Iterator[CheckedFile]:
    """Yield the report about each transcript, without files of other programs unless it is the only file.

    Raises:
        SourceError: the only file cannot be read.
    """
    skipped = 0
    with engine.reporter.progress(sum(file.size for file in files), "checking") as advance:
        job = single_job(_CHECK_LINES if roundtrip else _CHECK)
        for checked in engine.mapper.map([file.path for file in files], job, advance):
            if checked.client == "unknown" and len(files) > 1:
                skipped += 1
                continue
            if checked.report is None:
                if len(files) == 1:
                    raise SourceError(checked.problem or "")
                engine.reporter.warn(checked.problem or "")
            yield checked
    warn_about_skipped(skipped, engine.reporter)


def _report_row(report: DiagnosticReport, client: str) -> dict[str, object]:
    resume_effects = get_format(client).resume_behavior if client in FORMAT_NAMES else {}
    return {
        "file": report.file,
        "healthy": report.is_healthy,
        "client": client,
        "acceptance": report.acceptance,
        **msgspec.to_builtins(report.counts),
        "entries": report.entries,
        "calls": report.calls,
        "roundtrip_equal": report.roundtrip_equal,
        "findings": [
            {
                **msgspec.to_builtins(finding),
                "place": str(finding.place) if finding.place else None,
                "on_resume": resume_effects[finding.code]._asdict() if finding.code in resume_effects else None,
            }
            for finding in report.findings
        ],
    }


class RepairAnswer(Struct, frozen=True, kw_only=True):
    """The repaired copy of a session, or the changes that it would have."""

    original: str
    session_id: str | None
    file: str | None
    cwd: str | None
    records: int
    changes: tuple[RepairChange, ...]
    put_into: str | None
    """The folder to move the copy to so that clients find it; null if it is already there or unknown."""
    resume: tuple[str, ...]
    """Commands that resume the copy."""


def repair_session(path: Path, *, dry_run: bool = False) -> RepairAnswer:
    """Write a repaired copy of a session; the original is not changed. With `dry_run`, write nothing.

    Raises:
        ToolspanError: the copy cannot be written.
    """
    try:
        result = repair(path, write=not dry_run)
    except OSError as error:
        raise ToolspanError(f"{path}: {error.strerror or error}") from error
    folder = _target_folder(result)
    return RepairAnswer(
        original=str(result.original),
        session_id=result.session_id,
        file=str(result.path) if result.path else None,
        cwd=result.cwd,
        records=result.record_count,
        changes=tuple(result.changes),
        put_into=str(folder) if folder else None,
        resume=tuple(_resume_commands(result)),
    )


def repair_argument(path: Path) -> str | None:
    """Return the argument for `toolspan repair`, or None if repair cannot help.

    A session is repaired together with its subagents, so a subagent's file is replaced by its session.
    """
    if parse_file_name(path).role == "agent":
        folder = next((folder.parent for folder in path.parents if folder.name == "subagents"), None)
        endings = ("", *COMPRESSED_SUFFIXES)
        candidates = [folder.with_name(f"{folder.name}.jsonl{ending}") for ending in endings] if folder else []
        session_path = next((path for path in candidates if path.is_file()), None)
        if session_path is None:
            return None
        path = session_path
    return parse_file_name(path).stem if is_default_file(path) else shlex.quote(str(path))


def _resume_commands(repaired: RepairResult) -> list[str]:
    if repaired.session_id is None or (repaired.cwd is None and not _is_in_client_folder(repaired)):
        return []
    prefix = f"cd {shlex.quote(repaired.cwd)} && " if repaired.cwd else ""
    transcript_format = format_of_path(repaired.original)
    commands = [transcript_format.resume_command(repaired.session_id, repaired.path or repaired.original)]
    if transcript_format is recorded_format():
        commands.append(f"toolspan run --resume {repaired.session_id}")
    return [f"{prefix}{command}" for command in commands if command]


def _target_folder(repaired: RepairResult) -> Path | None:
    """Return the folder to move the copy to so that clients find it, or None if it is already there or unknown."""
    if repaired.path is None or repaired.cwd is None or _is_in_client_folder(repaired):
        return None
    transcript_format = format_of_path(repaired.original)
    folder = transcript_format.project_folder(repaired.cwd)
    return None if folder is None else transcript_format.roots()[0] / folder


def _is_in_client_folder(repaired: RepairResult) -> bool:
    return is_default_file(repaired.original)
