"""Run the calls of a session again, batch by batch.

Start at `Replay.run`. Each agent of the session gets a separate runner with the recorded client
version's tools, but without hooks, MCP servers or a model.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from toolspan.analysis.file_history.archive import FileArchive
from toolspan.analysis.file_history.content import Absent, FileContent, RecoveredContent
from toolspan.analysis.file_history.shell_writes import absolute_path
from toolspan.diffs import PatchError
from toolspan.diffs.codex_patch import AddFile, DeleteFile, UpdateFile, apply_update, parse_patch
from toolspan.errors import NotFound, ToolError, ToolspanError
from toolspan.reading.transcript import Transcript
from toolspan.replay.plan import (
    OUTSIDE_PROJECT,
    PATCH_TOOL,
    SHELL_TOOL,
    PlannedCall,
    ReplayDifference,
    ReplayLimits,
    ReplayOutcome,
    ReplayStep,
    ReplayVerdict,
    SkippedCall,
    file_difference,
    plan_batches,
    replayable_tools,
    result_differences,
)
from toolspan.replay.scratch import PathMapping, ScratchProject
from toolspan.runtime.context import Workspace
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.process import ProcessSupervisor
from toolspan.runtime.profiles import DEFAULT, Profile, nearest_version, profile
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import Tool, tool
from toolspan.tools import coding_tools
from toolspan.tools.files.text import decode_text
from toolspan.types.decision import Deny
from toolspan.types.events import Finished
from toolspan.types.ids import SessionId
from toolspan.types.span import Span
from toolspan.types.tool_kinds import tool_kind

if TYPE_CHECKING:
    from toolspan.runtime.sandbox.active import ActiveSandbox

_COMMIT_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_TRUSTED_CONFIDENCES = ("exact", "derived")
_USABLE_CONFIDENCES = ("exact", "derived", "doubtful")


class ReplaySummary(Struct, frozen=True, kw_only=True):
    """The number of calls with each outcome."""

    same: int
    differs: int
    skipped: dict[str, int]
    """The number of skipped calls, by reason."""


class Replay:
    """A replay of one session in one copy of its project."""

    def __init__(
        self,
        transcripts: Sequence[Transcript],
        scratch: ScratchProject,
        *,
        recorded: str | None = None,
        limits: ReplayLimits | None = None,
        client: Profile | None = None,
        sandbox: ActiveSandbox | None = None,
    ) -> None:
        """Prepare the replay. `recorded` is the path that the copied folder has in the transcripts.

        Commands run inside `sandbox`, if it is set.

        Raises:
            ToolspanError: the transcripts do not record their folder.
        """
        folder = recorded or recorded_folder(transcripts)
        if folder is None:
            raise ToolspanError("the transcript does not record its working folder")
        self.mapping = PathMapping(folder, scratch.project.resolve())
        self.profile = client or recorded_profile(transcripts)
        self.preparation_notes: list[str] = []
        """Notes about files that were restored before the first call."""
        self._scratch = scratch
        self._sandbox = sandbox
        self._spans = _spans_in_order(transcripts)
        self._limits = limits or ReplayLimits()
        self._archive = FileArchive(transcripts)
        self._changed_paths: defaultdict[str, list[str]] = defaultdict(list)
        for change in self._archive.changes:
            self._changed_paths[change.call].append(change.path)
        self._runners: dict[str | None, Runner] = {}
        self._verdict_counts: Counter[str] = Counter()
        self._skip_reasons: Counter[str] = Counter()
        self._unknown_files: set[str] = set()
        self._files_uncertain = False
        """True if a call that may have changed files was skipped."""

    @property
    def summary(self) -> ReplaySummary:
        """A summary of the outcomes so far."""
        return ReplaySummary(
            same=self._verdict_counts["same"], differs=self._verdict_counts["differs"], skipped=dict(self._skip_reasons)
        )

    async def run(self, on_outcome: Callable[[ReplayOutcome], None]) -> ReplaySummary:
        """Run all calls in their recorded order and pass each outcome to `on_outcome`."""
        batches = list(plan_batches(self._spans, self.mapping, self._limits))
        steps = [call for batch in batches for call in batch if isinstance(call, ReplayStep)]
        for path in dict.fromkeys(path for step in steps for path in step.paths):
            recovered = self._archive.timeline_of(path).content_at(0, "before")
            is_known, note = self._restore_file(path, recovered, _USABLE_CONFIDENCES)
            if note is not None:
                self.preparation_notes.append(note)
            if not is_known:
                self._unknown_files.add(path)
        async with AsyncExitStack() as stack:
            for batch in batches:
                for outcome in await self._run_batch([*map(self._skip_if_unusable, batch)], stack):
                    self._verdict_counts[outcome.verdict] += 1
                    if outcome.reason is not None:
                        self._skip_reasons[outcome.reason] += 1
                    on_outcome(outcome)
        return self.summary

    def _skip_if_unusable(self, call: PlannedCall) -> PlannedCall:
        """Return the call, or a skipped call if its files lie outside the copy or their state is unknown."""
        if isinstance(call, SkippedCall):
            return call
        # Tools check their input before the policies run, so links created by commands must be caught here.
        copy_paths = filter(None, map(self.mapping.to_copy_path, call.paths))
        if not all(map(self.mapping.copy_contains, copy_paths)):
            return SkippedCall(span=call.span, reason=OUTSIDE_PROJECT)
        if call.span.error_kind == "not_found":
            return call
        if tool_kind(call.tool) == "search" and not self._scratch.file_count:
            return SkippedCall(span=call.span, reason="the project is missing, so it cannot be searched")
        for path in self._unknown_files.intersection(call.paths):
            copy_path = self.mapping.to_copy_path(path)
            if copy_path is None or not copy_path.exists():
                return SkippedCall(span=call.span, reason="its file is missing, and no record has its full content")
        return call

    async def _run_batch(self, batch: Sequence[PlannedCall], stack: AsyncExitStack) -> list[ReplayOutcome]:
        steps = [item for item in batch if isinstance(item, ReplayStep)]
        notes: dict[str, list[str]] = {}
        touched: set[str] = set()
        for step in steps if self._files_uncertain else ():  # a skipped call may have changed the files
            for path in step.paths:
                if path in touched:
                    continue
                touched.add(path)
                with suppress(NotFound):
                    recovered = self._archive.content(path, step.span.id, "before")
                    _, note = self._restore_file(path, recovered, ("exact",))
                    if note is not None:
                        notes.setdefault(step.span.id, []).append(note)
        finished: dict[str, Finished] = {}
        if steps:
            runner = await self._get_runner(steps[0].span.call.agent_id, stack)
            blocks = [
                {"type": "tool_use", "id": step.span.id, "name": step.tool, "input": step.input} for step in steps
            ]
            finished = {item.span.id: item for item in await runner.finish(blocks)}
        files = dict(self._file_differences(steps))
        self._files_uncertain |= any(isinstance(item, SkippedCall) and item.may_have_changed_files for item in batch)
        return [self._build_outcome(item, finished.get(item.span.id), files, notes) for item in batch]

    def _restore_file(
        self, path: str, recovered: RecoveredContent, confidences: Sequence[str]
    ) -> tuple[bool, str | None]:
        """Restore a file in the copy to a recorded state. Return whether that state is known, and a note."""
        copy_path, content = self.mapping.to_copy_path(path), recovered.content
        if copy_path is None or not self.mapping.copy_contains(copy_path):
            return False, None
        if recovered.confidence not in confidences or content is None:
            return False, None
        if _contents_equal(_read_content(copy_path), content):
            return True, None
        doubt = ", which is doubtful" if recovered.confidence == "doubtful" else ""
        because = f"{recovered.reasons[0]}{doubt}" if recovered.reasons else recovered.confidence
        try:
            if isinstance(content, Absent):
                copy_path.unlink()
                return True, f"{path}: removed ({because})"
            copy_path.parent.mkdir(parents=True, exist_ok=True)
            copy_path.write_bytes(content.encode("utf-8", "surrogatepass"))
        except OSError as error:
            return True, f"{path}: cannot be restored: {error.strerror}"
        return True, f"{path}: restored ({because})"

    def _file_differences(self, steps: Sequence[ReplayStep]) -> Iterable[tuple[str, ReplayDifference]]:
        """Yield each file that differs from the recording, with the last call in the batch that changed it."""
        last = {path: step.span.id for step in steps for path in self._changed_paths[step.span.id]}
        for path, call in last.items():
            copy_path = self.mapping.to_copy_path(path)
            recovered = self._archive.content(path, call, "after")
            if copy_path is None or recovered.content is None or recovered.confidence not in _TRUSTED_CONFIDENCES:
                continue
            now = _read_content(copy_path) if self.mapping.copy_contains(copy_path) else None
            if not _contents_equal(now, recovered.content):
                yield call, file_difference(path, recovered.content, now)

    def _build_outcome(
        self,
        call: PlannedCall,
        finished: Finished | None,
        files: dict[str, ReplayDifference],
        notes: dict[str, list[str]],
    ) -> ReplayOutcome:
        span = call.span
        if isinstance(call, SkippedCall):
            reason: str | None = call.reason
        elif finished is None:
            reason = "its id was used before"
        elif finished.span.state == "denied":
            reason = OUTSIDE_PROJECT
        else:
            is_unknown = finished.span.error_kind == "unknown_tool"
            reason = "this client version has no such tool here" if is_unknown else None
        differences: tuple[ReplayDifference, ...] = ()
        if reason is None and finished is not None:
            result_changes = [*result_differences(span, finished, self.mapping)]
            differences = (*result_changes, *([files[span.id]] if span.id in files else []))
        verdict: ReplayVerdict = "differs" if differences else "same"
        return ReplayOutcome(
            call=span.id,
            tool=span.tool,
            target=span.call.target,
            agent=span.call.agent_id,
            verdict="skipped" if reason is not None else verdict,
            reason=reason,
            recorded_state=span.state,
            state=finished.span.state if finished is not None and reason is None else None,
            differences=differences,
            notes=tuple(notes.get(span.id, ())),
        )

    async def _get_runner(self, agent: str | None, stack: AsyncExitStack) -> Runner:
        if agent in self._runners:
            return self._runners[agent]
        number, scratch = len(self._runners), self._scratch
        workspace = Workspace(
            project=self.mapping.copy_root,
            supervisor=ProcessSupervisor(),
            folder=scratch.make_folder(f"session{number}"),
        )
        folders = {"HOME": str(scratch.make_folder("home")), "TMPDIR": str(scratch.make_folder("tmp"))}
        inherited = {key: os.environ[key] for key in ("PATH", "LANG", "LC_ALL", "TZ") if key in os.environ}
        workspace.environment = {**inherited, **folders, "TERM": "dumb"}
        workspace.session_id = SessionId(f"replay{number}")
        workspace.sandbox = self._sandbox
        names = replayable_tools().keys() - (set() if self._limits.bash else {SHELL_TOOL})
        runner = Runner(
            [*coding_tools(self.profile, only=names), _patch_tool(self.mapping)],
            cwd=self.mapping.copy_root,
            profile=self.profile,
            policies=[self._deny_outside_copy],
            workspace=workspace,
        )
        self._runners[agent] = await stack.enter_async_context(runner)
        return runner

    def _deny_outside_copy(self, question: PermissionRequest) -> Deny | None:
        """Deny any path outside the copy, as a second safeguard after planning."""
        tool = replayable_tools().get(question.tool)
        subject = None if tool is None else tool.subject
        name = question.input.get(subject.field) if subject is not None and subject.kind == "file" else None
        if isinstance(name, str) and not self.mapping.copy_contains(question.cwd / name):
            return Deny(OUTSIDE_PROJECT)
        return None


def _spans_in_order(transcripts: Sequence[Transcript]) -> list[Span]:
    """Return the calls in all transcripts without duplicates, in the order they were requested."""
    entries: list[tuple[str, int, Span]] = []
    for transcript in transcripts:
        at = ""
        for span in transcript.spans:
            at = max(at, span.call.requested_at or "")
            entries.append((at, len(entries), span))
    ordered = sorted(entries, key=lambda entry: entry[:2])
    return list({span.id: span for _, _, span in reversed(ordered)}.values())[::-1]


def recorded_folder(transcripts: Sequence[Transcript]) -> str | None:
    """Return the folder in which the session started."""
    return next((transcript.info.cwd for transcript in transcripts if transcript.info.cwd), None)


def recorded_profile(transcripts: Sequence[Transcript]) -> Profile:
    """Return the profile that resembles the recorded client version, or the default one if none is recorded."""
    return profile(nearest_version(recorded_version(transcripts) or "") or DEFAULT)


def recorded_version(transcripts: Sequence[Transcript]) -> str | None:
    """Return the first recorded Claude Code version."""
    version_lists = (transcript.info.versions for transcript in transcripts if transcript.format.has_runtime_profiles)
    return next((version for versions in version_lists for version in versions), None)


def recorded_commit(transcript: Transcript) -> str | None:
    """Return the commit that was checked out when the session started, if the client records it."""
    commit = transcript.info.git_commit
    return commit if commit is not None and _COMMIT_HASH.fullmatch(commit) else None


def _read_content(path: Path) -> FileContent | None:
    try:
        if path.is_file():
            return decode_text(path.read_bytes()).normalized
        return None if path.exists() else Absent()
    except OSError:
        return None


def _contents_equal(first: FileContent | None, second: FileContent) -> bool:
    """Return whether two contents are equal except for byte order marks and line endings."""
    if isinstance(first, str) and isinstance(second, str):
        first, second = (text.removeprefix("\ufeff").replace("\r\n", "\n") for text in (first, second))
    return first == second


def _patch_tool(mapping: PathMapping) -> Tool:
    """Return Codex's `apply_patch` tool for one copy. All sections are checked before any file is written."""

    @tool(name=PATCH_TOOL)
    async def apply_patch(patch: str, folder: str) -> str:
        """Apply a Codex patch to files in the copy."""
        try:
            changes = _patched_contents(patch, folder, mapping)
        except (PatchError, OSError, UnicodeError) as error:
            raise ToolError(f"the patch does not apply: {error}") from error
        for path, content in changes.items():
            if content is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.encode("utf-8", "surrogateescape"))
        return f"{len(changes)} files"

    return apply_patch


def _patched_contents(patch: str, folder: str, mapping: PathMapping) -> dict[Path, str | None]:
    """Return the new content of each patched file, with None for deleted files."""
    contents: dict[Path, str | None] = {}
    for section in parse_patch(patch):
        path = _resolve_patched(section.path, folder, mapping)
        match section:
            case AddFile():
                contents[path] = section.content
            case DeleteFile():
                _content_so_far(path, contents)
                contents[path] = None
            case UpdateFile():
                content = apply_update(section, _content_so_far(path, contents))
                if section.move_to is not None:
                    contents[path] = None
                    path = _resolve_patched(section.move_to, folder, mapping)
                contents[path] = content
    return contents


def _resolve_patched(name: str, folder: str, mapping: PathMapping) -> Path:
    path = mapping.to_copy_path(absolute_path(name, folder))
    if path is None or not mapping.copy_contains(path):
        raise PatchError(f"{name} leads out of the project")
    return path


def _content_so_far(path: Path, contents: dict[Path, str | None]) -> str:
    content = contents[path] if path in contents else path.read_bytes().decode("utf-8")
    if content is None:
        raise PatchError(f"{path.name} is gone")
    return content
