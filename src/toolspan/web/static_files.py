"""Static files below an address that changes with them, so that browsers keep them without asking again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.staticfiles import StaticFiles

if TYPE_CHECKING:
    from starlette.types import Scope

_FOREVER = "public, max-age=31536000, immutable"


class VersionedFiles(StaticFiles):
    """Serve `VERSION/path` from a folder. Other versions get the same files, which browsers then do not keep."""

    def __init__(self, folder: Path) -> None:
        """Serve the files of a folder."""
        super().__init__(directory=str(folder))
        self._folder = folder
        self._version = ""
        self.names = frozenset(path.relative_to(folder).as_posix() for path in _files(folder))

    def find_version(self) -> str:
        """Return a name for the current content, which changes when a file is edited."""
        digest = hashlib.sha256()
        for path in _files(self._folder):
            status = path.stat()
            digest.update(f"{path.name} {status.st_mtime_ns} {status.st_size}\n".encode())
        self._version = digest.hexdigest()[:12]
        return self._version

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return the file of a path without its version."""
        version, _, name = path.partition("/")
        response = await super().get_response(name, scope)
        if response.status_code == 200 and version == self._version:
            response.headers["Cache-Control"] = _FOREVER
        return response


def _files(folder: Path) -> Iterator[Path]:
    return iter(sorted(path for path in folder.rglob("*") if path.is_file()))
