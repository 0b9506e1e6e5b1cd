"""The `sandbox` block of settings files, with Claude Code's documented keys."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class NetworkSettings(Struct, frozen=True, kw_only=True, rename="camel"):
    """The `sandbox.network` block."""

    allowed_domains: tuple[str, ...] = ()
    denied_domains: tuple[str, ...] = ()
    allow_managed_domains_only: bool | None = None
    strict_allowlist: bool | None = None
    allow_unix_sockets: tuple[str, ...] = ()
    allow_all_unix_sockets: bool | None = None
    allow_local_binding: bool | None = None
    http_proxy_port: int | None = None


class FilesystemSettings(Struct, frozen=True, kw_only=True, rename="camel"):
    """The `sandbox.filesystem` block."""

    allow_write: tuple[str, ...] = ()
    deny_write: tuple[str, ...] = ()
    deny_read: tuple[str, ...] = ()
    allow_read: tuple[str, ...] = ()
    allow_managed_read_paths_only: bool | None = None
    disabled: bool | None = None


class CredentialFile(Struct, frozen=True, kw_only=True):
    """An entry of `sandbox.credentials.files`."""

    path: str
    mode: Literal["deny"] = "deny"


class CredentialVariable(Struct, frozen=True, kw_only=True):
    """An entry of `sandbox.credentials.envVars`."""

    name: str
    mode: Literal["deny"] = "deny"


class CredentialSettings(Struct, frozen=True, kw_only=True, rename="camel"):
    """The `sandbox.credentials` block."""

    files: tuple[CredentialFile, ...] = ()
    env_vars: tuple[CredentialVariable, ...] = ()


class SandboxSettings(Struct, frozen=True, kw_only=True, rename="camel"):
    """The `sandbox` block of a settings file."""

    enabled: bool | None = None
    auto_allow_bash_if_sandboxed: bool | None = None
    excluded_commands: tuple[str, ...] = ()
    allow_unsandboxed_commands: bool | None = None
    filesystem: FilesystemSettings = FilesystemSettings()
    network: NetworkSettings = NetworkSettings()
    credentials: CredentialSettings = CredentialSettings()
    enable_weaker_nested_sandbox: bool | None = None
    fail_if_unavailable: bool | None = None
    enabled_platforms: tuple[str, ...] | None = None
    ignore_violations: dict[str, tuple[str, ...]] = {}
    bwrap_path: str | None = None
