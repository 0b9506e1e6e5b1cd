"""Report which sandboxes this machine supports, and how to enable the others (`toolspan doctor --sandbox`)."""

from __future__ import annotations

import asyncio
import platform
import subprocess
from pathlib import Path

from msgspec import Struct

from toolspan.runtime.sandbox.bubblewrap import find_program, install_command
from toolspan.runtime.sandbox.detect import detect_backends
from toolspan.runtime.sandbox.landlock_launcher import landlock_version
from toolspan.runtime.sandbox.network import NetworkNamespace
from toolspan.runtime.sandbox.seccomp import build_filter
from toolspan.runtime.sandbox.settings import Sandbox, SandboxUnavailable


class BackendReport(Struct, frozen=True, kw_only=True):
    """The status of one back end and, if it does not work, the reason and the command that would fix it."""

    name: str
    works: bool
    problem: str | None = None
    fix: str | None = None
    limitations: tuple[str, ...] = ()


class SandboxCheck(Struct, frozen=True, kw_only=True):
    """A system property that sandboxes depend on."""

    name: str
    ok: bool
    detail: str
    fix: str | None = None


class SandboxReport(Struct, frozen=True, kw_only=True):
    """The sandboxes and properties of a machine. The first back end that works is used."""

    backend: str | None
    backends: tuple[BackendReport, ...]
    checks: tuple[SandboxCheck, ...]


def probe_sandbox(sandbox: Sandbox) -> SandboxReport:
    """Try the back ends of this system as the current user. This starts a few short processes."""
    is_mac = platform.system() == "Darwin"
    names = ("Seatbelt",) if is_mac else ("bubblewrap", "Landlock")
    backends = tuple(
        BackendReport(
            name=name,
            works=candidate.backend is not None,
            problem=candidate.problem,
            fix=candidate.fix,
            limitations=() if candidate.backend is None else candidate.backend.limitations,
        )
        for name, candidate in zip(names, detect_backends(sandbox), strict=True)
    )
    checks = () if is_mac else _check_linux(sandbox)
    return SandboxReport(
        backend=next((item.name for item in backends if item.works), None), backends=backends, checks=checks
    )


def _check_linux(sandbox: Sandbox) -> tuple[SandboxCheck, ...]:
    return (
        _check_program(sandbox.bwrap_path or "bwrap", "bubblewrap"),
        _check_program("nsenter", "util-linux"),
        _check_user_namespaces(),
        _check_apparmor(),
        _check_network(),
        _check_landlock(),
        SandboxCheck(
            name="system call filter",
            ok=build_filter(unix_sockets=False) is not None,
            detail=f"{platform.machine()}, Linux {platform.release()}",
        ),
    )


def _check_program(program: str, package: str) -> SandboxCheck:
    path = find_program(program)
    if path is None:
        return SandboxCheck(name=program, ok=False, detail="not found", fix=install_command(package))
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return SandboxCheck(name=program, ok=False, detail=f"{path}: {error}", fix=install_command(package))
    return SandboxCheck(name=program, ok=True, detail=f"{path}, {done.stdout.strip()}")


def _check_user_namespaces() -> SandboxCheck:
    name = "user namespaces"
    if _read_setting("user/max_user_namespaces") == "0":
        fix = "sudo sysctl -w user.max_user_namespaces=15000"
        return SandboxCheck(name=name, ok=False, detail="user.max_user_namespaces is 0", fix=fix)
    if _read_setting("kernel/unprivileged_userns_clone") == "0":
        fix = "sudo sysctl -w kernel.unprivileged_userns_clone=1"
        return SandboxCheck(name=name, ok=False, detail="kernel.unprivileged_userns_clone is 0", fix=fix)
    return SandboxCheck(name=name, ok=True, detail="permitted by the kernel")


def _check_apparmor() -> SandboxCheck:
    name = "AppArmor"
    if _read_setting("kernel/apparmor_restrict_unprivileged_userns") != "1":
        return SandboxCheck(name=name, ok=True, detail="does not restrict user namespaces")
    if any(Path("/etc/apparmor.d").glob("bwrap*")):
        return SandboxCheck(name=name, ok=True, detail="restricts user namespaces, with a profile for bwrap")
    fix = "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    return SandboxCheck(name=name, ok=False, detail="kernel.apparmor_restrict_unprivileged_userns is 1", fix=fix)


def _check_network() -> SandboxCheck:
    async def create() -> None:
        namespace = await NetworkNamespace.open()
        namespace.close()

    try:
        asyncio.run(create())
    except SandboxUnavailable as error:
        return SandboxCheck(name="network namespace", ok=False, detail=str(error))
    return SandboxCheck(name="network namespace", ok=True, detail="can be created by this user")


def _check_landlock() -> SandboxCheck:
    try:
        return SandboxCheck(name="Landlock", ok=True, detail=f"interface version {landlock_version()}")
    except OSError as error:
        return SandboxCheck(name="Landlock", ok=False, detail=f"{error.strerror}")


def _read_setting(name: str) -> str | None:
    try:
        return Path("/proc/sys", name).read_text(encoding="ascii").strip()
    except OSError:
        return None
