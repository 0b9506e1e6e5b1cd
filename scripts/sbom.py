"""Write the bill of materials (CycloneDX 1.6, JSON) and the list of licences of an installation of toolspan.

    .scratch/dist/wheel/bin/python scripts/sbom.py dist

Runs in the environment that it describes, and needs nothing but the standard library. Lists the packages that toolspan
and its extras need, and the files of other projects that are part of toolspan. SOURCE_DATE_EPOCH sets the time, so
that the same environment gives the same bytes.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

VENDOR = Path("src/toolspan/web/static/vendor/vendor.toml")
DATA = (
    ("gitleaks rules", "8.30.1", "MIT", "toolspan/redaction/gitleaks.json"),
    ("genai-prices data", "0.2.1", "MIT", "toolspan/prices.json"),
)
OWN = "toolspan"
NAME = re.compile(r"[A-Za-z0-9._-]+")


def normalize(name: str) -> str:
    """Return the name of a package as addresses have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def license_of(package: Distribution) -> str:
    """Return the licence that a package states: its expression, its classifiers, or the first line of its text."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return expression
    classifiers = [c.rsplit(" :: ", 1)[1] for c in metadata.get_all("Classifier") or [] if c.startswith("License :: ")]
    text = (metadata.get("License") or "").strip().partition("\n")[0]
    return text if text and len(text) < 60 else ", ".join(classifiers) or "not stated"


def required_names(package: Distribution) -> set[str]:
    """Return the names of the requirements of a package, with those of its extras."""
    return {normalize(match[0]) for text in package.requires or [] if (match := NAME.match(text))}


def find_packages() -> dict[str, Distribution]:
    """Return toolspan and the installed packages that it needs, directly or not."""
    installed = {normalize(package.metadata["Name"]): package for package in distributions()}
    needed: dict[str, Distribution] = {}
    pending = [OWN]
    while pending:
        name = pending.pop()
        if name in installed and name not in needed:
            needed[name] = installed[name]
            pending += required_names(installed[name])
    return dict(sorted(needed.items()))


def make_component(name: str, package: Distribution) -> dict[str, Any]:
    """Return the entry of a package."""
    text = license_of(package)
    is_expression = package.metadata.get("License-Expression") is not None
    purl = f"pkg:pypi/{name}@{package.version}"
    return {
        "type": "library", "bom-ref": purl, "name": name, "version": package.version, "purl": purl,
        "licenses": [{"expression": text} if is_expression else {"license": {"name": text}}],
    }  # fmt: skip


def included_components() -> Iterator[dict[str, Any]]:
    """Yield the files of other projects that are part of the package."""
    for file in tomllib.loads(VENDOR.read_text(encoding="utf-8"))["file"]:
        purl = f"pkg:npm/{file['package'].replace('@', '%40')}@{file['version']}"
        yield {
            "type": "file", "bom-ref": f"{purl}#{file['name']}", "name": f"toolspan/web/static/vendor/{file['name']}",
            "version": file["version"], "purl": purl, "licenses": [{"expression": file["license"]}],
            "hashes": [{"alg": "SHA-256", "content": file["sha256"]}],
        }  # fmt: skip
    for name, version, license_, path in DATA:
        yield {
            "type": "data", "bom-ref": path, "name": name, "version": version, "licenses": [{"expression": license_}]
        }  # fmt: skip


def make_bill() -> dict[str, Any]:
    """Return the bill of materials."""
    packages = find_packages()
    components = {name: make_component(name, package) for name, package in packages.items()}
    own = components.pop(OWN) | {"type": "application"}
    included = [*included_components()]
    refs = {name: component["bom-ref"] for name, component in components.items()} | {OWN: own["bom-ref"]}
    links = [
        {"ref": refs[name], "dependsOn": sorted(refs[other] for other in required_names(package) if other in refs)}
        for name, package in packages.items()
    ]
    content = json.dumps([own, *components.values(), *included])
    time = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC)
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}",
        "metadata": {"timestamp": time.isoformat().replace("+00:00", "Z"), "component": own},
        "components": [*components.values(), *included],
        "dependencies": links,
    }  # fmt: skip


def format_licenses(bill: dict[str, Any]) -> str:
    """Return one line per package and file."""
    rows = [
        f"{part['name']:<48} {part['version']:<14} "
        f"{part['licenses'][0].get('expression') or part['licenses'][0]['license']['name']}"
        for part in bill["components"]
    ]
    return "\n".join(["Packages and files that toolspan with the extra `all` uses, and their licences", "", *rows, ""])


def main() -> None:
    """Write both files into a folder."""
    bill = make_bill()
    stem = Path(sys.argv[1]) / f"toolspan-{bill['metadata']['component']['version']}"
    stem.with_name(f"{stem.name}.cdx.json").write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
    stem.with_name(f"{stem.name}-licenses.txt").write_text(format_licenses(bill), encoding="utf-8")


if __name__ == "__main__":
    main()
