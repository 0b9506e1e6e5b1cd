"""Ids in the clients' forms that come out the same every time: for scripts and fixtures."""

import base64
import hashlib
import string
import uuid

_LETTERS = string.digits + string.ascii_letters


class Ids:
    """Ids in the clients' forms; the same seed gives the same ids in the same order."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._count = 0

    def uuid(self) -> str:
        """The id of a session, a line or a prompt."""
        return str(uuid.UUID(bytes=self._bytes()[:16], version=4))

    def token(self, prefix: str, length: int = 22) -> str:
        """The id of a call (`toolu_01`), a message (`msg_01`) or a request (`req_011`)."""
        return prefix + "".join(_LETTERS[byte % len(_LETTERS)] for byte in self._bytes()[:length])

    def hex(self, length: int) -> str:
        """The id of a subagent, without its first letter."""
        return self._bytes().hex()[:length]

    def signature(self) -> str:
        """What stands in the place of a signature; it verifies nowhere."""
        return base64.b64encode(self._bytes()).decode("ascii")

    def _bytes(self) -> bytes:
        self._count += 1
        return hashlib.sha256(f"{self._seed}:{self._count}".encode()).digest()
