"""Sandbox settings: the `Sandbox` value, and the `sandbox` block in settings files.

Start at `Sandbox`. `merge_sandbox_settings` builds one from Claude Code's documented keys.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from toolspan.errors import ToolspanError
from toolspan.runtime.settings.sandbox import SandboxSettings

if TYPE_CHECKING:
    from toolspan.runtime.permissions.rule import Rule
    from toolspan.runtime.permissions.rules import Rules

_T = TypeVar("_T")


class SandboxUnavailable(ToolspanError):  # noqa: N818 - reads as a noun where it is caught
    """Raised if a sandbox is required and this machine cannot provide one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """The limits within which commands run.

    By default, a command may read the system's files, toolchains and the session's folders, write to those folders and
    a private `/tmp`, and not use the network. Paths may begin with `~/`; relative paths start at the project folder.
    Patterns such as `~/*/.env` match the files that exist when a command starts.
    """

    strict: bool = True
    """True to hide secrets: of the home folder, only toolchains and caches are visible, and of the variables only those
    that builds need. False to show all files and variables; commands then need permission as without a sandbox."""
    private_caches: bool = False
    """True to give commands a writable `~/.cache` of their own, which stays with the project."""
    auto_allow: bool = True
    """True to run sandboxed commands without approval, unless a rule denies them or asks about them."""
    excluded_commands: Sequence[str] = ()
    """Patterns as in `Bash` rules, for commands that run outside the sandbox."""
    allow_unsandboxed: bool = True
    """True to let calls leave the sandbox with `dangerouslyDisableSandbox`, after approval."""
    allow_write: Sequence[Path | str] = ()
    deny_write: Sequence[Path | str] = ()
    """Takes precedence over `allow_write` and over the session's folders."""
    deny_read: Sequence[Path | str] = ()
    allow_read: Sequence[Path | str] = ()
    """Paths that remain readable inside `deny_read`, and in the home folder."""
    hide_variables: Sequence[str] = ()
    """Environment variables to remove."""
    pass_variables: Sequence[str] = ()
    """Environment variables to pass although they are not on the list of those that builds need."""
    allowed_domains: Sequence[str] = ()
    """Hosts that commands may reach through the proxy; `*.example.com` matches every subdomain."""
    denied_domains: Sequence[str] = ()
    """Takes precedence over `allowed_domains`."""
    ask_for_domains: bool = True
    """True to ask the approver about other domains, once per session."""
    allow_local_addresses: bool = False
    """True to let the proxy connect to private, link-local and loopback addresses of allowed domains."""
    allow_unix_sockets: Sequence[Path | str] = ()
    allow_all_unix_sockets: bool = False
    allow_local_binding: bool = False
    """On macOS, true to let commands listen on local ports. On Linux, they always can, in their own network."""
    http_proxy_port: int | None = None
    """The local port of another proxy to use instead of toolspan's."""
    weaker_nested: bool = False
    """True to run inside a container that does not permit a new `/proc`. This weakens the sandbox."""
    files_disabled: bool = False
    """True to restrict the network only."""
    required: bool = True
    """False to run commands without a sandbox, with a warning, if none is available."""
    ignore_violations: Mapping[str, Sequence[str]] | None = None
    """Paths whose violations are not reported, by command pattern; `*` matches every command."""
    bwrap_path: str | None = None


@dataclass(frozen=True, slots=True)
class SandboxLayer:
    """The `sandbox` block of one settings file."""

    settings: SandboxSettings
    folder: Path
    """The folder at which relative paths start."""
    is_managed: bool = False
    is_project: bool = False


