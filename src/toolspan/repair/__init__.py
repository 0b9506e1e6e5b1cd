"""A damaged session made anew beside itself. Start at `mend.py`."""

from toolspan.repair.mend import Mended, mend
from toolspan.repair.records import Change
from toolspan.repair.rewrite import Repaired, repair

__all__ = ["Change", "Mended", "Repaired", "mend", "repair"]
