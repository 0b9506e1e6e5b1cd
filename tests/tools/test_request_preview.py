"""The preview of a call, as programs that ask a person get it."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.runtime.permissions.requests import make_request
from toolspan import Deny, Permissions, Session
from toolspan.runtime import PermissionRequest
from toolspan.session import SingleCallRunner
from toolspan.tools import RequestPreview, preview_request
from toolspan.types.decision import Ask
from toolspan.types.visible_text import split_invisible, wrap_text

INVISIBLE = (
    "\u034f\u00ad\u061c\u115f\u180e\u200b\u2028\u2029\u202e\u2066\u2800\u3000\u3164\ufe0f\ufeff\U000e0041\U000e0101"
)


@given(st.text(st.characters() | st.sampled_from(INVISIBLE + "\t\n\r\x1b")))
@example(INVISIBLE)
def test_no_invisible_character_is_left_in_the_text(text: str) -> None:
    shown = preview_request(make_request("Bash", Path("/project"), command=text)).text

    categories = {unicodedata.category(character) for character in shown if character not in "\n "}
    assert not categories & {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}
    assert not set(shown) & set(INVISIBLE)
    assert shown.count("\n") == text.count("\n")


@given(st.text(st.characters() | st.sampled_from(INVISIBLE)), st.integers(2, 20))
def test_escapes_keep_their_places_when_a_line_is_wrapped(text: str, width: int) -> None:
    line = text.replace("\n", "")
    rows = wrap_text(line, width)
    pieces = split_invisible(line)

    assert "".join("".join(row.pieces[1::2]) for row in rows) == "".join(pieces[1::2])
    assert "".join("".join(row.pieces[::2]) for row in rows) == "".join(pieces[::2])


def test_lines_of_a_value_do_not_look_like_other_fields() -> None:
    tool_input = {"url": "https://example.org", "prompt": "one\nurl: https://other.example", "n\nurl": {"a": [1]}}

    text = preview_request(make_request("mcp__web__get", Path("/project"), **tool_input)).text

    assert text.split("\n") == [
        "url: https://example.org", "prompt:", "  one", "  url: https://other.example",
        "n<U+000A>url:", "  {", '   "a": [', "    1", "   ]", "  }",
    ]  # fmt: skip


def test_lines_inside_of_a_diff_are_not_taken_for_its_header() -> None:
    request = make_request("Write", Path("/nowhere"), file_path="a.sql", content="-- x\n++ y\n@@ z\n")

    rows = wrap_text(preview_request(request).raw_text, 80, is_diff=True)

    assert [(row.kind, "".join(row.pieces)) for row in rows if row.kind != "header"] == [
        ("hunk", "@@ -0,0 +1,3 @@"), ("added", "+-- x"), ("added", "+++ y"), ("added", "+@@ z")
    ]  # fmt: skip


@pytest.mark.anyio
async def test_approver_of_a_program_gets_the_resolved_file_and_the_whole_visible_text(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    for folder in (project, outside):
        folder.mkdir()
    (project / "link").symlink_to(outside)
    previews: list[RequestPreview] = []

    def approve(request: PermissionRequest, _ask: Ask) -> Deny:
        previews.append(preview_request(request))
        return Deny("no")

    content = "x\u202ey\n" * 500
    async with Session(cwd=project, permissions=Permissions(approver=approve), transcript=None) as session:
        await SingleCallRunner(session).run_call("Write", {"file_path": "link/new.txt", "content": content})

    (preview,) = previews
    (file,) = preview.files
    assert (file.path, file.link) == (str(outside / "new.txt"), str(project / "link/new.txt"))
    assert file.is_outside
    assert file.is_new
    assert preview.is_diff
    assert preview.text.count("+x<U+202E>y") == 500
