"""Commands restricted with Landlock, run for real, and the rulesets for older kernels."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
from pathlib import Path

import pytest

from toolspan import Permissions, Sandbox, Session
from toolspan.runtime.sandbox.backend import FileAccess, NetworkAccess
from toolspan.runtime.sandbox.bubblewrap import create_private_folder
from toolspan.runtime.sandbox.landlock import LandlockBackend, build_restrictions, detect_landlock
from toolspan.session import SingleCallRunner

needs_landlock = pytest.mark.skipif(detect_landlock().backend is None, reason=f"{detect_landlock().problem}")
NO_NETWORK = NetworkAccess()


@pytest.fixture
def files(tmp_path: Path) -> FileAccess:
    """A project that is writable, and a home with a hidden folder that a link leads to."""
    project, home, temporary = tmp_path / "project", tmp_path / "home", tmp_path / "temporary"
    for folder in (project, home / ".ssh", temporary):
        folder.mkdir(parents=True)
    create_private_folder(temporary)
    (home / ".ssh" / "id").write_text("key")
    (home / "keys").symlink_to(".ssh")
    (home / "notes").write_text("notes")
    return FileAccess(writable=(project,), hidden=(home / ".ssh",), temporary=temporary)


def run(files: FileAccess, script: str, network: NetworkAccess = NO_NETWORK) -> subprocess.CompletedProcess[str]:
    backend = detect_landlock().backend
    assert backend is not None
    cwd = files.writable[0]
    wrapped = backend.wrap(["bash", "-c", script], cwd, files, network)
    try:
        env = {"PATH": os.environ["PATH"], **wrapped.env}
        return subprocess.run(
            wrapped.argv, cwd=cwd, env=env, pass_fds=wrapped.pass_fds, capture_output=True, text=True, check=False
        )
    finally:
        for descriptor in wrapped.pass_fds:
            os.close(descriptor)


@needs_landlock
def test_a_command_works_in_its_folder_and_ends_as_without_a_sandbox(files: FileAccess) -> None:
    script = (
        "echo a > x && mkdir d && mv x d/y && ln -s d/y z && cat z ../home/notes && mktemp > /dev/null"
        " && yes | head -1 && env | cut -d= -f1 | sort | tr '\\n' ' ' && ls /proc/self/fd | wc -l && exit 7"
    )
    done = run(files, script)
    assert done.stderr == ""
    assert done.stdout == "a\nnotesy\nPATH PWD SHLVL TMPDIR _ 4\n"
    assert done.returncode == 7
    assert run(files, "kill -TERM $$").returncode == -15


@needs_landlock
@pytest.mark.parametrize(
    "attempt",
    [
        "echo x > ../home/notes",
        "echo x >> ../home/new",
        "rm ../home/notes",
        "mv ../home/notes .",
        "ln ../home/notes notes && echo x > notes",
        "truncate -s 0 ../home/notes",
        "mkdir ../home/d",
        "cat ../home/.ssh/id",
        "cat ../home/keys/id",
        "ln ../home/.ssh/id id && cat id",
        "mv ../home/.ssh here && cat here/id",
        "cat /proc/$PPID/root/$PWD/../home/.ssh/id",
        "cat /proc/$PPID/environ",
        "kill -0 $PPID",
        "mknod device b 7 0",
    ],
)
def test_access_that_no_rule_grants_is_refused(files: FileAccess, attempt: str) -> None:
    # $PPID of the script is this process; without the sandbox it may do all of this as its own user.
    done = run(files, f"({attempt}) && echo succeeded")
    assert "succeeded" not in done.stdout
    assert (files.hidden[0].parent / "notes").read_text() == "notes"
    assert subprocess.run(["cat", files.hidden[0] / "id"], capture_output=True, check=True).stdout == b"key"


CONNECT = 'python3 -c \'import socket; socket.create_connection(("127.0.0.1", {port}), 5); print("connected")\''
ABSTRACT = 'python3 -c \'import socket; socket.socket(socket.AF_UNIX).connect("\\0{name}"); print("connected")\''


@needs_landlock
def test_only_the_port_of_the_proxy_is_reached(files: FileAccess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [server.getsockname()[1] for server in (proxy, other)]
        network = NetworkAccess(proxy_port=ports[0])
        outputs = [run(files, CONNECT.format(port=port), network).stdout for port in ports]
        outputs.append(run(files, CONNECT.format(port=ports[0])).stdout)
        bare = subprocess.run(["bash", "-c", CONNECT.format(port=ports[1])], capture_output=True, text=True, check=True)
    assert outputs == ["connected\n", "", ""]
    assert bare.stdout == "connected\n"


FAST_OPEN = (
    'python3 -c \'import socket; s = socket.socket(); s.{send}, 0x20000000, ("127.0.0.1", {port})); print("sent")\''
)


@needs_landlock
@pytest.mark.parametrize("send", ['sendto(b"x"', 'sendmsg([b"x"], []'])
def test_data_cannot_be_sent_before_the_connection_is_checked(files: FileAccess, send: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = FAST_OPEN.format(send=send, port=server.getsockname()[1])
        assert subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout == "sent\n"
        assert run(files, script).stdout == ""


@needs_landlock
def test_datagrams_and_sockets_of_other_processes_are_refused(files: FileAccess) -> None:
    name = f"toolspan-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        all_sockets = NetworkAccess(all_unix_sockets=True)
        assert run(files, ABSTRACT.format(name=name), all_sockets).stdout == ""
        bare = subprocess.run(["bash", "-c", ABSTRACT.format(name=name)], capture_output=True, text=True, check=True)
        assert bare.stdout == "connected\n"
    for family in ("AF_INET", "AF_INET6"):
        script = f"python3 -c 'import socket; socket.socket(socket.{family}, socket.SOCK_DGRAM); print(1)'"
        assert run(files, script).stdout == ""


@needs_landlock
def test_without_limits_for_files_only_the_network_is_restricted(files: FileAccess, tmp_path: Path) -> None:
    unlimited = FileAccess(writable=files.writable, temporary=files.temporary, unrestricted=True)
    assert run(unlimited, "echo x > ../outside && cat ../home/.ssh/id").stdout == "key"
    assert (tmp_path / "outside").exists()


@pytest.mark.parametrize(
    ("version", "handled"),
    [
        (1, (0x1FFF,)),
        (2, (0x3FFF,)),
        (3, (0x7FFF,)),
        (4, (0x7FFF, 2)),
        (5, (0xFFFF, 2)),
        (6, (0xFFFF, 2, 3)),
        (9, (0xFFFF, 2, 3)),
    ],
)
def test_a_kernel_receives_only_the_rights_it_supports(
    files: FileAccess, version: int, handled: tuple[int, ...]
) -> None:
    attributes, _, ports, *rest = build_restrictions(version, files, NetworkAccess(proxy_port=9), b"").split(b"\0")
    assert bytes.fromhex(attributes.decode()) == struct.pack(f"={len(handled)}Q", *handled)
    assert ports == (b"1" if version >= 4 else b"0")
    grants = rest[2 * int(ports) :]
    assert all(int(rights) & ~handled[0] == 0 for rights in grants[::2])
    assert len(LandlockBackend(version).limitations) == 3 + (version < 2) + (version < 3) + (version < 4) + (
        version < 6
    )


@needs_landlock
@pytest.mark.anyio
async def test_a_session_without_bubblewrap_runs_commands_in_landlock(files: FileAccess, tmp_path: Path) -> None:
    sandbox = Sandbox(bwrap_path=str(tmp_path / "missing"))
    permissions = Permissions.allow_all()  # Landlock does not protect settings, so commands need permission
    async with Session(cwd=files.writable[0], sandbox=sandbox, permissions=permissions, transcript=None) as session:
        calls = SingleCallRunner(session)
        works = (await calls.run_call("Bash", {"command": "echo x > a; cat a; echo $TMPDIR"})).finished
        refused = (await calls.run_call("Bash", {"command": "echo y > ../home/notes"})).finished
        stopped = (await calls.run_call("Bash", {"command": "sleep 600", "timeout": 100})).finished
    assert str(works.content).startswith("x\n")
    assert "toolspan-sandbox-" in str(works.content)
    assert (refused.span.state, refused.span.error_kind) == ("failed", "sandbox_denied")
    assert (files.hidden[0].parent / "notes").read_text() == "notes"
    assert stopped.span.state != "succeeded"
