"""Codex rollouts to the same spans, messages and facts as Claude's. Start at `reader.py`."""

from __future__ import annotations
