"""What is seen of a command line: programs, and doubts.

Values only; `seen.py` makes them.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct

from toolspan.shell.parse import CharRange, Redirect, ShellWord, parse_document_body, parse_line, parse_word

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


class Program(Struct, frozen=True):
    """One program that the line may run, as it stands there."""

    words: tuple[ShellWord, ...]
    """Its name and its arguments; none when there are only redirects or assignments."""
    text: str
    """The words as they were written, with single blanks between them."""
    variables: tuple[str, ...] = ()
    """The variables that are set for it, or, without words, for all that follows."""
    values: tuple[ShellWord, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    has_stdin: bool = False
    """Something other than the terminal is its standard input."""
    stdin_text: str | None = None
    """What it reads there, when the line says it."""
    loop_values: tuple[ShellWord, ...] = ()
    """What a loop's variable becomes, one after the other."""
    nested: bool = False
    """It stands in a substitution, a function or a group."""

    @property
    def name(self) -> str:
        """What it is called by; empty when only the shell could tell."""
        if not self.words or self.words[0].has_expansion:
            return ""
        return self.words[0].text


class LinePrograms(Struct, frozen=True):
    """What is known of a line."""

    text: str
    programs: tuple[Program, ...]
    uncertainties: tuple[str, ...] = ()
    """Why there may be more programs than these; nothing when there cannot be."""


@dataclass(slots=True)
class ProgramBuilder:
    """A command while its parts are collected."""

    sources: list[str] = field(default_factory=list)
    words: list[ShellWord] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)
    values: list[ShellWord] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    loop_values: list[ShellWord] = field(default_factory=list)
    stdin_text: str | None = None
    has_stdin: bool = False

    @classmethod
    def from_program(cls, program: Program) -> ProgramBuilder:
        """A program that is not complete after all."""
        return cls(
            sources=[program.text] if program.words else [],
            words=list(program.words),
            variables=list(program.variables),
            values=list(program.values),
            redirects=list(program.redirects),
            loop_values=list(program.loop_values),
            stdin_text=program.stdin_text,
            has_stdin=program.has_stdin,
        )

    def build(self, *, fed: bool, nested: bool) -> Program:
        """The program, complete."""
        return Program(
            words=tuple(self.words),
            text=" ".join(self.sources),
            variables=tuple(self.variables),
            values=tuple(self.values),
            redirects=tuple(self.redirects),
            has_stdin=self.has_stdin or fed,
            stdin_text=self.stdin_text,
            loop_values=tuple(self.loop_values),
            nested=nested,
        )


UNKNOWN_WORD = ShellWord("", has_expansion=True, has_substitution=True)
"""A word of which nothing is known."""


_START_BYTE: Callable[[Node], int] = attrgetter("start_byte")
_END_BYTE: Callable[[Node], int] = attrgetter("end_byte")
BLANKS = re.compile(r"(?:[ \t]|\\\n)*")
BREAKS = re.compile(r"(?:[ \t\n]|\\\n)*")


@lru_cache(maxsize=1)
def bash_parser() -> Parser:
    """The parser; making one takes a while."""
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


class ParsedLine:
    """A line, and the doubts about it."""

    def __init__(self, line: str) -> None:
        self._text = line
        self._data = line.encode("utf-8", "surrogatepass")
        self._start: Callable[[Node], int] = _START_BYTE
        self._end: Callable[[Node], int] = _END_BYTE
        if not line.isascii():
            character_at = _CharacterIndex(self._data).character_at
            self._start = lambda node: character_at(node.start_byte)
            self._end = lambda node: character_at(node.end_byte)
        self.uncertainties: list[str] = []

    def _add_uncertainty(self, reason: str) -> None:
        self.uncertainties.append(reason)

    def _source_text(self, node: Node) -> str:
        return self._text[self._start(node) : self._end(node)]

    @abstractmethod
    def _visit_substitution(self, node: Node) -> bool:
        """Look into a node that runs something to make a word; False when it is none."""

    @abstractmethod
    def _collect_command(self, node: Node, builder: ProgramBuilder) -> None:
        """Take in all parts of a command."""

    @abstractmethod
    def _add_part(self, child: Node, builder: ProgramBuilder) -> None:
        """Take in a part of a command."""

    @abstractmethod
    def _finish_command(self, builder: ProgramBuilder) -> None:
        """A command is complete."""

    @abstractmethod
    def _is_statement(self, node: Node) -> bool:
        """Whether a node is a command or more than one."""

    @abstractmethod
    def _visit_statement(self, node: Node) -> None:
        """Look at a statement."""

    def _parse_word(self, node: Node) -> ShellWord:
        substitutions: list[CharRange] = []
        if node.child_count:
            self._visit_substitutions(node, substitutions)
        word = parse_word(self._text, self._start(node), self._end(node), substitutions)
        if word is None:
            self._add_uncertainty("a word is not understood")
            return UNKNOWN_WORD
        return word

    def _visit_substitutions(self, node: Node, substitutions: list[CharRange] | None = None) -> None:
        """Look into whatever a word runs; note where it stands."""
        if self._visit_substitution(node):
            if substitutions is not None:
                substitutions.append((self._start(node), self._end(node)))
            return
        for child in node.children:
            if child.child_count:
                self._visit_substitutions(child, substitutions)

    def _visit_child_substitutions(self, node: Node) -> None:
        for child in node.children:
            self._visit_substitutions(child)


