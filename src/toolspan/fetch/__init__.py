"""Pages of the web, fetched without surprises: pinned addresses, limits, HTML as Markdown.

Start at `web.py`.
"""
