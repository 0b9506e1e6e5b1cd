"""Optional packages: the extra that has each, and the command that installs it the way toolspan was installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

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
    source, installer = _find_installation()
    prefix = Path(sys.prefix).parts
    if "pipx" in prefix:
        return f"pipx install --force '{_requirement(source, extra)}'"
    if "uv" in prefix and "tools" in prefix:
        return f"uv tool install '{_requirement(source, extra)}'"
    pip = "uv pip" if installer == "uv" else "pip"
    editable = "-e " if source.startswith("-e ") else ""
    return f"{pip} install {editable}'{_requirement(source, extra)}'"


def _requirement(source: str, extra: str) -> str:
    return f"{source.removeprefix('-e ') or 'toolspan'}[{extra}]"


def _find_installation() -> tuple[str, str]:
    """Return the folder that toolspan was installed from (after `-e ` if editable), or "", and the installer."""
    from importlib.metadata import PackageNotFoundError, distribution  # perf: these take long to import
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        package = distribution("toolspan")
    except PackageNotFoundError:  # imported from a source folder
        return "", ""
    installer = (package.read_text("INSTALLER") or "").strip()
    try:
        origin = json.loads(package.read_text("direct_url.json") or "{}")
        folder = origin["url"] if "dir_info" in origin else ""
        if not folder.startswith("file:"):
            return "", installer
        path = url2pathname(urlsplit(folder).path)
        return ("-e " if origin["dir_info"].get("editable") else "") + path, installer
    except (ValueError, KeyError, AttributeError, TypeError):
        return "", installer
