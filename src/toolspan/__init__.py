"""Run, record and read the tool calls of coding agents.

The public surface: everything here is loaded when it is first used, so that importing toolspan
costs next to nothing.
"""

TYPE_CHECKING = False  # importing typing would cost more than everything else here

if TYPE_CHECKING:
    from toolspan import diffs as patch
    from toolspan.errors import Ambiguous, NotFound, SourceError, ToolError, ToolspanError
    from toolspan.formats import blocks
    from toolspan.formats.blocks import extract, parse_result
    from toolspan.formats.claude import results
    from toolspan.reading import sample as sample
    from toolspan.reading.diagnostics import check
    from toolspan.reading.follow import follow
    from toolspan.reading.history import History, history, transcripts
    from toolspan.reading.transcript import Transcript, read
    from toolspan.runtime.context import ToolContext
    from toolspan.runtime.hooks.callbacks import Hooks
    from toolspan.runtime.permissions.modes import Permissions
    from toolspan.runtime.permissions.rules import Rules
    from toolspan.runtime.runner import Runner
    from toolspan.runtime.tool import Output, Toolset, tool
    from toolspan.session.session import Session
    from toolspan.tools import coding_tools
    from toolspan.types import inputs
    from toolspan.types.decision import Allow, Ask, Deny
    from toolspan.types.error_kinds import ADVICE, kind_of
    from toolspan.types.finding import Finding
    from toolspan.types.inputs import BashInput
    from toolspan.types.span import Call, Event, Result, Span
    from toolspan.types.state import State


_HOMES = {
    "ADVICE": "types.error_kinds",
    "Allow": "types.decision",
    "Ambiguous": "errors",
    "Ask": "types.decision",
    "BashInput": "types.inputs",
    "Call": "types.span",
    "Deny": "types.decision",
    "Event": "types.span",
    "Finding": "types.finding",
    "History": "reading.history",
    "Hooks": "runtime.hooks.callbacks",
    "NotFound": "errors",
    "Output": "runtime.tool",
    "Permissions": "runtime.permissions.modes",
    "Result": "types.span",
    "Rules": "runtime.permissions.rules",
    "Runner": "runtime.runner",
    "Session": "session.session",
    "SourceError": "errors",
    "Span": "types.span",
    "State": "types.state",
    "ToolContext": "runtime.context",
    "ToolError": "errors",
    "Toolset": "runtime.tool",
    "ToolspanError": "errors",
    "Transcript": "reading.transcript",
    "check": "reading.diagnostics",
    "coding_tools": "tools",
    "extract": "formats.blocks",
    "follow": "reading.follow",
    "history": "reading.history",
    "kind_of": "types.error_kinds",
    "parse_result": "formats.blocks",
    "read": "reading.transcript",
    "tool": "runtime.tool",
    "transcripts": "reading.history",
}
_MODULES = {
    "blocks": "formats.blocks",
    "patch": "diffs",
    "inputs": "types.inputs",
    "results": "formats.claude.results",
    "sample": "reading.sample",
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
    "Permissions",
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
