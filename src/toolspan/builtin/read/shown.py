"""What Read tells of a file, and which content that was."""

from dataclasses import dataclass

from toolspan.builtin.read.asked import Question
from toolspan.disk.load import Stamp
from toolspan.run.tool import Output


@dataclass(frozen=True, slots=True)
class Shown:
    """What is told of a file, and which content that was."""

    question: Question
    output: Output
    digest: str
    stamp: Stamp
