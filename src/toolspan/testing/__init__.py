"""For those who test against transcripts: make one by hand, in any client's shape.

Start at `TranscriptBuilder`; `bodies` has what the common tools give back.
"""

from toolspan.testing.bodies import Body
from toolspan.testing.shape import project_name
from toolspan.testing.transcripts import TranscriptBuilder

__all__ = ["Body", "TranscriptBuilder", "project_name"]
