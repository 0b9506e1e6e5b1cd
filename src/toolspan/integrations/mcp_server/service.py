"""An MCP server whose tools run in a session.

A call runs in its own task, not in that of its request, because in the newest protocol revision a question to the user
splits a call into several requests. When the client disconnects, running calls are cancelled and recorded. Start at
`serve`, then `McpService.call_tool`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from importlib.metadata import version

import anyio
import anyio.abc
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
)

from toolspan.integrations.mcp_server.approval import ApprovalForm, can_show_form, make_form
from toolspan.integrations.mcp_server.tools import call_tool_result, tool_listing
from toolspan.integrations.mcp_server.transport import StdioTransport
from toolspan.runtime.authorization import apply_permission_updates
from toolspan.runtime.pending_call import PendingCall
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.session import Session
from toolspan.session.single_calls import SingleCallResult, SingleCallRunner
from toolspan.types.decision import Allow, Ask, Deny

ANSWER_TIMEOUT = 600.0
"""The seconds that a client has to return the user's answer."""
FIRST_PROGRESS_AFTER = 1.0
"""The seconds before the first progress notification; further ones follow every two seconds."""
_PROGRESS_INTERVAL = 2.0
_MAX_LINE_CHARS = 200
_INSTRUCTIONS = (
    "Tools to read, search and change files and to run commands in one folder. Calls may need"
    " somebody's consent; one that is refused is answered with the reason. Everything is recorded."
)
_APPROVAL_KEY = "consent"


async def serve(session: Session, transport: StdioTransport, *, structured: bool = False) -> None:
    """Serve a client until it disconnects; `structured` adds structured results."""
    async with anyio.create_task_group() as group:
        service = McpService(session, group, structured=structured)
        async with transport.open_streams() as (read, write):
            server = service.make_server()
            options = server.create_initialization_options(NotificationOptions())
            await server.run(read, write, options)
        group.cancel_scope.cancel()


class ServedCall:
    """A running call and the request that waits for it."""

    def __init__(self, context: ServerRequestContext) -> None:
        self.context = context
        """The latest request that waits for the call."""
        self.scope = anyio.CancelScope()
        self.changed = anyio.Event()
        """Set when the call has a result or a question."""
        self.ended = anyio.Event()
        self.answer: SingleCallResult | None = None
        self.error: str | None = None
        self.form: ApprovalForm | None = None
        self.elicit_result = ElicitResult(action="cancel")
        self.client_returned = anyio.Event()
        """Set when the client has returned with an answer."""
        self.pending: PendingCall | None = None
        self.unanswered = False
        """True if a question was not answered."""

    def set_pending(self, pending: PendingCall) -> None:
        """Store the pending call for progress reports."""
        self.pending = pending


