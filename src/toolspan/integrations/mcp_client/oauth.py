"""OAuth for remote servers, with the SDK's providers. Start at `ServerLogin.async_auth_flow`.

Outside `toolspan mcp login`, nobody is asked: a missing, expired or revoked login becomes a `LoginError`, which names
the command. Only requests that obtain tokens go through the SDK's flow, because that flow lets the requests to a server
wait for each other. The SDK forgets when a token expires and who issued it; `Login` keeps both.
"""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.abc
import h11
import httpx2
from anyio.abc import SocketAttribute
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, ValidationError

from toolspan.errors import SourceError
from toolspan.integrations.mcp_client.config import RemoteServer, is_loopback_url, is_safe_url
from toolspan.integrations.mcp_client.http import limit_response
from toolspan.integrations.mcp_client.logins import Login, LoginPrompt, LoginStore, login_key
from toolspan.integrations.mcp_client.protocol import LoginError
from toolspan.types.visible_text import escape_invisible

# The SDK logs each failure with a traceback; the errors raised here say the same in one sentence.
logging.getLogger("mcp.client.auth").addHandler(logging.NullHandler())

_OK, _UNAUTHORIZED, _FORBIDDEN, _TOO_MANY_REQUESTS, _SERVER_ERROR = 200, 401, 403, 429, 500
_REQUEST_SECONDS = 30.0
_MAX_ANSWER_BYTES = 1 << 20
_MAX_REASON_CHARS = 300
_MAX_CALLBACK_BYTES = 1 << 14
_CALLBACK_PATH = "/callback"
_LONG_AGO = 1.0
_CHALLENGE_FIELD = re.compile(r'(\w+)=(?:"([^"]*)"|([^\s,]+))')
_Model = TypeVar("_Model", bound=BaseModel)


