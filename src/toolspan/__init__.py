"""Run, record and read the tool calls of coding agents.

Every public name is imported on first use.
"""

from toolspan.lazy import lazy_exports

TYPE_CHECKING = False  # importing typing would cost more than everything else here

if TYPE_CHECKING:
    from toolspan import diffs
    from toolspan.analysis.live_sessions import live_sessions
    from toolspan.analysis.search.find import search
    from toolspan.archive.archive import Archive
    from toolspan.archive.filters import Filter
    from toolspan.errors import Ambiguous, NotFound, SourceError, ToolError, ToolspanError
    from toolspan.formats import blocks as blocks
    from toolspan.formats.blocks import extract, parse_result
    from toolspan.integrations.mcp_client.servers import McpServers
    from toolspan.reading import sample as sample
    from toolspan.reading.diagnostics import check, repair
    from toolspan.reading.follow import follow
    from toolspan.reading.history import History, history, transcripts
    from toolspan.reading.transcript import Transcript, read
    from toolspan.runtime.context import ToolContext
    from toolspan.runtime.hooks.callbacks import Hooks
    from toolspan.runtime.permissions import Permissions, PolicyStack
    from toolspan.runtime.permissions.rules import Rules
    from toolspan.runtime.runner import Runner
    from toolspan.runtime.sandbox import Sandbox
    from toolspan.runtime.tool import Output, Toolset, tool
    from toolspan.session.agent import Agent
    from toolspan.session.recording.recorder import Recorder
    from toolspan.session.session import Session
    from toolspan.stores.opening import open_store
    from toolspan.tools import coding_tools
    from toolspan.types import inputs as inputs
    from toolspan.types import results as results
    from toolspan.types.decision import Allow, Ask, Deny
    from toolspan.types.error_kinds import ADVICE, kind_of
    from toolspan.types.inputs import BashInput
    from toolspan.types.session import Finding
    from toolspan.types.span import Call, Event, Result, Span
    from toolspan.types.state import State

__all__ = [
    "ADVICE",
    "Agent",
    "Allow",
    "Ambiguous",
    "Archive",
    "Ask",
    "BashInput",
    "Call",
    "Deny",
    "Event",
    "Filter",
    "Finding",
    "History",
    "Hooks",
    "McpServers",
    "NotFound",
    "Output",
    "Permissions",
    "PolicyStack",
    "Recorder",
    "Result",
    "Rules",
    "Runner",
    "Sandbox",
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
    "diffs",
    "extract",
    "follow",
    "history",
    "inputs",
    "kind_of",
    "live_sessions",
    "open_store",
    "parse_result",
    "read",
    "repair",
    "results",
    "sample",
    "search",
    "tool",
    "transcripts",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "ADVICE": "types.error_kinds",
        "Agent": "session.agent",
        "Allow": "types.decision",
        "Ambiguous": "errors",
        "Archive": "archive.archive",
        "Ask": "types.decision",
        "BashInput": "types.inputs",
        "Call": "types.span",
        "Deny": "types.decision",
        "Event": "types.span",
        "Filter": "archive.filters",
        "Finding": "types.session",
        "History": "reading.history",
        "Hooks": "runtime.hooks.callbacks",
        "McpServers": "integrations.mcp_client.servers",
        "NotFound": "errors",
        "Output": "runtime.tool",
        "Permissions": "runtime.permissions",
        "PolicyStack": "runtime.permissions",
        "Recorder": "session.recording.recorder",
        "Result": "types.span",
        "Rules": "runtime.permissions.rules",
        "Sandbox": "runtime.sandbox",
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
        "blocks": "formats.blocks:*",
        "check": "reading.diagnostics",
        "coding_tools": "tools",
        "diffs": "diffs:*",
        "extract": "formats.blocks",
        "follow": "reading.follow",
        "history": "reading.history",
        "inputs": "types.inputs:*",
        "kind_of": "types.error_kinds",
        "live_sessions": "analysis.live_sessions",
        "open_store": "stores.opening",
        "parse_result": "formats.blocks",
        "read": "reading.transcript",
        "repair": "reading.diagnostics",
        "results": "types.results:*",
        "sample": "reading.sample:*",
        "search": "analysis.search.find",
        "tool": "runtime.tool",
        "transcripts": "reading.history",
    },
)


def __dir__() -> list[str]:
    return __all__
