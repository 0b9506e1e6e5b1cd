"""An MCP server whose tools run in a session.

A call runs in its own task rather than in its request's, because in the newest protocol revision a
question to the user splits a call into several requests. When the client disconnects, running calls
are cancelled and recorded. Start at `serve`, then `McpService.call_tool`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import NamedTuple

import anyio
import anyio.abc
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    BlobResourceContents,
    CallToolRequestParams,
    CallToolResult,
    ClientCapabilities,
    ContentBlock,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
)

from toolspan.integrations.mcp_server.history import INSTRUCTIONS, HistoryService
from toolspan.integrations.mcp_server.listing import tool_listing
from toolspan.integrations.mcp_server.transport import StdioTransport
from toolspan.runtime.authorization import apply_permission_updates
from toolspan.runtime.outcome import approval_message
from toolspan.runtime.pending_call import PendingCall
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.permissions.suggestions import Suggestion, suggest_updates
from toolspan.runtime.profiles import Refusals
from toolspan.runtime.tool import Tool
from toolspan.session import Session
from toolspan.session.single_calls import SingleCallResult, SingleCallRunner
from toolspan.types.decision import Allow, Ask, Deny

_MAX_VALUE_CHARS = 2_000
_LINE_WIDTH = 76
_MAX_HEAD_CHARS = 3 * _LINE_WIDTH - 60
"""The maximum number of characters of the main value shown in the first lines."""
_MAIN_KEYS = ("command", "file_path", "notebook_path", "path", "url", "pattern", "query")
"""The input keys that best describe a call."""
_MIN_ANSWER_SECONDS = 0.25
"""The number of seconds below which a refusal is assumed to come from a program rather than a user."""


class ApprovalAnswer(NamedTuple):
    """A decision and its permission updates."""

    decision: Allow | Deny
    updates: tuple[Suggestion, ...] = ()
    unanswered: bool = False
    """True if the client did not ask a user."""


class ApprovalForm(NamedTuple):
    """The question, and the permission updates to apply if the answer is "session"."""

    params: ElicitRequestFormParams
    session_updates: tuple[Suggestion, ...]
    unanswered_denial: Deny

    def parse_answer(self, answer: ElicitResult, seconds: float) -> ApprovalAnswer:
        """Convert the client's answer to a decision. Anything but a clear yes is a denial.

        Clients without a user answer `cancel`, or immediately `decline` (`codex exec`).
        """
        if answer.action == "cancel" or (answer.action == "decline" and seconds < _MIN_ANSWER_SECONDS):
            return ApprovalAnswer(self.unanswered_denial, unanswered=True)
        if answer.action == "decline" or answer.content is None:
            return ApprovalAnswer(Deny(None, "user_reject"))
        match answer.content:
            case {"answer": "once"}:
                return ApprovalAnswer(Allow(None, "user_temporary"))
            case {"answer": "session"} if self.session_updates:
                return ApprovalAnswer(Allow(None, "user_session"), self.session_updates)
        comment = answer.content.get("comment")
        reason = comment.strip() if isinstance(comment, str) else ""
        return ApprovalAnswer(Deny(reason or None, "user_reject"))


def can_show_form(client: ClientCapabilities | None) -> bool:
    """Return whether the client supports form elicitation."""
    if client is None or client.elicitation is None:
        return False
    return client.elicitation.form is not None or client.elicitation.url is None


def make_form(request: PermissionRequest, ask: Ask, refusals: Refusals) -> ApprovalForm:
    """Return the form that asks the user about a call."""
    updates = suggest_updates(request, ask)
    if any(update["type"] == "addDirectories" for update in updates):
        updates = ()  # no rule can express them
    session_updates = tuple({**update, "destination": "session"} for update in updates)
    reason = approval_message(request, ask, refusals)
    choices = ["once", *(["session"] if session_updates else []), "deny"]
    schema: dict[str, object] = {
        "type": "object",
        "properties": {
            "answer": {"type": "string", "title": "May it run?", "enum": choices},
            "comment": {"type": "string", "title": "If not: what the model is told instead"},
        },
        "required": ["answer"],
    }
    message = "\n".join(_message_lines(request, reason, session_updates))
    params = ElicitRequestFormParams(message=message, requested_schema=schema)
    return ApprovalForm(params, session_updates, Deny(reason, "config", basis=ask.basis))


def _message_lines(request: PermissionRequest, reason: str, session_updates: tuple[Suggestion, ...]) -> Iterator[str]:
    """Yield the lines of the question, most important first, because clients may show only three."""
    main = next((key for key in _MAIN_KEYS if key in request.input), None)
    value = request.input if main is None else request.input[main]
    value_text = _single_line(value)
    whole = len(request.input) == 1 and main is not None and len(value_text) <= _MAX_HEAD_CHARS
    length = "" if len(value_text) <= _MAX_HEAD_CHARS else f" ({len(str(value))} characters, below)"
    head = f"{_single_line(request.tool)}{length}: {value_text[:_MAX_HEAD_CHARS]}"
    yield from (head[at : at + _LINE_WIDTH] for at in range(0, len(head), _LINE_WIDTH))
    yield f"why: {_single_line(reason)}"
    rule = f" · session: {', '.join(_describe_update(update) for update in session_updates)}" if session_updates else ""
    yield f"folder: {_single_line(request.cwd)}{rule}"
    for key, value in () if whole else request.input.items():
        yield f"{_single_line(key)}:"
        yield from (f"  | {line}" for line in _printable_text(value).split("\n"))


def _describe_update(update: Suggestion) -> str:
    rules = update.get("rules")
    if update["type"] != "addRules" or not isinstance(rules, list):
        return "edits in the session's folders"
    contents = [(rule["toolName"], rule.get("ruleContent")) for rule in rules]
    return ", ".join(_printable_text(f"{tool}({content})" if content else tool) for tool, content in contents)


def _single_line(value: object) -> str:
    return _printable_text(value).replace("\n", " ⏎ ")


def _printable_text(value: object) -> str:
    text = str(value)
    if len(text) > _MAX_VALUE_CHARS:
        half = _MAX_VALUE_CHARS // 2
        text = f"{text[:half]}\n[{len(text) - _MAX_VALUE_CHARS} characters left out]\n{text[-half:]}"
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


NO_APPROVER_NOTE = (
    "(toolspan: there is no user to ask. To allow the call, start the server with --allowed-tools or"
    " --permission-mode, or add a rule to the settings.)"
)


def call_tool_result(
    answer: SingleCallResult, tool: Tool | None, *, structured: bool, unanswered: bool = False
) -> CallToolResult:
    """Convert a call's result. `unanswered` means that a permission question was not answered."""
    finished = answer.finished
    content = [converted for block in answer.all_blocks() if (converted := _convert_block(block)) is not None]
    if unanswered or finished.span.error_kind == "not_granted":
        content.append(TextContent(text=NO_APPROVER_NOTE))
    meta: dict[str, object] = {
        "toolspan/callId": finished.call_id,
        "toolspan/state": finished.span.state,
        "toolspan/durationMs": round(finished.duration_ms, 3),
    }
    if finished.span.error_kind is not None:
        meta["toolspan/errorKind"] = finished.span.error_kind
    if finished.stop is not None:
        meta["toolspan/stop"] = finished.stop
    if answer.is_error:
        # Some clients (Claude Code up to 2.1.80) read only the first text of an error.
        texts = [block.text for block in content if isinstance(block, TextContent)]
        others = [block for block in content if not isinstance(block, TextContent)]
        content = [TextContent(text="\n".join(texts)), *others]
    result = CallToolResult(content=content, is_error=answer.is_error, _meta=meta)
    if structured and not answer.is_error and isinstance(finished.structured, dict):
        schema = None if tool is None else tool.output_schema
        if schema is None or Draft202012Validator(schema).is_valid(finished.structured):
            result.structured_content = finished.structured
    return result


