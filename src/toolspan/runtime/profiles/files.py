"""Read, Write and Edit: what differs between client versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

Numbering = Literal["tab", "arrow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileValues:
    """Texts and policies of the file tools of one client version; `{path}` and such are filled."""

    numbering: Numbering = "tab"
    """`1<TAB>line`, or the number right-aligned in six columns and an arrow."""
    read_first: bool = True
    """Edit and Write of an existing file need a Read before."""
    free_models: tuple[str, ...] = ()
    """Models that may write without reading; matched at the beginning of the name."""
    default_model_is_free: bool = False
    expands_home: bool = True
    """`~` at the beginning of a path stands for the home folder."""

    missing: str = "File does not exist. Note: your current working directory is {cwd}."
    read_missing: str = "File does not exist. Note: your current working directory is {cwd}."
    unreadable_folder: str = "EISDIR: illegal operation on a directory, read '{path}'"
    device: str = "Cannot read '{path}': this path names a device or process file that this tool does not read."
    too_large: str = "File content ({size}) exceeds maximum allowed size ({most})."
    empty: str = "Warning: the file exists but the contents are empty."
    beyond_end: str = (
        "Warning: the file exists but is shorter than the provided offset ({offset}). The file has {lines} lines."
    )
    checks_early: bool = False
    """A missing or too large file is refused before the Read runs, not by the Read."""
    odd_range: Literal["dropped", "first", "from_end"] = "dropped"
    """A negative offset, or a limit below one: left out, taken as the first line and no line, or
    counted from the end of the file."""
    zero_is_first: bool = False
    """An offset of 0 is the first line and numbered so; otherwise the first line is numbered 0."""
    whole_numbers: bool = True
    """The range is declared as whole numbers."""
    extra_inputs: frozenset[str] = frozenset({"pages", "allow_large"})
    """What Read takes beside path and range."""
    reports_unchanged: bool = False
    """A second Read of the same unchanged lines is answered by a pointer to the first."""
    decodes_utf16: bool = True
    reports_bad_bytes: bool = True
    """A note below the lines says that some bytes are no text."""
    checks_images: bool = True
    """What has the name of an image and is none is an error; otherwise it is sent as it is."""
    plain_dimensions: bool = False
    """An image's size is `width` and `height`, not four values for original and display."""
    scale_note_inline: bool = False
    """How much an image was scaled down stands in the result itself, not beside it."""
    document_inline: bool = True
    """A PDF stands in the result itself, not beside it."""

    reports_current: bool = True
    """What was written is followed by a note that the model need not read it again."""
    reports_unseen: bool = True
    """That note is left out, and the record says so, when the model has not seen the file."""
    snippet: bool = False
    """What was written is shown with line numbers."""
    all_replaced: str = "The file {path} has been updated. All occurrences were successfully replaced."
    no_match: str = "String to replace not found in file.\nString: {old}"
    records_user_modified: bool = True
    """Write records `userModified`."""
    keeps_curly: bool = True
    """Text that replaces curly quotes gets curly quotes."""
    recovers_stale: bool = True
    """Edit of a file that changed since it was read goes on when the text still matches."""
    folder_first: bool = True
    """Write says of a folder that it is one, before it asks for a Read."""

    def for_model(self, model: str | None) -> FileValues:
        """The same values as they hold for a model."""
        free = self.default_model_is_free if model is None else model.startswith(self.free_models)
        return replace(self, read_first=False) if free else self


_V2_1_325 = FileValues(free_models=("claude-opus-5",), default_model_is_free=True)
_V2_1_197 = replace(
    _V2_1_325,
    free_models=(),
    default_model_is_free=False,
    device="Cannot read '{path}': this device file would block or produce infinite output.",
    empty=_V2_1_325.beyond_end,
    extra_inputs=frozenset({"pages"}),
    reports_unchanged=True,
    decodes_utf16=False,
    reports_bad_bytes=False,
    document_inline=False,
    reports_unseen=False,
    recovers_stale=False,
    folder_first=False,
)
_V2_1_80 = replace(
    _V2_1_197,
    numbering="arrow",
    odd_range="first",
    whole_numbers=False,
    reports_unchanged=False,
    checks_images=False,
    reports_current=False,
    records_user_modified=False,
)
_V2_0_65 = replace(
    _V2_1_80,
    expands_home=False,
    missing="File does not exist.",
    read_missing="File does not exist.",
    unreadable_folder="EISDIR: illegal operation on a directory, read",
    checks_early=True,
    odd_range="from_end",
    scale_note_inline=True,
    extra_inputs=frozenset(),
    snippet=True,
    all_replaced=(
        "The file {path} has been updated. All occurrences of '{old}' were successfully replaced with '{new}'."
    ),
    keeps_curly=False,
)
_SEED = replace(
    _V2_0_65,
    read_missing="File not found: {path}",
    no_match="old_string not found in file",
    zero_is_first=True,
    plain_dimensions=True,
)

FILES: Mapping[str, FileValues] = {
    "seed": _SEED,
    "2.0.65": _V2_0_65,
    "2.1.80": _V2_1_80,
    "2.1.197": _V2_1_197,
    "2.1.325": _V2_1_325,
}
