"""Run, record and read the tool calls of coding agents.

The public surface: everything here is loaded when it is first used, so that importing toolspan
costs next to nothing.
"""

TYPE_CHECKING = False  # typing's own constant would cost more to import than all the rest

if TYPE_CHECKING:
    from toolspan import patch, sample
    from toolspan.builtin import coding_tools
    from toolspan.errors import Ambiguous, NotFound, SourceError, ToolError, ToolspanError
    from toolspan.hooks.callbacks import Hooks
    from toolspan.model import inputs
    from toolspan.model.decision import Allow, Ask, Deny
    from toolspan.model.event import Event
    from toolspan.model.finding import Finding
    from toolspan.model.inputs import BashInput
    from toolspan.model.kind import ADVICE, kind_of
    from toolspan.model.span import Call, Result, Span
    from toolspan.model.state import State
    from toolspan.permission.rules import Rules
    from toolspan.read.checkup import check
    from toolspan.read.follow import follow
    from toolspan.read.history import History, history, transcripts
    from toolspan.read.transcript import Transcript, read
    from toolspan.run.context import ToolContext
    from toolspan.run.define import tool
    from toolspan.run.runner import Runner
    from toolspan.run.tool import Output
    from toolspan.run.toolset import Toolset
    from toolspan.session.session import Session
    from toolspan.wire import blocks
    from toolspan.wire import claude_results as results
    from toolspan.wire.blocks import extract, parse_result

_HOMES = {
    "ADVICE": "model.kind",
    "Allow": "model.decision",
    "Ambiguous": "errors",
    "Ask": "model.decision",
    "BashInput": "model.inputs",
    "Call": "model.span",
    "Deny": "model.decision",
    "Event": "model.event",
    "Finding": "model.finding",
    "History": "read.history",
    "Hooks": "hooks.callbacks",
    "NotFound": "errors",
    "Output": "run.tool",
    "Result": "model.span",
    "Rules": "permission.rules",
    "Runner": "run.runner",
    "Session": "session.session",
    "SourceError": "errors",
    "Span": "model.span",
    "State": "model.state",
    "ToolContext": "run.context",
    "ToolError": "errors",
    "Toolset": "run.toolset",
    "ToolspanError": "errors",
    "Transcript": "read.transcript",
    "check": "read.checkup",
    "coding_tools": "builtin",
    "extract": "wire.blocks",
    "follow": "read.follow",
    "history": "read.history",
    "kind_of": "model.kind",
    "parse_result": "wire.blocks",
    "tool": "run.define",
    "transcripts": "read.history",
}
_MODULES = {
    "blocks": "wire.blocks",
    "patch": "patch",
    "inputs": "model.inputs",
    "read": "read",
    "results": "wire.claude_results",
    "sample": "sample",
}

__all__ = [
    "ADVICE",
    "Allow",
    "Ambiguous",
    "Ask",
    "BashInput",
    "Call",
    "Deny",
    "Event",
    "Finding",
    "History",
    "Hooks",
    "NotFound",
    "Output",
    "Result",
    "Rules",
    "Runner",
    "Session",
    "SourceError",
    "Span",
    "State",
    "ToolContext",
    "ToolError",
    "Toolset",
    "ToolspanError",
    "Transcript",
    "blocks",
    "check",
    "coding_tools",
    "extract",
    "follow",
    "history",
    "inputs",
    "kind_of",
    "parse_result",
    "patch",
    "read",
    "results",
    "sample",
    "tool",
    "transcripts",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"toolspan.{_MODULES[name]}")
    if name in _HOMES:
        return getattr(import_module(f"toolspan.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'toolspan' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
