"""`python -m toolspan`: the same as the command."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # Python would import modules from the current folder, in which sandboxed commands can put some.
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109 - as Python wrote it
        del sys.path[0]

    from toolspan.cli import main

    main()
