"""Outputs over the size limit."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.requirement import requirement
from tests.runtime.calls import call
from toolspan.errors import ToolError
from toolspan.runtime.context import Workspace
from toolspan.runtime.output_limits import (
    ERROR_LIMIT,
    PREVIEW_CHARS,
    format_size,
    spill_text,
    text_preview,
    truncate_middle,
)
from toolspan.runtime.process import ProcessSupervisor
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import Output, tool
from toolspan.types.ids import CallId


@requirement("limits.spill")
@pytest.mark.anyio
@pytest.mark.parametrize(("many", "spilled"), [(100, False), (101, True)])
async def test_output_over_the_limit_is_saved_to_a_file(many: int, spilled: bool, tmp_path: Path) -> None:
    @tool(output_limit=100)
    async def talk() -> str:
        return "ä" * many

    workspace = Workspace(project=tmp_path, supervisor=ProcessSupervisor(), folder=tmp_path / "own")
    with anyio.fail_after(5):
        (result,) = await Runner([talk], workspace=workspace).run([call("toolu_1", "talk")])

    path = tmp_path / "own" / "tool-results" / "toolu_1.txt"
    assert path.exists() is spilled
    if spilled:
        assert path.read_text(encoding="utf-8") == "ä" * many
        assert str(path) in result.text
        assert result.persisted_path == str(path)
        assert f"Preview (first 100 characters):\n{'ä' * 100}\n" in result.text
        assert "ä" * 101 not in result.text  # no more than it may give inline
    else:
        assert result.text == "ä" * many


@requirement("limits.spill")
@pytest.mark.anyio
async def test_image_is_kept_if_the_text_beside_it_is_saved_to_a_file(tmp_path: Path) -> None:
    picture: dict[str, object] = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
    }

    @tool(output_limit=10)
    async def draw() -> Output:
        return Output(content=[{"type": "text", "text": "x" * 11}, picture])

    workspace = Workspace(project=tmp_path, supervisor=ProcessSupervisor(), folder=tmp_path / "own")
    with anyio.fail_after(5):
        (result,) = await Runner([draw], workspace=workspace).run([call("toolu_1", "draw")])

    content = result.content
    assert isinstance(content, list)
    assert [block["type"] for block in content] == ["text", "image"]
    assert str(tmp_path / "own" / "tool-results" / "toolu_1.txt") in content[0]["text"]


@requirement("limits.spill")
def test_unwritable_file_costs_the_middle_and_not_the_result(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    text, path = spill_text("x" * 30_000, tmp_path / "file" / "in it", CallId("a"))

    assert path is None
    assert len(text) < ERROR_LIMIT + 300
    assert "characters truncated" in text
    assert "Not kept whole" in text


@requirement("limits.spill")
def test_id_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    _, path = spill_text("x", tmp_path, CallId("../../" + "a" * 300))

    assert path is not None
    assert path.parent == tmp_path


@requirement("limits.errors")
@pytest.mark.anyio
async def test_long_error_is_cut_in_its_middle() -> None:
    @tool
    async def fails() -> str:
        raise ToolError("a" * 20_000 + "b" * 20_000)

    with anyio.fail_after(5):
        (result,) = await Runner([fails]).run([call("a", "fails")])

    assert (result.text[0], result.text[-1]) == ("a", "b")
    assert len(result.text) < ERROR_LIMIT + 100


@requirement("limits.errors")
@given(st.text(max_size=60), st.integers(0, 40))
def test_short_text_is_not_cut_and_long_text_keeps_both_ends(text: str, limit: int) -> None:
    cut = truncate_middle(text, limit)

    if len(text) <= limit:
        assert cut == text
    else:
        half = limit // 2
        assert cut.startswith(text[:half])
        assert half == 0 or cut.endswith(text[-half:])
        assert f"[{len(text) - 2 * half} characters truncated]" in cut


@requirement("limits.preview")
@given(st.text(st.sampled_from("x\n"), max_size=3 * PREVIEW_CHARS))
def test_preview_is_the_beginning(text: str) -> None:
    displayed = text_preview(text)

    assert text.startswith(displayed)
    assert len(displayed) <= PREVIEW_CHARS


@requirement("limits.preview")
@pytest.mark.parametrize(("size", "words"), [(1024, "1KB"), (108_851, "106.3KB"), (3 * 1024 * 1024, "3MB")])
def test_sizes_are_formatted(size: int, words: str) -> None:
    assert format_size(size) == words
