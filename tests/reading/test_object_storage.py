"""Transcripts in object storage: a real S3 server on this machine, fsspec's memory, and stores that fail."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import toolspan
from tests.cli.command import rows, run
from tests.formats import gemini_chats
from toolspan.errors import SourceError
from toolspan.formats import zstd
from toolspan.formats.source import source_for_path, to_path
from toolspan.reading.discovery import find_transcripts, iter_transcripts
from toolspan.reading.sample import archive
from toolspan.testing import RolloutBuilder, TranscriptBuilder, claude_results, codex_builder

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries of stores, and about forks beside their threads

BROOK = "claude/projects/-home-mira-brook/16d9c7a2-f584-4e3b-90c1-d2b8a5e7f463"
CALL = "toolu_01736Jj0QNEZ3IFZbFCMQTYp"
COMMANDS = [
    "sessions ROOT", "calls ROOT", "errors ROOT", "stats ROOT", "usage --context ROOT", "time ROOT", "flows ROOT",
    "files ROOT", f"show ROOT/{BROOK}.jsonl", f"show {CALL} ROOT --session {BROOK[-36:]}", f"why {CALL} ROOT",
    "search disk ROOT", f"compare {BROOK[-36:]} 3c5a7e91 ROOT", "doctor ROOT", f"repair --dry-run ROOT/{BROOK}.jsonl",
    f"export ROOT/{BROOK}.jsonl", "restore 0002_due.sql --output - ROOT",
]  # fmt: skip


class Bucket:
    """An S3 server, and the requests that it has answered."""

    def __init__(self, log: Path, url: str) -> None:
        self._log = log
        self.url = url

    def requests(self) -> list[str]:
        return re.findall(r'"(?:\x1b\[\d+m)*([A-Z]+ /\S*) HTTP', self._log.read_text())


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    """A server with the sample archive in the bucket `archive`. Its listings have five objects per page."""
    pytest.importorskip("s3fs")
    pytest.importorskip("moto")
    log = tmp_path_factory.mktemp("s3") / "log"
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
    with log.open("wb") as output, pytest.MonkeyPatch.context() as patch:
        server = subprocess.Popen(
            [sys.executable, "-P", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
            stdout=output, stderr=output, env=os.environ | keys | {"MOTO_S3_DEFAULT_MAX_KEYS": "5"},
        )  # fmt: skip
        try:
            while not (found := re.search(r"Running on (http://127\.0\.0\.1:\d+)", log.read_text())):
                assert server.poll() is None, log.read_text()
                time.sleep(0.05)
            for name, value in (keys | {"AWS_ENDPOINT_URL": found[1]}).items():
                patch.setenv(name, value)
            s3 = fsspec.filesystem("s3")
            s3.mkdir("archive")
            s3.put(f"{archive()}/", "archive/", recursive=True)
            yield Bucket(log, found[1])
        finally:
            server.kill()
            server.wait()


class StubbornStore(MemoryFileSystem):  # type: ignore[misc]
    """Objects in memory. The first parts of their keys say how reading them fails."""

    protocol = "stubborn"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    ranges: ClassVar[list[tuple[int, int]]] = []
    failures = 0

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(MemoryFileSystem._strip_protocol(path.replace("stubborn://", "memory://")))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
        name = self._strip_protocol(path)
        StubbornStore.ranges.append((start or 0, end or 0))
        if "denied" in name:
            raise PermissionError(name)
        if "vanished" in name:
            raise FileNotFoundError(name)
        if StubbornStore.failures:
            StubbornStore.failures -= 1
            raise ConnectionResetError("reset by peer")
        data: bytes = super().cat_file(path, start=start, end=end)
        return data[:-1] if "truncated" in name else data


class EndlessStore(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A generated listing: 1,000 projects, each with the number of sessions in its URL."""

    protocol = "endless"

    def info(self, path: str, **_: object) -> dict[str, object]:
        return {"name": self._strip_protocol(path), "type": "directory", "size": 0}

    def ls(self, path: str, detail: bool = True, **_: object) -> list[dict[str, object]]:
        base = self._strip_protocol(path)
        if "/" not in base:
            return [{"name": f"{base}/p{n}", "type": "directory", "size": 0} for n in range(1_000)]
        names = (f"{base}/{n:032x}.jsonl" for n in range(int(base.partition("/")[0])))
        return [{"name": name, "type": "file", "size": 1_000, "etag": name} for name in names]


@pytest.fixture(autouse=True)
def stores() -> None:
    for store in (StubbornStore, EndlessStore):
        fsspec.register_implementation(store.protocol, store, clobber=True)
    StubbornStore.store.clear()
    StubbornStore.ranges.clear()


def put(url: str, data: bytes) -> str:
    fsspec.filesystem(url.partition("://")[0]).pipe_file(url, data)
    return url


