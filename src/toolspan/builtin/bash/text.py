"""Bytes that a command printed, as text that goes back.

In: captured bytes. Out: text that any JSON can hold, cut and trimmed as clients do it. Blank means
what it means in a client's language, which leaves control characters alone.
"""

import base64
import binascii
import re

from toolspan.process import Capture

_BLANKS = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_IMAGE = re.compile(r"data:(image/(?:png|jpeg|gif|webp));base64,([A-Za-z0-9+/]+={0,2})")


def decode(capture: Capture) -> str:
    """What is in memory of a stream; what is no UTF-8 is replaced."""
    return capture.data.decode("utf-8", "replace")


def trimmed(text: str) -> str:
    """Without blank lines before it and blanks behind it; the first line keeps its indent."""
    body = text.lstrip(_BLANKS)
    lead = text[: len(text) - len(body)]
    return (lead[lead.rfind("\n") + 1 :] + body).rstrip(_BLANKS)


def end_trimmed(text: str) -> str:
    """Without blanks behind it."""
    return text.rstrip(_BLANKS)


def joined(*parts: str) -> str:
    """The parts that are not empty, one below the other."""
    return "\n".join(part for part in parts if part)


def image_block(text: str) -> dict[str, object] | None:
    """A picture that was printed as a data URI; None when it is none that a model could see."""
    found = _IMAGE.fullmatch(text)
    if found is None:
        return None
    try:
        base64.b64decode(found[2], validate=True)
    except binascii.Error:
        return None
    source = {"type": "base64", "media_type": found[1], "data": found[2]}
    return {"type": "image", "source": source}


def lines_cut(text: str, limit: int, lost: int = 0) -> str:
    """The beginning of a text that is over the limit, and how many lines are gone.

    `lost` are those that were not even kept in memory.
    """
    if len(text) <= limit:
        return text
    gone = text.count("\n", limit) + 1 + lost
    return f"{text[:limit]}\n\n... [{gone} lines truncated] ..."


def duration(milliseconds: float, *, tenths: bool) -> str:
    """A time in words: `1s`, `2m 0s`; with tenths `2m 0.0s`."""
    seconds = milliseconds / 1000
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    shown = f"{rest:.1f}s" if tenths else f"{int(rest)}s"
    if hours:
        return f"{hours}h {minutes}m {shown}"
    return f"{minutes}m {shown}" if minutes else shown