class _CharacterIndex:
    """Which letter of a text a byte belongs to, when some letters take several bytes.

    Counted from where one asked last: nodes are looked at more or less in their order.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._byte, self._character = data, 0, 0

    def character_at(self, at: int) -> int:
        """The place of the letter that a byte belongs to."""
        data = self._data
        while at < len(data) and data[at] & 0xC0 == 0x80:  # within a letter
            at -= 1
        if at >= self._byte:
            self._character += len(data[self._byte : at].decode("utf-8", "surrogatepass"))
        else:
            self._character -= len(data[at : self._byte].decode("utf-8", "surrogatepass"))
        self._byte = at
        return self._character


REDIRECT_NODES = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})
_REDIRECT_OPERATOR = re.compile(r"\d*(?:>>|>\||>&|<&|<>|<<<|<|>)|&>>|&>")
_HEREDOC_NODES = frozenset({"<<", "<<-", "heredoc_start", "heredoc_body", "heredoc_end"})
_COMMAND_SEPARATORS = frozenset({"&&", "||", ";", "&"})
_MARK_TERMINATORS = ("", *" \t;&|<>)")
"""What may stand behind a here-document's mark; anything else would belong to it."""


def _ends_in_command(node: Node) -> bool:
    """Whether a redirect behind `a && b | c` is that of a plain command, the last one."""
    while node.type in ("list", "pipeline"):
        node = node.children[-1]
    return node.type == "command"