def session(name: str = "one") -> bytes:
    story = TranscriptBuilder(session_id=name).prompt("Look")
    story.result(story.call("Bash", {"command": "ls"}), claude_results.exited(1))
    return story.data()


_SIZE = re.compile(r'"bytes":(\d+|null)')


def answer(command: str, root: str) -> tuple[int, str]:
    words = [word.replace("ROOT", root) for word in command.split()]
    done = run(*words, *["--json"] * (words[0] not in ("export", "restore")), code=None)
    assert done.exception is None or isinstance(done.exception, SystemExit), (command, done.output)
    # The size of a session in a store is not known, because each file would cost a request.
    return done.exit_code, _SIZE.sub('"bytes":null', done.stdout.replace(root, "ROOT"))


def test_every_reading_command_answers_from_a_bucket_as_from_a_folder(bucket: Bucket) -> None:
    for command in COMMANDS:
        code, text = answer(command, str(archive()))
        assert text, command
        assert answer(command, "s3://archive") == (code, text), command


def test_sessions_of_all_clients_are_read_from_a_store(tmp_path: Path) -> None:
    rollout = RolloutBuilder(age="bare").prompt("Look")
    rollout.output(rollout.call("exec_command", {"cmd": "cat notes"}), codex_builder.command_output("milk\n"))
    rollout.write(tmp_path / ".codex")
    gemini_chats.write_chat(tmp_path, gemini_chats.document())
    fsspec.filesystem("memory").put(f"{tmp_path}/", "memory://clients/", recursive=True)

    for command in ("calls ROOT", "sessions ROOT", "search milk ROOT", "show --last ROOT"):
        code, text = answer(command, str(tmp_path))
        assert text
        assert answer(command, "memory://clients") == (code, text), command


def test_commands_and_functions_read_any_store_that_fsspec_knows() -> None:
    fsspec.filesystem("memory").put(f"{archive()}/", "memory://a b/x/", recursive=True)
    for command in ("stats ROOT", f"show {CALL} ROOT", f"search disk ROOT/{BROOK}.jsonl", "files ROOT"):
        assert answer(command, "memory://a b/x") == answer(command, str(archive()))

    local, remote = toolspan.history(archive()), toolspan.history("memory://a b/x")
    assert [span.id for span in remote.spans] == [span.id for span in local.spans]
    assert remote.tokens == local.tokens
    (transcript,) = toolspan.transcripts(f"memory://a b/x/{BROOK}.jsonl")
    assert transcript.file == f"memory://a b/x/{BROOK}.jsonl"
    texts = [span.result.text for span in toolspan.read(archive() / f"{BROOK}.jsonl").spans if span.result]
    assert [span.result.text for span in transcript.spans if span.result] == texts


