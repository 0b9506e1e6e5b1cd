"""One line of a file, read again: a span keeps places, not bytes.

In: a source, a place in it, and how its lines are decoded. Out: what stands there. A place that
does not hold it any more (the file was rewritten) raises SourceError. Knows no client's format.
"""

from collections.abc import Callable
from typing import TypeVar

from toolspan.errors import SourceError
from toolspan.model.place import Place
from toolspan.wire import document
from toolspan.wire.source import Source

T = TypeVar("T")


def read_again(source: Source, place: Place, decode: Callable[[bytes], T]) -> T:
    """What stands at a place; of a damaged line, what was saved first.

    Raises:
        SourceError: nothing that can be decoded.
    """
    data = source.read(place.offset, place.length)
    try:
        return decode(data)
    except ValueError:
        pieces = document.recover(data).pieces
    if not pieces:
        raise SourceError(f"{place}: the line has changed since it was read")
    return decode(pieces[0].data)


def gone(place: Place, call_id: str) -> SourceError:
    """A line that can be decoded, without the call it had."""
    return SourceError(f"{place}: {call_id} is no longer there")
