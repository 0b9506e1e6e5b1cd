"""Ask for permission on the page of a running `toolspan ui`.

A server writes its address and its secret to a state file that only its user can read. `ask_page` posts a question to
it over loopback and waits for the answer; `WebApprover` does so for a session.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from toolspan.types.decision import RequestedFile

if TYPE_CHECKING:
    from toolspan.runtime.permissions.decide import Approver, PermissionRequest
    from toolspan.runtime.profiles import Profile
    from toolspan.types.decision import Allow, Ask, Deny

_ALL_ADDRESSES = ("0.0.0.0", "::")
_CONNECT_SECONDS = 5.0


class RunningServer(msgspec.Struct, frozen=True):
    """A running server, as described by its state file."""

    pid: int
    url: str
    """The address of the page, without a token."""
    roots: tuple[str, ...]
    host: str
    port: int
    secret: str
    """The secret with which programs authenticate."""

    @property
    def local_host(self) -> str:
        """The address at which this machine reaches the server."""
        return "127.0.0.1" if self.host in _ALL_ADDRESSES else self.host

    @property
    def headers(self) -> dict[str, str]:
        """The headers of requests."""
        return {"Authorization": f"Bearer {self.secret}", "Content-Type": "application/json"}

    def post(self, path: str, body: bytes) -> bytes | None:
        """Send a request that changes state. Return None if the server does not answer."""
        import http.client

        connection = http.client.HTTPConnection(self.local_host, self.port, timeout=_CONNECT_SECONDS)
        try:
            connection.request("POST", path, body, self.headers)
            response = connection.getresponse()
            return response.read() if response.status == http.client.OK else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


GrantScope = Literal["session", "local", "user"]


class AlwaysOffer(msgspec.Struct, frozen=True, kw_only=True):
    """The rules and folders that the answer "always" would allow, and the scopes in which it can be saved."""

    allows: tuple[str, ...]
    """The rules and folders as text."""
    scopes: Mapping[GrantScope, str]
    """The scopes, each with its description."""


class PermissionQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A permission question to show on the page."""

    tool: str
    input: Mapping[str, object]
    client: str
    """The program that asks: `toolspan` or `Claude Code`."""
    session: str | None = None
    call: str | None = None
    agent: str | None = None
    cwd: str | None = None
    text: str = ""
    """The whole command line, diff or input."""
    is_diff: bool = False
    files: tuple[RequestedFile, ...] = ()
    why: str | None = None
    seconds: float | None = None
    """The number of seconds to wait for an answer; None waits until the asking program ends."""
    needs_page: bool = False
    """True to skip the question if no page is open."""
    always: AlwaysOffer | None = None


class PageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The user's answer."""

    behavior: Literal["allow", "deny"]
    message: str | None = None
    """Instructions for the model in place of the call."""
    answers: Mapping[str, str] | None = None
    """The answers for an AskUserQuestion call, by question."""
    always: GrantScope | None = None
    """The scope in which to save the offered rules and folders, if any."""


def state_folder() -> Path:
    """Return the private folder for state files, in the user's runtime or cache folder."""
    base = os.environ.get("XDG_RUNTIME_DIR") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "toolspan" / "ui"


def running_servers() -> list[RunningServer]:
    """Return this user's responding servers, those that show all transcripts first. Remove stale state files."""
    servers = []
    for file in sorted(state_folder().glob("*.json")):
        try:
            server = msgspec.json.decode(file.read_bytes(), type=RunningServer)
        except (OSError, msgspec.MsgspecError):
            continue
        try:
            if _is_answering(server):
                servers.append(server)
            else:
                file.unlink(missing_ok=True)
        except TimeoutError:  # it runs, but is busy or stopped
            continue
    return sorted(servers, key=lambda server: bool(server.roots))


def _is_answering(server: RunningServer) -> bool:
    """Return whether a server answers, or raise TimeoutError if it accepts the request and is late."""
    import http.client  # perf: most starts find no state file

    try:
        os.kill(server.pid, 0)  # another program may be using the port now, and must not see the secret
    except ProcessLookupError:
        return False
    except OSError:
        pass
    connection = http.client.HTTPConnection(server.local_host, server.port, timeout=_CONNECT_SECONDS)
    try:
        connection.request("HEAD", "/api/questions", headers=server.headers)
        return connection.getresponse().status == http.client.OK
    except TimeoutError:
        raise
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class PageConnection:
    """A connection that asks one question."""

    def __init__(self, server: RunningServer) -> None:
        import http.client

        self.server = server
        self._connection = http.client.HTTPConnection(server.local_host, server.port)

    def ask(self, question: PermissionQuestion) -> PageAnswer | None:
        """Wait for the answer. Return None if there was none, or if the server stopped."""
        import http.client

        try:
            self._connection.request("POST", "/api/questions", msgspec.json.encode(question), self.server.headers)
            response = self._connection.getresponse()
            body = response.read()
            return msgspec.json.decode(body, type=PageAnswer | None) if response.status == http.client.OK else None
        except (OSError, http.client.HTTPException, msgspec.MsgspecError):
            return None
        finally:
            self._connection.close()

    def cancel(self) -> None:
        """Withdraw the question. `ask`, in another thread, returns None."""
        channel = self._connection.sock
        if channel is not None:
            try:
                channel.shutdown(socket.SHUT_RDWR)
            except OSError:
                return


