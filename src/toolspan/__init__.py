"""Run, record and read the tool calls of coding agents.

The public surface: everything here is loaded when it is first used, so that importing toolspan
costs next to nothing.
"""

TYPE_CHECKING = False  # typing's own constant would cost more to import than all the rest

if TYPE_CHECKING:
    from toolspan import patch, sample
    from toolspan.errors import Ambiguous, NotFound, SourceError, ToolspanError
    from toolspan.model import inputs
    from toolspan.model.event import Event
    from toolspan.model.finding import Finding
    from toolspan.model.inputs import BashInput, EditInput, ReadInput, ToolInput, WriteInput
    from toolspan.model.kind import ADVICE, ErrorKind, kind_of
    from toolspan.model.message import Message
    from toolspan.model.place import Place
    from toolspan.model.span import Call, Evidence, Result, Span
    from toolspan.model.state import State
    from toolspan.model.tokens import Tokens
    from toolspan.read.checkup import Checkup, check
    from toolspan.read.follow import Follower, follow
    from toolspan.read.history import History, history, transcripts
    from toolspan.read.transcript import Transcript, read
    from toolspan.wire import blocks
    from toolspan.wire import claude_results as results
    from toolspan.wire.blocks import extract, parse_result

_HOMES = {
    "ADVICE": "model.kind",
    "Ambiguous": "errors",
    "BashInput": "model.inputs",
    "Call": "model.span",
    "Checkup": "read.checkup",
    "EditInput": "model.inputs",
    "ErrorKind": "model.kind",
    "Event": "model.event",
    "Evidence": "model.span",
    "Finding": "model.finding",
    "Follower": "read.follow",
    "History": "read.history",
    "Message": "model.message",
    "NotFound": "errors",
    "Place": "model.place",
    "ReadInput": "model.inputs",
    "Result": "model.span",
    "SourceError": "errors",
    "Span": "model.span",
    "State": "model.state",
    "Tokens": "model.tokens",
    "ToolInput": "model.inputs",
    "ToolspanError": "errors",
    "Transcript": "read.transcript",
    "WriteInput": "model.inputs",
    "check": "read.checkup",
    "extract": "wire.blocks",
    "follow": "read.follow",
    "history": "read.history",
    "kind_of": "model.kind",
    "parse_result": "wire.blocks",
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
    "Ambiguous",
    "BashInput",
    "Call",
    "Checkup",
    "EditInput",
    "ErrorKind",
    "Event",
    "Evidence",
    "Finding",
    "Follower",
    "History",
    "Message",
    "NotFound",
    "Place",
    "ReadInput",
    "Result",
    "SourceError",
    "Span",
    "State",
    "Tokens",
    "ToolInput",
    "ToolspanError",
    "Transcript",
    "WriteInput",
    "blocks",
    "check",
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
