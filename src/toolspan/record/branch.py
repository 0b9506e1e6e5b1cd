"""Which branch a folder is on, read from the repository's own files: no process is started."""

from pathlib import Path

_REF = "ref: refs/heads/"


def branch_of(folder: Path) -> str | None:
    """The branch; None outside a repository, and where the head is on no branch."""
    for place in (folder, *folder.parents):
        try:
            head = _git_folder(place / ".git") / "HEAD"
            text = head.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        return text.removeprefix(_REF).strip() if text.startswith(_REF) else None
    return None


def _git_folder(git: Path) -> Path:
    """A worktree has a file there, which names the folder."""
    if not git.is_file():
        return git
    named = git.read_text(encoding="utf-8", errors="replace").removeprefix("gitdir:").strip()
    return git.parent / named
