"""How long tests wait. A machine may be busy, so no test depends on being fast."""

from __future__ import annotations

import os

TEST_LIMIT = 20 if os.environ.get("HYPOTHESIS_PROFILE") == "mutants" else 600
"""Seconds after which a test counts as stuck; far more than any test needs on a busy machine."""
PATIENCE = TEST_LIMIT // 2
"""Seconds that a test waits for another process or task. Only a test that fails waits as long."""
