"""Whether failures were recovered, for those who only ask about failures.

In: a path. Out: the facts of the calls that did not succeed, as a survey of failures gives them,
and what became of each. Reads no messages, tokens or titles. Read `file_recovery` first.
"""

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.read.facts import facts_of
from toolspan.read.groups import Fate
from toolspan.read.survey import FileFacts, unreadable
from toolspan.read.transcript import read_calls
from toolspan.report.flow.chains import Ending, endings


class FileRecovery(Struct, frozen=True, kw_only=True):
    """The failures of one file, and what was done about them."""

    facts: FileFacts
    endings: list[Ending]

    @property
    def problem(self) -> str | None:
        """Why the file could not be read."""
        return self.facts.problem


def file_recovery(path: str) -> FileRecovery:
    """The failures of one file; a file that cannot be read is told, not raised."""
    return _recovery(path, everything=False)


def file_recovery_all(path: str) -> FileRecovery:
    """The same with the facts of all calls, for those who choose among them."""
    return _recovery(path, everything=True)


def _recovery(path: str, *, everything: bool) -> FileRecovery:
    try:
        transcript = read_calls(Path(path))
        spans = transcript.spans
    except SourceError as error:
        return FileRecovery(facts=unreadable(path, error), endings=[])
    wanted = spans if everything else [span for span in spans if span.state != "succeeded"]
    facts = FileFacts(
        file=transcript.file,
        info=transcript.info,
        counts=transcript.counts,
        calls=[facts_of(span, transcript.file) for span in wanted],
        message_tokens={},
        tokens_raw_sum=transcript.tokens_raw_sum,
        findings=transcript.findings,
        started=transcript.started,
        successes=[] if everything else transcript.successes,
    )
    return FileRecovery(facts=facts, endings=endings(spans))


def fates(found: Iterable[Ending]) -> dict[tuple[str, str | None], Fate]:
    """What became of each failed call, by its id and message; of copies, the best that did."""
    told: dict[tuple[str, str | None], Fate] = {}
    for ending in found:
        fate = Fate(ending.recovered, ending.by)
        for name in ending.failures:
            if name not in told or fate.recovered:
                told[name] = fate
    return told
