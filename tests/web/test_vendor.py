"""The third-party files of the front end are those that vendor.toml names."""

from __future__ import annotations

import hashlib
import re
import tomllib
from importlib import resources
from pathlib import Path

STATIC = Path(str(resources.files("toolspan.web") / "static"))
VENDOR = STATIC / "vendor"


def test_each_vendored_file_has_a_version_a_licence_and_its_checksum() -> None:
    files = tomllib.loads((VENDOR / "vendor.toml").read_text(encoding="utf-8"))["file"]
    assert {file["name"] for file in files} == {
        path.name for path in VENDOR.iterdir() if path.suffix in (".js", ".css")
    }
    for file in files:
        assert file["version"] and file["license"] and file["package"]
        assert hashlib.sha256((VENDOR / file["name"]).read_bytes()).hexdigest() == file["sha256"], file["name"]


def test_modules_import_only_files_of_the_front_end() -> None:
    imports = re.compile(r"""^\s*(?:import|export)\b[^;'"]*?\bfrom\s+["']([^"']+)|\bimport\(\s*["']([^"']+)""", re.M)
    for module in STATIC.rglob("*.js"):
        if module.parent == VENDOR and module.name != "preact-htm.js":
            continue
        for match in imports.finditer(module.read_text(encoding="utf-8")):
            name = match[1] or match[2]
            assert name.startswith("."), f"{module.name} imports {name}"
            assert (module.parent / name).resolve().is_file(), f"{module.name} imports {name}"
