"""`toolspan ui` as a process: access, answers, a second start, and the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import PATIENCE
from tests.web.conftest import Browser, Server, command_rows, running
from toolspan.reading import sample

SESSION = "5f0c1d7e-2b64-4c1b-9a53-0d6f1c7b8e21"


def test_requests_without_the_secret_are_refused(server: Server) -> None:
    for path in ("/api/sessions", "/api/live", f"/api/session/{SESSION}", "/api/sessions?token=wrong", "/api/nothing"):
        status, _, body = server.request(path)
        assert status == 401, path
        assert SESSION.encode() not in body
    page = server.request("/sessions")
    assert page[0] == 200
    assert "set-cookie" not in page[1]
    assert server.secret.encode() not in page[2]


def test_an_address_signs_one_browser_in_and_is_worth_nothing_after_that(server: Server) -> None:
    token = server.new_address().rpartition("=")[2]
    assert server.request("/api/sessions", Authorization=f"Bearer {token}")[0] == 401
    assert server.request(f"/api/sessions?token={token}")[0] == 401
    sign_in = ("/api/sign-in", "POST", json.dumps({"token": token}))
    status, _, body = server.request(*sign_in)
    assert (status, json.loads(body)) == (200, {"secret": server.secret})
    status, _, body = server.request(*sign_in)
    assert status == 403
    assert b"Run toolspan ui again" in body
    for body in (b"", b"{}", b"[]", b'{"token": 1}', b"{" * 5000):
        assert server.request("/api/sign-in", "POST", body.decode())[0] in (400, 403)


def test_the_page_runs_only_its_own_scripts(server: Server) -> None:
    _, headers, page = server.request("/")
    assert "script-src 'self';" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert b"<script>" not in page
    assert b"style=" not in page


def test_the_secret_survives_a_restart_and_is_private(tmp_path: Path) -> None:
    with running(tmp_path, sample.archive(), "--port", "0") as first:
        secret, port = first.secret, first.port
    file = tmp_path / "state" / "toolspan" / "ui-secret"
    assert file.stat().st_mode & 0o077 == 0
    with running(tmp_path, sample.archive(), "--port", str(port)) as second:
        assert second.secret == secret
        assert second.request("/api/sessions", Authorization=f"Bearer {secret}")[0] == 200
    with running(tmp_path, sample.archive(), "--port", "0") as other:
        assert other.secret != secret
    file.chmod(0o644)  # others may have read it
    with running(tmp_path, sample.archive(), "--port", str(port)) as third:
        assert third.secret != secret
        assert file.stat().st_mode & 0o077 == 0


def test_an_open_page_notices_a_lost_server_and_continues_with_the_next_one(
    tmp_path: Path, empty_browser: Browser
) -> None:
    with running(tmp_path, sample.archive(), "--port", "0") as first:
        empty_browser.sign_in(first)
        empty_browser.open(f"/session/{SESSION}", ".item.call")
    empty_browser.wait("document.querySelector('.connection')")
    assert "Connection lost" in empty_browser.texts(".connection")[0]
    assert empty_browser.texts(".item.call")  # the last answer stays
    with running(tmp_path, sample.archive(), "--port", str(first.port)):
        empty_browser.wait("!document.querySelector('.connection')")
        empty_browser.open("/sessions", "table.rows tbody tr.link")  # still signed in
    empty_browser.problems()  # the requests that failed


def test_a_browser_that_is_not_signed_in_continues_at_its_address(tmp_path: Path, empty_browser: Browser) -> None:
    with running(tmp_path, sample.archive()) as server:
        empty_browser.driver.get(f"{server.base}/session/{SESSION}?find=test")
        empty_browser.wait("document.querySelector('.sign-in')")
        assert empty_browser.barriers() == []
        height = "document.documentElement.scrollHeight"
        assert empty_browser.run(f"return {height} <= document.documentElement.clientHeight")
        first = empty_browser.driver.current_window_handle
        empty_browser.driver.switch_to.new_window("tab")
        empty_browser.sign_in(server)
        assert "token" not in empty_browser.driver.current_url
        empty_browser.driver.close()
        empty_browser.driver.switch_to.window(first)
        empty_browser.wait("document.querySelector('.item.call')")
        assert empty_browser.driver.current_url.endswith(f"/session/{SESSION}?find=test")
        empty_browser.run("localStorage.clear()")
        empty_browser.driver.get(f"{server.base}/live")
        empty_browser.wait("document.querySelector('#token')")
        for address in (server.url + "x", server.new_address()):
            empty_browser.run("document.querySelector('#token').value = ''")
            empty_browser.driver.find_element("id", "token").send_keys(address)
            empty_browser.click(".sign-in form button")
            empty_browser.wait("document.querySelector('.sign-in [role=alert], section.live')")
        empty_browser.wait("document.querySelector('section.live')")
        empty_browser.problems()  # the refused token


def test_a_file_is_downloaded_with_a_token_for_one_time(server: Server) -> None:
    token = server.new_address().rpartition("=")[2]
    path = f"/api/session/{SESSION}/export?format=csv&token={token}"
    assert [server.request(path)[0] for _ in range(2)] == [200, 401]


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
    status, _, _ = server.request("/api/sessions", Authorization=f"Bearer {server.secret}", **headers)
    assert status in (403, 421)


@pytest.mark.parametrize(
    "path",
    ["questions", "questions/1", "file/restore", f"session/{SESSION}/repair"],
)
def test_every_change_needs_host_origin_and_secret(server: Server, path: str) -> None:
    def post(**changes: str) -> int:
        headers = {"Authorization": f"Bearer {server.secret}", **changes}
        return server.request(f"/api/{path}", "POST", '{"behavior": 1}', **headers)[0]

    assert post() == 400  # the body is invalid, but the request is accepted
    assert post(Host="evil.example") == 421
    assert post(Host=f"user@127.0.0.1:{server.port}") == 421
    assert post(Origin="http://evil.example") == 403
    assert post(Authorization="") == 401
    assert post(Authorization=f"Bearer {server.secret[:-1]}") == 401
    assert post(Authorization=f"Basic {server.secret}") == 401
    cookie = f"toolspan_{server.port}={server.secret}"
    assert post(Authorization="", Cookie=cookie, X_Toolspan_Token=server.secret) == 401
    assert server.request(f"/api/{path}", "PUT", "{}", Authorization=f"Bearer {server.secret}")[0] in (404, 405)


def test_another_address_needs_the_token_and_is_only_used_when_named(tmp_path: Path) -> None:
    with running(tmp_path, sample.archive(), "--host", "0.0.0.0") as server:
        assert server.host != "0.0.0.0"  # an address that other machines can open
        assert server.request("/api/sessions")[0] == 401
        assert server.request("/api/sessions", Host=f"192.0.2.7:{server.port}")[0] == 401
        allowed = {"Authorization": f"Bearer {server.secret}"}
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
    status, _, body = server.request(path, Authorization=f"Bearer {server.secret}")
    assert status == expected, body


def test_static_files_are_kept_by_browsers_only_below_the_address_of_their_content(server: Server) -> None:
    page = server.request("/sessions", Authorization=f"Bearer {server.secret}")[2].decode()
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
            assert (second.base, second.url == first.url) == (first.base, False)
            assert first.secret == second.secret
            assert second.process is not None
            assert second.process.wait(PATIENCE) == 0
        with running(tmp_path, sample.archive() / "claude") as other:
            assert other.port != first.port
        states = list((tmp_path / "toolspan" / "ui").iterdir())
        assert [json.loads(state.read_bytes())["port"] for state in states] == [first.port]
        assert states[0].stat().st_mode & 0o077 == 0
        assert first.process is not None
        first.process.send_signal(signal.SIGINT)
        assert first.process.wait(PATIENCE) == 0
        assert not states[0].exists()


def test_a_server_that_is_too_busy_to_answer_is_found_again_later(tmp_path: Path) -> None:
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    request = {"hook_event_name": "PermissionRequest", "tool_name": "Bash", "tool_input": {"command": "make"}}
    with running(tmp_path, sample.archive()) as first:
        first.process.send_signal(signal.SIGSTOP)
        try:
            answer = subprocess.run(
                [sys.executable, "-m", "toolspan", "hook", "approve"], input=json.dumps(request),
                capture_output=True, encoding="utf-8", env=env, check=True,
            )  # fmt: skip
        finally:
            first.process.send_signal(signal.SIGCONT)
        assert answer.stdout == ""
        with running(tmp_path, sample.archive()) as second:
            assert second.base == first.base
