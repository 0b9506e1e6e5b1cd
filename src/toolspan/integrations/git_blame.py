"""Blame joined with git: renames, commits and authors, Agent Trace records, and notes.

git only reads, except for `add_note`. It runs without hooks, filters, external diffs, signature checks and downloads,
because a command may have written the repository's configuration. Start at `blame_file` and `blame_commit`.
"""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from toolspan.archive import Archive
from toolspan.archive.blame import Blame, BlamedLine, read_current
from toolspan.errors import NotFound, ToolspanError
from toolspan.runtime.git import READING_OPTIONS, disable_filters, git_environment

_OPTIONS = (*READING_OPTIONS, "-c", "log.showSignature=false", "-c", "core.quotePath=false", "-c", "diff.external=",
            "-c", "commit.gpgSign=false")  # fmt: skip
_SECONDS = 60
_CLOCK_TOLERANCE = timedelta(minutes=2)
_UNCOMMITTED = "0" * 40
NOTES_REF = "agent-trace"
_MAX_RENAMES = 20


class _Committed(NamedTuple):
    commit: str
    author: str


def blame_file(archive: Archive, path: str | Path) -> Blame:
    """Return which call wrote each line of a file, and the commit and author of each line if git has it.

    Raises:
        NotFound: there is no such file.
        SourceError: it is not text.
    """
    file = Path(path).absolute()
    text = read_current(file)
    root = find_repository(file.parent)
    names = _earlier_names(root, file) if root is not None else []
    blame = archive.blame(str(file), text, names=names)
    committed = _committed_lines(root, file) if root is not None else {}
    rows = [
        replace(row, commit=found.commit, author=found.author) if (found := committed.get(row.line)) else row
        for row in blame
    ]
    return Blame(blame.path, rows, blame.recorded_paths)


def blame_commit(archive: Archive, commit: str, folder: Path) -> list[Blame]:
    """Return, for each text file that a commit changed, which call wrote each line that it added.

    Calls after the commit do not count.

    Raises:
        NotFound: there is no such commit.
    """
    root = find_repository(folder)
    if root is None:
        raise NotFound(f"{folder} is not in a git repository")
    name = _run(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}").strip()
    if not name:
        raise NotFound(f"{commit} is neither a file nor a commit of {root}")
    head = _run(root, "log", "-1", "--format=%ct%x00%an", name).strip().split("\0")
    until = datetime.fromtimestamp(int(head[0]), UTC) + _CLOCK_TOLERANCE
    blames: list[Blame] = []
    for path, old_path, added in _added_lines(root, name):
        text = _run(root, "cat-file", "blob", f"{name}:{path}")
        names = [str(root / old_path)] if old_path else []
        blame = archive.blame(str(root / path), text, names=names, until=until)
        rows = [replace(row, commit=name, author=head[1]) for row in blame if row.line in added]
        if rows:
            blames.append(Blame(path, rows, blame.recorded_paths))
    return blames


def find_repository(folder: Path) -> Path | None:
    """Return the root of the repository that contains a folder; None if there is none, or git is not installed."""
    try:
        root = _run(folder, "rev-parse", "--show-toplevel").strip()
    except ToolspanError:
        return None
    return Path(root) if root else None


def _earlier_names(root: Path, file: Path) -> list[str]:
    """Return the paths that the file had before it was renamed, the latest first."""
    output = _run(root, "log", "--follow", "--no-ext-diff", "--no-textconv", "--format=", "--name-status",
                  "--diff-filter=R", f"-{_MAX_RENAMES}", "-z", "--", str(file))  # fmt: skip
    fields = [field.strip("\n") for field in output.split("\0") if field.strip("\n")]
    return [str(root / old) for status, old, _ in zip(*[iter(fields)] * 3, strict=False) if status.startswith("R")]


def _committed_lines(root: Path, file: Path) -> dict[int, _Committed]:
    """Return the commit and author of each line that is committed."""
    # git passes the file through the filters of its attributes, to compare it with commits.
    names = _run(root, "config", "--list", "--name-only", "-z").split("\0")
    arguments = ("blame", "--line-porcelain", "--no-textconv", "--", str(file))
    output = _run(root, *arguments, variables=disable_filters(names))
    lines: dict[int, _Committed] = {}
    commit, number, author = "", 0, ""
    for line in output.split("\n"):
        if line.startswith("\t"):
            if commit != _UNCOMMITTED:
                lines[number] = _Committed(commit, author)
            commit = ""
        elif not commit:
            commit, _, final, *_ = [*line.split(" "), "", "", ""]
            number = int(final) if final.isdigit() else 0
        elif line.startswith("author "):
            author = line.removeprefix("author ")
    return lines


