"""What the model reads of a search, and what is recorded.

In: what was found, what was asked for. Out: an `Output` in the client's words.
"""

from dataclasses import dataclass

from toolspan.builtin.search.asked import Asked
from toolspan.builtin.search.found import Counts, Files, Lines
from toolspan.profile import SearchValues
from toolspan.run.tool import Output

_NO_FILES = "No files found"
_NO_MATCHES = "No matches found"
_PAST = "No entries at this offset"
_TOO_MUCH = "\n\n[There is more, too much to be kept: ask for less.]"


@dataclass(frozen=True, slots=True)
class _Page:
    """Which part of what was found is given."""

    wanted: Asked
    values: SearchValues
    total: int
    """How many were found, or heard of before enough was."""

    @property
    def cut(self) -> bool:
        """Something is left out behind it."""
        return self.wanted.reach is not None and self.total > self.wanted.reach

    def record(self) -> dict[str, object]:
        """As it is recorded."""
        told: dict[str, object] = {}
        if self.values.tells_whole_range:
            if self.wanted.limit is not None:
                told["appliedLimit"] = self.wanted.limit
        elif self.cut:
            given = self.wanted.limit
            told["appliedLimit"] = self.values.default_limit if given is None else given
        if self.wanted.offset:
            told["appliedOffset"] = self.wanted.offset
        return told

    def text(self) -> str:
        """As the model reads it; empty when all is given."""
        told = self.record()
        if self.values.tells_whole_range:
            if not any(told.values()):
                return ""
            limit = told.get("appliedLimit", "undefined")  # as clients of that age say it
            return f"limit: {limit}, offset: {told.get('appliedOffset', 0)}"
        names = {"appliedLimit": "limit", "appliedOffset": "offset"}
        return ", ".join(f"{names[key]}: {number}" for key, number in told.items())

    def too_much(self, given: int) -> str:
        """What is said when everything was asked for, and that is too much."""
        asked_all = self.wanted.most is None
        return _TOO_MUCH if asked_all and given and self.total > self.wanted.skip + given else ""

    def nothing(self, text: str) -> str:
        """What is said when nothing is given."""
        return _PAST if self.values.tells_totals and self.total else text


def files_output(found: Files, wanted: Asked, values: SearchValues) -> Output:
    """The files that match."""
    names = found.names()
    page = _Page(wanted, values, found.total)
    record: dict[str, object] = {
        "mode": wanted.mode,
        "filenames": names,
        "numFiles": len(names),
    }
    if values.tells_totals:
        record["totalFiles"] = found.total
    record |= page.record()
    told = page.text()
    if names:
        head = " ".join(part for part in (f"Found {_files(len(names))}", told) if part)
        return Output("\n".join((head, *names)) + page.too_much(len(names)), record)
    text = page.nothing(_NO_FILES)
    if text == _PAST:
        text += f". [Showing results with pagination = {told}]"
    return Output(text, record)


def lines_output(found: Lines, wanted: Asked, values: SearchValues) -> Output:
    """The lines that match."""
    page = _Page(wanted, values, found.total)
    content = "\n".join(found.lines)
    record: dict[str, object] = {
        "mode": wanted.mode,
        "numFiles": 0,
        "filenames": [],
        "content": content,
        "numLines": len(found.lines),
    }
    if values.tells_totals:
        record["totalLines"] = found.total
    record |= page.record()
    text = _cut(content, values.cuts_content) if found.lines else page.nothing(_NO_MATCHES)
    if told := page.text():
        text += f"\n\n[Showing results with pagination = {told}]"
    return Output(text + (_TOO_MUCH if found.full else ""), record)


def counts_output(found: Counts, wanted: Asked, values: SearchValues) -> Output:
    """How many lines match in each file."""
    page = _Page(wanted, values, found.total)
    record = {
        "mode": wanted.mode,
        "numFiles": found.files,
        "filenames": [],
        "content": "\n".join(found.lines),
        "numMatches": found.matches,
        **page.record(),
    }
    plural = "" if found.matches == 1 else "s"
    text = "\n".join(found.lines) or page.nothing(_NO_MATCHES)
    text += f"\n\nFound {found.matches} total occurrence{plural} across {_files(found.files)}."
    if told := page.text():
        text += f" with pagination = {told}"
    return Output(text + page.too_much(len(found.lines)), record)


def _files(number: int) -> str:
    return f"{number} file" if number == 1 else f"{number} files"


def _cut(content: str, most: int | None) -> str:
    """The first characters, and how many lines are gone."""
    if most is None or len(content) <= most:
        return content
    gone = content.count("\n", most) + 1
    return f"{content[:most]}\n\n... [{gone} lines truncated] ..."
