"""The calls of a session, run again one batch after the other.

In: transcripts of one session, a copy of its project. Out: an `Outcome` per call as it ends, and a
`Summary`. Every agent of the session gets a runner of its own, with the tools of the client version
that was recorded; no hooks, no servers, no model. Read `Replay.run` first.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack

import msgspec
from msgspec import Struct

from toolspan.builtin import coding_tools
from toolspan.errors import ToolspanError
from toolspan.ids import SessionId
from toolspan.model.decision import Deny
from toolspan.model.live import Finished
from toolspan.model.span import Span
from toolspan.permission.decide import Question
from toolspan.process import Custody
from toolspan.profile import DEFAULT, VERSIONS, Profile, profile
from toolspan.read.transcript import Transcript
from toolspan.replay.before import Before, read, same
from toolspan.replay.compare import file_difference, result_differences
from toolspan.replay.ground import Ground
from toolspan.replay.outcome import Difference, Outcome, Verdict
from toolspan.replay.patching import patch_tool
from toolspan.replay.plan import (
    FILE_TOOLS,
    RUNNABLE,
    SEARCHES,
    SHELL,
    Limits,
    Planned,
    Skip,
    Step,
    planned,
)
from toolspan.replay.scratch import Scratch
from toolspan.report.files.archive import FileArchive
from toolspan.run.context import Workspace
from toolspan.run.runner import Runner

_OUT = "it leads out of the project"
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SURE = ("exact", "derived")


class Summary(Struct, frozen=True, kw_only=True):
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
        scratch: Scratch,
        *,
        recorded: str | None = None,
        limits: Limits | None = None,
        client: Profile | None = None,
    ) -> None:
        """Make ready; `recorded` is the folder that was copied, as the transcripts name it.

        Raises:
            ToolspanError: the transcripts do not say in which folder they were recorded.
        """
        folder = recorded or recorded_folder(transcripts)
        if folder is None:
            raise ToolspanError("the transcript does not say which folder it is about")
        self.ground = Ground(folder, scratch.project.resolve())
        self.profile = client or recorded_profile(transcripts)
        self.prepared: list[str] = []
        """What was done to files before the first call."""
        self._scratch = scratch
        self._spans = in_order(transcripts)
        self._limits = limits or Limits()
        self._archive = FileArchive(transcripts)
        self._changes: defaultdict[str, list[str]] = defaultdict(list)
        for change in self._archive.changes:
            self._changes[change.call].append(change.path)
        self._before = Before(self._archive, self.ground)
        self._runners: dict[str | None, Runner] = {}
        self._counts: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._unknown: set[str] = set()
        self._clouded = False
        """A call that may have changed files was left out."""

    @property
    def summary(self) -> Summary:
        """How it went so far."""
        return Summary(
            same=self._counts["same"], differs=self._counts["differs"], skipped=dict(self._skipped)
        )

    async def run(self, tell: Callable[[Outcome], None]) -> Summary:
        """Run every call, in the order in which they were asked for; `tell` hears of each."""
        batches = list(planned(self._spans, self.ground, self._limits))
        steps = [one for batch in batches for one in batch if isinstance(one, Step)]
        for path in dict.fromkeys(path for step in steps for path in step.paths):
            self._prepare(path)
        async with AsyncExitStack() as stack:
            for batch in batches:
                for outcome in await self._run_batch([*map(self._known, batch)], stack):
                    self._count(outcome)
                    tell(outcome)
        return self.summary

    def _prepare(self, path: str) -> None:
        """A file as it was before the first call."""
        known, note = self._before.begin(path)
        if note is not None:
            self.prepared.append(note)
        if not known:
            self._unknown.add(path)

    def _known(self, one: Planned) -> Planned:
        """A step, unless nobody knows what it was about."""
        if isinstance(one, Skip) or one.span.error_kind == "not_found":
            return one
        if one.tool in SEARCHES and not self._scratch.files:
            return Skip(span=one.span, reason="the project is not there to be searched")
        missing = (path for path in one.paths if path in self._unknown and not self._has(path))
        if next(missing, None) is not None:
            return Skip(span=one.span, reason="its file is not there, and no record holds it whole")
        return one

    def _has(self, path: str) -> bool:
        place = self.ground.place(path)
        return place is not None and place.exists()

    def _count(self, outcome: Outcome) -> None:
        self._counts[outcome.verdict] += 1
        if outcome.reason is not None:
            self._skipped[outcome.reason] += 1

    async def _run_batch(self, batch: Sequence[Planned], stack: AsyncExitStack) -> list[Outcome]:
        steps = [one for one in batch if isinstance(one, Step)]
        notes = self._catch_up(steps)
        finished: dict[str, Finished] = {}
        if steps:
            runner = await self._runner(steps[0].span.call.agent_id, stack)
            blocks = [_block(step) for step in steps]
            finished = {one.span.id: one for one in await runner.finish(blocks)}
        files = dict(self._file_differences(steps))
        self._clouded |= any(isinstance(one, Skip) and one.clouds for one in batch)
        return [self._outcome(one, finished.get(one.span.id), files, notes) for one in batch]

    def _catch_up(self, steps: Iterable[Step]) -> dict[str, list[str]]:
        """Files as the calls met them, where calls that were left out may have changed them."""
        notes: dict[str, list[str]] = {}
        touched: set[str] = set()
        for step in steps:
            for path in step.paths if self._clouded else ():
                note = None if path in touched else self._before.call(path, step.span.id)
                touched.add(path)
                if note is not None:
                    notes.setdefault(step.span.id, []).append(note)
        return notes

    def _file_differences(self, steps: Sequence[Step]) -> Iterable[tuple[str, Difference]]:
        """Per call, the file it left otherwise than then; the last change in a batch counts."""
        last = {path: step.span.id for step in steps for path in self._changes[step.span.id]}
        for path, call in last.items():
            place = self.ground.place(path)
            found = self._archive.content(path, call, "after")
            if place is None or found.content is None or found.confidence not in _SURE:
                continue
            now = read(place) if self.ground.holds(place) else None
            if not same(now, found.content):
                yield call, file_difference(path, found.content, now)

    def _outcome(
        self,
        one: Planned,
        finished: Finished | None,
        files: dict[str, Difference],
        notes: dict[str, list[str]],
    ) -> Outcome:
        span = one.span
        reason = one.reason if isinstance(one, Skip) else _not_run(finished)
        differences: tuple[Difference, ...] = ()
        if reason is None and finished is not None:
            found = [*result_differences(span, finished, self.ground)]
            differences = (*found, *([files[span.id]] if span.id in files else []))
        verdict: Verdict = "differs" if differences else "same"
        return Outcome(
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

    async def _runner(self, agent: str | None, stack: AsyncExitStack) -> Runner:
        if agent not in self._runners:
            names = RUNNABLE if self._limits.bash else RUNNABLE - {SHELL}
            runner = Runner(
                [*coding_tools(self.profile, only=names), patch_tool(self.ground)],
                cwd=self.ground.copy,
                profile=self.profile,
                policies=[self._confine],
                workspace=self._workspace(len(self._runners)),
            )
            self._runners[agent] = await stack.enter_async_context(runner)
        return self._runners[agent]

    def _confine(self, question: Question) -> Deny | None:
        """The wall: whatever was planned, a path that leads out of the copy is refused."""
        key = FILE_TOOLS.get(question.tool, "path")
        name = question.input.get(key) if question.tool in {*FILE_TOOLS, *SEARCHES} else None
        if isinstance(name, str) and not self.ground.holds(question.cwd / name):
            return Deny(_OUT)
        return None

    def _workspace(self, number: int) -> Workspace:
        home = self._scratch.folder("home")
        space = Workspace(
            project=self.ground.copy,
            custody=Custody(),
            folder=self._scratch.folder(f"session{number}"),
        )
        kept = {
            key: os.environ[key] for key in ("PATH", "LANG", "LC_ALL", "TZ") if key in os.environ
        }
        place = str(self._scratch.folder("tmp"))
        space.environment = {**kept, "HOME": str(home), "TMPDIR": place, "TERM": "dumb"}
        space.session_id = SessionId(f"replay{number}")
        return space


def _not_run(finished: Finished | None) -> str | None:
    """Why a step was not run after all."""
    if finished is None:
        return "its id was there before"
    span = finished.span
    if span.state == "denied":
        return _OUT
    return (
        "this client version has no such tool here" if span.error_kind == "unknown_tool" else None
    )


def _block(step: Step) -> dict[str, object]:
    return {"type": "tool_use", "id": step.span.id, "name": step.tool, "input": step.input}


def in_order(transcripts: Sequence[Transcript]) -> list[Span]:
    """The calls of all transcripts by the time they were asked for; each once."""
    found: list[tuple[str, int, Span]] = []
    for transcript in transcripts:
        at = ""
        for span in transcript.spans:
            at = max(at, span.call.requested_at or "")
            found.append((at, len(found), span))
    ordered = sorted(found, key=lambda one: one[:2])
    return list({span.id: span for _, _, span in reversed(ordered)}.values())[::-1]


def recorded_folder(transcripts: Sequence[Transcript]) -> str | None:
    """The folder in which a session began."""
    return next((one.info.cwd for one in transcripts if one.info.cwd), None)


def recorded_profile(transcripts: Sequence[Transcript]) -> Profile:
    """The profile of the client version that was recorded, or of the one most like it."""
    own = _numbers(recorded_version(transcripts) or "")
    known = {_numbers(version): version for version in VERSIONS if _numbers(version)}
    below = [version for numbers, version in known.items() if numbers <= own]
    alike = [version for numbers, version in known.items() if numbers[:2] == own[:2]]
    if not own or own > max(known):
        return profile(DEFAULT)
    same = [version for version in below if version in alike]
    return profile(next(iter([*same[::-1], *alike, *below[::-1], *known.values()])))


def recorded_version(transcripts: Sequence[Transcript]) -> str | None:
    """The version of Claude Code that wrote the first of it."""
    told = (one.info.versions for one in transcripts if one.info.dialect == "claude")
    return next((version for versions in told for version in versions), None)


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()


def recorded_commit(transcript: Transcript) -> str | None:
    """The commit that was checked out when a session began; only Codex records it."""
    if transcript.dialect != "codex":
        return None
    first = next(iter(transcript.lines()), None)
    try:
        head = msgspec.json.decode(first.data, type=_Head) if first is not None else _Head()
    except msgspec.MsgspecError:
        return None
    found = head.payload.git.commit_hash if head.payload.git else None
    return found if found is not None and _COMMIT.fullmatch(found) else None


class _Git(Struct, frozen=True):
    commit_hash: str | None = None


class _Meta(Struct, frozen=True):
    git: _Git | None = None


class _Head(Struct, frozen=True):
    """The first line of a rollout, as far as it matters here."""

    payload: _Meta = _Meta()
