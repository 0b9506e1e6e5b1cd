"""`KeptArchive`: keep the sessions of all clients, and put one back.

Start at `KeptArchive.keep`; `store.py` writes the files.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from toolspan.archive.keep.place import BucketPlace, data_folder, open_place
from toolspan.archive.keep.store import KeptFile, Outcome, Store, open_kept_file
from toolspan.archive.reporter import SILENT, Reporter
from toolspan.archive.sources import find_session_files
from toolspan.errors import NotFound, SourceError, ToolspanError
from toolspan.formats.registry import all_formats, format_of_path, get_format
from toolspan.formats.source import to_path
from toolspan.reading.discovery import TranscriptFile
from toolspan.reading.transcript import read

_PIECE = 1 << 20
_FULL = (28, 122)
"""The errors of a full disk or an exhausted quota, after which a run ends."""


class KeepReport(Struct, frozen=True, kw_only=True):
    """What one run kept."""

    folder: str
    files: int
    """Number of source files."""
    outcomes: dict[str, int]
    """Number of files by outcome: new, grown, rewritten, shorter, unchanged."""
    gone: int
    """Number of kept files whose sources no longer exist."""
    bytes: int
    """Size of all kept contents before compression."""
    kept_bytes: int
    """Size of the archive, in which equal files count once."""
    problems: tuple[str, ...]
    seconds: float


class RestoredSession(Struct, frozen=True, kw_only=True):
    """A session that was put back."""

    session: str
    client: str
    folder: str | None
    """The working folder of the session, in which the client resumes it."""
    files: tuple[str, ...]
    command: str | None
    """The command that resumes it; None if the client has none."""


class VerifiedFile(Struct, frozen=True, kw_only=True):
    """A kept file, and what is wrong with it."""

    name: str
    problem: str | None


class KeptVersion(Struct, frozen=True, kw_only=True):
    """An earlier content of a kept file that the client has rewritten."""

    name: str
    """The path of the file in the archive, without `.zst`."""
    version: int
    is_session: bool
    """True for the transcript of the session itself, of which `restore` puts back a version."""
    kept: datetime
    """The time at which this content was last kept."""
    size: int


class KeepSource(Struct, frozen=True):
    """A folder or database of a client, and its place in the archive."""

    client: str
    place: str
    path: Path


def default_keep_folder() -> Path:
    """Return the folder of the kept archive if none is named."""
    return data_folder() / "kept"


def find_sources() -> list[KeepSource]:
    """Return the existing folders and databases of all clients."""
    sources: list[KeepSource] = []
    for client in all_formats():
        for root in client.roots():
            places = [root, *(root.parent / name for name in client.side_folders)]
            sources += [KeepSource(client.name, path.name, path) for path in places if path.exists()]
    return sources


class KeptArchive:
    """A folder, or a URL of S3, with a copy of all sessions, which nothing removes. `Archive(folder)` reads it."""

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, reporter: Reporter = SILENT) -> None:
        """Name the folder of the archive, by default that of this user. It is created when something is kept."""
        self.folder = default_keep_folder() if folder is None else to_path(os.fspath(folder))
        self._place = open_place(self.folder)
        self._reporter = reporter

    def __repr__(self) -> str:
        return f"KeptArchive({str(self.folder)!r})"

    @property
    def exists(self) -> bool:
        """True if something was kept in the folder."""
        try:
            return self._place.exists()
        except OSError as error:
            raise SourceError(f"{self.folder}: {error.strerror or error}") from error

    def keep(self, sources: Sequence[KeepSource] | None = None) -> KeepReport:
        """Keep what is new or has grown. Interrupted runs continue, and nothing is ever removed.

        Raises:
            ArchiveInUse: another process writes to the archive.
            ToolspanError: the archive cannot be written.
        """
        began = time.monotonic()
        found = find_sources() if sources is None else sources
        if not found:
            raise NotFound("no sessions of any client were found, so there is nothing to keep")
        items = [item for source in found for item in _iter_files(source)]
        return self._keep_all(lambda _: items, began)

    def pull(self, other: str | os.PathLike[str]) -> KeepReport:
        """Add what another kept archive has, such as one of another machine.

        Raises:
            SourceError: there is no kept archive.
        """
        began = time.monotonic()
        source = KeptArchive(other)
        with closing(source.open_store()) as store, tempfile.TemporaryDirectory(prefix="toolspan-") as temporary:
            return self._keep_all(lambda own: _iter_kept(store, own, Path(temporary)), began)

    def push(self, other: str | os.PathLike[str]) -> KeepReport:
        """Add what this archive has to another kept archive, which is created if it does not exist."""
        return KeptArchive(other, reporter=self._reporter).pull(self.folder)

    def verify(self) -> Iterator[VerifiedFile]:
        """Read every kept file and compare it with its checksum."""
        with closing(self.open_store()) as store:
            for name, problem in store.verify():
                yield VerifiedFile(name=name, problem=problem)

    def versions(self, session: str) -> list[KeptVersion]:
        """Return the earlier contents of a session's files, by file and oldest first.

        Raises:
            NotFound: no kept session begins with this id.
        """
        with closing(self._open()) as store:
            files = find_session_files(session, store.folder)
            main = _main_file(files)
            return [
                _make_version(store, kept, number, path, is_session=kept == main.path)
                for kept in _session_files([file.path for file in files])
                for number, path in store.find_versions(kept).items()
            ]

    def restore(
        self,
        session: str,
        *,
        folder: str | os.PathLike[str] | None = None,
        homes: Mapping[str, Path] | None = None,
        replace: bool = False,
        version: int | None = None,
    ) -> RestoredSession:
        """Put a session with its side files back where its client resumes it.

        `folder` moves the session to another working folder: paths below the old one are rewritten. `homes` are the
        folders of clients, by default those of this user. A file that exists with other content is only overwritten
        with `replace`. `version` is the number of an earlier content of the session's transcript; see `versions`.

        Raises:
            NotFound: no kept session begins with this id, or it has no such version.
            ToolspanError: a file is in the way, or cannot be written.
        """
        with closing(self._open()) as store:
            target = None if folder is None else Path(folder)
            return _restore(store, session, target, homes or {}, replace=replace, version=version)

    def open_store(self) -> Store:
        """Open the files of the archive with complete notes about them.

        Raises:
            SourceError: there is no archive.
            ArchiveInUse: another process writes to an archive in S3.
        """
        store = self._open()
        try:
            store.complete_notes()
        except OSError as error:
            raise SourceError(f"{self.folder}: {error.strerror or error}") from error
        return store

    def _open(self) -> Store:
        if not self.exists:
            raise SourceError(f"{self.folder}: there is no kept archive; `toolspan keep` creates one")
        self._place.prepare()
        return Store(self._place)

    def _keep_all(self, find_items: Callable[[Store], Iterable[_SourceFile]], began: float) -> KeepReport:
        try:
            self._place.prepare()
            with closing(Store(self._place)) as store, store.writing():
                return self._keep_items(store, find_items(store), began)
        except OSError as error:
            if error.errno in _FULL:
                raise ToolspanError(f"{self.folder}: no space is left; what was kept so far is complete") from error
            raise ToolspanError(f"{error.filename or self.folder}: {error.strerror or error}") from error

    def _keep_items(self, store: Store, items: Iterable[_SourceFile], began: float) -> KeepReport:
        outcomes: Counter[str] = Counter()
        problems: list[str] = []
        total = sum(item.size for item in items) if isinstance(items, Sequence) else 0
        with self._reporter.progress(total, "keeping") as advance:
            for item in items:
                try:
                    outcomes[_keep_item(store, item)] += 1
                except OSError as error:
                    if error.errno in _FULL:
                        raise
                    if not item.path.exists():
                        continue  # the client has just removed it
                    problems.append(f"{item.path}: {error.strerror or error}")
                advance(item.size)
        notes = list(store.notes())
        return KeepReport(
            folder=str(self.folder),
            files=outcomes.total(),
            outcomes=dict(outcomes),
            gone=sum(bool(note.source) and not os.path.exists(note.source) for note in notes),  # noqa: PTH110
            bytes=sum(note.size for note in notes),
            kept_bytes=_count_kept_bytes(store, notes),
            problems=tuple(problems),
            seconds=time.monotonic() - began,
        )


def _count_kept_bytes(store: Store, notes: Sequence[KeptFile]) -> int:
    if isinstance(store.place, BucketPlace):
        return sum(note.kept_size for note in notes)
    statuses = [(store.folder / note.kept).stat() for note in notes]
    return sum({(status.st_dev, status.st_ino): status.st_size for status in statuses}.values())


class _SourceFile(Struct, frozen=True):
    name: str
    path: Path
    size: int
    is_database: bool = False
    is_copy: bool = False
    """True if the path is a temporary file."""


def _iter_files(source: KeepSource) -> Iterator[_SourceFile]:
    """Yield the regular files below a folder of a client, or its database."""
    if source.path.is_file():
        yield _SourceFile(f"{source.client}/{source.place}", source.path, source.path.stat().st_size, is_database=True)
        return
    for folder, folders, names in os.walk(source.path):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            with suppress(OSError):
                if not path.is_symlink() and path.is_file():
                    place = f"{source.client}/{source.place}/{path.relative_to(source.path)}"
                    yield _SourceFile(place, path, path.stat().st_size)


def _iter_kept(source: Store, own: Store, temporary: Path) -> Iterator[_SourceFile]:
    """Yield the files of another archive whose content differs from ours, one after another as a temporary file."""
    path = temporary / "file"
    for note in source.notes():
        mine = own.find(note.name)
        if mine is not None and (mine.size, mine.sha256) == (note.size, note.sha256):
            continue
        with source.open(note) as stream, path.open("wb") as copy:
            while piece := stream.read(_PIECE):
                copy.write(piece)
        yield _SourceFile(note.name, path, note.size, is_copy=True)


def _keep_item(store: Store, item: _SourceFile) -> Outcome:
    if not item.is_database:
        return store.keep_file(item.name, item.path, origin="" if item.is_copy else None)
    # A database may be written to, so a consistent copy is taken, without its journal.
    with tempfile.TemporaryDirectory(prefix="toolspan-") as folder:
        copy = Path(folder, item.path.name)
        try:
            with (
                closing(sqlite3.connect(f"{item.path.absolute().as_uri()}?mode=ro", uri=True)) as database,
                closing(sqlite3.connect(copy)) as target,
            ):
                database.backup(target)
        except sqlite3.Error as error:
            raise OSError(5, str(error), str(item.path)) from error
        return store.keep_file(item.name, copy, origin=str(item.path), is_whole=True)


# Restoring


def _main_file(files: Sequence[TranscriptFile]) -> TranscriptFile:
    return next((file for file in files if file.name.role == "session"), files[0])


def _make_version(store: Store, kept: Path, number: int, path: Path, *, is_session: bool) -> KeptVersion:
    size = 0
    with open_kept_file(path, is_compressed=True) as stream:
        while piece := stream.read(_PIECE):
            size += len(piece)
    return KeptVersion(
        name=str(kept.relative_to(store.folder)).removesuffix(".zst"),
        version=number,
        is_session=is_session,
        kept=datetime.fromtimestamp(path.stat().st_mtime, UTC),
        size=size,
    )


def _restore(
    store: Store, prefix: str, folder: Path | None, homes: Mapping[str, Path], *, replace: bool, version: int | None
) -> RestoredSession:
    files = find_session_files(prefix, store.folder)
    main = _main_file(files)
    client = format_of_path(main.path).name
    session = main.name.session_id or main.name.stem
    old = read(main.path).info.cwd
    version_path = None if version is None else store.find_versions(main.path).get(version)
    if version is not None and version_path is None:
        raise NotFound(f"{session}: there is no version {version}; `toolspan keep versions {session[:8]}` lists them")
    if folder is not None and old is None:
        raise ToolspanError(f"{session}: the session does not record its folder, so it cannot be moved to another one")
    rewrite = _PathRewriter(old, str(folder.absolute())) if folder is not None and old is not None else None
    written: dict[Path, Path] = {}
    for path in _session_files([file.path for file in files]):
        target = _target_of(store.folder, path, client, homes, rewrite)
        content = version_path if version_path is not None and path == main.path else path
        _write_restored(content, target, rewrite, is_compressed=content.suffix != target.suffix, replace=replace)
        written[path] = target
    return RestoredSession(
        session=session,
        client=client,
        folder=rewrite.new if rewrite else old,
        files=tuple(map(str, written.values())),
        command=get_format(client).resume_command(session, written[main.path]),
    )


def _session_files(transcripts: Sequence[Path]) -> list[Path]:
    """Return the kept transcripts and side files of a session, each once."""
    paths: dict[Path, None] = {}
    for transcript in transcripts:
        for path in (transcript, *format_of_path(transcript).side_paths(transcript)):
            inside = sorted(path.rglob("*")) if path.is_dir() else [path]
            paths.update(dict.fromkeys(item for item in inside if item.is_file()))
    return list(paths)


def _target_of(root: Path, path: Path, client: str, homes: Mapping[str, Path], rewrite: _PathRewriter | None) -> Path:
    """Return where the client has the file."""
    _, place, *parts = path.relative_to(root).parts
    roots = {item.name: item for item in get_format(client).roots()}
    home = homes.get(client) or next(iter(roots.values())).parent
    name = parts[-1].removesuffix(".zst")
    folder = get_format(client).project_folder(rewrite.new) if rewrite is not None else None
    if folder is not None and place in roots:
        parts[0] = folder
    return home.joinpath(place, *parts[:-1], name)


class _PathRewriter:
    """A replacement of one folder by another in the lines of a transcript."""

    def __init__(self, old: str, new: str) -> None:
        self.new = new
        encoded = [json.dumps(text, ensure_ascii=False)[1:-1].encode(errors="surrogatepass") for text in (old, new)]
        # A folder ends where its name does: `/a/b` is not rewritten in `/a/bc` or `/x/a/b`.
        self._pattern = re.compile(rb"(?<![\w./~-])" + re.escape(encoded[0].rstrip(b"/")) + rb"(?![\w-]|\.\w)")
        self._replacement = encoded[1].rstrip(b"/")

    def rewrite(self, line: bytes) -> bytes:
        """Return a line with the new paths."""
        return self._pattern.sub(lambda _: self._replacement, line)


def _write_restored(
    path: Path, target: Path, rewrite: _PathRewriter | None, *, is_compressed: bool, replace: bool
) -> None:
    """Write a kept file to its place, as new: the client deletes old files."""
    is_text = target.suffix in (".jsonl", ".json")
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".toolspan-")
        try:
            with os.fdopen(handle, "wb") as out, open_kept_file(path, is_compressed=is_compressed) as stream:
                pieces = (
                    iter(stream.readline, b"")
                    if rewrite is not None and is_text
                    else iter(lambda: stream.read(_PIECE), b"")
                )
                for piece in pieces:
                    out.write(rewrite.rewrite(piece) if rewrite is not None and is_text else piece)
            if target.exists() and not replace and _digest(target) != _digest(Path(name)):
                raise ToolspanError(f"{target}: the file exists with other content; use --replace to overwrite it")
            Path(name).replace(target)
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        raise ToolspanError(f"{error.filename or target}: {error.strerror or error}") from error


def _digest(path: Path) -> bytes:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()
