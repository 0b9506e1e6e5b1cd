"""Serve agents to an editor over the Agent Client Protocol.

The editor starts this process and talks to it over standard input and output. Each of its conversations is a session
with an agent, recorded as any other. Start at `serve_editor` and `EditorAgent`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import Any, cast

import anyio
from acp import PROTOCOL_VERSION, RequestError
from acp.agent.connection import AgentSideConnection
from acp.helpers import ContentBlock, SessionUpdate, tool_diff_content, update_agent_message_text, update_current_mode
from acp.interfaces import Agent as AgentProtocol
from acp.schema import (
    AgentCapabilities,
    AllowedOutcome,
    HttpMcpServer,
    Implementation,
    InitializeResponse,
    LoadSessionResponse,
    McpCapabilities,
    McpServerStdio,
    NewSessionResponse,
    PermissionOption,
    PromptCapabilities,
    PromptResponse,
    SessionMode,
    SessionModeState,
    SetSessionModeResponse,
    SseMcpServer,
    StopReason,
    ToolCallUpdate,
)

from toolspan.errors import NotFound, ToolspanError
from toolspan.integrations.acp.updates import (
    EditorUpdates,
    call_kind,
    call_locations,
    call_title,
    prompt_blocks,
    replay_messages,
    text_content,
)
from toolspan.integrations.grants import DECISION_SOURCES, GrantOffer
from toolspan.integrations.mcp_server import StdioTransport
from toolspan.integrations.settings_session import ApproverSetup, SettingsOptions
from toolspan.runtime.authorization import apply_permission_updates
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.permissions.modes import Mode
from toolspan.session import Agent, AgentOptions, Session, TurnResult
from toolspan.session.agent import TurnEndReason
from toolspan.session.models.base import ModelEvent
from toolspan.tools.request_preview import explain_request, find_change, preview_request
from toolspan.tools.task_list import task_store
from toolspan.types.decision import Allow, Ask, Deny
from toolspan.types.events import LiveEvent

McpServerSpec = HttpMcpServer | SseMcpServer | McpServerStdio
_LOGGER = logging.getLogger("toolspan")
_BUFFER_BYTES = 50 << 20
"""The longest message of an editor; pictures may be large."""
_STOP_REASONS: Mapping[TurnEndReason, StopReason] = {
    "max_turns": "max_turn_requests", "max_tokens": "max_tokens", "refusal": "refusal",
    "aborted_tools": "cancelled", "aborted_streaming": "cancelled",
}  # fmt: skip
_MODES: Mapping[Mode, str] = {
    "default": "Ask before calls that change something",
    "acceptEdits": "Edit files in the project without asking",
    "plan": "Read and plan, change nothing",
    "dontAsk": "Deny what is not allowed, without asking",
    "bypassPermissions": "Run everything without asking",
}
_FREE_MODES: frozenset[Mode] = frozenset({"default", "acceptEdits", "plan"})
"""The modes that an editor may always select; the others only if the session has begun with them."""
_DISCONNECTED = Deny("The editor has disconnected.", "user_reject", stop=True)


@dataclass(slots=True)
class _Conversation:
    """A session that is open in the editor."""

    session: Session
    agent: Agent
    updates: asyncio.Queue[SessionUpdate]
    sender: asyncio.Task[None]
    first_mode: Mode
    shown_mode: str
    turn: asyncio.Task[TurnResult] | None = None

    async def interrupt(self) -> None:
        """End the turn and wait until its calls have their results."""
        if self.turn is None:
            return
        self.agent.interrupt()
        if not self.agent.is_busy:  # it has not begun yet, or is between two steps
            self.turn.cancel()
        await asyncio.wait([self.turn])

    async def close(self) -> None:
        """End the turn and the session."""
        await self.interrupt()
        await self.session.close()
        self.sender.cancel()


@dataclass(slots=True)
class EditorAgent:
    """The agent that an editor sees: its methods are those of the protocol."""

    options: SettingsOptions
    """The arguments of `Session.from_settings` for each conversation. `model` is required."""
    agent_options: AgentOptions
    connection: AgentSideConnection | None = None
    _conversations: dict[str, _Conversation] = field(default_factory=dict)

    def on_connect(self, connection: object) -> None:
        """Keep the connection."""
        self.connection = cast("AgentSideConnection", connection)

    async def initialize(self, protocol_version: int, **_: object) -> InitializeResponse:
        """Return what this agent supports."""
        return InitializeResponse(
            protocol_version=min(protocol_version, PROTOCOL_VERSION),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, audio=False, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True, sse=True),
            ),
            agent_info=Implementation(name="toolspan", version=version("toolspan")),
            auth_methods=[],
        )

    async def new_session(
        self, cwd: str, mcp_servers: list[McpServerSpec] | None = None, **_: object
    ) -> NewSessionResponse:
        """Start a conversation in a folder."""
        conversation = await self._open(cwd, mcp_servers, None)
        return NewSessionResponse(session_id=conversation.session.session_id, modes=_mode_state(conversation))

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: list[McpServerSpec] | None = None, **_: object
    ) -> LoadSessionResponse:
        """Continue a recorded conversation, and show it."""
        if (earlier := self._conversations.pop(session_id, None)) is not None:
            await earlier.close()
        conversation = await self._open(cwd, mcp_servers, session_id)
        for update in replay_messages(conversation.session.messages, conversation.session.cwd):
            conversation.updates.put_nowait(update)
        await conversation.updates.join()
        return LoadSessionResponse(modes=_mode_state(conversation))

    async def set_session_mode(self, mode_id: str, session_id: str, **_: object) -> SetSessionModeResponse:
        """Change the permission mode."""
        conversation = self._find(session_id)
        modes = {mode.id for mode in _mode_state(conversation).available_modes}
        if mode_id not in modes:
            raise _invalid(f"{mode_id!r} is not a mode of this session; use {', '.join(sorted(modes))}")
        context = conversation.session.runner.runner_context
        apply_permission_updates([{"type": "setMode", "mode": mode_id}], context)
        conversation.shown_mode = mode_id
        return SetSessionModeResponse()

    async def prompt(self, prompt: list[ContentBlock], session_id: str, **_: object) -> PromptResponse:
        """Run a turn. All updates are sent before this returns."""
        conversation = self._find(session_id)
        if conversation.turn is not None:
            raise _invalid("the previous prompt of this session is still running")
        try:
            blocks = prompt_blocks(prompt)
        except ToolspanError as error:
            raise _invalid(str(error)) from error
        conversation.turn = asyncio.create_task(conversation.agent.run_to_completion(blocks))
        try:
            ended = await conversation.turn
        except (ToolspanError, ValueError) as error:
            raise _invalid(str(error)) from error
        except asyncio.CancelledError:
            if not conversation.turn.cancelled():  # this method is cancelled, not the turn
                await conversation.interrupt()
                raise
            return PromptResponse(stop_reason="cancelled")
        finally:
            conversation.turn = None
            await conversation.updates.join()
        reason = _STOP_REASONS.get(ended.reason, "end_turn")
        if ended.reason == "model_error":
            raise RequestError(-32603, ended.error or "the model failed")
        if ended.error is not None and reason == "end_turn":
            conversation.updates.put_nowait(update_agent_message_text(f"\n\n{ended.error}"))
            await conversation.updates.join()
        return PromptResponse(stop_reason=reason)

    async def cancel(self, session_id: str, **_: object) -> None:
        """End the turn."""
        if (conversation := self._conversations.get(session_id)) is not None:
            await conversation.interrupt()

    async def close(self) -> None:
        """End all conversations, with their commands."""
        for conversation in self._conversations.values():
            await conversation.close()
        self._conversations.clear()

    # Conversations

    def _find(self, session_id: str) -> _Conversation:
        try:
            return self._conversations[session_id]
        except KeyError:
            raise _invalid(f"no session {session_id!r} is open") from None

    async def _open(self, cwd: str, mcp_servers: Iterable[McpServerSpec] | None, resume: str | None) -> _Conversation:
        updates: asyncio.Queue[SessionUpdate] = asyncio.Queue()

        def on_event(event: LiveEvent) -> None:
            for update in shown.from_event(event):
                updates.put_nowait(update)
            if (mode := session.permission_mode) != conversation.shown_mode:
                conversation.shown_mode = mode
                updates.put_nowait(update_current_mode(mode))

        def on_model_event(event: ModelEvent) -> None:
            for update in shown.from_model(event):
                updates.put_nowait(update)

        options: SettingsOptions = {
            **self.options,
            "resume": resume if resume is not None else False,
            "make_approver": partial(EditorApprover, self._ask),
            "direct": [*self.options.get("direct", ()), on_event],
            "mcp_config": _server_config(mcp_servers or ()) or self.options.get("mcp_config"),
        }
        try:
            session = await asyncio.to_thread(Session.from_settings, cwd, **options)  # the store may be far away
            shown = EditorUpdates(session.cwd, task_store(session.runner.runner_context.workspace))
            agent_options: AgentOptions = {**self.agent_options, "on_event": on_model_event}
            agent = session.make_agent(**agent_options)
            mode = cast("Mode", session.permission_mode)
            sender = asyncio.create_task(self._send_updates(session.session_id, updates))
            conversation = _Conversation(session, agent, updates, sender, mode, mode)
            try:
                await session.open()
            except BaseException:
                sender.cancel()
                raise
        except NotFound as error:
            raise RequestError(-32002, str(error)) from error
        except ToolspanError as error:
            raise RequestError(-32603, str(error)) from error
        self._conversations[session.session_id] = conversation
        return conversation

    async def _send_updates(self, session_id: str, updates: asyncio.Queue[SessionUpdate]) -> None:
        assert self.connection is not None
        while True:
            update = await updates.get()
            with suppress(ConnectionError):  # the editor is gone; the session is about to be closed
                await self.connection.session_update(session_id=session_id, update=update)
            updates.task_done()

    # Permission

    async def _ask(self, session_id: str, call: ToolCallUpdate, options: list[PermissionOption]) -> str | None:
        """Ask in the editor and return the chosen option; None if the user cancelled the turn.

        Raises:
            ConnectionError: the editor has disconnected.
        """
        assert self.connection is not None
        await self._conversations[session_id].updates.join()  # the editor must know the call
        answer = await self.connection.request_permission(session_id=session_id, tool_call=call, options=options)
        return answer.outcome.option_id if isinstance(answer.outcome, AllowedOutcome) else None


@dataclass(frozen=True, slots=True)
class EditorApprover:
    """An approver that asks in the editor."""

    ask_editor: Callable[..., Any]
    setup: ApproverSetup

    async def __call__(self, request: PermissionRequest, ask: Ask) -> Allow | Deny:
        """Return the user's answer."""
        if await self.setup.permissions.is_allowed(request, ask):
            return Allow(None, DECISION_SOURCES["session"])
        async with anyio.create_task_group() as group:
            group.start_soon(self.setup.notify, request.tool)
            try:
                answer = self._answer_question(request) if request.kind == "question" else self._decide(request, ask)
                decision = await answer
            except (ConnectionError, RequestError) as error:
                decision = _DISCONNECTED if isinstance(error, ConnectionError) else Deny(str(error), "user_reject")
            group.cancel_scope.cancel()
        return decision

    async def _decide(self, request: PermissionRequest, ask: Ask) -> Allow | Deny:
        problem = ""
        while True:
            offer = await self.setup.permissions.find_offer(request, ask)
            options = [
                PermissionOption(option_id="once", name="Allow once", kind="allow_once"),
                *(_always_options(offer) if offer is not None else ()),
                PermissionOption(option_id="deny", name="Deny", kind="reject_once"),
            ]
            chosen = await self._choose(request, options, problem or explain_request(request, ask))
            if chosen is None:
                return Deny(None, "user_reject", stop=True)
            if chosen == "once":
                return Allow(None, "user_temporary")
            scope = next((scope for scope in (offer.scopes if offer is not None else ()) if scope == chosen), None)
            if offer is None or scope is None:
                return Deny("The user did not allow this call.", "user_reject")
            try:
                if scope != "session":
                    self.setup.grant_writer.save_grant(offer, scope)
            except ToolspanError as error:
                problem = f"not saved, so nothing is allowed yet: {error}"
                continue
            self.setup.permissions.add_grant(offer)
            return Allow("; ".join(offer.summary_lines()), DECISION_SOURCES[scope])

    async def _choose(self, request: PermissionRequest, options: list[PermissionOption], note: str) -> str | None:
        change = find_change(request, self.setup.profile.files)
        if change is None:
            text = preview_request(request, self.setup.profile).text
            content = text_content(f"{text}\n\n{note}")
        else:
            content = [tool_diff_content(change.path, change.new, change.old), *text_content(note)]
        call = ToolCallUpdate(
            tool_call_id=request.call.id,
            title=call_title(request.tool, request.call.target),
            kind=call_kind(request.tool),
            status="pending",
            content=content,
            locations=call_locations(request.input, request.cwd),
            raw_input=dict(request.input),
        )
        return cast("str | None", await self.ask_editor(request.call.session_id, call, options))

    async def _answer_question(self, request: PermissionRequest) -> Allow | Deny:
        """Ask the questions of the model one after the other, with their options as answers."""
        answers: dict[str, str] = {}
        questions = request.input.get("questions")
        for question in questions if isinstance(questions, list) else ():
            labels = [str(option["label"]) for option in question["options"]]
            options = [
                PermissionOption(option_id=str(number), name=label, kind="allow_once")
                for number, label in enumerate(labels)
            ]
            options.append(PermissionOption(option_id="deny", name="Do not answer", kind="reject_once"))
            call = ToolCallUpdate(
                tool_call_id=request.call.id,
                title=str(question["question"]),
                kind="other",
                content=text_content(
                    "\n".join(f"- {option['label']}: {option.get('description', '')}" for option in question["options"])
                ),
            )
            chosen = await self.ask_editor(request.call.session_id, call, options)
            if chosen is None or not chosen.isdecimal() or int(chosen) >= len(labels):
                return Deny(None, "user_reject", stop=True)
            answers[str(question["question"])] = labels[int(chosen)]
        return Allow(None, "user_temporary", {**request.input, "answers": answers})


