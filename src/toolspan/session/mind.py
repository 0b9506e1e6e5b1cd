"""Whom hooks can ask: the model of a conversation, and an agent that may look around.

In: the model, a way to others by name, a way to make a session that changes nothing. Out: functions
for `Means(ask_model=..., ask_agent=...)`. What is asked is no part of the conversation.
"""

from collections.abc import Callable
from dataclasses import dataclass

from toolspan.errors import ToolspanError
from toolspan.llm.blocks import text_of
from toolspan.llm.model import Model, Request
from toolspan.llm.patient import complete
from toolspan.session.agent import Agent, Limits
from toolspan.session.session import Session

_MOST_TURNS = 50
_MOST_TOKENS = 4_096
_WORDS = "You judge one question. Look around with your tools where that helps; change nothing."


@dataclass(slots=True)
class Mind:
    """Answers what hooks ask."""

    model: Model
    find: Callable[[str | None], Model] | None = None
    """The model of a name; without it, all are asked of the same."""
    look: Callable[[], Session] | None = None
    """A session for whoever is to look around."""

    async def ask(self, prompt: str, name: str | None) -> str:
        """What a model says.

        Raises:
            ModelFailed: it says nothing.
            ToolError: there is no such model.
        """
        said: dict[str, object] = {"role": "user", "content": [{"type": "text", "text": prompt}]}
        request = Request(messages=[said], max_tokens=_MOST_TOKENS)
        blocks, _ = await complete(self._named(name), request)
        return text_of([done.block for done in blocks if done.block["type"] == "text"])

    async def ask_agent(self, prompt: str, name: str | None) -> str:
        """What an agent says that may look around.

        Raises:
            ToolspanError: it did not come to an end, or nobody can look around here.
        """
        if self.look is None:
            raise ToolspanError("nobody can look around here")
        async with self.look() as session:
            limits = Limits(turns=_MOST_TURNS, tokens=_MOST_TOKENS)
            agent = Agent(session, self._named(name), system=_WORDS, limits=limits)
            ended = await agent.prompt(prompt)
        if ended.is_error:
            raise ToolspanError(ended.error or ended.reason)
        return ended.text

    def _named(self, name: str | None) -> Model:
        return self.model if self.find is None else self.find(name)
