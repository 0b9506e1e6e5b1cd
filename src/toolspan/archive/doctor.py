"""Problems in transcripts, and a repaired copy: `Archive.doctor`, `toolspan doctor` and `toolspan repair`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from toolspan.archive.engine import FileEngine, map_files, warn_about_skipped
from toolspan.errors import SourceError, ToolspanError
from toolspan.formats.base import RepairChange, RepairResult
from toolspan.formats.claude.paths import config_dir, project_name
from toolspan.formats.registry import FORMAT_NAMES, detect_dialect, get_format
from toolspan.formats.source import source_for_path
from toolspan.reading.diagnostics import DiagnosticReport, check, repair
from toolspan.reading.discovery import TranscriptFile
from toolspan.reading.parallel import FileJob


class CheckedFile(Struct, frozen=True):
    """The report about one file."""

    dialect: str = ""
    report: DiagnosticReport | None = None
    problem: str | None = None
    """The reason why the file cannot be read."""

    def to_dict(self) -> dict[str, object]:
        """Return the object that `doctor --json` prints."""
        return {} if self.report is None else _report_row(self.report, self.dialect)


def check_file(path: Path | str, *, roundtrip: bool = False) -> CheckedFile:
    """Check one file. Does not raise if it cannot be read: `problem` is set instead."""
    try:
        return CheckedFile(detect_dialect(source_for_path(path)), check(path, roundtrip=roundtrip))
    except SourceError as error:
        return CheckedFile(problem=str(error))


def check_file_lines(path: Path | str) -> CheckedFile:
    """Check one file like `check_file`, and that every line can be re-encoded to equal JSON."""
    return check_file(path, roundtrip=True)


def check_files(
    engine: FileEngine, files: Sequence[TranscriptFile], *, roundtrip: bool = False
) -> Iterator[CheckedFile]:
    """Yield the report about each transcript, without files of other programs unless it is the only file.

    Raises:
        SourceError: the only file cannot be read.
    """
    skipped = 0
    with engine.reporter.progress(sum(file.size for file in files), "checking") as advance:
        job = FileJob(check_file_lines if roundtrip else check_file, CheckedFile)
        for checked in map_files([file.path for file in files], job, advance):
            if checked.dialect == "unknown" and len(files) > 1:
                skipped += 1
                continue
            if checked.report is None:
                if len(files) == 1:
                    raise SourceError(checked.problem or "")
                engine.reporter.warn(checked.problem or "")
            yield checked
    warn_about_skipped(skipped, engine.reporter)


def _report_row(report: DiagnosticReport, dialect: str) -> dict[str, object]:
    resume_effects = get_format(dialect).resume_behavior if dialect in FORMAT_NAMES else {}
    return {
        "file": report.file,
        "healthy": report.is_healthy,
        "client": report.client_acceptance,
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


def _resume_commands(repaired: RepairResult) -> list[str]:
    if repaired.session_id is None or (repaired.cwd is None and not _is_in_client_folder(repaired)):
        return []
    prefix = f"cd {shlex.quote(repaired.cwd)} && " if repaired.cwd else ""
    programs = ("claude", "toolspan run")
    return [f"{prefix}{program} --resume {repaired.session_id}" for program in programs]


def _target_folder(repaired: RepairResult) -> Path | None:
    """Return the folder to move the copy to so that clients find it, or None if it is already there or unknown."""
    if repaired.path is None or repaired.cwd is None or _is_in_client_folder(repaired):
        return None
    return config_dir() / "projects" / project_name(repaired.cwd)


def _is_in_client_folder(repaired: RepairResult) -> bool:
    return repaired.original.absolute().is_relative_to((config_dir() / "projects").absolute())
