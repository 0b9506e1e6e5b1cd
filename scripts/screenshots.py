"""Write the pictures in docs/images: pages of `toolspan --demo ui` in Chromium, and the output of a command as SVG.

    python scripts/screenshots.py

Needs chromium and chromedriver.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console
from rich.text import Text
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
TOOLSPAN = (sys.executable, "-m", "toolspan", "--demo")
SESSION = "3c5a7e91-d0b4-42f6-a8e3-6b1d9f0c2e47"
DENIED = "toolu_01IZEhtLdBt6gyzFSJhUAVb9"
PAGES = {
    "ui-overview": "/",
    "ui-session": f"/session/{SESSION}",
    "ui-call": f"/call/{DENIED}?session=c2a9e6b4-71d3-4f0a-8e1c-93b5d2f4a610",
    "ui-files": "/files?path=/home/mira/paperboat/static/search.js",
}
WIDTH, HEIGHT, COLORS = 1280, 800, 128
COLUMNS, LINES = 108, 22
SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" class="rich-terminal">
<style>{styles} .{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
font-size: {char_height}px; line-height: {line_height}px; }}</style>
<defs>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def environment(home: str) -> dict[str, str]:
    """Return an environment in which nothing of the user is read or written."""
    return {**os.environ, "HOME": home, "XDG_CACHE_HOME": f"{home}/cache", "XDG_RUNTIME_DIR": home, "TZ": "UTC"}


def draw_command(home: str, *arguments: str) -> str:
    """Return the first lines that a command prints at a terminal, as SVG."""
    command = f"toolspan --demo {' '.join(arguments)}"
    printed = subprocess.run(
        [*TOOLSPAN, *arguments],
        env={**environment(home), "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.assemble(("$ ", "dim"), (command, "bold")))
    for line in printed.splitlines()[:LINES]:
        console.print(Text.from_ansi(line), no_wrap=True, overflow="crop")
    return console.export_svg(title="", code_format=SVG, unique_id="t", font_aspect_ratio=0.6)


def start_server(home: str) -> tuple[subprocess.Popen[str], str]:
    """Start the UI, and return its process and its address."""
    server = subprocess.Popen(
        [*TOOLSPAN, "ui", "--no-open", "--json", "--port", "0"],
        env=environment(home),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    return server, json.loads(server.stdout.readline())["url"]


def take_pictures(url: str) -> None:
    """Write a picture of each page."""
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", f"--window-size={WIDTH},{HEIGHT + 200}", "--lang=en"):
        options.add_argument(argument)
    options.binary_location = shutil.which("chromium") or ""
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        driver.get(url)
        base = url.partition("/?")[0]
        for name, path in PAGES.items():
            driver.get(base + path)
            WebDriverWait(driver, 60).until(_is_drawn)
            target = IMAGES / f"{name}.png"
            driver.save_screenshot(str(target))
            picture = Image.open(target).convert("RGB").crop((0, 0, WIDTH, HEIGHT))
            picture.quantize(COLORS, dither=Image.Dither.NONE).save(target, optimize=True)
    finally:
        driver.quit()


def _is_drawn(driver: Any) -> bool:
    driver.set_script_timeout(30)
    texts = []
    for _ in range(2):  # nothing changes for a second
        texts.append(driver.find_element(By.TAG_NAME, "body").text)
        driver.execute_async_script("setTimeout(arguments[0], 1000)")
    return texts[0] == texts[1] and len(texts[0]) > 200


def main() -> None:
    """Write every picture."""
    with tempfile.TemporaryDirectory() as home:
        (IMAGES / "errors.svg").write_text(draw_command(home, "errors"), encoding="utf-8")
        server, url = start_server(home)
        try:
            take_pictures(url)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
