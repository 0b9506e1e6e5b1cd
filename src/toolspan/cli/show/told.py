"""A session that is read, with what is told at its head.

In: its files. Out: transcripts, and `Told`.
"""

from collections.abc import Sequence

from msgspec import Struct

from toolspan.cli.reading import readable
from toolspan.model.span import Span
from toolspan.model.tokens import Tokens
from toolspan.read.discover import FoundFile
from toolspan.read.lineage import sum_tokens
from toolspan.read.messages import script
from toolspan.read.timeline import Strand, timeline
from toolspan.read.transcript import Transcript, read


class Told(Struct, frozen=True, kw_only=True):
    """A session, read."""

    main: Transcript
    files: list[Transcript]
    strand: Strand

    @classmethod
    def of(cls, files: Sequence[FoundFile]) -> "Told":
        """The session of these files."""
        found = transcripts(files)
        strand = timeline([script(transcript) for transcript in found])
        return cls(main=found[0], files=found, strand=strand)

    @property
    def cwd(self) -> str | None:
        """The folder it worked in."""
        return self.main.info.cwd

    @property
    def spans(self) -> list[Span]:
        """Every call, subagents' calls included."""
        return [placed.span for strand in self.strand.strands() for placed in strand.calls]

    @property
    def agents(self) -> int:
        """How many subagents it had."""
        return sum(1 for _ in self.strand.strands()) - 1

    @property
    def tokens(self) -> Tokens:
        """Of all files, each message once."""
        return sum_tokens(transcript.message_tokens for transcript in self.files)

    @property
    def busiest(self) -> int:
        """How many calls of one batch were under way at once, at most."""
        batches = (batch for strand in self.strand.strands() for batch in strand.batches)
        groups = (group for batch in batches for group in batch.groups)
        return max((group.concurrency for group in groups), default=0)


def transcripts(files: Sequence[FoundFile]) -> list[Transcript]:
    """The session's own transcript, then its subagents'."""
    mains = [file for file in files if file.name.role != "agent"] or files
    main = max(mains, key=lambda file: file.modified)
    others = [file for file in files if file.name.role == "agent" and file is not main]
    return [read(main.path), *readable(file.path for file in others)]
