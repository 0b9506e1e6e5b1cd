"""The calls of a session, run again one batch after the other.

In: transcripts of one session, a copy of its project. Out: an `Outcome` per call as it ends, and a
`Summary`. Every agent of the session gets a runner of its own, with the tools of the client version
that was recorded; no hooks, no servers, no model. Read `Replay.run` first.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack

from msgspec import Struct

from toolspan.analysis.file_history.archive import FileArchive
from toolspan.errors import ToolspanError
from toolspan.integrations.replay.compare import (
    ReplayDifference,
    ReplayOutcome,
    ReplayVerdict,
    file_difference,
    result_differences,
)
from toolspan.integrations.replay.patch_tool import patch_tool
from toolspan.integrations.replay.plan import (
    FILE_TOOLS,
    RUNNABLE_TOOLS,
    SEARCH_TOOLS,
    SHELL_TOOL,
    FileStateRestorer,
    PlannedCall,
    ReplayLimits,
    ReplayStep,
    SkippedCall,
    contents_equal,
    plan_batches,
    read_content,
)
from toolspan.integrations.replay.scratch import PathMapping, ScratchProject
from toolspan.reading.transcript import Transcript
from toolspan.runtime.context import Workspace
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.process import ProcessSupervisor
from toolspan.runtime.profiles import DEFAULT, VERSIONS, Profile, profile
from toolspan.runtime.runner import Runner
from toolspan.tools import coding_tools
from toolspan.types.decision import Deny
from toolspan.types.events import Finished
from toolspan.types.ids import SessionId
from toolspan.types.span import Span

_OUTSIDE_PROJECT = "it leads out of the project"
_COMMIT_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_TRUSTED_CONFIDENCES = ("exact", "derived")


class ReplaySummary(Struct, frozen=True, kw_only=True):
    """How it went, in numbers."""

    same: int
    differs: int
    skipped: dict[str, int]
    """By reason."""


class Replay:
    """One session and one copy."""

    def __init__(
        self,
        transcripts: Sequence[Transcript],
        scratch: ScratchProject,
        *,
        recorded: str | None = None,
        limits: ReplayLimits | None = None,
        client: Profile | None = None,
    ) -> None:
        """Make ready; `recorded` is the folder that was copied, as the transcripts name it.

        Raises:
            ToolspanError: the transcripts do not say in which folder they were recorded.
        """
        folder = recorded or recorded_folder(transcripts)
        if folder is None:
            raise ToolspanError("the transcript does not say which folder it is about")
        self.mapping = PathMapping(folder, scratch.project.resolve())
        self.profile = client or recorded_profile(transcripts)
        self.preparation_notes: list[str] = []
        """What was done to files before the first call."""
        self._scratch = scratch
        self._spans = spans_in_order(transcripts)
        self._limits = limits or ReplayLimits()
        self._archive = FileArchive(transcripts)
        self._changed_paths: defaultdict[str, list[str]] = defaultdict(list)
        for change in self._archive.changes:
            self._changed_paths[change.call].append(change.path)
        self._restorer = FileStateRestorer(self._archive, self.mapping)
        self._runners: dict[str | None, Runner] = {}
        self._verdict_counts: Counter[str] = Counter()
        self._skip_reasons: Counter[str] = Counter()
        self._unknown_files: set[str] = set()
        self._files_uncertain = False
        """A call that may have changed files was left out."""

    @property
    def summary(self) -> ReplaySummary:
        """How it went so far."""
        return ReplaySummary(
            same=self._verdict_counts["same"], differs=self._verdict_counts["differs"], skipped=dict(self._skip_reasons)
        )

    async def run(self, on_outcome: Callable[[ReplayOutcome], None]) -> ReplaySummary:
        """Run every call, in the order in which they were asked for; `tell` hears of each."""
        batches = list(plan_batches(self._spans, self.mapping, self._limits))
        steps = [call for batch in batches for call in batch if isinstance(call, ReplayStep)]
        for path in dict.fromkeys(path for step in steps for path in step.paths):
            self._restore_initial_file(path)
        async with AsyncExitStack() as stack:
            for batch in batches:
                for outcome in await self._run_batch([*map(self._skip_if_unknown, batch)], stack):
                    self._count_outcome(outcome)
                    on_outcome(outcome)
        return self.summary

    def _restore_initial_file(self, path: str) -> None:
        """A file as it was before the first call."""
        is_known, note = self._restorer.restore_initial(path)
        if note is not None:
            self.preparation_notes.append(note)
        if not is_known:
            self._unknown_files.add(path)

    def _skip_if_unknown(self, call: PlannedCall) -> PlannedCall:
        """A step, unless nobody knows what it was about."""
        if isinstance(call, SkippedCall) or call.span.error_kind == "not_found":
            return call
        if call.tool in SEARCH_TOOLS and not self._scratch.file_count:
            return SkippedCall(span=call.span, reason="the project is not there to be searched")
        missing = (path for path in call.paths if path in self._unknown_files and not self._copy_has(path))
        if next(missing, None) is not None:
            return SkippedCall(span=call.span, reason="its file is not there, and no record holds it whole")
        return call

    def _copy_has(self, path: str) -> bool:
        copy_path = self.mapping.to_copy_path(path)
        return copy_path is not None and copy_path.exists()

    def _count_outcome(self, outcome: ReplayOutcome) -> None:
        self._verdict_counts[outcome.verdict] += 1
        if outcome.reason is not None:
            self._skip_reasons[outcome.reason] += 1

    async def _run_batch(self, batch: Sequence[PlannedCall], stack: AsyncExitStack) -> list[ReplayOutcome]:
        steps = [item for item in batch if isinstance(item, ReplayStep)]
        notes = self._restore_files(steps)
        finished: dict[str, Finished] = {}
        if steps:
            runner = await self._get_runner(steps[0].span.call.agent_id, stack)
            blocks = [_tool_use_block(step) for step in steps]
            finished = {item.span.id: item for item in await runner.finish(blocks)}
        files = dict(self._file_differences(steps))
        self._files_uncertain |= any(isinstance(item, SkippedCall) and item.may_have_changed_files for item in batch)
        return [self._build_outcome(item, finished.get(item.span.id), files, notes) for item in batch]

    def _restore_files(self, steps: Iterable[ReplayStep]) -> dict[str, list[str]]:
        """Files as the calls met them, where calls that were left out may have changed them."""
        notes: dict[str, list[str]] = {}
        touched: set[str] = set()
        for step in steps:
            for path in step.paths if self._files_uncertain else ():
                note = None if path in touched else self._restorer.restore_before_call(path, step.span.id)
                touched.add(path)
                if note is not None:
                    notes.setdefault(step.span.id, []).append(note)
        return notes

    def _file_differences(self, steps: Sequence[ReplayStep]) -> Iterable[tuple[str, ReplayDifference]]:
        """Per call, the file it left otherwise than then; the last change in a batch counts."""
        last = {path: step.span.id for step in steps for path in self._changed_paths[step.span.id]}
        for path, call in last.items():
            copy_path = self.mapping.to_copy_path(path)
            recovered = self._archive.content(path, call, "after")
            if copy_path is None or recovered.content is None or recovered.confidence not in _TRUSTED_CONFIDENCES:
                continue
            now = read_content(copy_path) if self.mapping.copy_contains(copy_path) else None
            if not contents_equal(now, recovered.content):
                yield call, file_difference(path, recovered.content, now)

    def _build_outcome(
        self,
        call: PlannedCall,
        finished: Finished | None,
        files: dict[str, ReplayDifference],
        notes: dict[str, list[str]],
    ) -> ReplayOutcome:
        span = call.span
        reason = call.reason if isinstance(call, SkippedCall) else _not_run_reason(finished)
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
        if agent not in self._runners:
            names = RUNNABLE_TOOLS if self._limits.bash else RUNNABLE_TOOLS - {SHELL_TOOL}
            runner = Runner(
                [*coding_tools(self.profile, only=names), patch_tool(self.mapping)],
                cwd=self.mapping.copy_root,
                profile=self.profile,
                policies=[self._deny_outside_copy],
                workspace=self._make_workspace(len(self._runners)),
            )
            self._runners[agent] = await stack.enter_async_context(runner)
        return self._runners[agent]

    def _deny_outside_copy(self, question: PermissionRequest) -> Deny | None:
        """The wall: whatever was planned, a path that leads out of the copy is refused."""
        key = FILE_TOOLS.get(question.tool, "path")
        name = question.input.get(key) if question.tool in {*FILE_TOOLS, *SEARCH_TOOLS} else None
        if isinstance(name, str) and not self.mapping.copy_contains(question.cwd / name):
            return Deny(_OUTSIDE_PROJECT)
        return None

    def _make_workspace(self, number: int) -> Workspace:
        home = self._scratch.make_folder("home")
        workspace = Workspace(
            project=self.mapping.copy_root,
            supervisor=ProcessSupervisor(),
            folder=self._scratch.make_folder(f"session{number}"),
        )
        environment = {key: os.environ[key] for key in ("PATH", "LANG", "LC_ALL", "TZ") if key in os.environ}
        temporary_folder = str(self._scratch.make_folder("tmp"))
        workspace.environment = {**environment, "HOME": str(home), "TMPDIR": temporary_folder, "TERM": "dumb"}
        workspace.session_id = SessionId(f"replay{number}")
        return workspace


def _not_run_reason(finished: Finished | None) -> str | None:
    """Why a step was not run after all."""
    if finished is None:
        return "its id was there before"
    span = finished.span
    if span.state == "denied":
        return _OUTSIDE_PROJECT
    return "this client version has no such tool here" if span.error_kind == "unknown_tool" else None


def _tool_use_block(step: ReplayStep) -> dict[str, object]:
    return {"type": "tool_use", "id": step.span.id, "name": step.tool, "input": step.input}


def spans_in_order(transcripts: Sequence[Transcript]) -> list[Span]:
    """The calls of all transcripts by the time they were asked for; each once."""
    entries: list[tuple[str, int, Span]] = []
    for transcript in transcripts:
        at = ""
        for span in transcript.spans:
            at = max(at, span.call.requested_at or "")
            entries.append((at, len(entries), span))
    ordered = sorted(entries, key=lambda entry: entry[:2])
    return list({span.id: span for _, _, span in reversed(ordered)}.values())[::-1]


def recorded_folder(transcripts: Sequence[Transcript]) -> str | None:
    """The folder in which a session began."""
    return next((transcript.info.cwd for transcript in transcripts if transcript.info.cwd), None)


def recorded_profile(transcripts: Sequence[Transcript]) -> Profile:
    """The profile of the client version that was recorded, or of the one most like it."""
    recorded = _version_numbers(recorded_version(transcripts) or "")
    available = {_version_numbers(version): version for version in VERSIONS if _version_numbers(version)}
    below = [version for numbers, version in available.items() if numbers <= recorded]
    alike = [version for numbers, version in available.items() if numbers[:2] == recorded[:2]]
    if not recorded or recorded > max(available):
        return profile(DEFAULT)
    same = [version for version in below if version in alike]
    return profile(next(iter([*same[::-1], *alike, *below[::-1], *available.values()])))


def recorded_version(transcripts: Sequence[Transcript]) -> str | None:
    """The version of Claude Code that wrote the first of it."""
    version_lists = (transcript.info.versions for transcript in transcripts if transcript.format.has_runtime_profiles)
    return next((version for versions in version_lists for version in versions), None)


def _version_numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()


def recorded_commit(transcript: Transcript) -> str | None:
    """Return the commit that was checked out when a session began, if the client records it."""
    commit = transcript.info.git_commit
    return commit if commit is not None and _COMMIT_HASH.fullmatch(commit) else None
