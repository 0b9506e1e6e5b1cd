"""`toolspan tools`: the tools of a session."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from toolspan.cli.app import app
from toolspan.runtime.profiles import VERSIONS, profile
from toolspan.tools import coding_tools


def rows(*options: str) -> dict[str, dict[str, object]]:
    result = CliRunner().invoke(app, ["tools", "--json", *options])
    assert result.exit_code == 0, result.output
    tools = [json.loads(line) for line in result.output.splitlines()]
    return {row["name"]: row for row in tools}


@pytest.mark.parametrize("version", VERSIONS)
def test_list_equals_the_tools_of_a_client_session(version: str) -> None:
    client = profile(version)

    assert list(rows("--profile", version)) == [tool.name for tool in coding_tools(client)]
    with_person = rows("--profile", version, "--person")
    assert set(with_person) >= client.availability.interactive_tools


def test_row_describes_how_calls_run() -> None:
    result = rows("--profile", "2.1.327")

    assert result["Read"]["concurrent"] is True
    assert result["Read"]["read_only"] is True
    assert result["Bash"]["concurrent"] is None
    assert result["TaskStop"]["aliases"] == ["KillShell", "KillBash"]
    assert {name for name, row in result.items() if row["deferred"]} >= {"TaskStop", "WebFetch"}
    assert result["WebFetch"]["input"] == ["url", "prompt", "offset?"]
    assert rows("--person")["ExitPlanMode"]["asks"] is True


def test_seed_tools_are_listed_in_the_order_of_the_document() -> None:
    listed = [
        "Task", "Bash", "Glob", "Grep", "LS", "ExitPlanMode", "Read", "Edit", "MultiEdit", "Write",
        "NotebookEdit", "WebFetch", "TodoWrite", "WebSearch",
    ]  # fmt: skip
    result = [name for name in rows("--profile", "seed") if name in listed]

    assert result == [name for name in listed if name in result]
    assert {"Bash", "ExitPlanMode", "Read", "Edit", "Write", "WebFetch", "WebSearch"} <= set(result)


def test_text_output_is_a_table() -> None:
    result = CliRunner().invoke(app, ["tools", "--profile", "2.1.327"])

    assert result.exit_code == 0
    first, *lines = result.output.splitlines()
    assert first.split()[:2] == ["tool", "parallel"]
    assert len(lines) >= len(coding_tools(profile("2.1.327")))
