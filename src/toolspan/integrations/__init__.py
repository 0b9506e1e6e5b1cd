"""Toolspan's tools inside other agents' loops: one module for each library, none loaded by itself.

A loop that is not ours decides when a tool is called; toolspan decides whether and how it runs,
and what is written down of it. Each module needs its library, which is an extra of the package.
"""

from __future__ import annotations
