"""What kind of image some bytes are, and how large: told by their first bytes.

In: bytes. Out: a `Picture`, or None for anything but PNG, JPEG, GIF and WebP. Decodes no pixels.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolspan.errors import ToolError

if TYPE_CHECKING:
    from PIL import Image


MEDIA_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
"""By the name's ending."""

_JPEG_NO_SIZE = frozenset({0xC4, 0xC8, 0xCC})


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """An image's type and size in pixels."""

    media_type: str
    width: int
    height: int


def read_image_info(data: bytes) -> ImageInfo | None:
    """The image in the bytes."""
    try:
        return _parse_png(data) or _parse_gif(data) or _parse_webp(data) or _parse_jpeg(data)
    except IndexError:
        return None


def _parse_png(data: bytes) -> ImageInfo | None:
    if not data.startswith(b"\x89PNG\r\n\x1a\n") or data[12:16] != b"IHDR":
        return None
    return ImageInfo("image/png", _read_big_endian(data, 16, 4), _read_big_endian(data, 20, 4))


def _parse_gif(data: bytes) -> ImageInfo | None:
    if data[:6] not in (b"GIF87a", b"GIF89a"):
        return None
    return ImageInfo("image/gif", _read_little_endian(data, 6, 2), _read_little_endian(data, 8, 2))


def _parse_webp(data: bytes) -> ImageInfo | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None
    match data[12:16]:
        case b"VP8X":
            width, height = (1 + _read_little_endian(data, 24, 3), 1 + _read_little_endian(data, 27, 3))
        case b"VP8L":
            bits = _read_little_endian(data, 21, 4)
            width, height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            width, height = (_read_little_endian(data, 26, 2) & 0x3FFF, _read_little_endian(data, 28, 2) & 0x3FFF)
        case _:
            return None
    return ImageInfo("image/webp", width, height)


def _parse_jpeg(data: bytes) -> ImageInfo | None:
    if data[:3] != b"\xff\xd8\xff":
        return None
    at = 2
    while True:  # ends by IndexError when no size follows
        while data[at + 1] == 0xFF:  # fill bytes
            at += 1
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in _JPEG_NO_SIZE:
            return ImageInfo("image/jpeg", _read_big_endian(data, at + 7, 2), _read_big_endian(data, at + 5, 2))
        at += 2 + _read_big_endian(data, at + 2, 2)


def _read_big_endian(data: bytes, at: int, count: int) -> int:
    return int.from_bytes(_slice_exactly(data, at, count), "big")


def _read_little_endian(data: bytes, at: int, count: int) -> int:
    return int.from_bytes(_slice_exactly(data, at, count), "little")


def _slice_exactly(data: bytes, at: int, count: int) -> bytes:
    if at + count > len(data):
        raise IndexError(at)
    return data[at : at + count]


MAX_SIDE_PIXELS = 2000
"""Pixels."""
MAX_IMAGE_BYTES = (5 << 20) * 3 // 4
"""A server takes five megabytes, in base64."""
MAX_PIXELS = 150_000_000
"""More are not unpacked: a small file can hold a picture that fills the memory."""
_QUALITIES = (85, 60, 40, 20)


@dataclass(frozen=True, slots=True)
class ScaledImage:
    """An image as it is sent."""

    data: bytes
    media_type: str
    width: int
    height: int


def scale_to_limits(data: bytes, info: ImageInfo) -> ScaledImage:
    """The image, scaled down where a side is too long, packed tighter where it has too many bytes.

    Raises:
        ToolError: it has to be made smaller and cannot be unpacked.
    """
    if max(info.width, info.height) <= MAX_SIDE_PIXELS and len(data) <= MAX_IMAGE_BYTES:
        return ScaledImage(data, info.media_type, info.width, info.height)
    if info.width * info.height > MAX_PIXELS:
        raise ToolError(
            f"The image has {info.width} × {info.height} pixels; that is more than is unpacked to scale it down.",
            kind="too_large",
        )
    return _shrink_image(data, info)


def _shrink_image(data: bytes, info: ImageInfo) -> ScaledImage:
    import warnings

    from PIL import Image

    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(data)) as image:
            warnings.simplefilter("ignore")  # the size is checked above
            image.load()
            return _compress_image(_resize_image(image, info), info.media_type)
    except (OSError, SyntaxError, ValueError) as error:
        raise ToolError(f"The image cannot be unpacked to scale it down: {error}", kind="invalid_input") from error


def _resize_image(image: Image.Image, info: ImageInfo) -> Image.Image:
    factor = min(1.0, MAX_SIDE_PIXELS / max(info.width, info.height))
    size = (max(1, round(info.width * factor)), max(1, round(info.height * factor)))
    if image.mode not in ("L", "LA", "RGB", "RGBA"):
        transparent = "A" in image.mode or "transparency" in image.info
        image = image.convert("RGBA" if transparent else "RGB")
    return image.resize(size)


def _compress_image(image: Image.Image, media_type: str) -> ScaledImage:
    """In its own format if that is small enough, else as JPEG, worse and worse."""
    if media_type != "image/jpeg":
        data = _encode_image(image, "WEBP" if media_type == "image/webp" else "PNG")
        output_type = "image/webp" if media_type == "image/webp" else "image/png"
        if len(data) <= MAX_IMAGE_BYTES:
            return ScaledImage(data, output_type, image.width, image.height)
    opaque = image if image.mode in ("L", "RGB") else image.convert("RGB")
    for quality in _QUALITIES:
        data = _encode_image(opaque, "JPEG", quality)
        if len(data) <= MAX_IMAGE_BYTES:
            break
    return ScaledImage(data, "image/jpeg", image.width, image.height)


def _encode_image(image: Image.Image, image_format: str, quality: int = 80) -> bytes:
    out = io.BytesIO()
    image.save(out, image_format, quality=quality)
    return out.getvalue()
