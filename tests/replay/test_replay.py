"""Recorded calls are run again in a copy of the project."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

import toolspan
from toolspan import Permissions
from toolspan.errors import ToolspanError
from toolspan.replay import Replay, ReplayLimits, ReplayOutcome, open_scratch
from toolspan.replay.plan import normalize_result, short_diff
from toolspan.replay.scratch import PathMapping
from toolspan.runtime.profiles import profile
from toolspan.session import Session
from toolspan.testing import TranscriptBuilder
from toolspan.testing.codex_builder import RolloutBuilder
from toolspan.tools import coding_tools

pytestmark = pytest.mark.anyio
TOOLS = ("Read", "Write", "Edit", "Glob", "Grep", "Bash", "WebFetch", "TodoWrite")
Calls = Sequence[tuple[str, dict[str, object]]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("one\ntwo\n")
    (folder / "b.txt").write_text("bee\n")
    return folder


async def record(project: Path, *batches: Calls) -> Path:
    path = project.parent / "session.jsonl"
    tools = coding_tools(profile(), only=TOOLS)
    number = 0
    async with Session(permissions=Permissions.allow_all(), cwd=project, tools=tools, transcript=path) as session:
        session.say("Go on.")
        for batch in batches:
            blocks = []
            for name, fields in batch:
                blocks.append({"type": "tool_use", "id": f"c{number}", "name": name, "input": fields})
                number += 1
            await session.run({"role": "assistant", "model": "m", "content": blocks})
    return path


async def replayed(
    path: Path, project: Path | None, *, bash: bool = False, look: Callable[[Path], object] = id
) -> dict[str, ReplayOutcome]:
    result: dict[str, ReplayOutcome] = {}
    with open_scratch(project) as scratch:
        replay = Replay([toolspan.read(path)], scratch, limits=ReplayLimits(bash=bash))
        await replay.run(lambda item: result.update({item.call: item}))
        look(scratch.project)
    assert not scratch.root.exists()
    return result


def answered(session: TranscriptBuilder, tool: str, tool_input: Mapping[str, object], call: str, message: str) -> None:
    session.result(session.call(tool, tool_input, id=call), message)


def verdicts(result: dict[str, ReplayOutcome]) -> list[str]:
    return [item.verdict for item in result.values()]


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


async def test_replayed_session_gives_the_same_results(project: Path) -> None:
    a = str(project / "a.txt")
    path = await record(
        project,
        [("Read", {"file_path": a}), ("Read", {"file_path": str(project / "none")})],
        [
            ("Edit", {"file_path": a, "old_string": "two", "new_string": "three"}),
            ("Edit", {"file_path": a, "old_string": "absent", "new_string": ""}),
            ("Write", {"file_path": str(project / "new/c.txt"), "content": "sea\n"}),
        ],
        [("Glob", {"pattern": "**/*.txt"}), ("Grep", {"pattern": "three"})],
    )
    before = contents(project)

    result = await replayed(path, project)

    assert verdicts(result) == ["same"] * 7
    assert result["c3"].state == "failed"
    assert contents(project) == before


async def test_files_are_first_restored_to_their_recorded_state(project: Path) -> None:
    a = str(project / "a.txt")
    path = await record(
        project, [("Read", {"file_path": a})], [("Edit", {"file_path": a, "old_string": "two", "new_string": "2"})]
    )
    (project / "a.txt").write_text("something else\n")

    assert verdicts(await replayed(path, project)) == ["same", "same"]
    assert (project / "a.txt").read_text() == "something else\n"
    (project / "a.txt").unlink()
    assert verdicts(await replayed(path, None)) == ["same", "same"]


async def test_different_result_is_reported_with_a_diff(project: Path) -> None:
    a, b = str(project / "a.txt"), str(project / "b.txt")
    path = await record(
        project,
        [("Read", {"file_path": a}), ("Read", {"file_path": b})],
        [("Edit", {"file_path": a, "old_string": "two", "new_string": "2"})],
        [("Grep", {"pattern": "bee", "output_mode": "content", "path": str(project)})],
    )
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        for block in line.get("message", {}).get("content", ()):
            if isinstance(block, dict) and block.get("tool_use_id") == "c1":
                block["content"] = "1\twasp"
                del line["toolUseResult"]
            if isinstance(block, dict) and block.get("tool_use_id") == "c3":
                block["is_error"] = True
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    result = await replayed(path, project)

    assert verdicts(result) == ["same", "differs", "same", "differs"]
    (difference,) = result["c1"].differences
    assert difference.what == "content"
    assert "-1\twasp" in difference.diff
    assert "+1\tbee" in difference.diff
    assert [item.what for item in result["c3"].differences] == ["state", "error flag"]


async def test_commands_run_only_on_request_and_in_the_copy(project: Path) -> None:
    made = project / "made.txt"
    command = f"echo made > {made}; pwd; date +%s.%N > stamp; date"
    path = await record(project, [("Bash", {"command": command})], [("Read", {"file_path": str(made)})])
    made.unlink()
    (project / "stamp").unlink()

    without = await replayed(path, project)
    assert without["c0"].reason == "commands are run only with --bash"
    assert without["c1"].verdict == "same"
    assert without["c1"].notes == ()

    copies: list[dict[str, bytes]] = []
    assert verdicts(await replayed(path, project, bash=True, look=lambda copy: copies.append(contents(copy)))) == [
        "same",
        "same",
    ]
    assert set(copies[0]) == {"a.txt", "b.txt", "made.txt", "stamp"}
    assert set(contents(project)) == {"a.txt", "b.txt"}


async def test_file_changed_by_a_skipped_command_is_restored_for_the_next_call(project: Path) -> None:
    a = str(project / "a.txt")
    path = await record(
        project,
        [("Read", {"file_path": a})],
        [("Bash", {"command": f"echo new > {a}"})],
        [("Read", {"file_path": a})],
        [("Edit", {"file_path": a, "old_string": "new", "new_string": "newer"})],
    )

    result = await replayed(path, project)

    assert verdicts(result) == ["same", "skipped", "same", "same"]
    assert "restored" in result["c2"].notes[0]


async def test_no_file_outside_the_copy_is_written(tmp_path: Path, project: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim.txt").write_text("mine\n")
    (project / "out").symlink_to(outside)
    (project / "inner").symlink_to(project / "b.txt")
    (project / "loop").symlink_to("loop")
    os.mkfifo(project / "pipe")
    hostile = TranscriptBuilder(cwd=str(project)).prompt("Go on.")
    paths = [
        outside / "victim.txt",
        f"{project}/../outside/victim.txt",
        f"{project}/out/victim.txt",
        f"{project}/out/../../outside/victim.txt",
        "~/victim.txt",
        f"{project}x/victim.txt",
        f"{project}/nul\0.txt",
    ]
    for number, path in enumerate(paths):
        fields = {"file_path": str(path), "content": "yours\n"}
        answered(hostile, "Write", fields, f"w{number}", "File created")
    answered(hostile, "Glob", {"pattern": "../../**/*"}, "g1", "No files found")
    answered(hostile, "Read", {"file_path": "/etc/hostname"}, "r1", "1\tx")
    patch = f"*** Begin Patch\n*** Add File: {outside}/p.txt\n+x\n*** End Patch\n"
    answered(hostile, "apply_patch", {"input": patch}, "p1", "Done!")
    transcript = tmp_path / "hostile.jsonl"
    transcript.write_bytes(b"\n".join(hostile.lines()) + b"\n")
    copies: list[dict[str, bytes]] = []

    result = await replayed(transcript, project, bash=False, look=lambda copy: copies.append(contents(copy)))

    skipped = [call for call, item in result.items() if item.verdict == "skipped"]
    assert skipped == ["w0", "w1", "w3", "w4", "w5", "w6", "g1", "r1", "p1"]
    assert contents(outside) == {"victim.txt": b"mine\n"}
    assert copies[0]["out/victim.txt"] == b"yours\n"  # a folder of the copy: the link is not there
    assert copies[0]["inner"] == b"bee\n"
    assert not (tmp_path / "projectx").exists()


async def test_link_made_by_a_command_does_not_lead_out_of_the_copy(tmp_path: Path, project: Path) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_text("mine\n")
    session = TranscriptBuilder(cwd=str(project)).prompt("Go on.")
    answered(session, "Bash", {"command": f"ln -s {victim} {project}/way"}, "b1", "")
    fields = {"file_path": f"{project}/way", "content": "yours\n"}
    answered(session, "Write", fields, "w1", "updated")
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"\n".join(session.lines()) + b"\n")

    result = await replayed(path, project, bash=True)

    assert result["w1"].reason == "it leads out of the project"
    assert victim.read_text() == "mine\n"


async def test_folder_over_the_size_limit_is_not_copied(project: Path) -> None:
    (project / "big").write_bytes(b"x" * 5000)
    too_much = pytest.raises(ToolspanError, match="too much to copy")
    with too_much, open_scratch(project, max_bytes=4096):
        raise AssertionError


async def test_copy_keeps_modes_and_times_but_not_git(project: Path) -> None:
    script = project / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    os.utime(script, (1, 1))
    subprocess.run(["git", "init", "-q", str(project)], check=True)

    with open_scratch(project) as scratch:
        copied = scratch.project / "run.sh"
        assert copied.stat().st_mode & 0o777 == 0o755
        assert copied.stat().st_mtime == 1
        assert not (scratch.project / ".git").exists()
        assert scratch.omitted == [".git: never copied"]
        copied.parent.chmod(0o500)
    assert not scratch.root.exists()


async def test_files_of_a_commit_can_be_used_instead(project: Path) -> None:
    git = ["git", "-C", str(project), "-c", "user.name=n", "-c", "user.email=e@e"]
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    (project / "sub").mkdir()
    targets = {"sub/up": "..", "sub/file": "../a.txt", "out": "..", "absolute": "/etc", "through": "sub/up/../etc"}
    for name, target in targets.items():
        (project / name).symlink_to(target)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    (project / "a.txt").write_text("later\n")

    with open_scratch(project, commit="HEAD") as scratch:
        assert (scratch.project / "a.txt").read_text() == "one\ntwo\n"
        links = [str(path.relative_to(scratch.project)) for path in scratch.project.rglob("*") if path.is_symlink()]
        assert sorted(links) == ["sub/file", "sub/up"]
    for name in ("nosuch", "--output=x"):
        with pytest.raises(ToolspanError), open_scratch(project, commit=name):
            raise AssertionError


async def test_filters_and_monitors_of_the_repository_do_not_run(project: Path, tmp_path: Path) -> None:
    git = ["git", "-C", str(project), "-c", "user.name=n", "-c", "user.email=e@e"]
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    (project / ".gitattributes").write_text("*.txt filter=x=y\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    mark = tmp_path / "mark"
    with (project / ".git" / "config").open("a") as config:
        config.write(
            f'[filter "x=y"]\nsmudge = touch {mark}; cat\nrequired = true\n[core]\nfsmonitor = touch {mark};\n'
        )

    with open_scratch(project, commit="HEAD") as scratch:
        assert (scratch.project / "a.txt").read_text() == "one\ntwo\n"
    assert not mark.exists()
    subprocess.run([*git, "archive", "HEAD"], check=True, capture_output=True)
    assert mark.exists()  # the filter works


async def test_codex_patches_are_applied_again(tmp_path: Path, project: Path) -> None:
    rollout = RolloutBuilder(cwd=str(project)).prompt("Go on.")
    patch = (
        "*** Begin Patch\n*** Update File: a.txt\n@@\n one\n-two\n+three\n"
        "*** Add File: new/c.txt\n+sea\n*** Delete File: b.txt\n*** End Patch\n"
    )
    good = rollout.call("shell", {"command": ["apply_patch", patch]})
    rollout.output(good, json.dumps({"output": "Success.", "metadata": {"exit_code": 0}}))
    listing = rollout.call("shell", {"command": ["bash", "-lc", "cat a.txt"]})
    rollout.output(listing, json.dumps({"output": "one\nthree\n", "metadata": {"exit_code": 0}}))
    copies: list[dict[str, bytes]] = []
    path = rollout.write(tmp_path / "home")

    result = await replayed(path, project, bash=True, look=lambda copy: copies.append(contents(copy)))

    assert verdicts(result) == ["same", "same"], result
    assert copies == [{"a.txt": b"one\nthree\n", "new/c.txt": b"sea\n"}]
    assert set(contents(project)) == {"a.txt", "b.txt"}


async def test_calls_that_cannot_be_replayed_are_skipped_with_a_reason(tmp_path: Path, project: Path) -> None:
    session = TranscriptBuilder(cwd=str(project)).prompt("Go on.")
    calls = {
        "WebFetch": "it needs the network",
        "mcp__s__t": "it needs an MCP server",
        "Task": "it needs a model",
        "AskUserQuestion": "it needs a person",
        "Mystery": "this tool is not run again",
    }
    for name in calls:
        answered(session, name, {}, f"c{name}", "fine")
    gone = {"file_path": f"{project}/gone.txt"}
    answered(session, "Read", gone, "r1", "1\tx")
    session.call("Read", {"file_path": f"{project}/a.txt"}, id="r2")
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"\n".join(session.lines()) + b"\n")

    result = await replayed(path, project)

    reasons = [item.reason for item in result.values()]
    assert reasons[: len(calls)] == list(calls.values())
    assert result["r2"].reason == "it has no result"


def test_volatile_details_are_ignored_in_commands_only() -> None:
    ground = PathMapping("/home/m/app", Path("/tmp/copy/project"))
    then = "/home/m/app/x 2026-11-04T10:00:00Z took 1.2s at 0x7f3a99aa0010 in /tmp/abc"
    now = "/tmp/copy/project/x 2026-11-05T11:30:10Z took 0.9s at 0x7f3a99aa0999 in /tmp/def"
    assert normalize_result(then, "Bash", ground) == normalize_result(now, "Bash", ground)
    assert normalize_result(then, "Edit", ground) != normalize_result(now, "Edit", ground)
    assert normalize_result("b\na", "Glob", ground) == normalize_result("a\nb", "Glob", ground)
    assert len(short_diff("\n".join(map(str, range(99))), "")) == 21


def test_recorded_folder_is_distinguished_from_similar_paths() -> None:
    ground = PathMapping("/home/m/app", Path("/copy"))
    assert ground.to_copy_path("/home/m/app/a/../b") == Path("/copy/b")
    assert ground.to_copy_path("a.txt") == Path("/copy/a.txt")
    assert ground.to_copy_path("/home/m/app2/a") is None
    assert ground.to_copy_path("/home/m/app/../x") is None
    assert ground.into_copy("cat /home/m/app/a /home/m/app2 /home/m/app") == ("cat /copy/a /home/m/app2 /copy")
    assert PathMapping("/", Path("/copy")).into_copy("ls /") == "ls /"
    assert PathMapping("/", Path("/copy")).to_copy_path("/etc/../../x") == Path("/copy/x")
    windows = PathMapping("C:\\work\\app", Path("/copy"))
    assert windows.to_copy_path("C:\\work\\app\\src\\a.py") == Path("/copy/src/a.py")


def recorded_by(version: str, folder: Path) -> Path:
    session = TranscriptBuilder(version="2.0.65")
    session.prompt("Go.")
    session.result(session.call("Read", {"file_path": "/project/a.txt"}, id="a"), "1\tone")
    path = session.write(folder / "session.jsonl")
    path.write_text(path.read_text(encoding="utf-8").replace("2.0.65", version), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.2.9", "2.0.65"),
        ("1.0.128", "2.0.65"),
        ("2.0.5", "2.0.65"),
        ("2.0.65", "2.0.65"),
        ("2.0.76", "2.0.65"),
        ("2.1.80", "2.0.65"),
        ("2.1.100-beta.2", "2.0.65"),
        ("2.1.197", "2.1.327"),
        ("2.1.325", "2.1.327"),
        ("2.1.400", "2.1.327"),
        ("3.0.0", "2.1.327"),
        ("unknown", "2.1.327"),
    ],
)
def test_version_is_replayed_with_the_nearest_profile(version: str, expected: str, tmp_path: Path) -> None:
    path = recorded_by(version, tmp_path)
    with open_scratch(None) as scratch:
        assert Replay([toolspan.read(path)], scratch).profile.name == expected


def test_replay_prints_the_version_it_imitates(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "toolspan", "replay", str(recorded_by("2.1.7", tmp_path))]
    done = subprocess.run(program, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "client 2.0.65, recorded by 2.1.7" in done.stdout