class RedirectParser(ParsedLine):
    """Takes in redirects."""

    programs: list[Program]
    _has_stdin = False
    """Whether something other than the terminal is what the next command reads."""
    _group_has_stdin = False
    """The same for the innermost group: what `&&` and `||` lead back to."""

    def _visit_redirected(self, node: Node) -> None:
        builder = ProgramBuilder()
        body, *redirects = node.children
        fed = self._has_stdin
        if body.type in REDIRECT_NODES:
            redirects = node.children
        elif body.type == "command":
            self._collect_command(body, builder)
        elif _ends_in_command(body):
            program_count = len(self.programs)
            self._visit_statement(body)
            builder = (
                ProgramBuilder.from_program(self.programs.pop()) if len(self.programs) > program_count else builder
            )
        else:
            around = self._group_has_stdin
            self._has_stdin = self._group_has_stdin = fed or any(
                "<" in self._source_text(redirect_node) for redirect_node in redirects
            )
            self._visit_statement(body)
            self._has_stdin, self._group_has_stdin = fed, around
        at = self._end(body) if body.type not in REDIRECT_NODES else self._start(node)
        for redirect in redirects:
            if not BLANKS.fullmatch(self._text, at, self._start(redirect)):
                self._add_uncertainty("something stands between two words")
            self._add_part(redirect, builder)
            at = self._end(redirect)
        self._finish_command(builder)

    def _add_redirect(self, node: Node, builder: ProgramBuilder) -> None:
        if node.type == "heredoc_redirect":
            self._add_here_document(node, builder)
            return
        operator, targets = self._split_redirect(node, builder)
        kind = operator.lstrip("0123456789")
        if not targets or not _REDIRECT_OPERATOR.fullmatch(operator):
            if not operator.endswith("-"):  # such as 2>&-
                self._add_uncertainty("a redirect is not understood")
        elif kind == "<<<":
            builder.stdin_text, builder.has_stdin = (None if targets[0].has_expansion else targets[0].text, True)
        else:
            builder.redirects.append(Redirect(operator, targets[0]))
            builder.has_stdin = builder.has_stdin or kind in ("<", "<>")

    def _split_redirect(self, node: Node, builder: ProgramBuilder) -> tuple[str, list[ShellWord]]:
        """The sign and the word of a redirect; words behind that are the command's."""
        operator = ""
        targets: list[ShellWord] = []
        at = self._start(node)
        for child in node.children:
            if not BLANKS.fullmatch(self._text, at, self._start(child)):
                self._add_uncertainty("something stands in a redirect")
            if child.is_named and child.type != "file_descriptor":
                if targets and at == self._start(child):
                    self._add_uncertainty("two words touch")
                targets.append(self._parse_word(child))
                if len(targets) > 1:
                    builder.words.append(targets[-1])
                    builder.sources.append(self._source_text(child))
            else:
                operator += self._source_text(child)
            at = self._end(child)
        return operator, targets

    def _add_here_document(self, node: Node, builder: ProgramBuilder) -> None:
        """A here-document: where it begins and ends is found anew."""
        parts = {child.type: child for child in node.children}
        start, end = parts.get("heredoc_start"), parts.get("heredoc_end")
        if start is None or end is None or not ("<<" in parts or "<<-" in parts):
            self._add_uncertainty("a here-document is not understood")
            self._visit_child_substitutions(node)
            return
        begin = self._text.find("\n", self._end(start)) + 1
        mark = self._parse_word(start) if start.child_count else self._parse_mark(start)
        stop = self._find_closing_line(begin, mark.text, tabs="<<-" in parts)
        rest = self._text[self._end(start) : max(begin - 1, 0)]
        beside = (part for part in node.children if part.type not in ("heredoc_body", "heredoc_end"))
        on_line = all(self._end(part) < begin for part in beside) and rest[:1] in _MARK_TERMINATORS
        if not on_line or "<<" in rest or self._line_start(end) != stop or rest.endswith("\\"):
            self._add_uncertainty("a here-document is not understood")
        builder.has_stdin = True
        literal = re.search(r"['\"\\]", self._source_text(start)) is not None
        self._visit_after_mark(node, builder)
        builder.stdin_text = self._parse_body(parts.get("heredoc_body"), begin, stop, literal=literal)

    def _parse_mark(self, node: Node) -> ShellWord:
        word = parse_word(self._text, self._start(node), self._end(node))
        if word is None or word.has_expansion:
            self._add_uncertainty("a here-document is not understood")
        return word or UNKNOWN_WORD

    def _find_closing_line(self, begin: int, mark: str, *, tabs: bool) -> int:
        """Where the line begins that ends the document."""
        at = begin
        while at <= len(self._text):
            end = self._text.find("\n", at)
            line = self._text[at : end if end >= 0 else len(self._text)]
            if (line.lstrip("\t") if tabs else line) == mark:
                return at
            if end < 0:
                break
            at = end + 1
        return -1

    def _line_start(self, node: Node) -> int:
        return self._text.rfind("\n", 0, self._start(node)) + 1

    def _visit_after_mark(self, node: Node, builder: ProgramBuilder) -> None:
        """What stands on the line behind the mark: words, redirects, or further commands."""
        for child in node.children:
            kind = child.type
            if kind in _HEREDOC_NODES or kind in _COMMAND_SEPARATORS:
                continue
            if kind == "file_descriptor":
                self._add_uncertainty("a here-document is not on standard input")
            elif kind == "pipeline":
                fed, self._has_stdin = self._has_stdin, True
                self._visit_statement(child)
                self._has_stdin = fed
            elif kind in REDIRECT_NODES or not self._is_statement(child):
                self._add_part(child, builder)
            else:
                self._visit_statement(child)

    def _parse_body(self, body: Node | None, begin: int, stop: int, *, literal: bool) -> str | None:
        if literal:
            return self._text[begin : max(stop, begin)]
        substitutions: list[CharRange] = []
        if body is not None:
            for child in body.children:
                self._visit_substitutions(child, substitutions)
        word = parse_document_body(self._text, begin, max(stop, begin), substitutions)
        if word is None:
            self._add_uncertainty("a here-document is not understood")
        return word.text if word is not None and not word.has_expansion else None


STDIN_MARK = "\x01"
"""In the place of `<<'EOF'` and what belongs to it: the command before it reads the document."""
WORD_MARK = "\x02"
"""In the place of `"$(cat <<'EOF' ... )"`: the document is a word."""

_HEREDOC_START = re.compile(r"""("\$\([ \t]*+cat[ \t]*+)?<<[ \t]*+(?:'(\w++)'|"(\w++)"|(\w++))([^\n]*+)\n""", re.ASCII)
_HEREDOC_END = re.compile(r"(?![^\n])")
_HEREDOC_WORD_END = re.compile(r'\n[ \t\n]*+\)"')
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_LEADING_ESCAPE = re.compile(r"\s*+\\")
"""A document that begins so is taken for a word by the tree."""
_EXPANSION = re.compile(r"[$`\\]")


class HereDocument(Struct, frozen=True):
    """A text that a command reads."""

    body: str
    source: str = ""
    """The word that it makes, as it was written; nothing when it makes none."""


class StrippedLine(Struct, frozen=True):
    """A line without its documents."""

    text: str
    documents: tuple[HereDocument, ...]


def cut_here_documents(line: str) -> StrippedLine | None:
    """What is left of a line; None when a document in it may be more than text."""
    if _CONTROL_CHARACTER.search(line):
        return None
    texts: list[str] = []
    documents: list[HereDocument] = []
    at = 0
    while begin := _HEREDOC_START.search(line, at):
        end = _find_document_end(line, begin)
        if end is None:
            return None
        texts.append(line[at : begin.start()])
        body, at = line[begin.end() : end[0]], end[1]
        if begin[1] is None:
            texts.append(STDIN_MARK + begin[5])
            documents.append(HereDocument(body))
        else:
            texts.append(WORD_MARK)
            documents.append(HereDocument(body, line[begin.start() : at]))
    texts.append(line[at:])
    return StrippedLine("".join(texts), tuple(documents))


