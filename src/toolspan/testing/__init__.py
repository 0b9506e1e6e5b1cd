"""For those who test: transcripts made by hand, and a model that follows a script.

Start at `TranscriptBuilder` (`bodies` has what the common tools give back) to test what reads
transcripts, at `ScriptedModel` to test an agent: as an object, or behind `ModelServer` as the
Messages API and as chat completions. `check_history` says what that API would refuse.
"""

from __future__ import annotations

from toolspan.session.models.history import check_history
from toolspan.session.models.scripted import (
    ApiError,
    ScriptedFailure,
    ScriptedModel,
    ScriptedReply,
    ScriptExhausted,
    cut,
    drop,
    fail,
    garble,
    last_result_texts,
    load_script,
    refuse,
    say,
    think,
    use,
)
from toolspan.testing.claude_builder import TranscriptBuilder
from toolspan.testing.claude_results import Body, project_name
from toolspan.testing.model_server import ModelServer

__all__ = [
    "ApiError",
    "Body",
    "ModelServer",
    "ScriptExhausted",
    "ScriptedFailure",
    "ScriptedModel",
    "ScriptedReply",
    "TranscriptBuilder",
    "check_history",
    "cut",
    "drop",
    "fail",
    "garble",
    "last_result_texts",
    "load_script",
    "project_name",
    "refuse",
    "say",
    "think",
    "use",
]
