"""What a session says and runs, written as the client's own transcript. Start at `recorder.py`."""

from __future__ import annotations

from toolspan.formats.claude.evidence import CallEvidence, collect_evidence, intent_path
from toolspan.session.recording.chain import Fsync, OnFailure, RecorderConfig
from toolspan.session.recording.entries import Compaction, RefusedPrompt, RequestFailure, StopSummary
from toolspan.session.recording.intent_log import IntentLog
from toolspan.session.recording.recorder import Recorder
from toolspan.session.recording.resume import agent_path, results_folder, transcript_path

__all__ = [
    "CallEvidence",
    "Compaction",
    "Fsync",
    "IntentLog",
    "OnFailure",
    "Recorder",
    "RecorderConfig",
    "RefusedPrompt",
    "RequestFailure",
    "StopSummary",
    "agent_path",
    "collect_evidence",
    "intent_path",
    "results_folder",
    "transcript_path",
]
