"""Logins at remote servers with OAuth, at a real authorization server."""

from __future__ import annotations

import json
import stat
import webbrowser
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from tests.cli.command import one_row, run
from tests.integrations.mcp_client.auth_server import CREDENTIALS, AuthServer, visit
from tests.integrations.mcp_client.connect import ToolCaller, talk, text
from tests.limits import PATIENCE
from toolspan.errors import ToolspanError
from toolspan.integrations import LoginPrompt, McpServers
from toolspan.integrations.mcp_client import BadServers

pytestmark = pytest.mark.anyio

ANSWERS = LoginPrompt(show_url=visit, timeout=PATIENCE)


@pytest.fixture
def auth() -> Iterator[AuthServer]:
    with AuthServer() as server:
        yield server


def environment(folder: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(folder / "state")}


def stored(folder: Path) -> dict[str, Any]:
    """Return the only login in the file."""
    path = folder / "state" / "toolspan" / "mcp-logins.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (login,) = json.loads(path.read_text())["logins"].values()
    assert isinstance(login, dict)
    return login


async def log_in(folder: Path, auth: AuthServer, prompt: LoginPrompt = ANSWERS, **oauth: object) -> bool:
    servers = McpServers(auth.config(**oauth), environment=environment(folder))
    return await servers.login("chaos", prompt) is not None


def expire(folder: Path) -> None:
    """Let the stored access token expire."""
    path = folder / "state" / "toolspan" / "mcp-logins.json"
    logins = json.loads(path.read_text())
    for login in logins["logins"].values():
        login["expires_at"] = 2.0
    path.write_text(json.dumps(logins))


@asynccontextmanager
async def connected(folder: Path, auth: AuthServer, **oauth: object) -> AsyncIterator[ToolCaller]:
    async with talk(folder, servers=auth.config(**oauth), env=environment(folder)) as conversation:
        yield conversation


async def test_login_lets_later_processes_use_the_server(auth: AuthServer, tmp_path: Path) -> None:
    assert await log_in(tmp_path, auth)
    login = stored(tmp_path)
    async with connected(tmp_path, auth) as conversation:
        assert text(await conversation.call("echo", words="hi")) == "hi"

    assert (login["tokens"]["scope"], login["url"]) == ("read", f"{auth.url}/mcp")
    assert auth.provider.logins == 1


async def test_server_without_a_login_names_the_command(auth: AuthServer, tmp_path: Path) -> None:
    async with connected(tmp_path, auth) as conversation:
        assert conversation.health.state == "failed"
        assert conversation.health.reason == "needs a login; run `toolspan mcp login chaos`"

    assert auth.provider.clients == {}


async def test_expired_token_is_renewed_and_stored(auth: AuthServer, tmp_path: Path) -> None:
    await log_in(tmp_path, auth)
    before = stored(tmp_path)
    expire(tmp_path)
    async with connected(tmp_path, auth) as conversation:
        assert text(await conversation.call("echo", words="hi")) == "hi"

    assert stored(tmp_path)["tokens"]["refresh_token"] != before["tokens"]["refresh_token"]
    assert auth.provider.renewals == 1


async def test_revoked_token_is_renewed_in_the_middle_of_a_session(auth: AuthServer, tmp_path: Path) -> None:
    await log_in(tmp_path, auth)
    async with connected(tmp_path, auth) as conversation:
        auth.provider.revoke_access()
        calls = [("echo", {"words": f"{n}"}) for n in range(4)]
        done = await conversation.calls(*calls)

    assert [text(item) for item in done] == ["0", "1", "2", "3"]
    assert auth.provider.renewals == 1


async def test_revoked_login_is_an_error_until_the_user_logs_in_again(auth: AuthServer, tmp_path: Path) -> None:
    await log_in(tmp_path, auth)
    async with connected(tmp_path, auth) as conversation:
        auth.provider.revoke_all()
        bad = await conversation.call("echo", words="hi")
        before = stored(tmp_path)
        await log_in(tmp_path, auth)
        good = await conversation.call("echo", words="hi")

    assert bad.span.state == "failed"
    assert text(bad) == (
        "The MCP server 'chaos' does not renew its login any more: it has expired or was revoked;"
        " run `toolspan mcp login chaos`"
    )
    assert before["tokens"]["refresh_token"]  # a failure does not remove what is stored
    assert text(good) == "hi"


