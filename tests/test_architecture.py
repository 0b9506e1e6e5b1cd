"""Properties of the code as a whole: imports, module names, sizes, no machine-specific paths."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "toolspan"
NAMELESS = {"common", "core", "helpers", "manager", "utils"}
LONGEST_FILE = 700
MODEL_MAY_IMPORT = {"msgspec", "toolspan", *sys.stdlib_module_names}
MACHINE = re.compile(
    r"(?<![\w.~>-])/(?:root|work)/"  # someone's own folders
    r"|https?://[\w.-]*(?:pypi|pythonhosted|npmjs|artifactory|nexus)[\w.-]*"  # where packages lie
    r"|(?<!\S)--(?:extra-)?index-url|(?<!\S)--trusted-host"
)
PINNED = re.compile(
    r"^(?P<name>[\w.-]+)==(?P<version>\S+)(?: ; [\w.'()<>=! ]+?)?(?P<hashes>(?: \\\n +--hash=\S+)+)$", re.M
)


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def top_level() -> set[str]:
    """The modules and packages right below toolspan; a folder without Python in it is data."""
    files = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    return files | {path.name for path in PACKAGE.iterdir() if any(path.rglob("*.py"))}


def imported(path: Path) -> Iterator[str]:
    """Return the top-level names that a file imports; relative imports stay inside toolspan."""
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0]
            case _:
                pass


def project_files() -> list[Path]:
    """Return the files under version control, including new ones."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    paths = (ROOT / name for name in listed.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]


def test_every_top_level_module_has_its_layer() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter", encoding="utf-8")
    layered = re.findall(r"\w+", contracts["importlinter:contract:layers"]["layers"])

    assert top_level() - set(layered) == set()


def test_the_types_import_only_msgspec_and_the_standard_library() -> None:
    nouns = [*(PACKAGE / "types").rglob("*.py"), PACKAGE / "errors.py"]

    assert {name for path in nouns for name in imported(path)} - MODEL_MAY_IMPORT == set()


def test_every_module_is_named_after_a_noun() -> None:
    named = [path for path in modules() if NAMELESS & {*path.relative_to(PACKAGE).with_suffix("").parts}]

    assert named == []


def test_no_module_exceeds_the_length_limit() -> None:
    lengths = {path: len(path.read_bytes().splitlines()) for path in modules()}

    assert {path: length for path, length in lengths.items() if length > LONGEST_FILE} == {}


def test_no_file_names_a_machine() -> None:
    traces = [
        f"{path.relative_to(ROOT)}:{number}: {result[0]}"
        for path in project_files()
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), start=1)
        if (result := MACHINE.search(line))
    ]

    assert traces == []


def test_no_pattern_repeats_a_group_possessively() -> None:
    """`(?:ab)*+` does not restore the position after its last attempt in Python 3.11.2; `(?>(?:ab)*)` does."""
    repeated = re.compile(r"(?<!\\)[)}](?:[*+?]|\{\d*,?\d*\})\+")  # `}` ends the name of a part, which may be a group
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant | ast.JoinedStr)
        if repeated.search(ast.unparse(node) if isinstance(node, ast.JoinedStr) else str(node.value))
    ]
    assert found == []


@pytest.mark.parametrize(("lock", "group"), [("test.txt", "test"), ("dev.txt", "dev")])
def test_the_lock_pins_every_declared_dependency(lock: str, group: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    text = (ROOT / "requirements" / lock).read_text(encoding="utf-8")
    pinned = {canonicalize_name(pin["name"]): pin["version"] for pin in PINNED.finditer(text)}
    run = project["project"]["optional-dependencies"]["run"]
    entries = [*project["project"]["dependencies"], *run, *project["dependency-groups"][group]]
    declared = [Requirement(entry) for entry in entries if isinstance(entry, str)]  # an object names another group

    assert PINNED.sub("", text).strip() == ""  # names, versions, platforms and hashes, nothing else
    assert [
        str(wanted)
        for wanted in declared
        if not wanted.specifier.contains(pinned.get(canonicalize_name(wanted.name), "0"))
    ] == []


CLIENTS = r"atif|claude|codex|copilot|cursor|gemini|kimi|opencode|pi|qwen"


def test_client_names_are_compared_only_in_formats() -> None:
    name = rf'"(?:{CLIENTS})"'
    comparison = re.compile(rf"[!=]= {name}|{name} [!=]=|case {name}|get_format\({name}\)")
    found = [
        f"{path.relative_to(PACKAGE)}: {match[0]}"
        for path in modules()
        if path.relative_to(PACKAGE).parts[0] != "formats"
        for match in comparison.finditer(path.read_text())
    ]

    assert found == []
