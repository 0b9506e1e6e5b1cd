"""What a session says and runs, as lines of a transcript.

In: prompts, the model's messages, and the events of the runner. Out: lines in the shape of the
profile's client, in the order in which things ended. Each line hangs on the one before, a result on
the line of its own call. Nothing here raises for what values or disks do; `on_failure` is told. Not
for several threads at once. Read `Recorder.result` first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from msgspec import Struct

from toolspan.errors import InUse
from toolspan.ids import CallId, SessionId
from toolspan.model.live import Content, Finished, HookRan, LiveEvent
from toolspan.record import entries
from toolspan.record.chain import Chain, OnFailure
from toolspan.record.encode import encode
from toolspan.record.intent import Journal, boot_id, intent_path
from toolspan.record.origin import Origin
from toolspan.record.places import agent_path, results_folder, transcript_path
from toolspan.record.resume import left_by
from toolspan.record.system import (
    Compacted,
    RefusedPrompt,
    StopSummary,
    Trouble,
    boundary,
    given_up,
    refused_prompt,
    retried,
    stop_summary,
)
from toolspan.wire.paths import meta_path

_META = b',"isMeta":true'
_SUMMARY = b',"isVisibleInTranscriptOnly":true,"isCompactSummary":true'
SYNTHETIC = "<synthetic>"
"""The model of messages that no model made."""


_Block = Mapping[str, object]


class _Asked(Struct, frozen=True):
    """A call that waits for its result, and the line that asked for it."""

    uuid: str
    tool: str
    input: object = None


class Recorder:
    """Writes one transcript file."""

    def __init__(self, path: Path, origin: Origin, on_failure: OnFailure) -> None:
        self.path = path
        self.permission_mode = origin.permission_mode
        """What prompts from now on tell of it."""
        self._origin = origin
        self._shape = origin.profile.shape
        self._sidechain = origin.agent_id is not None
        self._on_failure = on_failure
        self._chain = Chain(path, origin, on_failure)
        self._asked: dict[str, _Asked] = {}
        self._lost: set[str] = set()
        """Calls whose line is not in the file: a result without its call helps nobody."""
        self._owed: list[Finished] = []
        """Results that could not be written yet."""
        self._held: dict[str, list[HookRan]] = {}
        """What hooks did after a call; it is told after the call's result."""
        self._message: object = None
        """The id of the message the model is in."""
        self._blocks = 0
        """How many of its blocks came."""
        self._turns = 0
        self._prompt: str | None = None
        self._main = path
        """The transcript of the main conversation."""
        self._journal: Journal | None = None
        self._own_journal = True
        self._has_effects: Callable[[str], bool] = _any_tool
        self._answers: dict[str, Content] = {}
        """What open calls are answered with, as soon as somebody speaks."""
        self._within = False
        """The file ends with calls or results; see `Left.within`."""

    @classmethod
    def at_home(cls, origin: Origin, on_failure: OnFailure, *, config: Path | None = None) -> Self:
        """Record where the client keeps its sessions, so that it can resume this one."""
        return cls(transcript_path(origin.session_id, origin.cwd, config), origin, on_failure)

    @classmethod
    def resume(cls, path: Path, origin: Origin, on_failure: OnFailure) -> Self:
        """Go on with a transcript: lines hang on its last one, open calls can be answered.

        Raises:
            SourceError: the file cannot be read.
            InUse: another process writes to it.
        """
        recorder = cls(path, origin, on_failure)
        recorder._chain.begin()
        owner = recorder._chain.owner
        if owner is not None:
            recorder._chain.close()
            raise InUse(f"{path.stem}: {owner} goes on with this session; end it, or fork it")
        left = left_by(path)
        recorder._within = left.within
        recorder._chain.last, recorder._chain.latest = left.last, left.latest + 0.001
        recorder._chain.envelope.turn(left.prompt_id)
        recorder._turns = left.turns
        recorder._asked = {call: _Asked(uuid, tool) for call, (uuid, tool) in left.open.items()}
        return recorder

    def agent(self, agent_id: str, about: Mapping[str, object]) -> "Recorder":
        """The recorder of a subagent; `about` is kept beside it: its kind, the call, …"""
        path = agent_path(self._main, agent_id, self._shape.agents)
        origin = replace(self._origin, agent_id=agent_id, cwd=self.cwd)
        make = Recorder.resume if path.is_file() else Recorder
        recorder = make(path, origin, self._on_failure)
        recorder._journal, recorder._own_journal = self._journal, False
        recorder._main = self._main
        recorder.tell_about(about)
        return recorder

    def tell_about(self, about: Mapping[str, object]) -> None:
        """Keep beside a subagent's transcript what it is, where clients do."""
        if self._sidechain and self._shape.agents == "nested":
            self._chain.write_beside(meta_path(self.path), encode(about))

    def keep_intents(self, has_effects: Callable[[str], bool]) -> Journal | None:
        """Write down which calls are about to do something; who runs them tells the journal.

        `has_effects` says of a tool's name whether it may do anything but read. None when the
        transcript is no file that anybody could go on with: a pipe, a device.
        """
        self._has_effects = has_effects
        if self.path.exists() and not self.path.is_file():
            return None
        if self._journal is None:
            self._journal = Journal(
                intent_path(self.path), self._chain.fail, fsync=self._origin.fsync, boot=boot_id()
            )
        return self._journal

    def answer(self, history: Sequence[Mapping[str, object]]) -> None:
        """Open calls of the last message get the results that a history has for them.

        They are written when somebody speaks: who only looks at a session does not change it.
        """
        last = history[-1].get("content") if history else None
        for block in last if isinstance(last, list) else ():
            call_id = block.get("tool_use_id")
            if call_id in self._asked:
                self._answers[call_id] = block.get("content") or ""

    @property
    def session_id(self) -> SessionId:
        """The session that is recorded."""
        return self._origin.session_id

    @property
    def last(self) -> str | None:
        """The id of the line written last."""
        return self._chain.last

    @property
    def cwd(self) -> Path:
        """The folder that lines name."""
        return self._chain.envelope.cwd

    @property
    def results_folder(self) -> Path:
        """Where outputs too large for the conversation go; made by who writes there."""
        return results_folder(self.path)

    @property
    def open_calls(self) -> frozenset[CallId]:
        """Calls in the file that have no result there yet."""
        return frozenset(map(CallId, self._asked))

    def move(self, cwd: Path) -> None:
        """The session is in another folder; tell it before the result that brought it there."""
        if cwd != self.cwd:
            self._chain.envelope.move(cwd)

    def prompt(
        self,
        content: Content,
        *,
        meta: bool = False,
        prompt_id: str | None = None,
        is_news: bool = False,
    ) -> None:
        """Somebody speaks to the model; `meta` when it was not a person.

        `is_news`: work in the background has ended, and a turn begins with that.
        """
        self._begin()
        if self._answers:
            self._write_answers()
        if meta:
            self._user(content, _META)
            return
        self._turns += 1
        self._prompt = content if isinstance(content, str) else self._prompt
        self._chain.envelope.turn(prompt_id or self._origin.new_id())
        self._chain.envelope.refresh()
        more = entries.prompt_fields(self._shape, self.permission_mode, self._turns)
        if is_news:
            more = entries.news_fields(self._shape, more)
        self._user(content, more=b"" if self._sidechain else _fields(more))

    def reply(
        self,
        message: Mapping[str, object],
        *,
        request_id: str | None = None,
        at: float | None = None,
    ) -> None:
        """The model speaks: one line for each block of its message."""
        content = message.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        named = message if message.get("id") else {**message, "id": self._message_id()}
        self._put_blocks(*self._told(named, blocks, last=True, by=request_id), at)

    def reply_block(
        self,
        message: Mapping[str, object],
        block: Mapping[str, object],
        *,
        last: bool,
        request_id: str | None = None,
        at: float | None = None,
    ) -> None:
        """One block of a message, as it comes; the message has its `id`."""
        self._put_blocks(*self._told(message, [block], last=last, by=request_id), at)

    def result(self, finished: Finished) -> None:
        """A call has its result: its line, and what hooks and tool said beside it."""
        self._begin()
        call_id = finished.span.call.id
        if self._journal is not None and call_id in self._journal.begun:
            self._journal.settled(call_id, finished.span.state)
        if call_id in self._lost:
            self._lost.discard(call_id)
            self._held.pop(call_id, None)
            self._chain.fail(f"{call_id} is not in the file, so its result is left out")
            return
        for context in finished.contexts:
            if context.words is None:  # an objection was told with its handler
                self.hook(entries.as_hook(context, finished))
        if not finished.span.deferred:
            self._write_result(finished)
        for ran in self._held.pop(call_id, ()):
            self._write_hook(ran, finished.span.tool)
        for companion in finished.companions:
            beside = b',"turnCompanion":true' if self._shape.turn_companions else b""
            self._user(companion, _META + beside, at=finished.at)

    def hook(self, ran: HookRan) -> None:
        """A handler was run for a call."""
        late = ran.point.startswith("Post") or ran.outcome == "stopped"
        if late and ran.call_id in self._asked:
            self._held.setdefault(ran.call_id, []).append(ran)
        else:
            self._begin()
            self._write_hook(ran, self._tool(ran))

    def interrupted(self, *, tool_use: bool = True) -> None:
        """A person stopped the turn."""
        self._begin()
        text = entries.INTERRUPTED_TOOL if tool_use else entries.INTERRUPTED
        self._user([{"type": "text", "text": text}])

    def refused(self, refused: RefusedPrompt) -> None:
        """A handler took a prompt away."""
        self._system(refused_prompt(refused, self._origin.profile))

    def turn_ended(self, summary: StopSummary) -> None:
        """The handlers at the end of a turn were run."""
        self._system(stop_summary(summary))

    def compacted(self, compacted: Compacted) -> None:
        """The conversation goes on from a summary: nothing before it is sent any more."""
        self._begin()
        told = b',"type":"system"' + _fields(boundary(compacted, self.last))
        self._chain.put(told, root=True)
        self._user(compacted.summary, _SUMMARY)

    def retrying(self, trouble: Trouble) -> None:
        """A request failed and is made again."""
        self._system(retried(trouble))

    def failed(self, trouble: Trouble, words: str) -> None:
        """A request failed for good: the words that stand where the reply would."""
        self._begin()
        message = {"id": self._message_id(), "model": SYNTHETIC, "stop_reason": "stop_sequence"}
        fields = entries.message_fields(message)
        fields |= {"content": [{"type": "text", "text": words}], "stop_reason": "stop_sequence"}
        told = entries.reply_fields(fields, None, None)
        self._chain.put(told, _fields(given_up(trouble)))

    def turns_spent(self, most: int, turns: int) -> None:
        """The turn was ended because the model had spoken often enough."""
        if self._shape.hooks == "attachments":
            self._begin()
            told: entries.Fields = {"type": "max_turns_reached", "maxTurns": most}
            self._attach({**told, "turnCount": turns}, self._origin.clock())

    def _system(self, told: entries.Fields) -> None:
        self._begin()
        self._chain.put(b',"type":"system"' + _fields(told))

    def notice(self, text: str) -> None:
        """Work in the background has ended: the model is told within the turn."""
        self._begin()
        if self._shape.hooks == "attachments":
            self._attach(entries.queued_notice(text), self._origin.clock())
        else:
            self._user(text, _META)

    def emit(self, event: LiveEvent) -> None:
        """Take an event of the runner: transcripts have lines for two kinds of them."""
        match event:
            case Finished():
                self.result(event)
            case HookRan():
                self.hook(event)
            case _:
                pass

    def close(self) -> None:
        """Write what is left to write, and let the file go."""
        held, self._held = self._held, {}
        if held or self._owed or self.last:
            self._begin()
        for ran in (ran for late in held.values() for ran in late):
            self._write_hook(ran, self._tool(ran))
        if self.last and self._prompt is not None and not self._sidechain:
            told = entries.last_prompt(self._shape, self._prompt, self.last)
            self._prompt = None  # once: clients go by it to the end, which may be elsewhere later
            if told:
                self._chain.state({**told, "sessionId": self.session_id})
        self._chain.close()
        if self._journal is not None and self._own_journal:
            self._journal.close()

    def _begin(self) -> None:
        """Before each line: is the file there, and is a result owed to it?"""
        if not self._chain.begin():
            self._lost.update(self._asked)
            self._asked.clear()
            self._owed.clear()
        if self._owed:
            owed, self._owed = self._owed, []
            for finished in owed:
                self._write_result(finished)

    def _told(
        self, message: Mapping[str, object], blocks: list[_Block], *, last: bool, by: str | None
    ) -> tuple[list[_Block], list[bytes]]:
        """The blocks that get a line, and what it tells; `last`: the message ends with them."""
        if message["id"] != self._message:
            self._message, self._blocks = message["id"], 0
        fields, numbered = entries.message_fields(message), self._shape.blocks_numbered
        first = self._blocks
        self._blocks += len(blocks)
        end = self._blocks - 1 if last else self._blocks
        stops_at = first if self._shape.final_stop else end
        kept: list[_Block] = []
        told: list[bytes] = []
        for number, block in enumerate(blocks, first):
            if block.get("type") == "thinking" and not block.get("signature"):
                continue  # no server takes it back without
            fields["content"] = [block]
            if number >= stops_at:
                fields["stop_reason"] = message.get("stop_reason")
                fields["stop_sequence"] = message.get("stop_sequence")
            kept.append(block)
            told.append(entries.reply_fields(fields, number if numbered else None, by))
        return kept, told

    def _put_blocks(self, blocks: list[_Block], told: list[bytes], at: float | None) -> None:
        """The lines of a reply in one write; after one that the disk did not take, a new try."""
        more = b',"madeBy":"model"' if self._shape.blocks_numbered else b""
        if self._journal is not None:
            self._tell_asked(self._journal, blocks)
        while blocks:
            self._begin()
            uuids = self._chain.put_all(told, more, at=at)
            for block, uuid in zip(blocks, uuids, strict=False):
                if block.get("type") == "tool_use":
                    asked = _Asked(uuid, str(block.get("name")), block.get("input"))
                    self._asked[str(block.get("id"))] = asked
            kept = len(uuids)
            if kept == len(blocks):
                return
            if blocks[kept].get("type") == "tool_use":
                self._lost.add(str(blocks[kept].get("id")))
            blocks, told = blocks[kept + 1 :], told[kept + 1 :]

    def _tell_asked(self, journal: Journal, blocks: list[_Block]) -> None:
        """Calls that may do something are asked for."""
        acting = [
            str(one.get("id"))
            for one in blocks
            if one.get("type") == "tool_use" and self._has_effects(str(one.get("name")))
        ]
        if acting:
            journal.asked(acting)

    def _write_answers(self) -> None:
        """What was known of open calls when the session was gone on with, as clients tell it."""
        answers, self._answers = self._answers, {}
        last = self._chain.last
        for call_id, content in answers.items():
            asked = self._asked.pop(call_id, None)
            if asked is None:
                continue
            told = b',"toolUseResult":' + encode(content)
            if self._shape.decisions:
                told += b',"toolDenialKind":"interrupted"'
            if self._shape.parent_is_own_call:
                told += b',"sourceToolAssistantUUID":' + encode(asked.uuid)
            message = entries.result_message(call_id, content, is_error=True)
            self._chain.put(
                b',"type":"user","message":' + message,
                told,
                parent=asked.uuid if self._shape.parent_is_own_call else None,
                user=True,
            )
        if not self._within:  # somebody has spoken since: the conversation goes on from there
            self._chain.last = last

    def _write_result(self, finished: Finished) -> None:
        span, shape = finished.span, self._shape
        call_id, result = span.call.id, span.result
        asked = self._asked.get(call_id)
        source = asked.uuid if asked else None
        flag = result.is_error if result else None
        uuid = self._chain.put(
            b',"type":"user","message":'
            + entries.result_message(call_id, finished.content, is_error=flag),
            entries.beside_result(finished, source, shape, sidechain=self._sidechain),
            parent=source if shape.parent_is_own_call else None,
            at=finished.at,
            user=True,
        )
        if uuid is None:
            self._owed.append(finished)
        else:
            self._asked.pop(call_id, None)

    def _write_hook(self, ran: HookRan, tool: str) -> None:
        match self._shape.hooks:
            case "progress":
                told = entries.hook_progress(ran, tool)
                if told:
                    self._chain.put(b',"type":"progress"' + _fields(told), at=ran.at)
            case "attachments":
                attached = self._attachment(ran, tool)
                if attached:
                    self._attach(attached, ran.at)
            case "none":
                pass

    def _attachment(self, ran: HookRan, tool: str) -> entries.Fields | None:
        asked = self._asked.get(ran.call_id)
        if ran.outcome == "deferred" and asked:
            return entries.deferred(ran, tool, asked.input, self.permission_mode)
        return entries.hook_attachment(ran, tool)

    def _attach(self, attachment: entries.Fields, at: float) -> None:
        more: entries.Fields = {}
        words = entries.rendered(attachment) if self._shape.rendered else None
        if words is not None:
            reminder = f"<system-reminder>\n{words}\n</system-reminder>"
            more = {"rendered": [{"content": reminder}], "renderedRole": "system"}
        told = b',"attachment":' + encode(attachment) + b',"type":"attachment"'
        self._chain.put(told, _fields(more), at=at)

    def _tool(self, ran: HookRan) -> str:
        asked = self._asked.get(ran.call_id)
        return asked.tool if asked else ""

    def _user(
        self, content: Content, beside: bytes = b"", more: bytes = b"", at: float | None = None
    ) -> None:
        told = b',"type":"user","message":{"role":"user","content":%s}' % encode(content)
        self._chain.put(told + beside, more, at=at, user=True)

    def _message_id(self) -> str:
        return "msg_" + self._origin.new_id().replace("-", "")[:24]


def _any_tool(_: str) -> bool:
    return True


def _fields(told: entries.Fields) -> bytes:
    """Fields as a piece of a longer object."""
    return b"," + encode(told)[1:-1] if told else b""
