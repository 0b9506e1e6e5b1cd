"""`toolspan.check`: every finding."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.requirement import requirement
from toolspan import check, read
from toolspan.formats.checks import FINDING_CODES
from toolspan.formats.claude.reader import RESUME_BEHAVIOR
from toolspan.reading.diagnostics import DiagnosticReport
from toolspan.testing import TranscriptBuilder, claude_results
from toolspan.types.span import Note


def healthy() -> TranscriptBuilder:
    builder = TranscriptBuilder(session_id="s").prompt("go")
    builder.result(builder.call("Bash", {"command": "ls"}, id="toolu_1"), claude_results.ran("a"))
    return builder.text("done")


def examined(data: bytes, tmp_path: Path, name: str = "s.jsonl") -> DiagnosticReport:
    path = tmp_path / name
    path.write_bytes(data)
    return check(path)


def codes(result: DiagnosticReport) -> list[str]:
    return [each.code for each in result.findings]


def line(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def torn_line() -> bytes:
    return healthy().raw(b'{"type":"user","mess').raw(line(type="mode", mode="x")).data()


def unknown_type() -> bytes:
    return healthy().raw(line(type="surprise")).data()


def unknown_result() -> bytes:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Bash", {"command": "ls"})
    return builder.result(call, "a", structured={"stdout": "a", "brandNew": 1}).data()


def unanswered_call() -> bytes:
    builder = healthy()
    builder.call("Bash", {"command": "sleep"})
    return builder.data()


def orphan_result() -> bytes:
    return healthy().result("toolu_gone", "late").data()


def duplicate_call() -> bytes:
    builder = healthy()
    builder.call("Bash", {"command": "ls"}, id="toolu_1")
    return builder.data()


def duplicate_uuid() -> bytes:
    builder = healthy()
    return builder.raw(builder.lines()[-1]).data()


def missing_parent() -> bytes:
    return healthy().rewind("00000000-0000-0000-0000-000000000000").prompt("more").data()


def parent_cycle() -> bytes:
    builder = healthy()
    first = json.loads(builder.lines()[0])
    return builder.data().replace(b'"parentUuid":null', f'"parentUuid":"{first["uuid"]}"'.encode(), 1)


def missing_sidecar() -> bytes:
    builder = TranscriptBuilder(session_id="s").prompt("go")
    path = "/home/dev/.claude/projects/p/s/tool-results/gone.txt"
    return builder.result(builder.call("Bash", {"command": "seq"}), claude_results.spilled("1\n" * 20_000, path)).data()


def outside_path() -> bytes:
    builder = TranscriptBuilder(session_id="s").prompt("go")
    spilled = claude_results.spilled("1\n" * 20_000, "/etc/passwd")
    return builder.result(builder.call("Bash", {"command": "seq"}), spilled).data()


CASES = {
    "torn_line": (torn_line(), "error", "skips", False),
    "torn_last_line": (healthy().raw(b'{"type":"user","mess').data().removesuffix(b"\n"), "warning", "skips", True),
    "glued_records": (healthy().glue().raw(line(type="mode", mode="x")).data(), "error", "loses", False),
    "nul_bytes": (healthy().raw(b"\0" * 40).data(), "error", "skips", False),
    "invalid_utf8": (healthy().raw(b'{"type":"mode","mode":"\xff\xfe"}').data(), "error", "accepts", False),
    "byte_order_mark": (b"\xef\xbb\xbf" + healthy().data(), "info", "accepts", True),
    "control_characters": (healthy().raw(b'{"type":"mode","mode":"a\tb\x01"}').data(), "error", "loses", False),
    "not_an_object": (healthy().raw(b"[1, 2]").data(), "error", "skips", False),
    "odd_type": (healthy().raw(line(type="mode", timestamp=17)).data(), "warning", "unknown", True),
    "unknown_type": (unknown_type(), "info", "accepts", True),
    "unknown_field": (healthy().raw(line(type="mode", mode="x", brandNew=1)).data(), "info", "accepts", True),
    "unknown_result": (unknown_result(), "info", "accepts", True),
    "unanswered_call": (unanswered_call(), "error", "loses", False),
    "orphan_result": (orphan_result(), "warning", "accepts", True),
    "duplicate_call": (duplicate_call(), "info", "accepts", True),
    "duplicate_result": (healthy().result("toolu_1", claude_results.ran("again")).data(), "info", "accepts", True),
    "duplicate_uuid": (duplicate_uuid(), "warning", "accepts", True),
    "missing_parent": (missing_parent(), "warning", "accepts", True),
    "parent_cycle": (parent_cycle(), "error", "accepts", False),
    "missing_sidecar": (missing_sidecar(), "info", "accepts", True),
    "outside_path": (outside_path(), "warning", "unknown", True),
}


@pytest.mark.parametrize("code", CASES)
def test_each_kind_of_damage_has_its_finding(code: str, tmp_path: Path) -> None:
    data, severity, client, is_healthy = CASES[code]
    report = examined(data, tmp_path)

    assert [(finding.code, finding.severity) for finding in report.findings] == [(code, severity)]
    assert (report.acceptance, report.is_healthy) == (client, is_healthy)


def test_sound_file_has_no_findings(tmp_path: Path) -> None:
    result = examined(healthy().data(), tmp_path)

    assert (codes(result), result.is_healthy, result.acceptance) == ([], True, "accepts")
    assert result.entries == {"user": 2, "assistant": 2}
    assert (result.calls, result.counts.lines, result.roundtrip_equal) == (1, 4, None)


def test_findings_name_their_line(tmp_path: Path) -> None:
    result = examined(torn_line(), tmp_path)

    (place,) = (each.place for each in result.findings)
    assert place is not None
    assert (Path(place.file).name, place.line, place.length) == ("s.jsonl", 5, 20)


def test_drift_of_one_kind_is_one_finding_with_a_count(tmp_path: Path) -> None:
    builder = healthy()
    for _ in range(3):
        builder.raw(line(type="surprise"))

    (result,) = examined(builder.data(), tmp_path).findings

    assert (result.code, result.count) == ("unknown_type", 3)
    assert result.place is not None
    assert result.place.line == 5


def test_spilled_output_outside_the_session_is_never_opened(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    os.mkfifo(trap)  # opening it for reading blocks
    builder = TranscriptBuilder(session_id="s").prompt("go")
    call = builder.call("Bash", {"command": "seq"})
    builder.result(call, claude_results.spilled("1\n" * 20_000, str(trap)))

    result = examined(builder.data(), tmp_path)

    assert codes(result) == ["outside_path"]
    assert str(trap) in result.findings[0].explanation


@pytest.mark.parametrize(
    "named",
    ["{folder}/../../etc/passwd", "tool-results/../../secret", "/home/x/tool-results/../secret.txt", "relative.txt"],
)
def test_paths_that_leave_the_session_folder_are_outside(named: str, tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="s").prompt("go")
    path = named.format(folder=tmp_path / "s" / "tool-results")
    builder.result(builder.call("Bash", {"command": "seq"}), claude_results.spilled("1\n" * 20_000, path))

    assert codes(examined(builder.data(), tmp_path)) == ["outside_path"]


def test_spilled_output_in_the_session_folder_has_no_finding(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="s").prompt("go")
    path = builder.sidecar("tool-results/x.txt", b"1\n" * 20_000)
    builder.result(builder.call("Bash", {"command": "seq"}), claude_results.spilled("1\n" * 20_000, path))

    assert codes(check(builder.write(tmp_path / "s.jsonl"))) == []


def test_spilled_output_of_a_subagent_lies_in_the_session_folder(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="s").prompt("go")
    path = builder.sidecar("tool-results/x.txt", b"1\n" * 20_000)
    agent = builder.agent(builder.call("Agent", {"prompt": "p"})).prompt("p")
    agent.result(agent.call("Bash", {"command": "seq"}), claude_results.spilled("1\n" * 20_000, path).content)
    builder.write(tmp_path / "s.jsonl")
    (file,) = tmp_path.rglob("agent-*.jsonl")

    assert codes(check(file)) == []


@pytest.mark.parametrize("name", ["a" * 300, "a\\u0000b", "\\ud83d", ".."])
def test_spilled_output_may_have_any_name(name: str, tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="s").prompt("go")
    builder.sidecar("tool-results/x.txt", b"")
    spilled = claude_results.spilled("1\n" * 20_000, "/p/s/tool-results/NAME")
    builder.result(builder.call("Bash", {"command": "seq"}), spilled)
    path = builder.write(tmp_path / "s.jsonl")
    path.write_bytes(path.read_bytes().replace(b"NAME", name.encode()))

    assert codes(check(path)) in (["missing_sidecar"], ["outside_path"])


def test_every_record_encodes_to_equal_json(tmp_path: Path) -> None:
    builder = healthy().raw(line(type="surprise", n=1.0, deep={"a": [1, {"b": None}]}))
    builder.raw(b'{"type":"mode","n":12345678901234567890123,"f":1e400,"half":"\\ud83d"}')
    path = builder.raw(b'{"torn').write(tmp_path / "s.jsonl")

    result = check(path, roundtrip=True)

    assert result.counts.lines == 7
    assert result.roundtrip_equal == 6
    assert "roundtrip" not in codes(result)


def test_deferred_call_is_not_unanswered(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Bash", {"command": "ls"})
    builder.raw(line(type="result", subtype="success", deferred_tool_use={"id": call}))

    assert "unanswered_call" not in codes(examined(builder.data(), tmp_path))


def test_patch_that_does_not_fit_its_file_is_a_finding(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    fits = builder.call("Edit", {"file_path": "/a", "old_string": "one", "new_string": "two"})
    builder.result(fits, "ok", structured=change("one\n", "-one", "+two"))
    odd = builder.call("Edit", {"file_path": "/a", "old_string": "one", "new_string": "two"})
    builder.result(odd, "ok", structured=change("other\n", "-one", "+two"))
    path = builder.write(tmp_path / "s.jsonl")

    items = [finding for finding in check(path).findings if finding.code == "patch_mismatch"]

    assert [(finding.severity, finding.count) for finding in items] == [("info", 1)]
    assert "expected 'one', found 'other'" in items[0].explanation


def change(original: str, *lines: str) -> dict[str, object]:
    hunk = {"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 1, "lines": list(lines)}
    return {
        "filePath": "/a", "oldString": "one", "newString": "two", "originalFile": original,
        "structuredPatch": [hunk], "userModified": False, "replaceAll": False,
    }  # fmt: skip


def test_attachment_of_a_call_is_an_event_of_it(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    name = builder.call("Read", {"file_path": "/a"})
    builder.result(name, "1\ta")
    note = {"type": "read_truncation_notice", "toolUseID": name, "banner": "PARTIAL view"}
    builder.raw(json.dumps({"type": "attachment", "attachment": note, "uuid": "x"}).encode())
    path = builder.write(tmp_path / "s.jsonl")

    (span,) = read(path).spans

    assert [(event.kind, event.text) for event in span.events if isinstance(event, Note)] == [
        ("read_truncation_notice", "PARTIAL view")
    ]


@requirement("doctor.on-resume")
def test_advice_about_resume_is_given_for_known_findings_only() -> None:
    assert set(RESUME_BEHAVIOR) <= set(FINDING_CODES)
    assert {"torn_line", "unanswered_call", "orphan_result", "missing_parent"} <= set(RESUME_BEHAVIOR)