def _find_document_end(line: str, begin: re.Match[str]) -> tuple[int, int] | None:
    """Where a document ends, and where the line goes on; None when that, or it, is not plain."""
    _, single, double, bare, behind = begin.groups()
    mark, start = single or double or bare, begin.end()
    end = line.find(mark, start)  # readers of shell code disagree on marks within lines
    if end < 0 or line[end - 1] != "\n" or "<<" in behind or _LEADING_ESCAPE.match(line, start):
        return None
    if bare and _EXPANSION.search(line, start, end):
        return None
    if begin[1] is None:
        closed = _HEREDOC_END.match(line, end + len(mark))
    else:
        closed = None if behind else _HEREDOC_WORD_END.match(line, end + len(mark))
    return None if closed is None else (end, closed.end())


_SINGLE_QUOTED = r"'[^'\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]*+'"
_DOUBLE_QUOTED = r'"(?:[^"\\$`\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]++|\\[ -~])*+"'
_BARE_TEXT = r"[A-Za-z0-9_./:,@%+=^~*?-]++|\{\}"
_WORD = rf"(?:(?!=|-(?![^\s;|&]))(?:{_BARE_TEXT}|{_SINGLE_QUOTED}|{_DOUBLE_QUOTED})++|\\[;()!](?![^ \t])|!(?![^ \t]))"
_SHELL_KEYWORDS = (
    "case|coproc|declare|do|done|elif|else|esac|export|fi|for|function|if|in|let|local|readonly"
    "|select|then|time|typeset|unset|unsetenv|until|while"
)
_COMMAND_NAME = rf"(?!(?:{_SHELL_KEYWORDS})(?![\w./-]))[A-Za-z_./][\w./-]*+(?![^\s;|&])"
_FILE_REDIRECT = r"[12]?>>?|&>>?|<"
_STREAM_REDIRECT = r"[12]?>&(?=[12](?![^\s;|&]))"
_REDIRECT_PREFIX = rf"(?:{_STREAM_REDIRECT}|(?:{_FILE_REDIRECT})[ \t]*+)"
_SEPARATOR = r"&&|\|\||[;|\n]|&(?!>)"


_CONTINUING_OPERATORS = ("&&", "||", "|")
_COMMAND_END = rf"[ \t]*+(?:({_SEPARATOR})[ \t\n]*+|\Z)"
_PLAIN_ARGUMENT = r"(?!=|-(?![^\s;|&]))[A-Za-z0-9_./:,@%+=^-]++(?![^\s;|&])"


def _command_pattern(further: str = "", last: str = "") -> re.Pattern[str]:
    """A command of plain words, or another one; what is behind it; or else all that is left."""
    plain = rf"{_COMMAND_NAME}(?:[ \t]++{_PLAIN_ARGUMENT})*+"
    mixed = rf"{_COMMAND_NAME}(?:[ \t]++(?:{_REDIRECT_PREFIX}?+{_WORD}(?![<>]){further}))*+{last}"
    return re.compile(rf"[ \t\n]*+(?:({plain}){_COMMAND_END}|({mixed}){_COMMAND_END})|([^\x00]++)", re.ASCII)


_PLAIN_COMMANDS = _command_pattern()
_COMMANDS_WITH_DOCUMENTS = _command_pattern(
    rf"|{WORD_MARK}(?![^\s;|&])",
    rf"(?:[ \t]++{STDIN_MARK}(?:[ \t]++{_REDIRECT_PREFIX}{_WORD}(?![<>]))*+[ \t]*+(?![^\n]))?+",
)
_QUOTED_TEXT = r"""'[^']*+'|"(?:[^"\\]++|\\.)*+"|\\."""
_TOKEN = re.compile(
    rf"[ \t]*+(?:([^\s'\"\\*?~<>&{STDIN_MARK}{WORD_MARK}]++)(?!\S)|('[^']*+'|\"[^\"\\]*+\")(?!\S)"
    rf"|([12]?>&|[12]?>>?|&>>?|<)|([{STDIN_MARK}{WORD_MARK}])|((?:[^\s'\"\\<>&]++|{_QUOTED_TEXT})++))",
    re.ASCII | re.DOTALL,
)
"""A piece of a command that is known to be mixed."""
_CAT_ARGV = (ShellWord("cat"),)
_ESCAPED_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_ESCAPE_SEQUENCE = re.compile(r'\\([$`"\\])')


def parse_plain_line(line: str) -> tuple[Program, ...] | None:
    """The programs of a line that is plain to see; None for any other line."""
    if "<<" not in line:
        return None if "\\\n" in line else _build_programs(_PLAIN_COMMANDS.findall(line), iter(()))
    rest = cut_here_documents(line)
    if rest is None or "\\\n" in rest.text:
        return None
    return _build_programs(_COMMANDS_WITH_DOCUMENTS.findall(rest.text), iter(rest.documents))


