"""The conversation, kept twice: as the messages that a server takes, as lines of the transcript.

In: what is said, when it is said. Out: `messages`, and the same as lines where there is a recorder.
Results and hooks are lines as soon as they come (`scribe.py`); here they only join the messages.
Who speaks while a reply is under way is put behind its results: no server takes words between a
call and its result. What may be said, and when, is the session's business.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from toolspan.llm.model import ModelFailed, Retrying
from toolspan.model.live import Content
from toolspan.record import Compacted, Recorder, Trouble
from toolspan.record.entries import INTERRUPTED
from toolspan.session.blocks import copied, words
from toolspan.session.incoming import Block, Incoming, sendable

Message = dict[str, object]


class _Prompt(NamedTuple):
    """What somebody said."""

    blocks: list[Block]
    content: Content
    turn: str | None


class Conversation:
    """What was said: to the model as messages, to whoever reads it later as lines."""

    def __init__(self, history: Sequence[Mapping[str, object]], recorder: Recorder | None) -> None:
        self.messages: list[Message] = copied(history)
        self.reply: Message = {}
        """The last reply that was written down; calls that belong to it hang on it."""
        self._recorder = recorder
        self.is_held = False
        """Whether a reply is under way: prompts wait."""
        self._waiting: list[_Prompt] = []

    def add_prompt(self, content: Content, before: Iterable[str], turn: str | None) -> list[Block]:
        """Somebody speaks, after words that stand before it; the blocks, to be added to.

        They are said at once, or when the reply that is under way has its results.
        """
        blocks = words(before)
        blocks += (
            [{"type": "text", "text": content}] if isinstance(content, str) else copied(content)
        )
        self._waiting.append(_Prompt(blocks, content, turn))
        if not self.is_held:
            self.release()
        return blocks

    def hold(self) -> None:
        """A reply is under way: who speaks now is heard after it."""
        self.is_held = True

    def release(self) -> bool:
        """The reply is there, and its results: what was said meanwhile comes now, if anything."""
        self.is_held = False
        waiting, self._waiting = self._waiting, []
        for prompt in waiting:
            self.messages.append({"role": "user", "content": prompt.blocks})
            if self._recorder is not None:
                self._recorder.prompt(prompt.content, prompt_id=prompt.turn)
        return bool(waiting)

    def add_news(self, texts: Sequence[str], turn: str | None) -> None:
        """A turn begins with news of the background."""
        self.add_words(texts)
        for text in texts:
            if self._recorder is not None:
                self._recorder.prompt(text, prompt_id=turn, is_news=True)

    def add_words(self, texts: Iterable[str]) -> None:
        """The model is to read this; as lines it is there already, or will be."""
        self.messages.append({"role": "user", "content": words(texts)})

    def add_reply(self, message: Message, blocks: list[Block]) -> None:
        """The model has spoken: its message, of which these blocks count."""
        if blocks and self._recorder is not None:
            if "id" not in message:
                message["id"] = f"msg_{uuid.uuid4().hex[:24]}"
            self.reply = message
            self._recorder.reply(message)
        self.add_heard(blocks)

    def add_block(self, incoming: Incoming, block: Block, *, last: bool) -> None:
        """A block of a reply that streams: a line now, part of a message with `add_heard`."""
        self.reply = incoming.head
        if self._recorder is not None:
            by = incoming.request_id
            self._recorder.reply_block(incoming.head, block, last=last, request_id=by)

    def add_heard(self, blocks: list[Block]) -> None:
        """The blocks of a reply whose lines are written, as a message."""
        sent = sendable(blocks)
        if sent:
            self.messages.append({"role": "assistant", "content": sent})

    def extend_reply(self, blocks: Iterable[Block]) -> None:
        """Calls that a recovery made stand in the reply like those the model asked for."""
        content = self.messages[-1]["content"]
        if isinstance(content, list):
            content.extend(blocks)

    def add_results(self, blocks: list[Block], interruption: str | None) -> None:
        """What the model reads of its calls, and how it is told that somebody ended them."""
        if interruption is not None:
            blocks = [*blocks, *words([interruption])]
            if self._recorder is not None:
                self._recorder.interrupted()
        if blocks:
            self.messages.append({"role": "user", "content": blocks})

    def add_interruption(self) -> None:
        """Somebody ended the turn while nothing ran."""
        self.add_words([INTERRUPTED])
        if self._recorder is not None:
            self._recorder.interrupted(tool_use=False)

    def begin_anew(self, summary: str, beside: Iterable[str]) -> None:
        """Nothing that was said before is sent any more."""
        self.messages = []
        self.add_words([summary, *beside])

    # Lines that are no part of the messages

    def note_compacted(self, compacted: Compacted) -> None:
        """A summary takes the place of what was said."""
        if self._recorder is not None:
            self._recorder.compacted(compacted)

    def note_news(self, texts: Iterable[str]) -> None:
        """News that the model is told within a turn."""
        for text in texts:
            if self._recorder is not None:
                self._recorder.notice(text)

    def note_retry(self, retry: Retrying) -> None:
        """A reply begins anew."""
        if self._recorder is not None:
            self._recorder.retrying(_trouble(retry.failure, retry))

    def note_failure(self, failure: ModelFailed) -> None:
        """There is no reply."""
        if self._recorder is not None:
            self._recorder.failed(_trouble(failure), failure.told())

    def note_turns_spent(self, most: int, turns: int) -> None:
        """The model has spoken often enough."""
        if self._recorder is not None:
            self._recorder.turns_spent(most, turns)


def _trouble(failure: ModelFailed, retry: Retrying | None = None) -> Trouble:
    """What went wrong with a model, as a transcript tells it."""
    return Trouble(
        message=failure.message,
        kind=failure.kind,
        status=failure.status,
        attempt=retry.attempt if retry else 0,
        of=retry.of if retry else 0,
        wait_s=retry.wait_s if retry else 0.0,
    )
