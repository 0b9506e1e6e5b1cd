"""Checks against real clients and measured material; see README.md."""
