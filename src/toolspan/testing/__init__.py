"""For those who test: transcripts made by hand, and a model that follows a script.

Start at `TranscriptBuilder` (`bodies` has what the common tools give back) to test what reads
transcripts, at `ScriptedModel` to test an agent: as an object, or behind `ModelServer` as the
Messages API and as chat completions. `check_history` says what that API would refuse.
"""

from toolspan.llm.history import check_history
from toolspan.llm.script import (
    Failure,
    Reply,
    cut,
    drop,
    fail,
    garble,
    load_script,
    refuse,
    results_of,
    say,
    think,
    use,
)
from toolspan.llm.scripted import ApiError, ScriptedModel, ScriptExhausted
from toolspan.testing.bodies import Body
from toolspan.testing.model_api import ModelServer
from toolspan.testing.shape import project_name
from toolspan.testing.transcripts import TranscriptBuilder

__all__ = [
    "ApiError",
    "Body",
    "Failure",
    "ModelServer",
    "Reply",
    "ScriptExhausted",
    "ScriptedModel",
    "TranscriptBuilder",
    "check_history",
    "cut",
    "drop",
    "fail",
    "garble",
    "load_script",
    "project_name",
    "refuse",
    "results_of",
    "say",
    "think",
    "use",
]
