"""Where a transcript left off: what the next line must know.

In: a file. Out: its last line, the calls without a result, the number of turns. Reads every line
once; damaged lines are passed over, as the client itself does.
"""

from __future__ import annotations

import string
from dataclasses import dataclass, field
from datetime import MAXYEAR, UTC, datetime
from pathlib import Path

from toolspan.errors import ToolspanError
from toolspan.formats.claude import paths
from toolspan.formats.claude.records import CALL_BLOCK_TYPES, Entry, MessageBlock, decode_entry
from toolspan.formats.jsonl import read_lines
from toolspan.formats.source import FileSource
from toolspan.runtime.profiles import Layout
from toolspan.types.ids import SessionId
from toolspan.types.span import parse_timestamp

_LATEST_TIME = datetime(MAXYEAR, 12, 31, tzinfo=UTC)
"""The last day there is: no line could be written after it."""


@dataclass(slots=True)
class TranscriptEnd:
    """The end of a transcript."""

    last_uuid: str | None = None
    latest_time: float = 0.0
    """The latest time a line tells."""
    prompt_id: str | None = None
    turns: int = 0
    open_calls: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Calls without a result: the line that asked, and the tool."""
    ends_with_calls: bool = False
    """The last line is a call or a result: whoever comes next speaks after them."""


def read_transcript_end(path: Path) -> TranscriptEnd:
    """The end of this file; an empty one when the file is not there yet.

    Raises:
        SourceError: the file cannot be read.
    """
    end = TranscriptEnd()
    if not path.exists():
        return end
    for line in read_lines(FileSource(path)):
        try:
            _add_entry(end, decode_entry(line.data).entry)
        except ValueError:
            continue
    return end


def _add_entry(end: TranscriptEnd, entry: Entry) -> None:
    if entry.uuid is None:
        return
    end.last_uuid = entry.uuid
    end.ends_with_calls = False
    time = parse_timestamp(entry.timestamp)
    if time is not None and time < _LATEST_TIME:
        end.latest_time = max(end.latest_time, time.timestamp())
    if entry.type == "user":
        end.prompt_id = entry.prompt_id or end.prompt_id
    content = entry.message.content if entry.message else None
    if isinstance(content, list):
        for block in content:
            _add_block(end, block, entry.uuid)
    elif entry.type == "user" and not entry.is_meta:
        end.turns += 1


def _add_block(end: TranscriptEnd, block: MessageBlock, uuid: str) -> None:
    end.ends_with_calls = bool(block.id or block.tool_use_id)
    if block.type in CALL_BLOCK_TYPES and block.id:
        end.open_calls[block.id] = (uuid, block.name or "")
    elif block.tool_use_id:
        end.open_calls.pop(block.tool_use_id, None)


_BASE36_DIGITS = string.digits + string.ascii_lowercase
_FORBIDDEN_CHARACTERS = frozenset("/\\\0")


def transcript_path(session_id: SessionId, cwd: Path, config: Path | None = None) -> Path:
    """The session's own file; `config` is the client's folder, found by itself if not given.

    Raises:
        ToolspanError: the id names no file in one folder.
    """
    check_session_id(session_id)
    projects = (config or paths.config_dir()) / "projects"
    return projects / _project_folder_name(projects, str(cwd.resolve())) / f"{session_id}.jsonl"


def check_session_id(session_id: str) -> None:
    """See to it that files of a session can be called by its id, and lie where they belong.

    Raises:
        ToolspanError: they cannot.
    """
    if session_id in ("", ".", "..") or not _FORBIDDEN_CHARACTERS.isdisjoint(session_id):
        raise ToolspanError(f"a session's id is a plain name for a file, not {session_id!r}")


def _project_folder_name(projects: Path, cwd: str) -> str:
    """The project's folder: a long name is cut, and ends in a hash that programs compute apart."""
    name = paths.project_name(cwd)
    if len(name) < paths.MAX_PROJECT_NAME_LENGTH or len(cwd) <= paths.MAX_PROJECT_NAME_LENGTH:
        return name
    existing = sorted(folder.name for folder in projects.glob(f"{name}-*") if folder.is_dir())
    return existing[0] if existing else f"{name}-{_sdk_path_hash(cwd)}"


def _sdk_path_hash(text: str) -> str:
    """The public SDK's hash of a long path, in base 36."""
    number = 0
    for character in text:
        number = (number * 31 + ord(character)) & 0xFFFFFFFF
    number = abs(number - (1 << 32) if number >> 31 else number)
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _BASE36_DIGITS[digit] + digits
    return digits or "0"


def agent_path(transcript: Path, agent_id: str, layout: Layout) -> Path:
    """The file of a subagent."""
    name = f"agent-{agent_id}.jsonl"
    if layout == "beside":
        return transcript.with_name(name)
    return paths.session_folder(transcript) / "subagents" / name


def results_folder(transcript: Path) -> Path:
    """Where outputs too large for the conversation go."""
    return paths.session_folder(transcript) / "tool-results"