class ServerLogin(httpx2.Auth):
    """The authentication of one connection: adds the token to requests, and renews or obtains it if needed."""

    def __init__(self, spec: RemoteServer, store: LoginStore, callback: _Callback | None = None) -> None:
        """Create an authentication. With `callback`, the user logs in anew; otherwise, nobody is asked."""
        self._spec = spec
        self._store = store
        self._callback = callback
        self._stamp: tuple[int, int, int] | None = None
        self._failure: LoginError | None = None
        options = spec.oauth
        self._asks_nobody = options.uses_client_credentials
        if options.uses_client_credentials:
            self._provider: OAuthClientProvider = ClientCredentialsOAuthProvider(
                spec.url,
                self,
                options.client_id or "",
                options.client_secret or "",
                scope=options.scopes,
                issuer=options.issuer,
            )
        else:
            redirect = AnyUrl(f"http://localhost:{callback.port if callback else 0}{_CALLBACK_PATH}")
            metadata = OAuthClientMetadata(redirect_uris=[redirect], client_name="toolspan")
            self._provider = OAuthClientProvider(
                spec.url,
                metadata,
                self,
                callback.show_url if callback else None,
                callback.wait_for_code if callback else None,
            )
        self._context = self._provider.context

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with a valid token.

        Raises:
            LoginError: the server needs a login, and there is none that it accepts.
        """
        self._load()
        if not self._context.is_token_valid() and self._context.can_refresh_token():
            await self._renew()
        token = self._add_token(request)
        response = yield request
        if response.status_code == _UNAUTHORIZED and token is not None and await self._replace(token):
            limit_response(response, _MAX_ANSWER_BYTES)
            token = self._add_token(request)
            response = yield request
        scopes = _missing_scopes(response)
        if response.status_code != _UNAUTHORIZED and scopes is None:
            return
        limit_response(response, _MAX_ANSWER_BYTES)
        if self._callback is None and not self._asks_nobody:
            raise self._make_error(
                "needs more permissions than this login has" if scopes is not None
                else "needs a login" if token is None
                else "does not accept its login any more: it has expired or was revoked",
                scopes=scopes,
            )  # fmt: skip
        if self._failure is not None:  # the user is not asked twice
            raise self._failure
        try:
            await self._authorize(response)
        except LoginError as error:
            self._failure = None if self._asks_nobody else error
            raise
        self._add_token(request)
        yield request

    async def _replace(self, token: str) -> bool:
        """Obtain another token than a refused one. Return False if there is no way to do so."""
        self._load()
        if self._token == token:  # no other request or process has renewed it
            if not self._context.can_refresh_token():
                return False
            self._context.token_expiry_time = _LONG_AGO
            await self._renew()
        return True

    async def _renew(self) -> None:
        """Renew an expired token. Raise LoginError if that fails; the stored login is then unchanged."""
        token = self._token
        request = httpx2.Request("POST", self._spec.url)
        flow = self._provider.async_auth_flow(request)
        try:
            renewal = await anext(flow)
            if renewal is request:  # another request has renewed the token meanwhile
                return
            response = await self._send(renewal)
            if response.status_code >= _SERVER_ERROR or response.status_code == _TOO_MANY_REQUESTS:
                raise self._make_error(
                    f"has a login that cannot be renewed now: {renewal.url.host} answered {response.status_code};"
                    " try again later, or"
                )
            if response.status_code != _OK:
                self._stamp = None
                self._load()
                if self._token != token and self._context.is_token_valid():  # another process has renewed it
                    return
                raise self._make_error("does not renew its login any more: it has expired or was revoked")
            await flow.asend(response)
            if not self._context.is_token_valid():
                raise self._make_error(f"has a login that cannot be renewed: {renewal.url.host} sent no valid token")
        finally:
            await flow.aclose()

    async def _authorize(self, response: httpx2.Response) -> None:
        """Obtain a first token, from the user or with the client's credentials."""
        options = self._spec.oauth
        if not is_safe_url(self._spec.url):
            raise self._make_error("needs https for a login", names_command=False)
        request = httpx2.Request("POST", self._spec.url)
        self._context.clear_tokens()
        flow = self._provider.async_auth_flow(request)
        try:
            await anext(flow)
            described = None
            if options.metadata_url is not None:
                described = await self._send(httpx2.Request("GET", options.metadata_url))
                described.raise_for_status()
            outgoing = await flow.asend(self._pin_scopes(response))
            while outgoing is not request:
                reply = _describe_server(outgoing, described, self._spec.url) if described is not None else None
                outgoing = await flow.asend(reply or await self._send(outgoing))
        except (OAuthFlowError, ValidationError, httpx2.HTTPError) as error:
            reason = " ".join(escape_invisible(str(error)).split())[:_MAX_REASON_CHARS]
            raise self._make_error(f"refused the login: {reason}", names_command=False) from error
        finally:
            await flow.aclose()

    async def revoke(self) -> bool:
        """Ask the authorization server to revoke the stored login. Return whether it has done so."""
        self._load()
        context = self._context
        tokens, metadata = context.current_tokens, context.oauth_metadata
        if tokens is None or metadata is None or metadata.revocation_endpoint is None or context.client_info is None:
            return False
        data = {"token": tokens.refresh_token or tokens.access_token, "client_id": context.client_info.client_id}
        try:
            data, headers = context.prepare_token_auth(data, {})
            url = str(metadata.revocation_endpoint)
            return (await self._send(httpx2.Request("POST", url, data=data, headers=headers))).is_success
        except (LoginError, OAuthFlowError):
            return False

    def _pin_scopes(self, response: httpx2.Response) -> httpx2.Response:
        """Return a server's refusal, with the configured scopes in place of those that it asks for."""
        scopes = (self._callback.prompt.scopes if self._callback else None) or self._spec.oauth.scopes
        if scopes is None:
            return response
        fields = {**_challenge(response), "scope": scopes}
        header = ", ".join(f'{name}="{value}"' for name, value in fields.items() if name != "error")
        return httpx2.Response(
            _UNAUTHORIZED, headers={"www-authenticate": f"Bearer {header}"}, request=response.request
        )

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request of the login itself. It leaves this machine only over https, and its answer is small."""
        url = str(request.url)
        if not is_safe_url(url) or (is_loopback_url(url) and not is_loopback_url(self._spec.url)):
            raise self._make_error(f"refers its login to an address without https: {url[:100]}", names_command=False)
        request.headers["accept-encoding"] = "identity"
        try:
            async with httpx2.AsyncClient(timeout=_REQUEST_SECONDS) as client:
                with anyio.fail_after(_REQUEST_SECONDS):
                    response = await client.send(request, stream=True)
                    limit_response(response, _MAX_ANSWER_BYTES)
                    await response.aread()
                    return response
        except (httpx2.HTTPError, TimeoutError) as error:
            reason = str(error) or f"no answer within {_REQUEST_SECONDS:g} s"
            raise self._make_error(
                f"has a login that cannot be checked now: {request.url.host}: {reason}; try again later, or"
            ) from error

    def _make_error(self, problem: str, *, scopes: str | None = None, names_command: bool = True) -> LoginError:
        message = escape_invisible(problem)
        if self._asks_nobody or not names_command:
            return LoginError(message.removesuffix(", or"))
        option = f" --scopes {shlex.quote(escape_invisible(scopes))}" if scopes else ""
        command = f"toolspan mcp login {shlex.quote(escape_invisible(self._spec.name))}{option}"
        return LoginError(f"{message}{'' if message.endswith(', or') else ';'} run `{command}`")

    @property
    def _token(self) -> str | None:
        tokens = self._context.current_tokens
        return tokens.access_token if tokens is not None else None

    def _add_token(self, request: httpx2.Request) -> str | None:
        """Add the token to a request and return it, or None if there is none."""
        token = self._token
        if token is not None and is_safe_url(str(request.url)):
            request.headers["authorization"] = f"Bearer {token}"
        return token

    def _load(self) -> None:
        """Use the stored login if another process, or a login meanwhile, has changed it."""
        if self._callback is not None or self._asks_nobody or (stamp := self._store.stamp()) == self._stamp:
            return
        try:
            login = self._store.read(login_key(self._spec))
        except SourceError as error:
            raise self._make_error(f"has a login that cannot be read; remove the file: {error}") from error
        self._stamp = stamp
        context = self._context
        context.clear_tokens()
        if login is not None:
            context.current_tokens = _validate(OAuthToken, login.tokens)
            context.client_info = _validate(OAuthClientInformationFull, login.client)
            context.oauth_metadata = _validate(OAuthMetadata, login.metadata)
            context.protected_resource_metadata = _validate(ProtectedResourceMetadata, login.resource)
            context.token_expiry_time = login.expires_at

    # The SDK's storage protocol. Its tokens and its client are already in the context.

    async def get_tokens(self) -> OAuthToken | None:
        """Return the current tokens."""
        return self._context.current_tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store new tokens with the client and the metadata."""
        if self._asks_nobody:
            return
        context = self._context
        login = Login(
            url=self._spec.url,
            tokens=_dump(tokens) or {},
            client=_dump(context.client_info) or {},
            expires_at=context.token_expiry_time,
            metadata=_dump(context.oauth_metadata),
            resource=_dump(context.protected_resource_metadata),
        )
        try:
            self._store.write(login_key(self._spec), login)
        except SourceError as error:
            raise self._make_error(f"has a new login that cannot be stored: {error}", names_command=False) from error
        self._stamp = self._store.stamp()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the registered client; None to register one."""
        options = self._spec.oauth
        if self._callback is None or options.client_id is None:
            return self._context.client_info
        return OAuthClientInformationFull(
            redirect_uris=None,
            client_id=options.client_id,
            client_secret=options.client_secret,
            token_endpoint_auth_method="client_secret_post" if options.client_secret else "none",
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Do nothing: the client is stored together with its first tokens."""


