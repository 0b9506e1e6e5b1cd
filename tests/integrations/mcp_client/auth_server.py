"""An MCP server over HTTP that needs a login, with the SDK's authorization server beside it.

The person is played by `visit`, which opens the address of a login like a browser. All tokens are in memory.
"""

from __future__ import annotations

import base64
import secrets
import socket
import threading
import time
from typing import Any, Self
from urllib.parse import parse_qs

import httpx2
import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

CREDENTIALS = ("robot", "robot-secret")
"""The id and secret of a client that may use the grant `client_credentials`."""


class Provider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """An authorization server that agrees to everything unless told otherwise."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.refresh_tokens: dict[str, RefreshToken] = {}
        self.access_tokens: dict[str, AccessToken] = {}
        self.lifetime = 3_600
        self.refuses = False
        self.refusals = 0
        self.logins = 0
        self.renewals = 0

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        if self.refuses:
            self.refusals += 1
            raise AuthorizeError("access_denied", "the person said no")
        code = AuthorizationCode(
            code=secrets.token_urlsafe(),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        self.logins += 1
        del self.codes[authorization_code.code]
        return self.issue(client.client_id, authorization_code.scopes)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refresh_tokens.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if self.refresh_tokens.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant")
        self.renewals += 1
        return self.issue(client.client_id, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access_tokens.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.revoke_all()

    def issue(self, client_id: str, scopes: list[str]) -> OAuthToken:
        access, refresh = secrets.token_urlsafe(), secrets.token_urlsafe()
        self.access_tokens[access] = AccessToken(token=access, client_id=client_id, scopes=scopes)
        self.refresh_tokens[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=scopes)
        return OAuthToken(
            access_token=access, refresh_token=refresh, expires_in=self.lifetime, scope=" ".join(scopes) or None
        )

    def revoke_access(self) -> None:
        self.access_tokens.clear()

    def revoke_all(self) -> None:
        self.access_tokens.clear()
        self.refresh_tokens.clear()


class AuthServer:
    """The server in a thread, while its context is open."""

    def __init__(self) -> None:
        self.provider = Provider()
        self.token_status: int | None = None
        """The status of all answers to requests for tokens, if they shall fail."""
        self.sent_tokens: list[str] = []
        """The access tokens of all requests for the MCP server itself."""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server = uvicorn.Server(uvicorn.Config(self._make_app(), log_level="critical", lifespan="on"))
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()
        self._socket.close()

    def config(self, **oauth: object) -> dict[str, Any]:
        """Return the configuration of a client."""
        more = {"oauth": oauth} if oauth else {}
        return {"mcpServers": {"chaos": {"type": "http", "url": f"{self.url}/mcp", **more}}}

    def _make_app(self) -> ASGIApp:
        server = MCPServer(
            "private",
            auth=AuthSettings(
                issuer_url=AnyHttpUrl(self.url),
                resource_server_url=AnyHttpUrl(f"{self.url}/mcp"),
                validate_token_resource=False,
                client_registration_options=ClientRegistrationOptions(
                    enabled=True, valid_scopes=["read", "write"], default_scopes=["read"]
                ),
                revocation_options=RevocationOptions(enabled=True),
                required_scopes=["read"],
            ),
            auth_server_provider=self.provider,
        )

        @server.tool(structured_output=False)
        def echo(words: str) -> str:
            """Return the words."""
            return words

        inner = server.streamable_http_app()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            response = await self._intercept(scope, receive) if scope["type"] == "http" else None
            if response is None:
                await inner(scope, receive, send)
            else:
                await response(scope, receive, send)

        return app

    async def _intercept(self, scope: Scope, receive: Receive) -> Response | None:
        request = Request(scope)
        if scope["path"] == "/mcp":
            self.sent_tokens.append(request.headers.get("authorization", "").removeprefix("Bearer "))
        if scope["path"] == "/insecure-metadata":
            return JSONResponse({
                "issuer": self.url, "authorization_endpoint": "http://login.example.com/authorize",
                "token_endpoint": f"{self.url}/token", "registration_endpoint": f"{self.url}/register",
                "response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"],
            })  # fmt: skip
        if scope["path"] != "/token":
            return None
        if self.token_status is not None:
            return JSONResponse({"error": "server_error"}, self.token_status)
        scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
        if scheme != "Basic":
            return None
        fields = parse_qs((await Request(scope, receive).body()).decode())
        if tuple(base64.b64decode(credentials).decode().split(":")) != CREDENTIALS:
            return JSONResponse({"error": "invalid_client"}, 401)
        assert fields["grant_type"] == ["client_credentials"]
        token = self.provider.issue(CREDENTIALS[0], ["read"])
        return JSONResponse({"access_token": token.access_token, "token_type": "Bearer", "expires_in": 3_600})


def visit(url: str) -> None:
    """Open the address of a login as a browser does, without waiting for it."""

    def open_page() -> None:
        httpx2.get(url, follow_redirects=True)

    threading.Thread(target=open_page).start()
