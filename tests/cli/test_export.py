"""`toolspan export` and `toolspan show --html`."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import resource
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import Result

import toolspan
from tests.cli.command import home_at, saved
from tests.cli.command import run as typed
from toolspan.export import export as export_module
from toolspan.testing import TranscriptBuilder, claude_results

ARCHIVE = str(toolspan.sample.archive())


def run(*arguments: str | Path, root: Path | None = None) -> Result:
    return typed(*arguments, code=None, env=home_at(root))


def exported(*arguments: str | Path) -> str:
    return typed("export", *arguments, env=home_at(None)).stdout


def test_export_has_the_calls_that_calls_lists() -> None:
    listed = run("calls", ARCHIVE, "--json").stdout.splitlines()
    output = exported(ARCHIVE).splitlines()

    expected = sorted(json.loads(line)["id"] for line in listed)
    assert sorted(json.loads(line)["id"] for line in output) == expected


def test_forked_call_is_exported_once(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("Look")
    builder.result(builder.call("Bash", {"command": "ls"}), claude_results.ran("a"), after_ms=9)
    saved(builder, tmp_path)
    saved(builder.fork("11111111-2222-3333-4444-555555555555"), tmp_path)

    assert len(exported(tmp_path).splitlines()) == 1


def test_filters_select_calls_and_drop_messages() -> None:
    rows = [json.loads(line) for line in exported(ARCHIVE, "--tool", "grep").splitlines()]
    read = exported(ARCHIVE, "--format", "markdown", "--state", "timed_out")

    assert {row["tool"] for row in rows} == {"Grep"}
    assert read.count("#### ") == len(json_rows("--state", "timed_out"))
    assert "**User**" not in read


def json_rows(*arguments: str) -> list[str]:
    return exported(ARCHIVE, *arguments).splitlines()


@pytest.mark.parametrize("form", ["json", "csv", "markdown", "perfetto", "otlp", "atif"])
def test_every_format_can_be_written_to_a_file(form: str, tmp_path: Path) -> None:
    path = tmp_path / "out"

    assert exported(ARCHIVE, "--format", form, "-o", path) == ""
    assert path.read_bytes() == run("export", ARCHIVE, "--format", form).stdout_bytes


def test_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old", encoding="utf-8")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, hard))  # writing fails as on a full disk
    try:
        result = run("export", ARCHIVE, "-o", path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert isinstance(result.exception, OSError)
    assert result.exception.filename == str(path)
    assert [(file, file.read_text(encoding="utf-8")) for file in tmp_path.iterdir()] == [(path, "old")]


def test_page_is_of_the_newest_session_that_the_filter_accepts(tmp_path: Path) -> None:
    for number, (project, day) in enumerate([("/home/dev/a", 1), ("/home/dev/b", 2)]):
        builder = TranscriptBuilder(session_id=f"{number}" * 8, cwd=project, start=datetime(2026, 1, day, tzinfo=UTC))
        builder.prompt(f"Look at {project}")
        builder.result(builder.call("Bash", {"command": "ls"}), claude_results.ran("x"))
        saved(builder, tmp_path, project)

    for choice in (["--project", "/home/dev/a"], ["--until", "2026-01-01T12:00Z"]):
        page = typed("export", "--format", "html", *choice, env=home_at(tmp_path)).stdout
        assert "Look at /home/dev/a" in page


def test_empty_export_is_reported(tmp_path: Path) -> None:
    result = run("export", ARCHIVE, "--tool", "nobody")
    lost = run("export", ARCHIVE, "-o", tmp_path / "no" / "folder")

    assert (result.exit_code, result.stderr) == (2, "toolspan: no tool 'nobody' among 16 tools: Agent, Bash, Edit, …\n")
    assert (lost.exit_code, lost.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize("form", ["json", "csv", "markdown", "perfetto", "otlp", "atif"])
def test_redacted_export_contains_no_names(form: str) -> None:
    text = exported(ARCHIVE, "--format", form, "--redact")

    assert "mira" in exported(ARCHIVE, "--format", form)
    assert "mira" not in text
    assert "/home/[user-" in text.replace("\\[", "[")


def test_redaction_gives_the_same_text_and_report_with_one_or_two_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n, user in enumerate(("zora", "quill", "zora")):
        builder = TranscriptBuilder(session_id=f"s{n}").prompt(f"Ask quill or {user}")
        for m in range(9):
            call = builder.call("Bash", {"command": f"cat /home/{user}/{m}.env", "description": "mail ann@example.org"})
            text = f"quill and zora wrote DB_PASSWORD=Zq7{m}x{n}Lm0p\nAuthor: Tessa Okoye <t{m}@example.org>\n"
            builder.result(call, claude_results.ran(text), after_ms=9)
        saved(builder, tmp_path)
    (tmp_path / "projects" / "-broken").mkdir()
    (tmp_path / "projects" / "-broken" / "b.jsonl.zst").write_bytes(b"no frame")

    def redacted(cores: int, serial_calls: int) -> tuple[str, str, str]:
        monkeypatch.setattr(os, "cpu_count", lambda: cores)
        monkeypatch.setattr(export_module, "_SERIAL_CALLS", serial_calls)
        result = run("export", tmp_path, "--redact", "--report")
        return result.stdout, result.stderr, run("export", tmp_path, "--redact", "--preview").stdout

    alone = redacted(1, 1 << 40)

    assert "[secret-27]" in alone[0]
    assert "zora" not in alone[0]
    assert redacted(1, 0) == alone
    assert redacted(2, 0) == alone


@pytest.mark.parametrize("depth", [300, 600, 900])
@pytest.mark.parametrize("start, end", ["[]", ('{"k":', "}")])
def test_deeply_nested_input_is_redacted_the_same_with_one_or_two_processes(
    start: str, end: str, depth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = TranscriptBuilder().prompt("go")
    for value in ("before", "nested", "after"):
        builder.result(builder.call("mcp__a__b", {"value": value}), claude_results.ran("x"), after_ms=9)
    path = saved(builder, tmp_path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"nested"', start * depth + '"ann@example.org"' + end * depth), encoding="utf-8")

    def redacted(cores: int) -> list[str]:
        monkeypatch.setattr(os, "cpu_count", lambda: cores)
        monkeypatch.setattr(export_module, "_SERIAL_CALLS", 0)
        return exported(tmp_path, "--redact").splitlines()

    alone = redacted(1)

    assert len(alone) == 3
    assert redacted(2) == alone
    assert "ann@" not in alone[1]


def test_preview_of_a_page_has_the_replacements_of_the_page() -> None:
    page = exported(ARCHIVE, "3c5a7e91", "--format", "html", "--redact")
    preview = exported(ARCHIVE, "3c5a7e91", "--format", "html", "--redact", "--preview")

    placeholders = {json.loads(line)["placeholder"] for line in preview.splitlines()}
    assert placeholders
    assert all(placeholder in page for placeholder in placeholders)


def test_skeleton_contains_no_targets() -> None:
    table = list(csv.DictReader(io.StringIO(exported(ARCHIVE, "--format", "csv", "--skeleton"))))

    assert {row["tool"] for row in table} >= {"Bash", "Read", "Edit"}
    assert all(row["target"].startswith("<") or not row["target"] for row in table)
    assert all(row["file"].startswith("file-") for row in table)


def test_show_writes_a_full_redacted_or_anonymized_page(tmp_path: Path) -> None:
    path = tmp_path / "page.html"

    result = run("show", ARCHIVE, "3c5a7e91", "--html", "-o", path)
    page = path.read_text(encoding="utf-8")
    redacted = run("show", ARCHIVE, "3c5a7e91", "--html", "--redact").stdout
    bare = run("show", ARCHIVE, "3c5a7e91", "--html", "--skeleton").stdout

    assert (result.exit_code, result.stdout) == (0, "")
    assert page.startswith("<!doctype html>")
    assert "Jumping gauge levels" in page
    assert '"role":"Explore"' in page
    assert "mira" in page
    assert "mira" not in redacted
    assert "gauge" in redacted
    assert "gauge" not in bare


def test_export_writes_the_page_of_show_and_opens_it(tmp_path: Path) -> None:
    opened, page = tmp_path / "opened", tmp_path / "page.html"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >> "{opened}"\n', encoding="utf-8")
    browser.chmod(0o755)
    env = {**home_at(None), "BROWSER": str(browser), "TMPDIR": str(tmp_path)}

    typed("export", ARCHIVE, "3c5a7e91", "--format", "html", "-o", page, "--open", env=env)
    output = typed("show", ARCHIVE, "3c5a7e91", "--html", env=env).stdout
    typed("show", ARCHIVE, "3c5a7e91", "--html", "--open", env=env)
    first, second = opened.read_text(encoding="utf-8").split()

    assert page.read_text(encoding="utf-8") == output
    assert first == page.as_uri()
    assert Path(second.removeprefix("file://")).read_text(encoding="utf-8") == output


def test_page_of_several_sessions_is_refused() -> None:
    result = run("export", ARCHIVE, "--format", "html")

    assert (result.exit_code, "sessions in this folder" in result.stderr) == (2, True)
    assert run("export", ARCHIVE, "--format", "html", "--last").stdout.startswith("<!doctype html>")
    assert run("export", ARCHIVE, "--open").exit_code == 2
    assert '"tool":"Bash"' not in run("export", ARCHIVE, "3c5a7e91", "--format", "html", "--tool", "grep").stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--redact"], "need --html"),
        (["-o", "x"], "need --html"),
        (["toolu_0145IkOqkruzzczKVV24MgDI", "--html"], "not one call"),
    ],
)
def test_impossible_page_is_refused_in_one_line(arguments: list[str], text: str) -> None:
    result = run("show", ARCHIVE, "--last", *arguments)

    assert result.exit_code == 2
    assert text in result.stderr


def test_csv_has_the_whole_command(tmp_path: Path) -> None:
    command = " ".join(f"word{n}" for n in range(100))
    builder = TranscriptBuilder().prompt("run it")
    builder.result(builder.call("Bash", {"command": command}), claude_results.ran("ok"))
    path = builder.write(tmp_path / "a.jsonl")

    output = typed("export", "--format", "csv", "-o", tmp_path / "out.csv", path).output

    (row,) = csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text(encoding="utf-8")))
    assert row["target"] == command
    assert re.fullmatch(rf"{tmp_path}/out.csv: \d.\d kB\n", output)
