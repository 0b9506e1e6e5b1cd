"""Shared parts for pairing calls with results: inferred states, branches and change tracking."""

from __future__ import annotations

import itertools
import shlex
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from toolspan.errors import SourceError
from toolspan.types.error_kinds import ErrorKind
from toolspan.types.ids import CallId, SourceLocation
from toolspan.types.span import Branch, Call, Evidence, Hook, Result, Span
from toolspan.types.state import State

BRANCH_NAMES: tuple[Branch, ...] = ("active", "compacted", "abandoned")


_FAILURE_KINDS: dict[ErrorKind | None, ErrorKind] = {"command_timeout": "command_failed", "mcp_timeout": "mcp_error"}


class StateInference(Struct, frozen=True, kw_only=True, gc=False):
    """An inferred state and the evidence for it."""

    state: State
    kind: ErrorKind | None = None
    evidence: tuple[Evidence, ...] = ()
    ambiguous: bool = False
    synthetic: bool = False
    truncated: bool = False
    never_ran: bool = False
    """True for a command without the exit code that every executed command leaves."""
    rejection: bool = False
    """True if the text is the standard user rejection, which clients also write for an interrupt."""

    def __post_init__(self) -> None:
        """Replace the kind of a failure that only says that something timed out: a timer did not end the call."""
        if self.state == "failed" and self.kind in _FAILURE_KINDS:
            force_setattr(self, "kind", _FAILURE_KINDS[self.kind])


_NOTHING_FOUND_CODES = (1, 4, 123)
"""Exit codes for "nothing found": of `grep` and similar programs, of `jq -e`, and of `xargs` running one of them."""
PROCESS_RULE = "process started by"
"""The evidence rule whose text is the command of the process that a call waited for."""
_SUMMARY_LENGTH = 160
"""The length to which targets are cut; one of this length may be incomplete."""


def command_line(call: Call) -> str:
    """Return the whole command line of a shell call, or its beginning if the file has changed."""
    target = call.target or ""
    if len(target) < _SUMMARY_LENGTH:
        return target
    try:
        arguments = call.arguments
    except SourceError:
        return target
    command = arguments.get("command") or arguments.get("cmd")
    if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
        is_script = len(command) == 3 and command[1] in ("-lc", "-c", "-Command", "/c")
        return command[2] if is_script else shlex.join(command)
    return command if isinstance(command, str) and command else target


def refine_exit_status(inference: StateInference, call: Call, exit_code: int | None, output: str) -> StateInference:
    """Distinguish searches without matches and false conditions from failed commands.

    `output` is the command's output. Old clients did not record the exit code.
    """
    if inference.state != "failed" or inference.kind not in ("command_failed", "unknown") or call.kind != "shell":
        return inference
    code = 1 if exit_code is None and not output else exit_code
    if code not in _NOTHING_FOUND_CODES:
        return inference
    from toolspan.shell.exit_status import found_nothing  # perf: few transcripts need the shell parser

    if not found_nothing(command_line(call), code, output):
        return inference
    return replace(inference, kind="nothing_found", evidence=(*inference.evidence, Evidence("found nothing")))


class Branches:
    """The branch of each line, one byte per line."""

    def __init__(self, lines: array[int], marks: bytearray) -> None:
        self._lines = lines
        self._branch_indexes = marks

    def __bool__(self) -> bool:
        """Return whether any line is not on the active branch."""
        return any(self._branch_indexes)

    def first_change(self, earlier: Branches) -> int | None:
        """Return the first line whose branch differs from that in `earlier`, or is not the active one if it is new.

        Return None if nothing changed. `earlier` describes the same file when it was shorter.
        """
        size = len(earlier._branch_indexes)
        new, old = self._branch_indexes, earlier._branch_indexes
        if new[:size] == old:
            at = next((n for n in range(size, len(new)) if new[n]), len(new))
        else:
            at = next(n for n in range(size) if new[n] != old[n])
        return self._lines[at] if at < len(new) else None

    def branch_of(self, line: int) -> Branch:
        """Return the branch of a line number; lines that are not listed are active."""
        return BRANCH_NAMES[self.branch_index(line)]

    def branch_index(self, line: int) -> int:
        """Return the index of a line's branch in `BRANCH_NAMES`, where 0 is the active branch."""
        at = bisect_left(self._lines, line)
        if at == len(self._lines) or self._lines[at] != line:
            return 0
        return self._branch_indexes[at]


class CallBuilderBase(Struct, gc=False):
    """A call with everything read about it so far."""

    call: Call
    result: Result | None = None
    inference: StateInference | None = None


