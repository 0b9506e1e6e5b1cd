"""`toolspan repair`: its copy, its messages and the untouched original."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.reading.repair.defects import DEFECTS, Lines, record_two_turns
from tests.session.recording.emitted import SESSION, finished, message, recorder, use
from toolspan.cli.app import app
from toolspan.reading.diagnostics import check, repair
from toolspan.session.recording.writer import results_folder
from toolspan.session.resume import load_history
from toolspan.testing import project_name


def session(folder: Path) -> Path:
    path = folder / f"{SESSION}.jsonl"
    keeper = recorder(path)
    record_two_turns(keeper)
    agent = keeper.subagent_recorder("a1", {"toolUseId": "toolu_z"})
    agent.record_prompt("sub")
    agent.record_reply(message(use("toolu_s", "Bash", command="s")))
    agent.record_result(finished("toolu_s", "Bash", "of s"))
    agent.close()
    results_folder(path).mkdir(parents=True)
    (results_folder(path) / "toolu_a.txt").write_text("long", encoding="utf-8")
    keeper.close()
    return path


def asked(*text: str | Path, root: Path | None = None) -> Result:
    env = {"CLAUDE_CONFIG_DIR": str(root) if root else None}
    return CliRunner().invoke(app, ["repair", *map(str, text)], env=env)


def describe_history(path: Path) -> list[tuple[str, object]]:
    result: list[tuple[str, object]] = []
    for item in load_history(path):
        assert isinstance(item["content"], list)
        result += [(b["type"], b.get("text") or b.get("id") or b["content"]) for b in item["content"]]
    return result


def test_repair_writes_a_copy_and_leaves_the_original_unchanged(tmp_path: Path) -> None:
    path = session(tmp_path)
    whole = describe_history(path)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"\n", b"", 1) + b'{"torn')
    before = path.read_bytes()
    done = repair(path)

    assert path.read_bytes() == before
    assert done.path is not None
    assert done.path.parent == path.parent
    assert describe_history(done.path) == whole
    assert {change.code for change in done.changes} == {"glued_records", "torn_last_line"}
    lines = [json.loads(line) for line in done.path.read_bytes().splitlines()]
    assert {line["sessionId"] for line in lines} == {done.session_id} != {str(SESSION)}
    beside = done.path.with_suffix("")
    (agent,) = (beside / "subagents").glob("*.jsonl")
    assert {json.loads(x)["sessionId"] for x in agent.read_bytes().splitlines()} == {done.session_id}
    assert (beside / "subagents" / "agent-a1.meta.json").exists()
    assert (beside / "tool-results" / "toolu_a.txt").read_text(encoding="utf-8") == "long"
    assert check(done.path).is_healthy


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda one: one.__name__)
def test_each_defect_is_repaired_and_nothing_else_removed(defect: Any, tmp_path: Path) -> None:
    path = session(tmp_path)
    lines: Lines = path.read_bytes().splitlines()
    path.write_bytes(defect(lines))
    there = describe_history(path)
    done = repair(path)

    assert done.path is not None or defect.__name__ == "not_an_object" or not done.changes
    if done.path is not None:
        assert [finding for finding in check(done.path).findings if finding.severity != "info"] == []
        assert describe_history(done.path) == there


@pytest.mark.parametrize("odd", [["x"], {"x": 1}, 7, True])
@pytest.mark.parametrize("field", ["message.id", "agentId", "toolUseID", "tool_use.id"])
def test_field_of_another_type_does_not_stop_repair(field: str, odd: object, tmp_path: Path) -> None:
    path = session(tmp_path)
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    replies = [line for line in lines if line["type"] == "assistant"]
    for line in replies if field in ("message.id", "agentId") else replies[-1:]:
        match field:
            case "message.id":
                line["message"]["id"] = odd
            case "agentId":
                line["agentId"] = odd
            case "toolUseID":
                line["attachment"] = {"type": "hook_deferred_tool", "toolUseID": odd}
            case _:
                use = {"type": "tool_use", "id": odd, "name": "Bash", "input": {}}
                line["message"]["content"] += [use, {**use, "id": "toolu_z"}]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    path.write_bytes(data + b'{"torn')
    whole = describe_history(path)

    done = asked(path, "--json")

    assert done.exit_code == 0, done.output
    copy = Path(json.loads(done.stdout)["file"])
    assert describe_history(copy) == [item for item in whole if item[1] != odd]


def test_sound_session_is_left_unchanged(tmp_path: Path) -> None:
    path = session(tmp_path)
    done = asked(path)

    assert done.exit_code == 0
    assert "nothing to repair" in done.stdout
    assert list(tmp_path.glob("*.jsonl")) == [path]


def test_repair_prints_the_changes_and_the_resume_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "it's mine"
    project.mkdir()
    monkeypatch.chdir(project)
    folder = tmp_path / "projects" / project_name(str(project))
    path = folder / f"{SESSION}.jsonl"
    keeper = recorder(path)
    keeper.record_prompt("go")
    keeper.record_reply(message(use("toolu_a", "Bash", command="x")))
    keeper.close()
    dry = json.loads(asked("--dry-run", "--json", root=tmp_path).stdout)
    assert [item["code"] for item in dry["changes"]] == ["unanswered_call"]
    assert list(folder.glob("*.jsonl")) == [path]

    done = asked(str(SESSION)[:8], root=tmp_path)
    (copy,) = set(folder.glob("*.jsonl")) - {path}

    assert done.exit_code == 0
    assert "toolu_a got a result" in done.stdout
    assert f"claude --resume {copy.stem}" in done.stdout
    assert f"toolspan run --resume {copy.stem}" in done.stdout


def test_session_outside_the_client_folder_must_be_moved_first(tmp_path: Path) -> None:
    keeper = recorder(tmp_path / f"{SESSION}.jsonl")
    keeper.record_prompt("go")
    keeper.record_reply(message(use("toolu_a", "Bash", command="x")))
    keeper.close()

    output = json.loads(asked(keeper.path, "--json", root=tmp_path / "home").stdout)
    place = tmp_path / "home" / "projects" / project_name(output["cwd"])

    assert output["put_into"] == str(place)
    assert f"\n  {place}\n" in asked(keeper.path, root=tmp_path / "home").stdout


@pytest.mark.parametrize("what", ["missing", "codex", "folder"])
def test_session_that_cannot_be_repaired_is_reported_in_one_line(what: str, tmp_path: Path) -> None:
    place = tmp_path / "rollout-2026-01-01T00-00-00-0d6a1a0e-7f5e-4f0b-9a54-0d9f5a1c2b3d.jsonl"
    meta = {"timestamp": "x", "type": "session_meta", "payload": {"id": "x", "cwd": "/"}}
    if what == "codex":
        place.write_text(json.dumps(meta) + "\n", encoding="utf-8")
    if what == "folder":
        place = tmp_path / "folder"
        for name in ("a", "b"):
            recorder(place / f"{name}.jsonl").record_prompt("x")
    done = asked(place)

    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
