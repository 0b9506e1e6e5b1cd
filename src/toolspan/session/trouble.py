"""What went wrong with a model, as a transcript tells it."""

from toolspan.llm.model import ModelFailed, Retrying
from toolspan.record import Trouble


def trouble(failure: ModelFailed, retry: Retrying | None = None) -> Trouble:
    """A failure, and the retry that follows it if there is one."""
    return Trouble(
        message=failure.message,
        kind=failure.kind,
        status=failure.status,
        attempt=retry.attempt if retry else 0,
        of=retry.of if retry else 0,
        wait_s=retry.wait_s if retry else 0.0,
    )