def _build_programs(
    commands: Iterable[tuple[str, ...]], documents: Iterator[HereDocument]
) -> tuple[Program, ...] | None:
    programs: list[Program] = []
    between = ""
    for plain, then, mixed, next_then, other in commands:
        if other:
            return None
        if plain:
            texts = plain.split()
            programs.append(Program(tuple(map(ShellWord, texts)), " ".join(texts), has_stdin=between == "|"))
            between = then
            continue
        parsed = _parse_mixed_command(mixed, documents, fed=between == "|")
        if parsed is None:
            return None
        programs += parsed
        between = next_then
    return None if not programs or between in _CONTINUING_OPERATORS else tuple(programs)


def _parse_mixed_command(text: str, documents: Iterator[HereDocument], *, fed: bool) -> list[Program] | None:
    """A command with quotes, patterns, redirects or documents, and what runs to make its words."""
    programs: list[Program] = []
    argv: list[ShellWord] = []
    sources: list[str] = []
    redirects: list[Redirect] = []
    feed: str | None = None
    operator = ""
    for bare, quoted, into, mark, odd in _TOKEN.findall(text):
        if into:
            operator = into
            continue
        if mark == STDIN_MARK:
            fed, feed = True, next(documents).body
            continue
        source = bare or quoted or odd
        word = ShellWord(bare) if bare else _unquote_word(quoted, odd)
        if mark:
            document = next(documents)
            source = document.source.replace("\\\n", "")
            word = ShellWord(document.source[1:-1], has_expansion=True, has_substitution=True)
            programs.append(Program(_CAT_ARGV, "cat", has_stdin=True, stdin_text=document.body, nested=True))
        if word is None:
            return None
        if operator:
            redirects.append(Redirect(operator, word))
            fed, operator = fed or operator == "<", ""
        else:
            argv.append(word)
            sources.append(source)
    program = Program(tuple(argv), " ".join(sources), redirects=tuple(redirects), has_stdin=fed, stdin_text=feed)
    return [*programs, program]


def _unquote_word(quoted: str, odd: str) -> ShellWord | None:
    if not odd:
        return ShellWord(quoted[1:-1])
    if _ESCAPED_STRING.fullmatch(odd):
        return ShellWord(_ESCAPE_SEQUENCE.sub(r"\1", odd[1:-1]))
    return parse_word(odd, 0, len(odd))


MAX_LINE_LENGTH = 10_000
"""Characters; a longer line is not looked at any closer."""
_MAX_DEPTH = 60
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:,@%+^-]++")
"""A word that says what is written; most do."""
_ARITHMETIC = re.compile(r"[\s0-9+\-*/%<>=!&|^~?:(),]*")
"""Arithmetic over numbers alone: a name may hold text that is evaluated, and runs commands."""
_NUMBER = re.compile(r"-?\d+")
_COMPARISONS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_RESERVED_WORDS = frozenset({
    "!", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for",
    "function", "if", "in", "select", "then", "until", "while", "{", "}",
})  # fmt: skip


@lru_cache(maxsize=256)
def find_programs(line: str) -> LinePrograms:
    """What a line would run."""
    if len(line) > MAX_LINE_LENGTH:
        return LinePrograms(line, (), ("the line is very long",))
    programs = parse_plain_line(line)
    return find_programs_in_tree(line) if programs is None else LinePrograms(line, programs)


def find_programs_in_tree(line: str) -> LinePrograms:
    """The same for any line; of a plain one it says nothing else than `easy.py`."""
    if _CONTROL_CHARACTERS.search(line):
        return LinePrograms(line, (), ("there are control characters in it",))
    finder = _ProgramFinder(line)
    finder.visit_line()
    return LinePrograms(line, tuple(finder.programs), tuple(dict.fromkeys(finder.uncertainties)))


