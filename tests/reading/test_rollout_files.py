"""Rollouts in folders: which are subagents of a session, and where a session worked."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from tests.formats import gemini_chats
from tests.requirement import requirement
from toolspan.errors import SourceError
from toolspan.reading.discovery import (
    TranscriptFile,
    default_roots,
    find_agents_by_content,
    find_all_transcripts,
    find_transcripts,
    has_working_folder,
)
from toolspan.testing import TranscriptBuilder
from toolspan.testing.codex_builder import RolloutBuilder


def by_thread(root: Path) -> dict[str | None, TranscriptFile]:
    return {file.name.session_id: file for file in find_transcripts(root)}


@requirement("sessions.subagents-belong-to-their-session")
def test_the_rollouts_of_a_sessions_subagents_are_told_by_their_first_line(tmp_path: Path) -> None:
    main = RolloutBuilder().prompt("go")
    agent = main.fork(agent="scout")
    other = RolloutBuilder(thread_id="01ff0000-0000-7000-8000-00000000000f").prompt("apart")
    mate = RolloutBuilder(thread_id="01ff0000-0000-7000-8000-0000000000aa", meta={"session_id": main.thread_id})
    for made in (main, agent, other, mate):
        made.write(tmp_path)
    spaced = mate.write(tmp_path)
    spaced.write_bytes(mate.data().replace(b'":"', b'": "'))
    story = TranscriptBuilder().prompt("go")
    story.write(tmp_path / f"{story.session_id}.jsonl")
    gone = by_thread(tmp_path)[other.thread_id]
    files = find_transcripts(tmp_path)
    gone.path.unlink()  # it goes away meanwhile, and is nobody's

    found = find_agents_by_content(files, main.thread_id)

    assert [(file.name.role, file.name.agent_id, file.name.session_id) for file in found] == [
        ("agent", agent.thread_id, main.thread_id),
        ("agent", mate.thread_id, main.thread_id),
    ]


def test_a_rollouts_first_line_says_where_it_worked(tmp_path: Path) -> None:
    RolloutBuilder(cwd="/home/dev/pr\u00f6ject").prompt("go").write(tmp_path)
    (file,) = find_transcripts(tmp_path)

    assert has_working_folder(file, "/home/dev/pr\u00f6ject")
    assert not has_working_folder(file, "/home/dev")
    assert not has_working_folder(file, "/home/dev/pr\u00f6ject/below")


@requirement("codex.read")
def test_a_compressed_copy_of_a_rollout_that_is_there_is_not_found_twice(tmp_path: Path) -> None:
    made = RolloutBuilder().prompt("go")
    path = made.write(tmp_path)
    packed = path.with_name(f"{path.name}.zst")
    packed.write_bytes(zstandard.compress(path.read_bytes()))

    assert [file.path for file in find_transcripts(tmp_path)] == [path]
    path.unlink()
    assert [file.path for file in find_transcripts(tmp_path)] == [packed]


@requirement("cli.default-root")
def test_without_a_folder_the_folders_of_all_clients_are_searched(user: Path) -> None:
    with pytest.raises(SourceError, match="CLAUDE_CONFIG_DIR, CODEX_HOME or GEMINI_CLI_HOME"):
        find_all_transcripts()

    rollout = RolloutBuilder().prompt("go").write(user / ".codex")
    assert default_roots() == [user / ".codex" / "sessions"]
    session = user / ".claude" / "projects" / "p" / "s.jsonl"
    session.parent.mkdir(parents=True)
    TranscriptBuilder().prompt("go").write(session)
    chat = gemini_chats.write_chat(user, gemini_chats.document())
    assert [file.path for file in find_all_transcripts()] == [session, rollout, chat]
    assert [file.path for file in find_all_transcripts([user / ".codex"])] == [rollout]
