"""Build wheel and sdist, check them, and try each in a fresh environment. `make dist` runs this script.

    python scripts/release.py [--extras all,ray,cloud] [--python python3]

- Two builds give the same bytes (SOURCE_DATE_EPOCH, by default the time of the last commit).
- The metadata is valid, names existing classifiers and licence files, and contains no address.
- The base installation is small. Each archive installs with its extras at the locked versions, and the demo runs.
- dist/ gets the bill of materials and the list of licences.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from packaging.metadata import Metadata
from trove_classifiers import classifiers

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
SCRATCH = ROOT / ".scratch" / "dist"
MAX_BASE_MEGABYTES = 60
INSTALLERS = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
"""Packages of a fresh environment, which are not toolspan's."""
IMPORTS = {
    "all": ("integrations.langgraph", "integrations.opentelemetry", "integrations.pydantic_ai", "tables",
            "session.models.anthropic", "session.models.openai"),
    "ray": (),
    "cloud": (),
}  # fmt: skip


def run(*command: str | Path, **environment: str) -> str:
    """Return the output of a command. One that fails ends this program with its messages."""
    words = [str(word) for word in command]
    completed = subprocess.run(
        words, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    if completed.returncode:
        sys.exit(f"{' '.join(words)}\n{completed.stdout[-2_000:]}{completed.stderr[-4_000:]}")
    return completed.stdout


def report(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)  # noqa: T201


def build_twice() -> tuple[Path, Path]:
    """Build wheel and sdist into dist/, and check that another build gives the same bytes."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or run("git", "log", "-1", "--format=%ct").strip()
    again = SCRATCH / "again"
    for folder, zone, mask in ((DIST, "UTC", 0o022), (again, "Asia/Tokyo", 0o077)):
        previous = os.umask(mask)
        command = (sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
        run(*command, SOURCE_DATE_EPOCH=epoch, TZ=zone)
        os.umask(previous)
    os.environ["SOURCE_DATE_EPOCH"] = epoch
    for path in sorted(again.iterdir()):
        if path.read_bytes() != (DIST / path.name).read_bytes():
            sys.exit(f"two builds of {path.name} differ")
        report(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB, the same bytes twice")
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, sdist


def check_metadata(wheel: Path, sdist: Path) -> Metadata:
    """Check the metadata of both archives, and that they contain what belongs to them."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (path,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        text = archive.read(path)
    with tarfile.open(sdist) as archive:
        members = [name.partition("/")[2] for name in archive.getnames()]
        source = archive.extractfile(f"{sdist.name.removesuffix('.tar.gz')}/PKG-INFO")
        assert source is not None
        source_text = source.read()
    metadata = Metadata.from_email(text, validate=True)
    folder = path.removesuffix("METADATA")
    problems = [f"unknown classifier: {name}" for name in {*(metadata.classifiers or [])} - classifiers]
    problems += [f"no {name}" for name in metadata.license_files or [] if f"{folder}licenses/{name}" not in names]
    if text != source_text:
        problems.append("wheel and sdist differ in their metadata")
    if not metadata.license_files or not metadata.license_expression:
        problems.append("no licence")
    if metadata.home_page or metadata.project_urls or metadata.author_email or metadata.maintainer_email:
        problems.append("the metadata contains an address")
    if f"## [{metadata.version}]" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        problems.append(f"CHANGELOG.md does not describe {metadata.version}")
    problems += [f"in the wheel: {name}" for name in names if not name.startswith(("toolspan/", folder))]
    problems += [f"not in the sdist: {name}" for name in ("Makefile", "requirements/test.txt", "tests/conftest.py")
                 if name not in members]  # fmt: skip
    problems += [f"compiled file: {name}" for name in (*names, *members) if name.endswith(".pyc")]
    if problems:
        sys.exit("\n".join(problems))
    return metadata


def install(place: Path, package: Path, extras: str, python: str, constraints: Path) -> Path:
    """Install a package in a fresh environment as a user does, at the locked versions, and return its folder."""
    run(python, "-m", "venv", place)
    pip = (place / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "install", "-c", constraints, f"{package}[{extras}]" if extras else package)
    return place / "bin"


def write_constraints() -> Path:
    """Write the versions of the lock without its hashes, with which pip would refuse a package of this machine."""
    path = SCRATCH / "constraints.txt"
    lock = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")
    path.write_text(re.sub(r" \\\n(?:\s+--hash=\S+(?: \\)?\n?)+", "\n", lock), encoding="utf-8")
    return path


def check_base(programs: Path) -> None:
    """Check that the base installation is small, reads, and names the extra that is missing."""
    packages = programs.parent.glob("lib/python*/site-packages")
    files = [
        path for folder in packages for entry in folder.iterdir() if not entry.name.startswith(INSTALLERS)
        for path in (entry.rglob("*") if entry.is_dir() else [entry])
    ]  # fmt: skip
    size = sum(path.lstat().st_size for path in (*files, *programs.iterdir()) if path.is_file()) / 1e6
    listed = run(
        programs / "python", "-m", "pip", "list", "--format=freeze", "--exclude", "pip", "--exclude", "setuptools"
    )
    report(f"base installation: {len(listed.splitlines())} packages, {size:.0f} MB")
    if size > MAX_BASE_MEGABYTES:
        sys.exit(f"more than {MAX_BASE_MEGABYTES} MB")
    archive = run(programs / "python", "-c", "import toolspan; print(toolspan.sample.archive())").strip()
    run(programs / "toolspan", "errors", archive)


def check_program(programs: Path, version: str, extras: str) -> None:
    """Run the demo and import what the extras are for."""
    if version not in run(programs / "toolspan", "--version"):
        sys.exit(f"toolspan --version does not print {version}")
    run(programs / "toolspan", "demo")
    modules = [f"toolspan.{name}" for extra in extras.split(",") for name in IMPORTS[extra]]
    run(programs / "python", "-c", f"import {', '.join(['toolspan', *modules])}")


def main() -> None:
    """Build, check and try both archives."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--extras", default="all")
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    for folder in (DIST, SCRATCH):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    archives = build_twice()
    version = str(check_metadata(*archives).version)
    report("metadata: valid, no addresses")
    constraints = write_constraints()
    check_base(install(SCRATCH / "base", archives[0], "", options.python, constraints))
    shutil.rmtree(SCRATCH / "base")
    for package in archives:
        place = SCRATCH / ("wheel" if package.suffix == ".whl" else "sdist")
        programs = install(place, package, options.extras, options.python, constraints)
        check_program(programs, version, options.extras)
        report(f"{package.name}[{options.extras}]: installed, the demo runs")
        if package.suffix == ".whl":
            run(programs / "python", "scripts/sbom.py", DIST)
        shutil.rmtree(place)
    for path in sorted(DIST.iterdir()):
        report(f"dist/{path.name}")


if __name__ == "__main__":
    main()