class _ProgramFinder(RedirectParser):
    """Walks the tree of a line and notes what it would run."""

    def __init__(self, line: str) -> None:
        super().__init__(line)
        self.programs: list[Program] = []
        self._depth = 0
        self._nested = False

    def visit_line(self) -> None:
        """Look at the whole line."""
        root = bash_parser().parse(self._data).root_node
        if root.has_error:
            self._add_uncertainty("it does not parse")
        if not BREAKS.fullmatch(self._text, 0, self._start(root)):
            self._add_uncertainty("something stands before it")
        self._visit_sequence(root)
        if not BREAKS.fullmatch(self._text, self._end(root), len(self._text)):
            self._add_uncertainty("something stands behind it")

    def _is_statement(self, node: Node) -> bool:
        return node.type in _VISITORS

    def _visit_statement(self, node: Node) -> None:
        kind = node.type
        visitor = _VISITORS.get(kind)
        if visitor is None:
            if node.is_named or kind not in _IGNORED_TOKENS:
                self._add_uncertainty(f"{kind} is not understood")
                self._visit_sequence(node)
            return
        around = self._group_has_stdin
        if kind not in _TRANSPARENT_NODES:
            self._group_has_stdin = self._has_stdin
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._add_uncertainty("it is nested very deeply")
        else:
            visitor(self, node)
        self._depth -= 1
        self._group_has_stdin = around

    def _visit_sequence(self, node: Node) -> None:
        """Look at every part; what stands between them must be blank."""
        at = self._start(node)
        for child in node.children:
            if not BREAKS.fullmatch(self._text, at, self._start(child)):
                self._add_uncertainty("something stands between two commands")
            self._visit_statement(child)
            at = self._end(child)
        if not BREAKS.fullmatch(self._text, at, self._end(node)):
            self._add_uncertainty("something stands behind a command")

    def _visit_list(self, node: Node) -> None:
        """`a | b && c`: the tree may say that `c` is in the pipe; the shell says that it is not."""
        at = self._start(node)
        for child in node.children:
            if not BREAKS.fullmatch(self._text, at, self._start(child)):
                self._add_uncertainty("something stands between two commands")
            if child.type in ("&&", "||"):
                self._has_stdin = self._group_has_stdin
            else:
                self._visit_statement(child)
            at = self._end(child)

    def _visit_group(self, node: Node) -> None:
        if node.children and node.children[0].type == "((":
            self._visit_arithmetic(node)
            return
        nested, self._nested = self._nested, True
        self._visit_sequence(node)
        self._nested = nested

    def _visit_pipeline(self, node: Node) -> None:
        fed = self._has_stdin
        at = self._start(node)
        for child in node.children:
            if not BREAKS.fullmatch(self._text, at, self._start(child)):
                self._add_uncertainty("something stands between two commands")
            if child.type in ("|", "|&"):
                self._has_stdin = True
            else:
                self._visit_statement(child)
            at = self._end(child)
        self._has_stdin = fed

    def _check_comment(self, node: Node) -> None:
        start = self._start(node)
        if "\n" in self._source_text(node) or (start and self._text[start - 1] not in " \t\n;&|()"):
            self._add_uncertainty("a comment begins inside a word")

    # Commands

    def _visit_command(self, node: Node) -> None:
        builder = ProgramBuilder()
        self._collect_command(node, builder)
        self._finish_command(builder)

    def _collect_command(self, node: Node, builder: ProgramBuilder) -> None:
        """The words, assignments and redirects of a command node."""
        at = self._start(node)
        before: Node | None = None
        for child in node.children:
            start = self._start(child)
            if self._text[at:start] != " ":
                self._check_gap(before, child, at)
            self._add_part(child, builder)
            before, at = child, self._end(child)

    def _check_gap(self, before: Node | None, child: Node, at: int) -> None:
        """Look at what stands between two parts of a command, when it is not one blank."""
        start = self._start(child)
        if not BLANKS.fullmatch(self._text, at, start):
            self._add_uncertainty("something stands between two words")
        word = before is not None and before.type not in REDIRECT_NODES
        if word and not self._has_blank_between(at, start):
            self._check_touching_words(child)

    def _has_blank_between(self, at: int, start: int) -> bool:
        """Whether a blank stands there; the end of a line that goes on is none."""
        return start > at and (self._text[at] in " \t" or self._text[start - 1] in " \t" or " " in self._text[at:start])

    def _check_touching_words(self, child: Node) -> None:
        """Two words that touch are one to the shell; only a redirect's sign parts them."""
        if child.type not in REDIRECT_NODES or self._text[self._start(child)].isdigit():
            self._add_uncertainty("two words touch")

    def _add_part(self, child: Node, builder: ProgramBuilder) -> None:
        match child.type:
            case "word":
                self._add_argument(child, builder)
            case "command_name":
                for part in child.children:
                    self._add_argument(part, builder)
            case "variable_assignment":
                self._add_assignment(child, builder)
            case "file_redirect" | "heredoc_redirect" | "herestring_redirect":
                self._add_redirect(child, builder)
            case "subshell":
                self._add_uncertainty("a group stands where a word should")
                self._visit_statement(child)
            case _:
                self._add_argument(child, builder)

    def _add_argument(self, node: Node, builder: ProgramBuilder) -> None:
        source = self._source_text(node)
        if _PLAIN_WORD.fullmatch(source):
            builder.words.append(ShellWord(source))
            builder.sources.append(source)
        else:
            builder.words.append(self._parse_word(node))
            builder.sources.append(source.replace("\\\n", ""))

    def _finish_command(self, builder: ProgramBuilder) -> None:
        program = builder.build(fed=self._has_stdin, nested=self._nested)
        if program.words and not program.name:
            self._add_uncertainty("a command's name is filled in by the shell")
        if program.name in _RESERVED_WORDS:
            self._add_uncertainty(f"{program.name} stands where a command should")
        self.programs.append(program)

    def _add_assignment(self, node: Node, builder: ProgramBuilder) -> None:
        source = self._source_text(node)
        matched = re.match(r"([A-Za-z_]\w*)\+?=", source, re.ASCII)
        if matched is None:
            self._add_uncertainty("an element of an array is set")
            self._visit_substitutions(node)
            builder.variables.append("")
            builder.values.append(UNKNOWN_WORD)
            return
        builder.variables.append(matched[1])
        builder.values.append(self._parse_value(node, self._start(node) + matched.end()))

    def _parse_value(self, node: Node, start: int) -> ShellWord:
        value = node.children[-1]
        if self._start(value) != start or self._end(value) != self._end(node):
            return ShellWord("") if start == self._end(node) else self._reject_value(node)
        if value.type == "array":
            return self._parse_array(value)
        word = self._parse_word(value)
        return (
            ShellWord(word.text, has_expansion=True, has_substitution=word.has_substitution)
            if word.text[:1] == "~"
            else word
        )

    def _reject_value(self, node: Node) -> ShellWord:
        self._add_uncertainty("a value is not understood")
        self._visit_substitutions(node)
        return UNKNOWN_WORD

    def _parse_array(self, node: Node) -> ShellWord:
        for child in node.children:
            if child.is_named and "=" not in self._source_text(child):
                self._parse_word(child)
            elif child.is_named:
                self._reject_value(child)
        return UNKNOWN_WORD

    def _visit_assignment(self, node: Node) -> None:
        builder = ProgramBuilder()
        for child in node.children if node.type == "variable_assignments" else (node,):
            self._add_assignment(child, builder)
        self._finish_command(builder)

    def _visit_declaration(self, node: Node) -> None:
        """`export`, `declare`, `local`, `readonly`, `unset`: what they set counts as set."""
        builder = ProgramBuilder()
        at = self._start(node)
        for child in node.children:
            if not BLANKS.fullmatch(self._text, at, self._start(child)):
                self._add_uncertainty("something stands between two words")
            if child.type == "variable_assignment":
                self._add_assignment(child, builder)
            elif child.is_named and child.type != "variable_name":
                self._check_declared_option(child)
            elif child.type == "variable_name":
                builder.variables.append(self._source_text(child))
            builder.words.append(ShellWord(self._source_text(child)))
            builder.sources.append(self._source_text(child))
            at = self._end(child)
        self._finish_command(builder)

    def _check_declared_option(self, node: Node) -> None:
        word = self._parse_word(node)
        if word.has_expansion or not re.fullmatch(r"-[aAgprxfFtu]+|[A-Za-z_]\w*", word.text, re.ASCII):
            self._add_uncertainty("what is declared is not understood")

    # Substitutions

    def _visit_substitution(self, node: Node) -> bool:
        visitor = _SUBSTITUTION_VISITORS.get(node.type)
        if visitor is not None:
            visitor(self, node)
        return visitor is not None

    def _visit_command_substitution(self, node: Node) -> None:
        source = self._source_text(node)
        ends = source[:1] == "`" == source[-1:] or source[-1:] == ")"
        if not ends or (source[0] == "`" and "\\" in source):
            self._add_uncertainty("a substitution is not understood")
        fed, nested = self._has_stdin, self._nested
        self._has_stdin, self._nested = False, True
        at = self._start(node)
        for child in node.children:
            if not BREAKS.fullmatch(self._text, at, self._start(child)):
                self._add_uncertainty("something stands between two commands")
            if child.type in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                builder = ProgramBuilder()
                self._add_redirect(child, builder)
                self._finish_command(builder)
            else:
                self._visit_statement(child)
            at = self._end(child)
        self._has_stdin, self._nested = fed, nested

    def _visit_arithmetic(self, node: Node) -> None:
        source = self._source_text(node)
        if not _ARITHMETIC.fullmatch(source.removeprefix("$").replace("[", "(").replace("]", ")")):
            self._add_uncertainty("arithmetic is done with names")
        self._visit_child_substitutions(node)

    # Tests, loops, functions

    def _visit_test(self, node: Node) -> None:
        self._visit_child_substitutions(node)
        source = self._source_text(node)
        if source.startswith("[["):
            self._visit_double_test(source)
            return
        substitutions: list[CharRange] = []
        for child in node.children:
            self._collect_substitutions(child, substitutions)
        for start, end in reversed(substitutions):
            begin = self._start(node)
            source = source[: start - begin] + "x" + source[end - begin :]
        commands = parse_line(source)
        if commands is None or len(commands) != 1 or commands[0].redirects:
            self._add_uncertainty("a test is not understood")
            return
        argv = commands[0].words
        if any(word.text in ("-v", "-R") or (word.has_expansion and "*" in word.text) for word in argv):
            self._add_uncertainty("a test is not understood")
        self.programs.append(Program((ShellWord("["), *argv[1:]), source, nested=self._nested))

    def _collect_substitutions(self, node: Node, substitutions: list[CharRange]) -> None:
        if node.type in _SUBSTITUTION_VISITORS:
            substitutions.append((self._start(node), self._end(node)))
            return
        for child in node.children:
            self._collect_substitutions(child, substitutions)

    def _visit_double_test(self, source: str) -> None:
        """`[[ ]]` does arithmetic with `-eq` and the like, and looks up names with `-v`."""
        tokens = source.split()
        for at, word in enumerate(tokens):
            sides = tokens[max(at - 1, 0) : at + 2 : 2]
            if word in ("-v", "-R") or (word in _COMPARISONS and not all(map(_is_number, sides))):
                self._add_uncertainty("a test does arithmetic with names")
        if re.search(r"\n|;|`", source):
            self._add_uncertainty("a test is not understood")
        self.programs.append(Program((ShellWord("[["),), source, nested=self._nested))

    def _visit_for(self, node: Node) -> None:
        builder = ProgramBuilder()
        for child in node.children:
            match child.type:
                case "variable_name":
                    builder.variables.append(self._source_text(child))
                case "do_group" | "compound_statement":
                    if builder.variables:
                        builder.values.append(_loop_value(builder.loop_values))
                        self._finish_command(builder)
                        builder = ProgramBuilder()
                    self._visit_group(child)
                case _ if child.is_named:
                    builder.loop_values.append(self._parse_word(child))
                case "select":
                    self._add_uncertainty("select is not understood")
                case _:
                    pass

    def _visit_c_for(self, node: Node) -> None:
        for child in node.children:
            if child.type in ("do_group", "compound_statement"):
                self._visit_group(child)
            else:
                self._visit_substitutions(child)
        self._add_uncertainty("arithmetic is done with names")

    def _visit_case(self, node: Node) -> None:
        for child in node.children:
            if child.type == "case_item":
                self._visit_case_item(child)
            elif child.is_named:
                self._parse_word(child)

    def _visit_case_item(self, node: Node) -> None:
        pattern = True
        for child in node.children:
            if child.type == ")":
                pattern = False
            elif pattern and child.is_named:
                self._parse_word(child)
            elif not pattern and child.type not in _CASE_ENDS:
                self._visit_statement(child)

    def _visit_function(self, node: Node) -> None:
        for child in node.children:
            if child.type in ("word", "function", "(", ")"):
                continue
            self._visit_statement(child)


