"""What the runner emits, as lines of a transcript."""

from collections.abc import Mapping
from pathlib import Path

from toolspan.model.live import Finished, HookRan, LiveEvent, Requested
from toolspan.record import Recorder
from toolspan.run.blocks import call_block


class Scribe:
    """Writes results and hooks down as they come, and where the session is by then."""

    def __init__(self, recorder: Recorder, cwd: Path) -> None:
        self._recorder = recorder
        self._cwd = str(cwd)

    def take(self, event: LiveEvent, reply: Mapping[str, object]) -> None:
        """Write an event down, if it is one to be; `reply` is the one whose calls are run."""
        match event:
            case Finished():
                if event.cwd != self._cwd and event.cwd is not None:
                    self._recorder.move(Path(event.cwd))
                    self._cwd = event.cwd
                self._recorder.result(event)
            case HookRan():
                self._recorder.hook(event)
            case Requested() if event.recovers is not None:
                self._recorder.reply_block(reply, call_block(event.call), last=False)
            case _:
                pass
