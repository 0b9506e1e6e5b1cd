"""A small archive of invented sessions, written by `scripts/make_sample.py`."""

from __future__ import annotations

from importlib import resources
from pathlib import Path


def archive() -> Path:
    """Return the folder of the archive; its `claude` subfolder is a client folder."""
    return Path(str(resources.files("toolspan.testing") / "sample_archive"))
