"""Answer questions about very many files with little memory: read them in parts that have nothing in common.

Of each file, only a `FileHead` is read at first. It shows which files belong together, and is cached for many files at
once, so that unchanged files cost little. Start at `iter_parts`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import chain
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from toolspan.archive.engine import FileEngine, is_foreign, read_all, read_files, total_size, warn_about_skipped
from toolspan.reading.history import FileHead, LinkedFile
from toolspan.reading.lineage import FileLinks

if TYPE_CHECKING:
    from toolspan.archive.engine import Engine, FileResult
    from toolspan.reading.cache import Cache, CacheKey, StampedFiles
    from toolspan.reading.discovery import TranscriptFile
    from toolspan.reading.facts import FileJob

_MEAN_CHUNK = 2_000
"""The mean number of files whose heads are cached together. If one of the files changes, all of them are loaded."""

T = TypeVar("T", bound="FileResult")
Heads = Iterator[tuple[int, FileHead]]
Choose = Callable[[Heads], Iterable[int]]
"""Takes the heads of the files that have nothing in common with others, each with its number, and returns the numbers
of those that the question needs.
"""


class Part(NamedTuple, Generic[T]):
    """Some files of an archive, which have nothing in common with the others."""

    results: list[T]
    are_linked: bool = True
    """False if no two of the files have common links (see `FileHead`)."""
    are_joined: bool = True
    """False if the files are read one by one, and not as a set."""


def iter_parts(
    engine: Engine, job: FileJob[T], make_head: Callable[[T], FileHead], choose: Choose | None = None
) -> Iterator[Part[T]]:
    """Yield the results of a job in parts, so that files that are linked are in one part.

    `make_head` returns the head of a file from the result of the job. If they fit into one part (see
    `FileEngine.count_part`), `choose` is not called. Otherwise, only their heads and one part are in memory.
    """
    if not isinstance(engine, FileEngine):
        results, are_joined = engine.read(job)
        yield Part(results, are_joined=are_joined)
        return
    files, are_joined = engine.locate()
    folder = None
    if len(files) > engine.count_part(files):
        from toolspan.reading.cache import Cache, default_folder  # perf: few archives have so many files

        folder = default_folder()
    if folder is None:
        yield Part(read_files(engine, files, job), are_joined=are_joined)
        return
    for results, are_linked in PartReader(engine, files, job, make_head, Cache(folder)).iter_parts(choose):
        yield Part(results, are_linked=are_linked, are_joined=are_joined)


class _Chunk(NamedTuple):
    """Neighbouring files whose heads are cached together."""

    start: int
    end: int
    cached: tuple[CacheKey, str] | None
    """The key and stamp of the heads, if they can be cached."""


class PartReader(Generic[T]):
    """Very many files, a job, and what is known of each file before the parts are read."""

    def __init__(
        self,
        engine: FileEngine,
        files: Sequence[TranscriptFile],
        job: FileJob[T],
        make_head: Callable[[T], FileHead],
        cache: Cache,
    ) -> None:
        """Create a reader. `make_head` returns the head of a file from the result of the job."""
        self._engine = engine
        self._files = files
        self._job = job
        self._make_head = make_head
        self._cache = cache
        self._part_files = engine.count_part(files)
        self._question = f"heads for {job.kinds[0].name}"
        self.skipped = 0
        """Number of files of other programs."""

    def iter_parts(self, choose: Choose | None) -> Iterator[tuple[list[T], bool]]:
        """Yield the results of the job in parts, and whether some files of a part are linked.

        Files that are not linked are read if `choose` returns their numbers, or always if it is None.
        """
        from toolspan.reading.cache import StampedFiles

        chunks: list[_Chunk] = []
        links = FileLinks()
        with self._engine.reporter.progress(total_size(self._files), "reading") as advance:
            for start, files in self._iter_chunks():
                stamped = StampedFiles.from_listing(files)
                for file in self._load_links(files, stamped, advance):
                    self.skipped += file is None
                    links.add(() if file is None else file.links)
                chunks.append(_Chunk(start, start + len(files), stamped.answer_key(self._question)))
        warn_about_skipped(self.skipped, self._engine.reporter)

        def choose_alone(linked: Set[int]) -> Iterable[int]:
            if choose is None:
                return (n for n in range(len(self._files)) if n not in linked)
            heads = chain.from_iterable(map(self._load_heads, chunks))
            return choose((n, head) for n, head in heads if n not in linked)

        for numbers, are_linked in links.split(self._part_files, choose_alone):
            part = [self._files[n] for n in numbers]
            results = read_all(self._engine.mapper, part, self._job)
            yield (
                [result for file, result in zip(part, results, strict=True) if not is_foreign(file, result)],
                are_linked,
            )

    def _iter_chunks(self) -> Iterator[tuple[int, list[TranscriptFile]]]:
        """Yield the files in lists, most of which stay the same if a file is added, and the number of the first."""
        start = 0
        chunk: list[TranscriptFile] = []
        for file in self._files:
            chunk.append(file)
            name_hash = zlib.crc32(str(file.location).encode("utf-8", "surrogateescape"))
            if len(chunk) >= self._part_files or name_hash % _MEAN_CHUNK == 0:
                yield start, chunk
                start, chunk = start + len(chunk), []
        if chunk:
            yield start, chunk

    def _load_links(
        self, files: Sequence[TranscriptFile], stamped: StampedFiles, advance: Callable[[int], None]
    ) -> Sequence[LinkedFile | None]:
        """Return the links of each file, from the cache if no file of the chunk has changed."""
        from toolspan.reading.cache import cached_answer

        def compute() -> list[LinkedFile | None]:
            results = list(self._engine.mapper.map(stamped.paths, self._job, advance, stamped))
            for file, result in zip(files, results, strict=True):
                if result.problem and not is_foreign(file, result):
                    self._engine.reporter.warn(result.problem)
            return [*self._make_heads(files, results)]

        return cached_answer(stamped, self._question, list[LinkedFile | None], compute, self._cache) or ()

    def _load_heads(self, chunk: _Chunk) -> Heads:
        """Yield the number and head of each file of a chunk, but not those of other programs."""
        from toolspan.reading.cache import load_answer

        heads: Sequence[FileHead | None] | None = None
        if chunk.cached is not None:
            heads = load_answer(*chunk.cached, list[FileHead | None], self._cache)
        if heads is None:  # a file has a problem, or has just been changed
            files = self._files[chunk.start : chunk.end]
            heads = [*self._make_heads(files, read_all(self._engine.mapper, files, self._job))]
        return ((n, head) for n, head in zip(range(chunk.start, chunk.end), heads, strict=True) if head is not None)

    def _make_heads(self, files: Iterable[TranscriptFile], results: Iterable[T]) -> Iterator[FileHead | None]:
        for file, result in zip(files, results, strict=True):
            yield None if is_foreign(file, result) else self._make_head(result)
