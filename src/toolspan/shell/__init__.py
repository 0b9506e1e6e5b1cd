"""What a command line would do, as far as it can be told without running it.

Start at `line.py` (a command line in pieces), then `readonly.py` (does it change anything) and
`exits.py` (what its exit code means).
"""

from __future__ import annotations
