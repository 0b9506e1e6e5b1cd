"""`--skeleton` removes all text of a session from every format."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.export.made import BOTH, claude, exported
from toolspan.export.anonymize import Anonymizer
from toolspan.export.session_export import SessionExport
from toolspan.formats.source import BytesSource
from toolspan.reading.transcript import read
from toolspan.types.state import STATES

ALPHABET = "qxzjkwvQXZJKWV"
"""Letters of which our own words make no runs of four."""
TEXTS = st.text(ALPHABET, min_size=4, max_size=40)


def leaked(text: str, output: str) -> list[str]:
    """The runs of four letters of a text that stand in an output."""
    runs = {text[at : at + 4] for at in range(len(text) - 3)}
    return [run for run in runs if run in output]


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(TEXTS)
def test_no_text_of_a_session_is_in_any_format(text: str) -> None:
    for make in BOTH:
        for form, output in exported(make(text), Anonymizer).items():
            assert leaked(text, output) == [], form


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(TEXTS)
def test_no_metadata_of_a_file_is_in_any_format(text: str) -> None:
    """Names, versions, models, times and kinds are free text in a crafted file."""
    envelope = {
        "sessionId": text, "uuid": f"1{text}", "version": text, "cwd": f"/{text}", "slug": text,
        "gitBranch": text, "timestamp": text, "requestId": text, "userType": text,
    }  # fmt: skip
    use = {"type": "tool_use", "id": f"t{text}", "name": text, "input": {"command": text, text: 1}}
    message = {"id": text, "model": text, "role": "assistant", "content": [use]}
    rows = {"type": "tool_result", "tool_use_id": f"t{text}", "content": text, "is_error": True}
    lines = [
        {"type": "assistant", "message": message, **envelope},
        {"type": "user", "message": {"role": "user", "content": [rows]}, **envelope},
        {"type": "system", "subtype": text, "content": text, **envelope},
        {"type": text, "content": text, **envelope},
    ]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)

    for form, output in exported([read(BytesSource(data, f"{text}.jsonl"))], Anonymizer).items():
        assert leaked(text, output) == [], form


def test_structure_states_times_and_sizes_stay() -> None:
    plain = list(SessionExport(claude("some words")).calls())
    bones = list(SessionExport(claude("some words"), redactor=Anonymizer()).calls())

    assert [(c.state, c.start, c.end, c.input_chars, c.result_chars) for c in bones] == [
        (c.state, c.start, c.end, c.input_chars, c.result_chars) for c in plain
    ]
    assert {call.state for call in bones} <= set(STATES)
    assert [call.tool for call in bones] == [
        "Bash", "Edit", "mcp-tool-1", "Bash", "Task", "Grep", "Read",
    ]  # fmt: skip
    assert bones[0].input == {"command": "<10 chars>", "description": "<10 chars>"}
    assert bones[0].result == "<10 chars>"
    assert bones[5].parent_call == bones[4].id == "call-5"


def test_unknown_parameter_names_become_numbers() -> None:
    served = list(SessionExport(claude("inner"), redactor=Anonymizer()).calls())[2]

    assert served.input == {"key-1": {"key-1": ["<5 chars>", "<number>", True, None]}}