def _added_lines(root: Path, commit: str) -> Iterator[tuple[str, str | None, set[int]]]:
    """Yield each text file that a commit changed, its earlier path if it was renamed, and the lines that it added."""
    output = _run(root, "diff-tree", "-r", "--root", "-m", "--first-parent", "--no-commit-id", "-M", "-U0", "-p",
                  "--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/",
                  commit)  # fmt: skip
    path: str | None = None
    old: str | None = None
    added: set[int] = set()
    in_hunk = 0
    for line in output.split("\n"):
        if in_hunk > 0 and line[:1] in "+-":
            in_hunk -= 1
        elif line.startswith("diff --git "):
            if path is not None:
                yield path, old, added
            path, old, added, in_hunk = None, None, set(), 0
        elif line.startswith("rename from "):
            old = line.removeprefix("rename from ")
        elif line.startswith("+++ b/"):
            path = line.removeprefix("+++ b/").rstrip("\t")
        elif line.startswith("@@ "):
            removed, start, count = _hunk_numbers(line)
            added.update(range(start, start + count))
            in_hunk = removed + count
    if path is not None:
        yield path, old, added


def _hunk_numbers(line: str) -> tuple[int, int, int]:
    """Return the number of removed lines, and the first and the number of added lines."""
    _, old, new, *_ = line.split(" ")
    start, _, count = new[1:].partition(",")
    return int(old.partition(",")[2] or 1), int(start), int(count or 1)


def _run(
    folder: Path, *arguments: str, stdin: str | None = None, variables: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return the output of git; empty if it fails."""
    try:
        process = subprocess.run(
            ["git", *_OPTIONS, "-C", str(folder), *arguments],
            check=False,
            capture_output=True,
            env=git_environment({**os.environ, **variables}),
            timeout=_SECONDS,
            input=None if stdin is None else stdin.encode(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolspanError(f"git {arguments[0]}: {error}") from error
    return process.stdout.decode(errors="replace") if process.returncode == 0 else ""


# Agent Trace, https://agent-trace.dev


def trace_record(blames: Iterable[Blame], root: Path | None, revision: str | None) -> dict[str, object]:
    """Build an Agent Trace record of the lines written by calls."""
    files: list[dict[str, object]] = []
    for blame in blames:
        path = Path(blame.path)
        name = str(path.relative_to(root)) if root is not None and path.is_relative_to(root) else blame.path
        conversations = [_conversation(session, rows) for session, rows in _by_session(blame)]
        if conversations:
            files.append({"path": name, "conversations": conversations})
    record: dict[str, object] = {
        "version": "0.1.0",
        "id": str(uuid.uuid4()),
        "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
        "tool": {"name": "toolspan", "version": version("toolspan")},
        "files": files,
    }
    return {**record, "vcs": {"type": "git", "revision": revision}} if revision else record


def _by_session(blame: Blame) -> Iterator[tuple[str, list[BlamedLine]]]:
    sessions: dict[str, list[BlamedLine]] = {}
    for row in blame:
        if row.call is not None:
            sessions.setdefault(row.session or "", []).append(row)
    yield from sessions.items()


def _conversation(session: str, rows: Sequence[BlamedLine]) -> dict[str, object]:
    contributor: dict[str, object] = {"type": "ai"}
    if rows[0].model:
        contributor["model_id"] = rows[0].model
    ranges = []
    for _, run in groupby(enumerate(rows), lambda pair: pair[1].line - pair[0]):
        numbers = [row.line for _, row in run]
        ranges.append({"start_line": numbers[0], "end_line": numbers[-1]})
    return {"url": f"toolspan://session/{session}", "contributor": contributor, "ranges": ranges}


def head_commit(root: Path) -> str | None:
    """Return the commit that is checked out."""
    return _run(root, "rev-parse", "--verify", "--quiet", "HEAD").strip() or None


def add_note(root: Path, commit: str, record: dict[str, object]) -> None:
    """Store a record as the git note of a commit, in the ref `notes/agent-trace`.

    Raises:
        ToolspanError: git refuses, for example because it knows no name for the author.
    """
    text = json.dumps(record, indent=2)
    _run(root, "notes", f"--ref={NOTES_REF}", "add", "-f", "-F", "-", commit, stdin=text)
    if _run(root, "notes", f"--ref={NOTES_REF}", "show", commit).strip() != text:
        raise ToolspanError(f"git did not store the note of {commit[:12]}; check `git config user.name`")
