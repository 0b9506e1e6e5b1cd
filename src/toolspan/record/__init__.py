"""What a session says and runs, written as the client's own transcript. Start at `recorder.py`."""

from toolspan.record.chain import OnFailure
from toolspan.record.origin import Fsync, Origin
from toolspan.record.places import agent_path, results_folder, transcript_path
from toolspan.record.recorder import Recorder
from toolspan.record.system import RefusedPrompt, StopSummary

__all__ = [
    "Fsync",
    "OnFailure",
    "Origin",
    "Recorder",
    "RefusedPrompt",
    "StopSummary",
    "agent_path",
    "results_folder",
    "transcript_path",
]
