"""`toolspan agents`: subagents, one row each, as a tree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import asdict

from tests.cli.command import home_at, rows, run
from toolspan import Archive
from toolspan.testing import TranscriptBuilder, claude_results

PROMPT = "Find every caller of `login` and report the files."


def session_with_agents(root: Path, version: str = "2.1.207") -> tuple[Path, str]:
    """Write a session with two subagents, one of which failed twice, and return its folder and the id of that one."""
    builder = TranscriptBuilder(version=version).prompt("Review the login")
    names = []
    for kind, text, failures in (("Explore", "Find callers", 2), ("general-purpose", "Fix the test", 0)):
        call = builder.call("Task", {"description": text, "prompt": f"{PROMPT} {text}", "subagent_type": kind})
        agent = builder.agent(call, kind=kind, description=text).prompt(f"{PROMPT} {text}")
        for _ in range(failures):
            agent.result(agent.call("Bash", {"command": "make"}), claude_results.exited(2, "no rule"))
        agent.result(agent.call("Read", {"file_path": "/a"}), claude_results.read("/a", "a"), after_ms=3_000)
        names.append(agent.agent_id)
        builder.result(call, "done", after_ms=10_000)
    folder = root / "projects" / "-home-dev-project"
    folder.mkdir(parents=True)
    for name, data in builder.files(builder.session_id).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root / "projects", names[0]


def test_each_subagent_is_a_row_with_its_own_numbers(tmp_path: Path) -> None:
    folder, name = session_with_agents(tmp_path)

    explore, fix = Archive(folder).agents()

    assert (explore.id, explore.type, explore.name, explore.prompt) == (
        name,
        "Explore",
        "Find callers",
        f"{PROMPT} Find callers",
    )
    assert (explore.calls, explore.unsuccessful, fix.calls, fix.unsuccessful) == (3, 2, 1, 0)
    assert explore.state == "succeeded"
    assert (explore.parent, explore.depth, explore.client) == (None, 0, "claude")
    assert [row.name for row in Archive(folder).agents(sort="unsuccessful", limit=1)] == ["Find callers"]


def test_json_has_the_same_rows(tmp_path: Path) -> None:
    folder, _ = session_with_agents(tmp_path)

    printed = rows(run("agents", folder, "--json"))

    assert [row["name"] for row in printed] == ["Find callers", "Fix the test"]
    assert list(printed[0]) == list(asdict(Archive(folder).agents()[0]))


def test_every_printed_id_is_accepted_by_show(tmp_path: Path) -> None:
    for version in ("1.0.61", "2.0.65", "2.1.207"):
        root = tmp_path / version
        folder, _ = session_with_agents(root, version)
        output = run("agents", folder, env={"COLUMNS": "140"}).stdout
        ids = [line.split()[0] for line in output.splitlines() if "Find callers" in line or "Fix the test" in line]
        assert len(ids) == 2, output
        for name in ids:
            assert run("show", name, folder).exit_code == 0
            assert run("show", name, env=home_at(root)).exit_code == 0


def test_show_counts_the_calls_and_costs_of_the_subagent_alone(tmp_path: Path) -> None:
    folder, _ = session_with_agents(tmp_path)

    for row in Archive(folder).agents():
        shown = Archive(folder).session(row.id)
        assert len(shown.calls) == row.calls
        assert shown.tokens == row.tokens
        assert shown.usage.cost_usd == pytest.approx(row.cost_usd)
        assert "copied from another" not in run("show", row.id, folder).stdout


def test_subagent_of_a_subagent_follows_it_with_an_indented_id(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="s").prompt("go")
    call = builder.call("Task", {"description": "outer", "prompt": "a", "subagent_type": "Plan"})
    outer = builder.agent(call, kind="Plan").prompt("a")
    nested = outer.call("Task", {"description": "inner", "prompt": "b", "subagent_type": "Explore"})
    outer.result(nested, "Async agent launched successfully.\nagentId: b7c1")
    builder.result(call, "done")
    for name, data in builder.files("s").items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)

    first, second = Archive(tmp_path).agents()

    assert (first.name, second.name, second.parent, second.depth) == ("outer", "inner", first.id, 1)
    assert "\n  b7c1 " in run("agents", tmp_path).stdout
    assert json.loads(run("show", "b7c1", tmp_path, "--json").stdout)["call"]["id"] == nested