def _always_options(offer: GrantOffer) -> Iterator[PermissionOption]:
    places = {"session": "in this session", "local": "in this project", "user": "in all your projects"}
    subject = "; ".join(offer.summary_lines())
    for scope in offer.scopes:
        yield PermissionOption(option_id=scope, name=f"Always {places[scope]}: {subject}", kind="allow_always")


def _mode_state(conversation: _Conversation) -> SessionModeState:
    available = [
        SessionMode(id=mode, name=mode, description=description)
        for mode, description in _MODES.items()
        if mode in _FREE_MODES or mode == conversation.first_mode
    ]
    return SessionModeState(current_mode_id=conversation.session.permission_mode, available_modes=available)


def _server_config(servers: Iterable[McpServerSpec]) -> dict[str, object]:
    """Return the editor's MCP servers as in a configuration file."""
    specs: dict[str, object] = {}
    for server in servers:
        if isinstance(server, McpServerStdio):
            env = {variable.name: variable.value for variable in server.env}
            specs[server.name] = {"command": server.command, "args": server.args, "env": env}
        else:
            headers = {header.name: header.value for header in server.headers}
            specs[server.name] = {"type": server.type, "url": server.url, "headers": headers}
    return {"mcpServers": specs} if specs else {}


def _invalid(reason: str) -> RequestError:
    return RequestError(-32602, reason)


