"""A transcript that still grows: what happened since one last looked.

In: a file, a session or a folder. Out: `Update`s, each call at most once per look, in the order the
model asked. Only whole new lines are read; half a line waits for its newline. Calls without a
result are `requested` or `running` here and nowhere else. Looking never waits and knows no clock:
`changes` waits, and `follow` is both together. Read `Follower.poll` first.
"""

import errno
import glob
import io
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, BinaryIO, Literal, Protocol, cast

from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.ids import CallId
from toolspan.model.finding import Finding
from toolspan.model.span import Span
from toolspan.model.state import OPEN_STATES
from toolspan.read.discover import discover, read_meta
from toolspan.read.live import LivePairing
from toolspan.read.transcript import AnyReader, Reader
from toolspan.read.tree import Branches
from toolspan.wire import claude
from toolspan.wire.codex_paths import is_rollout
from toolspan.wire.detect import is_document, reads_as
from toolspan.wire.jsonl import Chunk, read_chunks
from toolspan.wire.paths import parse_name, session_folder
from toolspan.wire.source import FileSource, Source

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_HEAD, _TAIL = 1024, 256
_FIRST_LINE = 1 << 24
_TICK_MS, _STEP_MS, _GATHER_MS = 200, 50, 200
_LOOK = 1.0
"""Seconds between looks where nothing can be watched."""


Reason = Literal["truncated", "replaced", "rewritten"]


class Appeared(Struct, frozen=True):
    """A call that was not there before."""

    span: Span
    file: str


class Changed(Struct, frozen=True):
    """A call of which more is known now: its state, its result, or what happened around it."""

    span: Span
    before: Span
    file: str


class Reset(Struct, frozen=True):
    """The file is not what it was: forget its calls, all that it holds now is told anew."""

    file: str
    reason: Reason


Update = Appeared | Changed | Reset


class Follower:
    """Follows one file, which need not exist yet and must not be compressed.

    A deleted file keeps what was read of it; one that comes back as another is read anew.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.file = str(path)
        if self.path.name.endswith(".zst"):
            raise SourceError(f"{path}: a compressed transcript does not grow, it can only be read")
        self._finished = False
        self._begin()

    def _begin(self) -> None:
        self._reader, self._calls = _claude(FileSource(self.path))
        self._told: dict[CallId, Span] = {}
        self._offset = 0
        self._edges = (b"", b"")
        self._inode: tuple[int, int] | None = None
        self._seen: tuple[int, ...] | None = None

    @property
    def findings(self) -> list[Finding]:
        """Damage that reading met so far."""
        return self._reader.findings

    def poll(self) -> list[Update]:
        """What happened since last asked.

        Raises:
            SourceError: the file is there, but cannot be read.
        """
        return [*self._read(), *self._news()]

    def catch_up(self, size: int | None = None) -> list[Update]:
        """Read what is there, or its first `size` bytes; tells only the calls that are open."""
        self._read(size)
        return [update for update in self._news() if update.span.state in OPEN_STATES]

    def begin(self, call_id: str) -> None:
        """Something outside the file shows that a call has started."""
        self._calls.begin(CallId(call_id))

    def finish(self) -> list[Update]:
        """The session has ended: the last changes, up to exactly what `read` says of the file.

        Half a last line is taken too, open calls become `never_answered`, branches are known.
        """
        resets = self._read(last=True)
        self._finished = True
        self._calls.end(self._reader.branches())
        return [*resets, *self._news()]

    def _news(self) -> list[Appeared | Changed]:
        found: list[Appeared | Changed] = []
        for span in self._calls.changed():
            before = self._told.get(span.id)
            if before is None:
                found.append(Appeared(span, self.file))
            elif before != span:
                found.append(Changed(span, before, self.file))
            self._told[span.id] = span
        return found

    def _read(self, size: int | None = None, *, last: bool = False) -> list[Reset]:
        """Take in the new lines; says whether reading had to begin anew."""
        with _explained(self.path):
            stream = None if self._finished else self._open(always=last)
            if stream is None:
                return []
            with stream:
                status = os.fstat(stream.fileno())
                reason = self._lost(stream, status)
                if reason:
                    self._begin()
                end = status.st_size if size is None else min(size, status.st_size)
                self._take(stream, end, last=last)
                self._edges = self._ends(stream)
                self._inode = (status.st_dev, status.st_ino)
                self._seen = _signature(status) if size is None else None
        return [Reset(self.file, reason)] if reason else []

    def _open(self, *, always: bool) -> BinaryIO | None:
        """The file, when it is there and something changed."""
        try:
            status = self.path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise SourceError(f"{self.path}: not a file that can be followed")
            if _signature(status) == self._seen and not always:
                return None
            return cast("BinaryIO", self.path.open("rb", buffering=0))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _lost(self, stream: BinaryIO, status: os.stat_result) -> Reason | None:
        """Why what was read no longer holds."""
        if not self._offset:
            return None
        if (status.st_dev, status.st_ino) != self._inode:
            return "replaced"
        if status.st_size < self._offset:
            return "truncated"
        return None if self._ends(stream) == self._edges else "rewritten"

    def _ends(self, stream: BinaryIO) -> tuple[bytes, bytes]:
        """The first and the last bytes of what was read: a file is known again by them."""
        stream.seek(0)
        head = stream.read(min(_HEAD, self._offset))
        stream.seek(max(0, self._offset - _TAIL))
        return head, stream.read(min(_TAIL, self._offset))

    def _take(self, stream: BinaryIO, end: int, *, last: bool) -> None:
        """Read from where reading stopped; half a line only when it is the last of all."""
        source = cast("Source", _Window(stream, end))
        for chunk in read_chunks(source, offset=self._offset):
            if not chunk.ended and not last:
                return
            if not self._offset:
                self._choose(chunk)
            self._reader.chunk(chunk)
            self._offset = chunk.offset + chunk.size

    def _choose(self, chunk: Chunk) -> None:
        """The first lines tell whose file it is."""
        if reads_as(self.file, chunk.data, chunk.start, chunk.end) == "claude":
            return
        if is_document(bytes(chunk.data[chunk.start : chunk.end])):
            raise SourceError(f"{self.path}: one JSON document, it can only be read")
        from toolspan.read.codex.reader import LiveReader

        reader = LiveReader(FileSource(self.path))
        self._reader, self._calls = reader, reader.pairing

    @property
    def started(self) -> dict[str, str]:
        """Which call started which subagent, by the subagent's id."""
        return self._calls.started


