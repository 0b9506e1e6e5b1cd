"""Recording of sessions as transcripts in the client's format. Start at `recorder.py`."""

from __future__ import annotations

from toolspan.formats.evidence import CallEvidence, collect_evidence
from toolspan.formats.side_files import intent_path
from toolspan.session.recording.entries import (
    BackgroundNotice,
    Compaction,
    ConversationEvent,
    Fsync,
    Interruption,
    RecorderConfig,
    RefusedPrompt,
    RequestFailure,
    StopSummary,
    TurnLimitReached,
)
from toolspan.session.recording.recorder import OnFailure, Recorder
from toolspan.session.recording.stored import Durability, StoredTranscript, StoreOptions, StoreTarget
from toolspan.session.recording.writer import IntentLog, agent_path, check_session_id, results_folder, transcript_path

__all__ = [
    "BackgroundNotice",
    "CallEvidence",
    "Compaction",
    "ConversationEvent",
    "Durability",
    "Fsync",
    "IntentLog",
    "Interruption",
    "OnFailure",
    "Recorder",
    "RecorderConfig",
    "RefusedPrompt",
    "RequestFailure",
    "StopSummary",
    "StoreOptions",
    "StoreTarget",
    "StoredTranscript",
    "TurnLimitReached",
    "agent_path",
    "check_session_id",
    "collect_evidence",
    "intent_path",
    "results_folder",
    "transcript_path",
]
