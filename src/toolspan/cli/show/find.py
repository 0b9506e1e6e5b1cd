"""What the words after `toolspan show` name: the files of a session, or a call.

In: words. Out: files, or a `Portrait`. A session is meant before a call. Read `find` first.
"""

from collections.abc import Sequence
from pathlib import Path

from toolspan.cli.reading import mentioning
from toolspan.cli.select import exists, newest_session, of_session, refuse_strangers, session_files
from toolspan.cli.show.portrait import Portrait, portrait_of
from toolspan.errors import Ambiguous, NotFound, SourceError
from toolspan.model.span import moment
from toolspan.read.discover import FoundFile, default_roots, discover
from toolspan.read.facts import CallFacts
from toolspan.read.history import Ledger, pick, short_id
from toolspan.read.transcript import Transcript
from toolspan.wire.paths import session_folder
from toolspan.wire.source import source_of

_HEAD = 1 << 16


def find(names: Sequence[str], *, last: bool, session: str | None) -> list[FoundFile] | Portrait:
    """What the words name: the files of a session, or a call.

    Raises:
        NotFound: nothing has that name, or more than one thing has.
    """
    if not all(names):
        raise NotFound("a name is empty; name a file, a folder, a session or a call")
    paths = [Path(name) for name in names if exists(Path(name))]
    others = [name for name in names if not exists(Path(name))]
    if len(others) > 1:
        raise NotFound(f"{' and '.join(others)}: show tells one session or one call")
    if others:
        return _named(others[0], paths, session)
    if session is not None:
        return session_files(session, _root(paths))
    if last or not paths:
        return newest_session([str(path) for path in paths])
    if len(paths) > 1:
        raise Ambiguous(f"{len(paths)} files named: show tells one session or one call")
    return _alone(paths[0]) if not paths[0].is_dir() else _only_session(paths[0])


def _root(paths: Sequence[Path]) -> Path | None:
    return paths[0] if paths and paths[0].is_dir() else None


def _alone(path: Path) -> list[FoundFile]:
    """A named file, with the subagents that belong to it.

    Raises:
        UnknownDialect: it is no transcript at all.
    """
    refuse_strangers(path)
    found = discover(path)
    if found[0].name.role == "agent":
        return found
    folder = session_folder(path)
    inside = discover(folder) if folder.is_dir() else []
    others = sorted(path.parent.glob("agent-*.jsonl*"))
    beside = (file for other in others for file in discover(other))
    mine = (file for file in beside if _speaks_of(file, found[0].name.stem))
    return [*found, *(file for file in (*inside, *mine) if file.name.role == "agent")]


def _speaks_of(file: FoundFile, session: str) -> bool:
    try:
        return session.encode() in source_of(file.path).read(0, _HEAD)
    except SourceError:
        return False


def _only_session(folder: Path) -> list[FoundFile]:
    stems = {file.name.stem for file in discover(folder) if file.name.role == "session"}
    if len(stems) > 1:
        raise Ambiguous(f"{folder}: {len(stems)} sessions there; name one by its id, or add --last")
    return newest_session([str(folder)])


def _named(word: str, paths: Sequence[Path], session: str | None) -> list[FoundFile] | Portrait:
    """The session, or else the call, whose id begins with a word."""
    if "/" in word or word.endswith((".jsonl", ".zst")):
        raise NotFound(f"{word}: no such file or folder")
    if session is not None:
        return _call(word, session_files(session, _root(paths)))
    if any(not path.is_dir() for path in paths):
        found = (discover(path) if path.is_dir() else _alone(path) for path in paths)
        return _call(word, [file for files in found for file in files])
    files = [file for path in paths or default_roots() for file in discover(path)]
    try:
        stems = [file.name.stem for file in files if file.name.role == "session"]
        stem = pick(word, stems, "session", hint=lambda known: known[:13])
    except Ambiguous:
        raise
    except NotFound:
        transcripts = list(mentioning(word, files))
        inside = of_session(word, Ledger.of(transcripts), files)
        return inside or _portrait(word, transcripts)
    return session_files(stem, _root(paths))


def _call(word: str, files: Sequence[FoundFile]) -> Portrait:
    """The call whose id begins with a word; of several with the same id, the newest."""
    return _portrait(word, list(mentioning(word, files)))


def _portrait(word: str, transcripts: Sequence[Transcript]) -> Portrait:
    ledger = Ledger.of(transcripts)
    rows = [row for row in ledger.calls if _begins(row.id, word)]
    if not rows:
        raise NotFound(f"no session or call begins with {word!r}")
    name = pick(word, sorted({row.id for row in rows}), "call")
    *others, newest = sorted((row for row in rows if row.id == name), key=_age)
    transcript = next(found for found in transcripts if found.file == newest.file)
    span = next(span for span in transcript.spans if span.id == name)
    elsewhere = tuple(row.session or Path(row.file).stem for row in reversed(others))
    return portrait_of(ledger.tied(span), transcript, elsewhere)


def _begins(name: str, word: str) -> bool:
    return name.startswith(word) or short_id(name).startswith(word)


def _age(row: CallFacts) -> float:
    at = moment(row.finished or row.requested)
    return at.timestamp() if at else 0.0