async def test_authorization_server_that_fails_leaves_the_login_as_it_is(auth: AuthServer, tmp_path: Path) -> None:
    await log_in(tmp_path, auth)
    expire(tmp_path)
    before = stored(tmp_path)
    auth.token_status = 500
    async with connected(tmp_path, auth) as conversation:
        assert conversation.health.reason == (
            "has a login that cannot be renewed now: 127.0.0.1 answered 500; try again later, or"
            " run `toolspan mcp login chaos`"
        )
    assert stored(tmp_path) == before

    auth.token_status = None
    async with connected(tmp_path, auth) as conversation:
        assert text(await conversation.call("echo", words="hi")) == "hi"


async def test_login_renewed_by_another_process_is_used(auth: AuthServer, tmp_path: Path) -> None:
    await log_in(tmp_path, auth)
    first_token = stored(tmp_path)["tokens"]["access_token"]
    async with connected(tmp_path, auth) as first:
        expire(tmp_path)
        async with connected(tmp_path, auth) as second:  # renews, so the token of the first one is used up
            auth.provider.access_tokens.pop(first_token)
            assert text(await second.call("echo", words="a")) == "a"
            assert text(await first.call("echo", words="b")) == "b"

    assert auth.provider.renewals == 1


async def test_refused_login_keeps_the_earlier_one(auth: AuthServer, tmp_path: Path) -> None:
    await log_in(tmp_path, auth)
    before = stored(tmp_path)
    auth.provider.refuses = True
    with pytest.raises(ToolspanError, match="refused the login: the person said no"):
        await log_in(tmp_path, auth)
    assert stored(tmp_path) == before
    assert auth.provider.refusals == 1


async def test_login_that_nobody_completes_ends(auth: AuthServer, tmp_path: Path) -> None:
    prompt = LoginPrompt(show_url=lambda _: None, timeout=0.01)
    with pytest.raises(ToolspanError, match="nobody logged in within"):
        await log_in(tmp_path, auth, prompt)


async def test_login_page_without_https_is_not_opened(auth: AuthServer, tmp_path: Path) -> None:
    opened: list[str] = []
    with pytest.raises(ToolspanError, match="its login page is not at an https address"):
        await log_in(
            tmp_path, auth, LoginPrompt(show_url=opened.append),
            authServerMetadataUrl=f"{auth.url}/insecure-metadata",
        )  # fmt: skip
    assert opened == []


async def test_redirect_of_another_machine_is_pasted_and_a_foreign_one_is_ignored(
    auth: AuthServer, tmp_path: Path
) -> None:
    send, receive = anyio.create_memory_object_stream[str](9)

    def copy_address(url: str) -> None:
        response = httpx2.get(url)
        send.send_nowait("http://localhost:1/callback?code=evil&state=other")
        send.send_nowait(response.headers["location"])

    with send, receive:
        prompt = LoginPrompt(show_url=copy_address, read_redirect=receive.receive)
        assert await log_in(tmp_path, auth, prompt)


async def test_configured_client_scopes_and_metadata_are_used(auth: AuthServer, tmp_path: Path) -> None:
    body = {"redirect_uris": ["http://localhost:41999/callback"], "token_endpoint_auth_method": "client_secret_post"}
    client = httpx2.post(f"{auth.url}/register", json={**body, "scope": "read write"}).json()
    options = {
        "clientId": client["client_id"],
        "callbackPort": 41999,
        "scopes": "read write",
        "authServerMetadataUrl": f"{auth.url}/.well-known/oauth-authorization-server",
    }
    variables = {**environment(tmp_path), "MCP_CLIENT_SECRET": client["client_secret"]}
    login = await McpServers(auth.config(**options), environment=variables).login("chaos", ANSWERS)

    assert login is not None
    assert login.tokens["scope"] == "read write"
    assert list(auth.provider.clients) == [client["client_id"]]
    expire(tmp_path)
    async with connected(tmp_path, auth, **options) as conversation:
        assert text(await conversation.call("echo", words="hi")) == "hi"


