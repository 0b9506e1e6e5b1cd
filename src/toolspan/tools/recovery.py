"""Policies that recover from failed calls by making further calls. None is active by default.

Each step is a separate call: recorded, and subject to hooks and permissions. A call that a user, a
rule or a hook refused is never recovered, because that would bypass the refusal. A failed edit is
attempted in another way only if the file provably did not change.

    Session(recoveries=[ReadFirst(), ReadAndRetry(), Degrade(), Retry()])
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import anyio

from toolspan.runtime.authorization import APPROVAL_FAILED
from toolspan.runtime.batch import RunStep
from toolspan.runtime.context import RunnerContext
from toolspan.types.error_kinds import ErrorKind
from toolspan.types.events import Finished, RecoveryApplied
from toolspan.types.ids import CallId
from toolspan.types.span import Call

EDITING_TOOLS = frozenset({"Edit", "MultiEdit", "Write"})
Edits = Sequence[Mapping[str, object]]
_NO_ANSWER_KINDS: frozenset[ErrorKind] = frozenset({"mcp_timeout", "mcp_no_response", "network"})
_TRANSIENT_KINDS: frozenset[ErrorKind] = frozenset({"mcp_no_response", "network", "rate_limit"})


class ReadFirst:
    """A policy that reads a file before an edit if no earlier call has read it."""

    async def before_call(self, call: Call, context: RunnerContext, run: RunStep) -> None:
        """Read the file if it exists and no earlier call has read it."""
        path = _edited_path(call, context)
        if path is None or not path.is_file() or context.workspace.files.get(path) is not None:
            return
        await run("Read", {"file_path": str(path)})

    async def on_failure(self, failed: Finished, context: RunnerContext, run: RunStep) -> None:
        """Do nothing, because this policy only prevents failures."""


class ReadAndRetry:
    """A policy that reads the file and retries an edit that failed because the file was unread or stale."""

    async def before_call(self, call: Call, context: RunnerContext, run: RunStep) -> None:
        """Do nothing, because this policy only acts on failures."""

    async def on_failure(self, failed: Finished, context: RunnerContext, run: RunStep) -> None:
        """Read the file, check that the edit still applies, and run the same call again."""
        span = failed.span
        path = _edited_path(span.call, context)
        if path is None or span.error_kind not in ("read_required", "stale_file"):
            return
        seen = await run("Read", {"file_path": str(path)})
        steps = [seen.call_id]
        text = _read_text(path)
        if span.tool == "Write":  # it must not overwrite other changes
            still_fits = span.error_kind == "read_required"
        else:
            still_fits = text is not None and apply_edits(text, parse_edits(span.call)) is not None
        succeeded = _has_succeeded(seen) and still_fits
        if succeeded:
            again = await run(span.tool, dict(span.call.arguments))
            steps.append(again.call_id)
            succeeded = _has_succeeded(again)
        _emit_recovered(context, span.id, "read and retry", steps, succeeded=succeeded)


class Degrade:
    """A policy for editing tools that do not respond: run the edits one by one or write the whole file."""

    def __init__(self) -> None:
        self._digests_before: dict[CallId, str | None] = {}

    async def before_call(self, call: Call, context: RunnerContext, run: RunStep) -> None:  # noqa: ARG002
        """Store the file's digest, so that an edit that took effect is not repeated."""
        path = _edited_path(call, context)
        if path is not None and call.tool in ("Edit", "MultiEdit"):
            self._digests_before[call.id] = await _file_digest(path)

    async def on_failure(self, failed: Finished, context: RunnerContext, run: RunStep) -> None:
        """Replace a MultiEdit with single edits, or an edit with a write of the whole file."""
        span = failed.span
        before = self._digests_before.pop(span.id, None)
        path = _edited_path(span.call, context)
        is_unanswered = span.state == "timed_out" or span.error_kind in _NO_ANSWER_KINDS
        if path is None or before is None or not is_unanswered or not _is_unrefused_failure(failed):
            return
        if await _file_digest(path) != before:
            return  # the edit took effect, or something else changed the file
        steps: list[CallId] = []
        remaining: Edits | None = parse_edits(span.call)
        if span.tool == "MultiEdit":
            remaining = await self._run_edits_separately(parse_edits(span.call), path, run, steps)
        if remaining:
            remaining = await self._write_whole_file(remaining, path, run, steps)
        _emit_recovered(context, span.id, "degrade", steps, succeeded=remaining is not None)

    async def _run_edits_separately(self, edits: Edits, path: Path, run: RunStep, steps: list[CallId]) -> Edits | None:
        """Run the edits as separate calls and return the remaining edits if one fails.

        Return None if an edit was refused or may have changed the file even though it failed.
        """
        for number, edit in enumerate(edits):
            before = await _file_digest(path)
            done = await run("Edit", {"file_path": str(path), **edit})
            steps.append(done.call_id)
            if not _has_succeeded(done):
                untouched = _is_unrefused_failure(done) and await _file_digest(path) == before
                return edits[number:] if untouched else None
        return ()

    async def _write_whole_file(self, edits: Edits, path: Path, run: RunStep, steps: list[CallId]) -> Edits | None:
        """Write the file with all edits applied. Return an empty list of remaining edits, or None on failure."""
        text = await anyio.to_thread.run_sync(_read_text, path)
        changed = apply_edits(text, edits) if text is not None else None
        if changed is None:
            return None
        seen = await run("Read", {"file_path": str(path)})
        done = await run("Write", {"file_path": str(path), "content": changed})
        steps += [seen.call_id, done.call_id]
        return () if _has_succeeded(done) else None


