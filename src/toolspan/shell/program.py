"""Data types for the programs in a command line. `programs.py` finds the programs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from msgspec import Struct

from toolspan.shell.arguments import Arguments, read_arguments
from toolspan.shell.words import Redirect, ShellWord


class Program(Struct, frozen=True, dict=True):
    """A program that a command line may run, as written in the line."""

    words: tuple[ShellWord, ...]
    """The name and the arguments; empty if the command has only redirects or assignments."""
    text: str
    """The words as written, separated by single spaces."""
    spelling: str = ""
    """The words with the blanks between them as written; empty if these are single spaces."""
    has_break: bool = False
    """True if an escaped line break separates two words."""
    variables: tuple[str, ...] = ()
    """The variables set for this program, or for the rest of the line if there are no words."""
    values: tuple[ShellWord, ...] = ()
    assignments: tuple[str, ...] = ()
    """The assignments before the name, as written."""
    redirects: tuple[Redirect, ...] = ()
    redirected_first: bool = False
    """True if a redirect precedes the name, so that the text of the command begins with the redirect."""
    has_stdin: bool = False
    """True if standard input is a pipe, a file or literal text."""
    stdin_text: str | None = None
    """The content of standard input, if the line contains it."""
    loop_values: tuple[ShellWord, ...] = ()
    """The values of the variable in the surrounding `for` loop."""
    nested: bool = False
    """True if the program is part of a substitution, a function or a group."""
    ended_by: str = ""
    """The operator after the program, unless it is nested."""

    @property
    def name(self) -> str:
        """The name of the program; empty if it depends on an expansion by the shell."""
        words = self.words
        return words[0].text if words and not words[0].has_expansion else ""

    @property
    def arguments(self) -> Arguments:
        """The arguments with their roles, as returned by `read_arguments`. The result is cached."""
        known: Arguments | None = self.__dict__.get("known_arguments")
        if known is None:
            known = self.__dict__["known_arguments"] = read_arguments(self.name, self.words[1:])
        return known


class LinePrograms(Struct, frozen=True, gc=False):
    """The programs in a command line, in order."""

    text: str
    programs: tuple[Program, ...]
    uncertainties: tuple[str, ...] = ()
    """Reasons why the line may run other programs; empty if there are none."""
    has_compounds: bool = False
    """True if the line contains a compound construct, such as a loop, a group, a here-document or a negation."""
    unclear: tuple[str, ...] = ()
    """Constructs whose effect depends on the shell's state, such as "A variable", in the order in which they occur."""


def program_basename(name: str) -> str:
    """Return the name of a program without its folder."""
    return name.rpartition("/")[2]


def bare_program_name(name: str) -> str:
    """Return the name of a program without its folder and without `.exe`, also after backslashes."""
    name = name.replace("\\", "/").rpartition("/")[2]
    return name[:-4] if name[-4:].lower() == ".exe" else name


