"""Read: images that are scaled down, and pages of documents."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest
from PIL import Image
from pypdf import PdfReader, PdfWriter

from tests.requirement import requirement
from tests.tools.files import ToolCaller, kind, record
from toolspan.runtime.profiles import VERSIONS
from toolspan.tools.files.image import MAX_IMAGE_BYTES
from toolspan.tools.files.pdf import PageRange
from toolspan.types.events import Finished

pytestmark = pytest.mark.anyio

NOTE = "[Image: original 2400x1200, displayed at 2000x1000. Multiply coordinates by 1.20 to map to original image.]"


def save(path: Path, size: tuple[int, int], mode: str = "RGB") -> None:
    Image.new(mode, size).save(path)


def result_image(finished: Finished) -> Image.Image:
    """Return the decoded image of a result."""
    assert isinstance(finished.content, list)
    source = cast("Mapping[str, str]", finished.content[-1]["source"])
    image = Image.open(io.BytesIO(base64.b64decode(source["data"])))
    image.load()
    assert source["media_type"] == f"image/{str(image.format).lower()}"
    return image


@requirement("read-tool.scales-images")
@pytest.mark.parametrize("version", VERSIONS)
async def test_an_image_with_a_long_side_is_scaled_down(tmp_path: Path, version: str) -> None:
    save(tmp_path / "big.png", (2400, 1200))

    finished = await ToolCaller(tmp_path, version).read("big.png")

    assert result_image(finished).size == (2000, 1000)
    file = record(finished)["file"]
    assert file["originalSize"] == (tmp_path / "big.png").stat().st_size
    plain = {"width": 2400, "height": 1200}
    four = {
        "originalWidth": 2400, "originalHeight": 1200, "displayWidth": 2000, "displayHeight": 1000,
    }  # fmt: skip
    assert file["dimensions"] == (plain if version == "seed" else four)
    if version in ("seed", "2.0.65"):
        assert isinstance(finished.content, list)
        assert finished.content[0] == {"type": "text", "text": NOTE}
        assert finished.companions == ()
    else:
        assert finished.companions == (NOTE,)


@requirement("read-tool.scales-images")
@pytest.mark.parametrize(
    ("name", "mode", "output"),
    [
        ("a.jpg", "CMYK", "JPEG"),
        ("a.jpeg", "L", "JPEG"),
        ("a.webp", "RGBA", "WEBP"),
        ("a.gif", "P", "PNG"),
        ("a.png", "I;16", "PNG"),
        ("a.png", "LA", "PNG"),
        ("a.png", "1", "PNG"),
    ],
)
async def test_every_kind_of_image_can_be_scaled(tmp_path: Path, name: str, mode: str, output: str) -> None:
    save(tmp_path / name, (10, 2500), mode)

    image = result_image(await ToolCaller(tmp_path).read(name))

    assert (image.format, image.size) == (output, (8, 2000))


@requirement("read-tool.scales-images")
async def test_an_image_with_too_many_bytes_is_compressed(tmp_path: Path) -> None:
    noise = Image.effect_noise((1400, 1400), 100).convert("RGB")
    noise.save(tmp_path / "noise.png", compress_level=0)

    finished = await ToolCaller(tmp_path).read("noise.png")

    data = base64.b64decode(record(finished)["file"]["base64"])
    assert result_image(finished).format == "JPEG"
    assert len(data) <= MAX_IMAGE_BYTES
    assert finished.companions == ()


@requirement("read-tool.scales-images")
async def test_an_image_that_cannot_be_decoded_is_reported(tmp_path: Path) -> None:
    save(tmp_path / "cut.png", (3000, 3000))
    data = (tmp_path / "cut.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(data[: len(data) // 2])
    (tmp_path / "bomb.gif").write_bytes(b"GIF89a" + b"\xff\xff\xff\xff" + bytes(20))
    session = ToolCaller(tmp_path)

    assert kind(await session.read("cut.png")) == "invalid_input"
    assert kind(await session.read("bomb.gif")) == "too_large"


def document(path: Path, pages: int, *, padding: int = 0) -> None:
    writer = PdfWriter()
    for number in range(1, pages + 1):
        writer.add_blank_page(width=100 + number, height=200)
    if padding:
        writer.add_attachment("padding", bytes(range(256)) * (padding // 256))
    writer.write(path)


def widths(data: bytes) -> list[int]:
    return [int(page.mediabox.width) for page in PdfReader(io.BytesIO(data)).pages]


async def test_selected_pages_are_returned_as_a_document(tmp_path: Path) -> None:
    document(tmp_path / "a.pdf", 9)
    session = ToolCaller(tmp_path)

    some = await session.read("a.pdf", pages="2-4")

    size = (tmp_path / "a.pdf").stat().st_size
    file = record(some)["file"]
    folder = Path(file["outputDir"])
    assert record(some)["type"] == "parts"
    assert (file["filePath"], file["count"], file["originalSize"]) == ("a.pdf", 3, size)
    assert [widths(path.read_bytes()) for path in sorted(folder.iterdir())] == [[102], [103], [104]]
    assert isinstance(some.content, list)
    assert str(some.content[0]["text"]).startswith("PDF pages extracted: 3 pages from a.pdf")
    source = cast("Mapping[str, str]", some.content[1]["source"])
    assert widths(base64.b64decode(source["data"])) == [102, 103, 104]


@pytest.mark.parametrize(
    ("text", "pages"),
    [
        ("3", PageRange(3, 3)),
        (" 1 - 5 ", PageRange(1, 5)),
        ("10-", PageRange(10, None)),
        ("0", None),
        ("5-1", None),
        ("-3", None),
        ("1,2", None),
        ("all", None),
        ("", None),
    ],
)
def test_page_ranges_are_parsed(text: str, pages: PageRange | None) -> None:
    assert PageRange.parse(text) == pages


async def test_pages_that_cannot_be_fetched_are_reported(tmp_path: Path) -> None:
    document(tmp_path / "a.pdf", 3)
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4\nnothing")
    session = ToolCaller(tmp_path)

    odd = await session.read("a.pdf", pages="x")
    too_many = await session.read("a.pdf", pages="1-21")
    beyond = await session.read("a.pdf", pages="4")
    broken = await session.read("broken.pdf", pages="1")
    rest = await session.read("a.pdf", pages="2-")

    assert str(odd.content).startswith('<tool_use_error>Invalid pages parameter: "x".')
    assert "exceeds maximum of 20 pages per request" in str(too_many.content)
    assert beyond.content == "The document has 3 pages, so page 4 does not exist."
    assert kind(broken) == "invalid_input"
    assert "exceeds maximum of 20 pages per request" in str(rest.content)


async def test_a_document_with_too_many_pages_must_be_read_in_parts(tmp_path: Path) -> None:
    document(tmp_path / "long.pdf", 101, padding=200 << 10)
    document(tmp_path / "short.pdf", 100, padding=200 << 10)
    session = ToolCaller(tmp_path)

    long = await session.read("long.pdf")
    short = await session.read("short.pdf")

    assert "has 101 pages" in str(long.content)
    assert kind(long) == "too_large"
    assert record(short)["type"] == "pdf"
