"""`--format json`: one object per call and line, bodies included.

In: stories. Out: lines of JSON. Keys are the fields of `CallRecord`; texts are exact.
"""

from collections.abc import Iterable, Iterator

from toolspan.export.encode import encoded
from toolspan.export.story import Story


def write(stories: Iterable[Story]) -> Iterator[bytes]:
    """Every call of the stories, a line each."""
    for story in stories:
        for call in story.calls():
            yield encoded(call) + b"\n"
