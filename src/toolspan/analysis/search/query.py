r"""Words that are looked for, in decoded text and in raw bytes.

In: what somebody typed. Out: a `Query`, whose words know how to find themselves in a text, and
whose sieves find every line of JSON that may hold them. A client may write `"` as `\"`, `é` as
`\u00e9` or `/` as `\/`, and JSON inside JSON adds backslashes; a sieve looks for a part that has
only one spelling, or else for all spellings. It may let a line pass that holds no word, never the
other way round. Knows nothing of files, and imports little: a search starts with it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from msgspec import Raw

from toolspan.errors import ToolspanError
from toolspan.formats import json_repair
from toolspan.types.session import MessageAuthor
from toolspan.types.span import Span

TYPE_CHECKING = False  # typing's own constant would cost more to import than all the rest


MAX_LINES_PER_FILE = 32
"""ripgrep stops after so many lines of a file; such a file is looked through as a whole."""
ALL_FILES_OPTIONS = ("--no-config", "--no-messages", "--no-ignore", "--hidden", "--text", "--encoding=none")
"""How it takes files: all that there are, as bytes."""
_OFFSET_OPTIONS = (
    "--color=never", "--heading", "--no-line-number", "--with-filename", "--null",
    "--byte-offset", "--max-columns=1",
)  # fmt: skip
_TRANSCRIPT_GLOBS = ("--glob=*.jsonl", "--glob=rollout-*.json", "--glob=session-*.json", "--glob=**/chats/*/*.json")
_EXIT_NO_MATCH = 1
"""How ripgrep exits when it found nothing and met no trouble."""
_PIPE_BYTES = 1 << 20
"""What it may have said before anybody listens."""
_SIGKILL = 9


class RipgrepProcess:
    """One ripgrep at work."""

    def __init__(self, command: tuple[str, ...]) -> None:
        """Start it, without what `subprocess` would import first.

        Raises:
            OSError: it cannot be started.
            ValueError: what it is to look for, or where, cannot be told to a program.
        """
        self.command = command
        reader, writer = os.pipe()
        self._stream = open(reader, "rb", buffering=0)  # noqa: PTH123, SIM115 - `close` closes it
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, writer, 1),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]
        try:
            self._pid = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
        except BaseException:
            self._stream.close()
            raise
        finally:
            os.close(writer)
        _enlarge_pipe(reader)

    def output(self) -> bytes | None:
        """What it printed, when it is done; None when it met trouble."""
        output = self._stream.readall()
        return output if self._wait_exit_code() in (0, _EXIT_NO_MATCH) else None

    def close(self) -> None:
        """End it, if it still runs."""
        if not self._stream.closed:
            os.kill(self._pid, _SIGKILL)
            self._wait_exit_code()

    def _wait_exit_code(self) -> int | None:
        """Wait for its end; how it exited, None when somebody else has heard of that."""
        self._stream.close()
        try:
            _, status = os.waitpid(self._pid, 0)
        except ChildProcessError:
            return None
        return os.waitstatus_to_exitcode(status)


def _enlarge_pipe(pipe: int) -> None:
    """Let it say much before anybody listens, where the system lets us."""
    import fcntl

    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    except (OSError, AttributeError):
        return


def find_ripgrep() -> str | None:
    """Where ripgrep is: beside this Python, among its scripts, or on the path."""
    beside = os.path.join(os.path.dirname(sys.executable), "rg")  # noqa: PTH118, PTH120
    if os.path.isfile(beside):  # noqa: PTH113 - pathlib is slow to import, as those below
        return beside
    import shutil
    import sysconfig

    packaged = os.path.join(sysconfig.get_path("scripts"), "rg")  # noqa: PTH118
    return packaged if os.path.isfile(packaged) else shutil.which("rg")  # noqa: PTH113


def start_ripgrep(command: tuple[str, ...] | None) -> RipgrepProcess | None:
    """A ripgrep at work; None when there is nothing to start, or it cannot be started."""
    try:
        return RipgrepProcess(command) if command else None
    except (OSError, ValueError):
        return None


def lines_command(
    program: str | None, folders: Sequence[str], pattern: bytes | None, *, literal: bool = True, folded: bool = False
) -> tuple[str, ...] | None:
    """Tells in which lines of transcripts something stands; None when it cannot.

    What is wanted is a regular expression, if not taken literally; upper and lower case are the
    same when folded.
    """
    if program is None or not folders or pattern is None:
        return None
    how = ["--fixed-strings"] if literal else []
    case = ["--ignore-case"] if folded else []
    return (
        program, *ALL_FILES_OPTIONS, *_OFFSET_OPTIONS, *_TRANSCRIPT_GLOBS, f"--max-count={MAX_LINES_PER_FILE}", *how, *case,
        "-e", os.fsdecode(pattern), "--", *folders,
    )  # fmt: skip


def naming_command(program: str | None, names: Sequence[str], files: Sequence[str]) -> tuple[str, ...] | None:
    """Tells which lines of files hold one of several names; None when it cannot."""
    if program is None or not names or not files:
        return None
    patterns = (word for name in names for word in ("-e", name))
    return (program, *ALL_FILES_OPTIONS, *_OFFSET_OPTIONS, "--fixed-strings", *patterns, "--", *files)


_UNESCAPED_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-.,:;()[]{}!?@#$%^*|~`")
"""Characters that no client writes as an escape."""
_MIN_LITERAL_CHARS = 3
"""A part of a word with so many plain characters is rare enough to look for alone."""
_SHORT_ESCAPES = {"\n": "n", "\t": "t", "\r": "r", "\b": "b", "\f": "f", '"': '"', "/": "/"}
_ODD_CASE = frozenset("iskISK")
"""Letters that also equal others beyond ASCII when case does not count."""


class QueryError(ToolspanError):
    """What was typed cannot be looked for."""


class ByteFilter(NamedTuple):
    """Finds the places in raw bytes where a word may stand."""

    literal: bytes | None = None
    """To be found as it is; lower case when `folded`."""
    folded: bool = False
    """Upper and lower case of ASCII are the same."""
    pattern: bytes | None = None
    """A regular expression instead; with neither, every line may hold the word."""

    def make_finder(self, data: bytes | bytearray, end: int) -> Callable[[int], int]:
        """Tells where it may next stand before `end`, from an offset on; -1 when nowhere."""
        if self.literal is not None:
            literal, text = self.literal, data.lower() if self.folded else data
            return lambda start: text.find(literal, start, end)
        expression = re.compile(self.pattern or b"")

        def find_next(start: int) -> int:
            match = expression.search(data, start, end)
            return match.start() if match and start < end else -1

        return find_next

    def ripgrep_command(self, program: str | None, folders: Sequence[str]) -> tuple[str, ...] | None:
        """How ripgrep is asked for the lines; None when it cannot be."""
        pattern = self.literal or self.pattern
        literal = self.literal is not None
        return lines_command(program, folders, pattern, literal=literal, folded=self.folded)


class SearchTerm(NamedTuple):
    """One thing that is looked for."""

    expression: re.Pattern[str]
    """On decoded text."""
    byte_filter: ByteFilter

    def find_in(self, text: str) -> tuple[int, int] | None:
        """Where it first stands in a text."""
        match = self.expression.search(text)
        return match.span() if match else None


class SearchQuery(NamedTuple):
    """Words that must all occur in the same call or message."""

    terms: tuple[SearchTerm, ...]

    @property
    def rarest_filter(self) -> ByteFilter:
        """The sieve that lets least pass, as far as one can tell from its length."""
        return max((term.byte_filter for term in self.terms), key=_filter_weight)


def query_of(terms: Sequence[str], *, regex: bool = False, ignore_case: bool = False) -> SearchQuery:
    """The query that the words make.

    Raises:
        QueryError: there are none, one is empty, or one is not a regular expression.
    """
    if not terms or not all(terms):
        raise QueryError("nothing to look for: name at least one word")
    make = _regex_term if regex else _literal_term
    return SearchQuery(terms=tuple(make(term, ignore_case=ignore_case) for term in terms))


def _filter_weight(sieve: ByteFilter) -> int:
    return len(sieve.literal or b"") * 4 or len(sieve.pattern or b"")


def _regex_flags(*, ignore_case: bool) -> re.RegexFlag:
    return re.MULTILINE | (re.IGNORECASE if ignore_case else re.NOFLAG)


def _literal_term(word: str, *, ignore_case: bool) -> SearchTerm:
    """The cases of each letter are spelled out, so that text and bytes agree on what is equal."""
    spelled = [_case_variants(letter) if ignore_case else [letter] for letter in word]
    pattern = "".join(_alternation([re.escape(variant) for variant in cases]) for cases in spelled)
    expression = re.compile(pattern, _regex_flags(ignore_case=False))
    return SearchTerm(expression=expression, byte_filter=_literal_filter(spelled, word))


def _case_variants(letter: str) -> list[str]:
    variants = dict.fromkeys((letter, letter.lower(), letter.upper()))
    return [variant for variant in variants if len(variant) == 1]


def _literal_filter(spelled: list[list[str]], word: str) -> ByteFilter:
    runs = re.findall(f"[{re.escape(''.join(sorted(_UNESCAPED_CHARS)))}]+", word)
    longest = max(runs, key=len, default="")
    if longest == word or len(longest) >= _MIN_LITERAL_CHARS:
        folded = any(len(cases) > 1 for cases in spelled)
        literal = (longest.lower() if folded else longest).encode("ascii")
        return ByteFilter(literal=literal, folded=folded)
    parts = (_alternation([spelling for case in cases for spelling in _json_spellings(case)]) for cases in spelled)
    return ByteFilter(pattern="".join(parts).encode("utf-8"))


def _alternation(options: list[str]) -> str:
    return options[0] if len(options) == 1 else f"(?:{'|'.join(options)})"


def _json_spellings(letter: str) -> Iterator[str]:
    """How a character may stand in JSON, or in JSON inside JSON, as regular expressions."""
    if letter in _UNESCAPED_CHARS:
        yield re.escape(letter)
        return
    if letter == "\\":
        yield r"\\\\+"
    elif letter in _SHORT_ESCAPES:
        yield rf"\\+{re.escape(_SHORT_ESCAPES[letter])}"
    if letter not in '"\\\n' and not "\ud800" <= letter <= "\udfff":
        yield re.escape(letter)
    yield "".join(rf"\\+u{_hex_pattern(unit)}" for unit in _utf16_units(letter))


def _utf16_units(letter: str) -> list[str]:
    """The UTF-16 code units, four digits each."""
    data = letter.encode("utf-16-be", "surrogatepass").hex()
    return [data[n : n + 4] for n in range(0, len(data), 4)]


def _hex_pattern(digits: str) -> str:
    return "".join(f"[{d}{d.upper()}]" if d.isalpha() else d for d in digits)


def _regex_term(word: str, *, ignore_case: bool) -> SearchTerm:
    try:
        expression = re.compile(word, _regex_flags(ignore_case=ignore_case))
    except (re.error, OverflowError, RecursionError) as error:
        raise QueryError(f"{word!r} is not a regular expression: {error}") from error
    needed = max(_required_runs(word), key=len, default="")
    if ignore_case:
        needed = max(re.split(f"[{''.join(_ODD_CASE)}]", needed), key=len)
    if len(needed) < _MIN_LITERAL_CHARS:
        return SearchTerm(expression=expression, byte_filter=ByteFilter())
    literal = (needed.lower() if ignore_case else needed).encode("ascii")
    return SearchTerm(expression=expression, byte_filter=ByteFilter(literal=literal, folded=ignore_case))


_REGEX_TOKEN = (
    r"(?P<flags>\(\?[a-zA-OQ-Z-])|(?P<open>\()|(?P<close>\))"
    r"|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<maybe>[*?]|\{\d*,?\d*\})|(?P<again>\+)"
    r"|\\(?P<escaped>[^a-zA-Z0-9])|(?P<special>\\.|[.^$])|(?P<either>\|)|(?P<letter>.)"
)


def _required_runs(expression: str) -> Iterator[str]:
    """Runs of plain characters that every match holds; none where that is hard to tell."""
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


MatchSide = Literal["input", "result", "message"]
MATCH_SIDES: tuple[MatchSide, ...] = ("input", "result", "message")


class TextContext(NamedTuple):
    """What a line tells about all that stands in it."""

    at: str | None
    session: str | None
    agent: str | None
    cwd: str | None
    offset: int
    length: int


class SearchText(NamedTuple):
    """A text of a call or a message."""

    side: MatchSide
    text: str
    context: TextContext
    call: str | None = None
    voice: MessageAuthor | None = None
    span: Span | None = None


class ScanScope(NamedTuple):
    """What is looked at."""

    sides: frozenset[MatchSide]
    byte_filters: Sequence[ByteFilter]

    def may_hold(self, body: Raw) -> bool:
        """Whether a part of a line may hold a word: most parts of most lines hold none."""
        data = bytes(body)
        return any(byte_filter.make_finder(data, len(data))(0) >= 0 for byte_filter in self.byte_filters)


def iter_strings(body: bytes | Raw) -> Iterator[str]:
    """Every string in a JSON document, keys left out."""
    data = bytes(body)
    try:
        waiting = [json_repair.decode_document(data)] if data else []
    except ValueError:
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting.extend(reversed(value.values()))
        elif isinstance(value, list):
            waiting.extend(reversed(value))
