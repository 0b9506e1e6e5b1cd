"""An MCP server whose tools run in a session.

In: a session that is entered, and a wire. Out: answers, until the client closes its side; every
call that was under way then is ended and recorded. A call runs in a task of its own and not in its
request's, because in the newest revision of the protocol a question to a person splits a call into
several requests. Read `serve`, then `Service.call_tool`.
"""

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

from toolspan.model.decision import Allow, Ask, Deny
from toolspan.permission.decide import Question
from toolspan.run.desk import Job
from toolspan.run.grants import apply
from toolspan.serve.answer import told
from toolspan.serve.consent import Form, can_be_asked, form_of
from toolspan.serve.offer import listed
from toolspan.serve.pipe import Wire
from toolspan.session import Session
from toolspan.session.lane import Answer, Lane

PATIENCE = 600.0
"""Seconds that a client has to come back with a person's answer."""
FIRST_NEWS = 1.0
"""Seconds until a client that wants to know hears that a call still runs; then every two."""
_NEWS = 2.0
_TAIL = 200
_INSTRUCTIONS = (
    "Tools to read, search and change files and to run commands in one folder. Calls may need"
    " somebody's consent; one that is refused is answered with the reason. Everything is recorded."
)
_CONSENT = "consent"


async def serve(session: Session, wire: Wire, *, structured: bool = False) -> None:
    """Answer a client until it leaves; with `structured`, results also as values for programs."""
    async with anyio.create_task_group() as group:
        service = Service(session, group, structured=structured)
        async with wire.streams() as (read, write):
            server = service.server()
            options = server.create_initialization_options(NotificationOptions())
            await server.run(read, write, options)
        group.cancel_scope.cancel()


class Visit:
    """A call under way, as its client sees it: waited for, asked about, answered."""

    def __init__(self, context: ServerRequestContext) -> None:
        self.context = context
        """The request that waits for it now, or did last."""
        self.scope = anyio.CancelScope()
        self.news = anyio.Event()
        """Set when it is answered, or somebody is to be asked."""
        self.ended = anyio.Event()
        self.answer: Answer | None = None
        self.fault: str | None = None
        self.form: Form | None = None
        self.heard = ElicitResult(action="cancel")
        self.returned = anyio.Event()
        """Set when the client has come back with an answer."""
        self.job: Job | None = None
        self.nobody = False
        """There was a question, and nobody to answer it."""

    def watch(self, job: Job) -> None:
        """Remember the call, to look at how far it is."""
        self.job = job


