"""Build the documentation as a web site, and check it.

    python scripts/build_site.py [--out .scratch/site/html]

Copies the Markdown files of the repository and what they link to, so that their relative links stay valid, and
builds them with mkdocs. Fails if a link or an anchor leads nowhere, if a page loads something from another address,
or if a file contains a path of this machine.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
SCRATCH = ROOT / ".scratch" / "site"
INCLUDED = ("*.md", "LICENSE", "docs/**/*", "examples/**/*", "benchmarks/*.md")
SUFFIXES = ("", ".md", ".png", ".svg", ".py", ".ipynb", ".toml")
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\(([^)#:]+\.md)\)")
LOCAL_LINK = re.compile(r"\[([^\]]+)\]\(([^)#:\s]+)(?:#[^)\s]+)?\)")
CODE = re.compile(r"`[^`\n]+`")
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


def copy_sources(target: Path) -> None:
    """Copy the files of the site, with the same relative paths. Links to other files of the repository become text."""
    paths = {
        path
        for pattern in INCLUDED
        for path in ROOT.glob(pattern)
        if path.is_file() and path.suffix in SUFFIXES and not path.name.startswith(".")
    }
    for path in paths:
        copy = target / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            text = unlink_others(path.read_text(encoding="utf-8"), path.parent, paths)
            copy.write_text(unescape_bars(text), encoding="utf-8")
        else:
            shutil.copyfile(path, copy)


def unlink_others(text: str, folder: Path, included: set[Path]) -> str:
    """Replace links to files that the repository has and the site has not by their text."""

    def keep(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        return link[1] if target.exists() and target not in included else link[0]

    return LOCAL_LINK.sub(keep, text)


def unescape_bars(text: str) -> str:
    r"""Replace `\|` in code inside tables by `|`, because Python-Markdown prints the backslash."""
    lines = text.split("\n")
    return "\n".join(
        CODE.sub(lambda code: code[0].replace("\\|", "|"), line) if line.startswith("|") else line for line in lines
    )


def make_navigation() -> list[object]:
    """Return the navigation: the sections and pages of docs/README.md, with the decisions below one entry."""
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    _, *parts = SECTION.split(index)
    navigation: list[object] = [{"Start": "README.md"}, {"All pages": "docs/README.md"}]
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        navigation.append({title: [_entry(name, link) for name, link in LINK.findall(text)]})
    return navigation


def _entry(title: str, link: str) -> dict[str, object]:
    page = (ROOT / "docs" / link).resolve().relative_to(ROOT)
    if page.parent.name != "decisions":
        return {title: str(page)}
    listed = LINK.findall((ROOT / page).read_text(encoding="utf-8"))
    decisions = [{name: str(page.parent / file)} for name, file in listed if "/" not in file]
    return {title[0].upper() + title[1:]: [str(page), *decisions]}


def build(out: Path) -> None:
    """Build the site with mkdocs, which fails on links to missing pages and headings."""
    sources = SCRATCH / "sources"
    for folder in (sources, out):
        shutil.rmtree(folder, ignore_errors=True)
    copy_sources(sources)
    config = SCRATCH / "mkdocs.yml"
    settings = {
        "INHERIT": str(ROOT / "mkdocs.yml"), "docs_dir": str(sources), "site_dir": str(out), "nav": make_navigation(),
    }  # fmt: skip
    config.write_text(json.dumps(settings, indent=1), encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "--quiet", "build", "--config-file", str(config)]
    subprocess.run(command, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=True)
    (out / "sitemap.xml").unlink(missing_ok=True)  # it needs the address of the site
    (out / "sitemap.xml.gz").unlink(missing_ok=True)


class Page(HTMLParser):
    """The links, loaded addresses and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the addresses and the anchor of an element."""
        values = {name: value for name, value in attrs if value is not None}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if address := values.get(LOADING.get(tag, "")):
            self.loaded.append(address)


@cache
def read_page(path: Path) -> Page:
    """Return a page."""
    return Page(path.read_text(encoding="utf-8"))


def check_links(out: Path) -> list[str]:
    """Return the links that lead nowhere, and what is loaded from another address."""
    problems = []
    for path in sorted(out.rglob("*.html")):
        page = read_page(path)
        name = path.relative_to(out)
        problems += [f"{name} loads {address}" for address in page.loaded if urlsplit(address).netloc]
        if path.name == "404.html":  # its addresses are those of a site at the root
            continue
        problems += [f"{name}: {link}" for link in {*page.links, *page.loaded} if not leads_somewhere(path, link)]
    return problems


def leads_somewhere(page: Path, link: str) -> bool:
    """Return whether a local link has a target; links to other sites are not followed."""
    address = urlsplit(link)
    if address.scheme or address.netloc:
        return True
    target = page.parent / unquote(address.path) if address.path else page
    if not target.is_file():
        return False
    anchor = unquote(address.fragment)
    return not anchor or target.suffix != ".html" or anchor in read_page(target.resolve()).anchors


def find_machine_paths(out: Path) -> list[str]:
    """Return the files that name this checkout, this machine or the home folder of this user."""
    home = str(Path.home())
    words = {str(ROOT), *({home} if home.count("/") > 1 else ())}
    words |= {name for name in (socket.gethostname(), getpass.getuser()) if len(name) > 5}
    private = re.compile("|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in sorted(words)).encode())
    return [
        f"{path.relative_to(out)} contains {found[0].decode()}"
        for path in sorted(out.rglob("*"))
        if path.is_file() and (found := private.search(path.read_bytes()))
    ]


def main() -> None:
    """Build and check the site."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=SCRATCH / "html")
    out = parser.parse_args().out.resolve()
    build(out)
    if problems := [*check_links(out), *find_machine_paths(out)]:
        sys.exit("\n".join(problems))
    pages = len([*out.rglob("*.html")])
    print(f"{pages} pages, all links lead somewhere: {out.relative_to(ROOT) if out.is_relative_to(ROOT) else out}")  # noqa: T201


if __name__ == "__main__":
    main()
