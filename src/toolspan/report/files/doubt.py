"""Could a call have changed a file without saying so?

In: a command or a call, and a path. Out: whether it may have written there. Everything that is not
understood may have: a false doubt costs a question, a missing one a wrong file. Read `may_write`.
"""

from collections.abc import Sequence

from toolspan.report.files.place import whole, within
from toolspan.shell.argument import files_of
from toolspan.shell.inside import base, unfold
from toolspan.shell.line import Redirect, Word
from toolspan.shell.program import Program
from toolspan.shell.readonly import is_read_only, reads
from toolspan.shell.seen import see

_STILL = frozenset({"chgrp", "chmod", "chown", "mkdir", "rmdir", "cd", "export", "set", "wait"})
"""Programs that change something, but no content of a file."""


def may_write(command: str, path: str, cwd: str | None) -> bool:
    """Whether a command line may change the content of a file, or whether it exists."""
    if is_read_only(command):
        return False
    everything = unfold(see(command))
    if everything.unclear or everything.code:
        return True
    programs = [found.program for found in everything.found]
    if any(program.name in ("cd", "pushd", "popd") for program in programs):
        cwd = None  # from then on relative paths may be anything's
    return any(_may_write(program, path, cwd) for program in programs)


def _may_write(program: Program, path: str, cwd: str | None) -> bool:
    if any(_redirects(redirect, path, cwd) for redirect in program.redirects):
        return True
    if not program.words:
        return False
    name, arguments = base(program.name), program.words[1:]
    if name in _STILL or reads(name, arguments):
        return False
    files = files_of(name, arguments)
    return files is None or any(_names(word, path, cwd) for word in files.changed)


def _redirects(redirect: Redirect, path: str, cwd: str | None) -> bool:
    operator = redirect.operator.lstrip("0123456789")
    if operator.startswith("<") and operator != "<>":
        return False
    if operator == ">&" and redirect.target.text in {"0", "1", "2", "-"}:
        return False
    return _names(redirect.target, path, cwd)


def _names(word: Word, path: str, cwd: str | None) -> bool:
    """Whether a word may stand for the file, or for a folder it is in."""
    if word.filled or word.runs:
        return True
    if cwd is None and not word.text.startswith("/"):
        return word.text.rstrip("/").rpartition("/")[2] in {*_parts(path), ".", "..", ""}
    return within(path, whole(word.text, cwd))


def _parts(path: str) -> Sequence[str]:
    return path.replace("\\", "/").split("/")
