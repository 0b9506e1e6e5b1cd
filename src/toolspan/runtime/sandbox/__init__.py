"""Run commands inside an operating system sandbox.

Start at `settings.py` for the limits, `active.py` for applying them to a command, and `bubblewrap.py` for enforcing
them on Linux.
"""

from __future__ import annotations

from toolspan.runtime.sandbox.settings import Sandbox, SandboxUnavailable

__all__ = ["Sandbox", "SandboxUnavailable"]
