r"""Search terms, in decoded text and in raw bytes.

`query_of` builds a `SearchQuery`. Each of its terms matches decoded text and has a `ByteFilter` that finds every
JSON line that may contain it. A client may write `"` as `\"`, `é` as `\u00e9` or `/` as `\/`, and JSON inside JSON
adds backslashes. A filter therefore looks for a part of the term that has only one spelling, or else for all
spellings. It may accept a line without the term, but never misses one that contains it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, get_args

from toolspan.errors import ToolspanError
from toolspan.formats.base import TextSide
from toolspan.formats.registry import plugin_globs
from toolspan.formats.source import COMPRESSED_SUFFIXES, is_member, is_remote
from toolspan.reading.discovery import ProblemCallback, find_transcripts

MatchSide = TextSide
"""The place of a text. `toolUseResult` is the data that the client recorded beside a result for its own use."""
MATCH_SIDES: tuple[MatchSide, ...] = get_args(MatchSide)

_UNESCAPED_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-.,:;()[]{}!?@#$%^*|~`")
"""Characters that no client escapes in JSON."""
_MIN_LITERAL_CHARS = 3
"""The minimum length of a part of a term that can be searched for instead of the whole term."""
_SHORT_ESCAPES = {"\n": "n", "\t": "t", "\r": "r", "\b": "b", "\f": "f", '"': '"', "/": "/"}
_ODD_CASE = frozenset("iskISK")
"""Letters that have case variants outside ASCII."""


class QueryError(ToolspanError):
    """The query is empty or not a valid regular expression."""


class ByteFilter(NamedTuple):
    """A filter for the places in raw bytes where a term may occur."""

    literal: bytes | None = None
    """The bytes to find, in lower case if `folded`."""
    folded: bool = False
    pattern: bytes | None = None
    """A regular expression to use instead of `literal`. If neither is set, every line may contain the term."""

    def make_finder(self, data: bytes | bytearray, end: int) -> Callable[[int], int]:
        """Return a function that finds the next match from an offset up to `end`, or returns -1."""
        if self.literal is not None:
            literal, text = self.literal, data.lower() if self.folded else data
            return lambda start: text.find(literal, start, end)
        expression = re.compile(self.pattern or b"")

        def find_next(start: int) -> int:
            match = expression.search(data, start, end)
            return match.start() if match and start < end else -1

        return find_next

    def may_match(self, data: bytes) -> bool:
        """Return whether the term may occur in `data`."""
        return self.make_finder(data, len(data))(0) >= 0


class SearchTerm(NamedTuple):
    """One word or regular expression in a query."""

    expression: re.Pattern[str]
    byte_filter: ByteFilter


class SearchQuery(NamedTuple):
    """A set of terms that must all occur in the same call or message."""

    terms: tuple[SearchTerm, ...]

    @property
    def rarest_filter(self) -> ByteFilter:
        """The filter that is likely to accept the fewest lines, judging by its length."""
        return max(
            (term.byte_filter for term in self.terms),
            key=lambda item: len(item.literal or b"") * 4 or len(item.pattern or b""),
        )


def query_of(terms: Sequence[str], *, regex: bool = False, ignore_case: bool = False) -> SearchQuery:
    """Build a query from the terms that the user typed.

    Raises:
        QueryError: there is no term, or one is empty or not a valid regular expression.
    """
    if not terms or not all(terms):
        raise QueryError("nothing to look for: name at least one word")
    make_term = _regex_term if regex else _literal_term
    return SearchQuery(terms=tuple(make_term(term, ignore_case=ignore_case) for term in terms))


def _literal_term(word: str, *, ignore_case: bool) -> SearchTerm:
    # The case variants of each letter are listed explicitly, so that text and bytes are compared in the same way.
    variants = [[letter] for letter in word]
    if ignore_case:
        cases = [dict.fromkeys((letter, letter.lower(), letter.upper())) for letter in word]
        variants = [[variant for variant in letter_cases if len(variant) == 1] for letter_cases in cases]
    pattern = "".join(_alternation([re.escape(variant) for variant in letters]) for letters in variants)
    expression = re.compile(pattern, re.MULTILINE)
    runs = re.findall(f"[{re.escape(''.join(sorted(_UNESCAPED_CHARS)))}]+", word)
    longest = max(runs, key=len, default="")
    if longest == word or len(longest) >= _MIN_LITERAL_CHARS:
        folded = any(len(letters) > 1 for letters in variants)
        literal = (longest.lower() if folded else longest).encode("ascii")
        return SearchTerm(expression, ByteFilter(literal=literal, folded=folded))
    parts = (_alternation([item for letter in letters for item in _json_spellings(letter)]) for letters in variants)
    return SearchTerm(expression, ByteFilter(pattern="".join(parts).encode("utf-8")))


def _alternation(options: list[str]) -> str:
    return options[0] if len(options) == 1 else f"(?:{'|'.join(options)})"


def _json_spellings(letter: str) -> Iterator[str]:
    """Yield regular expressions for the spellings of a character in JSON and in JSON inside JSON."""
    if letter in _UNESCAPED_CHARS:
        yield re.escape(letter)
        return
    if letter == "\\":
        yield r"\\\\+"
    elif letter in _SHORT_ESCAPES:
        yield rf"\\+{re.escape(_SHORT_ESCAPES[letter])}"
    if letter not in '"\\\n' and not "\ud800" <= letter <= "\udfff":
        yield re.escape(letter)
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    digits = [f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in units]
    yield "".join(rf"\\+u{''.join(digits[n : n + 4])}" for n in range(0, len(digits), 4))


def _regex_term(word: str, *, ignore_case: bool) -> SearchTerm:
    try:
        expression = re.compile(word, re.MULTILINE | (re.IGNORECASE if ignore_case else re.NOFLAG))
    except (re.error, OverflowError, RecursionError) as error:
        raise QueryError(f"{word!r} is not a regular expression: {error}") from error
    required = max(_required_runs(word), key=len, default="")
    if ignore_case:
        required = max(re.split(f"[{''.join(_ODD_CASE)}]", required), key=len)
    if len(required) < _MIN_LITERAL_CHARS:
        return SearchTerm(expression, ByteFilter())
    literal = (required.lower() if ignore_case else required).encode("ascii")
    return SearchTerm(expression, ByteFilter(literal=literal, folded=ignore_case))


_REGEX_TOKEN = (
    r"(?P<flags>\(\?[a-zA-OQ-Z-])|(?P<open>\()|(?P<close>\))"
    r"|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<maybe>[*?]|\{\d*,?\d*\})|(?P<again>\+)"
    r"|\\(?P<escaped>[^a-zA-Z0-9])|(?P<special>\\.|[.^$])|(?P<either>\|)|(?P<letter>.)"
)


def _required_runs(expression: str) -> Iterator[str]:
    """Yield runs of plain characters that every match contains; none for expressions with flags or alternatives."""
    tokens = list(re.finditer(_REGEX_TOKEN, expression, re.DOTALL))
    if any(token.lastgroup in ("flags", "either") for token in tokens):
        return
    depth, run = 0, ""
    for token in tokens:
        letter = token["escaped"] or token["letter"] or ""
        if not depth and letter in _UNESCAPED_CHARS and letter:
            run += letter
            continue
        depth += {"open": 1, "close": -1}.get(str(token.lastgroup), 0)
        yield run[:-1] if token.lastgroup == "maybe" else run
        run = ""
    yield run


ALL_FILES_OPTIONS = ("--no-config", "--no-messages", "--no-ignore", "--hidden", "--text", "--encoding=none")
"""Options that make ripgrep search all files as bytes."""
TRANSCRIPT_GLOBS = (
    "*.jsonl", "rollout-*.json", "session-*.json", "ses_*.json", "**/chats/*/*.json", "*trajectory.json", "*.atif.json",
)  # fmt: skip
"""Glob patterns for the files of all formats. perf: repeated here, because importing every format
slows down each search.
"""
_OFFSET_OPTIONS = (
    "--color=never", "--heading", "--no-line-number", "--with-filename", "--null",
    "--byte-offset", "--max-columns=1", *(f"--glob={glob}" for glob in TRANSCRIPT_GLOBS),
)  # fmt: skip
_MAX_LINES_PER_FILE = 32
"""ripgrep stops after this many matching lines in a file, and the file is then scanned as a whole."""
_OFFSET_PATTERN = re.compile(rb"^(\d+):", re.MULTILINE)
_Offsets = tuple[int, ...] | None


class Candidate(NamedTuple):
    """A transcript that may contain the term."""

    path: str
    size: int
    offsets: _Offsets
    """Offsets of the lines that may contain the term; None if any line may."""
    changed: float = 0.0


def find_ripgrep() -> str | None:
    """Return the path of ripgrep: next to this Python, among its scripts, or on PATH."""
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        program = folder / "rg"
        if program.is_file():
            return str(program)
    return shutil.which("rg")


def find_candidates(
    paths: Sequence[Path],
    byte_filter: ByteFilter,
    *,
    program: str | None,
    problem: ProblemCallback | None = None,
) -> list[Candidate]:
    """Return the transcripts that `byte_filter` accepts, sorted by path.

    `program` is the path of ripgrep, if it is installed. `problem` is called for each folder that cannot be listed.

    Raises:
        SourceError: a path does not exist or cannot be listed.
    """
    pattern = byte_filter.literal or byte_filter.pattern
    process = None
    if program is not None and pattern is not None and not all(map(is_remote, paths)):
        options = ["--fixed-strings"] * (byte_filter.literal is not None) + ["--ignore-case"] * byte_filter.folded
        names = [str(path) for path in paths if not is_remote(path)]
        process = _start_ripgrep(
            [program, *ALL_FILES_OPTIONS, *_OFFSET_OPTIONS, f"--max-count={_MAX_LINES_PER_FILE}", *options,
             *(f"--glob={glob}" for glob in plugin_globs()), "-e", os.fsdecode(pattern), "--", *names]
        )  # fmt: skip
    try:  # ripgrep works while the folders are walked
        files = {str(file.path): file for path in paths for file in find_transcripts(path, problem)}
        output = _read_output(process) if process is not None else None
    finally:
        if process is not None:
            process.kill()
            process.wait()
    matches: dict[str, _Offsets] = {}
    if output is not None:  # for each file: its name, NUL, its lines and a blank line
        name, *rest = output.removesuffix(b"\n").split(b"\0")
        for piece in rest:
            lines, _, next_name = piece.partition(b"\n\n")
            offsets = tuple(map(int, _OFFSET_PATTERN.findall(lines)))
            matches[os.fsdecode(name).removeprefix("./")] = offsets if len(offsets) < _MAX_LINES_PER_FILE else None
            name = next_name
    return [
        Candidate(path, file.size, matches.get(path), file.modified)
        for path, file in sorted(files.items())
        if output is None
        or path in matches
        or path.endswith(COMPRESSED_SUFFIXES)
        or is_remote(path)
        or is_member(path)
        or file.path.is_symlink()
    ]


def run_ripgrep(command: Sequence[str]) -> bytes | None:
    """Return ripgrep's output, or None if it could not be started or failed."""
    process = _start_ripgrep(command)
    return None if process is None else _read_output(process)


def _start_ripgrep(command: Sequence[str]) -> subprocess.Popen[bytes] | None:
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except (OSError, ValueError):  # not executable, or the pattern contains a NUL
        return None


def _read_output(process: subprocess.Popen[bytes]) -> bytes | None:
    output, _ = process.communicate()
    return output if process.returncode in (0, 1) else None  # exit code 1: no matches
