"""Chromium for the tests of pages."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")


def _find_obstacle() -> str | None:
    if not (CHROMIUM and DRIVER):
        return "neither Chromium nor its driver is installed (Debian: chromium, chromium-driver)"
    try:
        socket.gethostbyname("localhost")  # the driver is asked by this name
    except OSError:
        return "there is no address for localhost, by which Chromium's driver is asked (see /etc/hosts)"
    return None


NO_BROWSER = _find_obstacle()
"""The reason why no browser can be started, or None."""


def run_browser(profile: Path) -> Iterator[Any]:
    """Yield a browser with an own profile, and end it. The page's console can be read."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                     "--window-size=1360,900", f"--user-data-dir={profile}"):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(DRIVER))
    # Without it, some versions of Chromium have no focus without a window, and send no event when an element loses it.
    started.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})
    yield started
    started.quit()