_NAME = r"[A-Za-z0-9_./-]++"
_IN_QUOTES = r"[ !#%-\[\]-_a-~\t\n\x80-\U0010ffff]*+"
_QUOTED = rf"""'[ -&(-~\t\n\x80-\U0010ffff]*+'|"{_IN_QUOTES}(?>(?:\\[!#%-\[\]-_a-~]{_IN_QUOTES})*)\""""
"""Text in quotes, without expansions and without backslashes that the quotes remove."""
_DOCUMENT_START, _DOCUMENT_END = "\"$(cat <<'EOF'\n", 'EOF\n)"'
_IN_DOCUMENT = r"[ -\[\]-~\t\x80-\U0010ffff]*+"
_DOCUMENT = (
    re.escape(_DOCUMENT_START)
    + rf"(?>(?:(?![ \t]*EOF){_IN_DOCUMENT}(?>(?:\\[!-~]{_IN_DOCUMENT})*)\n)*)"
    + re.escape(_DOCUMENT_END)
)
"""A literal text of several lines, such as the message of `git commit -m`. No line of it begins with `EOF`,
which would end it in the tree.
"""
_DOCUMENTS = re.compile(_DOCUMENT)
_DOCUMENT_CODE = (
    re.compile(r"system(?<=\bsystem)\s*\(", re.ASCII),
    re.compile(r"""\|(?<!\|\|)(?:&?\s*getline\b|(?!\|)[^|;{}#%/"]*")""", re.ASCII),
    re.compile(r'"/inet[46]?/'),
    re.compile(r"@\s*(?:(?:load|include)\b|\w[\w:]*+(?>(?:\[[^\]]*+\])*)\s*\()", re.ASCII),
)
"""Code with which awk can run programs or open connections. The client searches every text of several lines for it,
whatever program reads the text.

perf: Each pattern begins with a fixed character, which the regex engine searches for.
"""
_OPTION_AFTER_BREAK = re.compile(r"[^\n]*+\n--?[A-Za-z0-9]")
"""An option at the beginning of a text of several lines, which the client searches for as well."""
DOCUMENT_READERS = frozenset({"awk", "env", "gawk", "jq", "mawk", "nawk", "printf", "xargs"})
"""Programs for which a text of several lines may be a program, an option or a number to evaluate."""
_HOME = r"\$HOME(?>(?:/[A-Za-z0-9_./:,@%+-]*+)?)"
_OPTION = r"""--[a-z][a-z-]*+=(?:[A-Za-z0-9_./:,@%+-]++|'[ -#%&(-_a-z|~]*+'|"[ !#%-\[\]-_a-z|~]*+")"""
_WORD = rf"(?:{_OPTION}|(?!~[^/\s])[A-Za-z0-9_./:,@%+*?~-]++|{_QUOTED}|{_DOCUMENT}|{_HOME}|\\[();]|!)"
_REDIRECT = r"2>(?:&1|/dev/null)"
_COMMAND = rf"{_NAME}(?>(?: (?!2>){_WORD})*)(?>(?: {_REDIRECT})?)"
_SIMPLE_QUOTED = r"[A-Za-z0-9_./:,@%+*?()<>|;&^= -]*+"
_SIMPLE_WORD = (
    rf"(?:--[a-z-]++=[A-Za-z0-9_./:,@%+-]++|[A-Za-z0-9_./:,@%+*?-]++|'{_SIMPLE_QUOTED}'|\"{_SIMPLE_QUOTED}\")"
)
_SIMPLE_COMMAND = rf"{_NAME}(?>(?: (?!2>){_SIMPLE_WORD})*)(?>(?: 2>&1)?)"
_OPERATOR = r" (?:&&|\|\|?) |; "
_PLAIN_LINE = re.compile(
    rf"{_COMMAND}(?>(?:(?:{_OPERATOR}){_COMMAND})*)\n?\Z|{_SIMPLE_COMMAND}(?>(?:(?:{_OPERATOR}|\n){_SIMPLE_COMMAND})*)\Z"
)
"""One line of plain words, or several lines of simple words. The tree may join lines of other texts."""
_PLAIN_CHARACTERS = re.compile("[^\x80-\xa0\u1680\u2000-\u200b\u2028\u2029\u202f\u205f\u3000\ud800-\udfff\ufeff]*+")
"""Text without control characters and blanks outside ASCII."""
_PLAIN_TOKEN = re.compile(rf"{_REDIRECT}|--[a-z-]++=[A-Za-z0-9_./:,@%+-]++|{_WORD}|&&|\|\|?|;|\n")
_KEYWORDS = frozenset({
    "case", "coproc", "declare", "do", "done", "elif", "else", "esac", "export", "fi", "for", "function", "if",
    "in", "local", "readonly", "select", "then", "time", "typeset", "unset", "unsetenv", "until", "while",
})  # fmt: skip
_NOT_PLAIN = _KEYWORDS | {"-"}
_PLAIN_REDIRECTS = {
    "2>&1": (Redirect("2>&", ShellWord("1")),),
    "2>/dev/null": (Redirect("2>", ShellWord("/dev/null")),),
}
_DOCUMENT_COMMAND = re.compile(
    rf"({_NAME}(?>(?: {_SIMPLE_WORD})*))(?>(?: (>>?) ([A-Za-z0-9_./-]++))?) << ?'([A-Za-z_]++)'\n"
)
"""The first line of a command whose input is a here-document without expansions."""
_NOT_WORDS = frozenset({"", "&&", "||", "|", ";", "\n", *_PLAIN_REDIRECTS})


@lru_cache(maxsize=256)  # perf: the same words occur in many lines
def _plain_word(source: str) -> ShellWord:
    first = source[0]
    if first in "'\"":
        is_document = source[1] == "$" and first == '"'
        return ShellWord(source[1:-1], has_expansion=is_document, has_substitution=is_document)
    expands = "*" in source or "?" in source or first == "$"
    if first == "~":
        return ShellWord(source, has_expansion=True)
    if first == "\\":
        return ShellWord(source[1:])
    if first == "-" and source[-1] in "'\"":
        option, _, value = source.partition("=")
        return ShellWord(f"{option}={value[1:-1]}")
    return ShellWord(source, has_expansion=expands, may_split=expands)


def _document_program(source: str) -> Program:
    body = source[len(_DOCUMENT_START) : -len(_DOCUMENT_END)]
    return Program((ShellWord("cat"),), "cat", has_stdin=True, stdin_text=body, nested=True)


def _are_literal_documents(tokens: list[str]) -> bool:
    """Return whether no program in a line can run the line's texts of several lines."""
    documents = [token for token in tokens if token.startswith(_DOCUMENT_START)]
    if not DOCUMENT_READERS.isdisjoint(map(program_basename, tokens)):
        return False
    return not any(map(has_document_code, documents))


def has_document_code(source: str) -> bool:
    """Return whether a text of several lines, in quotes, may be code with which awk can run programs, or an option."""
    end = len(source) - 1
    if _OPTION_AFTER_BREAK.match(source, 0, end):
        return True
    return any(pattern.search(source, 0, end) for pattern in _DOCUMENT_CODE)


