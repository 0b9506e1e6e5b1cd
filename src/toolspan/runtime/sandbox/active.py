"""The sandbox of an open session: it selects a back end, starts the network, and wraps commands.

Start at `ActiveSandbox.wrap`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio

from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.permissions.rules import Rules
from toolspan.runtime.process import Command, StartError, start_process
from toolspan.runtime.sandbox.backend import FileAccess, NetworkAccess, SandboxBackend, WrappedCommand
from toolspan.runtime.sandbox.bubblewrap import create_private_folder, find_program
from toolspan.runtime.sandbox.detect import select_backend
from toolspan.runtime.sandbox.files import (
    ProtectedFiles,
    build_file_access,
    find_later_files,
    find_open_pipes,
    find_replaced_paths,
    find_writable_folders,
    prepare_protected_folders,
    remove_created_folders,
    remove_forged_files,
    restrict_search_path,
)
from toolspan.runtime.sandbox.git_files import GitFiles
from toolspan.runtime.sandbox.home import cache_environment, filter_variables
from toolspan.runtime.sandbox.network import NetworkNamespace
from toolspan.runtime.sandbox.proxy import AskDomain, NetworkProxy, RefusedAddress
from toolspan.runtime.sandbox.settings import Sandbox, SandboxUnavailable, resolve_path
from toolspan.runtime.sandbox.violations import find_violations, is_writable_inside
from toolspan.types.decision import Deny
from toolspan.types.events import SandboxViolation

_MAX_REFUSED = 1000
_MAX_OUTPUT = 16 << 20
_READ_TIMEOUT = 10


@dataclass(slots=True)
class SandboxedCommand:
    """A command that runs inside the sandbox."""

    command: Command
    files: FileAccess
    folders: Sequence[Path]
    """The session's folders, the project first."""
    later_files: frozenset[tuple[str, str]]
    """The files from which other programs run code later, before this command started."""