class Service:
    """Answers the requests of one client."""

    def __init__(
        self, session: Session, group: anyio.abc.TaskGroup, *, structured: bool = False
    ) -> None:
        self._session = session
        self._group = group
        self._structured = structured
        self._lane = Lane(session)
        self._visits: dict[str, Visit] = {}
        """Calls under way, by their id."""
        self._parked: dict[str, Visit] = {}
        """Calls whose client is to come back, by what it says then."""
        self._own_approver = session.runner.desk.approver

    def server(self) -> Server:
        """What speaks the protocol."""
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
        """The tools there are."""
        tools = [one for one in self._session.runner.desk.tools if one.enabled]
        return ListToolsResult(tools=[listed(one, structured=self._structured) for one in tools])

    async def call_tool(
        self, context: ServerRequestContext, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """Run a call, or go on with one about which a person was asked.

        Raises:
            MCPError: the client comes back to a call that does not wait for it.
        """
        if params.request_state is not None:
            visit = self._come_back(context, params)
        else:
            visit = self._begin(context, params)
        try:
            return await self._outcome(visit)
        except anyio.get_cancelled_exc_class():
            visit.scope.cancel()
            with anyio.CancelScope(shield=True):
                await visit.ended.wait()
            raise

    def _begin(self, context: ServerRequestContext, params: CallToolRequestParams) -> Visit:
        desk = self._session.runner.desk
        if self._own_approver is None:  # there is one client, and its latest word counts
            able = can_be_asked(context.session.client_capabilities)
            desk.approver = self._approve if able else None
        visit = Visit(context)
        self._group.start_soon(self._run, visit, params)
        return visit

    def _come_back(self, context: ServerRequestContext, params: CallToolRequestParams) -> Visit:
        visit = self._parked.pop(params.request_state or "", None)
        if visit is None:
            raise MCPError(INVALID_PARAMS, "This call does not wait for an answer (any more)")
        found = (params.input_responses or {}).get(_CONSENT)
        visit.heard = found if isinstance(found, ElicitResult) else ElicitResult(action="cancel")
        visit.context = context
        visit.news = anyio.Event()
        visit.returned.set()
        return visit

    async def _run(self, visit: Visit, params: CallToolRequestParams) -> None:
        """A call's own task: whatever becomes of its requests, it ends with a result on record."""
        call_id = f"toolu_{uuid.uuid4().hex[:24]}"
        self._visits[call_id] = visit
        given = params.arguments or {}
        try:
            with visit.scope:
                visit.answer = await self._lane.call(
                    params.name, given, call_id=call_id, watch=visit.watch
                )
        except Exception as error:  # noqa: BLE001 - a fault of ours costs one call, not the server
            visit.fault = f"{type(error).__name__}: {error}"
        finally:
            del self._visits[call_id]
            self._session.spans.clear()  # nobody reads them here, and servers live long
            visit.ended.set()
            visit.news.set()

    async def _outcome(self, visit: Visit) -> CallToolResult | InputRequiredResult:
        """The answer, or the question that has to be answered first."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._tell_progress, visit)
            await visit.news.wait()
            group.cancel_scope.cancel()
        if visit.answer is not None:
            return told(visit.answer, structured=self._structured, nobody=visit.nobody)
        if visit.form is None or visit.ended.is_set():
            raise MCPError(INTERNAL_ERROR, visit.fault or "The call was ended")
        token = uuid.uuid4().hex
        self._parked[token] = visit
        asked = ElicitRequest(params=visit.form.params)
        return InputRequiredResult(input_requests={_CONSENT: asked}, request_state=token)

    # Consent

    async def _approve(self, question: Question, ask: Ask) -> Allow | Deny:
        """Ask the person behind the client; an `Approver`."""
        visit = self._visits.get(question.call.id)
        if visit is None:
            return Deny(None, "user_reject")
        form = form_of(question, ask, self._session.profile.refusals)
        began = anyio.current_time()
        heard = await (
            self._elicit(visit, form)
            if visit.context.session.can_send_request
            else self._park(visit, form)
        )
        consent = form.read(heard, anyio.current_time() - began)
        visit.nobody = consent.nobody
        apply(consent.updates, self._session.runner.desk)
        return consent.decision

    async def _elicit(self, visit: Visit, form: Form) -> ElicitResult:
        """Ask while the request waits: revisions up to 2025-11-25."""
        context = visit.context
        try:
            return await context.session.elicit_form(
                form.params.message, form.params.requested_schema, context.request_id
            )
        except (MCPError, ValueError):  # an error, or an answer that is none
            return ElicitResult(action="cancel")

    async def _park(self, visit: Visit, form: Form) -> ElicitResult:
        """Answer the request with the question, and wait for the client to come back."""
        visit.form, visit.returned = form, anyio.Event()
        visit.heard = ElicitResult(action="cancel")
        visit.news.set()
        with anyio.move_on_after(PATIENCE):
            await visit.returned.wait()
        visit.form = None
        self._parked = {token: one for token, one in self._parked.items() if one is not visit}
        return visit.heard

    # Progress

    async def _tell_progress(self, visit: Visit) -> None:
        """Tell a client that wants to know how long a call has been running, and its last line."""
        meta = visit.context.meta
        if meta is None or meta.get("progress_token") is None:
            return
        wait = FIRST_NEWS
        while True:
            await anyio.sleep(wait)
            wait = _NEWS
            job = visit.job
            if job is not None and job.started is not None and job.finished is None:
                elapsed = self._session.runner.desk.clock() - job.started
                message = _last_line(job) or f"{job.call.tool} has been running for {elapsed:.0f} s"
                await visit.context.session.report_progress(round(elapsed, 1), message=message)


def _last_line(job: Job) -> str | None:
    """The last line a command has printed so far."""
    partial_text: Callable[[], str] | None = job.view.partial if job.view is not None else None
    if partial_text is None:
        return None
    lines = partial_text().strip().splitlines()
    return "".join(filter(str.isprintable, lines[-1][-_TAIL:])) if lines else None
