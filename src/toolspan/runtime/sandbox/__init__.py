"""Run commands inside a sandbox of the operating system.

Start at `settings.py` for the limits, `active.py` for how a command gets them and `bubblewrap.py` for how Linux
enforces them.
"""

from __future__ import annotations

from toolspan.runtime.sandbox.settings import Sandbox, SandboxUnavailable

__all__ = ["Sandbox", "SandboxUnavailable"]
