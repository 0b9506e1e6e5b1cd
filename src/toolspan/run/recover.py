"""Policies that mend failed calls by further ones; none is used unless it is asked for.

Each step is a call of its own: visible, recorded, subject to hooks and consent, tied to the call it
mends. A call that a person, a rule or a hook refused is never mended: that would be evasion. A
failed edit is only done another way when the file is provably what it was before.

    Session(recoveries=[ReadFirst(), ReadAndRetry(), Degrade(), Retry()])
"""

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import anyio

from toolspan.disk.load import fingerprint
from toolspan.ids import CallId
from toolspan.model.kind import ErrorKind
from toolspan.model.live import Finished, Recovered
from toolspan.model.span import Call
from toolspan.run.batch import Step
from toolspan.run.consent import UNASKED
from toolspan.run.context import Context
from toolspan.run.desk import Desk

EDITING = frozenset({"Edit", "MultiEdit", "Write"})
Edits = Sequence[Mapping[str, object]]
_NO_ANSWER: frozenset[ErrorKind] = frozenset({"mcp_timeout", "mcp_no_response", "network"})
_TRANSIENT: frozenset[ErrorKind] = frozenset({"mcp_no_response", "network", "rate_limit"})


class ReadFirst:
    """Before an edit of a file nobody has read: read it."""

    async def prevent(self, call: Call, desk: Desk, run: Step) -> None:
        """Read the file, if it is there and not known."""
        path = _edited(call, desk)
        if path is None or not path.is_file() or desk.workspace.files.get(path) is not None:
            return
        await run("Read", {"file_path": str(path)})

    async def mend(self, failed: Finished, desk: Desk, run: Step) -> None:
        """Nothing: this policy only prevents."""


class ReadAndRetry:
    """After an edit that needed a fresh look at the file: read it, then try once more."""

    async def prevent(self, call: Call, desk: Desk, run: Step) -> None:
        """Nothing: this policy only mends."""

    async def mend(self, failed: Finished, desk: Desk, run: Step) -> None:
        """Read, check that the edit still fits, run the same call again."""
        span = failed.span
        path = _edited(span.call, desk)
        if path is None or span.error_kind not in ("read_required", "stale_file"):
            return
        seen = await run("Read", {"file_path": str(path)})
        steps = [seen.call_id]
        good = _succeeded(seen) and _still_fits(failed, path)
        if good:
            again = await run(span.tool, dict(span.call.arguments))
            steps.append(again.call_id)
            good = _succeeded(again)
        _tell(desk, span.id, "read and retry", steps, succeeded=good)


class Degrade:
    """When an editing tool does not answer: its edits one by one, and at last the whole file."""

    def __init__(self) -> None:
        self._before: dict[CallId, str | None] = {}

    async def prevent(self, call: Call, desk: Desk, run: Step) -> None:  # noqa: ARG002
        """Remember what the file was, so that an edit that did happen is not done twice."""
        path = _edited(call, desk)
        if path is not None and call.tool in ("Edit", "MultiEdit"):
            self._before[call.id] = await _digest(path)

    async def mend(self, failed: Finished, desk: Desk, run: Step) -> None:
        """MultiEdit becomes edits; an edit becomes a write of the whole."""
        span = failed.span
        before = self._before.pop(span.id, None)
        path = _edited(span.call, desk)
        if path is None or before is None or not _unanswered(failed):
            return
        if await _digest(path) != before:
            return  # it did happen, or somebody else changed the file
        steps: list[CallId] = []
        left: Edits | None = edits_of(span.call)
        if span.tool == "MultiEdit":
            left = await self._one_by_one(edits_of(span.call), path, run, steps)
        if left:
            left = await self._whole(left, path, run, steps)
        _tell(desk, span.id, "degrade", steps, succeeded=left is not None)

    async def _one_by_one(
        self, edits: Edits, path: Path, run: Step, steps: list[CallId]
    ) -> Edits | None:
        """Run the edits as calls of their own; those left when one fails unrefused, or None."""
        for number, edit in enumerate(edits):
            before = await _digest(path)
            done = await run("Edit", {"file_path": str(path), **edit})
            steps.append(done.call_id)
            if not _succeeded(done):
                untouched = _unrefused(done) and await _digest(path) == before
                return edits[number:] if untouched else None
        return ()

    async def _whole(
        self, edits: Edits, path: Path, run: Step, steps: list[CallId]
    ) -> Edits | None:
        """Apply all that is left to the text and write it; nothing is left then, or None."""
        text = await anyio.to_thread.run_sync(_text, path)
        changed = apply_edits(text, edits) if text is not None else None
        if changed is None:
            return None
        seen = await run("Read", {"file_path": str(path)})
        done = await run("Write", {"file_path": str(path), "content": changed})
        steps += [seen.call_id, done.call_id]
        return () if _succeeded(done) else None


