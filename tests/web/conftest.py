"""A server of the web UI on the sample archive, and a browser that is signed in."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from tests.browser import NO_BROWSER, run_browser
from tests.limits import PATIENCE
from toolspan.reading import sample

AXE = Path(__file__).parent / "axe" / "axe.min.js"  # axe-core 4, MPL-2.0; the first line has its version
_OWN_SOURCES = ("console-api", "javascript", "security")


class Server:
    """A running `toolspan ui`."""

    def __init__(self, url: str, process: subprocess.Popen[bytes], runtime: Path) -> None:
        self.url = url
        self.runtime = runtime
        self.process = process
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "", parts.port or 0
        self.base = f"http://{self.host}:{self.port}"
        self._secret = ""

    def request(
        self, path: str, method: str = "GET", body: str | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Send one request and return status, headers and body. Redirects are not followed."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
            response = connection.getresponse()
            return response.status, {name.lower(): text for name, text in response.getheaders()}, response.read()

    @property
    def secret(self) -> str:
        """The secret, in exchange for the token of the printed address."""
        if not self._secret:
            body = json.dumps({"token": urlsplit(self.url).query.removeprefix("token=")})
            status, _, answer = self.request("/api/sign-in", "POST", body)
            assert status == 200, answer
            self._secret = json.loads(answer)["secret"]
        return self._secret

    def new_address(self) -> str:
        """Return an address that signs one browser in."""
        status, _, body = self.request("/api/token", "POST", "{}", Authorization=f"Bearer {self.secret}")
        assert status == 200, body
        return f"{self.base}/?token={json.loads(body)['token']}"

    def get(self, path: str, **query: str) -> Any:
        """Return the JSON at an address of the API."""
        address = f"/api/{path}" + (f"?{urlencode(query)}" if query else "")
        status, _, body = self.request(address, Authorization=f"Bearer {self.secret}")
        assert status == 200, body
        return json.loads(body)

    def events(self, path: str) -> Generator[tuple[str, Any], None, None]:
        """Yield the names and the data of server-sent events."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.secret}"})
            response = connection.getresponse()
            name = ""
            while line := response.readline().decode():
                field, _, value = line.strip().partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    yield name, json.loads(value)


def command_rows(*words: str | Path) -> list[Any]:
    """Return what a command prints with --json."""
    from tests.cli.command import rows, run

    return rows(run(*words, "--json", code=None))


@contextlib.contextmanager
def running(runtime: Path, *words: str | Path) -> Iterator[Server]:
    """Run `toolspan ui --json --no-open` until the context ends; its state files go to `runtime`."""
    runtime.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), "XDG_CONFIG_HOME": str(runtime / "config"),
                   "XDG_STATE_HOME": str(runtime / "state")}  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "toolspan", "ui", "--json", "--no-open", *map(str, words)],
        stdout=subprocess.PIPE, env=environment,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield Server(json.loads(process.stdout.readline())["url"], process, runtime)
    finally:
        process.terminate()
        process.wait(PATIENCE)
        process.stdout.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The web UI on the sample archive."""
    with running(tmp_path_factory.mktemp("ui"), sample.archive()) as started:
        yield started


class Browser:
    """A headless browser."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def sign_in(self, server: Server) -> None:
        """Open an address of the server."""
        self.server = server
        self.driver.get(server.new_address())
        self.wait("document.documentElement.dataset.ready === 'yes'")

    def open(self, path: str, ready: str = "h1") -> None:
        """Open a view and wait for an element of it."""
        self.driver.get(self.server.base + path)
        self.wait(f"document.querySelector({json.dumps(ready)})")

    def run(self, script: str) -> Any:
        """Run a script and return its value."""
        return self.driver.execute_script(script)

    def wait(self, expression: str) -> Any:
        """Wait until an expression is true."""
        from selenium.webdriver.support.ui import WebDriverWait

        waiter = WebDriverWait(self.driver, PATIENCE, poll_frequency=0.05)
        return waiter.until(lambda _: self.run(f"return {expression}"))

    def texts(self, selector: str) -> list[str]:
        """Return the texts of the elements that match."""
        result: list[str] = self.run(
            f"return [...document.querySelectorAll({json.dumps(selector)})].map((e) => e.innerText.trim())"
        )
        return result

    def click(self, selector: str) -> None:
        """Click the first element that matches."""
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def press(self, *keys: str) -> None:
        """Press keys one after another."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def problems(self) -> list[str]:
        """Return the console's errors since the last call, and the warnings of the page's own scripts.

        Other warnings are the browser's advice, such as that a slow machine has not used a preloaded file in time.
        """
        entries = self.driver.get_log("browser")
        return [
            entry["message"] for entry in entries
            if entry["level"] == "SEVERE" or (entry["level"] == "WARNING" and entry["source"] in _OWN_SOURCES)
        ]  # fmt: skip

    def barriers(self, *rules: str) -> list[str]:
        """Return axe-core's serious and critical findings on this page, from all rules or some."""
        options = {"runOnly": {"type": "rule", "values": rules}} if rules else {}
        self.driver.execute_script(AXE.read_text(encoding="utf-8"))
        findings: list[str] = self.driver.execute_async_script(
            "const [options, done] = arguments; axe.run(options).then((result) => done(result.violations"
            ".filter((v) => ['serious', 'critical'].includes(v.impact))"
            ".flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.html.slice(0, 160)} ${n.failureSummary}`))))",
            options,
        )
        return findings

    def resize(self, width: int, height: int) -> None:
        """Set the size of the page, also below the smallest window."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A running browser. Cookies and storage are separate for each server, because they differ in their ports."""
    if NO_BROWSER:
        pytest.skip(NO_BROWSER)
    for started in run_browser(tmp_path_factory.mktemp("browser")):
        started.set_script_timeout(PATIENCE)
        yield started


@pytest.fixture
def empty_browser(driver: Any) -> Iterator[Browser]:
    """A browser with an empty page, for a test with a server of its own."""
    yield open_empty_page(driver)
    open_empty_page(driver)


def open_empty_page(driver: Any) -> Browser:
    """Leave the last page, with its messages and size."""
    driver.get("about:blank")
    driver.get_log("browser")
    browser = Browser(driver)
    browser.resize(1360, 900)
    return browser


@pytest.fixture(scope="module")
def browser(driver: Any, server: Server) -> Browser:
    """A browser that is signed in to the sample archive's server."""
    started = open_empty_page(driver)
    started.sign_in(server)
    return started
