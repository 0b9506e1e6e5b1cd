"""Settings files: what a person wants of every session. Start at `load.py`."""

from toolspan.settings.load import Permissions, Settings, load

__all__ = ["Permissions", "Settings", "load"]
