"""The line of a command's output that best explains why the command failed, and the part of it that stays the same.

A hook for which a client waits imports this module, so it needs only the standard library. Start at `find_key_line` and
`normalize_line`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

_MAX_TEXT = 200_000
"""Of longer outputs, only the first and the last half of this many characters are examined."""
_MAX_LINE = 400
_MAX_LINES = 4_000
MAX_CAUSE_TEXT = 200
"""The length at which the text of a cause is cut."""
_SIGNATURE_LENGTH = 120


class _LineRule(NamedTuple):
    """A pattern for lines that explain why a program failed."""

    rank: int
    """The line whose rule has the highest rank is used."""
    pattern: str
    program: str | None = None
    """The program that writes such lines, if only one does."""
    takes_last: bool = False
    """True if the last of several such lines is used, not the first."""
    joins_next: bool = False
    """True if the message is on the next line."""
    words: tuple[str, ...] = ()
    """perf: words in lower case, set if the pattern is slow. It is tried only on lines that contain one of them."""


_rule = _LineRule


_LOCATION = r"(?:(?:[A-Za-z]:)?[^\s:()]+(?:\(\d+,\d+\)|(?::\d+)+):?\s+(?:-\s+)?)?"
_EXCEPTION = r"(?:[A-Za-z_][\w]*\.)*[A-Z]\w*(?:Error|Exception|Warning|Exit|Interrupt|Fault|Failure|Refused|NotFound)"

_RULES = (
    # Compilers and type checkers: the first error explains the others.
    _rule(95, rf"\s*{_LOCATION}error TS\d+: ", "tsc"),
    _rule(95, r"error\[E\d{4}\]: ", "rustc"),
    _rule(60, r"error: (?:could not compile|aborting due to|linking with)\b", "rustc"),
    _rule(92, r"\s*\S+:\d+(?::\d+)?: (?:fatal )?error: "),
    _rule(94, r"\S+:\d+:(?:\d+:)? error: .*\[[a-z-]+\]\Z", "mypy"),
    _rule(91, r".*\bundefined reference to |.*ld(?:\.\w+)?: cannot find |ld: (?:symbol|library)", "ld",
          words=("undefined reference", ": cannot find", "ld: ")),
    _rule(91, r".*multiple definition of ", "ld", words=("multiple definition",)),
    _rule(90, r"\S+\.go:\d+:\d+: ", "go"),
    _rule(90, r"\s*\S+:\d+:\d+:? (?:[A-Z]{1,4}\d{3,4}):? "),
    _rule(90, r"[A-Z]{1,4}\d{3,4} (?:\[\*\] )?\S", "ruff"),
    _rule(88, r"\s+\d+:\d+\s+error\s+\S", "eslint"),
    # Tests: the assertion explains more than the name of the test.
    _rule(93, r"E   +\S", "pytest"),
    _rule(70, r"(?:FAILED|ERROR) \S+(?:::\S+)?(?: - .*)?\Z", "pytest"),
    _rule(72, r"(?:ERROR: (?:file or directory not found|not found: |usage: )|no tests ran)", "pytest"),
    _rule(86, r"\s*(?:→ )?AssertionError(?: \[\w+\])?: \S", takes_last=True),
    _rule(80, r"\s*Error: expect\(", joins_next=False),
    _rule(85, r"thread '[^']*'(?: \(\d+\))? panicked at .*:\d+:\d+:\Z", "rust", joins_next=True),
    _rule(85, r"thread '[^']*'(?: \(\d+\))? panicked at ", "rust"),
    _rule(85, r"panic: ", "go"),
    # Exceptions: in a chain, the last one ended the program.
    _rule(84, rf"(?:Exception in thread \"[^\"]*\" ){_EXCEPTION}\b", "java"),
    _rule(83, rf"{_EXCEPTION}(?: \[\w+\])?: \S", takes_last=True),
    _rule(82, rf"{_EXCEPTION}\Z", takes_last=True),
    _rule(81, rf"\s*(?:Uncaught |\[|✖ |⨯ |× )?{_EXCEPTION}\b(?: \[\w+\])?:? ", takes_last=False),
    _rule(83, r"\S+:\d+:in .*\((?:\w+::)*\w+(?:Error|Exception)\)\Z", "ruby"),
    _rule(78, r"Segmentation fault|.*\b(?:Segmentation fault|Aborted|Killed|Bus error|core dumped)\b",
          words=("segmentation fault", "aborted", "killed", "bus error", "core dumped")),
    # Messages with the name of the program.
    _rule(79, r"(?:\S*/)?(?:ba|z|da|k|c|fi)?sh: .*(?:command not found|not found|No such file|Permission denied)"),
    _rule(79, r".*: command not found\Z", words=("command not found",)),
    _rule(77, r"fatal: ", "git"),
    _rule(74, r"error: (?:pathspec|failed to push|Your local changes|src refspec|could not (?:apply|revert))", "git"),
    _rule(76, r"CONFLICT \(", "git"),
    _rule(75, r" ! \[(?:remote )?rejected\]", "git"),
    _rule(73, r"curl: \(\d+\) ", "curl"),
    _rule(73, r"npm (?:ERR!|error) (?:Missing script|missing script|404|enoent|ENOENT)", "npm"),
    _rule(71, r"npm (?:ERR!|error) (?!code|path|errno|syscall|A complete log|\s|$|command|Log|Lifecycle|workspace)"
          r"\S+ ?\S", "npm"),
    _rule(66, r"npm (?:ERR!|error) code ", "npm"),
    _rule(45, r"npm (?:ERR!|error) \S", "npm"),
    _rule(72, r"(?:make|gmake)(?:\[\d+\])?: \*\*\* (?!\[)", "make"),
    _rule(72, r"\S+:\d+: \*\*\* ", "make"),
    _rule(40, r"(?:make|gmake)(?:\[\d+\])?: \*\*\* \[", "make"),
    _rule(70, r"ERROR: (?:Could not|No matching|Cannot|Invalid|Directory|Failed|Ignored)", "pip", takes_last=True),
    _rule(70, r"(?:docker: )?(?:Cannot connect to the Docker daemon|Error response from daemon)", "docker"),
    _rule(67, r"[\w.+-]+: .*: (?:No such file or directory|Permission denied|Is a directory|Not a directory"
          r"|Operation not permitted|File exists|Directory not empty|No space left on device|Connection refused)"),
    _rule(64, r"[\w.+-]+: (?:cannot|can't|could not|unable to|failed to|invalid|unrecognized|unknown|illegal"
          r"|missing)\b"),
    _rule(63, r"[a-z][\w.+-]*: \S+:\d+: \S"),
    # General words.
    _rule(62, r"(?i:\s*(?:\[?(?:fatal|error|err)\]?)(?:\[\w+\])?\s*[:!]\s*\S)"),
    _rule(58, r"(?i:(?:\S+: )?(?:fatal|error|panic|failure)\b.*\S)"),
    _rule(52, r".*(?:No such file or directory|Permission denied|Connection refused|Operation not permitted)",
          words=("no such file or", "permission denied", "connection refused", "operation not permitted")),
    _rule(50, r"(?i:.*\b(?:cannot|can't|could not|couldn't|unable to|failed to|not found|denied|refused|invalid"
          r"|unknown|unrecognized|unexpected|missing|timed out|does not exist|doesn't exist|no such)\b)",
          words=("cannot", "can't", "could", "unable to", "failed to", "not found", "denied", "refused", "invalid",
                 "unknown", "unrecognized", "unexpected", "missing", "timed out", "not exist", "n't exist", "no such")),
    _rule(46, r"(?i:(?!g?make(?:\[\d+\])?: \*\*\*).*\b(?:error|failed|failure|exception|fatal)\b)",
          words=("error", "fail", "exception", "fatal")),
    _rule(42, r"[✗✖×❌] ?\S"),
)  # fmt: skip
"""The patterns are matched at the beginning of each line."""
_HINTS = (
    ":", "err", "fail", "fatal", "exception", "warning", "exit", "panic", "not ", "no ", "can", "could", "unable",
    "denied", "refused", "invalid", "unknown", "unrec", "unexpected", "missing", "time", "exist", "assert", "***",
    "conflict", "reject", "curl", "✗", "✖", "×", "❌", "fault", "abort", "kill", "core", "multiple", "e   ",
    "interrupt",
)  # fmt: skip
_CODE_HINT = re.compile(r"[A-Z]\d{3}")
_NOISE = re.compile(
    r"(?i)\s*(?:exit code -?\d+|npm (?:warn|notice)|warning[:\s]|info[:\s]|hint:|note:|\[info\]|\[warn|debug[:\s]"
    r"|traceback \(most recent|  file \"|at \S+ \(|at (?:async )?\S+:\d+|\d+ (?:error|warning)s?\b.*generated"
    r"|.*\b0 (?:errors?|failed|failures?)\b|found 0 |.*a complete log of this run|.*npm-debug|usage:"
    r"|.*error_?(?:count|kind|code)s?=0|during handling of the above|the above exception|\(pass\)|✓|✔|pass\b|ok \d+"
    r"|.*error is not recoverable|some errors have detailed explanations|for more information about this error"
    r"|chunk id: |wall time: |process exited with code|original token count|output:\Z|total output lines"
    r"|(?:command|directory): |(?:error|signal): \((?:none|0)\)|\^c\Z|npm error (?:a complete|lifecycle)"
    r"|.*\bdue to (?:\d+ )?previous errors?|your code has been rated at|[\^~|\s]+\Z|-{8,}\Z|\*{8,} )"
)
"""Lines that do not explain the failure, although they may contain words such as "error"."""
FIRST_EXIT_LINE = re.compile(r"\s*(?:Error: )?Exit code -?\d+\s*(?:\n|\Z)")
LAST_EXIT_LINE = re.compile(r"\[Exit code: -?\d+\]\s*\Z")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\r(?=\n|\Z)")


class KeyLine(NamedTuple):
    """The line of an output that explains why a program failed, and that program if the line identifies it."""

    text: str
    program: str | None


def find_key_line(output: str) -> KeyLine | None:
    """Return the line that best explains why a command failed, or None if there is no output."""
    if len(output) > _MAX_TEXT:
        output = output[: _MAX_TEXT // 2] + "\n" + output[-_MAX_TEXT // 2 :]
    if "\x1b" in output or "\r" in output:
        output = _ESCAPES.sub("", output)
    lines = [line[:_MAX_LINE] for line in output.splitlines() if line.strip()]
    if len(lines) > _MAX_LINES:
        lines = lines[: _MAX_LINES // 2] + lines[-_MAX_LINES // 2 :]
    text = "\n".join(lines).lower()
    hints = [hint for hint in _HINTS if hint in text]
    slow_rules = [rule for rule in _SLOW_RULES if any(word in text for word in rule[0].words)]
    best: tuple[int, _LineRule] | None = None
    for number, line in enumerate(lines):
        low = line.lower()
        for hint in hints:  # perf: `any` takes twice as long
            if hint in low:
                break
        else:
            if not _CODE_HINT.search(line):
                continue
        rank = best[1].rank if best else 0
        rule = _match_rule(line, low, rank, slow_rules)
        if rule is None or rule.rank < rank or (rule.rank == rank and not rule.takes_last):
            continue
        if not _NOISE.match(line):
            best = number, rule
    if best is None:
        text = next((line for line in reversed(lines) if not _NOISE.match(line)), lines[-1] if lines else "")
        return KeyLine(text.strip(), None) if text else None
    number, rule = best
    text = lines[number].strip()
    if rule.joins_next and number + 1 < len(lines):
        text = f"{text} {lines[number + 1].strip()}"
    return KeyLine(text, rule.program)


def _match_rule(
    line: str, low: str, rank: int, slow_rules: Sequence[tuple[_LineRule, re.Pattern[str]]]
) -> _LineRule | None:
    """Return the rule with the highest rank that matches a line. Slow rules are used only if they rank above `rank`."""
    match = _FAST_PATTERN.match(line)
    rule = _FAST_RULES[match.lastindex - 1] if match and match.lastindex else None
    rank = max(rank, rule.rank) if rule else rank
    for slow_rule, pattern in slow_rules:
        if slow_rule.rank > rank and any(word in low for word in slow_rule.words) and pattern.match(line):
            return slow_rule
    return rule


_RULES_BY_RANK = sorted(_RULES, key=lambda rule: -rule.rank)
_FAST_RULES = [rule for rule in _RULES_BY_RANK if not rule.words]
_FAST_PATTERN = re.compile("|".join(f"({rule.pattern})" for rule in _FAST_RULES))
"""One group per rule. The first one that matches has the highest rank."""
_SLOW_RULES = [(rule, re.compile(rule.pattern)) for rule in _RULES_BY_RANK if rule.words]
"""Rules that look for words anywhere in a line."""

_STRERROR = (
    r"No such file or directory|Permission denied|Is a directory|Not a directory|Operation not permitted"
    r"|File exists|Directory not empty|command not found|not found|No space left on device|Connection refused"
    r"|Text file busy|Exec format error|cannot execute[^:]*"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MASKS: Sequence[tuple[tuple[str, ...], re.Pattern[str], str]] = [
    (needed, re.compile(pattern), replacement)
    for needed, pattern, replacement in (
        # A source location in front of a message.
        (("(", ":"),
         r"\A\s*(?:(?:-->|→|✖|⨯|×|❌|E  )\s*)?(?:[A-Za-z]:)?[^\s:()'\"]+(?:\(\d+,\d+\)|(?::\d+)+):?\s+(?:-\s+)?", ""),
        ((":",), r"\A\s*\d+:\d+\s+", ""),
        (("sh: ",), r"\A(?:\S*/)?(?:ba|z|da|k|c|fi)?sh: (?:(?:line )?\d+: )?", ""),
        (("line ",), r"\A(\S+: )?(?:line \d+: )", r"\1"),
        (("://",), r"[a-zA-Z][\w+.-]*://[^\s'\"`)>\]]+", "URL"),
        (("@",), r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+", "EMAIL"),
        (("-",), r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b", "ID"),
        (("-",), r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?", "DATE"),
        (_MONTHS,
         r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)?,? ?\d{0,2} ?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
         r" \d{1,4}(?: \d{4})?\b", "DATE"),
        ((":",), r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?", "TIME"),
        (("0x",), r"\b0x[0-9a-fA-F]+", "ID"),
        ((":error:",), r"\A[0-9A-F]{8,16}(?=:error:)", "ID"),
        ((), r"\b(?=[0-9]*[a-f])(?=[a-f]*\d)[0-9a-f]{7,64}\b", "ID"),
        (("'",), r"(?<!\w)'(NoneType|str|int|float|bool|list|dict|tuple|set|bytes|object|function|module)'", r"\1"),
        (('"', "'", "`", "‘", "“"),
         r"\"(?:[^\"\\]|\\.)*\"|(?<!\w)'(?:[^'\\]|\\.)*'(?!\w)|`[^`']*[`']|‘[^’]*’|“[^”]*”|(?<!\w)'[^']*'", "'…'"),
        ((": ",),
         rf"\A((?:\S*/)?[\w.+-]+: )(?:cannot \w+ (?:file |directory )?)?(?!'…')[^:]+: (?={_STRERROR})", r"\1PATH: "),
        (("line ",), r"\A([\w.+-]+: )(?:line \d+: )?[^:\s]+: (?=line \d)", r"\1PATH: "),
        (("/", "\\"),
         r"(?<![\w.~<-])(?:[A-Za-z]:)?(?:~|\.{1,2})?[\w.@+~-]*(?:[/\\][\w.@+~$*{}\[\]-]+)+[/\\]?(?::\d+)*", "PATH"),
        ((".",),
         r"\b[\w-]+\.(?:py|pyi|js|jsx|ts|tsx|mjs|cjs|json|toml|ya?ml|c|cc|cpp|h|hpp|rs|go|java|rb|php|sh|txt|md|log"
         r"|lock|cfg|ini|html|css|sql|csv|xml|so|o|a|tar|gz|zip|whl|pl|pm|jar|class|kt|swift|vue|svelte|lua|ex|dart"
         r"|scala|proto|env|bak|tf|gradle|ipynb|db|sqlite|png|jpe?g|pdf|test|pem|crt|xz|bz2|7z|bin|exe|dll|mk|cmake|dat|conf|tsv|parquet|npy|pkl|svg|gif"
         r"|webp|mp4|wav|iso|img|deb|rpm|patch|diff|tex|bib|rst|tmp|sock|service|graphql|prisma|erb|s?css|less|yy?)\b(?::\d+)*", "PATH"),  # noqa: E501
        (("[PATH: ",), r"(?<=\[)PATH: [^\]]+(?=\])", "TARGET"),
        ((".", ":"),
         r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b|\[?(?:[0-9a-f]{0,4}:){3,7}[0-9a-f]{0,5}\]?(?::\d+)?", "HOST"),
        ((".",),
         r"\b(?:[a-z0-9-]+\.)+(?:com|org|net|io|dev|app|local|internal|example|invalid|test|edu|gov|co|ai)\b(?::\d+)?",
         "HOST"),
        (("localhost", "port "), r"\blocalhost(?::\d+)?|\bport \d+", "HOST"),
        (("-",), r"(?<![\w-])--?[A-Za-z][\w-]*(?==|\b)", "OPTION"),
        (("unbound", "no such "),
         r"\b[\w.]+(?=: unbound variable)|(?<=no such table: )\S+|(?<=no such column: )\S+", "NAME"),
        (("main class", "*** ["), r"(?<=main class )\S+|(?<=\*\*\* \[)[^\]]+(?=\])", "NAME"),
        (("module",), r"(?<=module named )[\w.]+|(?<=module or script )\S+|(?<=required module )\S+|(?<=the )[\w:]+(?= module\))", "NAME"),  # noqa: E501
        (("requirement", "distribution", "undefined: ", "package "),
         r"(?<=requirement )\S+|(?<=distribution found for )\S+|(?<=undefined: )\S+|(?<=package )\S+(?= is not in)|(?<=locate package )\S+",  # noqa: E501
         "NAME"),
        ((" is not ",), r"[\w$.]+(?:\(\))?(?= is not (?:defined|a function|iterable|a constructor))", "NAME"),
        ((" declared ", " - not "), r"\S+(?= declared (?:and|but) not used| - not something)", "NAME"),
        ((" - ",), r"( - \w+): .*\.\.\.\Z", r"\1"),  # cut by pytest
        (("()",), r"[\w.<>]+\(\)", "NAME()"),
        (("::",), r"(?:[\w&$]+::)+[\w$]+", "NAME"),
        ((), r"\b_*[a-z][a-z0-9]*(?:_[A-Za-z0-9]+)+\b|\b[a-z]+[A-Z]\w*\b|\b[a-z]+\d+\b", "NAME"),
        (("resolve host", "ostname "), r"(?<=Could not resolve host: )\S+|(?<=[Hh]ostname )\S+", "HOST"),
        (("-",), r"\b[\w@.-]*-[\w.-]*\d[\w.-]*@?", "NAME"),
        ((), r"(?<![\w.])[-+]?\d[\d,_]*(?:\.\d+)*(?:%|[kKMGT]i?B?|ms|s|m|h)?(?![\w])", "N"),
        ((": ",), r"(?<=[a-z] )([a-z]+: )[\w@./$-]+\Z", r"\1NAME"),
        (("'…'",), r"(?:near )?'…'(?:,? '…')+|near '…'", "'…'"),
        (("PATH",), r"\bPATH(?:[ ,:]+PATH)+", "PATH"),
        ((), r"\s+", " "),
    )
]  # fmt: skip
"""Replacements for the parts of a line that vary between failures with the same cause, applied in order.

perf: a pattern is applied only if the line contains one of the texts before it, which is faster to check.
"""
_STATUS_CODE = re.compile(
    r"(?i)((?<![a-z])(?:http(?:/[\d.]+)?|status(?: code)?|error:?|npm error|npm ERR!|response)\W{1,3})"
    r"([1-5]\d\d)\b(?!\.)"
)


@lru_cache(maxsize=4096)  # perf: the same few messages make up most failures
def normalize_line(line: str) -> str:
    """Return a line with paths, numbers, ids, quoted names and dates replaced by placeholders.

    Codes such as `TS2304`, `E0382` and the HTTP status are kept, because they identify the cause.
    """
    line = _STATUS_CODE.sub(lambda match: f"{match[1]}HTTP{match[2]}", line.strip()[:_MAX_LINE])
    for needed, pattern, replacement in _MASKS:
        if not needed or any(text in line for text in needed):
            line = pattern.sub(replacement, line)
    return line.strip(" .:")[:_SIGNATURE_LENGTH]
