"""Static files at URLs that change with their content, so that browsers can cache them without revalidation."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.staticfiles import StaticFiles

if TYPE_CHECKING:
    from starlette.types import Scope

_IMPORT = re.compile(r'^(?:import|export)\b[^"]* from "(\.[^"]+)";', re.MULTILINE)
_FOREVER = "public, max-age=31536000, immutable"


class VersionedFiles(StaticFiles):
    """Serve `VERSION/path` from a folder. Any version returns the current file, but only the current one is cached."""

    def __init__(self, folder: Path) -> None:
        """Serve the files of a folder."""
        super().__init__(directory=str(folder))
        self._folder = folder
        self._version = ""
        self._imports: dict[tuple[str, ...], list[str]] = {}
        self.names = frozenset(path.relative_to(folder).as_posix() for path in _files(folder))

    def find_version(self) -> str:
        """Return a name for the current content, which changes when a file is edited."""
        digest = hashlib.sha256()
        for path in _files(self._folder):
            status = path.stat()
            digest.update(f"{path.name} {status.st_mtime_ns} {status.st_size}\n".encode())
        self._version = digest.hexdigest()[:12]
        return self._version

    def find_imports(self, *names: str) -> list[str]:
        """Return the named modules and, recursively, their imports. Names that do not exist are left out.

        perf: the page preloads them, so that the browser does not discover the imports level by level.
        """
        key = (self._version, *names)
        if key not in self._imports:
            found: list[str] = []
            pending = [name for name in names if name in self.names]
            while pending:
                module = pending.pop(0)
                found.append(module)
                text, folder = (self._folder / module).read_text(encoding="utf-8"), posixpath.dirname(module)
                imports = (posixpath.normpath(posixpath.join(folder, path)) for path in _IMPORT.findall(text))
                pending += [path for path in imports if path in self.names and path not in (*found, *pending)]
            self._imports[key] = found
        return self._imports[key]

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return the file at `VERSION/path`."""
        version, _, name = path.partition("/")
        response = await super().get_response(name, scope)
        if response.status_code == 200 and version == self._version:
            response.headers["Cache-Control"] = _FOREVER
        return response


def _files(folder: Path) -> Iterator[Path]:
    return iter(sorted(path for path in folder.rglob("*") if path.is_file()))
