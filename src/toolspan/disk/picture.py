"""What kind of image some bytes are, and how large: told by their first bytes.

In: bytes. Out: a `Picture`, or None for anything but PNG, JPEG, GIF and WebP. Decodes no pixels.
"""

from dataclasses import dataclass

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
class Picture:
    """An image's type and size in pixels."""

    media_type: str
    width: int
    height: int


def picture(data: bytes) -> Picture | None:
    """The image in the bytes."""
    try:
        return _png(data) or _gif(data) or _webp(data) or _jpeg(data)
    except IndexError:
        return None


def _png(data: bytes) -> Picture | None:
    if not data.startswith(b"\x89PNG\r\n\x1a\n") or data[12:16] != b"IHDR":
        return None
    return Picture("image/png", _big(data, 16, 4), _big(data, 20, 4))


def _gif(data: bytes) -> Picture | None:
    if data[:6] not in (b"GIF87a", b"GIF89a"):
        return None
    return Picture("image/gif", _little(data, 6, 2), _little(data, 8, 2))


def _webp(data: bytes) -> Picture | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None
    match data[12:16]:
        case b"VP8X":
            width, height = 1 + _little(data, 24, 3), 1 + _little(data, 27, 3)
        case b"VP8L":
            bits = _little(data, 21, 4)
            width, height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            width, height = _little(data, 26, 2) & 0x3FFF, _little(data, 28, 2) & 0x3FFF
        case _:
            return None
    return Picture("image/webp", width, height)


def _jpeg(data: bytes) -> Picture | None:
    if data[:3] != b"\xff\xd8\xff":
        return None
    at = 2
    while True:  # ends by IndexError when no size follows
        while data[at + 1] == 0xFF:  # fill bytes
            at += 1
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in _JPEG_NO_SIZE:
            return Picture("image/jpeg", _big(data, at + 7, 2), _big(data, at + 5, 2))
        at += 2 + _big(data, at + 2, 2)


def _big(data: bytes, at: int, count: int) -> int:
    return int.from_bytes(_exactly(data, at, count), "big")


def _little(data: bytes, at: int, count: int) -> int:
    return int.from_bytes(_exactly(data, at, count), "little")


def _exactly(data: bytes, at: int, count: int) -> bytes:
    if at + count > len(data):
        raise IndexError(at)
    return data[at : at + count]
