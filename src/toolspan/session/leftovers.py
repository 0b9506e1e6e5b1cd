"""End the commands that a killed session has left running, and answer its calls, before its conversation continues.

Start at `recover_calls`. Processes are recognised by the tag in their environment, or by the process id and start time
in the intent log; a process that has only the same id is never touched.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

import anyio

from toolspan.formats.evidence import RecordedProcesses, collect_evidence, format_unanswered, read_processes
from toolspan.runtime.output_limits import safe_file_name
from toolspan.runtime.process import TerminationError
from toolspan.runtime.process.kill import kill_tree
from toolspan.runtime.process.supervisor import GRACE
from toolspan.runtime.process.tree import (
    TAG_SEPARATOR,
    TAG_VARIABLE,
    ProcessIdentity,
    ProcessInfo,
    ProcessPlatform,
    ProcessTree,
    is_alive,
    tag_name,
)
from toolspan.session.models.history import Message
from toolspan.session.recording import IntentLog, Recorder
from toolspan.session.resume import answer_subagent_calls
from toolspan.types.events import Content
from toolspan.types.ids import CallId

Leftovers = Literal["end", "wait"]
"""The treatment of commands that a killed session has left running: end them, or wait for those of unanswered calls."""
MAX_WAIT = 600.0
"""The seconds after which a command is ended even with `wait`; no command may run longer in the foreground."""
_POLL_INTERVAL = 0.05


class RecoveredCalls(NamedTuple):
    """The calls of a killed session."""

    results: dict[str, Content]
    """The results that unanswered calls got, by call id."""
    notices: list[str]
    """Messages for the model about background commands that were ended."""


async def recover_calls(recorder: Recorder, messages: Sequence[Message], mode: Leftovers) -> RecoveredCalls:
    """End what a killed session has left running, and record a result for each unanswered call.

    Those of its subagents are recorded in their own transcripts.
    """
    intent_log, subagents = recorder.open_intent_log(), recorder.resume_interrupted_subagents()
    unanswered = frozenset(recorder.resume_answers).union(*(subagent.open_calls for subagent in subagents))
    notes: Mapping[str, str] = {}
    try:
        if intent_log is not None:
            notes = await end_leftovers(recorder.path, intent_log, unanswered, mode)
        for subagent in subagents:
            answer_subagent_calls(subagent, recorder.path)
    finally:
        for subagent in subagents:
            subagent.close()
    evidence = collect_evidence(recorder.path, notes.keys() & recorder.resume_answers.keys())
    _replace_answers(messages, {call_id: format_unanswered(found) for call_id, found in evidence.items()})
    recorder.set_resume_answers(messages)
    results = dict(recorder.resume_answers)
    recorder.write_resume_answers()
    return RecoveredCalls(results, [_format_notice(notes[id], id) for id in sorted(notes.keys() - results.keys())])


async def end_leftovers(
    transcript: Path, intent_log: IntentLog, unanswered: Collection[str], mode: Leftovers
) -> dict[str, str]:
    """End everything that earlier sessions of a transcript have left running. Return a note for each call.

    With `wait`, commands of `unanswered` calls may run to their end. The notes are also in the intent log.
    """
    recorded = read_processes(transcript)
    recorded.tags -= set(os.environ.get(TAG_VARIABLE, "").split(TAG_SEPARATOR))  # never end our own ancestors
    platform = ProcessPlatform.detect()
    tree = ProcessTree(since=0, tags=recorded.tags)
    for command in recorded.commands.values():
        process = platform.table.get_process(command.pid)
        if process is not None and str(process.started) == command.started:
            tree.last_members.add(process.identity)
    if not tree.tags and not tree.last_members:
        return {}
    members = [process for process in tree.find_members(platform.table) if not process.is_zombie]
    if not members:
        return {}
    processes = _group_by_call(members, recorded, platform)
    if mode == "wait":
        with anyio.move_on_after(MAX_WAIT):
            for call, identities in processes.items():
                if call in unanswered:
                    await _wait_until_gone(identities, platform)
    finished = {
        call
        for call, identities in processes.items()
        if not any(is_alive(platform.table, identity) for identity in identities)
    }
    problem = ""
    try:
        await kill_tree(tree, platform, GRACE)
    except TerminationError as error:
        problem = f"; {error}".rstrip(".")
    notes: dict[str, str] = {}
    at = datetime.now(UTC).isoformat(timespec="seconds")
    for call, identities in processes.items():
        pids = sorted(identity.pid for identity in identities)
        names = f"process {pids[0]}" if len(pids) == 1 else f"processes {', '.join(map(str, pids))}"
        if call in finished:
            note = f"it ran until {at} at the latest, after the session was killed; its exit status and output are lost"
        else:
            note = f"it was still running when the session was resumed, and was stopped then ({names}){problem}"
        intent_log.record_ended(call, pids, note)
        notes[call] = note
    return notes


def _group_by_call(
    members: Collection[ProcessInfo], recorded: RecordedProcesses, platform: ProcessPlatform
) -> dict[str, set[ProcessIdentity]]:
    """Return the processes of each call. Those of hooks and servers belong to none."""
    call_by_pid = {command.pid: call for call, command in recorded.commands.items()}
    call_by_name = {safe_file_name(CallId(call)): call for call in recorded.commands.keys() | recorded.calls}
    processes: dict[str, set[ProcessIdentity]] = {}
    for process in members:
        names = {tag_name(tag) for tag in platform.table.env_tags(process.pid)}
        call = next((call_by_name[name] for name in names if name in call_by_name), call_by_pid.get(process.session))
        if call is not None:
            processes.setdefault(call, set()).add(process.identity)
    return processes


async def _wait_until_gone(identities: Collection[ProcessIdentity], platform: ProcessPlatform) -> None:
    for identity in identities:
        if platform.has_pidfd:
            with suppress(OSError):  # gone, or too many descriptors: poll instead
                descriptor = os.pidfd_open(identity.pid)
                try:
                    if is_alive(platform.table, identity):
                        await anyio.wait_readable(descriptor)
                finally:
                    os.close(descriptor)
        while is_alive(platform.table, identity):
            await anyio.sleep(_POLL_INTERVAL)


def _format_notice(note: str, call_id: str) -> str:
    """Return the message about a background command that did not survive its session."""
    return (
        f"<task-notification>\n<tool-use-id>{call_id}</tool-use-id>\n<status>killed</status>\n"
        f"<summary>The session was killed and resumed. About the background command of this call: {note}</summary>\n"
        "</task-notification>"
    )


def _replace_answers(messages: Collection[Message], texts: Mapping[str, str]) -> None:
    """Replace the content of the results of these calls."""
    for message in messages:
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_result" and block.get("tool_use_id") in texts:
                block["content"] = texts[block["tool_use_id"]]
