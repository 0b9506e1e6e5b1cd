"""Optional packages: the extra that has each, and the command that installs it the way toolspan was installed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from toolspan.errors import MissingExtra

_PACKAGES = {
    "run": (
        "httpx2", "jsonschema", "markdownify", "mcp", "mcp_types", "PIL", "pydantic", "pydantic_core", "pypdf",
        "referencing", "yaml"
    ),
    "acp": ("acp",),
    "anthropic": ("anthropic",),
    "gemini": ("google",),  # the namespace of google-genai
    "openai": ("openai",),
    "langgraph": ("langchain_core", "langgraph"),
    "pydantic-ai": ("pydantic_ai",),
    "otel": ("opentelemetry",),
    "cloud": ("adlfs", "fsspec", "gcsfs", "s3fs"),
    "tables": ("duckdb", "pyarrow"),
    "ray": ("ray",),
    "stores": ("boto3", "botocore", "psycopg", "redis"),
}  # fmt: skip
_EXTRAS = {package: extra for extra, packages in _PACKAGES.items() for package in packages}


def missing_extra(error: ImportError, purpose: str, *, extra: str | None = None) -> MissingExtra | None:
    """Return the error to raise instead if a package of an extra is not installed, else None.

    `purpose` is what needs the package: the subject of the message. `extra` is the extra to install, if several have
    the package.
    """
    package = (error.name or "").partition(".")[0]
    if package not in _EXTRAS or not isinstance(error, (ModuleNotFoundError, MissingExtra)):
        return None
    extra = extra or _EXTRAS[package]
    distribution = "google-genai" if package == "google" else package
    message = f"{purpose} needs {distribution}, which is not installed: run {install_command(extra)}"
    return MissingExtra(message, name=package)


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation."""
    origin, installer = _find_installation()
    prefix = Path(sys.prefix).parts
    if "pipx" in prefix or ("uv" in prefix and "tools" in prefix):  # these replace what is installed
        command = "pipx install --force" if "pipx" in prefix else "uv tool install"
        return f"{command} '{_requirement(origin, ','.join(sorted({extra, *_find_extras()})))}'"
    pip = "uv pip" if installer == "uv" else "pip"
    editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return f"{pip} install {editable}'{_requirement(origin, extra)}'"


def _find_extras() -> Iterator[str]:
    """Yield the extras whose packages are installed."""
    for extra, packages in _PACKAGES.items():
        with suppress(ModuleNotFoundError):  # no package of a namespace is installed
            if all(find_spec("google.genai" if package == "google" else package) for package in packages):
                yield extra


def _requirement(origin: Mapping[str, Any], extras: str) -> str:
    """Return the requirement that names the same package with extras: a folder, a file or repository, or the name."""
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    url = origin.get("url")
    if url is None:
        return f"toolspan[{extras}]"
    if "dir_info" in origin:
        return f"{url2pathname(urlsplit(url).path)}[{extras}]"
    if vcs := origin.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return f"toolspan[{extras}] @ {url}"


def _find_installation() -> tuple[Mapping[str, Any], str]:
    """Return what toolspan was installed from, empty if from an index, and the installer."""
    from importlib.metadata import PackageNotFoundError, distribution  # perf: this takes long to import

    try:
        package = distribution("toolspan")
    except PackageNotFoundError:  # imported from a source folder
        return {}, ""
    # https://packaging.python.org/en/latest/specifications/direct-url/
    origin: Mapping[str, Any] = json.loads(package.read_text("direct_url.json") or "{}")
    return origin, (package.read_text("INSTALLER") or "").strip()
