"""The archive from Python: questions, filters, sessions and calls."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import toolspan
from toolspan import Archive, Filter
from toolspan.archive import Reporter
from toolspan.errors import InvalidFilter, NotFound, ToolspanError
from toolspan.reading import sample
from toolspan.testing import TranscriptBuilder, claude_results

SESSION = "c2a9e6b4-71d3-4f0a-8e1c-93b5d2f4a610"


@pytest.fixture
def archive() -> Archive:
    return Archive(sample.archive())


def test_errors_are_groups_that_can_be_iterated_filtered_and_limited(archive: Archive) -> None:
    groups = archive.errors(tool="Bash", since="2026-11")

    assert len(groups) > 2
    assert all(group.count and group.cause for group in groups)
    assert {group.tool for group in groups} == {"Bash"}
    assert [group.id for group in archive.errors(tool="Bash", limit=2)] == [group.id for group in groups[:2]]
    assert archive.errors(tool="Bash", limit=2).total == len(groups)


def test_rows_become_dictionaries_for_a_data_frame(archive: Archive) -> None:
    rows = archive.usage(by="model").to_dicts()

    assert {"model", "requests", "input_tokens", "cost_usd"} <= set(rows[0])
    assert "period" not in rows[0]
    assert repr(archive.calls()) == "<98 rows: TimedCall, TimedCall, TimedCall, …>"


def test_a_session_is_found_by_prefix_file_or_as_the_last_one(archive: Archive) -> None:
    by_prefix = archive.session(SESSION[:4])
    (path,) = sample.archive().rglob(f"{SESSION}.jsonl")

    assert by_prefix.id == archive.session(str(path)).id == SESSION
    assert archive.session().id == archive.sessions(sort="-ended", limit=1)[0].id
    assert [row.path for row in by_prefix.files()] == [row.path for row in archive.files(session=SESSION)]
    with pytest.raises(NotFound, match="ffff"):
        archive.session("ffff")


def test_a_call_explains_its_permission_and_its_context(archive: Archive) -> None:
    denied = archive.calls(state="denied")[0]

    call = archive.call(denied.id)

    assert call.row == denied
    assert call.why() == archive.why(denied.id)
    assert call.why().allowed is False
    assert archive.session(denied.session or "").call(denied.id).span.state == "denied"
    with pytest.raises(NotFound):
        archive.call(SESSION)


def test_a_filter_is_parsed_from_words_once_for_all_questions(archive: Archive) -> None:
    words = Filter.parse(tool="Bash", state=["failed", "timed_out"], since="2026-11-01", until="2026-11-08")

    assert words.tool == ("Bash",)
    assert words.until is not None
    assert words.since is not None
    assert (words.until - words.since).days == 8
    assert (
        archive.calls(words).to_dicts()
        == archive.calls(tool="Bash", state=("failed", "timed_out"), since="2026-11-01", until="2026-11-08").to_dicts()
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"since": "sometime"}, "is not a time"),
        ({"state": "failled"}, "did you mean failed"),
        ({"colour": "red"}, "no filter 'colour'"),
        ({"client": "emacs"}, "is unknown"),
        ({"since": "2026-11-02", "until": "2026-11-01"}, "the period is empty"),
    ],
)
def test_wrong_words_are_refused_with_a_sentence(archive: Archive, words: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidFilter, match=message):
        archive.calls(**words)
    with pytest.raises(ValueError, match=message):
        Filter.parse(**words)


def test_calls_are_filtered_by_kind_model_version_and_topic(archive: Archive) -> None:
    rows = archive.calls()
    shell = archive.calls(kind="shell")

    assert {row.kind for row in shell} == {"shell"}
    assert sum(len(archive.calls(kind=kind)) for kind in {row.kind for row in rows}) == len(rows)
    assert {row.id for row in archive.sessions(model="opus-4-8")} == {
        row.id for row in archive.sessions() if any("opus-4-8" in model for model in row.models)
    }
    assert {row.session for row in archive.calls(client_version="2.1.197")} == {SESSION}
    assert [row.id for row in archive.sessions(about="dark THEME")] == [SESSION]
    assert not archive.sessions(about="dark horse")


def test_a_day_and_a_month_are_included_in_the_period_that_they_end(tmp_path: Path) -> None:
    builder = TranscriptBuilder(start=datetime(2026, 3, 31, 12, tzinfo=UTC)).prompt("go")
    builder.result(builder.call("Bash", {"command": "ls"}), claude_results.ran("x"))
    builder.write(tmp_path / "s.jsonl")
    archive = Archive(tmp_path)

    assert all(len(archive.calls(until=until)) == 1 for until in ("2026-03-31", "2026-03", "2026-04-02"))
    assert not archive.calls(until="2026-03-30")
    assert len(archive.calls(since="2026-03", until="2026-03")) == 1


def test_numbers_sort_descending_texts_ascending_and_a_minus_reverses(archive: Archive) -> None:
    calls = [row.calls for row in archive.sessions(sort="calls")]
    projects = [row.project for row in archive.sessions(sort="project")]

    assert calls == sorted(calls, reverse=True)
    assert [row.calls for row in archive.sessions(sort="-calls")] == sorted(calls)
    assert projects == sorted(projects)
    with pytest.raises(InvalidFilter, match="no column 'colour'; the columns are session, started"):
        archive.sessions(sort="colour")


def test_warnings_and_progress_reach_the_reporter(tmp_path: Path) -> None:
    for name in ("a", "b"):
        TranscriptBuilder(session_id=name).prompt("go").text("yes").write(tmp_path / f"{name}.jsonl")
    (tmp_path / "broken.jsonl.zst").write_bytes(b"not Zstandard")
    warnings: list[object] = []

    assert len(Archive(tmp_path, reporter=Reporter(warn=warnings.append)).sessions()) == 2
    assert ["broken.jsonl.zst" in str(warning) for warning in warnings] == [True]


def test_totals_of_all_questions_agree(archive: Archive) -> None:
    stats, sessions, usage = archive.stats(), archive.sessions(), archive.usage(by="session")
    days = archive.stats(by="day").days or ()
    calls = [row for row in archive.calls() if row.state != "orphan_result"]

    assert stats.calls == len(calls) == sum(row.calls for row in sessions) == sum(row.calls for row in days)
    assert stats.calls == sum(row.calls for row in stats.tools or ()) == archive.errors().calls == archive.time().calls
    assert stats.calls == sum(
        sum(row.state != "orphan_result" for row in archive.session(session.id).calls) for session in sessions
    )
    assert stats.unsuccessful == sum(row.unsuccessful for row in sessions)
    assert stats.tokens is not None
    assert stats.tokens.input_tokens == usage.sum.input_tokens == sum(row.input_tokens for row in usage)
    assert stats.tokens.output_tokens == usage.sum.output_tokens == archive.usage().sum.output_tokens


def test_a_missing_folder_is_an_error_and_an_empty_one_an_empty_answer(tmp_path: Path) -> None:
    with pytest.raises(ToolspanError, match="no-such-folder"):
        Archive(tmp_path / "no-such-folder").errors()

    assert not Archive(tmp_path).errors()
    assert not Archive(tmp_path).usage()


def test_the_archive_is_a_public_name() -> None:
    assert toolspan.Archive is Archive
    assert repr(Archive("a", "b")) == "Archive('a', 'b')"
    assert msgspec.structs.asdict(toolspan.Filter())["since"] is None


def test_sessions_sorted_by_cost_have_the_costs_of_usage(archive: Archive) -> None:
    sessions = archive.sessions(sort="cost", limit=3)

    assert {row.id: row.cost_usd for row in sessions} == {
        row.session: row.cost_usd for row in archive.usage(by="session", sort="cost_usd", limit=3)
    }
    assert [row.cost_usd for row in archive.sessions()] == [
        archive.session(row.id).usage.cost_usd for row in archive.sessions()
    ]


def test_a_search_in_prompts_leaves_out_other_messages(archive: Archive) -> None:
    messages = {match.voice for match in archive.search("the", within="message")}
    prompts = {match.voice for match in archive.search("the", within="prompts")}

    assert prompts == {"prompt"} < messages


def test_waits_for_permission_do_not_depend_on_the_limit() -> None:
    archive = Archive(sample.archive())
    rows = archive.calls()

    assert any(row.wait_ms for row in rows)
    assert list(archive.calls(limit=60)) == list(rows[-60:])


def test_calls_that_waited_for_permission_are_not_longer_than_they_ran() -> None:
    archive = Archive(sample.archive())
    rows = [row for row in archive.calls(sort="duration") if row.duration_ms is not None]
    ran = [(row.duration_ms or 0) - (row.wait_ms or 0) for row in rows]

    assert ran == sorted(ran, reverse=True)
    assert [row.duration_ms for row in rows] != sorted((row.duration_ms or 0 for row in rows), reverse=True)
    assert [row.id for row in archive.calls(sort="duration", limit=5)] == [row.id for row in rows[:5]]


def test_sessions_count_the_prompts_that_prompts_lists(tmp_path: Path) -> None:
    builder = TranscriptBuilder(version="1.0.120").prompt("Find the bug.")
    task = builder.call("Task", {"prompt": "Look for it.", "description": "bug", "subagent_type": "Explore"})
    builder.agent(task).prompt("Look for it.").text("It is in the parser.")  # in the same file, as old clients wrote it
    builder.text("It is in the parser.")
    builder.write(tmp_path / f"{builder.session_id}.jsonl")
    archive = Archive(tmp_path)

    assert [prompt.text for prompt in archive.prompts()] == ["Find the bug."]
    assert [row.prompts for row in archive.sessions()] == [1]