class ActiveSandbox:
    """The sandbox that the commands of a session share."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.settings = sandbox
        self.warning: str | None = None
        """The reason why commands run without a sandbox, if the settings permit it."""
        self.protected = ProtectedFiles()
        self.ask: AskDomain | None = None
        """A function that asks the user about a domain; None to refuse domains that the settings do not allow."""
        self._backend: SandboxBackend | None = None
        self._folder: Path | None = None
        self._created: list[Path] = []
        self._git = GitFiles()
        self._planted: set[tuple[str, str]] = set()
        self._pipes: list[Path] = []
        self._namespace: NetworkNamespace | None = None
        self._proxy: NetworkProxy | None = None
        self._network_lock = asyncio.Lock()
        self._network: NetworkAccess | None = None
        self._refused: list[RefusedAddress] = []
        patterns = [pattern for text in sandbox.excluded_commands for pattern in _exclusion_patterns(text)]
        self._excluded = Rules(deny=[f"Bash({pattern})" for pattern in patterns]) if patterns else None

    def attach_session(
        self, *, config: Path, session_folder: Path, transcript: Path | None, ask: AskDomain | None
    ) -> None:
        """Protect the files of a session from its commands, and let it answer questions about domains.

        The sandbox may be open already, because the programs of its host run in it too.
        """
        self.protected = replace(self.protected, config=config, session_folder=session_folder, transcript=transcript)
        self.ask = ask

    @property
    def is_on(self) -> bool:
        """True if commands run inside the sandbox."""
        return self._backend is not None

    @property
    def frees_commands(self) -> bool:
        """True if sandboxed commands need no permission: they can read no secrets and change no settings."""
        hides_secrets = self.settings.strict and not self.settings.files_disabled
        is_closed = self._backend is not None and self._backend.protects_settings
        return self.settings.auto_allow and hides_secrets and is_closed

    @property
    def description(self) -> str:
        """A short description for users: the back end and its limitations."""
        if self._backend is None:
            return f"none, commands run with your rights. {self.warning}"
        name = f"{self._backend.name}{'' if self.settings.strict else ', all files readable'}"
        return " ".join([f"{name}.", *self._backend.limitations]) if self._backend.limitations else name

    def open(self) -> None:
        """Select the back end.

        Raises:
            SandboxUnavailable: this machine cannot provide a sandbox, and the settings require one.
        """
        if self._folder is not None or self.warning is not None:
            return
        try:
            self._backend = select_backend(self.settings)
        except SandboxUnavailable as error:
            if self.settings.required:
                raise
            self.warning = str(error)
            return
        self._folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="toolspan-sandbox-")))
        create_private_folder(self._folder)
        self._pipes = find_open_pipes()

    async def close(self) -> None:
        """Close the network and remove the private folder. All commands must have ended."""
        await self._close_network()
        remove_created_folders(self._created)
        if self._folder is not None:
            with suppress(FileNotFoundError):  # a program that cleans temporary folders may have removed it
                (self._folder / "hidden-folder").chmod(0o700)
            with suppress(RecursionError):  # a command has nested folders too deeply
                shutil.rmtree(self._folder, ignore_errors=True)
        self._backend = self._folder = None

    async def _close_network(self) -> None:
        if self._proxy is not None:
            await self._proxy.aclose()
        if self._namespace is not None:
            self._namespace.close()
        self._proxy = self._namespace = self._network = None

    def runs_inside(self, request: PermissionRequest) -> bool:
        """Return whether a call runs inside the sandbox. Its tool must start commands there."""
        return request.definition is not None and request.definition.sandboxed and self.confines(request)

    def confines(self, request: PermissionRequest) -> bool:
        """Return whether a command belongs inside the sandbox."""
        if not self.is_on:
            return False
        if self.settings.allow_unsandboxed and request.input.get("dangerouslyDisableSandbox") is True:
            return False
        return self._excluded is None or not isinstance(self._excluded(request), Deny)

    @asynccontextmanager
    async def wrap(
        self, command: Command, folders: Sequence[Path], shown: Sequence[Path | str] = ()
    ) -> AsyncIterator[SandboxedCommand]:
        """Yield the command line that runs `command` inside the sandbox. Start it within the block.

        `folders` are the writable folders, the project first, and `shown` the files that the command needs. Raises:
            SandboxUnavailable: the session's network cannot be created, or the project is the root folder.
        """
        if self._backend is None or self._folder is None:
            raise SandboxUnavailable(self.warning or "the sandbox is not open")
        project = Path(os.path.realpath(folders[0]))
        if project == Path("/"):
            raise SandboxUnavailable("The project is the root folder, in which everything would be writable.")
        network = await self._open_network(project)
        folders = [project, *folders[1:]]
        writable = [*folders, *(resolve_path(path, project) for path in self.settings.allow_write)]
        remove_forged_files(folders)
        await self._read_git_files(folders, command.env)
        self._created += prepare_protected_folders(writable, command.env, self._git)
        files = build_file_access(self.settings, folders, self.protected, self._folder, command.env, self._git, shown)
        later_files = find_later_files(folders, self._git)
        pipes = [path for path in self._pipes if path.is_fifo() and not any(map(path.is_relative_to, files.writable))]
        files = replace(files, hidden=(*files.hidden, *pipes), in_place=not self._backend.has_mounts)
        wrapped = self._backend.wrap(command.argv, Path(os.path.realpath(command.cwd)), files, network)
        with _inherit_descriptors(command, self._environment(command, files), wrapped) as sandboxed:
            yield SandboxedCommand(sandboxed, files, folders, later_files)

    def restrict_environment(self, environment: Mapping[str, str], folders: Sequence[Path]) -> dict[str, str]:
        """Return the environment for a program outside the sandbox: its `PATH` omits folders that commands can change.

        `folders` are the writable folders, the project first.
        """
        if not self.is_on or self.settings.files_disabled:
            return dict(environment)
        writable = find_writable_folders(self.settings, [Path(os.path.realpath(folders[0])), *folders[1:]])
        return {**environment, "PATH": restrict_search_path(environment.get("PATH", os.defpath), writable)}

    def find_violations(
        self, run: SandboxedCommand, command: str, output: str, *, failed: bool
    ) -> tuple[SandboxViolation, ...]:
        """Return the violations of a command that has ended, and undo changes that the sandbox could not prevent."""
        forged = remove_forged_files(run.files.writable)
        refused = [SandboxViolation(action="write", target=str(path)) for path in forged]
        refused += [
            SandboxViolation(action="connect", target=f"{item.host}:{item.port}")
            for item in self._refused
            if item.user == run.command.tag
        ]
        hosts = {item.host for item in self._refused} | ({"the network"} if refused else set())
        named = find_violations(output, command, run.command.cwd, run.files, self.settings)
        refused += [item for item in named if item.target not in hosts and (failed or item.action == "write")]
        planted = find_later_files(run.folders, self._git) - run.later_files - self._planted
        self._planted |= planted
        refused += [SandboxViolation(action="planted", target=path) for path, _ in sorted(planted)]
        return tuple(dict.fromkeys(refused))

    async def _read_git_files(self, folders: Sequence[Path], environment: Mapping[str, str]) -> None:
        git = find_program("git")
        if git is not None and not self.settings.files_disabled:
            writable = find_writable_folders(self.settings, folders)
            await self._git.refresh(git, writable, environment, partial(self._run_contained, environment))

    async def _run_contained(self, environment: Mapping[str, str], argv: Sequence[str], cwd: Path) -> bytes:
        """Run a program that may read all files and change none, and return its output."""
        if self._backend is None or self._folder is None:
            return b""
        files = FileAccess(temporary=self._folder, read_only=tuple(find_replaced_paths([cwd], environment)))
        wrapped = self._backend.wrap(argv, cwd, files, NetworkAccess())
        command = Command(argv=argv, cwd=cwd, env=environment, tag="sandbox", memory_limit=_MAX_OUTPUT)
        with _inherit_descriptors(command, environment, wrapped) as contained:
            child = await start_process(contained)
        try:
            with anyio.move_on_after(_READ_TIMEOUT):
                await child.wait()
        finally:
            if child.exit is None:
                with anyio.CancelScope(shield=True):
                    await child.terminate(0)
        return child.stdout.data

    async def _open_network(self, project: Path) -> NetworkAccess:
        async with self._network_lock:
            if self._namespace is not None and not self._namespace.is_open:
                await self._close_network()
            if self._network is None:
                settings = self.settings
                if self._backend is not None and self._backend.name == "bubblewrap":
                    self._namespace = await NetworkNamespace.open()
                self._proxy = NetworkProxy(settings, ask=self._ask_domain, on_refused=self._record_refusal)
                await self._proxy.start(None if self._namespace is None else self._namespace.listener)
                self._network = NetworkAccess(
                    proxy_port=self._proxy.port,
                    namespace_pid=None if self._namespace is None else self._namespace.pid,
                    unix_sockets=tuple(resolve_path(path, project) for path in settings.allow_unix_sockets),
                    all_unix_sockets=settings.allow_all_unix_sockets,
                    local_binding=settings.allow_local_binding,
                )
            return self._network

    async def _ask_domain(self, host: str, port: int) -> bool:
        return self.ask is not None and await self.ask(host, port)

    def _record_refusal(self, refused: RefusedAddress) -> None:
        self._refused = [*self._refused[-_MAX_REFUSED:], refused]

    def _environment(self, command: Command, files: FileAccess) -> dict[str, str]:
        hidden = set(self.settings.hide_variables)
        passed = self.settings.pass_variables
        environment = filter_variables(command.env, passed) if self.settings.strict else command.env
        visible = {name: value for name, value in environment.items() if name not in hidden}
        home = Path(os.path.realpath(visible.get("HOME") or "/"))
        if any(mount.is_writable and mount.path == home / ".cache" for mount in files.mounts):
            visible |= cache_environment(home, visible)
        if "TMPDIR" in visible and not is_writable_inside(Path(visible["TMPDIR"]), files):
            visible["TMPDIR"] = "/tmp"
        return visible | (self._proxy.environment(user=command.tag) if self._proxy else {})


@asynccontextmanager
async def wrap_requested(command: Command, sandbox: ActiveSandbox | None, project: Path) -> AsyncIterator[Command]:
    """Yield the command inside the sandbox, for a hook or a server whose configuration requests it.

    Raises:
        StartError: there is no sandbox, and the command must not run without one.
    """
    if sandbox is not None and sandbox.warning is not None:
        yield command
        return
    if sandbox is None or not sandbox.is_on:
        reason = "its configuration requests a sandbox; use --sandbox or the setting `sandbox.enabled`"
        raise StartError(Path(command.argv[0]), reason)
    async with sandbox.wrap(command, [project], command.argv) as sandboxed:
        yield sandboxed.command


@contextmanager
def _inherit_descriptors(
    command: Command, environment: Mapping[str, str], wrapped: WrappedCommand
) -> Iterator[Command]:
    """Yield the command inside the sandbox, and close the descriptors of the sandbox at the end of the block."""
    gate = wrapped.gate
    try:
        yield replace(
            command,
            argv=wrapped.argv,
            env={**environment, **wrapped.env},
            pass_fds=[*command.pass_fds, *wrapped.pass_fds, *(gate.pass_fds if gate else ())],
            on_start=gate.release if gate else None,
            has_pid_namespace=wrapped.has_pid_namespace,
        )
    finally:
        for descriptor in wrapped.pass_fds:
            os.close(descriptor)
        if gate is not None:
            gate.close()


def _exclusion_patterns(text: str) -> list[str]:
    """Return the rule patterns for an excluded command: a name matches the program with any arguments."""
    return [text] if "*" in text else [text, f"{text}:*"]
