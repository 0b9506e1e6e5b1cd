"""Shared code for the file tools: safe reads, exact text, atomic replacement, notebooks, images and PDF pages."""

from __future__ import annotations
