"""Words of a command line whose value is known before the line runs, and lines that consist of such words.

Start at `find_unknown_part`. `parse_literal_line` is a faster way to the programs of simple lines.
"""

from __future__ import annotations

import re
from functools import lru_cache

from toolspan.shell.program import Program
from toolspan.shell.words import Redirect, ShellWord

KEYWORDS = frozenset({
    "!", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in", "select", "then",
    "until", "while", "{", "}",
})  # fmt: skip
_DECLARERS = frozenset({"declare", "export", "local", "readonly", "typeset", "unset", "unsetenv", "time"})

# Lines of literal words

_WORD = r"(?:~/)?(?=[^~=])[A-Za-z0-9_./:,@%+^*?=-]+|'[^'\x00-\x1f\x7f]*'|\"[^\"$`\\\x00-\x1f\x7f]*\""
_COMMAND = rf"[A-Za-z0-9_./-]+(?: (?!2>)(?:{_WORD}))*(?: 2>(?:&1|/dev/null))?"
_LITERAL_LINE = re.compile(rf"{_COMMAND}(?:(?: (?:&&|\|\|?) |; ){_COMMAND})*\n?\Z")
_LITERAL_TOKEN = re.compile(rf"2>&1|2>/dev/null|{_WORD}|&&|\|\|?|;")
_OPERATORS = frozenset({"&&", "||", "|", ";"})
_LITERAL_REDIRECTS = {
    "2>&1": (Redirect("2>&", ShellWord("1")),),
    "2>/dev/null": (Redirect("2>", ShellWord("/dev/null")),),
}

_MAX_LITERAL_LENGTH = 5_000
# Other words

LITERAL_WORD = re.compile(r"[A-Za-z0-9_./:,@%+^-]+")
STRING = re.compile(r"""'[^']*'|"[^"\\]*(?:\\.[^"\\]*)*\"""", re.DOTALL)
_QUOTED_PART = re.compile(r"""'[^']*'|"[^"\\]*(?:\\.[^"\\]*)*"|\\.""", re.DOTALL)
_JOINED_TEXT = re.compile(r"(?:~/)?[\w./:,@%+='\"! *?-]*")
_OPTION_WITH_VALUE = re.compile(
    r"""-{1,2}[A-Za-z][\w-]*=?(?:'[^']*'|"[^"\\]*(?:\\[!#%&(-[\]-_a-z|~][^"\\]*)*")""", re.ASCII
)
_HOME_WORD = re.compile(r'"?\$HOME(?:/[\w./@%+=:,-]*)?"?', re.ASCII)
"""Words that start with `$HOME`, the only variable that is expanded."""
_DOCUMENT_START = re.compile(r"\"\$\(cat <<'(\w+)'\n", re.ASCII)
_CODE = re.compile(
    r"\bsystem\s*\(|\bgetline\b|/inet|@\s*(?:load|include)\b|@\s*\w[\w:]*(?:\[[^\]]*\])*\s*\("
    r"|(?<!\|)\|(?!\|)[^|;{}#%/\"]*\"|\A[^\n]*\n--?\w"
)
"""Code with which awk runs programs or opens connections, and options, in a text of several lines."""


def parse_literal_line(line: str) -> tuple[Program, ...] | None:
    """Return the programs of a line of literal words and file patterns; None for any other line.

    perf: most command lines of agents are literal, and their decisions take a third of the time without a tree.
    """
    if len(line) > _MAX_LITERAL_LENGTH or not line.isascii() or "$$" in line or not _LITERAL_LINE.match(line):
        return None
    programs: list[Program] = []
    sources: list[str] = []
    redirects: tuple[Redirect, ...] = ()
    has_stdin = False
    for token in (*_LITERAL_TOKEN.findall(line), ""):
        if token in _LITERAL_REDIRECTS:
            redirects = _LITERAL_REDIRECTS[token]
        elif token and token not in _OPERATORS:
            sources.append(token)
        else:
            if sources[0] in KEYWORDS or sources[0] in _DECLARERS:
                return None
            words = tuple(map(_literal_word, sources))
            text = " ".join(sources)
            programs.append(Program(words, text, redirects=redirects, has_stdin=has_stdin, ended_by=token))
            has_stdin, sources, redirects = token == "|", [], ()
    return tuple(programs)


@lru_cache(maxsize=512)  # perf: the same words occur in many lines
def _literal_word(source: str) -> ShellWord:
    if source[0] in "'\"":
        return ShellWord(source[1:-1])
    if source[0] == "~":
        return ShellWord(source, has_expansion=True, may_split="*" in source or "?" in source)
    expands = "*" in source or "?" in source
    return ShellWord(source, has_expansion=expands, may_split=expands)


def is_document(source: str) -> bool:
    """Return whether a word is a literal text of several lines, such as the message of `git commit -m`.

    No line of it begins like the closing line or ends with a backslash.
    """
    start = _DOCUMENT_START.match(source)
    if start is None or not source.endswith(f'\n{start[1]}\n)"'):
        return False
    lines = source[start.end() - 1 : -len(start[1]) - 4].split("\n")
    return not any(line.lstrip(" \t").startswith(start[1]) or line.endswith("\\") for line in lines)


def find_unknown_part(source: str, word: ShellWord, expansion: str | None) -> str | None:
    """Return the part of a word whose value is not known before the line runs, as a noun phrase, or None.

    `expansion` is the first variable or substitution in it.
    """
    if is_document(source):
        return "Text that may be code" if _CODE.search(source, 0, len(source) - 1) else None
    is_quoted = STRING.fullmatch(source) is not None
    later_lines = source.split("\n")[1:] if is_quoted else []
    if (later_lines and "\\\n" in source) or any(text.lstrip()[:1] == "#" for text in later_lines):
        return "A line in quotes that looks like a comment or goes on"
    if expansion is not None and not _HOME_WORD.fullmatch(source):
        return expansion
    if is_quoted or (_OPTION_WITH_VALUE.fullmatch(source) and "{" not in source):
        return None
    bare = _QUOTED_PART.sub("", source)
    if "{" in bare.replace("{}", "") or "\\{" in source or "\\}" in source:
        return "A brace pattern"
    if "'" in source or '"' in source:
        is_joined = _JOINED_TEXT.fullmatch(word.text) and "\\" not in source
        if not (is_joined or _HOME_WORD.fullmatch(source)):
            return "A word with quotes inside"
    if "\\ " in source or "\\\t" in source or "\\\n" in source:
        return "A blank after a backslash"
    if word.text[:1] in ("=", "~") and word.text[1:2] not in ("", "/"):
        return "A word that the shell replaces"
    return None
