"""Values as JSON, whatever is in them: endless numbers, halves of letters, bottomless lists.

In: a record or a plain value. Out: one line of JSON. Never raises for what a transcript holds.
"""

from msgspec import MsgspecError, Struct
from msgspec import json as fast

from toolspan.wire import document

TOO_DEEP = "[nested too deeply]"


def encoded(value: Struct | dict[str, object]) -> bytes:
    """A value as compact JSON; one that is nested too deeply as a note that says so."""
    try:
        return fast.encode(value)
    except (UnicodeEncodeError, OverflowError, RecursionError, TypeError, MsgspecError):
        pass
    try:
        return document.encode(_plain(value, 512))
    except (ValueError, RecursionError):
        return document.encode(_plain(value, 32))


def _plain(value: object, deepest: int) -> object:
    """The value as JSON knows it, down to a depth."""
    if deepest < 0:
        return TOO_DEEP
    match value:
        case Struct():
            named = {one: getattr(value, one) for one in value.__struct_fields__}
            tag = value.__struct_config__.tag
            return _plain({"type": tag, **named} if tag else named, deepest)
        case dict():
            return {str(key): _plain(one, deepest - 1) for key, one in value.items()}
        case list() | tuple():
            return [_plain(one, deepest - 1) for one in value]
        case _:
            return value
