"""Codex patches: parsing, formatting, applying and reverting them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.diffs.diffs import format_patch
from toolspan.diffs import PatchError, problems
from toolspan.diffs.codex_patch import (
    AddFile,
    DeleteFile,
    EmbeddedPatch,
    EnvelopeError,
    FileSection,
    PatchChunk,
    UpdateFile,
    apply_update,
    count_changes,
    find_embedded_patches,
    parse_patch,
    revert_update,
)
from toolspan.diffs.make import make_hunks
from toolspan.diffs.unified import parse_hunks, unified

MIXED = """*** Begin Patch
*** Add File: docs/new.md
+# Title
+
+text
*** Update File: src/old.py
*** Move to: src/new.py
@@ class Shop:
@@     def open(self):
         self.lamp.on()
-        self.door.unlock()
+        self.door.open()
@@

-last
+end
*** End of File
*** Delete File: junk.txt
*** End Patch
"""

SHOP = """class Shop:
    def close(self):
        self.lamp.on()
        self.door.unlock()

    def open(self):
        self.lamp.on()
        self.door.unlock()

last
"""


def test_every_section_of_a_patch_is_parsed() -> None:
    opening = PatchChunk(
        contexts=("class Shop:", "    def open(self):"),
        lines=("         self.lamp.on()", "-        self.door.unlock()", "+        self.door.open()"),
    )
    ending = PatchChunk(lines=(" ", "-last", "+end"), at_end=True)
    assert parse_patch(MIXED) == (
        AddFile(path="docs/new.md", lines=("# Title", "", "text")),
        UpdateFile(path="src/old.py", move_to="src/new.py", chunks=(opening, ending)),
        DeleteFile(path="junk.txt"),
    )


def test_chunk_is_found_below_its_context_lines() -> None:
    section = parse_patch(MIXED)[1]
    assert isinstance(section, UpdateFile)
    after = apply_update(section, SHOP)
    head, _, tail = SHOP.rpartition("        self.door.unlock()")
    assert after == head + "        self.door.open()" + tail.replace("last", "end")
    assert revert_update(section, after) == SHOP
    assert [count_changes(item) for item in parse_patch(MIXED)] == [(3, 0), (2, 2), (0, 0)]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("hello", 1, "expected '*** Begin Patch'"),
        ("*** Begin Patch\n*** End Patch", 3, "no file section"),
        ("*** Begin Patch\n*** Delete File: a", 3, "expected '*** End Patch'"),
        ("*** Begin Patch\n[workspace]\n*** End Patch", 2, "found '[workspace]'"),
        ("*** Begin Patch\n*** Add File:\n+a\n*** End Patch", 2, "expected a path"),
        ("*** Begin Patch\n*** Update File: a\n*** End Patch", 2, "has no changes"),
        ("*** Begin Patch\n*** Update File: a\n@@\n*** End Patch", 4, "expected ' ', '-' or '+'"),
        ("*** Begin Patch\n*** Update File: a\n+x\nodd\n*** End Patch", 4, "expected '@@'"),
        ("*** Begin Patch\n*** Delete File: a\n*** End Patch\nmore", 4, "nothing after"),
    ],
)
def test_invalid_patch_is_reported_with_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(EnvelopeError) as caught:
        parse_patch(text)
    assert caught.value.line == line
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("before", "shown"), [("a  \nb\n", "a"), ("\ta\nb\n", "a"), ("“a” – b\nb\n", '"a" - b'), ("x\na\nb\n", "a")]
)
def test_spaces_and_typographic_characters_are_ignored(before: str, shown: str) -> None:
    section = UpdateFile(path="f", chunks=(PatchChunk(lines=(f"-{shown}", "+c")),))
    assert apply_update(section, before) == before.replace(before.split("\n")[-3], "c")


def test_line_ends_are_kept_and_a_last_newline_is_added() -> None:
    section = UpdateFile(path="f", chunks=(PatchChunk(lines=(" a", "-b", "+c", "+d")),))
    assert apply_update(section, "a\r\nb\r\ne\r\n") == "a\r\nc\r\nd\r\ne\r\n"
    assert apply_update(section, "a\nb\ne") == "a\nc\nd\ne\n"


def test_lines_without_context_are_appended() -> None:
    section = UpdateFile(path="f", chunks=(PatchChunk(lines=("+c",)),))
    assert apply_update(section, "a\nb\n") == "a\nb\nc\n"


def test_missing_chunk_is_an_error() -> None:
    section = UpdateFile(path="f", chunks=(PatchChunk(lines=(" b", "+c")), PatchChunk(lines=("-a",))))
    with pytest.raises(PatchError, match="Chunk 2 is not in the text"):
        apply_update(section, "a\nb\n")
    with pytest.raises(PatchError, match="'class X', which is not in the text"):
        apply_update(UpdateFile(path="f", chunks=(PatchChunk(lines=("+c",), contexts=("class X",)),)), "a\n")


@pytest.mark.parametrize(
    "command",
    [
        f"apply_patch <<'EOF'\n{MIXED}EOF",
        f"apply_patch <<EOF\n{MIXED}EOF\n",
        f'apply_patch << "PATCH"\n{MIXED}PATCH\nls -l',
        f"apply_patch <<'EOF'\n{MIXED}",
        ["apply_patch", MIXED],
        ["bash", "-lc", f"applypatch <<'EOF'\n{MIXED}EOF"],
        ["/bin/sh", "-c", f"true && apply_patch <<'EOF'\n{MIXED}EOF"],
    ],
)
def test_patches_are_found_inside_commands(command: str | list[str]) -> None:
    (result,) = find_embedded_patches(command)
    assert parse_patch(result.patch) == parse_patch(MIXED)
    assert result.folder is None
    assert not result.is_folder_unknown


def test_command_may_change_the_folder_first() -> None:
    patch = "*** Begin Patch\n*** Delete File: a\n*** End Patch"
    assert find_embedded_patches(f"cd sub && apply_patch <<'E'\n{patch}\nE") == [EmbeddedPatch(patch, "sub")]
    assert find_embedded_patches(f"cd 'a b'; apply_patch <<'E'\n{patch}\nE") == [EmbeddedPatch(patch, "a b")]
    assert find_embedded_patches(f"ls; cd $X; apply_patch <<'E'\n{patch}\nE")[0].is_folder_unknown
    assert find_embedded_patches(f"cat <<'E'\n{patch}\nE") == []
    assert find_embedded_patches(["apply_patch", f"-p0 <<'E'\n{patch}\nE"]) == []


plain = st.text(st.sampled_from("abc +-@*\t"), max_size=6)
names = st.text(st.sampled_from("abc/._"), min_size=1, max_size=8).map(str.strip).filter(bool)
chunks = st.builds(
    lambda lines, contexts, at_end: PatchChunk(lines=tuple(lines), contexts=tuple(contexts), at_end=at_end),
    st.lists(st.builds(str.__add__, st.sampled_from(" +-"), plain), min_size=1, max_size=5),
    st.lists(plain.map(str.rstrip).filter(bool), max_size=2),
    st.booleans(),
)
sections: st.SearchStrategy[FileSection] = st.one_of(
    st.builds(lambda path, lines: AddFile(path=path, lines=tuple(lines)), names, st.lists(plain)),
    st.builds(DeleteFile, path=names),
    st.builds(
        lambda path, parts, to: UpdateFile(path=path, chunks=tuple(parts), move_to=to),
        names,
        st.lists(chunks, min_size=1, max_size=3),
        st.none() | names,
    ),
)


@given(st.lists(sections, min_size=1, max_size=4).map(tuple))
def test_formatted_patch_parses_to_the_same_sections(patch: tuple[FileSection, ...]) -> None:
    assert parse_patch(format_patch(patch)) == patch


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for candidate in (text, f"*** Begin Patch\n{text}\n*** End Patch"):
        try:
            parse_patch(candidate)
        except EnvelopeError as error:
            assert error.line >= 1


# Lines are numbered, so that each occurs only once.
numbered = st.lists(st.integers(0, 40), unique=True, max_size=20).map(
    lambda found: "".join(f"line {n}\n" for n in found)
)


@given(numbered, numbered)
def test_generated_patch_applies_and_reverts(old: str, new: str) -> None:
    hunks = [hunk for hunk in make_hunks(old, new) if hunk.old_lines]
    if len(hunks) != len(make_hunks(old, new)):
        return  # into an empty file: a chunk without old lines has no position
    section = UpdateFile(path="f", chunks=tuple(PatchChunk(lines=hunk.lines) for hunk in hunks))
    (read,) = parse_patch(format_patch([section])) if hunks else (section,)
    assert isinstance(read, UpdateFile)
    assert apply_update(read, old) == new
    if all(hunk.new_lines for hunk in hunks):
        assert revert_update(read, new) == old


@given(numbered, numbered)
def test_hunks_are_parsed_from_the_text_of_a_diff(old: str, new: str) -> None:
    hunks = tuple(make_hunks(old, new))
    result = parse_hunks(unified(hunks, "f"))
    assert problems(result) == ()
    assert unified(result, "f") == unified(hunks, "f")


def test_incomplete_diff_is_an_error() -> None:
    with pytest.raises(PatchError, match="incomplete"):
        parse_hunks("@@ -1,2 +1,2 @@\n a\n")
    assert parse_hunks("no diff at all") == ()
