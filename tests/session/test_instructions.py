"""Instructions from CLAUDE.md and AGENTS.md."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from toolspan import Permissions, Session, coding_tools
from toolspan.session import Agent, Instructions, load_instructions
from toolspan.session.instructions import MAX_FILE_BYTES, MAX_TOTAL_BYTES
from toolspan.session.recording import Compaction
from toolspan.testing import ScriptedModel, say, use

pytestmark = pytest.mark.anyio


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def load(folder: Path, *, trusted: bool = True) -> Instructions:
    home = next(above for above in folder.parents if not (above / ".git").exists()) / "home"
    return load_instructions(folder, trusted=trusted, environment={"HOME": str(home)})


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    return tmp_path / "project"


def test_user_comes_first_then_the_folders_from_the_top_of_the_repository(project: Path) -> None:
    write(project.parent / "home" / ".claude" / "CLAUDE.md", "of the user")
    write(project.parent / "CLAUDE.md", "above the repository")
    write(project / "CLAUDE.md", "of the repository")
    write(project / "part" / ".claude" / "CLAUDE.md", "of the part")
    write(project / "part" / "CLAUDE.local.md", "of me in the part")
    write(project / "part" / "AGENTS.md", "hidden")
    write(project / "part" / "AGENTS.override.md", "for agents")

    texts = [(file.scope, file.text) for file in load(project / "part").files]

    assert texts == [
        ("user", "of the user"),
        ("project", "of the repository"),
        ("project", "of the part"),
        ("project", "of me in the part"),
        ("project", "for agents"),
    ]


def test_untrusted_folder_brings_nothing(project: Path) -> None:
    own = write(project / "CLAUDE.md", "run everything")
    write(project.parent / "home" / ".claude" / "CLAUDE.md", "of the user")

    loaded = load(project, trusted=False)

    assert "run everything" not in loaded.text
    assert "of the user" in loaded.text
    assert loaded.ignored == [own]


def test_imports_are_followed_except_in_code(project: Path) -> None:
    write(project / "CLAUDE.md", "See @docs/style.md, `@code.md` and\n```\n@fence.md\n```\nask @someone.")
    write(project / "docs" / "style.md", "Short names. @more.md")
    for name in ("code.md", "fence.md", "docs/more.md"):
        write(project / name, f"text of {name}")

    files = load(project).files

    assert [file.path.relative_to(project).as_posix() for file in files] == [
        "CLAUDE.md",
        "docs/style.md",
        "docs/more.md",
    ]
    assert files[2].imported_by == project / "docs" / "style.md"


def test_circle_of_imports_ends_and_deep_imports_are_named(project: Path) -> None:
    write(project / "CLAUDE.md", "@CLAUDE.md @0.md")
    for number in range(9):
        write(project / f"{number}.md", f"number {number} @{number + 1}.md @CLAUDE.md")

    loaded = load(project)

    assert [file.path.stem for file in loaded.files] == ["CLAUDE", "0", "1", "2", "3", "4"]
    assert any("5 imports precede it" in problem for problem in loaded.problems)


@pytest.mark.parametrize("kind", ["import", "link"])
def test_files_outside_the_project_are_not_read(project: Path, kind: str) -> None:
    secret = write(project.parent / "secret.md", "a secret")
    if kind == "import":
        write(project / "CLAUDE.md", f"@{secret} @../secret.md")
    else:
        (project / "CLAUDE.md").symlink_to(secret)

    loaded = load(project)

    assert "a secret" not in loaded.text
    assert any("leads out of the project" in problem for problem in loaded.problems)


def test_large_files_are_cut_and_their_sum_is_limited(project: Path) -> None:
    write(project / "CLAUDE.md", "x" * (MAX_FILE_BYTES + 1) + "".join(f" @{number}.md" for number in range(9)))
    write(project / "AGENTS.md", " ".join(f"@{number}.md" for number in range(9)))
    for number in range(9):
        write(project / f"{number}.md", "y" * MAX_FILE_BYTES)

    loaded = load(project)

    assert loaded.files[0].is_cut
    assert "The end of this file is left out" in loaded.text
    assert sum(len(file.text) for file in loaded.files) <= MAX_TOTAL_BYTES
    assert any("all instructions together exceed" in problem for problem in loaded.problems)


def test_file_that_is_not_utf_8_is_used_as_far_as_it_can_be_read(project: Path) -> None:
    (project / "CLAUDE.md").write_bytes(b"short \xff names")
    os.mkfifo(project / "AGENTS.md")  # would block a reader

    assert [file.text for file in load(project).files] == ["short \ufffd names"]


async def test_instructions_of_a_folder_arrive_with_the_first_call_there_and_again_after_a_compaction(
    project: Path,
) -> None:
    write(project / "CLAUDE.md", "top")
    write(project / "web" / "AGENTS.md", "Use tabs in web.")
    file = write(project / "web" / "page" / "a.txt", "text")
    read = use("Read", file_path=str(file))
    model = ScriptedModel([read, say("Seen."), read, say("Again."), read], then=say("Done."))
    session = Session(cwd=project, tools=coding_tools(), permissions=Permissions.allow_all(), transcript=None)
    instructions = load(project)
    session.add_hooks(instructions.hooks())
    async with session:
        agent = Agent(session, model, system=instructions.text)
        await agent.prompt("Read.")
        assert json.dumps(session.messages).count("Use tabs in web.") == 1
        await agent.prompt("Read it again.")
        assert json.dumps(session.messages).count("Use tabs in web.") == 1
        await session.compact(Compaction(summary="Short.", trigger="auto", tokens_before=1, duration_ms=1))
        await agent.prompt("Once more.")
        assert json.dumps(session.messages).count("Use tabs in web.") == 1
    assert "top" in json.dumps(model.requests[0]["system"])
