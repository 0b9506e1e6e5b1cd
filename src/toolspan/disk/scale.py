"""Images made small enough for a model.

In: an image's bytes. Out: the same image, or a smaller one, in a format that a model's server
takes. Blocking, and slow for large images; tools call it in a worker thread.
"""

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolspan.disk.picture import Picture
from toolspan.errors import ToolError

if TYPE_CHECKING:
    from PIL import Image

MOST_SIDE = 2000
"""Pixels."""
MOST_BYTES = (5 << 20) * 3 // 4
"""A server takes five megabytes, in base64."""
MOST_PIXELS = 150_000_000
"""More are not unpacked: a small file can hold a picture that fills the memory."""
_QUALITIES = (85, 60, 40, 20)


@dataclass(frozen=True, slots=True)
class Fitted:
    """An image as it is sent."""

    data: bytes
    media_type: str
    width: int
    height: int


def fitted(data: bytes, found: Picture) -> Fitted:
    """The image, scaled down where a side is too long, packed tighter where it has too many bytes.

    Raises:
        ToolError: it has to be made smaller and cannot be unpacked.
    """
    if max(found.width, found.height) <= MOST_SIDE and len(data) <= MOST_BYTES:
        return Fitted(data, found.media_type, found.width, found.height)
    if found.width * found.height > MOST_PIXELS:
        raise ToolError(
            f"The image has {found.width} × {found.height} pixels; that is more than is unpacked"
            " to scale it down.",
            kind="too_large",
        )
    return _smaller(data, found)


def _smaller(data: bytes, found: Picture) -> Fitted:
    import warnings

    from PIL import Image

    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(data)) as image:
            warnings.simplefilter("ignore")  # the size is checked above
            image.load()
            return _packed(_scaled(image, found), found.media_type)
    except (OSError, SyntaxError, ValueError) as error:
        raise ToolError(
            f"The image cannot be unpacked to scale it down: {error}", kind="invalid_input"
        ) from error


def _scaled(image: "Image.Image", found: Picture) -> "Image.Image":
    factor = min(1.0, MOST_SIDE / max(found.width, found.height))
    size = (max(1, round(found.width * factor)), max(1, round(found.height * factor)))
    if image.mode not in ("L", "LA", "RGB", "RGBA"):
        transparent = "A" in image.mode or "transparency" in image.info
        image = image.convert("RGBA" if transparent else "RGB")
    return image.resize(size)


def _packed(image: "Image.Image", media_type: str) -> Fitted:
    """In its own format if that is small enough, else as JPEG, worse and worse."""
    if media_type != "image/jpeg":
        data = _saved(image, "WEBP" if media_type == "image/webp" else "PNG")
        kind = "image/webp" if media_type == "image/webp" else "image/png"
        if len(data) <= MOST_BYTES:
            return Fitted(data, kind, image.width, image.height)
    opaque = image if image.mode in ("L", "RGB") else image.convert("RGB")
    for quality in _QUALITIES:
        data = _saved(opaque, "JPEG", quality)
        if len(data) <= MOST_BYTES:
            break
    return Fitted(data, "image/jpeg", image.width, image.height)


def _saved(image: "Image.Image", kind: str, quality: int = 80) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, quality=quality)
    return out.getvalue()
