"""The page in a real browser: it draws, filters, opens, and nothing in it acts."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.export.made import HALF, claude, codex, transcript
from tests.requirement import requirement
from toolspan.export import html
from toolspan.testing import TranscriptBuilder, claude_results

webdriver = pytest.importorskip("selenium.webdriver")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

needs_browser = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="neither Chromium nor its driver is installed")
HOSTILE = (
    "</script><script>document.title='owned'</script><!--",
    "<img src=x onerror=\"document.title='owned'\">",
    "{{7*7}} {%raw%} ${document.title='owned'} javascript:alert(1)",
    "\u202egnp.exe\u202c \u2066x\u2069 a\u2028b\u2029c \ufeff",
    "nul \x00 bell \x07 escape \x1b[2J\x1b]0;owned\x07 \x9b31m",
    f"half {HALF} a letter, שלום مرحبا",
    "x" * 200_000,
)


class Browser:
    """One page in a headless browser."""

    def __init__(self, driver: Any, folder: Path) -> None:
        self._driver = driver
        self._folder = folder

    def open(self, page: str) -> Browser:
        path = self._folder / "page.html"
        path.write_text(page, encoding="utf-8")
        self._driver.get("about:blank")
        self._driver.get_log("browser")
        self._driver.get(path.as_uri())
        assert self.run("return document.documentElement.dataset.ready") == "yes", self.errors()
        return self

    def run(self, script: str) -> Any:
        return self._driver.execute_script(script)

    def wait(self, script: str) -> Any:
        """Wait until an expression is true."""
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self._driver, 30).until(lambda _: self.run(f"return {script}"))

    def click(self, selector: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def texts(self, selector: str) -> list[str]:
        """The texts of the elements that are visible."""
        result: list[str] = self.run(
            f"return [...document.querySelectorAll({json.dumps(selector)})]"
            ".filter((one) => one.checkVisibility()).map((one) => one.textContent)"
        )
        return result

    def type(self, selector: str, text: str) -> None:
        self.run(
            f"const one = document.querySelector({json.dumps(selector)});"
            f"one.value = {json.dumps(text)}; one.dispatchEvent(new Event('input'));"
            "one.dispatchEvent(new Event('change'));"
        )

    def key(self, key: str) -> None:
        self.run(
            "(document.activeElement || document.body).dispatchEvent(new KeyboardEvent('keydown', "
            f"{{key: {json.dumps(key)}, bubbles: true}}))"
        )

    def resize(self, width: int) -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def prefer(self, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def errors(self) -> list[str]:
        """Return the messages of the console."""
        return [entry["message"] for entry in self._driver.get_log("browser")]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    profile = tmp_path_factory.mktemp("profile")
    for option in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   f"--user-data-dir={profile}"):  # fmt: skip
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield made
    made.quit()


@pytest.fixture
def browser(driver: Any, tmp_path: Path) -> Browser:
    result = Browser(driver, tmp_path)
    result.resize(1440)
    result.prefer("light")
    return result


def busy_page() -> str:
    """A page with parallel calls, failures, a wait for permission, and a gap."""
    builder = TranscriptBuilder().prompt("Look at both files")
    first, second = (builder.call("Read", {"file_path": f"/home/dev/project/{n}"}) for n in "ab")
    builder.result(second, claude_results.read("/home/dev/project/b", "second words"), after_ms=100)
    builder.result(first, claude_results.read("/home/dev/project/a", "first words"), after_ms=400)
    edit = builder.call("Edit", {"file_path": "a", "old_string": "first", "new_string": "last"})
    builder.result(edit, claude_results.edited("a", "first\n", "first", "last"), after_ms=90)
    refused = builder.call("Bash", {"command": "rm -r build"})
    builder.result(refused, claude_results.rejected("not that"), after_ms=6_000)
    builder.thinking("hm").text("It was refused.")
    builder.prompt("Run the tests", after_ms=900_000)
    ran = builder.call("Bash", {"command": "make test"})
    builder.result(ran, claude_results.exited(2, "1 failed"), after_ms=3_000)
    return html.render_transcripts(transcript(builder.data()))


@needs_browser
@requirement("export.page")
def test_a_session_is_drawn_with_lanes_rows_and_no_error(browser: Browser) -> None:
    browser.open(busy_page())

    assert browser.texts(".row.call .what b") == ["Read", "Read", "Edit", "Bash", "Bash"]
    assert len(browser.texts(".bar")) == 5
    tops = browser.run("return [...document.querySelectorAll('.bar')].map((b) => b.style.top)")
    assert tops[:3] == ["0px", "17px", "0px"]
    assert browser.texts(".lane.calls .lane-label b") == ["main"]
    assert browser.run("return document.querySelectorAll('.bar .p-permission').length") == 1
    assert browser.texts(".row.prompt .what") == ["Look at both files", "Run the tests"]
    assert browser.errors() == []


@needs_browser
@requirement("export.page")
def test_a_call_opens_and_shows_input_result_and_diff(browser: Browser) -> None:
    browser.open(busy_page())

    browser.click("#c2 .head")

    assert browser.texts("#c2 .diff .d") == ["-first"]
    assert browser.texts("#c2 .diff .a") == ["+last"]
    assert "old_string" in browser.texts("#c2 .field > span")
    assert browser.run("return document.querySelector('#c2 .head').ariaExpanded") == "true"
    browser.click("#c2 .head")
    assert browser.texts("#c2 .body") == []
    browser.click(".bar[data-n='4']")
    assert "1 failed" in browser.texts("#c4 pre")[-1]
    assert browser.errors() == []


@needs_browser
@requirement("export.page-filters")
def test_search_and_filters_change_what_is_seen(browser: Browser) -> None:
    browser.open(busy_page())

    browser.type("#search", "SECOND words")
    browser.wait("document.getElementById('count').textContent === '1 call of 5'")
    assert [text[:4] for text in browser.texts(".row .what")] == ["Read"]
    assert browser.run("return document.querySelectorAll('.bar.off').length") == 4
    browser.key("Escape")
    browser.click(".chip[data-state='denied']")
    assert browser.texts(".row .what code") == ["rm -r build"]
    browser.click("#clear")
    browser.type("#tool", "Bash")
    assert browser.texts(".row .what code") == ["rm -r build", "make test"]
    browser.type("#search", "nothing has this")
    browser.wait("document.querySelector('.empty')")
    browser.click("#clear")
    browser.click("#words")
    assert browser.texts(".row.message") == []
    browser.click("#words")
    browser.click("#thinking")
    assert "hm" in browser.texts(".row.message .what")
    assert browser.errors() == []


@needs_browser
@requirement("export.page")
def test_keys_move_open_and_search(browser: Browser) -> None:
    browser.open(busy_page())

    browser.key("n")
    assert browser.run("return document.activeElement.closest('.row').id") == "c3"
    browser.key("n")
    assert browser.run("return document.activeElement.closest('.row').id") == "c4"
    browser.key("k")
    browser.run("document.activeElement.click()")
    assert len(browser.texts(".row.open")) == 1
    browser.key("/")
    assert browser.run("return document.activeElement.id") == "search"


@needs_browser
@requirement("export.page")
def test_colours_follow_the_system_and_the_switch(browser: Browser) -> None:
    background = "return getComputedStyle(document.body).backgroundColor"
    browser.open(busy_page())
    light = browser.run(background)

    browser.prefer("dark")
    dark = browser.run(background)
    browser.click("#theme")

    assert dark != light
    assert browser.run(background) == light
    browser.click("#theme")
    browser.prefer("light")
    assert browser.run(background) == dark
    browser.click("#theme")
    assert browser.run(background) == light


@needs_browser
@requirement("export.page")
@pytest.mark.parametrize("width", [360, 390, 1440])
def test_nothing_is_wider_than_the_screen(browser: Browser, width: int) -> None:
    browser.resize(width)
    browser.open(busy_page())
    browser.click("#c2 .head")

    assert browser.run("return document.documentElement.scrollWidth") <= width


@needs_browser
@requirement("export.page-hostile")
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("make", [claude, codex])
def test_content_of_a_transcript_is_shown_and_never_executed(browser: Browser, make: Any, text: str) -> None:
    browser.open(html.render_transcripts(*make(text)))
    browser.click("#thinking")
    browser.run("for (const row of [...document.querySelectorAll('.row')]) row.querySelector('.head').click()")

    output = browser.run("return document.querySelector('.row.open pre').textContent")
    assert browser.errors() == []
    assert browser.run("return document.title") != "owned"
    assert browser.run("return document.querySelectorAll('script, img, iframe').length") == 3
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", output)
    if len(text) < 1000:
        start = re.split("[\x00\x1b\u202e]|" + HALF, text)[0]
        assert start in output
    else:
        assert "more characters" in output


@requirement("export.page-hostile")
def test_the_policy_allows_only_our_own_script() -> None:
    page = html.render_transcripts(*claude("</script>"))
    policy = re.findall(r'Content-Security-Policy" content="([^"]+)"', page)[0]

    assert "default-src &#39;none&#39;" in policy
    assert "unsafe" not in policy
    assert page.count("<script") == 3
    assert page.count("</script>") == 3
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", page)


@needs_browser
@requirement("export.page-size")
def test_a_page_with_thousands_of_calls_only_draws_what_is_near(browser: Browser) -> None:
    builder = TranscriptBuilder().prompt("All of it")
    for n in range(5_000):
        builder.result(builder.call("Bash", {"command": f"part {n}"}), claude_results.ran("x" * 4_000))
        builder.wait(50)
    page = html.render_transcripts(transcript(builder.data()))

    browser.open(page)

    assert len(page) < 20_000_000
    assert browser.run("return document.querySelectorAll('.row').length") < 1_000
    browser.run("location.hash = '#c4321'")
    browser.wait("document.querySelector('#c4321.open')")
    assert "part 4321" in browser.texts("#c4321 .field pre")
    browser.type("#search", "part 4999")
    browser.wait("document.getElementById('count').textContent === '1 call of 5,000'")
    assert browser.errors() == []