def _is_number(word: str) -> bool:
    return _NUMBER.fullmatch(word) is not None or word in ("$#", "$?", "${#}")


def _loop_value(choices: list[ShellWord]) -> ShellWord:
    """The value of a loop's variable: one of its words, if they all stay where they are."""
    if len(choices) == 1:
        return choices[0]
    stays = all(
        not word.has_expansion and word.text[:1] not in ("", "/", "~", "-") and ".." not in word.text
        for word in choices
    )
    return choices[0] if choices and stays else UNKNOWN_WORD


_CASE_ENDS = frozenset({";;", ";&", ";;&"})
_IGNORED_TOKENS = frozenset({
    ";", "&", "\n", "&&", "||", "|", "|&", "(", ")", "{", "}", "!", "if",
    "then", "else", "elif", "fi", "while", "until", "do", "done", "$(", "<(", ">(", "`",
})  # fmt: skip
_TRANSPARENT_NODES = frozenset({"command", "list", "negated_command", "pipeline", "redirected_statement"})
"""What is no group: what such a thing reads is what stands around it."""
_Visitor = Callable[[_ProgramFinder, "Node"], None]
_VISITORS: Mapping[str, _Visitor] = {
    "program": _ProgramFinder._visit_sequence,
    "list": _ProgramFinder._visit_list,
    "command": _ProgramFinder._visit_command,
    "pipeline": _ProgramFinder._visit_pipeline,
    "redirected_statement": _ProgramFinder._visit_redirected,
    "variable_assignment": _ProgramFinder._visit_assignment,
    "variable_assignments": _ProgramFinder._visit_assignment,
    "declaration_command": _ProgramFinder._visit_declaration,
    "unset_command": _ProgramFinder._visit_declaration,
    "test_command": _ProgramFinder._visit_test,
    "comment": _ProgramFinder._check_comment,
    "subshell": _ProgramFinder._visit_group,
    "compound_statement": _ProgramFinder._visit_group,
    "do_group": _ProgramFinder._visit_group,
    "if_statement": _ProgramFinder._visit_group,
    "elif_clause": _ProgramFinder._visit_group,
    "else_clause": _ProgramFinder._visit_group,
    "while_statement": _ProgramFinder._visit_group,
    "negated_command": _ProgramFinder._visit_sequence,
    "for_statement": _ProgramFinder._visit_for,
    "c_style_for_statement": _ProgramFinder._visit_c_for,
    "case_statement": _ProgramFinder._visit_case,
    "function_definition": _ProgramFinder._visit_function,
}
_SUBSTITUTION_VISITORS: Mapping[str, _Visitor] = {
    "command_substitution": _ProgramFinder._visit_command_substitution,
    "process_substitution": _ProgramFinder._visit_command_substitution,
    "arithmetic_expansion": _ProgramFinder._visit_arithmetic,
}