def without_documents(line: str) -> str:
    """Return a line without its literal texts of several lines."""
    return _DOCUMENTS.sub("", line) if _DOCUMENT_START in line else line


def find_plain_programs(line: str) -> list[Program] | None:
    """Return the programs of a line of literal texts and file patterns; None for any other line.

    perf: most command lines of agents are plain, and decisions about them take about half the time without a tree.
    """
    if not _PLAIN_LINE.match(line) or not (line.isascii() or _PLAIN_CHARACTERS.fullmatch(line)):
        return None
    tokens = _PLAIN_TOKEN.findall(line)
    if not _NOT_PLAIN.isdisjoint(tokens) or "\\\n" in line:
        return None
    has_documents = _DOCUMENT_START in line
    if has_documents and not _are_literal_documents(tokens):
        return None
    if not has_documents and _NOT_WORDS.isdisjoint(tokens):  # perf: most lines are a single command
        return [Program(tuple([_plain_word(source) for source in tokens]), " ".join(tokens))]
    programs: list[Program] = []
    sources: list[str] = []
    redirects: tuple[Redirect, ...] = ()
    has_stdin = False
    if tokens[-1] != "\n":
        tokens.append("")
    for token in tokens:
        if token not in _NOT_WORDS:
            sources.append(token)
        elif token in _PLAIN_REDIRECTS:
            redirects = _PLAIN_REDIRECTS[token]
        else:
            if has_documents:
                programs += [_document_program(source) for source in sources if source.startswith(_DOCUMENT_START)]
            words = tuple([_plain_word(source) for source in sources])
            ended_by = "" if token == "\n" else token
            programs.append(
                Program(words, " ".join(sources), redirects=redirects, has_stdin=has_stdin, ended_by=ended_by)
            )
            has_stdin, sources, redirects = token == "|", [], ()
    return programs


def find_document_program(line: str) -> Program | None:
    """Return the program of a line that is one plain command with a literal here-document; None for any other line.

    perf: agents write files and run scripts in this way. The decision takes about half the time without a tree.
    """
    match = _DOCUMENT_COMMAND.match(line)
    if match is None:
        return None
    command, operator, target, mark = match.groups()
    start, end = match.end(), len(line.removesuffix("\n")) - len(mark)
    is_closed = line.startswith(mark, end) and line[end - 1] == "\n" and end >= start
    sources = _PLAIN_TOKEN.findall(command)
    if not is_closed or not _KEYWORDS.isdisjoint(sources):
        return None
    body = line[start:end]
    if mark in body and re.search(rf"^[ \t]*{mark}", body, re.MULTILINE):  # the tree may end the document there
        return None
    return Program(
        tuple(map(_plain_word, sources)),
        command,
        redirects=(Redirect(operator, _plain_word(target)),) if target else (),
        has_stdin=True,
        stdin_text=body,
    )


@dataclass(slots=True)
class ProgramBuilder:
    """A builder for a `Program`."""

    sources: list[str] = field(default_factory=list)
    words: list[ShellWord] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)
    values: list[ShellWord] = field(default_factory=list)
    assignments: list[str] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    loop_values: list[ShellWord] = field(default_factory=list)
    stdin_text: str | None = None
    has_stdin: bool = False
    redirected_first: bool = False
    spelling: str = ""
    has_break: bool = False

    @classmethod
    def from_program(cls, program: Program) -> ProgramBuilder:
        """Create a builder from a program, to add redirects or words that follow it."""
        return cls(
            sources=[program.text] if program.words else [],
            words=list(program.words),
            variables=list(program.variables),
            values=list(program.values),
            assignments=list(program.assignments),
            redirects=list(program.redirects),
            loop_values=list(program.loop_values),
            stdin_text=program.stdin_text,
            has_stdin=program.has_stdin,
            redirected_first=program.redirected_first,
            spelling=program.spelling,
            has_break=program.has_break,
        )

    def remove_last_word(self, text: str) -> None:
        """Remove the last word if it is `text`, as written."""
        if self.words and self.words[-1].text == text and self.sources[-1].endswith(text):
            self.words.pop()
            self.sources[-1] = self.sources[-1].removesuffix(text).rstrip()
            self.sources = [source for source in self.sources if source]
            self.spelling = self.spelling.removesuffix(text).rstrip()

    def build(self, *, has_stdin: bool, nested: bool) -> Program:
        """Return the finished program."""
        return Program(
            words=tuple(self.words),
            text=" ".join(self.sources),
            spelling=self.spelling,
            has_break=self.has_break,
            variables=tuple(self.variables),
            values=tuple(self.values),
            assignments=tuple(self.assignments),
            redirects=tuple(self.redirects),
            redirected_first=self.redirected_first,
            has_stdin=self.has_stdin or has_stdin,
            stdin_text=self.stdin_text,
            loop_values=tuple(self.loop_values),
            nested=nested,
        )
