"""What a Codex output says: the client's own header taken apart, the rest as text.

In: an `output` of any age: text under a header (`Exit code: …`, `Wall time: …`, `Chunk ID: …`),
JSON in a string, an array of texts and pictures, an object. Out: `Said`. The client writes no error
flag, so the exit code in the header is the first thing to ask. Nothing here raises. Read `said`
first.
"""

import re

import msgspec
from msgspec import Raw, Struct

from toolspan.wire.codex import NOTHING
from toolspan.wire.views import UNFIT, text_of


class Said(Struct, frozen=True, kw_only=True, gc=False):
    """An output, taken apart."""

    text: str = ""
    """What the tool said; without the client's header."""
    exit_code: int | None = None
    wall_ms: float | None = None
    """How long the client says it took."""
    running: str | None = None
    """The process or script that goes on, by the number to ask for it."""
    script: str | None = None
    """How a script ended: `completed` or `failed`."""
    headed: bool = False
    """A tool's own words: they stand under the client's header."""
    truncated: bool = False
    flag: bool | None = None
    """Whether it succeeded, where somebody wrote that down."""


_LINE = re.compile(
    r"(?:Command: [^\n]*"
    r"|Chunk ID: \S*"
    r"|Exit code: (?P<exit>-?\d{1,9})"
    r"|Wall time:? (?P<wall>\d[\d.]*) seconds?"
    r"|Process exited with code (?P<exited>-?\d{1,9})"
    r"|Process running with session ID (?P<running>\S+)"
    r"|Script (?P<script>completed|failed|terminated)"
    r"|Script running with cell ID (?P<cell>\S+)"
    r"|Original token count: \d+"
    r"|Total output lines: (?P<lines>\d+)"
    r"|(?P<output>Output:))[ \t]*(?:\n|\Z)"
)
_LINES = 9
_MOST = 1 << 32
"""No exit code is beyond this, on any system."""
_CUT = re.compile(
    r"\A(?:Warning: truncated output \(original token count|Total output lines: \d+\n)"
    r"|\[\.\.\. omitted \d+ of \d+ lines \.\.\.\]|…\d+ tokens truncated…|…\d+ chars truncated…"
    r"|\[Output truncated after \d+ lines: too many lines or bytes\.\]\s*\Z"
)
_QUIET = re.compile(
    rb'"(?:Chunk ID: \w*\\nWall time: (\d[\d.]*) seconds\\nProcess exited with code 0\\n'
    rb"(?:Original token count: \d+\\n)?|Exit code: 0\\nWall time: (\d[\d.]*) seconds\\n)Output:\\n"
)
"""How the output of a command that ended well begins, in the line's own bytes."""


class _Metadata(Struct, gc=False):
    exit_code: int | None = None
    duration_seconds: float | None = None


class _Document(Struct, gc=False):
    output: str | None = None
    metadata: _Metadata | None = None


class _Flagged(Struct, gc=False):
    content: Raw = NOTHING
    success: bool | None = None
    body: Raw = NOTHING


_DOCUMENT = msgspec.json.Decoder(_Document)
_FLAGGED = msgspec.json.Decoder(_Flagged)


def said(raw: Raw) -> Said:
    """What an output says; the text of a command that ended well is left alone."""
    quiet = _QUIET.match(raw)
    if quiet is not None and not _maybe_cut(raw):
        return Said(exit_code=0, wall_ms=_milliseconds(_ascii(quiet[1] or quiet[2])), headed=True)
    flag = None
    if memoryview(raw)[:1].tobytes() == b"{":
        raw, flag = _flagged(raw)
    text = output_text(raw)
    found = _from_document(text) if text.startswith("{") else None
    found = found or _from_header(text)
    return found if flag is None else msgspec.structs.replace(found, flag=flag)


def _maybe_cut(raw: Raw) -> bool:
    data = bytes(raw)
    return b" truncated" in data or b"[... omitted " in data


def _ascii(digits: bytes) -> str:
    return digits.decode("ascii")


def output_text(raw: Raw) -> str:
    """An output as text: a string, or the texts of an array."""
    return text_of(raw)


def _flagged(raw: Raw) -> tuple[Raw, bool | None]:
    try:
        found = _FLAGGED.decode(raw)
    except UNFIT:
        return raw, None
    return found.content if found.content != NOTHING else found.body, found.success


def _from_document(text: str) -> Said | None:
    """The form `{"output": …, "metadata": {"exit_code": …}}`."""
    try:
        found = _DOCUMENT.decode(text)
    except (*UNFIT, UnicodeEncodeError):
        return None
    facts = found.metadata
    if found.output is None or facts is None:
        return None
    seconds = facts.duration_seconds
    return Said(
        text=found.output,
        exit_code=facts.exit_code if abs(facts.exit_code or 0) <= _MOST else None,
        wall_ms=seconds * 1000 if seconds is not None else None,
        headed=True,
        truncated=bool(_CUT.search(found.output)),
    )


def _from_header(text: str) -> Said:
    facts: dict[str, str] = {}
    at = 0
    for _ in range(2 * _LINES):
        found = _LINE.match(text, at)
        if found is None:
            break
        at = found.end()
        told = {key: value for key, value in found.groupdict().items() if value is not None}
        facts.update(told)
        ended = "exit" in facts or "exited" in facts or "running" in facts or "cell" in facts
        if "output" in told and (ended or not text.startswith("Exit code: ", at)):
            break
    body = text[at:] if facts else text
    code = facts.get("exit", facts.get("exited"))
    return Said(
        text=body,
        exit_code=int(code) if code is not None else None,
        wall_ms=_milliseconds(facts.get("wall")),
        running=facts.get("running", facts.get("cell")),
        script=facts.get("script"),
        headed="output" in facts,
        truncated="lines" in facts or bool(_CUT.search(body)),
    )


def _milliseconds(seconds: str | None) -> float | None:
    try:
        return float(seconds) * 1000 if seconds is not None else None
    except ValueError:
        return None
