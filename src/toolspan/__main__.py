"""`python -m toolspan`: the same as the command."""

from __future__ import annotations

from toolspan.cli import main

if __name__ == "__main__":
    main()
