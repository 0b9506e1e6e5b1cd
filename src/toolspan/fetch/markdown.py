"""A page as a model reads it: HTML as Markdown.

In: the bytes of a page. Out: text. Blocking, and slow for large pages; callers use a thread.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bs4 import BeautifulSoup

_NOISE = ("script", "style", "noscript", "template", "svg", "iframe", "title", "head")


def to_markdown(html: bytes, charset: str | None) -> str:
    """The content of an HTML page, without scripts and styles; its title first."""
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(html, "html.parser", from_encoding=charset)
    title = " ".join(soup.title.get_text(" ").split()) if soup.title else ""
    for part in soup(_NOISE):
        part.decompose()
    text = _converted(soup).strip()
    lines = (line.rstrip() for line in text.split("\n"))
    body = _without_gaps("\n".join(lines))
    return f"# {title}\n\n{body}" if title and not body.startswith("# ") else body


def _converted(soup: "BeautifulSoup") -> str:
    from markdownify import MarkdownConverter

    try:
        return str(MarkdownConverter(heading_style="atx").convert_soup(soup))
    except RecursionError:  # a page of thousands of nested boxes
        return str(soup.get_text("\n", strip=True))


def _without_gaps(text: str) -> str:
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text
