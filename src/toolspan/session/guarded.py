"""A model that anybody may have written: whatever goes wrong in it is a `ModelFailed`.

In: a model. Out: the same model; an exception that it does not mean to raise, and a block that is
none, end the reply as a lost connection does. Only what ends programs passes through.
"""

from contextlib import aclosing

from toolspan.llm.model import BlockDone, Model, ModelEvent, ModelFailed, Request, Stream

_MOST = 500
"""Characters of what an exception says."""


class Guarded:
    """A model whose faults are told, not raised."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """The model's own."""
        return self._model.name

    async def stream(self, request: Request) -> Stream:
        """The reply, as it comes.

        Raises:
            ModelFailed: there will be no reply, or no more of it.
        """
        try:
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    _check(event)
                    yield event
        except ModelFailed:
            raise
        except Exception as error:
            words = " ".join(f"{type(error).__name__}: {error}".split())[:_MOST]
            raise ModelFailed(f"the model has a fault: {words}", kind="fault") from error

    async def close(self) -> None:
        """Let its connections go."""
        await self._model.close()


def _check(event: ModelEvent) -> None:
    if isinstance(event, BlockDone) and not isinstance(event.block.get("type"), str):
        raise ModelFailed("the model has a fault: a block without a type", kind="fault")
