"""Questions end: at their time limit, or when nobody waits for the answer. Errors are not kept."""

from __future__ import annotations

import gzip
import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.limits import PATIENCE
from tests.web.conftest import Browser, Server, running
from toolspan.testing import TranscriptBuilder

SESSION = "5f0c1d7e-2b64-4c1b-9a53-0d6f1c7b8e21"
RUNAWAY = "/api/search?regex=1&q=(A%2B)%2B(%3F%3Dx)y"
"""A search that takes more steps than there are atoms, with a look-ahead, which engines in linear time do not have."""


@pytest.fixture
def runaway(tmp_path: Path) -> Iterator[Server]:
    builder = TranscriptBuilder(session_id=SESSION).prompt("A" * 64 + "!")
    builder.write(tmp_path / "projects" / "-home" / f"{SESSION}.jsonl")
    with running(tmp_path / "run", tmp_path / "projects", "--timeout", "2") as server:
        yield server


def test_a_search_that_runs_away_is_stopped_and_others_are_answered(runaway: Server) -> None:
    headers = {"Authorization": f"Bearer {runaway.secret}"}
    for _ in range(3):  # more than there are workers
        status, _, body = runaway.request(RUNAWAY, **headers)
        assert (status, "stopped after 2 seconds of work" in json.loads(body)["error"]) == (503, True)
    assert [row["id"] for row in runaway.get("sessions")] == [SESSION]


def test_a_question_that_nobody_waits_for_is_not_answered(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id=SESSION).prompt("A" * 64 + "!")
    builder.write(tmp_path / "projects" / "-home" / f"{SESSION}.jsonl")
    with running(tmp_path / "run", tmp_path / "projects", "--timeout", str(10 * PATIENCE)) as server:
        headers = {"Authorization": f"Bearer {server.secret}"}
        for number in range(6):
            connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE)
            connection.request("GET", f"{RUNAWAY}&limit={number + 1}", headers=headers)
            connection.close()
        assert server.get("search", q="A") != []  # it would wait for the others for ever


def test_answers_are_compressed_for_clients_that_accept_it(server: Server) -> None:
    headers = {"Authorization": f"Bearer {server.secret}"}
    plain = server.request("/api/calls", **headers)
    packed = server.request("/api/calls", Accept_Encoding="gzip", **headers)
    assert (plain[1].get("content-encoding"), packed[1]["content-encoding"]) == (None, "gzip")
    assert gzip.decompress(packed[2]) == plain[2]
    assert len(packed[2]) < len(plain[2]) / 4


def test_the_first_session_replaces_the_page_of_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_browser: Browser
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    with running(tmp_path / "run") as server:
        empty_browser.sign_in(server)
        for path in ("/", "/sessions", "/calls", "/errors", "/usage", "/files"):
            empty_browser.open(path, ".first-run")
            assert empty_browser.texts(".problem") == []
            assert empty_browser.barriers() == []
        assert str(tmp_path / ".claude") in empty_browser.run("return document.body.textContent")
        empty_browser.problems()  # the answers with status 404
        empty_browser.open("/sessions", ".first-run")
        builder = TranscriptBuilder(session_id=SESSION).prompt("The first one")
        builder.write(tmp_path / ".claude" / "projects" / "-home" / f"{SESSION}.jsonl")
        empty_browser.wait("document.querySelector('table.rows')?.textContent.includes('The first one')")


def test_an_error_is_not_kept(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    folder.mkdir()
    with running(tmp_path / "run", folder) as server:
        headers = {"Authorization": f"Bearer {server.secret}"}
        assert server.request(f"/api/session/{SESSION}", **headers)[0] == 404
        builder = TranscriptBuilder(session_id=SESSION).prompt("Go")
        builder.write(folder / f"{SESSION}.jsonl")
        while server.request(f"/api/session/{SESSION}", **headers)[0] == 404:
            pass