@asynccontextmanager
async def open_login(
    spec: RemoteServer, store: LoginStore, prompt: LoginPrompt | None
) -> AsyncIterator[ServerLogin | None]:
    """Yield the authentication for a connection; None if the configuration has an `Authorization` header."""
    if any(name.lower() == "authorization" for name in spec.headers):
        yield None
    elif prompt is None or spec.oauth.uses_client_credentials:
        yield ServerLogin(spec, store)
    else:
        async with _open_callback(prompt, spec.oauth.callback_port) as callback:
            yield ServerLogin(spec, store, callback)


class _Callback:
    """The address to which the browser returns after a login, and the result that it brings."""

    def __init__(self, prompt: LoginPrompt, port: int) -> None:
        self.prompt = prompt
        self.port = port
        self._state: str | None = None
        self._fields: Mapping[str, str] = {}
        self._arrived = anyio.Event()

    async def show_url(self, url: str) -> None:
        """Show the address of the login to the user. Raise OAuthFlowError if it is not a safe one to open."""
        if not is_safe_url(url):
            raise OAuthFlowError("its login page is not at an https address")
        self._state = _query(url).get("state")
        self.prompt.show_url(url)

    async def wait_for_code(self) -> AuthorizationCodeResult:
        """Wait until the user has logged in. Raise OAuthFlowError if they refuse, or do not within the time."""
        with anyio.move_on_after(self.prompt.timeout):
            async with anyio.create_task_group() as group:
                group.start_soon(self._read_redirects)
                await self._arrived.wait()
                group.cancel_scope.cancel()
        if not self._arrived.is_set():
            raise OAuthFlowError(f"nobody logged in within {self.prompt.timeout:g} seconds")
        fields = self._fields
        if "code" not in fields:
            raise OAuthFlowError(fields.get("error_description") or fields.get("error") or "no code")
        return AuthorizationCodeResult(code=fields["code"], state=fields.get("state"), iss=fields.get("iss"))

    def _read_result(self, url: str) -> dict[str, str] | None:
        """Return the result of the login in an address; None if it is not about this login."""
        fields = _query(url)
        is_result = self._state is not None and fields.get("state") == self._state
        return fields if is_result and urlsplit(url).path == _CALLBACK_PATH else None

    def _finish(self, fields: Mapping[str, str]) -> None:
        self._fields = fields
        self._arrived.set()

    async def _read_redirects(self) -> None:
        while self.prompt.read_redirect is not None and (url := await self.prompt.read_redirect()) is not None:
            if (fields := self._read_result(url.strip())) is not None:
                self._finish(fields)

    async def serve(self, stream: anyio.abc.SocketStream) -> None:
        """Answer one request of the browser."""
        protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_CALLBACK_BYTES)
        async with stream:
            try:
                with anyio.move_on_after(_REQUEST_SECONDS):
                    while (event := protocol.next_event()) is h11.NEED_DATA:
                        protocol.receive_data(await stream.receive())
                    if not isinstance(event, h11.Request):
                        return
                    fields = self._read_result(event.target.decode("latin-1")) if event.method == b"GET" else None
                    text = b"You can close this page now.\n" if fields else b"This is not the login in progress.\n"
                    headers = [("content-type", "text/plain"), ("content-length", str(len(text))),
                               ("connection", "close")]  # fmt: skip
                    head = h11.Response(status_code=_OK if fields else 400, headers=headers)
                    for piece in (head, h11.Data(data=text), h11.EndOfMessage()):
                        await stream.send(protocol.send(piece) or b"")
                    if fields:  # at last, because the command may end then
                        self._finish(fields)
            except (h11.ProtocolError, anyio.EndOfStream, anyio.BrokenResourceError):
                return


