"""The files beside a session's transcript: toolspan's logs, and the metadata of subagents."""

from __future__ import annotations

import os
from pathlib import Path

from toolspan.formats.registry import parse_file_name
from toolspan.formats.source import COMPRESSED_SUFFIXES, to_path

HOOK_LOG_NAME = "toolspan-hooks.jsonl"
"""The log that toolspan's hooks write to a session's folder."""
INTENT_LOG_NAME = "toolspan-intent.log"


def session_folder(path: Path) -> Path:
    """Return the folder for a session's side files, such as subagents and spilled results."""
    return path.with_name(parse_file_name(path).stem)


def intent_path(transcript: Path) -> Path:
    """Return the path of a session's intent log."""
    folder = session_folder(transcript)
    return (
        folder / INTENT_LOG_NAME if folder != transcript else transcript.with_name(f"{folder.name}.{INTENT_LOG_NAME}")
    )


def meta_path(path: Path) -> Path:
    """Return the metadata file that records which call started a subagent."""
    return path.with_name(parse_file_name(path).stem + ".meta.json")


def hook_log_path(path: Path) -> Path:
    """Return the path of the log in which toolspan's hooks record a session and its subagents."""
    return to_path(hook_log_path_str(str(path)))


def hook_log_path_str(path: str) -> str:
    """Return the path of the hook log as a string, which is cheaper for very many files."""
    folder, below, name = path.rpartition(os.sep)
    above, sep, last = folder.rpartition(os.sep)
    if last == "subagents":
        return f"{above}{sep}{HOOK_LOG_NAME}"
    if name.endswith(COMPRESSED_SUFFIXES):
        name = name.rpartition(".")[0]
    return f"{folder}{below}{name.removesuffix('.jsonl')}{os.sep}{HOOK_LOG_NAME}"
