"""The page in a real browser: it draws, filters, opens, and nothing in it acts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import NO_BROWSER, run_browser
from tests.export.made import HALF, claude, codex, transcript
from toolspan.export import html
from toolspan.testing import TranscriptBuilder, claude_results

pytest.importorskip("selenium.webdriver")
needs_browser = pytest.mark.skipif(NO_BROWSER is not None, reason=NO_BROWSER or "")
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
        self.wait("document.querySelector('.item')")
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
            "one.dispatchEvent(new Event('change', { bubbles: true }));"
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
    yield from run_browser(tmp_path_factory.mktemp("profile"))


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
def test_a_session_is_drawn_with_a_waterfall_and_rows_and_no_error(browser: Browser) -> None:
    browser.open(busy_page())

    assert browser.texts(".item.call .tool") == ["Read", "Read", "Edit", "Bash", "Bash"]
    assert browser.texts(".item.opens .line") == ["Look at both files", "Run the tests"]
    assert browser.run("return document.querySelectorAll('.waterfall canvas').length") == 5
    assert "5 calls" in browser.texts("[data-test=calls]")
    assert any("permission 6.0 s" in text for text in browser.texts(".legend"))
    assert browser.errors() == []


@needs_browser
def test_a_call_opens_and_shows_input_result_and_diff(browser: Browser) -> None:
    browser.open(busy_page())

    browser.click(".item.call:nth-child(1 of .item.call)")
    browser.wait("document.querySelector('.panel .call-title')")
    browser.run("[...document.querySelectorAll('.item.call')][2].click()")
    browser.wait("document.querySelector('.panel td.old')")

    assert browser.texts(".panel td.old") == ["first"]
    assert browser.texts(".panel td.new") == ["last"]
    browser.run("[...document.querySelectorAll('.item.call')][4].click()")
    browser.wait("document.querySelector('.panel .command')")
    assert "make test" in browser.texts(".panel .command")[0]
    assert "1 failed" in browser.texts(".panel .failure .reason")[0]
    browser.key("Escape")
    browser.wait("!document.querySelector('.panel')")
    assert browser.errors() == []


@needs_browser
def test_search_and_filters_change_what_is_seen(browser: Browser) -> None:
    browser.open(busy_page())

    browser.type("input[type=search]", "SECOND words")  # in the result of a call
    browser.wait("document.querySelector('[data-test=shown]')?.textContent === '1 call shown'")
    assert browser.texts(".item .tool") == ["Read"]
    browser.run("[...document.querySelectorAll('button')].find((one) => one.textContent === 'Clear').click()")
    browser.wait("document.querySelectorAll('.item.call').length === 5")
    browser.run("[...document.querySelectorAll('.chip')].find((one) => one.textContent.includes('denied')).click()")
    browser.wait("document.querySelectorAll('.item.call').length === 1")
    assert browser.texts(".item .about") == ["rm -r build"]
    browser.run("[...document.querySelectorAll('button')].find((one) => one.textContent === 'Clear').click()")
    browser.wait("document.querySelectorAll('.item.call').length === 5")
    browser.type("select[aria-label=Tool]", "Bash")
    browser.wait("document.querySelectorAll('.item.call').length === 2")
    browser.type("input[type=search]", "nothing has this")
    browser.wait("document.querySelector('.empty')")
    assert browser.errors() == []


@needs_browser
def test_keys_move_and_search_and_a_link_opens_a_call(browser: Browser) -> None:
    browser.open(busy_page())

    browser.key("n")
    browser.wait("document.querySelector('.item.current .about')?.textContent === 'rm -r build'")
    browser.key("n")
    browser.wait("document.querySelector('.item.current .about')?.textContent === 'make test'")
    browser.key("/")
    assert browser.run("return document.activeElement.type") == "search"
    address = browser.run("return location.hash")
    browser.run("document.activeElement.blur(); location.hash = ''")
    browser.wait("!document.querySelector('.panel')")
    browser.run(f"location.hash = {json.dumps(address)}")
    browser.wait("document.querySelector('.panel .command')?.textContent.includes('make test')")
    assert browser.errors() == []


@needs_browser
def test_colours_follow_the_system_and_the_switch(browser: Browser) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    browser.open(busy_page())
    light = browser.run(f"return {background}")

    browser.prefer("dark")
    dark = browser.run(f"return {background}")
    browser.prefer("light")

    assert dark != light
    for expected in (dark, light, light):  # dark, light, as the system
        browser.click("button[aria-label^=Theme]")
        browser.wait(f"{background} === {json.dumps(expected)}")


@needs_browser
@pytest.mark.parametrize("width", [360, 390, 1440])
def test_nothing_is_wider_than_the_screen(browser: Browser, width: int) -> None:
    browser.resize(width)
    browser.open(busy_page())
    assert browser.run("return document.documentElement.scrollWidth") <= width
    browser.run("[...document.querySelectorAll('.item.call')][2].click()")
    browser.wait("document.querySelector('.panel td.old')")

    assert browser.run("return document.documentElement.scrollWidth") <= width


@needs_browser
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("make", [claude, codex])
def test_content_of_a_transcript_is_shown_and_never_executed(browser: Browser, make: Any, text: str) -> None:
    browser.open(html.render_transcripts(*make(text)))
    browser.click("input[type=checkbox]")  # thinking
    browser.type("select[aria-label=Messages]", "full")
    browser.wait("document.querySelector('.message.whole')")
    count = browser.run("return document.querySelectorAll('.item.call').length")
    outputs = []
    for number in range(count):
        browser.run(f"[...document.querySelectorAll('.item.call')][{number}]?.click()")
        browser.wait("document.querySelector('.panel .call-detail')")
        outputs.append(browser.run("return document.querySelector('.panel').textContent"))

    output = "".join(outputs)
    assert browser.errors() == []
    assert browser.run("return document.title") != "owned"
    assert browser.run("return document.querySelectorAll('script, iframe').length") == 4
    assert browser.run("return document.querySelectorAll('img').length") == 1  # the icon
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", output)
    if len(text) < 1000:
        start = re.split("[\x00\x1b\u202e]|" + HALF, text)[0]
        assert start in output
    else:
        assert "more characters" in output


def test_the_policy_allows_only_our_own_script() -> None:
    page = html.render_transcripts(*claude("</script>"))
    policy = re.findall(r'Content-Security-Policy" content="([^"]+)"', page)[0]

    assert "default-src &#39;none&#39;" in policy
    assert "unsafe" not in policy
    assert page.count("<script") == 4
    assert page.count("</script>") == 4
    assert "<!--" not in page
    assert not re.findall(r"""<[^>]*(?:src|href)=["']?(?:https?:)?//""", page.partition("<script")[0])


@needs_browser
def test_a_page_with_thousands_of_calls_only_draws_what_is_near(browser: Browser) -> None:
    builder = TranscriptBuilder().prompt("All of it")
    for n in range(5_000):
        call = builder.call("Bash", {"command": f"part {n}"})
        builder.result(call, claude_results.ran("x" * 4_000))
        builder.wait(50)
        if n == 4_321:
            wanted = call
    page = html.render_transcripts(transcript(builder.data()))

    browser.open(page)

    assert len(page) < 20_000_000
    assert browser.run("return document.querySelectorAll('.item').length") < 1_000
    browser.run(f"location.hash = '#call={wanted}'")
    browser.wait("document.querySelector('.panel .command')?.textContent.includes('part 4321')")
    browser.type("input[type=search]", "part 4999")
    browser.wait("document.querySelector('[data-test=shown]')?.textContent === '1 call shown'")
    assert browser.errors() == []