def _claude(source: Source) -> "tuple[AnyReader, Calls]":
    reader = Reader(source)
    reader.pairing = calls = LivePairing(source)
    return reader, calls


class Calls(Protocol):
    """The calls of a file that grows, whichever client writes it."""

    @property
    def started(self) -> dict[str, str]:
        """Which call started which subagent."""
        ...

    def changed(self) -> list[Span]:
        """The calls that may have changed since last asked."""
        ...

    def begin(self, call_id: CallId) -> None:
        """Something outside the file shows that a call has started."""
        ...

    def end(self, branches: Branches) -> None:
        """The file counts as finished."""
        ...


class _Window(io.RawIOBase):
    """An open file up to a size, as a source: one look sees one file, whatever becomes of it."""

    def __init__(self, stream: BinaryIO, end: int) -> None:
        super().__init__()
        self._stream = stream
        self._end = end

    def open(self, offset: int = 0) -> BinaryIO:
        self._stream.seek(offset)
        return cast("BinaryIO", self)

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer)
        data = self._stream.read(min(len(view), max(0, self._end - self._stream.tell())))
        view[: len(data)] = data
        return len(data)


def _signature(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from error


class _SetFollower(ABC):
    """Follows files that belong together, those among them that appear later."""

    recursive = False
    """Whether the folders to watch are meant with all below them."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._followers: dict[Path, Follower] = {}
        self.problems: dict[Path, str] = {}
        """Files that cannot be read; the others are followed all the same."""

    def poll(self, changed: Iterable[Path] | None = None) -> list[Update]:
        """What happened since last asked; looks only at what `changed`, if that is known."""
        return self._each(self._files(changed), Follower.poll)

    def catch_up(self) -> list[Update]:
        """Read what is there; tells only the calls that are open."""
        return self._each(self._files(None), Follower.catch_up)

    def finish(self) -> list[Update]:
        """The session has ended: see `Follower.finish`."""
        return self._each(list(self._followers), Follower.finish)

    def folders(self) -> list[Path]:
        """The folders in which something may happen."""
        return [self.path]

    @abstractmethod
    def _files(self, changed: Iterable[Path] | None) -> Iterable[Path]:
        """The files to look at now."""

    def _each(
        self, paths: Iterable[Path], look: Callable[[Follower], list[Update]]
    ) -> list[Update]:
        found: list[Update] = []
        for path in paths:
            try:
                found += look(self._followers.get(path) or self._admit(path))
            except SourceError as error:
                if path == self.path:
                    raise
                self.problems[path] = str(error)
        return found

    def _admit(self, path: Path) -> Follower:
        self._followers[path] = follower = Follower(path)
        return follower


class SessionFollower(_SetFollower):
    """Follows a session: its own file, and its subagents' as they appear."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(path)
        self._main = self._admit(self.path)
        self._name = parse_name(self.path)
        self._below = session_folder(self.path) / "subagents"
        self._owners: dict[Path, str | None] = {}
        self._placed: set[Path] = set()
        self._found: dict[str, Path | None] = {}

    def folders(self) -> list[Path]:
        """The session's folders that exist; until there is one, where it will come."""
        home = self.path.parent
        while not home.is_dir():
            home = home.parent
        also = [path for path in (self.path.resolve().parent, self._below.parent) if path.is_dir()]
        nested = [Path(folder) for folder, _, _ in os.walk(self._below)]
        return list(dict.fromkeys([home, *also, *nested]))

    def _files(self, changed: Iterable[Path] | None) -> Iterable[Path]:
        elsewhere = changed is not None and all(parse_name(p).role != "agent" for p in changed)
        if is_rollout(self.path.name):
            return [self.path, *self._threads()]
        if self._name.role != "session" or elsewhere:
            return [self.path]
        agents = list(self._agents())
        for path in agents:
            self._place(path)
        return [self.path, *agents]

    def _threads(self) -> Iterator[Path]:
        """The rollouts of subagents that calls of this one have started, if they lie beside it."""
        for thread in [name for follower in self._followers.values() for name in follower.started]:
            if thread not in self._found:
                beside = self.path.parent.glob(f"rollout-*-{glob.escape(thread)}.jsonl")
                self._found[thread] = next(iter(beside), None)
            if (path := self._found[thread]) is not None:
                yield path
            else:
                del self._found[thread]

    def _place(self, path: Path) -> None:
        """Find out which call started a subagent, as soon as its side file tells."""
        meta = None if path in self._placed else read_meta(path)
        if meta is not None and meta.tool_use_id:
            self._placed.add(path)
            self._main.begin(meta.tool_use_id)

    def _agents(self) -> Iterator[Path]:
        if self._below.is_dir():
            below = [file for file in discover(self._below) if file.name.role == "agent"]
            yield from (file.path for file in below if file.path.suffix == ".jsonl")
        if self.path.parent.is_dir():
            with os.scandir(self.path.parent) as listing:
                names = [item.name for item in listing if item.name.startswith("agent-")]
            beside = [self.path.with_name(name) for name in sorted(names)]
            yield from (path for path in beside if path.suffix == ".jsonl" and self._owns(path))

    def _owns(self, path: Path) -> bool:
        """Whether a file's first line names this session; asked again until it has one."""
        if path not in self._owners:
            try:
                with path.open("rb") as stream:
                    line = stream.readline(_FIRST_LINE)
                self._owners[path] = claude.decode(line).entry.session
            except (OSError, ValueError):
                return False
        return self._owners[path] == self._name.stem


class FolderFollower(_SetFollower):
    """Follows every transcript below one folder, or several.

    Files last written before the time `asleep_before` are not read until they change.
    """

    recursive = True

    def __init__(self, *roots: Path | str, asleep_before: float = 0.0) -> None:
        super().__init__(roots[0])
        self._roots = {Path(root): Path(root).resolve() for root in roots}
        found = (file for root in self._roots for file in discover(root))
        self._asleep = {file.path: file.size for file in found if file.modified < asleep_before}

    def folders(self) -> list[Path]:
        """The folders, with all below them."""
        return list(self._roots)

    def _files(self, changed: Iterable[Path] | None) -> Iterable[Path]:
        if changed is None:
            found = (file for root in self._roots if root.is_dir() for file in discover(root))
            awake = [file for file in found if file.size != self._asleep.get(file.path)]
            return [file.path for file in awake if file.path.suffix == ".jsonl"]
        paths = {self._spelled(path) for path in _with_new_folders(changed)}
        named = {path for path in paths if path.suffix == ".jsonl" and _is_transcript(path)}
        return sorted(path for path in named if path in self._followers or path.is_file())

    def _spelled(self, path: Path) -> Path:
        """A path as it is named below the folders we were given, links in those not followed."""
        for root, real in self._roots.items():
            if path.is_relative_to(real):
                return root / path.relative_to(real)
        return path

    def _admit(self, path: Path) -> Follower:
        follower = super()._admit(path)
        size = self._asleep.pop(path, None)
        if size is not None:
            follower.catch_up(size)
        return follower


def _is_transcript(path: Path) -> bool:
    return parse_name(path).role != "other"


def _with_new_folders(changed: Iterable[Path]) -> Iterator[Path]:
    """With the files in folders that are new: they may be older than the watch on the folder."""
    for path in changed:
        yield path
        if path.suffix != ".jsonl" and path.is_dir():
            with suppress(SourceError):
                yield from (file.path for file in discover(path))


def changes(
    follower: SessionFollower | FolderFollower, *, stop: Event | None = None
) -> Iterator[set[Path] | None]:
    """Waits, and says what to look at: None for everything.

    A moment without news gives an empty set, so that the caller can think of other things. Where
    the system has no watches left, everything is looked at once a second, and the follower's
    `problems` say so.
    """
    while stop is None or not stop.is_set():
        folders = _inodes(follower.folders())
        if not folders:
            raise SourceError(f"{follower.path}: the folder is gone")
        try:
            yield from _watched(follower, folders, stop)
        except FileNotFoundError:  # a folder may go before it is watched
            continue
        except PermissionError:  # this way of watching also hides that there are no watches left
            yield from _watched(follower, folders, stop, forbidden=True)
        except OSError as error:
            follower.problems[follower.path] = _unwatched(error)
            yield from _looks(stop)


def _watched(
    follower: SessionFollower | FolderFollower,
    folders: dict[Path, int],
    stop: Event | None,
    *,
    forbidden: bool = False,
) -> Iterator[set[Path] | None]:
    """What the system tells of folders, until others have to be watched.

    `forbidden`: some below them cannot be listed, and are left out.
    """
    from watchfiles import watch

    found = watch(
        *folders, recursive=follower.recursive, stop_event=stop, watch_filter=None,
        rust_timeout=_TICK_MS, yield_on_timeout=True, step=_STEP_MS, debounce=_GATHER_MS,
        ignore_permission_denied=forbidden,
    )  # fmt: skip
    with closing(found):
        for n, news in enumerate(found):  # before the first, anything may have happened
            yield {Path(path) for _, path in news} if n else None
            if (news or not n) and _inodes(follower.folders()) != folders:
                return


def _looks(stop: Event | None) -> Iterator[None]:
    """Everything, again and again."""
    waiting = stop or Event()
    while not waiting.wait(_LOOK):
        yield None


def _unwatched(error: OSError) -> str:
    limited = "limit" in str(error).lower() or error.errno in (errno.EMFILE, errno.ENOSPC)
    more = " (fs.inotify.max_user_watches and max_user_instances set how many)" if limited else ""
    said = "has no watches left" if limited else f"cannot watch: {error.strerror or error}"
    return f"the system {said}{more}: every file is looked at once a second instead"


def _inodes(folders: Iterable[Path]) -> dict[Path, int]:
    return {folder: folder.stat().st_ino for folder in folders if folder.is_dir()}


def follow(path: Path | str, *, stop: Event | None = None) -> Iterator[Update]:
    """All that a file, its subagents or a folder hold and will hold, until `stop` is set.

    Raises:
        SourceError: the file or folder cannot be read, or is compressed.
    """
    follower = FolderFollower(path) if Path(path).is_dir() else SessionFollower(path)
    yield from follower.poll()
    for changed in changes(follower, stop=stop):
        if changed is None or changed:
            yield from follower.poll(changed)