@asynccontextmanager
async def _open_callback(prompt: LoginPrompt, port: int) -> AsyncIterator[_Callback]:
    try:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    except OSError as error:
        raise LoginError(f"cannot listen on port {port} for the result of the login: {error.strerror}") from error
    async with listener, anyio.create_task_group() as group:
        callback = _Callback(prompt, listener.extra(SocketAttribute.local_port))
        group.start_soon(listener.serve, callback.serve)
        try:
            yield callback
        finally:
            group.cancel_scope.cancel()


def _describe_server(request: httpx2.Request, metadata: httpx2.Response, server_url: str) -> httpx2.Response | None:
    """Answer a request for discovery with the configured metadata. Return None for all other requests."""
    if request.method != "GET":
        return None
    if "oauth-protected-resource" not in str(request.url):
        return httpx2.Response(_OK, content=metadata.content, request=request)
    issuer = str(OAuthMetadata.model_validate_json(metadata.content).issuer)
    resource = {"resource": server_url, "authorization_servers": [issuer]}
    return httpx2.Response(_OK, json=resource, request=request)


def _challenge(response: httpx2.Response) -> dict[str, str]:
    """Return the fields of the `WWW-Authenticate` header."""
    header = response.headers.get("www-authenticate", "")
    return {name.lower(): quoted or plain for name, quoted, plain in _CHALLENGE_FIELD.findall(header)}


def _missing_scopes(response: httpx2.Response) -> str | None:
    """Return the scopes that a server requires in addition; None if the response is about something else."""
    if response.status_code != _FORBIDDEN:
        return None
    fields = _challenge(response)
    return fields.get("scope", "") if fields.get("error") == "insufficient_scope" else None


def _query(url: str) -> dict[str, str]:
    try:
        return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    except ValueError:
        return {}


def _validate(model: type[_Model], value: object) -> _Model | None:
    try:
        return None if value is None else model.model_validate(value)
    except ValidationError:
        return None


def _dump(value: BaseModel | None) -> dict[str, object] | None:
    return None if value is None else value.model_dump(mode="json", exclude_none=True, by_alias=True)
