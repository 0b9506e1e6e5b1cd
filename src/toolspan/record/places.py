"""Where a session's files lie: `<config folder>/projects/<project>/<session>.jsonl`, and beside."""

import string
from pathlib import Path

from toolspan.errors import ToolspanError
from toolspan.ids import SessionId
from toolspan.profile.shapes import Layout
from toolspan.wire import paths

_DIGITS = string.digits + string.ascii_lowercase
_NOT_IN_A_NAME = frozenset("/\\\0")


def transcript_path(session_id: SessionId, cwd: Path, config: Path | None = None) -> Path:
    """The session's own file; `config` is the client's folder, found by itself if not given.

    Raises:
        ToolspanError: the id names no file in one folder.
    """
    check_id(session_id)
    projects = (config or paths.config_dir()) / "projects"
    return projects / _project(projects, str(cwd.resolve())) / f"{session_id}.jsonl"


def check_id(session_id: str) -> None:
    """See to it that files of a session can be called by its id, and lie where they belong.

    Raises:
        ToolspanError: they cannot.
    """
    if session_id in ("", ".", "..") or not _NOT_IN_A_NAME.isdisjoint(session_id):
        raise ToolspanError(f"a session's id is a plain name for a file, not {session_id!r}")


def _project(projects: Path, cwd: str) -> str:
    """The project's folder: a long name is cut, and ends in a hash that programs compute apart."""
    name = paths.project_name(cwd)
    if len(name) < paths.NAME_LIMIT or len(cwd) <= paths.NAME_LIMIT:
        return name
    there = sorted(place.name for place in projects.glob(f"{name}-*") if place.is_dir())
    return there[0] if there else f"{name}-{_hash(cwd)}"


def _hash(text: str) -> str:
    """The public SDK's hash of a long path, in base 36."""
    number = 0
    for character in text:
        number = (number * 31 + ord(character)) & 0xFFFFFFFF
    number = abs(number - (1 << 32) if number >> 31 else number)
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
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
