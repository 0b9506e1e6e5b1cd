"""The local files of a session, and the streams in which a store keeps them.

Transcripts and the intent log are streams of their own lines. The metadata of a subagent is an entry in its stream, as
the Agent SDK writes it. All other files of the session's folder are pieces in one stream. Start at `write_lines`.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from toolspan.formats.jsonl import make_folder
from toolspan.formats.side_files import intent_path, session_folder
from toolspan.stores.base import FILES, INTENTS, OWN_STREAMS

PIECE_BYTES = 512 << 10
MAX_FILE_BYTES = 64 << 20
"""The size up to which a file of the session's folder is kept in the store. The rest of a larger one is left out."""
_INTENT_START = b'{"type":"toolspan_intent",'
_METADATA_START = b'{"type":"agent_metadata",'
_SUBPATH = re.compile(r"(?:subagents/(?:[\w.-]+/)*)?agent-[\w.-]+")
_UNSAFE_PARTS = frozenset({"", ".", ".."})
_METADATA_SUFFIX = ".meta.json"


class _Piece(msgspec.Struct, tag="toolspan_file", tag_field="type"):
    """A part of a file."""

    path: str
    offset: int
    data: str
    """The bytes in base64. They replace everything from `offset` to the end of the file."""


class _Metadata(msgspec.Struct):
    type: str | None = None


def stream_path(main: Path, subpath: str) -> Path | None:
    """Return the local file for a stream of the session whose transcript is `main`; None if it has none of its own."""
    if not subpath:
        return main
    if subpath == INTENTS:
        return intent_path(main)
    if not _SUBPATH.fullmatch(subpath) or not _UNSAFE_PARTS.isdisjoint(subpath.split("/")):
        return None
    if "/" not in subpath:  # old versions write subagents beside the session
        return main.with_name(f"{subpath}.jsonl")
    return session_folder(main) / f"{subpath}.jsonl"


def find_transcripts(main: Path) -> dict[str, Path]:
    """Return the transcripts of a session's subagents by their subpaths."""
    folder = session_folder(main)
    agents = {path.stem: path for path in main.parent.glob("agent-*.jsonl")}
    below = folder / "subagents"
    for path in sorted(below.rglob("agent-*.jsonl")) if below.is_dir() else ():
        agents[path.relative_to(folder).as_posix().removesuffix(".jsonl")] = path
    return {subpath: path for subpath, path in agents.items() if stream_path(main, subpath) == path}


def find_files(main: Path, streams: Collection[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the names and paths of all files in the session's folder that are not `streams` of their own."""
    folder = session_folder(main)
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            path = Path(parent, name)
            if path in streams or path.is_symlink() or name.endswith(_METADATA_SUFFIX):
                continue
            yield path.relative_to(folder).as_posix(), path


def metadata_path(transcript: Path) -> Path:
    """Return the path of a subagent's metadata."""
    return transcript.with_name(transcript.stem + _METADATA_SUFFIX)


def encode_line(subpath: str, line: bytes) -> bytes | None:
    """Return a local line as an entry; None if it is damaged, so that no reader can use it."""
    try:
        msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return _INTENT_START + line[1:] if subpath == INTENTS else line


def encode_metadata(data: bytes) -> bytes | None:
    """Return a subagent's metadata as an entry; None if it is damaged."""
    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    fields.pop("type", None)
    return msgspec.json.encode({"type": "agent_metadata", **fields})


def encode_file(name: str, path: Path, start: int) -> Iterator[tuple[bytes, int]]:
    """Yield the pieces of a file from an offset, each with the offset of its end."""
    with path.open("rb") as file:
        file.seek(start)
        while start < MAX_FILE_BYTES and (data := file.read(min(PIECE_BYTES, MAX_FILE_BYTES - start))):
            piece = _Piece(name, start, base64.b64encode(data).decode())
            start += len(data)
            yield msgspec.json.encode(piece), start


def is_metadata(line: bytes) -> bool:
    """Return whether an entry of a subagent's stream is its metadata."""
    if line.startswith(_METADATA_START):
        return True
    if b'"agent_metadata"' not in line:
        return False
    with suppress(msgspec.MsgspecError, UnicodeError):
        return msgspec.json.decode(line, type=_Metadata).type == "agent_metadata"
    return False


def write_lines(main: Path, subpath: str, lines: Sequence[bytes], *, append: bool = False) -> None:
    """Write the lines of a stream to the local files of a session.

    Streams that no session has, and names that lead outside its folder, are ignored.
    """
    if subpath == FILES:
        _write_pieces(session_folder(main), lines)
        return
    path = stream_path(main, subpath)
    if path is None:
        return
    if subpath and not subpath.startswith(OWN_STREAMS):
        metadata = [line for line in lines if is_metadata(line)]
        lines = [line for line in lines if not is_metadata(line)]
        for line in metadata[-1:]:
            fields = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
            fields.pop("type", None)
            _write_file(metadata_path(path), msgspec.json.encode(fields))
        if metadata and not lines:
            return
    _write_file(path, b"".join(line + b"\n" for line in lines), append=append)


def _write_pieces(folder: Path, lines: Iterable[bytes]) -> None:
    for line in lines:
        try:
            piece = msgspec.json.decode(line, type=_Piece)
            data = base64.b64decode(piece.data)
        except (msgspec.MsgspecError, UnicodeError, binascii.Error):
            continue
        parts = piece.path.split("/")
        if "\0" in piece.path or "\\" in piece.path or not _UNSAFE_PARTS.isdisjoint(parts):
            continue
        path = folder.joinpath(*parts)
        make_folder(path.parent)
        with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:  # noqa: PTH123 - a descriptor
            file.truncate(piece.offset)
            file.seek(piece.offset)
            file.write(data)


def _write_file(path: Path, data: bytes, *, append: bool = False) -> None:
    make_folder(path.parent)
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC)
    with open(os.open(path, flags, 0o600), "wb") as file:  # noqa: PTH123 - a descriptor
        file.write(data)
