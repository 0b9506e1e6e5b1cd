"""Intents written before side effects, and the evidence they give after a crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.session.recording.emitted import SESSION, message, no_failure, origin, recorder, use
from toolspan import Permissions, Session
from toolspan.errors import InUse
from toolspan.formats.evidence import UNANSWERED_MESSAGE, CallEvidence
from toolspan.runtime.profiles import profile
from toolspan.session.recording import Recorder, collect_evidence, intent_path
from toolspan.session.resume import load_history
from toolspan.tools import coding_tools


def intent_records(path: Path) -> list[dict[str, object]]:
    lines = intent_path(path).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def written(path: Path, *lines: dict[str, object], fsync: str = "never", boot: str = "b") -> None:
    beside = intent_path(path)
    beside.parent.mkdir(parents=True, exist_ok=True)
    first = {"open": 1, "boot": boot, "fsync": fsync}
    beside.write_text("".join(f"{json.dumps(item)}\n" for item in (first, *lines)), encoding="utf-8")


def outcome(path: Path, boot: str = "b") -> str:
    return collect_evidence(path, ["c"], boot=boot)["c"].outcome


@pytest.mark.anyio
async def test_intents_are_logged_for_side_effects_but_not_for_reads(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    (tmp_path / "a").write_text("old", encoding="utf-8")
    tools = coding_tools(profile("2.1.327"), only=["Read", "Write", "Bash"])
    async with Session(permissions=Permissions.allow_all(), cwd=tmp_path, tools=tools, transcript=path) as session:
        session.say("go")
        await session.run(message(use("r", "Read", file_path=str(tmp_path / "a"))))
        assert not intent_path(path).exists()
        await session.run(
            message(
                use("b", "Bash", command="true"),
                use("w", "Write", file_path=str(tmp_path / "a"), content="new"),
                id="msg_02",
            )
        )
    first, tag, request, *lines = intent_records(path)
    [command] = [line for line in lines if "process" in line]
    rest = [line for line in lines if "process" not in line]

    assert first["open"] == os.getpid()
    assert [*tag] == ["tag"]
    assert (command["process"], command["pid"]) == ("b", command["group"])
    assert request == {"asked": ["b", "w"]}
    assert [next(iter(line)) for line in rest] == ["begin", "settled", "begin", "settled"]
    change = rest[2]
    assert (change["begin"], change["tool"], change["path"]) == ("w", "Write", str(tmp_path / "a"))
    assert change["before"] != change["after"]
    assert rest[3] == {"settled": "w", "state": "succeeded"}
    assert "toolspan" not in path.read_text(encoding="utf-8").replace(str(tmp_path), "")


def test_call_without_an_intent_was_never_started(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    written(path, {"asked": ["c"]})

    assert outcome(path) == "never_started"
    assert outcome(path, boot="the machine was down") == "unknown"
    written(path, {"asked": ["c"]}, fsync="results")
    assert outcome(path, boot="the machine was down") == "never_started"
    written(path, {"asked": ["others"]})
    assert outcome(path) == "unknown"
    assert collect_evidence(tmp_path / "none.jsonl", ["c"])["c"].explanation == ""


@pytest.mark.parametrize(
    ("now", "expected"), [("before", "did_not_happen"), ("after", "happened"), ("else", "unknown"), (None, "unknown")]
)
def test_file_content_decides_whether_a_write_happened(now: str | None, expected: str, tmp_path: Path) -> None:
    from toolspan.tools.files.safe_read import digest_bytes

    path, file = tmp_path / "s.jsonl", tmp_path / "f"
    digests = {"before": digest_bytes(b"before"), "after": digest_bytes(b"after")}
    written(path, {"asked": ["c"]}, {"begin": "c", "tool": "Edit", "path": str(file), **digests})
    if now is not None:
        file.write_text(now, encoding="utf-8")

    assert outcome(path, boot="another") == expected


def test_finished_and_unfinished_calls_are_distinguished(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    begun: dict[str, object] = {"begin": "c", "tool": "Bash"}
    written(path, {"asked": ["c"]}, begun)
    assert outcome(path) == "unknown"
    written(path, {"asked": ["c"]}, begun, {"settled": "c", "state": "failed"})
    assert collect_evidence(path, ["c"])["c"].explanation == (
        "it ran to its end (failed), only its output was not recorded"
    )


@requirement("resume.evidence")
def test_resume_answers_an_open_call_with_the_evidence(tmp_path: Path) -> None:
    path = tmp_path / f"{SESSION}.jsonl"
    keeper = recorder(path)
    keeper.record_prompt("go")
    keeper.record_reply(message("I do.", use("c", "Bash", command="make")))
    keeper.close()
    written(path, {"asked": ["c"]}, {"begin": "c", "tool": "Bash"})
    history = load_history(path)
    text = f"{UNANSWERED_MESSAGE}\n[On record: it was started, and nothing tells how far it got.]"
    assert history[-1]["content"] == [{"type": "tool_result", "tool_use_id": "c", "content": text, "is_error": True}]

    again = Recorder.resume(path, origin(tmp_path), no_failure)
    again.set_resume_answers(history)
    before = path.read_bytes()
    again.record_prompt("and now?")
    again.close()
    line = json.loads(path.read_bytes()[len(before) :].splitlines()[0])

    assert line["message"]["content"][0]["content"] == text
    assert (line["toolDenialKind"], line["toolUseResult"]) == ("interrupted", text)
    assert [*load_history(path)[:-1], history[-1]] == history


def test_session_locked_by_another_process_is_refused_with_its_pid(tmp_path: Path) -> None:
    path = tmp_path / f"{SESSION}.jsonl"
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from tests.session.recording.emitted import recorder\n"
        "keeper = recorder(Path(sys.argv[1]))\nkeeper.record_prompt('mine')\n"
        "print(flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as other:  # fmt: skip
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(InUse, match=f"process {other.pid} is recording this session"):
            Recorder.resume(path, origin(tmp_path), no_failure)
        other.kill()
        other.wait()
    again = Recorder.resume(path, origin(tmp_path), no_failure)
    again.record_prompt("now mine")
    again.close()

    assert [m["content"] for m in load_history(path)] == [
        [{"type": "text", "text": "mine"}, {"type": "text", "text": "now mine"}]
    ]


def test_file_changed_after_a_successful_write_still_counts_as_written(tmp_path: Path) -> None:
    path, file = tmp_path / "s.jsonl", tmp_path / "f"
    begun: dict[str, object] = {"begin": "c", "tool": "Write", "path": str(file), "after": "x"}
    file.write_text("else", encoding="utf-8")
    written(path, {"asked": ["c"]}, begun, {"settled": "c", "state": "succeeded"})
    assert collect_evidence(path, ["c"])["c"] == CallEvidence(
        "happened", f"it wrote {file}, which was changed again since"
    )

    written(path, {"asked": ["c"]}, begun, {"settled": "c", "state": "failed"})
    assert outcome(path) == "unknown"


def test_missing_new_file_was_not_created(tmp_path: Path) -> None:
    path, file = tmp_path / "s.jsonl", tmp_path / "f"
    written(path, {"begin": "c", "tool": "Write", "path": str(file), "after": "x"})
    assert collect_evidence(path, ["c"])["c"] == CallEvidence("did_not_happen", f"{file} still does not exist")

    file.mkdir()  # the path is no longer a file whose content could be compared
    assert collect_evidence(path, ["c"])["c"] == CallEvidence(
        "unknown", f"it was about to write {file}, which cannot be read now"
    )


def test_torn_or_missing_intent_log_gives_partial_evidence(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    assert collect_evidence(path, []) == {}
    written(path, {"asked": ["c"]})
    with intent_path(path).open("ab") as side:
        side.write(b'{"begin":"c"\n\xff\n{"settled":"c","state":"failed"}\n')
    assert outcome(path) == "happened"

    intent_path(path).unlink()
    intent_path(path).mkdir()
    assert outcome(path) == "unknown"
