"""Fakes and builders for tests.

`TranscriptBuilder` writes transcripts, with results from `claude_results`. `ScriptedModel` replaces
a model, either as an object or behind `ModelServer`, which serves the Messages API and chat
completions. `check_history` returns the problems for which that API would reject a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolspan.lazy import lazy_exports

if TYPE_CHECKING:
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
    from toolspan.testing.codex_builder import RolloutBuilder
    from toolspan.testing.model_server import ModelServer


__all__ = [
    "ApiError",
    "Body",
    "ModelServer",
    "RolloutBuilder",
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

_NAMES_BY_MODULE = {
    ".session.models.history": "check_history",
    ".session.models.scripted": (
        "ApiError ScriptedFailure ScriptedModel ScriptedReply ScriptExhausted cut drop fail garble last_result_texts"
        " load_script refuse say think use"
    ),
    "claude_builder": "TranscriptBuilder",
    "claude_results": "Body project_name",
    "codex_builder": "RolloutBuilder",
    "model_server": "ModelServer",
}
__getattr__ = lazy_exports(
    __name__, {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}
)
