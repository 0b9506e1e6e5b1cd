"""Pages whose blocks are run, and whose outputs are compared."""

from __future__ import annotations
