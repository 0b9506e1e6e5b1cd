"""A text that replaces another in a file: what Edit asks for once and MultiEdit several times.

In: the texts as the model gave them, and what the file has. Out: the places and the changed text,
or a refusal in the client's words. Touches no file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from toolspan.disk.match import curled, find
from toolspan.disk.text import Span, Text, plain, spliced
from toolspan.disk.words import clean
from toolspan.profile import FileValues
from toolspan.run.change import not_a_file
from toolspan.run.tool import Refusal

MOST = 128 << 20
"""Bytes of a file that can be edited: it is compared and recorded whole."""
PROPERTIES: Mapping[str, object] = {
    "old_string": {"type": "string", "description": "The text to replace"},
    "new_string": {"type": "string", "description": "The text to put there"},
    "replace_all": {
        "type": "boolean",
        "default": False,
        "description": "Replace it wherever it stands",
    },
}
"""How the model asks for it."""
_SEVERAL = (
    "Found {count} matches of the string to replace, but replace_all is false. To replace all"
    " occurrences, set replace_all to true. To replace only one occurrence, please provide more"
    " context to uniquely identify the instance.\nString: {old}"
)


@dataclass(frozen=True, slots=True)
class Replacement:
    """One text for another; an empty old one makes a new file."""

    old: str
    new: str
    everywhere: bool

    @classmethod
    def of(cls, given: Mapping[str, object]) -> Self:
        """As the model asked for it."""
        return cls(
            old=clean(str(given["old_string"])),
            new=clean(str(given["new_string"])),
            everywhere=given.get("replace_all") is True,
        )

    @property
    def creates(self) -> bool:
        """Whether it makes a new file."""
        return not self.old

    def unchanging(self) -> Refusal | None:
        """Both texts are the same."""
        if self.old != self.new:
            return None
        return Refusal(
            "No changes to make: old_string and new_string are exactly the same.", "no_change"
        )

    def places(self, text: Text, values: FileValues) -> Sequence[Span] | Refusal:
        """Where the old text stands."""
        spans = [Span(0, 0)] if self.creates else find(text.plain, plain(self.old))
        if not spans:
            return Refusal(values.no_match.format(old=self.old), "no_match")
        if len(spans) > 1 and not self.everywhere:
            return Refusal(_SEVERAL.format(count=len(spans), old=self.old), "ambiguous_match")
        return spans

    def made(self, text: Text, spans: Sequence[Span], values: FileValues) -> Text:
        """The text with the new one at these places."""
        replaced = text.plain[spans[0].start : spans[0].end]
        return spliced(text, spans, curled(self.new, replaced) if values.keeps_curly else self.new)


def not_editable(path: Path, name: str, mode: int) -> Refusal | None:
    """There is something that has no text to replace."""
    if refusal := not_a_file(name, mode):
        return refusal
    if path.suffix.lower() == ".ipynb":
        text = "File is a Jupyter Notebook. Use the NotebookEdit to edit this file."
        return Refusal(text, "invalid_input")
    return None


def exists() -> Refusal:
    """A new file was to be made where there is one."""
    return Refusal("Cannot create new file - file already exists.", "invalid_input")