B = TypeVar("B", bound=CallBuilderBase)


class CallPairing(ABC, Generic[B]):
    """The calls in one file, paired with their results."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._builders: dict[CallId, B] = {}
        self._starters: dict[str, str] = {}
        self.agent_types: dict[str, str] = {}
        """Requested subagent types, by call id."""
        self.message_starters: dict[str, str] = {}
        """Calls that started the subagents whose messages this file contains, by message id."""
        self.has_sidechains = False
        """True if the client marked records as those of a subagent."""
        self._branches: Branches | None = None
        """The branches once they are known; until then, all lines count as active."""

    @property
    def agent_starters(self) -> dict[str, str]:
        """Ids of the calls that started subagents, by agent id."""
        return self._starters

    @property
    def hooks(self) -> Mapping[str, Sequence[Hook]]:
        """The hooks that ran, by the id of the call or of the event for which they ran."""
        return {}

    def consume_spans(self, branches: Branches) -> Iterator[Span]:
        """Yield every call in request order, freeing its memory. The file is treated as complete."""
        self._set_branches(branches)
        builders, self._builders = self._builders, {}
        for call_id in list(builders):
            yield self._build_span(builders.pop(call_id))

    @abstractmethod
    def _infer_state(self, builder: B) -> StateInference: ...

    @abstractmethod
    def _build_span(self, builder: B) -> Span: ...

    def _set_branches(self, branches: Branches) -> None:
        self._branches = branches or None

    def _location_of(self, at: int) -> SourceLocation:
        return SourceLocation.unpack(self._file, at)


class LiveCallPairing(CallPairing[B]):
    """The calls in a file that is still growing, with a record of those that have changed."""

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self._changed_ids: set[CallId] = set()
        """Calls that may have changed since the last `changed_spans`; some requests may not have been read yet."""
        self._started_ids: set[CallId] = set()
        self._abandoned_ids: set[CallId] = set()
        self._is_finished = False
        self._positions: dict[CallId, int] = {}
        self._next_position = itertools.count()

    @property
    def call_ids(self) -> Collection[CallId]:
        """The ids of all calls, in request order."""
        return self._builders.keys()

    def current_spans(self) -> Iterator[Span]:
        """Yield every call as it is now, in request order."""
        return map(self._build_span, self._builders.values())

    def changed_spans(self) -> list[Span]:
        """Return the calls that may have changed since the previous invocation, in request order."""
        call_ids = [call_id for call_id in self._changed_ids if call_id in self._builders]
        self._changed_ids.clear()
        call_ids.sort(key=self._positions.__getitem__)
        return [self._build_span(self._builders[call_id]) for call_id in call_ids]

    def last_batch(self) -> list[Span]:
        """Return the calls of the last message on the active branch."""
        batch: list[Span] = []
        for builder in reversed(self._builders.values()):
            span = self._build_span(builder)
            if span.branch == "active":
                if batch and span.call.message_id != batch[0].call.message_id:
                    break
                batch.insert(0, span)
        return batch

    def mark_started(self, call_id: CallId) -> None:
        """Mark a call as started, based on evidence outside the file."""
        self._started_ids.add(call_id)
        self._changed_ids.add(call_id)

    def treat_as_complete(self) -> None:
        """Infer states as if the file were complete: calls without a result become unanswered."""
        self._is_finished = True

    def move_to_branches(self, branches: Branches) -> None:
        """Replace the branches. Any call may have moved to another branch."""
        self._set_branches(branches)
        self._changed_ids.update(self._builders)

    def finish(self, branches: Branches) -> None:
        """Treat the file as complete: open calls become unanswered, and any call may have moved to another branch."""
        self._set_branches(branches)
        self._is_finished = True
        moved = bool(branches)
        self._changed_ids.update(name for name, builder in self._builders.items() if moved or builder.result is None)

    def _assign_position(self, call_id: CallId) -> None:
        """Place a call after all others."""
        self._positions[call_id] = next(self._next_position)

    def _mark_id_changed(self, call_id: CallId) -> None:
        if call_id not in self._positions:
            self._assign_position(call_id)
        self._changed_ids.add(call_id)

    def _mark_abandoned(self, calls: Collection[CallId]) -> None:
        """Mark calls as unable to get a result, because the client continued without them."""
        self._abandoned_ids.update(calls)
        self._changed_ids.update(calls)

    def _is_open(self, builder: B, inference: StateInference) -> bool:
        """Return whether a call without a result may still get one."""
        if builder.inference is not None or inference.state != "never_answered":
            return False
        return not self._is_finished and builder.call.id not in self._abandoned_ids
