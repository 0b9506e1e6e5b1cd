"""When a conversation gets too long for its model: how long it may get, and what is asked then.

In: token counts and messages. Out: whether it is time, the request for a summary, and the words
that the conversation goes on from. Pure; `agent.py` asks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toolspan.llm.history import Message

ASK = """\
Leave the task for a moment and call no tool. The conversation is about to be cut, and you will go \
on from what you write now, without anything said before. Write down everything you need:

1. What was asked for, in the words that matter, and every wish or limit that was stated.
2. What was done: files that were read, made or changed (with their paths), commands and results.
3. What was found out, what was decided and why; errors and how they were met.
4. What is still open, and the very next step.

Be exact with names, paths and numbers. Write the notes alone."""

_BEFORE = (
    "The conversation so far was too long to go on with. These are the notes that were made of"
    " it:\n\n"
)
_AFTER = "\n\nGo on from there with the task as it stands; nobody needs to be told of this."


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much of a conversation fits into its model."""

    tokens: int = 200_000
    compact_at: float = 0.8
    """The share of it at which a summary takes the place of the conversation."""

    def is_spent(self, used: int) -> bool:
        """Whether it is time for a summary."""
        return used >= self.tokens * self.compact_at


def asking(messages: Sequence[Message]) -> list[Message]:
    """The conversation, with the request for a summary at its end."""
    told = [dict(message) for message in messages]
    question: dict[str, object] = {"type": "text", "text": ASK}
    last = told[-1] if told else None
    if last is not None and last["role"] == "user" and isinstance(last["content"], list):
        last["content"] = [*last["content"], question]
    else:
        told.append({"role": "user", "content": [question]})
    return told


def opening(summary: str) -> str:
    """What the conversation goes on from."""
    return f"{_BEFORE}{summary.strip()}{_AFTER}"


def tokens_in(usage: Mapping[str, object]) -> int:
    """How long the conversation is, by what its last reply has used."""
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens",
             "output_tokens")  # fmt: skip
    return sum(value for name in names if isinstance(value := usage.get(name), int))