def test_a_second_question_requests_no_object(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLSPAN_NO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    s3 = fsspec.filesystem("s3")
    s3.mkdir("growing")
    s3.put(f"{archive()}/", "growing/", recursive=True)

    def objects_requested(command: str = "stats") -> list[str]:
        before = len(bucket.requests())
        printed.append(run(command, "s3://growing", "--json").stdout)
        return [line for line in bucket.requests()[before:] if "list-type" not in line and "growing/" in line]

    printed: list[str] = []
    assert len(objects_requested()) >= len(find_transcripts(archive()))
    assert objects_requested() == []
    assert printed[0] == printed[1]

    put(f"s3://growing/{BROOK}.jsonl", session(BROOK[-36:]))
    assert {line for line in objects_requested() if line.startswith("GET")} == {f"GET /growing/{BROOK}.jsonl"}
    assert printed[2] != printed[1]
    for other in ("errors", "time", "usage", "flows", "sessions"):
        assert objects_requested(other) == [], "the first question stores the facts for all others"


def test_a_call_is_fetched_by_its_range() -> None:
    data = session()
    transcript = toolspan.read(put("stubborn://b/one.jsonl", data))
    StubbornStore.ranges.clear()

    (span,) = transcript.spans
    assert span.result is not None
    assert "Exit code 1" in span.result.text

    place = span.result.place
    assert StubbornStore.ranges == [(place.offset, place.offset + place.length)]


@pytest.mark.parametrize("root", ["{tmp}", "memory://packed"])
def test_compressed_transcripts_are_read_like_plain_ones(root: str, tmp_path: Path) -> None:
    root, data = root.format(tmp=tmp_path), session()
    (span,) = toolspan.read(put("memory://plain/one.jsonl", data)).spans
    for suffix, packed in ((".gz", gzip.compress(data)), (".zst", zstd.compress(data))):
        name = f"{root}/{suffix}/one.jsonl{suffix}"
        put(name if "://" in name else f"file://{name}", packed) if "://" in name else _write(Path(name), packed)
        (row,) = rows(run("calls", f"{root}/{suffix}", "--json"))
        assert (row["file"], row["id"], row["state"], row["session"]) == (name, span.id, "failed", "one")
        assert source_for_path(name).read(10, 20) == data[10:30]

    broken = f"{root}/broken/one.jsonl.gz"
    packed = gzip.compress(data)[:-40]
    put(broken, packed) if "://" in broken else _write(Path(broken), packed)
    assert "broken gzip data" in toolspan.read(broken).findings[0].explanation


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(data)


@pytest.mark.parametrize("count", [20, pytest.param(1_000, marks=pytest.mark.slow)])
def test_a_listing_of_very_many_objects_needs_little_memory(count: int) -> None:
    tracemalloc.start()
    try:
        found = sum(1 for _ in iter_transcripts(to_path(f"endless://{count}")))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert found == 1_000 * count
    assert peak < 8 << 20


@pytest.mark.parametrize("store", ["s3", "memory"])
def test_keys_with_any_characters_are_read(store: str, bucket: Bucket) -> None:
    names = ["with space", "question?mark", "100%25", "#fragment", "[set]*", "é", "-o", "s3:x", "..", "x..y"]
    names += ["new\nline", "x/../y"] if store == "memory" else ["a::b"]  # which the other does not take
    fsspec.filesystem(store).mkdir(f"{store}://hostile")
    for name in names:
        put(f"{store}://hostile/p/{name}.jsonl", session(f"in {name}"))

    listed = rows(run("calls", f"{store}://hostile", "--json"))

    assert {row["file"] for row in listed} == {f"{store}://hostile/p/{name}.jsonl" for name in names}
    assert {row["session"] for row in listed} == {f"in {name}" for name in names}


def test_what_cannot_be_read_is_named_and_the_rest_is_read(bucket: Bucket) -> None:
    put("stubborn://b/p/good.jsonl", session("good"))
    for name in ("denied", "vanished", "truncated"):
        put(f"stubborn://b/p/{name}.jsonl", session(name))

    done = run("calls", "stubborn://b", "--json")

    assert [row["session"] for row in rows(done)] == ["good"]
    for name, problem in (
        ("denied", "access denied"),
        ("vanished", "no such object, folder or bucket"),
        ("truncated", "the download ended after"),
    ):
        (line,) = [line for line in done.stderr.splitlines() if f"/{name}.jsonl" in line]
        assert problem in line
        assert problem in run("calls", f"stubborn://b/p/{name}.jsonl", code=2).stderr
    for url in ("s3://no-such-bucket", "s3://archive/no/such", "s3://archive/no.jsonl"):
        assert f"{url}: no such object, folder or bucket" in run("stats", url, code=2).stderr
    assert "Protocol not known" in run("stats", "nothing://x", code=2).stderr


def test_requests_that_fail_are_repeated() -> None:
    put("stubborn://b/one.jsonl", session())
    StubbornStore.failures = 2

    assert len(toolspan.read("stubborn://b/one.jsonl").spans) == 1

    StubbornStore.failures = 10
    with pytest.raises(SourceError, match="reset by peer"):
        toolspan.read("stubborn://b/one.jsonl")
    StubbornStore.failures = 0


def test_a_server_that_fails_twice_is_read_in_the_end(bucket: Bucket) -> None:
    answered: list[int] = []

    class Relay(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, body = 503, b""
            if len(answered) >= 2:
                kept = {name: self.headers[name] for name in ("Authorization", "Range") if name in self.headers}
                try:
                    with urlopen(Request(bucket.url + self.path, headers=kept)) as response:
                        code, body = response.status, response.read()
                except HTTPError as error:
                    code = error.code
            answered.append(code)
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.send_error(404)  # the URL is a folder

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Relay) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        command = [sys.executable, "-P", "-m", "toolspan", "calls", "s3://archive/claude", "--json"]
        environ = os.environ | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_address[1]}"}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        server.shutdown()

    assert (done.returncode, done.stderr) == (0, "")
    assert answered[:3] == [503, 503, 200]
    assert {row["file"] for row in rows(done)} >= {f"s3://archive/{BROOK}.jsonl"}


@pytest.mark.parametrize(("missing", "url"), [("fsspec", "memory://x"), ("s3fs", "s3://x")])
def test_without_the_extra_the_error_names_it(missing: str, url: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from toolspan.cli import main; main()"
    command = [sys.executable, "-P", "-c", code, "stats", url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert re.search(r"not installed .*: run (?:uv )?pip install .*\[cloud\]'", done.stderr)
    assert len(done.stderr.splitlines()) == 1


def test_commands_that_need_local_files_refuse_objects() -> None:
    url = put("memory://refused/one.jsonl", session())

    assert "watch follows local files" in run("watch", url, code=2).stderr
    assert "download it first" in run("repair", url, code=2).stderr
