from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.explore.__main__ import generate_form_case, record_run
from lab.explore.compare import Purpose, compare_decisions, first_difference, group_key, load_purposes, skeleton
from lab.explore.generate import THEMES, generate_case
from lab.explore.mutations import generate_mutation_case
from lab.explore.permissions import generate_permission_case
from lab.explore.run import reductions
from lab.oracle.recording_scenarios import nearest_profile

ROOT = Path(__file__).parent.parent.parent
PURPOSES = Path(__file__).parent / "on_purpose.toml"


@pytest.mark.parametrize("generate", [generate_case, generate_permission_case, generate_form_case])
def test_a_seed_gives_the_same_case_again(generate: Any) -> None:
    for number in range(len(THEMES)):
        assert json.dumps(generate(3, "2.1.327", number)) == json.dumps(generate(3, "2.1.327", number))
    assert generate(3, "2.1.327", 0)["turns"] != generate(4, "2.1.327", 0)["turns"]


def test_mutations_are_different_lines_that_the_mode_alone_may_run() -> None:
    case = generate_mutation_case(3, "2.1.325", 2)
    lines = [call["input"]["command"] for turn in case["turns"] for call in turn]

    assert len(lines) == len(set(lines)) >= 100
    assert not any("$(" in line and "'" not in line and "\\" not in line for line in lines)
    assert case == generate_mutation_case(3, "2.1.325", 2)


def test_some_mutations_are_made_from_lines_that_a_rule_denies() -> None:
    case = generate_mutation_case(3, "2.1.325", 0)
    lines = [call["input"]["command"] for turn in case["turns"] for call in turn]

    assert case["settings"]["permissions"]["allow"] == ["Bash"]
    assert any("foo" in line or "make" in line for line in lines)


@pytest.mark.parametrize("version", ["2.1.327", "2.0.65"])
def test_call_ids_of_a_case_are_unique(version: str) -> None:
    for number in range(len(THEMES)):
        ids = [call["id"] for turn in generate_case(1, version, number)["turns"] for call in turn]
        assert len(ids) == len(set(ids)) >= 30


@pytest.mark.parametrize("version", ["2.1.327", "2.0.65"])
def test_forms_are_about_tools_settings_and_hooks_in_turn(version: str) -> None:
    cases = [generate_form_case(1, version, number) for number in range(12)]

    assert [case["id"][0] for case in cases] == ["t", "f", "h"] * 4
    assert all(case.get("all_scopes") for case in cases[1::3])
    assert all(case["settings"]["hooks"] for case in cases[2::3])
    for case in cases:
        ids = [call["id"] for turn in case["turns"] for call in turn]
        assert len(ids) == len(set(ids)) >= 12
        assert case["theme"] == "permissions"


def test_a_call_that_fails_without_a_network_was_permitted() -> None:
    refused = {"content": "no", "is_error": True, "denied": True}
    failed = {"content": "The address cannot be found", "is_error": True}
    invalid = {"content": "<tool_use_error>x</tool_use_error>", "is_error": True}
    blocked = {"content": "PreToolUse:WebFetch hook error: no", "is_error": True}

    assert compare_decisions("WebFetch", refused, failed) == compare_decisions("mcp__a__b", refused, failed) == "laxer"
    assert compare_decisions("WebFetch", failed, refused) == compare_decisions("Agent", failed, {}) == "stricter"
    assert compare_decisions("WebFetch", refused, invalid) == compare_decisions("WebFetch", refused, blocked) == ""


def test_only_a_call_that_the_client_refuses_and_toolspan_runs_is_laxer() -> None:
    ran, failed = {"content": "ok"}, {"content": "Exit code 1", "is_error": True}
    refused = {"content": "no", "is_error": True, "denied": True}
    invalid = {"content": "<tool_use_error>x</tool_use_error>", "is_error": True}

    assert compare_decisions("Bash", refused, ran) == compare_decisions("Bash", refused, failed) == "laxer"
    assert compare_decisions("Bash", ran, refused) == compare_decisions("Bash", failed, refused) == "stricter"
    assert compare_decisions("Bash", refused, refused) == compare_decisions("Bash", ran, failed) == ""
    assert compare_decisions("Read", refused, invalid) == compare_decisions("Read", invalid, refused) == ""