def ask_page(question: PermissionQuestion) -> PageAnswer | None:
    """Ask on the page of this user's first server, and wait. Return None if there is no server or no answer."""
    server = next(iter(running_servers()), None)
    return None if server is None else PageConnection(server).ask(question)


class Grants(Protocol):
    """The rules and folders that a session's user has allowed with "always"."""

    async def is_allowed(self, request: PermissionRequest, ask: Ask) -> bool:
        """Return whether an earlier answer allows a request."""

    async def describe_offer(self, request: PermissionRequest, ask: Ask) -> AlwaysOffer | None:
        """Return the offer for the answer "always", or None if it cannot be offered."""

    async def grant(self, request: PermissionRequest, ask: Ask, scope: GrantScope) -> Allow:
        """Save the offered rules and folders. Raise ToolspanError if they cannot be saved."""


@dataclass(slots=True, kw_only=True)
class WebApprover:
    """An approver that asks on the page of a running `toolspan ui`. Several tasks may call it at once.

    If this user has no running server, or it stops without an answer, `fallback` is asked instead. Without a
    fallback, the call is denied.
    """

    fallback: Approver | None = None
    seconds: float | None = None
    """The number of seconds to wait for an answer; None waits as long as the server runs."""
    profile: Profile | None = None
    """The client version for refusals; None for the default one."""
    notify: Callable[[str], Coroutine[None, None, None]] | None = None
    """Called with the tool name when a question is asked, and cancelled when it is answered."""
    on_wait: Callable[[str, str], None] | None = None
    """Called with the tool name and the address of the page when a question is asked."""
    grants: Grants | None = None
    """The store for "always" answers; without it, the page does not offer them."""

    async def __call__(self, request: PermissionRequest, ask: Ask) -> Allow | Deny:
        """Ask the user and return the decision."""
        import anyio.to_thread

        from toolspan.errors import ToolspanError
        from toolspan.types.decision import Allow

        problem = ""
        while True:
            if self.grants is not None and await self.grants.is_allowed(request, ask):
                return Allow(None, "user_session")
            servers = await anyio.to_thread.run_sync(running_servers)
            answer = await self._ask(servers[0], request, ask, problem) if servers else None
            if answer is None:
                return await self._fall_back(request, ask)
            if answer.behavior == "deny" or answer.always is None or self.grants is None:
                return _decision(answer, request)
            try:
                return await self.grants.grant(request, ask, answer.always)
            except ToolspanError as error:
                problem = f"Not saved, so nothing is allowed yet: {error}"

    async def _ask(
        self, server: RunningServer, request: PermissionRequest, ask: Ask, problem: str
    ) -> PageAnswer | None:
        import anyio
        import anyio.to_thread

        question = self._question(request, ask, problem)
        if self.grants is not None and request.kind != "question":
            offer = await self.grants.describe_offer(request, ask)
            question = msgspec.structs.replace(question, always=offer)
        connection = PageConnection(server)
        if self.on_wait is not None:
            self.on_wait(request.tool, f"{server.url}live")
        answer: PageAnswer | None = None
        async with anyio.create_task_group() as group:
            if self.notify is not None:
                group.start_soon(self.notify, request.tool)
            try:
                answer = await anyio.to_thread.run_sync(
                    connection.ask, question, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
                )
            finally:
                connection.cancel()
                group.cancel_scope.cancel()
        return answer

    def _question(self, request: PermissionRequest, ask: Ask, problem: str) -> PermissionQuestion:
        from toolspan.tools.request_preview import explain_request, preview_request

        preview = preview_request(request, self._client_profile)
        return PermissionQuestion(
            tool=request.tool,
            input=request.input,
            client="toolspan",
            session=request.call.session_id,
            call=request.call.id,
            agent=request.call.agent_id,
            cwd=str(request.cwd),
            text=preview.raw_text,
            is_diff=preview.is_diff,
            files=preview.files,
            why=problem or explain_request(request, ask),
            seconds=self.seconds,
        )

    async def _fall_back(self, request: PermissionRequest, ask: Ask) -> Allow | Deny:
        from toolspan.runtime.outcome import approval_message
        from toolspan.types.decision import Deny

        if self.fallback is None:
            return Deny(approval_message(request, ask, self._client_profile.refusals), "config", basis=ask.basis)
        decision = self.fallback(request, ask)
        return await decision if isinstance(decision, Awaitable) else decision

    @property
    def _client_profile(self) -> Profile:
        from toolspan.runtime.profiles import DEFAULT, profile

        return self.profile or profile(DEFAULT)


def _decision(answer: PageAnswer, request: PermissionRequest) -> Allow | Deny:
    from toolspan.types.decision import Allow, Deny

    if answer.behavior == "deny":
        return Deny(answer.message, "user_reject") if answer.message else Deny(None, "user_reject", stop=True)
    if request.kind == "question" and answer.answers is not None:
        return Allow(None, "user_temporary", {**request.input, "answers": dict(answer.answers)})
    return Allow(None, "user_temporary")