async def serve_editor(
    transport: StdioTransport, options: SettingsOptions, agent_options: AgentOptions | None = None
) -> None:
    """Serve an editor until it disconnects, then end its conversations."""
    loop = asyncio.get_running_loop()
    received, reader = asyncio.StreamReader(limit=_BUFFER_BYTES), asyncio.StreamReader(limit=_BUFFER_BYTES)
    with os.fdopen(os.dup(transport.source), "rb", 0) as source, os.fdopen(os.dup(transport.sink), "wb", 0) as sink:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(received), source)
        forwarding = asyncio.create_task(_forward_objects(received, reader))
        pipe, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), sink
        )
        writer = asyncio.StreamWriter(pipe, protocol, None, loop)
        agent = EditorAgent(options, agent_options or {})
        connection = AgentSideConnection(cast("AgentProtocol", agent), writer, reader, listening=False)
        try:
            await connection.listen()
        finally:
            with anyio.CancelScope(shield=True):
                forwarding.cancel()
                await agent.close()
                await connection.close()


async def _forward_objects(source: asyncio.StreamReader, target: asyncio.StreamReader) -> None:
    """Forward the lines that may be messages; any other JSON value would end the connection."""
    try:
        async for line in source:
            if line.lstrip().startswith(b"{"):
                target.feed_data(line)
    except ValueError as error:
        _LOGGER.warning("the editor sent a message that is too long: %s", error)
    finally:
        target.feed_eof()