async def test_other_configuration_of_the_same_name_gets_no_token(auth: AuthServer, tmp_path: Path) -> None:
    await log_in(tmp_path, auth)
    token = stored(tmp_path)["tokens"]["access_token"]
    with AuthServer() as thief:
        async with connected(tmp_path, thief) as conversation:
            assert conversation.health.state == "failed"
        other = {"authServerMetadataUrl": f"{thief.url}/.well-known/oauth-authorization-server"}
        auth.provider.revoke_access()
        async with connected(tmp_path, auth, **other) as conversation:
            assert "needs a login" in str(conversation.health.reason)

    assert token not in thief.sent_tokens


async def test_client_credentials_need_no_person(auth: AuthServer, tmp_path: Path) -> None:
    name, secret = CREDENTIALS
    options = {"grantType": "client_credentials", "clientId": name, "issuer": auth.url}
    async with connected(tmp_path, auth, **options, clientSecret=secret) as conversation:
        assert text(await conversation.call("echo", words="hi")) == "hi"
        auth.provider.revoke_access()
        assert text(await conversation.call("echo", words="again")) == "again"
    async with connected(tmp_path, auth, **options, clientSecret="wrong") as conversation:
        assert "refused the login" in str(conversation.health.reason)
        assert "invalid_client" in str(conversation.health.reason)


async def test_logout_revokes_and_removes_the_login(auth: AuthServer, tmp_path: Path) -> None:
    await log_in(tmp_path, auth)
    servers = McpServers(auth.config(), environment=environment(tmp_path))

    assert await servers.logout("chaos") is True
    assert await servers.logout("chaos") is None
    assert auth.provider.access_tokens == {}
    assert json.loads((tmp_path / "state/toolspan/mcp-logins.json").read_text()) == {"logins": {}}


async def test_damaged_file_is_an_error_and_is_not_replaced(auth: AuthServer, tmp_path: Path) -> None:
    path = tmp_path / "state" / "toolspan" / "mcp-logins.json"
    path.parent.mkdir(parents=True)
    path.write_text("{broken")
    with pytest.raises(ToolspanError, match=r"mcp-logins\.json: not JSON"):
        await log_in(tmp_path, auth)
    async with connected(tmp_path, auth) as conversation:
        assert "cannot be read; remove the file: " in str(conversation.health.reason)
    assert path.read_text() == "{broken"


@pytest.mark.parametrize(
    ("oauth", "problem"),
    [
        ({"authServerMetadataUrl": "http://example.com/m"}, "must begin with https://"),
        ({"callbackPort": 70_000}, "must be a port number"),
        ({"clientId": 5}, "must be a non-empty string"),
        ({"grantType": "password"}, "must be authorization_code or client_credentials"),
        ({"grantType": "client_credentials", "clientId": "x"}, "needs `clientId`, `clientSecret` and `issuer`"),
    ],
)
def test_invalid_options_name_the_key(oauth: dict[str, object], problem: str) -> None:
    with pytest.raises(BadServers, match=problem):
        McpServers({"mcpServers": {"x": {"url": "https://example.com/mcp", "oauth": oauth}}})


def test_commands_log_in_and_out(auth: AuthServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "servers.json"
    config.write_text(json.dumps(auth.config()))
    monkeypatch.setattr(webbrowser, "open", visit)
    env = {**environment(tmp_path), "HOME": str(tmp_path)}
    options: list[str | Path] = ["--mcp-config", config, "--cwd", tmp_path]

    assert run("mcp", "login", "chaos", *options, env=env).stdout == "Logged in to chaos with read.\n"
    assert stored(tmp_path)["tokens"]["access_token"]
    assert one_row(run("mcp", "logout", "chaos", *options, "--json", env=env))["revoked"] is True
    assert "There was no login" in run("mcp", "logout", "chaos", *options, env=env).stdout
    unknown = run("mcp", "login", "other", *options, code=2, env=env)
    assert "no MCP server is called 'other'; configured servers: chaos" in unknown.stderr