class Retry:
    """Run a call again that failed on its way, when running it twice does no harm."""

    def __init__(
        self,
        *,
        tries: int = 3,
        pause: float = 0.5,
        longest: float = 30.0,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._tries = tries
        self._pause = pause
        self._longest = longest
        self._sleep = sleep
        self._chance = chance

    async def prevent(self, call: Call, desk: Desk, run: Step) -> None:
        """Nothing: this policy only mends."""

    async def mend(self, failed: Finished, desk: Desk, run: Step) -> None:
        """Try again, each time after a longer pause."""
        span = failed.span
        tool = desk.tools.find(span.tool)
        if tool is None or not (tool.idempotent or tool.read_only) or not _transient(failed):
            return
        steps: list[CallId] = []
        last = failed
        for number in range(self._tries):
            await self._sleep(self._wait(number))
            last = await run(span.tool, dict(span.call.arguments))
            steps.append(last.call_id)
            if not _transient(last):
                break
        _tell(desk, span.id, "retry", steps, succeeded=_succeeded(last))

    def _wait(self, number: int) -> float:
        full = min(self._longest, self._pause * 2.0**number)
        return full * (0.5 + self._chance() / 2)


def edits_of(call: Call) -> Edits:
    """The edits that an editing call asks for, in order."""
    given = call.arguments
    listed = given.get("edits")
    if isinstance(listed, Sequence) and not isinstance(listed, str):
        return [edit for edit in listed if isinstance(edit, Mapping)]
    return [{key: given[key] for key in _EDIT_KEYS if key in given}]


_EDIT_KEYS = ("old_string", "new_string", "replace_all")


def apply_edits(text: str, edits: Edits) -> str | None:
    """All edits, each on the result of the one before; None when one does not fit."""
    for edit in edits:
        old, new = str(edit.get("old_string", "")), str(edit.get("new_string", ""))
        found = text.count(old) if old else 0
        if not found or (found > 1 and not edit.get("replace_all")):
            return None
        text = text.replace(old, new)
    return text


def _edited(call: Call, desk: Desk) -> Path | None:
    """The file that an editing call is about."""
    given = call.arguments.get("file_path")
    if call.tool not in EDITING or not isinstance(given, str) or "\0" in given:
        return None
    context: Context = desk.context
    return context.cwd / Path(given).expanduser()


def _still_fits(failed: Finished, path: Path) -> bool:
    """An edit is tried again only on a text that it fits; nothing new is overwritten blindly."""
    if failed.span.tool == "Write":
        return failed.span.error_kind == "read_required"
    text = _text(path)
    return text is not None and apply_edits(text, edits_of(failed.span.call)) is not None


def _succeeded(finished: Finished) -> bool:
    return finished.span.state == "succeeded"


def _unanswered(finished: Finished) -> bool:
    """The tool did not answer; nobody refused."""
    span = finished.span
    silent = span.state == "timed_out" or span.error_kind in _NO_ANSWER
    return silent and _unrefused(finished)


def _unrefused(finished: Finished) -> bool:
    """The tool failed, for whatever reason; nobody refused, or left the question open."""
    span = finished.span
    if any(one.rule == UNASKED for one in span.evidence):
        return False
    return span.state in ("failed", "timed_out") and span.error_kind != "permission_timeout"


def _transient(finished: Finished) -> bool:
    return finished.span.state == "failed" and finished.span.error_kind in _TRANSIENT


def _text(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


async def _digest(path: Path) -> str | None:
    def read() -> str | None:
        try:
            return fingerprint(path.read_bytes())
        except OSError:
            return None

    return await anyio.to_thread.run_sync(read)


def _tell(
    desk: Desk, call_id: CallId, policy: str, steps: Sequence[CallId], *, succeeded: bool
) -> None:
    desk.emit(
        Recovered(
            call_id=call_id,
            policy=policy,
            steps=tuple(steps),
            succeeded=succeeded,
            at=desk.clock(),
        )
    )
