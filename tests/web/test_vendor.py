"""The third-party files of the front end are those that vendor.toml names; its own modules keep to the line length."""

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
        data = (VENDOR / file["name"]).read_bytes()
        if "changed" in file:
            before, after = (text.encode() for text in file["changed"])
            assert data.count(after) == 1
            data = data.replace(after, before)
        assert hashlib.sha256(data).hexdigest() == file["sha256"], file["name"]


def test_modules_import_only_files_of_the_front_end() -> None:
    imports = re.compile(r"""^\s*(?:import|export)\b[^;'"]*?\bfrom\s+["']([^"']+)|\bimport\(\s*["']([^"']+)""", re.M)
    for module in STATIC.rglob("*.js"):
        if module.parent == VENDOR and module.name not in ("preact.js", "preact-hooks.js", "htm.js"):
            continue
        for match in imports.finditer(module.read_text(encoding="utf-8")):
            name = match[1] or match[2]
            assert name.startswith("."), f"{module.name} imports {name}"
            assert (module.parent / name).resolve().is_file(), f"{module.name} imports {name}"


def test_lines_of_modules_have_at_most_120_characters() -> None:
    modules = [module for module in STATIC.rglob("*.js") if VENDOR not in module.parents]
    assert modules
    long = [
        f"{module.relative_to(STATIC)}:{number}"
        for module in modules
        for number, line in enumerate(module.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 120 or line != line.rstrip()
    ]
    assert long == []
