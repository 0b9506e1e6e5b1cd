"""The instructions of the user and the project for the model, from CLAUDE.md and AGENTS.md.

    instructions = load_instructions(Path.cwd(), trusted=True)
    session.add_hooks(instructions.hooks())
    agent = Agent(session, model, system=system_prompt(session.cwd, extra=instructions.text))

The text holds the files of the user and of the folders down to the project. The hooks add those of a folder inside the
project when a call first uses a file there. `@path` in a file imports another one. Start at `load_instructions`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from toolspan.errors import ToolError
from toolspan.formats.registry import recorded_format
from toolspan.runtime.hooks.events import HookEffects, HookPoint, HookRunner, SessionHookEvent, ToolHookEvent
from toolspan.runtime.settings.instructions import (
    folder_instruction_files,
    project_instruction_files,
    user_instruction_files,
)
from toolspan.tools.files.safe_read import read_file

InstructionScope = Literal["user", "project", "nested"]
MAX_FILE_BYTES = 64 * 1024
"""The size of a file above which its end is left out."""
MAX_TOTAL_BYTES = 256 * 1024
_MAX_READ_BYTES = 16 * 1024 * 1024
_MAX_DEPTH = 5
"""The number of imports that may follow each other."""
_IMPORT = re.compile(r"(?:^|(?<=\s))@((?:[^\s\\`]|\\ )+)")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_CODE_SPAN = re.compile(r"`[^`\n]*`")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionFile:
    """One file with instructions."""

    path: Path
    scope: InstructionScope
    text: str
    imported_by: Path | None = None
    is_cut: bool = False
    """True if the end of the file is left out."""

    def format(self) -> str:
        """Return the text with its path, for the model."""
        cut = "\n[The end of this file is left out because of its size.]" if self.is_cut else ""
        return f"Instructions from {self.path}:\n\n{self.text.strip()}{cut}"


@dataclass(slots=True, kw_only=True)
class Instructions:
    """The instructions of a session."""

    project: Path
    files: list[InstructionFile] = field(default_factory=list)
    """The files of the user and the project, in the order in which the model reads them."""
    ignored: list[Path] = field(default_factory=list)
    """The files of an untrusted project."""
    problems: list[str] = field(default_factory=list)
    """Files that could not be used as they are, one line each."""
    is_trusted: bool = True
    _seen: set[Path] = field(default_factory=set)
    _bytes: int = 0

    @property
    def text(self) -> str:
        """All files, for the system prompt. Empty if there are none."""
        return "\n\n".join(file.format() for file in self.files)

    def hooks(self) -> HookRunner:
        """Return hooks that add the instructions of a folder when a call first uses a file in it."""
        return InstructionHooks(self)

    def add(self, paths: Iterable[Path], scope: InstructionScope) -> list[InstructionFile]:
        """Read files that have not been read yet, with their imports, and return them."""
        added = [file for path in paths for file in self._read(path, scope, None, 0)]
        if scope != "nested":
            self.files += added
        return added

    def forget(self, files: Iterable[InstructionFile]) -> None:
        """Allow files to be read again, because the model no longer has them."""
        for file in files:
            self._seen.discard(file.path.resolve())
            self._bytes -= len(file.text.encode())

    def _read(
        self, path: Path, scope: InstructionScope, imported_by: Path | None, depth: int
    ) -> Iterator[InstructionFile]:
        target = path.resolve()
        if target in self._seen:  # also the end of a circle of imports
            return
        if scope != "user" and not target.is_relative_to(self._top):
            self.problems.append(f"{path}: ignored, because it leads out of the project")
            return
        try:
            data = read_file(path, _MAX_READ_BYTES, known_target=target).data
        except ToolError as error:
            self.problems.append(f"{path}: {error.message}")
            return
        self._seen.add(target)
        room = min(MAX_FILE_BYTES, MAX_TOTAL_BYTES - self._bytes)
        if room <= 0:
            self.problems.append(f"{path}: ignored, because all instructions together exceed {MAX_TOTAL_BYTES:,} bytes")
            return
        text = data[:room].decode("utf-8", "replace")
        if len(data) > room:
            self.problems.append(f"{path}: only the first {room:,} of {len(data):,} bytes are used")
        self._bytes += len(text.encode())
        yield InstructionFile(path=path, scope=scope, text=text, imported_by=imported_by, is_cut=len(data) > room)
        for imported in _find_imports(text, path.parent):
            if depth >= _MAX_DEPTH:
                self.problems.append(f"{path}: @{imported} is ignored, because {_MAX_DEPTH} imports precede it")
            elif imported.is_file():
                yield from self._read(imported, scope, path, depth + 1)

    @property
    def _top(self) -> Path:
        top = next((folder for folder in (self.project, *self.project.parents) if (folder / ".git").exists()), None)
        return (top or self.project).resolve()


def _find_imports(text: str, folder: Path) -> Iterator[Path]:
    """Yield the files that a text imports with `@path`, outside of code."""
    for name in _IMPORT.findall(_CODE_SPAN.sub("", _without_fences(text))):
        path = name.replace("\\ ", " ").rstrip(".,;:!?)")
        if path:
            yield Path(os.path.normpath(folder / Path(path).expanduser() if path.startswith("~/") else folder / path))


def _without_fences(text: str) -> str:
    lines, fence = [], ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        elif not fence:
            lines.append(line)
    return "\n".join(lines)


class InstructionHooks(HookRunner):
    """Adds the instructions of folders in the project as calls use files there."""

    is_empty = False

    def __init__(self, instructions: Instructions) -> None:
        self._instructions = instructions
        self._nested: list[InstructionFile] = []

    def has_handler(self, point: HookPoint) -> bool:
        """Return whether there is a handler at this point."""
        return point in ("PostToolUse", "SessionStart")

    async def run_post_tool_use(self, tool_event: ToolHookEvent) -> HookEffects:
        """Return the instructions that apply to the file of a call."""
        subject = None if tool_event.definition is None else tool_event.definition.subject
        name = tool_event.input.get(subject.field) if subject is not None and subject.kind == "file" else None
        if not self._instructions.is_trusted or not isinstance(name, str):
            return HookEffects()
        target, project = (tool_event.cwd / name).resolve(), self._instructions.project
        folders = [folder for folder in target.parents if folder != project and folder.is_relative_to(project)]
        paths = [path for folder in reversed(folders) for path in folder_instruction_files(folder) if path != target]
        added = self._instructions.add(paths, "nested")
        self._nested += added
        return HookEffects(contexts=tuple(file.format() for file in added))

    async def run_session_event(self, session_event: SessionHookEvent) -> HookEffects:
        """Forget what a compaction has removed from the conversation."""
        if session_event.point == "SessionStart" and session_event.subject == "compact":
            self._instructions.forget(self._nested)
            self._nested = []
        return HookEffects()


def load_instructions(
    project: Path,
    *,
    trusted: bool,
    environment: Mapping[str, str] | None = None,
    sources: frozenset[str] = frozenset({"user", "project"}),
) -> Instructions:
    """Read the instructions of the user and, if it is trusted, of the project.

    A file that cannot be read is a line in `Instructions.problems`.
    """
    env = os.environ if environment is None else environment
    folder = project.resolve()
    instructions = Instructions(project=folder, is_trusted=trusted and "project" in sources)
    if "user" in sources:
        instructions.add(user_instruction_files(recorded_format().home(env), env), "user")
    if instructions.is_trusted:
        instructions.add(project_instruction_files(folder), "project")
    elif "project" in sources:
        instructions.ignored = list(project_instruction_files(folder))
    return instructions