def merge_sandbox_settings(
    layers: Iterable[SandboxLayer], rules: Rules, project: Path, *, strict: bool = True
) -> tuple[bool | None, Sandbox]:
    """Return whether the settings enable a sandbox, and that sandbox. The first layer has the highest precedence.

    The first value is None if no layer mentions `enabled`.

    Lists from all layers are combined, as are the rules for Read, Edit and WebFetch. A sandbox is required unless
    `failIfUnavailable` is false; Claude Code would continue without one.
    """
    all_layers = list(layers)
    managed = [layer for layer in all_layers if layer.is_managed]
    blocks = [layer.settings for layer in all_layers]
    network = [block.network for block in blocks]
    managed_domains_only = _first(layer.settings.network.allow_managed_domains_only for layer in managed)
    managed_reads_only = _first(layer.settings.filesystem.allow_managed_read_paths_only for layer in managed)
    platforms = _first(layer.settings.enabled_platforms for layer in managed)
    domain_layers = managed if managed_domains_only else all_layers
    credentials = [(layer.folder, layer.settings.credentials) for layer in all_layers]
    platform = {"darwin": "macos", "win32": "windows"}.get(sys.platform, "linux")
    is_supported = platforms is None or platform in platforms
    enabled = _first(block.enabled for block in blocks) if is_supported else False
    return enabled, Sandbox(
        strict=strict,
        auto_allow=_first(block.auto_allow_bash_if_sandboxed for block in blocks) is not False,
        excluded_commands=tuple(text for block in blocks for text in block.excluded_commands),
        allow_unsandboxed=_first(block.allow_unsandboxed_commands for block in blocks) is not False,
        allow_write=(
            *_resolve_all((layer, layer.settings.filesystem.allow_write) for layer in all_layers),
            *_rule_paths(rules.allow, "Edit", project),
        ),
        deny_write=(
            *_resolve_all((layer, layer.settings.filesystem.deny_write) for layer in all_layers),
            *_rule_paths(rules.deny, "Edit", project),
        ),
        deny_read=(
            *_resolve_all((layer, layer.settings.filesystem.deny_read) for layer in all_layers),
            *(resolve_path(file.path, folder) for folder, block in credentials for file in block.files),
            *_rule_paths(rules.deny, "Read", project),
        ),
        allow_read=_resolve_all(
            (layer, layer.settings.filesystem.allow_read) for layer in (managed if managed_reads_only else all_layers)
        ),
        hide_variables=tuple(variable.name for _, block in credentials for variable in block.env_vars),
        allowed_domains=(
            *(name for layer in domain_layers for name in layer.settings.network.allowed_domains),
            *(() if managed_domains_only else _rule_domains(rules.allow)),
        ),
        denied_domains=(*(name for block in network for name in block.denied_domains), *_rule_domains(rules.deny)),
        ask_for_domains=not managed_domains_only and not _first(block.strict_allowlist for block in network),
        allow_unix_sockets=_resolve_all((layer, layer.settings.network.allow_unix_sockets) for layer in all_layers),
        allow_all_unix_sockets=bool(_first(block.allow_all_unix_sockets for block in network)),
        allow_local_binding=bool(_first(block.allow_local_binding for block in network)),
        http_proxy_port=_first(block.http_proxy_port for block in network),
        weaker_nested=bool(_first(block.enable_weaker_nested_sandbox for block in blocks)),
        files_disabled=bool(_first(layer.settings.filesystem.disabled for layer in all_layers if not layer.is_project)),
        required=_first(block.fail_if_unavailable for block in blocks) is not False,
        ignore_violations={
            pattern: paths for block in reversed(blocks) for pattern, paths in block.ignore_violations.items()
        },
        bwrap_path=_first(layer.settings.bwrap_path for layer in managed),
    )


def unattended_sandbox(layers: Iterable[SandboxLayer], sandbox: Sandbox) -> Sandbox:
    """Return the sandbox for a session without an approver whose settings do not mention one.

    It only restricts: commands need permission as without it, and no call can leave it. The network is open unless the
    settings limit it, because nobody could answer a question about a host.
    """
    limits_network = any(
        block.allowed_domains or block.strict_allowlist or block.allow_managed_domains_only or block.http_proxy_port
        for block in (layer.settings.network for layer in layers)
    )
    return replace(
        sandbox,
        auto_allow=False,
        allow_unsandboxed=False,
        private_caches=True,
        allowed_domains=sandbox.allowed_domains if limits_network else (*sandbox.allowed_domains, "*:*"),
    )


def resolve_path(path: Path | str, folder: Path) -> Path:
    """Return an absolute path: `~/` is the home folder, `//` the root, and relative paths start at `folder`."""
    text = os.fspath(path)
    if text.startswith("//"):
        text = text[1:]
    if text == "~" or text.startswith("~/"):
        text = home_folder() + text[1:]
    return Path(os.path.normpath(folder / text))


def home_folder() -> str:
    """Return the user's home folder."""
    return os.environ.get("HOME") or str(Path.home())


def _resolve_all(entries: Iterable[tuple[SandboxLayer, Sequence[str]]]) -> tuple[Path, ...]:
    return tuple(resolve_path(path, layer.folder) for layer, paths in entries for path in paths)


def _rule_paths(rules: Sequence[Rule], tool: str, project: Path) -> Iterator[Path]:
    """Yield the paths in rules such as `Edit(src/**)`. `//` is the root and `/` the folder of the settings file."""
    for rule in rules:
        if rule.tool == tool and rule.content and rule.content.strip("*/"):
            text = rule.content.removesuffix("/**")
            if text.startswith("/") and not text.startswith("//"):
                yield resolve_path(text.lstrip("/"), rule.folder or project)
            else:
                yield resolve_path(text, project)


def _rule_domains(rules: Sequence[Rule]) -> Iterator[str]:
    for rule in rules:
        if rule.tool == "WebFetch" and rule.content and rule.content.startswith("domain:"):
            yield rule.content.removeprefix("domain:").strip()


def _first(values: Iterable[_T | None]) -> _T | None:
    return next((value for value in values if value is not None), None)