class Retry:
    """A policy that repeats a call after a transient failure if it is safe to run it twice."""

    def __init__(
        self,
        *,
        tries: int = 3,
        pause: float = 0.5,
        max_pause: float = 30.0,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._tries = tries
        self._pause = pause
        self._max_pause = max_pause
        self._sleep = sleep
        self._chance = chance

    async def before_call(self, call: Call, context: RunnerContext, run: RunStep) -> None:
        """Do nothing, because this policy only acts on failures."""

    async def on_failure(self, failed: Finished, context: RunnerContext, run: RunStep) -> None:
        """Run the call again, with a longer pause each time."""
        span = failed.span
        tool = context.tools.find(span.tool)
        if tool is None or not (tool.idempotent or tool.read_only) or not _is_transient(failed):
            return
        steps: list[CallId] = []
        last = failed
        for number in range(self._tries):
            pause = min(self._max_pause, self._pause * 2.0**number)
            await self._sleep(pause * (0.5 + self._chance() / 2))
            last = await run(span.tool, dict(span.call.arguments))
            steps.append(last.call_id)
            if not _is_transient(last):
                break
        _emit_recovered(context, span.id, "retry", steps, succeeded=_has_succeeded(last))


def parse_edits(call: Call) -> Edits:
    """Return the edits made by an editing call, in order."""
    arguments = call.arguments
    edits = arguments.get("edits")
    if isinstance(edits, Sequence) and not isinstance(edits, str):
        return [edit for edit in edits if isinstance(edit, Mapping)]
    return [{key: arguments[key] for key in _EDIT_KEYS if key in arguments}]


_EDIT_KEYS = ("old_string", "new_string", "replace_all")


def apply_edits(text: str, edits: Edits) -> str | None:
    """Apply the edits in order, or return None if one does not match the text."""
    for edit in edits:
        old, new = str(edit.get("old_string", "")), str(edit.get("new_string", ""))
        matches = text.count(old) if old else 0
        if not matches or (matches > 1 and not edit.get("replace_all")):
            return None
        text = text.replace(old, new)
    return text


def _edited_path(call: Call, context: RunnerContext) -> Path | None:
    file_path = call.arguments.get("file_path")
    if call.tool not in EDITING_TOOLS or not isinstance(file_path, str) or "\0" in file_path:
        return None
    return context.call_context.cwd / Path(file_path).expanduser()


def _has_succeeded(finished: Finished) -> bool:
    return finished.span.state == "succeeded"


def _is_unrefused_failure(finished: Finished) -> bool:
    """Return whether the tool itself failed, not a permission check or an approver."""
    span = finished.span
    if any(evidence.rule == APPROVAL_FAILED for evidence in span.evidence):
        return False
    return span.state in ("failed", "timed_out") and span.error_kind != "permission_timeout"


def _is_transient(finished: Finished) -> bool:
    return finished.span.state == "failed" and finished.span.error_kind in _TRANSIENT_KINDS


def _read_text(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


async def _file_digest(path: Path) -> str | None:
    def read_digest() -> str | None:
        try:
            return hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError:
            return None

    return await anyio.to_thread.run_sync(read_digest)


def _emit_recovered(
    context: RunnerContext, call_id: CallId, policy: str, steps: Sequence[CallId], *, succeeded: bool
) -> None:
    context.emit(
        RecoveryApplied(call_id=call_id, policy=policy, steps=tuple(steps), succeeded=succeeded, at=context.clock())
    )
