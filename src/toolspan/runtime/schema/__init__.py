"""From a signature to a JSON Schema, from an input to a valid one, from a fault to a sentence."""

from __future__ import annotations
