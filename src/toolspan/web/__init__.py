"""`toolspan ui`: the web UI. `server.py` starts it, `api.py` lists the data it serves, `static/` is the front end.

`questions.py` asks the archive, as the command line does, so that the page and the commands show the same numbers.
`WebApprover` asks for permission in the page.
"""

from __future__ import annotations

from toolspan.integrations.web_approver import WebApprover

__all__ = ["WebApprover"]
