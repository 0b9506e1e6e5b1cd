"""Findings of `check` per record: unknown keys, invalid text, patches that do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toolspan import check
from toolspan.formats import lines
from toolspan.formats.source import BytesSource
from toolspan.reading.diagnostics import DiagnosticReport
from toolspan.testing import TranscriptBuilder, claude_results
from toolspan.testing.codex_builder import RolloutBuilder

UUID = "0d6a1a0e-7f5e-4f0b-9a54-0d9f5a1c2b3d"


def examined(data: bytes, name: str = "s.jsonl", *, roundtrip: bool = False) -> DiagnosticReport:
    return check(BytesSource(data, name), roundtrip=roundtrip)


def finding_codes(result: DiagnosticReport) -> list[tuple[str, int]]:
    return [(each.code, each.count) for each in result.findings]


def about(result: DiagnosticReport, code: str) -> list[str]:
    output = [each.explanation for each in result.findings if each.code == code]
    return [text.rpartition(" (")[2].removesuffix(")") for text in output]


def line(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def test_inputs_and_results_with_unknown_keys_are_reported_by_tool_and_path() -> None:
    builder = TranscriptBuilder().prompt("go")
    for _ in range(2):
        call = builder.call("Bash", {"command": "ls", "brandNew": 1})
        builder.result(call, "a", structured={"stdout": "a", "newer": 1})

    result = examined(builder.data())

    assert about(result, "unknown_input") == ["Bash: brandNew"]
    assert about(result, "unknown_result") == ["Bash: newer"]
    assert ("unknown_input", 2) in finding_codes(result)
    assert ("unknown_result", 2) in finding_codes(result)


@pytest.mark.parametrize(
    "content",
    [
        "words",
        [],
        [{"type": "tool_result", "content": "x"}],
        [{"type": "tool_result", "tool_use_id": "toolu_gone", "content": "x"}],
        [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}] * 2,
    ],
)
def test_structured_result_without_a_certain_call_is_not_checked(content: object) -> None:
    builder = TranscriptBuilder().prompt("go")
    builder.call("Bash", {"command": "ls"}, id="toolu_1")
    message = {"role": "user", "content": content}
    builder.raw(line(type="user", message=message, toolUseResult={"newer": 1}))

    assert about(examined(builder.data()), "unknown_result") == []


def test_unknown_keys_of_a_rollout_are_reported() -> None:
    rollout = RolloutBuilder().prompt("go")
    rollout.call("exec_command", {"cmd": "ls", "brandNew": 1})
    rollout.event("surprise", text="x").line("wonder", {}).raw(line(type="odd", payload=7))
    rollout.item({"type": "function_call", "name": "exec_command", "later": 1, "arguments": "{}"})

    result = examined(rollout.data(), "rollout-x.jsonl")

    assert about(result, "unknown_input") == ["exec_command: brandNew"]
    assert about(result, "unknown_field") == ["response_item/function_call.later"]
    assert about(result, "unknown_type") == ["event_msg/surprise", "wonder", "odd"]


@pytest.mark.parametrize("client", ["claude", "codex"])
def test_every_decoded_record_encodes_to_equal_json(client: str) -> None:
    builder, made = TranscriptBuilder().prompt("go"), RolloutBuilder().prompt("go")
    data = builder.data() if client == "claude" else made.data()
    deep = b'{"type":"x","deep":' + b"[" * 5_000 + b"]" * 5_000 + b"}\n"
    name = "s.jsonl" if client == "claude" else "rollout-x.jsonl"

    result = examined(data + b"[1]\n" + deep, name, roundtrip=True)

    assert result.roundtrip_equal == len(data.splitlines())
    assert "not_an_object" in [code for code, _ in finding_codes(result)]


def test_bytes_that_are_not_utf8_are_reported_where_reading_skips_them() -> None:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Bash", {"command": "ls"})
    builder.result(call, "XX", structured={"stdout": "XX"})
    data = builder.data().replace(b"XX", b"\xff")

    result = examined(data)

    assert ("invalid_utf8", 1) in finding_codes(result)
    assert (result.counts.malformed, result.is_healthy) == (1, False)


def test_huge_line_is_checked_for_drift_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_DRIFT_SIZE_LIMIT", 1_000)
    data = TranscriptBuilder().prompt("go").raw(line(type="new", text="x" * 2_000)).data()

    assert about(examined(data), "unknown_type") == []
    assert len(about(examined(data, roundtrip=True), "unknown_type")) == 1


def test_records_of_another_session_are_reported() -> None:
    builder = TranscriptBuilder(session_id=UUID).prompt("go")
    stranger = TranscriptBuilder(session_id=UUID.replace("0", "f")).prompt("mine").text("yes")

    result = examined(builder.data() + stranger.data(), f"{UUID}.jsonl")

    assert ("foreign_session", 2) in finding_codes(result)
    assert "foreign_session" not in dict(finding_codes(examined(stranger.data(), "notes.jsonl")))


@pytest.mark.parametrize("before", ["one\n", "other\n"])
def test_patches_of_whole_files_and_several_edits_are_verified(before: str) -> None:
    hunk = {"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 1, "lines": ["-one", "+two"]}
    builder = TranscriptBuilder().prompt("go")
    write = builder.call("Write", {"file_path": "/a", "content": "two\n"})
    builder.result(
        write,
        "ok",
        structured={
            "type": "update", "filePath": "/a", "content": "two\n", "originalFile": before,
            "structuredPatch": [hunk],
        },
    )  # fmt: skip
    edits = [{"old_string": "one", "new_string": "two", "replace_all": False}]
    multi = builder.call("MultiEdit", {"file_path": "/a", "edits": edits})
    builder.result(
        multi,
        "ok",
        structured={
            "filePath": "/a", "edits": edits, "originalFileContents": before,
            "structuredPatch": [hunk], "userModified": False,
        },
    )  # fmt: skip
    plain = builder.call("Edit", {"file_path": "/a", "old_string": "one", "new_string": "two"})
    builder.result(plain, claude_results.ran("ok"))  # its content is not a patch

    mismatches = [count for code, count in finding_codes(examined(builder.data())) if code == "patch_mismatch"]

    assert mismatches == ([] if before == "one\n" else [2])


def test_conversation_of_sidechains_has_no_active_branch(tmp_path: Path) -> None:
    data = b"".join(
        line(type="user", uuid=name, parentUuid=above, isSidechain=True, message={"content": "x"}) + b"\n"
        for name, above in (("a", None), ("b", "a"), ("c", "gone"))
    )

    assert ("missing_parent", 1) in finding_codes(examined(data))
