"""Recognize images and scale them down to the size that models accept.

`read_image_info` reads only the header; `scale_to_limits` decodes the image.
"""

from __future__ import annotations

import io
import struct
import warnings
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

MAX_SIDE_PIXELS = 2000
MAX_IMAGE_BYTES = (5 << 20) * 3 // 4
"""The maximum image size in bytes. Servers accept five megabytes of base64."""
MAX_PIXELS = 150_000_000
"""The number of pixels above which an image is not decoded, because a small file could exhaust the memory."""
_QUALITIES = (85, 60, 40, 20)
_JPEG_NO_SIZE = frozenset({0xC4, 0xC8, 0xCC})
"""Markers in the frame header range that are not frame headers."""


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """The type of an image and its size in pixels."""

    media_type: str
    width: int
    height: int


def read_image_info(data: bytes) -> ImageInfo | None:
    """Read the type and size from the header, or return None unless the image is PNG, JPEG, GIF or WebP."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
            return ImageInfo("image/png", *struct.unpack_from(">II", data, 16))
        if data[:6] in (b"GIF87a", b"GIF89a"):
            return ImageInfo("image/gif", *struct.unpack_from("<HH", data, 6))
        if data[:3] == b"\xff\xd8\xff":
            return _read_jpeg_info(data)
        if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
            return None
        match data[12:16]:
            case b"VP8X":  # two 24-bit sizes
                low_width, high_width, low_height, high_height = struct.unpack_from("<HBHB", data, 24)
                width, height = 1 + low_width + (high_width << 16), 1 + low_height + (high_height << 16)
            case b"VP8L":  # two 14-bit sizes
                (bits,) = struct.unpack_from("<I", data, 21)
                width, height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
            case b"VP8 ":
                width, height = (size & 0x3FFF for size in struct.unpack_from("<HH", data, 26))
            case _:
                return None
        return ImageInfo("image/webp", width, height)
    except (IndexError, struct.error):
        return None


def _read_jpeg_info(data: bytes) -> ImageInfo:
    at = 2
    while True:  # the end of the data raises an error
        while data[at + 1] == 0xFF:  # fill bytes
            at += 1
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in _JPEG_NO_SIZE:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return ImageInfo("image/jpeg", width, height)
        (length,) = struct.unpack_from(">H", data, at + 2)
        at += 2 + length


@dataclass(frozen=True, slots=True)
class ScaledImage:
    """An image as sent to the model."""

    data: bytes
    media_type: str
    width: int
    height: int


def scale_to_limits(data: bytes, info: ImageInfo) -> ScaledImage:
    """Scale an image down if a side is too long, and compress it if it has too many bytes.

    Raise ToolError if the image is over the limits and cannot be decoded.
    """
    if max(info.width, info.height) <= MAX_SIDE_PIXELS and len(data) <= MAX_IMAGE_BYTES:
        return ScaledImage(data, info.media_type, info.width, info.height)
    if info.width * info.height > MAX_PIXELS:
        raise ToolError(
            f"The image has {info.width} × {info.height} pixels, too many to scale it down. Make it smaller first.",
            kind="too_large",
        )
    from PIL import Image

    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(data)) as image:
            warnings.simplefilter("ignore")  # the size is checked above
            image.load()
            if image.mode not in ("L", "LA", "RGB", "RGBA"):
                transparent = "A" in image.mode or "transparency" in image.info
                opened: Image.Image = image.convert("RGBA" if transparent else "RGB")
            else:
                opened = image
            factor = min(1.0, MAX_SIDE_PIXELS / max(info.width, info.height))
            size = (max(1, round(info.width * factor)), max(1, round(info.height * factor)))
            return _compress_image(opened.resize(size), info.media_type)
    except (OSError, SyntaxError, ValueError) as error:
        raise ToolError(f"The image cannot be decoded to scale it down: {error}", kind="invalid_input") from error


def _compress_image(image: Image.Image, media_type: str) -> ScaledImage:
    """Encode in the original format if the result is small enough, and otherwise as JPEG of decreasing quality."""
    if media_type != "image/jpeg":
        image_format = "WEBP" if media_type == "image/webp" else "PNG"
        data = _encode_image(image, image_format)
        if len(data) <= MAX_IMAGE_BYTES:
            return ScaledImage(data, f"image/{image_format.lower()}", image.width, image.height)
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