def _convert_block(block: Mapping[str, object]) -> ContentBlock | None:
    match block:
        case {"type": "text", "text": str(text)}:
            return TextContent(text=text)
        case {"type": "image", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
            return ImageContent(data=data, mime_type=kind)
        case {"type": "document", "source": {"media_type": str(kind), "data": str(data)}}:
            resource = BlobResourceContents(uri="toolspan:document", mime_type=kind, blob=data)
            return EmbeddedResource(resource=resource)
        case {"type": kind}:
            return TextContent(text=f"[a block of type {kind}, which cannot be shown here]")
        case _:
            return None


ANSWER_TIMEOUT = 600.0
"""The number of seconds that a client has to return the user's answer."""
FIRST_PROGRESS_AFTER = 1.0
"""The number of seconds before the first progress notification. More follow every two seconds."""
_PROGRESS_INTERVAL = 2.0
_MAX_LINE_CHARS = 200
_INSTRUCTIONS = (
    "Tools to read, search and change files and to run commands in one folder. Calls may need"
    " the user's approval; a refused call returns the reason. Every call is recorded."
)
_APPROVAL_KEY = "consent"


async def serve(
    session: Session, transport: StdioTransport, *, structured: bool = False, history: Sequence[Tool] = ()
) -> None:
    """Serve a client until it disconnects. `structured` adds structured results.

    `history` are the tools of `history_tools`, whose calls are answered beside the session and not recorded.
    """
    async with anyio.create_task_group() as group:
        service = McpService(session, group, structured=structured, history=history)
        async with transport.open_streams() as (read, write):
            server = service.make_server()
            options = server.create_initialization_options(NotificationOptions())
            await server.run(read, write, options)
        group.cancel_scope.cancel()


class _ServedCall:
    """A running call and the request that is waiting for it."""

    def __init__(self, context: ServerRequestContext) -> None:
        self.context = context
        """The latest request that is waiting for the call."""
        self.scope = anyio.CancelScope()
        self.changed = anyio.Event()
        """Set when the call has a result or a question."""
        self.ended = anyio.Event()
        self.answer: SingleCallResult | None = None
        self.error: str | None = None
        self.form: ApprovalForm | None = None
        self.elicit_result = ElicitResult(action="cancel")
        self.client_returned = anyio.Event()
        """Set when the client has sent an answer."""
        self.pending: PendingCall | None = None
        self.unanswered = False


class McpService:
    """A handler for one client's requests."""

    def __init__(
        self,
        session: Session,
        group: anyio.abc.TaskGroup,
        *,
        structured: bool = False,
        history: Sequence[Tool] = (),
    ) -> None:
        self._session = session
        self._history = HistoryService(history)
        self._group = group
        self._structured = structured
        self._call_runner = SingleCallRunner(session)
        self._calls: dict[str, _ServedCall] = {}
        self._parked_calls: dict[str, _ServedCall] = {}
        """Calls that are waiting for an answer from their client, by token."""
        self._host_approver = session.runner.runner_context.approver

    def make_server(self) -> Server:
        """Create the SDK server that dispatches to this handler."""
        return Server(
            "toolspan",
            version=version("toolspan"),
            title="toolspan",
            instructions=f"{_INSTRUCTIONS} {INSTRUCTIONS}" if self._history.listings() else _INSTRUCTIONS,
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
        )

    async def list_tools(
        self, _context: ServerRequestContext, _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        """Return the session's tools."""
        tools = [tool for tool in self._session.runner.runner_context.tools if tool.enabled]
        listings = [tool_listing(tool, structured=self._structured) for tool in tools]
        return ListToolsResult(tools=[*listings, *self._history.listings()])

    async def call_tool(
        self, context: ServerRequestContext, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """Run a call, or continue one that waited for the user's answer.

        Raise MCPError if the client continues a call that is not waiting for it.
        """
        if self._history.offers(params.name):
            return await self._history.call_tool(context, params)
        if params.request_state is not None:
            served = self._parked_calls.pop(params.request_state, None)
            if served is None:
                raise MCPError(INVALID_PARAMS, "This call is not waiting for an answer")
            response = (params.input_responses or {}).get(_APPROVAL_KEY)
            served.elicit_result = response if isinstance(response, ElicitResult) else ElicitResult(action="cancel")
            served.context = context
            served.changed = anyio.Event()
            served.client_returned.set()
        else:
            if self._host_approver is None:  # there is only one client, and its latest capabilities apply
                can_ask = can_show_form(context.session.client_capabilities)
                self._session.runner.set_approver(self._ask_client if can_ask else None)
            served = _ServedCall(context)
            self._group.start_soon(self._run_call, served, params)
        try:
            return await self._wait_for_answer(served)
        except anyio.get_cancelled_exc_class():
            served.scope.cancel()
            with anyio.CancelScope(shield=True):
                await served.ended.wait()
            raise

    async def _run_call(self, served: _ServedCall, params: CallToolRequestParams) -> None:
        """Run a call to completion and record it, even if its requests are cancelled."""
        call_id = f"toolu_{uuid.uuid4().hex[:24]}"
        self._calls[call_id] = served

        def keep_pending(pending: PendingCall) -> None:
            served.pending = pending

        try:
            with served.scope:
                served.answer = await self._call_runner.run_call(
                    params.name, params.arguments or {}, call_id=call_id, on_accepted=keep_pending
                )
        except Exception as error:  # noqa: BLE001 - a fault of ours costs one call, not the server
            served.error = f"{type(error).__name__}: {error}"
        finally:
            del self._calls[call_id]
            self._session.spans.clear()  # a server runs for a long time and needs no history
            served.ended.set()
            served.changed.set()

    async def _wait_for_answer(self, served: _ServedCall) -> CallToolResult | InputRequiredResult:
        """Wait for the result, or for a question that must be answered first."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._report_progress, served)
            await served.changed.wait()
            group.cancel_scope.cancel()
        if served.answer is not None:
            tool = self._session.runner.runner_context.tools.find(served.answer.finished.span.tool)
            return call_tool_result(served.answer, tool, structured=self._structured, unanswered=served.unanswered)
        if served.form is None or served.ended.is_set():
            raise MCPError(INTERNAL_ERROR, served.error or "The call was ended")
        token = uuid.uuid4().hex
        self._parked_calls[token] = served
        elicitation = ElicitRequest(params=served.form.params)
        return InputRequiredResult(input_requests={_APPROVAL_KEY: elicitation}, request_state=token)

    async def _ask_client(self, request: PermissionRequest, ask: Ask) -> Allow | Deny:
        served = self._calls.get(request.call.id)
        if served is None:
            return Deny(None, "user_reject")
        form = make_form(request, ask, self._session.profile.refusals)
        began = anyio.current_time()
        result = ElicitResult(action="cancel")
        session = served.context.session
        if session.can_send_request:  # ask while the request waits, as in revisions up to 2025-11-25
            with suppress(MCPError, ValueError):  # an error, or an invalid answer
                result = await session.elicit_form(
                    form.params.message, form.params.requested_schema, served.context.request_id
                )
        else:  # return the question as the request's result, and wait for the client to send the answer
            served.form, served.client_returned, served.elicit_result = form, anyio.Event(), result
            served.changed.set()
            with anyio.move_on_after(ANSWER_TIMEOUT):
                await served.client_returned.wait()
            served.form = None
            self._parked_calls = {token: parked for token, parked in self._parked_calls.items() if parked is not served}
            result = served.elicit_result
        approval = form.parse_answer(result, anyio.current_time() - began)
        served.unanswered = approval.unanswered
        apply_permission_updates(approval.updates, self._session.runner.runner_context)
        return approval.decision

    async def _report_progress(self, served: _ServedCall) -> None:
        """Send the elapsed time and the last output line to a client that requested progress."""
        meta = served.context.meta
        if meta is None or meta.get("progress_token") is None:
            return
        wait = FIRST_PROGRESS_AFTER
        while True:
            await anyio.sleep(wait)
            wait = _PROGRESS_INTERVAL
            pending = served.pending
            if pending is not None and pending.started_at is not None and pending.finished is None:
                elapsed = self._session.runner.runner_context.clock() - pending.started_at
                partial_text = None if pending.tool_context is None else pending.tool_context.partial
                lines = partial_text().strip().splitlines() if partial_text is not None else []
                last_line = "".join(filter(str.isprintable, lines[-1][-_MAX_LINE_CHARS:])) if lines else ""
                message = last_line or f"{pending.call.tool} has been running for {elapsed:.0f} s"
                await served.context.session.report_progress(round(elapsed, 1), message=message)