class McpService:
    """A handler for the requests of one client."""

    def __init__(self, session: Session, group: anyio.abc.TaskGroup, *, structured: bool = False) -> None:
        self._session = session
        self._group = group
        self._structured = structured
        self._call_runner = SingleCallRunner(session)
        self._calls: dict[str, ServedCall] = {}
        """Running calls by id."""
        self._parked_calls: dict[str, ServedCall] = {}
        """Calls that wait for their client to return, by token."""
        self._host_approver = session.runner.runner_context.approver

    def make_server(self) -> Server:
        """Return the SDK's server."""
        return Server(
            "toolspan",
            version=version("toolspan"),
            title="toolspan",
            instructions=_INSTRUCTIONS,
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
        )

    async def list_tools(
        self, _context: ServerRequestContext, _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        """Return the tools of the session."""
        tools = [tool for tool in self._session.runner.runner_context.tools if tool.enabled]
        return ListToolsResult(tools=[tool_listing(tool, structured=self._structured) for tool in tools])

    async def call_tool(
        self, context: ServerRequestContext, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """Run a call, or continue one that waited for the user's answer.

        Raises:
            MCPError: the client continues a call that is not waiting for it.
        """
        if params.request_state is not None:
            served = self._resume_call(context, params)
        else:
            served = self._start_call(context, params)
        try:
            return await self._wait_for_answer(served)
        except anyio.get_cancelled_exc_class():
            served.scope.cancel()
            with anyio.CancelScope(shield=True):
                await served.ended.wait()
            raise

    def _start_call(self, context: ServerRequestContext, params: CallToolRequestParams) -> ServedCall:
        if self._host_approver is None:  # there is only one client, and its latest capabilities apply
            can_ask = can_show_form(context.session.client_capabilities)
            self._session.runner.set_approver(self._ask_client if can_ask else None)
        served = ServedCall(context)
        self._group.start_soon(self._run_call, served, params)
        return served

    def _resume_call(self, context: ServerRequestContext, params: CallToolRequestParams) -> ServedCall:
        served = self._parked_calls.pop(params.request_state or "", None)
        if served is None:
            raise MCPError(INVALID_PARAMS, "This call does not wait for an answer (any more)")
        response = (params.input_responses or {}).get(_APPROVAL_KEY)
        served.elicit_result = response if isinstance(response, ElicitResult) else ElicitResult(action="cancel")
        served.context = context
        served.changed = anyio.Event()
        served.client_returned.set()
        return served

    async def _run_call(self, served: ServedCall, params: CallToolRequestParams) -> None:
        """Run a call to its end and record it, even if its requests are cancelled."""
        call_id = f"toolu_{uuid.uuid4().hex[:24]}"
        self._calls[call_id] = served
        arguments = params.arguments or {}
        try:
            with served.scope:
                served.answer = await self._call_runner.run_call(
                    params.name, arguments, call_id=call_id, on_accepted=served.set_pending
                )
        except Exception as error:  # noqa: BLE001 - a fault of ours costs one call, not the server
            served.error = f"{type(error).__name__}: {error}"
        finally:
            del self._calls[call_id]
            self._session.spans.clear()  # a server runs for a long time and needs no history
            served.ended.set()
            served.changed.set()

    async def _wait_for_answer(self, served: ServedCall) -> CallToolResult | InputRequiredResult:
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
        """Ask the client's user, as an `Approver`."""
        served = self._calls.get(request.call.id)
        if served is None:
            return Deny(None, "user_reject")
        form = make_form(request, ask, self._session.profile.refusals)
        began = anyio.current_time()
        elicit_result = await (
            self._send_elicitation(served, form)
            if served.context.session.can_send_request
            else self._park_call(served, form)
        )
        approval = form.parse_answer(elicit_result, anyio.current_time() - began)
        served.unanswered = approval.unanswered
        apply_permission_updates(approval.updates, self._session.runner.runner_context)
        return approval.decision

    async def _send_elicitation(self, served: ServedCall, form: ApprovalForm) -> ElicitResult:
        """Ask while the request waits, in protocol revisions up to 2025-11-25."""
        context = served.context
        try:
            return await context.session.elicit_form(
                form.params.message, form.params.requested_schema, context.request_id
            )
        except (MCPError, ValueError):  # an error, or an invalid answer
            return ElicitResult(action="cancel")

    async def _park_call(self, served: ServedCall, form: ApprovalForm) -> ElicitResult:
        """Return the question as the request's result, and wait for the client to send the answer."""
        served.form, served.client_returned = form, anyio.Event()
        served.elicit_result = ElicitResult(action="cancel")
        served.changed.set()
        with anyio.move_on_after(ANSWER_TIMEOUT):
            await served.client_returned.wait()
        served.form = None
        self._parked_calls = {token: parked for token, parked in self._parked_calls.items() if parked is not served}
        return served.elicit_result

    async def _report_progress(self, served: ServedCall) -> None:
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
                message = _last_line(pending) or f"{pending.call.tool} has been running for {elapsed:.0f} s"
                await served.context.session.report_progress(round(elapsed, 1), message=message)


def _last_line(pending: PendingCall) -> str | None:
    """Return the last line that the command has printed."""
    partial_text: Callable[[], str] | None = pending.tool_context.partial if pending.tool_context is not None else None
    if partial_text is None:
        return None
    lines = partial_text().strip().splitlines()
    return "".join(filter(str.isprintable, lines[-1][-_MAX_LINE_CHARS:])) if lines else None
