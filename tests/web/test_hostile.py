"""Sixty hostile transcripts and more than three hundred hostile requests."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web.conftest import Server, open_empty_page, running
from toolspan.testing import TranscriptBuilder

SECRET_TEXT = "the-text-of-a-file-outside"

SCRIPTS = (
    "<script>window.pwned = 1</script>", "<img src=x onerror='window.pwned = 2'>", "<svg/onload=window.pwned=3>",
    "<iframe srcdoc='<script>parent.pwned=4</script>'></iframe>", "[x](javascript:window.pwned=5)",
    "<a href='javascript:window.pwned=6'>x</a>", "</script><script>window.pwned=7</script>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.pwned=8>", "![i](https://evil.example/x.png)",
    "<style>@import 'https://evil.example/x.css'; main { display: none }</style>", "${window.pwned=9}",
    "<base href='https://evil.example/'><link rel=stylesheet href='//evil.example/x.css'>",
    "<form action='https://evil.example'><button autofocus onfocus='window.pwned=10'>x</button></form>",
    "]]><!--<script>window.pwned=11//--></textarea></title></pre>", "<object data='data:text/html,x'></object>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>", "<body onpageshow=window.pwned=12>",
)  # fmt: skip
INVISIBLE = (
    "rm -rf \u202e/pmt ;selif-dlo\u202c", "\u2066isolated\u2069", "zero\u200bwidth\u200bspace",
    "\ufeffmark at the start",
    "word\u2060joiner\u00adsoft", "\u061carabic \u200emarks\u200f", "tags \U000e0041\U000e0042", "fill\u3164er\u115f",
    "null\x00 bell\x07 back\x08space", "\x1b]8;;https://evil.example\x07link\x1b]8;;\x07\x1b[2J\x1b[31mred",
    "next\x85line\u2028separator\u2029", "variation\ufe01selectors\U000e0100", "cr\rover", "\x9b31mC1",
)  # fmt: skip
NAMES = (
    "__proto__", "constructor", "toString", "..", "../../../etc/passwd", "a/b?c#d", "%2e%2e%2f", "-h", "#", "a" * 5000,
)  # fmt: skip
PAYLOADS = (*SCRIPTS, *INVISIBLE, *NAMES)
HIDDEN = sorted(
    {c for text in INVISIBLE for c in text if not c.isprintable() or c in "\u3164\u115f\ufe01\U000e0100"} - {"\r"}
)


def _conversation(builder: TranscriptBuilder, text: str) -> None:
    builder.title(text)
    builder.prompt(text)
    builder.thinking(text)
    builder.text(f"{text}\n\n# {text}\n\n```html\n{text}\n```\n\n| {text} |\n|---|\n| `{text}` |")


def _calls(builder: TranscriptBuilder, text: str) -> None:
    builder.prompt("Go")
    for tool, value in (
        ("Bash", {"command": text, "description": text}),
        ("Edit", {"file_path": f"/home/{text}", "old_string": text, "new_string": text * 2}),
        ("Task", {"prompt": text, "description": text, "subagent_type": text}),
        (f"mcp__{text[:40]}__{text[:40]}", {text: text}),
    ):
        call = builder.call(tool, value)
        builder.hook(call, "PreToolUse", command=text, outcome="blocked", text=text)
        builder.result(call, text, is_error=True)


def sessions() -> Iterator[TranscriptBuilder]:
    """Yield sixty sessions."""
    makers = itertools.product((_conversation, _calls), PAYLOADS)
    for number, (fill, text) in enumerate(itertools.islice(makers, 60)):
        builder = TranscriptBuilder(
            session_id=f"{number:08x}-2b64-4c1b-9a53-0d6f1c7b8e21", cwd="/home/" + text[:60].replace("\0", "")
        )
        fill(builder, text)
        yield builder


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("hostile")
    for builder in sessions():
        builder.write(folder / "archive" / "projects" / "-home" / f"{builder.session_id}.jsonl")
    (folder / "secret.txt").write_text(SECRET_TEXT)
    with running(folder / "run", folder / "archive") as server:
        yield server


def test_hostile_transcripts_run_no_script_load_nothing_and_hide_nothing(driver: Any, hostile: Server) -> None:
    browser = open_empty_page(driver)
    browser.sign_in(hostile)
    names = [builder.session_id for builder in sessions()]
    assert len(names) == 60
    calls = {row["session"]: row["id"] for row in hostile.get("calls", fields="id,session")}
    pages = [
        f"/session/{name}?text=full&thinking=1" + (f"&call={calls[name]}" if name in calls else "") for name in names
    ]
    others = ("/sessions", "/calls", "/errors", "/files", "/", "/usage?by=session", "/live", "/doctor")
    for path in (*pages, *others):
        browser.open(path, "main h1")
        browser.wait("!document.querySelector('.loading, .skeleton')")
        browser.wait("!document.querySelector('.panel') || document.querySelector('.panel .call-detail')")
        state = browser.run(
            "return { pwned: window.pwned ?? null, text: document.body.textContent + document.title"
            " + [...document.querySelectorAll('[title]')].map((e) => e.title).join(''),"
            " foreign: performance.getEntriesByType('resource').map((e) => e.name)"
            ".filter((name) => !name.startsWith(location.origin) && !name.startsWith('data:')),"
            " path: location.pathname }"
        )
        assert (state["pwned"], state["foreign"]) == (None, []), path
        assert state["path"] == path.partition("?")[0]
        assert [character for character in HIDDEN if character in state["text"]] == [], path
        assert browser.problems() == [], path


IDS = (
    "session/{}",
    "session/{}/timeline",
    "session/{}/export",
    "call/{}",
    "call/{}/why",
    "call/{}/records",
    "session/{}/copies",
)
TRAVERSALS = (
    "..%2f..%2fsecret.txt", "%2e%2e%2fsecret.txt", "%2fetc%2fpasswd", "..%5c..%5csecret.txt", "-h", "--output=x", "@x",
    "~", "$HOME", "%00", "x%00.jsonl", "a%0d%0aSet-Cookie:%20x=1", "*", "%252e%252e%252f", "file:%2f%2f%2fetc%2fpasswd",
    "%ff%fe", "a" * 3000,
)  # fmt: skip
OPTIONS = (
    "output=/tmp/x", "prices=/etc/passwd", "config=x", "roots=/", "names=/etc", "cwd=/", "PATH=/etc/passwd", "help=1",
    "version=1", "json=1", "file=/etc/passwd", "since=%00", "limit=-1", "limit=1e9", "sort=__class__",
    "fields=__dict__",
)  # fmt: skip
ROUTES = (
    "sessions",
    "calls",
    "errors",
    "stats",
    "usage",
    "files",
    "flows",
    "time",
    "prompts",
    "denials",
    "hooks",
    "risky",
)
HOSTS = (
    "evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{}", "evil.example:{}", "127.0.0.1.nip.io:{}",
    "user@127.0.0.1:{}", "[::ffff:127.0.0.1]:{}", "0.0.0.0:{}", "127.1:{}", "2130706433:{}", "", "127.0.0.1:{}.",
    "x y:{}", "127.0.0.1:{}@evil.example",
)  # fmt: skip
ORIGINS = ("null", "http://evil.example", "https://127.0.0.1:{}", "http://127.0.0.1", "http://localhost:1", "file://")
CREDENTIALS: tuple[dict[str, str], ...] = (
    {}, {"Authorization": "Bearer"}, {"Authorization": "Bearer x"}, {"Authorization": "Basic eDp4"},
    {"Cookie": "toolspan=1"},
    {"Authorization": "Bearer " + "a" * 4000}, {"X_Toolspan_Token": "x"}, {"Authorization": "Bearer \u00ff"},
)  # fmt: skip


def hostile_requests(port: int, secret: str) -> Iterator[tuple[str, str, dict[str, str], tuple[int, ...]]]:
    """Yield methods, paths, headers, and the statuses that are right."""
    signed = {"Authorization": f"Bearer {secret}"}
    for route, text in itertools.product(IDS, TRAVERSALS):
        yield "GET", f"/api/{route.format(text)}", signed, (400, 404)
    for route, option in itertools.product(ROUTES, OPTIONS):
        yield "GET", f"/api/{route}?{option}", signed, (200, 400, 404)
    for host, path in itertools.product(HOSTS, ("/", "/api/sessions", "/static/x/app.js")):
        yield "GET", path, {**signed, "Host": host.format(port)}, (400, 421)
    for origin, method in itertools.product(ORIGINS, ("GET", "POST")):
        yield method, "/api/questions", {**signed, "Origin": origin.format(port)}, (403,)
    for headers, route in itertools.product(CREDENTIALS, (*ROUTES, "live", "questions", "muted")):
        yield "GET", f"/api/{route}", headers, (401,)
    for method, path in itertools.product(
        ("PUT", "DELETE", "PATCH", "OPTIONS"), ("/api/sessions", "/api/file/restore")
    ):
        yield method, path, signed, (404, 405)


def test_hostile_requests_get_an_error_and_no_data_from_outside(hostile: Server) -> None:
    requests = list(hostile_requests(hostile.port, hostile.secret))
    assert len(requests) >= 300
    for method, path, headers, statuses in requests:
        status, answer, body = hostile.request(path, method, None if method == "GET" else "{}", **headers)
        assert status in statuses, (method, path, headers, status, body[:200])
        assert SECRET_TEXT.encode() not in body
        assert b"root:" not in body
        assert "set-cookie" not in answer
        assert status in (200, 405) or "error" in json.loads(body or b'{"error": ""}')
    assert len(hostile.get("sessions")) == 60  # it still answers


def test_a_client_that_sends_its_header_slowly_is_disconnected(hostile: Server) -> None:
    import socket

    connections = [socket.create_connection((hostile.host, hostile.port)) for _ in range(50)]
    for connection in connections:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: ")
    assert hostile.request("/")[0] == 200
    for connection in connections:
        assert b"200" not in connection.recv(1000)  # closed by the server
        connection.close()


def test_a_link_to_a_file_outside_is_not_followed_by_static_files(hostile: Server, tmp_path: Path) -> None:
    for path in ("/static/..%2f..%2fserver.py", "/static/x/%2e%2e/%2e%2e/security.py", f"/static/x/{tmp_path}"):
        assert hostile.request(path)[0] == 404
