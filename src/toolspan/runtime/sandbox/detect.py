"""Detect the sandboxes that this machine supports."""

from __future__ import annotations

import sys

from toolspan.runtime.sandbox.backend import Availability, SandboxBackend
from toolspan.runtime.sandbox.bubblewrap import detect_bubblewrap
from toolspan.runtime.sandbox.settings import Sandbox, SandboxUnavailable


def detect_backends(sandbox: Sandbox) -> tuple[Availability, ...]:
    """Return the back ends for this system in order of preference, including those that do not work."""
    if sys.platform == "darwin":
        from toolspan.runtime.sandbox.seatbelt import detect_seatbelt

        return (detect_seatbelt(),)
    from toolspan.runtime.sandbox.landlock import detect_landlock

    return (detect_bubblewrap(sandbox), detect_landlock())


def select_backend(sandbox: Sandbox) -> SandboxBackend:
    """Return the best back end that works.

    Raises:
        SandboxUnavailable: none works.
    """
    first = detect_bubblewrap(sandbox) if sys.platform != "darwin" else None
    if first is not None and first.backend is not None:
        return first.backend
    candidates = detect_backends(sandbox)
    for candidate in candidates:
        if candidate.backend is not None:
            return candidate.backend
    problems = "; ".join(candidate.problem or "unknown reason" for candidate in candidates)
    fix = next((candidate.fix for candidate in candidates if candidate.fix), None)
    hint = f" Run `{fix}`." if fix else ""
    raise SandboxUnavailable(
        f"The sandbox cannot be used: {problems}.{hint} To run commands without it, set"
        ' "failIfUnavailable": false in the sandbox settings or use --no-sandbox.'
    )
