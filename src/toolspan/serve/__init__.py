"""Toolspan as a server for other agents. `service.py` answers, `pipe.py` is the wire."""

from toolspan.serve.pipe import Wire, private_wire
from toolspan.serve.service import serve

__all__ = ["Wire", "private_wire", "serve"]
