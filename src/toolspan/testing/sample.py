"""A small archive of invented sessions, to try things on without one's own transcripts.

`scripts/make_sample.py` writes it; nobody's real sessions are in it.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path


def archive() -> Path:
    """The folder of the archive; in it, `claude` is laid out as the client lays out its own."""
    return Path(str(resources.files("toolspan.testing") / "sample_archive"))
