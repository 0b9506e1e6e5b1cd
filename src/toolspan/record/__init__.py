"""What a session says and runs, written as the client's own transcript. Start at `recorder.py`."""

from toolspan.record.chain import OnFailure
from toolspan.record.evidence import Verdict, judged
from toolspan.record.intent import Journal, intent_path
from toolspan.record.origin import Fsync, Origin
from toolspan.record.places import agent_path, results_folder, transcript_path
from toolspan.record.recorder import Recorder
from toolspan.record.system import Compacted, RefusedPrompt, StopSummary, Trouble

__all__ = [
    "Compacted",
    "Fsync",
    "Journal",
    "OnFailure",
    "Origin",
    "Recorder",
    "RefusedPrompt",
    "StopSummary",
    "Trouble",
    "Verdict",
    "agent_path",
    "intent_path",
    "judged",
    "results_folder",
    "transcript_path",
]
