"""One child: its start, output and exit."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.requirement import requirement
from tests.runtime.process.commands import UpCounter, command, python, sh, zombies
from toolspan.runtime.process import (
    Capture,
    ExitStatus,
    ProcessSupervisor,
    Spill,
    StartError,
    find_survivors,
    start_process,
)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("script", "ended", "status"),
    [
        ("exit 0", ExitStatus(0, None), 0),
        ("exit 3", ExitStatus(3, None), 3),
        ("kill -KILL $$", ExitStatus(None, 9), 137),
        ("kill -TERM $$", ExitStatus(None, 15), 143),
    ],
)
async def test_child_reports_its_exit_status(script: str, ended: ExitStatus, status: int) -> None:
    async with ProcessSupervisor() as supervisor:
        child = await supervisor.start(sh(script))

        assert await child.wait() == ended
        assert child.exit == ended
        assert ended.status == status


@requirement("process.merged-streams")
async def test_merged_streams_keep_the_order_in_which_they_were_written() -> None:
    async with ProcessSupervisor() as supervisor:
        script = "for i in 1 2 3 4 5; do echo out $i; echo err $i >&2; done"
        child = await supervisor.start(sh(script))
        await child.wait()

    assert child.stdout.data == b"".join(b"out %d\nerr %d\n" % (i, i) for i in range(1, 6))
    assert child.stderr.data == b""


async def test_separate_streams_are_captured_separately() -> None:
    async with ProcessSupervisor() as supervisor:
        child = await supervisor.start(sh("echo out; echo err >&2", merge_streams=False))
        await child.wait()

    assert (child.stdout.data, child.stderr.data) == (b"out\n", b"err\n")


async def test_binary_output_and_an_unterminated_last_line_are_unchanged() -> None:
    every_byte = bytes(range(256)) * 300
    script = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 300 + b'no end')"
    async with ProcessSupervisor() as supervisor:
        received = bytearray()
        child = await supervisor.start(python(script, on_output=received.extend))
        await child.wait()

    assert child.stdout.data == every_byte + b"no end"
    assert bytes(received) == every_byte + b"no end"


async def test_both_ends_of_a_huge_output_are_kept_and_all_bytes_counted() -> None:
    size = 200_000_000
    async with ProcessSupervisor() as supervisor:
        script = f"printf start; yes | head -c {size}; printf end"
        child = await supervisor.start(sh(script, memory_limit=1000))
        await child.wait()

    assert child.stdout.total == size + 8
    assert child.stdout.head == b"start" + (b"y\n" * 250)[:495]
    assert child.stdout.tail == (b"y\n" * 250)[-497:] + b"end"
    assert child.stdout.dropped == child.stdout.total - 1000


async def test_spill_file_is_created_when_memory_is_full_and_contains_everything(tmp_path: Path) -> None:
    spill = Spill(lambda: tmp_path / "all.txt")
    async with ProcessSupervisor() as supervisor:
        small = await supervisor.start(sh("printf 1234", memory_limit=4, spill=spill))
        await small.wait()
        assert (small.stdout.path, list(tmp_path.iterdir())) == (None, [])

        large = await supervisor.start(sh("seq 100000", memory_limit=4, spill=spill))
        await large.wait()

    content = b"".join(b"%d\n" % number for number in range(1, 100001))
    assert large.stdout.path == tmp_path / "all.txt"
    assert (tmp_path / "all.txt").read_bytes() == content
    assert large.stdout.data == b"1\n" + b"0\n"


async def test_spill_file_can_be_created_at_the_start_or_later(tmp_path: Path) -> None:
    async with ProcessSupervisor() as supervisor:
        early = Spill(lambda: tmp_path / "early", from_start=True)
        first = await supervisor.start(sh(":", spill=early))
        assert (tmp_path / "early").read_bytes() == b""

        ups = UpCounter()
        later = Spill(lambda: tmp_path / "later")
        read_end, write_end = os.pipe()
        script = "echo up; read line; echo $line"
        second = await supervisor.start(sh(script, on_output=ups, spill=later, stdin=read_end))
        os.close(read_end)
        await ups.wait()
        assert second.stdout.spill_to_file() == tmp_path / "later"
        assert (tmp_path / "later").read_bytes() == b"up\n"
        os.write(write_end, b"more\n")
        os.close(write_end)
        await first.wait()
        await second.wait()

    assert (tmp_path / "later").read_bytes() == b"up\nmore\n"


async def test_unwritable_spill_file_does_not_stop_the_command(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    async with ProcessSupervisor() as supervisor:
        taken = Spill(lambda: tmp_path / "there")
        child = await supervisor.start(sh("seq 1000", memory_limit=4, spill=taken))
        ended = await child.wait()
        full = Spill(lambda: tmp_path / "short", limit=10)
        other = await supervisor.start(sh("seq 1000", memory_limit=4, spill=full))
        await other.wait()

    assert ended == ExitStatus(0, None)
    assert isinstance(child.stdout.spill_error, FileExistsError)
    assert (other.stdout.spilled, (tmp_path / "short").read_bytes()) == (10, b"1\n2\n3\n4\n5\n")


@requirement("process.stdin")
async def test_child_reads_dev_null_unless_it_gets_input() -> None:
    async with ProcessSupervisor() as supervisor:
        nothing = await supervisor.start(sh("readlink /proc/self/fd/0; cat"))
        long_input = await supervisor.start(sh("wc -c", stdin=b"x" * 3_000_000))
        unread = await supervisor.start(sh("exec 0<&-; echo fine", stdin=b"x" * 3_000_000))
        for child in (nothing, long_input, unread):
            await child.wait()

    assert nothing.stdout.data == b"/dev/null\n"
    assert long_input.stdout.data.strip() == b"3000000"
    assert unread.stdout.data == b"fine\n"


async def test_child_can_read_from_a_descriptor() -> None:
    read_end, write_end = os.pipe()
    async with ProcessSupervisor() as supervisor:
        # A descriptor above 9 cannot be named in a plain shell's redirection.
        script = f"import os; os.write({write_end}, b'through')"
        child = await supervisor.start(python(script, pass_fds=(write_end,)))
        os.close(write_end)
        await child.wait()

    assert os.read(read_end, 100) == b"through"
    os.close(read_end)


@pytest.mark.parametrize(
    ("argv", "cwd", "path", "reason"),
    [
        (["no-such-program"], "", "no-such-program", "No such file or directory"),
        (["/bin/sh"], "missing", "missing", "No such file or directory"),
        (["/bin/sh"], "plain", "plain", "Not a directory"),
        (["plain"], "", "plain", "Permission denied"),
        (["/bin/sh", "-c", "a\0b"], "", "/bin/sh", "embedded null byte"),
        (["/bin/sh", "-c", "\ud800"], "", "/bin/sh", "surrogates not allowed"),
        (["/bin/sh", "-c", "x" * 10_000_000], "", "/bin/sh", "Argument list too long"),
    ],
)
async def test_start_error_names_the_path_and_the_reason(
    argv: list[str], cwd: str, path: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "plain").write_text("not a program", encoding="utf-8")
    if argv[0] == "plain":
        argv = [str(tmp_path / "plain")]
    spill = Spill(lambda: tmp_path / "spill", from_start=True)
    before = open_descriptors()
    async with ProcessSupervisor() as supervisor:
        with pytest.raises(StartError) as raised:
            await supervisor.start(command(argv, cwd=tmp_path / cwd, spill=spill))

    assert raised.value.path.name == Path(path).name
    assert reason in raised.value.reason
    assert str(raised.value).startswith("Cannot start ")
    assert not (tmp_path / "spill").exists()
    assert open_descriptors() == before


@pytest.mark.parametrize("wrong", [lambda: sh(":", memory_limit=0), lambda: command([])])
async def test_invalid_command_is_rejected_at_once(wrong: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="must"):
        wrong()


@pytest.mark.parametrize("mark", ["", "a:b", "a@b"])
async def test_tag_with_a_separator_is_rejected(mark: str) -> None:
    with pytest.raises(ValueError, match="a tag must not be empty"):
        await start_process(sh(":", tag=mark))


async def test_orphan_that_holds_the_pipe_open_does_not_delay_wait() -> None:
    async with ProcessSupervisor() as supervisor:
        command = sh("sleep 1000 & echo up")
        child = await supervisor.start(command)
        assert await child.wait() == ExitStatus(0, None)

        assert child.stdout.data == b"up\n"
        assert len(find_survivors(command.tag)) == 1
    assert find_survivors(command.tag) == []


async def test_orphan_that_never_stops_writing_does_not_delay_wait() -> None:
    async with ProcessSupervisor() as supervisor:
        child = await supervisor.start(sh("yes & echo up", memory_limit=100))

        assert await child.wait() == ExitStatus(0, None)


async def test_later_output_of_an_orphan_is_dropped_without_breaking_it() -> None:
    late_read, late_write = os.pipe()
    go_read, go_write = os.pipe()
    script = (
        "import os, sys\n"
        "if os.fork():\n"
        "    os._exit(0)\n"
        f"os.read({go_read}, 1)\n"
        "os.write(1, b'late')\n"
        f"os.write({late_write}, b'fine')\n"
    )
    received = bytearray()
    async with ProcessSupervisor() as supervisor:
        child = await supervisor.start(python(script, pass_fds=(late_write, go_read), on_output=received.extend))
        await child.wait()
        os.write(go_write, b"!")
        await anyio.wait_readable(late_read)

        assert os.read(late_read, 100) == b"fine"
    assert (child.stdout.data, bytes(received)) == (b"", b"")
    for descriptor in (late_read, late_write, go_read, go_write):
        os.close(descriptor)


async def test_orphans_are_terminated_with_the_command_on_request() -> None:
    async with ProcessSupervisor() as supervisor:
        command = sh("sleep 1000 & setsid sleep 1000 & exit 4", leave_orphans=False)
        child = await supervisor.start(command)

        assert await child.wait() == ExitStatus(4, None)
        assert find_survivors(command.tag) == []


async def test_fifty_children_at_once_end_without_a_zombie() -> None:
    before = open_descriptors()
    async with ProcessSupervisor() as supervisor:
        children = [await supervisor.start(sh(f"echo {n}; exit {n}")) for n in range(50)]
        ended = [await child.wait() for child in children]

        assert zombies() == []
    assert [item.code for item in ended] == list(range(50))
    assert [child.stdout.data for child in children] == [b"%d\n" % n for n in range(50)]
    assert open_descriptors() == before


async def test_child_without_a_supervisor_is_terminated_by_its_caller() -> None:
    ups = UpCounter()
    command = sh("echo up; sleep 1000", on_output=ups)
    child = await start_process(command)
    await ups.wait()

    assert await child.terminate() == ExitStatus(None, 15)
    assert await child.terminate() == ExitStatus(None, 15)
    assert find_survivors(command.tag) == []
    assert zombies() == []


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@given(st.lists(st.binary(max_size=30)), st.integers(2, 50))
def test_capture_keeps_both_ends_and_its_file_keeps_everything(pieces: list[bytes], limit: int) -> None:
    content = b"".join(pieces)
    with TemporaryDirectory() as folder:
        capture = Capture(limit, Spill(lambda: Path(folder) / "all"))
        for piece in pieces:
            capture.add(piece)
        capture.finish()
        capture.add(b"too late")
        spilled = None if capture.path is None else capture.path.read_bytes()

    fits = len(content) <= limit
    tail = limit - limit // 2
    assert capture.total == len(content)
    assert capture.dropped == (0 if fits else len(content) - limit)
    assert capture.head == (content if fits else content[: limit // 2])
    assert capture.tail == (b"" if fits else content[-tail:])
    assert capture.data == (content if fits else content[: limit // 2] + content[-tail:])
    assert spilled == (None if fits else content)
