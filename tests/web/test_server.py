"""`toolspan ui` as a process: access, answers, a second start, and the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.web.conftest import TIMEOUT, Browser, Server, command_rows, running
from toolspan.reading import sample

SESSION = "5f0c1d7e-2b64-4c1b-9a53-0d6f1c7b8e21"


def test_requests_without_the_secret_are_refused(server: Server) -> None:
    for path in ("/", "/sessions", "/api/sessions", "/api/live", f"/api/session/{SESSION}", "/?token=wrong"):
        status, headers, body = server.request(path)
        assert status == 403, path
        assert SESSION.encode() not in body or path.endswith(SESSION)
        assert "set-cookie" not in headers


def test_an_address_sets_once_a_strict_cookie_that_opens_the_page(server: Server) -> None:
    token = server.new_address().rpartition("=")[2]
    assert server.request("/api/sessions", Authorization=f"Bearer {token}")[0] == 403
    status, headers, _ = server.request(f"/session/x?call=y&token={token}")
    assert (status, headers["location"]) == (303, "/session/x?call=y")
    second = server.request(f"/?token={token}")
    assert second[0] == 403
    assert "set-cookie" not in second[1]
    assert b"Run toolspan ui again" in second[2]
    cookie = headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    status, headers, page = server.request("/", Cookie=headers["set-cookie"].partition(";")[0])
    assert status == 200
    assert "script-src 'self';" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert b"<script>" not in page
    assert b"style=" not in page


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1:1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
    ],
)
def test_other_hosts_and_origins_are_refused_even_with_the_secret(server: Server, headers: dict[str, str]) -> None:
    status, _, _ = server.request("/api/sessions", Authorization=f"Bearer {server.token}", **headers)
    assert status in (403, 421)


def test_the_page_of_a_browser_that_is_not_signed_in_does_not_scroll(tmp_path: Path, empty_browser: Browser) -> None:
    with running(tmp_path, sample.archive()) as server:
        empty_browser.driver.get(server.base + "/")
        empty_browser.wait("document.querySelector('.refused') && document.readyState === 'complete'")
        height = "document.documentElement.scrollHeight"
        assert empty_browser.run(f"return {height} <= document.documentElement.clientHeight")


def test_a_change_needs_the_token_of_the_page(server: Server) -> None:
    status, _, body = server.request("/api/sessions", "POST", "{}", Authorization=f"Bearer {server.token}")
    assert status == 403
    assert b"token of the page" in body


@pytest.mark.parametrize(
    "path",
    ["questions", "questions/1", "file/restore", f"session/{SESSION}/repair"],
)
def test_every_change_needs_host_origin_cookie_and_page_token(server: Server, path: str) -> None:
    _, headers, _ = server.request(server.new_address().removeprefix(server.base))
    cookie = headers["set-cookie"].partition(";")[0]
    page = server.request("/", Cookie=cookie)[2].decode()
    token = page.partition('name="toolspan-token" content="')[2].partition('"')[0]
    valid = {"Cookie": cookie, "X_Toolspan_Token": token}

    def post(**changes: str) -> int:
        headers = {name: text for name, text in {**valid, **changes}.items() if text}
        return server.request(f"/api/{path}", "POST", '{"behavior": 1}', **headers)[0]

    assert post() == 400  # the body is invalid, but the request is accepted
    assert post(Host="evil.example") == 421
    assert post(Origin="http://evil.example") == 403
    assert post(Cookie="") == 403
    assert post(Cookie=cookie[:-1]) == 403
    assert post(X_Toolspan_Token="") == 403
    assert post(X_Toolspan_Token=server.token) == 403
    assert server.request(f"/api/{path}", "PUT", "{}", **valid)[0] in (404, 405)


def test_another_address_needs_the_token_and_is_only_used_when_named(tmp_path: Path) -> None:
    with running(tmp_path, sample.archive(), "--host", "0.0.0.0") as server:
        assert server.host == "127.0.0.1"
        assert server.request("/api/sessions")[0] == 403
        assert server.request("/api/sessions", Host=f"192.0.2.7:{server.port}")[0] == 403
        allowed = {"Authorization": f"Bearer {server.token}"}
        assert server.request("/api/sessions", Host=f"192.0.2.7:{server.port}", **allowed)[0] == 200
        assert server.request("/api/sessions", Host=f"evil.example:{server.port}", **allowed)[0] == 421


def test_doctor_checks_all_transcripts_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(sample.archive() / "claude"))
    with running(tmp_path / "run") as server:
        assert server.get("doctor") == command_rows("doctor", sample.archive())


def test_the_api_answers_with_the_rows_of_the_commands(server: Server) -> None:
    archive = sample.archive()
    for name in ("sessions", "calls", "errors", "files", "doctor"):
        assert server.get(name) == command_rows(name, archive), name
    assert server.get("usage", by="session") == command_rows("usage", "--by", "session", archive)
    assert server.get("calls", tool="Bash", state="failed") == command_rows(
        "calls", "--tool", "Bash", "--state", "failed", archive
    )
    assert server.get("search", q="error") == command_rows("search", "error", archive)
    assert server.get("search", q="/usr") == command_rows("search", "/usr", archive)
    rows = command_rows("calls", archive)
    assert server.get("calls", fields="id,state") == [{"id": row["id"], "state": row["state"]} for row in rows]
    assert [server.get(f"session/{SESSION}")] == command_rows("show", "--session", SESSION, archive)
    call = server.get("calls")[0]["id"]
    assert [server.get(f"call/{call}", session=SESSION)] == command_rows("show", call, "--session", SESSION, archive)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/nothing", 404),
        ("/api/session/ffffffff", 404),
        ("/api/session/..%2f..%2fetc%2fpasswd", 404),
        ("/api/call/-h", 400),
        ("/api/calls?output=/tmp/x", 400),
        ("/api/calls?since=never", 400),
        ("/api/usage?prices=/etc/passwd", 400),
        ("/api/search?q=/etc+/usr", 200),  # words, never places to search
        ("/api/call/src", 404),
        ("/api/compare?a=/etc&b=/usr", 400),
        ("/api/file?path=/etc/passwd", 404),
        ("/api/files?path=/etc", 404),
        ("/api/file/diff?path=/etc/passwd&from=a&to=b", 404),
        (f"/api/session/{SESSION}/export?format=exe", 400),
        (f"/api/session/{SESSION}/export?output=/tmp/x", 400),
        ("/static/../server.py", 404),
        ("/static/%2e%2e/server.py", 404),
    ],
)
def test_requests_cannot_name_files_or_other_options(server: Server, path: str, expected: int) -> None:
    status, _, body = server.request(path, Authorization=f"Bearer {server.token}")
    assert status == expected, body


def test_static_files_are_kept_by_browsers_only_below_the_address_of_their_content(server: Server) -> None:
    page = server.request("/sessions", Authorization=f"Bearer {server.token}")[2].decode()
    script = page.partition('<script type="module" src="')[2].partition('"')[0]
    version = script.split("/")[2]
    assert f'<link rel="modulepreload" href="/static/{version}/views/sessions.js">' in page
    for address, cached in ((script, "public, max-age=31536000, immutable"), ("/static/older/app.js", "no-cache")):
        status, headers, body = server.request(address)
        assert (status, headers["cache-control"], b"render(" in body) == (200, cached, True)
    assert server.request(f"/static/{version}/nothing.js")[0] == 404


def test_a_second_start_finds_the_running_server_and_a_signal_stops_it(tmp_path: Path) -> None:
    with running(tmp_path, sample.archive()) as first:
        with running(tmp_path, sample.archive()) as second:
            assert (second.base, second.token == first.token) == (first.base, False)
            for address in (first.url, second.url):
                assert first.request(address.removeprefix(first.base))[0] == 303
            assert second.process is not None
            assert second.process.wait(TIMEOUT) == 0
        with running(tmp_path, sample.archive() / "claude") as other:
            assert other.port != first.port
        states = list((tmp_path / "toolspan" / "ui").iterdir())
        assert [json.loads(state.read_bytes())["port"] for state in states] == [first.port]
        assert states[0].stat().st_mode & 0o077 == 0
        assert first.process is not None
        first.process.send_signal(signal.SIGINT)
        assert first.process.wait(TIMEOUT) == 0
        assert not states[0].exists()


def test_a_server_that_is_too_busy_to_answer_is_found_again_later(tmp_path: Path) -> None:
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    request = {"hook_event_name": "PermissionRequest", "tool_name": "Bash", "tool_input": {"command": "make"}}
    with running(tmp_path, sample.archive()) as first:
        first.process.send_signal(signal.SIGSTOP)
        try:
            answer = subprocess.run(
                [sys.executable, "-m", "toolspan", "hook", "approve"], input=json.dumps(request),
                capture_output=True, encoding="utf-8", env=env, check=True, timeout=TIMEOUT,
            )  # fmt: skip
        finally:
            first.process.send_signal(signal.SIGCONT)
        assert answer.stdout == ""
        with running(tmp_path, sample.archive()) as second:
            assert second.base == first.base
