"""NotebookEdit: what differs between client versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookValues:
    """Policies of NotebookEdit in one client version."""

    read_first: bool = True
    """The notebook has to be read before it is changed, whatever the model."""
    name_first: bool = True
    """The file's name is looked at before the file."""
    records_old_source: bool = True
    records_file: bool = True
    """The record has the whole notebook before and after."""


_V2_1_197 = NotebookValues()
_V2_1_80 = replace(_V2_1_197, read_first=False, records_old_source=False)
_V2_0_65 = replace(_V2_1_80, name_first=False, records_file=False)

NOTEBOOKS: Mapping[str, NotebookValues] = {
    "seed": _V2_0_65,
    "2.0.65": _V2_0_65,
    "2.1.80": _V2_1_80,
    "2.1.197": _V2_1_197,
    "2.1.325": _V2_1_197,
}