def test_differences_of_one_cause_are_one_group() -> None:
    def key(path: str, number: int) -> str:
        want = {"content": f"File '{path}' has {number} lines"}
        return group_key("Read", ("content",), want, {"content": f"No file at {path}"})

    assert key("/a/b.txt", 5) == key("/c/dd.txt", 17)
    assert skeleton("Found 3 files in <cwd>/src/a.txt") == "Found # files in <path>"


def test_long_values_are_cut_to_where_they_differ() -> None:
    lines = [f"line {number}" for number in range(500)]
    other = [*lines[:400], "changed", *lines[401:]]

    left, right = first_difference({"same": 1, "text": "\n".join(lines)}, {"same": 1, "text": "\n".join(other)})

    assert left.startswith("text: line 400")
    assert right.startswith("text: changed")


def test_a_case_is_reduced_to_one_call_and_then_to_those_of_the_same_file() -> None:
    def call(number: int, tool: str, **given: object) -> dict[str, Any]:
        return {"id": f"c{number}", "name": tool, "input": given}

    first, other, last = (
        call(1, "Read", file_path="/p/a.txt"),
        call(2, "Read", file_path="/p/b.txt"),
        call(3, "Edit", file_path="./a.txt"),
    )
    turns = [case["turns"] for case in reductions({"turns": [[first, other], [last]]}, "c3")]

    assert turns == [[[last]], [[first], [last]], [[first], [other], [last]], [[first, other], [last]]]


def test_each_intended_difference_has_a_reason() -> None:
    for entry in load_purposes(PURPOSES):
        assert entry["reason"] and entry["profiles"] and entry["tool"]


def test_an_intended_difference_is_known_by_the_field_that_it_is_about() -> None:
    entry = {"tool": "Edit", "profiles": ["2.1.327"], "where": "toolUseResult", "ours": "stale", "reason": "r"}
    purpose = Purpose.from_row(entry)
    want, got = {"content": "stale", "toolUseResult": {}}, {"content": "", "toolUseResult": {"stale": True}}

    assert purpose.explains({"version": "2.1.327"}, {"name": "Edit", "input": {}}, ("toolUseResult",), want, got)
    assert not purpose.explains({"version": "2.1.327"}, {"name": "Edit", "input": {}}, ("toolUseResult",), got, want)
    assert not purpose.explains({"version": "2.0.65"}, {"name": "Edit", "input": {}}, ("toolUseResult",), want, got)


def test_a_run_is_stored_in_place_of_the_last_one_with_its_seed(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    for version, seed, equal in (("2.1.327", 7, 1), ("2.0.65", 7, 2), ("2.1.327", 7, 3)):
        record_run(path, {"version": version, "seed": seed, "equal": equal})

    runs = [(run["version"], run["equal"]) for run in json.loads(path.read_text(encoding="utf-8"))]
    assert runs == [("2.0.65", 2), ("2.1.327", 3)]


def test_a_new_client_is_compared_with_the_nearest_profile() -> None:
    versions = ("2.1.400", "2.1.327", "2.1.197", "2.1.80", "2.0.65", "1.0.3")
    assert [nearest_profile(version) for version in versions] == ["2.1.327"] * 3 + ["2.0.65"] * 3


def test_the_explorer_says_what_is_missing_to_run_the_client(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "lab.explore"],
        cwd=ROOT,
        env={**os.environ, "SHARED": str(tmp_path), "ORACLE_SCRATCH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 2
    assert f"the harness is not in {tmp_path.resolve() / 'oracle'}" in run.stderr
