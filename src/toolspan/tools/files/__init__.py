"""Helpers that the file tools share: change checks, notebooks, images and PDF pages."""
